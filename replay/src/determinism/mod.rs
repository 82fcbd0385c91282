//! Determinism tests for users' workflows: in one line of `cargo test`, many simulated lives of a workflow, each doubted.
//!
//! ```
//! use std::time::Duration;
//! use bosun_engine::workflow::{WfContext, WorkflowRegistry};
//! use bosun_engine::{Activity, Failure, Signal, Workflow};
//! use bosun_replay::determinism::DeterminismTest;
//! use proptest::prelude::*;
//!
//! const PAY: Workflow<u64, String> = Workflow::named("pay");
//! const CHARGE: Activity<u64, String> = Activity::named("charge").start_to_close(Duration::from_secs(10));
//! const APPROVE: Signal<bool> = Signal::named("approve");
//!
//! async fn pay(ctx: WfContext, cents: u64) -> Result<String, Failure> {
//!     let receipt = ctx.call(CHARGE, &cents).await?;
//!     ctx.timer(Duration::from_secs(3_600)).await?;
//!     let approved = ctx.signal_channel(APPROVE).recv().await?;
//!     Ok(format!("{receipt}, approved: {approved}"))
//! }
//!
//! DeterminismTest::of(WorkflowRegistry::new().workflow(PAY, pay), PAY, 0..1_000_u64)
//!     .results(CHARGE, "[a-z]{1,8}")
//!     .signals(APPROVE, any::<bool>())
//!     .invariant("charged once", |run| match run.scheduled(CHARGE.name()).len() {
//!         0 | 1 => Ok(()),
//!         n => Err(format!("{n} charges")),
//!     })
//!     .run();
//! ```
//!
//! Without references there are `new`, `input`, `activity`, `signal`, `update` and `query`, by name.
//!
//! Each life has results and failures of activities in any order (lost, late, twice), signals and cancellation at any
//! point, time that jumps, eviction, deploys, and crashes at every boundary of a commit. After every commit (above forty
//! turns after every eighth) the history is replayed with fresh code. What goes wrong is made small, printed with its seed
//! and the command that repeats it, and kept as a `.case` file beside the test, which is tried first from then on.
//!
//! Invariant: the same seed gives the same lives, on every machine; a test draws its lives from its own name, so that it
//! gives the same answer every time. `BOSUN_CASES` tries more, `BOSUN_MASTER_SEED` others, `BOSUN_SEED` exactly one.

mod allowed;
mod answer;
mod beside;
mod by_reference;
mod cases;
mod elsewhere;
mod many;
mod place;
mod report;
mod search;
mod steps;
mod strategies;
mod trip;
pub mod wires;

use std::panic::Location;
use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use proptest::prelude::*;
use serde::Serialize;

pub(crate) use allowed::Allowed;
pub(crate) use place::callers_on;
pub use report::{Failed, Report};
pub use trip::{CallSite, ForbiddenCall, Trip};
pub use wires::armed;
pub(crate) use wires::{Perturbation, forget_suspects, perturbed, suspect, suspects, take_trips};

use self::strategies::{Drawn, any_json, with_failures};
use crate::simulate::{Doubts, RunView, Versions};

/// What a search that is no test is told: its seed, and whether to live only that one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fuzz {
    pub(crate) master: u64,
    pub(crate) only: Option<u64>,
}

/// A determinism test of one workflow.
pub struct DeterminismTest {
    pub(crate) versions: Versions,
    pub(crate) drawn: Drawn,
    pub(crate) doubts: Doubts,
    pub(crate) lives: u32,
    /// How often each drawn plan is lived again with other steps.
    pub(crate) schedules: u32,
    pub(crate) threads: usize,
    pub(crate) order_independent: bool,
    pub(crate) must_meet: Vec<&'static str>,
    pub(crate) gets_nowhere: bool,
    pub(crate) place: &'static Location<'static>,
    pub(crate) keep_cases: bool,
    pub(crate) other_process: bool,
    pub(crate) case_folder: Option<std::path::PathBuf>,
    /// Without types: of a command, not of a test.
    pub(crate) fuzz: Option<Fuzz>,
}

impl DeterminismTest {
    /// A test of the workflow of this type. Cases are kept beside the file that calls this.
    #[track_caller]
    pub fn new(registry: WorkflowRegistry, workflow_type: impl Into<WorkflowType>) -> Self {
        DeterminismTest {
            versions: Versions::of(registry),
            drawn: Drawn {
                workflow_type: workflow_type.into(),
                input: Just(Payload::null()).boxed(),
                results: Vec::new(),
                other_results: None,
                children: Vec::new(),
                signals: Vec::new(),
                updates: Vec::new(),
                queries: Vec::new(),
                deploys: false,
                steps_max: 30,
            },
            doubts: Doubts { typed: true, ..Doubts::default() },
            lives: 256,
            schedules: 0,
            threads: 1,
            order_independent: false,
            must_meet: Vec::new(),
            gets_nowhere: false,
            place: Location::caller(),
            keep_cases: true,
            other_process: true,
            case_folder: None,
            fuzz: None,
        }
    }

