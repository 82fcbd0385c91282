//! A group chat as the strategy of a run.
//!
//! Invariant: it only hands on. A chat begins when it is made and starts no timers; a person lets its calls through (`core::gate`).

use serde_json::{Value, json};

use super::machine::GroupChat;
use super::message::HAND_OVER;
use super::view::{ChatWait, SpeakerChoiceRequest};
use crate::supervisor::core::account::Balance;
use crate::supervisor::core::asker::{AnswerForm, Asker, HandOffOffer, ToolOffer};
use crate::supervisor::core::key::{ChatKey, Key};
use crate::supervisor::core::phase::Phase;
use crate::supervisor::core::question::OnExpiry;
use crate::supervisor::core::strategy::{Findings, OpenQuestion, Silence, Strategy, StrategyRefusal, TASK_REJECTED};
use crate::supervisor::outbox::{Answer, Call, Outbox, Purpose};
use crate::supervisor::spec::ChatTeam;
use crate::supervisor::success;

impl Asker for GroupChat {
    fn reads(&self, purpose: Purpose) -> AnswerForm {
        match purpose {
            Purpose::ExecuteWorker => AnswerForm::Message,
            _ => AnswerForm::Plain,
        }
    }

    /// AGC-21: in a swarm whoever speaks hands over to any other, or to whoever ends the run.
    fn hand_offs(&self, call: &Call) -> Vec<HandOffOffer> {
        if self.rules.team != ChatTeam::Swarm || call.purpose != Purpose::ExecuteWorker {
            return Vec::new();
        }
        let offer = |to: &str, description: String| {
            let parameters = json!({ "type": "object", "properties": {} });
            let tool = ToolOffer { name: format!("{HAND_OVER}{to}"), description, parameters };
            HandOffOffer { to: to.to_owned(), tool }
        };
        let others = self.agents.iter().filter(|agent| call.agent.as_ref() != Some(&agent.name));
        let others = others.map(|agent| {
            let about = if agent.description.is_empty() { String::new() } else { format!(": {}", agent.description) };
            offer(&agent.name, format!("Hands the conversation over to {}{about}", agent.name))
        });
        let end = self.rules.termination_handoff.iter().filter(|end| !self.agents.iter().any(|a| a.name == **end));
        let end = end.map(|to| offer(to, format!("Hands the conversation back to {to}: it ends with what you say")));
        others.chain(end).collect()
    }
}

impl<G> Strategy<G> for GroupChat {
    fn begin(&mut self, _known: Value, _gates: &mut G, _out: &mut Outbox) {}
    fn heard(&mut self, key: &Key, answer: Answer, _gates: &mut G, out: &mut Outbox) {
        if let Key::Chat(key) = key {
            self.answered(*key, answer, out);
        }
    }
    fn fired(&mut self, _key: &Key, _gates: &mut G, _out: &mut Outbox) {}
    fn cancel(&mut self, text: String, _gates: &mut G, out: &mut Outbox) {
        GroupChat::cancel(self, &text, out);
    }

    fn instructed(&mut self, key: &Key, words: &str, out: &mut Outbox) -> Option<Call> {
        match key {
            Key::Chat(key) => GroupChat::instructed(self, *key, words, out),
            _ => None,
        }
    }

    fn exhausted(&mut self, out: &mut Outbox) {
        GroupChat::exhausted(self, out);
    }
    fn is_cut(&self) -> bool {
        self.cut
    }
    fn is_one_at_a_time(&self) -> bool {
        true
    }

    fn phase(&self) -> Phase {
        match self.outcome() {
            None => Phase::Executing,
            Some(outcome) if outcome.ok => Phase::Completed,
            Some(outcome) if (self.cut || self.unsatisfied) && self.has_spoken() && outcome.error.is_none() => {
                Phase::Partial
            }
            Some(_) => Phase::Failed,
        }
    }
    fn success(&self) -> bool {
        !self.cut && self.outcome().is_some_and(|outcome| success::of_talk(outcome.ok, self.has_spoken()).success)
    }
    fn findings(&self, _budget: &Balance) -> Findings {
        let Some(outcome) = self.outcome() else { return Findings::default() };
        // What the run was told is no result of it, by whomever, and neither is what an orchestrator told the team.
        let spoken = self.has_spoken() && (outcome.ok || outcome.last_speaker.is_some());
        let last = outcome.messages.iter().rfind(|message| !self.is_of_people(message) && !self.is_order(message));
        let last = last.filter(|_| spoken);
        Findings {
            final_result: last.map(|message| json!(message.content)),
            error: outcome.error.clone(),
            errors: self.lacks().collect(),
            code: match self.is_refused() {
                true => Some(TASK_REJECTED.to_owned()),
                false => (outcome.ok && !self.has_spoken()).then(|| "nothing_done".to_owned()),
            },
            details: json!(outcome),
            ..Findings::default()
        }
    }
    fn resume_point(&self, _run: &str) -> Value {
        json!({ "messages": self.messages() })
    }

    fn view(&self, held: bool, is_answered: &dyn Fn(&Key) -> bool) -> Value {
        let mut view = GroupChat::view(self, held);
        view.waiting =
            view.waiting.filter(|waits| !matches!(waits, ChatWait::Human(asked) if is_answered(&asked.id.into())));
        json!({ "chat": view, "messages": self.messages_shown() })
    }
    fn rows(&self) -> Vec<Value> {
        let row = |(n, message): (usize, &super::ChatMessage)| json!({ "task_id": n + 1, "title": message.from, "status": "completed", "brief": message.content });
        self.messages().iter().enumerate().map(row).collect()
    }

    fn people_needed(&self) -> Vec<OpenQuestion> {
        let open = |(key, asked): (ChatKey, SpeakerChoiceRequest)| OpenQuestion {
            key: key.into(),
            shown: json!(asked),
            payload: Value::Null,
            // An answer without a name leaves it to the order of the list.
            silence: Silence { no: OnExpiry::Answer(json!("")), yes: OnExpiry::Answer(json!("")) },
        };
        self.question().map(open).into_iter().collect()
    }
    fn takes_update(&self, _key: &Key) -> Result<(), StrategyRefusal> {
        Err(StrategyRefusal::NothingToUpdate)
    }
    fn human(&mut self, key: &Key, answer: &Value, out: &mut Outbox) -> Result<(), StrategyRefusal> {
        match key {
            Key::Chat(key) => GroupChat::human(self, *key, answer, out).map_err(StrategyRefusal::of),
            Key::Graph(_) | Key::Agents(_) | Key::People(_) | Key::Team(_) | Key::Memory(_) | Key::Core(_) => {
                Err(StrategyRefusal::NothingWaits(key.clone()))
            }
        }
    }
    fn overtaken(&mut self, key: &Key, answer: &Answer, out: &mut Outbox) -> bool {
        matches!(key, Key::Chat(key) if GroupChat::overtaken(self, *key, answer, out))
    }
    fn say(&mut self, text: &str, out: &mut Outbox) -> bool {
        GroupChat::say(self, text, out).is_ok()
    }
    fn interrupt(&mut self, out: &mut Outbox) -> Result<(), StrategyRefusal> {
        GroupChat::interrupt(self, out).map_err(StrategyRefusal::of)
    }
}
