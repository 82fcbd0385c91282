//! Tests of interrupts: each is asked once and answered once.

use serde_json::{Value, json};

use super::super::interrupts::{Expired, Goto, Interrupts, OnExpiry, Question, ResumeInterrupt, ResumeRefusal};
use super::{MINUTE, Outbox, asks, at, notes, only_note, resume_to};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::Ask;
use crate::supervisor::spec::Span;
use bosun_engine::Timestamp;

fn ask(interrupts: &mut Interrupts, task: &str, payload: Value) -> String {
    interrupts.raise(Question::new(TaskId::of(task), payload), &mut at(0)).unwrap()
}

/// Two tasks wait: `a` with one question, `b` with two.
fn three() -> Interrupts {
    let mut interrupts = Interrupts::default();
    for (task, payload) in [("a", "a1"), ("b", "b1"), ("b", "b2")] {
        ask(&mut interrupts, task, json!(payload));
    }
    interrupts
}

fn payloads(interrupts: &Interrupts) -> Vec<&str> {
    interrupts.pending().filter_map(|interrupt| interrupt.payload.as_str()).collect()
}

/// LGI-01: the payload reaches who asks the run, in a state that survives; the answer is what interrupt returns.
#[test]
fn an_interrupt_suspends_durably_and_returns_the_answer() {
    let (mut interrupts, mut out) = (Interrupts::default(), at(5));
    let id = interrupts.raise(Question::new(TaskId::of("a"), json!({ "question": "ok?" })), &mut out).unwrap();
    assert_eq!(only_note(&out, NoteKind::InterruptRaised)["payload"], json!({ "question": "ok?" }));
    let mut revived: Interrupts = serde_json::from_str(&serde_json::to_string(&interrupts).unwrap()).unwrap();
    assert_eq!(revived, interrupts);
    let view = revived.view();
    assert_eq!([&view[0]["id"], &view[0]["payload"]["question"]], [&json!(id), &json!("ok?")]);
    let mut out = at(6);
    let resumed = revived.resume(ResumeInterrupt::value(json!({ "v": 1 })), &mut out).unwrap();
    assert_eq!(
        (resumed.task, resumed.outcome, resumed.task_may_continue),
        (TaskId::of("a").into(), Ok(json!({ "v": 1 })), true)
    );
    assert_eq!(only_note(&out, NoteKind::InterruptAnswered)["answer"], json!({ "v": 1 }));
    assert_eq!(revived.view(), json!([]));
}

/// LGI-02: approved goes to execute, anything else to revise_plan with the feedback.
#[test]
fn the_answer_decides_where_the_task_goes() {
    let revise = |feedback: &str| Goto::RevisePlan { feedback: feedback.into() };
    for (answer, goto) in [
        (json!({ "approved": true, "feedback": "" }), Goto::Execute),
        (json!(true), Goto::Execute),
        (json!({ "approved": false, "feedback": "too long" }), revise("too long")),
        (json!({ "approved": "yes" }), revise("")),
        (json!(false), revise("")),
        (json!("shorter"), revise("shorter")),
        (Value::Null, revise("")),
    ] {
        assert_eq!(Goto::of(&answer), goto, "{answer}");
    }
}

/// LGI-03: an answer reaches the interrupts of its own run only, and a run without an id cannot interrupt.
#[test]
fn a_resume_needs_the_same_run() {
    let mut interrupts = Interrupts::default();
    let nowhere = interrupts.raise(Question::new(TaskId::of("a"), json!(1)), &mut Outbox::new("", Timestamp::ZERO));
    assert!(nowhere.unwrap_err().to_string().starts_with("interrupt needs a run"));
    assert_eq!(interrupts, Interrupts::default());

    ask(&mut interrupts, "a", json!(1));
    let before = interrupts.clone();
    for id in ["r2/in-1", "r1/in-2", "r1/in-01", "in-1", ""] {
        let refused = interrupts.resume(resume_to(id, json!(1)), &mut at(1)).unwrap_err();
        assert_eq!(refused, ResumeRefusal::Unknown { id: id.into() });
        assert_eq!(interrupts, before);
    }
}

