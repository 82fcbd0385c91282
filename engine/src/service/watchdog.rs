//! The watchdog: takes a shard away from a thread whose workflow code does not come back (G23).
//!
//! Invariant: after the shard has a new generation, nothing the old thread still decides is written. The run is held,
//! the input that was being decided is kept in its inbox, and all other runs of the shard go on with a new thread.
//! What it does not do: end the old thread. That cannot be done safely; it ends by itself when the code comes back.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::committer::CommitItem;
use super::current_turn::{CurrentTurn, DecisionInProgress, Taken, TurnCaller};
use super::mailbox::{RunRef, ShardMessage};
use super::run_queue::LOOKS;
use super::shard::Shard;
use super::shared::WorkerShared;
use super::turn::TurnThread;
use crate::machine::Held;
use crate::request::Target;
use crate::vocabulary::*;

/// Workflow code may nest deeply, and only what it uses of this is taken of the machine.
const TURN_STACK: usize = 64 * 1024 * 1024;

/// The turn threads of a worker, and what each is doing.
pub(crate) struct TurnThreads {
    threads: Mutex<Vec<(JoinHandle<()>, Arc<CurrentTurn>)>>,
    /// Threads that did not come back, each with the run that keeps it.
    lost: Mutex<Vec<(JoinHandle<()>, RunId)>>,
    stopped: Mutex<bool>,
    stop: Condvar,
}

impl TurnThreads {
    /// Starts a thread for every shard.
    pub(crate) fn start(shared: &Arc<WorkerShared>) -> std::io::Result<Arc<Self>> {
        let threads = known_runs(shared)
            .into_iter()
            .enumerate()
            .map(|(number, known)| spawn(shared, number, 0, known))
            .collect::<std::io::Result<Vec<_>>>()?;
        let threads = Mutex::new(threads);
        let (lost, stopped, stop) = (Mutex::default(), Mutex::new(false), Condvar::new());
        Ok(Arc::new(TurnThreads { threads, lost, stopped, stop }))
    }

    /// The watchdog's own thread. Looks several times within the time a turn may take.
    pub(crate) fn watch(&self, shared: &Arc<WorkerShared>) {
        let allowed = shared.options.limits.turn_deadline;
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        while !*stopped {
            stopped = self.stop.wait_timeout(stopped, allowed / LOOKS).unwrap_or_else(PoisonError::into_inner).0;
            if *stopped {
                return;
            }
            self.look_for_lost(shared);
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            for (number, slot) in threads.iter_mut().enumerate() {
                let stuck = slot.1.take(allowed).map(|taken| (taken, Held::Busy { after: allowed }.to_string()));
                // A turn that panicked inside the engine has ended its thread.
                let died = || slot.0.is_finished() && !slot.1.has_left();
                let dead = || died().then(|| (slot.1.take_from_dead(), "a turn failed inside the engine".to_owned()));
                if let Some((taken, why)) = stuck.or_else(dead) {
                    let run = taken.doing.as_ref().map(|doing| doing.name.run_id);
                    if let Some(run) = run {
                        *shared.lost.lock().unwrap_or_else(PoisonError::into_inner).entry(run).or_default() += 1;
                        let threads = shared.lost_threads();
                        tracing::error!(%run, lost_threads = threads, "a thread is lost to this run's code: it takes a core until the code comes back or the worker ends");
                    }
                    match replace(shared, number, taken, why) {
                        Ok(new) => {
                            let (thread, _) = std::mem::replace(slot, new);
                            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
                            lost.extend(run.map(|run| (thread, run)));
                        }
                        Err(error) => tracing::error!(%error, "no new turn thread could be started"),
                    }
                }
            }
        }
    }

    /// Whether threads that were lost have come back.
    fn look_for_lost(&self, shared: &WorkerShared) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.retain(|(thread, run)| {
            if thread.is_finished() {
                tracing::info!(%run, "the thread that this run kept has ended");
                let mut lost = shared.lost.lock().unwrap_or_else(PoisonError::into_inner);
                match lost.get_mut(run) {
                    Some(threads) if *threads > 1 => *threads -= 1,
                    Some(_) | None => drop(lost.remove(run)),
                }
            }
            !thread.is_finished()
        });
    }

    /// Waits for the threads to end. One whose code does not come back within `patience` is left behind; each decision
    /// has that long, all together have ten times as long.
    pub(crate) fn join(&self, patience: std::time::Duration) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.notify_all();
        let deadline = std::time::Instant::now() + patience * 10;
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for (thread, current_turn) in threads {
            while !thread.is_finished() && !current_turn.is_overdue(patience) && std::time::Instant::now() < deadline {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if thread.is_finished() {
                // A thread that panicked was reported when it did.
                let _ = thread.join();
            } else if let Some(doing) = current_turn.take(std::time::Duration::ZERO).and_then(|taken| taken.doing) {
                tracing::error!(run = %doing.name.run_id, "the code of this run does not come back; left behind");
                doing.caller.refuse(Rejection::ShuttingDown);
            }
        }
    }
}

