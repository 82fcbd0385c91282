//! A crew on the loop: sessions of its manager, guardrails, and people who are asked.
//!
//! Invariant: an output counts when it says something, and the guardrail and then the person have accepted it; a person is
//! never asked about an output that is not valid. A task that fails stops the crew. The order of tasks is `crew`'s.

use serde::Deserialize;
use serde_json::{Value, json};

use super::agent_loop::{AgentLoop, Workload};
use super::boundary::{AgentInput, AgentOutcome, AgentsRefused, HumanAnswer, HumanKind, HumanNeeded};
use super::crew::{Crew, CrewCheckpoint, CrewRun, CrewStart, CrewTaskState, TaskOutput};
use super::message::{Message, Variables};
use super::refusal::SessionFailure;
use super::rules::{AgentDef, AgentRules};
use super::session::SessionPlace;
use crate::supervisor::core::key::{AgentsKey, CrewAsk};
use crate::supervisor::core::retry::{Tries, is_refusal};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Call, Outbox, Purpose};
use crate::supervisor::spec::{CrewTask, DelegationScope};

/// What a guardrail answers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validation {
    #[serde(alias = "passed", alias = "valid")]
    success: bool,
    /// Takes the place of the output.
    #[serde(default)]
    result: Option<String>,
    #[serde(default, alias = "feedback")]
    error: Option<String>,
}

impl AgentLoop {
    /// A crew that begins there.
    pub fn crew(
        rules: AgentRules,
        mut agents: Vec<AgentDef>,
        crew: Crew,
        start: CrewStart,
        input: &AgentInput,
        out: &mut Outbox,
    ) -> Result<AgentLoop, AgentsRefused> {
        let manager = crew.check(&agents)?;
        let run = CrewRun::new(crew, &manager.name, start)?;
        agents.push(manager);
        let mut it = AgentLoop::new(rules, agents, input, Workload::Crew(run))?;
        it.go_on_with_crew(out);
        Ok(it)
    }

    /// The outputs so far; to be restored, or forked.
    pub fn checkpoint(&self) -> Option<CrewCheckpoint> {
        let Workload::Crew(run) = &self.work else { return None };
        Some(CrewCheckpoint { outputs: run.outputs.values().cloned().collect(), lineage: run.lineage.clone() })
    }

    fn crew_run(&mut self) -> Option<&mut CrewRun> {
        match &mut self.work {
            Workload::Crew(run) => Some(run),
            Workload::Conversation { .. } | Workload::Steps(_) => None,
        }
    }

    /// Starts every task that may start, and ends when there is none left.
    pub(super) fn go_on_with_crew(&mut self, out: &mut Outbox) {
        loop {
            if self.outcome.is_some() {
                return;
            }
            let Some(run) = self.crew_run() else { return };
            let Some(at) = run.next() else { break };
            if out.budget().exhausted().is_some() {
                return self.leave_task(None, out);
            }
            if !run.condition_holds(at) {
                self.accept(at, String::new(), true, out);
                continue;
            }
            run.running.insert(at, CrewTaskState::default());
            self.start_task(at, None, out);
        }
        let Some(run) = self.crew_run() else { return };
        if run.running.values().any(|task| task.left) {
            return self.leave_task(None, out);
        }
        if run.running.is_empty() {
            let result = Value::String(run.result());
            let outcome = self.outcome_of(Ok(result));
            self.outcome = Some(outcome);
        }
    }

    /// Sets the manager to a task, in a session of its own.
    fn start_task(&mut self, at: usize, correction: Option<&str>, out: &mut Outbox) {
        let Some(run) = self.crew_run() else { return };
        let Some(under_way) = run.running.get_mut(&at) else { return };
        under_way.attempt = under_way.attempt.saturating_add(1);
        let (attempt, manager) = (under_way.attempt, run.manager.clone());
        let (prompt, task) = (run.prompt(at, correction), run.tasks[at].clone());
        out.note(NoteKind::AttemptStarted, json!({"task": task.id, "attempt": attempt, "agent": manager}));
        let everybody = || self.agents.iter().map(|def| def.name.clone()).filter(|name| *name != manager);
        let coworkers: Vec<String> = match (self.rules.delegation.scope, &task.agent) {
            (DelegationScope::Assigned, Some(agent)) => vec![agent.clone()],
            (DelegationScope::Assigned, None) | (DelegationScope::All, _) => everybody().collect(),
        };
        let messages = vec![Message::user(prompt)];
        let number = u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
        // What was cut short in an attempt that was not accepted is no part of this one.
        let sessions = &self.sessions;
        let of_item = |seq: &u32| sessions.get(seq).is_some_and(|session| session.path.0.first() == Some(&number));
        self.cut_turns.retain(|seq, _| !of_item(seq));
        self.bounded.retain(|seq, _| !of_item(seq));
        let seq = self.open(&manager, SessionPlace::root(at, [number, attempt]), messages, Variables::new(), out);
        if let Some(session) = self.sessions.get_mut(&seq) {
            session.coworkers = coworkers;
        }
        self.begin_turn(seq, out);
    }

