//! One turn of a session: ask its model, carry out the calls, ask again, until it answers.
//!
//! Invariant: a model is asked only when all answers to its last calls are in its messages; a turn has a bound, and ends
//! exactly once. What a call does is in `dispatch`; where a result goes is in `ending`.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::agent_loop::{AgentLoop, Workload};
use super::boundary::{AgentOutcome, HumanKind, HumanNeeded};
use super::message::{AgentAnswer, Message, MessageRole, Tag, Variables, text_of};
use super::refusal::SessionFailure;
use super::rules::{LoopCount, OnLimit};
use super::session::{Doing, Home, Session, SessionPlace};
use super::step_context::StepContext;
use super::steps::filled_in;
use super::todos;
use crate::supervisor::core::key::{AgentsKey, SessionAsk};
use crate::supervisor::core::retry::is_refusal;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::{AgentInstance, InstanceStatus};
use crate::supervisor::outbox::{Answer, Call, CallFailureKind, Fact, Outbox, Purpose};
use crate::supervisor::reading::json_text;
use crate::supervisor::standing as policies;

impl AgentLoop {
    /// A new session, noted; it does not think yet.
    pub(super) fn open(
        &mut self,
        agent: &str,
        place: SessionPlace,
        messages: Vec<Message>,
        variables: Variables,
        out: &mut Outbox,
    ) -> u32 {
        self.opened = self.opened.saturating_add(1);
        let seq = self.opened;
        let SessionPlace { parent, path, home } = place;
        let hash = blake3::hash(format!("{}/agents/{:?}", out.run(), path.0).as_bytes());
        let id = hash.to_hex()[..8].to_owned();
        let above = parent.and_then(|seq| self.sessions.get(&seq));
        let depth = above.map_or(self.rules.delegation.base_depth, |above| above.depth.saturating_add(1));
        let parent_id = above.map(|parent| parent.id.clone());
        let model = self.def(agent).and_then(|def| def.model.clone());
        let instance = AgentInstance {
            name: agent.to_owned(),
            instance_id: id.clone(),
            created_at: out.now(),
            parent_id,
            status: InstanceStatus::Active,
            depth: depth.saturating_sub(self.rules.delegation.base_depth),
        };
        let mut told = json!(instance);
        told["model"] = json!(model);
        out.note(NoteKind::AgentRegistered, told);
        out.tell(Fact::AgentRegistered(instance));
        let index = path.0.last().and_then(|index| usize::try_from(*index).ok());
        let tool = above.zip(index).and_then(|(caller, index)| caller.tool_called(index));
        let mut session = Session::new(id, agent, SessionPlace { parent, path, home }, depth, messages, variables);
        session.tool = tool;
        self.sessions.insert(seq, session);
        self.forget_old_sessions();
        seq
    }

    /// The place of a session that the call is answered by.
    pub(super) fn below(&self, seq: u32, index: usize, home: Home) -> SessionPlace {
        let caller = self.sessions.get(&seq);
        let mut path = caller.map(|caller| caller.path.clone()).unwrap_or_default();
        path.0.extend(caller.map(|caller| caller.steps_total));
        path.0.push(u32::try_from(index).unwrap_or(u32::MAX));
        SessionPlace { parent: Some(seq), path, home }
    }

    /// Begins with the last thing the user said: policies first.
    pub(super) fn begin_turn(&mut self, seq: u32, out: &mut Outbox) {
        self.cut_turns.remove(&seq);
        self.bounded.remove(&seq);
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        session.given = session.messages.len();
        session.steps = 0;
        (session.last_word, session.gave) = (false, false);
        session.watch.new_turn();
        session.made.clear();
        session.denials.clear();
        let request = session.messages.iter().rev().find(|message| message.role == MessageRole::User);
        let request = request.map(|message| message.text().to_owned()).unwrap_or_default();
        if matches!(session.home, Home::Root { .. }) {
            session.task.clone_from(&request);
            if let Some(response) = self.blocked_words(&request, out) {
                return self.answered_by_policy(seq, response, out);
            }
            let Some(session) = self.sessions.get_mut(&seq) else { return };
            (session.guidance, session.order) = policies::playbooks(&self.rules.policies, &request);
        }
        self.begin_step(seq, out);
    }

