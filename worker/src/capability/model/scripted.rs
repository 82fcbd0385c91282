//! The `scripted` model: rules that say what is answered, for demonstrations and tests of whole programs.
//!
//! Invariant: the first rule that fits answers; what fits depends on the request alone, so a repeated request has the
//! same answer. A request that no rule fits is an error that shows what was asked. It is free.

use std::path::Path;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call::code;
use super::errors::excerpt;
use super::function::show;
use super::schema::answer_of;
use super::{
    Answering, AssistantMessage, ChatRequest, ChatResponse, ErrorClass, Message, Model, ModelCallContext, ModelError,
    TokenSink, ToolCall,
};

/// The rules, in order. In a file: YAML or JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelScript {
    pub rules: Vec<ModelRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRule {
    /// All of it has to fit; without anything, everything does.
    #[serde(default)]
    pub when: RuleCondition,
    pub then: RuleAnswer,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleCondition {
    /// A regular expression for the name of the model.
    pub model: Option<RulePattern>,
    /// For the system messages.
    pub system: Option<RulePattern>,
    /// For the last message of a person.
    pub user: Option<RulePattern>,
    /// For any message.
    pub any: Option<RulePattern>,
    /// How often the model has spoken before.
    pub turn: Option<usize>,
    /// The last message is a result of this tool.
    pub tool: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleAnswer {
    pub say: Option<String>,
    /// Data, said as JSON.
    pub give: Option<Value>,
    pub calls: Vec<ScriptedCall>,
    pub fail: Option<ScriptedError>,
    pub latency_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    pub name: String,
    #[serde(default)]
    pub arguments: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedError {
    pub class: ScriptedClass,
    pub message: String,
    #[serde(default)]
    pub status: Option<u16>,
    /// For `retry`: not before this long.
    #[serde(default)]
    pub after_ms: Option<u64>,
    /// Fails up to this attempt, and is passed over from the next one on.
    #[serde(default)]
    pub attempts: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptedClass {
    Retry,
    NeedsHuman,
    Fatal,
}

/// A regular expression that is known to be one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RulePattern(Regex);

impl TryFrom<String> for RulePattern {
    type Error = regex::Error;
    fn try_from(text: String) -> Result<Self, regex::Error> {
        Regex::new(&text).map(RulePattern)
    }
}

impl From<RulePattern> for String {
    fn from(pattern: RulePattern) -> String {
        pattern.0.as_str().to_owned()
    }
}

impl PartialEq for RulePattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl ModelScript {
    /// Reads YAML or JSON.
    pub fn parse(text: &str) -> Result<ModelScript, String> {
        serde_saphyr::from_str(text).map_err(|why| why.to_string())
    }

    pub fn read(path: &Path) -> Result<ModelScript, String> {
        let text = std::fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?;
        ModelScript::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }
}

impl RuleCondition {
    fn fits(&self, request: &ChatRequest) -> bool {
        let RuleCondition { model, system, user, any, turn, tool } = self;
        let fits = |pattern: &Option<RulePattern>, texts: Vec<&str>| {
            pattern.as_ref().is_none_or(|RulePattern(pattern)| texts.iter().any(|text| pattern.is_match(text)))
        };
        let messages = &request.messages;
        let is_user = |message: &&Message| matches!(message, Message::User { .. });
        let is_system = |message: &&Message| matches!(message, Message::System { .. });
        let turns = messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
        let last_tool = match messages.last() {
            Some(Message::Tool { name, .. }) => Some(name),
            _ => None,
        };
        fits(model, vec![&request.model])
            && fits(system, messages.iter().filter(is_system).map(text).collect())
            && fits(user, messages.iter().rev().find(is_user).into_iter().map(text).collect())
            && fits(any, messages.iter().map(text).collect())
            && turn.is_none_or(|turn| turn == turns)
            && (tool.is_none() || tool.as_ref() == last_tool)
    }
}

fn text(message: &Message) -> &str {
    match message {
        Message::System { content } | Message::User { content } | Message::Tool { content, .. } => content,
        Message::Assistant(said) => &said.content,
    }
}

/// Answers by a script.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedModel {
    script: ModelScript,
}

impl ScriptedModel {
    pub fn new(script: ModelScript) -> Self {
        ScriptedModel { script }
    }

    fn rule(&self, request: &ChatRequest, attempt: u32) -> Option<&RuleAnswer> {
        let is_over = |then: &RuleAnswer| {
            then.fail.as_ref().and_then(|fail| fail.attempts).is_some_and(|attempts| attempt > attempts)
        };
        let mut rules = self.script.rules.iter();
        rules.find(|rule| rule.when.fits(request) && !is_over(&rule.then)).map(|rule| &rule.then)
    }
}

fn answer(request: &ChatRequest, then: &RuleAnswer) -> Result<ChatResponse, ModelError> {
    let RuleAnswer { say, give, calls, fail, latency_ms: _ } = then;
    if let Some(ScriptedError { class, message, status, after_ms, attempts: _ }) = fail {
        let class = match class {
            ScriptedClass::Retry => ErrorClass::Retry { after: after_ms.map(Duration::from_millis) },
            ScriptedClass::NeedsHuman => ErrorClass::NeedsHuman,
            ScriptedClass::Fatal => ErrorClass::Fatal,
        };
        return Err(ModelError { class, status: *status, code: Some(code::SCRIPT.into()), message: message.clone() });
    }
    let turns = request.messages.len();
    let call = |(i, call): (usize, &ScriptedCall)| {
        let arguments = if call.arguments.is_null() { serde_json::json!({}) } else { call.arguments.clone() };
        // The place in the conversation makes the id one of its own.
        ToolCall { id: format!("call_{turns}_{i}"), name: call.name.clone(), arguments }
    };
    let content = give.as_ref().map(Value::to_string).or_else(|| say.clone()).unwrap_or_default();
    let said = AssistantMessage { content, tool_calls: calls.iter().enumerate().map(call).collect() };
    Ok(answer_of(request, said))
}

impl Model for ScriptedModel {
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        call: &'a ModelCallContext,
        sink: &'a mut dyn TokenSink,
    ) -> Answering<'a> {
        Box::pin(async move {
            let Some(then) = self.rule(request, call.tag.attempt) else {
                let last = request.messages.last().map(text).unwrap_or_default();
                let message =
                    format!("no rule of the script fits a request to {} with {:?}", request.model, excerpt(last));
                return Err(ModelError::fatal(code::SCRIPT, message));
            };
            tokio::time::sleep(Duration::from_millis(then.latency_ms)).await;
            let response = answer(request, then)?;
            show(&response, sink);
            Ok(response)
        })
    }
    fn is_free(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
