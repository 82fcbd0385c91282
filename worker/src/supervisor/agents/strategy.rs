//! Agents that call tools as the strategy of a run.
//!
//! Invariant: it only hands on. Agents begin when they are made, and a person lets their calls through (`core::gate`); a
//! background process outlives the answer of its parent, and the run waits for it.

use serde_json::{Map, Value, json};

use super::agent_loop::{AgentLoop, Workload};
use super::boundary::{HumanAnswer, HumanKind, HumanNeeded, NotWaiting};
use super::crew_report::CrewLine;
use super::refusal::AnswerRefusal;
use crate::supervisor::core::account::Balance;
use crate::supervisor::core::asker::{AnswerShape, Asker, CallTime};
use crate::supervisor::core::key::{AgentsKey, Key};
use crate::supervisor::core::phase::Phase;
use crate::supervisor::core::plan_control::{NoPlan, PlanControl};
use crate::supervisor::core::strategy::{
    Findings, NotDone, OpenQuestion, Strategy, StrategyRefusal, TASK_REJECTED, TaskReport,
};
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Answer, Call, Outbox, Purpose};
use crate::supervisor::spec::DelegationProtocol;
use crate::supervisor::success;

/// Lines of a process' output that are shown if nobody says how many.
const TAIL: u64 = 100;

impl Asker for AgentLoop {
    fn shape(&self, call: &Call) -> Option<AnswerShape> {
        (call.purpose == Purpose::Review).then(|| AnswerShape { name: "validation", schema: validation() })
    }
    fn runs_tools(&self) -> bool {
        true
    }
    fn time(&self, _call: &Call) -> CallTime {
        CallTime::OfGiver
    }
}

/// What a guardrail says of an output (CRW-10).
fn validation() -> Value {
    json!({
        "type": "object", "properties": { "success": { "type": "boolean" }, "error": { "type": "string" } },
        "required": ["success"], "additionalProperties": false,
    })
}

impl<G> Strategy<G> for AgentLoop {
    fn begin(&mut self, _known: Value, _gates: &mut G, _out: &mut Outbox) {}
    fn heard(&mut self, key: &Key, answer: Answer, _gates: &mut G, out: &mut Outbox) {
        if let Key::Agents(key) = key {
            self.answered(key, answer, out);
        }
    }
    fn fired(&mut self, key: &Key, _gates: &mut G, out: &mut Outbox) {
        if let Key::Agents(key) = key {
            AgentLoop::fired(self, key, out);
        }
    }
    fn cancel(&mut self, text: String, _gates: &mut G, out: &mut Outbox) {
        AgentLoop::cancel(self, &text, out);
    }
    fn held_or_not(&mut self, out: &mut Outbox) {
        AgentLoop::held_or_not(self, out);
    }

    fn before_people(&mut self, out: &mut Outbox) {
        self.keep_time(out);
    }
    fn instructed(&mut self, key: &Key, words: &str, out: &mut Outbox) -> Option<Call> {
        match key {
            Key::Agents(key) => AgentLoop::instructed(self, key, words, out),
            _ => None,
        }
    }

    fn given_by(&self, key: &Key) -> Option<&str> {
        match key {
            Key::Agents(key) => self.sessions.get(&self.asker(key)?)?.tool.as_deref(),
            _ => None,
        }
    }

    fn variables_for(&self, key: &Key) -> Map<String, Value> {
        let Key::Agents(key) = key else { return Map::new() };
        let hands_over = self.agents.iter().any(|agent| !agent.handoffs.is_empty());
        let shares = hands_over || self.rules.delegation.kind == DelegationProtocol::Variables;
        let session = self.asker(key).and_then(|seq| self.sessions.get(&seq)).filter(|_| shares);
        session.map(|session| session.variables.clone().into_iter().collect()).unwrap_or_default()
    }

    fn exhausted(&mut self, out: &mut Outbox) {
        AgentLoop::exhausted(self, out);
    }
    fn no_more_for(&mut self, call: Call, out: &mut Outbox) -> Option<Call> {
        AgentLoop::no_more_for(self, call, out)
    }
    fn is_cut(&self) -> bool {
        AgentLoop::is_cut(self)
    }
    fn is_one_at_a_time(&self) -> bool {
        false
    }

