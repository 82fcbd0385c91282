//! Whether what somebody arranges to be started later could be started at all: of a schedule, or as an activity alone; and what
//! nobody may start, now or later: a run with a state that no run before it has left.
//!
//! Invariant: what a start would refuse is refused when it is arranged, by the same code, whoever asks: command line, API or
//! pages. It starts nothing. Which activities there are only a worker knows, so a visit does not ask. Where a run goes on in a new
//! one, the engine (or the cluster) starts that, and nobody comes by here.

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{
    ActivityRegistry, Client, EventKind, ForkChange, ForkRequest, ForkSource, Payload, Rejection, StartWorkflow,
    Target, UpdateRequest, WorkflowType,
};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::agent::AGENT;
use crate::agent::next_run::CAME_FROM;
use crate::schedule::messages::Change;
use crate::schedule::run::ScheduleInput;
use crate::schedule::spec::ScheduleAction;
use crate::schedule::{ID_PREFIX, SCHEDULE};
use crate::standalone::{ACTIVITY, ActivityOrder};
use crate::supervisor::PLAN_RUN;
use crate::supervisor::fields::FieldError;
use crate::supervisor::run::SUPERVISOR;
use crate::supervisor::spec::faults_of;

/// The code that there is.
#[derive(Clone, Copy)]
pub(crate) struct KnownCode<'k> {
    pub workflows: &'k WorkflowRegistry,
    /// Nothing where they are not all known.
    pub activities: Option<&'k ActivityRegistry>,
}

/// What is wrong with the input of a supervisor, each with its place in it: a run that would fail at once is not begun.
pub(crate) fn faults_of_input(input: &Value) -> Vec<FieldError> {
    let said = |key: &str| input.get(key).filter(|value| !value.is_null());
    match (said("spec"), said("resolved")) {
        (Some(spec), _) => {
            let within = |at: String| match at.as_str() {
                "" => "spec".to_owned(),
                at => format!("spec.{at}"),
            };
            let faults = faults_of(spec).into_iter();
            faults.map(|one| FieldError::at(within(one.path), one.problem)).collect()
        }
        (None, Some(_)) => Vec::new(),
        (None, None) => vec![FieldError::at("spec", "it is needed: the spec of the supervisor")],
    }
}

/// The same of what a schedule starts; of nothing else.
pub(crate) fn faults_of_action(action: &ScheduleAction) -> Vec<FieldError> {
    if action.workflow_type == SUPERVISOR { faults_of_input(&action.input) } else { Vec::new() }
}

/// A supervisor whose every start would fail at once is not arranged.
fn takes_spec(action: &ScheduleAction) -> Result<(), Rejection> {
    let mut faults = faults_of_action(action).into_iter();
    let Some(first) = faults.next() else { return Ok(()) };
    let more: String = faults.map(|one| format!("; input.{}: {}", one.path, one.problem)).collect();
    let what = format!("schedule.action.input.{}", first.path);
    Err(Rejection::Invalid { what, why: format!("{}{more}", first.problem) })
}

impl KnownCode<'_> {
    /// Of a start: what it arranges. What is wrong with the start itself is said by whoever starts it.
    pub(crate) fn check_start(&self, start: &StartWorkflow) -> Result<(), Rejection> {
        match start.workflow_type.as_str() {
            SCHEDULE => match start.input.decode::<ScheduleInput>() {
                Ok(input) => self.check_action(&input.schedule.action),
                Err(_) => Ok(()),
            },
            ACTIVITY => match start.input.decode::<ActivityOrder>() {
                Ok(order) => self.check_order(&order),
                Err(_) => Ok(()),
            },
            _ => start_is_anew(start),
        }
    }

    /// Of an update: the schedule that takes the place of another.
    pub(crate) fn check_update(&self, target: &Target, update: &UpdateRequest) -> Result<(), Rejection> {
        if update.name.as_str() != "update" || !target.workflow_id.as_str().starts_with(ID_PREFIX) {
            return Ok(());
        }
        match update.input.decode::<Change>() {
            Ok(change) => self.check_action(&change.schedule.action),
            Err(_) => Ok(()),
        }
    }

    /// What a schedule starts.
    pub(crate) fn check_action(&self, action: &ScheduleAction) -> Result<(), Rejection> {
        let invalid = |why: String| Rejection::Invalid { what: "schedule.action".into(), why };
        let workflow_type = WorkflowType::new(&action.workflow_type).map_err(|why| invalid(why.to_string()))?;
        let input = Payload::encode(&action.input).map_err(|why| invalid(why.to_string()))?;
        begins_anew(&workflow_type, &input)?;
        takes_spec(action)?;
        self.workflows.check_input(&workflow_type, &input)?;
        match input.decode::<ActivityOrder>() {
            Ok(order) if workflow_type.as_str() == ACTIVITY => self.check_order(&order),
            _ => Ok(()),
        }
    }

    fn check_order(&self, order: &ActivityOrder) -> Result<(), Rejection> {
        let Some(activities) = self.activities else { return Ok(()) };
        if activities.get(&order.activity_type).is_some() {
            return Ok(());
        }
        let known: Vec<&str> =
            activities.types().map(|known| known.as_str()).filter(|known| !known.starts_with("bosun.")).collect();
        let why =
            format!("this worker has no activity of the type {}; it has {}", order.activity_type, known.join(", "));
        Err(Rejection::Invalid { what: "activity_type".into(), why })
    }
}

