//! The transition tables of a chat: what it waits for, and what each answer, person and end of a budget makes of that.

use super::machine::ChatPhase;
use super::magentic::OrchestratorStep;
use super::selecting::By;
use super::*;
use crate::supervisor::core::account::{Allowance, Balance};
use crate::supervisor::core::key::{ChatAsk, ChatKey};
use crate::supervisor::spec::OnExhausted;
use crate::transitions::{Event, compare, table};

/// A chat, and what is awaited.
#[derive(Clone)]
struct Talk {
    chat: GroupChat,
    out: Outbox,
}

/// What a chat waits for. Who speaks and what was said is not in it.
fn shown(Talk { chat, out }: &Talk) -> String {
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
    if out.is_held() {
        state += ", paused";
    }
    state
}

fn spent() -> Balance {
    let mut balance = Balance::new(Allowance { calls: Some(1), ..Allowance::default() }, OnExhausted::Synthesize);
    balance.spent.calls = 1;
    balance
}

/// What happens under this account.
fn under<'e>(budget: Balance, happens: impl Fn(&mut GroupChat, &mut Outbox) + 'e) -> Box<dyn Fn(&mut Talk) + 'e> {
    Box::new(move |Talk { chat, out }| {
        out.set_budget(budget);
        happens(chat, out);
        out.take();
    })
}

fn happens<'e>(happens: impl Fn(&mut GroupChat, &mut Outbox) + 'e) -> Box<dyn Fn(&mut Talk) + 'e> {
    under(Balance::default(), happens)
}

fn answered(chat: &mut GroupChat, answer: Answer, out: &mut Outbox) {
    // An answer under a key that nobody waits for changes nothing, in any state.
    let before = chat.clone();
    chat.answered(ChatKey { ask: ChatAsk::Speak, n: 99_999 }, answer.clone(), out);
    assert_eq!(*chat, before);
    let open: Vec<Key> = out.awaited().calls().cloned().collect();
    assert!(open.len() <= 1, "a chat asks for one thing at a time: {open:?}");
    for key in open {
        chat.answered(key.try_into().unwrap(), answer.clone(), out);
    }
}

fn says<'e>(name: &'e str, answer: Value) -> Event<'e, Talk> {
    (name, happens(move |chat, out| answered(chat, Ok(answer.clone()), out)))
}

/// What may happen to a chat of any kind.
fn of_all() -> Vec<Event<'static, Talk>> {
    vec![
        ("the call fails", happens(|chat, out| answered(chat, Err(CallFailure::error("lost")), out))),
        ("a person says something", happens(|chat, out| drop(chat.say("wait", out)))),
        ("a person takes the word", happens(|chat, out| drop(chat.interrupt(out)))),
        ("paused", happens(|_, out| out.set_held(true))),
        ("resumed", happens(|_, out| out.set_held(false))),
        ("answered, budget spent", under(spent(), |chat, out| answered(chat, Ok(json!("b")), out))),
        ("the budget is spent", under(spent(), GroupChat::exhausted)),
        ("cancelled", happens(|chat, out| chat.cancel("enough", out))),
    ]
}

fn begun(rules: ChatRules) -> Talk {
    let rules = ChatRules { max_round: 1_000, on_speaker_error: OnSpeakerError::Retry, ..rules };
    let World { chat, out, .. } = world(rules, &["a", "b"], "user", "go");
    Talk { chat, out }
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
            happens(move |chat, out| {
                if let Some(asked) = chat.human_needed() {
                    let _ = chat.human(asked.id, &answer, out);
                }
            })
        };
        events.push(("a person names one", choose(json!("b"))));
        events.push(("a person names nobody", choose(json!("zoe"))));
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
