//! The frame of every page: head, navigation, who is signed in, and the page for what went wrong.
//!
//! Invariant: a page names itself, has one `main`, and can be walked by keyboard alone; what the frame needs of the worker
//! it does not ask for, so that it stands also where nothing else answers.

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::forms::Visitor;
use super::neutral::text_of;
use crate::api::handlers::no_such_route;
use crate::api::problem::Problem;
use crate::api::routes::is_page;
use crate::backend::CallError;

/// A place of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Runs,
    Inbox,
    Agents,
    Schedules,
    System,
    Docs,
}

const PLACES: [(Place, &str, &str); 6] = [
    (Place::Runs, "/", "Runs"),
    (Place::Inbox, "/inbox", "Inbox"),
    (Place::Agents, "/agents", "Agents"),
    (Place::Schedules, "/schedules", "Schedules"),
    (Place::System, "/system", "Worker"),
    (Place::Docs, "/docs", "Guide"),
];

/// A page, ready to be framed.
pub(super) struct Page<'a> {
    pub title: &'a str,
    pub place: Place,
    /// The list filter of the runs whose events change this page; nothing for one that stays as it is.
    pub live: Option<String>,
    pub body: Markup,
}

impl Page<'_> {
    pub(super) fn response(self, visitor: &Visitor) -> Response {
        let Page { title, place, live, body } = self;
        let document =
            document(title, live.as_deref(), html! { (head(visitor, place)) main id="main" tabindex="-1" { (body) } });
        html_response(StatusCode::OK, document)
    }
}

fn html_response(status: StatusCode, document: Markup) -> Response {
    let mut response = (status, text_of(document)).into_response();
    let set = response.headers_mut();
    set.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    set.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn document(title: &str, live: Option<&str>, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Bosun" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/assets/bosun.css";
                script src="/assets/bosun.js" defer {}
            }
            body data-live=[live] {
                a.skip href="#main" { "Skip to the content" }
                (body)
            }
        }
    }
}

fn head(visitor: &Visitor, place: Place) -> Markup {
    html! {
        header.top {
            a.brand href="/" { "Bosun" }
            (navigation(Some(place)))
            div.who {
                span.live-state id="live-state" role="status" { }
                button.theme type="button" hidden aria-label="Light or dark" title="Light or dark (t)" { "◐" }
                form method="post" action="/logout" {
                    (visitor.seal())
                    span.muted { (visitor.session.caller.name) " · " (visitor.session.caller.role) }
                    " " button.link type="submit" { "Sign out" }
                }
            }
        }
        dialog id="keys" aria-label="Keys" {
            h2 { "Keys" }
            table.keys { tbody {
                @for (key, does) in KEYS { tr { td { kbd { (key) } } td { (does) } } }
            } }
            form method="dialog" { button { "Close" } }
        }
    }
}

fn navigation(here: Option<Place>) -> Markup {
    html! { nav aria-label="Pages" {
        @for (of, href, name) in PLACES {
            a href=(href) aria-current=[(Some(of) == here).then_some("page")] { (name) }
        }
    } }
}

const KEYS: [(&str, &str); 12] = [
    ("g r", "Runs"),
    ("g i", "Inbox"),
    ("g a", "Agents"),
    ("g s", "Schedules"),
    ("g w", "Worker"),
    ("g d", "Guide"),
    ("/", "Search"),
    ("j k", "Next and previous row"),
    ("Enter", "Open the row"),
    ("x", "Choose the row"),
    ("[ ]", "Event before and after, on a run"),
    ("t", "Light or dark"),
];

/// Why a page cannot be shown.
#[derive(Debug)]
pub(super) struct PageError(pub Problem);

impl From<Problem> for PageError {
    fn from(problem: Problem) -> Self {
        PageError(problem)
    }
}

impl From<CallError> for PageError {
    fn from(why: CallError) -> Self {
        PageError(why.into())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        problem_page(self.0, None)
    }
}

/// Why a page cannot be shown, and the ways on: `back` is another page that can.
pub(super) fn problem_page(why: Problem, back: Option<(&str, &str)>) -> Response {
    let Problem { code, message, errors, status, .. } = why;
    let title = status.canonical_reason().unwrap_or("This cannot be shown");
    // Who asks may be nobody, so the way on is all that stands here: no name, and no form.
    let body = html! {
        header.top { a.brand href="/" { "Bosun" } (navigation(None)) }
        main id="main" tabindex="-1" {
            div.problem role="alert" {
                h1 { (title) }
                p { (message) }
                @if !errors.is_empty() {
                    ul { @for error in errors { li { code { (error.at) } ": " (error.why) } } }
                }
                p.muted { code { (code) } }
                @if let Some((address, words)) = back { p { a href=(address) { (words) } } }
                p { a href="/" { "To all runs" } }
            }
        }
    };
    html_response(status, document(title, None, body))
}

/// Whatever no other route takes: a page, or something of the API.
pub(super) async fn no_such_page(uri: Uri) -> Response {
    let problem = no_such_route(uri.clone()).await;
    if is_page(uri.path()) { PageError(problem).into_response() } else { problem.into_response() }
}

/// A page for who is not signed in.
pub(super) fn outside(title: &str, status: StatusCode, body: Markup) -> Response {
    html_response(status, document(title, None, html! { main.narrow id="main" tabindex="-1" { (body) } }))
}

/// After a form: somewhere else, so that a reload does not send it again.
pub(super) fn go_to(place: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let place = HeaderValue::from_str(place).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, place);
    response
}
