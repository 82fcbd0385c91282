//! Decisions: what a turn adds to the log, and what must happen in the world once it is there.
//!
//! Invariant (persist, then release): a [`Decision`] owns its turns and its effects; effects are reachable only through
//! [`Decision::seal`], and a sealed decision gives them up only for proof of the commit. A reply is an effect too.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::run::Run;
use crate::activity::ActivityTask;
use crate::vocabulary::*;
use crate::workflow::job_of;

/// What the shell must do after the commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Run an attempt; a slot was taken for it.
    RunActivity(Box<ActivityTask>),
    /// No slot was free: ask again with [`Input::StartActivity`] when one is.
    QueueActivity {
        /// The activity.
        seq: Seq,
        /// The attempt that waits.
        attempt: Attempt,
        /// Its type: some leave the process, for which there are fewer slots.
        activity_type: ActivityType,
        /// Where it waits.
        queue: TaskQueue,
        /// Its place there; `None`: the default one.
        priority: Option<Priority>,
    },
    /// Tell the function of an attempt to stop.
    CancelActivity {
        /// The activity.
        seq: Seq,
        /// The attempt that is to stop.
        attempt: Attempt,
    },
    /// Start a child under this run id (a repetition finds it there) and answer with [`Input::ChildStarted`].
    StartChild {
        /// The command that asked for it.
        seq: Seq,
        /// The id of the child's first run, derived from this run.
        run_id: RunId,
        /// The start, as a client would ask for it.
        start: Box<StartWorkflow>,
    },
    /// Answer with [`Input::ChildClosed`] if the chain that began with `first_run` has ended meanwhile.
    WatchChild {
        /// The command that started the child.
        seq: Seq,
        /// The id of the child.
        workflow_id: WorkflowId,
        /// The first run of its chain.
        first_run: RunId,
    },
    /// Answer with [`Input::CancelDelivered`].
    CancelChild {
        /// The command that started the child.
        seq: Seq,
        /// The id of the child.
        workflow_id: WorkflowId,
        /// The first run of its chain; a later chain of the id is not meant.
        first_run: RunId,
        /// Why, as the child sees it.
        reason: String,
        /// The same for each repetition: the child applies it once.
        request_id: RequestId,
    },
    /// The parent has ended: the child is terminated or asked to cancel.
    ParentClosed {
        /// The id of the child.
        workflow_id: WorkflowId,
        /// The first run of its chain.
        first_run: RunId,
        /// What happens to it.
        policy: ParentClosePolicy,
    },
    /// Answer with [`Input::SignalDelivered`].
    SignalExternal {
        /// The command that sent it.
        seq: Seq,
        /// The run that is meant.
        target: ExternalTarget,
        /// The signal, with a request id that each repetition has.
        signal: WorkflowExecutionSignaled,
    },
    /// Answer with [`Input::CancelDelivered`].
    CancelExternal {
        /// The command that asked for it.
        seq: Seq,
        /// The run that is meant.
        target: ExternalTarget,
        /// Why, as that run sees it.
        reason: String,
        /// The same for each repetition: that run applies it once.
        request_id: RequestId,
    },
    /// Give the parent [`Input::ChildClosed`].
    NotifyParent {
        /// The run that waits.
        parent: Parent,
        /// How this run ended.
        outcome: CloseOutcome,
    },
    /// Answer those who wait for the update.
    ResolveUpdate {
        /// The update.
        update_id: UpdateId,
        /// What its handler said.
        result: Result<Payload, Failure>,
    },
    /// Answer those who wait for the result, and forget the run.
    Closed {
        /// How the run ended.
        outcome: CloseOutcome,
        /// The run that goes on for it.
        next_run: Option<RunId>,
    },
}

/// The run that begins in the same commit in which this one ends.
#[derive(Debug, Clone, PartialEq)]
pub struct NextRun {
    /// Derived from the run that ends.
    pub run_id: RunId,
    /// Its first event.
    pub started: WorkflowExecutionStarted,
    /// Inputs accepted for the run before, which this one decides first.
    pub inbox: Vec<Input>,
}