    pub(super) fn blocked_by_policy(&mut self, seq: u32, response: String, out: &mut Outbox) {
        if !matches!(self.work, Workload::Conversation { .. }) {
            self.ended(seq, Err(SessionFailure::Policy(response)), out);
            return;
        }
        self.closed(seq, true, out);
        let outcome = self.outcome_of(Ok(Value::String(response)));
        self.outcome = Some(AgentOutcome { policy_blocked: true, ..outcome });
    }

    fn is_root(&self, seq: u32) -> bool {
        matches!(self.work, Workload::Conversation { root } if root == seq)
    }

    /// Asks the model of a session, unless a limit is reached.
    // long: one case after the other, in their order.
    pub(super) fn begin_step(&mut self, seq: u32, out: &mut Outbox) {
        if self.is_root(seq)
            && let Some(session) = self.sessions.get_mut(&seq)
        {
            session.messages.extend(std::mem::take(&mut self.words).into_iter().map(Message::user));
        }
        if self.is_out_of_budget(seq, out) {
            return;
        }
        let Some(session) = self.sessions.get(&seq) else { return };
        let used = match self.rules.limit.count {
            LoopCount::Turns => session.steps,
            LoopCount::Messages => u32::try_from(session.added().len()).unwrap_or(u32::MAX),
            LoopCount::Steps => self.steps,
        };
        let over = used >= self.rules.limit.max && !session.last_word;
        if over {
            match self.rules.limit.then {
                OnLimit::Return => {
                    let told = format!("{} was stopped: {}", session.agent, self.rules.limit.text());
                    match session.home {
                        Home::Root { .. } => self.bounded.insert(seq, told.clone()),
                        Home::Call { .. } | Home::Process { .. } => self.cut_turns.insert(seq, told.clone()),
                    };
                    return self.stopped(seq, told, out);
                }
                OnLimit::StepLimit | OnLimit::RecursionLimit => return self.out_of_steps(seq, used, out),
                OnLimit::Synthesize => {
                    out.note(NoteKind::BudgetExhausted, json!({"session": session.id, "what": "turns", "used": used}));
                }
            }
        }
        let spent = self.budget_spent();
        if let Some(max) = spent.filter(|_| !session.last_word) {
            out.note(NoteKind::BudgetExhausted, json!({"session": session.id, "what": "tool_calls", "used": max}));
        }
        if let Some(session) = self.sessions.get_mut(&seq) {
            session.last_word |= over || spent.is_some();
            session.steps = session.steps.saturating_add(1);
            session.steps_total = session.steps_total.saturating_add(1);
        }
        self.steps = self.steps.saturating_add(1);
        self.ask_model(seq, out);
    }

    fn ask_model(&mut self, seq: u32, out: &mut Outbox) {
        let Some((key, call)) = self.step_of(seq, out) else { return };
        out.call(call);
        if let Some(session) = self.sessions.get_mut(&seq) {
            session.doing = Doing::Thinking { key };
        }
    }

    /// The call for the step that a session is in, noted.
    pub(super) fn step_of(&self, seq: u32, out: &mut Outbox) -> Option<(AgentsKey, Call)> {
        let session = self.sessions.get(&seq)?;
        let key = session.key(SessionAsk::Step { step: session.steps_total });
        let def = self.def(&session.agent);
        let model = def.and_then(|def| def.model.clone());
        let instructions = self.instructions_of(session);
        let tools = if session.last_word { Vec::new() } else { self.tools_of(session) };
        let prompt = prompt(&instructions, &session.messages);
        let context = json!(StepContext {
            session: Cow::Borrowed(&session.id),
            depth: session.depth,
            task: Cow::Borrowed(&session.task),
            model: model.clone(),
            instructions: Cow::Borrowed(&instructions),
            messages: super::message::as_told(&session.messages),
            tools,
            parallel_tool_calls: self.rules.parallel_tool_calls,
            last_word: session.last_word,
        });
        let hash = blake3::hash(prompt.as_bytes()).to_hex()[..16].to_owned();
        out.note(
            NoteKind::DecisionRequested,
            json!({"session": session.id, "agent": session.agent, "model": model, "step": session.steps_total,
                   "prompt_hash": hash}),
        );
        let mut call = Call::new(key.clone(), Purpose::ExecuteWorker, context)
            .agent(&session.agent)
            .round(session.steps_total)
            .prompt(prompt);
        call.timeout = def.and_then(|def| def.timeout).map(crate::supervisor::spec::Span::duration);
        call.last = out.budget().exhausted().is_some();
        Some((key, call))
    }

