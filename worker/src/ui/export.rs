//! A run as one file that needs nothing but a browser, and as drawings for other tools: Mermaid and Perfetto.
//!
//! Invariant: made from the history, and from what its code answers when it is replayed to its end, by the functions of the
//! pages; a file holds no script and asks for nothing, and what comes from the run is text in it.

use std::collections::BTreeMap;

use axum::response::Response;
use bosun_engine::{CloseOutcome, Event, EventKind, RunInfo, Timestamp};
use bosun_replay::History;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Deserialize;
use serde_json::{Value, json};

use super::assets::STYLES;
use super::elements::{exact, failure, status, value};
use super::forms::{Query, Visitor};
use super::layout::PageError;
use super::neutral::text_of;
use super::run::fork_here::ForkHere;
use super::run::history::span_row;
use super::run::spans::{Span, SpanKind, SpanState, spans};
use super::run::supervisor::SupervisorView;
use super::run::timeline::timeline;
use crate::api::guard::now;
use crate::api::handlers::RequestTarget;
use crate::api::people::history_file;
use crate::api::problem::Problem;
use crate::backend::Backend;
use crate::cli::waiting::WaitingRow;
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// The forms that a run can be kept in.
pub(crate) const FORMS: [&str; 4] = ["json", "html", "mermaid", "perfetto"];

/// What a supervisor is asked at its end, to be drawn: as on its page.
pub(crate) const ANSWERED: [&str; 6] = ["progress", "get_plan", "budget", "report", "notes", "waiting"];

/// A run as a file to keep: `?as=html`, `mermaid`, `perfetto` or `json`.
pub(super) async fn download(
    visitor: Visitor,
    at: Result<RequestTarget, Problem>,
    Query(asked): Query<DownloadQuery>,
) -> Result<Response, PageError> {
    let turns = visitor.backend.turns(at?.target).await?;
    let history =
        History::new(turns).map_err(|why| Problem::bad_request(format!("this run cannot be exported: {why}")))?;
    Ok(history_file(&history, asked.form.as_deref().unwrap_or("html")).await?)
}

/// The file, its media type, and the ending of its name.
pub(crate) async fn file_of(history: &History, form: &str) -> Result<(String, &'static str, &'static str), Problem> {
    match form {
        "html" => Ok((html_file(history, &answers_of(history).await, now()), "text/html; charset=utf-8", "html")),
        "mermaid" => Ok((mermaid(history), "text/plain; charset=utf-8", "mmd")),
        "perfetto" => Ok((perfetto(history).to_string(), "application/json", "perfetto.json")),
        "json" => Ok((history.to_json(), "application/json", "json")),
        other => Err(Problem::bad_request(format!("as: {other:?} is not one of {}", FORMS.join(", ")))),
    }
}

/// What a supervisor says of itself at the end of its history; of code that cannot say it, nothing.
async fn answers_of(history: &History) -> BTreeMap<String, Value> {
    if !is_drawn(history) {
        return BTreeMap::new();
    }
    crate::past::answers(history.turns().to_vec()).await.unwrap_or_default()
}

/// Whether it is drawn as more than a history.
pub(crate) fn is_drawn(history: &History) -> bool {
    [SUPERVISOR, PLAN_RUN].contains(&history.started().workflow_type.as_str())
}

#[derive(Deserialize)]
pub(super) struct DownloadQuery {
    #[serde(rename = "as")]
    form: Option<String>,
}

/// The whole run as one HTML file, made at this time. `answers`: to [`ANSWERED`], of a supervisor.
pub(crate) fn html_file(history: &History, answers: &BTreeMap<String, Value>, made_at: Timestamp) -> String {
    let events: Vec<Event> = history.events().collect();
    let spans = spans(&events);
    let started = history.started();
    let info = RunInfo::started(history.run_id(), history.turns()[0].at, history.turns()[0].build, started);
    let info = RunInfo { status: history.status(), closed_at: closed_at(&events), ..info };
    let last = events.last().map_or(info.started_at, |event| event.at);
    // What is open has lasted until now.
    let until = if info.closed_at.is_some() { last } else { made_at.max(last) };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="content-security-policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (info.workflow_id) " · Bosun" }
                style { (PreEscaped(STYLES)) }
            }
            body { main id="main" {
                div.line { h1 { (info.workflow_id) } (status(info.status)) }
                dl.facts {
                    dt { "Type" } dd { (info.workflow_type) }
                    dt { "Run id" } dd { code { (info.run_id) } }
                    dt { "Started" } dd { (exact(info.started_at)) }
                    @if let Some(at) = info.closed_at { dt { "Closed" } dd { (exact(at)) } }
                    @else { dt { "Closed" } dd { "still open when exported at " (exact(until)) } }
                    dt { "History" } dd { (events.len()) " events" }
                }
                @if info.closed_at.is_none() { (waits(answers)) }
                @if let Some(view) = SupervisorView::of_answers(answers) { (view.markup()) }
                h2 { "Input" } (value(&started.input.to_json()))
                (ending(&events))
                h2 { "Timeline" } (timeline(&spans, until, &ForkHere::nowhere()))
                h2 { "History" }
                div.scroll { (rows(&info, &spans)) }
            } }
        }
    };
    text_of(page)
}

