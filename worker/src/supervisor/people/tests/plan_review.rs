//! Tests of the plan review: one approves exactly the plan one saw.

use serde_json::{Value, json};

use super::super::plan_review::{
    Ending, MESSAGE_MAX, PlanAuthor, PlanFeedback, PlanReview, PlanVerdict, ReviewRefusal, ReviewStatus,
};
use super::{MINUTE, asks, at, notes, only_note};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::spec::{PlanApproval, Span};

fn plan(n: u64) -> Value {
    json!({ "tasks": [{ "id": "1", "agent": "research", "objective": format!("version {n}") }, { "id": "2", "deps": ["1"] }] })
}

fn open() -> PlanReview {
    PlanReview::open(PlanApproval::default(), "Here is a plan.", Some(plan(1)), &mut at(0))
}

fn feedback(version: u64, message: &str) -> PlanFeedback {
    PlanFeedback { version, message: message.into() }
}

fn verdict(version: u64, approved: bool) -> PlanVerdict {
    PlanVerdict { version, approved, approver: "ann".into(), comment: None, shown: None }
}

/// One round that gives a new plan.
fn round(review: &mut PlanReview) {
    let version = review.version();
    review.feedback(&feedback(version, "more"), &mut at(1)).unwrap();
    review.regenerated(&format!("Plan {}", version + 1), Some(plan(version + 1)), &mut at(2));
}

#[track_caller]
fn refused<T: std::fmt::Debug>(
    review: &PlanReview,
    act: impl FnOnce(&mut PlanReview, &mut super::Outbox) -> Result<T, ReviewRefusal>,
    text: &str,
) {
    let (mut after, mut out) = (review.clone(), at(9));
    assert_eq!(act(&mut after, &mut out).unwrap_err().to_string(), text);
    assert_eq!((&after, notes(&out).len(), asks(&out).len()), (review, 0, 0), "a refusal changes nothing");
}

/// SHH-21: the first plan is round 1; each feedback makes a new version; the 10th round is definitive, an 11th is refused.
#[test]
fn ten_rounds_are_all_and_the_tenth_is_definitive() {
    let mut review = open();
    assert_eq!((review.status(), review.round(), review.version()), (ReviewStatus::Reviewing, 1, 1));
    for next in 2..=10 {
        let wanted = review.feedback(&feedback(review.version(), "more"), &mut at(1)).unwrap();
        assert_eq!((wanted.round, wanted.max_rounds, wanted.definitive), (next, 10, next == 10));
        assert_eq!(wanted.conversation.last().unwrap().role, PlanAuthor::User);
        let mut out = at(2);
        review.regenerated("again", Some(plan(next.into())), &mut out);
        assert_eq!((review.round(), review.version()), (next, u64::from(next)));
        assert_eq!(only_note(&out, NoteKind::PlanProposed)["version"], next);
    }
    refused(
        &review,
        |review, out| review.feedback(&feedback(10, "more"), out),
        "Maximum review rounds reached. Please approve the plan.",
    );
    review.decide(verdict(10, true), &mut at(3)).unwrap();
    assert_eq!(review.status(), ReviewStatus::Approved);
    assert_eq!(review.approved().unwrap().plan, plan(10));
    assert_eq!(review.conversation().len(), 19);
}

/// SHH-22: a stale version is a conflict, for feedback and for approval; so is another hash than the one shown.
#[test]
fn one_approves_exactly_the_plan_one_saw() {
    let mut review = open();
    round(&mut review);
    for stale in [1, 3] {
        refused(
            &review,
            |review, out| review.feedback(&feedback(stale, "x"), out),
            "Conflict: state has been modified",
        );
        refused(
            &review,
            |review, out| review.decide(verdict(stale, true), out),
            "Conflict: plan has been updated. Please review the latest version.",
        );
    }
    let hash = review.view()["hash"].as_str().unwrap().to_owned();
    let with = |hash: &str| PlanVerdict { shown: Some(hash.into()), ..verdict(2, true) };
    refused(
        &review,
        |review, out| review.decide(with("0000"), out),
        "Conflict: plan has been updated. Please review the latest version.",
    );
    let mut edited = review.clone();
    edited.replaced(plan(7), &mut at(3));
    refused(
        &edited,
        |review, out| review.decide(with(&hash), out),
        "Conflict: plan has been updated. Please review the latest version.",
    );
    let mut out = at(4);
    review.decide(with(&hash), &mut out).unwrap();
    let data = only_note(&out, NoteKind::PlanApproved);
    assert_eq!([&data["version"], &data["hash"], &data["by"]], [&json!(2), &json!(hash), &json!("ann")]);
    assert_eq!(asks(&out), ["cancel timer plan_review/deadline"]);
}

