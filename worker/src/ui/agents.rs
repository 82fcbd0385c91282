//! Agents: who works in the runs, how it goes, what it costs, and what one of them has said.
//!
//! Invariant: figures are what runs say of their own agents; an agent's run has a conversation of its own, read out of its
//! history. Nothing is counted that no run tells.

use std::collections::{BTreeMap, BTreeSet};

use axum::response::Response;
use bosun_engine::*;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use super::elements::{badge, cut, dollars, run_link, span, standing, value, words};
use super::forms::{Query, Visitor};
use super::layout::{Page, PageError, Place};
use super::run::{cut_short, events};
use crate::agent::{AGENT_CARRY, AGENT_MODEL};
use crate::api::guard::now;
use crate::api::people::agents::{AgentRun, AgentTally, AgentsSeen, RUNS, RunTrust, seen};
use crate::api::problem::Problem;
use crate::backend::Backend;
use crate::cli::spent;
use crate::cli::stuck::{Lookout, Obstacle};
use crate::inbox::target_of;

#[derive(Deserialize)]
pub(super) struct AgentsQuery {
    run_id: Option<String>,
    namespace: Option<String>,
}

pub(super) async fn page(visitor: Visitor, Query(query): Query<AgentsQuery>) -> Result<Response, PageError> {
    if let Some(run) = &query.run_id {
        return conversation(&visitor, run, query.namespace.as_deref()).await;
    }
    let AgentsSeen { tallies, trust, recruits, agents, obstacles } = seen(&visitor.backend).await?;
    let body = html! {
        h1 { "Agents" }
        p.muted { "Of the newest " (RUNS) " supervisors, and the newest " (RUNS) " agents with a run of their own. An attempt is a task of a plan, a turn in a conversation, or a task that was delegated." }
        @if !obstacles.is_empty() { (in_the_way(&visitor, &obstacles)) }
        h2 { "Who works" }
        @if tallies.is_empty() { p.empty { "No agent has worked on a task yet." } } @else { (roster(&tallies)) }
        h2 { "Agents with a conversation of their own" }
        @if agents.is_empty() { p.empty { "There are none." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Agents" { table.rows.cards {
                thead { tr { th scope="col" { "Status" } th scope="col" { "Agent" } th scope="col" { "Model" } th scope="col" { "State" } th scope="col" { "Spent" } th scope="col" { "What it said" } } }
                tbody { @for agent in &agents { (agent_row(agent)) } }
            } }
        }
        @if !trust.is_empty() { (trusted(&trust)) }
        @if !recruits.is_empty() {
            h2 { "Recruits" }
            ul { @for one in &recruits { li { (text(&one["agent_id"])) " " span.muted { (text(&one["role"])) ", " (text(&one["status"])) } } } }
        }
    };
    // Every view of it asks each of these runs: it stays as it is until somebody loads it again.
    Ok(Page { title: "Agents", place: Place::Agents, live: None, body }.response(&visitor))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
}

/// What keeps agents from going on now: a model that does not answer, a budget, a pause.
fn in_the_way(visitor: &Visitor, obstacles: &[(Namespace, Obstacle)]) -> Markup {
    html! {
        section.waits-for {
            h2 { "In trouble now" }
            ul { @for (namespace, one) in obstacles { li {
                a href=(run_link(namespace.as_str(), one.run.as_str(), None)) { (one.run) } ": " (one.what)
                div.failure { (one.text(now())) }
                (visitor.command_in(namespace, &one.help))
            } } }
        }
    }
}

fn roster(tallies: &BTreeMap<String, AgentTally>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Who works" { table.rows.cards {
            thead { tr {
                th scope="col" { "Agent" } th scope="col" { "Now" } th scope="col" { "Runs" } th scope="col" { "Attempts" } th scope="col" { "Done" }
                th scope="col" { "Failed" } th scope="col" { "Sent back" } th scope="col" { "Median time" } th scope="col" { "Spent" }
            } }
            tbody { @for (name, tally) in tallies { tr {
                td { strong { (name) } }
                td data-th="Now" { @if tally.busy > 0 { (badge("run", &format!("{} at work", tally.busy))) } @else { span.muted { "idle" } } }
                td.num data-th="Runs" { (tally.runs) } td.num data-th="Attempts" { (tally.attempts) }
                td.num data-th="Done" { (tally.done) @if let Some(share) = tally.done_of_ended() { span.muted { " " (share) " %" } } }
                td.num data-th="Failed" { (tally.failed) @if let Some(why) = &tally.last_error { div.failure { (cut(why, 120)) } } }
                td.num data-th="Sent back" { (tally.sent_back) }
                td.num data-th="Median time" { @if let Some(median) = tally.median() { (span(median)) } }
                td data-th="Spent" { @if tally.cost_micros > 0 || tally.unpriced > 0 { (tally.spent(dollars)) " " } @if tally.tokens > 0 { span.muted { (tally.tokens) " tokens" } } }
            } } }
        } }
    }
}

