//! The table of words, whole.

use super::*;
use crate::supervisor::model::TaskId;
use crate::supervisor::native::*;
use crate::supervisor::task::TaskStatus;

/// §5.3 as text, one status a paragraph, the systems in their order.
const TABLE: &str = "
pending: PENDING | PENDING | in_progress | in_progress | pending | pending
  pending | not-started | pending | - | pending
  - | - | pending | node not reached | not yet spoken
ready: READY | READY | in_progress | in_progress | pending | pending
  pending | not-started | pending | - | pending
  - | - | next | next | candidate
awaiting_approval: READY | READY | - | - | blocked | -
  pending | not-started | pending | approval wait | approval wait
  - | - | human_input | interrupted | human input
running: RUNNING | RUNNING | in_progress | in_progress | in_progress | in_progress
  in_progress | in-progress | pending | running | in_progress
  active | running | executing | active node | speaking
running.detached: - | - | - | - | - | -
  - | - | - | - | -
  active | backgrounded | async | - | -
awaiting_input: RUNNING | RUNNING | - | - | awaiting_review | -
  in_progress | in-progress | pending | wait | in_progress
  active | active | human_input | interrupt | input requested
awaiting_review: NEEDS_REVIEW | NEEDS_REVIEW | in_progress | awaiting-review | awaiting_review | -
  in_progress | in-progress | pending | - | quality gate
  - | - | guardrail | - | -
needs_revision: READY | RERUN | needs-revision | needs-revision | pending | pending
  in_progress | in-progress | pending | - | in_progress
  - | - | retry | revise_plan | -
errored: ERRORED | ERRORED | failed | failed | errored | failed
  failed | failed | failed | - | -
  - | - | error text | error | error
blocked: PENDING | PENDING | - | - | blocked | pending
  pending | not-started | pending | waiting for dependency | waiting for dependency
  - | - | - | - | -
completed: COMPLETED | COMPLETED | completed | completed | completed | completed
  completed | completed | completed | completed | completed
  completed | completed | output | done | message
failed: FAILED | FAILED | failed | failed | errored | failed
  failed | failed | failed | failed | failed
  failed | failed | exception | error | error
escalated: FAILED | FAILED | escalated | escalated | awaiting_review | -
  - | - | - | handed to human | handed to human
  - | - | - | interrupt | human mode
skipped: CANCELLED | CANCELLED | skipped | skipped | cascade-skipped | skipped
  - | - | - | skipped | skipped
  - | - | conditional skipped | - | -
cancelled: CANCELLED | CANCELLED | - | - | cancelled | skipped
  - | - | - | retired | cancelled
  killed | killed | - | - | -
";

/// FSS-06, FSP-03: the whole table; the Supervisor shows its words only, Plan-and-Execute its five.
#[test]
fn every_status_has_its_word_in_every_system() {
    let mut table = String::from("\n");
    for status in TaskStatus::ALL {
        for detached in [false, true] {
            if detached && status != TaskStatus::Running {
                continue;
            }
            let attributes = Attributes { detached, resolved: false };
            let cells = System::ALL.map(|system| native(system, status, attributes).unwrap_or("-"));
            let name = if detached { format!("{status}.detached") } else { status.to_string() };
            table += &format!(
                "{name}: {}\n  {}\n  {}\n",
                cells[..6].join(" | "),
                cells[6..11].join(" | "),
                cells[11..].join(" | ")
            );
        }
    }
    assert_eq!(table, TABLE);
    let words = |system: System| {
        let mut words: Vec<&str> =
            TaskStatus::ALL.iter().filter_map(|status| native(system, *status, Attributes::default()).ok()).collect();
        words.sort_unstable();
        words.dedup();
        words
    };
    assert_eq!(
        words(System::FlowSupervisor),
        ["completed", "escalated", "failed", "in_progress", "needs-revision", "skipped"]
    );
    assert_eq!(
        words(System::FlowSupervisorCode),
        ["awaiting-review", "completed", "escalated", "failed", "in_progress", "needs-revision", "skipped"]
    );
    assert_eq!(words(System::PlanAndExecute), ["completed", "failed", "in_progress", "pending", "skipped"]);
}

/// What cannot occur is an error that says so, and an escalated board task is cancelled once a human has decided.
#[test]
fn what_cannot_occur_is_a_typed_error() {
    let none = Attributes::default();
    let why = native(System::FlowSupervisor, TaskStatus::Cancelled, none).unwrap_err();
    assert_eq!(why.to_string(), "cancelled cannot occur in flow_supervisor");
    let detached = Attributes { detached: true, resolved: false };
    let why = native(System::LangGraph, TaskStatus::Running, detached).unwrap_err();
    assert_eq!(why.to_string(), "running (detached) cannot occur in lang_graph");
    let resolved = Attributes { detached: false, resolved: true };
    assert_eq!(native(System::FlowBoard, TaskStatus::Escalated, resolved), Ok("cancelled"));
}

/// The view keeps the order and shows nothing for what cannot occur.
#[test]
fn the_view_is_in_the_words_of_a_system() {
    let task = |id: &str, status| (TaskId::of(id), status, Attributes::default());
    let tasks = [task("2", TaskStatus::Ready), task("1", TaskStatus::Cancelled)];
    let view = native_view(System::FlowSupervisor, tasks);
    assert_eq!(
        serde_json::to_value(view).unwrap(),
        serde_json::json!([{ "task": "2", "status": "ready", "native": "in_progress" },
                           { "task": "1", "status": "cancelled", "native": null }])
    );
    for system in System::ALL {
        assert_eq!(System::named(system.as_str()), Some(system));
        assert_eq!(serde_json::to_value(system).unwrap(), system.as_str());
    }
    assert_eq!(System::named("cobol"), None);
    assert_eq!(noted(&outbox(0)), [], "looking notes nothing");
}