/// What an open supervisor waited for, with the commands that answer.
fn waits(answers: &BTreeMap<String, Value>) -> Markup {
    let entries = answers.get("waiting").and_then(Value::as_array);
    let rows: Vec<WaitingRow> = entries.into_iter().flatten().map(WaitingRow::of).collect();
    html! { @if !rows.is_empty() {
        section.waits-for {
            h2 { "Waits for" }
            ul { @for one in &rows { li { div.asks { strong { (one.whom) } ": " (one.what) } code { (one.answer) } } } }
        }
    } }
}

fn closed_at(events: &[Event]) -> Option<Timestamp> {
    events.last().filter(|event| event.kind.closes().is_some()).map(|event| event.at)
}

fn ending(events: &[Event]) -> Markup {
    let outcome = events.last().and_then(|event| match &event.kind {
        EventKind::WorkflowExecutionCompleted { result, .. } => Some(CloseOutcome::Completed(result.clone())),
        EventKind::WorkflowExecutionFailed { failure, .. } => Some(CloseOutcome::Failed(failure.clone())),
        _ => None,
    });
    html! { @match outcome {
        Some(CloseOutcome::Completed(result)) => { h2 { "Result" } (value(&result.to_json())) },
        Some(CloseOutcome::Failed(why)) => { h2 { "Failure" } (failure(&why)) },
        _ => {},
    } }
}

fn rows(info: &RunInfo, spans: &[Span]) -> Markup {
    html! {
        table.rows.events {
            thead { tr { th scope="col" { "Events" } th scope="col" { "What" } th scope="col" { "State" } th scope="col" { "Took" } th scope="col" { "Details" } } }
            tbody { @for span in spans { (span_row("", info, span, &ForkHere::nowhere())) } }
        }
    }
}

/// A sequence diagram: who was asked for what, in what order, and how it ended.
pub(crate) fn mermaid(history: &History) -> String {
    let events: Vec<Event> = history.events().collect();
    let mut text = String::from("sequenceDiagram\n    participant run as ");
    text.push_str(&plain(history.started().workflow_id.as_str()));
    text.push('\n');
    let end = |span: &Span| match span.state {
        SpanState::Done => "-->>",
        SpanState::Failed | SpanState::TimedOut | SpanState::Canceled => "--x",
        SpanState::Open | SpanState::Retrying | SpanState::Moment => "",
    };
    for span in spans(&events).iter().filter(|span| !matches!(span.kind, SpanKind::Marker | SpanKind::Run)) {
        let (name, whom) = (plain(&span.name), span.kind.word());
        match span.kind {
            SpanKind::Message => text.push_str(&format!("    note over run: {name}\n")),
            _ => {
                text.push_str(&format!("    run->>+{whom}: {name}\n"));
                let arrow = end(span);
                if !arrow.is_empty() {
                    text.push_str(&format!("    {whom}{arrow}-run: {}\n", span.state.word()));
                }
            }
        }
    }
    text
}

/// A text that cannot end its line or begin something of Mermaid's own.
fn plain(text: &str) -> String {
    let kept = |c: char| if c.is_alphanumeric() || " -_./()".contains(c) { c } else { ' ' };
    let short: String = text.chars().map(kept).take(80).collect();
    let short = short.split_whitespace().collect::<Vec<_>>().join(" ");
    // A line that says `end` alone ends a block.
    if short.is_empty() || short == "end" { format!("({short})") } else { short }
}

/// A trace in the format of Chrome, which Perfetto opens: one row for each kind of thing, overlapping ones below each other.
pub(crate) fn perfetto(history: &History) -> Value {
    let events: Vec<Event> = history.events().collect();
    let last = events.last().map_or(Timestamp(0), |event| event.at);
    let mut rows: Vec<Timestamp> = Vec::new();
    let mut trace =
        vec![json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": history.started().workflow_id } })];
    for span in &spans(&events) {
        let arguments = json!({ "events": [span.first, span.last], "attempts": span.attempts, "state": span.state.word(),
            "input": span.input, "output": span.output });
        if span.state == SpanState::Moment {
            trace.push(json!({ "ph": "i", "s": "p", "pid": 1, "tid": 0, "name": span.name, "cat": span.kind.word(), "ts": span.from.0, "args": arguments }));
            continue;
        }
        let end = span.to.unwrap_or(last);
        // Bars of one row must not overlap.
        let row = rows.iter().position(|free| *free <= span.from).unwrap_or(rows.len());
        if row == rows.len() {
            rows.push(end);
        }
        rows[row] = end;
        trace.push(
            json!({ "ph": "X", "pid": 1, "tid": row + 1, "name": span.name, "cat": span.kind.word(), "ts": span.from.0,
            "dur": (end.0 - span.from.0).max(1), "args": arguments }),
        );
    }
    json!({ "traceEvents": trace, "displayTimeUnit": "ms" })
}
