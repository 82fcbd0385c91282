//! The threads of workflow code: each holds the runs that are in the cache and belong to it.
//!
//! ```text
//!   work ──► seat of the run ──► its thread ──► completion
//!                 ▲
//!             watchdog: code that does not come back loses its thread; the seat gets another one
//! ```
//!
//! Invariant: a run stays on one thread for as long as it is cached, because drivers cannot move; it is forgotten when Core
//! says so, and told from its beginning when it comes back. Workflow code runs on these threads and nowhere else; they have no
//! tokio context, as in the embedded engine. Every work is answered once: code that panics or does not come back fails its
//! workflow task and no other, and a run whose code still keeps a thread is not told anything. What it does not do: end such a
//! thread; it ends by itself when the code comes back.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bosun_engine::RunId;
use bosun_engine::machine::Held;
use bosun_engine::service::run_queue::{ChargedTime, LOOKS, RunQueue};
use bosun_engine::workflow::{WorkflowRegistry, leave_when};
use temporalio_common::protos::coresdk::workflow_activation::WorkflowActivation;
use temporalio_common::protos::coresdk::workflow_activation::workflow_activation_job::Variant as Told;
use temporalio_common::protos::coresdk::workflow_commands::WorkflowCommand;
use temporalio_common::protos::coresdk::workflow_completion::{
    Failure as Failed, Success, WorkflowActivationCompletion, workflow_activation_completion::Status,
};
use temporalio_common::protos::temporal::api::failure::v1 as temporal_failure;
use tokio::sync::oneshot;

use super::STACK;
use super::convert::failure_out;
use super::run::{ClusterRun, Home, Recorded, TaskFailed};

/// One activation, with what is needed to tell it.
pub(super) struct Work {
    pub(super) home: Home,
    pub(super) activation: WorkflowActivation,
    /// Of a run that is told from its beginning.
    pub(super) recorded: Recorded,
    pub(super) done: oneshot::Sender<WorkflowActivationCompletion>,
}

/// The threads; they end when this is dropped and all work is done.
pub(super) struct WorkflowThreads {
    registry: Arc<WorkflowRegistry>,
    seats: Arc<WorkflowSeats>,
}

struct WorkflowSeats {
    seats: Vec<Seat>,
    closed: Mutex<bool>,
    close: Condvar,
}

/// The place of one thread at a time.
#[derive(Default)]
struct Seat {
    state: Mutex<SeatState>,
    wake: Condvar,
}

#[derive(Default)]
struct SeatState {
    waiting: VecDeque<Work>,
    /// Counts the threads that have sat here; one of before has nothing to say.
    generation: u64,
    doing: Option<TaskInProgress>,
    /// Runs in the cache of the thread.
    cached: BTreeSet<String>,
    /// Runs whose code keeps a thread that was here.
    lost: BTreeSet<String>,
    /// Set when the thread is taken from its code, which then leaves at its next call.
    abandoned: Arc<AtomicBool>,
    /// Where the kernel counts what the thread does: what holds it up does not count against its code.
    run_queue: Option<RunQueue>,
    /// No thread could be started.
    vacant: bool,
    closed: bool,
}

struct TaskInProgress {
    run_id: String,
    since: Instant,
    charged: ChargedTime,
    done: oneshot::Sender<WorkflowActivationCompletion>,
}

impl WorkflowThreads {
    /// Code that does not come back within `allowed` loses its thread; `forgotten` hears of the runs that were in its cache.
    pub(super) fn start(
        registry: &WorkflowRegistry,
        count: usize,
        allowed: Duration,
        forgotten: impl Fn(&str) + Send + 'static,
    ) -> std::io::Result<Self> {
        let seats = (0..count.max(1)).map(|_| Seat::default()).collect();
        let seats = Arc::new(WorkflowSeats { seats, closed: Mutex::default(), close: Condvar::new() });
        (0..seats.seats.len()).try_for_each(|index| spawn(&seats, index, registry))?;
        let (watched, code) = (seats.clone(), registry.clone());
        let watchdog = std::thread::Builder::new().name("bosun-workflow-watch".to_owned());
        watchdog.spawn(move || watch(&watched, &code, allowed, &forgotten))?;
        Ok(WorkflowThreads { registry: Arc::new(registry.clone()), seats })
    }

    /// The code.
    pub(super) fn registry(&self) -> Arc<WorkflowRegistry> {
        self.registry.clone()
    }

    /// Gives work to the thread of its run.
    pub(super) fn give(&self, work: Work) {
        let of =
            |text: &str| text.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
        let seats = &self.seats.seats;
        seats[of(&work.activation.run_id) % seats.len()].give(work);
    }
}

