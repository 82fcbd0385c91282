//! The turn thread of a shard: takes one message after the other and lets the run decide.
//!
//! Invariant: every message is answered, through the committer, so that no answer shows what is not durable. One arm a
//! message, and no arm does more than find the run, decide, and say who is answered.
//!
//! Long: one arm a message, and for each the way to its run and to whoever is answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::beats::KeptBeats;
use super::committer::{Answer, RunName};
use super::current_turn::{CurrentTurn, SharedReply, TurnCaller};
use super::health::{Health, rejection_of};
use super::mailbox::{ActivityAct, Arrival, ClosedRun, RunRef, ShardMessage};
use super::no_room::ROOM_LOOKS;
use super::release::close_with_parent;
use super::reset::heir;
use super::shard::Shard;
use super::shared::WorkerShared;
use crate::machine::{Execution, Held};
use crate::request::*;
use crate::seeded::{self, Bug};
use crate::vocabulary::*;

/// A shard with its thread's loop.
pub(crate) struct TurnThread {
    pub(super) shard: Shard,
    pub(super) shared: Arc<WorkerShared>,
    pub(super) current_turn: Arc<CurrentTurn>,
    beats: KeptBeats,
}

impl TurnThread {
    pub(crate) fn new(shard: Shard) -> Self {
        let (shared, current_turn) = (shard.shared.clone(), shard.current_turn.clone());
        TurnThread { shared, current_turn, shard, beats: KeptBeats::default() }
    }

    /// Until the worker stops, or the shard is given to another thread.
    pub(crate) fn run(mut self) {
        crate::workflow::leave_when(self.current_turn.abandoned());
        self.publish_wake();
        // Begun where the thread was made: a virtual clock must not move before the deadlines are known.
        self.shared.time.end();
        while !self.current_turn.is_replaced() {
            self.publish_wake();
            let deadline = self.next_deadline();
            let due = self.is_due();
            let wait = match (due, self.shared.committer.no_room.waits()) {
                (true, _) => Some(std::time::Duration::ZERO),
                (false, true) => Some(ROOM_LOOKS),
                (false, false) => self.real_wait(deadline),
            };
            if due {
                self.fire_due(|thread| thread.shared.committer.kick(&thread.shared, false));
                self.commit();
                if self.current_turn.is_replaced() {
                    // The next message is the new thread's.
                    break;
                }
            }
            match self.shared.mailboxes[self.shard.number].next(wait) {
                Arrival::Message(message) => {
                    self.current_turn.take_message();
                    self.handle(message);
                    self.commit();
                    self.finish_message();
                }
                Arrival::Deadline => self.shard.evict(),
                Arrival::Stopped => {
                    self.leave();
                    break;
                }
            }
        }
    }

    /// The worker stops: what can be resumed from a snapshot is.
    pub(crate) fn leave(&mut self) {
        self.current_turn.leave();
        self.shard.forget_all();
    }

    /// One message, decided and handed to the committer; whoever calls this sees to the commit.
    pub(crate) fn turn(&mut self, message: ShardMessage) {
        self.current_turn.take_message();
        self.handle(message);
        self.finish_message();
    }

    /// Whether a run has a deadline that has come, or a heartbeat was kept, and all runs were looked at that the worker before
    /// has left. While something waits for room on the disk none has: what is decided then would wait in memory behind it,
    /// without an end.
    pub(crate) fn is_due(&self) -> bool {
        let recovered = self.shared.recovering[self.shard.number].load(Ordering::Acquire) == 0;
        recovered
            && !self.shared.committer.no_room.waits()
            && (!self.beats.is_empty() || self.next_deadline().is_some_and(|at| at <= self.shared.clock.now()))
    }

    /// The first shard waits for the rates of task queues, too.
    fn next_deadline(&self) -> Option<Timestamp> {
        let of_queues = if self.shard.number == 0 { self.shared.next_ready() } else { None };
        self.shard.next_deadline().into_iter().chain(of_queues).min()
    }

    /// With nothing else under way, this thread commits itself; otherwise it goes on deciding while the committer
    /// collects a larger group.
    fn commit(&self) {
        let alone = self.shared.time.is_one_step() && self.shared.mailboxes[self.shard.number].is_empty();
        self.shared.committer.kick(&self.shared, alone);
    }

