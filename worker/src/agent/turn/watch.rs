//! What has been called so far, and what of it is refused: limits, rounds, repetitions and tools that only fail.
//!
//! Invariant: within one session it depends on the calls in the order in which they were asked for and on how those before ended, and on nothing
//! else. It refuses; what is done about a loop that goes on is the host's.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::calls::{TurnCall, call_hash};

/// The longest round that is looked for.
const PERIOD_MAX: usize = 4;
/// Calls in a loop that are refused one after the other, before the agent is ended.
const STRIKES: u32 = 3;

/// By what calls are judged; what is absent, or 0, is not looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WatchRules {
    /// The same call so many times in a row, or the same round of calls, is a loop.
    pub(crate) rounds: u32,
    /// From this many identical calls in one turn on, a call is refused.
    pub(crate) repetitions: Option<u32>,
    /// Failures of one tool in a row after which it is refused.
    pub(crate) failures: Option<u32>,
    /// Calls of one answer.
    pub(crate) most: Option<usize>,
    /// Calls of one turn, and of all turns.
    pub(crate) per_turn: Option<u32>,
    pub(crate) total: Option<u32>,
    /// What is added to the calls that are counted here, of the turn and of all turns, before they are held against a limit: in
    /// a session that changes hands a limit is of whoever calls (SUP-33), and it holds in all sessions (SUP-31).
    pub(crate) of_turn: i64,
    pub(crate) of_all: i64,
}

/// What has been called. A turn (one input until its answer) begins with nothing but the total.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CallWatch {
    /// The last calls, for rounds.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    recent: VecDeque<u64>,
    strikes: u32,
    turn: u32,
    total: u32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    failures: BTreeMap<String, u32>,
    /// How often a call was made in this turn.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    repeated: BTreeMap<u64, u32>,
}

/// Why a call is not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CallRefusal {
    #[error("{} {repeats} times in a row. Its result will not change; do something else, or answer", round(*period))]
    Round {
        /// How many calls make one round.
        period: usize,
        repeats: u32,
        /// It has been said often enough.
        over: bool,
    },
    #[error("an answer may call at most {0} tools")]
    TooMany(usize),
    #[error("Maximum tool calls per turn ({0}) reached")]
    PerTurn(u32),
    #[error("Maximum total tool calls ({0}) reached")]
    Total(u32),
    #[error(
        "Repetitive tool call detected: '{tool}' called with identical arguments {times} times. Try a different approach"
    )]
    Repeated { tool: String, times: u32 },
    #[error("Tool '{tool}' has failed {times} times consecutively. Please try a different approach or tool")]
    Failing { tool: String, times: u32 },
    #[error("there is no such tool")]
    Unknown { tool: String },
    #[error("the arguments must be an object")]
    NoObject,
    #[error("the arguments do not fit: {}", problems.join("; "))]
    Misfit { problems: Vec<String> },
    /// The host's own reason.
    #[error("{0}")]
    Planned(String),
}

fn round(period: usize) -> String {
    match period {
        1 => "this very call was made".to_owned(),
        period => format!("the same round of {period} calls was made"),
    }
}

impl CallWatch {
    pub(crate) fn new_turn(&mut self) {
        *self = CallWatch { total: self.total, ..CallWatch::default() };
    }

    /// Calls of this turn.
    pub(crate) fn in_turn(&self) -> u32 {
        self.turn
    }

    /// Calls of all turns.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Counts one call, or says why it may not be made.
    pub(crate) fn admit(
        &mut self,
        call: &impl TurnCall,
        rules: &WatchRules,
        may_repeat: bool,
    ) -> Result<(), CallRefusal> {
        let tool = call.name();
        let mark = mark(call);
        if !may_repeat {
            self.heard(mark, rules.rounds)?;
        }
        if let Some(max) = rules.per_turn.filter(|max| i64::from(self.turn) + rules.of_turn >= i64::from(*max)) {
            return Err(CallRefusal::PerTurn(max));
        }
        if let Some(max) = rules.total.filter(|max| i64::from(self.total) + rules.of_all >= i64::from(*max)) {
            return Err(CallRefusal::Total(max));
        }
        let failed = self.failures.get(tool).copied().unwrap_or_default();
        let fails = rules.failures.filter(|max| failed >= *max);
        if let Some(max) = rules.repetitions {
            let before = self.repeated.entry(mark).or_default();
            let times = before.saturating_add(1);
            // Counted on, so that one call more says one time more; what a breaker has stopped was not made.
            if times >= max || fails.is_none() {
                *before = times;
            }
            if times >= max {
                return Err(CallRefusal::Repeated { tool: tool.to_owned(), times });
            }
        }
        if let Some(times) = fails {
            return Err(CallRefusal::Failing { tool: tool.to_owned(), times });
        }
        self.turn = self.turn.saturating_add(1);
        self.total = self.total.saturating_add(1);
        Ok(())
    }

