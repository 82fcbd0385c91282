//! Tests of approvals: one decision per request, and only for what was shown.

use serde_json::{Value, json};

use super::super::approval::{
    ApprovalId, ApprovalScope, ApprovalSource, Approvals, Clearance, Closed, Consequence, Ignored, OnReject, Proposal,
};
use super::{MINUTE, asks, at, notes, only_note};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Ask, CallFailure, Outbox};
use crate::supervisor::spec::{Approval, OnApprovalTimeout, Risk, Span};

fn publish() -> Proposal {
    Proposal {
        task_id: Some(TaskId::of("t6")),
        description: "Market analysis report generated, publish to client?".into(),
        risk: Risk::High,
        context: json!({ "report": "..." }),
        reasons: vec!["Sensitive operation requires approval: publish".into()],
        ..Proposal::new(ApprovalScope::Task, "publish")
    }
}

fn answer(id: &ApprovalId, approved: bool) -> Value {
    json!({ "approval_id": id, "approved": approved, "approver": "ann", "timestamp": 1 })
}

/// A response that came as data.
fn responded(approvals: &mut Approvals, value: &Value, out: &mut Outbox) -> Result<Closed, Ignored> {
    let response = approvals.read(value, out)?;
    approvals.respond(response, out)
}

/// Asked at time 0.
fn asked(proposal: Proposal) -> (Approvals, ApprovalId) {
    let mut approvals = Approvals::default();
    let id = approvals.request(proposal, &mut at(0));
    (approvals, id)
}

/// SHH-07: the request carries what the seed names, people are notified, the timer is absolute, the result is logged.
#[test]
fn a_request_notifies_waits_for_its_deadline_and_logs_the_result() {
    let (mut approvals, mut out) = (Approvals::default(), at(1_000));
    let id = approvals.request(publish(), &mut out);
    assert_eq!(id.as_str(), "r1/ap-1");
    let deadline = 1_000 + 30 * MINUTE;
    assert_eq!(
        asks(&out),
        [
            "call notify_for_approval approval/ap-1/notify".to_owned(),
            format!("timer approval/ap-1/deadline at {deadline}")
        ]
    );
    let shown = only_note(&out, NoteKind::ApprovalRequested);
    for (key, value) in [
        ("task_id", json!("t6")),
        ("action", json!("publish")),
        ("description", json!("Market analysis report generated, publish to client?")),
        ("risk", json!("high")),
        ("context", json!({ "report": "..." })),
        ("timeout", json!("30m")),
        ("on_timeout", json!("reject")),
        ("notified", json!(false)),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }

    let mut out = at(2_000);
    approvals.notified(1, &Ok(Value::Null), &mut out);
    assert_eq!(only_note(&out, NoteKind::ApprovalNotified)["ok"], true);
    assert_eq!(approvals.view()[0]["notified"], true);

    let mut out = at(3_000);
    let closed = responded(&mut approvals, &answer(&id, true), &mut out).unwrap();
    assert_eq!(closed.consequence, Consequence::Proceed { action: "publish".into(), feedback: None });
    assert_eq!(asks(&out), ["cancel timer approval/ap-1/deadline", "call log_approval_result approval/ap-1/log"]);
    let Ask::Call(log) = &out.asks()[1] else { panic!() };
    assert_eq!(
        [&log.context["request"]["action"], &log.context["response"]["approved"]],
        [&json!("publish"), &json!(true)]
    );
}

