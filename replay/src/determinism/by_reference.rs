//! Determinism tests by references (`bosun_engine::reference`): what is drawn has the types of the code.
//!
//! Invariant: each is the method by name that it calls, with the types checked by the compiler. By name a result of another
//! type is a test of how the code meets data that it cannot read, and of little else.

use std::panic::Location;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{Activity, Query, Signal, Update, Workflow};
use proptest::prelude::*;
use serde::Serialize;

use super::DeterminismTest;

impl DeterminismTest {
    /// A test of this workflow, started with these inputs. Cases are kept beside the file that calls this.
    #[track_caller]
    pub fn of<I: Serialize, O>(
        registry: WorkflowRegistry,
        workflow: Workflow<I, O>,
        inputs: impl Strategy<Value = I> + 'static,
    ) -> Self {
        DeterminismTest { place: Location::caller(), ..Self::new(registry, workflow.workflow_type()).input(inputs) }
    }
    /// Results of an activity; failures, with and without retry, are added.
    pub fn results<I, O: Serialize>(
        self,
        activity: Activity<I, O>,
        results: impl Strategy<Value = O> + 'static,
    ) -> Self {
        self.activity(activity.activity_type(), results)
    }
    /// A signal that may come at any point, any number of times.
    pub fn signals<I: Serialize>(self, signal: Signal<I>, inputs: impl Strategy<Value = I> + 'static) -> Self {
        self.signal(signal.signal_name(), inputs)
    }
    /// An update that may come at any point, any number of times.
    pub fn updates<I: Serialize, O>(self, update: Update<I, O>, inputs: impl Strategy<Value = I> + 'static) -> Self {
        self.update(update.update_name(), inputs)
    }
    /// A query that may be asked at any point, and must change nothing.
    pub fn queries<I: Serialize, O>(self, query: Query<I, O>, input: &I) -> Self {
        self.query(query.query_name(), input)
    }
}
