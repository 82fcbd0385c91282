//! Tests of group chats: a scripted world answers what the chat asks for.

mod from_spec;
mod properties;
mod rounds;
mod run;
mod selection;
mod teams;
mod transitions;

use bosun_engine::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::supervisor::core::key::Key;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Ask, Call, CallFailure, Outbox, Purpose};
use crate::supervisor::spec::{ChatTeam, OnSpeakerError, RoundCount, SpeakerMethod, TransitionsType};

/// A chat with its outbox, and every call it has made.
struct World {
    chat: GroupChat,
    out: Outbox,
    calls: Vec<Call>,
    cancelled: Vec<Key>,
}

fn agents(names: &[&str]) -> Vec<ChatAgent> {
    let agent = |name: &&str| ChatAgent {
        name: (*name).to_owned(),
        description: format!("does what {name} does"),
        functions: Vec::new(),
    };
    names.iter().map(agent).collect()
}

fn outbox() -> Outbox {
    Outbox::new("run-1", Timestamp::default())
}

fn world(rules: ChatRules, names: &[&str], from: &str, text: &str) -> World {
    World::start(rules, agents(names), from, text).unwrap()
}

fn refused(rules: ChatRules, agents: Vec<ChatAgent>) -> String {
    let mut out = outbox();
    let refused = GroupChat::start(rules, agents, vec![ChatMessage::new("user", "go")], &mut out);
    assert_eq!((out.asks(), out.notes()), (&[][..], &[][..]), "a refused chat asks and notes nothing");
    refused.unwrap_err().to_string()
}

fn round_robin() -> ChatRules {
    ChatRules { speaker_selection_method: SpeakerMethod::RoundRobin, ..ChatRules::default() }
}

fn method(name: &str) -> ChatRules {
    ChatRules { speaker_selection_method: SpeakerMethod::read(name).unwrap(), ..ChatRules::default() }
}

impl World {
    fn start(rules: ChatRules, agents: Vec<ChatAgent>, from: &str, text: &str) -> Result<World, ChatError> {
        let mut out = outbox();
        let chat = GroupChat::start(rules, agents, vec![ChatMessage::new(from, text)], &mut out)?;
        Ok(World::of(chat, out))
    }
    fn of(chat: GroupChat, out: Outbox) -> World {
        let mut world = World { chat, out, calls: Vec::new(), cancelled: Vec::new() };
        world.collect();
        world
    }
    fn collect(&mut self) {
        for ask in self.out.take().0 {
            match ask {
                Ask::Call(call) => self.calls.push(call),
                Ask::CancelCall { key } => self.cancelled.push(key),
                other => panic!("a chat asks for no {other:?}"),
            }
        }
    }
    /// Answers the newest call.
    #[track_caller]
    fn answer(&mut self, answer: Value) -> &mut World {
        self.answer_with(Ok(answer))
    }
    #[track_caller]
    fn answer_with(&mut self, answer: Answer) -> &mut World {
        let key = self.calls.last().expect("nothing was asked").key.clone();
        self.chat.answered(key.try_into().unwrap(), answer, &mut self.out);
        self.collect();
        self
    }
    #[track_caller]
    fn human(&mut self, answer: Value) -> &mut World {
        let id = self.chat.human_needed().expect("no human is asked").id;
        self.chat.human(id, &answer, &mut self.out).unwrap();
        self.collect();
        self
    }
    /// Lets the scripted world answer until the chat is over.
    fn run(&mut self, mut script: impl FnMut(&Call) -> Value) -> ChatOutcome {
        let mut answered = 0;
        while !self.chat.is_over() {
            assert!(answered < 500, "the chat does not end");
            answered += 1;
            let answer = script(self.calls.last().expect("nothing was asked"));
            self.answer(answer);
        }
        self.chat.outcome().unwrap()
    }
    /// Who was asked to speak, in order.
    fn speakers(&self) -> Vec<&str> {
        let turns = self.calls.iter().filter(|call| call.purpose == Purpose::ExecuteWorker);
        turns.map(|call| call.agent.as_deref().unwrap()).collect()
    }
    fn selections(&self) -> Vec<&Call> {
        self.calls.iter().filter(|call| call.purpose == Purpose::Decide).collect()
    }
    fn last_call(&self) -> &Call {
        self.calls.last().unwrap()
    }
    fn said(&self) -> Vec<(&str, &str)> {
        self.chat.messages().iter().map(|message| (message.from.as_str(), message.content.as_str())).collect()
    }
}

/// Every speaker says its own name; every selection names the next agent of the list.
fn says_name(call: &Call) -> Value {
    json!(call.agent.clone().unwrap_or_default())
}
