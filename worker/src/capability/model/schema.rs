//! The `schema` model: valid data made from a JSON Schema, for tests and first runs. It calls nothing.
//!
//! Invariant: equal requests and seeds have equal answers. Every tool of the request is called once with arguments that
//! conform to its schema; after their results the answer conforms to the request's schema, or is a sentence. What cannot
//! be made is an error and never invalid data.

use serde_json::{Value, json};

use super::call::code;
use super::conform::problems;
use super::function::show;
use super::{
    Answering, AssistantMessage, ChatRequest, ChatResponse, Message, Model, ModelCallContext, ModelError, StopReason,
    TokenSink, ToolCall, ToolChoice, ToolSpec, Usage,
};
use crate::canonical;

mod generate;

use generate::Generator;

/// Makes answers of schemas.
#[derive(Debug, Clone, Copy, Default)]
pub struct SchemaModel {
    seed: u64,
}

impl SchemaModel {
    /// A model whose answers depend on this seed and the request alone.
    pub fn new(seed: u64) -> Self {
        SchemaModel { seed }
    }

    fn answer(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let seed = format!("{}/{}", self.seed, canonical::hash(&canonical::of(request)));
        let tools = tools_to_call(request);
        let said = if tools.is_empty() {
            let content = match &request.schema {
                Some(output) => valid(&seed, "answer", &output.schema)?.to_string(),
                None => format!("An answer to {} messages.", request.messages.len()),
            };
            AssistantMessage { content, tool_calls: Vec::new() }
        } else {
            let call = |(i, tool): (usize, &&ToolSpec)| {
                let arguments = valid(&seed, &tool.name, &tool.parameters)?;
                Ok(ToolCall {
                    id: format!("call_{i}_{}", &canonical::hash(&json!(seed))[..8]),
                    name: tool.name.clone(),
                    arguments,
                })
            };
            let tool_calls = tools.iter().enumerate().map(call).collect::<Result<_, ModelError>>()?;
            AssistantMessage { content: String::new(), tool_calls }
        };
        Ok(answer_of(request, said))
    }
}

/// An answer of a model in this program, with tokens counted by a rule of thumb.
pub(super) fn answer_of(request: &ChatRequest, said: AssistantMessage) -> ChatResponse {
    let tokens = |data: Value| Some((data.to_string().len() as u64).div_ceil(4));
    ChatResponse {
        stop: if said.tool_calls.is_empty() { StopReason::End } else { StopReason::ToolCalls },
        usage: Usage {
            input: tokens(canonical::of(&request.messages)),
            output: tokens(canonical::of(&said)),
            ..Usage::default()
        },
        said,
        model: request.model.clone(),
        id: None,
    }
}

/// Each tool once in a conversation, since the last word of a person.
fn tools_to_call(request: &ChatRequest) -> Vec<&ToolSpec> {
    let since = request.messages.iter().rposition(|message| matches!(message, Message::User { .. })).unwrap_or(0);
    let recent = &request.messages[since.min(request.messages.len())..];
    let called = |tool: &&ToolSpec| {
        recent.iter().any(|message| matches!(message, Message::Tool { name, .. } if *name == tool.name))
    };
    let all = request.tools.iter();
    match &request.tool_choice {
        ToolChoice::None => Vec::new(),
        ToolChoice::Auto => all.filter(|tool| !called(tool)).collect(),
        // An answer without a call is none here.
        ToolChoice::Required => match all.clone().filter(|tool| !called(tool)).collect::<Vec<_>>() {
            none if none.is_empty() => all.take(1).collect(),
            some => some,
        },
        ToolChoice::Tool(name) => all.filter(|tool| tool.name == *name).collect(),
    }
}

fn valid(seed: &str, what: &str, schema: &Value) -> Result<Value, ModelError> {
    let value = Generator::new(schema, &format!("{seed}/{what}")).value();
    match problems(schema, &value) {
        none if none.is_empty() => Ok(value),
        problems => {
            let message = format!("the schema model cannot make data for `{what}`: {}", problems.join("; "));
            Err(ModelError::fatal(code::SCRIPT, message))
        }
    }
}

impl Model for SchemaModel {
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        _: &'a ModelCallContext,
        sink: &'a mut dyn TokenSink,
    ) -> Answering<'a> {
        Box::pin(async move {
            let response = self.answer(request)?;
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