    /// Tells a virtual clock that one thing less is under way, unless the watchdog has seen to that.
    fn finish_message(&self) {
        if self.current_turn.finish_message() {
            self.publish_wake();
            self.shared.time.end();
        }
    }

    fn real_wait(&self, deadline: Option<Timestamp>) -> Option<std::time::Duration> {
        let due = deadline.and_then(|at| self.shared.clock.sleep_until(at));
        due.into_iter().chain(self.shard.rests_in()).min()
    }

    /// A virtual clock looks at this as soon as nothing is under way.
    pub(crate) fn publish_wake(&self) {
        self.shared.time.wake_shard_at(self.shard.number, self.next_deadline());
    }

    /// Wakes a bounded number of runs whose deadline has come, so that messages get their turn too. What one has decided
    /// need not wait for the others: `decided` is called between them.
    pub(crate) fn fire_due(&mut self, decided: impl Fn(&Self)) {
        self.shared.time.begin();
        self.current_turn.take_message();
        // Whoever has said that it is alive has not run into a timeout.
        self.decide_beats();
        let now = self.shared.clock.now();
        if self.shard.number == 0 && self.shared.next_ready().is_some_and(|at| at <= now) {
            self.shared.grant_ready();
        }
        for _ in 0..256 {
            if self.current_turn.is_replaced() {
                break;
            }
            let Some(name) = self.shard.pop_due(now) else { break };
            self.input(&name, Input::Deadline, None);
            decided(self);
        }
        self.finish_message();
    }

    fn handle(&mut self, message: ShardMessage) {
        match message {
            ShardMessage::Start { run_id, start, then, reply } => {
                self.start(run_id, *start, then, SharedReply::new(reply))
            }
            ShardMessage::Fork { fork, dry_run, reply } => self.fork(*fork, dry_run, SharedReply::new(reply)),
            ShardMessage::Reset { run_id, request, reply } => self.reset(*request, run_id, SharedReply::new(reply)),
            ShardMessage::Input { run, input, reply } => {
                if let Some((of_beat, beat)) = self.beats.before(&run, &input) {
                    self.input_for(of_beat, beat, None);
                    if self.current_turn.is_replaced() {
                        // The next thread has the beat, and this is not under way here.
                        return self.shared.deliver_to(self.shard.number, ShardMessage::Input { run, input, reply });
                    }
                }
                let keeps = reply.is_none() && self.shared.committer.no_room.waits();
                let decides = if keeps { self.beats.keep(run, input) } else { Some((run, input)) };
                if let Some((run, input)) = decides {
                    self.input_for(run, input, reply.map(SharedReply::new));
                }
            }
            ShardMessage::SlotGranted(waiting) => self.slot_granted(waiting),
            ShardMessage::Update { target, request, reply } => {
                self.update(RunRef::Target(target), request, SharedReply::new(reply));
            }
            ShardMessage::UpdateResult { target, update_id, reply } => {
                self.update_result(target, update_id, SharedReply::new(reply));
            }
            ShardMessage::ActivityByName { target, activity_id, act, reason, identity, reply } => {
                self.change_activity(target, activity_id, (act, reason, identity), SharedReply::new(reply));
            }
            ShardMessage::Query { target, name, input, reply } => {
                self.query(target, &name, &input, SharedReply::new(reply));
            }
            ShardMessage::Describe { target, reply } => self.describe(target, SharedReply::new(reply)),
            ShardMessage::AwaitClose { target, reply } => self.await_close(target, SharedReply::new(reply)),
            ShardMessage::WatchChild { namespace, workflow_id, first_run, parent } => {
                self.watch_child(namespace, workflow_id, first_run, parent);
            }
            ShardMessage::Recover { target } => {
                // Counted first: if the code does not come back, the message is not handled a second time.
                self.shared.recovering[self.shard.number].fetch_sub(1, Ordering::AcqRel);
                self.recover(target);
                self.shared.looks_open.fetch_sub(1, Ordering::AcqRel);
            }
            ShardMessage::Wake => {}
        }
    }

