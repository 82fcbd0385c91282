//! The workflow types of a worker, in both forms.
//!
//! Invariant: a type has one code; registering it again replaces the first. The registry is plain shareable data: any
//! thread can make drivers from it, and it holds no run.

use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::async_driver::{AsyncDriver, WorkflowFunction};
use super::context::WfContext;
use super::context::handlers::PayloadFuture;
use super::machine_driver::{MachineDriver, RestoreError};
use super::signaled_start::SignaledStart;
use super::state_machine::StateMachine;
use crate::reference::WorkflowRef;
use crate::vocabulary::*;

type Create = Arc<dyn Fn(&WorkflowExecutionStarted, RunId, DefectPolicy) -> Box<dyn Driver> + Send + Sync>;
type Restore = Arc<dyn Fn(RunId, &[u8], DefectPolicy) -> Result<Box<dyn Driver>, RestoreError> + Send + Sync>;

type DriverWatch = Arc<dyn Fn(&WorkflowType, Box<dyn Driver>) -> Box<dyn Driver> + Send + Sync>;

type Accepts = Arc<dyn Fn(&Payload) -> Result<(), PayloadError> + Send + Sync>;

#[derive(Clone)]
struct Factory {
    create: Create,
    /// Whether an input can be read as the type's own.
    accepts: Accepts,
    /// State machines only.
    restore: Option<Restore>,
    /// See [`StateMachine::TOLD_OF_QUARANTINE`].
    told_of_quarantine: Option<SignalName>,
}

/// What code a worker has. Each call gives the registry back with one more: use what it gives.
#[derive(Clone, Default)]
#[must_use = "each call gives the registry back with one more workflow"]
pub struct WorkflowRegistry {
    factories: BTreeMap<WorkflowType, Factory>,
    version: String,
    watch: Option<DriverWatch>,
    on_defect: DefectPolicy,
    /// For types that have a policy of their own.
    on_defect_of: BTreeMap<WorkflowType, DefectPolicy>,
}

impl WorkflowRegistry {
    /// A registry without code.
    pub fn new() -> Self {
        Self::default()
    }
    /// The version of the code, for the build id. Change it when workflow code changes.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }
    /// What becomes of runs whose code panics, cannot read a payload or waits for a foreign future. Default: they are
    /// held.
    pub fn on_defect(mut self, policy: DefectPolicy) -> Self {
        self.on_defect = policy;
        self
    }
    /// As [`Self::on_defect`], for the runs of one type.
    pub fn on_defect_of(mut self, workflow_type: impl Into<WorkflowType>, policy: DefectPolicy) -> Self {
        self.on_defect_of.insert(workflow_type.into(), policy);
        self
    }
    fn policy_of(&self, workflow_type: &WorkflowType) -> DefectPolicy {
        self.on_defect_of.get(workflow_type).copied().unwrap_or(self.on_defect)
    }
    /// Adds a state machine under its `TYPE`. A second workflow of the same name replaces the first.
    #[track_caller]
    pub fn state_machine<S: StateMachine>(mut self) -> Self {
        let create: Create =
            Arc::new(|started, run_id, policy| Box::new(MachineDriver::<S>::new(run_id, started, policy)));
        let restore: Restore = Arc::new(|run_id, bytes, policy| {
            Ok(Box::new(MachineDriver::<S>::restore(run_id, bytes, policy)?) as Box<dyn Driver>)
        });
        let told_of_quarantine = S::TOLD_OF_QUARANTINE.map(SignalName::of);
        let accepts: Accepts = Arc::new(|input| input.decode::<S::Input>().map(drop));
        let factory = Factory { create, accepts, restore: Some(restore), told_of_quarantine };
        self.factories.insert(WorkflowType::of(S::TYPE), factory);
        self
    }
    /// Adds an async function under a name, or under a [`Workflow`](crate::Workflow) of its types. A second workflow of the
    /// same name replaces the first.
    #[track_caller]
    pub fn workflow<I, O, F>(
        mut self,
        workflow_type: impl WorkflowRef<I, O>,
        function: impl Fn(WfContext, I) -> F + Send + Sync + 'static,
    ) -> Self
    where
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        F: Future<Output = Result<O, Failure>> + 'static,
    {
        let function = Arc::new(function);
        let create: Create = Arc::new(move |started, run_id, policy| {
            let function = function.clone();
            let start: WorkflowFunction = Rc::new(move |context, input: &Payload| {
                let future = function(context, input.decode()?);
                let encoded: PayloadFuture = Box::pin(async move { Ok(Payload::encode(&future.await?)?) });
                Ok(encoded)
            });
            Box::new(AsyncDriver::new(run_id, started, start, policy))
        });
        let accepts: Accepts = Arc::new(|input| input.decode::<I>().map(drop));
        let factory = Factory { create, accepts, restore: None, told_of_quarantine: None };
        self.factories.insert(workflow_type.into_workflow_type(), factory);
        self
    }

