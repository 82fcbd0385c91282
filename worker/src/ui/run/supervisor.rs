//! A supervisor drawn as what it is: a plan as its graph, a chat as who said what, a delegation as a tree; who worked on what,
//! why it was sent back, and what it cost.
//!
//! Invariant: everything is read from what the run answers to its queries, and a part that it does not answer is left out.
//! A drawing is beside words that say the same.

use std::collections::BTreeMap;

use bosun_engine::{RunInfo, Timestamp};
use maud::{Markup, html};
use serde_json::Value;

use super::handoffs::{chain, said};
use crate::api::people::agents::is_sent_back;
use crate::api::people::ask;
use crate::backend::Backend;
use crate::cli::spent_below::budget_of;
use crate::inbox::target_of;
use crate::ui::elements::{badge, cut, dollars, span as lasted, value};

/// What a supervisor says of itself.
pub(crate) struct SupervisorView {
    progress: Value,
    plan: Value,
    budget: Value,
    report: Value,
    notes: Value,
}

impl SupervisorView {
    /// Nothing for a run that is none or cannot answer.
    pub(crate) async fn of(backend: &dyn Backend, info: &RunInfo) -> Option<SupervisorView> {
        let target = target_of(info);
        let progress = ask(backend, &target, "progress").await;
        if !progress.is_object() {
            return None;
        }
        let of = |query| ask(backend, &target, query);
        let (plan, budget, report, notes) =
            tokio::join!(of("get_plan"), budget_of(backend, &target), of("report"), of("notes"));
        Some(SupervisorView { progress, plan, budget, report, notes })
    }

    /// The same by answers that were given before, by their queries.
    pub(crate) fn of_answers(answers: &BTreeMap<String, Value>) -> Option<SupervisorView> {
        let of = |query: &str| answers.get(query).cloned().unwrap_or_default();
        let progress = of("progress");
        progress.is_object().then(|| SupervisorView {
            progress,
            plan: of("get_plan"),
            budget: of("budget"),
            report: of("report"),
            notes: of("notes"),
        })
    }

    pub(crate) fn markup(&self) -> Markup {
        let beside = &self.progress["beside_rows"];
        html! {
            section.supervisor {
                h2 { "What it does" }
                p.objective { (text(&self.progress["objective"])) }
                (self.standing())
                @if self.plan["tasks"].as_object().is_some_and(serde_json::Map::is_empty) { p.empty { "There is no plan." } }
                @else if self.plan["tasks"].is_object() { (graph(&self.plan)) (tasks(&self.plan)) }
                @else if beside["chat"].is_object() { (chat(beside)) }
                @else if beside["agents"].is_object() { (delegation(beside)) }
                @else if let Some(tasks) = self.progress["tasks"].as_array() { (rows(tasks)) }
                (self.ending())
                (self.journal())
            }
        }
    }

    /// How far it is, and how much of its budget it has spent.
    fn standing(&self) -> Markup {
        let (done, total) = (&self.progress["completed"], &self.progress["total"]);
        // What is allowed stands as `budget show` has it: less than it may be left while runs below hold some, or too much is spent.
        let (spent, allowed) = (&self.budget["spent"], &self.budget["allowed"]);
        let bars = [("Money", "cost_micros", true), ("Tokens", "tokens", false), ("Calls", "calls", false)]
            .map(|(name, key, money)| (name, spent[key].as_u64(), allowed[key].as_u64(), money));
        let unpriced = spent["unpriced_calls"].as_u64().is_some_and(|calls| calls > 0);
        html! {
            dl.facts.spread {
                div { dt { "State" } dd { (text(&self.progress["status"]).replace('_', " ")) } }
                @if total.as_u64().is_some_and(|total| total > 0) {
                    div { dt { "Tasks" } dd { (done) " of " (total) " " progress max=(total) value=(done) { } } }
                }
                @for (name, spent, allowed, money) in bars {
                    @if let Some(spent) = spent {
                        @let shown = |amount: u64| if money { dollars(amount) } else { amount.to_string() };
                        div { dt { (name) } dd { (shown(spent)) @if money && unpriced { " " span.muted { "and what has no price" } }
                            @if let Some(allowed) = allowed { " of " (shown(allowed)) " " meter min="0" max=(allowed) value=(spent.min(allowed)) { } } } }
                    }
                }
            }
        }
    }

