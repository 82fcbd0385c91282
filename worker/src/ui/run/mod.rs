//! The page of one run: what it is, what it waits for, what it does, what happened, how it was at any moment.
//!
//! Invariant: a part that cannot be shown says why and hides no other. The page reads the run; only its forms act.

pub(super) mod actions;
pub(super) mod fork;
pub(crate) mod fork_here;
mod handoffs;
pub(crate) mod history;
mod moment;
mod people_waits;
pub(crate) mod spans;
pub(super) mod supervisor;
pub(crate) mod timeline;
pub(super) mod whole;

use axum::response::Response;
use bosun_engine::*;
use maud::{Markup, html};
use serde::Deserialize;

use self::fork_here::ForkHere;
use self::history::{HistoryView, history};
use self::spans::{SpanKind, spans};
use self::supervisor::SupervisorView;
use super::elements::{ago, command_of, exact, failure, lasted, query_value, run_link, standing, value, with};
use super::forms::{Fields, Query, Visitor};
use super::layout::{Page, PageError, Place};
use super::waits::{RunWait, held_by_people, waits};
use crate::agent::AGENT;
use crate::api::guard::now;
use crate::api::handlers::RequestTarget;
use crate::api::problem::Problem;
use crate::backend::Backend;
use crate::cli::stuck::{Lookout, Obstacle};
use crate::cli::waiting::{Hold, waiting};
use crate::inbox::target_of;
use crate::notify::notified;
use crate::past::past;
use crate::supervisor::run::SUPERVISOR;
use crate::unhandled;

/// Events that a page reads; a longer history is shown up to there, and says so.
const EVENTS_MAX: usize = 20_000;
/// Events are asked for this many at a time.
const EVENTS_AT_ONCE: usize = 1_000;
/// Children that are named.
const CHILDREN_MAX: usize = 200;

#[derive(Deserialize)]
pub(super) struct RunPageQuery {
    tab: Option<String>,
    view: Option<String>,
    page: Option<usize>,
    at: Option<u64>,
}

const TABS: [(&str, &str); 5] =
    [("", "Overview"), ("history", "History"), ("moment", "Time travel"), ("replay", "Replay"), ("fork", "Fork")];

pub(super) async fn page(
    visitor: Visitor,
    at: Result<RequestTarget, Problem>,
    Query(asked): Query<RunPageQuery>,
) -> Result<Response, PageError> {
    let description = visitor.backend.describe(at?.target).await?;
    let info = &description.info;
    let tab = asked.tab.as_deref().unwrap_or_default();
    let here = run_link(info.namespace.as_str(), info.workflow_id.as_str(), Some(info.run_id));
    let waiting = waits(&visitor.backend, &description).await;
    let below = if tab.is_empty() { below(&visitor.backend, &description).await } else { Vec::new() };
    let body = html! {
        (title(&description, held_by_people(&waiting)))
        nav.tabs aria-label="Parts of the run" {
            @for (name, words) in TABS { a href=(with(&here, &[("tab", name)])) aria-current=[(name == tab).then_some("true")] { (words) } }
        }
        // Whom it waits for stands before all that can be done and known of it.
        @if tab.is_empty() { (waits_section(&visitor, info, &waiting, &below)) }
        (facts(&visitor, &description, held_by_people(&waiting)))
        @match tab {
            "history" => {
                @let events = events(&visitor.backend, info).await?;
                (cut_short(info, events.len()))
                (history(&with(&here, &[("tab", "history"), ("view", asked.view.as_deref().unwrap_or_default())]), HistoryView::named(asked.view.as_deref()),
                    asked.page.unwrap_or(1).saturating_sub(1), info, (&events, &spans(&events)), &ForkHere::of(&visitor, info).await))
            },
            "moment" => {
                @let turns = visitor.backend.turns(target_of(info)).await?;
                @let forks = ForkHere::among(&visitor, info, &turns);
                @match past(turns, asked.at, false).await {
                    Ok(past) => (moment::moment(&visitor, info, &with(&here, &[("tab", "moment")]), &past, &forks)),
                    Err(why) => p.problem { (why.message) },
                }
            },
            "replay" => (replay(&visitor, info).await?),
            "fork" => (fork::form(&visitor, info, &Fields::default(), None)),
            _ => (overview(&visitor, &description, &waiting).await?),
        }
    };
    // A moment that somebody looks at stays as it was.
    let moves = info.status.is_open() && matches!(tab, "" | "history") && asked.page.is_none();
    let live = moves.then(|| format!("RunId = '{}'", info.run_id));
    Ok(Page { title: info.workflow_id.as_str(), place: Place::Runs, live, body }.response(&visitor))
}

