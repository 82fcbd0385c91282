//! The same history under another policy: what people would not have been asked (part 6 no. 7).
//!
//! The recorded answers of agents are given again to a run of the same spec at another level of trust, in virtual time;
//! nobody is called. What the other run asks for that was never answered ends it there.
//!
//! Invariant: recorded outcomes are only read, never made up; approvals are answered as they were, those that were never
//! asked are not. It is a question to a whole history, of all runs of its chain; a part of one is told to be that. It is no
//! run: nothing of it is kept.

use std::collections::{BTreeMap, VecDeque};

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde_json::{Value, json};

use super::signals::APPROVAL_RESPONSE;
use super::{NoSpec, SUPERVISOR, SupervisorInput, register};
use crate::supervisor::journal::{Note, NoteKind};
use crate::supervisor::people::approval::{ApprovalRequest, ApprovalResponse};
use crate::supervisor::spec::TrustLevel;

/// Jobs after which a run that is looked at so is given up.
const JOBS_MAX: u32 = 200_000;

/// What trust would have saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Approvals that were asked in the history.
    pub asked: usize,
    /// Those that an expert is not asked, in the words in which they were asked.
    pub not_asked: Vec<String>,
}

/// Why a history does not tell it.
#[derive(Debug, thiserror::Error)]
pub enum NotTold {
    #[error("the history has no beginning")]
    NoBeginning,
    #[error("the input is no supervisor's: {0}")]
    NoSupervisor(serde_json::Error),
    #[error(transparent)]
    Spec(#[from] NoSpec),
    #[error("another run goes on in this one: give the histories of the chain from its first run on")]
    GoesOn,
    #[error("the run goes on in a new one: give the histories of all runs of the chain, one after the other")]
    GoesOnLater,
    #[error("{0}")]
    NotBegun(String),
}

/// What a history tells of the world outside.
#[derive(Debug, Default)]
struct RecordedAnswer {
    /// Of the first run.
    input: Option<Value>,
    /// The last run goes on in one that is not here.
    goes_on: bool,
    answers: BTreeMap<String, Result<Payload, Failure>>,
    approvals: Vec<ApprovalRequest>,
    responses: Vec<ApprovalResponse>,
}

/// Looks at the turns of a supervisor's history: of all runs in which it went on, the first first.
pub fn approvals_as_expert(turns: &[Turn]) -> Result<Saved, NotTold> {
    as_expert(&recorded(turns.iter().flat_map(|turn| turn.events.iter())))
}

fn recorded<'e>(events: impl Iterator<Item = &'e EventKind>) -> RecordedAnswer {
    let mut recorded = RecordedAnswer::default();
    let mut keys: BTreeMap<Seq, String> = BTreeMap::new();
    let mut children = 0;
    for event in events {
        match event {
            EventKind::WorkflowExecutionStarted(started) => {
                recorded.input.get_or_insert_with(|| started.input.to_json());
                // Nothing is under way at the border, and each run counts anew.
                keys.clear();
                recorded.goes_on = false;
            }
            EventKind::WorkflowExecutionContinuedAsNew(_) => recorded.goes_on = true,
            EventKind::ActivityTaskScheduled(task) => {
                keys.insert(task.seq, task.options.summary.clone().unwrap_or_default());
            }
            EventKind::ActivityTaskCompleted { seq, result, .. } => {
                recorded.answers.extend(keys.get(seq).map(|key| (key.clone(), Ok(result.clone()))));
            }
            EventKind::ActivityTaskFailed { seq, failure, .. } => {
                recorded.answers.extend(keys.get(seq).map(|key| (key.clone(), Err(failure.clone()))));
            }
            EventKind::StartChildWorkflowExecutionInitiated(child) => {
                children += 1;
                keys.insert(child.seq, nth_child(children));
            }
            EventKind::ChildWorkflowExecutionCompleted { seq, result } => {
                recorded.answers.extend(keys.get(seq).map(|key| (key.clone(), Ok(result.clone()))));
            }
            EventKind::WorkflowExecutionSignaled(signal) if signal.name.as_str() == APPROVAL_RESPONSE => {
                // What was none changed nothing.
                recorded.responses.extend(signal.input.decode::<ApprovalResponse>().ok());
            }
            EventKind::MarkerRecorded(Marker::SideEffect { value, .. }) => recorded.approvals.extend(asked_in(value)),
            _ => {}
        }
    }
    recorded
}

/// What stands for the key of a child, which history does not name: runs of one spec start them in one order.
fn nth_child(n: u32) -> String {
    format!("child {n}")
}

fn asked_in(notes: &Payload) -> Vec<ApprovalRequest> {
    // Other side effects of a run are no notes.
    let notes: Vec<Note> = notes.decode().unwrap_or_default();
    let asked = notes.into_iter().filter(|note| note.kind == NoteKind::ApprovalRequested);
    asked.filter_map(|note| serde_json::from_value(note.data).ok()).collect()
}

/// Whether two requests are about the same, whatever their ids.
fn is_same(a: &ApprovalRequest, b: &ApprovalRequest) -> bool {
    a.task_id == b.task_id && a.scope == b.scope && a.action == b.action
}

