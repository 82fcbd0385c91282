//! Spans over time, as bars.
//!
//! Invariant: a drawing of at most [`BARS_MAX`] bars, the newest ones, which says how many it leaves out; every bar has its
//! words beside it and in its title, so that colour is not needed to read it; beside a bar from which the run can be forked
//! stands the way to the form.

use bosun_engine::{EventId, Timestamp};
use maud::{Markup, html};

use super::fork_here::ForkHere;
use super::spans::{Span, SpanKind, SpanState};
use crate::ui::elements::{cut, span as lasted};

const BARS_MAX: usize = 120;
const ROW: usize = 22;
const LABEL: usize = 260;
const PLOT: i64 = 660;
const WIDTH: usize = 1_000;

pub(crate) fn timeline(spans: &[Span], now: Timestamp, forks: &ForkHere) -> Markup {
    let takes_time = |span: &&Span| !matches!(span.kind, SpanKind::Marker | SpanKind::Run);
    let all: Vec<&Span> = spans.iter().filter(takes_time).collect();
    let left_out = all.len().saturating_sub(BARS_MAX);
    let shown = &all[left_out..];
    let (Some(first), Some(last)) =
        (shown.iter().map(|span| span.from).min(), shown.iter().map(|span| end_of(span, now)).max())
    else {
        return html! { p.empty { "Nothing that takes time has happened yet." } };
    };
    let whole = (last.0 - first.0).max(1);
    let x = |at: Timestamp| LABEL + usize::try_from((at.0 - first.0).max(0) * PLOT / whole).unwrap_or(0);
    let height = shown.len() * ROW + 30;
    // What is an image has nothing in it that can be reached.
    let role = if shown.iter().any(|span| fork_of(span, forks).is_some()) { "group" } else { "img" };
    html! {
        @if left_out > 0 { p.muted { "The newest " (BARS_MAX) " of " (all.len()) "; the history has all of them." } }
        div.scroll tabindex="0" role="region" aria-label="Timeline" {
            svg.timeline viewBox={ "0 0 " (WIDTH) " " (height) } role=(role) aria-label={ "Timeline of " (shown.len()) " things" } {
                @for (row, span) in shown.iter().enumerate() {
                    @let (from, to) = (x(span.from), x(end_of(span, now)));
                    @let y = row * ROW + 4;
                    @let took = lasted(end_of(span, now).since(span.from));
                    g class={ "bar " (span.state.class()) } {
                        title { (span.name) ": " (span.state.word()) " " (took) ", events " (span.first) " to " (span.last) }
                        text x="0" y=(y + 13) { (cut(&span.name, 36)) }
                        rect x=(from) y=(y) width=((to - from).max(3)) height="15" rx="3" {}
                        text.took x=(to + 6) y=(y + 12) { @if span.state != SpanState::Moment { (took) } }
                        @if let Some((event, address)) = fork_of(span, forks) {
                            a href=(address) aria-label={ "Fork from here: " (span.name) ", event " (event) } {
                                title { "Fork from here: event " (event) }
                                text.fork x=(WIDTH) y=(y + 12) text-anchor="end" { "fork" }
                            }
                        }
                    }
                }
                text.axis x=(LABEL) y=(height - 6) { (first.to_string()) }
                text.axis x=(LABEL + PLOT as usize) y=(height - 6) text-anchor="end" { "+" (lasted(last.since(first))) }
            }
        }
    }
}

/// The event from which a thing can be forked, and where the form is.
fn fork_of(span: &Span, forks: &ForkHere) -> Option<(EventId, String)> {
    let event = forks.of_either(span.first, span.last)?;
    Some((event, forks.address(event)?))
}

fn end_of(span: &Span, now: Timestamp) -> Timestamp {
    match span.state {
        SpanState::Open | SpanState::Retrying => now.max(span.from),
        _ => span.to.unwrap_or(span.from),
    }
}
