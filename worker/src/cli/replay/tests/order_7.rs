//! A recorded run of the workflow `order` (8 events) still fits the code, result included.
//!
//! Made by `bosun replay record`. The history beside this file is never changed; when the code changes on purpose, guard
//! the change with `patched`.

use bosun_replay::{History, HistoryLimits, Prefixes, replay_history};

#[test]
fn order_7_still_replays() {
    let recorded = include_bytes!("order_7.json");
    let history = History::from_json(recorded, &HistoryLimits::default()).expect("a recorded history");
    let report = replay_history(&super::old_code(), &history, Prefixes::All);
    assert!(report.is_ok(), "{report}");
}