/// SHH-07: a notification that fails is noted, and the wait goes on; the timeout is the spec's, in seconds or as text.
#[test]
fn a_failed_notification_does_not_end_the_wait_and_the_timeout_is_configurable() {
    let rules = Approval { timeout: serde_json::from_str("3600").unwrap(), ..Approval::default() };
    let (mut approvals, mut out) = (Approvals::new(rules), at(0));
    let id = approvals.request(publish(), &mut out);
    assert_eq!(asks(&out)[1], format!("timer approval/ap-1/deadline at {}", 60 * MINUTE));
    let mut out = at(1);
    approvals.notified(1, &Err(CallFailure::error("no slack")), &mut out);
    assert_eq!(only_note(&out, NoteKind::ApprovalNotified)["error"], "no slack");
    let mut out = at(2);
    assert!(responded(&mut approvals, &answer(&id, true), &mut out).is_ok());
    let own = Proposal { timeout: Some(Span::from_mins(1)), ..publish() };
    let mut out = at(0);
    approvals.request(own, &mut out);
    assert_eq!(asks(&out)[1], format!("timer approval/ap-2/deadline at {MINUTE}"));
}

/// SHH-08: approved and approver are needed, the comment is not; an answer that does not conform names its field and
/// changes nothing.
#[test]
fn a_response_is_read_strictly() {
    let (approvals, id) = asked(publish());
    let ok = json!({ "approval_id": id, "approved": true, "approver": "ann", "comment": "fine", "timestamp": 17 });
    let mut good = approvals.clone();
    responded(&mut good, &ok, &mut at(1)).unwrap();
    let (_, decision) = good.get(&id).unwrap();
    let decision = decision.unwrap();
    assert_eq!(
        (decision.approved, decision.approver.as_str(), decision.comment.as_deref(), decision.source),
        (true, "ann", Some("fine"), ApprovalSource::Human)
    );
    assert_eq!(decision.at, at(1).now(), "the log's time counts");

    for (bad, why) in [
        (json!({ "approval_id": id, "approved": "yes", "approver": "ann" }), "invalid approval response: approved: "),
        (json!({ "approval_id": id, "approved": true }), "invalid approval response: missing field `approver`"),
        (json!({ "approved": true, "approver": "ann" }), "invalid approval response: missing field `approval_id`"),
        (json!({ "approval_id": id, "approved": true, "approver": "a", "aproved": 1 }), "invalid approval response: "),
        (json!(true), "invalid approval response: "),
    ] {
        let mut after = approvals.clone();
        let mut out = at(1);
        let refused = responded(&mut after, &bad, &mut out).unwrap_err();
        assert!(refused.to_string().starts_with(why), "{refused}");
        assert_eq!(only_note(&out, NoteKind::ApprovalIgnored)["reason"], "invalid");
        assert_eq!(after, approvals, "{bad}");
    }
}

/// SHH-09: the deadline rejects with the seed's comment; it approves where the rules say so; critical is always rejected.
#[test]
fn the_deadline_decides_as_configured_and_never_approves_what_is_critical() {
    let approve = Approval { on_timeout: OnApprovalTimeout::Approve, ..Approval::default() };
    for (rules, own, risk, approved, comment) in [
        (Approval::default(), None, Risk::Low, false, "Approval timeout, auto-rejected"),
        (approve.clone(), None, Risk::High, true, "Approval timeout, auto-approved"),
        (Approval::default(), Some(OnApprovalTimeout::Approve), Risk::Low, true, "Approval timeout, auto-approved"),
        (approve.clone(), Some(OnApprovalTimeout::Reject), Risk::Low, false, "Approval timeout, auto-rejected"),
        (approve, Some(OnApprovalTimeout::Approve), Risk::Critical, false, "Approval timeout, auto-rejected"),
    ] {
        let mut approvals = Approvals::new(rules);
        let id = approvals.request(Proposal { risk, on_timeout: own, ..publish() }, &mut at(0));
        let mut out = at(30 * MINUTE);
        let closed = approvals.fired(1, &mut out).unwrap();
        assert_eq!(matches!(closed.consequence, Consequence::Proceed { .. }), approved);
        let (_, decision) = approvals.get(&id).unwrap();
        let decision = decision.unwrap();
        assert_eq!(
            (decision.approved, decision.comment.as_deref(), decision.source),
            (approved, Some(comment), ApprovalSource::Timeout)
        );
        assert_eq!(asks(&out), ["call log_approval_result approval/ap-1/log"]);
    }
}

