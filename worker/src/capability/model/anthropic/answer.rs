//! Answers of the Messages format, whole and streamed.
//!
//! Invariant: both ways give the same answer, since both end in the same blocks. `input` of the usage counts what was
//! read from and written to the cache, which this format leaves out of `input_tokens`. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::AnswerTool;
use crate::capability::model::wire::{Assembler, TOOL_CALLS_MAX, arguments, cut, malformed, with_distinct_ids};
use crate::capability::model::{
    AssistantMessage, ChatRequest, ChatResponse, ModelError, StopReason, StreamToken, TokenSink, ToolCall, Usage,
};

/// A whole answer.
pub(in crate::capability::model) fn read(request: &ChatRequest, body: &Value) -> Result<ChatResponse, ModelError> {
    let blocks =
        body.get("content").and_then(Value::as_array).ok_or_else(|| malformed("the answer has no `content`"))?;
    let blocks = blocks.iter().map(Block::read).collect::<Result<Vec<_>, _>>()?;
    let counts = Counts::default().and(body.get("usage"));
    let reason = body.get("stop_reason").and_then(Value::as_str);
    answer(AnswerTool::of(request).as_ref(), blocks, reason, counts, body)
}

#[derive(Debug)]
enum Block {
    Text(String),
    Tool {
        id: String,
        name: String,
        input: Value,
    },
    /// Thinking, and whatever else is not part of what was said.
    Other,
}

impl Block {
    fn read(block: &Value) -> Result<Block, ModelError> {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(match block.get("type").and_then(Value::as_str) {
            Some("text") => Block::Text(text("text")),
            Some("tool_use") if text("name").is_empty() => return Err(malformed("a tool call has no name")),
            Some("tool_use") => {
                let input = block.get("input").cloned().unwrap_or_else(|| json!({}));
                Block::Tool { id: text("id"), name: text("name"), input }
            }
            Some(_) => Block::Other,
            None => return Err(malformed("a part of the answer has no `type`")),
        })
    }
}

/// The latest counts that were given: a stream says them in pieces.
#[derive(Debug, Clone, Default)]
struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    fn and(mut self, usage: Option<&Value>) -> Counts {
        let Some(usage) = usage else { return self };
        for name in ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"] {
            self.0.extend(usage.get(name).and_then(Value::as_u64).map(|count| (name, count)));
        }
        self
    }
    fn usage(&self) -> Usage {
        let count = |name: &str| self.0.get(name).copied();
        let (read, write) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
        let all = |plain: u64| plain.saturating_add(read.unwrap_or(0)).saturating_add(write.unwrap_or(0));
        Usage {
            input: count("input_tokens").map(all),
            cache_read: read,
            cache_write: write,
            output: count("output_tokens"),
            reasoning: None,
        }
    }
}

fn answer(
    tool: Option<&AnswerTool>,
    blocks: Vec<Block>,
    reason: Option<&str>,
    counts: Counts,
    message: &Value,
) -> Result<ChatResponse, ModelError> {
    let mut content = String::new();
    let mut calls = Vec::new();
    let mut answered = None;
    for block in blocks {
        match (block, tool) {
            (Block::Text(text), _) => content.push_str(&text),
            (Block::Tool { name, input, .. }, Some(tool)) if name == tool.name => answered = Some(tool.answer(input)),
            (Block::Tool { id, name, input }, _) => calls.push(ToolCall { id, name, arguments: input }),
            (Block::Other, _) => {}
        }
    }
    let calls = with_distinct_ids(calls)?;
    // What is said beside the answer is no part of it: it would be no JSON. With other calls the answer came too early.
    if let Some(answered) = answered.filter(|_| calls.is_empty()) {
        content = match answered {
            Value::String(text) if reason == Some("max_tokens") => text,
            data => data.to_string(),
        };
    }
    let text = |name: &str| message.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(ChatResponse {
        stop: match reason {
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
            Some("refusal") => StopReason::Refusal,
            None | Some("end_turn" | "stop_sequence" | "tool_use") if !calls.is_empty() => StopReason::ToolCalls,
            None | Some("end_turn" | "stop_sequence" | "tool_use") => StopReason::End,
            Some(other) => StopReason::Other(other.to_owned()),
        },
        said: AssistantMessage { content, tool_calls: calls },
        usage: counts.usage(),
        model: text("model").unwrap_or_default(),
        id: text("id"),
    })
}