/// The part of an input that a run leaves to the one in which it goes on.
#[derive(Deserialize)]
struct Carried {
    #[serde(default)]
    continued: Option<IgnoredAny>,
}

/// Refuses a state from outside: what a supervisor or an agent has done and spent so far is what its history says, and nobody's to
/// claim.
fn begins_anew(workflow_type: &WorkflowType, input: &Payload) -> Result<(), Rejection> {
    if ![SUPERVISOR, PLAN_RUN, AGENT].contains(&workflow_type.as_str()) {
        return Ok(());
    }
    match input.decode::<Carried>() {
        Ok(Carried { continued: Some(_) }) => {
            let why = "only a run that goes on in a new one gives its state along; leave it out, and the run begins anew, or let \
                       the run itself go on from one of its events: `bosun reset`, `bosun fork`";
            Err(Rejection::Invalid { what: "input.continued".into(), why: why.into() })
        }
        // What cannot be read at all is refused by whoever reads it.
        Ok(Carried { continued: None }) | Err(_) => Ok(()),
    }
}

/// The same of a start; one that was moved here from another engine brings its state along (`migration`).
pub(crate) fn start_is_anew(start: &StartWorkflow) -> Result<(), Rejection> {
    if start.memo.keys().any(|name| name.as_str() == CAME_FROM) {
        return Ok(());
    }
    begins_anew(&start.workflow_type, &start.input)
}

/// The same of a fork that begins with another input.
pub(crate) async fn forks_anew(client: &Client, fork: &ForkRequest) -> Result<(), Rejection> {
    let input = fork.changes.iter().find_map(|change| match change {
        ForkChange::Input(input) => Some(input),
        ForkChange::Outcome { .. } | ForkChange::Signal { .. } => None,
    });
    let Some(input) = input else { return Ok(()) };
    let type_of = |event: &EventKind| match event {
        EventKind::WorkflowExecutionStarted(started) => Some(started.workflow_type.clone()),
        _ => None,
    };
    let workflow_type = match &fork.source {
        ForkSource::Run(target) => Some(client.describe(target).await?.info.workflow_type),
        ForkSource::History(turns) => turns.iter().flat_map(|turn| &turn.events).find_map(type_of),
    };
    workflow_type.map_or(Ok(()), |workflow_type| begins_anew(&workflow_type, input))
}

#[cfg(test)]
mod tests {
    use bosun_engine::workflow::WfContext;
    use bosun_engine::{ActivityOptions, ActivityType, Failure, WorkflowId};
    use serde_json::{Value, json};

    use super::*;

    async fn double(_: WfContext, number: u64) -> Result<u64, Failure> {
        Ok(number * 2)
    }

    fn workflows() -> WorkflowRegistry {
        crate::standalone::register(WorkflowRegistry::new().workflow("double", double))
    }

    fn starts(workflow_type: &str, input: Value) -> StartWorkflow {
        let schedule = json!({ "schedule_id": "s", "schedule": { "spec": {},
            "action": { "workflow_type": workflow_type, "workflow_id": "w", "input": input } } });
        StartWorkflow::new(WorkflowType::of(SCHEDULE), WorkflowId::of("schedule:s"))
            .input(Payload::encode(&schedule).unwrap())
    }

