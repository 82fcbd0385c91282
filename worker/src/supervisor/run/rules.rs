//! From a resolved spec to the rules and the first plan of a graph.
//!
//! Invariant: a pure function of the spec; what the spec leaves open is decided here once, and nowhere else.

use std::collections::BTreeMap;

use super::refusal::StartRefusal;
use crate::supervisor::TaskItem;
use crate::supervisor::agents::policies_of;
use crate::supervisor::graph::{
    CapabilityCard, Dependency, GraphRules, OnTriesExhausted, PlanSource, PlannedEdge, PlannedTask, ResultSource,
    WorkerCard, WorkerRequirements,
};
use crate::supervisor::model::{Condition, Task, TaskId, TaskPlan};
use crate::supervisor::native::{Attributes, native};
use crate::supervisor::outbox::Purpose;
use crate::supervisor::spec::{self, Selection, SupervisorSpec};
use crate::supervisor::task::TaskStatus;

/// The rules of a graph.
// long: one line a rule.
pub(super) fn graph_rules(spec: &SupervisorSpec) -> GraphRules {
    let selection = selection(spec);
    // FSS-16, FSS-17: the first failure decides, whatever tries are left.
    let at_once = matches!(spec.failure.on_subtask_error, spec::OnSubtaskError::Skip | spec::OnSubtaskError::Fail);
    GraphRules {
        name: spec.name.clone(),
        planning: planning(spec, selection),
        strategy: spec.planning.strategy,
        upfront: spec.planning.mode == spec::PlanningMode::Upfront,
        degrade: spec.budget.degrade.clone(),
        selection,
        authority: spec.authority.iter().copied().collect(),
        max_concurrency: spec.dispatch.max_concurrency,
        sequential: spec.dispatch.parallelism == spec::Parallelism::Sequential,
        honour: spec.dependencies.honour,
        requires: spec.dependencies.requires,
        on_failure: spec.dependencies.on_failure,
        on_cancelled: spec.dependencies.on_cancelled,
        on_condition: spec.dependencies.on_unmet,
        on_idle: spec.run_loop.on_idle,
        cancel_running: spec.dependencies.cancel_running,
        dependency_timeout_ms: spec.dependencies.wait_timeout.map(spec::Span::as_ms),
        review: spec.review.scope,
        criteria: spec.review.criteria.clone(),
        reflection: spec.review.reflection.clone(),
        max_attempts: spec.review.max_attempts,
        review_tries: spec.review.tries,
        rejected_as: spec.review.reject_status,
        review_sees_accepted: spec.review.include_accepted,
        accept_below_score_bp: spec.review.accept_below_score.map(spec::Ratio::as_bp),
        append_feedback: spec.errors_are_attempts(),
        errors_are_attempts: spec.errors_are_attempts(),
        max_steps: (selection != Selection::All).then_some(spec.run_loop.max_steps),
        max_iterations: spec.run_loop.max_iterations,
        no_progress: spec.run_loop.no_progress,
        tries: match () {
            // Its attempts bound it, and nothing else.
            () if spec.only_attempts_bound() => u32::MAX,
            () if at_once || is_final(&spec.failure) => 1,
            () => spec.failure.tries,
        },
        retry_backoff_ms: spec.failure.backoff.as_ms(),
        on_exhausted: match spec.failure.on_subtask_error {
            spec::OnSubtaskError::Skip | spec::OnSubtaskError::Retry => OnTriesExhausted::Skip,
            spec::OnSubtaskError::Fail => OnTriesExhausted::Abort,
            spec::OnSubtaskError::FailTask => OnTriesExhausted::Failed,
            spec::OnSubtaskError::Repair => OnTriesExhausted::Errored,
        },
        threshold_bp: spec.failure.threshold_bp,
        count_recruits: spec.failure.count_recruits,
        errored_is_terminal: spec.failure.errored_is_terminal,
        synthesis: match spec.synthesis.mode {
            spec::SynthesisMode::FinalTask => ResultSource::FinalTask,
            spec::SynthesisMode::Synthesizer => ResultSource::Synthesizer,
            spec::SynthesisMode::Merge => ResultSource::Merge,
            spec::SynthesisMode::None => ResultSource::Raw,
            spec::SynthesisMode::LastOutput | spec::SynthesisMode::LastMessage => ResultSource::LastOutput,
        },
        output_schema: spec.synthesis.schema.clone(),
        bypass_single: spec.synthesis.bypass_single,
        dedupe: spec.synthesis.dedupe,
        own_result_chars: spec.synthesis.own_result_chars,
        synthesis_tries: spec.synthesis.tries,
        synthesizes_nothing: spec.synthesizes_nothing(),
        on_empty: spec.on_empty_plan(),
        agent_tries: match at_once {
            true => BTreeMap::new(),
            false => agent_tries(spec),
        },
        compensate: spec.compensation.on_cancel,
        capabilities: capabilities(spec),
        workers: workers(spec),
        built_in: super::work::BUILT_IN.map(str::to_owned).to_vec(),
        reserved: reserved(&spec.planning),
        answers_anybody: answers_anybody(spec),
        escalates_unmatched: spec.hitl.enabled && spec.hitl.triggers.out_of_scope,
        policies: spec.planning.policies.clone(),
        standing: policies_of(spec),
        status_words: status_words(spec),
        evaluator: spec.has_evaluator() && spec.planning.replan,
        ..GraphRules::default()
    }
}

