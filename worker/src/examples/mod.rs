//! Workflows that ship, to learn from and to drive from outside: the [`kitchen_sink`] and the [`order_saga`].
//!
//! Invariant: they use the engine's public API only, like any user's code. The plan runner is not here: it is the first
//! supervisor.

#[cfg(test)]
mod corpus;
pub mod kitchen_sink;
pub mod order_saga;

use bosun_engine::ActivityRegistry;
use bosun_engine::workflow::WorkflowRegistry;

/// Adds the example workflows.
pub fn register(registry: WorkflowRegistry) -> WorkflowRegistry {
    registry
        .workflow(kitchen_sink::KITCHEN_SINK, kitchen_sink::kitchen_sink)
        .workflow(order_saga::ORDER_SAGA, order_saga::order_saga)
}

/// Adds the activities that only the examples use.
pub fn register_activities(registry: &mut ActivityRegistry) {
    order_saga::register_activities(registry);
}
