//! What outlives a crash of the worker: the world's memory of a run, and what was seen of it.
//!
//! Invariant: it is changed by what is durable only, so that a copy taken at a commit is what a crash right after it
//! leaves behind. An answer of the world arrives at its moment, whether the worker that asked is still there or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bosun_engine::*;
use serde_json::{Value, json};

use super::asked::Asked;
use super::rule::{Answer, Failing};
use super::world::WorldAnswer;
use crate::capability::http::{HTTP, HTTP_TIMEOUT};
use crate::capability::model::MODEL_NEEDS_HUMAN;
use crate::capability::process::PROCESS_TIMEOUT;
use crate::capability::scripted::SCRIPTED_FAILURE;
use crate::supervisor::run::{SUPERVISOR, SupervisorInput};
use crate::supervisor::spec::SupervisorSpec;

/// One run, as its history tells it.
#[derive(Clone)]
pub(crate) struct RunSeen {
    pub(crate) workflow_id: WorkflowId,
    pub(crate) workflow_type: WorkflowType,
    pub(crate) spec: Option<Arc<SupervisorSpec>>,
    pub(crate) turns: Vec<Arc<Turn>>,
    pub(crate) closed: Option<(Timestamp, Arc<EventKind>)>,
}

/// A call that was made: what was asked, and what the world says to it.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) asked: Arc<Asked>,
    pub(crate) said: Arc<WorldAnswer>,
    /// When the answer arrives.
    pub(crate) due: Timestamp,
}

impl Made {
    /// The answer in the form in which whoever was called gives it.
    pub(crate) fn outcome(&self) -> Result<Payload, ActivityError> {
        match &self.said.result {
            Ok(said) => Ok(self.asked.payload(said, self.said.charge)),
            Err(Answer::Fail { message, how }) => {
                Err(ActivityError::Failure(failure(&self.asked.activity_type, message, *how)))
            }
            Err(Answer::Say(_)) => Ok(Payload::null()),
        }
    }
}

fn failure(activity_type: &str, message: &str, how: Failing) -> Failure {
    let of = |kind: &str| Failure::application(kind, message.to_owned());
    match how {
        Failing::Late if activity_type == HTTP => of(HTTP_TIMEOUT),
        Failing::Late => of(PROCESS_TIMEOUT),
        Failing::Retryable => of(SCRIPTED_FAILURE),
        Failing::Final => of(SCRIPTED_FAILURE).non_retryable(),
        Failing::NeedsPerson => of(MODEL_NEEDS_HUMAN).non_retryable(),
    }
}

/// A note, with the run that noted it.
#[derive(Debug, Clone)]
pub(crate) struct Noted {
    pub(crate) kind: String,
    pub(crate) data: Value,
}

/// Where an act of people stands.
#[derive(Clone, PartialEq)]
pub(crate) enum CueState {
    Waits,
    /// Its condition was true; with what it was true of.
    Armed {
        due: Timestamp,
        of: Value,
    },
    Done,
}

/// What is not as it was expected.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Complaint {
    /// The path of the expectation, or what all scenes must hold.
    pub(crate) at: String,
    pub(crate) expected: String,
    pub(crate) seen: String,
    /// The place in the file and the value that would have been right, where a plain value was expected.
    pub(crate) update: Option<(String, Value)>,
}

impl Complaint {
    pub(crate) fn new(at: impl Into<String>, expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Complaint { at: at.into(), expected: expected.into(), seen: seen.into(), update: None }
    }
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Outside {
    /// The first run, or the last of those in which it goes on.
    pub(crate) root: Option<RunId>,
    /// The run in which another one goes on.
    next: BTreeMap<RunId, RunId>,
    pub(crate) runs: BTreeMap<RunId, RunSeen>,
    pub(crate) calls: Vec<Made>,
    known: BTreeMap<String, usize>,
    ended: BTreeSet<String>,
    /// Calls that were under way when a worker died.
    lost: BTreeSet<String>,
    pub(crate) cues: Vec<CueState>,
    /// Approvals, questions and plans that somebody sees to, the first seen to first.
    pub(crate) taken: Vec<(String, Value)>,
    pub(crate) kills: usize,
    pub(crate) commits: usize,
    /// The newest group of the log.
    pub(crate) group: GroupSeq,
    pub(crate) notes: Vec<Arc<Noted>>,
    /// Calls that were made twice.
    pub(crate) twice: Vec<String>,
    pub(crate) complaints: Vec<Complaint>,
    /// Why a condition was not so when it was looked at last, by the path of the act.
    pub(crate) not_yet: BTreeMap<String, String>,
}

impl Outside {
    pub(crate) fn new(cues: usize) -> Outside {
        Outside { cues: vec![CueState::Waits; cues], ..Outside::default() }
    }

    /// Takes in what has become durable.
    pub(crate) fn committed(&mut self, group: GroupSeq, turns: Vec<Turn>) {
        self.commits += 1;
        self.group = group;
        for turn in turns {
            let turn = Arc::new(turn);
            for kind in &turn.events {
                match kind {
                    EventKind::WorkflowExecutionStarted(started) => {
                        self.runs.entry(turn.run).or_insert_with(|| RunSeen::of(started));
                    }
                    EventKind::WorkflowExecutionContinuedAsNew(next) => self.goes_on(turn.run, next.new_run),
                    EventKind::MarkerRecorded(Marker::SideEffect { value, .. }) => self.noted(value),
                    _ => {}
                }
                if kind.closes().is_some()
                    && let Some(run) = self.runs.get_mut(&turn.run)
                {
                    run.closed = Some((turn.at, Arc::new(kind.clone())));
                }
            }
            if let Some(run) = self.runs.get_mut(&turn.run) {
                run.turns.push(turn);
            }
        }
    }

