//! A workflow of steps, one after the other: each gives an agent a task, in which earlier outputs are filled in.
//!
//! Invariant: a step runs when all steps before it went well and everything it depends on is there; the first failure
//! ends the workflow. What is wrong with a workflow is listed as a whole before anything runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::agent_loop::{AgentLoop, Workload};
use super::boundary::{AgentInput, AgentOutcome, AgentsRefused};
use super::message::{Message, Variables};
use super::refusal::SessionFailure;
use super::rules::{AgentDef, AgentRules};
use super::session::SessionPlace;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::Step;

/// A workflow as its file says it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsDef {
    #[serde(default)]
    pub name: String,
    pub steps: Vec<Step>,
}

impl StepsDef {
    /// Everything that is wrong with it, in the order of steps; nothing if it can be run.
    pub fn issues(&self, agents: &[AgentDef]) -> Vec<String> {
        let mut issues = Vec::new();
        if self.steps.is_empty() {
            issues.push(format!("Workflow '{}' has no steps", self.name));
        }
        for (i, step) in self.steps.iter().enumerate() {
            if !agents.iter().any(|agent| agent.name == step.agent) {
                issues.push(format!("Step {i}: agent '{}' not found", step.agent));
            }
        }
        let outputs: BTreeSet<&str> = self.steps.iter().filter_map(|step| step.output.as_deref()).collect();
        for (i, step) in self.steps.iter().enumerate() {
            for name in step.depends_on.iter().filter(|name| !outputs.contains(name.as_str())) {
                issues.push(format!("Step {i}: depends_on '{name}' not defined by any step"));
            }
        }
        let mut before = BTreeSet::new();
        for (i, step) in self.steps.iter().enumerate() {
            for name in placeholders(&step.task).iter().filter(|name| !before.contains(name.as_str())) {
                issues.push(match outputs.contains(name.as_str()) {
                    true => {
                        format!("Step {i}: task references '{{{{{name}}}}}' but no step before it outputs '{name}'")
                    }
                    false => format!("Step {i}: task references '{{{{{name}}}}}' but no step outputs '{name}'"),
                });
            }
            before.extend(step.output.as_deref());
        }
        issues
    }
}

/// The names in `{{name}}` or `{{ name }}`, in order.
fn placeholders(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices("{{") {
        let rest = &text[at + 2..];
        let name = rest.split_once("}}").map(|(name, _)| name.trim()).unwrap_or_default();
        if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')) {
            names.push(name.to_owned());
        }
    }
    names
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StepsRun {
    steps: Vec<Step>,
    outputs: BTreeMap<String, String>,
    results: Vec<Value>,
}

impl StepsRun {
    /// Whether a step went well.
    pub(super) fn has_something(&self) -> bool {
        self.results.iter().any(|result| result.pointer("/result/ok") == Some(&Value::Bool(true)))
    }
}

impl AgentLoop {
    /// A workflow of steps.
    pub fn steps(
        rules: AgentRules,
        agents: Vec<AgentDef>,
        workflow: StepsDef,
        input: &AgentInput,
        out: &mut Outbox,
    ) -> Result<AgentLoop, AgentsRefused> {
        let issues = workflow.issues(&agents);
        if !issues.is_empty() {
            return Err(AgentsRefused::Steps(issues));
        }
        let run = StepsRun { steps: workflow.steps, outputs: BTreeMap::new(), results: Vec::new() };
        let mut it = AgentLoop::new(rules, agents, input, Workload::Steps(run))?;
        it.begin_next_step(out);
        Ok(it)
    }

    fn begin_next_step(&mut self, out: &mut Outbox) {
        let Workload::Steps(run) = &self.work else { return };
        let i = run.results.len();
        let Some(step) = run.steps.get(i).cloned() else {
            self.steps_ended(None);
            return;
        };
        if let Some(missing) = step.depends_on.iter().find(|name| !run.outputs.contains_key(*name)) {
            self.steps_ended(Some(format!("Step {i} ({}): dependency '{missing}' not satisfied", step.agent)));
            return;
        }
        let task = filled_in(&step.task, |name| run.outputs.get(name.trim()).cloned());
        let messages = vec![Message::user(task)];
        let number = u32::try_from(i).unwrap_or(u32::MAX).saturating_add(1);
        let seq = self.open(&step.agent, SessionPlace::root(i, [number, 1]), messages, Variables::new(), out);
        self.begin_turn(seq, out);
    }

    /// The agent of a step answered, or failed.
    pub(super) fn step_ended(&mut self, i: usize, result: Result<String, SessionFailure>, out: &mut Outbox) {
        let Workload::Steps(run) = &mut self.work else { return };
        let Some(step) = run.steps.get(i) else { return };
        let said = match &result {
            Ok(text) => json!({"ok": true, "data": text}),
            Err(why) => json!({"ok": false, "error": why.to_string()}),
        };
        let task = filled_in(&step.task, |name| run.outputs.get(name.trim()).cloned());
        run.results.push(json!({"step": i, "agent": step.agent, "task": task, "result": said}));
        match result {
            Ok(text) => {
                if let Some(name) = step.output.clone() {
                    run.outputs.insert(name, text);
                }
                self.begin_next_step(out);
            }
            Err(why) => {
                self.refused = why.is_refusal();
                let why = format!("Step {i} ({}) failed: {why}", step.agent);
                self.steps_ended(Some(why));
            }
        }
    }

    fn steps_ended(&mut self, error: Option<String>) {
        let Workload::Steps(run) = &self.work else { return };
        let result = json!({"outputs": run.outputs, "results": run.results});
        let outcome = self.outcome_of(error.map_or(Ok(Value::Null), |why| Err(SessionFailure::Stopped(why))));
        self.outcome = Some(AgentOutcome { result, ..outcome });
    }
}

/// Fills in every `{{name}}` that has a value; a value is not looked into again.
pub(super) fn filled_in(text: &str, value_of: impl Fn(&str) -> Option<String>) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        filled.push_str(&rest[..at]);
        let named = rest[at + 2..].split_once("}}");
        match named.and_then(|(name, tail)| value_of(name).map(|value| (value, tail))) {
            Some((value, tail)) => {
                filled.push_str(&value);
                rest = tail;
            }
            // The name may begin with the next brace: there is one in `{{{name}}}`.
            None => {
                filled.push('{');
                rest = &rest[at + 1..];
            }
        }
    }
    filled + rest
}