    fn phase(&self) -> Phase {
        self.run_phase()
    }
    fn success(&self) -> bool {
        self.run_phase().is_terminal()
            && !AgentLoop::is_cut(self)
            && !self.lacks_required()
            && self.failed_below.is_empty()
            && self.outcome.as_ref().is_some_and(|outcome| {
                success::of_talk(outcome.ok, !outcome.policy_blocked && self.has_something()).success
            })
    }
    fn findings(&self, budget: &Balance) -> Findings {
        let mut findings =
            Findings { tasks: self.crew_lines().into_iter().map(report).collect(), ..Findings::default() };
        if let Some(outcome) = &self.outcome {
            findings.final_result = (!outcome.result.is_null()).then(|| outcome.result.clone());
            findings.not_done = NotDone::among(&findings.tasks);
            findings.so_far = (!outcome.ok && outcome.result.is_null()).then(|| self.left_at_failure()).flatten();
            let undone = || nothing_of_list(&findings.not_done);
            findings.error =
                (self.run_phase() == Phase::Failed).then(|| outcome.error.clone().or_else(undone)).flatten();
            findings.code = self.is_rejected().then(|| TASK_REJECTED.to_owned());
            findings.errors.extend(AgentLoop::is_cut(self).then(|| budget.text()));
            findings.errors.extend(self.failed_below.values().cloned());
            findings
                .errors
                .extend(self.blocked.iter().map(|said| format!("a policy blocked what a person said: {said}")));
            findings.errors.extend(self.cut_turns.values().chain(self.bounded.values()).cloned());
            if outcome.policy_blocked {
                // CUG-39: what was said is the policy's, and nothing was done.
                let said = super::message::text_of(&outcome.result);
                findings.errors.push(format!("a policy blocked the request: {said}"));
                findings.code = Some("policy_blocked".to_owned());
            }
            let stopped = !(self.cut_turns.is_empty() && self.bounded.is_empty());
            let empty = outcome.ok && !self.has_something();
            // Nobody has said anything: what went wrong is all that there is to tell.
            let failed = outcome.messages.iter().rev().find_map(super::message::Message::failure);
            let failed = failed.filter(|_| empty && !AgentLoop::is_cut(self));
            let nothing = empty && (stopped || failed.is_some());
            findings.errors.extend(failed);
            findings.code = findings.code.or_else(|| nothing.then(|| "nothing_done".to_owned()));
            findings.details = json!(outcome);
        }
        findings
    }
    fn resume_point(&self, run: &str) -> Value {
        match self.checkpoint() {
            Some(crew) => json!(crew.fork(run)),
            // Steps begin with their first.
            None if matches!(self.work, Workload::Steps(_)) => Value::Null,
            None => self.left_for(run),
        }
    }

    fn view(&self, held: bool, is_answered: &dyn Fn(&Key) -> bool) -> Value {
        let mut view = AgentLoop::view(self, held);
        view.human.retain(|asked| !is_answered(&asked.key.clone().into()));
        json!({ "agents": view, "messages": self.messages() })
    }
    fn rows(&self) -> Vec<Value> {
        let row = |session: &super::SessionView| {
            let status = if session.status == "active" { "running" } else { session.status.as_str() };
            let title = format!("{} {}", session.agent, session.task);
            json!({ "task_id": session.id, "title": title, "status": status, "attempt": 1 })
        };
        self.sessions_view().iter().map(row).collect()
    }