/// Whether an error is the end of its task, whatever tries the preset has for one (supervisors.md §4.1 no. 4). The tries of
/// a worker's own policy, and those that `on_subtask_error: retry` grants (FSS-18), come before there is an error.
fn is_final(failure: &spec::Failure) -> bool {
    failure.errored_is_terminal && failure.on_subtask_error != spec::OnSubtaskError::Retry
}

/// What is in the box and not granted to whoever plans.
fn reserved(planning: &spec::Planning) -> Vec<String> {
    let all = spec::PlannedBuiltIn::ALL.into_iter().filter(|one| !planning.built_in.contains(one));
    all.map(|one| one.as_str().to_owned()).collect()
}

/// Executions of a task by agents whose own policy differs, by name and capability (FSS-18).
fn agent_tries(spec: &SupervisorSpec) -> BTreeMap<String, u32> {
    let own = spec.agents.iter().rev().filter_map(|agent| Some((agent, agent.tries?)));
    own.flat_map(|(agent, tries)| [(agent.capability_name().to_owned(), tries), (agent.name.clone(), tries)]).collect()
}

fn workers(spec: &SupervisorSpec) -> Vec<WorkerCard> {
    let roles = spec.roles();
    let card = |agent: &spec::Agent| WorkerCard {
        name: agent.name.clone(),
        capability: agent.capability_name().to_owned(),
        description: agent.description.clone(),
        role: agent.role.clone(),
        tools: agent.tools.iter().map(|tool| tool.name.clone()).collect(),
        has_a_job: roles.iter().any(|(_, role)| role.agent.as_ref() == Some(&agent.name)),
    };
    spec.agents.iter().map(card).collect()
}

/// Whether the spec itself says who does work that is no agent's: a rule of its own, or what plays everybody.
fn answers_anybody(spec: &SupervisorSpec) -> bool {
    let works =
        |script: &spec::Script| script.0.iter().any(|rule| rule.on == Purpose::ExecuteWorker && rule.agent.is_none());
    let played = |via: &spec::Via| !via.is_scripted();
    let service = spec
        .role(Purpose::ExecuteWorker)
        .is_some_and(|role| works(&role.script) || role.via.as_ref().is_some_and(played));
    // CUG-02: each sub-task of a structured plan is for an agent that it names.
    let by_name = spec.planning.mode == spec::PlanningMode::Agents && !spec.agents.is_empty();
    !by_name && (!spec.via.is_scripted() || works(&spec.script) || service)
}

fn selection(spec: &SupervisorSpec) -> Selection {
    match spec.dispatch.selection {
        // A controller that nobody plays delegates whatever may run.
        Selection::Controller if !spec.has_decider() => Selection::All,
        Selection::Speaker | Selection::Agent => Selection::Supervisor,
        selection => selection,
    }
}

fn planning(spec: &SupervisorSpec, selection: Selection) -> PlanSource {
    match (spec.planning.mode, selection) {
        (spec::PlanningMode::None, _) => PlanSource::None,
        (spec::PlanningMode::Fixed, _) => PlanSource::Fixed,
        (spec::PlanningMode::Hybrid, _) => PlanSource::Hybrid,
        (spec::PlanningMode::Llm, Selection::Supervisor) => PlanSource::Llm,
        _ => PlanSource::Planner,
    }
}

