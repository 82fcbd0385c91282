//! The carrier of a run: the machine that does the work of its family, behind one set of calls.
//!
//! Invariant: which carrier a run has is fixed by its spec; the run treats all alike. It decides nothing.

use bosun_engine::Failure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::input::{INVALID_SPEC, RunContext};
use super::parts::Parts;
use super::rules;
use crate::supervisor::agents::{AgentLoop, HumanAnswer, Thread};
use crate::supervisor::chat::{ChatMessage, ChatRules, GroupChat};
use crate::supervisor::core::key::Key;
use crate::supervisor::graph::{Graph, Phase, Planning};
use crate::supervisor::journal::Note;
use crate::supervisor::outbox::{Answer, Outbox};
use crate::supervisor::spec::{Family, SupervisorSpec};
use crate::supervisor::success;

/// Lines of a process' output that are shown if nobody says how many.
const TAIL: u64 = 100;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Carrier {
    Graph(Box<Graph>),
    Chat(Box<GroupChat>),
    Agents(Box<AgentLoop>),
}

/// Who does a task without a plan: whom the parent named; where no role is wanted, the first. Whom a role is for is found
/// as for every task: a recruit never does the work of an agent of another role.
fn simple_agent(spec: &SupervisorSpec, context: &RunContext) -> Option<String> {
    let named = context.more.get("agent").and_then(Value::as_str).map(str::to_owned);
    let first = || spec.agents.first().map(|agent| agent.name.clone()).filter(|_| context.role.is_none());
    named.or_else(first)
}

/// Whose conversation the run belongs to (CUG-38).
fn thread(context: &RunContext) -> Thread {
    let text = |key: &str| context.more.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Thread {
        tenant: text("tenant"),
        user: text("user"),
        thread: context.session.clone().unwrap_or_default(),
        ..Thread::default()
    }
}

impl Carrier {
    pub(super) fn new(spec: &SupervisorSpec, context: &RunContext, out: &mut Outbox) -> Result<Self, Failure> {
        let invalid = |why: String| Failure::application(INVALID_SPEC, why).non_retryable();
        match spec.family() {
            Family::Graph => {
                let mut rules = rules::graph_rules(spec);
                if let Some(policies) = context.more.get("policies") {
                    rules.policies = crate::supervisor::graph::read("policies", policies).map_err(invalid)?;
                }
                rules.follow_playbooks(&spec.objective);
                let plan = rules::first_plan(spec, &rules).map_err(invalid)?;
                let mut graph = Graph::new(rules, plan);
                graph.given_plan = context.more.get("plan").cloned();
                if graph.rules.planning == Planning::None {
                    graph.simple_task(context.role.clone(), simple_agent(spec, context));
                }
                Ok(Carrier::Graph(Box::new(graph)))
            }
            Family::Chat => {
                let chat_rules = ChatRules::from_spec(&spec.speaker, &spec.handoff, &spec.run_loop);
                let agents = spec.agents.iter().map(Into::into).collect();
                let opening = vec![ChatMessage::new(spec.speaker.admin.clone(), spec.objective.clone())];
                // A chat that goes on from the messages of an earlier one (AGC-14). Nobody starts a run for a chat that
                // ends before anybody speaks, so the text that ended the earlier one does not end this one.
                let ended_by = chat_rules.termination.clone();
                let said = |text: &String| json!({ "name": spec.speaker.admin, "content": text });
                let resumed = spec.resume.as_ref().map(|resume| {
                    let earlier = resume.messages.iter().map(|message| json!(message));
                    earlier.chain(resume.message.as_ref().map(said)).collect::<Value>()
                });
                let chat = match context.more.get("messages").or(resumed.as_ref()) {
                    Some(history) => {
                        GroupChat::resume(chat_rules, agents, history, ended_by.as_deref(), out).map(|(chat, _)| chat)
                    }
                    None => GroupChat::start(chat_rules, agents, opening, out),
                };
                Ok(Carrier::Chat(Box::new(chat.map_err(|why| invalid(why.to_string()))?)))
            }
            Family::Agents => {
                let agents = AgentLoop::from_spec(spec, context.depth, thread(context), out);
                Ok(Carrier::Agents(Box::new(agents.map_err(|why| invalid(why.to_string()))?)))
            }
        }
    }