    /// Instructions with context variables filled in, guidance, and the todos.
    fn instructions_of(&self, session: &Session) -> String {
        let instructions = self.def(&session.agent).map(|def| def.instructions.as_str()).unwrap_or_default();
        let mut text = filled_in(instructions, |name| session.variables.get(name).map(text_of));
        for guidance in &session.guidance {
            text = format!("{text}\n\n{guidance}");
        }
        if !session.todos.is_empty() {
            text = format!("{text}\n\nTodos:\n{}", todos::section(&session.todos));
        }
        text.trim().to_owned()
    }

    /// What the model of a session answered.
    pub(super) fn step_answered(&mut self, seq: u32, answer: Answer, out: &mut Outbox) {
        let Some(session) = self.sessions.get(&seq) else { return };
        let (id, agent) = (session.id.clone(), session.agent.clone());
        let prefix = format!("call_{}_{}", session.path.to_string().replace('.', "-"), session.steps_total);
        let answer = match answer {
            // It could not be made any more: the session has its last word, or ends as one does that may not ask its model.
            Err(failure) if failure.kind == CallFailureKind::Spent && out.budget().exhausted().is_some() => {
                return self.begin_step(seq, out);
            }
            Err(failure) if failure.kind == CallFailureKind::Denied => return self.denied(seq, failure.message, out),
            Ok(value) => Ok(AgentAnswer::decode(value, &prefix, |to| self.handoff_tool(to))),
            Err(failure) if failure.kind == CallFailureKind::CancelledBelow => {
                Err(SessionFailure::Cancelled(failure.message))
            }
            Err(failure) if failure.kind == CallFailureKind::SaidNoBeside => {
                Err(SessionFailure::FailedBeside(failure.message))
            }
            Err(failure) if is_refusal(&failure) => Err(SessionFailure::Refused(failure.message)),
            Err(failure) => Err(SessionFailure::Call(failure.message)),
        };
        let answer = answer.and_then(|decoded| match decoded? {
            answer if answer.interrupt.is_some() && !answer.tool_calls.is_empty() => {
                Err(SessionFailure::AsksAndCalls { agent: agent.clone() })
            }
            answer => Ok(answer),
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                let error = why.to_string();
                out.note(NoteKind::AttemptFailed, json!({"session": id, "agent": agent, "error": error}));
                self.ended(seq, Err(why), out);
                return;
            }
        };
        let calls = answer.tool_calls.len();
        out.note(
            NoteKind::DecisionRecorded,
            json!({"session": id, "agent": agent, "model": answer.model, "tokens": answer.tokens, "tool_calls": calls}),
        );
        match answer.interrupt.clone() {
            // Nobody would be asked with what the person says.
            Some(_) if out.budget().exhausted().is_some() => self.begin_step(seq, out),
            Some(payload) => self.asks_a_person(seq, &agent, payload, answer),
            None => self.said(seq, &agent, answer, out),
        }
    }