    fn plan_control(&mut self) -> Result<&mut dyn PlanControl<G>, NoPlan> {
        match self.work {
            Workload::Crew(_) => Err(NoPlan::Listed),
            Workload::Conversation { .. } | Workload::Steps(_) => Err(NoPlan::NoTasks),
        }
    }
    fn people_needed(&self) -> Vec<OpenQuestion> {
        let open = |(key, asked): (&AgentsKey, &HumanNeeded)| {
            let payload = match &asked.kind {
                HumanKind::Question { payload } => payload.clone(),
                HumanKind::TaskFeedback { .. } | HumanKind::ToolApproval { .. } => Value::Null,
            };
            OpenQuestion { key: key.clone().into(), shown: json!(asked), payload, silence: asked.kind.silence() }
        };
        self.humans.iter().map(open).collect()
    }
    fn takes(&self, key: &Key, answer: &Value) -> Result<(), StrategyRefusal> {
        self.read_answer(key, answer).map(|_| ()).map_err(StrategyRefusal::of)
    }
    fn takes_update(&self, key: &Key) -> Result<(), StrategyRefusal> {
        match self.asks_in_session(key) {
            Some(_) => Ok(()),
            None => Err(StrategyRefusal::NothingToUpdate),
        }
    }
    fn update(&mut self, key: &Key, update: &Map<String, Value>) {
        if let Some(session) = self.asks_in_session(key).and_then(|seq| self.sessions.get_mut(&seq)) {
            session.variables.extend(update.clone());
        }
    }
    fn human(&mut self, key: &Key, answer: &Value, out: &mut Outbox) -> Result<(), StrategyRefusal> {
        let answer = self.read_answer(key, answer).map_err(StrategyRefusal::of)?;
        AgentLoop::human(self, own(key).map_err(StrategyRefusal::of)?, answer, out).map_err(StrategyRefusal::of)
    }
    fn unanswered(&mut self, key: &Key, why: &str, out: &mut Outbox) -> bool {
        own(key).is_ok_and(|key| AgentLoop::unanswered(self, key, why, out))
    }
    fn say(&mut self, text: &str, out: &mut Outbox) -> bool {
        AgentLoop::say(self, text, out)
    }
    fn has_mail(&self) -> bool {
        false
    }
    fn registers_agents(&self) -> bool {
        true
    }
    fn process_query(&self, name: &str, value: &Value) -> Result<Value, StrategyRefusal> {
        let id = value.get("process_id").unwrap_or(value).as_str().unwrap_or_default();
        match name {
            "check_process" => self.check_process(id).map_err(StrategyRefusal::of),
            "get_process_output" => {
                let tail = value.get("tail").and_then(Value::as_u64).unwrap_or(TAIL);
                self.get_process_output(id, tail).map(Value::String).map_err(StrategyRefusal::of)
            }
            _ => {
                let all = value.get("include_completed").and_then(Value::as_bool).unwrap_or_default();
                Ok(Value::Array(self.list_processes(all)))
            }
        }
    }
    fn kill_process(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, StrategyRefusal> {
        let id = value.get("process_id").unwrap_or(value).as_str().unwrap_or_default();
        AgentLoop::kill_process(self, id, out).map(Value::String).map_err(StrategyRefusal::of)
    }
}

impl AgentLoop {
    fn run_phase(&self) -> Phase {
        match self.outcome() {
            Some(outcome) if self.processes_running() == 0 => match (self.is_cut(), outcome.ok) {
                (true, _) if self.shows_what_there_is() => Phase::Partial,
                // SUP-31: the text so far is the answer, and more was wanted.
                (false, true) if !self.cut_turns.is_empty() && self.has_something() => Phase::Partial,
                // As in a plan: a task that a person or its condition leaves out is excused, and not done.
                // Where nothing at all is done there is nothing to show, as in a plan.
                (false, true) if self.leaves_out_any() && !self.has_something() => Phase::Failed,
                (false, true) if self.leaves_out_any() => Phase::Partial,
                (false, true) => Phase::Completed,
                _ => Phase::Failed,
            },
            _ => Phase::Executing,
        }
    }

    /// The session that asks people under this text; a crew asks about outputs by itself.
    fn asks_in_session(&self, key: &Key) -> Option<u32> {
        let key = own(key).ok().filter(|key| self.humans.contains_key(*key))?;
        matches!(key, AgentsKey::Session { .. }).then(|| self.asker(key)).flatten()
    }

    fn read_answer(&self, key: &Key, answer: &Value) -> Result<HumanAnswer, AnswerRefusal> {
        let asked = self.question(own(key)?)?;
        HumanAnswer::read(answer, &asked.kind)
    }
}

/// Why a crew has failed that has left out all of its list.
fn nothing_of_list(undone: &[NotDone]) -> Option<String> {
    const NAMED: usize = 5;
    let named: Vec<String> = undone.iter().take(NAMED).map(NotDone::text).collect();
    (!named.is_empty()).then(|| format!("no task of the crew is done: {}", named.join("; ")))
}

/// What agents may have asked.
fn own(key: &Key) -> Result<&AgentsKey, NotWaiting> {
    match key {
        Key::Agents(key) => Ok(key),
        Key::Graph(_) | Key::Chat(_) | Key::People(_) | Key::Team(_) | Key::Memory(_) | Key::Core(_) => {
            Err(NotWaiting(key.clone()))
        }
    }
}

fn report(line: CrewLine) -> TaskReport {
    TaskReport {
        task_id: TaskId::of(&line.id),
        title: TaskReport::first_line(&line.objective).to_owned(),
        status: line.status,
        agent: line.agent,
        attempts: line.attempts,
        error: line.error,
        brief: line.output.as_deref().map(TaskReport::brief),
        undone: None,
    }
}
