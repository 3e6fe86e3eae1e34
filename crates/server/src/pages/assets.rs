//! The style, the script and the icon, compiled in, and what a portal looks by. Their
//! paths carry the hash of what they are, so a browser keeps them for good and never an
//! old one.

use std::sync::LazyLock;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, header};
use sha2::{Digest, Sha256};

use super::Asked;
use crate::access::key::hex;

/// A file.
#[derive(Debug)]
pub(super) struct Asset {
    /// Where it is.
    pub(super) path: String,
    media_type: &'static str,
    bytes: Bytes,
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        Asset::new(
            ("style", "css"),
            include_bytes!("../../assets/style.css").as_slice(),
        ),
        Asset::new(
            ("live", "js"),
            include_bytes!("../../assets/live.js").as_slice(),
        ),
        Asset::new(
            ("icon", "svg"),
            include_bytes!("../../assets/icon.svg").as_slice(),
        ),
    ]
});

impl Asset {
    /// Of this name and ending.
    pub(super) fn new((name, ending): (&str, &'static str), bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let digest = Sha256::digest(&bytes);
        let hash = hex(&digest[..8]);
        Self {
            path: format!("/dashboard/assets/{name}.{hash}.{ending}"),
            media_type: match ending {
                "css" => "text/css; charset=utf-8",
                "js" => "text/javascript; charset=utf-8",
                "svg" => "image/svg+xml",
                _ => "image/png",
            },
            bytes,
        }
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

pub(super) async fn serve(State(pages): Asked, Path(name): Path<String>) -> Response {
    let named = |asset: &&Asset| asset.path.rsplit('/').next() == Some(&name);
    let mut all = ASSETS.iter().chain(pages.0.portal.assets());
    match all.find(named) {
        Some(asset) => {
            let headers = [
                (header::CONTENT_TYPE, asset.media_type),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, asset.bytes.clone()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
