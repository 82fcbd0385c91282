//! A schedule as a run: the workflow `bosun.schedule`.
//!
//! ```text
//!   timer · update · end of a start ──► look at the clock (recorded) ──► overlap ──► starts · waits · counts
//!                                                                          │
//!              long history, nothing half begun ──► continues as new ◄─────┴──► timer for the next time
//! ```
//!
//! Invariant: after every event all that is due has been dealt with, and the timer stands at the next time. Nominal times are
//! taken in order and once: the cursor is behind them before anything is started. It continues as new only when every start
//! has begun and every message has arrived, so that nothing is asked for twice.

use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::ScheduledStart;
use super::messages::*;
use super::policy::{OverlapVerdict, WAITING_MAX, decide};
use super::spec::{InvalidSchedule, Schedule, ScheduleSpec};
use super::standing::{PlannedStart, Standing};
use super::text::moment;
use super::times::{LookAhead, Times};

/// The workflow type.
pub const SCHEDULE: &str = "bosun.schedule";
/// The failure type of an input that is no schedule.
pub const INVALID_SCHEDULE: &str = "InvalidSchedule";

/// Starts of one turn at most; the rest follow in the next.
const STARTS_PER_TURN: usize = 100;
/// A schedule goes on for ever; its history need not be long for that.
const CONTINUE_AT_EVENTS: u64 = 2_000;

/// What a schedule is started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleInput {
    pub schedule_id: String,
    pub schedule: Schedule,
    /// What the run before knew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Box<Standing>>,
}

impl ScheduleInput {
    /// The start of a new schedule, which has been checked.
    ///
    /// # Errors
    /// What cannot be written as JSON.
    pub fn start(schedule: Schedule, of: Target) -> Result<StartWorkflow, PayloadError> {
        let id = of.workflow_id.as_str();
        let schedule_id = id.strip_prefix(super::ID_PREFIX).unwrap_or(id).to_owned();
        let summary = format!("starts {}", schedule.action.workflow_type);
        let input = Payload::encode(&ScheduleInput { schedule_id, schedule, carried: None })?;
        let mut start = StartWorkflow::new(SCHEDULE.into(), of.workflow_id).input(input);
        (start.namespace, start.summary) = (of.namespace, Some(summary));
        Ok(start)
    }
}

/// The workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRun {
    pub(super) id: String,
    pub(super) standing: Standing,
    timer: Option<(Seq, Timestamp)>,
    /// The next time must be looked for, whatever the timer says.
    pub(super) stale: bool,
    /// Messages to starts that are under way, and which start each is for.
    pub(super) messages: Vec<(Seq, String)>,
}

impl StateMachine for ScheduleRun {
    const TYPE: &'static str = SCHEDULE;
    const TOLD_OF_QUARANTINE: Option<&'static str> = Some(SIGNAL_QUARANTINED);
    type Input = ScheduleInput;
    type Output = Value;

