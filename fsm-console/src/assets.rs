//! The style sheet and the script, embedded in the program. Their names contain a hash of their content, so that a browser may cache them
//! without limit.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use fsm_core::hash::fnv1a_64;

const STYLE: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");

/// The file name of the style sheet.
pub(crate) static STYLE_NAME: LazyLock<String> = LazyLock::new(|| format!("console-{:016x}.css", fnv1a_64(STYLE.bytes())));
/// The file name of the script.
pub(crate) static SCRIPT_NAME: LazyLock<String> = LazyLock::new(|| format!("console-{:016x}.js", fnv1a_64(SCRIPT.bytes())));

pub(crate) async fn serve(Path(name): Path<String>) -> Response {
    let (kind, text) = match name {
        name if name == *STYLE_NAME => ("text/css; charset=utf-8", STYLE),
        name if name == *SCRIPT_NAME => ("text/javascript; charset=utf-8", SCRIPT),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")], text).into_response()
}

pub(crate) async fn robots() -> &'static str {
    "User-agent: *\nDisallow: /\n"
}
