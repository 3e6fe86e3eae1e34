//! The style, the script and the icon, compiled in. Their paths carry the hash
//! of what they are, so a browser keeps them for good and never an old one.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use sha2::{Digest, Sha256};

struct Asset {
    path: String,
    media_type: &'static str,
    text: &'static str,
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        asset(
            "style",
            "css",
            "text/css; charset=utf-8",
            include_str!("../../assets/style.css"),
        ),
        asset(
            "live",
            "js",
            "text/javascript; charset=utf-8",
            include_str!("../../assets/live.js"),
        ),
        asset(
            "icon",
            "svg",
            "image/svg+xml",
            include_str!("../../assets/icon.svg"),
        ),
    ]
});

fn asset(name: &str, ending: &str, media_type: &'static str, text: &'static str) -> Asset {
    let digest = Sha256::digest(text.as_bytes());
    let hash: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let path = format!("/dashboard/assets/{name}.{hash}.{ending}");
    Asset {
        path,
        media_type,
        text,
    }
}

/// Where the style is.
pub(super) fn style() -> &'static str {
    &ASSETS[0].path
}

/// Where the script is.
pub(super) fn script() -> &'static str {
    &ASSETS[1].path
}

/// Where the icon is.
pub(super) fn icon() -> &'static str {
    &ASSETS[2].path
}

pub(super) async fn serve(Path(name): Path<String>) -> Response {
    let named = |asset: &&Asset| asset.path.rsplit('/').next() == Some(&name);
    match ASSETS.iter().find(named) {
        Some(asset) => {
            let headers = [
                (header::CONTENT_TYPE, asset.media_type),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, asset.text).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
