//! Time travel: the run as it was after any of its events, and what that event changed.
//!
//! Invariant: what is shown at event N is what a live run shows after N; it is made by replay, from the history and the code of
//! this program, and calls nothing.

use bosun_engine::{EventId, RunInfo};
use maud::{Markup, html};
use serde_json::Value;

use crate::api::people::unwrapped;
use crate::cli::{ChangedPlace, PastFit, PastMoment, PastView};
use crate::ui::elements::{ago, command_of, cut, exact, failure, with};
use crate::ui::forms::Visitor;
use crate::ui::run::fork_here::ForkHere;
use crate::ui::run::supervisor::plan_in;
use crate::ui::state_tree::{leaf, tree};

/// The scrubber, and the moment that it stands at.
pub(crate) fn moment(visitor: &Visitor, info: &RunInfo, here: &str, past: &PastView, forks: &ForkHere) -> Markup {
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
        div #moment { (shown(past, &past.moment, forks)) }
        p { "The same in a terminal: " (visitor.command(&command_of("replay debug", info, &format!(" --at {at}")))) }
    }
}

fn shown(past: &PastView, moment: &PastMoment, forks: &ForkHere) -> Markup {
    html! {
        div.columns {
            section {
                h2 { "Event " (moment.event) ": " (moment.kind) }
                p.muted { (exact(moment.at)) " (" (ago(moment.at)) ")"
                    @if let Some(place) = &moment.location { ", asked for at " code { (place) } } }
                p.wrap { (cut(&moment.details, 2_000)) }
                @if let Some(address) = forks.address(EventId(moment.event)) { p { a.button.fork-here href=(address) { "Fork from here" } } }
                h2 { "What it changed" }
                @if moment.changes.is_empty() { p.empty { "Nothing in the state." } }
                ul.changes { @for change in &moment.changed { li { (changed(change)) } } }
                h2 { "Pending then" }
                @if moment.pending.is_empty() { p.empty { "Nothing." } }
                ul { @for (name, text) in &moment.pending { li { span.muted { (name) } " " (text) } } }
                @if let Some((event, why)) = &moment.last_failure { h2 { "Last failure (event " (event) ")" } (failure(why)) }
            }
            section {
                h2 { "State then" }
                @match &moment.state {
                    Some(state) => {
                        @if let Some(plan) = plan_in(state) { (plan) }
                        (tree(&unwrapped(state.clone())))
                    },
                    None => p.empty { (no_state(past)) },
                }
            }
        }
    }
}

/// Where the state has changed, what was there and what is.
fn changed(ChangedPlace { place, before, after }: &ChangedPlace) -> Markup {
    let name = place.last().map_or("", String::as_str);
    let shown = |value: &Value| leaf(name, &unwrapped(value.clone()));
    html! {
        span.place {
            @if place.is_empty() { "all of it" }
            @for (at, step) in place.iter().enumerate() { @if at > 0 { " › " } span.name { (step) } }
        }
        " "
        @match (before, after) {
            (None, Some(after)) => { span.muted { "is new: " } (shown(after)) },
            (Some(before), None) => { span.muted { "is gone; it was " } (shown(before)) },
            (Some(before), Some(after)) => { span.muted { "was " } (shown(before)) span.muted { ", is now " } (shown(after)) },
            (None, None) => {},
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