    fn input_for(&mut self, run: RunRef, input: Input, reply: Option<SharedReply<()>>) {
        match (self.find_for(run, &input), reply) {
            (Ok(name), reply) => self.input(&name, input, reply),
            (Err(why), Some(reply)) => self.answer(reply, Err(why)),
            (Err(_), None) => {}
        }
    }

    /// Decides the heartbeats that were kept, if what was decided before them does not wait for room any more.
    fn decide_beats(&mut self) {
        if self.shared.committer.no_room.waits() {
            return;
        }
        for (run, beat) in self.beats.take() {
            if self.current_turn.is_replaced() {
                return;
            }
            self.input_for(run, beat, None);
        }
    }

    /// The run that an input is for. The end of a child is told to the run that has taken over the child, if one has.
    fn find_for(&mut self, run: RunRef, input: &Input) -> Result<RunName, Rejection> {
        let found = self.shard.find(&run)?;
        let Input::ChildClosed { seq, .. } = input else { return Ok(found) };
        if self.shard.info(found.run_id).is_none_or(|info| info.status.is_open() || info.next_run.is_none()) {
            return Ok(found);
        }
        // Unknown: the end is not told to the wrong one, and is asked for again by whoever waits for it.
        let heir = heir(&self.shared.journal, found.run_id, *seq).map_err(|why| {
            tracing::warn!(run = %found.run_id, %why, "who waits for a child cannot be read; its end is told after a restart");
            rejection_of(&why)
        })?;
        Ok(RunName { run_id: heir.unwrap_or(found.run_id), ..found })
    }

