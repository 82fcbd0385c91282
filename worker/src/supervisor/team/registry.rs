//! The registry of agent instances: who runs, below whom, how deep (supyagent's AgentRegistry).
//!
//! Invariant: a child is one deeper than its parent, and depth counts over processes: the depth this process was
//! started at plus the depth in it. There is one limit and one rule for both, asked **before** a child is started.
//! Every change is noted. Agents that register themselves tell of it ([`Registry::hear`]). It holds no live agent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::supervisor::journal::NoteKind;
pub use crate::supervisor::model::{AgentInstance, InstanceStatus};
use crate::supervisor::outbox::{Answer, Fact, Outbox};

/// How deep delegation goes if nobody says otherwise: an agent at this depth is a leaf.
pub const MAX_DEPTH: u32 = 5;
/// The variable that tells a child process its depth.
pub const DEPTH_VARIABLE: &str = "SUPYAGENT_DELEGATION_DEPTH";

/// `registry_stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RegistryStats {
    pub total: usize,
    pub active: usize,
    pub completed: usize,
    pub failed: usize,
}

/// Two texts for one rule, by what was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DepthExceeded {
    #[error("Maximum delegation depth ({max}) exceeded. Cannot create more sub-agents.")]
    Registration { max: u32 },
    #[error("Maximum delegation depth ({max}) exceeded (depth={depth}). Cannot delegate further.")]
    Process { max: u32, depth: u32 },
}

impl DepthExceeded {
    /// What the agent that tried is told.
    pub fn tool_result(&self) -> Value {
        json!({ "ok": false, "error": self.to_string() })
    }
}

