//! A turn of a scene: a run takes a job, and the world carries out what the run asks for; again as recorded, and after a
//! crash.
//!
//! Invariant: a turn that is taken again is given what was recorded of it and nothing else; a signal reaches the run it
//! names and no other. Which job is next is decided in `world`.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::*;

use super::world::{ROOT, Run, Step, World};
use crate::supervisor::run::SUPERVISOR;

impl World {
    /// Gives a run a job, live or with what is recorded of it.
    pub(super) fn give(
        &mut self,
        id: &str,
        job: Job,
        cue: bool,
        call: Option<String>,
        recorded: Option<&BTreeMap<Seq, Payload>>,
    ) {
        let run = self.runs.get_mut(id).unwrap();
        if run.outcome.is_some() {
            return;
        }
        let markers = match recorded {
            None => Markers::Fresh,
            Some(values) => Markers::Recorded { side_effects: values.clone(), patches: BTreeSet::new() },
        };
        let (at, run_id) = (self.now, run.run_id);
        let activation = Activation { at, run_id, history: HistorySize::default(), job: job.clone(), markers };
        let commands = run.driver.activate(activation);
        let mut side_effects = BTreeMap::new();
        for command in &commands {
            if let Command::RecordMarker(Marker::SideEffect { seq, value }) = command {
                side_effects.insert(*seq, value.clone());
                if id == ROOT && recorded.is_none() {
                    self.notes.extend(value.to_json().as_array().cloned().unwrap_or_default());
                }
            }
        }
        if let Some(bytes) = self.runs[id].driver.snapshot().filter(|_| recorded.is_none() && self.permute.is_none()) {
            let restored = self.registry.restore(&WorkflowType::of(SUPERVISOR), run_id, &bytes).unwrap();
            assert_eq!(restored.state_json(), self.runs[id].driver.state_json(), "the snapshot is not the state");
            self.runs.get_mut(id).unwrap().driver = restored;
        }
        self.steps.push(Step { run: id.to_owned(), at, job, cue, call, side_effects });
        for command in commands {
            self.carry_out(id, command);
        }
    }

    /// The same step as it was, from what is recorded of it.
    pub(super) fn again(&mut self, step: &Step) {
        self.now = step.at;
        let run = self.runs.get_mut(&step.run).unwrap();
        // What else is owed to the run stays owed: a crash right after this must not lose it.
        if let Some(place) = run.jobs.iter().position(|(job, ..)| *job == step.job) {
            run.jobs.remove(place);
        }
        match &step.job {
            Job::ResolveActivity { seq, .. } => drop(run.activities.remove(seq)),
            Job::FireTimer { seq } => run.timers.retain(|(_, timer), _| timer != seq),
            _ => {}
        }
        self.cues += usize::from(step.cue);
        self.give(&step.run, step.job.clone(), step.cue, step.call.clone(), Some(&step.side_effects));
    }

    /// What was not recorded is gone; what the engine still owes is given again.
    pub(super) fn crash(&mut self) {
        for (id, run) in &mut self.runs {
            // What the run has heard is in the log by itself: ends of children, and its own beginning, too.
            run.jobs.retain(|(job, ..)| !self.steps.iter().any(|step| step.run == *id && step.job == *job));
        }
    }

    /// The calls that were answered within the first steps.
    pub(super) fn made(&self, steps: usize) -> BTreeSet<&String> {
        self.steps[..steps].iter().filter_map(|step| step.call.as_ref()).collect()
    }

    fn carry_out(&mut self, id: &str, command: Command) {
        let run = self.runs.get_mut(id).unwrap();
        match command {
            Command::ScheduleActivity { seq, activity_type, input, options, .. } => {
                let key = options.summary.unwrap_or_default();
                let key = key.split(" (").next().unwrap_or_default().to_owned();
                run.activities.insert(seq, (key, activity_type, input));
            }
            Command::RequestCancelActivity { seq } => {
                if run.activities.remove(&seq).is_some() {
                    let result = Err(Failure::canceled("canceled"));
                    run.jobs.push_back((Job::ResolveActivity { seq, result }, false, None));
                }
            }
            Command::StartTimer { seq, fire_at, summary } => drop(run.timers.insert((fire_at, seq), summary)),
            Command::CancelTimer { seq } => run.timers.retain(|(_, timer), _| *timer != seq),
            Command::StartChildWorkflow { seq, workflow_id, input, .. } => {
                let child = format!("child-{}", self.started);
                let run_id = self.start(&child, workflow_id, input, Some((id.to_owned(), seq)));
                let started = (Job::ResolveChildWorkflowStart { seq, result: Ok(run_id) }, false, None);
                self.runs.get_mut(id).unwrap().jobs.push_back(started);
            }
            Command::CancelChildWorkflow { seq, .. } => {
                let reason = "by the parent".to_owned();
                let of = |run: &&mut Run| run.parent == Some((id.to_owned(), seq)) && run.outcome.is_none();
                if let Some(child) = self.runs.values_mut().find(of) {
                    child.jobs.push_back((Job::CancelWorkflow { reason }, false, None));
                }
            }
            Command::SignalExternalWorkflow { seq, target, name, input } => {
                let signal = WorkflowExecutionSignaled { name, input, identity: None, request_id: None };
                let result = self.deliver(&target, signal);
                let told = (Job::ResolveSignalExternal { seq, result }, false, None);
                self.runs.get_mut(id).unwrap().jobs.push_back(told);
            }
            Command::CompleteUpdate { result, .. } => {
                self.updates.push(result.map(|value| value.to_json()).map_err(|why| why.message));
            }
            Command::CompleteWorkflow { result, .. } => self.over(id, CloseOutcome::Completed(result)),
            Command::FailWorkflow { failure, .. } => self.over(id, CloseOutcome::Failed(failure)),
            Command::CancelWorkflow { details, .. } => self.over(id, CloseOutcome::Canceled(details)),
            Command::ContinueAsNew { .. } => panic!("a supervisor does not continue as new"),
            Command::RequestCancelExternalWorkflow { .. }
            | Command::RecordMarker(_)
            | Command::UpsertSearchAttributes { .. }
            | Command::ModifyMemo { .. } => {}
        }
    }

    /// To the open run of that workflow id; where there is none, the sender is told.
    fn deliver(&mut self, target: &ExternalTarget, signal: WorkflowExecutionSignaled) -> Result<(), Failure> {
        let of = |run: &&mut Run| run.workflow_id == target.workflow_id && run.outcome.is_none();
        let Some(run) = self.runs.values_mut().find(of) else {
            return Err(Failure::application("NotFound", format!("no open run of {}", target.workflow_id)));
        };
        run.jobs.push_back((Job::SignalWorkflow(signal), false, None));
        Ok(())
    }

    fn over(&mut self, id: &str, outcome: CloseOutcome) {
        let run = self.runs.get_mut(id).unwrap();
        run.activities.clear();
        run.timers.clear();
        run.jobs.clear();
        let result = match &outcome {
            CloseOutcome::Completed(result) => Ok(result.clone()),
            CloseOutcome::Failed(why) => Err(why.clone()),
            _ => Err(Failure::canceled("the child was canceled")),
        };
        run.outcome = Some(outcome);
        if let Some((parent, seq)) = run.parent.clone() {
            let parent = self.runs.get_mut(&parent).unwrap();
            parent.jobs.push_back((Job::ResolveChildWorkflow { seq, result }, false, None));
        }
    }
}