    fn ending(&self) -> Markup {
        let (result, reason) = (&self.report["final_result"], &self.report["reason"]);
        html! {
            @if reason.is_object() {
                h3 { "Why it is not done in full" }
                p { code { (text(&reason["code"])) } " " (text(&reason["message"])) }
                ul { @for task in reason["tasks"].as_array().into_iter().flatten() {
                    li { strong { (text(&task["task_id"])) } " " span.muted { (text(&task["status"]).replace('_', " ")) } " " (text(&task["why"])) }
                } }
            }
            @if !result.is_null() { h3 { "Result" } (value(result)) }
        }
    }

    fn journal(&self) -> Markup {
        let notes: Vec<&Value> = self.notes["last"].as_array().into_iter().flatten().collect();
        html! { @if !notes.is_empty() {
            details.folded { summary { "What it noted last " span.muted { "(" (notes.len()) " of " (self.notes["noted"]) ")" } }
                ol.notes { @for note in notes { li { strong { (text(&note["kind"])) } " " span.wrap { (cut(&note["data"].to_string(), 400)) } } } }
            }
        } }
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
}

fn class_of(status: &str) -> &'static str {
    match status.to_ascii_lowercase().as_str() {
        "completed" | "done" => "ok",
        "failed" | "escalated" => "bad",
        "running" | "awaiting_review" => "run",
        "awaiting_input" | "awaiting_approval" | "needs_revision" | "errored" => "wait",
        "cancelled" | "canceled" | "skipped" | "blocked" => "off",
        _ => "note",
    }
}

// ---- a plan

const NODE_WIDTH: usize = 190;
const NODE_HEIGHT: usize = 52;
const GAP_X: usize = 60;
const GAP_Y: usize = 18;
/// A larger plan is shown as a table alone.
const NODES_MAX: usize = 150;

