//! The watchdog: takes a shard away from a thread whose workflow code does not come back (engine.md G23).
//!
//! Invariant: after the shard has a new generation, nothing the old thread still decides is written. The run is held,
//! the input that was being decided is kept in its inbox, and all other runs of the shard go on with a new thread.
//! What it does not do: end the old thread. That cannot be done safely; it ends by itself when the code comes back.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "edge: threads and real time")]

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::committer::{Item, RunName};
use super::mailbox::{Message, RunRef};
use super::shard::Shard;
use super::shared::Shared;
use super::turn::{InHand, TurnThread};
use crate::machine::Held;
use crate::request::Target;
use crate::vocabulary::*;

/// The turn threads of a worker, and what each is doing.
pub(crate) struct TurnThreads {
    threads: Mutex<Vec<(JoinHandle<()>, Arc<InHand>)>>,
    stopped: Mutex<bool>,
    stop: Condvar,
}

impl TurnThreads {
    /// Starts a thread for every shard.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Arc<Self>> {
        let mut known: Vec<Known> = vec![Known::new(); shared.mailboxes.len()];
        for (run, namespace, workflow_id, outlook) in shared.journal.open_runs() {
            known[shared.shard_of(&namespace, &workflow_id)].push((run, namespace, workflow_id, outlook));
        }
        let threads = known
            .into_iter()
            .enumerate()
            .map(|(number, known)| spawn(shared, number, 0, known))
            .collect::<std::io::Result<Vec<_>>>()?;
        Ok(Arc::new(TurnThreads { threads: Mutex::new(threads), stopped: Mutex::new(false), stop: Condvar::new() }))
    }

    /// The watchdog's own thread. Looks twice within the time a turn may take.
    pub(crate) fn watch(&self, shared: &Arc<Shared>) {
        let allowed = shared.options.limits.turn_deadline;
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        while !*stopped {
            stopped = self.stop.wait_timeout(stopped, allowed / 2).unwrap_or_else(PoisonError::into_inner).0;
            if *stopped {
                return;
            }
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            for (number, slot) in threads.iter_mut().enumerate() {
                let stuck = slot.1.overdue(allowed).map(|found| (found, Held::Busy { after: allowed }.to_string()));
                // A turn that panicked inside the engine has ended its thread.
                let dead = || slot.0.is_finished().then(|| slot.1.take()).flatten();
                let found = stuck.or_else(|| dead().map(|found| (found, "a turn failed inside the engine".into())));
                if let Some(((name, input), why)) = found {
                    match replace(shared, number, &name, input, why) {
                        Ok(new) => *slot = new,
                        Err(error) => tracing::error!(%error, "no new turn thread could be started"),
                    }
                }
            }
        }
    }

    /// Waits for the threads to end, those that do not come back aside.
    pub(crate) fn join(&self, patience: std::time::Duration) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.notify_all();
        let deadline = std::time::Instant::now() + patience;
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for (thread, in_hand) in threads {
            while !thread.is_finished() && in_hand.overdue(std::time::Duration::ZERO).is_some() {
                if std::time::Instant::now() > deadline {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            if in_hand.overdue(std::time::Duration::ZERO).is_none() {
                // A thread that panicked was reported when it did.
                let _ = thread.join();
            }
        }
    }
}

/// The open runs of a shard, as the index knows them.
type Known = Vec<(RunId, Namespace, WorkflowId, Outlook)>;

/// The shard is made on its thread: loaded workflow code never leaves the thread it runs on.
fn spawn(
    shared: &Arc<Shared>,
    number: usize,
    generation: u64,
    known: Known,
) -> std::io::Result<(JoinHandle<()>, Arc<InHand>)> {
    let in_hand = Arc::new(InHand::default());
    let (counted, shared, hand) = (shared.clone(), shared.clone(), in_hand.clone());
    let run = move || {
        let mut shard = Shard::new(shared, number, generation);
        for (run, namespace, workflow_id, outlook) in known {
            shard.know(namespace, workflow_id, run, outlook);
        }
        TurnThread::new(shard, hand).run();
    };
    let name = format!("bosun-turn-{number}");
    counted.idle.begin();
    Ok((std::thread::Builder::new().name(name).stack_size(8 * 1024 * 1024).spawn(run)?, in_hand))
}

/// Gives a shard to a new thread; the run that kept the old one is held.
fn replace(
    shared: &Arc<Shared>,
    number: usize,
    name: &RunName,
    input: Option<Input>,
    why: String,
) -> std::io::Result<(JoinHandle<()>, Arc<InHand>)> {
    let generation = shared.committer.next_generation(number);
    shared.note_held(name.run_id, Some(why));
    // Everything the old thread submitted must be durable before the new one reads the log.
    let (done, wait) = std::sync::mpsc::channel();
    shared.idle.begin();
    let barrier = Item {
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
    let mut known = shared.journal.open_runs();
    known.retain(|(_, namespace, workflow_id, _)| shared.shard_of(namespace, workflow_id) == number);
    let new = spawn(shared, number, generation, known)?;
    if let Some(input) = input {
        let target = Target {
            namespace: name.namespace.clone(),
            workflow_id: name.workflow_id.clone(),
            run_id: Some(name.run_id),
        };
        shared.deliver_to(number, Message::Input { run: RunRef::Target(target), input, reply: None });
    }
    // The message the old thread had in hand counts as ended.
    shared.idle.end();
    Ok(new)
}