/// How far each open supervisor is trusted to go alone, and what it still lacks for the next level.
fn trusted(trust: &[RunTrust]) -> Markup {
    html! {
        h2 { "Trust" }
        p.muted { "How far a supervisor may go without asking: it rises with its record, and falls with an incident." }
        div.scroll tabindex="0" role="region" aria-label="Trust" { table.rows.cards {
            thead { tr { th scope="col" { "Run" } th scope="col" { "Level" } th scope="col" { "People" } th scope="col" { "Tasks" } th scope="col" { "Succeeded" } th scope="col" { "Last incident" } th scope="col" { "The next level" } } }
            tbody { @for RunTrust { info, view } in trust { tr {
                td { a href=(run_link(info.namespace.as_str(), info.workflow_id.as_str(), Some(info.run_id))) { (info.workflow_id) } }
                td data-th="Level" { (badge("note", &text(&view["level"]))) }
                td data-th="People" { (text(&view["mode"]).replace('_', " ")) }
                td.num data-th="Tasks" { (view["tasks_completed"]) } td.num data-th="Succeeded" { (text(&view["success_rate"])) }
                td data-th="Last incident" { (text(&view["last_incident"])) }
                td data-th="The next level" { (text(&view["why"])) }
            } } }
        } }
    }
}

fn agent_row(AgentRun { info, state, cost }: &AgentRun) -> Markup {
    let models: Vec<String> =
        cost["by_model"].as_object().into_iter().flatten().map(|(model, _)| model.clone()).collect();
    let micros = cost["spent"]["cost_micros"].as_u64();
    let name = state["name"].as_str().filter(|name| !name.is_empty());
    html! { tr {
        td { (standing(info, None)) }
        td {
            @if let Some(name) = name { strong { (name) } " " }
            a href=(run_link(info.namespace.as_str(), info.workflow_id.as_str(), Some(info.run_id))) { (info.workflow_id) }
        }
        td data-th="Model" { (models.join(", ")) }
        td data-th="State" { (text(&state["phase"])) @if let Some(why) = why_halted(&state["halted"]) { div.failure { (cut(&why, 120)) } } }
        td data-th="Spent" { @if let Some(micros) = micros.filter(|micros| *micros > 0) { (dollars(micros)) } @if cost["unpriced_calls"].as_u64().is_some_and(|calls| calls > 0) { " " span.muted { "and what has no price" } } }
        td { a href={ "/agents?run_id=" (info.run_id) "&namespace=" (super::elements::query_value(info.namespace.as_str())) } { "Conversation" } }
    } }
}

/// Why an agent does nothing until somebody sees to it.
fn why_halted(halted: &Value) -> Option<String> {
    let used_up = || halted["budget"]["resource"].as_str().map(|what| format!("used up: {}", what.replace('_', " ")));
    let needs_human = halted["needs_human"]["why"].as_str().map(str::to_owned);
    needs_human.or_else(used_up).or_else(|| spent::share(halted))
}

// ---- one conversation

/// Messages and tool calls, as the run's own activities tell them.
async fn conversation(visitor: &Visitor, run: &str, namespace: Option<&str>) -> Result<Response, PageError> {
    let run: RunId = run.parse().map_err(|why: InvalidId| Problem::bad_request(format!("run_id: {why}")))?;
    let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE);
    let query = format!("RunId = '{run}' AND Namespace = {}", crate::filter_text::literal(namespace));
    let found = visitor.backend.list(ListRequest { query, limit: 1 }).await?.pop();
    let info = found.ok_or_else(|| {
        Problem::new(axum::http::StatusCode::NOT_FOUND, "not_found", format!("there is no run {run}"))
    })?;
    let events = events(&visitor.backend, &info).await?;
    let live = info.status.is_open().then(|| format!("RunId = '{run}'"));
    // A model that does not answer says nothing: that is told beside what was said.
    let stuck = Lookout::new(&visitor.backend, now()).below(target_of(&info)).await;
    let stuck: Vec<_> = stuck.into_iter().map(|one| (info.namespace.clone(), one)).collect();
    let body = html! {
        nav.crumbs aria-label="Where you are" { a href="/agents" { "Agents" } " › " a href=(run_link(namespace, info.workflow_id.as_str(), Some(run))) { (info.workflow_id) } }
        div.line { h1 { "Conversation" } (standing(&info, None)) }
        @if !stuck.is_empty() { (in_the_way(visitor, &stuck)) }
        (spoken(&events))
        (cut_short(&info, events.len()))
        p { "The run itself: " (visitor.command(&super::elements::command_of("show", &info, ""))) }
    };
    Ok(Page { title: "Conversation", place: Place::Agents, live, body }.response(visitor))
}

