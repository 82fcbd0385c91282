//! Tests of run control, and of what a person who takes over is shown.

use serde_json::{Value, json};

use super::super::takeover::{PlanStepView, TakeoverContext};
use super::{MINUTE, Outbox, asks, at, notes, only_note};
use crate::supervisor::core::control::{CANCEL, Control, ControlRequest, PAUSE, RELEASE, RESUME, TAKEOVER};
use crate::supervisor::core::key::{Key, key};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::Ask;
use crate::supervisor::spec::Span;
use crate::supervisor::task::TaskStatus;

fn by_ann(reason: &str) -> ControlRequest {
    ControlRequest::new(reason, "ann")
}

fn with_children(children: &[&str]) -> Control {
    let mut control = Control::default();
    for child in children {
        control.register(key::<Key>(child), &mut at(0));
    }
    control
}

/// What stops the run at this point, if anything does: the text of a cancelled run, or why it is held.
fn stopped(control: &mut Control, checkpoint: &str, out: &mut Outbox) -> Option<String> {
    control.checkpoint(checkpoint, out);
    control.cancelled_text().or_else(|| control.why_held().map(str::to_owned))
}

const PAUSED: Option<&str> = Some("the run is paused");
const HANDED: Option<&str> = Some("a person has the run");

fn events(out: &Outbox) -> Vec<&str> {
    out.notes().iter().filter_map(|note| note.data["event"].as_str()).collect()
}

/// What the children were told, checked to say that it comes from the parent.
fn told(out: &Outbox) -> Vec<String> {
    for ask in out.asks() {
        if let Ask::SignalChild { input, .. } = ask {
            assert_eq!(input["from_parent"], true);
            assert!(ControlRequest::read(input).is_ok(), "a child understands it");
        }
    }
    asks(out)
}

/// SHN-60: pausing stops at the next checkpoint and reaches every child in the same turn; a second pause is ignored.
#[test]
fn a_pause_holds_at_the_next_checkpoint_and_reaches_all_children() {
    let mut control = with_children(&["recruit/1/child", "recruit/2/child", "recruit/3/child"]);
    let mut out = at(7_000);
    assert_eq!(stopped(&mut control, "pre_subtask_0", &mut out).as_deref(), None);
    assert!(control.pause(by_ann("lunch"), &mut out));
    assert_eq!(
        told(&out),
        ["recruit/1/child", "recruit/2/child", "recruit/3/child"].map(|child| format!("signal {child} pause_v1"))
    );
    assert_eq!(stopped(&mut control, "pre_subtask_1", &mut out).as_deref(), PAUSED);

    let before = control.clone();
    let mut out = at(8_000);
    assert!(!control.pause(ControlRequest::new("other", "bob"), &mut out));
    assert_eq!((&control, notes(&out).len(), asks(&out).len()), (&before, 0, 0));
    assert_eq!(control.view()["paused_by"], "ann");
}

/// SHN-60, SHN-05: a child that has closed is told nothing, and closing twice is no error.
#[test]
fn closed_children_are_told_nothing() {
    let mut control = with_children(&["recruit/1/child", "recruit/2/child"]);
    control.unregister(&key("recruit/1/child"));
    control.unregister(&key("recruit/1/child"));
    control.unregister(&key("recruit/9/child"));
    let mut out = at(1);
    control.pause(by_ann("x"), &mut out);
    assert_eq!(told(&out), ["signal recruit/2/child pause_v1"]);
}

/// SHN-05: a child is registered before its result is waited for and unregistered after, however it ends; one that is
/// registered in a run that is paused, taken over or cancelled is told at once.
#[test]
fn a_child_is_told_from_its_registration_to_its_end() {
    for (name, expected) in [
        (PAUSE, vec!["signal recruit/1/child pause_v1"]),
        (TAKEOVER, vec!["signal recruit/1/child pause_v1"]),
        (CANCEL, vec!["signal recruit/1/child cancel_v1"]),
        (RESUME, vec![]),
    ] {
        let mut control = Control::default();
        control.signal(name, &json!({ "reason": "r", "requested_by": "ann" }), &mut at(1)).unwrap();
        let mut out = at(2);
        control.register(key::<Key>("recruit/1/child"), &mut out);
        control.register(key::<Key>("recruit/1/child"), &mut out);
        assert_eq!(told(&out), expected, "{name}");
        assert_eq!(control.children().collect::<Vec<_>>(), [&key::<Key>("recruit/1/child")]);
        control.unregister(&key("recruit/1/child"));
        assert_eq!(control.children().count(), 0);
    }
}

