//! Whether an agent goes round in circles: the same call again and again, or the same round of calls.
//!
//! Invariant: it depends on the calls in the order in which they were asked for and on nothing else. It finds loops;
//! what is done about one is the machine's.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::machine::Rules;

/// The longest round that is looked for.
const PERIOD_MAX: usize = 4;
/// Calls in a loop that are refused one after the other, before the agent is ended.
const STRIKES: u32 = 3;

/// The last calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopWatch {
    recent: VecDeque<u64>,
    strikes: u32,
}

/// A loop that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetectedLoop {
    /// How many calls make one round.
    pub period: usize,
    pub repeats: u32,
    /// It has been said often enough.
    pub over: bool,
}

impl LoopWatch {
    /// One more call, by the hash of tool and arguments. Found if the last rounds were all the same.
    pub fn heard(&mut self, call: u64, repeats: u32, rules: Rules) -> Option<DetectedLoop> {
        let rounds = repeats as usize;
        if rounds < 2 {
            return None;
        }
        self.recent.push_back(call);
        let excess = self.recent.len().saturating_sub(PERIOD_MAX.saturating_mul(rounds));
        self.recent.drain(..excess);
        let Some(period) = (1..=PERIOD_MAX).find(|period| self.is_round(*period, rounds)) else {
            // It has left the circle. The first rules never forgave.
            if !rules.are_first() {
                self.strikes = 0;
            }
            return None;
        };
        self.strikes += 1;
        Some(DetectedLoop { period, repeats, over: self.strikes >= STRIKES })
    }

    fn is_round(&self, period: usize, rounds: usize) -> bool {
        let length = period.saturating_mul(rounds);
        let Some(start) = self.recent.len().checked_sub(length) else { return false };
        (start + period..self.recent.len()).all(|at| self.recent[at] == self.recent[at - period])
    }
}

impl DetectedLoop {
    /// What the model is told.
    pub fn told(&self) -> String {
        let what = match self.period {
            1 => "this very call was made".to_owned(),
            period => format!("the same round of {period} calls was made"),
        };
        let repeats = self.repeats;
        format!("Refused: {what} {repeats} times in a row. Its result will not change; do something else, or answer.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(calls: &[u64], repeats: u32) -> Vec<Option<usize>> {
        let mut watch = LoopWatch::default();
        calls.iter().map(|call| watch.heard(*call, repeats, Rules::Second).map(|found| found.period)).collect()
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
        let mut watch = LoopWatch::default();
        let over: Vec<bool> =
            (0..5).map(|_| watch.heard(7, 3, Rules::Second).is_some_and(|found| found.over)).collect();
        assert_eq!(over, [false, false, false, false, true]);
        assert!(watch.recent.len() <= 12);
    }

    #[test]
    fn strikes_count_only_in_a_row() {
        let ended = |rules| {
            let mut watch = LoopWatch::default();
            // Three times each, and something new between them.
            let calls = (0..4).flat_map(|n| [n, n, n, 100 + n]);
            calls.filter_map(|call| watch.heard(call, 3, rules)).map(|found| found.over).collect::<Vec<bool>>()
        };
        assert_eq!(ended(Rules::Second), [false; 4]);
        assert_eq!(ended(Rules::First), [false, false, true, true]);
    }
}
