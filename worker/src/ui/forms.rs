//! Who looks at a page, and the forms that they send.
//!
//! Invariant: a form counts only with the seal of the session that shows it, compared in constant time; whoever sends it may
//! what their token may, asked by the backend that they get.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bosun_engine::Namespace;
use maud::{Markup, html};
use serde::de::DeserializeOwned;

use super::elements::{query_value, with};
use super::layout::{PageError, problem_page};
use crate::api::TokenRole;
use crate::api::authority::CallerBackend;
use crate::api::handlers::{Api, AuthorizedCaller};
use crate::api::problem::Problem;
use crate::api::session::Session;
use crate::cli::Reach;

/// Somebody who is signed in, with the backend as they have it.
pub(super) struct Visitor {
    pub backend: CallerBackend,
    pub session: Session,
    reach: Reach,
}

impl Visitor {
    /// A text in which commands stand, each so that it reaches this worker from any folder.
    pub(super) fn complete(&self, text: &str) -> String {
        self.reach.complete(text)
    }

    /// A command of the command line that reaches this worker from any folder, to be copied.
    pub(super) fn command(&self, text: &str) -> Markup {
        copied(&self.reach.complete(text))
    }

    /// The same for a run in this namespace.
    pub(super) fn command_in(&self, namespace: &Namespace, text: &str) -> Markup {
        copied(&self.reach.complete_in(namespace, text))
    }

    /// Whether their token may do what this role may: a form stands only where it may be sent.
    pub(super) fn may(&self, role: TokenRole) -> bool {
        self.session.caller.role >= role
    }

    /// In place of a form that they may not send.
    pub(super) fn may_not(&self, role: TokenRole) -> Markup {
        html! { p.muted { "This needs the role " (role) "; your token " (self.session.caller.name) " has " (self.session.caller.role) "." } }
    }

    /// What each of their forms carries.
    pub(super) fn seal(&self) -> Markup {
        html! { input type="hidden" name="seal" value=(self.session.form_seal); }
    }
}

/// A command, with a button that copies it.
fn copied(command: &str) -> Markup {
    html! { span.command { code { (command) } button.copy type="button" hidden data-copy=(command) { "Copy" } } }
}

impl FromRequestParts<Api> for Visitor {
    type Rejection = PageError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Visitor, PageError> {
        let session = parts.extensions.get::<Session>().cloned();
        let nobody = || Problem::new(StatusCode::UNAUTHORIZED, "not_signed_in", "nobody is signed in");
        let session = session.ok_or_else(nobody)?;
        let caller = AuthorizedCaller::from_request_parts(parts, api).await?;
        Ok(Visitor { backend: caller.backend, session, reach: api.reach.clone() })
    }
}

/// What the address of a page asks for, behind its `?`.
pub(super) struct Query<T>(pub T);

/// An address that asks for nothing that there is: what of it, and the page without that.
pub(super) struct BadAddress {
    why: Problem,
    page: String,
}

impl IntoResponse for BadAddress {
    fn into_response(self) -> Response {
        problem_page(self.why, Some((&self.page, "This page as it begins")))
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = BadAddress;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query<T>, BadAddress> {
        let read = |uri: &Uri| axum::extract::Query::<T>::try_from_uri(uri).ok().map(|read| read.0);
        read(&parts.uri).map(Query).ok_or_else(|| {
            let (name, message) = wrong_in(&parts.uri, |query| query.parse().is_ok_and(|alone| read(&alone).is_some()));
            let page = with(parts.uri.path_and_query().map_or("/", PathAndQuery::as_str), &[(&name, "")]);
            BadAddress { why: Problem::bad_request(message), page }
        })
    }
}

/// The part of an address that a page cannot take, and why: about the address that people see, and not about how it is read.
/// `alone`: whether an address that says this and nothing else can be taken.
fn wrong_in(uri: &Uri, alone: impl Fn(&str) -> bool) -> (String, String) {
    let pairs: Vec<(String, String)> =
        form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let of = |(name, value): &(String, String)| format!("/?{}={}", query_value(name), query_value(value));
    if let Some((name, value)) = pairs.iter().find(|pair| !alone(&of(pair))) {
        let message = format!("the address says `{name}={value}`, and `{name}` cannot be that");
        return (name.clone(), message);
    }
    let twice = pairs.iter().enumerate().find(|(nth, (name, _))| pairs[..*nth].iter().any(|(other, _)| other == name));
    match twice {
        Some((_, (name, _))) => (name.clone(), format!("the address says `{name}` more than once")),
        None => (String::new(), "the address cannot be read".to_owned()),
    }
}

/// The fields of a form, in their order.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(super) fn read(body: &[u8]) -> Fields {
        Fields(form_urlencoded::parse(body).into_owned().collect())
    }
    /// Fields that nobody has typed.
    pub(super) fn of(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }
    /// What a field says; nothing where it is left empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut given = self.0.iter().filter(|(given, _)| given == name);
        given.next().map(|(_, value)| value.as_str()).filter(|value| !value.trim().is_empty())
    }
    /// What a field says, be it empty; nothing where the form has no such field.
    pub(super) fn sent(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
    /// Every field whose name begins so, with the rest of its name.
    pub(super) fn beginning<'a>(&'a self, with: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(name, value)| Some((name.strip_prefix(with)?, value.as_str())))
    }
}

/// A form that somebody who is signed in has sent from a page of theirs.
pub(super) struct Form {
    pub visitor: Visitor,
    pub fields: Fields,
}

impl FromRequest<Api> for Form {
    type Rejection = PageError;
    async fn from_request(request: Request, api: &Api) -> Result<Form, PageError> {
        let (mut parts, body) = request.into_parts();
        let visitor = Visitor::from_request_parts(&mut parts, api).await?;
        let bytes = Bytes::from_request(Request::from_parts(parts, body), api).await;
        let bytes = bytes.map_err(|why| Problem::bad_request(format!("the form: {}", why.body_text())))?;
        let fields = Fields::read(&bytes);
        let given = fields.text("seal").unwrap_or_default();
        // Hashes compare in constant time.
        if blake3::hash(given.as_bytes()) != blake3::hash(visitor.session.form_seal.as_bytes()) {
            let message = "this form is of no page that you have open: load the page again, and send it from there";
            return Err(Problem::new(StatusCode::FORBIDDEN, "form_not_sealed", message).into());
        }
        Ok(Form { visitor, fields })
    }
}
