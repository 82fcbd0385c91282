//! A batch as a run: the workflow `bosun.batch`.
//!
//! ```text
//!   Finding ──page──► CarryingOut ──counts──► Finding … ──no page more, or stopped──► completed
//!                                               └── long history ──► continues as new
//! ```
//!
//! Invariant: one activity is under way at a time, and a page is counted when its activity has ended, once. A batch that is to
//! stop ends what it is at: the runs of the page that were touched are counted. It decides nothing about any run.

use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::carry_out::{CARRY_OUT, CarryOut, FIND, FindPage};
use super::order::{BatchOrder, BatchPage, BatchStanding, PageDone};

/// The workflow type.
pub const BATCH: &str = "bosun.batch";
/// The failure type of an input that is no order.
pub const INVALID_BATCH: &str = "InvalidBatch";
/// The update that stops it; the answer is what it has counted so far.
pub const STOP: &str = "stop";
/// The query for what it is at.
pub const DESCRIBE: &str = "describe";

/// A page leaves few events; a long history need not be carried along for ever.
const CONTINUE_AT_EVENTS: u64 = 2_000;
/// How long one attempt may take, whatever the pace.
const ATTEMPT_MAX: Duration = Duration::from_secs(3_600);

/// What it is at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum BatchStep {
    Finding(Seq),
    CarryingOut(Seq),
    Ended,
}

/// The workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchRun {
    id: String,
    order: BatchOrder,
    standing: BatchStanding,
    step: BatchStep,
    /// The page that is carried out was the last.
    last: bool,
}

impl StateMachine for BatchRun {
    const TYPE: &'static str = BATCH;
    type Input = BatchOrder;
    type Output = Value;

    fn start(mut order: BatchOrder, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let id = cx.workflow_id().map(ToString::to_string).unwrap_or_default();
        // Recorded: what a filter may say is another version's affair.
        let wrong: Option<String> = cx.side_effect(|| order.check().err().map(|why| why.to_string()));
        if let Some(why) = wrong {
            return Err(Failure::application(INVALID_BATCH, why).non_retryable());
        }
        let standing = order.carried.take().map_or_else(|| BatchStanding::new(cx.now()), |carried| *carried);
        let mut run = BatchRun { id, order, standing, step: BatchStep::Ended, last: false };
        run.find(cx);
        Ok(run)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { seq, result, .. } if self.step == BatchStep::Finding(seq) => match result
            {
                Ok(page) => self.found(page.decode()?, cx),
                Err(why) if self.standing.stopped.is_none() => return Err(why),
                Err(_) => self.end(cx),
            },
            WorkflowEvent::ActivityResolved { seq, result, .. } if self.step == BatchStep::CarryingOut(seq) => {
                match result {
                    Ok(done) => self.standing.add(done.decode::<PageDone>()?),
                    Err(why) if self.standing.stopped.is_none() => return Err(why),
                    Err(_) => {}
                }
                self.go_on(cx);
            }
            WorkflowEvent::Update { update_id, input, .. } => {
                let why = input.to_json()["reason"].as_str().unwrap_or_default().to_owned();
                self.stop(&why, cx);
                cx.complete_update(update_id, Ok(&self.shown()));
            }
            WorkflowEvent::CancelRequested { reason } => self.stop(&reason, cx),
            // It asks for nothing else, and has no use for signals.
            _ => {}
        }
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        &[DESCRIBE]
    }

    fn query(&self, name: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        match name.as_str() {
            DESCRIBE => Ok(Payload::encode(&self.shown())?),
            other => Err(Failure::application("UnknownQuery", format!("a batch has no query {other}"))),
        }
    }

    fn validate_update(&self, name: &UpdateName, _: &Payload) -> Result<(), Failure> {
        match name.as_str() {
            STOP => Ok(()),
            other => Err(Failure::application(INVALID_BATCH, format!("a batch has no update {other}; it has {STOP}"))),
        }
    }
}

