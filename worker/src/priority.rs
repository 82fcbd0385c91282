//! A priority as people write it, on the command line, in YAML and in JSON: what is left out has Temporal's default.
//!
//! Invariant: a priority that is read here is one that the queues take. What it means is the engine's affair.

use bosun_engine::{FairnessWeight, Priority};
use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The place of activities among those that wait for a slot of their queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "PriorityBody", into = "PriorityBody")]
#[schemars(with = "PriorityBody")]
pub struct PrioritySaid(pub Priority);

/// The members of a priority.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriorityBody {
    /// 1, the most urgent, to 5; 3 where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_key: Option<u8>,
    /// Who shares the queue with others of the same priority, for example a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_key: Option<String>,
    /// The share of the fairness key beside others, 0.001 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_weight: Option<f64>,
}

impl TryFrom<PriorityBody> for PrioritySaid {
    type Error = String;
    fn try_from(body: PriorityBody) -> Result<Self, String> {
        let default = Priority::default();
        let weight = body.fairness_weight.map(|weight| weight.to_string().parse::<FairnessWeight>()).transpose()?;
        if weight.is_some() && body.fairness_key.is_none() {
            return Err("a fairness_weight needs a fairness_key".to_owned());
        }
        let priority = Priority {
            priority_key: body.priority_key.unwrap_or(default.priority_key),
            fairness_key: body.fairness_key,
            fairness_weight: weight.unwrap_or(default.fairness_weight),
        };
        priority.check()?;
        Ok(PrioritySaid(priority))
    }
}

impl From<PrioritySaid> for PriorityBody {
    fn from(PrioritySaid(priority): PrioritySaid) -> Self {
        let weight = f64::from(priority.fairness_weight.0) / f64::from(FairnessWeight::ONE.0);
        PriorityBody {
            priority_key: Some(priority.priority_key),
            fairness_weight: priority.fairness_key.is_some().then_some(weight),
            fairness_key: priority.fairness_key,
        }
    }
}

/// For lists and pages: `1, acme x 2`.
pub fn priority_text(priority: &Priority) -> String {
    match &priority.fairness_key {
        Some(key) => format!("{}, {key} x {}", priority.priority_key, priority.fairness_weight),
        None => priority.priority_key.to_string(),
    }
}

/// The options of a priority.
#[derive(Debug, Clone, Default, Args)]
pub struct PriorityArgs {
    /// How urgent the activities are, from 1 (first to get a slot of the queue) to 5 [default: 3].
    #[arg(long, visible_alias = "priority-key", value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub priority: Option<u8>,
    /// The group, for example a tenant, that shares the slots of its priority fairly with others [default: each workflow].
    #[arg(long, value_name = "KEY")]
    pub fairness_key: Option<String>,
    /// The weight of the fairness key beside others, from 0.001 to 1000.
    #[arg(long, value_name = "W", requires = "fairness_key")]
    pub fairness_weight: Option<FairnessWeight>,
}

impl PriorityArgs {
    /// What was said, if anything was.
    pub fn said(&self) -> Result<Option<Priority>, String> {
        let default = Priority::default();
        if self.priority.is_none() && self.fairness_key.is_none() {
            return Ok(None);
        }
        let priority = Priority {
            priority_key: self.priority.unwrap_or(default.priority_key),
            fairness_key: self.fairness_key.clone(),
            fairness_weight: self.fairness_weight.unwrap_or(default.fairness_weight),
        };
        priority.check()?;
        Ok(Some(priority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Priority, String> {
        serde_json::from_str::<PrioritySaid>(text).map(|said| said.0).map_err(|why| why.to_string())
    }

    #[test]
    fn a_priority_is_read_as_it_is_written() {
        assert_eq!(read("{}"), Ok(Priority::default()));
        let said = Priority::of(1).fair("acme").with_weight(FairnessWeight(2_500));
        let text = serde_json::to_string(&PrioritySaid(said.clone())).unwrap();
        assert_eq!(text, r#"{"priority_key":1,"fairness_key":"acme","fairness_weight":2.5}"#);
        assert_eq!(read(&text), Ok(said));
        for (wrong, why) in [
            (r#"{"priority_key": 6}"#, "priority 6"),
            (r#"{"fairness_weight": 2}"#, "needs a fairness_key"),
            (r#"{"fairness_key": ""}"#, "1 to 64 bytes"),
            (r#"{"fairness_key": "a", "fairness_weight": 0}"#, "weight"),
            (r#"{"priority": 1}"#, "unknown field"),
        ] {
            assert!(read(wrong).unwrap_err().contains(why), "{wrong}: {:?}", read(wrong));
        }
    }
}
