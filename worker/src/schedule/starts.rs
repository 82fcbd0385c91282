//! The starts of a schedule: how they begin, how others are ended for them, and how their ends are heard of.
//!
//! Invariant: a start is under way from the moment it is asked for until its end is heard, once, whoever tells it: its signal,
//! its result, or, where it was removed by force, the message that nobody takes. Which starts there are is decided by `run`.

use bosun_engine::workflow::Cx;
use bosun_engine::*;
use serde::Serialize;

use super::ID_PREFIX;
use super::action::{ActionInput, SCHEDULE_ACTION};
use super::messages::*;
use super::policy::HowToEnd;
use super::run::ScheduleRun;
use super::standing::{PlannedStart, RunningAction};
use super::text::moment;

impl ScheduleRun {
    fn workflow_id(&self, cx: &Cx<'_>) -> WorkflowId {
        cx.workflow_id().cloned().unwrap_or_else(|| WorkflowId::of(format!("{ID_PREFIX}{}", self.id)))
    }

    pub(super) fn begin(&mut self, start: &PlannedStart, cx: &mut Cx<'_>) {
        let name = moment(start.nominal);
        let schedule = self.workflow_id(cx);
        let action = self.standing.schedule.action.clone();
        let workflow_id = format!("{}-{name}", action.workflow_id);
        let options = ChildWorkflowOptions {
            summary: Some(format!("starts {} as {workflow_id}", action.workflow_type)),
            ..ChildWorkflowOptions::default().with_close_policy(ParentClosePolicy::Abandon)
        };
        let run = WorkflowId::of(action_run_id(&schedule, &name));
        let (nominal, started_at) = (start.nominal, cx.now());
        let input = ActionInput {
            schedule,
            schedule_id: self.id.clone(),
            name: name.clone(),
            nominal,
            workflow_id: workflow_id.clone(),
            action,
        };
        let child = Some(cx.start_child(SCHEDULE_ACTION, run, &input, options));
        let running = RunningAction { workflow_id, started_at, child, begun: false, asked: None };
        self.standing.running.insert(name, running);
        self.standing.counts.actions += 1;
        if let Some(left) = self.standing.schedule.state.remaining_actions.as_mut().filter(|_| !start.by_hand) {
            *left = left.saturating_sub(1);
        }
    }

    pub(super) fn end_others(&mut self, how: HowToEnd, cx: &mut Cx<'_>) {
        let signal = match how {
            HowToEnd::Cancel => SIGNAL_CANCEL,
            HowToEnd::Terminate => SIGNAL_TERMINATE,
        };
        let because = Because { reason: "its schedule starts another".to_owned() };
        let others = self.standing.running.iter_mut().filter(|(_, action)| action.asked < Some(how));
        let names: Vec<String> = others.map(|(name, action)| (action.asked = Some(how), name.clone()).1).collect();
        for name in names {
            self.tell(name, signal, &because, cx);
        }
    }

    /// After continue-as-new: the end of a start comes by its signal, unless it was removed by force meanwhile.
    pub(super) fn greet(&mut self, cx: &mut Cx<'_>) {
        for name in self.standing.running.keys().cloned().collect::<Vec<_>>() {
            self.tell(name, SIGNAL_HELLO, &(), cx);
        }
    }

    fn tell<T: Serialize>(&mut self, name: String, signal: &str, input: &T, cx: &mut Cx<'_>) {
        let workflow_id = WorkflowId::of(action_run_id(&self.workflow_id(cx), &name));
        let seq = cx.signal_external(ExternalTarget { workflow_id, run_id: None }, signal, input);
        self.messages.push((seq, name));
    }

    pub(super) fn delivered(&mut self, seq: Seq, result: &Result<(), Failure>, cx: &mut Cx<'_>) {
        let Some(at) = self.messages.iter().position(|(message, _)| *message == seq) else { return };
        let (_, name) = self.messages.swap_remove(at);
        // A start of this run tells its end itself; of an earlier one, this is how it is known to be gone.
        let gone = self.standing.running.get(&name).is_some_and(|action| action.child.is_none());
        if let (Err(why), true) = (result, gone) {
            self.ended(ActionEnd { name, outcome: Outcome::Unknown, message: Some(why.message.clone()) }, cx);
        }
    }

    pub(super) fn resolved(&mut self, seq: Seq, result: &Result<Payload, Failure>, cx: &mut Cx<'_>) {
        let found = self.standing.running.iter().find(|(_, action)| action.child == Some(seq));
        let Some((name, begun)) = found.map(|(name, action)| (name.clone(), action.begun)) else { return };
        let said = result.as_ref().ok().and_then(|end| end.decode::<ActionEnd>().ok());
        self.ended(said.unwrap_or_else(|| ActionEnd::of(&name, result, begun)), cx);
    }

    pub(super) fn ended(&mut self, end: ActionEnd, cx: &mut Cx<'_>) {
        // Schedules that are under way have gone on after a start that never was.
        let never_was = end.outcome == Outcome::NotStarted && cx.patched("schedule-not-started-is-failed");
        let failed = never_was || matches!(end.outcome, Outcome::Failed | Outcome::TimedOut);
        let about = format!("{} of {}", end.message.as_deref().unwrap_or("the end"), end.name);
        if never_was && self.standing.running.contains_key(&end.name) {
            self.standing.counts.never_started();
        }
        if self.standing.ended(end, cx.now()) && failed && self.standing.schedule.policies.pause_on_failure {
            self.pause(format!("paused after a failure: {about}"), cx);
        }
    }

    /// One start more would cost the worker two more lives, whatever the policies say.
    pub(super) fn quarantined(&mut self, told: &Quarantined, cx: &Cx<'_>) {
        let Quarantined { workflow_id, why } = told;
        self.pause(format!("paused: its start {workflow_id} ends workers and is held ({why})"), cx);
    }

    fn pause(&mut self, note: String, cx: &Cx<'_>) {
        self.standing.schedule.state.paused = true;
        self.standing.schedule.state.note = note;
        self.standing.version += 1;
        self.standing.updated_at = cx.now();
    }
}
