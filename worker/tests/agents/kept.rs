//! Histories of agents that older versions recorded: each replays on today's code, from every one of its prefixes.
//!
//! Invariant: the files in `fixtures/agents/` are never changed. Those in `first-rules` were written by the worker before
//! runs were given rules, and cannot be written again: in each of them something is decided as it no longer is.

use std::path::Path;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_replay::{History, HistoryLimits, Prefixes, Verdict, replay_history};
use bosun_worker::agent::register;

#[test]
fn what_agents_did_by_the_first_rules_replays_by_them() {
    let code = register(WorkflowRegistry::new());
    for name in ["delegates", "paused", "strikes", "summaries", "texts"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../fixtures/agents/first-rules")
            .join(format!("{name}.history.json"));
        let history = History::from_json(&std::fs::read(&path).unwrap(), &HistoryLimits::default()).unwrap();
        assert!(!history.to_json().contains("agent-rules-2"), "{name} knows of later rules");
        let report = replay_history(&code, &history, Prefixes::All);
        assert_eq!(report.verdict, Verdict::Ok, "{name}: {report}");
    }
}
