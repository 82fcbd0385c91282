//! The workflow `agent`: carries out what the machine asks for, and tells it what happened.
//!
//! Invariant: one ask is one command, and its end goes to the key that asked. It decides nothing; what a failure means
//! to an agent is read here and nowhere else. The number of the command is the place of its result in the history, which
//! is all that the transcript keeps of it.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::{
    ActivityOptions, ActivityType, CancellationType, ChildWorkflowOptions, Failure, ParentClosePolicy, Payload,
    QueryName, RetryPolicy, RunId, Seq, Timestamp, WorkflowExecutionSignaled, WorkflowId,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::border::AgentBorder;
use super::ends::{model_answer, model_fault, output_in, tool_fault};
use super::machine::{
    AgentEvent, AgentMachine, AgentOutput, AgentRequest, AgentStopReason, Fault, FaultClass, FlightKey, QUERIES,
};
use super::next_run::{LEAVE, Leave};
use super::number;
use super::opening::{Opening, OpeningState};
use super::spec::AgentSpec;
use super::transcript::cut;
use super::waits::{AgentWaits, Waits};
use crate::capability::model::options;

/// The workflow type.
pub const AGENT: &str = "agent";
/// The activity that makes a model call of an agent.
pub const AGENT_MODEL: &str = "agent_model";
/// The failure types of a run: its input cannot be run; its model will never answer.
pub const INVALID_AGENT: &str = "InvalidAgent";
pub const AGENT_FAILED: &str = "AgentFailed";

pub const SIGNAL_APPROVAL: &str = "approval_response_v1";
pub const SIGNAL_TOP_UP: &str = "budget_top_up_v1";
/// An agent asks its supervisor for more of the run's budget, and the answer.
pub const SIGNAL_BUDGET_REQUEST: &str = "budget_request_v1";
pub const SIGNAL_BUDGET_SHARE: &str = "budget_share_v1";
/// A run tells the one above it what it waits for (`supervisor::people::below`).
pub const SIGNAL_WAITS: &str = "waits_below_v1";
pub const SIGNAL_RESUME: &str = "resume_v1";
/// Nothing begins until a resume. The agent sends it itself to who shows what it waits for.
pub const SIGNAL_PAUSE: &str = "pause_v1";

/// One attempt of a model call may take as long.
const MODEL_TIMEOUT: Duration = Duration::from_secs(600);
/// The most that is kept of what is said with a pause.
const PAUSE_BYTES: u64 = 1_000;
const GRACE: Duration = Duration::from_secs(15);

/// The workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRun {
    pub(super) agent: AgentMachine,
    pub(super) pending: BTreeMap<Seq, (FlightKey, CommandKind)>,
    pub(super) now: Timestamp,
    /// Whether the halt it is in has been told, and which one it was.
    #[serde(default)]
    pub(super) told: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) told_halts: u32,
    /// The run that it began as: a fork tells nobody above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) began_as: Option<RunId>,
    /// What the run above was told that people are asked.
    #[serde(default, skip_serializing_if = "Waits::is_empty")]
    pub(super) waits: Waits,
    /// While servers are asked for the agent's tools: the agent above is only there to be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) opening: Option<Opening>,
    #[serde(default, skip_serializing_if = "AgentBorder::is_ahead")]
    pub(super) border: AgentBorder,
    /// It goes on from another run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_continued: bool,
    /// Where it is to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) leave: Option<Leave>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What a command is to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum CommandKind {
    Model,
    Tool,
    Child,
    Wall,
    /// Reads the conversation for the next run.
    Carry,
}

impl StateMachine for AgentRun {
    const TYPE: &'static str = AGENT;
    type Input = AgentSpec;
    type Output = AgentOutput;

    fn start(mut spec: AgentSpec, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        if let Some(continued) = spec.continued.take() {
            return Ok(AgentRun::go_on_from(*continued, cx));
        }
        number::held_by_other_rules(cx);
        let (agent, asks) = AgentMachine::start(spec, cx.now())
            .map_err(|why| Failure::application(INVALID_AGENT, why).non_retryable())?;
        let opening = Opening::begin(agent.spec(), cx);
        let mut run = AgentRun {
            agent,
            pending: BTreeMap::new(),
            now: cx.now(),
            told: false,
            told_halts: 0,
            began_as: Some(cx.run_id()),
            waits: Waits::default(),
            opening,
            border: AgentBorder::default(),
            is_continued: false,
            leave: None,
        };
        if run.opening.is_none() {
            run.carry_out(asks, cx);
        }
        Ok(run)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        self.now = cx.now();
        self.own_budget_in_a_fork(cx);
        if let Some(opening) = self.opening.take() {
            return self.open(opening.hear(event, self.agent.spec(), cx)?, cx);
        }
        self.watch_border(cx);
        if let Some(event) = self.event(event, cx) {
            let asks = self.agent.handle(event, cx.now());
            self.carry_out(asks, cx);
        } else {
            self.tell_waits(cx);
        }
        self.at_border(cx);
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        &QUERIES
    }