    /// Answers in order, after everything decided before is durable.
    pub(super) fn answer<T: Send + 'static>(&mut self, reply: SharedReply<T>, answer: Result<T, Rejection>) {
        self.shard.answer_in_order(Box::new(move |durable| reply.send(durable.map_err(Clone::clone).and(answer))));
    }

    pub(super) fn input(&mut self, name: &RunName, input: Input, reply: Option<SharedReply<()>>) {
        let drops = seeded::on(Bug::SignalDroppedInFlight) && matches!(input, Input::Signal(_));
        if drops && self.shard.has_turn_in_flight(name.run_id) {
            return reply.into_iter().for_each(|reply| self.answer(reply, Ok(())));
        }
        let caller = reply.clone().map_or(TurnCaller::Nobody, TurnCaller::Kept);
        let input = match matches!(input, Input::Unpause { .. }).then(|| self.release_held(name)).flatten() {
            None => input,
            // What was kept while it was held is decided like what waits at a deadline.
            Some(Ok(())) => Input::Deadline,
            Some(Err(why)) => return reply.into_iter().for_each(|reply| self.answer(reply, Err(why.clone()))),
        };
        let answers: Vec<Answer> = reply.into_iter().map(|reply| when_durable(reply, ())).collect();
        self.current_turn.begin(name, Some(input.clone()), caller);
        let decided = self.shard.decide(name, input, answers);
        self.current_turn.end();
        if let Err((why, answers)) = decided {
            self.refuse_in_order(answers, why);
        }
    }

    /// Lets a run try again that is held and not paused; nothing if it is neither. An error: it is held all the same,
    /// because its code does not fit its history.
    fn release_held(&mut self, name: &RunName) -> Option<Result<(), Rejection>> {
        self.shared.held_why(name.run_id)?;
        let paused = self.look(name, TurnCaller::Nobody, |execution| execution.run().is_paused());
        if !matches!(paused, Ok(false)) {
            return None;
        }
        if self.shared.salvaged.contains_key(&name.run_id) {
            // No code goes on from a history of which a part is lost.
            return Some(Err(Rejection::Held { why: self.shared.held_why(name.run_id).unwrap_or_default() }));
        }
        self.shared.release(name.run_id);
        self.shard.read_again(name.run_id);
        let held = self.look(name, TurnCaller::Nobody, |execution| execution.held().map(ToString::to_string));
        Some(held.and_then(|held| held.map_or(Ok(()), |why| Err(Rejection::Held { why }))))
    }

    /// Looks at a run, loading it if need be, which may run its code.
    pub(super) fn look<T>(
        &mut self,
        name: &RunName,
        caller: TurnCaller,
        look: impl FnOnce(&mut Execution) -> T,
    ) -> Result<T, Rejection> {
        self.current_turn.begin(name, None, caller);
        let seen = self.shard.load(name).map(look);
        self.current_turn.end();
        seen
    }

    pub(super) fn refuse_in_order(&mut self, answers: Vec<Answer>, why: Rejection) {
        if !answers.is_empty() {
            self.shard.answer_in_order(Box::new(move |durable| {
                for answer in answers {
                    answer(Err(durable.err().unwrap_or(&why)));
                }
            }));
        }
    }

    fn slot_granted(&mut self, waiting: crate::queue::WaitingAttempt) {
        if *self.shared.health.peek() != Health::Ready {
            // Whoever leaves starts nothing; the next start of the worker queues the attempt again.
            return self.shared.give_back_slots(vec![waiting.slot]);
        }
        let name = RunName { namespace: waiting.namespace, workflow_id: waiting.workflow_id, run_id: waiting.run_id };
        let token = crate::activity::TaskToken { run_id: name.run_id, seq: waiting.seq, attempt: waiting.attempt };
        self.current_turn.took_slot(waiting.slot.clone());
        let before =
            self.look(&name, TurnCaller::Nobody, |execution| execution.run().is_under_way(token)).unwrap_or(true);
        if !before {
            let input = Input::StartActivity { seq: waiting.seq, attempt: waiting.attempt };
            self.input(&name, input, None);
        }
        let after = self.shard.loaded(name.run_id).is_some_and(|execution| execution.run().is_under_way(token));
        if (before || !after) && !self.current_turn.is_replaced() {
            // The attempt is not wanted any more; the slot goes to somebody else.
            self.current_turn.give_back(1);
            self.shared.give_back_slots(vec![waiting.slot]);
        }
    }

    fn change_activity(
        &mut self,
        target: Target,
        activity_id: ActivityId,
        (act, reason, identity): (ActivityAct, String, Option<Identity>),
        reply: SharedReply<()>,
    ) {
        let found = self.shard.find(&RunRef::Target(target)).and_then(|name| {
            let seq = self.look(&name, reply.caller(), |execution| execution.run().activity_by_id(&activity_id))?;
            seq.map(|seq| (name, seq)).ok_or(Rejection::UnknownActivity { activity: activity_id.to_string() })
        });
        let (name, seq) = match found {
            Ok(found) => found,
            Err(why) => return self.answer(reply, Err(why)),
        };
        let input = match act {
            ActivityAct::Pause => Input::PauseActivity { seq, reason, identity },
            ActivityAct::Unpause => Input::UnpauseActivity { seq, identity },
            ActivityAct::Modify(update) => Input::ModifyActivity { seq, update, reason, identity },
        };
        self.input(&name, input, Some(reply));
    }

    /// Answers with what a run says of itself. While nothing can be written, that is what the disk says of it, at once: what it
    /// has decided since is not durable, and whoever waited for that would wait for room.
    fn read<T: Send + 'static>(
        &mut self,
        found: Result<RunName, Rejection>,
        reply: SharedReply<T>,
        look: impl FnOnce(&mut Execution) -> Result<T, Rejection>,
    ) {
        let name = match found {
            Ok(name) => name,
            // What is not in memory is not on the disk either.
            Err(why) if self.shared.committer.no_room.waits() => return reply.send(Err(why)),
            Err(why) => return self.answer(reply, Err(why)),
        };
        // Asked for before it is known whether something waits for room: what was refused is in flight no more either, and then
        // nothing waits any more.
        let known = self.shard.loaded(name.run_id).is_some() && !self.shard.has_turn_in_flight(name.run_id);
        if !self.shared.committer.no_room.waits() {
            let answer = self.look(&name, reply.caller(), look).flatten();
            return self.answer(reply, answer);
        }
        let seen = match known {
            // All that it has decided is on the disk.
            true => self.look(&name, reply.caller(), look).flatten(),
            false => self.on_disk(&name, reply.caller(), look).flatten(),
        };
        reply.send(seen);
    }

    /// The run that somebody wants to read: while nothing can be written, not one that has begun since.
    fn find_to_read(&mut self, target: Target) -> Result<RunName, Rejection> {
        let of_this_run = target.run_id.is_some();
        let name = self.shard.find(&RunRef::Target(target))?;
        let journal = &self.shared.journal;
        if of_this_run || !self.shared.committer.no_room.waits() || journal.run(name.run_id).is_some() {
            return Ok(name);
        }
        let before = journal.latest_run(&name.namespace, &name.workflow_id);
        Ok(RunName { run_id: before.unwrap_or(name.run_id), ..name })
    }

    /// As [`TurnThread::look`], at the run as the disk has it.
    fn on_disk<T>(
        &mut self,
        name: &RunName,
        caller: TurnCaller,
        look: impl FnOnce(&mut Execution) -> T,
    ) -> Result<T, Rejection> {
        self.current_turn.begin(name, None, caller);
        let seen = self.shard.durable(name).map(|mut execution| look(&mut execution));
        self.current_turn.end();
        seen
    }

    fn query(&mut self, target: Target, query: &QueryName, input: &Payload, reply: SharedReply<Payload>) {
        let found = self.find_to_read(target);
        self.read(found, reply, |execution| execution.query(query, input));
    }

    fn describe(&mut self, target: Target, reply: SharedReply<Box<Description>>) {
        let found = self.find_to_read(target);
        let held = found.as_ref().ok().and_then(|name| self.shared.held_why(name.run_id));
        let shared = self.shared.clone();
        // A list tells what the history takes in the log: so does this.
        let stored = found.as_ref().ok().and_then(|name| self.shared.journal.run(name.run_id));
        let stored = stored.map(|entry| entry.info.history.bytes);
        self.read(found, reply, move |execution| {
            let mut described = Box::new(describe(execution, held, &shared.options.limits, stored));
            described.warnings.extend(shared.shadows.card(&described.info.workflow_type));
            Ok(described)
        });
    }

    fn await_close(&mut self, target: Target, reply: SharedReply<ClosedRun>) {
        let name = match self.find_to_read(target) {
            Ok(name) => name,
            Err(why) => return self.answer(reply, Err(why)),
        };
        // An open run that is not loaded stays so: its waiter costs nothing until it ends. The end of one that may not be
        // written yet is heard when it is, so whoever waits is known before anybody looks whether it is.
        let open = self.shard.info(name.run_id).is_some_and(|info| info.status.is_open());
        let run_id = name.run_id;
        if open || self.shared.committer.no_room.waits() {
            if let Some(reply) = reply.take() {
                self.shared.waiters.await_close(&self.shared.health, run_id, reply);
            }
            if !open {
                self.tell_if_closed(&name);
            }
            return;
        }
        let missing = Rejection::NotFound { workflow_id: name.workflow_id.clone(), run_id: Some(run_id) };
        self.read(Ok(name), reply, move |execution| closed_run(execution).ok_or(missing));
    }

    /// Tells those who wait for the end of a run what the disk says of it: how it ended, or why that cannot be read. Of a run
    /// that is open there they hear when its end is written.
    fn tell_if_closed(&mut self, name: &RunName) {
        let (shared, run_id) = (self.shared.clone(), name.run_id);
        let refused = TurnCaller::Refused(Box::new(move |why| shared.waiters.refuse_close(run_id, &why)));
        match self.on_disk(name, refused, closed_run) {
            Ok(Some(closed)) => self.shared.waiters.closed(&closed),
            Ok(None) => {}
            Err(why) => {
                let has_ended = self.shared.journal.run(run_id).is_some_and(|entry| !entry.info.status.is_open());
                if has_ended {
                    self.shared.waiters.refuse_close(run_id, &why);
                }
            }
        }
    }

    pub(super) fn watch_child(
        &mut self,
        namespace: Namespace,
        workflow_id: WorkflowId,
        first_run: RunId,
        parent: Parent,
    ) {
        let Some(last) = self.shard.last_of_chain(first_run) else { return };
        let name = RunName { namespace: namespace.clone(), workflow_id, run_id: last };
        let outcome = self.look(&name, TurnCaller::Nobody, |execution| execution.run().outcome().cloned());
        // What is lost is told to nobody as if it were the result: whoever waits for it goes on waiting.
        let Some(outcome) = outcome.ok().flatten().filter(|outcome| !outcome.is_lost()) else { return };
        let to = RunName { namespace, workflow_id: parent.workflow_id, run_id: parent.run_id };
        let shared = self.shared.clone();
        self.shard.answer_in_order(Box::new(move |durable| {
            if durable.is_ok() {
                shared.deliver_input(&to, Input::ChildClosed { seq: parent.seq, run_id: last, outcome });
            }
        }));
    }

    /// Looks at a run after a restart: its attempts are lost, its messages go out again, its inbox is decided. Then a parent
    /// that has closed closes it, here and not by a message: the run that a parent was reset to may start this workflow id
    /// again, and its message is in the mailbox already.
    fn recover(&mut self, target: Target) {
        let Ok(name) = self.shard.find(&RunRef::Target(target)) else { return };
        let info = self.shard.info(name.run_id);
        self.input(&name, Input::WorkerRestarted, None);
        let Some((parent, first_run)) = info.and_then(|info| Some((info.parent?, info.first_run))) else { return };
        let journal = &self.shared.journal;
        // A parent whose end cannot be read may have handed this run over: nothing is done to it for a failed read.
        let closed = journal.run(parent.run_id).is_some_and(|entry| !entry.info.status.is_open())
            && matches!(heir(journal, parent.run_id, parent.seq), Ok(None));
        let chain = RunRef::Chain { namespace: name.namespace, workflow_id: name.workflow_id, first_run };
        if closed
            && let Some(input) = close_with_parent(&parent.workflow_id, parent.run_id, parent.close_policy)
            && let Ok(last) = self.shard.find(&chain)
        {
            self.input(&last, input, None);
        }
    }
}

