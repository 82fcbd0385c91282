//! The machines as tables (every state, every input) and under arbitrary inputs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::approval::{
    ApprovalDecision, ApprovalId, ApprovalResponse, ApprovalScope, ApprovalSource, Approvals, Closed, Ignored, Proposal,
};
use super::super::interrupts::{Interrupts, Question, ResumeInterrupt};
use super::super::plan_review::{PlanFeedback, PlanReview, PlanVerdict, ReviewStatus};
use super::{MINUTE, at, golden, notes, resume_to};
use crate::supervisor::core::control::{CANCEL, Control, PAUSE, RELEASE, RESUME, TAKEOVER};
use crate::supervisor::core::key::{Key, TeamKey};
use crate::supervisor::model::TaskId;
use crate::supervisor::spec::{OnApprovalTimeout, PlanApproval, Risk};

/// A line of a table.
fn line(table: &mut String, state: &str, input: &str, after: &str, notes: &[impl std::fmt::Debug]) {
    let notes: Vec<String> = notes.iter().map(|note| format!("{note:?}")).collect();
    *table += format!("{state:<16} {input:<18} {after:<16} {}", notes.join(" ")).trim_end();
    table.push('\n');
}

/// SHN-60, SHN-61, SHN-62, SHN-66: the whole table of run control.
#[test]
fn the_table_of_control() {
    let signals = [PAUSE, RESUME, CANCEL, TAKEOVER, RELEASE];
    let states: [(&str, &[&str]); 4] =
        [("RUNNING", &[]), ("PAUSED", &[PAUSE]), ("handed_to_human", &[TAKEOVER]), ("CANCELLED", &[CANCEL])];
    let mut table = String::new();
    for (name, path) in states {
        for signal in signals {
            let mut control = Control::default();
            for step in path {
                control.signal(step, &Value::Null, &mut at(0)).unwrap();
            }
            assert_eq!(control.status(), name);
            let mut out = at(1);
            let changed = control.signal(signal, &Value::Null, &mut out).unwrap();
            let after = if changed { control.status() } else { "-" };
            line(&mut table, name, signal, after, &notes(&out));
        }
    }
    golden("control.txt", include_str!("control.txt"), &table);
}

fn response(id: &ApprovalId, approved: bool) -> ApprovalResponse {
    let value = json!({ "approval_id": id, "approved": approved, "approver": "ann" });
    serde_json::from_value(value).unwrap()
}

/// SHH-09, SHH-11: the whole table of an approval.
#[test]
fn the_table_of_approvals() {
    type Step = fn(&mut Approvals, &ApprovalId, &mut super::Outbox) -> String;
    fn told(result: Result<Closed, Ignored>) -> String {
        result.map_or_else(|why| why.name().to_owned(), |_| "decided".to_owned())
    }
    let inputs: [(&str, Step); 5] = [
        ("approve", |approvals, id, out| told(approvals.respond(response(id, true), out))),
        ("reject", |approvals, id, out| told(approvals.respond(response(id, false), out))),
        ("deadline", |approvals, _, out| approvals.fired(1, out).map_or("-", |_| "decided").to_owned()),
        ("void", |approvals, _, out| if approvals.void(None, "gone", out).is_empty() { "-" } else { "voided" }.into()),
        ("unknown answer", |approvals, _, out| {
            told(approvals.respond(response(&ApprovalId::new("r1/ap-2"), true), out))
        }),
    ];
    let states =
        [("pending", None), ("approved", Some(0)), ("rejected", Some(1)), ("timed_out", Some(2)), ("voided", Some(3))];
    let mut table = String::new();
    for (name, path) in states {
        for (input, step) in inputs {
            let mut approvals = Approvals::default();
            let id = approvals.request(Proposal::new(ApprovalScope::Task, "publish"), &mut at(0));
            if let Some(path) = path {
                inputs[path].1(&mut approvals, &id, &mut at(1));
            }
            let mut out = at(2);
            let after = step(&mut approvals, &id, &mut out);
            line(&mut table, name, input, &after, &notes(&out));
        }
    }
    golden("approval.txt", include_str!("approval.txt"), &table);
}