/// SHH-10: rejected and required ends the run with the seed's text; rejected and not required skips.
#[test]
fn a_rejection_ends_the_run_or_skips_the_task() {
    for (on_reject, consequence) in [
        (
            OnReject::EndRun,
            Consequence::EndRun {
                error: "Required task rejected: Sensitive operation requires approval: publish (ann: too early)".into(),
            },
        ),
        (OnReject::Skip, Consequence::Skip { reason: "rejected by ann: too early".into() }),
    ] {
        let (mut approvals, id) = asked(Proposal { on_reject, ..publish() });
        let mut no = answer(&id, false);
        no["comment"] = "too early".into();
        assert_eq!(responded(&mut approvals, &no, &mut at(1)).unwrap().consequence, consequence);
    }
    let (mut approvals, id) = asked(Proposal { on_reject: OnReject::EndRun, reasons: Vec::new(), ..publish() });
    let closed = responded(&mut approvals, &answer(&id, false), &mut at(1)).unwrap();
    assert_eq!(closed.consequence, Consequence::EndRun { error: "Required task rejected: rejected by ann".into() });
}

/// SHH-14: a plan that is denied ends the run with Shannon's text, whoever or whatever denied it.
#[test]
fn a_denied_plan_ends_the_run() {
    let plan = Proposal::new(ApprovalScope::Plan { version: 1 }, "execute_decomposition_plan");
    let (mut approvals, id) = asked(plan.clone());
    let mut no = answer(&id, false);
    no["comment"] = "too broad".into();
    let denied = |why: &str| Consequence::EndRun { error: format!("approval denied: {why}") };
    assert_eq!(responded(&mut approvals, &no, &mut at(1)).unwrap().consequence, denied("too broad"));
    let (mut approvals, _) = asked(plan);
    let closed = approvals.fired(1, &mut at(30 * MINUTE)).unwrap();
    assert_eq!(closed.consequence, denied("Approval timeout, auto-rejected"));
}

/// SHH-11: an answer goes to the request it names, never to the next one on the channel.
#[test]
fn answers_are_correlated_with_their_requests() {
    let mut approvals = Approvals::default();
    let first = approvals.request(publish(), &mut at(0));
    let second = approvals.request(Proposal { task_id: Some(TaskId::of("t7")), ..publish() }, &mut at(0));
    let closed = responded(&mut approvals, &answer(&second, true), &mut at(1)).unwrap();
    assert_eq!((closed.id, closed.task_id), (second, Some(TaskId::of("t7"))));
    assert_eq!(approvals.pending().map(|request| &request.id).collect::<Vec<_>>(), [&first]);
}

/// SHH-11: an unknown id, a duplicate and a late answer are recorded with their reason and change nothing.
#[test]
fn answers_that_do_not_count_are_recorded_and_change_nothing() {
    let (pending, id) = asked(publish());
    let mut decided = pending.clone();
    responded(&mut decided, &answer(&id, false), &mut at(1)).unwrap();
    let mut timed_out = pending.clone();
    timed_out.fired(1, &mut at(30 * MINUTE)).unwrap();
    let mut void = pending.clone();
    void.void(Some(&TaskId::of("t6")), "task cancelled", &mut at(1));

    let stranger = |text: &str| answer(&ApprovalId::new(text), true);
    for (state, ms, response, reason) in [
        (&pending, 1, stranger("r2/ap-1"), "unknown"),
        (&pending, 1, stranger("r1/ap-2"), "unknown"),
        (&pending, 1, stranger("r1/ap-01"), "unknown"),
        (&pending, 1, stranger(""), "unknown"),
        (&decided, 2, answer(&id, true), "duplicate"),
        (&timed_out, 30 * MINUTE + 1, answer(&id, true), "late"),
        (&void, 2, answer(&id, true), "voided"),
    ] {
        let (mut after, mut out) = (state.clone(), at(ms));
        let refused = responded(&mut after, &response, &mut out).unwrap_err();
        assert_eq!(refused.name(), reason);
        assert_eq!(only_note(&out, NoteKind::ApprovalIgnored)["reason"], reason);
        assert_eq!((&after, asks(&out).len()), (state, 0));
    }
    // What is heard first counts, whatever the clock says then.
    for ms in [30 * MINUTE - 1, 30 * MINUTE, 30 * MINUTE + 1] {
        let mut in_time = pending.clone();
        assert!(responded(&mut in_time, &answer(&id, true), &mut at(ms)).is_ok(), "{ms}");
        assert_eq!(in_time.fired(1, &mut at(ms)), None, "{ms}");
    }
}

