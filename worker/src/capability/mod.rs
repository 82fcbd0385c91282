//! Capabilities: the activities that are in the box. A task's work is an activity of some capability.
//!
//! Invariant: a capability reaches the world only inside its activity function, and says everything that a workflow may
//! decide on in its result or failure. Capabilities know no supervisor and no plan.

pub mod process;
#[cfg(test)]
pub(crate) mod testing;

use bosun_engine::ActivityRegistry;

use process::{PROCESS, ProcessConfig};

/// What the worker's owner allows its capabilities.
#[derive(Debug, Clone, Default)]
pub struct CapabilityConfig {
    pub process: ProcessConfig,
}

/// Registers all capabilities in the box.
pub fn register(registry: &mut ActivityRegistry, config: &CapabilityConfig) {
    let process = config.process.clone();
    registry.register(PROCESS, move |context, input| process::run(process.clone(), context, input));
}
