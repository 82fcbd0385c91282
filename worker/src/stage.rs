//! A stage for tests: plays workflows against real activity functions, without a log, a shell or a clock.
//!
//! Invariant: it goes through the same drivers as the engine, one job at a time; time is virtual and jumps to the next
//! timer when nothing else can happen. It is no engine: nothing is durable, children run to their end at once, and
//! cancellation of activities waits for their end. What is durable is tested in `tests/`.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use tokio::sync::{mpsc, watch};

use crate::capability::testing::Heartbeats;

pub(crate) struct Stage {
    pub(crate) workflows: WorkflowRegistry,
    pub(crate) activities: ActivityRegistry,
}

/// What the test does when the run has nothing left to do but wait for an activity or a timer.
pub(crate) enum Cue {
    Signal(&'static str, serde_json::Value),
    Update(&'static str, serde_json::Value),
    Cancel,
    /// Lets the run go on by one event.
    Step,
    Query(&'static str),
    /// Lets the run go on until the query's answer is so.
    Until(&'static str, fn(&serde_json::Value) -> bool),
}

/// How the run went.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) outcome: CloseOutcome,
    pub(crate) queries: Vec<serde_json::Value>,
    pub(crate) updates: Vec<Result<Payload, Failure>>,
    pub(crate) commands: Vec<Command>,
    pub(crate) took: std::time::Duration,
}

type Played1 = Pin<Box<dyn Future<Output = Played>>>;

impl Stage {
    /// Plays a run to its end, through continue-as-new.
    pub(crate) async fn play(
        self: &Arc<Self>,
        workflow_type: &str,
        input: serde_json::Value,
        cues: Vec<Cue>,
    ) -> Played {
        let playing = self.clone().play_from(workflow_type.into(), Payload::encode(&input).unwrap(), cues, vec![]);
        tokio::time::timeout(std::time::Duration::from_secs(300), playing).await.expect("the run ends in time")
    }

    fn play_from(
        self: Arc<Self>,
        workflow_type: WorkflowType,
        input: Payload,
        cues: Vec<Cue>,
        carried_signals: Vec<WorkflowExecutionSignaled>,
    ) -> Played1 {
        Box::pin(async move {
            let run_id = RunId([5; 16]);
            let started = started(&workflow_type, input, run_id, carried_signals);
            let driver = self.workflows.create(&started, run_id).unwrap();
            let (ends, ended) = mpsc::unbounded_channel();
            let mut run = StagedRun {
                stage: self,
                driver,
                run_id,
                workflow_type,
                now: Timestamp(1_000_000),
                jobs: VecDeque::from([Job::InitializeWorkflow(Box::new(started))]),
                cues: cues.into(),
                timers: BTreeMap::new(),
                activities: BTreeMap::new(),
                ends,
                ended,
                played: Played {
                    outcome: CloseOutcome::Completed(Payload::null()),
                    queries: vec![],
                    updates: vec![],
                    commands: vec![],
                    took: Default::default(),
                },
            };
            while !run.step().await {}
            run.played.took = run.now.since(Timestamp(1_000_000));
            run.played
        })
    }
}

fn started(
    workflow_type: &WorkflowType,
    input: Payload,
    run_id: RunId,
    carried_signals: Vec<WorkflowExecutionSignaled>,
) -> WorkflowExecutionStarted {
    let request = StartWorkflow::new(workflow_type.clone(), WorkflowId::of("staged")).input(input);
    WorkflowExecutionStarted { carried_signals, ..request.first_event(run_id, Timestamp(0)) }
}

struct StagedRun {
    stage: Arc<Stage>,
    driver: Box<dyn Driver>,
    run_id: RunId,
    workflow_type: WorkflowType,
    now: Timestamp,
    jobs: VecDeque<Job>,
    cues: VecDeque<Cue>,
    timers: BTreeMap<(Timestamp, Seq), ()>,
    /// How to cancel an activity, and whether its end is awaited after that.
    activities: BTreeMap<Seq, (watch::Sender<bool>, bool)>,
    ends: mpsc::UnboundedSender<(Seq, Result<Payload, Failure>)>,
    ended: mpsc::UnboundedReceiver<(Seq, Result<Payload, Failure>)>,
    played: Played,
}

impl StagedRun {
    /// One activation or one cue. True when the run is over.
    async fn step(&mut self) -> bool {
        if let Some(job) = self.jobs.pop_front() {
            self.now = self.now.plus(std::time::Duration::from_millis(1));
            let history = HistorySize::default();
            let activation = Activation { at: self.now, run_id: self.run_id, history, job, markers: Markers::Fresh };
            for command in self.driver.activate(activation) {
                self.played.commands.push(command.clone());
                if self.carry_out(command).await {
                    return true;
                }
            }
            self.evict();
            return false;
        }
        match self.cues.pop_front() {
            Some(Cue::Signal(name, input)) => {
                self.jobs.push_back(Job::SignalWorkflow(WorkflowExecutionSignaled {
                    name: name.into(),
                    input: Payload::encode(&input).unwrap(),
                    identity: None,
                    request_id: None,
                }));
            }
            Some(Cue::Update(name, input)) => self.update(name, &Payload::encode(&input).unwrap()),
            Some(Cue::Cancel) => self.jobs.push_back(Job::CancelWorkflow { reason: "asked".into() }),
            Some(Cue::Query(name)) => {
                let answer = self.driver.query(&name.into(), &Payload::null()).unwrap();
                self.played.queries.push(answer.to_json());
            }
            Some(Cue::Until(name, holds)) => {
                let answer = self.driver.query(&name.into(), &Payload::null()).unwrap();
                if !holds(&answer.to_json()) {
                    self.cues.push_front(Cue::Until(name, holds));
                    self.wait().await;
                }
            }
            Some(Cue::Step) | None => self.wait().await,
        }
        false
    }

    /// As if the run had been dropped from memory: a state machine goes on from its snapshot, at every event.
    fn evict(&mut self) {
        let Some(bytes) = self.driver.snapshot() else { return };
        let restored = self.stage.workflows.restore(&self.workflow_type, self.run_id, &bytes).unwrap();
        assert_eq!(restored.state_json(), self.driver.state_json(), "the snapshot is not the state");
        self.driver = restored;
    }

    fn update(&mut self, name: &str, input: &Payload) {
        match self.driver.validate_update(&name.into(), input) {
            Ok(()) => {
                let update_id = UpdateId::of(format!("u{}", self.played.commands.len()));
                self.jobs.push_back(Job::DoUpdate { update_id, name: name.into(), input: input.clone() });
            }
            Err(why) => self.played.updates.push(Err(why)),
        }
    }

    async fn wait(&mut self) {
        if !self.activities.is_empty() {
            let (seq, result) = self.ended.recv().await.expect("the sender is ours");
            if self.activities.remove(&seq).is_some() {
                self.jobs.push_back(Job::ResolveActivity { seq, result });
            }
        } else if let Some(((at, seq), ())) = self.timers.pop_first() {
            self.now = self.now.max(at);
            self.jobs.push_back(Job::FireTimer { seq });
        } else {
            let awaited = self.driver.awaiting();
            panic!("the run waits for what never comes: {awaited:?}");
        }
    }

    /// True when the run is over. One arm a command: long for that reason.
    async fn carry_out(&mut self, command: Command) -> bool {
        match command {
            Command::ScheduleActivity { seq, activity_id, activity_type, input, options } => {
                let awaited = options.cancellation == CancellationType::WaitCancellationCompleted;
                let (cancel, canceled) = watch::channel(false);
                self.activities.insert(seq, (cancel, awaited));
                self.perform(seq, activity_id, activity_type, input, options, canceled);
            }
            Command::RequestCancelActivity { seq } => {
                if let Some((cancel, awaited)) = self.activities.get(&seq) {
                    let _ = cancel.send(true);
                    if !awaited {
                        self.activities.remove(&seq);
                    }
                }
            }
            Command::StartTimer { seq, fire_at, .. } => drop(self.timers.insert((fire_at, seq), ())),
            Command::CancelTimer { seq } => self.timers.retain(|(_, timer), ()| *timer != seq),
            Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, .. } => {
                self.jobs.push_back(Job::ResolveChildWorkflowStart { seq, result: Ok(self.run_id) });
                let child = self.stage.clone().play_from(workflow_type.clone(), input, vec![], vec![]).await;
                let result = match child.outcome {
                    CloseOutcome::Completed(result) => Ok(result),
                    CloseOutcome::Failed(why) => Err(child_failure(workflow_type, workflow_id).because(why)),
                    other => panic!("a child ended as {other:?}"),
                };
                self.jobs.push_back(Job::ResolveChildWorkflow { seq, result });
            }
            Command::SignalExternalWorkflow { seq, .. } => {
                self.jobs.push_back(Job::ResolveSignalExternal { seq, result: Ok(()) });
            }
            Command::RequestCancelExternalWorkflow { seq, .. } => {
                self.jobs.push_back(Job::ResolveCancelExternal { seq, result: Ok(()) });
            }
            Command::CompleteUpdate { result, .. } => self.played.updates.push(result),
            Command::CompleteWorkflow { result, .. } => return self.over(CloseOutcome::Completed(result)),
            Command::FailWorkflow { failure, .. } => return self.over(CloseOutcome::Failed(failure)),
            Command::CancelWorkflow { details, .. } => return self.over(CloseOutcome::Canceled(details)),
            Command::ContinueAsNew { workflow_type, input, unconsumed_signals, .. } => {
                let workflow_type = workflow_type.unwrap_or_else(|| self.workflow_type.clone());
                let cues = std::mem::take(&mut self.cues).into();
                let next = self.stage.clone().play_from(workflow_type, input, cues, unconsumed_signals).await;
                self.now = self.now.plus(next.took);
                self.played.commands.extend(next.commands);
                self.played.queries.extend(next.queries);
                return self.over(next.outcome);
            }
            Command::CancelChildWorkflow { .. }
            | Command::RecordMarker(_)
            | Command::UpsertSearchAttributes { .. }
            | Command::ModifyMemo { .. } => {}
        }
        false
    }

    fn over(&mut self, outcome: CloseOutcome) -> bool {
        self.played.outcome = outcome;
        // Handlers answer after the end as well.
        while let Some(cue) = self.cues.pop_front() {
            if let Cue::Query(name) = cue {
                let answer = self.driver.query(&name.into(), &Payload::null()).unwrap();
                self.played.queries.push(answer.to_json());
            }
        }
        true
    }

    /// Runs the attempts of an activity in the background, without the waits between them.
    fn perform(
        &self,
        seq: Seq,
        activity_id: ActivityId,
        activity_type: ActivityType,
        input: Payload,
        options: ActivityOptions,
        canceled: watch::Receiver<bool>,
    ) {
        let function = self.stage.activities.get(&activity_type).cloned();
        let function = function.unwrap_or_else(|| panic!("no activity {activity_type}"));
        let policy = options.retry_policy.clone().unwrap_or_default();
        let mut task = ActivityTask {
            namespace: Namespace::of("default"),
            workflow_id: WorkflowId::of("staged"),
            workflow_type: self.workflow_type.clone(),
            run_id: self.run_id,
            seq,
            activity_id: activity_id.clone(),
            activity_type: activity_type.clone(),
            task_queue: TaskQueue::of("default"),
            attempt: Attempt(1),
            input,
            heartbeat_details: None,
            scheduled_at: self.now,
            deadline: None,
            heartbeat_timeout: options.heartbeat,
        };
        let ends = self.ends.clone();
        tokio::spawn(async move {
            let result = loop {
                let heartbeats = Arc::new(Heartbeats::default());
                let context = ActivityContext::new(Arc::new(task.clone()), canceled.clone(), heartbeats);
                let failure = match function(context).await {
                    Ok(result) => break Ok(result),
                    Err(ActivityError::Failure(failure)) => failure,
                    Err(ActivityError::Canceled(_)) => break Err(Failure::canceled("canceled")),
                    Err(ActivityError::WillCompleteLater) => panic!("the stage has no outside"),
                };
                match policy.next(task.attempt, &failure) {
                    Ok(_) => task.attempt = task.attempt.next(),
                    Err(retry_state) => {
                        let kind = FailureKind::Activity { activity_type, activity_id, retry_state };
                        break Err(Failure { message: "activity failed".into(), kind, cause: None }.because(failure));
                    }
                }
            };
            let _ = ends.send((seq, result));
        });
    }
}

fn child_failure(workflow_type: WorkflowType, workflow_id: WorkflowId) -> Failure {
    let kind = FailureKind::ChildWorkflow { workflow_type, workflow_id, run_id: None, retry_state: None };
    Failure { message: "child workflow failed".into(), kind, cause: None }
}
