//! All runs: a table with a list filter.
//!
//! Invariant: the filter stands in the address, so that a view can be kept and sent; a page reaches every run, however many
//! there are, and shows the newest first.

use axum::response::Response;
use bosun_engine::*;
use futures_util::{StreamExt, stream};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::batch;
use super::elements::{ago, cut, dollars, lasted, run_link, standing, with};
use super::forms::{Query, Visitor};
use super::layout::{Page, PageError, Place};
use super::waits::{RunWait, held_by_people, waits};
use crate::agent::AGENT;
use crate::api::TokenRole;
use crate::api::guard::now;
use crate::api::people::ask;
use crate::api::people::{Cursor, filter_of, page_of_runs, unknown_field, without_notifications};
use crate::backend::Backend;
use crate::cli::stuck::{Lookout, Obstacle};
use crate::inbox::target_of;
use crate::notify::NOTIFICATION;
use crate::standing::count as standing_count;
use crate::supervisor::run::SUPERVISOR;

const PAGE: usize = 50;
/// Open runs that are asked at a time what they wait for.
const ASKED_AT_ONCE: usize = 8;
/// Characters of an obstacle in a row.
const WHY_MAX: usize = 160;

#[derive(Deserialize)]
pub(super) struct RunsQuery {
    #[serde(default)]
    query: String,
    cursor: Option<String>,
}

const FILTERS: [(&str, &str); 5] = [
    ("All", ""),
    ("Open", "ExecutionStatus IN ('Running', 'Paused')"),
    ("Failed", "ExecutionStatus IN ('Failed', 'TimedOut', 'Terminated')"),
    ("Completed", "ExecutionStatus = 'Completed'"),
    ("Supervisors", "WorkflowType = 'supervisor'"),
];

/// A row: a run, and what was asked about it.
struct RunRow {
    info: RunInfo,
    waits: Vec<RunWait>,
    /// What keeps it, or a run below it, from going on.
    stuck: Option<Obstacle>,
    spent: Option<SpentSum>,
}

/// What a run has spent, where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SpentSum {
    micros: u64,
    /// Calls of which nobody knows what they cost.
    unpriced: u64,
}

impl SpentSum {
    /// By the answer to `budget`, or the result: what has no price stands with the sum or beside it.
    fn of(told: &Value) -> Option<SpentSum> {
        let micros = told["spent"]["cost_micros"].as_u64().or(told["cost_micros"].as_u64())?;
        let unpriced = told["spent"]["unpriced_calls"].as_u64().or(told["unpriced_calls"].as_u64());
        Some(SpentSum { micros, unpriced: unpriced.unwrap_or_default() })
    }

    fn markup(self) -> Markup {
        html! {
            @if self.micros > 0 || self.unpriced == 0 { (dollars(self.micros)) }
            @if self.unpriced > 0 { " " span.muted { @if self.micros > 0 { "and " } (self.unpriced) " of unknown price" } }
        }
    }
}

