//! Attempts of activities in a simulated world: how they end, are lost, and speak after they are over.
//!
//! Invariant: an attempt's end is drawn from the plan; whether it counts is the run machine's affair, and checked here: an
//! end counts once (G12), and only while its attempt is under way (G20).

use bosun_engine::*;

use super::finding::Violation;
use super::under_way::PendingWork;
use super::world::{InputOutcome, World};

impl World<'_> {
    pub(super) fn attempt_ends(
        &mut self,
        task: &ActivityTask,
        cancel: bool,
        result: usize,
        again: bool,
    ) -> Result<(), Violation> {
        if !again {
            self.running = self.running.saturating_sub(1);
        }
        let Some(outcome) = self.outcome_of(task, cancel, result)? else { return Ok(()) };
        let input = Input::ActivityOutcome { seq: task.seq, attempt: task.attempt, outcome, identity: None };
        let wants = self.runs.get(&task.run_id).and_then(|run| run.execution.as_ref());
        let token = TaskToken { run_id: task.run_id, seq: task.seq, attempt: task.attempt };
        let late = wants.is_some_and(|execution| !execution.run().is_under_way(token));
        match self.input(task.run_id, input)? {
            // What a paused run keeps is an answer too, and it is kept once.
            InputOutcome::Accepted { events } if again && events > 0 => Err(twice(task)),
            InputOutcome::Accepted { .. } | InputOutcome::Crashed => Ok(()),
            InputOutcome::Refused(_) => {
                self.rare.hit(match (again, late) {
                    (true, _) => "duplicate completion refused",
                    (false, true) => "late completion refused",
                    (false, false) => "completion refused",
                });
                Ok(())
            }
        }
    }

    /// How the attempt ends. When the world heals it succeeds, or fails for good.
    fn outcome_of(
        &mut self,
        task: &ActivityTask,
        cancel: bool,
        result: usize,
    ) -> Result<Option<ActivityOutcome>, Violation> {
        let outcomes = self.plan.results_of(&task.activity_type);
        if outcomes.is_empty() {
            let why = format!(
                "the workflow schedules the activity {}, and the test gives no results for it",
                task.activity_type
            );
            return Err(Violation::Setup { why });
        }
        if cancel && result % 3 == 1 {
            self.rare.hit("activity stopped when it was canceled");
            return Ok(Some(ActivityOutcome::Canceled(None)));
        }
        if !self.healing {
            let outcome = self.answer(task, outcomes[result % outcomes.len()].clone());
            if let ActivityOutcome::Failed(_) = outcome {
                self.rare.hit("attempt failed");
            }
            return Ok(Some(outcome));
        }
        let good: Vec<&ActivityOutcome> =
            outcomes.iter().filter(|outcome| matches!(outcome, ActivityOutcome::Completed(_))).collect();
        // The same activity gets the same result, whatever the order of arrival.
        let which = usize::from(task.input.digest()[0]) % good.len().max(1);
        Ok(Some(match good.get(which) {
            Some(outcome) => self.answer(task, (*outcome).clone()),
            None => match outcomes[0].clone() {
                ActivityOutcome::Failed(failure) => ActivityOutcome::Failed(failure.non_retryable()),
                other => other,
            },
        }))
    }

    /// An activity whose result is a function of its input gives that where it was drawn that it completes.
    fn answer(&self, task: &ActivityTask, drawn: ActivityOutcome) -> ActivityOutcome {
        match (self.doubts.answers.get(&task.activity_type), &drawn) {
            (Some(answers), ActivityOutcome::Completed(_)) => answers(&task.input),
            _ => drawn,
        }
    }

    pub(super) fn lose(&mut self, pick: u16) {
        // Only what some timeout ends may be lost; the other close timeout is always there.
        let Some(at) = self.pick(pick, |item| matches!(item, PendingWork::Attempt { .. })) else { return };
        if let PendingWork::Attempt { task, .. } = self.under_way.remove(at) {
            self.zombies.push((task.run_id, task.seq, task.attempt));
            self.running = self.running.saturating_sub(1);
            self.rare.hit("attempt lost");
        }
    }

    /// An attempt whose worker is gone tells its end. It counts only while it is still the attempt under way (G20).
    pub(super) fn zombie(&mut self, pick: u16, result: u16) -> Result<(), Violation> {
        if self.zombies.is_empty() {
            return Ok(());
        }
        let (run_id, seq, attempt) = self.zombies[usize::from(pick) % self.zombies.len()];
        if !self.runs.contains_key(&run_id) {
            return Ok(());
        }
        let execution = self.load(run_id)?;
        let current = execution.run().is_under_way(TaskToken { run_id, seq, attempt });
        let paused = execution.run().is_paused();
        let named = execution.run().pending_activities().into_iter().find(|activity| activity.seq == seq);
        if let Some(run) = self.runs.get_mut(&run_id) {
            run.execution = Some(execution);
        }
        let results = named.map_or(Vec::new(), |activity| self.plan.results_of(&activity.activity_type).to_vec());
        let outcome = results.get(usize::from(result) % results.len().max(1)).cloned();
        let outcome = outcome.unwrap_or(ActivityOutcome::Completed(Payload::null()));
        match self.input(run_id, Input::ActivityOutcome { seq, attempt, outcome, identity: None })? {
            InputOutcome::Accepted { events } if !current && !paused && events > 0 => Err(Violation::Guarantee {
                id: "G20",
                why: format!("attempt {attempt} of activity {seq} was over, and its completion was accepted"),
            }),
            InputOutcome::Refused(_) => {
                self.rare.hit("zombie refused");
                Ok(())
            }
            InputOutcome::Accepted { .. } | InputOutcome::Crashed => Ok(()),
        }
    }

    pub(super) fn heartbeat(&mut self, pick: u16) -> Result<(), Violation> {
        let Some(at) = self.pick(pick, |item| matches!(item, PendingWork::Attempt { .. })) else { return Ok(()) };
        let PendingWork::Attempt { task, .. } = &self.under_way[at] else { return Ok(()) };
        let input = Input::Heartbeat { seq: task.seq, attempt: task.attempt, details: Some(Payload::null()) };
        let run_id = task.run_id;
        self.input(run_id, input).map(drop)
    }
}

fn twice(task: &ActivityTask) -> Violation {
    let why = format!("the end of attempt {} of activity {} was accepted twice", task.attempt, task.seq);
    Violation::Guarantee { id: "G12", why }
}
