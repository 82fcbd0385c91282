//! What pages load beside themselves: one style sheet, one script, one icon, all within the program.
//!
//! Invariant: nothing is read from disk, so that no name leads anywhere; a browser asks again only when the program is
//! another one.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

const ASSETS: [(&str, &str, &str); 3] = [
    ("bosun.css", "text/css; charset=utf-8", include_str!("assets/bosun.css")),
    ("bosun.js", "text/javascript; charset=utf-8", include_str!("assets/bosun.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// The style sheet, for pages that stand alone.
pub(super) const STYLES: &str = ASSETS[0].2;

pub(super) async fn asset(Path(file): Path<String>, headers: HeaderMap) -> Response {
    let Some((_, kind, text)) = ASSETS.iter().find(|(name, ..)| *name == file) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let tag = format!("\"{}\"", &blake3::hash(text.as_bytes()).to_hex()[..16]);
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|given| given.as_bytes() == tag.as_bytes());
    let mut response = if known { StatusCode::NOT_MODIFIED.into_response() } else { (*text).into_response() };
    let set = response.headers_mut();
    set.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    set.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        set.insert(header::ETAG, tag);
    }
    response
}
