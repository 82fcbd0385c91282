//! What a run waits for, in words, with what helps: the same on the list of runs, on a run's own page and in the inbox.
//!
//! Invariant: it is what the run says of itself and what the engine has pending; a run that cannot answer now shows what the
//! engine knows. It answers nothing and carries nothing on.

use bosun_engine::workflow::NonDeterminism;
use bosun_engine::*;
use maud::{Markup, html};

use super::elements::{ago, command_of, failure};
use super::forms::Visitor;
use super::run::actions::of_activity;
use crate::api::guard::now;
use crate::api::people::ask;
use crate::backend::Backend;
use crate::cli::stuck::{Lookout, Obstacle, activity_name, paused};
use crate::cli::waiting::{ABOVE, Hold, WaitingRow, hold_of, waiting};
use crate::inbox::target_of;
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// How the timer of a deadline of an approval is named, before its id.
const APPROVAL_TIMER: &str = "approval ";

/// One thing that a run waits for.
#[derive(Debug, Clone)]
pub(super) enum RunWait {
    /// Somebody has to answer; the command that does it, and the run that asks, where it is another one.
    Person {
        whom: String,
        what: String,
        answer: String,
        /// It is the run itself that is held, and how.
        hold: Option<Hold>,
    },
    /// It does not fit its code, or cannot be decided.
    Held {
        why: String,
    },
    /// Who has paused it, and why.
    Paused {
        why: String,
    },
    /// An attempt that will be tried again.
    Retry {
        id: ActivityId,
        what: String,
        attempt: Attempt,
        at: Option<Timestamp>,
        last: Failure,
    },
    Activity {
        id: ActivityId,
        what: String,
        attempt: Attempt,
        state: PendingActivityState,
        /// By which it is ended from outside.
        token: Option<String>,
        /// Why the attempt before failed.
        last: Option<Failure>,
        /// What keeps it from being taken, with the command that helps, where that is known.
        kept_by: Option<(String, String)>,
    },
    Timer {
        what: String,
        at: Timestamp,
        /// What becomes of it then, where that is more than that time is over.
        then: Option<&'static str>,
    },
    Child {
        id: WorkflowId,
        workflow_type: WorkflowType,
    },
    /// What its code says that it waits for.
    Code {
        what: String,
        place: Option<String>,
    },
}

/// Everything that an open run waits for: people first.
pub(super) async fn waits(backend: &dyn Backend, description: &Description) -> Vec<RunWait> {
    let info = &description.info;
    if !info.status.is_open() {
        return Vec::new();
    }
    let person = |row: WaitingRow| {
        let hold = hold_of(info, std::slice::from_ref(&row));
        RunWait::Person { whom: row.whom, what: row.what, answer: row.answer, hold }
    };
    let mut all: Vec<RunWait> = waiting(backend, info).await.into_iter().map(person).collect();
    all.extend(description.held.iter().map(|why| RunWait::Held { why: why.clone() }));
    all.extend(paused(backend, description).await.map(|why| RunWait::Paused { why }));
    let untaken = description.pending_activities.iter().any(|one| one.state == PendingActivityState::Scheduled);
    let obstacles = if untaken { Lookout::new(backend, now()).own(description).await } else { Vec::new() };
    let mut of_engine = of_engine(description, &obstacles);
    with_what_a_deadline_does(backend, info, &mut of_engine).await;
    all.extend(of_engine);
    if all.is_empty() {
        all.extend(description.awaiting.iter().map(|one| RunWait::Code {
            what: one.what.to_string(),
            place: one.location.as_ref().map(ToString::to_string),
        }));
    }
    all
}

/// How people hold the run that waits for all this.
pub(super) fn held_by_people(waits: &[RunWait]) -> Option<Hold> {
    waits.iter().find_map(|one| match one {
        RunWait::Person { hold, .. } => *hold,
        _ => None,
    })
}

/// An approval that nobody gives is decided at its deadline, as its rules say.
async fn with_what_a_deadline_does(backend: &dyn Backend, info: &RunInfo, waits: &mut [RunWait]) {
    let is_approval = |one: &RunWait| matches!(one, RunWait::Timer { what, .. } if what.starts_with(APPROVAL_TIMER));
    if ![SUPERVISOR, PLAN_RUN].contains(&info.workflow_type.as_str()) || !waits.iter().any(is_approval) {
        return;
    }
    let asked = ask(backend, &target_of(info), "pending_approvals").await;
    for one in waits {
        let RunWait::Timer { what, then, .. } = one else { continue };
        let Some(id) = what.strip_prefix(APPROVAL_TIMER) else { continue };
        let request = asked.as_array().into_iter().flatten().find(|request| request["id"] == id);
        *then = match request.and_then(|request| request["on_timeout"].as_str()) {
            Some("approve") => Some("approved by itself"),
            Some("reject" | "deny") => Some("rejected by itself"),
            _ => None,
        };
    }
}

