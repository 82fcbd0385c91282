//! Resets: a run goes back to an earlier point of its history, under its workflow id (E26).
//!
//! Invariant: the end of the run that was open, the copied turns and the first turn of the new run are one commit, so that a
//! crash finds all of it or nothing, and there is one open run of the id at any time. It is planned on the thread that decides
//! for the workflow id, from everything that was decided before, so that no signal falls between two runs. A reset asked for
//! again under the same request id finds the run it made.

use super::committer::{Answer, RunName};
use super::current_turn::{SharedReply, TurnCaller};
use super::mailbox::RunRef;
use super::shard::{Shard, decide_with, newer_than};
use super::turn::{TurnThread, when_durable};
use crate::log::{Journal, StorageError};
use crate::machine::{Decision, PlannedFork, ResetSource};
use crate::request::{ForkPlan, ResetDone, ResetRequest, Target};
use crate::vocabulary::*;

/// No chain of resets and continued runs is looked through further than this for a request that was carried out before.
const LOOKS_BACK: usize = 10_000;

/// The histories of the runs that came after the point are read into memory, for what is reapplied from them: together they
/// are no longer than this.
const LATER_BYTES_MAX: u64 = 256 << 20;

/// What is to be done about a request.
enum ResetVerdict {
    Done(Box<ResetDone>),
    Begin(Box<PlannedReset>),
}

struct PlannedReset {
    fork: PlannedFork,
    /// The open run.
    ends: Option<RunName>,
}

impl TurnThread {
    pub(super) fn reset(&mut self, request: ResetRequest, fresh: RunId, reply: SharedReply<ResetDone>) {
        let planned = match self.plan_reset(&request, fresh) {
            Ok(ResetVerdict::Begin(planned)) => *planned,
            Ok(ResetVerdict::Done(done)) => return self.answer(reply, Ok(*done)),
            Err(why) => return self.answer(reply, Err(why)),
        };
        if !request.dry_run
            && let Some(why) = self.shared.journal.low_on_space()
        {
            return self.answer(reply, Err(Rejection::StorageFull { why }));
        }
        let PlannedReset { fork, ends } = planned;
        if let Some(name) = ends.as_ref().filter(|_| !request.dry_run) {
            // Loaded apart: when it is this run's code that does not come back, this run is held.
            if let Err(why) = self.look(name, reply.caller(), |_| ()) {
                return self.answer(reply, Err(why));
            }
        }
        let name = name_of(&fork);
        let mut done = answer_of(&fork, ends.as_ref());
        let first = reply.clone();
        let caller = TurnCaller::Refused(Box::new(move |why| first.send(Err(why))));
        self.current_turn.begin(&name, None, caller);
        if request.dry_run {
            let options = &self.shared.options;
            let fits = fork.check(&options.workflows, self.shared.build).map(|_| done);
            self.current_turn.end();
            return self.answer(reply, fits);
        }
        (done.run_id, done.newly_started) = (Some(name.run_id), true);
        let begun = self.shard.begin_reset((&name, ends.as_ref()), fork, vec![when_durable(reply, done)]);
        self.current_turn.end();
        if let Err((why, answers)) = begun {
            self.refuse_in_order(answers, why);
        }
    }

    fn plan_reset(&mut self, request: &ResetRequest, fresh: RunId) -> Result<ResetVerdict, Rejection> {
        let Target { namespace, workflow_id, .. } = &request.target;
        let base = self.shard.find(&RunRef::Target(request.target.clone()))?;
        let unknown = || Rejection::NotFound { workflow_id: workflow_id.clone(), run_id: None };
        let newest = self.shard.newest(namespace, workflow_id).ok_or_else(unknown)?;
        let newest = self.shard.info(newest).ok_or_else(unknown)?;
        if let Some(id) = &request.request_id
            && let Some(done) = self.made_before(&base, &newest, id)
        {
            return Ok(ResetVerdict::Done(Box::new(done)));
        }
        let run_id = request.request_id.as_ref().map_or(fresh, |id| run_of_reset(base.run_id, id));
        let turns = self.shard.turns_of(&base)?;
        let (mut later, mut bytes) = (Vec::new(), 0);
        let mut next = self.shard.info(base.run_id).and_then(|info| info.next_run);
        while let Some(run) = next {
            let info = self.shard.info(run);
            bytes = within_memory(bytes, info.as_ref().map_or(0, |info| info.history.bytes), later.len())?;
            later.push(self.shard.turns_of(&RunName { run_id: run, ..base.clone() })?);
            next = info.and_then(|info| info.next_run);
        }
        let now = newer_than(Some(newest.started_at), self.shared.clock.now());
        let open = newest.status.is_open().then_some(&newest);
        let fork = PlannedFork::plan_reset(request, ResetSource { turns: &turns, later: &later, open }, run_id, now)?;
        let ends = open.map(|open| RunName { run_id: open.run_id, ..base.clone() });
        Ok(ResetVerdict::Begin(Box::new(PlannedReset { fork, ends })))
    }