pub(super) async fn page(visitor: Visitor, Query(asked): Query<RunsQuery>) -> Result<Response, PageError> {
    let RunsQuery { query, cursor } = asked;
    let after = cursor.as_deref().map(Cursor::read).transpose();
    let found = match after {
        Ok(after) => match unknown_field(&visitor.backend, &query).await? {
            Some(unknown) => Err(unknown.into()),
            None => page_of_runs(&visitor.backend, &query, false, PAGE, after).await,
        },
        Err(why) => Err(why),
    };
    let found = match found {
        Ok(found) => Ok(found),
        // A filter that cannot be read is told beside it.
        Err(why) if why.status.is_client_error() => Err(why),
        Err(why) => return Err(why.into()),
    };
    let body = html! {
        div.line { h1 { "Runs" } @if visitor.may(TokenRole::Operator) { a.button href="/start" { "Start a run" } } }
        (filter(&visitor, &query).await)
        @match &found {
            Err(why) => p.problem role="alert" { (why.message) },
            Ok((runs, _)) if runs.is_empty() => p.empty {
                @if query.is_empty() { "There are no runs yet. " code { "bosun run SPEC.yaml" } " or the button above starts one." }
                @else { "No run fits this filter." }
            },
            Ok((runs, next)) => {
                @let acts = visitor.may(TokenRole::Operator);
                (table(&rows(&visitor, runs).await, acts))
                @if acts { (batch::form(&visitor, &query)) }
                nav.pages aria-label="More runs" {
                    @if cursor.is_some() { a href=(with("/", &[("query", &query)])) { "Newest" } }
                    @if let Some(next) = next { a rel="next" href=(with("/", &[("query", &query), ("cursor", &next.to_string())])) { "Older" } }
                }
            },
        }
    };
    // Whoever reads an older page does not want it to move.
    let live = (cursor.is_none() && found.is_ok()).then(|| heard(query));
    Ok(Page { title: "Runs", place: Place::Runs, live, body }.response(&visitor))
}

/// The filter of the events after which a list may have changed. Only a run itself knows that it has paused.
fn heard(query: String) -> String {
    if filter_of(&query).is_ok_and(|filter| filter.asks_for_holds()) { String::new() } else { query }
}

async fn filter(visitor: &Visitor, query: &str) -> Markup {
    let told = format!("WorkflowType = '{NOTIFICATION}'");
    let mut tabs = Vec::new();
    for (name, filter) in FILTERS.into_iter().chain([("Notifications", told.as_str())]) {
        let shown = filter_of(filter).and_then(without_notifications);
        let count = match shown {
            Ok(shown) => standing_count(&visitor.backend, &shown).await.ok(),
            Err(_) => None,
        };
        // Where nobody is told anything, there is nothing to look for.
        if filter != told || filter == query || count != Some(0) {
            tabs.push((name, filter.to_owned(), count));
        }
    }
    html! {
        form.filter method="get" action="/" role="search" {
            label for="query" { "Filter" }
            input #query name="query" type="search" value=(query) spellcheck="false" list="filters"
                placeholder="ExecutionStatus = 'Running' AND WorkflowType = 'supervisor'";
            button type="submit" { "Show" }
        }
        nav.tabs aria-label="Filters" {
            @for (name, filter, count) in tabs {
                a href=(with("/", &[("query", &filter)])) aria-current=[(filter == query).then_some("true")] {
                    (name) @if let Some(count) = count { " " span.muted { (count) } }
                }
            }
        }
    }
}

async fn rows(visitor: &Visitor, runs: &[RunInfo]) -> Vec<RunRow> {
    let row = |info: RunInfo| async move {
        if !info.status.is_open() {
            let spent = spent_in_all(&visitor.backend, &info).await;
            return RunRow { info, waits: Vec::new(), stuck: None, spent };
        }
        let target = target_of(&info);
        let (waits, stuck) = match visitor.backend.describe(target.clone()).await {
            Ok(description) => {
                let waits = waits(&visitor.backend, &description).await;
                let stuck = if waits.iter().any(RunWait::asks_a_person) {
                    None
                } else {
                    Lookout::new(&visitor.backend, now()).below_described(&description).await.into_iter().next()
                };
                (waits, stuck)
            }
            Err(_) => (Vec::new(), None),
        };
        let spent = match info.workflow_type.as_str() {
            SUPERVISOR | AGENT => SpentSum::of(&ask(&visitor.backend, &target, "budget").await),
            _ => None,
        };
        RunRow { info, waits, stuck, spent }
    };
    stream::iter(runs.to_vec()).map(row).buffered(ASKED_AT_ONCE).collect().await
}

/// What keeps a run from going on, and which run below it.
fn in_its_way(info: &RunInfo, stuck: &Obstacle) -> Markup {
    let what = if stuck.run == info.workflow_id { stuck.what.clone() } else { stuck.title() };
    html! { span.bad-text { (what) } ": " (cut(&stuck.text(now()), WHY_MAX)) }
}