    /// A search without types, for a command line: any JSON (or the one input) goes in, activities give any JSON, and
    /// signals that the code was seen to wait for come. The environment is not asked, and no case is kept.
    #[track_caller]
    pub fn fuzz(
        registry: WorkflowRegistry,
        workflow_type: impl Into<WorkflowType>,
        input: Option<Payload>,
        master_seed: u64,
    ) -> Self {
        let mut this = Self::new(registry, workflow_type).other_activities().without_case_files();
        this.drawn.input = input.map_or_else(any_json, |input| Just(input).boxed());
        this.fuzz = Some(Fuzz { master: master_seed, only: None });
        for name in this.signals_waited_for() {
            this.drawn.signals.push((name, any_json()));
        }
        this
    }
    /// Only the life of this seed.
    pub fn only(mut self, seed: u64) -> Self {
        if let Some(fuzz) = &mut self.fuzz {
            fuzz.only = Some(seed);
        }
        self
    }
    /// An activity that always gives this result; failures, with and without retry, are added.
    pub fn activity_gives(mut self, name: impl Into<ActivityType>, result: Payload) -> Self {
        self.drawn.results.push((name.into(), with_failures(Just(result).boxed())));
        self
    }
    /// What the workflow is started with. Default: `null`. An input, a result or a signal of another type than the code
    /// reads is found as a mistake of the test, of the kind `setup`.
    pub fn input<T: Serialize>(mut self, inputs: impl Strategy<Value = T> + 'static) -> Self {
        self.drawn.input = encoded(inputs);
        self
    }
    /// Results of an activity; failures, with and without retry, are added.
    pub fn activity<T: Serialize>(
        mut self,
        name: impl Into<ActivityType>,
        results: impl Strategy<Value = T> + 'static,
    ) -> Self {
        self.drawn.results.push((name.into(), with_failures(encoded(results))));
        self
    }
    /// As [`Self::activity`], with exactly these ends.
    pub fn activity_ends<T: Serialize>(
        mut self,
        name: impl Into<ActivityType>,
        ends: impl Strategy<Value = Result<T, Failure>> + 'static,
    ) -> Self {
        let ends = ends.prop_map(|end| match end {
            Ok(result) => ActivityOutcome::Completed(payload(&result)),
            Err(failure) => ActivityOutcome::Failed(failure),
        });
        self.drawn.results.push((name.into(), ends.boxed()));
        self
    }
    /// An activity whose result is a function of its input; now and then it fails, with and without retry.
    pub fn activity_answers(
        mut self,
        name: impl Into<ActivityType>,
        answers: impl Fn(&Payload) -> ActivityOutcome + Send + Sync + 'static,
    ) -> Self {
        let name = name.into();
        self.doubts.answers.insert(name.clone(), Arc::new(answers));
        let done = Just(ActivityOutcome::Completed(Payload::null()));
        let ends = prop_oneof![3 => done, 1 => with_failures(Just(Payload::null()).boxed())];
        self.drawn.results.push((name, ends.boxed()));
        self
    }
    /// Activities that are not named give any JSON. That the code cannot read it all is then no mistake of the test.
    pub fn other_activities(mut self) -> Self {
        self.doubts.typed = false;
        self.drawn.other_results = Some(with_failures(any_json()));
        self
    }
    /// How child workflows of a type end whose code is not in the registry; failures are added.
    pub fn child<T: Serialize>(
        mut self,
        name: impl Into<WorkflowType>,
        results: impl Strategy<Value = T> + 'static,
    ) -> Self {
        let failure = Failure::application("Simulated", "the simulated child failed");
        let ends = prop_oneof![
            4 => encoded(results).prop_map(CloseOutcome::Completed),
            1 => Just(CloseOutcome::Failed(failure)),
        ];
        self.drawn.children.push((name.into(), ends.boxed()));
        self
    }
    /// A signal that may come at any point, any number of times.
    pub fn signal<T: Serialize>(
        mut self,
        name: impl Into<SignalName>,
        inputs: impl Strategy<Value = T> + 'static,
    ) -> Self {
        self.drawn.signals.push((name.into(), encoded(inputs)));
        self
    }
    /// An update that may come at any point, any number of times.
    pub fn update<T: Serialize>(
        mut self,
        name: impl Into<UpdateName>,
        inputs: impl Strategy<Value = T> + 'static,
    ) -> Self {
        self.drawn.updates.push((name.into(), encoded(inputs)));
        self
    }
    /// A query that may be asked at any point, and must change nothing.
    pub fn query(mut self, name: impl Into<QueryName>, input: &impl Serialize) -> Self {
        self.drawn.queries.push((name.into(), payload(input)));
        self
    }
    /// What must hold of every run after every commit.
    pub fn invariant(
        mut self,
        name: impl Into<String>,
        holds: impl Fn(&RunView<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.doubts.invariants.push((name.into(), Arc::new(holds)));
        self
    }
    /// The next version of the code, which must fit all histories: it is deployed in the middle of some lives, and loaded at
    /// every turn of the others.
    pub fn deploys(mut self, next: WorkflowRegistry) -> Self {
        self.versions = self.versions.then(next);
        self.drawn.deploys = true;
        self
    }
    /// The result must not depend on the order in which activities end.
    pub fn order_independent(mut self) -> Self {
        self.order_independent = true;
        self
    }
    /// A call that the code may make after all, wherever it does. [`Self::allow_at`] allows less.
    pub fn allow(mut self, call: ForbiddenCall) -> Self {
        self.doubts.allowed.everywhere(call);
        self
    }
    /// A call that the code may make at one place: `flows.rs:12` (a file and a line), `flows.rs` (a whole file), or the end
    /// of a function's path as the finding prints it, `audit::stamp`. A function is allowed with all that it calls.
    pub fn allow_at(mut self, call: ForbiddenCall, site: impl Into<String>) -> Self {
        self.doubts.allowed.at(call, site.into());
        self
    }
    /// No twin in another process. It is run when nothing is wrong here: the test binary executes itself again, with other
    /// arguments, environment, directory, time zone and locale, and replays histories of this process.
    pub fn in_this_process_only(mut self) -> Self {
        self.other_process = false;
        self
    }
    /// Panics of the workflow code are part of what it does.
    pub fn allow_panics(mut self) -> Self {
        self.doubts.panics_allowed = true;
        self
    }
    /// All lives may fail, or end in their first turn, or wait for signals that the test does not send: that is what the
    /// workflow does. Without this such a test fails, since it says next to nothing of the code.
    pub fn gets_nowhere(mut self) -> Self {
        self.gets_nowhere = true;
        self
    }
    /// The workflow never comes to rest, by design.
    pub fn runs_for_ever(mut self) -> Self {
        self.doubts.runs_for_ever = true;
        self.doubts.heal_commits = Some(100);
        self
    }
    /// How many lives are tried. Default 256; `BOSUN_CASES` overrides.
    pub fn lives(mut self, lives: u32) -> Self {
        self.lives = lives;
        self
    }
    /// For very many lives: each drawn plan is also lived so many times with other steps. These lives are judged by the
    /// guarantees, the invariants and one whole replay; each sixteenth has every prefix replayed. The seed of a failure
    /// repeats the drawn plan with all of its steps.
    pub fn schedules(mut self, schedules: u32) -> Self {
        self.schedules = schedules;
        self
    }
    /// Lives on as many threads as there are cores. What is found is the same.
    pub fn on_all_cores(mut self) -> Self {
        self.threads = std::thread::available_parallelism().map_or(1, usize::from);
        self
    }
    /// How many steps a life has at most. Default 30.
    pub fn steps(mut self, most: usize) -> Self {
        self.drawn.steps_max = most;
        self
    }
    /// How often the finished history is run again, disturbed. Default 2.
    pub fn twins(mut self, twins: u32) -> Self {
        self.doubts.twins = twins;
        self
    }
    /// Rare states that the lives together must meet (names of [`crate::simulate::RARE`]), or the test fails.
    pub fn must_meet(mut self, rare: &[&'static str]) -> Self {
        self.must_meet.extend(rare);
        self
    }
    /// Keeps cases in this folder instead of beside the test; it is made with the first one.
    pub fn cases_in(mut self, folder: impl Into<std::path::PathBuf>) -> Self {
        self.case_folder = Some(folder.into());
        self.keep_cases = true;
        self
    }
    /// Keeps no files.
    pub fn without_case_files(mut self) -> Self {
        self.keep_cases = false;
        self
    }

    /// Tries; panics with a report if something is wrong. The end of a `#[test]`.
    #[track_caller]
    pub fn run(self) -> Report {
        match self.check() {
            Ok(report) => report,
            Err(failed) => panic!("{failed}"),
        }
    }
}

fn payload(value: &impl Serialize) -> Payload {
    match Payload::encode(value) {
        Ok(payload) => payload,
        Err(why) => panic!("a value of the test cannot be a payload: {why}"),
    }
}

fn encoded<T: Serialize>(values: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Payload> {
    values.prop_map(|value| payload(&value)).boxed()
}
