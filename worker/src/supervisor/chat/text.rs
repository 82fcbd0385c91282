//! The texts a group chat shows to models and people.
//!
//! Invariant: pure functions of the chat; agents and candidates appear in list order. They decide nothing.

use serde_json::Value;

use super::message::{ChatMessage, ChatToolCall};
use super::rules::{ChatAgent, listed};
use crate::supervisor::reading::text_of;

/// Why a model is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SelectionHint {
    None,
    Several,
    /// It named one that may not speak now.
    Repeated,
}

impl SelectionHint {
    pub(super) fn text(self, candidates: &[String]) -> String {
        let names = listed(candidates.iter().map(String::as_str));
        match self {
            SelectionHint::None => format!(
                "Your answer named no speaker. If it spoke as somebody, give that name; else the one it called next. \
                 Only these names are accepted, exactly as written: {names}. Answer with one name and nothing else."
            ),
            SelectionHint::Several => format!(
                "Your answer named more than one speaker. If it spoke as one of them, give that name; else the one it \
                 called next; else the first. Choose from {names}. Answer with one name and nothing else."
            ),
            SelectionHint::Repeated => format!(
                "Repeated speaker is not allowed: the one you named may not speak now. Choose another name from {names}. \
                 Answer with one name and nothing else."
            ),
        }
    }
}

/// The roles, one a line.
pub(super) fn roles<'a>(agents: impl IntoIterator<Item = &'a ChatAgent>) -> String {
    let line = |agent: &ChatAgent| {
        let about = agent.description.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{}: {about}", agent.name).trim_end().to_owned()
    };
    agents.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What was said, one paragraph a message.
pub(super) fn conversation<'a>(messages: impl IntoIterator<Item = &'a ChatMessage>) -> String {
    let said = |message: &ChatMessage| {
        let one = message.function_call.iter().map(|call| called(&call.name, &call.arguments));
        let all = message.tool_calls.iter().map(|call| called(&call.name, &call.arguments));
        let calls: Vec<String> = message.context.iter().map(done).chain(one).chain(all).collect();
        let gap = if message.content.trim().is_empty() || calls.is_empty() { "" } else { "\n" };
        format!("{}: {}{gap}{}", message.from, message.content.trim_end(), calls.join("\n"))
    };
    messages.into_iter().map(said).collect::<Vec<_>>().join("\n\n")
}

/// A call that was made before its speaker handed over, with what it gave (AGC-21).
fn done(call: &ChatToolCall) -> String {
    let gave = call.result.as_ref().map(|result| format!(": {}", text_of(result))).unwrap_or_default();
    format!("[has called {}({}){gave}]", call.name, text_of(&call.arguments))
}

/// A function that somebody is to run: whoever speaks next is asked for what it gives.
fn called(name: &str, arguments: &Value) -> String {
    format!("[calls {name}({})]", text_of(arguments))
}

pub(super) fn introduction(agents: &[ChatAgent]) -> String {
    format!("Hello everyone. These are the participants of this chat and what they do:\n\n{}", roles(agents))
}

/// The prompt for a choice: who there is, what was said, what to answer, and what was wrong with the last answer.
pub(super) fn selection(
    agents: &[ChatAgent],
    candidates: &[String],
    said: &[ChatMessage],
    hint: Option<&str>,
) -> String {
    let names = listed(candidates.iter().map(String::as_str));
    let shown = roles(agents.iter().filter(|agent| candidates.contains(&agent.name)));
    let mut prompt = format!(
        "You lead a conversation between these roles:\n{shown}\n\nThe conversation so far:\n{}\n\n\
         Choose the role from {names} that speaks next. Answer with its name only.",
        conversation(said),
    );
    if let Some(hint) = hint {
        prompt.push_str("\n\n");
        prompt.push_str(hint);
    }
    prompt
}

/// What a human is shown to choose.
pub(super) fn human_choice(candidates: &[String], again: bool) -> String {
    let count = candidates.len();
    let mut prompt = match again {
        true => format!("Invalid input. Please enter a number between 1 and {count}.\n"),
        false => String::new(),
    };
    prompt.push_str("Please select the next speaker from the following list:\n");
    for (at, name) in candidates.iter().enumerate() {
        prompt.push_str(&format!("{}: {name}\n", at + 1));
    }
    prompt.push_str("Enter the number of the next speaker (nothing or `q`: the next one in the list speaks).");
    prompt
}

// Magentic-One's orchestrator.

pub(super) fn facts(task: &str) -> String {
    format!(
        "Before we begin, think about this request:\n\n{task}\n\nWrite down, under four headings and nothing else:\n\
         1. GIVEN OR VERIFIED FACTS: what the request itself states.\n\
         2. FACTS TO LOOK UP: what must be found, and where.\n\
         3. FACTS TO DERIVE: what must be computed or concluded.\n\
         4. EDUCATED GUESSES: what you remember or suppose.\n\
         Make no plan yet."
    )
}

pub(super) fn plan(task: &str, facts: &str, team: &str) -> String {
    format!(
        "The request:\n\n{task}\n\nThe facts as known:\n\n{facts}\n\nThis team answers it:\n\n{team}\n\n\
         Write a short plan as a list of steps. Not every member has to take part."
    )
}

pub(super) fn task_ledger(task: &str, team: &str, facts: &str, plan: &str) -> String {
    format!(
        "We work on this request:\n\n{task}\n\nWith this team:\n\n{team}\n\nThe facts to begin with:\n\n{facts}\n\n\
         The plan to follow as well as possible:\n\n{plan}"
    )
}

pub(super) fn progress(task: &str, team: &str, names: &[String]) -> String {
    let names = names.join(", ");
    format!(
        "The request is:\n\n{task}\n\nThe team is:\n\n{team}\n\nAnswer these questions, each with the reason:\n\
         - is_request_satisfied: has the whole request been answered? (true or false)\n\
         - is_in_loop: are the same requests or answers repeated? (true or false)\n\
         - is_progress_being_made: did the last messages bring something new? (true or false)\n\
         - next_speaker: who speaks next? (one of: {names})\n\
         - instruction: what shall that speaker do or answer? (said to them directly, with all they need)\n\n\
         Answer with JSON only, in this form:\n\
         {{\"is_request_satisfied\": {{\"reason\": text, \"answer\": true or false}}, \
         \"is_in_loop\": {{\"reason\": text, \"answer\": true or false}}, \
         \"is_progress_being_made\": {{\"reason\": text, \"answer\": true or false}}, \
         \"next_speaker\": {{\"reason\": text, \"answer\": name}}, \
         \"instruction\": {{\"reason\": text, \"answer\": text}}}}"
    )
}

pub(super) fn facts_update(task: &str, facts: &str) -> String {
    format!(
        "We work on this request and make too little progress:\n\n{task}\n\nThe facts so far:\n\n{facts}\n\n\
         Write them anew with what has been learned: move guesses that proved true to the verified facts, and add at \
         least one new educated guess with its reason."
    )
}

pub(super) fn plan_update(task: &str, facts: &str, team: &str) -> String {
    format!(
        "The request:\n\n{task}\n\nThe facts now:\n\n{facts}\n\nSay in short what went wrong with the last plan. Then \
         write a new plan as a list of steps that avoids it, for this team:\n\n{team}"
    )
}

pub(super) fn final_answer(task: &str) -> String {
    format!(
        "We worked on this request:\n\n{task}\n\nThe conversation above shows what was done. Give the final answer to the \
         request, addressed to the one who asked it."
    )
}
