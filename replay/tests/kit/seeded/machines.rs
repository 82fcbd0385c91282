//! Bugs 48 to 53: the state of a machine is not what its snapshot says, or is not state of the run alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::{Failure, Payload, QueryName};
use bosun_replay::determinism::{DeterminismTest, Failed};
use serde::{Deserialize, Serialize, Serializer};

use super::{caught, caught_naming, kit, quick};

const HERE: (&str, &str) = ("machines.rs", include_str!("machines.rs"));
const BY_SNAPSHOT: &[&str] = &["unstable-commands", "replay-mismatch", "unstable-state"];

fn machine<M: StateMachine>() -> DeterminismTest {
    kit(WorkflowRegistry::new().state_machine::<M>())
}

/// The message names the field, with its line.
#[track_caller]
fn names_field(failed: &Failed, field: &str, mark: &str) {
    let text = failed.to_string();
    assert!(text.contains(&format!("field `{field}`")), "{text}");
    let line = HERE.1.lines().position(|line| line.trim_end().ends_with(&format!("// {mark}"))).unwrap() + 1;
    assert!(text.contains(&format!("machines.rs:{line})")), "line {line}\n{text}");
}

/// 48: serde skips what the next command is made of.
#[derive(Serialize, Deserialize)]
struct Skips {
    left: u32,
    #[serde(skip)]
    done: u32, // bug 48
}

impl StateMachine for Skips {
    const TYPE: &'static str = "bug";
    type Input = u32;
    type Output = u32;
    fn start(n: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.schedule_activity("work", &n, quick());
        Ok(Skips { left: 3, done: 1 })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        if let WorkflowEvent::ActivityResolved { .. } = event {
            (self.left, self.done) = (self.left - 1, self.done + 1);
            match self.left {
                0 => cx.complete(&self.done),
                _ => drop(cx.schedule_activity("work", &self.done, quick())), // bug 48 command
            }
        }
        Ok(())
    }
}

#[test]
fn bug_48_a_field_that_serde_skips_is_caught_by_a_snapshot_and_named() {
    names_field(&caught_naming(machine::<Skips>(), BY_SNAPSHOT, HERE, "bug 48 command"), "done", "bug 48");
}

/// 49: serde skips what only a query shows.
#[derive(Serialize, Deserialize)]
struct Shows {
    left: u32,
    #[serde(skip)]
    total: u32, // bug 49
}

impl StateMachine for Shows {
    const TYPE: &'static str = "bug";
    type Input = u32;
    type Output = u32;
    fn start(n: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.schedule_activity("work", &n, quick());
        Ok(Shows { left: 2, total: 40 })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        if let WorkflowEvent::ActivityResolved { .. } = event {
            self.left -= 1;
            match self.left {
                0 => cx.complete(&0_u32),
                _ => drop(cx.schedule_activity("more", &1_u32, quick())),
            }
        }
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["total"]
    }
    fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        Ok(Payload::encode(&self.total)?)
    }
}

#[test]
fn bug_49_a_skipped_field_that_only_a_query_shows_is_caught_by_a_snapshot_and_named() {
    let failed = caught(machine::<Shows>().query("total", &()));
    assert_eq!(failed.kind(), "unstable-query", "{failed}");
    names_field(&failed, "total", "bug 49");
}

/// 50: a field is written less exactly than it is.
#[derive(Serialize, Deserialize)]
struct Rounds {
    #[serde(serialize_with = "in_hundreds")]
    millis: u32, // bug 50
}

fn in_hundreds<S: Serializer>(millis: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(millis / 100 * 100)
}

impl StateMachine for Rounds {
    const TYPE: &'static str = "bug";
    type Input = u32;
    type Output = u32;
    fn start(n: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.schedule_activity("work", &n, quick());
        Ok(Rounds { millis: n + 1_230 })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        if let WorkflowEvent::ActivityResolved { .. } = event {
            cx.complete(&self.millis);
        }
        Ok(())
    }
}

#[test]
fn bug_50_a_field_that_is_written_inexactly_is_caught_by_a_snapshot_and_named() {
    let failed = caught(machine::<Rounds>());
    assert!(BY_SNAPSHOT.contains(&failed.kind()), "{failed}");
    names_field(&failed, "millis", "bug 50");
}

/// 51: a value that is left out comes back as another.
#[derive(Serialize, Deserialize)]
struct LeavesOut {
    #[serde(default, skip_serializing_if = "is_usual")]
    tries: u32, // bug 51
}

fn is_usual(tries: &u32) -> bool {
    *tries == 3
}

impl StateMachine for LeavesOut {
    const TYPE: &'static str = "bug";
    type Input = u32;
    type Output = u32;
    fn start(n: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.schedule_activity("work", &n, quick());
        Ok(LeavesOut { tries: 3 })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        if let WorkflowEvent::ActivityResolved { .. } = event {
            cx.complete(&self.tries);
        }
        Ok(())
    }
}

#[test]
fn bug_51_a_default_that_is_not_what_was_left_out_is_caught_by_a_snapshot_and_named() {
    let failed = caught(machine::<LeavesOut>());
    assert!(BY_SNAPSHOT.contains(&failed.kind()), "{failed}");
    names_field(&failed, "tries", "bug 51");
}

/// 52: numbers its runs in a static.
#[derive(Serialize, Deserialize)]
struct Numbers;

impl StateMachine for Numbers {
    const TYPE: &'static str = "bug";
    type Input = u32;
    type Output = u32;
    fn start(n: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        cx.schedule_activity("work", &(number, n), quick()); // bug 52
        Ok(Numbers)
    }
    fn on_event(&mut self, _: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        cx.complete(&0_u32);
        Ok(())
    }
}

#[test]
fn bug_52_a_static_of_a_machine_is_caught_by_replay() {
    caught_naming(machine::<Numbers>(), &["replay-mismatch"], HERE, "bug 52");
}

/// 53: its state is a map without an order, and the order is used.
#[derive(Serialize, Deserialize)]
struct Unordered {
    parts: HashMap<u32, u32>,
}

impl StateMachine for Unordered {
    const TYPE: &'static str = "bug";
    type Input = u32;
    type Output = u32;
    fn start(n: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let parts: HashMap<u32, u32> = (0..6).map(|part| (part, part + n)).collect(); // bug 53 map
        for part in parts.values() {
            cx.schedule_activity("work", part, quick()); // bug 53
        }
        Ok(Unordered { parts })
    }
    fn on_event(&mut self, _: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        cx.complete(&self.parts.len());
        Ok(())
    }
}

#[test]
fn bug_53_the_order_of_a_map_is_caught_by_replay_and_the_map_is_suspected() {
    caught_naming(machine::<Unordered>(), BY_SNAPSHOT, HERE, "bug 53");
    caught_naming(machine::<Unordered>(), BY_SNAPSHOT, HERE, "bug 53 map");
}
