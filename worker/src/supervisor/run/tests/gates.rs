//! Approvals hold in every preset: whoever commands is asked before work begins, whatever carries the run (issue 15).
//!
//! Invariant: no work begins without an approval, and a run in which everything is approved ends as it does without gates.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::talks::{Talk, talks};
use crate::scene::kit::*;
use crate::supervisor::chat::SPEAKER_TRIES;
use crate::supervisor::core::key::{AgentsKey, ChatAsk, GraphKey, Key, SessionAsk};
use crate::supervisor::spec::{Family, Preset};

const COMMAND: &str = "hitl: { mode: human_in_command, approval: { timeout: 1s, on_timeout: ";

/// A spec in which the clock answers for whoever commands.
fn commanded(spec: &str, says: &str) -> String {
    format!("{spec}\n{COMMAND}{says} }} }}\n")
}

/// The work that a run has begun, by keys that tell it: of a session its first step. `items`: nobody called the first ones.
fn work(played: &SceneRun, items: bool) -> BTreeSet<String> {
    let begins = |key: &Key| match key {
        Key::Graph(GraphKey::Execute { .. } | GraphKey::Act { .. }) => true,
        Key::Chat(key) => key.ask == ChatAsk::Speak,
        Key::Agents(AgentsKey::Session { path, ask }) => match ask {
            SessionAsk::Tool { .. } => true,
            SessionAsk::Step { step } => *step == 1 && (items || path.0.len() > 2),
            _ => false,
        },
        _ => false,
    };
    played.calls.iter().filter(|call| call.parse().is_ok_and(|key| begins(&key))).cloned().collect()
}

fn approved(played: &SceneRun) -> usize {
    played.noted("ApprovalDecided").iter().filter(|note| note["approved"] == true).count()
}

/// How many turns of a chat may have been tried again after an attempt that failed: that is still what was approved.
fn tried_again(played: &SceneRun) -> usize {
    let failed = played.noted("AttemptFailed");
    failed.iter().filter(|note| note["attempt"].as_u64().is_some_and(|tries| tries < u64::from(SPEAKER_TRIES))).count()
}

fn of_preset(preset: Preset) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fixtures/supervisors/presets/{preset}.yaml"));
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// SHH-05: of every preset. Where nobody approves anything, nothing is done; where all is approved, all is done as ever.
#[test]
fn who_commands_is_asked_in_every_preset() {
    for preset in Preset::ALL {
        let (spec, items) = (of_preset(preset), preset == Preset::CrewaiHierarchical);
        let denied = SceneText::new(&commanded(&spec, "reject")).straight();
        assert_eq!(work(&denied, items), BTreeSet::new(), "{preset}");
        let asked = denied.noted("ApprovalRequested").len();
        assert!(asked > 0, "{preset}: nobody was asked");

        let plain = SceneText::new(&spec).straight();
        let gated = SceneText::new(&commanded(&spec, "approve")).straight();
        assert_eq!(work(&gated, items), work(&plain, items), "{preset}");
        assert_eq!(gated.report()["final_result"], plain.report()["final_result"], "{preset}");
        assert_eq!(gated.report()["success"], plain.report()["success"], "{preset}");
        if preset.family() != Family::Graph {
            let handed = usize::from(preset == Preset::SwarmHandoff);
            assert_eq!(approved(&gated), work(&gated, items).len() + handed, "{preset}");
        }
        assert_eq!(plain.noted("ApprovalRequested").len(), 0, "{preset}: its example has no gates");
    }
}

fn play(talk: &Talk, says: &str) -> SceneRun {
    talk.outside.of(SceneText::new(&commanded(&talk.spec(), says)).world(talk.world())).straight()
}

proptest! {
    #![proptest_config(cases(60))]

    /// Whoever talks, breaks or is interrupted: work that nobody approved never begins.
    #[test]
    fn no_work_begins_that_nobody_approved(talk in talks()) {
        // Who is asked, and what they say, is this test's to draw.
        let mut talk = talk;
        talk.asked = "";
        let items = talk.spec().contains("crewai-hierarchical");
        let denied = play(&talk, "reject");
        prop_assert_eq!(work(&denied, items), BTreeSet::new());
        let gated = play(&talk, "approve");
        prop_assert!(work(&gated, items).len() <= approved(&gated) + tried_again(&gated), "{:?}", gated.calls);
        let plain = talk.outside.of(SceneText::new(&talk.spec()).world(talk.world())).straight();
        prop_assert_eq!(plain.noted("ApprovalRequested").len(), 0);
    }
}