    /// LGI-01: the agent stops and asks; it goes on with the answer as what the user says. What it says beside the question
    /// is said, and the person sees it.
    fn asks_a_person(&mut self, seq: u32, agent: &str, payload: Value, answer: AgentAnswer) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        session.variables.extend(answer.context_variables);
        let beside = answer.content.filter(|text| !text.trim().is_empty());
        let question = ["question", "message"].iter().find_map(|key| payload.get(*key)?.as_str().map(str::to_owned));
        let question = question.unwrap_or_else(|| text_of(&payload));
        let key = session.key(SessionAsk::Question { step: session.steps_total });
        let said = beside.iter().chain([&question]).map(String::as_str).collect::<Vec<_>>().join("\n\n");
        let tag = beside.is_none().then_some(Tag::Question);
        session.messages.push(Message { tag, ..Message::assistant(agent, said) });
        session.doing = Doing::Thinking { key: key.clone() };
        let kind = HumanKind::Question { payload };
        let needed = HumanNeeded {
            key: key.clone(),
            kind,
            agent: agent.to_owned(),
            message: question,
            about: beside.unwrap_or_default(),
        };
        self.humans.insert(key, needed);
    }

    fn said(&mut self, seq: u32, agent: &str, answer: AgentAnswer, out: &mut Outbox) {
        let (execute, corrective) = (self.rules.execute_tools, self.rules.corrective_retry);
        let unheard = self.is_root(seq) && !self.words.is_empty();
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        // Without tools there are no calls, whatever the model writes.
        let calls = if session.last_word { Vec::new() } else { answer.tool_calls };
        let content = answer.content.unwrap_or_default();
        let mut message = Message::assistant(agent, content.clone());
        message.tool_calls.clone_from(&calls);
        session.messages.push(message);
        session.variables.extend(answer.context_variables);
        if calls.is_empty() && unheard && !session.last_word {
            // Nobody ends a conversation over what a person has just said.
            self.begin_step(seq, out);
        } else if calls.is_empty() {
            let unfilled = policies::unfilled_placeholders(&content);
            if corrective && session.steps == 1 && !unfilled.is_empty() {
                let text = format!(
                    "Your answer still contains placeholders that nothing was filled in for: {}. Do the work with the \
                     tools you have and answer with the real values.",
                    unfilled.join(", ")
                );
                session.messages.push(Message { tag: Some(Tag::Correction), ..Message::user(text) });
                self.begin_step(seq, out);
                return;
            }
            self.ended(seq, Ok(content), out);
        } else if execute {
            self.begin_calls(seq, calls, out);
        } else {
            self.ended(seq, Ok(content), out);
        }
    }

    /// Puts the final answer into its form, which may take one more call.
    pub(super) fn format_answer(&mut self, seq: u32, answer: &str, out: &mut Outbox) -> Option<String> {
        let (text, instruction) = policies::formatted(&self.rules.policies, answer);
        let text = text.unwrap_or_else(|| answer.to_owned());
        let (Some(instruction), Some(session)) = (instruction, self.sessions.get_mut(&seq)) else { return Some(text) };
        if out.budget().exhausted().is_some() {
            self.is_cut_by(out);
            return Some(text);
        }
        let key = session.key(SessionAsk::Format { step: session.steps_total });
        let prompt = format!("{instruction}\n\n{text}");
        let context = json!({"instructions": instruction, "answer": text});
        let call = Call::new(key.clone(), Purpose::Synthesize, context).round(session.steps_total).prompt(prompt);
        session.doing = Doing::Formatting { key, answer: text };
        out.call(call);
        None
    }

    /// The form came back. Without one the answer stands as it was: it is there and it is right.
    pub(super) fn formatted(&mut self, seq: u32, answer: Answer, out: &mut Outbox) {
        let Some(session) = self.sessions.get(&seq) else { return };
        let Doing::Formatting { answer: plain, .. } = &session.doing else { return };
        let text = match answer {
            Ok(Value::String(text)) => text,
            Ok(value) => match AgentAnswer::decode(value.clone(), "format", str::to_owned) {
                Ok(AgentAnswer { content: Some(text), .. }) => text,
                Ok(_) | Err(_) => json_text(&value),
            },
            Err(_) => plain.clone(),
        };
        self.root_ended(seq, Ok(text), out);
    }
}

/// The prompt as one text: a pure function of the messages, so that a replay builds the same.
fn prompt(instructions: &str, messages: &[Message]) -> String {
    let mut text = instructions.to_owned();
    for message in messages {
        let who = match (message.role, &message.name) {
            (MessageRole::System, _) => "system".to_owned(),
            (MessageRole::User, _) => "user".to_owned(),
            (MessageRole::Assistant, Some(name)) => format!("assistant {name}"),
            (MessageRole::Assistant, None) => "assistant".to_owned(),
            (MessageRole::Tool, Some(name)) => format!("tool {name}"),
            (MessageRole::Tool, None) => "tool".to_owned(),
        };
        text.push_str(&format!("\n\n[{who}]\n{}", message.text()));
        for call in &message.tool_calls {
            text.push_str(&format!("\n-> {}({})", call.name, json_text(&call.args)));
        }
    }
    text.trim().to_owned()
}
