//! The good spec of every preset is run, whole: straight, replayed, crashed after every event, and in other orders.

use serde_json::Value;

use super::fixtures::preset_text;
use crate::scene::kit::SceneText;
use crate::supervisor::spec::Preset;

/// The final result of each, and how many seconds of its own time it takes.
const EXPECTED: [(Preset, &str, u64); 23] = [
    (Preset::PydantaskFixed, "The first is smaller, the second is faster.", 5),
    (Preset::PydantaskLlm, "A report on two methods.", 5),
    (Preset::PydantaskHybrid, "count 2: 42", 2),
    (Preset::FlowSupervisor, r#"{"summary":"Three kinds of tide."}"#, 7),
    (Preset::FlowSupervisorPerTask, "A talk.", 3),
    (Preset::FlowPlanAndExecute, "The database has moved.", 6),
    (Preset::FlowCoordinator, r#"{"a":"answer of a","b":"answer of b","c":"answer of c"}"#, 1),
    (Preset::CugaConversational, "Acme is the largest customer and owes 300.", 2),
    (Preset::CugaStructured, "Acme owes 300.", 2),
    (Preset::ShannonSupervisor, "Enter the market.", 45),
    (Preset::ShannonDag, "Oslo is larger.", 2),
    (Preset::ShannonSimple, "Oslo.", 1),
    (Preset::SupyagentDelegation, "The service is built.", 5),
    (Preset::AutogenGroupChat, "Felix it is. TERMINATE", 3),
    (Preset::AutogenSelector, "By train, two days. TERMINATE", 1),
    (Preset::AutogenMagentic, "The oak at the gate is the oldest.", 2),
    (Preset::AutogenSwarm, "It is on its way. TERMINATE", 2),
    (Preset::CrewaiHierarchical, "A short text about bees.", 2),
    (Preset::LanggraphSupervisor, "The combined headcount is 300.", 2),
    (Preset::SwarmHandoff, "Your flight is cancelled.", 1),
    (Preset::EvaluatorOptimizer, "Bosun forgets nothing.", 6),
    (Preset::MapReduce, "The book in seven sentences.", 22),
    (Preset::PlanRun, "Two things are new, and one is mended.", 3),
];

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Every preset does what it is for, with the scripted agents of its fixture.
#[test]
fn the_good_spec_of_every_preset_runs_to_its_result() {
    let mut wrong = Vec::new();
    for (preset, result, took) in EXPECTED {
        let text = preset_text(preset);
        let played = match std::panic::catch_unwind(|| SceneText::new(&text).play()) {
            Ok(played) => played,
            Err(why) => {
                let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
                wrong.push(format!("{preset}: {}", why.chars().take(600).collect::<String>()));
                continue;
            }
        };
        let report = played.report();
        if !played.completed() {
            wrong.push(format!("{preset}: {}", report.to_string().chars().take(600).collect::<String>()));
            continue;
        }
        let found = text_of(&report["final_result"]);
        if found != result || played.took != took {
            wrong.push(format!("{preset}: {found:?} after {} s instead of {result:?} after {took} s", played.took));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