/// SHH-21, SHH-22, SHH-23, SHH-24, SHH-25, SHH-26: the whole table of a plan review.
#[test]
fn the_table_of_plan_reviews() {
    type Step = fn(&mut PlanReview, &mut super::Outbox) -> Option<String>;
    fn feedback(review: &mut PlanReview, version: u64, out: &mut super::Outbox) -> Option<String> {
        review.feedback(&PlanFeedback { version, message: "more".into() }, out).err().map(|why| why.to_string())
    }
    fn decide(review: &mut PlanReview, version: u64, approved: bool, out: &mut super::Outbox) -> Option<String> {
        let verdict = PlanVerdict { version, approved, approver: "ann".into(), comment: None, shown: None };
        review.decide(verdict, out).err().map(|why| why.to_string())
    }
    let inputs: [(&str, Step); 7] = [
        ("feedback", |review, out| feedback(review, review.version(), out)),
        ("stale feedback", |review, out| feedback(review, review.version() + 1, out)),
        ("approve", |review, out| decide(review, review.version(), true, out)),
        ("stale approve", |review, out| decide(review, review.version() + 1, true, out)),
        ("deny", |review, out| decide(review, review.version(), false, out)),
        ("new plan", |review, out| {
            review.regenerated("new", Some(json!(2)), out);
            None
        }),
        ("deadline", |review, out| {
            review.fired(out);
            None
        }),
    ];
    let states = [
        ("reviewing", None),
        ("regenerating", Some(0)),
        ("approved", Some(2)),
        ("denied", Some(4)),
        ("timed_out", Some(6)),
    ];
    let mut table = String::new();
    for (name, path) in states {
        for (input, step) in inputs {
            let mut review = PlanReview::open(PlanApproval::default(), "plan", Some(json!(1)), &mut at(0));
            if let Some(path) = path {
                assert_eq!(inputs[path].1(&mut review, &mut at(1)), None);
            }
            let (before, mut out) = (review.clone(), at(2));
            let refused = step(&mut review, &mut out);
            if refused.is_some() {
                assert_eq!(review, before);
            }
            let status = serde_json::to_value(review.status()).unwrap();
            let after = if review == before { "-" } else { status.as_str().unwrap() };
            line(&mut table, name, input, after, &notes(&out));
            if let Some(refused) = refused {
                table += &format!("{:>17}{refused}\n", "");
            }
        }
    }
    golden("plan_review.txt", include_str!("plan_review.txt"), &table);
}

#[derive(Debug, Clone)]
enum Input {
    Request { task: u8, critical: bool, approve_on_timeout: bool },
    Respond { n: u64, approved: bool, foreign: bool },
    Deadline { n: u64 },
    Void { task: u8 },
    Changed { task: u8, to: u8 },
    Used { n: u64 },
    Wait { minutes: u8 },
}

