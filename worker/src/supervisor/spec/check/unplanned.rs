//! Keys that only a planner, or whoever decides, gives something to do: idle in a run of a graph that has neither.
//!
//! Invariant: a planner is also asked where people may want the plan made again, and then nothing here is idle. It
//! refuses nothing itself.

use super::super::sections::PlanningMode;
use super::super::whole::SupervisorSpec;
use super::idle::Idle;

/// What is remembered and advised for a planner (SHN-43, SHN-44).
const ADVICE: [&str; 5] = [
    "memory.override_above",
    "memory.similar_above",
    "memory.success_above",
    "memory.default_confidence",
    "memory.rate_limit_words",
];

/// `decides`: whether somebody decides what runs next.
pub(super) fn of(spec: &SupervisorSpec, decides: bool) -> Vec<Idle> {
    let mut idle = Vec::new();
    if spec.has_planner() || spec.chooses_planning() {
        return idle;
    }
    idle.push(("planning.on_empty", "nobody is asked for a plan before anything is done"));
    if !decides {
        idle.push((
            "planning.built_in",
            "no model plans or decides here, and people may use what is in the box anyway",
        ));
    }
    // Whoever is shown a plan may want another one, and a planner makes it.
    if !spec.planning.approval.required && !spec.hitl.enabled {
        idle.extend(ADVICE.map(|key| (key, "no planner is asked whose plan could be advised")));
        idle.push(("budget.degrade", "no planner is asked, who would say how agents are to think"));
    }
    if spec.planning.mode == PlanningMode::None && spec.seed_plan.is_none() && !decides {
        idle.push(("compensation.on_cancel", "without a plan no task says how it is undone"));
    }
    idle
}