    /// The run that the same request made before: of the run that is meant, or anywhere behind the newest.
    fn made_before(&self, base: &RunName, newest: &RunInfo, request: &RequestId) -> Option<ResetDone> {
        let answer = |made: RunInfo| {
            let from = made.forked_from.clone()?;
            let terminated = None;
            let RunInfo { workflow_id, run_id, workflow_type, .. } = made;
            let (run_id, plan) = (Some(run_id), ForkPlan { event: from.event, ..ForkPlan::default() });
            Some(ResetDone { workflow_id, run_id, newly_started: false, from, terminated, workflow_type, plan })
        };
        if let Some(made) = self.shard.info(run_of_reset(base.run_id, request)) {
            return answer(made);
        }
        let mut looked_at = Some(newest.clone());
        for _ in 0..LOOKS_BACK {
            let info = looked_at?;
            let reset = info.forked_from.as_ref().filter(|from| from.reset);
            if reset.is_some_and(|from| run_of_reset(from.run_id, request) == info.run_id) {
                return answer(info);
            }
            let before = reset.map(|from| from.run_id).or(info.continued_from);
            looked_at = before.and_then(|run| self.shard.info(run));
        }
        None
    }
}

/// What has been read of the later runs, with one more.
fn within_memory(bytes: u64, more: u64, runs: usize) -> Result<u64, Rejection> {
    let bytes = bytes.saturating_add(more);
    if bytes <= LATER_BYTES_MAX {
        return Ok(bytes);
    }
    let why = format!(
        "more than {runs} runs came after it, whose histories have over {} MiB: reset a newer run of the workflow id, by its run id",
        LATER_BYTES_MAX >> 20
    );
    Err(Rejection::Invalid { what: "reset".into(), why })
}

/// The run that a request makes of a run: the same one, however often it is asked for.
fn run_of_reset(base: RunId, request: &RequestId) -> RunId {
    base.derive(&format!("reset:{request}"), 0)
}

fn name_of(fork: &PlannedFork) -> RunName {
    let started = fork.started();
    RunName { namespace: started.namespace.clone(), workflow_id: started.workflow_id.clone(), run_id: fork.run_id() }
}

fn answer_of(fork: &PlannedFork, ends: Option<&RunName>) -> ResetDone {
    ResetDone {
        workflow_id: fork.started().workflow_id.clone(),
        run_id: None,
        newly_started: false,
        from: fork.point().clone(),
        terminated: ends.map(|name| name.run_id),
        workflow_type: fork.started().workflow_type.clone(),
        plan: fork.summary().clone(),
    }
}

impl Shard {
    fn begin_reset(
        &mut self,
        (name, ends): (&RunName, Option<&RunName>),
        fork: PlannedFork,
        answers: Vec<Answer>,
    ) -> Result<(), (Rejection, Vec<Answer>)> {
        let (shared, current_turn) = (self.shared.clone(), self.current_turn.clone());
        let now = shared.clock.now();
        let info = shared.is_intercepted().then(|| RunInfo::started(name.run_id, now, shared.build, fork.started()));
        info.iter().for_each(|info| shared.turn_begins(info));
        let (into, reason) = fork.end();
        let identity = fork.started().identity.clone();
        let begun =
            decide_with(&shared, &current_turn, now, |environment| fork.begin(&shared.options.workflows, environment));
        let events = begun.as_ref().map_or(0, |(_, _, decision)| decision.turn().events.len());
        info.iter().for_each(|info| shared.turn_ends(info, events));
        let begun = begun.and_then(|begun| match ends {
            Some(ends) => Ok((begun, Some((ends.clone(), self.end_by_reset(ends, into, reason, identity)?)))),
            None => Ok((begun, None)),
        });
        match begun {
            Ok(((execution, copied, decision), ended)) => {
                if let Some((ended, _)) = &ended {
                    shared.note_held(ended.run_id, None);
                }
                self.know_as_current(name);
                self.keep(name.run_id, execution, EventId(1));
                let decisions = ended.into_iter().chain([(name.clone(), decision)]).collect();
                self.submit_after(copied, decisions, answers);
                Ok(())
            }
            Err(why) => Err((why, answers)),
        }
    }

