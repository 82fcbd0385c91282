//! Fork here: what a fork at the event under the cursor would do, and the command that makes it.
//!
//! Invariant: nothing is forked by looking. The plan is the engine's own, so that it says what the command will do; the
//! command is one that a shell takes as it stands.

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{Event, EventId, EventKind, ForkRequest, ForkSource};
use bosun_replay::{Timeline, plan_fork};

use crate::cli::fork::plan_lines;
use crate::cli::list::shell_word;

/// How much of a recorded result is written into the command as a beginning.
const RESULT_MAX: usize = 200;

/// The command that forks at this event; for the end of an activity or child, one that gives it another result.
pub(super) fn command(timeline: &Timeline<'_>, source: &str, at: EventId) -> String {
    let change = timeline.event(at).and_then(change);
    let how = change.map_or_else(|| format!("--at {at}"), |change| shell_words("--set-result", &change));
    format!("bosun fork {source} {how}")
}

fn shell_words(option: &str, value: &str) -> String {
    format!("{option} {}", shell_word(value))
}

/// What `--set-result` says about an event that has a result: the recorded one, to be changed.
fn change(event: &Event) -> Option<String> {
    use EventKind::*;
    let result = match &event.kind {
        ActivityTaskCompleted { result, .. } | ChildWorkflowExecutionCompleted { result, .. } => result,
        ActivityTaskFailed { .. } | ActivityTaskTimedOut { .. } | ChildWorkflowExecutionFailed { .. } => {
            return Some(format!("event:{}=null", event.id));
        }
        _ => return None,
    };
    let text = result.decode::<serde_json::Value>().map_or_else(|_| "null".to_owned(), |value| value.to_string());
    let text = if text.len() > RESULT_MAX { "null".to_owned() } else { text };
    Some(format!("event:{}={text}", event.id))
}

/// The plan and the command, for the screen.
pub(super) fn told(timeline: &Timeline<'_>, code: &WorkflowRegistry, source: &str, at: EventId) -> String {
    // The plan looks at the history it is given, not at the source of the request.
    let source_of_plan = ForkSource::History(Vec::new());
    let request = ForkRequest::new(source_of_plan, timeline.history().started().workflow_id.clone()).at(at);
    let plan = match plan_fork(timeline.history(), &request, Some(code)) {
        Ok(plan) => plan_lines(&plan).into_iter().map(|(name, told)| format!("{name:<14} {told}\n")).collect(),
        Err(why) => format!("a fork that keeps all up to here is refused: {why}\n"),
    };
    format!(
        "{plan}\n{}\n\nEnter leaves the debugger with this command; any other key goes on",
        command(timeline, source, at)
    )
}
