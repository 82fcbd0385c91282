//! A decomposition as Shannon's planner gives it: the subtasks of a request and how complex it is.
//!
//! Invariant: what a model says is decoded by type, and a complaint names the field; one that was given with the
//! request is used as it is, and nobody is asked to plan. It makes no tasks of it.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::Shape;
use crate::supervisor::memory::advisor::ratio_bp;
use crate::supervisor::outbox::{Answer, Call, Outbox};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Decomposition {
    #[serde(deserialize_with = "listed")]
    pub subtasks: Vec<Subtask>,
    /// `complexity_score`, 0 to 1 in JSON.
    #[serde(rename(deserialize = "complexity_score"), deserialize_with = "ratio_bp")]
    pub complexity_bp: u32,
    #[serde(deserialize_with = "listed")]
    pub agent_types: Vec<String>,
    pub execution_strategy: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Subtask {
    pub id: String,
    #[serde(default)]
    pub description: String,
    #[serde(default, deserialize_with = "listed")]
    pub dependencies: Vec<String>,
    #[serde(default, deserialize_with = "listed")]
    pub produces: Vec<String>,
    #[serde(default, deserialize_with = "listed")]
    pub consumes: Vec<String>,
    #[serde(default, deserialize_with = "listed")]
    pub suggested_tools: Vec<String>,
    #[serde(default, deserialize_with = "mapped")]
    pub tool_parameters: Map<String, Value>,
}

impl Subtask {
    /// Whether it is more than one answer of one agent.
    pub fn needs_tools(&self) -> bool {
        let Subtask { id: _, description: _, dependencies, produces, consumes, suggested_tools, tool_parameters } =
            self;
        let lists = [dependencies, produces, consumes, suggested_tools];
        lists.into_iter().any(|list| !list.is_empty()) || !tool_parameters.is_empty()
    }
}

impl Decomposition {
    pub fn shape(&self) -> Shape {
        Shape {
            subtasks: self.subtasks.len(),
            has_dependencies: self.subtasks.iter().any(|task| !task.dependencies.is_empty()),
            dynamic: false,
            communicates: self.subtasks.iter().any(|task| !task.produces.is_empty() || !task.consumes.is_empty()),
        }
    }
}

/// Why there is no decomposition. The run ends with [`DecompositionFailed::result`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("decomposition failed: {why}")]
pub struct DecompositionFailed {
    pub why: String,
}

impl DecompositionFailed {
    pub fn result(&self) -> Value {
        json!({ "success": false, "error": self.to_string() })
    }
}

impl Decomposition {
    /// What the planner's answer holds.
    pub fn of(answer: &Answer) -> Result<Decomposition, DecompositionFailed> {
        let value = answer.as_ref().map_err(|why| DecompositionFailed { why: why.to_string() })?;
        serde_path_to_error::deserialize(value).map_err(|why| {
            let why = format!("{}: {}", why.path(), why.inner());
            DecompositionFailed { why }
        })
    }
}

/// The decomposition that came with the request; without one the planner is called, and `None` says that its answer is
/// to be waited for.
pub fn decomposition(
    preplanned: Option<&Value>,
    planner: impl FnOnce() -> Call,
    out: &mut Outbox,
) -> Option<Result<Decomposition, DecompositionFailed>> {
    match preplanned.filter(|plan| !plan.is_null()) {
        Some(plan) => Some(Decomposition::of(&Ok(plan.clone()))),
        None => {
            out.call(planner());
            None
        }
    }
}

/// Go writes an empty list as null.
fn listed<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::<Vec<T>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn mapped<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    Option::<Map<String, Value>>::deserialize(deserializer).map(Option::unwrap_or_default)
}
