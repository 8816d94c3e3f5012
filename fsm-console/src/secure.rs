//! The guard of every route: authentication, the check of forms against request forgery, and the security headers.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access::{Access, Authentication, is_same};
use crate::shared::Shared;

/// The content security policy: only content of this console is loaded.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";
/// The maximum size of a form in bytes. A payload of 256 KiB fits, percent-encoded.
const LARGEST_FORM: usize = 1024 * 1024;

/// Refuses requests without access and forms of other origins, and adds the security headers.
pub(crate) async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let actor = shared.authentication.actor(&parts);
    let mut response = if actor.access == Access::Denied {
        denied(&shared.authentication)
    } else {
        parts.extensions.insert(actor);
        match checked(&shared, parts, body).await {
            Ok(request) => next.run(request).await,
            Err(refused) => *refused,
        }
    };
    let headers = response.headers_mut();
    put(headers, CONTENT_SECURITY_POLICY, POLICY);
    put(headers, X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(headers, X_FRAME_OPTIONS, "DENY");
    put(headers, REFERRER_POLICY, "same-origin");
    put(headers, HeaderName::from_static("x-robots-tag"), "noindex");
    if !headers.contains_key(CACHE_CONTROL) {
        put(headers, CACHE_CONTROL, "no-store");
    }
    response
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}

fn denied(authentication: &Authentication) -> Response {
    match authentication {
        Authentication::Basic { .. } => (
            StatusCode::UNAUTHORIZED,
            [(WWW_AUTHENTICATE, "Basic realm=\"fsm console\", charset=\"UTF-8\"")],
            "a name and a password are needed\n",
        )
            .into_response(),
        Authentication::Loopback => (
            StatusCode::FORBIDDEN,
            "the console answers requests from its own machine only: set `.authorize(…)` or `.basic_auth(…)`; \
             a server inside a program needs `into_make_service_with_connect_info::<SocketAddr>()`\n",
        )
            .into_response(),
        Authentication::Custom(_) => (StatusCode::FORBIDDEN, "you may not use this console\n").into_response(),
    }
}

/// Checks that a POST request comes from a page of this origin and has the token of this console. GET requests write nothing and pass.
async fn checked(shared: &Shared, parts: Parts, body: Body) -> Result<Request, Box<Response>> {
    match parts.method {
        Method::GET | Method::HEAD => return Ok(Request::from_parts(parts, body)),
        Method::POST => {}
        _ => return Err(Box::new(StatusCode::METHOD_NOT_ALLOWED.into_response())),
    }
    let refuse = |status: StatusCode, text: &'static str| Box::new((status, text).into_response());
    if shared.is_read_only {
        return Err(refuse(StatusCode::FORBIDDEN, "this console is read-only\n"));
    }
    let is_form = parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    if !is_form {
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a form is expected\n"));
    }
    if !is_of_this_origin(&parts) {
        return Err(refuse(StatusCode::FORBIDDEN, "the form came from another site\n"));
    }
    let Ok(bytes) = to_bytes(body, LARGEST_FORM).await else {
        return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "the form is larger than 1 MiB\n"));
    };
    let given = form_value(&bytes, "token").unwrap_or_default();
    if !is_same(&given, &shared.token) {
        return Err(refuse(StatusCode::FORBIDDEN, "the form is of another run of the console: load the page again\n"));
    }
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// Checks the origin that a browser sends with each POST request: its host must be the host that the request is for.
fn is_of_this_origin(parts: &Parts) -> bool {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let origin = parts.headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()).and_then(|origin| origin.parse::<Uri>().ok());
    match (origin.as_ref().and_then(Uri::authority), host) {
        (Some(origin), Some(host)) => origin.as_str().eq_ignore_ascii_case(host),
        _ => false,
    }
}

fn form_value(bytes: &[u8], name: &str) -> Option<String> {
    let pairs = std::str::from_utf8(bytes).ok()?.split('&');
    let value = pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?.1;
    percent_encoding::percent_decode_str(value).decode_utf8().ok().map(|value| value.into_owned())
}