/// An answer that is given when the turn is durable.
pub(super) fn when_durable<T: Send + 'static>(reply: SharedReply<T>, answer: T) -> Answer {
    Box::new(move |durable| reply.send(durable.map(|()| answer).map_err(Clone::clone)))
}

/// How a run ended, if it has.
fn closed_run(execution: &mut Execution) -> Option<ClosedRun> {
    let run = execution.run();
    let info = run.info();
    Some(ClosedRun { run_id: info.run_id, outcome: run.outcome().cloned()?, next_run: info.next_run })
}

fn describe(
    execution: &Execution,
    held: Option<String>,
    limits: &crate::machine::Limits,
    stored: Option<u64>,
) -> Description {
    let run = execution.run();
    let mut info = run.info().clone();
    info.history.bytes = stored.unwrap_or(info.history.bytes);
    let mut warnings = Vec::new();
    if info.history.events >= limits.history_events_warn {
        let limit = limits.history_events_warn;
        warnings
            .push(format!("the history has {} events (warning from {limit}): continue as new", info.history.events));
    }
    if info.history.bytes >= limits.history_bytes_warn {
        let limit = limits.history_bytes_warn;
        warnings.push(format!("the history has {} bytes (warning from {limit}): continue as new", info.history.bytes));
    }
    let held = held.or_else(|| execution.held().map(ToString::to_string));
    // What is over is not kept from anything by what is lost of it.
    let is_marred = run.is_closed() && matches!(execution.held(), Some(Held::Damaged { .. }));
    let (held, damage) = if is_marred { (None, held) } else { (held.filter(|_| !run.is_closed()), None) };
    warnings.extend(damage.map(|why| format!("damage to the store hit its history: {why}")));
    Description {
        info: RunInfo { held: held.is_some() && info.status.is_open(), ..info },
        pending_activities: run.pending_activities(),
        pending_timers: run.pending_timers(),
        pending_children: run.pending_children(),
        pending_updates: run.pending_updates(),
        inbox: if run.is_closed() { 0 } else { run.inbox_len() },
        held,
        // The code of a closed run waits for nothing, whatever it was in the middle of.
        awaiting: if run.is_closed() { Vec::new() } else { execution.awaiting() },
        cancel_requested: run.cancel_requested(),
        warnings,
        result: run.outcome().cloned(),
        starts_at: run.starts_at(),
    }
}
