//! The calls of one answer of a model, and where each of them stands.
//!
//! Invariant: what happens to a call is taken or not by one table ([`CallState::after`]); what is not taken changes nothing. A
//! question is asked under one name, and a decision counts for the call that was asked under it and for no other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CallRefusal, CallWatch, FanOut, WatchRules};

/// Of a lone agent more calls of one answer are refused.
pub(crate) const CALLS_MAX: usize = 64;

/// A call as a model asked for it.
pub(crate) trait TurnCall {
    fn name(&self) -> &str;
    fn arguments(&self) -> &Value;
}

/// What an approval is bound to, and by what calls are the same: over the tool and the canonical arguments.
pub fn call_hash(tool: &str, arguments: &Value) -> blake3::Hash {
    crate::canonical::digest(&serde_json::json!({ "tool": tool, "arguments": arguments }))
}

/// Where a call stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallState<Q, W, A> {
    Queued,
    /// The watch will not have it. The model is told when its turn comes.
    Refused(CallRefusal),
    /// A person is asked.
    Asking(Q),
    Approved,
    Running(W),
    Done(A),
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallEvent<Q, W, A> {
    Asked(Q),
    Approved,
    Began(W),
    Answered(A),
}

impl<Q, W, A> CallState<Q, W, A> {
    /// What it becomes; nothing if it cannot happen to it.
    fn after(&self, event: CallEvent<Q, W, A>) -> Option<Self> {
        match (self, event) {
            (CallState::Queued, CallEvent::Asked(question)) => Some(CallState::Asking(question)),
            (CallState::Queued | CallState::Approved, CallEvent::Began(work)) => Some(CallState::Running(work)),
            (CallState::Asking(_), CallEvent::Approved) => Some(CallState::Approved),
            (
                CallState::Queued
                | CallState::Refused(_)
                | CallState::Asking(_)
                | CallState::Approved
                | CallState::Running(_),
                CallEvent::Answered(answer),
            ) => Some(CallState::Done(answer)),
            // Nobody is asked twice, and nothing begins that was refused, or that a person is looking at.
            (
                CallState::Refused(_) | CallState::Asking(_) | CallState::Approved | CallState::Running(_),
                CallEvent::Asked(_),
            )
            | (CallState::Refused(_) | CallState::Asking(_) | CallState::Running(_), CallEvent::Began(_))
            | (
                CallState::Queued | CallState::Refused(_) | CallState::Approved | CallState::Running(_),
                CallEvent::Approved,
            ) => None,
            // The first answer counts.
            (
                CallState::Done(_),
                CallEvent::Asked(_) | CallEvent::Approved | CallEvent::Began(_) | CallEvent::Answered(_),
            ) => None,
        }
    }
}

/// The calls of one answer, in its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolCalls<C, Q, W, A> {
    calls: Vec<(C, CallState<Q, W, A>)>,
    /// Somebody is bringing them on just now.
    #[serde(skip)]
    pub(super) looked_at: bool,
}

impl<C: TurnCall, Q: PartialEq, W: PartialEq, A> ToolCalls<C, Q, W, A> {
    /// The calls, judged by the watch but for those that may be repeated for ever. Whether there has been enough of a loop.
    pub(crate) fn judged(
        calls: Vec<C>,
        watch: &mut CallWatch,
        rules: &WatchRules,
        may_repeat: impl Fn(&C) -> bool,
    ) -> (Self, bool) {
        let mut over = false;
        let mut judge = |(n, call): (usize, C)| {
            let admitted = match rules.most.filter(|most| n >= *most) {
                Some(most) => Err(CallRefusal::TooMany(most)),
                None => watch.admit(&call, rules, may_repeat(&call)),
            };
            let Err(why) = admitted else { return (call, CallState::Queued) };
            over |= matches!(why, CallRefusal::Round { over: true, .. });
            (call, CallState::Refused(why))
        };
        let calls = calls.into_iter().enumerate().map(&mut judge).collect();
        (ToolCalls { calls, looked_at: false }, over)
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }
    pub(crate) fn get(&self, at: usize) -> Option<&(C, CallState<Q, W, A>)> {
        self.calls.get(at)
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(C, CallState<Q, W, A>)> {
        self.calls.iter()
    }
    pub(crate) fn running(&self) -> usize {
        self.calls.iter().filter(|(_, state)| matches!(state, CallState::Running(_))).count()
    }
    /// The calls that people are asked about, with what they are asked under.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (&C, &Q)> {
        self.calls.iter().filter_map(|(call, state)| match state {
            CallState::Asking(question) => Some((call, question)),
            CallState::Queued
            | CallState::Refused(_)
            | CallState::Approved
            | CallState::Running(_)
            | CallState::Done(_) => None,
        })
    }
    /// The call that people are asked about under that.
    pub(crate) fn asked_under(&self, question: &Q) -> Option<usize> {
        self.calls.iter().position(|(_, state)| matches!(state, CallState::Asking(asked) if asked == question))
    }
    /// What is under way for a call.
    pub(crate) fn work(&self, at: usize) -> Option<&W> {
        match &self.calls.get(at)?.1 {
            CallState::Running(work) => Some(work),
            CallState::Queued
            | CallState::Refused(_)
            | CallState::Asking(_)
            | CallState::Approved
            | CallState::Done(_) => None,
        }
    }
    /// The places that are taken.
    pub(crate) fn taken(&self, fan_out: FanOut) -> usize {
        self.running() + if fan_out.in_order { self.asked().count() } else { 0 }
    }
    pub(crate) fn is_done(&self) -> bool {
        self.calls.iter().all(|(_, state)| matches!(state, CallState::Done(_)))
    }

    /// Something happens to a call. Whether that is taken.
    pub(crate) fn hear(&mut self, at: usize, event: CallEvent<Q, W, A>) -> bool {
        let Some((_, state)) = self.calls.get_mut(at) else { return false };
        let Some(next) = state.after(event) else { return false };
        *state = next;
        true
    }

    /// All calls with their answers, in the order of the calls.
    pub(crate) fn into_answers(self) -> impl Iterator<Item = (C, A)> {
        self.calls.into_iter().filter_map(|(call, state)| match state {
            CallState::Done(answer) => Some((call, answer)),
            CallState::Queued
            | CallState::Refused(_)
            | CallState::Asking(_)
            | CallState::Approved
            | CallState::Running(_) => None,
        })
    }

    /// What must hold between any two events.
    pub(crate) fn check(&self, fan_out: FanOut) -> Result<(), String> {
        let taken = self.taken(fan_out);
        if taken > fan_out.most {
            return Err(format!("{taken} calls are under way at a time, at most {} may be", fan_out.most));
        }
        if self.looked_at {
            return Err("the calls are left while they are looked at".to_owned());
        }
        Ok(())
    }
}
