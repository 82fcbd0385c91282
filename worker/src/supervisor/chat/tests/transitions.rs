//! The transition tables of a chat: what it waits for, and what each answer, person and end of a budget makes of that.

use super::machine::ChatPhase;
use super::magentic::OrchestratorStep;
use super::selecting::By;
use super::*;
use crate::supervisor::core::account::{Allowance, Balance};
use crate::supervisor::core::key::{ChatAsk, ChatKey};
use crate::supervisor::spec::OnExhausted;
use crate::transitions::{Event, compare, table};

/// What a chat waits for. Who speaks and what was said is not in it.
fn shown(chat: &GroupChat) -> String {
    let mut state = match (&chat.stage, &chat.end) {
        (_, Some(end)) => return format!("over: {:?}", end.stop),
        (ChatPhase::Selecting(asked), _) => match asked.by {
            By::Auto => format!("a model selects, try {}", asked.attempt),
            by => format!("{by:?} selects"),
        },
        (ChatPhase::Choosing(asked), _) => format!("a person selects, try {}", asked.attempt),
        (ChatPhase::Speaking { tries, .. }, _) => format!("an agent speaks, try {tries}"),
        (ChatPhase::Ledger(OrchestratorStep::Progress { tries }), _) => {
            format!("progress, try {tries}, {} stalls", chat.ledger.stalls)
        }
        (ChatPhase::Ledger(OrchestratorStep::FinalAnswer { .. }), _) => "the final answer".to_owned(),
        (ChatPhase::Ledger(step), _) => format!("{step:?}"),
        (ChatPhase::Over, None) => "nothing".to_owned(),
    };
    if chat.paused {
        state += ", paused";
    }
    state
}

fn spent() -> Outbox {
    let mut balance = Balance::new(Allowance { calls: Some(1), ..Allowance::default() }, OnExhausted::Synthesize);
    balance.spent.calls = 1;
    outbox().with_budget(balance)
}

fn answered(chat: &mut GroupChat, answer: Answer, out: &mut Outbox) {
    // An answer under a key that nobody waits for changes nothing, in any state.
    let before = chat.clone();
    chat.answered(ChatKey { ask: ChatAsk::Speak, n: 99_999 }, answer.clone(), out);
    assert_eq!(*chat, before);
    if let Some(key) = chat.open {
        chat.answered(key, answer, out);
    }
}

fn says<'e>(name: &'e str, answer: Value) -> Event<'e, GroupChat> {
    (name, Box::new(move |chat| answered(chat, Ok(answer.clone()), &mut outbox())))
}

/// What may happen to a chat of any kind.
fn of_all() -> Vec<Event<'static, GroupChat>> {
    let lost = |chat: &mut GroupChat| answered(chat, Err(CallFailure::error("lost")), &mut outbox());
    vec![
        ("the call fails", Box::new(lost)),
        ("a person says something", Box::new(|chat| drop(chat.say("wait", &mut outbox())))),
        ("a person takes the word", Box::new(|chat| drop(chat.interrupt(&mut outbox())))),
        ("paused", Box::new(GroupChat::pause)),
        ("resumed", Box::new(GroupChat::unpause)),
        ("answered, budget spent", Box::new(|chat| answered(chat, Ok(json!("b")), &mut spent()))),
        ("the budget is spent", Box::new(|chat| chat.exhausted(&mut spent()))),
        ("cancelled", Box::new(|chat| chat.cancel("enough", &mut outbox()))),
    ]
}

fn begun(rules: ChatRules) -> GroupChat {
    let rules = ChatRules { max_round: 1_000, on_speaker_error: OnSpeakerError::Retry, ..rules };
    world(rules, &["a", "b"], "user", "go").chat
}

/// AGC-04, AGC-11 and AGC-12: a model, or a person, selects who speaks.
#[test]
fn of_chats_in_which_somebody_selects() {
    let mut text = String::new();
    for method in ["auto", "manual"] {
        let mut events = vec![
            says("answer: a name", json!("b")),
            says("answer: a text", json!("hello")),
            says("answer: the last word", json!("well, TERMINATE")),
            says("answer: null", Value::Null),
        ];
        let choose = |answer: Value| {
            move |chat: &mut GroupChat| {
                if let Some(asked) = chat.human_needed() {
                    let _ = chat.human(&asked.id, &answer, &mut outbox());
                }
            }
        };
        events.push(("a person names one", Box::new(choose(json!("b")))));
        events.push(("a person names nobody", Box::new(choose(json!("zoe")))));
        events.extend(of_all());
        let rules = ChatRules { max_retries_for_selecting_speaker: 1, manual_tries: 2, ..super::method(method) };
        text += &format!("# {method}\n{}\n", table(begun(rules), &events, shown));
    }
    compare("src/supervisor/chat/tests/selecting.txt", &text);
}

/// AGC-19 to AGC-21: an orchestrator, whose team is stuck after two stalls.
#[test]
fn of_a_chat_with_an_orchestrator() {
    let ledger = |satisfied: bool, progress: bool| {
        json!({ "is_request_satisfied": satisfied, "is_in_loop": false, "is_progress_being_made": progress,
            "next_speaker": "b", "instruction_or_question": "go on" })
    };
    let mut events = vec![
        says("answer: a text", json!("hello")),
        says("answer: progress", ledger(false, true)),
        says("answer: no progress", ledger(false, false)),
        says("answer: satisfied", ledger(true, true)),
    ];
    events.extend(of_all());
    let rules = ChatRules { team: ChatTeam::Magentic, max_stalls: 2, max_json_retries: 2, ..ChatRules::default() };
    let text = table(begun(rules), &events, shown);
    compare("src/supervisor/chat/tests/orchestrated.txt", &text);
}