/// The open runs of a shard, as the index knows them.
pub(super) type KnownRuns = Vec<(RunId, Namespace, WorkflowId, Outlook)>;

/// The open runs of every shard.
pub(super) fn known_runs(shared: &WorkerShared) -> Vec<KnownRuns> {
    let mut known: Vec<KnownRuns> = vec![KnownRuns::new(); shared.mailboxes.len()];
    for (run, namespace, workflow_id, outlook) in shared.journal.open_runs() {
        known[shared.shard_of(&namespace, &workflow_id)].push((run, namespace, workflow_id, outlook));
    }
    known
}

/// What runs the turns of a shard.
pub(super) fn turn_thread(
    shared: Arc<WorkerShared>,
    number: usize,
    generation: u64,
    known: KnownRuns,
    current_turn: Arc<CurrentTurn>,
) -> TurnThread {
    let mut shard = Shard::new(shared, number, generation, current_turn);
    for (run, namespace, workflow_id, outlook) in known {
        shard.know(namespace, workflow_id, run, outlook);
    }
    TurnThread::new(shard)
}

/// The shard is made on its thread: loaded workflow code never leaves the thread it runs on.
fn spawn(
    shared: &Arc<WorkerShared>,
    number: usize,
    generation: u64,
    known: KnownRuns,
) -> std::io::Result<(JoinHandle<()>, Arc<CurrentTurn>)> {
    let current_turn = Arc::new(CurrentTurn::new(shared.quarantine.as_ref()));
    let (counted, shared, current) = (shared.clone(), shared.clone(), current_turn.clone());
    let run = move || {
        current.is_of_this_thread();
        turn_thread(shared, number, generation, known, current).run();
    };
    let name = format!("bosun-turn-{number}");
    counted.time.begin();
    Ok((std::thread::Builder::new().name(name).stack_size(TURN_STACK).spawn(run)?, current_turn))
}

/// Gives a shard to a new thread; the run that kept the old one is held, and its input kept.
fn replace(
    shared: &Arc<WorkerShared>,
    number: usize,
    taken: Taken,
    why: String,
) -> std::io::Result<(JoinHandle<()>, Arc<CurrentTurn>)> {
    let Taken { doing, slots, message } = taken;
    let generation = shared.committer.next_generation(number);
    wait_for_commits(shared, number, generation);
    shared.give_back_slots(slots);
    if let Some(doing) = doing {
        hold(shared, number, doing, why);
    }
    let mut known = shared.journal.open_runs();
    known.retain(|(_, namespace, workflow_id, _)| shared.shard_of(namespace, workflow_id) == number);
    let new = spawn(shared, number, generation, known);
    if message {
        // The message the old thread worked on counts as ended.
        shared.time.end();
    }
    new
}

/// Everything the old thread submitted must be durable before the new one reads the log.
fn wait_for_commits(shared: &Arc<WorkerShared>, number: usize, generation: u64) {
    let (done, wait) = std::sync::mpsc::channel();
    shared.time.begin();
    let barrier = CommitItem {
        shard: number,
        generation,
        turns: Vec::new(),
        effects: Vec::new(),
        // The receiver waits below; it cannot be gone.
        answers: vec![Box::new(move |_| {
            let _ = done.send(());
        })],
    };
    shared.committer.submit(barrier);
    shared.committer.kick(shared, false);
    let _ = wait.recv();
}

/// Holds the run whose code did not come back. Its input is the first thing the new thread sees, and is kept.
fn hold(shared: &Arc<WorkerShared>, number: usize, doing: DecisionInProgress, why: String) {
    let DecisionInProgress { name, input, caller, .. } = doing;
    // A start whose code did not come back has left no run behind.
    if shared.journal.run(name.run_id).is_some() {
        shared.note_held(name.run_id, Some(why.clone()));
    }
    let reply = match caller {
        TurnCaller::Nobody => None,
        TurnCaller::Kept(reply) => reply.take(),
        TurnCaller::Refused(refuse) => {
            refuse(Rejection::Held { why });
            None
        }
    };
    if let Some(input) = input {
        let target = Target {
            namespace: name.namespace.clone(),
            workflow_id: name.workflow_id.clone(),
            run_id: Some(name.run_id),
        };
        shared.time.begin();
        shared.mailboxes[number].deliver_first(ShardMessage::Input { run: RunRef::Target(target), input, reply });
    }
}
