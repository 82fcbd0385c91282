//! A rule of the world: what is answered when a call is like this, and how long that takes.
//!
//! ```yaml
//! - { on: execute_worker, task: dump, attempt: 1, after: 2s, fail: disk full }
//! ```
//!
//! Invariant: all that is given must fit, and the first rule that fits answers. A rule without an answer is refused: the
//! world never makes one up.

use std::time::Duration;

use serde_json::{Value, json};

use super::asked::Asked;
use super::file::moment;
use super::life::BEGIN;
use super::matcher::Matcher;
use super::models::ModelCharge;
use super::names::near;
use crate::agent::AGENT_MODEL;
use crate::capability::model::MODEL;
use crate::supervisor::FieldError;
use crate::supervisor::fields::Fields;
use crate::supervisor::outbox::Purpose;

pub(super) const KEYS: [&str; 15] = [
    "on", "agent", "tool", "task", "attempt", "round", "role", "contains", "with", "before", "say", "usage", "cost",
    "fail", "after",
];

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// The purpose of a call, or the type of an activity.
    pub(crate) on: String,
    agent: Option<String>,
    /// A tool of the agent, and no thought of its own.
    tool: Option<String>,
    task: Option<String>,
    attempt: Option<u64>,
    round: Option<u64>,
    role: Option<String>,
    /// The prompt holds these texts.
    contains: Vec<String>,
    /// What the call carries as data.
    with: Option<Matcher>,
    /// Only calls that are made before this time of the scene.
    before: Option<Duration>,
    pub(crate) answer: Answer,
    /// What a model's answer took.
    pub(crate) charge: ModelCharge,
    pub(crate) after: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Say(Value),
    Fail { message: String, how: Failing },
}

/// What a failure means to whoever called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failing {
    /// Another try may do better.
    Retryable,
    Final,
    /// Whoever carried the call waited no longer.
    Late,
    /// A model that nobody can ask before a person has done something: given it a key, paid for it.
    NeedsPerson,
}

impl Answer {
    fn failing(failure: &Fields<'_>, on: &str) -> Result<Answer, FieldError> {
        let needs_person = failure.boolean("needs_person")?.unwrap_or_default();
        if needs_person && ![MODEL, AGENT_MODEL].contains(&on) {
            return Err(
                failure.error("needs_person", "only a model can want a person to do something first: `on: model`")
            );
        }
        let how = match (needs_person, failure.boolean("retryable")?.unwrap_or(true)) {
            (true, _) => Failing::NeedsPerson,
            (false, true) => Failing::Retryable,
            (false, false) => Failing::Final,
        };
        Ok(Answer::Fail { message: failure.required_text("message")?, how })
    }
}

impl Rule {
    pub(crate) fn read(path: &str, value: &Value) -> Result<Rule, FieldError> {
        let fields = Fields::read(value, path, &KEYS)?;
        let on = fields.required_text("on")?;
        let purposes: Vec<&str> = Purpose::ALL.iter().map(|purpose| purpose.as_str()).collect();
        // Any other word is the type of an activity, unless it looks like a slip.
        if let Some(meant) = near(&on, &purposes).filter(|_| !purposes.contains(&on.as_str()) && !on.contains('.')) {
            return Err(fields.error("on", format!("unknown purpose `{on}` (did you mean `{meant}`?)")));
        }
        let answer = match (value.get("say"), value.get("fail")) {
            (Some(said), None) => Answer::Say(said.clone()),
            (None, Some(Value::String(message))) => Answer::Fail { message: message.clone(), how: Failing::Retryable },
            (None, Some(failure)) => Answer::failing(
                &Fields::read(failure, &fields.path_of("fail"), &["message", "retryable", "needs_person"])?,
                &on,
            )?,
            (Some(_), Some(_)) => return Err(fields.error("fail", "give either `say` or `fail`, not both")),
            (None, None) => return Err(fields.error("say", "a rule needs an answer: `say` or `fail`")),
        };
        Ok(Rule {
            agent: fields.text("agent")?,
            tool: fields.text("tool")?,
            task: id(&fields, "task")?,
            attempt: fields.natural("attempt")?,
            round: fields.natural("round")?,
            role: fields.text("role")?,
            contains: fields.one_or_more_texts("contains")?,
            with: fields.value("with").map(|with| Matcher::read(&fields.path_of("with"), with)).transpose()?,
            before: fields.value("before").map(|before| moment(&fields.path_of("before"), before)).transpose()?,
            charge: charge_of(&fields, &answer, &on)?,
            on,
            answer,
            after: fields
                .value("after")
                .map(|after| moment(&fields.path_of("after"), after))
                .transpose()?
                .unwrap_or_default(),
        })
    }