    fn start(input: ScheduleInput, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let ScheduleInput { schedule_id: id, schedule, carried } = input;
        let standing = match carried {
            Some(carried) => *carried,
            None => {
                // Recorded: a zone may be unknown to the next version of the program.
                let wrong: Option<InvalidSchedule> = cx.side_effect(|| schedule.check(&id).err());
                if let Some(wrong) = wrong {
                    return Err(refused(&wrong));
                }
                Standing::new(schedule, cx.now())
            }
        };
        let mut run = ScheduleRun { id, standing, timer: None, stale: true, messages: Vec::new() };
        run.greet(cx);
        run.go_on(cx);
        Ok(run)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::TimerFired { seq } => {
                self.timer.take_if(|(timer, _)| *timer == seq);
            }
            WorkflowEvent::Update { update_id, name, input } => {
                let answer = self.update(name.as_str(), &input, cx);
                let deleted = name.as_str() == "delete" && answer.is_ok();
                cx.complete_update(update_id, answer.as_ref().map_err(refused));
                if deleted {
                    cx.complete(&json!({ "deleted": self.id, "counts": self.standing.counts }));
                }
            }
            WorkflowEvent::Signal(signal) if signal.name.as_str() == SIGNAL_ENDED => {
                if let Ok(end) = signal.input.decode::<ActionEnd>() {
                    self.ended(end, cx);
                }
            }
            WorkflowEvent::Signal(signal) if signal.name.as_str() == SIGNAL_QUARANTINED => {
                if let Ok(told) = signal.input.decode::<Quarantined>() {
                    self.quarantined(&told, cx);
                }
            }
            // A schedule goes on for ever: what it has no use for is not carried along.
            WorkflowEvent::Signal(_) => {}
            WorkflowEvent::ChildStarted { seq, .. } => {
                if let Some(action) = self.standing.running.values_mut().find(|action| action.child == Some(seq)) {
                    action.begun = true;
                }
            }
            WorkflowEvent::ChildResolved { seq, result } => self.resolved(seq, &result, cx),
            WorkflowEvent::SignalDelivered { seq, result } => self.delivered(seq, &result, cx),
            WorkflowEvent::CancelRequested { .. } => cx.cancel(None),
            WorkflowEvent::ActivityResolved { .. } | WorkflowEvent::CancelDelivered { .. } => {} // it asks for none
        }
        self.go_on(cx);
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        &QUERIES
    }

    fn query(&self, name: &QueryName, input: &Payload) -> Result<Payload, Failure> {
        let answer = match name.as_str() {
            "describe" => self.description(),
            "next_times" => {
                let HowMany { count } = read_value(input.to_json()).map_err(|why| refused(&why))?;
                json!(self.next_times(count.min(WAITING_MAX)))
            }
            other => return Err(Failure::application("UnknownQuery", format!("a schedule has no query {other}"))),
        };
        Ok(Payload::encode(&answer)?)
    }

    fn validate_update(&self, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        self.validate(name.as_str(), input).map_err(|why| refused(&why))
    }
}

pub(super) fn refused(why: &InvalidSchedule) -> Failure {
    Failure::application(INVALID_SCHEDULE, why.to_string()).non_retryable()
}

