//! Looks ahead: what would the code that does not fit have asked for next?
//!
//! The code is given the recorded outcomes of the requests that it makes again, under the numbers it gives them, and
//! timers that history does not know fire at once. So a step that was inserted, removed or moved is seen as that, and
//! not as another path.
//!
//! Invariant: only an explanation is made of it; nothing decides by it. No activity, clock or model is called, side
//! effects do not run, and the number of steps is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bosun_engine::workflow::{JobTable, Replayer, job_of};
use bosun_engine::*;

use crate::History;

/// More steps than this tell a reader nothing more.
const STEPS_MAX: usize = 100;

/// A command with its place in the code.
pub(super) type Asked = (Command, Option<CodeLocation>);

/// A request that history holds behind the mismatch.
struct HeldRequest {
    seq: Seq,
    what: RequestContent,
    fire_at: Option<Timestamp>,
}

/// What a request asks for, apart from its number.
#[derive(Debug, Clone, PartialEq)]
enum RequestContent {
    Activity(ActivityType, Payload),
    Timer(std::time::Duration),
    Child(WorkflowType, Payload),
}

impl RequestContent {
    /// The same request, or one of the same name with other content.
    fn resembles(&self, other: &RequestContent) -> bool {
        match (self, other) {
            (RequestContent::Activity(a, _), RequestContent::Activity(b, _)) => a == b,
            (RequestContent::Child(a, _), RequestContent::Child(b, _)) => a == b,
            _ => false,
        }
    }
}

struct CommandsAhead<'a> {
    driver: &'a mut dyn Driver,
    run_id: RunId,
    history: HistorySize,
    at: Timestamp,
    markers: Markers,
    /// What reached the run behind the mismatch, in order, and has not been told to the code yet.
    jobs: Vec<(Timestamp, Job)>,
    held: Vec<HeldRequest>,
    /// The code's own number of a recorded request.
    own: BTreeMap<Seq, Seq>,
    /// Timers of the code that history does not know.
    unknown_timers: BTreeSet<Seq>,
    asked: Vec<Asked>,
}

/// The commands of the activation that did not match, and what follows from them. `from` is the event that activated.
pub(super) fn look_ahead(replayer: &mut Replayer<'_>, history: &History, from: EventId) -> Vec<Asked> {
    let first: Vec<Command> = replayer.produced().to_vec();
    let Some(driver) = replayer.driver() else { return Vec::new() };
    let first = located(driver, first);
    let mut ahead = CommandsAhead {
        driver,
        run_id: history.run_id(),
        history: HistorySize::default(),
        at: Timestamp::ZERO,
        markers: Markers::Fresh,
        jobs: Vec::new(),
        held: Vec::new(),
        own: BTreeMap::new(),
        unknown_timers: BTreeSet::new(),
        asked: Vec::new(),
    };
    ahead.read(history, from);
    ahead.ask(first);
    ahead.walk();
    ahead.asked
}

fn located(driver: &dyn Driver, commands: Vec<Command>) -> Vec<Asked> {
    commands.into_iter().enumerate().map(|(at, command)| (command, driver.command_location(at))).collect()
}

