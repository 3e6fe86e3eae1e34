//! How the pages look to whoever opens a link, and where they may stand in a frame.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use url::{Host, Url};

use crate::portal::Colour;

/// Longer names leave no room for the navigation.
const MAX_NAME_CHARS: usize = 60;

/// The portal of customers: the pages that a link opens.
#[derive(Debug, Clone, Default, Args)]
pub struct PortalConfig {
    /// The origins of the sites that may show a link's pages in a frame, such as
    /// `https://app.example.com`, separated by commas. Pages of whoever signs in with a
    /// key are never framed.
    #[arg(long, env = "PACELINE_FRAME_ANCESTORS", value_name = "ORIGIN")]
    #[arg(value_delimiter = ',', num_args = 0..=20)]
    pub frame_ancestors: Vec<FrameAncestor>,

    /// What a link's pages are called, instead of Paceline.
    #[arg(long, env = "PACELINE_PORTAL_NAME", value_name = "TEXT", value_parser = name)]
    pub portal_name: Option<String>,

    /// The colour of their links, lines and buttons, such as `#0a7c66`. Text in it is
    /// made darker or lighter where it could not be read, and text on it is black or white.
    #[arg(long, env = "PACELINE_PORTAL_ACCENT", value_name = "COLOUR")]
    pub portal_accent: Option<Colour>,

    /// Their logo, before their name: a PNG of at most 256 KiB, read at the start.
    #[arg(
        long,
        env = "PACELINE_PORTAL_LOGO",
        value_name = "FILE",
        requires = "portal_name"
    )]
    pub portal_logo: Option<PathBuf>,
}

fn name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let length = name.chars().count();
    if length == 0 || length > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        return Err(format!(
            "must be 1 to {MAX_NAME_CHARS} characters on one line"
        ));
    }
    Ok(name.to_owned())
}

/// An origin that may show a link's pages in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameAncestor(String);

impl fmt::Display for FrameAncestor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FrameAncestor {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let words = "must be https:// and a host, such as https://app.example.com";
        let url = Url::parse(text).map_err(|error| format!("{words} ({error})"))?;
        let host = url.host().ok_or(words)?;
        let is_here = match host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(ip) => ip.is_loopback(),
            Host::Ipv6(ip) => ip.is_loopback(),
        };
        // Whoever is on the way to a page in plain text frames what he likes.
        if url.scheme() != "https" && !(url.scheme() == "http" && is_here) {
            return Err(format!("{words}; http:// is for this machine alone"));
        }
        let host = host.to_string();
        if !host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".-[:]_".contains(c))
        {
            return Err("must name one host: wildcards are not taken".to_owned());
        }
        let is_bare = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if !is_bare {
            return Err("must be an origin: leave out all after the host and its port".to_owned());
        }
        Ok(Self(url.origin().ascii_serialization()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        portal: PortalConfig,
    }

    fn parse(arguments: &[&str]) -> Result<PortalConfig, String> {
        let all = ["paceline"].iter().chain(arguments);
        let parsed = Cli::try_parse_from(all).map_err(|error| error.to_string());
        parsed.map(|cli| cli.portal)
    }

    #[test]
    fn origins_are_taken_as_browsers_write_them() {
        let said = "https://App.Example,https://b.example:8443/,http://localhost:3000";
        let found = parse(&["--frame-ancestors", said]).unwrap().frame_ancestors;
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let wanted = [
            "https://app.example",
            "https://b.example:8443",
            "http://localhost:3000",
        ];
        assert_eq!(found, wanted);
        assert_eq!(parse(&[]).unwrap().frame_ancestors, []);
    }

    #[test]
    fn what_is_no_single_origin_is_refused_with_a_reason() {
        for (text, why) in [
            ("app.example", "https:// and a host"),
            ("*", "https:// and a host"),
            ("http://app.example", "this machine alone"),
            ("ftp://app.example", "https:// and a host"),
            ("https://*.example", "one host"),
            ("https://app.example;script-src", "one host"),
            ("https://app.example/hooks", "an origin"),
            ("https://app.example?a=b", "an origin"),
            ("https://me:secret@app.example", "an origin"),
        ] {
            let said = parse(&["--frame-ancestors", text]).unwrap_err();
            assert!(said.contains("--frame-ancestors"), "{text}: {said}");
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn a_name_is_one_line_and_a_colour_is_one_in_hex() {
        let named = parse(&["--portal-name", " Acme hooks "]).unwrap();
        assert_eq!(named.portal_name.as_deref(), Some("Acme hooks"));
        for wrong in ["", "  ", "two\nlines", &"x".repeat(61)] {
            let said = parse(&["--portal-name", wrong]).unwrap_err();
            assert!(said.contains("1 to 60 characters"), "{wrong:?}: {said}");
        }
        let said = parse(&["--portal-logo", "logo.png"]).unwrap_err();
        assert!(said.contains("--portal-name"), "{said}");
        let said = parse(&["--portal-accent", "red;}"]).unwrap_err();
        assert!(
            said.contains("--portal-accent") && said.contains("#0a7c66"),
            "{said}"
        );
    }
}