    fn query(&self, name: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        match self.agent.query(name.as_str(), self.now) {
            Some(answer) => Ok(Payload::encode(&answer)?),
            None => Err(Failure::application("UnknownQuery", format!("there is no query {name}"))),
        }
    }
}

impl AgentRun {
    /// Begins once all tools are known, and hears what was said meanwhile.
    fn open(&mut self, heard: OpeningState, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let (spec, signals) = match heard {
            OpeningState::Opened { spec, signals } => (*spec, signals),
            OpeningState::Still(opening) => {
                self.opening = Some(opening);
                return Ok(());
            }
            OpeningState::Over => return Ok(()),
        };
        // Heard before the first call is made: a pause stops that one too.
        let heard = signals.into_iter().filter_map(|signal| self.signaled(signal, cx)).collect();
        let (agent, asks) = AgentMachine::start_after(spec, cx.now(), heard)
            .map_err(|why| Failure::application(INVALID_AGENT, why).non_retryable())?;
        self.agent = agent;
        self.carry_out(asks, cx);
        Ok(())
    }

    /// What happened, in the words of the machine; nothing if it is no business of the machine.
    fn event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Option<AgentEvent> {
        match event {
            WorkflowEvent::ActivityResolved { seq, result } => match self.pending.remove(&seq)? {
                (key, CommandKind::Model) => {
                    let result = result.map_err(model_fault).and_then(model_answer);
                    Some(AgentEvent::Model { key, origin: seq.0, result })
                }
                (key, CommandKind::Tool) => {
                    let result = result.map(|payload| payload.to_json()).map_err(tool_fault);
                    Some(AgentEvent::Tool { key, origin: seq.0, result })
                }
                (_, CommandKind::Carry) => {
                    self.carried(result, cx);
                    None
                }
                (_, CommandKind::Child | CommandKind::Wall) => None,
            },
            WorkflowEvent::ChildResolved { seq, result } => {
                let (key, _) = self.pending.remove(&seq)?;
                self.waits.ended(child_id(cx, key).as_str());
                let output = match &result {
                    Ok(payload) => payload.decode().ok(),
                    Err(failure) => output_in(failure),
                };
                let result = result.map(|payload| payload.to_json()).map_err(tool_fault);
                Some(AgentEvent::Child { key, origin: seq.0, result, output })
            }
            WorkflowEvent::TimerFired { seq } => self.pending.remove(&seq).map(|_| AgentEvent::WallFired),
            WorkflowEvent::Signal(signal) => self.signaled(signal, cx),
            WorkflowEvent::CancelRequested { reason } => Some(AgentEvent::Cancel { reason }),
            WorkflowEvent::Update { update_id, .. } => {
                // None is accepted; one that an older version accepted is answered.
                let why = Failure::application("UnknownUpdate", "an agent has no updates").non_retryable();
                cx.complete_update::<()>(update_id, Err(why));
                None
            }
            WorkflowEvent::ChildStarted { .. }
            | WorkflowEvent::SignalDelivered { .. }
            | WorkflowEvent::CancelDelivered { .. } => None,
        }
    }

    pub(super) fn carry_out(&mut self, asks: Vec<AgentRequest>, cx: &mut Cx<'_>) {
        for ask in asks {
            self.carry_out_one(ask, cx);
        }
        self.tell_halt(cx);
        self.tell_waits(cx);
        if self.agent.is_over() {
            self.close(cx);
        }
    }

    fn signaled(&mut self, signal: WorkflowExecutionSignaled, cx: &mut Cx<'_>) -> Option<AgentEvent> {
        fn read<T: DeserializeOwned>(payload: &Payload) -> Option<T> {
            payload.decode().ok()
        }
        // What cannot be read means nothing, and is left in the history for whoever sent it.
        match signal.name.as_str() {
            SIGNAL_APPROVAL => {
                let response = self.own_answer(read(&signal.input)?, cx)?;
                self.waits.answered(&response.id);
                Some(AgentEvent::Approval(response))
            }
            SIGNAL_WAITS => {
                let told: AgentWaits = read(&signal.input)?;
                let mut children = self.pending.values().filter(|(_, kind)| *kind == CommandKind::Child);
                let key = children.find(|(key, _)| child_id(cx, *key).as_str() == told.from)?.0;
                let working = told.working;
                self.waits.heard(told);
                Some(AgentEvent::ChildTold { key, working })
            }
            LEAVE => {
                self.leave_asked(Leave::of(&signal.input.to_json()), cx);
                None
            }
            SIGNAL_TOP_UP => read(&signal.input).map(AgentEvent::TopUp),
            SIGNAL_BUDGET_SHARE => read(&signal.input).map(AgentEvent::Lent),
            SIGNAL_PAUSE => {
                // A pause is one whatever is said with it.
                let said = signal.input.to_json();
                let text = |name: &str| cut(said[name].as_str().unwrap_or_default().to_owned(), PAUSE_BYTES);
                let (reason, by) = (text("reason"), text("requested_by"));
                let input = json!({ "reason": reason, "requested_by": by, "from_parent": true });
                self.tell_below(SIGNAL_PAUSE, &input, cx);
                self.waits.paused(said["from_parent"] == true);
                Some(AgentEvent::Pause { reason })
            }
            SIGNAL_RESUME => {
                self.tell_below(SIGNAL_RESUME, &json!({}), cx);
                Some(AgentEvent::Resume)
            }
            _ => {
                cx.defer_signal(signal);
                None
            }
        }
    }

