//! The worker and its store: whether it takes work, what it holds, and what it keeps on disk.
//!
//! Invariant: what is shown is what the worker and the store say of themselves; a token that may not see the store sees the
//! rest.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::elements::{badge, with};
use super::forms::{Query, Visitor};
use super::layout::{Page, PageError, Place};
use crate::api::TokenRole;
use crate::api::handlers::Api;
use crate::backend::{Backend, EngineHealth, WorkerState};
use crate::cli::doctor::{Diagnosis, of_worker};

#[derive(Deserialize)]
pub(super) struct SystemQuery {
    /// Whether the doctor looks, who asks every model server for a connection.
    #[serde(default)]
    doctor: String,
}

pub(super) async fn page(
    visitor: Visitor,
    State(api): State<Api>,
    Query(asked): Query<SystemQuery>,
) -> Result<Response, PageError> {
    let health = visitor.backend.health().await?;
    let state = visitor.backend.worker_state().await?;
    let store = visitor.backend.store_info().await;
    let open = visitor.backend.count("ExecutionStatus IN ('Running', 'Paused')".to_owned()).await?;
    let all = visitor.backend.count(String::new()).await?;
    let build = api.workflows.build_id().to_string();
    let skew = format!("BuildId != '{build}' AND ExecutionStatus IN ('Running', 'Paused')");
    let older = visitor.backend.count(skew.clone()).await?;
    let types: Vec<String> = api.workflows.types().map(ToString::to_string).collect();
    let (class, word, why) = match &health {
        EngineHealth::Ready => ("ok", "takes work", None),
        EngineHealth::Draining => ("wait", "draining", None),
        EngineHealth::StorageFull { why } => ("bad", "the disk is full", Some(why)),
        EngineHealth::StorageFailed { why } => ("bad", "the log has failed", Some(why)),
    };
    let body = html! {
        div.line { h1 { "Worker" } (badge(class, word)) }
        @if let Some(why) = why { p.problem { (why) } }
        @if state.lost_threads > 0 { p.problem { (state.lost_threads) " threads are lost to code that does not come back; each takes a core until the worker ends." } }
        dl.facts {
            dt { "Version" } dd { (api.version) }
            dt { "Process" } dd { (std::process::id()) }
            dt { "Build" } dd { code { (build) } @if older > 0 { " " a href=(with("/", &[("query", &skew)])) { (older) " open runs began with another build" } } }
            dt { "Runs" } dd { (open) " open, " (all) " in all" }
            dt { "Slots" } (busy(state.busy, state.slots, !state.waiting.is_empty()))
            dt { "For programs, models, MCP and HTTP" } (busy(state.external_busy, state.external_slots, !state.waiting.is_empty()))
            dt { "Task queues" } dd { @match &state.task_queues { None => "all", Some(served) => (served.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")) } }
            dt { "Memory for runs" } dd { (bytes(state.memory as u64)) }
            dt { "Process trees" } dd { (crate::capability::process::guard::strategy()) }
            dt { "You are" } dd { (visitor.session.caller.name) ", " (visitor.session.caller.role) }
        }
        (doctor(&visitor, &build, asked.doctor == "look").await)
        @if !state.waiting.is_empty() { (queues(&state)) }
        @if !state.queues.is_empty() { (limits(&state)) }
        h2 { "Store" }
        @match &store {
            Ok(info) => (facts(info)),
            Err(why) => p.muted { (why) },
        }
        p { (visitor.command("bosun store verify")) " " (visitor.command("bosun store info")) }
        h2 { "Workflow types" }
        ul.columns-list { @for name in &types { li { code { (name) } } } }
    };
    Ok(Page { title: "Worker", place: Place::System, live: None, body }.response(&visitor))
}

/// How many of these slots are taken. Full is no trouble as long as nothing waits.
fn busy(taken: usize, slots: usize, waits: bool) -> Markup {
    let (max, full) = (slots.max(1), waits && taken >= slots);
    html! { dd {
        (taken) " of " (slots) " busy "
        // A value at or above `low` is not the best where the best is below it: amber.
        @if full { meter min="0" max=(max) low="0.5" optimum="0" value=(taken) { } " " (badge("wait", "full, and more waits")) }
        @else { meter min="0" max=(max) value=(taken) { } }
    } }
}

/// What the doctor finds, where somebody asks for it.
async fn doctor(visitor: &Visitor, build: &str, looks: bool) -> Markup {
    // It opens connections to model servers, which is no look at this worker alone.
    let may = visitor.may(TokenRole::Operator);
    let found = if looks && may { of_worker(&visitor.backend, build).await } else { Vec::new() };
    html! {
        h2 id="doctor" { "Doctor" }
        @if !may { (visitor.may_not(TokenRole::Operator)) }
        @else if looks { (findings(visitor, &found)) }
        @else { p { a.button href="/system?doctor=look#doctor" { "Look for what is wrong" } } }
        p { "The data directory and its disk too: " (visitor.command("bosun doctor")) }
    }
}

/// What was looked at, what is wrong with it, and what mends it.
fn findings(visitor: &Visitor, found: &[Diagnosis]) -> Markup {
    let class = |one: &Diagnosis| match one.word() {
        "ok" => "ok",
        "warning" => "wait",
        _ => "bad",
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label="What the doctor finds" { table.rows {
            thead { tr { th scope="col" { "State" } th scope="col" { "Check" } th scope="col" { "Finding" } th scope="col" { "What mends it" } } }
            tbody { @for one in found { tr {
                td { (badge(class(one), one.word())) } td { (one.what) } td.wide { (one.text) } td.wide { (one.fix.as_deref().map_or_else(|| "-".to_owned(), |fix| visitor.complete(fix))) }
            } } }
        } }
    }
}

/// What runs of each queue, and what may.
fn limits(state: &WorkerState) -> Markup {
    html! {
        h2 { "Attempts that run" }
        table.rows {
            thead { tr { th scope="col" { "Task queue" } th scope="col" { "Running" } th scope="col" { "At most" } th scope="col" { "A second" } } }
            tbody { @for (queue, of) in &state.queues {
                tr { td { (queue) } td.num { (of.running) } td.num { @match of.max_concurrent { Some(max) => (max), None => "any" } } td.num { (of.max_per_second.as_deref().unwrap_or("any")) } }
            } }
        }
    }
}

/// Attempts that wait: for a slot, or for a worker that serves their queue.
fn queues(state: &WorkerState) -> Markup {
    html! {
        h2 { "Attempts that wait" }
        table.rows {
            thead { tr { th scope="col" { "Task queue" } th scope="col" { "Waiting" } th scope="col" { "For" } } }
            tbody { @for (queue, waiting) in state.waiting_by_queue() {
                @let served = state.task_queues.as_ref().is_none_or(|served| served.contains(queue));
                tr { td { (queue) } td.num { (waiting) } td { @if served { "a free slot" } @else { (badge("bad", "no worker")) " this one does not serve the queue: start it with " code { "--queue " (queue) } } } }
            } }
        }
    }
}

/// A report as names and values; what is nested keeps its shape.
fn facts(info: &Value) -> Markup {
    html! {
        dl.facts { @for (name, value) in info.as_object().into_iter().flatten() {
            dt { (name.replace('_', " ")) }
            dd.wrap { @match value {
                Value::Object(fields) if fields.is_empty() => span.muted { "none" },
                Value::Object(_) => (facts(value)),
                Value::Number(number) if name.contains("bytes") => (bytes(number.as_u64().unwrap_or_default())),
                Value::String(text) => (text),
                Value::Null => span.muted { "none" },
                Value::Array(items) if items.is_empty() => span.muted { "none" },
                Value::Bool(yes) => @if *yes { "yes" } @else { "no" },
                other => (other),
            } }
        } }
    }
}

fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| count >= *size) {
        Some((unit, size)) => format!("{}.{} {unit}", count / size, count % size * 10 / size),
        None => format!("{count} bytes"),
    }
}
