//! A plan as a list of delegations, made before the first of them (CUGA's `plan_upfront`), read as any other plan.
//!
//! Invariant: the strategy is the plan's own, or else the spec's; in sequence each delegation waits for the one before it. It delegates nothing.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::spellings::said_once;
use crate::supervisor::model::{Dependency, PlanStrategy, PlannedTask, PlannerOutput, TaskId, null_is_absent};
use crate::supervisor::reading::{Unreadable, read};
use crate::supervisor::spec::UpfrontStrategy;

/// A plan that is made upfront as a list of delegations (CUG-33).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanUpfront {
    /// Null is what the spec says.
    #[serde(default)]
    pub strategy: Option<UpfrontStrategy>,
    pub delegations: Vec<Delegated>,
    #[serde(default)]
    pub reasoning: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegated {
    pub agent_name: String,
    pub task: String,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub variables: Vec<String>,
}

impl PlanUpfront {
    /// One task a delegation; in sequence each waits for the one before it.
    pub fn planned(self, otherwise: UpfrontStrategy) -> PlannerOutput {
        let plan = self;
        let strategy = plan.strategy.unwrap_or(otherwise);
        let task = |(place, delegated): (usize, Delegated)| PlannedTask {
            id: Some(TaskId::from(place as u64 + 1)),
            goal: delegated.task,
            agent: Some(delegated.agent_name),
            deps: match strategy {
                UpfrontStrategy::Sequential if place > 0 => vec![Dependency::Id(TaskId::from(place as u64))],
                _ => Vec::new(),
            },
            params: match delegated.variables.is_empty() {
                true => Map::new(),
                false => Map::from_iter([("variables".to_owned(), delegated.variables.into())]),
            },
            ..PlannedTask::default()
        };
        let tasks = plan.delegations.into_iter().enumerate().map(task).collect();
        PlannerOutput { tasks, reasoning: plan.reasoning, ..PlannerOutput::default() }
    }
}

/// Reads what a planner answers, in either form: a task has an id (FSS-04). A plan of tasks that is made upfront and does not
/// say how it is run goes by the spec too.
pub fn read_plan_answer(value: &Value, otherwise: UpfrontStrategy, upfront: bool) -> Result<PlannerOutput, Unreadable> {
    if value.get("delegations").is_some() {
        return read::<PlanUpfront>("plan", value).map(|plan| plan.planned(otherwise));
    }
    let mut plan: PlannerOutput = read("plan", &said_once(value))?;
    if let Some(place) = plan.tasks.iter().position(|task| task.id.is_none()) {
        let (at, why) = (format!("tasks[{place}]"), "missing field `id`".to_owned());
        return Err(Unreadable::MisfitAt { what: "plan".to_owned(), at, why });
    }
    if upfront && otherwise == UpfrontStrategy::Sequential {
        plan.strategy.get_or_insert(PlanStrategy::Sequential);
    }
    Ok(plan)
}