    pub(crate) fn is_of_models(&self) -> bool {
        self.on == MODEL || self.on == AGENT_MODEL
    }

    fn wants(&self) -> String {
        let text = |key: &str, value: &Option<String>| value.as_ref().map(|value| format!("{key}: {value}"));
        let number = |key: &str, value: Option<u64>| value.map(|value| format!("{key}: {value}"));
        let parts = [
            text("agent", &self.agent),
            text("tool", &self.tool),
            text("task", &self.task),
            number("attempt", self.attempt),
            number("round", self.round),
            text("role", &self.role),
            (!self.contains.is_empty()).then(|| format!("contains: {}", self.contains.join(", "))),
            self.with.as_ref().map(|with| format!("with: {with}")),
        ];
        format!("{{ {} }}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }

    /// Whether it is about work, whoever does it.
    pub(crate) fn is_of_anybody(&self) -> bool {
        self.on == Purpose::ExecuteWorker.as_str() && self.agent.is_none()
    }

    /// A tool calls no tools: who answers with calls is no tool.
    fn fits_tool(&self, called: Option<&str>) -> bool {
        let calls = matches!(&self.answer, Answer::Say(said) if said.get("tool_calls").is_some());
        match &self.tool {
            Some(wanted) => called == Some(wanted),
            None => called.is_none() || !calls,
        }
    }

    pub(crate) fn fits(&self, asked: &Asked) -> bool {
        let call = &asked.call;
        let role = || call.context.get("role").and_then(Value::as_str);
        let with = || self.with.as_ref().is_none_or(|with| with.check(Some(&asked.data), "").is_ok());
        asked.is(&self.on)
            && self.agent.as_ref().is_none_or(|agent| asked.is_of(agent))
            && self.fits_tool(asked.tool())
            && self.task.as_ref().is_none_or(|task| asked.task().as_ref() == Some(task))
            && self.attempt.is_none_or(|attempt| attempt == u64::from(call.attempt))
            && self.round.is_none_or(|round| round == u64::from(call.round))
            && self.role.as_deref().is_none_or(|wanted| role() == Some(wanted))
            && self.contains.iter().all(|text| call.prompt.contains(text.as_str()))
            && self.before.is_none_or(|before| asked.at < BEGIN.plus(before))
            && with()
    }
}

/// What an answer took is said beside it where a model gives it; any other answer says it itself.
fn charge_of(fields: &Fields<'_>, answer: &Answer, on: &str) -> Result<ModelCharge, FieldError> {
    let Some(charge) = ModelCharge::read(fields)? else { return Ok(ModelCharge::default()) };
    let key = ModelCharge::KEYS.into_iter().find(|key| fields.value(key).is_some()).unwrap_or_default();
    if ![MODEL, AGENT_MODEL].contains(&on) {
        let why = "only a model says it beside its answer (`on: model`); any other answer has `tokens` and `cost_usd` of its own";
        return Err(fields.error(key, why));
    }
    match answer {
        Answer::Say(_) => Ok(charge),
        Answer::Fail { .. } => Err(fields.error(key, "is of an answer: give it beside `say`")),
    }
}

/// The rules for calls of this kind, and what they want of them: one of them was probably meant.
pub(crate) fn near_rules(world: &[Rule], asked: &Asked) -> String {
    let of_kind = world.iter().enumerate().filter(|(_, rule)| asked.is(&rule.on));
    of_kind.map(|(place, rule)| format!("world[{place}] {}", rule.wants())).collect::<Vec<_>>().join("; ")
}

/// A text or a number: tasks are named by either.
pub(crate) fn id(fields: &Fields<'_>, key: &str) -> Result<Option<String>, FieldError> {
    match fields.value(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(other) => Err(fields.error(key, format!("expected a name or a number, found {other}"))),
    }
}

/// The rule that would answer a call, as it is written.
pub(crate) fn missing_rule(asked: &Asked) -> String {
    let call = &asked.call;
    let task = asked.task().map_or_else(String::new, |task| format!(", task: {task}"));
    let agent = call.agent.as_ref().map_or_else(String::new, |agent| format!(", agent: {}", json!(agent)));
    let tool = asked.tool().map_or_else(String::new, |tool| format!(", tool: {tool}"));
    format!("- {{ on: {}{task}{agent}{tool}, say: … }}", asked.on())
}
