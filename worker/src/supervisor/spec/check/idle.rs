//! Keys that another value of the same spec leaves without effect: refused with their path, like keys that nothing reads.
//!
//! Invariant: only what differs from the preset is refused, and only where no run of this spec could tell the difference.
//! It knows no machine; what each kind of run reads at all is in `effect`.
//!
//! Long: one list of keys, with why each is idle.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::preset::Family;
use super::super::sections::{
    ChatTeam, DelegationProtocol, HandoffControl, OnDelegationTimeout, OnExhausted, OnSubtaskError, Parallelism,
    PlanningMode, PolicyKind, ReviewScope, RoundCount, Selection, SpeakerMethod, SynthesisMode,
};
use super::super::whole::{Authority, SupervisorSpec};
use super::{CheckResult, switched_off, unplanned};
use crate::supervisor::TaskItem;
use crate::supervisor::fields::FieldError;

/// A key, and why it changes nothing.
pub(super) type Idle = (&'static str, &'static str);

/// Of a chat whose next speaker is chosen among several.
const CHOOSING: [&str; 10] = [
    "speaker.method",
    "speaker.retries",
    "speaker.fallback",
    "speaker.allow_repeat",
    "speaker.transitions",
    "speaker.transitions_type",
    "speaker.func_call_filter",
    "speaker.manual_tries",
    "speaker.selector_function",
    "speaker.candidate_function",
];
/// Of a run of several tasks.
const SEVERAL_TASKS: [&str; 10] = [
    "dispatch.max_concurrency",
    "dispatch.parallelism",
    "dependencies.honour",
    "dependencies.requires",
    "dependencies.on_failure",
    "dependencies.on_cancelled",
    "dependencies.on_unmet",
    "dependencies.cancel_running",
    "dependencies.wait_timeout",
    "dependencies.topics",
];
/// Of whoever reviews.
const JUDGED: [&str; 2] = ["review.criteria", "review.accept_below_score"];
const ROUTING: [&str; 6] = [
    "routing.entry",
    "routing.supervisor_above",
    "routing.deps_to",
    "routing.simple_up_to",
    "routing.simple_below",
    "routing.zero_subtasks_simple",
];
const SYNTHESIS: [&str; 5] = [
    "synthesis.tries",
    "synthesis.dedupe",
    "synthesis.bypass_single",
    "synthesis.own_result_chars",
    "synthesis.of_nothing",
];
/// Of a team and its mailbox.
const OF_TEAM: [&str; 12] = [
    "team.max_size",
    "team.recruit",
    "team.recruit_join",
    "team.late_recruits",
    "team.policy",
    "team.rules",
    "mailbox.limit",
    "mailbox.queue",
    "mailbox.trim",
    "mailbox.payload_max",
    "mailbox.fetch_window",
    "mailbox.ttl",
];
/// Of a router.
const OF_ROUTER: [&str; 3] = ["routing.supervisor_above", "routing.simple_up_to", "routing.deps_to"];
/// Of people, what only a plan and its tasks give them to look at.
const OF_PLANS: [Idle; 6] = [
    (
        "hitl.triggers.confidence",
        "nobody says here how sure they are; `human_in_command` asks before everything that is done",
    ),
    ("hitl.triggers.action_cost", "nothing says here what it costs before it is done; `budget.cost` limits the run"),
    ("hitl.triggers.out_of_scope", "whoever calls somebody that there is not is told so at once, and goes on"),
    ("hitl.plan_policy", "there is no plan that could be approved"),
    ("hitl.gates", "people are asked before something is done: what an agent says here proposes no action"),
    ("hitl.order", "what is sensitive is named before failures in a row, and there are no other reasons here"),
];
/// Of people, what is counted when work ends.
const COUNTED: [&str; 2] = ["hitl.triggers.consecutive_failures", "trust.rules"];
/// Why nothing is counted.
pub(super) const ONE_WORK: &str = "whoever takes over for good goes on with the same work: nothing fails in a row here, and \
                                   trust moves with incidents only";
/// Of questions, what is asked where the run itself asks none.
const QUESTIONS_OF_AGENTS: &str = "the run itself asks nobody anything but approvals, whose time is `hitl.approval`; a \
                                   question of an agent says its own `timeout` in `interrupt`";