/// The events of a run, as many as a page reads.
pub(crate) async fn events(backend: &dyn Backend, info: &RunInfo) -> Result<Vec<Event>, Problem> {
    let mut all: Vec<Event> = Vec::new();
    while all.len() < EVENTS_MAX {
        let from = all.last().map_or(EventId(1), |event| event.id.next());
        let some = backend.history(target_of(info), from, EVENTS_AT_ONCE).await?;
        let ended = some.len() < EVENTS_AT_ONCE;
        all.extend(some);
        if ended {
            break;
        }
    }
    Ok(all)
}

pub(crate) fn cut_short(info: &RunInfo, shown: usize) -> Markup {
    let whole = info.history.events;
    html! { @if shown == EVENTS_MAX && whole > EVENTS_MAX as u64 {
        p.problem { "This page reads the first " (EVENTS_MAX) " of " (whole) " events; " code { (command_of("show", info, "")) } " shows all of them." }
    } }
}

fn title(description: &Description, hold: Option<Hold>) -> Markup {
    let info = &description.info;
    html! {
        nav.crumbs aria-label="Where you are" { a href="/" { "Runs" } " › " (info.workflow_id) }
        div.line { h1 { (info.workflow_id) } (standing(info, hold)) @if description.cancel_requested && info.status.is_open() { span.badge.wait { "cancel requested" } } }
    }
}

fn facts(visitor: &Visitor, description: &Description, hold: Option<Hold>) -> Markup {
    let info = &description.info;
    let link = |id: &WorkflowId, run: Option<RunId>| run_link(info.namespace.as_str(), id.as_str(), run);
    html! {
        (actions::actions(visitor, info, hold))
        dl.facts.spread {
            div { dt { "Type" } dd { (info.workflow_type) } }
            div { dt { "Run id" } dd { code { (info.run_id) } } }
            @if info.namespace.as_str() != DEFAULT_NAMESPACE { div { dt { "Namespace" } dd { (info.namespace) } } }
            div { dt { "Started" } dd { (ago(info.started_at)) " " span.muted { (exact(info.started_at)) } } }
            div { dt { "Took" } dd { (lasted(info)) } }
            div { dt { "History" } dd { (info.history.events) " events, " (info.history.bytes) " bytes" } }
            div { dt { "Queue" } dd { (info.task_queue) } }
            @if info.attempt.0 > 1 { div { dt { "Attempt" } dd { (info.attempt) } } }
            @if let Some(parent) = &info.parent { div { dt { "Parent" } dd { a href=(link(&parent.workflow_id, Some(parent.run_id))) { (parent.workflow_id) } } } }
            @if let Some(from) = &info.forked_from { div { dt { @if from.reset { "Reset from" } @else { "Forked from" } } dd { a href=(link(&from.workflow_id, Some(from.run_id))) { (from.workflow_id) } " at event " (from.event) } } }
            @if let Some(run) = info.continued_from { div { dt { "Continued from" } dd { a href=(link(&info.workflow_id, Some(run))) { (run) } } } }
            @if let Some(run) = info.next_run { div { dt { "Next run" } dd { a href=(link(&info.workflow_id, Some(run))) { (run) } } } }
            @if let Some(summary) = &info.summary { div { dt { "Summary" } dd { (summary) } } }
            @for (name, attribute) in crate::run_json::attributes(info, |at| serde_json::json!(at.to_string())) { div { dt { "Attribute " (name) } dd { (value(&attribute)) } } }
            @for (name, payload) in &info.memo { div { dt { "Memo " (name) } dd { (value(&payload.to_json())) } } }
        }
        @if let Some(details) = &info.details { p.wrap { (details) } }
        @for warning in &description.warnings { p.warning { (warning) } }
    }
}