/// SHN-61: resuming clears what the pause said and reaches the children; it is ignored when nothing is paused.
#[test]
fn a_resume_clears_the_pause() {
    let mut control = with_children(&["recruit/1/child"]);
    let running = control.clone();
    let mut out = at(1);
    assert!(!control.resume(by_ann("x"), &mut out));
    assert_eq!((&control, notes(&out).len(), asks(&out).len()), (&running, 0, 0));
    control.pause(by_ann("lunch"), &mut out);
    let mut out = at(2);
    assert!(control.resume(by_ann("back"), &mut out));
    assert_eq!(told(&out), ["signal recruit/1/child resume_v1"]);
    assert_eq!(events(&out), ["WORKFLOW_RESUMED"]);
    for key in ["paused_at", "pause_reason", "paused_by"] {
        assert_eq!(control.view()[key], Value::Null, "{key}");
    }
    assert_eq!((control.view()["is_paused"].clone(), stopped(&mut control, "x", &mut out)), (json!(false), None));
}

/// SHN-62: cancelling works in every state, reaches the children, and ends the run at the next checkpoint with its text.
#[test]
fn a_cancel_ends_the_run_at_the_next_checkpoint() {
    for (first, text) in [
        (None, "workflow cancelled: enough"),
        (Some(PAUSE), "workflow cancelled while paused: enough"),
        (Some(TAKEOVER), "workflow cancelled: enough"),
    ] {
        let mut control = with_children(&["recruit/1/child"]);
        if let Some(first) = first {
            control.signal(first, &json!({ "reason": "r", "requested_by": "bob" }), &mut at(1)).unwrap();
        }
        let mut out = at(2);
        assert!(control.cancel(by_ann("enough"), &mut out));
        assert_eq!(told(&out), ["signal recruit/1/child cancel_v1"]);
        assert_eq!(stopped(&mut control, "pre_synthesis", &mut out).as_deref(), Some(text));
        assert_eq!(events(&out), ["WORKFLOW_CANCELLING", "WORKFLOW_CANCELLED"]);
        let before = control.clone();
        for name in [PAUSE, RESUME, CANCEL, TAKEOVER, RELEASE] {
            let mut out = at(3);
            assert_eq!(control.signal(name, &Value::Null, &mut out), Ok(false), "{name}");
            assert_eq!((&control, notes(&out).len(), asks(&out).len()), (&before, 0, 0));
        }
    }
}

/// SHN-63: the query has exactly these fields.
#[test]
fn the_control_state_has_the_fields_of_the_query() {
    let nothing = json!({
        "is_paused": false, "is_cancelled": false, "paused_at": null, "pause_reason": null, "paused_by": null,
        "cancel_reason": null, "cancelled_by": null,
    });
    let mut control = Control::default();
    assert_eq!(control.view(), nothing);
    control.pause(by_ann("lunch"), &mut at(1_500));
    let mut paused = nothing.clone();
    paused["is_paused"] = json!(true);
    paused["paused_at"] = json!("1970-01-01T00:00:01.500000Z");
    paused["pause_reason"] = json!("lunch");
    paused["paused_by"] = json!("ann");
    assert_eq!(control.view(), paused);
    control.cancel(ControlRequest::new("enough", "bob"), &mut at(2_000));
    let mut cancelled = nothing;
    cancelled["is_cancelled"] = json!(true);
    cancelled["cancel_reason"] = json!("enough");
    cancelled["cancelled_by"] = json!("bob");
    assert_eq!(control.view(), cancelled);
}

/// SHN-64: whatever was received before a checkpoint is seen there, by the name of the checkpoint.
#[test]
fn a_checkpoint_sees_every_signal_received_before_it() {
    for name in ["pre_decomposition", "pre_subtask_0", "pre_subtask_7", "pre_synthesis", "pre_completion"] {
        let mut control = Control::default();
        assert_eq!(stopped(&mut control, name, &mut at(0)).as_deref(), None);
        control.pause(by_ann("x"), &mut at(1));
        let mut out = at(1);
        assert_eq!(stopped(&mut control, name, &mut out).as_deref(), PAUSED);
        assert_eq!(only_note(&out, NoteKind::Paused)["checkpoint"], name);
        control.cancel(by_ann("y"), &mut at(2));
        let mut out = at(2);
        assert!(stopped(&mut control, name, &mut out).is_some_and(|text| text.ends_with(": y")));
        assert_eq!(only_note(&out, NoteKind::CancelRequested)["checkpoint"], name);
    }
}

