//! Query and update handlers (engine.md E13, E14).
//!
//! Invariant: queries and validators only read; what they try to ask for is not entered and is named as an error. An
//! accepted update runs as a task of its own and is answered exactly once, at the latest when the run closes.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::WfContext;
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
    /// Answers a query from what the workflow holds, also after the run has closed. The last handler of a name counts.
    pub fn on_query<I, O>(&self, name: impl Into<QueryName>, handler: impl Fn(I) -> Result<O, Failure> + 'static)
    where
        I: DeserializeOwned,
        O: Serialize,
    {
        let code = move |input: &Payload| Ok(Payload::encode(&handler(input.decode()?)?)?);
        if self.shared.may_change("a query handler") {
            let replaced = self.shared.handlers.borrow_mut().queries.insert(name.into(), Rc::new(code));
            drop(replaced);
        }
    }

    /// Handles an update. Register it before the first await, so that an update that comes with the start finds it.
    ///
    /// `validator` only reads; what it refuses never enters history. `handler` is workflow code like any other, in a
    /// scope nested in this one.
    pub fn on_update<I, O, F>(
        &self,
        name: impl Into<UpdateName>,
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
            let replaced = self.shared.handlers.borrow_mut().updates.insert(name.into(), handler);
            drop(replaced);
        }
    }

    /// Resolves when no update is being handled: await it before returning, so that all of them get their answers.
    #[track_caller]
    pub fn all_handlers_finished(&self) -> super::WaitFuture {
        let shared = Rc::downgrade(&self.shared);
        self.wait_until(move || shared.upgrade().is_none_or(|shared| shared.open_updates.borrow().is_empty()))
    }
}
