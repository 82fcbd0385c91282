//! Begins the runs of a shard: by a start, and as the next one of a chain.
//!
//! Invariant: what begins is durable with whatever comes with it, or not at all; a run whose code cannot take its first
//! turn begins held, with its input and its inbox kept. Which starts are allowed is decided before.

use super::{Shard, decide_with};
use crate::machine::{Decision, Environment, Execution, Held, NextRun};
use crate::service::committer::{Answer, RunName};
use crate::service::current_turn::CurrentTurn;
use crate::service::quarantine::Suspect;
use crate::service::shared::WorkerShared;
use crate::service::starters::{StarterNews, tell_starters};
use crate::vocabulary::*;

impl Shard {
    /// Begins a run and submits its first turn. With `ends`, that run is terminated in the same commit.
    pub(in crate::service) fn begin(
        &mut self,
        run_id: RunId,
        (started, at, what): (WorkflowExecutionStarted, Timestamp, Option<RunId>),
        ends: Option<(RunName, Option<Identity>)>,
        then: Option<Input>,
        answers: Vec<Answer>,
    ) -> Result<(), (Rejection, Vec<Answer>)> {
        let name = RunName { namespace: started.namespace.clone(), workflow_id: started.workflow_id.clone(), run_id };
        let info = self.shared.is_intercepted().then(|| RunInfo::started(run_id, at, self.shared.build, &started));
        let shared = self.shared.clone();
        info.iter().for_each(|info| shared.turn_begins(info));
        let begun = self.first_decisions(run_id, (started, at, what), then);
        match &begun {
            Ok((execution, begun)) => {
                shared.turn_ends(execution.run().info(), begun.iter().map(|one| one.turn().events.len()).sum());
            }
            Err(_) => info.iter().for_each(|info| shared.turn_ends(info, 0)),
        }
        let mut decisions = Vec::new();
        let ended = begun.and_then(|begun| match &ends {
            Some((old, identity)) => {
                let reason = "terminated by a start of the same workflow id".to_owned();
                let decision = self.decide_only(old, Input::Terminate { reason, identity: identity.clone() });
                decision.map(|decision| decisions.push((old.clone(), decision))).map(|()| begun)
            }
            None => Ok(begun),
        });
        match ended {
            Ok((execution, begun)) => {
                self.current.insert((name.namespace.clone(), name.workflow_id.clone()), run_id);
                if let Some(held) = execution.held() {
                    shared.note_held(run_id, Some(held.to_string()));
                }
                self.keep(run_id, execution, EventId(1));
                decisions.extend(begun.into_iter().map(|decision| (name.clone(), decision)));
                self.submit(decisions, answers);
                Ok(())
            }
            Err(why) => {
                self.give_back_slots(usize::MAX);
                Err((why, answers))
            }
        }
    }

    /// The first turn of a run, and what comes with its start.
    fn first_decisions(
        &mut self,
        run_id: RunId,
        (started, at, what): (WorkflowExecutionStarted, Timestamp, Option<RunId>),
        then: Option<Input>,
    ) -> Result<(Execution, Vec<Decision>), Rejection> {
        let (shared, current_turn) = (self.shared.clone(), self.current_turn.clone());
        let refused = self.start_refused(run_id, &started, what);
        let begun = first_turn(&shared, &current_turn, at, started, refused, |started, refused, environment| {
            let registry = &shared.options.workflows;
            match refused {
                None => {
                    let is_child = started.parent.is_some();
                    let (execution, first) = Execution::start(run_id, started, registry, environment)?;
                    match execution.undone().filter(|_| !is_child).and_then(Held::refuses_start) {
                        Some(why) => Err(why),
                        None => Ok((execution, first)),
                    }
                }
                Some(held) => Ok(Execution::start_held(run_id, started, held, environment)),
            }
        });
        let begun = begun.and_then(|(execution, first)| match then {
            None => Ok((execution, vec![first])),
            Some(input) => self.second_turn(execution, first, at, |execution, environment| {
                execution.decide(input.clone(), environment).map_err(|why| match (&input, execution.undone()) {
                    (Input::Update { update_id, .. }, Some(held)) => {
                        Rejection::UpdateRefused { update_id: update_id.clone(), failure: held.as_failure() }
                    }
                    _ => why,
                })
            }),
        });
        self.ended(what.map(Suspect::Start), true);
        begun
    }