fn input() -> impl Strategy<Value = Input> {
    let n = 1_u64..8;
    prop_oneof![
        3 => (0_u8..3, any::<bool>(), any::<bool>()).prop_map(|(task, critical, approve_on_timeout)| Input::Request {
            task,
            critical,
            approve_on_timeout
        }),
        4 => (n.clone(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(n, approved, foreign)| Input::Respond { n, approved, foreign }),
        2 => n.clone().prop_map(|n| Input::Deadline { n }),
        1 => (0_u8..3).prop_map(|task| Input::Void { task }),
        1 => (0_u8..3, 0_u8..3).prop_map(|(task, to)| Input::Changed { task, to }),
        1 => n.prop_map(|n| Input::Used { n }),
        2 => (0_u8..20).prop_map(|minutes| Input::Wait { minutes }),
    ]
}

fn proposal(task: u8, content: u8) -> Proposal {
    Proposal {
        task_id: Some(TaskId::from(u64::from(task))),
        context: json!(content),
        ..Proposal::new(ApprovalScope::Task, "publish")
    }
}

proptest! {
    /// SHH-09, SHH-11: whatever comes in whatever order, a request has one decision and it never changes; nothing
    /// critical is approved by time; every decision is logged once, and what is pending has its timer.
    #[test]
    fn approvals_decide_once(inputs in prop::collection::vec(input(), 1..60)) {
        let mut approvals = Approvals::default();
        let mut decided: BTreeMap<ApprovalId, ApprovalDecision> = BTreeMap::new();
        let (mut ids, mut ms, mut logged) = (Vec::new(), 0, 0);
        for input in inputs {
            let (before, mut out) = (approvals.clone(), at(ms));
            let id = |n: u64| ApprovalId::new(format!("r1/ap-{n}"));
            let ignored = match input {
                Input::Request { task, critical, approve_on_timeout } => {
                    let risk = if critical { Risk::Critical } else { Risk::Low };
                    let on_timeout = approve_on_timeout.then_some(OnApprovalTimeout::Approve);
                    ids.push(approvals.request(Proposal { risk, on_timeout, ..proposal(task, 0) }, &mut out));
                    false
                }
                Input::Respond { n, approved, foreign } => {
                    let id = if foreign { ApprovalId::new(format!("r2/ap-{n}")) } else { id(n) };
                    approvals.respond(response(&id, approved), &mut out).is_err()
                }
                Input::Deadline { n } => approvals.fired(n, &mut out).is_none(),
                Input::Void { task } => {
                    approvals.void(Some(&TaskId::from(u64::from(task))), "gone", &mut out);
                    false
                }
                Input::Changed { task, to } => {
                    approvals.changed(&proposal(task, to), &mut out);
                    false
                }
                Input::Used { n } => {
                    approvals.used(&id(n));
                    false
                }
                Input::Wait { minutes } => {
                    ms += i64::from(minutes) * MINUTE;
                    false
                }
            };
            if ignored {
                prop_assert_eq!(&approvals, &before);
            }
            logged += super::asks(&out).iter().filter(|ask| ask.starts_with("call log_approval_result")).count();
            for id in &ids {
                let Some((request, decision)) = approvals.get(id) else { continue };
                match (decided.get(id), decision) {
                    (Some(before), Some(now)) => prop_assert_eq!(before, now),
                    (None, Some(now)) => {
                        let by_time = now.source == ApprovalSource::Timeout;
                        prop_assert!(!(by_time && now.approved && request.risk == Risk::Critical));
                        decided.insert(id.clone(), now.clone());
                    }
                    (_, None) => {}
                }
            }
        }
        prop_assert!(logged >= decided.len());
        prop_assert!(approvals.pending().all(|request| !decided.contains_key(&request.id)));
        let stored: Approvals = serde_json::from_str(&serde_json::to_string(&approvals).unwrap()).unwrap();
        prop_assert_eq!(stored, approvals);
    }

    /// SHN-60, SHN-61, SHN-62, SHN-69: only a running run starts things; cancelled is final; a child that is there is
    /// told of every change of the parent, and so always knows whether it may run.
    #[test]
    fn control_and_its_children_agree(steps in prop::collection::vec((0_usize..8, 0_u8..3), 1..60)) {
        let mut control = Control::default();
        let mut children: BTreeMap<Key, Control> = BTreeMap::new();
        for (step, child) in steps {
            let mut out = at(0);
            let was_cancelled = control.is_cancelled();
            let child: Key = TeamKey::Recruit(u64::from(child)).into();
            match step {
                0..5 => {
                    let signal = [PAUSE, RESUME, CANCEL, TAKEOVER, RELEASE][step];
                    control.signal(signal, &json!({ "reason": "r", "requested_by": "ann" }), &mut out).unwrap();
                }
                5 => {
                    children.entry(child.clone()).or_default();
                    control.register(child, &mut out);
                }
                6 => {
                    children.remove(&child);
                    control.unregister(&child);
                }
                _ => {
                    control.checkpoint("pre_subtask_1", &mut out);
                    prop_assert_eq!(control.why_held().is_none(), control.is_running());
                    prop_assert_eq!(control.cancelled_text().is_some(), control.is_cancelled());
                }
            }
            for ask in out.asks() {
                let crate::supervisor::outbox::Ask::SignalChild { key, signal, input } = ask else { continue };
                let mut theirs = at(0);
                children.get_mut(key).expect("only children that are there").signal(signal, input, &mut theirs).unwrap();
                prop_assert!(theirs.notes().is_empty(), "the parent has noted it");
            }
            prop_assert!(!was_cancelled || control.is_cancelled());
            for (name, child) in &children {
                prop_assert_eq!(child.is_running(), control.is_running(), "{}", name);
                prop_assert_eq!(child.is_cancelled(), control.is_cancelled(), "{}", name);
            }
            prop_assert_eq!(control.children().count(), children.len());
        }
    }

    /// LGI-05, LGI-06: each interrupt is answered at most once, answers go to the question they name, and a task is told
    /// its answers in the order of its questions.
    #[test]
    fn interrupts_are_answered_once(steps in prop::collection::vec((0_u8..3, 1_u64..10, 0_u64..3), 1..60)) {
        let mut interrupts = Interrupts::default();
        let mut asked: Vec<(String, TaskId)> = Vec::new();
        let mut answered: BTreeMap<String, Value> = BTreeMap::new();
        for (step, n, task) in steps {
            let mut out = at(0);
            let task = TaskId::from(task);
            if step == 0 {
                let id = interrupts.raise(Question::new(task.clone(), json!(n)), &mut out).unwrap();
                prop_assert!(asked.iter().all(|(other, _)| *other != id));
                asked.push((id, task));
                continue;
            }
            let before = interrupts.clone();
            let value = json!(answered.len());
            let resume = match step {
                1 => resume_to(&format!("r1/in-{n}"), value.clone()),
                _ => ResumeInterrupt { task: Some(task.into()), resume: value.clone(), ..ResumeInterrupt::default() },
            };
            match interrupts.resume(resume, &mut out) {
                Ok(resumed) => prop_assert!(answered.insert(resumed.id, value).is_none()),
                Err(_) => prop_assert_eq!(&interrupts, &before),
            }
            prop_assert_eq!(interrupts.pending().count(), asked.len() - answered.len());
        }
        for (_, task) in &asked {
            let of_task = asked.iter().filter(|(_, other)| other == task).filter_map(|(id, _)| answered.get(id));
            prop_assert_eq!(&json!(interrupts.continuation(task))["answers"], &json!(of_task.collect::<Vec<_>>()));
        }
    }

    /// SHH-21, SHH-22, SHH-23: whatever people send, the approved plan is the one of the approved version and stays so.
    #[test]
    fn reviews_approve_one_version(steps in prop::collection::vec((0_u8..6, 1_u64..6), 1..60)) {
        let mut review = PlanReview::open(PlanApproval::default(), "plan", Some(json!(1)), &mut at(0));
        let mut approved: Option<(u64, Value)> = None;
        for (step, version) in steps {
            let mut out = at(0);
            let shown = review.version();
            match step {
                0 => drop(review.feedback(&PlanFeedback { version, message: "m".into() }, &mut out)),
                1 => review.regenerated("m", Some(json!(shown + 1)), &mut out),
                2 => review.not_regenerated("no", &mut out),
                3 => review.replaced(json!({ "edited": version }), &mut out),
                _ => {
                    let verdict = PlanVerdict { version, approved: step == 4, approver: "a".into(), comment: None, shown: None };
                    let open = review.status() == ReviewStatus::Reviewing;
                    let taken = review.decide(verdict, &mut out).is_ok();
                    prop_assert!(!(open && taken) || version == shown);
                }
            }
            prop_assert!(review.round() <= 10);
            let now = review.approved().map(|plan| (plan.version, plan.plan.clone()));
            prop_assert!(approved.is_none() || approved == now);
            approved = now;
        }
    }
}