/// SHN-65: each event once, with the checkpoint's name; a child does not repeat what its parent has noted.
#[test]
fn events_are_noted_once_and_not_again_by_children() {
    let run = |from_parent| {
        let mut control = Control::default();
        let mut out = at(0);
        let request = |reason| ControlRequest { from_parent, ..by_ann(reason) };
        control.pause(request("a"), &mut out);
        control.checkpoint("pre_subtask_1", &mut out);
        control.checkpoint("pre_subtask_1", &mut out);
        control.resume(request("b"), &mut out);
        control.cancel(request("c"), &mut out);
        control.checkpoint("pre_subtask_1", &mut out);
        control.checkpoint("pre_completion", &mut out);
        out
    };
    assert_eq!(
        events(&run(false)),
        ["WORKFLOW_PAUSING", "WORKFLOW_PAUSED", "WORKFLOW_RESUMED", "WORKFLOW_CANCELLING", "WORKFLOW_CANCELLED"]
    );
    assert_eq!(events(&run(true)), ["WORKFLOW_PAUSED", "WORKFLOW_CANCELLED"]);
}

fn plan() -> Vec<PlanStepView> {
    let step = |id: &str, status, result: Option<&str>, error: Option<&str>| PlanStepView {
        has_ended: false,
        id: TaskId::of(id),
        objective: format!("do {id}"),
        status,
        result: result.map(|text| json!(text)),
        error: error.map(str::to_owned),
    };
    vec![
        step("1", TaskStatus::Completed, Some("one"), None),
        step("2", TaskStatus::Ready, None, None),
        step("3", TaskStatus::Completed, Some("three"), None),
        step("4", TaskStatus::Skipped, None, None),
    ]
}

/// SHN-66: taking over pauses all children and hands the run to a person, with the context.
#[test]
fn a_takeover_pauses_the_children_and_hands_the_run_over() {
    let mut control = with_children(&["recruit/1/child", "recruit/2/child"]);
    let mut out = at(1);
    assert_eq!(control.signal(TAKEOVER, &json!({ "reason": "I know better" }), &mut out), Ok(true));
    assert_eq!(told(&out), ["signal recruit/1/child pause_v1", "signal recruit/2/child pause_v1"]);
    assert_eq!(only_note(&out, NoteKind::HumanTookOver)["reason"], "I know better");
    assert_eq!(stopped(&mut control, "pre_subtask_2", &mut out).as_deref(), HANDED);
    assert_eq!(control.status(), "handed_to_human");
    let handed = TakeoverContext::of(&plan()).handed();
    assert_eq!(handed["status"], "handed_to_human");
    assert_eq!(handed["message"], "Task handed to human for processing");
    assert_eq!(handed["context"], json!(TakeoverContext::of(&plan())));
}

/// SHN-66: a paused run can be taken over too; its children are paused already, and a release leaves it as paused as it was.
#[test]
fn a_paused_run_can_be_taken_over() {
    let mut control = with_children(&["recruit/1/child"]);
    control.pause(by_ann("x"), &mut at(0));
    let mut out = at(1);
    assert!(control.takeover(by_ann("y"), &mut out));
    assert!(told(&out).is_empty());
    let mut out = at(2);
    assert!(control.release(by_ann("z"), &mut out));
    assert_eq!((told(&out), control.status()), (Vec::<String>::new(), "PAUSED"));
    assert_eq!(control.view()["pause_reason"], "x");
    assert!(control.resume(by_ann("z"), &mut out));
    assert_eq!((told(&out), control.status()), (vec!["signal recruit/1/child resume_v1".to_owned()], "RUNNING"));
}

/// SHN-60, SHN-61: who has taken a run over may pause and resume it meanwhile; what is below hears of neither, and the run
/// goes on when both have ended.
#[test]
fn a_pause_of_a_run_that_a_person_has_is_kept() {
    let mut control = with_children(&["recruit/1/child"]);
    control.takeover(by_ann("mine"), &mut at(1));
    let mut out = at(2);
    assert!(control.pause(by_ann("wait"), &mut out) && !control.pause(by_ann("again"), &mut out));
    assert_eq!((told(&out), notes(&out)), (Vec::<String>::new(), vec![NoteKind::Paused]));
    assert_eq!((control.is_paused(), control.is_human(), control.status()), (true, true, "handed_to_human"));
    let both = Some("a person has the run, and it is paused");
    assert_eq!(stopped(&mut control, "x", &mut out).as_deref(), both);
    let mut early = control.clone();
    assert!(early.resume(by_ann("go"), &mut out) && !early.resume(by_ann("go"), &mut out));
    assert!(told(&out).is_empty() && early.is_human());
    assert!(early.release(by_ann("yours"), &mut out));
    assert_eq!((told(&out).len(), early.is_running()), (1, true));
    let mut out = at(3);
    assert!(control.release(by_ann("yours"), &mut out) && told(&out).is_empty());
    assert_eq!(stopped(&mut control, "x", &mut out).as_deref(), PAUSED);
    control.takeover(by_ann("again"), &mut at(4));
    control.cancel(by_ann("enough"), &mut at(5));
    assert_eq!(control.cancelled_text().as_deref(), Some("workflow cancelled while paused: enough"));
}

