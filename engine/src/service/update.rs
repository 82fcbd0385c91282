//! Updates on the turn thread: sent, repeated, and waited for (E14).
//!
//! Invariant: an update that is repeated gets the answer of the first; who waits for a completion is among the waiters
//! before the decision that may complete it is submitted. Whether an update is accepted is decided by the run's code.

use super::committer::RunName;
use super::current_turn::{SharedReply, TurnCaller};
use super::mailbox::RunRef;
use super::turn::{TurnThread, when_durable};
use crate::request::{Target, UpdateOutcome, UpdateRequest, UpdateWait};
use crate::vocabulary::*;

impl TurnThread {
    pub(super) fn update(&mut self, run: RunRef, request: UpdateRequest, reply: SharedReply<UpdateOutcome>) {
        let name = match self.shard.find(&run) {
            Ok(name) => name,
            Err(why) => return self.answer(reply, Err(why)),
        };
        let known = match self.look(&name, reply.caller(), |execution| execution.run().update(&request.update_id)) {
            Ok(known) => known,
            Err(why) => return self.answer(reply, Err(why)),
        };
        match (known, request.wait) {
            (Some(outcome @ UpdateOutcome::Completed(_)), _) => return self.answer(reply, Ok(outcome)),
            (Some(UpdateOutcome::Accepted), UpdateWait::Accepted) => {
                return self.answer(reply, Ok(UpdateOutcome::Accepted));
            }
            (Some(UpdateOutcome::Accepted), UpdateWait::Completed) => {
                return self.await_update(&name, request.update_id, &reply);
            }
            (None, _) => {}
        }
        let UpdateRequest { update_id, name: update, input, identity, wait } = request;
        let input = Input::Update { update_id: update_id.clone(), name: update, input, identity };
        let (answers, waits) = match wait {
            UpdateWait::Accepted => (vec![when_durable(reply.clone(), UpdateOutcome::Accepted)], false),
            UpdateWait::Completed => {
                self.await_update(&name, update_id.clone(), &reply);
                (Vec::new(), true)
            }
        };
        let caller = if waits { self.update_waiter(name.run_id, update_id.clone()) } else { reply.caller() };
        self.current_turn.begin(&name, None, caller);
        let decided = self.shard.decide(&name, input, answers);
        self.current_turn.end();
        if let Err((why, answers)) = decided {
            if waits {
                self.shared.waiters.refuse_update(name.run_id, update_id, &why);
            }
            self.refuse_in_order(answers, why);
        }
    }

    pub(super) fn await_update(&self, name: &RunName, update_id: UpdateId, reply: &SharedReply<UpdateOutcome>) {
        if let Some(reply) = reply.take() {
            self.shared.waiters.await_update(&self.shared.health, name.run_id, update_id, reply);
        }
    }

    /// A caller who is among the waiters already.
    pub(super) fn update_waiter(&self, run: RunId, update_id: UpdateId) -> TurnCaller {
        let shared = self.shared.clone();
        TurnCaller::Refused(Box::new(move |why| shared.waiters.refuse_update(run, update_id, &why)))
    }

    pub(super) fn update_result(&mut self, target: Target, update_id: UpdateId, reply: SharedReply<UpdateOutcome>) {
        let name = match self.shard.find(&RunRef::Target(target)) {
            Ok(name) => name,
            Err(why) => return self.answer(reply, Err(why)),
        };
        match self.look(&name, reply.caller(), |execution| execution.run().update(&update_id)) {
            Ok(Some(UpdateOutcome::Accepted)) => self.await_update(&name, update_id, &reply),
            Ok(Some(done)) => self.answer(reply, Ok(done)),
            Ok(None) => {
                let why = Rejection::Invalid {
                    what: format!("update {update_id}"),
                    why: "this run has not accepted an update of that id".into(),
                };
                self.answer(reply, Err(why));
            }
            Err(why) => self.answer(reply, Err(why)),
        }
    }
}