/// The words for statuses where people use others than ours (FSS-34).
fn status_words(spec: &SupervisorSpec) -> BTreeMap<TaskStatus, String> {
    let Some(system) = spec.board_words() else { return BTreeMap::new() };
    let word = |status| Some((status, native(system, status, Attributes::default()).ok()?.to_owned()));
    TaskStatus::ALL.into_iter().filter_map(word).collect()
}

/// The capabilities of the agents, and those that are built in; none if there are no agents to speak of.
fn capabilities(spec: &SupervisorSpec) -> Vec<CapabilityCard> {
    if spec.agents.is_empty() || selection(spec) != Selection::Supervisor {
        return Vec::new();
    }
    let card = |agent: &spec::Agent| CapabilityCard {
        name: agent.capability_name().to_owned(),
        description: agent.description.clone(),
        required_parameters: agent.required_parameters.clone(),
    };
    let built_in = |name: &&str| CapabilityCard {
        name: (*name).to_owned(),
        description: String::new(),
        required_parameters: Vec::new(),
    };
    let mut cards: Vec<CapabilityCard> = spec.agents.iter().map(card).collect();
    let known: Vec<&str> =
        super::work::BUILT_IN.into_iter().filter(|name| !cards.iter().any(|card| card.name == *name)).collect();
    cards.extend(known.iter().map(built_in));
    cards
}

/// A dependency of the seed plan, with the condition on its result if there is one.
fn dependency(id: crate::supervisor::TaskNumber, when: &BTreeMap<String, Condition>) -> Dependency {
    let on = TaskId::from(u64::from(id.0));
    match when.get(&id.to_string()) {
        None => Dependency::Id(on),
        Some(when) => Dependency::Edge(PlannedEdge { on, requires: None, when: Some(when.clone()), on_failure: None }),
    }
}

/// The plan a run begins with: the seed plan, held to the same policies as every other (CUG-04), or none.
pub(super) fn first_plan(spec: &SupervisorSpec, rules: &GraphRules) -> Result<TaskPlan, StartRefusal> {
    let mut plan = TaskPlan::new(spec.objective.clone());
    let Some(seed) = spec.plan()? else { return Ok(plan) };
    plan.reasoning = Some(seed.reasoning_steps().join("\n"));
    let mut planned: Vec<PlannedTask> = seed.tasks().map(|item| planned_of(spec, item)).collect();
    if let Some(why) = planned.iter().find_map(|task| rules.forbids(WorkerRequirements::by(task))) {
        return Err(why.into());
    }
    rules.apply_policies(&mut planned);
    let task = |(item, planned): (&TaskItem, PlannedTask)| Task {
        status: item.begins_as(),
        attempt_count: item.attempt_count,
        time_scope: item.time_scope.clone(),
        // Whoever does it is found by the capability, as for every task.
        agent: None,
        ..planned.task(TaskId::from(u64::from(item.task_id.0)), rules.requires, item.max_attempts)
    };
    let tasks = seed.tasks().zip(planned).map(task).collect();
    plan.add(tasks)?;
    Ok(plan)
}

/// A task of the seed plan as a planner would write it, under the name of the agent that its capability means.
fn planned_of(spec: &SupervisorSpec, item: &TaskItem) -> PlannedTask {
    PlannedTask {
        id: Some(TaskId::from(u64::from(item.task_id.0))),
        agent: spec.agent_for(&item.capability).map(|agent| agent.name.clone()),
        goal: item.sub_task_objective.clone(),
        deps: item.sub_task_dependencies.iter().map(|id| dependency(*id, &item.when)).collect(),
        capability: Some(item.capability.clone()),
        params: item.parameters.clone(),
        metadata: item.metadata.clone(),
        overall_objective: Some(item.overall_objective.clone()),
        is_final: item.is_final,
        action: item.action.clone(),
        risk: item.risk.unwrap_or_default(),
        required: item.required,
        requires_approval: item.requires_approval,
        compensation: item.compensation.clone(),
        ..PlannedTask::default()
    }
}
