//! What a turn thread works on, so that the watchdog can take it away when workflow code does not come back
//! (G23).
//!
//! Invariant: what it works on (the input, the caller who waits, the slots taken, the message) belongs to the thread
//! or, after [`CurrentTurn::take`], to the watchdog, never to both. What was decided in time is the thread's to submit
//! and is not taken. A thread that was replaced submits nothing any more. Time in which the thread could not run does not
//! count against its code: a machine that has too much to do, swaps, waits for its disk or was stopped holds no run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::committer::RunName;
use super::mailbox::ReplySender;
use super::marks::{Mark, MarkSlot};
use super::quarantine::Quarantine;
use super::run_queue::{ChargedTime, LOOKS, RunQueue};
use crate::queue::SlotUse;
use crate::vocabulary::*;

/// A caller's reply that the thread and the watchdog can both reach. The first one to answer does.
pub(crate) struct SharedReply<T>(Arc<Mutex<Option<ReplySender<T>>>>);

impl<T> Clone for SharedReply<T> {
    fn clone(&self) -> Self {
        SharedReply(self.0.clone())
    }
}

impl<T: Send + 'static> SharedReply<T> {
    pub(crate) fn new(reply: ReplySender<T>) -> Self {
        SharedReply(Arc::new(Mutex::new(Some(reply))))
    }
    pub(crate) fn take(&self) -> Option<ReplySender<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    pub(crate) fn send(&self, answer: Result<T, Rejection>) {
        if let Some(reply) = self.take() {
            reply.send(answer);
        }
    }
    /// For a caller whose request is refused when its turn does not come back.
    pub(crate) fn caller(&self) -> TurnCaller {
        let reply = self.clone();
        TurnCaller::Refused(Box::new(move |why| reply.send(Err(why))))
    }
}

/// Who waits for the current turn.
pub(crate) enum TurnCaller {
    Nobody,
    /// The input is kept in the run's inbox, and this caller hears when it is.
    Kept(SharedReply<()>),
    /// Nothing of the request can be kept.
    Refused(Box<dyn FnOnce(Rejection) + Send>),
}

impl TurnCaller {
    /// Refuses whoever waits, whatever could have been kept.
    pub(crate) fn refuse(self, why: Rejection) {
        match self {
            TurnCaller::Nobody => {}
            TurnCaller::Kept(reply) => reply.send(Err(why)),
            TurnCaller::Refused(refuse) => refuse(why),
        }
    }
}

/// One decision in progress.
pub(crate) struct DecisionInProgress {
    since: Instant,
    /// What it has taken of its thread, as far as the watchdog has looked.
    charged: ChargedTime,
    pub(crate) name: RunName,
    /// Kept so that the input is not lost when its turn does not come back.
    pub(crate) input: Option<Input>,
    pub(crate) caller: TurnCaller,
}

/// What the watchdog has to see to after it took a shard away from its thread.
pub(crate) struct Taken {
    pub(crate) doing: Option<DecisionInProgress>,
    /// Slots that were taken for a decision that will never be submitted.
    pub(crate) slots: Vec<SlotUse>,
    /// A message counts as under way and will not be ended by its thread.
    pub(crate) message: bool,
}

#[derive(Default)]
struct CurrentTurnState {
    doing: Option<DecisionInProgress>,
    slots: Vec<SlotUse>,
    message: bool,
    replaced: bool,
    left: bool,
}

#[derive(Default)]
pub(crate) struct CurrentTurn {
    state: Mutex<CurrentTurnState>,
    /// Where it stands on the disk what this thread is at, in case the process dies of it.
    slot: Option<MarkSlot>,
    /// Where the kernel counts what this thread does.
    run_queue: OnceLock<Option<RunQueue>>,
    /// Set with `replaced`; workflow code that asks for anything sees it and leaves.
    abandoned: Arc<AtomicBool>,
}

