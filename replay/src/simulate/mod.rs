//! The simulator: one workflow's life from a plan, on the engine's own machine and drivers, with every fault that a plan
//! can name, and with doubts after every commit.
//!
//! ```text
//!   Plan (data) ──► World ──► Life { histories, outcome, rare states }   or the first Finding
//! ```
//!
//! Invariant: the same plan and the same code give the same life, on any machine and thread. Nothing here knows a clock,
//! a disk or a runtime; a life runs on a plain thread. Which plans are tried is not decided here.

mod attempts;
mod callers;
mod case;
mod client;
mod clues;
mod commit;
mod deploys;
mod doubts;
pub mod engine;
mod finding;
mod guarantees;
mod plan;
mod rare;
mod rest;
mod skipped;
mod snapshot;
mod twins;
mod under_way;
mod watch;
mod world;

use bosun_engine::workflow::WorkflowRegistry;

pub use case::{CaseError, case_text};
pub use clues::Clues;
pub use doubts::{Doubts, RunView};
pub use finding::Violation;
pub(crate) use finding::of_unchanged_code;
pub use plan::{Boundary, LifePlan, LifeStep, PlanFaults};
pub use rare::RARE;
pub use skipped::SkippedField;
pub use world::{Life, SIMULATED_ID};

pub(crate) use callers::with_callers;
pub(crate) use doubts::{on_a_fresh_thread, on_a_named_thread};
pub(crate) use twins::{SeenRun, see, see_again, see_beside, within_a_runtime};

use self::world::{DeliveryOrder, World};

/// The code of a simulated life: the first version, and the ones that are deployed after it.
#[derive(Clone)]
pub struct Versions(Vec<WorkflowRegistry>);

impl Versions {
    /// One version, for ever.
    pub fn of(registry: WorkflowRegistry) -> Self {
        Versions(vec![watch::watched(registry)])
    }
    /// The first version.
    pub(crate) fn first(&self) -> Option<&WorkflowRegistry> {
        self.0.first()
    }
    /// The next version, which must fit every history of the one before.
    pub fn then(mut self, registry: WorkflowRegistry) -> Self {
        self.0.push(watch::watched(registry));
        self
    }
}

/// Lives a plan on a fresh thread, crashing at the commits that are listed by number.
pub fn live(
    plan: &LifePlan,
    versions: &Versions,
    doubts: &Doubts,
    crashes: &[(u32, Boundary)],
) -> Result<Life, Violation> {
    let faults = PlanFaults { crashes: crashes.to_vec(), ..PlanFaults::default() };
    on_a_fresh_thread(|| World::new(plan, &versions.0, doubts, &faults).live())
}

/// Lives a plan on this thread, which must not be within a runtime. Cheaper than [`live`] where many lives are lived.
pub fn live_here(
    plan: &LifePlan,
    versions: &Versions,
    doubts: &Doubts,
    faults: &PlanFaults,
) -> Result<Life, Violation> {
    World::new(plan, &versions.0, doubts, faults).live()
}

/// Lives a plan without its steps twice, with everything arriving in opposite orders: the outcome must be the same.
pub fn order_independent(plan: &LifePlan, versions: &Versions, doubts: &Doubts) -> Result<(), Violation> {
    let plan = LifePlan { steps: Vec::new(), ..plan.clone() };
    let lived = |order| {
        on_a_fresh_thread(|| {
            let mut world = World::new(&plan, &versions.0, doubts, &PlanFaults::default());
            world.order = order;
            world.live()
        })
    };
    let (first, second) = (lived(DeliveryOrder::Fifo)?, lived(DeliveryOrder::Lifo)?);
    if first.outcome == second.outcome {
        return Ok(());
    }
    let text = |life: &Life| format!("{:?}", life.outcome).chars().take(400).collect();
    Err(Violation::OrderDependent { first: text(&first), second: text(&second) })
}