/// What a decision is made in: the time, the build, and where slots are asked for.
pub struct Environment<'a> {
    /// The time of the turn.
    pub now: Timestamp,
    /// The code that decides.
    pub build: BuildId,
    /// What is refused for its size.
    pub limits: &'a Limits,
    /// Takes a slot of a task queue for an activity of this type, if one is free. The attempt that takes it runs after the
    /// commit.
    pub take_slot: &'a mut dyn FnMut(&ActivityType, &TaskQueue) -> bool,
}

/// Limits of a run (E31, G34). All can be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The largest payload of a command, result or request, in bytes. Default 2 MiB.
    pub payload_max: usize,
    /// How many inputs a paused or held run keeps. Default 10 000.
    pub inbox_max: usize,
    /// `describe` warns from here on. Default 10 240.
    pub history_events_warn: u64,
    /// Default 10 MiB.
    pub history_bytes_warn: u64,
    /// How long one turn of workflow code may take before it is taken off its thread. Default 5 s.
    pub turn_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            payload_max: 2 * 1024 * 1024,
            inbox_max: 10_000,
            history_events_warn: 10_240,
            history_bytes_warn: 10 * 1024 * 1024,
            turn_deadline: Duration::from_secs(5),
        }
    }
}

/// One turn, decided and not yet durable.
#[derive(Debug)]
pub struct Decision {
    turn: Turn,
    effects: Vec<Effect>,
    next_run: Option<NextRun>,
}

impl Decision {
    /// What has to be appended.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }
    /// Whether anything has to be appended at all. Effects of a decision without it are free at once.
    pub fn is_empty(&self) -> bool {
        self.turn.events.is_empty()
            && self.turn.inbox_added.is_empty()
            && self.turn.inbox_taken == 0
            && self.turn.heartbeats.is_empty()
            && self.turn.delivered.is_empty()
    }
    /// The run to begin in the same commit, if any.
    pub fn take_next_run(&mut self) -> Option<NextRun> {
        self.next_run.take()
    }
    /// Splits into what is written and what is released once it is.
    pub fn seal(self) -> (Turn, SealedEffects) {
        (self.turn, SealedEffects(self.effects))
    }
}

/// Effects that nobody can see before the commit.
#[derive(Debug, Default)]
pub struct SealedEffects(Vec<Effect>);

impl SealedEffects {
    /// Opens the effects. `proof` says that the commit is durable, or that there was nothing to commit.
    pub fn open(self, proof: Durable) -> Vec<Effect> {
        let Durable(()) = proof;
        self.0
    }
}

/// Proof of a commit. Only the committer's success and an empty decision make one.
#[derive(Debug, Clone, Copy)]
pub struct Durable(());

impl Durable {
    /// The answer of a log that has made the turns durable.
    pub(crate) fn committed(_group: GroupSeq) -> Durable {
        Durable(())
    }
    /// Nothing had to be written.
    pub(crate) fn nothing_to_write() -> Durable {
        Durable(())
    }
}

/// Something decided that happens after the code has had its turn.
#[derive(Debug)]
pub(super) enum FollowUp {
    Input(Input),
    Event(EventKind),
    RecoverActivity(Seq),
}

/// Where a turn that wakes many timers ends and the next one begins.
const TURN_EVENTS: usize = 10_000;

