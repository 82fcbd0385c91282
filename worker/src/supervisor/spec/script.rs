//! Scripted answers: what a model or agent says, written down beforehand.
//!
//! Invariant: the answer is a function of the script and the call alone, so a run with scripted agents is the same every
//! time. The first rule that fits answers; nobody waits here: how long an answer takes is part of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::template;
use crate::supervisor::model::{Span, TaskId};
use crate::supervisor::outbox::{Call, Purpose};

/// The rules, in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Script(pub Vec<ScriptRule>);

/// What is answered when a call is like this. All that is given must fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptRule {
    /// What the call is for.
    pub on: Purpose,
    /// Only calls of this agent, by whatever name a task asks for it.
    #[serde(default)]
    pub agent: Option<String>,
    /// Only calls of this tool of an agent, which are no thoughts of its own. Without it an answer with `tool_calls` is no
    /// answer of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Only calls about this task.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// Only this attempt of the task; the first is 1.
    #[serde(default)]
    pub attempt: Option<u32>,
    /// Only this call of its kind; the first is 1.
    #[serde(default)]
    pub round: Option<u32>,
    /// `role` in the call's context.
    #[serde(default)]
    pub role: Option<String>,
    /// The prompt holds this text.
    #[serde(default)]
    pub contains: Option<String>,
    /// The answer: any JSON. `{{task}}`, `{{attempt}}`, `{{round}}`, `{{agent}}`, `{{prompt}}` and `{{context.x.y}}` are
    /// filled in; a text that is nothing but one of them becomes its value. The shapes that are read are `$defs.answer_*`
    /// of the schema: `answer_plan`, `answer_decide`, `answer_review`, `answer_execute_worker` ...
    #[serde(default)]
    pub say: Option<Value>,
    /// How long it takes.
    #[serde(default)]
    pub after: Span,
    /// It fails instead; in a file also the message alone.
    #[serde(default)]
    pub fail: Option<ScriptFailure>,
}

/// A failure that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
#[serde(deny_unknown_fields)]
pub struct ScriptFailure {
    /// What the error says.
    pub message: String,
    /// Whether the call may be made again.
    #[serde(default)]
    pub retryable: bool,
}

/// What a scripted call comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Scripted {
    /// How long the answer takes.
    pub after: Span,
    /// The answer, or the error that was asked for.
    pub result: Result<Value, ScriptFailure>,
}

impl ScriptRule {
    /// A rule that fits every call of a purpose and says nothing yet.
    pub fn on(purpose: Purpose) -> Self {
        ScriptRule {
            on: purpose,
            agent: None,
            tool: None,
            task: None,
            attempt: None,
            round: None,
            role: None,
            contains: None,
            say: None,
            after: Span::ZERO,
            fail: None,
        }
    }
    /// Only calls of this agent fit.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }
    /// Only calls of this tool fit.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tool = Some(name.into());
        self
    }
    /// Only calls about this task fit.
    #[must_use]
    pub fn task(mut self, task: TaskId) -> Self {
        self.task = Some(task);
        self
    }
    /// Only this attempt of the task fits; the first is 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }
    /// Only this call of its kind fits; the first is 1.
    #[must_use]
    pub fn round(mut self, round: u32) -> Self {
        self.round = Some(round);
        self
    }
    /// Only calls fit whose prompt contains this text.
    #[must_use]
    pub fn contains(mut self, text: impl Into<String>) -> Self {
        self.contains = Some(text.into());
        self
    }
    /// Says what is answered.
    #[must_use]
    pub fn say(mut self, answer: Value) -> Self {
        self.say = Some(answer);
        self
    }
    /// Says how long the answer takes.
    #[must_use]
    pub fn after(mut self, span: Span) -> Self {
        self.after = span;
        self
    }
    /// Makes the call fail, for good or so that it may be made again.
    #[must_use]
    pub fn fail(mut self, message: impl Into<String>, retryable: bool) -> Self {
        self.fail = Some(ScriptFailure { message: message.into(), retryable });
        self
    }

    fn fits(&self, call: &Call, player: Option<&str>) -> bool {
        let agent = self.agent.as_deref().is_none_or(|agent| [call.agent.as_deref(), player].contains(&Some(agent)));
        let task = self.task.as_ref().is_none_or(|task| call.task.as_ref() == Some(task));
        let role = self.role.as_deref().is_none_or(|role| call.context.get("role") == Some(&json!(role)));
        self.on == call.purpose
            && agent
            && self.fits_tool(call)
            && task
            && role
            && self.attempt.is_none_or(|attempt| attempt == call.attempt)
            && self.round.is_none_or(|round| round == call.round)
            && self.contains.as_deref().is_none_or(|text| call.prompt.contains(text))
    }

    /// A tool calls no tools: who answers with calls is no tool.
    fn fits_tool(&self, call: &Call) -> bool {
        let called = call.context.get("tool").and_then(Value::as_str);
        let calls = self.say.as_ref().is_some_and(|said| said.get("tool_calls").is_some());
        match &self.tool {
            Some(wanted) => called == Some(wanted),
            None => called.is_none() || !calls,
        }
    }

    fn answer(&self, call: &Call) -> Scripted {
        let said = || template::fill(self.say.as_ref().unwrap_or(&Value::Null), call);
        let failed = |failure: &ScriptFailure| ScriptFailure {
            message: template::fill_text(&failure.message, call),
            retryable: failure.retryable,
        };
        Scripted { after: self.after, result: self.fail.as_ref().map_or_else(|| Ok(said()), |why| Err(failed(why))) }
    }
}

