//! Histories of agents that older versions recorded: each replays on today's code, from every one of its prefixes.
//!
//! Invariant: the files in `fixtures/agents/` are never changed. Those in `first-rules` were written by the worker before
//! runs were given rules, those in `second-rules` before agents told the run above what they wait for. They cannot be
//! written again: in each of them something is decided as it no longer is.

use std::path::Path;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_replay::{History, HistoryLimits, Prefixes, Verdict, replay_history};
use bosun_worker::agent::register;

#[test]
fn what_agents_did_by_the_first_rules_replays_by_them() {
    for name in ["delegates", "paused", "strikes", "summaries", "texts"] {
        let history = replayed("first-rules", name);
        assert!(!history.to_json().contains("agent-rules-"), "{name} knows of later rules");
    }
}

/// It asks for an approval below a run that hears nothing of it.
#[test]
fn what_agents_did_by_the_second_rules_replays_by_them() {
    let history = replayed("second-rules", "asks").to_json();
    assert!(history.contains("agent-rules-2") && !history.contains("agent-rules-3"), "other rules");
    assert!(history.contains("report_to") && history.contains("approval_response_v1"), "nobody asks");
}

fn replayed(rules: &str, name: &str) -> History {
    let code = register(WorkflowRegistry::new());
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/agents")
        .join(rules)
        .join(format!("{name}.history.json"));
    let history = History::from_json(&std::fs::read(&path).unwrap(), &HistoryLimits::default()).unwrap();
    let report = replay_history(&code, &history, Prefixes::All);
    assert_eq!(report.verdict, Verdict::Ok, "{name}: {report}");
    history
}
