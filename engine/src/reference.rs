//! References: activities, workflows, signals, queries and updates as values that know their types.
//!
//! A reference is written once, as a constant, and used wherever the thing is registered, called or handled. A name that
//! is misspelt and an input or result of another type do not compile:
//!
//! ```
//! use std::time::Duration;
//! use bosun_engine::workflow::{WfContext, WorkflowRegistry};
//! use bosun_engine::*;
//!
//! const CHARGE: Activity<u64, String> = Activity::named("charge").start_to_close(Duration::from_secs(30));
//! const PAY: Workflow<u64, String> = Workflow::named("pay");
//! const APPROVE: Signal<bool> = Signal::named("approve");
//!
//! async fn charge(_: ActivityContext, cents: u64) -> Result<String, ActivityError> {
//!     Ok(format!("{cents} cents"))
//! }
//! async fn pay(ctx: WfContext, cents: u64) -> Result<String, Failure> {
//!     match ctx.signal_channel(APPROVE).recv().await? {
//!         true => ctx.call(CHARGE, &cents).await,
//!         false => Err(Failure::application("Refused", "nobody approved it")),
//!     }
//! }
//!
//! let workflows = WorkflowRegistry::new().workflow(PAY, pay);
//! let mut activities = ActivityRegistry::new();
//! activities.register(CHARGE, charge);
//! ```
//!
//! Invariant: a reference is a name and types, and for an activity its limits; it holds no code and reaches no run. On
//! the disk there is only the name, so that references and plain names can be mixed, and changed one by one. Whether a
//! worker has code under the name is not checked here.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::vocabulary::*;

/// A type parameter that a reference mentions and does not hold.
type Types<I, O> = PhantomData<fn(I) -> O>;

/// An activity: what it is called, what it takes and gives, and how long it may take.
///
/// `const CHARGE: Activity<u64, String> = Activity::named("charge").start_to_close(Duration::from_secs(30));`
pub struct Activity<I, O> {
    name: &'static str,
    options: ActivityOptions,
    types: Types<I, O>,
}

/// An activity whose time limit has not been said yet: add [`start_to_close`](Self::start_to_close) or
/// [`schedule_to_close`](Self::schedule_to_close).
pub struct ActivityWithoutLimit<I, O> {
    name: &'static str,
    types: Types<I, O>,
}

impl<I, O> Activity<I, O> {
    /// The activity registered under this name. It becomes an [`Activity`] with its time limit.
    pub const fn named(name: &'static str) -> ActivityWithoutLimit<I, O> {
        ActivityWithoutLimit { name, types: PhantomData }
    }
    /// All attempts together, with the delays between them, may take this long, beside the limit of one.
    pub const fn with_schedule_to_close(mut self, limit: Duration) -> Self {
        self.options.schedule_to_close = Some(limit);
        self
    }
    /// It fails when no worker has begun it for this long.
    pub const fn with_schedule_to_start(mut self, limit: Duration) -> Self {
        self.options.schedule_to_start = Some(limit);
        self
    }
    /// An attempt that has not heartbeated for this long has failed (E06).
    pub const fn with_heartbeat(mut self, timeout: Duration) -> Self {
        self.options.heartbeat = Some(timeout);
        self
    }
    /// What a cancellation means to the workflow that waits. By default it does not wait for the activity to stop.
    pub const fn with_cancellation(mut self, cancellation: CancellationType) -> Self {
        self.options.cancellation = cancellation;
        self
    }
    /// Tries at most this often, with the default delays; 0 is without end (the default), 1 is at most once (
    /// E05, E08).
    pub const fn with_attempts(self, maximum: u32) -> Self {
        self.with_retry(RetryPolicy::attempts(maximum))
    }
    /// Retries by this policy instead of the default one. Call it once: a policy that it replaces is leaked,
    /// because nothing can be dropped in a constant.
    pub const fn with_retry(mut self, policy: RetryPolicy) -> Self {
        std::mem::forget(self.options.retry_policy.replace(policy));
        self
    }
    /// Runs on this task queue instead of the workflow's.
    pub fn on_queue(mut self, queue: impl Into<TaskQueue>) -> Self {
        self.options.task_queue = Some(queue.into());
        self
    }
    /// With this priority among those that wait for a slot of its task queue: 1 comes first, the default is 3.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.options.priority = Some(priority);
        self
    }
    /// What lists and histories show of this call: `ctx.call(CHARGE.with_summary("order 7"), &cents)`.
    pub fn with_summary(mut self, summary: impl Into<String>) -> Self {
        self.options.summary = Some(summary.into());
        self
    }

    /// The name it is registered under.
    pub const fn name(&self) -> &'static str {
        self.name
    }
    /// The name, as histories hold it. Panics when it is no valid name.
    #[track_caller]
    pub fn activity_type(&self) -> ActivityType {
        ActivityType::of(self.name)
    }
    /// The limits and guides of a call.
    pub const fn options(&self) -> &ActivityOptions {
        &self.options
    }
    pub(crate) fn into_options(self) -> ActivityOptions {
        self.options
    }
}

