//! What a batch is asked to do, and what it has counted.
//!
//! Invariant: an order is checked before anything is written; runs of Bosun's own (batches, schedules) are meant only where the
//! filter names their type. The counts of a batch add up: whatever was found is done, skipped, failed, or not yet touched.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::filter::Filter;
use bosun_engine::*;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::api::TokenRole;
use crate::filter_text::literal;
use crate::supervisor::people::signature::signature_of;

/// Runs a second where nobody says otherwise, as Temporal's batches have it.
pub const DEFAULT_RPS: u32 = 50;
/// A page is carried out by one attempt of an activity.
const PAGE_MAX: usize = 200;
/// Failures that are told one by one; the others are counted by their reason.
const FAILURES_TOLD: usize = 100;
/// Different reasons that are counted.
const REASONS_TOLD: usize = 50;

/// What is done to each run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum BatchAction {
    Cancel {},
    Terminate {},
    Pause {},
    Resume {},
    Delete {},
    Signal {
        name: String,
        #[serde(default)]
        input: Value,
    },
    Reset {
        #[serde(deserialize_with = "point")]
        to: ResetTo,
        #[serde(default)]
        reapply: ResetReapply,
    },
}

/// A point of a history as it is recorded, or in the words of whoever asks: `first-turn`, `event:12`.
fn point<'de, D: Deserializer<'de>>(given: D) -> Result<ResetTo, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Recorded(ResetTo),
        Words(String),
    }
    match Given::deserialize(given)? {
        Given::Recorded(to) => Ok(to),
        Given::Words(words) => words.parse().map_err(|why: NoResetPoint| D::Error::custom(why)),
    }
}

impl BatchAction {
    /// The verb.
    pub fn word(&self) -> &'static str {
        match self {
            BatchAction::Cancel {} => "cancel",
            BatchAction::Terminate {} => "terminate",
            BatchAction::Pause {} => "pause",
            BatchAction::Resume {} => "resume",
            BatchAction::Delete {} => "delete",
            BatchAction::Signal { .. } => "signal",
            BatchAction::Reset { .. } => "reset",
        }
    }

    /// What its caller must be allowed.
    pub fn role(&self) -> TokenRole {
        match self {
            BatchAction::Delete {} => TokenRole::Owner,
            _ => TokenRole::Operator,
        }
    }

    /// The verb with what belongs to it, for people.
    pub fn in_words(&self) -> String {
        match self {
            BatchAction::Signal { name, .. } => format!("signal {name} to"),
            BatchAction::Reset { to, .. } => format!("reset to {to}"),
            other => other.word().to_owned(),
        }
    }
}

/// The input of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchOrder {
    /// A list filter.
    pub query: String,
    pub action: BatchAction,
    /// Recorded in the history of every run.
    #[serde(default)]
    pub reason: String,
    /// How many runs a second at most; 0: as many as can be.
    #[serde(default = "default_rps")]
    pub rps: u32,
    /// Who asks, and what they may do. The control API writes both.
    #[serde(default)]
    pub by: String,
    #[serde(default = "owner")]
    pub role: TokenRole,
    /// The id of the named token that asks, if one does: the batch acts as long as that opens anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What the run before counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Box<BatchStanding>>,
}

fn default_rps() -> u32 {
    DEFAULT_RPS
}

fn owner() -> TokenRole {
    TokenRole::Owner
}

/// What finds every run, for whoever means them all.
pub const EVERY_RUN: &str = "StartTime > '1970-01-01T00:00:00Z'";

impl BatchOrder {
    /// Refuses a filter that says nothing: whoever forgot to write one would reach every run. Batches that are under way are
    /// not asked.
    ///
    /// # Errors
    /// An empty filter.
    pub fn check_says_which(&self) -> Result<(), Rejection> {
        if !self.query.trim().is_empty() {
            return Ok(());
        }
        let why = format!("it is empty, and would mean every run; whoever means that writes \"{EVERY_RUN}\"");
        Err(Rejection::Invalid { what: "list filter".into(), why })
    }

    /// What is wrong with it, if anything is.
    ///
    /// # Errors
    /// The field, and why.
    pub fn check(&self) -> Result<(), Rejection> {
        let invalid = |what: &str, why: String| Err(Rejection::Invalid { what: what.to_owned(), why });
        let filter = match Filter::parse(&self.query) {
            Ok(filter) => filter,
            Err(why) => return invalid(&format!("list filter {:?}", self.query), why.to_string()),
        };
        if !filter.is_default_order() {
            return invalid("list filter", "a batch takes the newest runs first: leave out ORDER BY".to_owned());
        }
        if let BatchAction::Signal { name, .. } = &self.action {
            if let Err(why) = SignalName::new(name) {
                return invalid("signal", why.to_string());
            }
            if signature_of(name).is_some() {
                return invalid("signal", format!("{name} says who decides: it is for one run at a time"));
            }
        }
        Ok(())
    }