/// SHN-67: the context has the seed's fields; completed and pending are all tasks, in plan order.
#[test]
fn the_context_shows_every_task_once() {
    let mut steps = plan();
    let mut shown = json!(TakeoverContext::of(&steps));
    assert_eq!(
        shown,
        json!({
            "current_step": 3, "total_steps": 4, "completed_tasks": ["1", "3"], "pending_tasks": ["2", "4"],
            "intermediate_results": { "1": "one", "3": "three" }, "suggested_next_action": "Execute task 2: do 2",
        })
    );
    (steps[1].status, steps[1].error) = (TaskStatus::Failed, Some("no network".into()));
    shown = json!(TakeoverContext::of(&steps));
    assert_eq!(shown["failure_reason"], "task 2: no network");
    assert_eq!(shown["suggested_next_action"], "Repair or complete by hand task 2: do 2");
    for status in TaskStatus::ALL {
        steps[1].status = status;
        let context = TakeoverContext::of(&steps);
        let mut all = [context.completed_tasks, context.pending_tasks].concat();
        all.sort();
        assert_eq!(all, ["1", "2", "3", "4"].map(TaskId::of), "{status}");
        assert!(context.current_step <= context.total_steps);
    }
    let empty = TakeoverContext::of(&[]);
    assert_eq!((empty.current_step, empty.total_steps), (0, 0));
    assert_eq!(empty.suggested_next_action, "Release the run or cancel it: no task is open");
}

/// SHN-68: after a takeover the run goes on by a release or ends by a cancel; only then a person may edit.
#[test]
fn a_takeover_does_not_end_the_run() {
    let mut control = with_children(&["recruit/1/child"]);
    assert!(!control.is_human() && !control.release(by_ann("x"), &mut at(0)));
    control.takeover(by_ann("mine"), &mut at(1));
    assert!(control.is_human() && !control.is_running());
    let mut out = at(2);
    assert!(!control.resume(by_ann("x"), &mut out) && !control.takeover(by_ann("x"), &mut out));
    assert!(control.is_human() && notes(&out).is_empty());
    assert!(control.release(by_ann("yours"), &mut out));
    assert_eq!(
        (told(&out), notes(&out)),
        (vec!["signal recruit/1/child resume_v1".into()], vec![NoteKind::HumanReleased])
    );
    assert_eq!(stopped(&mut control, "pre_subtask_3", &mut out).as_deref(), None);
    control.takeover(by_ann("again"), &mut at(3));
    control.cancel(by_ann("enough"), &mut at(4));
    assert!(control.is_cancelled());
}

/// SHN-68: a takeover may have a deadline; what a person has stopped does not go on by itself.
#[test]
fn a_takeover_may_end_by_a_deadline() {
    let mut control = Control::default();
    let request = || ControlRequest { timeout: Some(Span::from_mins(10)), ..by_ann("mine") };
    let mut out = at(0);
    control.takeover(request(), &mut out);
    assert_eq!(asks(&out), [format!("timer control/takeover/1 at {}", 10 * MINUTE)]);
    let mut out = at(1);
    control.release(by_ann("yours"), &mut out);
    assert_eq!(asks(&out), ["cancel timer control/takeover/1"]);
    control.takeover(request(), &mut at(2));
    assert!(!control.fired(1, &mut at(3)), "the deadline of the first takeover");
    let mut out = at(3);
    assert!(control.fired(2, &mut out));
    assert_eq!(control.cancelled_text().as_deref(), Some("workflow cancelled: human control timed out"));
}

/// SHN-69: any number of pauses and resumes, each of which stops the run once.
#[test]
fn pauses_and_resumes_alternate() {
    let mut control = with_children(&["recruit/1/child"]);
    let mut out = at(0);
    for _ in 0..5 {
        assert!(control.pause(by_ann("x"), &mut out));
        assert_eq!(stopped(&mut control, "pre_completion", &mut out).as_deref(), PAUSED);
        assert!(control.resume(by_ann("x"), &mut out));
        assert_eq!(stopped(&mut control, "pre_completion", &mut out).as_deref(), None);
    }
    assert_eq!(events(&out).iter().filter(|event| **event == "WORKFLOW_PAUSED").count(), 5);
}

/// A signal that does not conform names its field and changes nothing; one without a payload is one without a reason.
#[test]
fn control_signals_are_read_strictly() {
    let mut control = Control::default();
    let why = control.signal(PAUSE, &json!({ "reason": 5 }), &mut at(0)).unwrap_err();
    assert!(why.to_string().starts_with("invalid control signal: reason: invalid type"), "{why}");
    assert!(control.signal(PAUSE, &json!({ "why": "x" }), &mut at(0)).is_err());
    assert_eq!(control, Control::default());
    assert_eq!(control.signal(PAUSE, &Value::Null, &mut at(0)), Ok(true));
}