fn as_expert(recorded: &RecordedAnswer) -> Result<Saved, NotTold> {
    let input = recorded.input.clone().ok_or(NotTold::NoBeginning)?;
    let mut input: SupervisorInput = serde_json::from_value(input).map_err(NotTold::NoSupervisor)?;
    if input.continued.is_some() {
        return Err(NotTold::GoesOn);
    }
    if recorded.goes_on {
        return Err(NotTold::GoesOnLater);
    }
    let mut spec = input.clone().into_spec()?;
    input.spec = None;
    // It is looked at in one piece.
    spec.limits.history_events = None;
    (spec.trust.enabled, spec.trust.level) = (true, Some(TrustLevel::Expert));
    input.resolved = Some(spec.resolve_below().map_err(NoSpec::from)?);
    let mut again = Again::new(&json!(input), recorded)?;
    again.go();
    let left = |one: &&ApprovalRequest| !again.asked.iter().any(|other| is_same(one, other));
    let text = |one: &ApprovalRequest| format!("{} ({})", one.description, one.reasons.join("; "));
    let not_asked = recorded.approvals.iter().filter(left).map(text).collect();
    Ok(Saved { asked: recorded.approvals.len(), not_asked })
}

/// One run on recorded outcomes.
struct Again<'r> {
    recorded: &'r RecordedAnswer,
    driver: Box<dyn Driver>,
    run_id: RunId,
    now: Timestamp,
    jobs: VecDeque<Job>,
    timers: BTreeMap<(Timestamp, Seq), ()>,
    children: u32,
    asked: Vec<ApprovalRequest>,
    over: bool,
}

impl<'r> Again<'r> {
    fn new(input: &Value, recorded: &'r RecordedAnswer) -> Result<Self, NotTold> {
        let (run_id, now) = (RunId([1; 16]), Timestamp(1_767_225_600_000_000));
        let input = Payload::encode(input).map_err(|why| NotTold::NotBegun(why.to_string()))?;
        let request = StartWorkflow::new(WorkflowType::of(SUPERVISOR), WorkflowId::of("again")).input(input);
        let first = request.first_event(run_id, now);
        let driver = register(WorkflowRegistry::new())
            .create(&first, run_id)
            .map_err(|why| NotTold::NotBegun(why.to_string()))?;
        let jobs = VecDeque::from([Job::InitializeWorkflow(Box::new(first))]);
        let (timers, asked) = (BTreeMap::new(), Vec::new());
        Ok(Again { recorded, driver, run_id, now, jobs, timers, children: 0, asked, over: false })
    }

    fn go(&mut self) {
        for _ in 0..JOBS_MAX {
            let next = match self.jobs.pop_front() {
                Some(job) => job,
                None => match self.timers.pop_first() {
                    Some(((at, seq), ())) => {
                        self.now = self.now.max(at);
                        Job::FireTimer { seq }
                    }
                    None => return,
                },
            };
            let (at, run_id, history) = (self.now, self.run_id, HistorySize::default());
            for command in self.driver.activate(Activation { at, run_id, history, job: next, markers: Markers::Fresh })
            {
                self.carry_out(command);
            }
            if self.over {
                return;
            }
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::ScheduleActivity { seq, options, .. } => {
                // What was never answered is not made up: it stays open.
                if let Some(result) = options.summary.and_then(|key| self.recorded.answers.get(&key)) {
                    self.jobs.push_back(Job::ResolveActivity { seq, result: result.clone() });
                }
            }
            Command::StartTimer { seq, fire_at, .. } => drop(self.timers.insert((fire_at, seq), ())),
            Command::CancelTimer { seq } => self.timers.retain(|(_, timer), ()| *timer != seq),
            Command::StartChildWorkflow { seq, .. } => {
                self.children += 1;
                let result = self.recorded.answers.get(&nth_child(self.children)).cloned();
                self.jobs.push_back(Job::ResolveChildWorkflowStart { seq, result: Ok(self.run_id) });
                self.jobs.extend(result.map(|result| Job::ResolveChildWorkflow { seq, result }));
            }
            Command::RecordMarker(Marker::SideEffect { value, .. }) => {
                for asked in asked_in(&value) {
                    self.answer(&asked);
                    self.asked.push(asked);
                }
            }
            Command::CompleteWorkflow { .. } | Command::FailWorkflow { .. } | Command::CancelWorkflow { .. } => {
                self.over = true
            }
            _ => {}
        }
    }

    /// As it was answered in the history, by what it was about.
    fn answer(&mut self, asked: &ApprovalRequest) {
        let about = |one: &&ApprovalRequest| one.task_id == asked.task_id && one.scope == asked.scope;
        let Some(known) = self.recorded.approvals.iter().find(about) else { return };
        let of_known = |response: &&ApprovalResponse| response.approval_id == known.id;
        let Some(response) = self.recorded.responses.iter().find(of_known) else { return };
        let (approval_id, shown) = (asked.id.clone(), Some(asked.shown.clone()));
        let signal = ApprovalResponse { approval_id, shown, ..response.clone() };
        if let Ok(input) = Payload::encode(&signal) {
            let name = SignalName::of(APPROVAL_RESPONSE);
            self.jobs.push_back(Job::SignalWorkflow(WorkflowExecutionSignaled {
                name,
                input,
                identity: None,
                request_id: None,
            }));
        }
    }
}
