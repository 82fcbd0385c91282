//! Schedules: when each starts next, what runs, what has been, and the commands that change it.
//!
//! Invariant: what is shown is what schedules say of themselves; one that cannot answer is shown with what the engine knows.
//! What its buttons do is what the commands of the same name do: an update of the schedule's run.

use axum::response::Response;
use bosun_engine::*;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::elements::{ago, badge, cut, path_segment, query_value, run_link, status, with};
use super::forms::{Query, Visitor};
use super::layout::{Page, PageError, Place};
use super::schedule_form::edit_link;
use crate::api::TokenRole;
use crate::api::people::{Cursor, schedules};
use crate::cli::shell_word;
use crate::schedule::shown::{ScheduleMood, StartBecame, when};
use crate::schedule::text::parse_moment;
use crate::schedule::{ID_PREFIX, SCHEDULE};

/// Runs of each that are shown.
const RECENT: usize = 3;
const TEXT_MAX: usize = 200;

/// Which page of the list.
#[derive(Deserialize)]
pub(super) struct SchedulesQuery {
    cursor: Option<String>,
    /// The start that somebody has just asked for: its schedule, and the moment that it stands for.
    triggered: Option<String>,
    at: Option<String>,
}

/// Where an update of a schedule leads to: a start is told with what became of it.
pub(super) fn back_from(verb: Option<&str>, workflow_id: &WorkflowId, answer: &Value) -> String {
    let id = workflow_id.as_str();
    if verb != Some("trigger") {
        return "/schedules".to_owned();
    }
    let nominal = answer["nominal"].as_str().unwrap_or_default();
    with("/schedules", &[("triggered", id.strip_prefix(ID_PREFIX).unwrap_or(id)), ("at", nominal)])
}

/// What has become of the start that somebody asked for, as the schedule says now.
fn became(asked: &SchedulesQuery, told: &[(RunInfo, Value)]) -> Option<Markup> {
    let (name, nominal) = (asked.triggered.as_deref()?, asked.at.as_deref()?);
    let (_, described) = told.iter().find(|(info, _)| schedules::name_of(info) == name)?;
    let became = StartBecame::of(described, nominal)?;
    let class = if became == StartBecame::LeftOut { "warning" } else { "done" };
    Some(html! { p class=(class) role="status" { (sentence(&became.text(name, nominal))) } })
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

pub(super) async fn page(visitor: Visitor, Query(asked): Query<SchedulesQuery>) -> Result<Response, PageError> {
    let after = asked.cursor.as_deref().map(Cursor::read).transpose()?;
    let (told, next) = schedules::listed(&visitor.backend, schedules::SHOWN, after).await?;
    let rows: Vec<Markup> = told.iter().map(|(info, described)| row(&visitor, info, described)).collect();
    let body = html! {
        h1 { "Schedules " span.muted { (rows.len()) @if next.is_some() { " of more" } } }
        @if let Some(became) = became(&asked, &told) { (became) }
        @if visitor.may(TokenRole::Operator) { p { a.button href="/schedule" { "New schedule" } } }
        @if rows.is_empty() {
            p.empty { "There are none." }
            p { (visitor.command("bosun schedule create nightly SPEC.yaml --cron '0 2 * * *'")) }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Schedules" { table.rows.cards {
                thead { tr {
                    th scope="col" { "State" } th scope="col" { "Schedule" } th scope="col" { "When" } th scope="col" { "Next" }
                    th scope="col" { "Runs" } th scope="col" { "So far" } th scope="col" { "What to do" }
                } }
                tbody { @for row in rows { (row) } }
            } }
            @if after.is_some() || next.is_some() { p.line {
                @if after.is_some() { a href="/schedules" { "Newest" } }
                @if let Some(next) = next { a rel="next" href={ "/schedules?cursor=" (next.to_string()) } { "Older" } }
            } }
        }
    };
    let live = after.is_none().then(|| format!("WorkflowType = '{SCHEDULE}'"));
    Ok(Page { title: "Schedules", place: Place::Schedules, live, body }.response(&visitor))
}

