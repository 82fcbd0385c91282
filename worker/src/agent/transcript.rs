//! The conversation of an agent: a list of places where its messages are found in the run's own history.
//!
//! ```text
//!   call 1: [system, task]                        answer 1
//!   call 2: after call 1: [result of tool a, ..]  answer 2       each says only what is new since the call before
//! ```
//!
//! Invariant: a message is in the history once, as the result of the activity that gave it (or as the input of the run);
//! everything else names it by the number of that activity. So a conversation of n messages costs O(n) on disk, and so
//! does the state. Messages that the machine writes itself are short and stand in the list. Pure; `resolve` turns the
//! list into messages.

use serde::{Deserialize, Serialize};

use super::spec::AgentSpec;
use crate::capability::model::{AssistantMessage, Message, tokens};

/// A message by its place. Numbers are those of activities and children (`Seq`) in the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TranscriptItem {
    /// The spec's system prompt.
    System,
    /// The spec's task.
    Task,
    /// What the model said in this call.
    #[serde(rename = "said")]
    Response(u64),
    /// What this tool or agent gave, for the next call of a tool that has no answer yet.
    Given(u64),
    /// What the model said in this call, as the summary of what was before.
    Summary(u64),
    /// A message of the machine.
    Own(Message),
    /// One of the messages that the run before has left to this one, by its place among them.
    Carried { message: usize, was: CarriedItem },
}

/// What a message was in the run before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarriedItem {
    Response,
    Given,
    Summary,
}

impl TranscriptItem {
    /// What the next run has to be given; the rest it has in its spec and its state.
    pub fn to_carry(&self) -> Option<CarriedItem> {
        match self {
            TranscriptItem::Response(_) => Some(CarriedItem::Response),
            TranscriptItem::Given(_) => Some(CarriedItem::Given),
            TranscriptItem::Summary(_) => Some(CarriedItem::Summary),
            TranscriptItem::Carried { was, .. } => Some(*was),
            TranscriptItem::System | TranscriptItem::Task | TranscriptItem::Own(_) => None,
        }
    }
}

/// The conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// With the estimate of tokens.
    items: Vec<(TranscriptItem, u32)>,
    /// The call that was told everything up to `sent`, its own answer included.
    told: Option<u64>,
    sent: usize,
}

/// Asked of the model when the conversation gets too long.
pub const ASK_FOR_SUMMARY: &str = "Sum up this conversation so far, for yourself: you will go on from your summary \
    alone. Keep the task, decisions and their reasons, facts, names, numbers and paths word for word, what was done, \
    and what is still to be done. Answer with the summary only.";

impl Transcript {
    pub fn new(spec: &AgentSpec) -> Transcript {
        let mut items = Vec::new();
        if !spec.system.is_empty() {
            items.push((TranscriptItem::System, tokens(spec.system.len())));
        }
        items.push((TranscriptItem::Task, tokens(spec.task.len())));
        Transcript { items, told: None, sent: 0 }
    }