fn of_engine(description: &Description, obstacles: &[Obstacle]) -> Vec<RunWait> {
    let activities = description.pending_activities.iter().map(|one| {
        let what = match &one.summary {
            Some(summary) => format!("{} ({summary})", one.activity_type),
            None => one.activity_type.to_string(),
        };
        match &one.last_failure {
            Some(last) if one.state == PendingActivityState::BackingOff => {
                let id = one.activity_id.clone();
                RunWait::Retry { id, what, attempt: one.attempt, at: one.next_attempt_at, last: last.clone() }
            }
            _ => RunWait::Activity {
                id: one.activity_id.clone(),
                what,
                attempt: one.attempt,
                state: one.state,
                token: one.task_token.clone(),
                last: one.last_failure.clone(),
                kept_by: obstacles
                    .iter()
                    .find(|found| one.state == PendingActivityState::Scheduled && found.what == activity_name(one))
                    .map(|found| (found.text(now()), found.help.clone())),
            },
        }
    });
    let children = description
        .pending_children
        .iter()
        .map(|one| RunWait::Child { id: one.workflow_id.clone(), workflow_type: one.workflow_type.clone() });
    let timers = description.pending_timers.iter().map(|one| RunWait::Timer {
        what: one.summary.clone().unwrap_or_else(|| "a timer".to_owned()),
        at: one.fire_at,
        then: None,
    });
    let start = description.starts_at.map(|at| RunWait::Timer { what: "its start".to_owned(), at, then: None });
    start.into_iter().chain(activities).chain(children).chain(timers).collect()
}

fn word(state: PendingActivityState) -> &'static str {
    match state {
        PendingActivityState::Scheduled => "waits for a slot",
        PendingActivityState::Started => "under way",
        PendingActivityState::BackingOff => "waits for its next attempt",
        PendingActivityState::Paused => "held back",
        PendingActivityState::CancelRequested => "asked to cancel",
    }
}

impl RunWait {
    /// A few words, for a row.
    pub(super) fn brief(&self) -> Markup {
        html! { @match self {
            RunWait::Person { whom, what, .. } => span.asks { (whom) ": " (what) },
            RunWait::Held { .. } => span.held { "held" },
            RunWait::Paused { .. } => { "paused" },
            RunWait::Retry { what, attempt, at, .. } => {
                span.bad-text { (what) " failed" } ", attempt " (attempt)
                @if let Some(at) = at { " " (ago(*at)) }
            },
            RunWait::Activity { what, attempt, state, last, .. } => {
                (what) @if attempt.0 > 1 { ", attempt " (attempt) }
                @if *state == PendingActivityState::Paused { ", held back" @if last.is_some() { " after a failure" } }
            },
            RunWait::Timer { what, at, then } => { (what) @if let Some(then) = then { ", " (then) } " " (ago(*at)) },
            RunWait::Child { id, .. } => { "child " (id) },
            RunWait::Code { what, .. } => { (what) },
        } }
    }

    /// All of it, for the page of the run.
    pub(super) fn whole(&self, visitor: &Visitor, info: &RunInfo) -> Markup {
        html! { @match self {
            RunWait::Person { whom, what, answer, .. } => {
                div.asks { strong { (whom) } ": " (what) }
                (visitor.command_in(&info.namespace, answer))
            },
            RunWait::Held { why } => { div.held { strong { "Held. " } "Its inputs are kept"
                @if why.contains(NonDeterminism::CODE) { ", and it goes on with code that fits." } @else { "." } pre.payload { (why) } } },
            RunWait::Paused { why } => { div { (why) } (visitor.command(&command_of("resume", info, ""))) },
            RunWait::Retry { id, what, attempt, at, last } => {
                div { (what) " failed; attempt " (attempt) " follows" @if let Some(at) = at { " " (ago(*at)) } ". The last one said:" }
                (failure(last))
                (of_activity(visitor, info, id, false, None))
            },
            RunWait::Activity { id, what, attempt, state, token, last, kept_by } => {
                (what) " " span.muted { (word(*state)) ", attempt " (attempt) }
                @match kept_by {
                    Some((why, help)) => { div.failure { (why) } (visitor.command_in(&info.namespace, help)) },
                    None if *state == PendingActivityState::Scheduled => {
                        div { "Who else waits, and what takes a slot: " (visitor.command("bosun queue list")) }
                    },
                    None => {},
                }
                @if let Some(last) = last { div { "The attempt before said:" } (failure(last)) }
                (of_activity(visitor, info, id, *state == PendingActivityState::Paused, token.as_deref()))
            },
            RunWait::Timer { what, at, then } => { (what) ", " (then.unwrap_or("its time is over")) " " (ago(*at)) },
            RunWait::Child { id, workflow_type } => {
                "child " a href=(super::elements::run_link(info.namespace.as_str(), id.as_str(), None)) { (id) } " " span.muted { (workflow_type) }
            },
            RunWait::Code { what, place } => { (what) @if let Some(place) = place { " " span.muted { "at " (place) } } },
        } }
    }

    pub(super) fn asks_a_person(&self) -> bool {
        matches!(self, RunWait::Person { whom, .. } if whom != ABOVE)
    }
}