/// The depth a process was started at, checked: `exec --depth 6` prints the error's [`DepthExceeded::tool_result`] and
/// exits with 1.
pub fn check_process_depth(depth: u32, max: u32) -> Result<u32, DepthExceeded> {
    if depth > max { Err(DepthExceeded::Process { max, depth }) } else { Ok(depth) }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registry {
    run: String,
    base_depth: u32,
    max_depth: u32,
    /// How many were ever registered.
    registered: u64,
    /// By number, which is the order of registration.
    instances: BTreeMap<u64, AgentInstance>,
    /// The number of an id.
    numbers: BTreeMap<String, u64>,
}

impl Registry {
    /// `base_depth` is the depth this process was started at, 0 for one that nobody delegated to.
    pub fn new(run: impl Into<String>, base_depth: u32, max_depth: u32) -> Self {
        Registry {
            run: run.into(),
            base_depth,
            max_depth,
            registered: 0,
            instances: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Registers an agent that starts now, below its parent; gives its id. To be called before its first model call.
    pub fn register(&mut self, name: &str, parent: Option<&str>, out: &mut Outbox) -> Result<String, DepthExceeded> {
        let depth = self.may_register(parent)?;
        let instance = AgentInstance {
            name: name.to_owned(),
            instance_id: self.free_id(),
            created_at: out.now(),
            parent_id: parent.map(str::to_owned),
            status: InstanceStatus::Active,
            depth,
        };
        let id = instance.instance_id.clone();
        out.note(NoteKind::AgentRegistered, serde_json::to_value(&instance).unwrap_or_default());
        self.insert(instance);
        Ok(id)
    }

    /// The depth at which an agent below this parent would stand, or that it would be too deep (SUP-07).
    pub fn may_register(&self, parent: Option<&str>) -> Result<u32, DepthExceeded> {
        let depth = parent.map_or(0, |parent| self.get_depth(parent) + 1);
        match self.base_depth.saturating_add(depth) > self.max_depth {
            true => Err(DepthExceeded::Registration { max: self.max_depth }),
            false => Ok(depth),
        }
    }

    /// In this process; 0 for an id that is not known.
    pub fn get_depth(&self, id: &str) -> u32 {
        self.get_instance(id).map_or(0, |instance| instance.depth)
    }
    pub fn get_instance(&self, id: &str) -> Option<&AgentInstance> {
        self.instances.get(self.numbers.get(id)?)
    }
    /// In the order of registration, as every list here.
    pub fn list_all(&self) -> Vec<AgentInstance> {
        self.instances.values().cloned().collect()
    }
    pub fn list_active(&self) -> Vec<AgentInstance> {
        self.list(|instance| instance.status == InstanceStatus::Active)
    }
    pub fn list_children(&self, parent: &str) -> Vec<AgentInstance> {
        self.list(|instance| instance.parent_id.as_deref() == Some(parent))
    }
    pub fn stats(&self) -> RegistryStats {
        let mut stats = RegistryStats { total: self.instances.len(), ..RegistryStats::default() };
        for instance in self.instances.values() {
            match instance.status {
                InstanceStatus::Active => stats.active += 1,
                InstanceStatus::Completed => stats.completed += 1,
                InstanceStatus::Failed => stats.failed += 1,
            }
        }
        stats
    }

    pub fn mark_completed(&mut self, id: &str, out: &mut Outbox) -> bool {
        self.close(id, InstanceStatus::Completed, out)
    }
    pub fn mark_failed(&mut self, id: &str, out: &mut Outbox) -> bool {
        self.close(id, InstanceStatus::Failed, out)
    }
    /// Closes an instance by what its call came to: a delegation that failed leaves nobody active behind.
    pub fn finished(&mut self, id: &str, answer: &Answer, out: &mut Outbox) -> bool {
        if answer.is_ok() { self.mark_completed(id, out) } else { self.mark_failed(id, out) }
    }

    /// Removes one instance, whatever its status.
    pub fn cleanup(&mut self, id: &str, out: &mut Outbox) -> bool {
        let Some(number) = self.numbers.remove(id) else { return false };
        self.instances.remove(&number);
        out.note(NoteKind::AgentRemoved, json!({ "instance_id": id, "reason": "cleanup" }));
        true
    }
    /// Removes what is completed or failed; gives how many.
    pub fn cleanup_completed(&mut self, out: &mut Outbox) -> usize {
        self.remove(|instance| instance.status != InstanceStatus::Active, "finished", out)
    }
    /// Removes what is active and older than `max_age`: its process is gone. Gives how many.
    pub fn prune_stale(&mut self, max_age: Duration, out: &mut Outbox) -> usize {
        let now = out.now();
        let stale = |instance: &AgentInstance| {
            instance.status == InstanceStatus::Active && now.since(instance.created_at) > max_age
        };
        self.remove(stale, "stale", out)
    }

    /// An agent that registers itself has begun, or has ended.
    pub fn hear(&mut self, fact: Fact) {
        match fact {
            Fact::AgentRegistered(instance) => self.insert(instance),
            Fact::AgentClosed { instance_id, status } => self.set(&instance_id, status),
            Fact::WorkEnded(_) => {}
        }
    }

    fn insert(&mut self, instance: AgentInstance) {
        self.registered += 1;
        self.numbers.insert(instance.instance_id.clone(), self.registered);
        self.instances.insert(self.registered, instance);
    }
    fn list(&self, wanted: impl Fn(&AgentInstance) -> bool) -> Vec<AgentInstance> {
        self.instances.values().filter(|instance| wanted(instance)).cloned().collect()
    }
    /// Eight digits collide now and then: the next candidate is taken until one is free.
    fn free_id(&self) -> String {
        let number = self.registered + 1;
        let candidate = |salt: u32| {
            let name = format!("{}/{number}{}", self.run, if salt == 0 { String::new() } else { format!("/{salt}") });
            blake3::hash(name.as_bytes()).to_hex()[..8].to_owned()
        };
        (0..).map(candidate).find(|id| self.get_instance(id).is_none()).unwrap_or_default()
    }
    /// Only an active instance is closed: the first end counts.
    fn close(&mut self, id: &str, status: InstanceStatus, out: &mut Outbox) -> bool {
        let active = self.get_instance(id).is_some_and(|instance| instance.status == InstanceStatus::Active);
        if active {
            self.set(id, status);
            out.note(NoteKind::AgentClosed, json!({ "instance_id": id, "status": status }));
        }
        active
    }
    fn set(&mut self, id: &str, status: InstanceStatus) {
        let instance = self.numbers.get(id).and_then(|number| self.instances.get_mut(number));
        if let Some(instance) = instance {
            instance.status = status;
        }
    }
    fn remove(&mut self, gone: impl Fn(&AgentInstance) -> bool, reason: &str, out: &mut Outbox) -> usize {
        let before = self.instances.len();
        self.instances.retain(|_, instance| {
            let gone = gone(instance);
            if gone {
                let data = json!({ "instance_id": instance.instance_id, "reason": reason });
                out.note(NoteKind::AgentRemoved, data);
                self.numbers.remove(&instance.instance_id);
            }
            !gone
        });
        before - self.instances.len()
    }
}
