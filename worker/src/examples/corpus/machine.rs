//! A state machine that does one step after the other, so that the corpus has every feature in this form too.

use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent};
use bosun_engine::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(super) const STEP_MACHINE: &str = "step-machine";

/// One step; it ends before the next begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MachineStep {
    Activity { name: String, input: Value, attempts: u32 },
    Timer { seconds: u64 },
    Signal { name: String },
    Update,
    Child { id: String, steps: Vec<MachineStep> },
    ChildWithin { id: String, seconds: u64, steps: Vec<MachineStep> },
    Tell { id: String, name: String },
    Stop { id: String },
    SideEffect { value: u64 },
    Random,
    Patch { id: String },
    Note { text: String },
    Again { steps: Vec<MachineStep> },
    Fail { text: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StepMachine {
    steps: Vec<MachineStep>,
    next: usize,
    waiting: Option<StepWait>,
    said: Vec<Value>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum StepWait {
    Seq(Seq),
    Signal(String),
    Update,
}

impl StateMachine for StepMachine {
    const TYPE: &'static str = STEP_MACHINE;
    type Input = Value;
    type Output = Vec<Value>;

    fn start(steps: Value, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let steps: Vec<MachineStep> =
            serde_json::from_value(steps).map_err(|why| Failure::application("InvalidSteps", why.to_string()))?;
        let mut machine = StepMachine { steps, next: 0, waiting: None, said: Vec::new() };
        machine.go_on(cx)?;
        Ok(machine)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { seq, result } | WorkflowEvent::ChildResolved { seq, result }
                if self.waiting == Some(StepWait::Seq(seq)) =>
            {
                self.said.push(result?.to_json());
                self.waiting = None;
            }
            WorkflowEvent::TimerFired { seq } if self.waiting == Some(StepWait::Seq(seq)) => self.waiting = None,
            WorkflowEvent::SignalDelivered { seq, result } | WorkflowEvent::CancelDelivered { seq, result }
                if self.waiting == Some(StepWait::Seq(seq)) =>
            {
                self.said.push(result.is_ok().into());
                self.waiting = None;
            }
            WorkflowEvent::Signal(signal) if self.waiting == Some(StepWait::Signal(signal.name.to_string())) => {
                self.said.push(signal.input.to_json());
                self.waiting = None;
            }
            WorkflowEvent::Signal(signal) => cx.defer_signal(signal),
            WorkflowEvent::Update { update_id, input, .. } => {
                let input = input.to_json();
                cx.complete_update(update_id, Ok(&input));
                self.said.push(input);
                if self.waiting == Some(StepWait::Update) {
                    self.waiting = None;
                }
            }
            WorkflowEvent::CancelRequested { reason } => cx.cancel(Some(Payload::encode(&reason)?)),
            _ => {}
        }
        self.go_on(cx)
    }

    fn validate_update(&self, _: &UpdateName, input: &Payload) -> Result<(), Failure> {
        if input.to_json().is_null() { Err(Failure::application("Empty", "say something")) } else { Ok(()) }
    }
}

impl StepMachine {
    fn go_on(&mut self, cx: &mut Cx<'_>) -> Result<(), Failure> {
        while self.waiting.is_none() && !cx.is_closed() {
            let Some(step) = self.steps.get(self.next).cloned() else {
                cx.complete(&self.said);
                return Ok(());
            };
            self.next += 1;
            self.begin(step, cx)?;
        }
        Ok(())
    }

    fn begin(&mut self, step: MachineStep, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let other = |id: String| ExternalTarget { workflow_id: WorkflowId::of(id), run_id: None };
        let waiting = match step {
            MachineStep::Activity { name, input, attempts } => {
                let retry_policy = RetryPolicy { maximum_attempts: attempts, ..RetryPolicy::default() };
                let mut options = ActivityOptions::start_to_close(Duration::from_secs(30));
                options.retry_policy = Some(retry_policy);
                StepWait::Seq(cx.schedule_activity(name.as_str(), &input, options))
            }
            MachineStep::Timer { seconds } => StepWait::Seq(cx.start_timer(Duration::from_secs(seconds))),
            MachineStep::Signal { name } => StepWait::Signal(name),
            MachineStep::Update => StepWait::Update,
            MachineStep::Child { id, steps } => {
                let options = ChildWorkflowOptions::default();
                StepWait::Seq(cx.start_child(STEP_MACHINE, id.as_str(), &steps, options))
            }
            MachineStep::ChildWithin { id, seconds, steps } => {
                let run_timeout = Some(Duration::from_secs(seconds));
                let options = ChildWorkflowOptions { run_timeout, ..ChildWorkflowOptions::default() };
                StepWait::Seq(cx.start_child(STEP_MACHINE, id.as_str(), &steps, options))
            }
            MachineStep::Tell { id, name } => StepWait::Seq(cx.signal_external(other(id), name.as_str(), "told")),
            MachineStep::Stop { id } => StepWait::Seq(cx.cancel_external(other(id), "stop")),
            MachineStep::SideEffect { value } => return self.say(cx.side_effect(|| value)),
            MachineStep::Random => {
                let (number, name) = (cx.random_u64(), cx.uuid());
                return self.say(format!("{number} {name}"));
            }
            MachineStep::Patch { id } => return self.say(cx.patched(id.as_str())),
            MachineStep::Note { text } => {
                let name = FieldName::of("note");
                cx.upsert_memo([(name.clone(), Payload::encode(&text)?)].into());
                cx.upsert_search_attributes([(name, SearchValue::Keyword(text))].into());
                return Ok(());
            }
            MachineStep::Again { steps } => {
                cx.continue_as_new(&steps, ContinueAsNewOptions::default());
                return Ok(());
            }
            MachineStep::Fail { text } => return Err(Failure::application("Asked", text).non_retryable()),
        };
        self.waiting = Some(waiting);
        Ok(())
    }

    fn say(&mut self, value: impl Serialize) -> Result<(), Failure> {
        let value = serde_json::to_value(value).map_err(|why| Failure::application("NoJson", why.to_string()))?;
        self.said.push(value);
        Ok(())
    }
}