    /// The end of the open run. No code runs.
    fn end_by_reset(
        &mut self,
        name: &RunName,
        into: ResetInto,
        reason: String,
        identity: Option<Identity>,
    ) -> Result<Decision, Rejection> {
        let (shared, current_turn) = (self.shared.clone(), self.current_turn.clone());
        let now = shared.clock.now();
        let execution = self.load(name)?;
        shared.turn_begins(execution.run().info());
        let decision = decide_with(&shared, &current_turn, now, |environment| {
            Ok(execution.end_by_reset(into, reason, identity, environment))
        });
        let events = decision.as_ref().map_or(0, |decision| decision.turn().events.len());
        shared.turn_ends(execution.run().info(), events);
        decision
    }
}

/// Who hears of a child's end in place of a run that has ended by a reset: the run that goes on, if the child was handed over
/// to it, and that run's heir in its turn. Only an open run hears.
///
/// # Errors
/// The end of a run cannot be read: whether there is an heir is not known, and nothing may be done to the child for that.
pub(super) fn heir(journal: &Journal, run: RunId, child: Seq) -> Result<Option<RunId>, StorageError> {
    let mut run = run;
    for _ in 0..LOOKS_BACK {
        let Some(entry) = journal.run(run) else { return Ok(None) };
        if entry.info.status.is_open() {
            return Ok(Some(run));
        }
        let next = entry.info.next_run.filter(|_| entry.info.status == WorkflowStatus::Terminated);
        let Some(next) = next else { return Ok(None) };
        let end = journal.turns(run, EventId(entry.next_event.0.saturating_sub(1)))?;
        let mut events = end.iter().flat_map(|turn| &turn.events);
        if !events.any(|event| event.handed_over().contains(&child)) {
            return Ok(None);
        }
        run = next;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::log::{JournalOptions, MemoryLog};

    const OLD: RunId = RunId([1; 16]);
    const NEW: RunId = RunId([2; 16]);

    fn started(run: RunId) -> Turn {
        let request = StartWorkflow::new(WorkflowType::of("parent"), WorkflowId::of("parent"));
        let first = request.first_event(run, Timestamp(1));
        let events = vec![EventKind::WorkflowExecutionStarted(Box::new(first))];
        Turn::of(run, EventId(1), Timestamp(1), BuildId(1), events)
    }

    #[test]
    fn histories_that_memory_does_not_hold_are_not_read() {
        assert_eq!(within_memory(1, 2, 1), Ok(3));
        assert_eq!(within_memory(LATER_BYTES_MAX - 2, 2, 7), Ok(LATER_BYTES_MAX));
        let Err(Rejection::Invalid { why, .. }) = within_memory(LATER_BYTES_MAX - 2, 3, 7) else { panic!("too long") };
        assert!(why.contains("more than 7 runs") && why.contains("256 MiB"), "{why}");
    }

    /// A read that fails is no answer: a child is not taken for one that nobody waits for.
    #[test]
    fn an_end_that_cannot_be_read_does_not_say_that_there_is_no_heir() {
        let medium = Arc::new(MemoryLog::new([7; 16]));
        let journal = Journal::open(medium.clone(), JournalOptions::default()).unwrap();
        journal.commit(&[started(OLD), started(NEW)]).unwrap();
        let reset = Some(Box::new(ResetInto { run_id: NEW, children: vec![Seq(4)] }));
        let (reason, unhandled_signals) = ("reset".to_owned(), Vec::new());
        let ended = EventKind::WorkflowExecutionTerminated { reason, identity: None, reset, unhandled_signals };
        journal.commit(&[Turn::of(OLD, EventId(2), Timestamp(2), BuildId(1), vec![ended])]).unwrap();
        assert_eq!(heir(&journal, OLD, Seq(4)), Ok(Some(NEW)));
        assert_eq!(heir(&journal, OLD, Seq(5)), Ok(None), "it was not handed over");
        assert_eq!(heir(&journal, RunId([9; 16]), Seq(4)), Ok(None));
        assert!(medium.damage_group(GroupSeq(2), |value| value[60] ^= 4));
        assert!(matches!(heir(&journal, OLD, Seq(4)), Err(StorageError::Corrupt { .. })));
    }
}
