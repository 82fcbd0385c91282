//! Which jobs of a run that carries out a plan anybody is asked to do, by what the values of its spec turn on.
//!
//! Invariant: it never says that nobody is asked where a run of this spec could make the call: what a planner, a decider or a
//! person may still bring up counts as possible, and so does what a child is told that is started for a task. It asks for
//! no preset's name, and refuses nothing itself.

use super::super::sections::{PlanningMode, PolicyKind, ReviewScope, SynthesisMode};
use super::super::whole::SupervisorSpec;
use super::roles::formats;
use crate::supervisor::outbox::Purpose;

/// Why nobody makes a call of this purpose; nothing if somebody does.
// long: one answer for each purpose.
pub(super) fn unasked(spec: &SupervisorSpec, purpose: Purpose) -> Option<&'static str> {
    let (asked, why) = match purpose {
        Purpose::ExecuteWorker => return None,
        Purpose::Plan => {
            let why = "nobody is asked for a plan: `planning.mode` says where it comes from, and nobody sees it first who \
                       could want another one";
            (plans(spec), why)
        }
        Purpose::Decide => {
            let why = "nobody decides on the way: say `dispatch: { selection: supervisor }`, or \
                       `planning: { evaluator: true, replan: true }`";
            (spec.is_decided() || evaluates(spec), why)
        }
        Purpose::Review => match spec.review.scope {
            ReviewScope::None => (false, "nothing is reviewed: say `review: { scope: task }`"),
            ReviewScope::Rules => {
                (false, "each task is judged by rules of its own, and nobody is asked: say `review: { scope: task }`")
            }
            ReviewScope::Task | ReviewScope::Iteration => return None,
        },
        Purpose::Synthesize => {
            // A plan that a request becomes is synthesized anyway (CUG-43).
            let anyway = spec.chooses_planning() || has_children(spec);
            let asked = spec.synthesis.mode == SynthesisMode::Synthesizer || formats(spec) || anyway;
            (asked, "nothing is synthesized: say `synthesis: { mode: synthesizer }`")
        }
        Purpose::Advise | Purpose::FetchMemory => (
            spec.memory.advisor,
            "nobody is asked what earlier runs teach: say `memory: { advisor: true, session: NAME }`",
        ),
        Purpose::RecordDecomposition => {
            (spec.memory.record, "no success is remembered: say `memory: { record: true, session: NAME }`")
        }
        Purpose::AuthorizeTeamAction => {
            let asked = spec.has_team() && spec.team.recruit && spec.team.policy.is_some();
            (asked, "nobody is asked who joins or leaves: say `team: { recruit: true, policy: authorize_team_action }`")
        }
        Purpose::NotifyForApproval | Purpose::LogApprovalResult => {
            let why = "nobody is asked for an approval: say `hitl.enabled`, `planning.approval`, or `requires_approval` of \
                       a task";
            (approves(spec), why)
        }
        Purpose::EmitProgress => {
            (false, "nobody is called for it: `bosun show` and the queries `progress` and `plan` tell how far a run is")
        }
        Purpose::Compensate => {
            (spec.compensation.on_cancel && !is_single(spec), "nothing is undone: see `compensation.on_cancel`")
        }
    };
    (!asked).then_some(why)
}

/// Whether the run is one execution, of which nobody makes a plan.
fn is_single(spec: &SupervisorSpec) -> bool {
    spec.planning.mode == PlanningMode::None
        && spec.seed_plan.is_none()
        && !spec.is_decided()
        && !spec.chooses_planning()
        && spec.review.scope != ReviewScope::Iteration
}

/// Whether somebody is asked for a plan: before anything is done, when a review or an evaluation wants another one, or when a
/// person does who is shown it.
fn plans(spec: &SupervisorSpec) -> bool {
    let is_shown = (spec.planning.approval.required || spec.hitl.enabled) && !is_single(spec);
    spec.has_planner()
        || is_shown
        || evaluates(spec)
        || spec.review.scope == ReviewScope::Iteration
        || has_children(spec)
}

/// Whether somebody is asked after each step if the plan still holds.
fn evaluates(spec: &SupervisorSpec) -> bool {
    spec.has_evaluator() && spec.planning.replan
}

/// Whether a task may become a run of its own that is told who plans and who synthesizes here.
fn has_children(spec: &SupervisorSpec) -> bool {
    spec.hands_on() || (spec.has_team() && spec.team.recruit)
}

/// Whether a person may be asked for an approval: whoever plans or decides may mark a task so.
fn approves(spec: &SupervisorSpec) -> bool {
    let by_policy = spec.policies.iter().any(|policy| policy.kind == PolicyKind::ToolApproval);
    let marked = || spec.plan().ok().flatten().is_some_and(|plan| plan.tasks().any(|task| task.requires_approval));
    spec.hitl.enabled
        || spec.planning.approval.required
        || !spec.planning.policies.approval_agents.is_empty()
        || by_policy
        || spec.review.human
        || spec.is_decided()
        || plans(spec)
        || marked()
}