    fn goes_on(&mut self, run: RunId, next: RunId) {
        self.next.insert(run, next);
        if self.root == Some(run) {
            self.root = Some(next);
        }
    }

    /// The run in which this one has gone on last; itself, if it has not.
    pub(crate) fn last_of(&self, mut run: RunId) -> RunId {
        while let Some(next) = self.next.get(&run) {
            run = *next;
        }
        run
    }

    /// The run that goes on in this one.
    pub(crate) fn first_of(&self, mut run: RunId) -> RunId {
        while let Some((before, _)) = self.next.iter().find(|(_, next)| **next == run) {
            run = *before;
        }
        run
    }

    fn noted(&mut self, value: &Payload) {
        let notes = value.to_json();
        for note in notes.as_array().into_iter().flatten() {
            if let (Some(kind), Some(data)) = (note.get("kind").and_then(Value::as_str), note.get("data")) {
                self.notes.push(Arc::new(Noted { kind: kind.to_owned(), data: data.clone() }));
            }
        }
    }

    /// A call that was made before: the same, or an attempt of it that was lost with its worker.
    pub(crate) fn made(&self, asked: &Asked) -> Option<&Made> {
        let lost = asked.before.iter().find(|before| self.lost.contains(*before) && !self.ended.contains(*before));
        self.known.get(lost.unwrap_or(&asked.id)).and_then(|at| self.calls.get(*at))
    }

    pub(crate) fn make(&mut self, made: Made) {
        self.known.insert(made.asked.id.clone(), self.calls.len());
        self.calls.push(made);
    }

    /// A call that was made before is made again: right only for one whose worker died.
    pub(crate) fn again(&mut self, id: &str, shown: String) {
        if self.ended.contains(id) || !self.lost.remove(id) {
            self.twice.push(shown);
        }
    }

    pub(crate) fn end(&mut self, id: &str) {
        self.ended.insert(id.to_owned());
    }

    /// The worker is gone, and with it what was under way.
    pub(crate) fn lose<'a>(&mut self, under_way: impl Iterator<Item = &'a str>) {
        self.lost.extend(under_way.map(str::to_owned));
    }

    /// Whether somebody sees to it.
    pub(crate) fn is_taken(&self, takes: &str) -> bool {
        self.taken.iter().any(|(name, _)| name == takes)
    }
    pub(crate) fn root(&self) -> Option<&RunSeen> {
        self.root.and_then(|root| self.runs.get(&root))
    }
    pub(crate) fn is_over(&self) -> bool {
        self.root().is_some_and(|root| root.closed.is_some())
    }
    /// Open runs of a type, the first run first.
    pub(crate) fn open(&self, workflow_type: &str) -> Vec<Target> {
        let mut open: Vec<(&RunId, &RunSeen)> = self
            .runs
            .iter()
            .filter(|(_, run)| run.closed.is_none() && run.workflow_type.as_str() == workflow_type)
            .collect();
        open.sort_by_key(|(id, _)| Some(**id) != self.root);
        open.into_iter().map(|(id, run)| Target::run(run.workflow_id.clone(), *id)).collect()
    }
    pub(crate) fn events(&self) -> usize {
        self.runs.values().flat_map(|run| &run.turns).map(|turn| turn.events.len()).sum()
    }
    /// The histories of the first run and of those in which it goes on.
    #[cfg(test)]
    pub(crate) fn chain(&self) -> Vec<Turn> {
        let first = self.root.map(|root| self.first_of(root));
        let runs = std::iter::successors(first, |run| self.next.get(run).copied());
        runs.flat_map(|run| self.history(run)).collect()
    }
    /// The history of a run.
    pub(crate) fn history(&self, run: RunId) -> Vec<Turn> {
        let turns = self.runs.get(&run).map(|run| &run.turns);
        turns.into_iter().flatten().map(|turn| (**turn).clone()).collect()
    }

    /// The last events of the first run, a line each.
    pub(crate) fn last_events(&self, count: usize, begin: Timestamp) -> Vec<String> {
        let turns = self.root().into_iter().flat_map(|root| &root.turns);
        let all: Vec<Event> = turns.flat_map(|turn| turn.numbered().collect::<Vec<_>>()).collect();
        let line = |event: &Event| {
            let at = event.at.since(begin).as_secs_f64();
            format!("{:>4} {at:>9.3}s  {} {}", event.id.0, event.kind.name(), brief(&event.kind)).trim_end().to_owned()
        };
        all[all.len().saturating_sub(count)..].iter().map(line).collect()
    }
}

impl RunSeen {
    fn of(started: &WorkflowExecutionStarted) -> RunSeen {
        let input =
            (started.workflow_type.as_str() == SUPERVISOR).then(|| started.input.decode::<SupervisorInput>().ok());
        let spec = input.flatten().and_then(|input| input.into_spec().ok());
        RunSeen {
            workflow_id: started.workflow_id.clone(),
            workflow_type: started.workflow_type.clone(),
            spec: spec.map(Arc::new),
            turns: Vec::new(),
            closed: None,
        }
    }
}

/// What an event is about, in a few words.
fn brief(kind: &EventKind) -> String {
    let fields = serde_json::to_value(kind).ok().and_then(|value| value.as_object()?.values().next().cloned());
    let fields = fields.unwrap_or(Value::Null);
    let found = |key: &str| {
        fields.get(key).or_else(|| fields.get("options")?.get(key)).filter(|value| !value.is_null()).cloned()
    };
    let failure = fields.pointer("/failure/message").cloned();
    let parts =
        [found("summary"), found("name"), found("reason"), failure, found("seq").map(|seq| json!(format!("#{seq}")))];
    let cut = |value: Value| super::matcher::text(&value).chars().take(80).collect::<String>();
    parts.into_iter().flatten().map(cut).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}