/// What was asked and answered, step by step.
fn spoken(events: &[Event]) -> Markup {
    let mut names: BTreeMap<Seq, String> = BTreeMap::new();
    // What they give is no message of their own.
    let mut carries: BTreeSet<Seq> = BTreeSet::new();
    let mut steps: Vec<Markup> = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::WorkflowExecutionStarted(started) => {
                let input = started.input.to_json();
                let task = ["task", "objective", "prompt"]
                    .iter()
                    .find_map(|key| input[*key].as_str().or(input["spec"][*key].as_str()));
                steps.push(said("task", &task.map_or(input.clone(), Value::from)));
                // Of a run in which another one goes on: what was said there.
                let before = input["continued"]["messages"].as_array();
                steps.extend(before.into_iter().flatten().map(said_before));
            }
            EventKind::ActivityTaskScheduled(task) if task.activity_type.as_str() == AGENT_CARRY => {
                carries.insert(task.seq);
            }
            EventKind::ActivityTaskCompleted { seq, .. } if carries.contains(seq) => {}
            EventKind::ActivityTaskScheduled(task) => {
                let name = task.options.summary.clone().unwrap_or_else(|| task.activity_type.to_string());
                if task.activity_type.as_str() != AGENT_MODEL {
                    steps.push(called(&name, &task.input.to_json()));
                }
                names.insert(task.seq, task.activity_type.to_string());
            }
            EventKind::ActivityTaskCompleted { seq, result, .. } => {
                let of_model = names.get(seq).is_some_and(|name| name == AGENT_MODEL);
                steps.push(if of_model { answer(&result.to_json()) } else { said("result", &result.to_json()) });
            }
            EventKind::ActivityTaskFailed { failure, .. } | EventKind::ActivityTaskTimedOut { failure, .. } => {
                steps.push(html! { li { div.from { "failure" } (super::elements::failure(failure)) } });
            }
            EventKind::WorkflowExecutionSignaled(signal) => {
                steps.push(said(signal.name.as_str(), &signal.input.to_json()))
            }
            _ => {}
        }
    }
    html! { ol.messages { @for step in steps { (step) } } }
}

/// A message of the run before.
fn said_before(message: &Value) -> Markup {
    match message["role"].as_str() {
        Some("assistant") => answer(&json!({ "response": { "message": message, "model": "said before" } })),
        Some("tool") => said("result", &message["content"]),
        who => said(who.unwrap_or_default(), &message["content"]),
    }
}

fn said(who: &str, what: &Value) -> Markup {
    html! { li { div.from { (who) } @match what.as_str() { Some(text) => (words(text)), None => (value(what)) } } }
}

fn called(name: &str, input: &Value) -> Markup {
    html! { li { div.from { "call" } div.call { code { (name) } " " span.wrap { (cut(&input.to_string(), 2_000)) } } } }
}

/// The answer of a model: its words, and the tools that it wants called.
fn answer(result: &Value) -> Markup {
    let response = &result["response"];
    let message = if response["message"].is_object() { &response["message"] } else { response };
    let said = ["text", "content"].iter().find_map(|key| message[*key].as_str());
    html! { li {
        div.from { (text(&response["model"])) }
        @match said { Some(text) if !text.is_empty() => (words(text)), Some(_) => {}, None => (value(result)) }
        @for call in message["tool_calls"].as_array().into_iter().flatten() {
            div.call { "wants " code { (text(&call["name"])) } " " span.wrap { (cut(&call["arguments"].to_string(), 2_000)) } }
        }
    } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that goes on from another run: what was said there is its input, and is shown; that it was read is not.
    #[test]
    fn what_was_said_in_the_run_before_is_part_of_the_conversation() {
        let before = json!([{ "role": "assistant", "content": "said earlier", "tool_calls": [] }]);
        let input = json!({ "task": "look around", "continued": { "messages": before } });
        let request = StartWorkflow::new(WorkflowType::of("agent"), WorkflowId::of("a"));
        let request = request.input(Payload::encode(&input).unwrap());
        let started = EventKind::WorkflowExecutionStarted(Box::new(request.first_event(RunId([1; 16]), Timestamp(0))));
        let event = |kind| Event { id: EventId(1), at: Timestamp(0), build: BuildId(0), kind };
        let carry = EventKind::ActivityTaskScheduled(Box::new(ActivityTaskScheduled {
            seq: Seq(1),
            activity_id: ActivityId::of("1"),
            activity_type: ActivityType::of(AGENT_CARRY),
            input: Payload::null(),
            options: ActivityOptions::default(),
        }));
        let result = Payload::encode("nobody reads this twice").unwrap();
        let carried = EventKind::ActivityTaskCompleted { seq: Seq(1), result, identity: None };
        let shown = spoken(&[event(started), event(carry), event(carried)]).into_string();
        assert!(shown.contains("look around") && shown.contains("said earlier"), "{shown}");
        assert!(!shown.contains("twice") && !shown.contains(AGENT_CARRY), "{shown}");
    }
}