    /// The manager has an output, or failed.
    pub(super) fn task_answered(&mut self, at: usize, result: Result<String, SessionFailure>, out: &mut Outbox) {
        let Some(run) = self.crew_run() else { return };
        let Some(task) = run.tasks.get(at).cloned() else { return };
        let text = match result {
            Ok(text) => text,
            Err(_) if out.budget().exhausted().is_some() => return self.leave_task(Some(at), out),
            Err(SessionFailure::NotApproved(why)) => return self.leave_out(at, why, out),
            Err(why) => return self.task_failed(at, &task.id, &why, out),
        };
        let Some(under_way) = run.running.get_mut(&at) else { return };
        (under_way.output, under_way.unread) = (text, 0);
        match task.guardrail {
            // What nobody is paid to validate does not count.
            Some(_) if out.budget().exhausted().is_some() => self.leave_task(Some(at), out),
            Some(_) => self.ask_guardrail(at, None, out),
            None => self.ask_about(at, out),
        }
    }

    /// Has the output validated; `wrong` is why the answer before could not be read.
    fn ask_guardrail(&mut self, at: usize, wrong: Option<&str>, out: &mut Outbox) {
        let Some(run) = self.crew_run() else { return };
        let Some(CrewTask { id, description, guardrail: Some(guardrail), .. }) = run.tasks.get(at).cloned() else {
            return;
        };
        let Some(under_way) = run.running.get_mut(&at) else { return };
        under_way.validated = under_way.validated.saturating_add(1);
        let (time, text, said) = (under_way.validated, under_way.output.clone(), under_way.said());
        let key = AgentsKey::Crew { task: id.clone(), ask: CrewAsk::Guard(time) };
        let mut context = json!({"task": id, "description": description, "output": text});
        let mut prompt = format!("Validate this output of the task \"{description}\":\n{text}");
        if let Some(said) = said {
            context["said"] = json!(said);
            prompt.push_str(&format!("\n\n{said}"));
        }
        if let Some(wrong) = wrong {
            context["problem"] = json!(wrong);
            prompt.push_str(&format!("\n\nYour last answer could not be used: {wrong}"));
        }
        out.call(Call::new(key, Purpose::Review, context).agent(guardrail).attempt(time).prompt(prompt));
    }

    pub(super) fn guard_answered(&mut self, at: usize, answer: Answer, out: &mut Outbox) {
        let refused = answer.as_ref().is_err_and(is_refusal);
        let validation = match answer {
            Ok(value) => serde_path_to_error::deserialize::<_, Validation>(value)
                .map_err(|why| format!("the guardrail's answer does not conform at `{}`: {}", why.path(), why.inner())),
            Err(failure) => Err(failure.message),
        };
        let Some(run) = self.crew_run() else { return };
        let Some(task) = run.tasks.get(at).cloned() else { return };
        let Some(under_way) = run.running.get_mut(&at) else { return };
        let validation = match validation {
            Ok(validation) => validation,
            Err(_) if out.budget().exhausted().is_some() => return self.leave_task(Some(at), out),
            Err(why) => {
                under_way.unread = under_way.unread.saturating_add(1);
                if !refused && Tries::of(run.validation_tries).are_left(under_way.unread) {
                    let told = json!({"task": task.id, "guardrail": task.guardrail, "error": why});
                    out.note(NoteKind::AttemptFailed, told);
                    self.ask_guardrail(at, Some(&why), out);
                } else {
                    let why = if refused { SessionFailure::Refused(why) } else { SessionFailure::Call(why) };
                    self.task_failed(at, &task.id, &why, out);
                }
                return;
            }
        };
        if validation.success {
            if let Some(result) = validation.result {
                under_way.output = result;
            }
            self.ask_about(at, out);
            return;
        }
        let error = validation.error.unwrap_or_else(|| "not valid".to_owned());
        let max = task.guardrail_max_retries;
        if !Tries::of(max).are_left(under_way.invalid) {
            let why = format!("Task failed guardrail validation after {max} retries. Last error: {error}");
            self.stop_crew(at, why, out);
            return;
        }
        under_way.invalid = under_way.invalid.saturating_add(1);
        let correction = format!(
            "### Previous attempt failed validation: {error}\n\n### Previous result:\n{}\n\nTry again, making sure to \
             address the validation error.",
            under_way.output
        );
        self.begin_again(at, correction, None, out);
    }