/// The fold over the events of a stream.
#[derive(Debug)]
pub(in crate::capability::model) struct MessagesStream {
    tool: Option<AnswerTool>,
    message: Value,
    blocks: BTreeMap<u64, OpenBlock>,
    counts: Counts,
    reason: Option<String>,
    ended: bool,
}

/// A block that grows.
#[derive(Debug)]
struct OpenBlock {
    block: Block,
    /// The pieces of a tool's input.
    written: String,
}

impl MessagesStream {
    pub(in crate::capability::model) fn new(request: &ChatRequest) -> Self {
        MessagesStream {
            tool: AnswerTool::of(request),
            message: Value::Null,
            blocks: BTreeMap::new(),
            counts: Counts::default(),
            reason: None,
            ended: false,
        }
    }

    fn open(&mut self, index: u64, data: &Value, sink: &mut dyn TokenSink) -> Result<(), ModelError> {
        if self.blocks.len() >= TOOL_CALLS_MAX * 8 {
            return Err(malformed("the answer has too many parts"));
        }
        let block = Block::read(data.get("content_block").unwrap_or(&Value::Null))?;
        match &block {
            Block::Text(text) if !text.is_empty() => sink.token(StreamToken::Text(text)),
            Block::Tool { name, .. } if !self.is_answer(name) => sink.token(StreamToken::ToolCall(name)),
            _ => {}
        }
        self.blocks.insert(index, OpenBlock { block, written: String::new() });
        Ok(())
    }

    fn is_answer(&self, name: &str) -> bool {
        self.tool.as_ref().is_some_and(|tool| tool.name == *name)
    }

    fn delta(&mut self, index: u64, data: &Value, sink: &mut dyn TokenSink) -> Result<(), ModelError> {
        let tool = self.tool.as_ref();
        let open =
            self.blocks.get_mut(&index).ok_or_else(|| malformed("a part of the answer grows before it begins"))?;
        let piece = |name: &str| data.pointer(name).and_then(Value::as_str).unwrap_or_default();
        match &mut open.block {
            Block::Text(text) => {
                let piece = piece("/delta/text");
                if !piece.is_empty() {
                    sink.token(StreamToken::Text(piece));
                    text.push_str(piece);
                }
            }
            Block::Tool { name, .. } => {
                let piece = piece("/delta/partial_json");
                // The input of the answer tool is the text of the answer.
                if !piece.is_empty() && tool.is_some_and(|tool| tool.name == *name) {
                    sink.token(StreamToken::Text(piece));
                }
                open.written.push_str(piece);
            }
            Block::Other => {}
        }
        Ok(())
    }
}

impl Assembler for MessagesStream {
    fn event(&mut self, data: &Value, sink: &mut dyn TokenSink) -> Result<(), ModelError> {
        let index = data.get("index").and_then(Value::as_u64).unwrap_or(0);
        match data.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                let message = data.get("message").unwrap_or(&Value::Null);
                self.counts = std::mem::take(&mut self.counts).and(message.get("usage"));
                self.message = message.clone();
            }
            Some("content_block_start") => self.open(index, data, sink)?,
            Some("content_block_delta") => self.delta(index, data, sink)?,
            Some("message_delta") => {
                self.counts = std::mem::take(&mut self.counts).and(data.get("usage"));
                let reason = data.pointer("/delta/stop_reason").and_then(Value::as_str);
                self.reason = reason.map(str::to_owned).or(self.reason.take());
            }
            Some("message_stop") => self.ended = true,
            _ => {} // `ping`, `content_block_stop`, and what is to come
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.ended
    }

    fn finish(self: Box<Self>) -> Result<ChatResponse, ModelError> {
        if !self.ended {
            return Err(cut());
        }
        let whole = |OpenBlock { block, written }: OpenBlock| match block {
            Block::Tool { id, name, .. } if !written.trim().is_empty() => {
                Block::Tool { id, name, input: arguments(&written) }
            }
            other => other,
        };
        let blocks = self.blocks.into_values().map(whole).collect();
        answer(self.tool.as_ref(), blocks, self.reason.as_deref(), self.counts, &self.message)
    }
}