    /// The filter of the runs that are meant: those of this namespace, that began by then if a time is named, and none of
    /// Bosun's own unless their type is asked for.
    ///
    /// # Errors
    /// As [`BatchOrder::check`].
    pub fn filter(&self, namespace: &Namespace, began: Option<Timestamp>) -> Result<Filter, Rejection> {
        self.check()?;
        let parse = |text: &str| {
            Filter::parse(text)
                .map_err(|why| Rejection::Invalid { what: format!("list filter {text:?}"), why: why.to_string() })
        };
        let here = literal(namespace.as_str());
        let asked = parse(&self.query)?;
        let own = asked.asks_for_types("bosun.");
        let mut filter = asked.and(parse(&format!("Namespace = {here}"))?);
        if let Some(began) = began {
            filter = filter.and(parse(&format!("StartTime <= '{began}'"))?);
        }
        if !own {
            filter = filter.and(parse("WorkflowType NOT STARTS_WITH 'bosun.'")?);
        }
        Ok(filter)
    }

    /// The runs of its filter to which there is something to do: the others are skipped, or refuse it.
    ///
    /// # Errors
    /// None that the filter itself has not.
    pub fn to_touch(&self, filter: Filter) -> Result<Filter, Rejection> {
        let which = match self.action {
            BatchAction::Cancel {}
            | BatchAction::Terminate {}
            | BatchAction::Resume {}
            | BatchAction::Signal { .. } => "ExecutionStatus IN ('Running', 'Paused')",
            BatchAction::Pause {} => "ExecutionStatus = 'Running'",
            BatchAction::Delete {} => "ExecutionStatus != 'Running' AND ExecutionStatus != 'Paused'",
            BatchAction::Reset { .. } => return Ok(filter),
        };
        let which = Filter::parse(which)
            .map_err(|why| Rejection::Invalid { what: format!("list filter {which:?}"), why: why.to_string() })?;
        Ok(filter.and(which))
    }

    /// How many runs one page has: so few that an attempt ends within seconds.
    pub fn page(&self) -> usize {
        match usize::try_from(self.rps) {
            Ok(0) | Err(_) => PAGE_MAX,
            Ok(rps) => rps.saturating_mul(5).min(PAGE_MAX),
        }
    }

    /// The time from one run to the next.
    pub fn pace(&self) -> Option<Duration> {
        (self.rps > 0).then(|| Duration::from_secs(1) / self.rps)
    }
}

/// A run that a batch has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchTarget {
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
}

/// A page of them, and where the next one begins, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BatchPage {
    pub targets: Vec<BatchTarget>,
    pub next: Option<String>,
    /// Why there are no more, if it is not that all are found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// A run that was not done, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchFailure {
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    pub why: String,
}

/// What became of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PageDone {
    pub done: u64,
    /// There was nothing to do: it had ended, or was paused already.
    pub skipped: Vec<BatchFailure>,
    /// It was refused.
    pub failed: Vec<BatchFailure>,
    /// Why the rest was not touched, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl PageDone {
    /// How many runs were touched, or looked at.
    pub fn touched(&self) -> u64 {
        self.done + (self.skipped.len() + self.failed.len()) as u64
    }
}

/// What a batch has counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStanding {
    /// Runs that began later are not its own.
    pub began: Timestamp,
    /// Where the next page begins.
    pub cursor: Option<String>,
    pub found: u64,
    pub done: u64,
    pub skipped: u64,
    pub failed: u64,
    /// The first ones, with their reasons.
    pub failures: Vec<BatchFailure>,
    /// How many were skipped or failed for each reason.
    pub reasons: BTreeMap<String, u64>,
    /// Why it is to stop, if it is.
    pub stopped: Option<String>,
}

impl BatchStanding {
    /// Nothing is found yet.
    pub fn new(began: Timestamp) -> Self {
        BatchStanding {
            began,
            cursor: None,
            found: 0,
            done: 0,
            skipped: 0,
            failed: 0,
            failures: Vec::new(),
            reasons: BTreeMap::new(),
            stopped: None,
        }
    }