/// What goes by itself.
impl ScheduleRun {
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        if cx.is_closed() {
            return;
        }
        let mut more = self.take_due(cx);
        more |= self.take_backfill(cx);
        self.start_waiting(cx);
        self.set_timer(more, cx);
        self.continue_if_long(cx);
    }

    /// Takes the times that are due. Says whether there are more than one turn takes.
    fn take_due(&mut self, cx: &mut Cx<'_>) -> bool {
        let now = cx.now();
        if !self.standing.is_active() {
            self.look_from_now(now);
            return false;
        }
        if !self.stale && self.standing.next.is_none_or(|next| next.due > now) {
            return false;
        }
        let (spec, window) = (&self.standing.schedule.spec, self.standing.schedule.policies.catch_up_window);
        let (id, cursor) = (&self.id, self.standing.cursor);
        let seen: LookAhead =
            cx.side_effect(|| look(spec, id, |times| times.look_ahead(cursor, now, window, STARTS_PER_TURN)));
        self.stale = false;
        let overlap = self.overlap();
        self.standing.counts.missed_catchup_window += seen.missed;
        self.standing.cursor = self.standing.cursor.max(seen.through);
        self.standing.next = seen.next;
        self.standing.problem = seen.problem;
        for nominal in seen.due {
            self.arrive(PlannedStart { nominal: nominal.at, overlap, by_hand: false }, cx);
        }
        self.standing.is_active() && self.standing.next.is_some_and(|next| next.due <= now)
    }

    /// As [`Self::take_due`], for the times of a backfill.
    fn take_backfill(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(range) = self.standing.backfills.front().cloned() else { return false };
        if self.standing.waiting.len() + STARTS_PER_TURN > WAITING_MAX {
            return false; // the end of what runs makes room
        }
        let (spec, id) = (&self.standing.schedule.spec, &self.id);
        let after = Timestamp(range.start_time.0.saturating_sub(1));
        let (times, more): (Vec<Timestamp>, bool) = cx.side_effect(|| match Times::of(spec, id) {
            Ok(times) => times.within(after, range.end_time, STARTS_PER_TURN),
            Err(_) => (Vec::new(), false),
        });
        match (times.last(), more, self.standing.backfills.front_mut()) {
            (Some(last), true, Some(front)) => front.start_time = last.plus(Duration::from_micros(1)),
            _ => drop(self.standing.backfills.pop_front()),
        }
        let overlap = range.overlap.unwrap_or(self.overlap());
        for nominal in times {
            self.arrive(PlannedStart { nominal, overlap, by_hand: true }, cx);
        }
        !self.standing.backfills.is_empty()
    }

    pub(super) fn arrive(&mut self, start: PlannedStart, cx: &mut Cx<'_>) {
        if !self.standing.allows(&start) {
            return;
        }
        let same = self.standing.running.contains_key(&moment(start.nominal))
            || self.standing.waiting.iter().any(|waiting| waiting.nominal == start.nominal);
        if same {
            self.standing.counts.overlap_skipped += 1;
            return;
        }
        match decide(start.overlap, self.standing.running.len(), self.standing.waiting.len()) {
            OverlapVerdict::Start => self.begin(&start, cx),
            OverlapVerdict::Skip => self.standing.counts.overlap_skipped += 1,
            OverlapVerdict::Drop => self.standing.counts.buffer_dropped += 1,
            OverlapVerdict::Wait => self.standing.waiting.push_back(start),
            OverlapVerdict::WaitAlone(how) => {
                self.standing.counts.overlap_skipped += self.standing.waiting.len() as u64;
                self.standing.waiting.clear();
                self.standing.waiting.push_back(start);
                self.end_others(how, cx);
            }
        }
    }

    /// Starts what waits, as soon as nothing else runs.
    fn start_waiting(&mut self, cx: &mut Cx<'_>) {
        while self.standing.running.is_empty()
            && let Some(start) = self.standing.waiting.pop_front()
        {
            match self.standing.allows(&start) {
                true => self.begin(&start, cx),
                false => self.standing.counts.buffer_dropped += 1,
            }
        }
    }

    fn set_timer(&mut self, more: bool, cx: &mut Cx<'_>) {
        if !self.standing.is_active() {
            self.standing.next = None;
        }
        // One at this very moment fires in the next turn.
        let wanted = if more { Some(cx.now()) } else { self.standing.next.map(|next| next.due) };
        if self.timer.map(|(_, at)| at) == wanted {
            return;
        }
        if let Some((seq, _)) = self.timer.take() {
            cx.cancel_timer(seq);
        }
        let summary = match self.standing.next {
            Some(next) if !more => format!("the start of {}", moment(next.at)),
            _ => "more starts".to_owned(),
        };
        self.timer = wanted.map(|at| (cx.start_labelled_timer(at, summary), at));
    }

    fn continue_if_long(&self, cx: &mut Cx<'_>) {
        let long = cx.history().events >= CONTINUE_AT_EVENTS || cx.continue_as_new_suggested();
        let quiet = self.messages.is_empty() && self.standing.running.values().all(|action| action.begun);
        if long && quiet {
            let mut carried = Box::new(self.standing.clone());
            // Their ends come by signal.
            carried.running.values_mut().for_each(|action| action.child = None);
            let input = ScheduleInput {
                schedule_id: self.id.clone(),
                schedule: carried.schedule.clone(),
                carried: Some(carried),
            };
            cx.continue_as_new(&input, ContinueAsNewOptions::default());
        }
    }
}

fn look(spec: &ScheduleSpec, id: &str, ask: impl FnOnce(&Times) -> LookAhead) -> LookAhead {
    match Times::of(spec, id) {
        Ok(times) => ask(&times),
        Err(why) => LookAhead { problem: Some(why.to_string()), ..LookAhead::default() },
    }
}

/// Adds the workflows of schedules.
pub fn register(registry: WorkflowRegistry) -> WorkflowRegistry {
    registry.state_machine::<ScheduleRun>().state_machine::<ScheduledStart>()
}
