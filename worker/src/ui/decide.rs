//! What a signed link opens: the page that shows one request, and the form on it that decides.
//!
//! Invariant: looking decides nothing, whoever looks: programs that look at links before people do are let in and change
//! nothing. The form decides once; whoever holds the link may do what it says and nothing else, and is recorded by the name of
//! the channel that was told. A link that is altered, late or used says so on a plain page. Whether the decision counts is
//! decided by the run.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::forms::{Fields, Query};
use super::inbox::{decided_before, not_taken, send};
use super::layout::outside;
use crate::api::handlers::Api;
use crate::api::problem::Problem;
use crate::api::routes::DECIDE_PATH;
use crate::api::{Caller, CallerBackend, TokenRole};
use crate::backend::Backend;
use crate::cli::request_text::parts;
use crate::inbox::became::Became;
use crate::inbox::{HumanRequest, HumanRequestKind, going_on, requests, target_of};
use crate::notify::links::{LinkClaim, LinkRefusal, Links};

#[derive(Deserialize)]
pub(super) struct LinkQuery {
    #[serde(default)]
    link: String,
}

impl From<LinkRefusal> for Problem {
    fn from(why: LinkRefusal) -> Problem {
        let (status, code) = match &why {
            LinkRefusal::NotOurs => (StatusCode::FORBIDDEN, "link_not_ours"),
            LinkRefusal::Expired => (StatusCode::GONE, "link_expired"),
            LinkRefusal::Used => (StatusCode::CONFLICT, "link_used"),
            LinkRefusal::Unreadable(_) => (StatusCode::SERVICE_UNAVAILABLE, "links_unreadable"),
        };
        Problem::new(status, code, why.to_string())
    }
}

impl From<LinkRefusal> for LinkProblem {
    fn from(why: LinkRefusal) -> LinkProblem {
        LinkProblem(why.into())
    }
}

impl From<Problem> for LinkProblem {
    fn from(why: Problem) -> LinkProblem {
        LinkProblem(why)
    }
}

/// A refusal for somebody who may not be able to sign in: nothing of the pages is shown.
pub(super) struct LinkProblem(Problem);

impl IntoResponse for LinkProblem {
    fn into_response(self) -> Response {
        let LinkProblem(Problem { message, code, status, .. }) = &self;
        let body = html! {
            h1 { "This link decides nothing" }
            p.problem role="alert" { (message) }
            p.muted { code { (code) } }
        };
        outside("This link decides nothing", *status, body)
    }
}

/// The links of the worker that was asked.
fn links_of(api: &Api) -> Result<Arc<Links>, LinkRefusal> {
    api.links.clone().ok_or(LinkRefusal::NotOurs)
}

/// The backend as whoever holds the link has it: an answer, in one namespace.
fn backend_of(api: &Api, claim: &LinkClaim) -> CallerBackend {
    let name = format!("link:{}", claim.channel);
    let namespaces = Some([claim.namespace.clone()].into());
    CallerBackend::new(api.backend.clone(), Caller { name, role: TokenRole::Approver, namespaces, token: None })
}

/// What the link is about, if it is still asked as it was told.
async fn request_of(backend: &dyn Backend, claim: &LinkClaim) -> Result<HumanRequest, Problem> {
    let run = bosun_engine::Target::run(claim.workflow_id.clone(), claim.run_id);
    let target = bosun_engine::Target { namespace: claim.namespace.clone(), ..run };
    let info = going_on(backend, target).await?;
    let target = target_of(&info);
    let nothing = || {
        let message = "nothing waits for this any more: it has been answered, or the run goes on without it";
        Problem::new(StatusCode::CONFLICT, "nothing_waits", message)
    };
    if !info.status.is_open() {
        return Err(nothing());
    }
    let all = requests(backend, &target, &info.workflow_type).await?;
    let found = all.into_iter().find(|one| one.id() == claim.request).ok_or_else(nothing)?;
    if found.shown() != claim.shown {
        let message = "what is asked has changed since it was told: a link decides what was shown and nothing else";
        return Err(Problem::new(StatusCode::CONFLICT, "changed", message));
    }
    Ok(found)
}

pub(super) async fn page(State(api): State<Api>, Query(query): Query<LinkQuery>) -> Result<Response, LinkProblem> {
    let links = links_of(&api)?;
    let claim = links.read(&query.link, api.backend.now())?;
    links.used(api.backend.now()).await?.check(&claim)?;
    let found = request_of(&backend_of(&api, &claim), &claim).await?;
    Ok(outside("Decide", StatusCode::OK, form(&claim, &found, &query.link)))
}

fn form(claim: &LinkClaim, found: &HumanRequest, link: &str) -> Markup {
    let verb = if claim.approve { "Approve" } else { "Reject" };
    html! {
        h1 { (verb) " this?" }
        p { "Asked by " strong { (claim.workflow_id) } "." }
        dl.facts { @for (name, text) in parts(&found.request) {
            dt { (name) } dd.wrap { @if text.contains('\n') { pre.payload { (text) } } @else { (text) } }
        } }
        form.stack method="post" action=(DECIDE_PATH) {
            input type="hidden" name="link" value=(link);
            label for="comment" { "Comment" }
            textarea id="comment" name="comment" rows="2" {}
            button class=(if claim.approve { "primary" } else { "danger" }) type="submit" { (verb) }
        }
        p.muted { "It decides once, until " (claim.expires_at) ", and is recorded as link:" (claim.channel) "." }
    }
}

pub(super) async fn decide(State(api): State<Api>, body: Bytes) -> Result<Response, LinkProblem> {
    let fields = Fields::read(&body);
    let links = links_of(&api)?;
    let claim = links.read(fields.text("link").unwrap_or_default(), api.backend.now())?;
    // Whoever else decides by a link waits until this one is noted.
    let mut used = links.used(api.backend.now()).await?;
    used.check(&claim)?;
    let backend = backend_of(&api, &claim);
    let found = request_of(&backend, &claim).await?;
    let does = match (found.kind, claim.approve) {
        (HumanRequestKind::Elsewhere, true) => "approve_plan",
        (HumanRequestKind::Elsewhere, false) => "deny_plan",
        (_, true) => "approve",
        (_, false) => "reject",
    };
    let comment = fields.text("comment").unwrap_or_default();
    let sent = send(&backend, &found, &Fields::of(&[("do", does), ("comment", comment)])).await?;
    used.note(&claim)?;
    // Nobody waits for the run to take it.
    drop(used);
    let word = if claim.approve { "Approved" } else { "Rejected" };
    let (title, said) = match sent.became(&backend).await {
        Became::Taken => (word, " has your decision."),
        Became::Waits => ("Sent", " was sent your decision, and has not taken it yet."),
        Became::Refused(why) => return Err(not_taken(&claim.request, &why).into()),
        Became::Before(why) => return Err(decided_before(&claim.request, &why).into()),
    };
    let body = html! {
        h1 { (title) }
        p role="status" { (claim.workflow_id) (said) " This link is used up." }
    };
    Ok(outside(title, StatusCode::OK, body))
}