impl<I, O: DeserializeOwned> Activity<I, O> {
    /// The result that a state machine hears of, as its type. Fails as the activity did, or if the result is not an `O`.
    pub fn result(&self, result: Result<Payload, Failure>) -> Result<O, Failure> {
        Ok(result?.decode()?)
    }
}

impl<I, O> ActivityWithoutLimit<I, O> {
    /// One attempt may take this long.
    ///
    /// # Panics
    ///
    /// With zero, which would end every attempt as it begins. In a constant that is an error of the compiler.
    pub const fn start_to_close(self, limit: Duration) -> Activity<I, O> {
        assert!(!limit.is_zero(), "a start-to-close timeout of zero ends every attempt as it begins");
        Activity { name: self.name, options: limited(Some(limit), None), types: PhantomData }
    }
    /// All attempts together, with the delays between them, may take this long.
    ///
    /// # Panics
    ///
    /// With zero, which would end the activity as it begins. In a constant that is an error of the compiler.
    pub const fn schedule_to_close(self, limit: Duration) -> Activity<I, O> {
        assert!(!limit.is_zero(), "a schedule-to-close timeout of zero ends the activity as it begins");
        Activity { name: self.name, options: limited(None, Some(limit)), types: PhantomData }
    }
}

/// The default options, which no constant can ask `Default` for.
const fn limited(start_to_close: Option<Duration>, schedule_to_close: Option<Duration>) -> ActivityOptions {
    ActivityOptions {
        task_queue: None,
        schedule_to_close,
        schedule_to_start: None,
        start_to_close,
        heartbeat: None,
        retry_policy: None,
        cancellation: CancellationType::TryCancel,
        summary: None,
        priority: None,
    }
}

impl<I, O> Clone for Activity<I, O> {
    fn clone(&self) -> Self {
        Activity { name: self.name, options: self.options.clone(), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for Activity<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Activity({:?})", self.name)
    }
}

macro_rules! references {
    ($($(#[$doc:meta])* $name:ident<$($type:ident),+> = $id:ident, $into_id:ident;)*) => {$(
        $(#[$doc])*
        pub struct $name<$($type),+> {
            name: &'static str,
            types: PhantomData<fn($($type),+)>,
        }
        impl<$($type),+> $name<$($type),+> {
            /// The one of this name. Nothing is checked until the reference is used.
            pub const fn named(name: &'static str) -> Self {
                $name { name, types: PhantomData }
            }
            /// The name alone.
            pub const fn name(&self) -> &'static str {
                self.name
            }
            /// The name, as histories hold it. Panics when it is no valid name.
            #[track_caller]
            pub fn $into_id(&self) -> $id {
                $id::of(self.name)
            }
        }
        impl<$($type),+> Clone for $name<$($type),+> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<$($type),+> Copy for $name<$($type),+> {}
        impl<$($type),+> fmt::Debug for $name<$($type),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), self.name)
            }
        }
    )*};
}

references! {
    /// A workflow: what its type is called, what it takes, and what its runs end with.
    /// A state machine has its own: [`StateMachine::WORKFLOW`](crate::workflow::StateMachine::WORKFLOW).
    Workflow<I, O> = WorkflowType, workflow_type;
    /// A signal and what it carries.
    Signal<I> = SignalName, signal_name;
    /// A query, what is asked with it and what it answers.
    Query<I, O> = QueryName, query_name;
    /// An update, what it carries and what it answers.
    Update<I, O> = UpdateName, update_name;
}

impl<I, O: DeserializeOwned> Workflow<I, O> {
    /// The result of a child that a state machine hears of, as its type.
    pub fn result(&self, result: Result<Payload, Failure>) -> Result<O, Failure> {
        Ok(result?.decode()?)
    }
}