    /// The same code with every driver it makes wrapped, for those who watch or doubt it: simulators, twin runs.
    pub fn watched(
        mut self,
        watch: impl Fn(&WorkflowType, Box<dyn Driver>) -> Box<dyn Driver> + Send + Sync + 'static,
    ) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }

    /// The types that have code.
    pub fn types(&self) -> impl Iterator<Item = &WorkflowType> {
        self.factories.keys()
    }
    /// Whether a type has code.
    pub fn contains(&self, workflow_type: &WorkflowType) -> bool {
        self.factories.contains_key(workflow_type)
    }
    /// Names this set of workflow code: a hash over the version and the type names.
    pub fn build_id(&self) -> BuildId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"bosun build").update(&(self.version.len() as u64).to_be_bytes());
        hasher.update(self.version.as_bytes());
        for workflow_type in self.factories.keys() {
            hasher.update(workflow_type.as_str().as_bytes()).update(&[0]);
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        BuildId(u64::from_be_bytes(bytes))
    }

    /// Whether a run of this type could be started with this input, without starting one.
    ///
    /// # Errors
    /// As a start: no code of the type, or an input that its code cannot read.
    pub fn check_input(&self, workflow_type: &WorkflowType, input: &Payload) -> Result<(), Rejection> {
        let Some(factory) = self.factories.get(workflow_type) else { return Err(self.unknown(workflow_type)) };
        (factory.accepts)(input).map_err(|why| Rejection::Invalid {
            what: format!("the input of the workflow {workflow_type}"),
            why: why.to_string(),
        })
    }
    fn unknown(&self, workflow_type: &WorkflowType) -> Rejection {
        Rejection::UnknownWorkflowType { workflow_type: workflow_type.clone(), known: self.names() }
    }

    /// A driver for a run from its beginning.
    pub fn create(&self, started: &WorkflowExecutionStarted, run_id: RunId) -> Result<Box<dyn Driver>, Rejection> {
        match self.factories.get(&started.workflow_type) {
            Some(factory) => {
                let policy = self.policy_of(&started.workflow_type);
                let driver = (factory.create)(started, run_id, policy);
                Ok(SignaledStart::over(self.watch_over(&started.workflow_type, driver), started))
            }
            None => Err(self.unknown(&started.workflow_type)),
        }
    }
    /// A driver for a run from a snapshot that [`Driver::snapshot`] gave.
    pub fn restore(
        &self,
        workflow_type: &WorkflowType,
        run_id: RunId,
        bytes: &[u8],
    ) -> Result<Box<dyn Driver>, RestoreError> {
        let workflow_type = workflow_type.clone();
        match self.factories.get(&workflow_type) {
            Some(Factory { restore: Some(restore), .. }) => restore(run_id, bytes, self.policy_of(&workflow_type))
                .map(|driver| self.watch_over(&workflow_type, driver)),
            Some(Factory { restore: None, .. }) => Err(RestoreError::NotSupported { workflow_type }),
            None => Err(RestoreError::UnknownWorkflowType { workflow_type, known: self.names() }),
        }
    }
    /// The signal by which runs of a type hear that what they started ends workers.
    pub(crate) fn told_of_quarantine(&self, workflow_type: &WorkflowType) -> Option<&SignalName> {
        self.factories.get(workflow_type)?.told_of_quarantine.as_ref()
    }
    /// Whether runs of a type can come back from a snapshot: state machines can.
    pub fn supports_snapshot(&self, workflow_type: &WorkflowType) -> bool {
        self.factories.get(workflow_type).is_some_and(|factory| factory.restore.is_some())
    }
    fn watch_over(&self, workflow_type: &WorkflowType, driver: Box<dyn Driver>) -> Box<dyn Driver> {
        match &self.watch {
            Some(watch) => watch(workflow_type, driver),
            None => driver,
        }
    }
    fn names(&self) -> Vec<String> {
        self.factories.keys().map(ToString::to_string).collect()
    }
}