/// LGI-04, LGI-10: a task continues with the answers it got; asking and answering leave no call, so nothing runs again.
#[test]
fn a_task_continues_where_it_stopped() {
    let mut interrupts = Interrupts::default();
    let mut out = at(0);
    let task = TaskId::of("a");
    interrupts.raise(Question::new(task.clone(), json!("first?")), &mut out).unwrap();
    interrupts.resume(ResumeInterrupt::value(json!(1)), &mut out).unwrap();
    interrupts.raise(Question::new(task.clone(), json!("second?")), &mut out).unwrap();
    assert_eq!(json!(interrupts.continuation(&task)), json!({ "answers": [1], "state": {} }));
    interrupts.resume(ResumeInterrupt::value(json!(2)), &mut out).unwrap();
    assert_eq!(json!(interrupts.continuation(&task)), json!({ "answers": [1, 2], "state": {} }));
    assert!(out.asks().is_empty(), "neither asking nor answering calls anything");
    use NoteKind::{InterruptAnswered, InterruptRaised};
    assert_eq!(notes(&out), [InterruptRaised, InterruptAnswered, InterruptRaised, InterruptAnswered]);
}

/// LGI-05: several pending need the id, with LangGraph's text; answering one keeps the others and fires none again.
#[test]
fn several_pending_interrupts_need_the_id() {
    let mut interrupts = three();
    let before = interrupts.clone();
    let refused = interrupts.resume(ResumeInterrupt::value(json!(1)), &mut at(1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "When there are multiple pending interrupts, you must specify the interrupt id when resuming."
    );
    assert_eq!(interrupts, before);

    let mut out = at(2);
    let resumed = interrupts.resume(resume_to("r1/in-3", json!("x")), &mut out).unwrap();
    assert_eq!((resumed.task, resumed.index, resumed.task_may_continue), (TaskId::of("b").into(), 2, false));
    assert_eq!(payloads(&interrupts), ["a1", "b1"]);
    assert_eq!(notes(&out), [NoteKind::InterruptAnswered], "nothing is raised again");
    let again = interrupts.resume(resume_to("r1/in-3", json!("y")), &mut at(3)).unwrap_err();
    assert_eq!(again, ResumeRefusal::Answered { id: "r1/in-3".into() });
    interrupts.resume(resume_to("r1/in-1", json!("x")), &mut at(4)).unwrap();
    let last = interrupts.resume(ResumeInterrupt::value(json!("z")), &mut at(5)).unwrap();
    assert!(last.task_may_continue, "the last one needs no id");
    assert_eq!(json!(interrupts.continuation(TaskId::of("b"))), json!({ "answers": ["z", "x"], "state": {} }));
    assert_eq!(
        interrupts.resume(ResumeInterrupt::value(json!(1)), &mut at(6)).unwrap_err(),
        ResumeRefusal::NonePending
    );
}

/// LGI-05: within one task, answers without an id are matched by the order of the questions.
#[test]
fn answers_to_a_task_are_matched_by_order() {
    let mut interrupts = three();
    let to_b = |value| ResumeInterrupt {
        task: Some(TaskId::of("b").into()),
        resume: json!(value),
        ..ResumeInterrupt::default()
    };
    let first = interrupts.resume(to_b("one"), &mut at(1)).unwrap();
    let second = interrupts.resume(to_b("two"), &mut at(2)).unwrap();
    assert_eq!(
        [(first.index, first.task_may_continue), (second.index, second.task_may_continue)],
        [(1, false), (2, true)]
    );
    assert_eq!(json!(interrupts.continuation(TaskId::of("b")))["answers"], json!(["one", "two"]));
    assert_eq!(payloads(&interrupts), ["a1"]);
    assert_eq!(interrupts.resume(to_b("three"), &mut at(3)).unwrap_err(), ResumeRefusal::NonePending);
}

/// LGI-06: every interrupt has its own id, also inside one task and after others were answered.
#[test]
fn ids_are_unique() {
    let mut interrupts = Interrupts::default();
    let mut ids = std::collections::BTreeSet::new();
    for n in 0..20 {
        let id = ask(&mut interrupts, if n % 3 == 0 { "a" } else { "b" }, json!("same payload"));
        assert!(ids.insert(id.clone()), "{id}");
        if n % 2 == 0 {
            interrupts.resume(resume_to(&id, json!(n)), &mut at(1)).unwrap();
        }
    }
}

/// LGI-07: a deadline answers with its default or fails the wait; without one a question waits for ever.
#[test]
fn a_deadline_is_optional() {
    let with = |on_expiry| Question {
        timeout: Some(Span::from_mins(10)),
        on_expiry,
        ..Question::new(TaskId::of("a"), json!("?"))
    };
    for (on_expiry, outcome) in [(OnExpiry::Fail, Err(Expired)), (OnExpiry::Answer(json!("no")), Ok(json!("no")))] {
        let (mut interrupts, mut out) = (Interrupts::default(), at(1_000));
        let id = interrupts.raise(with(on_expiry), &mut out).unwrap();
        assert_eq!(asks(&out), [format!("timer interrupt/in-1/deadline at {}", 1_000 + 10 * MINUTE)]);
        let mut out = at(11 * MINUTE);
        let resumed = interrupts.fired(1, &mut out).unwrap();
        assert_eq!(resumed.outcome, outcome);
        assert_eq!(interrupts.fired(1, &mut out), None);
        let late = interrupts.resume(resume_to(&id, json!(1)), &mut out).unwrap_err();
        assert_eq!(late, ResumeRefusal::Late { id });
    }
    assert_eq!(Expired.to_string(), "Interrupt timed out");

    let (mut interrupts, mut out) = (Interrupts::default(), at(0));
    interrupts.raise(Question::new(TaskId::of("a"), json!("?")), &mut out).unwrap();
    assert!(out.asks().is_empty());
    let mut out = at(0);
    interrupts.raise(with(OnExpiry::Fail), &mut out).unwrap();
    let mut out = at(1);
    interrupts.resume(resume_to("r1/in-2", json!(1)), &mut out).unwrap();
    assert!(matches!(out.asks(), [Ask::CancelTimer { key }] if *key == "interrupt/in-2/deadline"));
}

/// LGI-08: a question is asked again until the answer will do; each ask is an interrupt of its own.
#[test]
fn a_question_is_asked_again_until_the_answer_is_valid() {
    let mut interrupts = Interrupts::default();
    let task = TaskId::of("age");
    let mut out = at(0);
    let mut question = "How old are you?".to_owned();
    for answer in ["13", "15", "19"] {
        interrupts.raise(Question::new(task.clone(), json!(question)), &mut out).unwrap();
        let resumed = interrupts.resume(ResumeInterrupt::value(json!(answer)), &mut out).unwrap();
        let Ok(Value::String(given)) = resumed.outcome else { panic!() };
        if given.parse::<u32>().unwrap() >= 18 {
            break;
        }
        question = format!("'{given}' is not of age. How old are you?");
    }
    let asked: Vec<_> = out.notes().iter().filter(|note| note.kind == NoteKind::InterruptRaised).collect();
    assert_eq!(asked.iter().map(|note| &note.data["id"]).collect::<Vec<_>>(), ["r1/in-1", "r1/in-2", "r1/in-3"]);
    assert_eq!(asked.iter().map(|note| note.data["index"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    assert_eq!(asked[2].data["payload"], "'15' is not of age. How old are you?");
    assert_eq!(json!(interrupts.continuation(&task))["answers"], json!(["13", "15", "19"]));
}

/// LGI-09: an update that comes with the answer is applied before the task continues; a refused one is not.
#[test]
fn an_answer_may_carry_an_update_of_the_state() {
    let mut interrupts = three();
    let resume = |id: &str, update: Value| {
        ResumeInterrupt::read(&json!({ "interrupt_id": id, "resume": "go", "update": update })).unwrap()
    };
    interrupts.resume(resume("r1/in-2", json!({ "x": 1, "y": 1 })), &mut at(1)).unwrap();
    assert!(interrupts.resume(resume("r1/in-2", json!({ "x": 9 })), &mut at(1)).is_err());
    let mut out = at(2);
    interrupts.resume(resume("r1/in-3", json!({ "y": 2 })), &mut out).unwrap();
    assert_eq!(only_note(&out, NoteKind::InterruptAnswered)["update"], json!({ "y": 2 }));
    let told = json!(interrupts.continuation(TaskId::of("b")));
    assert_eq!(told, json!({ "answers": ["go", "go"], "state": { "x": 1, "y": 2 } }));
    assert_eq!(json!(interrupts.continuation(TaskId::of("a")))["state"], json!({}));
}

/// An answer that does not conform names its field.
#[test]
fn an_answer_is_read_strictly() {
    let why = |value: Value| ResumeInterrupt::read(&value).unwrap_err().to_string();
    assert!(why(json!({ "resume": 1, "updates": {} })).starts_with("invalid interrupt answer: "));
    assert!(why(json!({ "update": [] })).starts_with("invalid interrupt answer: update: "));
    assert_eq!(ResumeInterrupt::read(&json!({})).unwrap(), ResumeInterrupt::default());
}

/// What a task asked ends with the task.
#[test]
fn a_task_that_ends_asks_nothing_any_more() {
    let mut interrupts = three();
    let timed = Question { timeout: Some(Span::from_mins(1)), ..Question::new(TaskId::of("b"), json!("b3")) };
    interrupts.raise(timed, &mut at(0)).unwrap();
    let mut out = at(1);
    interrupts.task_ended(TaskId::of("b"), &mut out);
    assert_eq!(asks(&out), ["cancel timer interrupt/in-4/deadline"]);
    assert_eq!(payloads(&interrupts), ["a1"]);
    assert_eq!(json!(interrupts.continuation(TaskId::of("b")))["state"], Value::Null);
}
