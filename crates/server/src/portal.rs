//! The portal of customers: how the pages that a link opens look, and who may show them
//! in a frame. All of it is said once, at the start.

use std::io::Read;
use std::path::Path;

mod colour;

pub use colour::Colour;

use crate::config::portal::FrameAncestor;
use crate::config::{ConfigError, PortalConfig};

/// The largest logo: every page of every customer loads it.
const MAX_LOGO_BYTES: u64 = 256 * 1_024;

/// Its longer side, in pixels: a small file can be a large picture.
const MAX_LOGO_SIDE: u64 = 2_048;

/// As it is configured, with what is in files.
#[derive(Debug, Clone, Default)]
pub struct Portal {
    /// Who may frame a link's pages; nobody, if it is empty.
    pub ancestors: Vec<FrameAncestor>,
    /// Instead of our own name.
    pub name: Option<String>,
    /// Instead of our own colour.
    pub accent: Option<Colour>,
    /// A PNG.
    pub logo: Option<Vec<u8>>,
}

impl Portal {
    /// Reads the logo.
    pub fn load(config: &PortalConfig) -> Result<Self, ConfigError> {
        let logo = config.portal_logo.as_deref().map(logo).transpose();
        Ok(Self {
            ancestors: config.frame_ancestors.clone(),
            name: config.portal_name.clone(),
            accent: config.portal_accent,
            logo: logo.map_err(|problem| ConfigError::flag("portal-logo", problem))?,
        })
    }
}

fn logo(file: &Path) -> Result<Vec<u8>, String> {
    let unread = |error| format!("{}: cannot be read: {error}", file.display());
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(unread)?;
    let mut bounded = opened.take(MAX_LOGO_BYTES + 1);
    bounded.read_to_end(&mut bytes).map_err(unread)?;
    match png_problem(&bytes) {
        None => Ok(bytes),
        Some(problem) => Err(format!("{}: {problem}", file.display())),
    }
}

/// What is wrong with a logo, by its signature and its first chunk, which has its size.
fn png_problem(bytes: &[u8]) -> Option<String> {
    if bytes.len() as u64 > MAX_LOGO_BYTES {
        let most = MAX_LOGO_BYTES / 1_024;
        return Some(format!("must be at most {most} KiB"));
    }
    let header = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR");
    let Some(sides) = header.and_then(|rest| rest.first_chunk()) else {
        return Some("must be a PNG; an SVG is not taken, for it can carry scripts".to_owned());
    };
    // Its width and its height, in four bytes each.
    let sides = u64::from_be_bytes(*sides);
    let sides = [sides >> 32, sides & u64::from(u32::MAX)];
    let fits = (sides.iter()).all(|side| (1..=MAX_LOGO_SIDE).contains(side));
    (!fits).then(|| format!("must be at most {MAX_LOGO_SIDE} pixels wide and high"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32, bytes: usize) -> Vec<u8> {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        png.extend(width.to_be_bytes());
        png.extend(height.to_be_bytes());
        png.resize(bytes.max(png.len()), 0);
        png
    }

    fn load(bytes: &[u8]) -> Result<Portal, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logo.png");
        std::fs::write(&file, bytes).unwrap();
        let config = PortalConfig {
            portal_logo: Some(file),
            ..PortalConfig::default()
        };
        Portal::load(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_logo_is_a_png_of_a_bounded_size() {
        let good = png(320, 64, 256 * 1_024);
        assert_eq!(load(&good).unwrap().logo, Some(good));
        for (wrong, why) in [
            (
                b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>".to_vec(),
                "PNG",
            ),
            (b"\x89PNG\r\n\x1a\n".to_vec(), "PNG"),
            (png(320, 64, 256 * 1_024 + 1), "256 KiB"),
            (png(2_049, 64, 0), "2048 pixels"),
            (png(320, 0, 0), "2048 pixels"),
        ] {
            let said = load(&wrong).unwrap_err();
            assert!(
                said.starts_with("--portal-logo (PACELINE_PORTAL_LOGO): "),
                "{said}"
            );
            assert!(said.contains(why), "{said}");
        }
        let config = PortalConfig {
            portal_logo: Some("/nowhere/logo.png".into()),
            ..PortalConfig::default()
        };
        let said = Portal::load(&config).unwrap_err().to_string();
        assert!(said.contains("cannot be read"), "{said}");
    }
}