    fn carry_out_one(&mut self, ask: AgentRequest, cx: &mut Cx<'_>) {
        let (seq, key, kind) = match ask {
            AgentRequest::Model { call, attempts } => {
                let key = call.key;
                let timeout = self.agent.spec().call_timeout_ms.map_or(MODEL_TIMEOUT, within);
                (
                    cx.schedule_activity(AGENT_MODEL, &call, options(&call.model, timeout, attempts)),
                    key,
                    CommandKind::Model,
                )
            }
            AgentRequest::Tool { key, tool, activity_type, input, timeout_ms, attempts } => {
                let options = ActivityOptions {
                    start_to_close: Some(within(timeout_ms)),
                    retry_policy: Some(RetryPolicy { maximum_attempts: attempts.max(1), ..RetryPolicy::default() }),
                    cancellation: CancellationType::TryCancel,
                    summary: Some(tool),
                    ..ActivityOptions::default()
                };
                match ActivityType::new(activity_type) {
                    Ok(activity_type) => (cx.schedule_activity(activity_type, &input, options), key, CommandKind::Tool),
                    Err(why) => return self.impossible(key, why.to_string(), cx),
                }
            }
            AgentRequest::Child { key, mut spec } => {
                let id = child_id(cx, key);
                spec.called_by = cx.workflow_id().map(ToString::to_string);
                let options = ChildWorkflowOptions {
                    parent_close_policy: ParentClosePolicy::RequestCancel,
                    // What it spent is known only when it has ended.
                    cancellation: CancellationType::WaitCancellationCompleted,
                    summary: Some(spec.name.clone()),
                    ..ChildWorkflowOptions::default()
                };
                (cx.start_child(AGENT, id, &spec, options), key, CommandKind::Child)
            }
            AgentRequest::WallTimer { at } => return self.start_wall(at, cx),
            AgentRequest::Cancel { key } => return self.cancel(key, cx),
        };
        self.pending.insert(seq, (key, kind));
    }

    pub(super) fn start_wall(&mut self, at: Timestamp, cx: &mut Cx<'_>) {
        let seq = cx.start_labelled_timer(at, "the time of the agent");
        self.pending.insert(seq, (0, CommandKind::Wall));
    }

    /// A tool that cannot be scheduled is answered at once.
    fn impossible(&mut self, key: FlightKey, message: String, cx: &mut Cx<'_>) {
        let result = Err(Fault::new(FaultClass::Fatal, message));
        let asks = self.agent.handle(AgentEvent::Tool { key, origin: 0, result }, cx.now());
        self.carry_out(asks, cx);
    }

    fn cancel(&mut self, key: FlightKey, cx: &mut Cx<'_>) {
        let counts = |kind: CommandKind| !matches!(kind, CommandKind::Wall | CommandKind::Carry);
        let found = self.pending.iter().find(|(_, (other, kind))| *other == key && counts(*kind));
        match found.map(|(seq, (_, kind))| (*seq, *kind)) {
            Some((seq, CommandKind::Model | CommandKind::Tool)) => cx.cancel_activity(seq),
            Some((seq, CommandKind::Child)) => cx.cancel_child(seq, "the agent above has ended"),
            Some((_, CommandKind::Wall | CommandKind::Carry)) | None => {}
        }
    }

    fn close(&mut self, cx: &mut Cx<'_>) {
        if cx.is_closed() {
            return;
        }
        let output = self.agent.output();
        let details = Payload::encode(&output).ok();
        match &output.stop {
            AgentStopReason::Canceled { .. } => cx.cancel(details),
            AgentStopReason::Failed { message } => {
                let failure = Failure::application(AGENT_FAILED, message.clone()).non_retryable();
                cx.fail(match details {
                    Some(details) => failure.with_details(details),
                    None => failure,
                });
            }
            AgentStopReason::Completed
            | AgentStopReason::Length
            | AgentStopReason::Refused
            | AgentStopReason::InvalidOutput { .. }
            | AgentStopReason::Loop
            | AgentStopReason::Budget { .. }
            | AgentStopReason::ContextExceeded => cx.complete(&output),
        }
    }
}

pub(super) fn child_id(cx: &Cx<'_>, key: FlightKey) -> WorkflowId {
    WorkflowId::of(format!("{}-{key}", cx.run_id()))
}

/// What keeps its own time is given a little more.
fn within(timeout_ms: u64) -> Duration {
    Duration::from_millis(timeout_ms) + GRACE
}

/// Adds the workflow.
pub fn register(registry: WorkflowRegistry) -> WorkflowRegistry {
    registry.state_machine::<AgentRun>()
}
