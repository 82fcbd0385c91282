//! What a worker is told: its task, what others gave, what is known by name, and how far it may go.
//!
//! Invariant: a function of the plan as it stands, results under the ids of their tasks (SHN-35), in plan order. It tells
//! nothing that the task has no use for, and changes nothing.

use serde_json::{Map, json};

use super::*;

/// Tool calls a worker may make: at first, and when it resumes.
const TOOL_CALLS: (u32, u32) = (20, 10);

impl Graph {
    /// What the worker is told: the task, what earlier ones gave under their own ids (SHN-35), and feedback (FSS-05).
    pub(super) fn context_of(&self, id: &TaskId, extra: Map<String, Value>) -> Value {
        let Some(task) = self.task(id) else { return Value::Null };
        let result = |id: &TaskId| Some((id.to_string(), Self::standing_result(self.task(id)?)?.clone()));
        let dependencies: Map<String, Value> = task.dependencies().iter().filter_map(result).collect();
        let mut context = json!({
            "id": task.id, "goal": task.goal, "objective": self.plan.objective,
            "overall_objective": task.overall_objective, "attempt": task.tries + 1, "iteration": self.iteration,
            "dependency_results": dependencies,
        });
        let Value::Object(map) = &mut context else { return context };
        let mut put = |key: &str, value: Option<Value>| value.map(|value| map.insert(key.into(), value));
        put("feedback", task.open_feedback().map(Value::from));
        put("supervisor_feedback", task.supervisor_feedback.as_ref().map(|feedback| feedback.text.clone().into()));
        put("role", task.role.clone().map(Value::from));
        put("time_scope", task.time_scope.clone());
        put("agent", self.who(task).name().filter(|name| Some(name) != task.capability.as_ref()).map(Value::from));
        put("capability", task.capability.clone().map(Value::from));
        put("action", task.action.clone().map(Value::from));
        put("parameters", (!task.params.is_empty()).then(|| Value::Object(task.params.clone())));
        put("variables", self.variables_for(task).map(Value::Object));
        put("tools", (!task.tools.is_empty()).then(|| json!(task.tools)));
        put("tool_guides", self.tool_guides_for(task).map(Value::Object));
        put("approved_action", task.metadata.approved_action.clone().map(Value::from));
        // Only the newest is told: a context must not grow with what was thrown away.
        put("doubted", task.metadata.reflections.last().map(|doubted| json!(doubted.to_look_at())));
        put("notes", task.metadata.scratch_notes.clone().map(Value::from));
        if !task.metadata.overflows.is_empty() {
            put("tool_call_limit", Some(TOOL_CALLS.1.into()));
        } else if self.rules.selection == Selection::Supervisor {
            put("tool_call_limit", Some(TOOL_CALLS.0.into()));
        }
        if self.rules.selection == Selection::All && self.rules.threshold_bp.is_some() {
            put("previous_results", Some(self.previous_results(task)));
        }
        map.extend(extra);
        context
    }

    /// What policies say of the tools of whoever does it (CUG-39).
    fn tool_guides_for(&self, task: &Task) -> Option<Map<String, Value>> {
        let name = self.who(task).name()?;
        let guides = self.rules.guides_of(self.rules.card(&name)?);
        (!guides.is_empty()).then_some(guides)
    }

    /// What agents of other tasks know by name: those that the delegation names, or all (CUG-37).
    fn variables_for(&self, task: &Task) -> Option<Map<String, Value>> {
        let mut known = self.variables();
        if let Some(named) = task.params.get("variables").and_then(Value::as_array) {
            known.retain(|name, _| named.iter().any(|other| other.as_str() == Some(name)));
        }
        Some(known).filter(|known| !known.is_empty())
    }

    /// In plan order: what a later task says under a name counts.
    pub(super) fn variables(&self) -> Map<String, Value> {
        let done = self.plan.tasks.values().filter(|task| task.status == TaskStatus::Completed);
        let of = |task: &Task| (task.position, task.metadata.variables.clone());
        // Few tasks of a long plan have any: those alone are put in order.
        let mut named: Vec<(u32, Map<String, Value>)> =
            done.filter(|task| !task.metadata.variables.is_empty()).map(of).collect();
        named.sort_by_key(|(position, _)| *position);
        named.into_iter().flat_map(|(_, variables)| variables).collect()
    }

    /// The results of earlier successful tasks under their own ids, in plan order (SHN-35).
    fn previous_results(&self, task: &Task) -> Value {
        let earlier = |other: &&&Task| other.position < task.position && other.status == TaskStatus::Completed;
        // Of a long plan only what the task names is told: a context must not grow with the plan.
        let ordered: Vec<&Task> = match self.plan.tasks.len() {
            0..=100 => self.plan.in_order(),
            _ => task.edges.iter().filter_map(|edge| self.task(&edge.on)).collect(),
        };
        let results =
            ordered.iter().filter(earlier).filter_map(|task| Some((task.id.to_string(), task.result.clone()?)));
        Value::Object(results.collect())
    }
}

/// What a call asks, as a hash: the same question gives the same hash (§5.8 no. 6).
pub fn prompt_hash(call: &Call) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(call.prompt.as_bytes());
    hasher.update(&[0]);
    hasher.update(call.context.to_string().as_bytes());
    hasher.finalize().to_hex()[..16].to_owned()
}
