//! Which of the attempts that wait for a slot comes first: priority, fairness key and weight (E25), and how many may
//! start in a second. Part of the disk contract: options of activities carry a priority.
//!
//! Invariant: changes are additive only, as in `options`. What is out of range is refused where it is used, in
//! [`Priority::check`]; nothing here decides who comes first.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Namespace, WorkflowId};

/// The place of an attempt among those that wait in the same task queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priority {
    /// 1, the most urgent, to 5; default 3. Nobody of a less urgent one starts while one of these waits in the queue.
    pub priority_key: u8,
    /// Who shares: attempts of one priority are served in turn by their keys, for example tenants. `None`: the workflow.
    pub fairness_key: Option<String>,
    /// The share of the key beside the others.
    pub fairness_weight: FairnessWeight,
}

impl Default for Priority {
    fn default() -> Self {
        Priority { priority_key: 3, fairness_key: None, fairness_weight: FairnessWeight::ONE }
    }
}

impl Priority {
    /// The least urgent priority.
    pub const LAST: u8 = 5;
    /// The longest fairness key, in bytes.
    pub const FAIRNESS_KEY_MAX: usize = 64;

    /// With this key, and the defaults of all else.
    pub fn of(priority_key: u8) -> Self {
        Priority { priority_key, ..Priority::default() }
    }
    /// Shares by this key instead of by workflow.
    pub fn fair(mut self, fairness_key: impl Into<String>) -> Self {
        self.fairness_key = Some(fairness_key.into());
        self
    }
    /// With another share than 1.
    pub fn with_weight(mut self, weight: FairnessWeight) -> Self {
        self.fairness_weight = weight;
        self
    }
    /// What holds within something of another priority: an activity or child that names no fairness key has that of its run.
    pub fn within(own: Option<&Priority>, outer: Option<&Priority>) -> Option<Priority> {
        let Some(own) = own else { return outer.cloned() };
        let mut found = own.clone();
        if let (None, Some(outer)) = (&own.fairness_key, outer) {
            found.fairness_key.clone_from(&outer.fairness_key);
            found.fairness_weight = outer.fairness_weight;
        }
        Some(found)
    }
    /// What no queue can make sense of.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=Self::LAST).contains(&self.priority_key) {
            return Err(format!("priority {} is none of 1, the most urgent, to {}", self.priority_key, Self::LAST));
        }
        let FairnessWeight(weight) = self.fairness_weight;
        if !(1..=FairnessWeight::MAX.0).contains(&weight) {
            return Err(format!("fairness weight {} is not between 0.001 and 1000", self.fairness_weight));
        }
        match &self.fairness_key {
            Some(key) if key.is_empty() || key.len() > Self::FAIRNESS_KEY_MAX => {
                Err(format!("a fairness key has 1 to {} bytes, not {}", Self::FAIRNESS_KEY_MAX, key.len()))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A share, in thousandths: a key of weight 2 starts two attempts for each one of a key of weight 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairnessWeight(pub u32);

impl FairnessWeight {
    /// The share of those who say nothing.
    pub const ONE: FairnessWeight = FairnessWeight(1_000);
    /// The largest one: 1000.
    pub const MAX: FairnessWeight = FairnessWeight(1_000_000);
}

impl FromStr for FairnessWeight {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let thousandths = thousandths(text).and_then(|n| u32::try_from(n).ok());
        let weight = thousandths.filter(|n| (1..=Self::MAX.0).contains(n));
        weight.map(FairnessWeight).ok_or_else(|| format!("{text:?} is no weight between 0.001 and 1000"))
    }
}

impl fmt::Display for FairnessWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(u64::from(self.0)))
    }
}

/// How many attempts may start in a second: more than none, at most a million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerSecond {
    thousandths: u64,
}

impl PerSecond {
    /// This many, at least 1.
    pub fn of(n: std::num::NonZeroU32) -> Self {
        PerSecond { thousandths: u64::from(n.get()).min(1_000_000) * 1_000 }
    }
    /// A thousand times as many as in a second.
    pub fn thousandths(&self) -> u64 {
        self.thousandths
    }
}

impl FromStr for PerSecond {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = thousandths(text).filter(|n| (1..=1_000_000_000).contains(n));
        let wrong = || format!("{text:?} is no number a second, between 0.001 and 1000000");
        found.map(|thousandths| PerSecond { thousandths }).ok_or_else(wrong)
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.thousandths))
    }
}

/// `2`, `0.5` or `1.25` in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    Some(whole.parse::<u64>().ok()? * 1_000 + format!("{part:0<3}").parse::<u64>().ok()?)
}

fn shown(thousandths: u64) -> String {
    let (whole, part) = (thousandths / 1_000, thousandths % 1_000);
    match part {
        0 => whole.to_string(),
        _ => format!("{whole}.{part:03}").trim_end_matches('0').to_owned(),
    }
}

/// Those of one priority and one fairness key that wait in a task queue. For people; no part of the disk contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingShare {
    /// Of which runs.
    pub namespace: Namespace,
    /// Their priority.
    pub priority_key: u8,
    /// Their fairness key, if they name one.
    pub fairness_key: Option<String>,
    /// The workflow that they share as, if they name no fairness key.
    pub workflow_id: Option<WorkflowId>,
    /// The share of the next of them.
    pub fairness_weight: FairnessWeight,
    /// How many attempts wait.
    pub waiting: usize,
}

/// What the owner allows of a task queue, over all namespaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// How many attempts of it run at once. `None`: as many as there are slots.
    pub max_concurrent_activities: Option<usize>,
    /// How many attempts of it start in a second. `None`: no limit.
    pub max_activities_per_second: Option<PerSecond>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_shown_in_thousandths() {
        for (text, n) in [("2", 2_000), ("0.5", 500), ("1.25", 1_250), ("0.001", 1), ("1000000", 1_000_000_000)] {
            let read: PerSecond = text.parse().unwrap();
            assert_eq!((read.thousandths, read.to_string().as_str()), (n, text));
        }
        for text in ["", "0", "-1", "1.", ".5", "1.2345", "NaN", "1e3", "1000001", "99999999999999999999"] {
            assert!(text.parse::<PerSecond>().is_err(), "{text}");
        }
        assert!("1000.001".parse::<FairnessWeight>().is_err());
        assert_eq!("1000".parse(), Ok(FairnessWeight::MAX));
    }

    #[test]
    fn what_says_nothing_has_the_priority_of_its_run_and_what_says_something_its_fairness_key() {
        let run = Priority::of(4).fair("acme").with_weight(FairnessWeight(2_000));
        let within = |own: Option<&Priority>| Priority::within(own, Some(&run));
        assert_eq!(within(None), Some(run.clone()));
        assert_eq!(within(Some(&Priority::of(1))), Some(Priority { priority_key: 1, ..run.clone() }));
        let other = Priority::of(1).fair("other");
        assert_eq!(within(Some(&other)), Some(other.clone()));
        assert_eq!(Priority::within(Some(&other), None), Some(other));
        assert_eq!(Priority::within(None, None), None);
    }

    #[test]
    fn a_priority_out_of_range_is_named() {
        assert_eq!(Priority::default().check(), Ok(()));
        assert!(Priority::of(0).check().unwrap_err().contains("priority 0"));
        assert!(Priority::of(6).check().unwrap_err().contains("priority 6"));
        assert!(Priority::of(1).fair("").check().is_err());
        assert!(Priority::of(1).fair("k".repeat(65)).check().unwrap_err().contains("not 65"));
        assert!(Priority::of(1).with_weight(FairnessWeight(0)).check().unwrap_err().contains("weight 0"));
    }
}
