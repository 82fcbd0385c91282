//! The history in three views: what happened thing by thing (compact), event by event (feed), and as it is kept (raw).
//!
//! Invariant: all three show the same events, a page at a time; payloads are shown whole; an event can be gone to (`at`)
//! and forked from.

use bosun_engine::{Event, RunInfo};
use maud::{Markup, html};
use serde_json::Value;

use super::fork_here::ForkHere;
use super::spans::{Span, SpanKind, SpanState};
use crate::api::people::plain;
use crate::cli::event_text::{attributes, details};
use crate::ui::elements::{badge, cut, exact, failure, run_link, span as lasted, value, with};

/// Rows of a page.
pub(crate) const ROWS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistoryView {
    Compact,
    Feed,
    Raw,
}

impl HistoryView {
    pub(crate) fn named(name: Option<&str>) -> HistoryView {
        match name {
            Some("feed") => HistoryView::Feed,
            Some("raw") => HistoryView::Raw,
            _ => HistoryView::Compact,
        }
    }
    fn word(self) -> &'static str {
        match self {
            HistoryView::Compact => "compact",
            HistoryView::Feed => "feed",
            HistoryView::Raw => "raw",
        }
    }
}

/// The tabs of the views, and a page of the one that is asked for.
pub(crate) fn history(
    here: &str,
    view: HistoryView,
    page: usize,
    info: &RunInfo,
    (events, spans): (&[Event], &[Span]),
    forks: &ForkHere,
) -> Markup {
    let rows = if view == HistoryView::Compact { spans.len() } else { events.len() };
    let last = rows.saturating_sub(1) / ROWS;
    let page = page.min(last);
    let number = |page: usize| (page + 1).to_string();
    let (from, to) = (page * ROWS, ((page + 1) * ROWS).min(rows));
    html! {
        nav.tabs aria-label="Views of the history" {
            @for one in [HistoryView::Compact, HistoryView::Feed, HistoryView::Raw] {
                a href=(with(here, &[("view", one.word()), ("page", "")])) aria-current=[(one == view).then_some("true")] { (one.word()) }
            }
        }
        (pages(here, page, last, &number))
        div.scroll tabindex="0" role="region" aria-label="History" {
            @match view {
                HistoryView::Compact => (compact(here, info, &spans[from..to], forks)),
                HistoryView::Feed => (feed(here, &events[from..to], forks)),
                HistoryView::Raw => (raw(&events[from..to], forks)),
            }
        }
        (pages(here, page, last, &number))
    }
}

fn pages(here: &str, page: usize, last: usize, number: &dyn Fn(usize) -> String) -> Markup {
    html! { @if last > 0 {
        nav.pages aria-label="Pages of the history" {
            @if page > 0 { a rel="prev" href=(with(here, &[("page", &number(page - 1))])) { "Before" } }
            span.muted { "page " (number(page)) " of " (number(last)) }
            @if page < last { a rel="next" href=(with(here, &[("page", &number(page + 1))])) { "After" } }
        }
    } }
}

fn compact(here: &str, info: &RunInfo, spans: &[Span], forks: &ForkHere) -> Markup {
    html! {
        table.rows.events {
            thead { tr { th scope="col" { "Events" } th scope="col" { "What" } th scope="col" { "State" } th scope="col" { "Took" } th scope="col" { "Details" } } }
            tbody { @for span in spans { (span_row(here, info, span, forks)) } }
        }
    }
}

pub(crate) fn span_row(here: &str, info: &RunInfo, span: &Span, forks: &ForkHere) -> Markup {
    let took = span.to.map(|to| lasted(to.since(span.from))).unwrap_or_default();
    // A wait begins with an event that has a row of its own.
    let row = if span.kind == SpanKind::Wait { "w" } else { "e" };
    html! {
        tr id={ (row) (span.first) } {
            td.num { (at_link(here, span.first.0)) @if span.last != span.first { "–" (at_link(here, span.last.0)) } }
            td { span.kind { (span.kind.word()) } " "
                @match &span.child {
                    Some(child) => a href=(run_link(info.namespace.as_str(), child.as_str(), None)) { (span.name) " " (child) },
                    None => (span.name),
                }
                @if span.attempts > 1 { span.muted { " attempt " (span.attempts) } } }
            td { @if span.state != SpanState::Moment { (badge(span.state.class(), span.state.word())) } }
            td.took { (took) }
            td.wide {
                @for why in &span.failures { (failure(why)) }
                @if let Some(input) = span.input.as_ref().filter(|input| !input.is_null()) { (folded("input", input)) }
                @if let Some(output) = span.output.as_ref().filter(|output| !output.is_null()) { (folded(told_as(span), output)) }
                @if let Some(event) = forks.of_either(span.first, span.last) { (forks.link(event)) }
            }
        }
    }
}

/// What a value is that a span gives: what somebody answered, what the code kept, or what the run was told of itself.
fn told_as(span: &Span) -> &'static str {
    match span.kind {
        SpanKind::Marker => "recorded",
        SpanKind::Run if span.first.0 == 1 => "started with",
        SpanKind::Run => "details",
        _ => "output",
    }
}

/// A named value, folded, with its beginning beside it.
fn folded(name: &str, of: &Value) -> Markup {
    let text = of.as_str().map_or_else(|| of.to_string(), str::to_owned);
    html! { details.folded { summary { span.muted { (name) " " } (cut(&text.replace('\n', " "), 80)) } (value(of)) } }
}

/// A static page has no moments to go to.
fn at_link(here: &str, at: u64) -> Markup {
    html! { @if here.is_empty() { (at) } @else {
        a href=(with(here, &[("tab", "moment"), ("at", &at.to_string()), ("view", ""), ("page", "")])) title="The run as it was then" { (at) }
    } }
}

fn feed(here: &str, events: &[Event], forks: &ForkHere) -> Markup {
    html! {
        table.rows.events {
            thead { tr { th scope="col" { "Event" } th scope="col" { "At" } th scope="col" { "Type" } th scope="col" { "Details" } } }
            tbody { @for event in events { tr id={ "e" (event.id) } {
                td.num { (at_link(here, event.id.0)) }
                td { (exact(event.at)) }
                td { (event.kind.name()) }
                td.wide { (cut(&details(&event.kind), 300)) " " (forks.link(event.id)) }
            } } }
        }
    }
}

fn raw(events: &[Event], forks: &ForkHere) -> Markup {
    html! {
        @for event in events {
            details.folded id={ "e" (event.id) } {
                summary { span.num { (event.id) } " " (event.kind.name()) " " span.muted { (exact(event.at)) } }
                (value(&plain(attributes(&event.kind))))
                (forks.link(event.id))
            }
        }
    }
}