/// Where a task stands: its column is one more than that of the farthest task it depends on.
fn columns(tasks: &serde_json::Map<String, Value>) -> BTreeMap<&str, usize> {
    let depends = |task: &Value| -> Vec<String> {
        task["edges"].as_array().into_iter().flatten().map(|edge| text(&edge["on"])).collect()
    };
    let mut columns: BTreeMap<&str, usize> = tasks.keys().map(|id| (id.as_str(), 0)).collect();
    // A plan has no cycles; the bound holds where somebody made one all the same.
    for _ in 0..tasks.len() {
        let mut changed = false;
        for (id, task) in tasks {
            let least = depends(task).iter().filter_map(|on| columns.get(on.as_str())).max().map_or(0, |most| most + 1);
            if columns[id.as_str()] < least && least < tasks.len() {
                columns.insert(id, least);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    columns
}

/// A node of the drawing.
struct Node<'a> {
    x: usize,
    y: usize,
    task: &'a Value,
}

fn graph(plan: &Value) -> Markup {
    let Some(tasks) = plan["tasks"].as_object().filter(|tasks| (1..=NODES_MAX).contains(&tasks.len())) else {
        return html! {};
    };
    let columns = columns(tasks);
    let mut ids: Vec<&str> = tasks.keys().map(String::as_str).collect();
    ids.sort_by_key(|id| (columns[id], tasks[*id]["position"].as_u64().unwrap_or(u64::MAX)));
    let mut filled: BTreeMap<usize, usize> = BTreeMap::new();
    let mut nodes: BTreeMap<&str, Node<'_>> = BTreeMap::new();
    for id in &ids {
        let row = filled.entry(columns[id]).or_default();
        let (x, y) = (columns[id] * (NODE_WIDTH + GAP_X) + 4, *row * (NODE_HEIGHT + GAP_Y) + 4);
        *row += 1;
        nodes.insert(id, Node { x, y, task: &tasks[*id] });
    }
    let width = nodes.values().map(|node| node.x).max().unwrap_or(0) + NODE_WIDTH + 8;
    let height = nodes.values().map(|node| node.y).max().unwrap_or(0) + NODE_HEIGHT + 8;
    html! {
        h3 { "Plan " span.muted { "version " (plan["version"]) } }
        div.scroll tabindex="0" role="region" aria-label="The plan as a graph" {
            svg.graph width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="group" aria-label={ "A plan of " (nodes.len()) " tasks; the table below says the same" } {
                @for node in nodes.values() {
                    @for edge in node.task["edges"].as_array().into_iter().flatten() {
                        @if let Some(from) = nodes.get(text(&edge["on"]).as_str()) { (arrow(from, node)) }
                    }
                }
                @for (id, node) in &nodes { (node_box(id, node)) }
            }
        }
    }
}

/// The plan that a state holds, drawn; nothing where it holds none.
pub(crate) fn plan_in(state: &Value) -> Option<Markup> {
    fn find(value: &Value, depth: usize) -> Option<&Value> {
        let fields = value.as_object().filter(|_| depth < 8)?;
        let is_plan = |plan: &&Value| plan["tasks"].as_object().is_some_and(|tasks| !tasks.is_empty());
        let here = fields.get("plan").filter(is_plan);
        here.or_else(|| fields.values().find_map(|value| find(value, depth + 1)))
    }
    find(state, 0).map(|plan| html! { (graph(plan)) (tasks(plan)) })
}

fn arrow(from: &Node<'_>, to: &Node<'_>) -> Markup {
    let (x1, y1) = (from.x + NODE_WIDTH, from.y + NODE_HEIGHT / 2);
    let (x2, y2) = (to.x, to.y + NODE_HEIGHT / 2);
    let bend = GAP_X / 2;
    let path = format!("M{x1} {y1} C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2.saturating_sub(bend));
    let head = format!("M{x2} {y2} l-7 -4 v8 z");
    html! { path.edge d=(path) {} path.head d=(head) {} }
}

fn node_box(id: &str, node: &Node<'_>) -> Markup {
    let Node { x, y, task } = node;
    let status = text(&task["status"]);
    let agent = task["attempts"].as_array().and_then(|all| all.last()).map(|last| worker(task, last));
    let tries = task["tries"].as_u64().unwrap_or(0);
    html! {
        a href={ "#task-" (id) } {
            g class={ "node " (class_of(&status)) } {
                title { (id) ": " (text(&task["goal"])) " - " (status.replace('_', " ")) }
                rect x=(x) y=(y) width=(NODE_WIDTH) height=(NODE_HEIGHT) rx="8" {}
                text x=(x + 10) y=(y + 21) { (cut(&format!("{id} {}", text(&task["goal"])), 26)) }
                text.sub x=(x + 10) y=(y + 40) {
                    (status.replace('_', " ")) @if let Some(agent) = agent.filter(|agent| !agent.is_empty()) { " · " (cut(&agent, 14)) } @if tries > 1 { " · try " (tries) }
                }
            }
        }
    }
}

/// Every task with who worked on it, why it was sent back, and what it cost.
fn tasks(plan: &Value) -> Markup {
    let mut tasks: Vec<(&String, &Value)> = plan["tasks"].as_object().into_iter().flatten().collect();
    tasks.sort_by_key(|(_, task)| task["position"].as_u64().unwrap_or(u64::MAX));
    html! {
        div.scroll tabindex="0" role="region" aria-label="Tasks" {
            table.rows.tasks {
                thead { tr { th scope="col" { "Task" } th scope="col" { "State" } th scope="col" { "Attempts" } th scope="col" { "Cost" } th scope="col" { "Outcome" } } }
                tbody { @for (id, task) in tasks { (task_row(id, task)) } }
            }
        }
    }
}

fn task_row(id: &str, task: &Value) -> Markup {
    let attempts: Vec<&Value> = task["attempts"].as_array().into_iter().flatten().collect();
    let feedback: Vec<&Value> = task["feedback"].as_array().into_iter().flatten().collect();
    let sum = |key: &str| attempts.iter().filter_map(|attempt| attempt[key].as_u64()).fold(0, u64::saturating_add);
    let (tokens, cost, unpriced) = (sum("tokens"), sum("cost_micros"), sum("unpriced_calls"));
    let on: Vec<String> = task["edges"].as_array().into_iter().flatten().map(|edge| text(&edge["on"])).collect();
    let status = text(&task["status"]);
    html! {
        tr id={ "task-" (id) } {
            td.wide { strong { (id) } " " (text(&task["goal"])) @if !on.is_empty() { div.muted { "after " (on.join(", ")) } } }
            td { (badge(class_of(&status), &status)) }
            td.wide {
                @for attempt in &attempts { div { (attempt["n"]) " " (worker(task, attempt)) " " span.muted { (text(&attempt["outcome"])) " " (attempt_span(attempt)) } } }
                @for one in &feedback { (said_of(one)) }
            }
            td { @if cost > 0 { (dollars(cost)) } @if tokens > 0 { div.muted { (tokens) " tokens" } } @if unpriced > 0 { div.muted { (unpriced) " of unknown price" } } }
            td.wide {
                @if let Some(why) = task["error"].as_str() { div.failure { (why) } }
                @if !task["result"].is_null() { (value(&task["result"])) }
            }
        }
    }
}

/// Who made an attempt: the agent, or where no agent is named what the task asked for, a role or a capability.
fn worker(task: &Value, attempt: &Value) -> String {
    let named = [&attempt["agent"], &task["agent"], &task["role"], &task["capability"]];
    named.into_iter().map(text).find(|name| !name.is_empty()).unwrap_or_default()
}

fn attempt_span(attempt: &Value) -> String {
    let at = |key: &str| attempt[key].as_i64().map(Timestamp);
    match (at("started_at"), at("ended_at")) {
        (Some(from), Some(to)) => lasted(to.since(from)),
        _ => String::new(),
    }
}

/// What was said of an attempt: why it was sent back, or what whoever accepted it added.
fn said_of(feedback: &Value) -> Markup {
    let said = text(&feedback["text"]);
    let who = format!("the {} of attempt {}", text(&feedback["from"]), feedback["attempt"]);
    html! { @match (is_sent_back(feedback), said.as_str()) {
        (true, "") => div.sent-back { "sent back: " (who) " gave no reason" },
        (true, said) => div.sent-back { "sent back: " (said) },
        (false, "") => {},
        (false, said) => div.muted { "accepted: " (said) },
    } }
}

// ---- a chat

fn chat(beside: &Value) -> Markup {
    let (chat, messages) = (&beside["chat"], beside["messages"].as_array());
    let mut speakers: BTreeMap<String, usize> = BTreeMap::new();
    for agent in chat["agents"].as_array().into_iter().flatten() {
        speakers.insert(text(agent), 0);
    }
    for message in messages.into_iter().flatten() {
        *speakers.entry(text(&message["from"])).or_default() += 1;
    }
    let next = text(&chat["last_speaker"]);
    html! {
        h3 { "Conversation " span.muted { (text(&chat["team"])) ", round " (chat["round"]) " of " (chat["max_round"]) } }
        ul.speakers { @for (speaker, said) in &speakers {
            li aria-current=[(*speaker == next).then_some("true")] { (speaker) " " span.muted { (said) } }
        } }
        (chain(messages.map_or(&[], Vec::as_slice)))
        (said(messages.map_or(&[], Vec::as_slice)))
    }
}

// ---- a delegation

fn delegation(beside: &Value) -> Markup {
    let agents = &beside["agents"];
    let sessions: Vec<&Value> = agents["sessions"].as_array().into_iter().flatten().collect();
    let messages = beside["messages"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    html! {
        h3 { "Who works for whom" @if let Some(active) = agents["active_agent"].as_str() { " " span.muted { "in hand: " (active) } } }
        ul.tree { @for session in sessions.iter().filter(|session| session["parent_id"].is_null()) { (session_branch(session, &sessions, 0)) } }
        (chain(messages))
        @if !messages.is_empty() { h3 { "Conversation" } (said(messages)) }
    }
}

/// Deeper trees are cut where nobody would read them.
const DEPTH_MAX: usize = 32;

fn counted(number: &Value, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn session_branch(session: &Value, all: &[&Value], depth: usize) -> Markup {
    let status = text(&session["status"]);
    let below: Vec<&&Value> = all.iter().filter(|other| other["parent_id"] == session["id"]).collect();
    html! {
        li {
            (badge(class_of(&status), &status)) " " strong { (text(&session["agent"])) } " " (cut(&text(&session["task"]), 200))
            div.muted { (text(&session["model"])) " " (counted(&session["steps"], "step")) ", " (counted(&session["tool_calls"], "tool call")) }
            @if !below.is_empty() && depth < DEPTH_MAX { ul { @for one in below { (session_branch(one, all, depth + 1)) } } }
        }
    }
}

fn rows(tasks: &[Value]) -> Markup {
    html! { ul.tree { @for task in tasks {
        @let status = text(&task["status"]);
        li { (badge(class_of(&status), &status)) " " (text(&task["title"])) div.muted.wrap { (cut(&text(&task["brief"]), 400)) } }
    } } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_stands_behind_all_that_it_depends_on() {
        let on = |ids: &[&str]| json!({ "edges": ids.iter().map(|id| json!({ "on": id })).collect::<Vec<_>>() });
        let plan = json!({ "a": on(&[]), "b": on(&["a"]), "c": on(&["a", "b"]), "d": on(&["nobody"]) });
        let columns = columns(plan.as_object().unwrap());
        assert_eq!(columns.values().copied().collect::<Vec<_>>(), [0, 1, 2, 0]);
        // Nobody can plan it; the drawing ends all the same.
        let cycle = json!({ "a": on(&["b"]), "b": on(&["a"]) });
        assert!(super::columns(cycle.as_object().unwrap()).values().all(|column| *column < 2));
    }

    /// Less than it may be left: the rest is held for runs below, or more than that is spent.
    #[test]
    fn a_budget_is_shown_against_what_is_allowed() {
        for (spent, left) in [(180, 0), (40, 10)] {
            let budget =
                json!({ "spent": { "tokens": spent }, "left": { "tokens": left }, "allowed": { "tokens": 100 } });
            let answers = [("progress".to_owned(), json!({})), ("budget".to_owned(), budget)].into();
            let shown = SupervisorView::of_answers(&answers).unwrap().markup().into_string();
            assert!(shown.contains(&format!("{spent} of 100")), "{shown}");
        }
    }

    /// An attempt of a task that only a role was asked for was made by that role.
    #[test]
    fn who_worked_is_named_also_where_a_task_has_only_a_role() {
        let attempt = json!({ "n": 1, "outcome": "completed" });
        let task = json!({ "goal": "g", "status": "completed", "edges": [], "role": "researcher", "attempts": [attempt], "feedback": [] });
        let shown = task_row("t", &task).into_string();
        assert!(shown.contains("1 researcher"), "{shown}");
    }

    /// A review that passes is feedback too.
    #[test]
    fn what_was_accepted_is_not_called_sent_back() {
        let said = |text: &str, passed: bool| json!({ "from": "critic", "attempt": 1, "text": text, "passed": passed });
        let shown = |feedback: Value| {
            let task =
                json!({ "goal": "g", "status": "completed", "edges": [], "attempts": [], "feedback": [feedback] });
            task_row("t", &task).into_string()
        };
        assert!(shown(said("Name a source.", false)).contains("sent back: Name a source."));
        assert!(shown(said("", false)).contains("sent back: the critic of attempt 1 gave no reason"));
        let praised = shown(said("Well done", true));
        assert!(praised.contains("accepted: Well done") && !praised.contains("sent back"), "{praised}");
        let silent = shown(said("", true));
        assert!(!silent.contains("sent back") && !silent.contains("accepted"), "{silent}");
    }

    #[test]
    fn names_of_tasks_and_agents_are_text() {
        let plan =
            json!({ "version": 1, "tasks": { "<b>": { "goal": "\"><script>", "edges": [], "status": "running" } } });
        let drawn = graph(&plan).into_string() + &tasks(&plan).into_string();
        assert!(!drawn.contains("<script>") && !drawn.contains("<b>"), "{drawn}");
    }
}