    #[test]
    fn a_schedule_of_what_cannot_be_started_is_refused() {
        let registry = workflows();
        let code = KnownCode { workflows: &registry, activities: None };
        assert_eq!(code.check_start(&starts("double", json!(7))), Ok(()));
        let unknown = code.check_start(&starts("dubble", json!(7)));
        assert!(matches!(unknown, Err(Rejection::UnknownWorkflowType { .. })), "{unknown:?}");
        let unreadable = code.check_start(&starts("double", json!("seven")));
        assert!(matches!(unreadable, Err(Rejection::Invalid { .. })), "{unreadable:?}");
    }

    /// Each of its starts would fail at once, and nobody would be told.
    #[test]
    fn a_schedule_of_a_supervisor_without_a_spec_is_refused() {
        let registry = workflows();
        let code = KnownCode { workflows: &registry, activities: None };
        let refused = code.check_start(&starts(SUPERVISOR, json!({})));
        let place = "schedule.action.input.spec";
        assert!(matches!(&refused, Err(Rejection::Invalid { what, .. }) if what == place), "{refused:?}");
        let refused = code.check_start(&starts(SUPERVISOR, json!({ "spec": { "agents": 5 } })));
        assert!(
            matches!(&refused, Err(Rejection::Invalid { what, why }) if what.ends_with("input.spec.agents")
                && why.contains("input.spec.objective")),
            "{refused:?}"
        );
        let whole = code.check_start(&starts(SUPERVISOR, json!({ "spec": { "objective": "x" } })));
        assert!(!matches!(&whole, Err(Rejection::Invalid { what, .. }) if what.contains("spec")), "{whole:?}");
    }

    #[test]
    fn an_activity_that_nobody_has_is_refused_where_all_are_known() {
        let registry = workflows();
        let mut activities = ActivityRegistry::new();
        activities.register("greet", |_, name: String| async move { Ok(name) });
        let of = |name: &str| {
            let options =
                ActivityOptions { start_to_close: Some(std::time::Duration::from_secs(1)), ..Default::default() };
            ActivityOrder { activity_type: ActivityType::of(name), input: json!("ann"), options }.start("a").unwrap()
        };
        let code = KnownCode { workflows: &registry, activities: Some(&activities) };
        assert_eq!(code.check_start(&of("greet")), Ok(()));
        let refused = code.check_start(&of("great"));
        assert!(matches!(&refused, Err(Rejection::Invalid { why, .. }) if why.contains("greet")), "{refused:?}");
        assert_eq!(KnownCode { activities: None, ..code }.check_start(&of("great")), Ok(()));
    }

    /// Now and later, and beside a message; what is begun anew is not looked at.
    #[test]
    fn nobody_gives_a_state_that_no_run_has_left() {
        let registry = workflows();
        let code = KnownCode { workflows: &registry, activities: None };
        let state = json!({ "continued": { "rules": 1, "from": "x", "timers": {}, "state": {} } });
        let of = |workflow_type: &str, input: &Value| {
            let input = Payload::encode(input).unwrap();
            StartWorkflow::new(WorkflowType::of(workflow_type), WorkflowId::of("w")).input(input)
        };
        for workflow_type in [SUPERVISOR, PLAN_RUN, AGENT] {
            for start in [of(workflow_type, &state), starts(workflow_type, state.clone())] {
                let refused = code.check_start(&start);
                assert!(
                    matches!(&refused, Err(Rejection::Invalid { what, .. }) if what == "input.continued"),
                    "{refused:?}"
                );
            }
            assert_eq!(code.check_start(&of(workflow_type, &json!({ "continued": null }))), Ok(()));
        }
        assert_eq!(code.check_start(&of("double", &state)), Ok(()));
    }

    /// Each fault has an entry and a place of its own, and what is missing is one of them.
    #[test]
    fn every_fault_of_a_spec_is_told_before_its_run_begins() {
        let places = |input: Value| faults_of_input(&input).into_iter().map(|one| one.path).collect::<Vec<_>>();
        assert_eq!(places(json!({})), ["spec"]);
        assert_eq!(places(Value::Null), ["spec"]);
        assert_eq!(places(json!({ "spec": [1] })), ["spec"]);
        assert_eq!(places(json!({ "spec": { "agents": 5 } })), ["spec.agents", "spec.objective"]);
        assert_eq!(places(json!({ "spec": { "agents": 5, "objectiv": "x" } })).len(), 3);
        assert_eq!(places(json!({ "spec": { "preset": "shanon-dag", "objective": "x" } })), ["spec.preset"]);
        assert!(places(json!({ "spec": { "objective": "x", "agents": [{ "name": "ann" }] } })).is_empty());
    }
}