impl CommandsAhead<'_> {
    fn read(&mut self, history: &History, from: EventId) {
        let mut table = JobTable::default();
        let mut patches = BTreeSet::new();
        for event in history.events() {
            if event.id <= from {
                self.history.events += 1;
                self.history.bytes += event.kind.size();
                self.at = event.at;
            }
            if event.id > from && event.kind.origin() == Origin::Activating {
                self.jobs.extend(job_of(&event.kind, &table).map(|job| (event.at, job)));
            }
            match held(&event) {
                Some(held) if event.id > from => self.held.push(held),
                // What was asked for before the mismatch has the same number on both sides.
                Some(held) => drop(self.own.insert(held.seq, held.seq)),
                None => {}
            }
            if let EventKind::MarkerRecorded(Marker::Patch { id, .. }) = &event.kind {
                patches.insert(id.clone());
            }
            table.apply(&event.kind);
        }
        self.history = history.size_told(from).unwrap_or(self.history);
        // Side effects are not run here: code that reaches a new one stops.
        self.markers = Markers::Recorded { side_effects: Arc::default(), patches };
    }

    /// Notes what the code asked for, and which recorded requests these are.
    fn ask(&mut self, commands: Vec<Asked>) {
        for (mut command, place) in commands {
            if let Some((seq, what)) = what_of(&command, self.at) {
                let same = self.held.iter().position(|held| held.what == what);
                let found = same.or_else(|| self.held.iter().position(|held| held.what.resembles(&what)));
                match found {
                    Some(found) => {
                        let held = self.held.remove(found);
                        self.own.insert(held.seq, seq);
                        // The same wait, begun at another moment, is no difference of its own.
                        if let (Command::StartTimer { fire_at, .. }, Some(recorded), Some(_)) =
                            (&mut command, held.fire_at, same)
                        {
                            *fire_at = recorded;
                        }
                    }
                    None if matches!(what, RequestContent::Timer(_)) => drop(self.unknown_timers.insert(seq)),
                    None => {}
                }
            }
            if let Command::CancelTimer { seq } = &command {
                self.unknown_timers.remove(seq);
            }
            self.asked.push((command, place));
        }
    }

    fn walk(&mut self) {
        for _ in 0..STEPS_MAX {
            if self.asked.iter().any(|(command, _)| command.closes()) {
                return;
            }
            let job = match self.unknown_timers.pop_first() {
                Some(seq) => Job::FireTimer { seq },
                None => match self.jobs.iter().position(|(_, job)| self.can_hear(job)) {
                    Some(found) => {
                        let (at, job) = self.jobs.remove(found);
                        self.at = self.at.max(at);
                        self.renumbered(job)
                    }
                    None => return,
                },
            };
            let (at, run_id, history, markers) = (self.at, self.run_id, self.history, self.markers.clone());
            let commands = self.driver.activate(Activation { at, run_id, history, job, markers });
            let asked = located(self.driver, commands);
            self.ask(asked);
        }
    }

    fn can_hear(&self, job: &Job) -> bool {
        seq_of(job).is_none_or(|seq| self.own.contains_key(&seq))
    }

    fn renumbered(&self, mut job: Job) -> Job {
        if let Some(seq) = seq_mut(&mut job)
            && let Some(own) = self.own.get(seq)
        {
            *seq = *own;
        }
        job
    }
}

fn held(event: &Event) -> Option<HeldRequest> {
    let (seq, what) = match &event.kind {
        EventKind::ActivityTaskScheduled(held) => {
            (held.seq, RequestContent::Activity(held.activity_type.clone(), held.input.clone()))
        }
        EventKind::TimerStarted { seq, fire_at, .. } => (*seq, RequestContent::Timer(fire_at.since(event.at))),
        EventKind::StartChildWorkflowExecutionInitiated(held) => {
            (held.seq, RequestContent::Child(held.workflow_type.clone(), held.input.clone()))
        }
        _ => return None,
    };
    let fire_at = match &event.kind {
        EventKind::TimerStarted { fire_at, .. } => Some(*fire_at),
        _ => None,
    };
    Some(HeldRequest { seq, what, fire_at })
}

fn what_of(command: &Command, at: Timestamp) -> Option<(Seq, RequestContent)> {
    match command {
        Command::ScheduleActivity { seq, activity_type, input, .. } => {
            Some((*seq, RequestContent::Activity(activity_type.clone(), input.clone())))
        }
        Command::StartTimer { seq, fire_at, .. } => Some((*seq, RequestContent::Timer(fire_at.since(at)))),
        Command::StartChildWorkflow { seq, workflow_type, input, .. } => {
            Some((*seq, RequestContent::Child(workflow_type.clone(), input.clone())))
        }
        _ => None,
    }
}

fn seq_of(job: &Job) -> Option<Seq> {
    let mut copy = job.clone();
    seq_mut(&mut copy).copied()
}

fn seq_mut(job: &mut Job) -> Option<&mut Seq> {
    match job {
        Job::ResolveActivity { seq, .. }
        | Job::FireTimer { seq }
        | Job::ResolveChildWorkflowStart { seq, .. }
        | Job::ResolveChildWorkflow { seq, .. }
        | Job::ResolveSignalExternal { seq, .. }
        | Job::ResolveCancelExternal { seq, .. } => Some(seq),
        Job::InitializeWorkflow(_) | Job::SignalWorkflow(_) | Job::CancelWorkflow { .. } | Job::DoUpdate { .. } => None,
    }
}