    /// The graph, if that is what carries the run.
    pub(super) fn graph(&self) -> Option<&Graph> {
        match self {
            Carrier::Graph(graph) => Some(graph),
            Carrier::Chat(_) | Carrier::Agents(_) => None,
        }
    }
    pub(super) fn graph_mut(&mut self) -> Option<&mut Graph> {
        match self {
            Carrier::Graph(graph) => Some(graph),
            Carrier::Chat(_) | Carrier::Agents(_) => None,
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

    pub(super) fn answered(&mut self, key: &Key, answer: Answer, parts: &mut Parts, out: &mut Outbox) {
        match (self, key) {
            (Carrier::Graph(graph), Key::Graph(key)) => graph.answered(key, answer, parts, out),
            (Carrier::Chat(chat), Key::Chat(key)) => chat.answered(*key, answer, out),
            (Carrier::Agents(agents), Key::Agents(key)) => agents.answered(key, answer, out),
            _ => {}
        }
    }

    /// A chat starts no timers.
    pub(super) fn fired(&mut self, key: &Key, parts: &mut Parts, out: &mut Outbox) {
        match (self, key) {
            (Carrier::Graph(graph), Key::Graph(key)) => graph.fired(key, parts, out),
            (Carrier::Agents(agents), Key::Agents(key)) => agents.fired(key, out),
            _ => {}
        }
    }

    pub(super) fn advance(&mut self, parts: &mut Parts, out: &mut Outbox) {
        if let Carrier::Graph(graph) = self {
            graph.advance(parts, out);
        }
    }

    /// The budget is spent: nobody is waited for whose word would only cost more. A plan looks at it whenever it goes on.
    pub(super) fn exhausted(&mut self, out: &mut Outbox) {
        match self {
            Carrier::Graph(_) => {}
            Carrier::Chat(chat) => chat.exhausted(out),
            Carrier::Agents(agents) => agents.exhausted(out),
        }
    }

    /// Whether the budget has left anything undone: such a run is no success.
    pub(super) fn is_cut(&self) -> bool {
        match self {
            Carrier::Graph(graph) => graph.is_cut(),
            Carrier::Chat(chat) => chat.is_cut(),
            Carrier::Agents(agents) => agents.is_cut(),
        }
    }

    /// Whether one call at a time is made.
    pub(super) fn is_one_at_a_time(&self) -> bool {
        match self {
            Carrier::Graph(graph) => graph.rules.slots() == 1,
            Carrier::Chat(_) => true,
            Carrier::Agents(_) => false,
        }
    }

    pub(super) fn pause(&mut self, out: &mut Outbox) {
        match self {
            Carrier::Graph(_) => {} // its gates hold it
            Carrier::Chat(chat) => chat.pause(),
            Carrier::Agents(agents) => agents.pause(out),
        }
    }

    pub(super) fn resume(&mut self, out: &mut Outbox) {
        match self {
            Carrier::Graph(_) => {}
            Carrier::Chat(chat) => chat.unpause(out),
            Carrier::Agents(agents) => agents.resume(out),
        }
    }

    pub(super) fn cancel(&mut self, text: String, parts: &mut Parts, out: &mut Outbox) {
        match self {
            Carrier::Graph(graph) => graph.cancel(text, parts, out),
            Carrier::Chat(chat) => chat.cancel(&text, out),
            Carrier::Agents(agents) => agents.cancel(&text, out),
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
                Some(outcome) if chat.is_cut() && chat.has_spoken() && outcome.error.is_none() => Phase::Partial,
                Some(_) => Phase::Failed,
            },
            // A background process outlives the answer of its parent, and the run waits for it.
            Carrier::Agents(agents) => match agents.outcome() {
                Some(outcome) if agents.processes_running() == 0 => match (agents.is_cut(), outcome.ok) {
                    (true, _) if agents.shows_what_there_is() => Phase::Partial,
                    (false, true) => Phase::Completed,
                    _ => Phase::Failed,
                },
                _ => Phase::Executing,
            },
        }
    }

    /// Whether the run may call its end a success (see `supervisor::success`).
    pub(super) fn success(&self) -> bool {
        let talk = match self {
            Carrier::Graph(graph) => return graph.outcome.as_ref().is_some_and(|outcome| outcome.success),
            Carrier::Chat(chat) => chat.outcome().map(|outcome| (outcome.ok, chat.has_spoken())),
            Carrier::Agents(agents) => {
                agents.outcome().map(|outcome| (outcome.ok, !outcome.policy_blocked && outcome.has_something()))
            }
        };
        self.phase().is_terminal()
            && !self.is_cut()
            && talk.is_some_and(|(ok, said)| success::of_talk(ok, said).success)
    }

    pub(super) fn view(&self) -> Value {
        match self {
            Carrier::Graph(graph) => graph.digest(),
            Carrier::Chat(chat) => json!({ "chat": chat.view(), "messages": chat.messages() }),
            Carrier::Agents(agents) => json!({ "agents": agents.view(), "messages": agents.messages() }),
        }
    }

    /// What another run needs to go on from here: the key `resume` of its spec. Null where nothing can be gone on from.
    pub(super) fn resume_point(&self, run: &str) -> Value {
        match self {
            Carrier::Graph(_) => Value::Null,
            Carrier::Chat(chat) => json!({ "messages": chat.messages() }),
            Carrier::Agents(agents) => match agents.checkpoint() {
                Some(crew) => json!(crew.fork(run)),
                None => agents.response(),
            },
        }
    }

    /// The questions to people that are open in the carrier itself, by key.
    pub(super) fn people_needed(&self) -> Vec<(String, Value)> {
        match self {
            Carrier::Graph(_) => Vec::new(),
            Carrier::Chat(chat) => {
                chat.human_needed().into_iter().map(|asked| (asked.id.clone(), json!(asked))).collect()
            }
            Carrier::Agents(agents) => {
                agents.human_needed().into_iter().map(|asked| (asked.key.clone(), json!(asked))).collect()
            }
        }
    }

    /// A person speaks up. Whether the carrier is one that listens to them now.
    pub(super) fn say(&mut self, text: &str, out: &mut Outbox) -> bool {
        match self {
            Carrier::Graph(_) => false,
            Carrier::Chat(chat) => chat.say(text, out).is_ok(),
            Carrier::Agents(agents) => agents.say(text, out),
        }
    }

    /// Whether an answer of a person is one to what they are asked under this key. Changes nothing.
    pub(super) fn takes(&self, key: &str, answer: &Value) -> Result<(), String> {
        let Carrier::Agents(agents) = self else { return Ok(()) };
        let asked = agents.question(key).map_err(|why| why.to_string())?;
        HumanAnswer::read(answer, &asked.kind).map(|_| ())
    }

    /// Whether somebody reads the mail of the run: tasks and chats do.
    pub(super) fn has_mail(&self) -> bool {
        !matches!(self, Carrier::Agents(_))
    }

    /// A person takes the word (AGC-12).
    pub(super) fn interrupt(&mut self, out: &mut Outbox) -> Result<(), String> {
        match self {
            Carrier::Chat(chat) => chat.interrupt(out).map_err(|why| why.to_string()),
            Carrier::Graph(_) | Carrier::Agents(_) => Err("only a group chat can be interrupted".to_owned()),
        }
    }

    /// A person's answer to one of them.
    pub(super) fn human(&mut self, key: &str, answer: &Value, out: &mut Outbox) -> Result<(), String> {
        match self {
            Carrier::Graph(_) => Err(format!("nothing waits for an answer under `{key}`")),
            Carrier::Chat(chat) => chat.human(key, answer, out).map_err(|why| why.to_string()),
            Carrier::Agents(agents) => {
                let asked = agents.question(key).map_err(|why| why.to_string())?;
                let answer = HumanAnswer::read(answer, &asked.kind)?;
                agents.human(key, answer, out).map_err(|why| why.to_string())
            }
        }
    }

    /// Nobody answered in time. `false`: whoever asked takes the word for an answer.
    pub(super) fn unanswered(&mut self, key: &str, why: &str, out: &mut Outbox) -> bool {
        match self {
            Carrier::Agents(agents) => agents.unanswered(key, why, out),
            Carrier::Graph(_) | Carrier::Chat(_) => false,
        }
    }

    pub(super) fn process_query(&self, name: &str, value: &Value) -> Result<Value, String> {
        let Carrier::Agents(agents) = self else { return Ok(json!([])) };
        let id = value.get("process_id").unwrap_or(value).as_str().unwrap_or_default();
        match name {
            "check_process" => agents.check_process(id),
            "get_process_output" => {
                let tail = value.get("tail").and_then(Value::as_u64).unwrap_or(TAIL);
                agents.get_process_output(id, tail).map(Value::String)
            }
            _ => {
                let all = value.get("include_completed").and_then(Value::as_bool).unwrap_or_default();
                Ok(Value::Array(agents.list_processes(all)))
            }
        }
    }

    pub(super) fn kill_process(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, String> {
        let Carrier::Agents(agents) = self else { return Err("this kind of run has no processes".to_owned()) };
        let id = value.get("process_id").unwrap_or(value).as_str().unwrap_or_default();
        agents.kill_process(id, out).map(Value::String)
    }

    /// The registry is made of what agents note of themselves; tasks are registered by the parts.
    pub(super) fn noted(&self, notes: &[Note], parts: &mut Parts) {
        if matches!(self, Carrier::Agents(_)) {
            parts.team.registry = parts.team.registry.clone().rebuild(notes);
        }
    }
}