impl BatchRun {
    fn find(&mut self, cx: &mut Cx<'_>) {
        let order = BatchOrder { carried: None, ..self.order.clone() };
        let (began, after) = (self.standing.began, self.standing.cursor.clone());
        let seq = cx.schedule_activity(FIND, &FindPage { order, began, after }, options("find runs".to_owned()));
        self.step = BatchStep::Finding(seq);
    }

    fn found(&mut self, page: BatchPage, cx: &mut Cx<'_>) {
        self.last = page.next.is_none();
        self.standing.cursor = page.next;
        self.standing.stopped = self.standing.stopped.take().or(page.stopped);
        if page.targets.is_empty() || self.standing.stopped.is_some() {
            return self.go_on(cx);
        }
        self.standing.found += page.targets.len() as u64;
        let summary = format!("{} {} runs", self.order.action.in_words(), page.targets.len());
        let order = BatchOrder { carried: None, ..self.order.clone() };
        let asked = CarryOut { batch: self.id.clone(), order, targets: page.targets };
        self.step = BatchStep::CarryingOut(cx.schedule_activity(CARRY_OUT, &asked, options(summary)));
    }

    fn go_on(&mut self, cx: &mut Cx<'_>) {
        if self.last || self.standing.stopped.is_some() {
            return self.end(cx);
        }
        if cx.continue_as_new_suggested() || cx.history().events >= CONTINUE_AT_EVENTS {
            self.step = BatchStep::Ended;
            let carried = Some(Box::new(self.standing.clone()));
            let order = BatchOrder { carried, ..self.order.clone() };
            return cx.continue_as_new(&order, ContinueAsNewOptions::default());
        }
        self.find(cx);
    }

    fn stop(&mut self, why: &str, cx: &mut Cx<'_>) {
        self.standing.stopped.get_or_insert_with(|| why.to_owned());
        // What is under way answers with what it has done so far.
        if let BatchStep::Finding(seq) | BatchStep::CarryingOut(seq) = self.step {
            cx.cancel_activity(seq);
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.step = BatchStep::Ended;
        cx.complete(&self.shown());
    }

    fn shown(&self) -> Value {
        let state = match (&self.step, &self.standing.stopped) {
            (BatchStep::Ended, Some(_)) => "stopped",
            (BatchStep::Ended, None) => "completed",
            (_, Some(_)) => "stopping",
            (_, None) => "running",
        };
        self.standing.shown(&self.id, &self.order, state)
    }
}

/// An attempt that is lost, or that the worker cannot carry out now, is followed by another, for ever.
fn options(summary: String) -> ActivityOptions {
    ActivityOptions {
        cancellation: CancellationType::WaitCancellationCompleted,
        retry_policy: Some(RetryPolicy { maximum_interval: Some(Duration::from_secs(10)), ..RetryPolicy::default() }),
        summary: Some(summary),
        ..ActivityOptions::start_to_close(ATTEMPT_MAX)
    }
}

/// What a start of it says: a line for lists.
pub fn start(id: &str, order: &BatchOrder) -> Result<StartWorkflow, Rejection> {
    order.check_says_which()?;
    order.check()?;
    let invalid = |why: String| Rejection::Invalid { what: "batch".into(), why };
    let workflow_id = WorkflowId::new(format!("{}{id}", super::ID_PREFIX)).map_err(|why| invalid(why.to_string()))?;
    let input = Payload::encode(&json!(order)).map_err(|why| invalid(why.to_string()))?;
    let mut start = StartWorkflow::new(WorkflowType::of(BATCH), workflow_id).input(input);
    start.summary = Some(format!("{} {}", order.action.in_words(), order.query));
    start.id_reuse_policy = IdReusePolicy::RejectDuplicate;
    Ok(start)
}

/// Adds the workflow of batches.
pub fn register(registry: WorkflowRegistry) -> WorkflowRegistry {
    registry.state_machine::<BatchRun>()
}
