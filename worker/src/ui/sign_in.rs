//! Signing in: by the link that `bosun ui` prints, or by a token.
//!
//! Invariant: a link signs in once and soon; a token is sent in a form, never in an address. Where one goes afterwards is a
//! page of this worker, whatever the address says. What is wrong with a token or a link is not told.

use axum::body::Bytes;
use axum::extract::Extension;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use maud::html;
use serde::Deserialize;

use super::forms::{Fields, Form, Query};
use super::layout::{go_to, outside};
use crate::api::guard::SignIn;

#[derive(Deserialize)]
pub(super) struct SignInQuery {
    next: Option<String>,
    code: Option<String>,
}

pub(super) async fn page(Extension(sign_in): Extension<SignIn>, Query(query): Query<SignInQuery>) -> Response {
    let next = query.next.as_deref();
    match &query.code {
        None => form(next, None),
        Some(code) => match sign_in.sessions.by_code(&sign_in.tokens, code, sign_in.time.now()) {
            Some(cookie) => signed_in(&sign_in, &cookie, next),
            None => form(next, Some("This link has been used, or is too old: `bosun ui` prints another one.")),
        },
    }
}

pub(super) async fn sign_in(Extension(sign_in): Extension<SignIn>, body: Bytes) -> Response {
    let fields = Fields::read(&body);
    let token = fields.text("token").unwrap_or_default().trim();
    match sign_in.sessions.by_token(&sign_in.tokens, token, sign_in.time.now()) {
        Some(cookie) => signed_in(&sign_in, &cookie, fields.text("next")),
        None => form(fields.text("next"), Some("This token opens nothing here.")),
    }
}

fn form(next: Option<&str>, wrong: Option<&str>) -> Response {
    let body = html! {
        h1 { "Sign in" }
        @if let Some(wrong) = wrong { p.problem role="alert" { (wrong) } }
        p { "Run " code { "bosun ui" } " where the worker runs: it prints a link that signs you in." }
        p { "Or with a token, from " code { "bosun token create NAME --role viewer" } " or the file " code { "token" }
            " of the data directory:" }
        form.stack method="post" action="/login" {
            label for="token" { "Token" }
            input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
            @if let Some(next) = next { input type="hidden" name="next" value=(next); }
            button.primary type="submit" { "Sign in" }
        }
    };
    outside("Sign in", if wrong.is_some() { StatusCode::FORBIDDEN } else { StatusCode::OK }, body)
}

fn signed_in(sign_in: &SignIn, cookie: &str, next: Option<&str>) -> Response {
    // Another host would be a way out: `//host` and `/\host` are ones, also with a tab between, which browsers take out.
    let inside = |next: &&str| {
        next.starts_with('/') && !next[1..].starts_with(['/', '\\']) && !next.contains(|c: char| c.is_control())
    };
    let response = go_to(next.filter(inside).unwrap_or("/"));
    with_cookie(response, &format!("{}={cookie}; Max-Age=86400", sign_in.cookie))
}

/// A cookie that no script reads, and that comes along when somebody follows a link here, but not with what other sites send.
fn with_cookie(mut response: Response, pair: &str) -> Response {
    if let Ok(cookie) = HeaderValue::from_str(&format!("{pair}; Path=/; HttpOnly; SameSite=Lax")) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

pub(super) async fn sign_out(Extension(sign_in): Extension<SignIn>, _: Form) -> Response {
    with_cookie(go_to("/login"), &format!("{}=; Max-Age=0", sign_in.cookie))
}
