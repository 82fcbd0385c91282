//! When a synthesis is needed, and of what.

use serde_json::{Value, json};

use crate::supervisor::spec::Synthesis as SynthesisRules;
use crate::supervisor::team::synthesis::{Contribution, Synthesis};

fn synthesis(results: &[Contribution], citations: usize, bypass_single: bool) -> Synthesis {
    let rules = SynthesisRules { bypass_single, ..SynthesisRules::default() };
    crate::supervisor::team::synthesis::synthesis(results, citations, &rules)
}

fn said(id: &str, response: Value) -> Contribution {
    Contribution { id: id.into(), success: true, response, tokens: 10, is_synthesis: false }
}

fn ids(synthesis: Synthesis) -> Vec<String> {
    match synthesis {
        Synthesis::Ask(kept) => kept.into_iter().map(|result| result.id).collect(),
        other => panic!("{other:?}"),
    }
}

/// SHN-48: failed, empty and repeated results are left out, the order stays.
#[test]
fn results_are_filtered_and_deduplicated() {
    let failed = Contribution { success: false, ..said("c", json!("no")) };
    let results =
        [said("b", json!("x")), said("a", json!(" x ")), failed, said("d", json!("")), said("e", json!({ "n": 1 }))];
    assert_eq!(ids(synthesis(&results, 0, true)), ["b", "e"]);
    assert_eq!(synthesis(&results[2..4], 0, true), Synthesis::Nothing);
    assert_eq!(synthesis(&[], 0, true), Synthesis::Nothing);
}

/// SHN-48: a single successful text is the report; JSON, a second result, or the setting ask the synthesizer.
#[test]
fn a_single_text_bypasses_synthesis() {
    let bypassed = Synthesis::Bypass { id: "a".into(), text: "all of it".into() };
    let single = [said("a", json!("all of it"))];
    assert_eq!(synthesis(&single, 0, true), bypassed);
    assert_eq!(ids(synthesis(&single, 0, false)), ["a"]);
    let with_failed = [single[0].clone(), Contribution { success: false, ..said("b", json!("no")) }];
    assert_eq!(synthesis(&with_failed, 0, true), bypassed);
    for data in [json!({ "n": 1 }), json!([1]), json!("{\"n\": 1}"), json!(" [1]"), json!(7)] {
        assert_eq!(ids(synthesis(&[said("a", data)], 0, true)), ["a"]);
    }
    let two = [single[0].clone(), said("b", json!("all of it"))];
    assert_eq!(ids(synthesis(&two, 0, true)), ["a"], "two succeeded, though they say the same");
}

/// SHN-48: a synthesis task's own result is the report from 100 characters on, if it consumed tokens and nothing is cited.
#[test]
fn a_synthesis_task_writes_the_report_itself() {
    let report =
        |chars: usize, tokens| Contribution { tokens, is_synthesis: true, ..said("s", json!("é".repeat(chars))) };
    for (chars, tokens, citations, used) in
        [(100, 1, 0, true), (99, 1, 0, false), (100, 0, 0, false), (100, 1, 1, false), (500, 9, 0, true)]
    {
        let made = synthesis(&[said("a", json!("x")), report(chars, tokens)], citations, true);
        match made {
            Synthesis::Bypass { id, .. } => assert!(used && id == "s", "{chars} {tokens} {citations}"),
            other => assert!(!used && ids(other) == ["a", "s"], "{chars} {tokens} {citations}"),
        }
    }
}
