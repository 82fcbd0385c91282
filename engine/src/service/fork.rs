//! Begins forks: a new run whose history begins with that of another one.
//!
//! Invariant: the workflow id of a fork was never used before; the copied turns and the first turn of the fork are one
//! commit, so that a crash finds all of it or nothing. A fork asked for again under the same request id finds the run it
//! made. A dry run does everything up to the decision and writes nothing.

use super::committer::{Answer, RunName};
use super::current_turn::{SharedReply, TurnCaller};
use super::shard::{Shard, decide_with};
use super::turn::{TurnThread, when_durable};
use crate::machine::PlannedFork;
use crate::request::{ForkPlan, Forked};
use crate::vocabulary::*;

impl TurnThread {
    pub(super) fn fork(&mut self, fork: PlannedFork, dry_run: bool, reply: SharedReply<Forked>) {
        match self.found_or_free(&fork) {
            Ok(None) => {}
            Ok(Some(found)) => return self.answer(reply, Ok(found)),
            Err(why) => return self.answer(reply, Err(why)),
        }
        let name = name_of(&fork);
        let mut forked = answer_of(&fork);
        let first = reply.clone();
        let caller = TurnCaller::Refused(Box::new(move |why| first.send(Err(why))));
        self.current_turn.begin(&name, None, caller);
        if dry_run {
            let options = &self.shared.options;
            let fits = fork.check(&options.workflows, self.shared.build).map(|_| forked);
            self.current_turn.end();
            return self.answer(reply, fits);
        }
        (forked.run_id, forked.newly_started) = (Some(name.run_id), true);
        let begun = self.shard.begin_fork(&name, fork, vec![when_durable(reply, forked)]);
        self.current_turn.end();
        if let Err((why, answers)) = begun {
            self.refuse_in_order(answers, why);
        }
    }

    /// The run that the same request made before; or nothing, if the workflow id was never used.
    fn found_or_free(&mut self, fork: &PlannedFork) -> Result<Option<Forked>, Rejection> {
        let started = fork.started();
        let Some(newest) = self.shard.newest(&started.namespace, &started.workflow_id) else { return Ok(None) };
        let Some(info) = self.shard.info(newest) else { return Ok(None) };
        if self.started_by(&info, started.request_id.as_ref()) {
            // The fork may have gone on as another run since.
            let first = self.shard.info(info.first_run);
            let made = first.as_ref().unwrap_or(&info).forked_from.clone();
            let found = Forked { run_id: Some(info.first_run), ..answer_of(fork) };
            return Ok(Some(match made.filter(|from| *from != found.from) {
                // What was planned now is not what was done then.
                Some(from) => Forked { plan: ForkPlan { event: from.event, ..ForkPlan::default() }, from, ..found },
                None => found,
            }));
        }
        let (workflow_id, run_id) = (info.workflow_id, newest);
        if info.status.is_open() {
            return Err(Rejection::AlreadyOpen { workflow_id, run_id });
        }
        Err(Rejection::IdReused { workflow_id, run_id, status: info.status, policy: IdReusePolicy::RejectDuplicate })
    }
}

fn name_of(fork: &PlannedFork) -> RunName {
    let started = fork.started();
    RunName { namespace: started.namespace.clone(), workflow_id: started.workflow_id.clone(), run_id: fork.run_id() }
}

fn answer_of(fork: &PlannedFork) -> Forked {
    Forked {
        workflow_id: fork.started().workflow_id.clone(),
        run_id: None,
        newly_started: false,
        from: fork.point().clone(),
        workflow_type: fork.started().workflow_type.clone(),
        plan: fork.summary().clone(),
    }
}

impl Shard {
    fn begin_fork(
        &mut self,
        name: &RunName,
        fork: PlannedFork,
        answers: Vec<Answer>,
    ) -> Result<(), (Rejection, Vec<Answer>)> {
        let (shared, current_turn) = (self.shared.clone(), self.current_turn.clone());
        let now = shared.clock.now();
        let info = shared.is_intercepted().then(|| RunInfo::started(name.run_id, now, shared.build, fork.started()));
        info.iter().for_each(|info| shared.turn_begins(info));
        let begun =
            decide_with(&shared, &current_turn, now, |environment| fork.begin(&shared.options.workflows, environment));
        let events = begun.as_ref().map_or(0, |(_, _, decision)| decision.turn().events.len());
        info.iter().for_each(|info| shared.turn_ends(info, events));
        match begun {
            Ok((execution, copied, decision)) => {
                self.know_as_current(name);
                self.keep(name.run_id, execution, EventId(1));
                self.submit_after(copied, vec![(name.clone(), decision)], answers);
                Ok(())
            }
            Err(why) => Err((why, answers)),
        }
    }
}
