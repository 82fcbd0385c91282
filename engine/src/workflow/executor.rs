//! Runs the tasks of an async workflow until all of them wait.
//!
//! Invariant: woken tasks are polled in the order in which they began, on the thread of the activation and nowhere
//! else, without a runtime; so the order of polling is the same on every replay. A wake-up from elsewhere, and tasks
//! of which none waits for what the context gave it, are named instead of being waited for. The executor knows no commands.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::context::shared::ContextShared;
use super::panic::leave_if_abandoned;

pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The number of a task in its run, in the order in which tasks began. The workflow function itself is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CodeTaskId(pub(crate) u64);

/// A round is one look at every task. More of them than this in one activation is a loop that never waits.
const ROUNDS_MAX: u32 = 1_000_000;

/// Why the tasks cannot be run to the point where they all wait for the workflow context.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StuckReason {
    #[error(
        "foreign wake-up: a future of the workflow was woken from outside its activation (another thread, a runtime or \
         another run); only futures of the workflow context can be replayed"
    )]
    ForeignWake,
    #[error(
        "foreign future: {task} waits for something that is not of the workflow context, so that nothing in history can \
         ever wake it; use the context's timers, activities, signals and channels"
    )]
    ForeignFuture { task: String },
    #[error("the workflow wakes itself for ever: {ROUNDS_MAX} rounds in one activation without waiting")]
    NeverWaits,
}

thread_local! {
    /// The run whose activation this thread is inside, by the address of its [`WakerShared`]; null outside.
    static ACTIVE: Cell<*const WakerShared> = const { Cell::new(std::ptr::null()) };
}

/// What all wakers of a run share.
#[derive(Default)]
struct WakerShared {
    woken_from_elsewhere: AtomicBool,
}

struct WakeFlag {
    woken: AtomicBool,
    home: Arc<WakerShared>,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        let inside = ACTIVE.with(|active| std::ptr::eq(active.get(), Arc::as_ptr(&self.home)));
        if inside {
            self.woken.store(true, Ordering::Relaxed);
        } else {
            self.home.woken_from_elsewhere.store(true, Ordering::Release);
        }
    }
}

struct CodeTask {
    future: TaskFuture,
    flag: Arc<WakeFlag>,
    waker: Waker,
}

#[derive(Default)]
pub(crate) struct Executor {
    tasks: BTreeMap<CodeTaskId, CodeTask>,
    home: Arc<WakerShared>,
}

/// Marks the thread as being inside an activation of this run, and the end of it even when user code panics.
struct Inside(*const WakerShared);

impl Drop for Inside {
    fn drop(&mut self) {
        ACTIVE.with(|active| active.set(self.0));
    }
}

impl Executor {
    /// Runs `work` (a job's effect on the context) and then every task until all wait or the workflow is over.
    pub(crate) fn run(&mut self, shared: &ContextShared, work: impl FnOnce()) -> Result<(), StuckReason> {
        let home = Arc::as_ptr(&self.home);
        let _inside = Inside(ACTIVE.with(|active| active.replace(home)));
        work();
        for _ in 0..ROUNDS_MAX {
            leave_if_abandoned();
            self.adopt(shared);
            let polled = self.round(shared);
            if shared.is_over() || shared.ledger().overran().is_some() {
                return Ok(());
            }
            if self.home.woken_from_elsewhere.load(Ordering::Acquire) {
                return Err(StuckReason::ForeignWake);
            }
            if !polled && !shared.wake_conditions() && !shared.has_spawned() {
                return self.check_waits(shared);
            }
        }
        Err(StuckReason::NeverWaits)
    }

    /// Drops every task, for a run that is over or evicted.
    pub(crate) fn clear(&mut self) {
        while let Some((_, task)) = self.tasks.pop_last() {
            drop(task);
        }
    }

    fn adopt(&mut self, shared: &ContextShared) {
        for (id, future) in shared.take_spawned() {
            let flag = Arc::new(WakeFlag { woken: AtomicBool::new(true), home: self.home.clone() });
            let waker = Waker::from(flag.clone());
            self.tasks.insert(id, CodeTask { future, flag, waker });
        }
    }

    /// Polls every woken task once, in order. Says whether there was any.
    fn round(&mut self, shared: &ContextShared) -> bool {
        let woken: Vec<CodeTaskId> =
            self.tasks.iter().filter(|(_, task)| task.flag.woken.load(Ordering::Relaxed)).map(|(id, _)| *id).collect();
        for id in &woken {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            task.flag.woken.store(false, Ordering::Relaxed);
            shared.enter_task(*id);
            if let Poll::Ready(()) = task.future.as_mut().poll(&mut Context::from_waker(&task.waker)) {
                self.tasks.remove(id);
                shared.task_ended(*id);
            }
            if shared.is_over() {
                break;
            }
        }
        !woken.is_empty()
    }

    /// Something must be left that a job can resolve: a task that waits for another one (with a lock or a channel of
    /// another crate) goes on when that one does. Where every task waits for nothing of the context, none ever goes on.
    fn check_waits(&self, shared: &ContextShared) -> Result<(), StuckReason> {
        match self.tasks.keys().next() {
            Some(first) if !self.tasks.keys().any(|id| shared.waits_for_context(*id)) => {
                Err(StuckReason::ForeignFuture { task: shared.task_name(*first) })
            }
            _ => Ok(()),
        }
    }
}