/// Why a key may not make a run of another kind.
pub(super) const KIND_OF_RUN: &str = "the preset says what kind of run this is, and so who comes next";
/// What a controller may do (CUG-07).
const CONTROLLING: [Authority; 2] = Authority::CHOOSING;

/// `base` and `given` are the preset's values and the spec's, as JSON.
pub(super) fn check(spec: &SupervisorSpec, base: &SupervisorSpec, values: (&Value, &Value)) -> CheckResult {
    let differs = |path: &str| {
        let at = format!("/{}", path.replace('.', "/"));
        values.0.pointer(&at).unwrap_or(&Value::Null) != values.1.pointer(&at).unwrap_or(&Value::Null)
    };
    match of(spec, base).into_iter().find(|(path, _)| differs(path)) {
        Some((path, why)) => Err(FieldError::at(path, format!("has no effect here: {why}"))),
        None => authority(spec, base),
    }
}

/// All keys that change nothing here, whatever they say.
pub(super) fn of(spec: &SupervisorSpec, base: &SupervisorSpec) -> Vec<Idle> {
    let mut idle = match spec.family() {
        Family::Chat => of_chat(spec),
        Family::Graph => of_graph(spec),
        Family::Agents => of_agents(spec, base),
    };
    idle.extend([of_preset(spec), of_shannon(spec), switched_off::of(spec)].concat());
    if spec.budget.cost.is_none() {
        idle.push(("budget.allow_unpriced", "no money is limited: `budget.cost` does that"));
    }
    if !asks_questions(spec) {
        let why = match spec.family() {
            Family::Chat => "the run asks nobody anything but approvals, whose time is `hitl.approval`",
            Family::Agents | Family::Graph => QUESTIONS_OF_AGENTS,
        };
        idle.push(("hitl.questions", why));
    }
    if spec.is_without_plan() {
        idle.extend(OF_PLANS);
        idle.extend(COUNTED.into_iter().filter(|_| is_one_work(spec)).map(|key| (key, ONE_WORK)));
        let why = "nobody is asked: say `hitl.enabled`, `hitl.mode` or `trust.level`";
        let unheard = ["hitl.approval", "hitl.notify_only", "trust.enabled", "trust.rules"];
        // A task of a crew may want an approval by itself.
        let marked = || spec.plan().ok().flatten().is_some_and(|plan| plan.tasks().any(|task| task.requires_approval));
        let is_asked = spec.hitl.enabled || (spec.is_crew() && marked());
        let unheard = unheard.into_iter().filter(|key| match *key {
            "hitl.approval" => !is_asked,
            _ => !spec.hitl.enabled,
        });
        idle.extend(unheard.map(|key| (key, why)));
    }
    idle
}

/// Whether all that is done is one piece of work, from the first agent to the last.
pub(super) fn is_one_work(spec: &SupervisorSpec) -> bool {
    spec.family() == Family::Agents && spec.handoff_control() == Some(HandoffControl::Switch) && spec.steps.is_empty()
}

/// Whether the run itself may ask people something that is no approval.
fn asks_questions(spec: &SupervisorSpec) -> bool {
    let of_policy = spec.policies.iter().any(|policy| policy.kind == PolicyKind::ToolApproval);
    match spec.family() {
        // A function may name `manual` as well.
        Family::Chat => matches!(spec.speaker.method, SpeakerMethod::Manual | SpeakerMethod::Function),
        Family::Agents => of_policy || spec.is_crew(),
        Family::Graph => of_policy && spec.chooses_planning(),
    }
}

