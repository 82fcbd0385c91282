//! Signal, query and update handlers (E11, E13, E14).
//!
//! Invariant: queries and validators only read; what they try to ask for is not entered and is named as an error. An
//! accepted update runs as a task of its own and is answered exactly once, at the latest when the run closes. The signals
//! of a handler are handled one after the other; what none has begun to handle is as if nobody had taken it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::WfContext;
use super::shared::ContextShared;
use crate::reference::{QueryRef, SignalRef, UpdateRef};
use crate::vocabulary::*;

type QueryHandler = Rc<dyn Fn(&Payload) -> Result<Payload, Failure>>;
type Validator = Rc<dyn Fn(&Payload) -> Result<(), Failure>>;
pub(crate) type PayloadFuture = Pin<Box<dyn Future<Output = Result<Payload, Failure>>>>;
type UpdateCode = Rc<dyn Fn(WfContext, &Payload) -> Result<PayloadFuture, Failure>>;

#[derive(Default)]
pub(crate) struct Handlers {
    pub(crate) queries: BTreeMap<QueryName, QueryHandler>,
    pub(crate) updates: BTreeMap<UpdateName, UpdateHandler>,
}

#[derive(Clone)]
pub(crate) struct UpdateHandler {
    pub(crate) validate: Validator,
    pub(crate) run: UpdateCode,
}

impl WfContext {
    /// Handles the signals of a name beside the workflow function, in order, one after the other; those that came before
    /// this call too. `handler` is workflow code like any other, in a scope nested in this one; its failure, or an input
    /// that is no `I`, fails the run. It goes on when the run is asked to cancel.
    ///
    /// `ctx.on_signal(ADD, move |_, n| { total.write(|total| *total += n); async { Ok(()) } });`
    #[track_caller]
    pub fn on_signal<I, F>(&self, signal: impl SignalRef<I>, handler: impl Fn(WfContext, I) -> F + 'static)
    where
        I: DeserializeOwned + 'static,
        F: Future<Output = Result<(), Failure>> + 'static,
    {
        let signals = self.detached_scope().signal_channel(signal);
        let context = self.clone();
        // The branch ends with the run; nobody waits for it.
        drop(self.spawn::<(), _>(|_| async move {
            loop {
                let input = signals.recv().await;
                let handling = HandlingSignal::of(&context.shared);
                let handled = match input {
                    Ok(input) => handler(context.nested_scope(), input).await,
                    Err(failure) => Err(failure),
                };
                drop(handling);
                if let Err(failure) = handled {
                    context.shared.outcome.borrow_mut().get_or_insert(Err(failure));
                }
            }
        }));
    }

    /// Answers a query from what the workflow holds, also after the run has closed. The last handler of a name counts.
    #[track_caller]
    pub fn on_query<I, O>(&self, query: impl QueryRef<I, O>, handler: impl Fn(I) -> Result<O, Failure> + 'static)
    where
        I: DeserializeOwned,
        O: Serialize,
    {
        let code = move |input: &Payload| Ok(Payload::encode(&handler(input.decode()?)?)?);
        if self.shared.may_change("a query handler") {
            let replaced = self.shared.handlers.borrow_mut().queries.insert(query.into_query_name(), Rc::new(code));
            drop(replaced);
        }
    }

    /// Handles an update. Register it before the first await, so that an update that comes with the start finds it.
    ///
    /// `validator` only reads; what it refuses never enters history. `handler` is workflow code like any other, in a
    /// scope nested in this one.
    #[track_caller]
    pub fn on_update<I, O, F>(
        &self,
        update: impl UpdateRef<I, O>,
        validator: impl Fn(&I) -> Result<(), Failure> + 'static,
        handler: impl Fn(WfContext, I) -> F + 'static,
    ) where
        I: DeserializeOwned,
        O: Serialize,
        F: Future<Output = Result<O, Failure>> + 'static,
    {
        let validate = move |input: &Payload| validator(&input.decode()?);
        let run = move |context: WfContext, input: &Payload| {
            let future = handler(context, input.decode()?);
            let encoded: PayloadFuture = Box::pin(async move { Ok(Payload::encode(&future.await?)?) });
            Ok(encoded)
        };
        if self.shared.may_change("an update handler") {
            let handler = UpdateHandler { validate: Rc::new(validate), run: Rc::new(run) };
            let replaced = self.shared.handlers.borrow_mut().updates.insert(update.into_update_name(), handler);
            drop(replaced);
        }
    }

    /// Resolves when no update and no signal is being handled: await it before returning, so that all updates get their
    /// answers and no handling of a signal is cut short.
    #[track_caller]
    pub fn all_handlers_finished(&self) -> super::WaitFuture {
        let shared = Rc::downgrade(&self.shared);
        self.wait_until(move || shared.upgrade().is_none_or(|shared| shared.is_handling_nothing()))
    }
}

/// A signal is being handled, until this is dropped.
struct HandlingSignal(std::rc::Weak<ContextShared>);

impl HandlingSignal {
    fn of(shared: &Rc<ContextShared>) -> Self {
        shared.signals_handled.set(shared.signals_handled.get() + 1);
        HandlingSignal(Rc::downgrade(shared))
    }
}

impl Drop for HandlingSignal {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.signals_handled.set(shared.signals_handled.get() - 1);
        }
    }
}
