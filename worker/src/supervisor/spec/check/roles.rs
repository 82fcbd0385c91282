//! Roles that nobody in this kind of run would ask: refused with their path, like keys that nothing reads.
//!
//! Invariant: a job is named only where a machine of the run makes a call for it, with the values that the spec has. Who is
//! asked in a plan is in `jobs_of_plan`; where a request becomes a plan or a conversation, a job of either may be named.

use super::{CheckResult, jobs_of_plan};
use crate::supervisor::fields::FieldError;
use crate::supervisor::outbox::Purpose;
use crate::supervisor::spec::preset::{Family, Preset};
use crate::supervisor::spec::sections::{ChatTeam, PolicyKind, ReviewScope, SpeakerMethod};
use crate::supervisor::spec::whole::SupervisorSpec;

pub(super) fn check(spec: &SupervisorSpec) -> CheckResult {
    let usual = spec.preset.map(Preset::values).unwrap_or_default();
    let own = [
        ("planner", Purpose::Plan, spec.planner != usual.planner),
        ("supervisor", Purpose::Decide, spec.supervisor != usual.supervisor),
        ("reviewer", Purpose::Review, spec.reviewer != usual.reviewer),
        ("synthesizer", Purpose::Synthesize, spec.synthesizer != usual.synthesizer),
        ("advisor", Purpose::Advise, spec.advisor != usual.advisor),
    ];
    let own = own.into_iter().filter(|(.., given)| *given).map(|(at, purpose, _)| (at.to_owned(), purpose));
    let services = spec.services.keys().map(|purpose| (format!("services.{}", purpose.as_str()), *purpose));
    for (at, purpose) in own.chain(services) {
        if let Some(why) = unasked(spec, purpose) {
            return Err(FieldError::at(at, format!("has no effect here: {why}")));
        }
    }
    let planned = spec.family() == Family::Graph || spec.chooses_planning();
    // A spec without a preset says nothing of reviews by what it has anyway.
    if planned || spec.review.scope == usual.review.scope { Ok(()) } else { scope(spec) }
}

/// Why nobody makes a call of this purpose; nothing if somebody does.
fn unasked(spec: &SupervisorSpec, purpose: Purpose) -> Option<&'static str> {
    if spec.is_without_plan() {
        return match purpose {
            // Of a conversation whose kind the request decides, who decides is the one who leads it.
            Purpose::Decide if spec.chooses_planning() && spec.supervisor.is_some() => None,
            purpose => unasked_without_plan(spec, purpose),
        };
    }
    let why = jobs_of_plan::unasked(spec, purpose)?;
    if !spec.chooses_planning() {
        return Some(why);
    }
    match purpose {
        Purpose::Decide => None,
        purpose => unasked_without_plan(spec, purpose).map(|_| why),
    }
}

/// The same of a chat, or of agents that call tools.
fn unasked_without_plan(spec: &SupervisorSpec, purpose: Purpose) -> Option<&'static str> {
    let chat = spec.family() == Family::Chat;
    let (asked, why) = match purpose {
        Purpose::ExecuteWorker => return None,
        Purpose::Plan if chat => (spec.speaker.team == ChatTeam::Magentic, "only a `magentic` team plans"),
        Purpose::Plan => (false, "without a plan nobody is asked for one: who begins gives work away as it goes"),
        Purpose::Decide if chat => (
            selects(spec),
            "nobody is asked who speaks next: in a swarm it is whoever is handed over to, and `round_robin` and `manual` ask \
             no model",
        ),
        Purpose::Decide => {
            (false, "the agents themselves decide: who begins is `delegation.root`, or the first of `agents`")
        }
        Purpose::Review if chat => {
            (false, "a chat reviews nothing; what ends it is `speaker.termination` or `loop.max_rounds`")
        }
        Purpose::Review if spec.is_crew() => (
            validates(spec),
            "nobody is asked to validate an output: say `review: { scope: task }`, or `parameters: { guardrail: NAME }` of a \
             task",
        ),
        Purpose::Review => {
            (false, "agents that call tools are reviewed by nobody; `policies` say what a person approves")
        }
        Purpose::Synthesize if chat => {
            (spec.speaker.team == ChatTeam::Magentic, "only a `magentic` team gives a final answer of its own")
        }
        Purpose::Synthesize => (formats(spec), "only an `output_formatter` with `instructions` is asked for by a call"),
        Purpose::NotifyForApproval | Purpose::LogApprovalResult => {
            (asks_people(spec), "nobody is asked for an approval: say `hitl.enabled`, `hitl.mode` or `trust.level`")
        }
        Purpose::Advise | Purpose::FetchMemory => (false, "only whoever plans is told what earlier runs teach"),
        Purpose::RecordDecomposition => (false, "only of a plan is remembered how it was made"),
        Purpose::AuthorizeTeamAction => (false, "nobody joins or leaves here: the team is `agents`"),
        Purpose::EmitProgress => {
            (false, "only a plan tells its progress so; `bosun show` and the query `progress` tell it here")
        }
        Purpose::Compensate => (false, "nothing is undone here"),
    };
    (!asked).then_some(why)
}

/// Whether somebody is asked who speaks next.
fn selects(spec: &SupervisorSpec) -> bool {
    let speaker = &spec.speaker;
    let method = !matches!(speaker.method, SpeakerMethod::Manual | SpeakerMethod::RoundRobin);
    match speaker.team {
        ChatTeam::Magentic => true,
        ChatTeam::Swarm => false,
        ChatTeam::GroupChat => method,
        ChatTeam::Selector => method || speaker.selector_function || speaker.candidate_function,
    }
}

/// Whether an output of a crew is validated.
fn validates(spec: &SupervisorSpec) -> bool {
    let named = |key: &str| {
        let plan = spec.plan().ok().flatten();
        plan.is_some_and(|plan| plan.tasks().any(|task| task.parameters.get(key).is_some_and(|name| !name.is_null())))
    };
    (spec.review.scope == ReviewScope::Task && spec.reviewer.is_some()) || named("guardrail")
}

/// Whether a policy has somebody put the result into its form (CUG-39).
pub(super) fn formats(spec: &SupervisorSpec) -> bool {
    spec.policies.iter().any(|policy| policy.kind == PolicyKind::OutputFormatter && policy.instructions.is_some())
}

/// Whether a person may be asked for an approval.
fn asks_people(spec: &SupervisorSpec) -> bool {
    let required = || spec.plan().ok().flatten().is_some_and(|plan| plan.tasks().any(|task| task.requires_approval));
    spec.hitl.enabled || (spec.is_crew() && required())
}

/// What a crew has validated are outputs, one by one.
fn scope(spec: &SupervisorSpec) -> CheckResult {
    if !spec.is_crew() {
        return Ok(());
    }
    let why = match spec.review.scope {
        ReviewScope::None => return Ok(()),
        ReviewScope::Task if spec.reviewer.is_some() => return Ok(()),
        ReviewScope::Task => "nobody validates: say in `reviewer` who does",
        ReviewScope::Iteration | ReviewScope::Rules => {
            "a crew has each output validated for itself (`task`), or none (`none`)"
        }
    };
    Err(FieldError::at("review.scope", format!("has no effect here: {why}")))
}