/// A turn in the making. Every pushed event is applied to the run at once.
pub(super) struct TurnDraft<'a, 'b> {
    environment: &'a mut Environment<'b>,
    at: Timestamp,
    first_event: EventId,
    events: Vec<EventKind>,
    effects: Vec<Effect>,
    pub(super) heartbeats: Vec<Heartbeat>,
    /// Messages of a closed run that need no further thought.
    pub(super) delivered: Vec<Seq>,
    pub(super) inbox_added: Vec<Input>,
    pub(super) inbox_taken: u32,
    pub(super) follow_ups: VecDeque<FollowUp>,
    /// Activating events that the code has not heard yet, with the job each means.
    pub(super) jobs: VecDeque<Job>,
    /// Of a fork: values that the side effects of the next activation have already.
    pub(super) side_effects: BTreeMap<Seq, Payload>,
    next_run: Option<NextRun>,
}

impl<'a, 'b> TurnDraft<'a, 'b> {
    pub(super) fn new(run: &Run, environment: &'a mut Environment<'b>) -> Self {
        TurnDraft {
            at: environment.now.max(run.last_at()),
            environment,
            first_event: run.next_event(),
            events: Vec::new(),
            effects: Vec::new(),
            heartbeats: Vec::new(),
            delivered: Vec::new(),
            inbox_added: Vec::new(),
            inbox_taken: 0,
            follow_ups: VecDeque::new(),
            jobs: VecDeque::new(),
            side_effects: BTreeMap::new(),
            next_run: None,
        }
    }
    /// The time of the turn: never earlier than the run's last event.
    pub(super) fn at(&self) -> Timestamp {
        self.at
    }
    /// What the code heard of last, in words.
    pub(super) fn heard(&self, run: &Run) -> String {
        let activating = self.events.iter().filter(|event| event.origin() == Origin::Activating);
        let nth = activating.clone().count().saturating_sub(self.jobs.len() + 1);
        let job = activating.clone().nth(nth).and_then(|event| job_of(event, run));
        job.map_or_else(|| "an event".to_owned(), |job| job.in_words())
    }
    pub(super) fn build(&self) -> BuildId {
        self.environment.build
    }
    pub(super) fn limits(&self) -> &Limits {
        self.environment.limits
    }
    /// Whether one thing more may happen in this turn that could as well happen in the next.
    pub(super) fn has_room(&self) -> bool {
        self.events.len() < TURN_EVENTS
    }
    pub(super) fn take_slot(&mut self, activity_type: &ActivityType, queue: &TaskQueue) -> bool {
        (self.environment.take_slot)(activity_type, queue)
    }
    /// Adds an event and lets the run remember it; the code hears it when the turn comes to that.
    pub(super) fn push(&mut self, run: &mut Run, event: EventKind) {
        if event.origin() == Origin::Activating
            && let Some(job) = job_of(&event, run)
        {
            self.jobs.push_back(job);
        }
        run.apply(self.at, &event);
        self.events.push(event);
    }
    /// What the next activation finds noted: nothing, unless it happens again in a fork.
    pub(super) fn take_markers(&mut self) -> Markers {
        match std::mem::take(&mut self.side_effects) {
            known if known.is_empty() => Markers::Fresh,
            side_effects => Markers::Again { side_effects },
        }
    }
    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
    pub(super) fn follow_up(&mut self, input: Input) {
        self.follow_ups.push_back(FollowUp::Input(input));
    }
    pub(super) fn follow_up_event(&mut self, event: EventKind) {
        self.follow_ups.push_back(FollowUp::Event(event));
    }
    pub(super) fn next_run(&mut self, next: NextRun) {
        self.next_run = Some(next);
    }
    pub(super) fn finish(self, run: &mut Run) -> Decision {
        let decision = Decision {
            turn: Turn {
                run: run.id(),
                first_event: self.first_event,
                at: self.at,
                build: self.environment.build,
                events: self.events,
                inbox_added: self.inbox_added,
                inbox_taken: self.inbox_taken,
                heartbeats: self.heartbeats,
                outlook: run.outlook(),
                delivered: self.delivered,
                size_told: None,
            },
            effects: self.effects,
            next_run: self.next_run,
        };
        if !decision.is_empty() {
            // What is not written has not happened.
            run.info.build = decision.turn.build;
        }
        decision
    }
}