/// For state machines, which hear of signals as data.
impl<I: DeserializeOwned> Signal<I> {
    /// Whether a signal that has come is this one.
    pub fn is(&self, signal: &WorkflowExecutionSignaled) -> bool {
        signal.name.as_str() == self.name
    }
    /// What it carries. Fails if the payload is not an `I`.
    pub fn input(&self, signal: &WorkflowExecutionSignaled) -> Result<I, Failure> {
        Ok(signal.input.decode()?)
    }
}

/// For state machines, which are asked by name.
impl<I: DeserializeOwned, O: Serialize> Query<I, O> {
    /// Whether this query is asked.
    pub fn is(&self, name: &QueryName) -> bool {
        name.as_str() == self.name
    }
    /// Answers it: `TOTAL.answer(input, |()| Ok(self.total))`.
    pub fn answer(&self, input: &Payload, handler: impl FnOnce(I) -> Result<O, Failure>) -> Result<Payload, Failure> {
        Ok(Payload::encode(&handler(input.decode()?)?)?)
    }
}

/// For state machines, which hear of updates as data.
impl<I: DeserializeOwned, O> Update<I, O> {
    /// Whether an update that has come is this one.
    pub fn is(&self, name: &UpdateName) -> bool {
        name.as_str() == self.name
    }
    /// What it carries. Fails if the payload is not an `I`.
    pub fn input(&self, input: &Payload) -> Result<I, Failure> {
        Ok(input.decode()?)
    }
}

macro_rules! named_or_typed {
    ($($(#[$doc:meta])* $reference:ident: $typed:ident<$($type:ident),+> = $id:ident, $into_id:ident;)*) => {$(
        $(#[$doc])*
        pub trait $reference<$($type),+> {
            /// The name, as histories hold it.
            fn $into_id(self) -> $id;
        }
        impl<$($type),+> $reference<$($type),+> for $typed<$($type),+> {
            #[track_caller]
            fn $into_id(self) -> $id {
                $id::of(self.name)
            }
        }
        impl<$($type),+> $reference<$($type),+> for &str {
            #[track_caller]
            fn $into_id(self) -> $id {
                $id::of(self)
            }
        }
        impl<$($type),+> $reference<$($type),+> for $id {
            fn $into_id(self) -> $id {
                self
            }
        }
    )*};
}

named_or_typed! {
    /// What an activity function can be registered under: an [`Activity`] of its types, or any name.
    #[diagnostic::on_unimplemented(
        message = "the function takes `{I}` and gives `{O}`; the reference is an `{Self}`",
        label = "this reference has other types than the function"
    )]
    ActivityRef: Activity<I, O> = ActivityType, into_activity_type;
    /// What a workflow function can be registered under: a [`Workflow`] of its types, or any name.
    #[diagnostic::on_unimplemented(
        message = "the function takes `{I}` and ends with `{O}`; the reference is a `{Self}`",
        label = "this reference has other types than the function"
    )]
    WorkflowRef: Workflow<I, O> = WorkflowType, into_workflow_type;
    /// What a query is answered by: a [`Query`] of the handler's types, or any name.
    #[diagnostic::on_unimplemented(
        message = "the handler takes `{I}` and answers `{O}`; `{Self}` has other types",
        label = "this query has other types than the handler"
    )]
    QueryRef: Query<I, O> = QueryName, into_query_name;
    /// What an update is handled by: an [`Update`] of the handler's types, or any name.
    #[diagnostic::on_unimplemented(
        message = "the handler takes `{I}` and answers `{O}`; `{Self}` has other types",
        label = "this update has other types than the handler"
    )]
    UpdateRef: Update<I, O> = UpdateName, into_update_name;
}

/// What a signal can be sent or received by: a [`Signal`] that carries `I`, or any name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not carry `{I}`",
    label = "this signal carries another type",
    note = "write a `Signal` of that type, or the name of the signal as text"
)]
pub trait SignalRef<I: ?Sized> {
    /// The name, as histories hold it.
    fn into_signal_name(self) -> SignalName;
}

// Not by the macro: what the compiler says of a wrong signal shows this line.
impl<I> SignalRef<I> for Signal<I> {
    #[track_caller]
    fn into_signal_name(self) -> SignalName {
        self.signal_name()
    }
}

impl<I: ?Sized> SignalRef<I> for &str {
    #[track_caller]
    fn into_signal_name(self) -> SignalName {
        SignalName::of(self)
    }
}

impl<I: ?Sized> SignalRef<I> for SignalName {
    fn into_signal_name(self) -> SignalName {
        self
    }
}