/// What is in the way of the runs below: what is of the run itself is told of it, with more words.
async fn below(backend: &dyn Backend, description: &Description) -> Vec<Obstacle> {
    let below = Lookout::new(backend, now()).below_described(description).await;
    below.into_iter().filter(|one| one.run != description.info.workflow_id).collect()
}

async fn overview(visitor: &Visitor, description: &Description, waiting: &[RunWait]) -> Result<Markup, Problem> {
    let info = &description.info;
    let backend = &visitor.backend;
    let unhandled = unhandled::of_run(backend, info).await;
    let view = match info.workflow_type.as_str() {
        SUPERVISOR | "plan-run" => SupervisorView::of(backend, info).await,
        _ => None,
    };
    let told = notified::of_run(backend, info).await;
    let events = events(backend, info).await?;
    let mut spans = spans(&events);
    if info.workflow_type.as_str() == AGENT {
        people_waits::with_what_is_asked(&mut spans, waiting, &events);
    }
    let forks = ForkHere::of(visitor, info).await;
    let query = format!("ParentRunId = '{}'", info.run_id);
    let children = backend.list(ListRequest { query, limit: CHILDREN_MAX }).await?;
    Ok(html! {
        (code_section(description))
        (notified_section(&told))
        @if !unhandled.is_empty() { p.warning { "Unhandled signals: " (unhandled::in_words(&unhandled)) } }
        (outcome(description, view.is_some()))
        @if let Some(view) = &view { (view.markup()) }
        @if info.workflow_type.as_str() == AGENT { p { a href={ "/agents?run_id=" (info.run_id) "&namespace=" (query_value(info.namespace.as_str())) } { "The conversation of this agent" } } }
        @if !children.is_empty() { (children_section(&children)) }
        section { h2 { "Timeline" } (timeline::timeline(&spans, info.closed_at.unwrap_or_else(now), &forks)) }
        section {
            h2 { "Last events" }
            div.scroll tabindex="0" role="region" aria-label="Last events" { table.rows.events { tbody {
                @let latest: Vec<_> = spans.iter().filter(|span| span.kind != SpanKind::Marker).collect();
                @for span in &latest[latest.len().saturating_sub(12)..] { (history::span_row(&with(&run_link(info.namespace.as_str(), info.workflow_id.as_str(), Some(info.run_id)), &[("tab", "history")]), info, span, &forks)) }
            } } }
        }
    })
}

fn waits_section(visitor: &Visitor, info: &RunInfo, waiting: &[RunWait], below: &[Obstacle]) -> Markup {
    html! { @if info.status.is_open() {
        section.waits-for {
            h2 { "Waits for" }
            @if waiting.is_empty() { p.empty { "Nothing: it is being decided now, or has just been started." } }
            ul {
                @for one in waiting { li { (one.whole(visitor, info)) } }
                @for one in below { li {
                    a href=(run_link(info.namespace.as_str(), one.run.as_str(), None)) { (one.run) } ": " (one.what)
                    div.failure { (one.text(now())) }
                    (visitor.command_in(&info.namespace, &one.help))
                } }
            }
            @if waiting.iter().any(RunWait::asks_a_person) {
                p { a.button.primary href={ "/inbox?run_id=" (info.run_id) "&namespace=" (query_value(info.namespace.as_str())) } { "Answer it" } }
            }
        }
    } }
}

/// Where the code stands: each thing that it awaits, with its line.
fn code_section(description: &Description) -> Markup {
    html! { @if !description.awaiting.is_empty() {
        details.folded {
            summary { "Where the code stands " span.muted { "(" (description.awaiting.len()) ")" } }
            ul { @for one in &description.awaiting {
                li { (one.what) @if let Some(place) = &one.location { " " span.muted { "at " code { (place) } } } }
            } }
        }
    } }
}