/// SHH-23: while a plan is being made nothing is taken; a second approval changes nothing; after it nothing is.
#[test]
fn feedback_and_approval_exclude_each_other() {
    let mut review = open();
    review.feedback(&feedback(1, "more"), &mut at(1)).unwrap();
    let text = "A feedback request is in progress. Please wait and try again.";
    refused(&review, |review, out| review.feedback(&feedback(1, "more"), out), text);
    refused(&review, |review, out| review.decide(verdict(1, true), out), text);
    review.regenerated("Plan 2", Some(plan(2)), &mut at(2));
    review.decide(verdict(2, true), &mut at(3)).unwrap();

    let (before, mut out) = (review.clone(), at(4));
    review.decide(verdict(2, true), &mut out).unwrap();
    assert_eq!((&review, notes(&out).len()), (&before, 0), "a second approval is idempotent");
    refused(&review, |review, out| review.feedback(&feedback(2, "more"), out), "Review already approved");
    refused(&review, |review, out| review.decide(verdict(2, false), out), "Review already approved");
    review.regenerated("late", Some(plan(9)), &mut at(5));
    review.replaced(plan(9), &mut at(5));
    assert_eq!(review, before, "what is approved is frozen");
}

/// SHH-24: no plan cannot be approved; feedback needs a message of at most 10 KB.
#[test]
fn what_cannot_be_approved_or_said_is_refused() {
    let mut question = PlanReview::open(PlanApproval::default(), "Which market?", None, &mut at(0));
    refused(
        &question,
        |review, out| review.decide(verdict(1, true), out),
        "No research plan to approve. Please provide feedback to generate a plan first.",
    );
    for empty in ["", "  \n"] {
        refused(&question, |review, out| review.feedback(&feedback(1, empty), out), "message is required for feedback");
    }
    let long = "x".repeat(MESSAGE_MAX + 1);
    refused(
        &question,
        |review, out| review.feedback(&feedback(1, &long), out),
        "message exceeds maximum length (10KB)",
    );
    assert_eq!(MESSAGE_MAX, 10_240);
    assert!(question.feedback(&feedback(1, &long[1..]), &mut at(1)).is_ok());
    question.regenerated("Then so", Some(plan(2)), &mut at(2));
    assert!(question.decide(verdict(2, true), &mut at(3)).is_ok());
    let read = PlanFeedback::read(&json!({ "message": "x" })).unwrap_err().to_string();
    assert_eq!(read, "invalid plan feedback: missing field `version`");
    let read = PlanVerdict::read(&json!({ "version": "one" })).unwrap_err().to_string();
    assert!(read.starts_with("invalid plan approval: version: "), "{read}");
    assert!(PlanVerdict::read(&json!({ "version": 1 })).unwrap().approved);
}

/// SHH-25: the wait ends after 15 minutes, by default and at most, with the seed's text; the conversation is in the state.
#[test]
fn the_review_is_bounded_in_time() {
    for (timeout, ends) in [(Span::from_mins(15), 15), (Span::from_mins(60), 15), (Span::from_mins(2), 2)] {
        let mut out = at(1_000);
        let rules = PlanApproval { timeout, ..PlanApproval::default() };
        let mut review = PlanReview::open(rules, "plan", Some(plan(1)), &mut out);
        assert_eq!(asks(&out), [format!("timer plan_review/deadline at {}", 1_000 + ends * MINUTE)]);
        assert!(review.fired(&mut out));
        assert_eq!(review.ending(), Some(Ending::Failed("research plan review timed out".into())));
        assert!(!review.fired(&mut out));
        refused(&review, |review, out| review.decide(verdict(1, true), out), "Review already closed: timed out");
    }
    let mut review = open();
    round(&mut review);
    let stored = serde_json::to_string(&review).unwrap();
    assert_eq!(serde_json::from_str::<PlanReview>(&stored).unwrap(), review);
    review.decide(verdict(2, true), &mut at(3)).unwrap();
    assert!(!review.fired(&mut at(15 * MINUTE)));
    assert_eq!((review.status(), review.ending()), (ReviewStatus::Approved, None));
}

/// SHH-25: what is bounded is the wait for people: while a plan is being made no deadline runs, and the next version, or a message
/// that was withdrawn, has a whole one.
#[test]
fn the_time_of_the_planner_is_not_that_of_people() {
    for comes in [true, false] {
        let mut review = open();
        let mut out = at(14 * MINUTE);
        review.feedback(&feedback(1, "more"), &mut out).unwrap();
        assert_eq!(asks(&out), ["cancel timer plan_review/deadline"]);
        assert!(!review.fired(&mut at(15 * MINUTE)));
        let mut out = at(40 * MINUTE);
        match comes {
            true => review.regenerated("late", Some(plan(2)), &mut out),
            false => review.not_regenerated("no model", &mut out),
        }
        assert_eq!(asks(&out), [format!("timer plan_review/deadline at {}", 55 * MINUTE)]);
        assert!(review.fired(&mut at(55 * MINUTE)));
    }
}