/// What a preset has decided.
fn of_preset(spec: &SupervisorSpec) -> Vec<Idle> {
    let mut idle = Vec::new();
    if spec.preset.is_none() {
        return idle;
    }
    let tasks = !matches!(spec.dispatch.selection, Selection::Speaker | Selection::Agent);
    if spec.family() != Family::Graph || !tasks {
        idle.push(("dispatch.selection", KIND_OF_RUN));
    }
    if spec.family() == Family::Graph && !spec.chooses_planning() && spec.planning.mode == PlanningMode::Todos {
        idle.push(("planning.mode", "an agent keeps a list of todos, and here tasks are done by a plan"));
    }
    if spec.chooses_planning() && spec.family() == Family::Agents && spec.synthesis.mode == SynthesisMode::Synthesizer {
        idle.push((
            "synthesis.mode",
            "a plan is synthesized anyway, and the last message of a conversation is its result",
        ));
    }
    if spec.chooses_planning() {
        idle.push(("planning.evaluator", "who leads the conversation or controls the plan sees what every step gave"));
    }
    if !spec.has_evaluator() {
        idle.push(("planning.replan", "without `planning.evaluator` nobody asks whether the plan is made again"));
    }
    idle
}

fn of_chat(spec: &SupervisorSpec) -> Vec<Idle> {
    let team = spec.speaker.team;
    let mut idle = Vec::new();
    let mut all = |keys: &[&'static str], why| idle.extend(keys.iter().map(|key| (*key, why)));
    match team {
        ChatTeam::GroupChat => all(&CHOOSING[8..], "only a `selector` team asks a function beside the model"),
        ChatTeam::Selector => {}
        ChatTeam::Swarm => all(&CHOOSING, "in a swarm whoever is handed over to speaks next"),
        ChatTeam::Magentic => {
            all(&CHOOSING, "in a `magentic` team the progress ledger names who speaks next");
            all(&["loop.count"], "a `magentic` team counts its progress ledgers");
        }
    }
    if team != ChatTeam::Magentic {
        all(&["speaker.ledger"], "only a `magentic` team keeps ledgers");
        if spec.budget.on_exhausted == OnExhausted::Synthesize {
            all(&["budget.on_exhausted"], "only a `magentic` team puts together what was said, so this is `stop`");
        }
    }
    idle
}

fn of_agents(spec: &SupervisorSpec, base: &SupervisorSpec) -> Vec<Idle> {
    let mut idle = match spec.run_loop.max_rounds {
        Some(_) => vec![("loop.max_steps", "`loop.max_rounds` bounds this run")],
        None => vec![("loop.count", "without `loop.max_rounds` nothing is counted by it")],
    };
    let messages = [RoundCount::Messages, RoundCount::MessagesWithOpening];
    if [spec.run_loop.count, base.run_loop.count].iter().all(|count| messages.contains(count)) {
        idle.push(("loop.count", "the opening is not counted here, so this is `messages`"));
    }
    let outputs = spec.is_crew() || !spec.steps.is_empty();
    if outputs {
        idle.push((
            "handoff.execute_tools",
            "a task is done by its answer, and calls that nobody carries out are none",
        ));
    }
    if spec.is_crew() {
        idle.push(("delegation.root", "the manager leads the crew"));
    }
    if spec.is_crew() && !is_guarded(spec) {
        let why =
            "no task of the crew has a guardrail (`parameters.guardrail`, or `reviewer` with `review.scope: task`)";
        idle.extend(["review.tries", "review.guardrail_retries"].map(|key| (key, why)));
    }
    if spec.handoff_control() == Some(HandoffControl::Return) && !spec.handoff.parallel {
        idle.push(("delegation.parallel", "one call is made after the other: say `handoff: { parallel: true }`"));
    }
    if outputs && spec.budget.on_exhausted == OnExhausted::Synthesize {
        idle.push(("budget.on_exhausted", "what there is are the outputs that are done, so this is `stop`"));
    }
    if spec.delegation_protocol() != DelegationProtocol::Processes
        && spec.delegation.on_timeout == OnDelegationTimeout::Background
    {
        idle.push(("delegation.on_timeout", "nobody looks at what goes on in the background, so this is `fail`"));
    }
    idle
}

/// Whether somebody validates an output of the crew (CRW-10).
fn is_guarded(spec: &SupervisorSpec) -> bool {
    let named = |task: &TaskItem| task.parameters.get("guardrail").is_some_and(|guard| !guard.is_null());
    let by_reviewer = spec.reviewer.is_some() && spec.review.scope == ReviewScope::Task;
    by_reviewer || spec.plan().ok().flatten().is_some_and(|plan| plan.in_list_order().any(named))
}

// long: one key after the other.
fn of_graph(spec: &SupervisorSpec) -> Vec<Idle> {
    let mut idle = unplanned::of(spec, decides(spec));
    // What a request of CUGA becomes is not known yet.
    if spec.chooses_planning() {
        return idle;
    }
    let mut all = |keys: &[&'static str], why| idle.extend(keys.iter().map(|key| (*key, why)));
    if !spec.routing.enabled {
        all(&ROUTING, "`routing.enabled` is false, so nothing is handed on");
    }
    if !spec.has_team() {
        all(&["team.assign_roles"], "there is no team whose members could have roles: say `team: { enabled: true }`");
    }
    let selection = spec.dispatch.selection;
    if selection == Selection::Controller && !spec.has_decider() {
        all(&["dispatch.selection"], "nobody plays the controller: say who does in `supervisor` or `script`");
    }
    if selection == Selection::One || spec.dispatch.parallelism == Parallelism::Sequential {
        all(&SEVERAL_TASKS[..1], "one task runs at a time");
    }
    let single = spec.planning.mode == PlanningMode::None && spec.seed_plan.is_none();
    if single && !decides(spec) {
        all(&SEVERAL_TASKS, "without a plan the run is one task");
        all(&["dispatch.selection"], "without a plan the run is one task");
    }
    if selection == Selection::Supervisor && spec.planning.mode == PlanningMode::Llm && spec.seed_plan.is_none() {
        let why = "the supervisor adds task after task, and there is no plan that could be approved first: \
                   `hitl.mode: human_in_command` or `planning.policies.approval_agents` asks before each";
        all(&["planning.approval"], why);
    }
    if selection != Selection::Supervisor {
        all(&["loop.no_progress"], "nobody decides cycle after cycle, so that none is without progress");
    }
    if !spec.planning.is_upfront() {
        all(&["planning.strategy"], "delegations are not planned upfront (`planning.mode: upfront`)");
    }
    if !spec.planning.approval.required {
        let why = "nobody approves the plan: say `planning: { approval: { required: true } }`";
        all(&["planning.approval.timeout", "planning.approval.max_rounds"], why);
    }
    if spec.failure.threshold_bp.is_none() {
        all(&["failure.count_recruits"], "without `failure.threshold_bp` failures end no run, and nobody counts them");
    }
    if spec.review.scope != ReviewScope::Iteration {
        all(&["review.include_accepted"], "only the reviewer of an iteration sees several results at once");
    }
    if selection == Selection::All {
        all(&["loop.max_steps"], "all that is ready runs, and nobody takes steps");
    }
    let again = spec.has_evaluator() && spec.planning.replan;
    if !spec.planning.replan {
        all(&["planning.evaluator"], "without `planning.replan` nobody is asked");
    } else if spec.is_decided() {
        all(&["planning.evaluator"], "whoever decides what runs is asked after each step anyway");
    }
    if spec.review.scope != ReviewScope::Iteration && !again {
        all(&["loop.max_iterations"], "the plan is made once");
    }
    match spec.review.scope {
        ReviewScope::None => {
            all(&["review.reject_status"], "nothing is reviewed, so nothing is sent back");
            all(&JUDGED, "nothing is reviewed");
        }
        ReviewScope::Rules => all(&JUDGED, "each task has rules of its own, and nobody is asked"),
        ReviewScope::Task | ReviewScope::Iteration => {}
    }
    let reviewed = matches!(spec.review.scope, ReviewScope::Task | ReviewScope::Iteration);
    let decides = selection == Selection::Controller && spec.has_decider();
    if !reviewed && !decides {
        all(&["review.tries"], "no reviewer is asked, and no controller, so that none is asked again");
    }
    let at_once = matches!(spec.failure.on_subtask_error, OnSubtaskError::Skip | OnSubtaskError::Fail);
    if at_once {
        all(&["failure.backoff"], "`failure.on_subtask_error` lets no task be tried again");
    }
    // `skip` and `fail` say themselves that tries may be left (FSS-16, FSS-17).
    let repaired = matches!(spec.failure.on_subtask_error, OnSubtaskError::FailTask | OnSubtaskError::Repair);
    if spec.failure.errored_is_terminal && repaired {
        let why = "`failure.errored_is_terminal` ends a task at its first error: say `on_subtask_error: retry`, or give \
                   the agent `tries` of its own";
        all(&["failure.tries"], why);
    }
    if spec.only_attempts_bound() {
        all(&["failure.tries"], "an error uses up one of the attempts of its task: say `review.max_attempts`");
    }
    if spec.synthesis.mode != SynthesisMode::Synthesizer {
        all(&SYNTHESIS, "nothing is synthesized");
        if spec.budget.on_exhausted == OnExhausted::Synthesize {
            all(&["budget.on_exhausted"], "nothing is synthesized, so this is `stop`");
        }
    }
    idle
}

/// What only a team, a router, or a plan reads.
fn of_shannon(spec: &SupervisorSpec) -> Vec<Idle> {
    let mut idle = Vec::new();
    if spec.family() != Family::Graph || spec.chooses_planning() {
        return idle;
    }
    let mut all = |keys: &[&'static str], why| idle.extend(keys.iter().map(|key| (*key, why)));
    if !spec.has_team() {
        all(&OF_TEAM, "a run of this preset has no team and no mailbox");
    } else if !spec.team.recruit {
        all(&["team.rules", "team.recruit_join", "team.late_recruits"], "`team.recruit` is false");
    }
    if !spec.routing.entry {
        all(&OF_ROUTER, "the run is no router: say `routing: { entry: true }`");
    }
    if spec.planning.mode == PlanningMode::None && spec.seed_plan.is_none() && !decides(spec) {
        let why =
            "one execution has no plan that could be shown: `hitl: { mode: human_in_command }` asks before it begins";
        all(&["planning.approval.required", "hitl.plan_policy"], why);
    }
    idle
}

/// Whether somebody decides what runs next.
fn decides(spec: &SupervisorSpec) -> bool {
    let controlled = spec.dispatch.selection == Selection::Controller && spec.has_decider();
    spec.chooses_planning() || spec.dispatch.selection == Selection::Supervisor || controlled
}

/// Words that nobody could act on, or whose absence forbids nothing.
fn authority(spec: &SupervisorSpec, base: &SupervisorSpec) -> CheckResult {
    let words = |of: &SupervisorSpec| of.authority.iter().copied().collect::<BTreeSet<Authority>>();
    let (given, usual) = (words(spec), words(base));
    // What is added where nothing is said is of no effect while nobody plays the controller, and not wrong.
    let added = || usual.iter().copied().chain(Authority::CHOOSING).collect::<BTreeSet<Authority>>();
    let unplayed = spec.dispatch.selection == Selection::Controller && !spec.has_decider();
    if given == usual || (unplayed && given == added()) || (spec.family() != Family::Graph && !spec.chooses_planning())
    {
        return Ok(());
    }
    let refused = |why: String| Err(FieldError::at("authority", format!("has no effect here: {why}")));
    if !decides(spec) {
        return refused("whatever is ready runs, and nobody decides whose actions could be allowed".to_owned());
    }
    let controls = spec.chooses_planning() && spec.dispatch.selection != Selection::Supervisor;
    let known: &[Authority] =
        if controls || spec.dispatch.selection == Selection::Controller { &CONTROLLING } else { &Authority::SELECTING };
    let word = |of: &Authority| serde_json::to_value(of).ok().and_then(|word| word.as_str().map(str::to_owned));
    let names = |of: &[Authority]| of.iter().filter_map(word).collect::<Vec<_>>().join(", ");
    if let Some(strange) = given.iter().find(|one| !usual.contains(one) && !known.contains(one)) {
        let strange = word(strange).unwrap_or_default();
        return refused(format!("`{strange}` is no action of whoever decides; theirs are {}", names(known)));
    }
    // What a conversation of CUGA may do says nothing of its plans.
    let usual = spec.by_request().map_or(usual, |between| words(&between.plan.values()));
    if known.iter().all(|one| given.contains(one) == usual.contains(one)) {
        return refused(format!("it allows what is allowed anyway; what it may say are {}", names(known)));
    }
    Ok(())
}
