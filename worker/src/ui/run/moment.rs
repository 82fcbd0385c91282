//! Time travel: the run as it was after any of its events, and what that event changed.
//!
//! Invariant: what is shown at event N is what a live run shows after N; it is made by replay, from the history and the code of
//! this program, and calls nothing.

use bosun_engine::RunInfo;
use maud::{Markup, html};

use crate::cli::{PastFit, PastMoment, PastView};
use crate::ui::elements::{ago, command_of, cut, exact, failure, with};
use crate::ui::forms::Visitor;
use crate::ui::run::supervisor::plan_in;
use crate::ui::state_tree::tree;

/// The scrubber, and the moment that it stands at.
pub(crate) fn moment(visitor: &Visitor, info: &RunInfo, here: &str, past: &PastView) -> Markup {
    let (at, last) = (past.moment.event, past.last);
    let place = |at: u64| with(here, &[("at", &at.to_string())]);
    html! {
        form.scrubber method="get" {
            @for (name, value) in form_urlencoded::parse(here.split_once('?').map_or("", |(_, query)| query).as_bytes()) {
                @if name != "at" { input type="hidden" name=(name) value=(value); }
            }
            a.button rel="prev" href=(place(at.saturating_sub(1).max(1))) aria-label="The event before" { "‹" }
            input type="range" name="at" min="1" max=(last) value=(at) aria-label="Event";
            a.button rel="next" href=(place((at + 1).min(last))) aria-label="The event after" { "›" }
            button type="submit" { "Go" }
            output { (at) " of " (last) }
        }
        div #moment { (shown(past, &past.moment)) }
        p { "The same in a terminal: " (visitor.command(&command_of("replay debug", info, &format!(" --at {at}")))) }
    }
}

fn shown(past: &PastView, moment: &PastMoment) -> Markup {
    html! {
        div.columns {
            section {
                h3 { "Event " (moment.event) ": " (moment.kind) }
                p.muted { (exact(moment.at)) " (" (ago(moment.at)) ")"
                    @if let Some(place) = &moment.location { ", asked for at " code { (place) } } }
                p.wrap { (cut(&moment.details, 2_000)) }
                h3 { "What it changed" }
                @if moment.changes.is_empty() { p.empty { "Nothing in the state." } }
                ul.changes { @for change in &moment.changes { li { code { (cut(change, 2_000)) } } } }
                h3 { "Pending then" }
                @if moment.pending.is_empty() { p.empty { "Nothing." } }
                ul { @for (name, text) in &moment.pending { li { span.muted { (name) } " " (text) } } }
                @if let Some((event, why)) = &moment.last_failure { h3 { "Last failure (event " (event) ")" } (failure(why)) }
            }
            section {
                h3 { "State then" }
                @match &moment.state {
                    Some(state) => {
                        @if let Some(plan) = plan_in(state) { (plan) }
                        (tree(state))
                    },
                    None => p.empty { (no_state(past)) },
                }
            }
        }
    }
}

fn no_state(past: &PastView) -> String {
    match &past.fit {
        PastFit::Fits => "This form of workflow shows no state (an async function keeps it in its own variables); what it waited for is beside.".to_owned(),
        PastFit::Mismatch { event, card } => format!("The code of this program stops to fit at event {event}: {card}"),
        PastFit::NotRun { why } => format!("The code could not be run: {why}"),
    }
}

/// Whether the code of this program still makes of the history what the history says.
pub(crate) fn verdict(visitor: &Visitor, info: &RunInfo, past: &PastView) -> Markup {
    html! { @match &past.fit {
        PastFit::Fits => p { span.badge.ok { "fits" } " All " (past.last) " events were replayed with the code of this worker, without one call: it decides the same." },
        PastFit::Mismatch { event, card } => {
            p { span.badge.bad { "does not fit" } " The code of this worker goes another way at event " (event) "." }
            pre.payload tabindex="0" { (card) }
            p { "The whole card, with a patch: " (visitor.command(&command_of("replay explain", info, ""))) }
        },
        PastFit::NotRun { why } => p { span.badge.wait { "not replayed" } " " (why) },
    } }
}
