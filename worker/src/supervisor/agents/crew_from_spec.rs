//! Builds a crew from a resolved spec: its manager, and the tasks of the seed plan.
//!
//! Invariant: a pure function of the spec. What a task of a plan may say and a crew carries out nowhere is refused before
//! (`spec::check`); what is left is taken here, all of it.

use super::boundary::AgentsRefused;
use super::crew::{Crew, CrewCheckpoint, CrewStart};
use super::from_spec::resumed;
use super::rules::{AgentDef, ToolDef};
use crate::supervisor::plan::TaskItem;
use crate::supervisor::spec::crew_task::CREW_PARAMETERS;
use crate::supervisor::spec::{self, CrewTask, SupervisorSpec};

/// The capability of tasks of a crew that any coworker may help with.
const ANY: &str = "any";
/// Who validates outputs when the spec has a reviewer and no task names a guardrail.
const REVIEWER: &str = "reviewer";
/// Where a crew begins: at its first task, from or behind one of an earlier run's, or where that run ended (CRW-11,
/// CRW-12).
pub(super) fn crew_start(spec: &SupervisorSpec) -> Result<CrewStart, AgentsRefused> {
    let Some(resume) = &spec.resume else { return Ok(CrewStart::Fresh) };
    let outputs = resumed("resume.outputs", &resume.outputs)?;
    let checkpoint = CrewCheckpoint { outputs, lineage: resume.lineage.clone() };
    Ok(match (&resume.from, &resume.after) {
        (Some(task), _) => CrewStart::From(task.clone(), checkpoint),
        (None, Some(task)) => CrewStart::After(task.clone(), checkpoint),
        (None, None) => CrewStart::Restore(checkpoint),
    })
}

/// The tasks of a crew are those of the seed plan, in the order of its list (CRW-03); without one, the objective is the task.
pub(super) fn crew(spec: &SupervisorSpec) -> Result<Crew, AgentsRefused> {
    let manager_agent = spec.manager_agent.as_ref().map(|agent| AgentDef {
        instructions: agent.system_prompt.clone(),
        description: agent.description.clone(),
        model: agent.model.as_ref().map(|model| model.name.clone()),
        tools: agent.tools.iter().map(|tool| ToolDef::new(&tool.name)).collect(),
        timeout: agent.timeout,
        limits: agent.limits,
        ..AgentDef::new(&agent.name)
    });
    let plan = spec.plan().map_err(|why| AgentsRefused::Steps(vec![why.to_string()]))?;
    let tasks = match plan {
        Some(plan) => plan.in_list_order().map(|item| crew_task(spec, item)).collect::<Result<_, _>>()?,
        None => vec![CrewTask { id: "1".to_owned(), description: spec.objective.clone(), ..guarded(spec) }],
    };
    Ok(Crew { manager_llm: spec.manager_llm.clone(), manager_agent, tasks, validation_tries: spec.review.tries })
}

/// What the spec says of every task.
fn guarded(spec: &SupervisorSpec) -> CrewTask {
    let reviewed = spec.review.scope == spec::ReviewScope::Task && spec.reviewer.is_some();
    CrewTask {
        guardrail: reviewed.then(|| REVIEWER.to_owned()),
        guardrail_max_retries: spec.review.guardrail_retries,
        human_input: spec.review.human,
        ..CrewTask::default()
    }
}

/// Whom a task names, also if there is nobody of that name: the crew refuses it then (CRW-04). `any` names nobody.
fn coworker(spec: &SupervisorSpec, name: &str) -> Option<String> {
    let named = spec.agent_for(name).map(|agent| agent.name.clone());
    named.or_else(|| Some(name.to_owned()).filter(|name| name != ANY))
}

/// A task of the plan. What people are asked about before it begins is `core::gate`'s.
fn crew_task(spec: &SupervisorSpec, item: &TaskItem) -> Result<CrewTask, AgentsRefused> {
    let mut fields = serde_json::Map::new();
    for key in CREW_PARAMETERS {
        if let Some(value) = item.parameters.get(key) {
            fields.insert(key.to_owned(), value.clone());
        }
    }
    let given: CrewTask =
        serde_path_to_error::deserialize(serde_json::Value::Object(fields.clone())).map_err(|why| {
            AgentsRefused::Steps(vec![format!("task {}: parameters.{}: {}", item.task_id, why.path(), why.inner())])
        })?;
    let said = |key: &str| fields.contains_key(key);
    let all = guarded(spec);
    let context: Vec<String> = item.sub_task_dependencies.iter().map(ToString::to_string).collect();
    Ok(CrewTask {
        id: item.task_id.to_string(),
        description: item.sub_task_objective.clone(),
        agent: coworker(spec, &item.capability),
        context: (!context.is_empty()).then_some(context),
        guardrail: if said("guardrail") { given.guardrail } else { all.guardrail },
        guardrail_max_retries: if said("guardrail_max_retries") {
            given.guardrail_max_retries
        } else {
            all.guardrail_max_retries
        },
        human_input: if said("human_input") { given.human_input } else { all.human_input },
        expected_output: given.expected_output,
        async_execution: given.async_execution,
        when: given.when,
        conditions: item.when.clone(),
        required: item.required,
    })
}
