//! Whether what a schedule starts could be started now: a slip is told when the schedule is made, not at its first time.
//!
//! Invariant: it refuses what a start by a client refuses - a type that nobody knows, and an input that the code cannot read -
//! by running the code up to its first wait, whose commands nobody carries out. Nothing is written. The code may change before
//! the first time: then the run is held, and the list of schedules says so.

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;

use super::run::ScheduleInput;

/// Why the first start of this schedule would be refused, if it would.
///
/// # Errors
/// The refusal of a start.
pub(crate) fn check(workflows: &WorkflowRegistry, start: &StartWorkflow) -> Result<(), Rejection> {
    // What is no schedule is refused by its own workflow.
    let Ok(input) = start.input.decode::<ScheduleInput>() else { return Ok(()) };
    let action = input.schedule.action;
    let invalid = |what: &str, why: String| Rejection::Invalid { what: what.to_owned(), why };
    let workflow_type =
        WorkflowType::new(&action.workflow_type).map_err(|why| invalid("workflow type", why.to_string()))?;
    let payload = Payload::encode(&action.input).map_err(|why| invalid("input", why.to_string()))?;
    let (run_id, at) = (RunId([0; 16]), Timestamp(0));
    let first = StartWorkflow::new(workflow_type, start.workflow_id.clone()).input(payload).first_event(run_id, at);
    let mut driver = workflows.create(&first, run_id)?;
    let job = Job::InitializeWorkflow(Box::new(first));
    let history = HistorySize::default();
    driver.activate(Activation { at, run_id, history, job, markers: Markers::Fresh });
    match driver.defect() {
        Some(WorkflowDefect::UnreadableInput { workflow_type, why }) => {
            Err(invalid(&format!("the input of the workflow {workflow_type}"), why))
        }
        _ => Ok(()),
    }
}