/// What a closed supervisor or agent has spent, where its result says so. One that gave none is not asked: each answer of a
/// closed run replays it, and a page has many.
async fn spent_in_all(backend: &dyn Backend, info: &RunInfo) -> Option<SpentSum> {
    if ![SUPERVISOR, AGENT].contains(&info.workflow_type.as_str()) {
        return None;
    }
    let CloseOutcome::Completed(result) = backend.describe(target_of(info)).await.ok()?.result? else { return None };
    SpentSum::of(&result.to_json())
}

fn table(rows: &[RunRow], acts: bool) -> Markup {
    let namespaces = rows.iter().any(|row| row.info.namespace.as_str() != DEFAULT_NAMESPACE);
    html! {
        div.scroll tabindex="0" role="region" aria-label="Runs" {
            table.rows.runs #rows {
                thead { tr {
                    th scope="col" { "Status" } th scope="col" { "Workflow id" } th scope="col" { "Type" }
                    @if namespaces { th scope="col" { "Namespace" } }
                    th scope="col" { "Started" } th scope="col" { "Took" } th scope="col" { "Spent" } th scope="col" { "Waits for" }
                } }
                tbody { @for row in rows { (table_row(row, namespaces, acts)) } }
            }
        }
    }
}

fn table_row(row: &RunRow, namespaces: bool, acts: bool) -> Markup {
    let RunRow { info, waits, stuck, spent } = row;
    let first = waits.iter().find(|wait| wait.asks_a_person()).or(waits.first());
    html! {
        tr id={ "run-" (info.run_id) } {
            td {
                @if acts && info.status.is_open() {
                    input type="checkbox" form="batch" name="run" value=(batch::name_of(info)) aria-label={ "Choose " (info.workflow_id) };
                    " "
                }
                (standing(info, held_by_people(waits)))
            }
            td { a href=(run_link(info.namespace.as_str(), info.workflow_id.as_str(), Some(info.run_id))) { (info.workflow_id) } }
            td { (info.workflow_type) }
            @if namespaces { td { (info.namespace) } }
            td { (ago(info.started_at)) }
            td { (lasted(info)) }
            td { @if let Some(spent) = spent { (spent.markup()) } }
            td.waits { @if let Some(stuck) = stuck { (in_its_way(info, stuck)) } @else if let Some(first) = first { (first.brief()) @if waits.len() > 1 { span.muted { " and " (waits.len() - 1) " more" } } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A run whose calls have no price has not spent nothing.
    #[test]
    fn what_has_no_price_is_no_zero() {
        let shown = |told: Value| SpentSum::of(&told).map(|spent| spent.markup().into_string());
        let of_run = |micros: u64, unpriced: u64| {
            shown(json!({ "spent": { "cost_micros": micros, "unpriced_calls": unpriced } }))
        };
        assert_eq!(of_run(0, 0).as_deref(), Some("$0.00"));
        let unknown = of_run(0, 3).unwrap();
        assert!(!unknown.contains('$') && unknown.contains("3 of unknown price"), "{unknown}");
        let both = of_run(500_000, 1).unwrap();
        assert!(both.contains("$0.50") && both.contains("and 1 of unknown price"), "{both}");
        // An agent says it beside the sum, and a result of a supervisor has neither within `spent`.
        let agent = json!({ "spent": { "cost_micros": 0 }, "unpriced_calls": 2 });
        let result = json!({ "cost_micros": 7, "unpriced_calls": 2 });
        assert_eq!(SpentSum::of(&agent), Some(SpentSum { micros: 0, unpriced: 2 }));
        assert_eq!(SpentSum::of(&result), Some(SpentSum { micros: 7, unpriced: 2 }));
        assert_eq!(SpentSum::of(&Value::Null), None);
    }
}
