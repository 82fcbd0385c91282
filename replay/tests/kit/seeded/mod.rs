//! Workflows with one bug each: twenty-four of the requirements of the engine §5, and twenty-nine more that only another process, another thread
//! or a snapshot shows. What catches each, and which line it names.
//!
//! Invariant: every bug is caught by something other than a lint, is told by its name, and within seconds. A workflow
//! here does nothing that the kit's other tests rely on; statics are part of the bugs.

mod branches;
mod deploys;
mod machines;
mod memory;
mod messages;
mod process;
mod shared;
mod state;
mod surroundings;

use std::time::{Duration, Instant};

use bosun_engine::ActivityOptions;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_replay::determinism::{DeterminismTest, Failed};
use bosun_replay::simulate::Violation;

fn quick() -> ActivityOptions {
    ActivityOptions::start_to_close(Duration::from_secs(10))
}

/// A test of the workflow `bug`, with activities that give numbers.
fn kit(code: WorkflowRegistry) -> DeterminismTest {
    DeterminismTest::new(code, "bug")
        .input(0..9_u32)
        .activity("work", 0..9_u32)
        .activity("more", 0..9_u32)
        .signal("go", 0..9_u32)
        .without_case_files()
}

/// The bug is found, in time.
#[track_caller]
fn caught(test: DeterminismTest) -> Box<Failed> {
    let begun = Instant::now();
    let failed = test.check().expect_err("a bug that nothing catches");
    let took = begun.elapsed();
    println!("{failed}\nin {took:?}");
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    failed
}

/// The forbidden call is caught at the call: in this file, and of this kind.
#[track_caller]
fn caught_calling(test: DeterminismTest, call: bosun_replay::determinism::ForbiddenCall, file: &str) {
    let failed = caught(test);
    let Violation::ForbiddenCall(trip) = *failed.finding else { panic!("not caught at the call: {}", failed.finding) };
    assert_eq!(trip.call, call);
    assert!(trip.place.as_ref().is_some_and(|place| place.contains(file)), "{trip}");
}

/// Also without trip wires, that is by its effects, it is found.
#[track_caller]
fn caught_by_effect(test: DeterminismTest, kinds: &[&str]) {
    let kind = caught(test).kind();
    assert!(kinds.contains(&kind), "found as {kind}");
}

/// It is found as one of these kinds, and the message names a line of this source that is marked so.
#[track_caller]
fn caught_naming(test: DeterminismTest, kinds: &[&str], (file, source): (&str, &str), mark: &str) -> Box<Failed> {
    let failed = caught(test);
    assert!(kinds.contains(&failed.kind()), "found as {}", failed.kind());
    let marked = source.lines().enumerate().filter(|(_, line)| line.trim_end().ends_with(&format!("// {mark}")));
    let lines: Vec<String> = marked.map(|(at, _)| format!("{file}:{}:", at + 1)).collect();
    let text = failed.to_string();
    assert!(!lines.is_empty() && lines.iter().any(|line| text.contains(line)), "none of {lines:?} in\n{text}");
    failed
}
