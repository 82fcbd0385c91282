//! The carrier of a run: the machine that does the work of its family, behind one set of calls.
//!
//! Invariant: which carrier a run has is fixed by its spec; the run treats all alike. It decides nothing.

use bosun_engine::Failure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::input::{INVALID_SPEC, RunContext};
use super::parts::Parts;
use super::rules;
use crate::supervisor::chat::{ChatMessage, ChatRules, GroupChat};
use crate::supervisor::graph::{Graph, Phase, Planning};
use crate::supervisor::outbox::{Answer, Outbox};
use crate::supervisor::spec::{Family, SupervisorSpec};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Carrier {
    Graph(Box<Graph>),
    Chat(Box<GroupChat>),
}

impl Carrier {
    pub(super) fn new(
        spec: &SupervisorSpec,
        context: &RunContext,
        parts: &mut Parts,
        out: &mut Outbox,
    ) -> Result<Self, Failure> {
        let invalid = |why: String| Failure::application(INVALID_SPEC, why).non_retryable();
        let _ = parts;
        match spec.family() {
            Family::Graph => {
                let plan = rules::first_plan(spec).map_err(invalid)?;
                let mut graph = Graph::new(rules::graph_rules(spec), plan);
                if graph.rules.planning == Planning::None {
                    graph.simple_task(context.role.clone(), spec.agents.first().map(|agent| agent.name.clone()));
                }
                Ok(Carrier::Graph(Box::new(graph)))
            }
            Family::Chat => {
                let chat_rules = ChatRules::from_spec(&spec.speaker, &spec.run_loop);
                let agents = spec.agents.iter().map(Into::into).collect();
                let opening = vec![ChatMessage::new(spec.speaker.admin.clone(), spec.objective.clone())];
                let chat = GroupChat::start(chat_rules, agents, opening, out);
                Ok(Carrier::Chat(Box::new(chat.map_err(|why| invalid(why.to_string()))?)))
            }
            Family::Agents => Err(invalid("agents".into())),
        }
    }

    /// The graph, if that is what carries the run.
    pub(super) fn graph(&self) -> Option<&Graph> {
        match self {
            Carrier::Graph(graph) => Some(graph),
            Carrier::Chat(_) => None,
        }
    }
    pub(super) fn graph_mut(&mut self) -> Option<&mut Graph> {
        match self {
            Carrier::Graph(graph) => Some(graph),
            Carrier::Chat(_) => None,
        }
    }

    /// Memory is there: planning may begin. The others have begun when they were made.
    pub(super) fn begin(&mut self, parts: &mut Parts, out: &mut Outbox) {
        if let Carrier::Graph(graph) = self
            && graph.phase == Phase::Created
        {
            graph.planning_context = parts.memory.with_memory(None);
            graph.start(parts, out);
        }
    }

    pub(super) fn answered(&mut self, key: &str, answer: Answer, parts: &mut Parts, out: &mut Outbox) {
        match self {
            Carrier::Graph(graph) => graph.answered(key, answer, parts, out),
            Carrier::Chat(chat) => chat.answered(key, answer, out),
        }
    }

    pub(super) fn fired(&mut self, key: &str, parts: &mut Parts, out: &mut Outbox) {
        match self {
            Carrier::Graph(graph) => graph.fired(key, parts, out),
            Carrier::Chat(chat) => chat.fired(key, out),
        }
    }

    pub(super) fn advance(&mut self, parts: &mut Parts, out: &mut Outbox) {
        if let Carrier::Graph(graph) = self {
            graph.advance(parts, out);
        }
    }

    pub(super) fn pause(&mut self) {
        match self {
            Carrier::Graph(_) => {} // its gates hold it
            Carrier::Chat(chat) => chat.pause(),
        }
    }

    pub(super) fn resume(&mut self, out: &mut Outbox) {
        match self {
            Carrier::Graph(_) => {}
            Carrier::Chat(chat) => chat.unpause(out),
        }
    }

    pub(super) fn cancel(&mut self, text: String, parts: &mut Parts, out: &mut Outbox) {
        match self {
            Carrier::Graph(graph) => graph.cancel(text, parts, out),
            Carrier::Chat(chat) => chat.cancel(&text, out),
        }
    }

    /// The name of the next point where the run can stop (SHN-64).
    pub(super) fn checkpoint(&self) -> String {
        let Carrier::Graph(graph) = self else { return "pre_turn".to_owned() };
        match graph.phase {
            Phase::Created | Phase::Planning | Phase::AwaitingPlanApproval => "pre_decomposition".to_owned(),
            Phase::Synthesizing => "pre_completion".to_owned(),
            Phase::Executing | Phase::Reviewing | Phase::Replanning => match graph.next_step() {
                Some(step) => format!("pre_subtask_{step}"),
                None => "pre_synthesis".to_owned(),
            },
            _ => "pre_completion".to_owned(),
        }
    }

    /// The phase in the words of the run machine.
    pub(super) fn phase(&self) -> Phase {
        match self {
            Carrier::Graph(graph) => graph.phase,
            Carrier::Chat(chat) => match chat.outcome() {
                None => Phase::Executing,
                Some(outcome) if outcome.ok => Phase::Completed,
                Some(_) => Phase::Failed,
            },
        }
    }

    pub(super) fn view(&self) -> Value {
        match self {
            Carrier::Graph(graph) => graph.digest(),
            Carrier::Chat(chat) => json!({ "chat": chat.view(), "messages": chat.messages() }),
        }
    }

    /// The questions to people that are open in the carrier itself, by key.
    pub(super) fn people_needed(&self) -> Vec<(String, Value)> {
        match self {
            Carrier::Graph(_) => Vec::new(),
            Carrier::Chat(chat) => {
                chat.human_needed().into_iter().map(|asked| (asked.id.clone(), json!(asked))).collect()
            }
        }
    }

    /// A person's answer to one of them.
    pub(super) fn human(&mut self, key: &str, answer: &Value, out: &mut Outbox) -> Result<(), String> {
        match self {
            Carrier::Graph(_) => Err(format!("nothing waits for an answer under `{key}`")),
            Carrier::Chat(chat) => chat.human(key, answer, out).map_err(|why| why.to_string()),
        }
    }

    pub(super) fn process_query(&self, name: &str, value: &Value) -> Value {
        let _ = (name, value);
        json!([])
    }

    pub(super) fn kill_process(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, String> {
        let _ = (value, out);
        Err("this kind of run has no processes".to_owned())
    }
}