    /// What the next call must say: the call it follows on, and what is new since then.
    pub fn next_call(&self) -> (Option<u64>, Vec<TranscriptItem>) {
        (self.told, self.items[self.sent..].iter().map(|(item, _)| item.clone()).collect())
    }
    /// The call was answered.
    pub fn answered(&mut self, call: u64, said: &AssistantMessage) {
        self.items.push((TranscriptItem::Response(call), said_tokens(said)));
        self.told = Some(call);
        self.sent = self.items.len();
    }
    pub fn given(&mut self, item: TranscriptItem, tokens: u32) {
        self.items.push((item, tokens));
    }
    pub fn own(&mut self, message: Message) {
        let tokens = message_tokens(&message);
        self.items.push((TranscriptItem::Own(message), tokens));
    }
    /// With the estimates.
    pub fn items(&self) -> &[(TranscriptItem, u32)] {
        &self.items
    }
    /// What stood in the history stands in the input of the run from here on. The next call says the whole list anew.
    pub fn carry(&mut self) {
        let mut message = 0;
        for (item, _) in &mut self.items {
            if let Some(was) = item.to_carry() {
                *item = TranscriptItem::Carried { message, was };
                message += 1;
            }
        }
        (self.told, self.sent) = (None, 0);
    }
    /// The tokens of the whole, estimated.
    pub fn estimate(&self) -> u64 {
        self.items.iter().map(|(_, tokens)| u64::from(*tokens)).sum()
    }
    pub fn len(&self) -> usize {
        self.items.len()
    }
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Where the older half ends, if there is one: calls of tools and their results stay together, and so do the system
    /// prompt and the task. A summary alone is no half: its summary would be no shorter, and would be asked for again.
    pub fn half(&self) -> Option<usize> {
        self.part(0)
    }
    /// As [`Transcript::half`]; halved again so many times.
    pub fn part(&self, halvings: u32) -> Option<usize> {
        let head = self.head();
        let first = self.items.get(head).and_then(|(item, _)| item.to_carry());
        let summed_up = first == Some(CarriedItem::Summary);
        let least = head + 1 + usize::from(summed_up);
        let starts: Vec<usize> = (least..self.items.len()).filter(|at| self.starts_group(*at)).collect();
        let whole: u64 = self.items[head..].iter().map(|(_, tokens)| u64::from(*tokens)).sum();
        let mut before: u64 = 0;
        for (at, (_, tokens)) in self.items.iter().enumerate().skip(head) {
            if starts.contains(&at) && before.saturating_mul(2 << halvings.min(32)) >= whole {
                return Some(at);
            }
            before += u64::from(*tokens);
        }
        starts.last().copied()
    }
    /// The items that are to be summed up, as a call of its own.
    pub fn older(&self, half: usize) -> Vec<TranscriptItem> {
        let ask = TranscriptItem::Own(Message::User { content: ASK_FOR_SUMMARY.to_owned() });
        self.items[..half].iter().map(|(item, _)| item.clone()).chain([ask]).collect()
    }
    pub fn older_estimate(&self, half: usize) -> u64 {
        self.items[..half].iter().map(|(_, tokens)| u64::from(*tokens)).sum()
    }
    /// The older half becomes its summary. The next call says the whole list anew.
    pub fn compact(&mut self, half: usize, summary: u64, said: &AssistantMessage) {
        let mut items = self.items[..self.head()].to_vec();
        items.push((TranscriptItem::Summary(summary), said_tokens(said)));
        items.extend_from_slice(&self.items[half..]);
        *self = Transcript { items, told: None, sent: 0 };
    }

    fn head(&self) -> usize {
        self.items.iter().take_while(|(item, _)| matches!(item, TranscriptItem::System | TranscriptItem::Task)).count()
    }
    fn starts_group(&self, at: usize) -> bool {
        match &self.items[at].0 {
            TranscriptItem::Given(_) | TranscriptItem::Own(Message::Tool { .. }) => false,
            TranscriptItem::Carried { was, .. } => *was != CarriedItem::Given,
            TranscriptItem::System
            | TranscriptItem::Task
            | TranscriptItem::Response(_)
            | TranscriptItem::Summary(_)
            | TranscriptItem::Own(_) => true,
        }
    }
}

/// The message of a summary.
pub fn summary_message(text: &str) -> Message {
    let text = if text.is_empty() { "(there is no summary)" } else { text };
    Message::User { content: format!("This is what happened so far, as you summed it up:\n\n{text}") }
}

