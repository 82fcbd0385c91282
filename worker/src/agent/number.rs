//! The number of the rules by which agents decide, recorded with every run.
//!
//! Invariant: it is the first thing a run records, and a run is judged by the rules that it began with or by none: where the numbers
//! differ nothing more of it is decided. Whoever changes what a recorded run would decide raises the number.

use bosun_engine::workflow::Cx;

/// The rules of this program.
pub(super) const RULES: u32 = 7;

/// Records the number at the start of a run. A history of other rules is held with a card that says so.
pub(super) fn held_by_other_rules(cx: &mut Cx<'_>) {
    // A run of rules before these has another name there, or none.
    assert!(cx.patched(format!("agent-rules-{RULES}").as_str()), "{}", other_rules());
}

/// The same of a run in which another one goes on: what that decided is of these rules.
pub(super) fn judged_by(rules: u32) {
    assert!(rules == RULES, "{}", other_rules());
}

fn other_rules() -> String {
    format!(
        "this run was begun by other rules of agents than those of this program, number {RULES}, and is held as it is. Let the \
         program that began it end it, or begin it anew with `bosun fork`"
    )
}
