//! The border between two runs: a supervisor whose history is long goes on in a new run of the same workflow id.
//!
//! ```text
//!   ahead ──(the history is long)──► closing ──(nothing but timers is under way)──► the next run: ahead
//!                                     │   ▲
//!        (only people can bring on a  └─► open: work goes on, and the border waits
//!         run below)
//! ```
//!
//! While the border closes, what is asked for is put off until what is under way has ended; what comes in is heard, time
//! passes, and people act, as ever. Then all of the state is the input of the next run, which starts the timers again with
//! the time that is left and asks for what was put off. Ids are made with the name of the first run, so that whoever saw an
//! approval before answers it after.
//!
//! Invariant: nothing is under way at the border that could be lost: no activity, child, message or update. A state is gone
//! on from by the rules that made it or by none: where the numbers differ, the next run is held with a card that says so.

use std::collections::BTreeMap;

use bosun_engine::workflow::Cx;
use bosun_engine::{Seq, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, to_value};

use super::asks::summary;
use super::parts::RunGates;
use super::{SUPERVISOR, SupervisorInput, SupervisorRun, number};
use crate::agent::next_run::{Leave, bytes_of, go_on_in, input_max};
use crate::supervisor::core::calls::UnderWay;
use crate::supervisor::core::key::Key;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Call;

/// Why nothing begins.
const CLOSING: &str = "the history is long: the run goes on in a new one when what is under way has ended";

/// Where a run stands on its way to the border.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Border {
    /// There is none: its state is too large to be an input.
    #[default]
    Never,
    Ahead,
    Closing,
    Open,
}

/// What a run leaves to the one in which it goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Continued {
    /// The number of the rules that decided so far.
    rules: u32,
    /// The run before.
    from: String,
    /// When each timer fires, by the number that it had there.
    timers: BTreeMap<Seq, Timestamp>,
    /// Its state.
    state: Value,
}

impl RunGates {
    /// Whether nothing begins, because the border closes. A cancelled run is about to end.
    pub(super) fn border_closes(&self) -> bool {
        self.border == Border::Closing && !self.control.is_cancelled()
    }

    /// Why nothing may start, if nothing may.
    pub(super) fn why_held(&self) -> Option<String> {
        let closing = || self.border_closes().then_some(CLOSING);
        self.control.why_held().or_else(closing).map(str::to_owned)
    }
}

impl SupervisorRun {
    /// Whether calls are put off: for people, or before the border.
    pub(super) fn puts_off(&self) -> bool {
        self.parts.control.is_held() || self.parts.border_closes()
    }

    /// Looks where the run stands: when an event comes, and when it is taken in. That something has arrived which the run
    /// itself has sent brings no border nearer: a new run tells those above anew what it waits for, and would go on in the next
    /// one when that has arrived, without an end.
    pub(super) fn watch_border(&mut self, is_own: bool, cx: &mut Cx<'_>) {
        self.parts.border = match self.parts.border {
            Border::Never => Border::Never,
            Border::Ahead if is_own || !self.is_long(cx) => Border::Ahead,
            // That may take days, and so may what a cancelled run below has to undo.
            _ if self.waits_for_people_below() || !self.calls.has_all_bills() => Border::Open,
            _ => Border::Closing,
        };
    }

    fn is_long(&self, cx: &Cx<'_>) -> bool {
        let own = self.resolved.spec.limits.history_events;
        self.leave.is_some() || cx.continue_as_new_suggested() || own.is_some_and(|most| cx.history().events >= most)
    }

    /// Somebody wants the run to go on elsewhere, or to stay after all.
    pub(super) fn leave_asked(&mut self, leave: Option<Leave>) {
        self.leave = leave;
        if self.leave.is_none() && self.parts.border != Border::Never {
            self.parts.border = Border::Ahead;
        }
    }

    /// Whether a run below is all that is waited for, and itself waits for people.
    fn waits_for_people_below(&self) -> bool {
        let below = |child: &str| self.parts.below.stands_still(child);
        !self.calls.is_idle() && self.calls.only_waits(below)
    }