/// The beginning of a text, and how much is missing.
pub fn cut(mut text: String, bytes_max: u64) -> String {
    if let Some((end, missing)) = cut_at(&text, bytes_max) {
        text.truncate(end);
        text.push_str(&missing);
    }
    text
}
/// How long that is.
pub(super) fn cut_bytes(text: &str, bytes_max: u64) -> usize {
    cut_at(text, bytes_max).map_or(text.len(), |(end, missing)| end + missing.len())
}
/// Where a text is cut, if it is too long, and what is said there.
fn cut_at(text: &str, bytes_max: u64) -> Option<(usize, String)> {
    let most = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    if text.len() <= most {
        return None;
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Some((end, format!("\n[{} more bytes were cut off]", text.len() - end)))
}

pub fn said_tokens(said: &AssistantMessage) -> u32 {
    let calls: usize = said.tool_calls.iter().map(|call| call.name.len() + call.arguments.to_string().len() + 16).sum();
    tokens(said.content.len() + calls)
}

fn message_tokens(message: &Message) -> u32 {
    match message {
        Message::System { content } | Message::User { content } | Message::Tool { content, .. } => {
            tokens(content.len())
        }
        Message::Assistant(said) => said_tokens(said),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::capability::model::ToolCall;

    fn spec() -> AgentSpec {
        serde_json::from_value(json!({ "name": "a", "provider": "p", "model": "m", "system": "s", "task": "t" }))
            .unwrap()
    }
    fn said(calls: usize) -> AssistantMessage {
        let call = |n: usize| ToolCall { id: n.to_string(), name: "x".into(), arguments: json!({}) };
        AssistantMessage { content: "words".into(), tool_calls: (0..calls).map(call).collect() }
    }

    #[test]
    fn a_call_says_only_what_is_new() {
        let mut transcript = Transcript::new(&spec());
        assert_eq!(transcript.next_call(), (None, vec![TranscriptItem::System, TranscriptItem::Task]));
        transcript.answered(1, &said(1));
        transcript.given(TranscriptItem::Given(2), 10);
        assert_eq!(transcript.next_call(), (Some(1), vec![TranscriptItem::Given(2)]));
    }

    #[test]
    fn results_are_cut_between_characters() {
        for (most, text) in [(3, "ä\n[4 more bytes were cut off]"), (6, "äöü")] {
            assert_eq!(cut("äöü".to_owned(), most), text);
            assert_eq!(cut_bytes("äöü", most), text.len());
        }
    }

    #[test]
    fn a_summary_is_summed_up_only_with_what_follows_it() {
        let mut transcript = Transcript::new(&spec());
        for call in 1..3 {
            transcript.answered(call, &said(0));
            transcript.own(Message::User { content: "again".into() });
        }
        let half = transcript.half().unwrap();
        let long = AssistantMessage { content: "long ".repeat(400), tool_calls: Vec::new() };
        transcript.compact(half, 9, &long);
        transcript.answered(10, &said(1));
        let (head, all) = (transcript.head(), transcript.len());
        assert!(matches!(transcript.items[head].0, TranscriptItem::Summary(9)), "{transcript:?}");
        assert_eq!(transcript.half(), Some(head + 2), "together with the next group");
        transcript.compact(all - 1, 11, &long);
        assert_eq!(transcript.half(), None, "there is only the summary and what was said last");
    }

    proptest! {
        /// Whatever is summed up: no result of a tool is parted from its call, and the head stays.
        #[test]
        fn a_call_and_its_results_are_never_parted(turns in prop::collection::vec((0..4_usize, 1..400_u32), 0..20)) {
            let mut transcript = Transcript::new(&spec());
            let mut number = 0;
            for (calls, size) in &turns {
                number += 1;
                transcript.answered(number, &said(*calls));
                for _ in 0..*calls {
                    number += 1;
                    transcript.given(TranscriptItem::Given(number), *size);
                }
                if *calls == 0 {
                    transcript.own(Message::User { content: "again".into() });
                }
            }
            let before = transcript.clone();
            let Some(half) = transcript.half() else {
                prop_assert!(turns.len() < 2);
                return Ok(());
            };
            prop_assert!(half > 2 && transcript.starts_group(half));
            transcript.compact(half, 999, &said(0));
            prop_assert!(transcript.estimate() < before.estimate() + 16);
            prop_assert_eq!(&transcript.items[..2], &before.items[..2]);
            prop_assert_eq!(&transcript.items[3..], &before.items[half..]);
            prop_assert_eq!(transcript.next_call().1.len(), transcript.len());
        }
    }
}