impl Drop for WorkflowThreads {
    fn drop(&mut self) {
        *lock(&self.seats.closed) = true;
        self.seats.close.notify_all();
        for seat in &self.seats.seats {
            lock(&seat.state).closed = true;
            seat.wake.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a new thread on a seat.
fn spawn(seats: &Arc<WorkflowSeats>, index: usize, registry: &WorkflowRegistry) -> std::io::Result<()> {
    let mut state = lock(&seats.seats[index].state);
    state.generation += 1;
    state.abandoned = Arc::default();
    let (generation, abandoned) = (state.generation, state.abandoned.clone());
    let (seats, registry) = (seats.clone(), registry.clone());
    let thread = std::thread::Builder::new().name(format!("bosun-workflow-{index}")).stack_size(STACK);
    let spawned = thread.spawn(move || {
        leave_when(abandoned);
        seats.seats[index].serve(generation, registry);
    });
    state.vacant = spawned.is_err();
    spawned.map(drop)
}

/// Looks twice within the time that code may take.
fn watch(seats: &Arc<WorkflowSeats>, registry: &WorkflowRegistry, allowed: Duration, forgotten: &dyn Fn(&str)) {
    let mut closed = lock(&seats.closed);
    while !*closed {
        closed = seats.close.wait_timeout(closed, allowed / LOOKS).unwrap_or_else(PoisonError::into_inner).0;
        for (index, seat) in seats.seats.iter().enumerate() {
            if let Some(runs) = seat.take(allowed) {
                runs.iter().for_each(|run_id| forgotten(run_id));
            } else if !lock(&seat.state).vacant {
                continue;
            }
            if let Err(why) = spawn(seats, index, registry) {
                tracing::error!(%why, "no new thread for workflow code could be started; it is tried again");
            }
        }
    }
}

impl Seat {
    fn give(&self, work: Work) {
        let mut state = lock(&self.state);
        if state.lost.contains(&work.activation.run_id) && !is_evicted(&work.activation) {
            // Nobody waits for the answer of a worker that has left.
            let _ = work.done.send(completion(work.activation.run_id, Err(TaskFailed::still_busy())));
            return;
        }
        state.waiting.push_back(work);
        drop(state);
        self.wake.notify_all();
    }

    fn serve(&self, generation: u64, registry: WorkflowRegistry) {
        let mut runs = CachedRuns { registry, runs: BTreeMap::new() };
        lock(&self.state).run_queue = RunQueue::of_this_thread();
        while let Some((home, activation, recorded)) = self.next(generation) {
            let run_id = activation.run_id.clone();
            let told = runs.work(&home, activation, recorded);
            let cached = runs.runs.contains_key(&run_id);
            if !self.done(generation, run_id, told, cached) {
                return;
            }
        }
    }

    /// The next work, once there is some; nothing, when the thread is to end.
    fn next(&self, generation: u64) -> Option<(Home, WorkflowActivation, Recorded)> {
        let mut state = lock(&self.state);
        loop {
            if state.generation != generation {
                return None;
            }
            if let Some(Work { home, activation, recorded, done }) = state.waiting.pop_front() {
                let (run_id, since) = (activation.run_id.clone(), Instant::now());
                state.doing = Some(TaskInProgress { run_id, since, charged: ChargedTime::default(), done });
                return Some((home, activation, recorded));
            }
            if state.closed {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The code came back. Says whether its thread may go on.
    fn done(
        &self,
        generation: u64,
        run_id: String,
        told: Result<Vec<WorkflowCommand>, TaskFailed>,
        cached: bool,
    ) -> bool {
        let mut state = lock(&self.state);
        if state.generation != generation {
            tracing::info!(run_id, "the thread that the code of this run kept has ended");
            state.lost.remove(&run_id);
            return false;
        }
        match cached {
            true => drop(state.cached.insert(run_id.clone())),
            false => drop(state.cached.remove(&run_id)),
        }
        if let Some(doing) = state.doing.take() {
            // Nobody waits for the answer of a worker that has left.
            let _ = doing.done.send(completion(run_id, told));
        }
        true
    }

    /// Takes the seat from a thread whose code does not come back: its task fails. The other runs of its cache.
    fn take(&self, allowed: Duration) -> Option<Vec<String>> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let thread = state.run_queue.as_ref();
        let overdue =
            |doing: &mut TaskInProgress| doing.charged.look(doing.since, thread, allowed / (LOOKS / 2)) > allowed;
        let TaskInProgress { run_id, done, .. } = state.doing.take_if(overdue)?;
        state.abandoned.store(true, Ordering::Release);
        state.generation += 1;
        tracing::error!(run_id, "a thread is lost to this run's code: it takes a core until the code comes back");
        let why = Held::Busy { after: allowed }.to_string();
        let _ = done.send(completion(run_id.clone(), Err(TaskFailed::lost(why))));
        let mut cached = std::mem::take(&mut state.cached);
        cached.remove(&run_id);
        state.lost.insert(run_id);
        Some(cached.into_iter().collect())
    }
}

struct CachedRuns {
    registry: WorkflowRegistry,
    runs: BTreeMap<String, ClusterRun>,
}

impl CachedRuns {
    /// What the code asks for. Whatever it does, it does to its own run.
    fn work(
        &mut self,
        home: &Home,
        activation: WorkflowActivation,
        recorded: Recorded,
    ) -> Result<Vec<WorkflowCommand>, TaskFailed> {
        let run_id = activation.run_id.clone();
        let told = match is_evicted(&activation) {
            true => None,
            false => Some(
                catch_unwind(AssertUnwindSafe(|| self.tell(home, activation, recorded)))
                    .unwrap_or_else(|panic| Err(TaskFailed::panicked(&text_of(&*panic)))),
            ),
        };
        // A task that failed is tried again from the beginning.
        if told.as_ref().is_none_or(Result::is_err) {
            let run = self.runs.remove(&run_id);
            // What the code holds may panic as it goes.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(run)));
        }
        told.unwrap_or_else(|| Ok(Vec::new()))
    }

    fn tell(
        &mut self,
        home: &Home,
        mut activation: WorkflowActivation,
        recorded: Recorded,
    ) -> Result<Vec<WorkflowCommand>, TaskFailed> {
        let mut first = None;
        if let Some(init) = take_init(&mut activation) {
            let run_id: RunId = activation.run_id.parse().map_err(|_| TaskFailed::unusable_run(&activation.run_id))?;
            let (run, started) = ClusterRun::new(&self.registry, home, run_id, init, recorded)?;
            self.runs.insert(activation.run_id.clone(), run);
            first = Some(started);
        }
        let run = self.runs.get_mut(&activation.run_id);
        run.ok_or_else(|| TaskFailed::unknown_run(&activation.run_id))?.activate(activation, first)
    }
}

/// Whether Core forgets the run.
pub(super) fn is_evicted(activation: &WorkflowActivation) -> bool {
    activation.jobs.iter().any(|job| matches!(job.variant, Some(Told::RemoveFromCache(_))))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The start of the run, if the activation brings it; the job stays in its place.
fn take_init(
    activation: &mut WorkflowActivation,
) -> Option<temporalio_common::protos::coresdk::workflow_activation::InitializeWorkflow> {
    activation.jobs.iter_mut().find_map(|job| match &mut job.variant {
        Some(Told::InitializeWorkflow(init)) => Some(std::mem::take(init)),
        _ => None,
    })
}

/// Whether a run is told from a beginning that is in history already.
pub(super) fn is_told_again(activation: &WorkflowActivation) -> bool {
    activation.is_replaying
        && activation.jobs.iter().any(|job| matches!(job.variant, Some(Told::InitializeWorkflow(_))))
}

/// A task that failed before the code was told anything.
pub(super) fn failed(run_id: String, why: TaskFailed) -> WorkflowActivationCompletion {
    completion(run_id, Err(why))
}

fn completion(run_id: String, told: Result<Vec<WorkflowCommand>, TaskFailed>) -> WorkflowActivationCompletion {
    let status = match told {
        Ok(commands) => Status::Successful(Success::from(commands)),
        Err(why) => {
            tracing::error!(
                run_id,
                "the workflow task failed, and is tried again: {}\n{}",
                why.failure.message,
                why.stack
            );
            let cause = why.cause;
            let failure = temporal_failure::Failure { stack_trace: why.stack, ..failure_out(&why.failure) };
            Status::Failed(Failed { failure: Some(failure), force_cause: cause.into() })
        }
    };
    WorkflowActivationCompletion { run_id, status: Some(status), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use bosun_engine::workflow::WfContext;
    use bosun_engine::{Failure, Namespace, TaskQueue};
    use temporalio_common::protos::coresdk::workflow_activation as core;

    use super::*;

    /// Long enough for code that comes back, on a busy machine.
    const ALLOWED: Duration = Duration::from_secs(1);
    const PATIENCE: Duration = Duration::from_secs(60);

    fn work(run: u8, workflow_type: &str, told: Told) -> (Work, oneshot::Receiver<WorkflowActivationCompletion>) {
        let told = match told {
            Told::InitializeWorkflow(_) => Told::InitializeWorkflow(core::InitializeWorkflow {
                workflow_id: "w".to_owned(),
                workflow_type: workflow_type.to_owned(),
                ..Default::default()
            }),
            other => other,
        };
        let run_id = RunId([run; 16]).to_string();
        let jobs = vec![core::WorkflowActivationJob { variant: Some(told) }];
        let activation = WorkflowActivation { run_id, jobs, ..Default::default() };
        let home = Home { namespace: Namespace::of("default"), task_queue: TaskQueue::of("q") };
        let (done, answer) = oneshot::channel();
        (Work { home, activation, recorded: Recorded::default(), done }, answer)
    }

    fn init() -> Told {
        Told::InitializeWorkflow(core::InitializeWorkflow::default())
    }

    /// `Err`: the message with which the task failed.
    fn answered(answer: oneshot::Receiver<WorkflowActivationCompletion>) -> Result<usize, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, answer).await });
        match answer.expect("an answer in time").expect("an answer").status.unwrap() {
            Status::Successful(success) => Ok(success.commands.len()),
            Status::Failed(failed) => Err(failed.failure.unwrap_or_default().message),
        }
    }

    fn tell(threads: &WorkflowThreads, run: u8, workflow_type: &str, told: Told) -> Result<usize, String> {
        let (work, answer) = work(run, workflow_type, told);
        threads.give(work);
        answered(answer)
    }

    /// Panics as it goes, outside of all workflow code.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a value of the workflow panicked as it went");
        }
    }

    fn waits() -> WorkflowRegistry {
        WorkflowRegistry::new().workflow("waits", |cx: WfContext, (): ()| async move {
            cx.timer(Duration::from_secs(60)).await?;
            Ok::<_, Failure>(())
        })
    }

    #[test]
    fn code_that_does_not_come_back_fails_its_task_and_no_other() {
        let (free, block) = mpsc::channel::<()>();
        let block = Arc::new(Mutex::new(block));
        let code = waits().workflow("blocks", move |_: WfContext, (): ()| {
            let block = block.clone();
            async move {
                let _ = lock(&block).recv();
                Ok::<_, Failure>(())
            }
        });
        let (say, forgotten) = mpsc::channel();
        let threads = WorkflowThreads::start(&code, 1, ALLOWED, move |run_id| say.send(run_id.to_owned()).unwrap());
        let threads = threads.unwrap();
        assert_eq!(tell(&threads, 1, "waits", init()), Ok(1));
        let (blocked, answer) = work(2, "blocks", init());
        let (behind, answer_behind) = work(3, "waits", init());
        threads.give(blocked);
        threads.give(behind);
        let why = answered(answer).unwrap_err();
        assert!(why.contains("did not come back within 1s") && why.contains("a blocking call"), "{why}");
        assert_eq!(answered(answer_behind), Ok(1), "what waited behind it is told to another thread");
        assert_eq!(forgotten.recv_timeout(PATIENCE), Ok(RunId([1; 16]).to_string()), "its cache went with the thread");
        let again = tell(&threads, 2, "blocks", init()).unwrap_err();
        assert!(again.contains("has not come back yet"), "one thread is enough: {again}");
        let evict = Told::RemoveFromCache(core::RemoveFromCache::default());
        assert_eq!(tell(&threads, 2, "blocks", evict), Ok(0), "an eviction is answered all the same");
        // The code comes back, and the run may be told again.
        free.send(()).unwrap();
        free.send(()).unwrap();
        let began = Instant::now();
        while tell(&threads, 2, "blocks", init()).is_err() {
            assert!(began.elapsed() < PATIENCE, "the run is never told again");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_panic_beside_the_code_takes_no_thread_along() {
        let code = waits().workflow("bombs", |cx: WfContext, (): ()| async move {
            let _bomb = Bomb;
            cx.timer(Duration::from_secs(60)).await?;
            Ok::<_, Failure>(())
        });
        let threads = WorkflowThreads::start(&code, 1, ALLOWED, |_| {}).unwrap();
        assert_eq!(tell(&threads, 1, "bombs", init()), Ok(1));
        assert_eq!(tell(&threads, 2, "waits", init()), Ok(1));
        let evict = Told::RemoveFromCache(core::RemoveFromCache::default());
        assert_eq!(tell(&threads, 1, "bombs", evict), Ok(0));
        let fired = Told::FireTimer(core::FireTimer { seq: 1 });
        assert_eq!(tell(&threads, 2, "waits", fired), Ok(1), "the other run of the thread is where it was");
    }
}