fn row(visitor: &Visitor, info: &RunInfo, shown: &Value) -> Markup {
    let (id, name) = (info.workflow_id.as_str(), schedules::name_of(info));
    let mood = ScheduleMood::of(shown);
    let note = shown["schedule"]["state"]["note"].as_str().unwrap_or_default();
    let action = &shown["schedule"]["action"];
    let counts = &shown["counts"];
    let verb = if mood == ScheduleMood::Paused { "unpause" } else { "pause" };
    html! { tr {
        td {
            @if info.status == WorkflowStatus::Paused || shown.is_null() { (status(info.status)) } @else { (badge(class(mood), mood.word())) }
            @if !note.is_empty() { " " span.muted { (cut(note, TEXT_MAX)) } }
        }
        td { a href=(run_link(info.namespace.as_str(), id, None)) { (name) } " " span.muted { (text(&action["workflow_type"])) @if info.namespace.as_str() != DEFAULT_NAMESPACE { " in " (info.namespace) } } }
        td data-th="When" {
            (cut(&when(&shown["schedule"]["spec"]), TEXT_MAX))
            " " span.muted { (text(&shown["schedule"]["policies"]["overlap"]).replace('_', " ")) }
            @if let Some(problem) = shown["problem"].as_str() { p.problem { (problem) } }
        }
        td data-th="Next" { @match moment(&shown["next"]["due"]) { Some(at) => (ago(at)), None => span.muted { "none" } } }
        td data-th="Runs" { (runs(info.namespace.as_str(), shown)) }
        td data-th="So far" { @if !counts.is_null() {
            (counts["actions"]) " started, " (counts["failed"]) " failed, " (counts["overlap_skipped"]) " left out, "
            (counts["missed_catchup_window"]) " missed"
        } }
        td {
            @if visitor.may(TokenRole::Operator) && !shown.is_null() {
                div.line {
                    (button(visitor, info, verb)) (button(visitor, info, "trigger"))
                    a.button href=(edit_link(info.namespace.as_str(), name)) { "Change" }
                }
            } @else { (visitor.command_in(&info.namespace, &format!("bosun schedule {verb} {}", shell_word(name)))) }
        }
    } }
}

/// A button that updates the schedule, as the command of the same name does.
fn button(visitor: &Visitor, info: &RunInfo, verb: &str) -> Markup {
    let words = match verb {
        "pause" => "Pause",
        "trigger" => "Start one now",
        _ => "Resume",
    };
    let (id, namespace) = (path_segment(info.workflow_id.as_str()), query_value(info.namespace.as_str()));
    html! {
        form method="post" action={ "/runs/" (id) "/act?namespace=" (namespace) } {
            (visitor.seal())
            input type="hidden" name="verb" value="update";
            input type="hidden" name="name" value=(verb);
            input type="hidden" name="input" value="{}";
            input type="hidden" name="back" value="schedules";
            button type="submit" { (words) }
        }
    }
}

fn class(mood: ScheduleMood) -> &'static str {
    match mood {
        ScheduleMood::Problem => "bad",
        ScheduleMood::Paused => "wait",
        ScheduleMood::Over => "off",
        ScheduleMood::Active => "run",
    }
}

/// What runs, and what has been.
fn runs(namespace: &str, shown: &Value) -> Markup {
    let list = |key: &str| shown[key].as_array().cloned().unwrap_or_default();
    let link = |one: &Value| html! { a href=(run_link(namespace, &text(&one["workflow_id"]), None)) { (text(&one["nominal"])) } };
    html! {
        @for one in list("running").iter().take(RECENT) { div { (badge("run", "running")) " " (link(one)) } }
        @if !list("waiting").is_empty() { div { (badge("wait", "waiting")) " " (list("waiting").len()) } }
        @for one in list("recent").iter().take(RECENT) {
            div { (badge(if one["outcome"] == "completed" { "ok" } else { "bad" }, &text(&one["outcome"]).replace('_', " "))) " " (link(one)) }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn moment(value: &Value) -> Option<Timestamp> {
    parse_moment(value.as_str()?).ok()
}