    /// The end of an event: what the next run is given, if this one ends here. `input` makes it of what this one leaves.
    pub(in crate::supervisor) fn at_border<I: Serialize>(
        &mut self,
        cx: &mut Cx<'_>,
        input: impl Fn(&Self, Continued) -> Option<I>,
    ) -> Option<I> {
        if cx.is_closed() || !self.parts.border_closes() || !cx.waits_for_timers_only() {
            return None;
        }
        let at = |(seq, _)| Some((seq, cx.timer_fires_at(seq)?));
        let timers: BTreeMap<Seq, Timestamp> = self.calls.under_way().filter_map(at).collect();
        let from = cx.run_id().to_string();
        let input = |run: &Self| {
            let state = to_value(run).ok()?;
            input(run, Continued { rules: number::RULES, from: from.clone(), timers: timers.clone(), state })
        };
        let most = input_max(input(self).as_ref().map_or(0, bytes_of), cx);
        let next = self.input_that_fits(most, input);
        if next.is_none() {
            self.stays_in_one_run(most, cx);
        }
        next
    }

    /// The input of the next run, with as many of the last notes as there is room for beside all that is sent.
    fn input_that_fits<I: Serialize>(&mut self, most: usize, input: impl Fn(&Self) -> Option<I>) -> Option<I> {
        let all = self.notes.clone();
        loop {
            let next = input(self).filter(|next| bytes_of(next) <= most);
            if next.is_some() {
                return next;
            }
            if self.notes.is_empty() {
                // The run stays, and what it has noted with it.
                self.notes = all;
                return None;
            }
            self.notes.drain(..self.notes.len().div_ceil(2));
        }
    }

    /// A call is put off before the border, or made behind it: that is no time of whoever is called (SUP-23).
    pub(super) fn waits_for_border(&mut self, key: &Key, waits: bool, cx: &mut Cx<'_>) {
        if self.awaited.may_not_begin(key, waits) {
            let mut out = self.outbox(cx.now());
            self.strategy.before_people(&mut out);
            self.ask_all(out, cx);
        }
    }

    /// What waited for the border goes on here. It is said once.
    fn stays_in_one_run(&mut self, most: usize, cx: &mut Cx<'_>) {
        self.parts.border = Border::Never;
        let why = format!("what a new run needs is larger than {most} bytes: the run goes on with a long history");
        let mut out = self.outbox(cx.now());
        out.note(NoteKind::ActionRefused, json!({ "action": "continue_as_new", "why": why }));
        self.strategy.held_or_not(&mut out);
        self.go_on(&mut out);
        self.count_work(&mut out);
        self.carry_out(out, cx);
    }

    /// Where it is to go on.
    pub(in crate::supervisor) fn leave(&self) -> Option<&Leave> {
        self.leave.as_ref()
    }

    /// Closes the run where the next one goes on. One that stays may have ended with what it then heard: whoever calls this looks
    /// for an end after it.
    pub(super) fn continue_if_long(&mut self, cx: &mut Cx<'_>) {
        let input = |run: &Self, continued| {
            let (resolved, context) = (Some(run.resolved.clone()), run.context.clone());
            Some(SupervisorInput { resolved, spec: None, context, continued: Some(Box::new(continued)) })
        };
        if let Some(next) = self.at_border(cx, input) {
            go_on_in(SUPERVISOR, &next, self.leave(), cx);
        }
    }

    /// The first turn of the next run.
    pub(in crate::supervisor) fn go_on_from(continued: Continued, cx: &mut Cx<'_>) -> Self {
        number::held_by_other_rules(cx);
        let Continued { rules, from, mut timers, state } = continued;
        number::judged_by(rules);
        let read = serde_json::from_value(state);
        let mut run: SupervisorRun = read.unwrap_or_else(|why| {
            panic!(
                "the run before, {from}, left a state that this program cannot read: {why}. {}",
                number::LEFT_AS_IT_IS
            )
        });
        run.borne = Some(cx.run_id().to_string());
        run.leave = None;
        run.parts.border = Border::Ahead;
        run.now = cx.now();
        run.calls.number_anew(|old, what| {
            let at = timers.remove(&old).unwrap_or(cx.now());
            match what {
                UnderWay::Timer { label, .. } => cx.start_labelled_timer(at, label.clone()),
                UnderWay::Later { call, .. } => cx.start_labelled_timer(at, summary(call)),
                UnderWay::Call { call: Call { key, .. }, .. } | UnderWay::Child { key, .. } => {
                    panic!("the run before, {from}, left {key} under way. {}", number::LEFT_AS_IT_IS)
                }
            }
        });
        let mut out = run.outbox(cx.now());
        out.note(NoteKind::RunContinued, json!({ "from": from, "rules": rules }));
        run.strategy.held_or_not(&mut out);
        run.go_on(&mut out);
        run.count_work(&mut out);
        run.carry_out(out, cx);
        run
    }
}