    /// Remembers how a call of that tool ended.
    pub(crate) fn ended(&mut self, tool: &str, ok: bool) {
        if ok {
            self.failures.remove(tool);
        } else {
            let failures = self.failures.entry(tool.to_owned()).or_default();
            *failures = failures.saturating_add(1);
        }
    }

    /// One more call; refused if the last rounds were all the same.
    fn heard(&mut self, call: u64, repeats: u32) -> Result<(), CallRefusal> {
        let rounds = repeats as usize;
        if rounds < 2 {
            return Ok(());
        }
        self.recent.push_back(call);
        let excess = self.recent.len().saturating_sub(PERIOD_MAX.saturating_mul(rounds));
        self.recent.drain(..excess);
        let Some(period) = (1..=PERIOD_MAX).find(|period| self.is_round(*period, rounds)) else {
            // It has left the circle.
            self.strikes = 0;
            return Ok(());
        };
        self.strikes += 1;
        Err(CallRefusal::Round { period, repeats, over: self.strikes >= STRIKES })
    }

    fn is_round(&self, period: usize, rounds: usize) -> bool {
        let length = period.saturating_mul(rounds);
        let Some(start) = self.recent.len().checked_sub(length) else { return false };
        (start + period..self.recent.len()).all(|at| self.recent[at] == self.recent[at - period])
    }
}

/// The same for the same tool with the same arguments, whatever the order of their keys.
fn mark(call: &impl TurnCall) -> u64 {
    let hash = call_hash(call.name(), call.arguments());
    hash.as_bytes()[..8].iter().fold(0, |mark, byte| mark << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(calls: &[u64], repeats: u32) -> Vec<Option<usize>> {
        let mut watch = CallWatch::default();
        let period = |refusal| match refusal {
            Err(CallRefusal::Round { period, .. }) => Some(period),
            _ => None,
        };
        calls.iter().map(|call| period(watch.heard(*call, repeats))).collect()
    }

    fn over(watch: &mut CallWatch, call: u64) -> Option<bool> {
        match watch.heard(call, 3) {
            Err(CallRefusal::Round { over, .. }) => Some(over),
            _ => None,
        }
    }

    #[test]
    fn the_same_call_and_the_same_round_are_loops() {
        assert_eq!(heard(&[1, 1, 1], 3), [None, None, Some(1)]);
        assert_eq!(heard(&[1, 2, 1, 2, 1, 2], 3), [None, None, None, None, None, Some(2)]);
        assert_eq!(heard(&[1, 2, 3, 1, 2, 3], 2).last(), Some(&Some(3)));
        assert_eq!(heard(&[1, 1, 2, 1, 1, 2, 1, 3], 3), [None; 8]);
        assert_eq!(heard(&[1; 20], 0), [None; 20]);
    }

    #[test]
    fn a_loop_that_goes_on_is_over() {
        let mut watch = CallWatch::default();
        let ends: Vec<bool> = (0..5).map(|_| over(&mut watch, 7) == Some(true)).collect();
        assert_eq!(ends, [false, false, false, false, true]);
        assert!(watch.recent.len() <= 12);
    }

    #[test]
    fn strikes_count_only_in_a_row() {
        let mut watch = CallWatch::default();
        // Three times each, and something new between them.
        let calls = (0..4).flat_map(|n| [n, n, n, 100 + n]);
        let ends: Vec<bool> = calls.filter_map(|call| over(&mut watch, call)).collect();
        assert_eq!(ends, [false; 4]);
    }
}