/// SHH-11: the timer of a request that is decided does nothing, and neither do keys of others.
#[test]
fn a_deadline_that_fires_after_the_decision_changes_nothing() {
    let (mut approvals, id) = asked(publish());
    responded(&mut approvals, &answer(&id, true), &mut at(1)).unwrap();
    let before = approvals.clone();
    let mut out = at(30 * MINUTE);
    for n in [1, 9] {
        assert_eq!(approvals.fired(n, &mut out), None);
    }
    assert_eq!((approvals, notes(&out).len(), asks(&out).len()), (before, 0, 0));
}

/// SHH-12: the four buttons are offered; Modify and Retry carries the action and the feedback.
#[test]
fn a_person_may_modify_and_retry() {
    let (approvals, id) = asked(publish());
    assert_eq!(approvals.view()[0]["options"], json!(["View Report", "Approve", "Reject", "Modify and Retry"]));
    let with = |approved: bool, action: Option<&str>, feedback: Option<&str>| {
        let mut response = answer(&id, approved);
        response["modified_action"] = json!(action);
        response["feedback"] = json!(feedback);
        approvals.clone().respond_json(&response, &mut at(1)).unwrap().consequence
    };
    let retry = |action: Option<&str>, feedback: &str| Consequence::Retry {
        action: action.map(str::to_owned),
        feedback: feedback.into(),
    };
    assert_eq!(with(false, Some("publish draft"), Some("softer words")), retry(Some("publish draft"), "softer words"));
    assert_eq!(with(false, None, Some("softer words")), retry(None, "softer words"));
    assert_eq!(with(false, Some("publish draft"), None), retry(Some("publish draft"), ""));
    assert_eq!(
        with(true, Some("publish draft"), None),
        Consequence::Proceed { action: "publish draft".into(), feedback: None }
    );
    assert_eq!(
        with(false, None, None),
        Consequence::Skip { reason: "rejected by ann: Sensitive operation requires approval: publish".into() }
    );
}

/// SHH-12, SHH-22: what a person wrote themselves is approved as written; anything else that changes voids the approval.
#[test]
fn one_approves_exactly_what_one_saw() {
    let (mut approvals, id) = asked(publish());
    let other = Proposal { context: json!({ "report": "another" }), ..publish() };
    assert_eq!(approvals.clearance(&publish(), false), Clearance::Pending(id.clone()));
    assert_eq!(approvals.clearance(&other, false), Clearance::NotAsked);

    let mut stale = answer(&id, true);
    stale["shown"] = "another hash".into();
    assert_eq!(responded(&mut approvals, &stale, &mut at(1)), Err(Ignored::Stale));
    stale["shown"] = publish().hash().into();
    assert!(responded(&mut approvals, &stale, &mut at(1)).is_ok());
    let cleared = Clearance::Approved { id: id.clone(), action: "publish".into() };
    assert_eq!(approvals.clearance(&publish(), false), cleared);
    assert_eq!(approvals.clearance(&other, false), Clearance::NotAsked);

    let (mut out, mut changed) = (at(2), approvals.clone());
    assert_eq!(changed.changed(&other, &mut out), vec![id.clone()]);
    assert_eq!(only_note(&out, NoteKind::ApprovalVoided)["reason"], "what was shown has changed");
    assert_eq!(changed.clearance(&publish(), false), Clearance::NotAsked);
    assert_eq!(approvals.changed(&publish(), &mut at(2)), []);

    approvals.used(&id);
    assert_eq!(approvals.clearance(&publish(), false), Clearance::NotAsked, "one approval is for one start");

    let (mut approvals, id) = asked(publish());
    let mut modified = answer(&id, true);
    modified["modified_action"] = "publish draft".into();
    responded(&mut approvals, &modified, &mut at(1)).unwrap();
    let now = Proposal { action: "publish draft".into(), ..publish() };
    assert_eq!(approvals.clearance(&now, false), Clearance::Approved { id, action: "publish draft".into() });
    assert_eq!(approvals.clearance(&publish(), false), Clearance::NotAsked);
}