impl CurrentTurn {
    pub(super) fn new(quarantine: Option<&Quarantine>) -> Self {
        CurrentTurn { slot: quarantine.and_then(|quarantine| quarantine.marks.slot()), ..CurrentTurn::default() }
    }
    pub(super) fn abandoned(&self) -> Arc<AtomicBool> {
        self.abandoned.clone()
    }
    fn mark(&self, mark: Mark) {
        self.slot.iter().for_each(|slot| slot.begin(mark));
    }
    fn unmark(&self) {
        self.slot.iter().for_each(MarkSlot::end);
    }
    /// For code of a run that runs beside decisions: its state is written down or dropped.
    pub(super) fn marked<T>(&self, run: RunId, work: impl FnOnce() -> T) -> T {
        self.mark(Mark::Turn(run));
        let worked = work();
        self.unmark();
        worked
    }
    fn lock(&self) -> MutexGuard<'_, CurrentTurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on the code of a run may be running.
    pub(crate) fn begin(&self, name: &RunName, input: Option<Input>, caller: TurnCaller) {
        self.begin_at(Mark::Turn(name.run_id), name, input, caller);
    }
    /// As [`CurrentTurn::begin`], for a run that is not in the log yet: a death is counted against `what` is started.
    pub(super) fn begin_start(&self, what: Option<RunId>, name: &RunName, caller: TurnCaller) {
        self.begin_at(Mark::Start(what.unwrap_or(name.run_id)), name, None, caller);
    }
    fn begin_at(&self, mark: Mark, name: &RunName, input: Option<Input>, caller: TurnCaller) {
        let doing = DecisionInProgress {
            since: Instant::now(),
            charged: ChargedTime::default(),
            name: name.clone(),
            input,
            caller,
        };
        self.lock().doing = Some(doing);
        self.mark(mark);
    }
    /// The code came back without anything to submit.
    pub(crate) fn end(&self) {
        self.unmark();
        self.lock().doing = None;
    }
    /// The code came back with a decision. Says whether it may be submitted; then its slots belong to its effects.
    pub(crate) fn decided(&self) -> bool {
        self.unmark();
        let mut state = self.lock();
        if !state.replaced {
            state.doing = None;
            state.slots.clear();
        }
        !state.replaced
    }
    pub(crate) fn is_replaced(&self) -> bool {
        self.lock().replaced
    }

    pub(crate) fn took_slot(&self, slot: SlotUse) {
        self.lock().slots.push(slot);
    }
    /// Of up to `wanted` slots, the latest that were taken, those that the thread has to give back; the others were taken
    /// from it.
    pub(crate) fn give_back(&self, wanted: usize) -> Vec<SlotUse> {
        let mut state = self.lock();
        let kept = state.slots.len().saturating_sub(wanted);
        state.slots.split_off(kept)
    }

    pub(crate) fn take_message(&self) {
        self.lock().message = true;
    }
    /// Whether the thread has to count the message as ended.
    pub(crate) fn finish_message(&self) -> bool {
        std::mem::take(&mut self.lock().message)
    }

    /// The thread ends because the worker stops.
    pub(crate) fn leave(&self) {
        self.lock().left = true;
    }
    pub(crate) fn has_left(&self) -> bool {
        self.lock().left
    }

    /// Whether something has been worked on for longer than allowed.
    pub(crate) fn is_overdue(&self, allowed: Duration) -> bool {
        self.is_too_long(&mut self.lock(), allowed)
    }
    /// Called on the thread that this is about.
    pub(super) fn is_of_this_thread(&self) {
        self.run_queue.get_or_init(RunQueue::of_this_thread);
    }
    /// Takes everything from a thread that is overdue.
    pub(crate) fn take(&self, allowed: Duration) -> Option<Taken> {
        let mut state = self.lock();
        self.is_too_long(&mut state, allowed).then(|| self.take_all(&mut state))
    }
    /// Asked again and again within the time that is allowed.
    fn is_too_long(&self, state: &mut CurrentTurnState, allowed: Duration) -> bool {
        let Some(doing) = &mut state.doing else { return false };
        let thread = self.run_queue.get().and_then(Option::as_ref);
        allowed.is_zero() || doing.charged.look(doing.since, thread, allowed / (LOOKS / 2)) > allowed
    }
    /// Takes everything from a thread that has died.
    pub(crate) fn take_from_dead(&self) -> Taken {
        self.take_all(&mut self.lock())
    }
    fn take_all(&self, state: &mut CurrentTurnState) -> Taken {
        state.replaced = true;
        self.abandoned.store(true, Ordering::Release);
        Taken {
            doing: state.doing.take(),
            slots: std::mem::take(&mut state.slots),
            message: std::mem::take(&mut state.message),
        }
    }
}
