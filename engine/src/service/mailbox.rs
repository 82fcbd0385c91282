//! The mailbox of a shard: what is asked of its runs, in order of arrival.
//!
//! Invariant: requests of clients are refused when the mailbox is full; answers of activities and of other runs never
//! are (they are bounded by what was started). A waiting thread is woken by an arrival, never by polling.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::time_skipping::UnlockedTime;
use crate::request::*;
use crate::vocabulary::*;

/// Where an answer goes, after the commit.
pub(crate) struct ReplySender<T> {
    sender: oneshot::Sender<Result<T, Rejection>>,
    unlocked: Option<UnlockedTime>,
}

/// Where the answer comes out.
pub(crate) type Answered<T> = oneshot::Receiver<Result<T, Rejection>>;

impl<T> ReplySender<T> {
    /// With time unlocked, a virtual clock may move until the answer is given, and no further.
    pub(crate) fn new(unlocked: Option<UnlockedTime>) -> (Self, Answered<T>) {
        let (sender, answered) = oneshot::channel();
        (ReplySender { sender, unlocked }, answered)
    }
    /// Whoever asked may have gone away; that is no concern.
    pub(crate) fn send(self, answer: Result<T, Rejection>) {
        drop(self.unlocked);
        let _ = self.sender.send(answer);
    }
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// What a start also does, atomically (E12).
pub(crate) enum StartThen {
    Nothing,
    Signal(SignalRequest),
    Update(UpdateRequest, ReplySender<UpdateOutcome>),
}

/// Which run an input is for.
#[derive(Debug, Clone)]
pub(crate) enum RunRef {
    /// The open run of the workflow id, or else the newest; or exactly this run.
    Target(Target),
    /// The last run of the chain that began with this one.
    Chain { namespace: Namespace, workflow_id: WorkflowId, first_run: RunId },
}

impl RunRef {
    pub(crate) fn key(&self) -> (&Namespace, &WorkflowId) {
        match self {
            RunRef::Target(target) => (&target.namespace, &target.workflow_id),
            RunRef::Chain { namespace, workflow_id, .. } => (namespace, workflow_id),
        }
    }
}

/// What is to be done to a pending activity.
pub(crate) enum ActivityAct {
    Pause,
    Unpause,
    Modify(Box<ActivityUpdate>),
}

/// One thing asked of a shard.
pub(crate) enum ShardMessage {
    Start {
        run_id: RunId,
        start: Box<StartWorkflow>,
        then: StartThen,
        reply: ReplySender<Started>,
    },
    /// A fork that has been planned.
    Fork {
        fork: Box<crate::machine::PlannedFork>,
        dry_run: bool,
        reply: ReplySender<Forked>,
    },
    /// Back to an earlier point, under the same workflow id. `run_id` is the new run's, unless the request has made one before.
    Reset {
        run_id: RunId,
        request: Box<ResetRequest>,
        reply: ReplySender<ResetDone>,
    },
    Input {
        run: RunRef,
        input: Input,
        reply: Option<ReplySender<()>>,
    },
    /// A slot was taken for an attempt that waited.
    SlotGranted(crate::queue::WaitingAttempt),
    Update {
        target: Target,
        request: UpdateRequest,
        reply: ReplySender<UpdateOutcome>,
    },
    UpdateResult {
        target: Target,
        update_id: UpdateId,
        reply: ReplySender<UpdateOutcome>,
    },
    ActivityByName {
        target: Target,
        activity_id: ActivityId,
        act: ActivityAct,
        reason: String,
        identity: Option<Identity>,
        reply: ReplySender<()>,
    },
    Query {
        target: Target,
        name: QueryName,
        input: Payload,
        reply: ReplySender<Payload>,
    },
    Describe {
        target: Target,
        reply: ReplySender<Box<Description>>,
    },
    /// Answers when the run (exactly this one) has ended.
    AwaitClose {
        target: Target,
        reply: ReplySender<ClosedRun>,
    },
    WatchChild {
        namespace: Namespace,
        workflow_id: WorkflowId,
        first_run: RunId,
        parent: Parent,
    },
    /// After a restart: look at a run that had something under way.
    Recover {
        target: Target,
    },
    /// The time of a virtual clock has moved, or the worker is stopping.
    Wake,
}

impl ShardMessage {
    /// Whether it changes nothing.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(
            self,
            ShardMessage::Query { .. }
                | ShardMessage::Describe { .. }
                | ShardMessage::AwaitClose { .. }
                | ShardMessage::UpdateResult { .. }
        )
    }
    /// Whether who decides it waits until all that was decided before is durable.
    pub(crate) fn waits_for_the_disk(&self) -> bool {
        matches!(self, ShardMessage::Reset { .. })
    }
    /// What its payload takes; messages of the engine's own are small, or bounded by what was started.
    fn bytes(&self) -> usize {
        match self {
            ShardMessage::Start { start, .. } => start.input.len(),
            ShardMessage::Input { input: Input::Signal(signal), .. } => signal.input.len(),
            ShardMessage::Update { request, .. } => request.input.len(),
            ShardMessage::Query { input, .. } => input.len(),
            _ => 0,
        }
    }
}