/// SHH-26: a regeneration that fails withdraws the message; version, round and plan stay, and one may try again.
#[test]
fn a_failed_regeneration_withdraws_the_message() {
    let mut review = open();
    round(&mut review);
    let before = review.clone();
    review.feedback(&feedback(2, "impossible"), &mut at(3)).unwrap();
    assert_eq!(review.conversation().last().unwrap().message, "impossible");
    let mut out = at(4);
    review.not_regenerated("no model", &mut out);
    let of = |review: &PlanReview| {
        (review.version(), review.round(), review.conversation().to_vec(), review.view()["current_plan"].clone())
    };
    assert_eq!(of(&review), of(&before));
    assert_eq!(only_note(&out, NoteKind::PlanFeedback)["withdrawn"], true);
    round(&mut review);
    assert_eq!(review.version(), 3);
}

/// CUG-18: what is shown and approved is the structured plan, not a list of agents.
#[test]
fn people_see_and_approve_the_structured_plan() {
    let mut review = open();
    let view = review.view();
    assert_eq!(view["current_plan"], plan(1), "tasks, agents and their order");
    assert_eq!([&view["version"], &view["status"]], [&json!(1), &json!("reviewing")]);
    review.decide(verdict(1, true), &mut at(1)).unwrap();
    assert_eq!(review.approved().unwrap().plan, plan(1));
}

/// CUG-30: with approval on and a plan made, the run pauses and says so.
#[test]
fn a_plan_that_needs_approval_pauses_the_run() {
    let review = open();
    assert_eq!((review.approved(), review.ending()), (None, None));
    assert_eq!(review.view()["plan_approved"], false);
}

/// CUG-31: approved, the frozen plan is executed; before a plan is shown there is none.
#[test]
fn an_approved_plan_is_executed_as_it_was_frozen() {
    let mut review = open();
    review.decide(verdict(1, true), &mut at(1)).unwrap();
    assert_eq!((&review.approved().unwrap().plan, review.ending()), (&plan(1), None));
    let question = PlanReview::open(PlanApproval::default(), "Which market?", None, &mut at(0));
    assert_eq!((question.approved(), question.ending()), (None, None));
}

/// CUG-32: denied, the run ends with an answer that says "cancelled", and there is nothing after it.
#[test]
fn a_denied_plan_ends_the_run_with_an_answer() {
    let mut review = open();
    let mut out = at(1);
    review.decide(PlanVerdict { comment: Some("too dear".into()), ..verdict(1, false) }, &mut out).unwrap();
    assert_eq!(only_note(&out, NoteKind::PlanRejected)["comment"], "too dear");
    let answer = "Execution cancelled: the plan was not approved: too dear".to_owned();
    assert_eq!(review.ending(), Some(Ending::Cancelled(answer)));
    assert_eq!(review.approved(), None);
    assert_eq!(asks(&out), ["cancel timer plan_review/deadline"], "nothing is delegated");
    refused(&review, |review, out| review.decide(verdict(1, true), out), "Review already closed: denied");
    refused(&review, |review, out| review.feedback(&feedback(1, "x"), out), "Review already closed: denied");
}

/// SHH-22: another plan than the approved one is reviewed under the next version, with rounds and a time of its own; what was
/// said of the one before counts no more.
#[test]
fn another_plan_is_reviewed_as_the_first_one_was() {
    let mut review = open();
    round(&mut review);
    review.decide(verdict(2, true), &mut at(3)).unwrap();
    let mut out = at(5);
    review.again("Something is missing.", plan(3), &mut out);
    assert_eq!((review.status(), review.round(), review.version()), (ReviewStatus::Reviewing, 1, 3));
    let deadline = 5 + 15 * MINUTE;
    assert_eq!(asks(&out), [format!("timer plan_review/deadline/2 at {deadline}")]);
    assert_eq!((review.approved(), review.view()["plan_approved"].clone()), (None, json!(false)));
    let stale = "Conflict: plan has been updated. Please review the latest version.";
    refused(&review, |review, out| review.decide(verdict(2, true), out), stale);
    let mut other = review.clone();
    other.again("Nobody has approved this one.", plan(4), &mut at(6));
    assert_eq!(other, review, "only an approved plan has another one after it");
    let mut out = at(7);
    review.decide(verdict(3, true), &mut out).unwrap();
    assert_eq!(asks(&out), ["cancel timer plan_review/deadline/2"]);
    assert_eq!(review.approved().unwrap().plan, plan(3));
}
