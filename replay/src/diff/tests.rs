//! Diffs of orders that went differently, and of anything with anything.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::arbitrary;

fn order(id: &str, result: &str, with_review: bool) -> History {
    let mut h = HistoryBuilder::started("order", id, Payload::encode("book").unwrap());
    let charge = h.activity_scheduled("charge", Payload::null());
    h.activity_started(charge, 1).activity_completed(charge, Payload::encode(result).unwrap());
    if with_review {
        let review = h.activity_scheduled("review", Payload::null());
        h.activity_started(review, 1).activity_completed(review, Payload::null());
    }
    let ship = h.activity_scheduled("ship", Payload::encode(result).unwrap());
    let limit = h.timer_started(Duration::from_secs(5));
    h.after(Duration::from_secs(1)).activity_completed_after_start(ship).timer_canceled(limit);
    h.completed(Payload::null());
    History::new(h.turns()).unwrap()
}

trait Shortcut {
    fn activity_completed_after_start(&mut self, seq: Seq) -> &mut Self;
}

impl Shortcut for HistoryBuilder {
    fn activity_completed_after_start(&mut self, seq: Seq) -> &mut Self {
        self.activity_started(seq, 1).activity_completed(seq, Payload::null())
    }
}

#[test]
fn runs_that_differ_only_in_ids_and_times_are_the_same() {
    let diff = diff(&order("a", "ok", false), &order("b", "ok", false));
    assert!(diff.is_same(), "{diff}");
    assert_eq!(diff.same, 8);
}

/// A step that was inserted is one insertion, though every number after it has changed.
#[test]
fn an_inserted_step_is_a_decision() {
    let told = diff(&order("a", "ok", false), &order("b", "ok", true)).to_string();
    let expected = "\
first difference: the same happened and the code asked for something else
+           5   ActivityTaskScheduled review
+           7   ActivityTaskCompleted review
      5     8   ActivityTaskScheduled ship
      6     9   TimerStarted
";
    assert!(told.split_once('\n').unwrap().1.starts_with(expected), "{told}");
}

/// The cause comes first: another result, not the changed input that followed from it.
#[test]
fn another_result_is_the_first_difference() {
    let told = diff(&order("a", "ok", false), &order("b", "no", false));
    let divergence = told.divergence.clone().unwrap();
    assert_eq!(divergence.cause, DivergenceCause::Outside);
    assert_eq!(
        divergence.line.to_string(),
        "~     4     4   ActivityTaskCompleted charge\n                  result.json: \"ok\" -> \"no\""
    );
    assert_eq!(told.same, 6);
}

#[test]
fn redacted_histories_are_compared_by_digest() {
    let (a, b) = (order("a", "ok", false), order("b", "no", false));
    assert!(diff(&a.redacted(Redaction::Payloads), &order("c", "ok", false)).is_same());
    let told = diff(&a.redacted(Redaction::Payloads), &b);
    assert_eq!(told.divergence.unwrap().cause, DivergenceCause::Outside);
}

#[test]
fn a_history_that_ends_early_and_another_start_are_named() {
    let whole = order("a", "ok", false);
    let part = History::new(whole.prefix(2).to_vec()).unwrap();
    assert_eq!(diff(&whole, &part).divergence.unwrap().cause, DivergenceCause::Ended);
    let other = HistoryBuilder::started("order", "a", Payload::encode("pen").unwrap());
    let other = History::new(other.turns()).unwrap();
    assert_eq!(diff(&whole, &other).divergence.unwrap().cause, DivergenceCause::Start);
}

#[test]
fn histories_of_temporals_are_compared_too() {
    let temporal = |result| TemporalHistory::from(&order("a", result, false));
    assert!(diff_temporal(&temporal("ok"), &temporal("ok")).is_same());
    let told = diff_temporal(&temporal("ok"), &temporal("no"));
    assert!(told.divergence.unwrap().line.to_string().contains("ActivityTaskCompleted charge"));
}

proptest! {
    #![proptest_config(arbitrary::cases(100))]

    /// Every event of both sides is accounted for, and comparing with itself finds nothing.
    #[test]
    fn a_diff_accounts_for_every_event(left in arbitrary::histories(40), right in arbitrary::histories(40)) {
        prop_assert!(diff(&left, &left).is_same());
        let told = diff(&left, &right);
        let count = |pick: fn(&DiffLine) -> bool| told.lines.iter().filter(|line| pick(line)).count();
        let only_left = count(|line| matches!(line, DiffLine::OnlyLeft { .. }));
        let only_right = count(|line| matches!(line, DiffLine::OnlyRight { .. }));
        let changed = count(|line| matches!(line, DiffLine::Changed { .. }));
        prop_assert_eq!(told.same + changed + only_left, items(&left).len());
        prop_assert_eq!(told.same + changed + only_right, items(&right).len());
        prop_assert_eq!(told.is_same(), changed + only_left + only_right == 0);
    }
}

/// G38: what a run says of itself forges no line of the text.
#[test]
fn a_line_of_a_difference_is_one_line() {
    let forged = "x\nFORGED\u{2028}too".to_owned();
    let changed = FieldChange { field: "summary".into(), left: forged.clone(), right: forged.clone() };
    let lines = [
        DiffLine::Same { left: 1, right: 1, what: forged.clone() },
        DiffLine::OnlyLeft { left: 1, what: forged.clone() },
        DiffLine::OnlyRight { right: 1, what: forged.clone() },
    ];
    for line in lines {
        assert_eq!(line.to_string().lines().count(), 1, "{line}");
        assert!(line.to_string().contains("x FORGED too"), "{line}");
    }
    let line = DiffLine::Changed { left: 1, right: 1, what: forged, fields: vec![changed] };
    assert_eq!(line.to_string().lines().count(), 2, "{line}");
}
