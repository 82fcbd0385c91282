//! Keys of something that the same spec leaves switched off: idle, as long as nobody switches it on.
//!
//! Invariant: a value that switches off is never idle by what is said here, so that what is off anyway may be said. It
//! refuses nothing itself.

use super::super::whole::SupervisorSpec;
use super::idle::Idle;

/// What advice is worth, and when it counts (SHN-43, SHN-44).
const ADVICE: [&str; 5] = [
    "memory.override_above",
    "memory.similar_above",
    "memory.success_above",
    "memory.default_confidence",
    "memory.rate_limit_words",
];

pub(super) fn of(spec: &SupervisorSpec) -> Vec<Idle> {
    let mut idle = of_people(spec);
    if !spec.is_without_plan() {
        idle.extend(of_memory(spec));
    }
    if spec.budget.tokens.is_none() && spec.budget.degrade.is_some() {
        idle.push(("budget.degrade", "tokens never run out here: say `budget: { tokens: N }`"));
    }
    idle
}

/// Whom people trust, and what they are only told of, counts where they are asked (SHH-15, SHT-01).
fn of_people(spec: &SupervisorSpec) -> Vec<Idle> {
    let mut idle = Vec::new();
    if !spec.hitl.enabled && !spec.is_without_plan() {
        let why = "nobody is asked: say `hitl.enabled`, `hitl.mode` or `trust.level`";
        idle.extend(["hitl.notify_only", "trust.rules"].map(|key| (key, why)));
        if spec.trust.enabled {
            idle.push(("trust.enabled", why));
        }
    } else if !spec.trust.enabled {
        idle.push(("trust.rules", "`trust.enabled` is false, so no level moves"));
    }
    idle
}

/// What is remembered is of a session, and read by an advisor (SHN-42, SHN-43, SHN-46).
fn of_memory(spec: &SupervisorSpec) -> Vec<Idle> {
    let mut idle = Vec::new();
    let memory = &spec.memory;
    if !memory.advisor {
        idle.extend(ADVICE.map(|key| (key, "nobody is asked for advice: say `memory: { advisor: true }`")));
    }
    if !memory.advisor && !memory.record {
        let why = "nothing is remembered of it, and nothing is read: say `memory: { advisor: true }` or \
                   `memory: { record: true }`";
        idle.push(("memory.session", why));
    }
    if memory.session.is_empty() {
        let why = "nobody's memory is meant: say `memory: { session: NAME }`; whoever starts the run with a session has \
                   that instead";
        let on = [("memory.advisor", memory.advisor), ("memory.record", memory.record)];
        idle.extend(on.into_iter().filter(|(_, on)| *on).map(|(key, _)| (key, why)));
    }
    idle
}