impl Script {
    /// The first rule that fits the call. `player`: the agent that carries it out, which the call may name by what it can do,
    /// or by its job.
    pub fn rule(&self, call: &Call, player: Option<&str>) -> Option<&ScriptRule> {
        self.0.iter().find(|rule| rule.fits(call, player))
    }
}

/// What the script answers to a call.
pub fn answer(script: &Script, call: &Call) -> Scripted {
    answer_in_order(&[script], call, None)
}

/// The same over several scripts: the rules of an earlier one come first.
pub(super) fn answer_in_order(scripts: &[&Script], call: &Call, player: Option<&str>) -> Scripted {
    match scripts.iter().find_map(|script| script.rule(call, player)) {
        Some(rule) => rule.answer(call),
        None => Scripted { after: Span::ZERO, result: without_rule(call) },
    }
}

/// What telling somebody comes to where the spec names nobody who would hear it.
pub fn told_nobody() -> Value {
    json!({ "told": false })
}

/// Nobody answers whom the user's file does not name: work, decisions and permissions without a rule are errors. What is
/// only told to somebody is no error, and nobody was told.
fn without_rule(call: &Call) -> Result<Value, ScriptFailure> {
    match call.purpose {
        Purpose::RecordDecomposition
        | Purpose::NotifyForApproval
        | Purpose::LogApprovalResult
        | Purpose::EmitProgress => Ok(told_nobody()),
        Purpose::ExecuteWorker
        | Purpose::Plan
        | Purpose::Decide
        | Purpose::Review
        | Purpose::Synthesize
        | Purpose::Advise
        | Purpose::FetchMemory
        | Purpose::AuthorizeTeamAction
        | Purpose::Compensate => Err(ScriptFailure { message: no_rule(call), retryable: false }),
    }
}

fn no_rule(call: &Call) -> String {
    let purpose = call.purpose.as_str();
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
    let agent = or_none(call.agent.clone());
    let task = or_none(call.task.as_ref().map(ToString::to_string));
    // What the rule would have to name to fit this call and no other like it.
    let tool = call.context.get("tool").and_then(Value::as_str);
    let fits = match (tool, &call.task, &call.agent) {
        (Some(tool), ..) => format!("tool: {tool}"),
        (None, Some(task), _) => format!("task: {task}"),
        (None, None, Some(agent)) if call.purpose == Purpose::ExecuteWorker => format!("agent: {agent}"),
        (None, None, _) => format!("round: {}", call.round),
    };
    format!(
        "no scripted answer for `{purpose}` (agent: {agent}, task: {task}, attempt: {}, round: {}). Add a rule to \
         `script:`, such as `- {{ on: {purpose}, {fits}, say: {{ ... }} }}`, or say with `via:` how the agent is run.",
        call.attempt, call.round
    )
}