/// A change of a pending request cancels its timer; requests of other tasks stay.
#[test]
fn voiding_concerns_the_task_only() {
    let mut approvals = Approvals::default();
    let first = approvals.request(publish(), &mut at(0));
    let other = approvals.request(Proposal { task_id: Some(TaskId::of("t7")), ..publish() }, &mut at(0));
    let plan = approvals.request(Proposal::new(ApprovalScope::Plan { version: 1 }, "execute"), &mut at(0));
    let mut out = at(1);
    assert_eq!(approvals.void(Some(&TaskId::of("t6")), "task cancelled", &mut out), [first]);
    assert_eq!(asks(&out), ["cancel timer approval/ap-1/deadline"]);
    let next = Proposal { context: json!(2), ..Proposal::new(ApprovalScope::Plan { version: 2 }, "execute") };
    assert_eq!(approvals.changed(&next, &mut at(2)), [plan]);
    assert_eq!(approvals.void(None, "run cancelled", &mut at(3)), [other]);
    assert_eq!(approvals.view(), json!([]));
}

/// CUG-39: a policy pauses with its name, its message and the whole code; approval resumes, denial cancels.
#[test]
fn a_tool_policy_shows_the_code_and_a_denial_cancels() {
    let code = "pay(\"bob\", 100)\n".repeat(500);
    let (mut approvals, id) = asked(Proposal::tool("tool_approval_pay", "Paying needs a person", &code));
    let shown = &approvals.view()[0]["context"];
    assert_eq!(shown["policy_name"], "tool_approval_pay");
    assert_eq!(shown["message"], "Paying needs a person");
    assert_eq!(shown["code"], code.as_str());
    let mut denied = approvals.clone();
    let answer_of = responded(&mut denied, &answer(&id, false), &mut at(1)).unwrap().consequence;
    assert_eq!(answer_of, Consequence::Cancel { answer: "Execution cancelled: rejected by ann".into() });
    let resumed = responded(&mut approvals, &answer(&id, true), &mut at(1)).unwrap().consequence;
    assert_eq!(resumed, Consequence::Proceed { action: "tool_approval".into(), feedback: None });
}

/// What is closed is bounded; what waits, or was approved and not started, is never forgotten.
#[test]
fn memory_is_bounded_and_a_forgotten_request_stays_decided() {
    let mut approvals = Approvals::default();
    let waits = approvals.request(publish(), &mut at(0));
    let unused = approvals.request(publish(), &mut at(0));
    responded(&mut approvals, &answer(&unused, true), &mut at(0)).unwrap();
    for _ in 0..1_500 {
        let id = approvals.request(publish(), &mut at(0));
        responded(&mut approvals, &answer(&id, false), &mut at(0)).unwrap();
    }
    assert!(serde_json::to_string(&approvals).unwrap().len() < 1_200_000);
    assert_eq!(approvals.pending().count(), 1);
    assert!(approvals.get(&waits).is_some() && approvals.get(&unused).is_some());
    let forgotten = ApprovalId::new("r1/ap-3");
    assert!(approvals.get(&forgotten).is_none());
    assert_eq!(responded(&mut approvals, &answer(&forgotten, true), &mut at(1)), Err(Ignored::Duplicate));
}