/// Who was told of it elsewhere.
fn notified_section(told: &[serde_json::Value]) -> Markup {
    html! { @if !told.is_empty() {
        section {
            h2 { "Notified" }
            ul { @for one in told {
                li { (one["title"].as_str().unwrap_or_default()) ": " (notified::in_words(one, |at| at.to_string())) }
            } }
        }
    } }
}

fn outcome(description: &Description, told: bool) -> Markup {
    html! { @match &description.result {
        Some(CloseOutcome::Completed(result)) if !told => section { h2 { "Result" } (value(&result.to_json())) },
        None | Some(CloseOutcome::Completed(_)) => {},
        Some(CloseOutcome::Failed(why)) => section { h2 { "Failure" } (failure(why)) },
        Some(other) => section { h2 { "Outcome" } p { (crate::cli::outcome_text(other)) } },
    } }
}

fn children_section(children: &[RunInfo]) -> Markup {
    html! {
        section {
            h2 { "Children" }
            ul.tree { @for child in children { li {
                (standing(child, None)) " "
                a href=(run_link(child.namespace.as_str(), child.workflow_id.as_str(), Some(child.run_id))) { (child.workflow_id) } " "
                span.muted { (child.workflow_type) ", " (lasted(child)) }
            } } }
            @if children.len() == CHILDREN_MAX { p.muted { "The newest " (CHILDREN_MAX) "." } }
        }
    }
}

/// Whether the code fits, and what a fork would show: the same history with other answers of people.
async fn replay(visitor: &Visitor, info: &RunInfo) -> Result<Markup, Problem> {
    let turns = visitor.backend.turns(target_of(info)).await?;
    let events: Vec<Event> = events(&visitor.backend, info).await?;
    let past = past(turns, None, false).await;
    let answers: Vec<&Event> = events.iter().filter(|event| is_answer(&event.kind)).collect();
    let asked = if answers.is_empty() { waiting(&visitor.backend, info).await } else { Vec::new() };
    let fork = fork_here::form_of(info);
    Ok(html! {
        h2 { "Does the code still fit?" }
        @match &past { Ok(past) => (moment::verdict(visitor, info, past)), Err(why) => p.problem { (why.message) } }
        h2 { "What if somebody had answered otherwise?" }
        @match (answers.is_empty(), asked.first()) {
            (true, Some(asked)) => p.empty { "What is asked is not answered yet: " (asked.whom) ": " (asked.what) "." },
            (true, None) => p.empty { "Nobody was asked in this run." },
            (false, _) => {},
        }
        ul { @for (nth, event) in answers.iter().enumerate() {
            @if let EventKind::WorkflowExecutionSignaled(signal) = &event.kind {
                @let (approved, other) = otherwise(&signal.input.to_json());
                @let which = format!("{}#{}", signal.name, nth_of(&answers[..=nth], signal.name.as_str()));
                li { "Event " (event.id) ", " (ago(event.at)) ": " (value(&signal.input.to_json()))
                    a.button href=(with(&fork, &[("kind", "signal"), ("which", &which), ("value", &format!("{other:#}"))])) {
                        @match approved { Some(true) => "What if it had been rejected?", Some(false) => "What if it had been approved?", None => "What if the answer had been another one?" }
                    }
                }
            }
        } }
    })
}

/// Whether an answer approves, and the answer that says the opposite.
fn otherwise(answer: &serde_json::Value) -> (Option<bool>, serde_json::Value) {
    let approved = answer["approved"].as_bool();
    let mut other = answer.clone();
    if let Some(approved) = approved {
        other["approved"] = (!approved).into();
    }
    (approved, other)
}

fn is_answer(kind: &EventKind) -> bool {
    const ANSWERS: [&str; 3] = ["approval_response_v1", "interrupt_resume_v1", "human_input_v1"];
    matches!(kind, EventKind::WorkflowExecutionSignaled(signal) if ANSWERS.contains(&signal.name.as_str()))
}

/// How many signals of a name there are up to here.
fn nth_of(events: &[&Event], name: &str) -> usize {
    let of = |event: &&&Event| matches!(&event.kind, EventKind::WorkflowExecutionSignaled(signal) if signal.name.as_str() == name);
    events.iter().filter(of).count()
}