    /// Counts a page.
    pub fn add(&mut self, page: PageDone) {
        self.done += page.done;
        self.skipped += page.skipped.len() as u64;
        self.failed += page.failed.len() as u64;
        for one in page.skipped.iter().chain(&page.failed) {
            let room = self.reasons.len() < REASONS_TOLD;
            let reason = reason_of(one);
            if room || self.reasons.contains_key(&reason) {
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
        self.stopped = self.stopped.take().or(page.stopped);
        let left = FAILURES_TOLD.saturating_sub(self.failures.len());
        self.failures.extend(page.failed.into_iter().take(left));
    }

    /// What it says of itself, and leaves as its result.
    pub fn shown(&self, id: &str, order: &BatchOrder, state: &str) -> Value {
        json!({
            "batch_id": id, "state": state, "query": order.query, "action": order.action, "reason": order.reason,
            "rps": order.rps, "by": order.by, "found": self.found, "done": self.done, "skipped": self.skipped,
            "failed": self.failed, "reasons": self.reasons, "failures": self.failures, "stopped": self.stopped,
        })
    }
}

/// A reason without what is of one run only, so that equal ones are counted together.
fn reason_of(one: &BatchFailure) -> String {
    let reason = one.why.replace(&one.run_id.to_string(), "RUN").replace(one.workflow_id.as_str(), "ID");
    reason.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(query: &str, action: BatchAction) -> BatchOrder {
        BatchOrder {
            query: query.to_owned(),
            action,
            reason: String::new(),
            rps: DEFAULT_RPS,
            by: String::new(),
            role: TokenRole::Owner,
            token: None,
            carried: None,
        }
    }

    #[test]
    fn an_order_that_cannot_be_carried_out_is_refused_by_name() {
        let signal = |name: &str| BatchAction::Signal { name: name.to_owned(), input: Value::Null };
        for (query, action, says) in [
            ("Nonsense ~ 1", BatchAction::Cancel {}, "list filter"),
            ("WorkflowType = 'a' ORDER BY CloseTime", BatchAction::Cancel {}, "ORDER BY"),
            ("", signal(""), "signal"),
            ("", signal(crate::agent::workflow::SIGNAL_APPROVAL), "one run at a time"),
        ] {
            let refused = order(query, action).check().unwrap_err().to_string();
            assert!(refused.contains(says), "{query}: {refused}");
        }
        order("ExecutionStatus = 'Running'", signal("go")).check().unwrap();
    }

    /// A program says where a reset goes back to as it does of one run; what is recorded is read as it was.
    #[test]
    fn a_point_of_a_history_has_words() {
        let to = |to: Value| serde_json::from_value::<BatchAction>(json!({ "do": "reset", "to": to }));
        let reset = |to| BatchAction::Reset { to, reapply: ResetReapply::default() };
        for (words, point) in [
            (json!("first-turn"), ResetTo::FirstTurn),
            (json!("event:12"), ResetTo::Event(EventId(12))),
            (json!("build:00000000000000ff"), ResetTo::Build(BuildId(255))),
            (json!("last_turn"), ResetTo::LastTurn),
            (json!({ "event": 12 }), ResetTo::Event(EventId(12))),
        ] {
            assert_eq!(to(words.clone()).unwrap(), reset(point), "{words}");
            assert_eq!(to(json!(point)).unwrap(), reset(point));
        }
        assert!(to(json!("nowhere")).is_err());
    }

    #[test]
    fn runs_of_its_own_are_meant_only_by_name() {
        let of = |query: &str| {
            order(query, BatchAction::Terminate {})
                .filter(&Namespace::of("default"), Some(Timestamp(1)))
                .unwrap()
                .to_string()
        };
        assert!(of("").contains("NOT STARTS_WITH 'bosun.'"), "{}", of(""));
        assert!(!of("WorkflowType = 'bosun.schedule'").contains("NOT STARTS_WITH"));
        for other in ["WorkflowId != 'bosun.test'", "WorkflowType != 'bosun.schedule'", "WorkflowId = 'bosun.x'"] {
            assert!(of(other).contains("NOT STARTS_WITH 'bosun.'"), "{other}");
        }
        assert!(of("WorkflowId = 'a' OR WorkflowId = 'b'").starts_with('('), "the rest holds for both");
    }

    #[test]
    fn equal_reasons_are_counted_together() {
        let mut standing = BatchStanding::new(Timestamp(1));
        let failed = |n: u8| {
            let (workflow_id, run_id) = (WorkflowId::new(format!("run-{n}")).unwrap(), RunId([n; 16]));
            BatchFailure { why: format!("the run {run_id} of {workflow_id} is held"), workflow_id, run_id }
        };
        standing.add(PageDone { done: 3, failed: (0..150).map(failed).collect(), ..PageDone::default() });
        assert_eq!((standing.done, standing.failed, standing.failures.len()), (3, 150, FAILURES_TOLD));
        assert_eq!(standing.reasons, BTreeMap::from([("the run RUN of ID is held".to_owned(), 150)]));
    }
}