    /// The next attempt at a task is told what was wrong with the last one, and what people have said before; `word` is what
    /// the correction says in the words of a person.
    fn begin_again(&mut self, at: usize, correction: String, word: Option<&str>, out: &mut Outbox) {
        let Some(under_way) = self.crew_run().and_then(|run| run.running.get_mut(&at)) else { return };
        let told: Vec<String> = under_way.said().into_iter().chain([correction]).collect();
        under_way.words.extend(word.filter(|word| !word.is_empty()).map(str::to_owned));
        self.start_task(at, Some(&told.join("\n\n")), out);
    }

    /// What a person has said to whoever does a task of the crew, or a part of it: its later attempts are told too.
    pub(super) fn keep_words(&mut self, item: u32, words: &str) {
        let Some(run) = self.crew_run() else { return };
        let at = usize::try_from(item.saturating_sub(1)).unwrap_or(usize::MAX);
        if let Some(under_way) = run.running.get_mut(&at) {
            under_way.words.push(words.to_owned());
        }
    }

    /// Asks the person, if the task wants it; accepts the output otherwise.
    fn ask_about(&mut self, at: usize, out: &mut Outbox) {
        let Some(run) = self.crew_run() else { return };
        let Some(task) = run.tasks.get(at).cloned() else { return };
        let Some(under_way) = run.running.get(&at).cloned() else { return };
        if under_way.output.trim().is_empty() {
            // What nobody has made is no output, and the one before it is not taken for it.
            return self.stop_crew(at, format!("Task '{}' failed: the answer of the manager is empty", task.id), out);
        }
        if !task.human_input {
            self.accept(at, under_way.output, false, out);
            self.go_on_with_crew(out);
            return;
        }
        let manager = run.manager.clone();
        let key = AgentsKey::Crew { task: task.id.clone(), ask: CrewAsk::Feedback(under_way.attempt) };
        let needed = HumanNeeded {
            key: key.clone(),
            kind: HumanKind::TaskFeedback { task: task.id.clone() },
            agent: manager,
            message: format!("Is this output of task '{}' right? What is to be changed?", task.id),
            about: under_way.output,
        };
        self.humans.insert(key, needed);
    }

    /// The person has looked at an output.
    pub(super) fn feedback_given(&mut self, at: usize, answer: &HumanAnswer, out: &mut Outbox) {
        let Some(run) = self.crew_run() else { return };
        let Some(under_way) = run.running.get_mut(&at) else { return };
        let output = under_way.output.clone();
        if answer.approved {
            self.accept(at, output, false, out);
            self.go_on_with_crew(out);
            return;
        }
        // It is new work, with tries of its own.
        under_way.invalid = 0;
        let correction =
            format!("### Feedback on your previous result:\n{}\n\n### Previous result:\n{output}", answer.feedback);
        self.begin_again(at, correction, Some(&answer.feedback), out);
    }

    /// Nobody has looked at an output in time.
    pub(super) fn not_looked_at(&mut self, at: usize, why: &SessionFailure, out: &mut Outbox) {
        let Some(task) = self.crew_run().and_then(|run| run.tasks.get(at)).map(|task| task.id.clone()) else { return };
        self.task_failed(at, &task, why, out);
    }

    fn task_failed(&mut self, at: usize, task: &str, why: &SessionFailure, out: &mut Outbox) {
        self.refused |= self.outcome.is_none() && why.is_refusal();
        self.stop_crew(at, format!("Task '{task}' failed: {why}"), out);
    }

    pub(super) fn accept(&mut self, at: usize, text: String, skipped: bool, out: &mut Outbox) {
        let Some(run) = self.crew_run() else { return };
        let attempts = run.running.remove(&at).map_or(0, |under_way| under_way.attempt);
        run.attempts.insert(at, attempts);
        let task = run.tasks[at].id.clone();
        let to = if skipped { "skipped" } else { "completed" };
        out.note(NoteKind::TaskStatusChanged, json!({"task": task, "to": to, "by": "crew"}));
        let denied = run.denied.get(&at).cloned();
        run.outputs.insert(at, TaskOutput { task, text, skipped, denied });
    }

    /// A crew that cannot go on ends everything that is under way.
    pub(super) fn stop_crew(&mut self, at: usize, why: String, out: &mut Outbox) {
        if self.outcome.is_none() {
            if let Some(run) = self.crew_run() {
                run.failed = Some((at, why.clone()));
            }
            self.cancel(&why, out);
            let outcome = self.outcome_of(Err(SessionFailure::Stopped(why)));
            self.outcome = Some(AgentOutcome { ok: false, ..outcome });
        }
    }
}
