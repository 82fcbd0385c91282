//! Activities and timers as futures (E04, E07, E10).
//!
//! Invariant: the command is asked for when the method is called, not when the future is polled, so that the order of
//! calls is the order of commands. Dropping a future cancels nothing and asks for nothing.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::WfContext;
use super::leaf::{Leaf, WaitReason};
use super::shared::{ContextShared, OperationSlots};
use super::slot::OnceSlot;
use crate::reference::Activity;
use crate::vocabulary::*;
use crate::workflow::ledger::CodePlace;
use crate::workflow::pending::{PendingCommand, check_activity};

/// The end of an operation, as its payload.
pub(crate) struct OperationFuture<T = Payload> {
    leaf: Leaf,
    seq: Seq,
    slot: Rc<OnceSlot<T>>,
}

impl<T: Clone> OperationFuture<T> {
    pub(super) fn new(leaf: Leaf, seq: Seq, slot: Rc<OnceSlot<T>>) -> Self {
        OperationFuture { leaf, seq, slot }
    }
    pub(super) fn poll_end(&mut self, cx: &Context<'_>) -> Poll<Result<T, Failure>> {
        let seq = self.seq;
        match self.slot.poll(cx) {
            Poll::Ready(result) => {
                self.leaf.over();
                Poll::Ready(result)
            }
            Poll::Pending => {
                if let Some(left) = self.leaf.left() {
                    self.leaf.over();
                    return Poll::Ready(Err(left));
                }
                self.leaf.wait(cx, || WaitReason::Operation(seq));
                Poll::Pending
            }
        }
    }
}

impl OperationFuture {
    /// The result as a `T`; if it is none, that is a defect.
    pub(super) fn read<T: DeserializeOwned>(&self, of: &str, result: &Payload) -> Result<T, Failure> {
        let what = || format!("the result of {of} {} (asked for at {})", self.seq, self.leaf.place);
        self.leaf.shared.read(result, what)
    }
}

/// Cancels an operation that something else waits for.
#[derive(Clone)]
pub struct OperationHandle {
    shared: Rc<ContextShared>,
    seq: Seq,
}

impl OperationHandle {
    /// The number of its command in the run.
    pub fn seq(&self) -> Seq {
        self.seq
    }
    /// Cancels according to the operation's cancellation type; one that has ended is left alone.
    #[track_caller]
    pub fn cancel(&self) {
        self.shared.cancel_operation(self.seq, "by the workflow", Some(Location::caller()));
    }
}

macro_rules! operation_methods {
    () => {
        /// The number of the command; 0 if nothing was asked for, because the scope was canceled or the request invalid.
        pub fn seq(&self) -> Seq {
            self.operation.seq
        }
        /// Cancels according to the cancellation type. The future resolves; it need not be dropped.
        #[track_caller]
        pub fn cancel(&self) {
            let place = Some(Location::caller());
            self.operation.leaf.shared.cancel_operation(self.operation.seq, "by the workflow", place);
        }
        /// For canceling while something else holds the future.
        pub fn handle(&self) -> OperationHandle {
            OperationHandle { shared: self.operation.leaf.shared.clone(), seq: self.operation.seq }
        }
    };
}

/// The result of an activity. See [`WfContext::activity`].
#[must_use = "the activity is scheduled already; await its result or keep its handle"]
pub struct ActivityFuture<T> {
    operation: OperationFuture,
    output: PhantomData<fn() -> T>,
}

impl<T> ActivityFuture<T> {
    operation_methods!();
}

impl<T: DeserializeOwned> Future for ActivityFuture<T> {
    type Output = Result<T, Failure>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.operation.poll_end(cx).map(|result| self.operation.read("activity", &result?))
    }
}

/// Resolves when a timer fires, or as canceled. See [`WfContext::timer`].
#[must_use = "the timer is started already; await it or keep its handle"]
pub struct TimerFuture {
    operation: OperationFuture,
}

impl TimerFuture {
    operation_methods!();
}

impl Future for TimerFuture {
    type Output = Result<(), Failure>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.operation.poll_end(cx).map(|result| result.map(|_| ()))
    }
}

/// Activities and timers.
impl WfContext {
    /// Schedules an activity by its reference and gives the future of its result, with the limits of the reference:
    /// `let receipt = ctx.call(CHARGE, &cents).await?;`. For this call alone they are changed on the spot:
    /// `ctx.call(CHARGE.with_summary("the deposit"), &cents)`.
    #[track_caller]
    pub fn call<I: Serialize, O: DeserializeOwned>(&self, activity: Activity<I, O>, input: &I) -> ActivityFuture<O> {
        self.activity(activity.activity_type(), input, activity.into_options())
    }
    /// As [`Self::call`], for an activity that only has a name: its result is read as whatever is asked for. One of the
    /// close timeouts is required.
    #[track_caller]
    pub fn activity<T: DeserializeOwned>(
        &self,
        activity_type: impl Into<ActivityType>,
        input: &(impl Serialize + ?Sized),
        options: ActivityOptions,
    ) -> ActivityFuture<T> {
        self.schedule(Location::caller(), activity_type.into(), Payload::encode(input), options)
    }
    /// An activity whose input has been encoded, or could not be.
    pub(crate) fn schedule<T: DeserializeOwned>(
        &self,
        place: CodePlace,
        activity_type: ActivityType,
        input: Result<Payload, PayloadError>,
        options: ActivityOptions,
    ) -> ActivityFuture<T> {
        let asked = match check_activity(&activity_type, &options).and(input.map_err(Failure::from)) {
            Err(failure) => OperationSlots::refused(failure),
            Ok(input) => self.shared.operate(&self.scope, place, "an activity", |seq, ledger| {
                let pending = PendingCommand::Activity {
                    activity_type: activity_type.clone(),
                    cancellation: options.cancellation,
                    cancel_requested: false,
                };
                let activity_id = ledger.activity_id(seq);
                (Command::ScheduleActivity { seq, activity_id, activity_type, input, options }, pending)
            }),
        };
        ActivityFuture { operation: self.operation(place, asked), output: PhantomData }
    }
    /// A durable timer. Zero and past moments fire in the next turn, in order.
    #[track_caller]
    pub fn timer(&self, after: Duration) -> TimerFuture {
        self.start_timer(Location::caller(), None, |now| now.plus(after))
    }
    /// As [`Self::timer`], until a moment.
    #[track_caller]
    pub fn sleep_until(&self, fire_at: Timestamp) -> TimerFuture {
        self.start_timer(Location::caller(), None, |_| fire_at)
    }
    /// A timer that says in history and in lists what it is for.
    #[track_caller]
    pub fn labelled_timer(&self, after: Duration, summary: impl Into<String>) -> TimerFuture {
        self.start_timer(Location::caller(), Some(summary.into()), |now| now.plus(after))
    }
    fn start_timer(
        &self,
        place: CodePlace,
        summary: Option<String>,
        moment: impl FnOnce(Timestamp) -> Timestamp,
    ) -> TimerFuture {
        let asked = self.shared.operate(&self.scope, place, "a timer", |seq, ledger| {
            let fire_at = moment(ledger.now());
            (Command::StartTimer { seq, fire_at, summary }, PendingCommand::Timer { fire_at })
        });
        TimerFuture { operation: self.operation(place, asked) }
    }
    pub(super) fn operation(&self, place: CodePlace, asked: OperationSlots) -> OperationFuture {
        OperationFuture::new(self.leaf(place), asked.seq, asked.result)
    }
}