/// How a run ended, and which run goes on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClosedRun {
    pub(crate) run_id: RunId,
    pub(crate) outcome: CloseOutcome,
    pub(crate) next_run: Option<RunId>,
}

#[derive(Default)]
struct MessageQueue {
    messages: VecDeque<ShardMessage>,
    /// The payloads of these messages.
    bytes: usize,
    stopped: bool,
    /// After the stop: how many of the messages that were there then are still to be handled.
    left: usize,
    /// How many threads wait. Waking nobody would still cost a system call.
    waiting: usize,
}

/// The queue of one shard.
pub(crate) struct ShardMailbox {
    queue: Mutex<MessageQueue>,
    arrived: Condvar,
    limit: usize,
    bytes_max: usize,
}

/// What a turn thread gets.
pub(crate) enum Arrival {
    Message(ShardMessage),
    /// Nothing came before the deadline.
    Deadline,
    Stopped,
}

impl ShardMailbox {
    pub(crate) fn new(limit: usize, bytes_max: usize) -> Self {
        ShardMailbox { queue: Mutex::new(MessageQueue::default()), arrived: Condvar::new(), limit, bytes_max }
    }
    fn lock(&self) -> MutexGuard<'_, MessageQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Ends a change of the queue.
    fn wake(&self, queue: MutexGuard<'_, MessageQueue>) {
        let waiting = queue.waiting > 0;
        drop(queue);
        if waiting {
            self.arrived.notify_one();
        }
    }
    /// A request of a client: refused when too many wait.
    pub(crate) fn request(&self, message: ShardMessage) -> Result<(), Rejection> {
        let mut queue = self.lock();
        if queue.stopped {
            return Err(Rejection::ShuttingDown);
        }
        // One request is taken however large it is: its own limit is another one.
        let full = queue.bytes > 0 && queue.bytes + message.bytes() > self.bytes_max;
        if queue.messages.len() >= self.limit || full {
            return Err(Rejection::Overloaded { limit: self.limit, retry_after: Duration::from_millis(500) });
        }
        queue.bytes += message.bytes();
        queue.messages.push_back(message);
        self.wake(queue);
        Ok(())
    }
    /// Something that the worker itself caused: always taken.
    pub(crate) fn deliver(&self, message: ShardMessage) {
        let mut queue = self.lock();
        queue.bytes += message.bytes();
        queue.messages.push_back(message);
        self.wake(queue);
    }
    /// As [`ShardMailbox::deliver`], before everything that waits: for what was being worked on already.
    pub(crate) fn deliver_first(&self, message: ShardMessage) {
        let mut queue = self.lock();
        queue.bytes += message.bytes();
        queue.messages.push_front(message);
        queue.left += usize::from(queue.stopped);
        self.wake(queue);
    }
    /// The next message, waiting until `deadline_in` at most; `None` waits for as long as it takes.
    pub(crate) fn next(&self, deadline_in: Option<Duration>) -> Arrival {
        let mut queue = self.lock();
        loop {
            if queue.stopped && queue.left == 0 {
                return Arrival::Stopped;
            }
            if let Some(message) = queue.messages.pop_front() {
                queue.left = queue.left.saturating_sub(1);
                queue.bytes = queue.bytes.saturating_sub(message.bytes());
                return Arrival::Message(message);
            }
            match deadline_in {
                Some(wait) if wait.is_zero() => return Arrival::Deadline,
                Some(wait) => {
                    queue.waiting += 1;
                    let (again, timeout) =
                        self.arrived.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner);
                    queue = again;
                    queue.waiting -= 1;
                    if timeout.timed_out() && queue.messages.is_empty() && !queue.stopped {
                        return Arrival::Deadline;
                    }
                }
                None => {
                    queue.waiting += 1;
                    queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
                    queue.waiting -= 1;
                }
            }
        }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().messages.is_empty()
    }
    /// Everything that waits, for whoever ends a worker at once.
    pub(crate) fn clear(&self) -> VecDeque<ShardMessage> {
        std::mem::take(&mut self.lock().messages)
    }
    /// No more than what is here now: an outcome that was delivered before the stop is not lost.
    pub(crate) fn stop(&self) {
        let mut queue = self.lock();
        if !queue.stopped {
            queue.stopped = true;
            queue.left = queue.messages.len();
        }
        drop(queue);
        self.arrived.notify_all();
    }
}