    /// The turn that follows the first one of a run at once. If nothing of it may be written, the run is begun all the
    /// same, held, and decides without its code.
    fn second_turn(
        &self,
        mut execution: Execution,
        first: Decision,
        at: Timestamp,
        decide: impl Fn(&mut Execution, &mut Environment<'_>) -> Result<Decision, Rejection>,
    ) -> Result<(Execution, Vec<Decision>), Rejection> {
        let decided =
            decide_with(&self.shared, &self.current_turn, at, |environment| decide(&mut execution, environment));
        let held = match (decided, execution.undone().cloned()) {
            (Ok(second), _) => return Ok((execution, vec![first, second])),
            (Err(why), None) | (Err(why @ Rejection::UpdateRefused { .. }), Some(_)) => return Err(why),
            (Err(_), Some(held)) => held,
        };
        let before = Execution::facts(std::slice::from_ref(first.turn()));
        let mut execution = before.map_err(|why| Rejection::Held { why: why.to_string() })?;
        execution.hold(held);
        let second =
            decide_with(&self.shared, &self.current_turn, at, |environment| decide(&mut execution, environment))?;
        Ok((execution, vec![first, second]))
    }

    /// Why a run is begun without its code, if starts of the kind have ended workers.
    fn start_refused(&self, run: RunId, started: &WorkflowExecutionStarted, what: Option<RunId>) -> Option<Held> {
        let (quarantine, what) = (self.shared.quarantine.as_ref()?, what?);
        let (found_at, why) = quarantine.start_refused(what)?;
        quarantine.hold(run, what);
        let (namespace, workflow_id) = (started.namespace.clone(), started.workflow_id.clone());
        let news = StarterNews { namespace, workflow_id, run, found_at, why: why.clone() };
        tell_starters(&self.shared, started.parent.clone(), &news);
        Some(Held::Defect { why })
    }

    /// Begins the next run of a chain, in the same commit as the end of the one before.
    pub(super) fn begin_next(&mut self, before: &RunName, next: NextRun) -> Vec<(RunName, Decision)> {
        let (shared, current_turn) = (self.shared.clone(), self.current_turn.clone());
        let name = RunName { run_id: next.run_id, ..before.clone() };
        let at = newer_than(self.info(before.run_id).map(|info| info.started_at), shared.clock.now());
        if shared.is_intercepted() {
            shared.turn_begins(&RunInfo::started(next.run_id, at, shared.build, &next.started));
        }
        let decided = first_turn(&shared, &current_turn, at, next, None, |next, overran, environment| match overran {
            None => Ok(Execution::start_or_hold(next, &shared.options.workflows, environment)),
            Some(held) => {
                let NextRun { run_id, started, inbox } = next;
                Ok(Execution::start_held_with(NextRun { run_id, started, inbox }, held, environment))
            }
        });
        let decided = decided.and_then(|(execution, first)| {
            if execution.run().inbox_len() == 0 || execution.held().is_some() {
                return Ok((execution, vec![first]));
            }
            self.second_turn(execution, first, at, |execution, environment| execution.decide_inbox(environment))
        });
        // It cannot fail: what could is held instead.
        let Ok((execution, decisions)) = decided else { return Vec::new() };
        shared.turn_ends(execution.run().info(), decisions.iter().map(|one| one.turn().events.len()).sum());
        if let Some(held) = execution.held() {
            shared.note_held(name.run_id, Some(held.to_string()));
        }
        self.current.insert((name.namespace.clone(), name.workflow_id.clone()), name.run_id);
        self.keep(name.run_id, execution, EventId(1));
        decisions.into_iter().map(|decision| (name.clone(), decision)).collect()
    }
}

/// Takes the first turn of a run. If its code asks for more than a turn may hold, the run begins without it, held.
fn first_turn<S: Clone>(
    shared: &WorkerShared,
    current_turn: &CurrentTurn,
    at: Timestamp,
    start: S,
    held: Option<Held>,
    begin: impl Fn(S, Option<Held>, &mut Environment<'_>) -> Result<(Execution, Decision), Rejection>,
) -> Result<(Execution, Decision), Rejection> {
    let mut overran = None;
    let begun = decide_with(shared, current_turn, at, |environment| {
        let (execution, first) = begin(start.clone(), held, environment)?;
        overran = execution.undone().cloned();
        match &overran {
            None => Ok((execution, first)),
            Some(held) => Err(Rejection::Held { why: held.to_string() }),
        }
    });
    match overran {
        None => begun,
        Some(held) => decide_with(shared, current_turn, at, |environment| begin(start, Some(held), environment)),
    }
}

/// When a run starts that follows another one of its workflow id: never at the same moment, so that the start times tell
/// which run is the newest.
pub(in crate::service) fn newer_than(before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    before.map_or(now, |before| now.max(before.plus(std::time::Duration::from_micros(1))))
}
