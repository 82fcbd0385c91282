//! The number of the rules by which supervisors decide, recorded with every run.
//!
//! Invariant: it is the first thing a run records, and a run is judged by the rules that it began with or by none: where
//! the numbers differ nothing more of it is decided. Whoever changes what a recorded run would decide raises the number.

use bosun_engine::workflow::Cx;

/// The rules of this program.
pub(super) const RULES: u32 = 14;

/// Records the number at the start of a run. A history of other rules is held with a card that says so.
pub(super) fn held_by_other_rules(cx: &mut Cx<'_>) {
    let began_with: u32 = cx.side_effect(|| RULES);
    assert!(began_with == RULES, "{}", other_rules(began_with));
}

/// The same of a run in which another one goes on: what that decided is of these rules.
pub(super) fn judged_by(rules: u32) {
    assert!(rules == RULES, "{}", other_rules(rules));
}

/// What becomes of a run that this program cannot decide.
pub(super) const LEFT_AS_IT_IS: &str = "It is held as it is: let the program that wrote it end it";

fn other_rules(began_with: u32) -> String {
    format!(
        "this run was begun by the supervisor rules number {began_with}, and this program has the rules number {RULES}. \
         It is held as it is, and nothing of it is decided by other rules. Let a program with the rules number \
         {began_with} end it, or begin it anew with `bosun fork`"
    )
}
