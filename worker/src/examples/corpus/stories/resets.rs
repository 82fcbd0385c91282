//! Stories of resets, and of a run with a priority.
//!
//! Invariant: as of all stories: names and what they show are unique, and a story that is there is not told differently.

use super::*;

pub(super) fn resets(told: &mut StoryList) {
    let wait = json!({ "wait_signal": { "name": "go", "as": "go" } });
    let echo = json!({ "activity": { "type": "echo", "input": "$go", "as": "out" } });
    let go = |n: u64| StoryAction::Signal("go", json!(n));
    told.sink(
        json!([wait, echo, wait, echo]),
        ("reset", "reset while open with its signals, and when it has ended to its last turn", &["E26"]),
        vec![
            go(1),
            StoryAction::Sleep(1),
            StoryAction::Reset(ResetTo::FirstTurn, ResetReapply::Signal),
            go(2),
            StoryAction::Finish,
            StoryAction::Reset(ResetTo::LastTurn, ResetReapply::None),
            StoryAction::Finish,
        ],
    );
    let sleeps = json!([{ "timer": "60s" }, { "activity": { "type": "echo", "input": 1 } }]);
    told.sink(
        sleeps,
        ("reset-of-a-timer", "reset while a timer waits, which is kept, and back to before it", &["E26"]),
        vec![
            StoryAction::Sleep(10),
            StoryAction::Reset(ResetTo::LastTurn, ResetReapply::All),
            StoryAction::Sleep(10),
            StoryAction::Reset(ResetTo::FirstTurn, ResetReapply::All),
            StoryAction::Finish,
        ],
    );
    let priority = json!({ "priority_key": 2 });
    told.sink(
        json!([{ "activity": { "type": "echo", "input": 1, "priority": priority } },
               { "child": { "input": { "steps": [] }, "priority": { "priority_key": 5 } } }]),
        (
            "with-a-priority",
            "a run with a priority and a fairness key, an activity and a child with their own",
            &["E25"],
        ),
        done(),
    );
    told.with(|start| start.priority = Some(Priority::of(1).fair("acme").with_weight(FairnessWeight(2_000))));
}
