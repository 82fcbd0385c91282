//! Tests that test nothing: what the test forgot or mistook is found, and named.

use std::time::Duration;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;
use bosun_replay::determinism::DeterminismTest;
use proptest::prelude::*;

const WORK: Activity<u32, u32> = Activity::named("work").start_to_close(Duration::from_secs(10)).with_attempts(2);
const GO: Signal<u32> = Signal::named("go");

async fn adds(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let more = ctx.call(WORK, &n).await?;
    Ok(n.wrapping_add(more).wrapping_add(ctx.signal_channel(GO).recv().await?))
}

fn test() -> DeterminismTest {
    let code = WorkflowRegistry::new().workflow("adds", adds);
    DeterminismTest::new(code, "adds").lives(64).in_this_process_only().without_case_files()
}

/// What is wrong with the test, and not with the code.
#[track_caller]
fn mistake(test: DeterminismTest) -> String {
    let failed = test.check().expect_err("a test that tests nothing");
    assert_eq!(failed.kind(), "setup", "{failed}");
    failed.to_string()
}

#[test]
fn an_input_of_another_type_is_a_mistake_of_the_test() {
    let said = mistake(test().activity("work", any::<u32>()).signal("go", any::<u32>()));
    assert!(said.contains("cannot read a json payload of 4 bytes as u32: invalid type: null"), "{said}");
    assert!(said.contains("give the test inputs, results and signals of the types that the code has"), "{said}");
}

#[test]
fn a_result_or_a_signal_of_another_type_is_a_mistake_of_the_test() {
    let said = mistake(test().input(0..9_u32).activity("work", "[a-z]{3}").signal("go", 0..9_u32));
    assert!(said.contains("as u32: invalid type: string"), "{said}");
    let said = mistake(test().input(0..9_u32).activity("work", 0..9_u32).signal("go", "[a-z]{3}"));
    assert!(said.contains("as u32: invalid type: string"), "{said}");
}

#[test]
fn a_signal_that_the_code_waits_for_and_the_test_does_not_send_is_a_mistake_of_the_test() {
    let waiting = || test().input(0..9_u32).activity("work", 0..9_u32);
    let said = mistake(waiting());
    assert!(said.contains("wait for what the test does not send: the signal go"), "{said}");
    assert!(said.contains(".signal(\"go\", ..)"), "{said}");
    waiting().gets_nowhere().run();
    waiting().signal("go", 0..9_u32).run();
}

#[test]
fn lives_that_all_fail_or_end_at_once_are_a_mistake_of_the_test() {
    let failing = || {
        let ends = Just(Err::<u32, _>(Failure::application("Down", "nobody answers").non_retryable()));
        test().input(0..9_u32).activity_ends("work", ends).signal("go", 0..9_u32).steps(0)
    };
    let said = mistake(failing());
    assert!(said.contains("none of 64 lives got anywhere"), "{said}");
    assert!(said.contains("Down: nobody answers"), "{said}");
    failing().gets_nowhere().run();
    let code = WorkflowRegistry::new().workflow("at-once", |_: WfContext, n: u32| async move { Ok(n) });
    let at_once = || DeterminismTest::new(code.clone(), "at-once").input(0..9_u32).lives(8).without_case_files();
    assert!(mistake(at_once()).contains("none of 8 lives got anywhere"));
    at_once().gets_nowhere().run();
}

/// A program that never ends, and is told so by the signals that it is sent, is no mistake.
#[test]
fn an_entity_that_is_sent_its_signals_is_no_mistake() {
    let counts = |ctx: WfContext, (): ()| async move {
        let (go, quit) = (ctx.signal_channel(GO), ctx.signal_channel::<()>("quit"));
        loop {
            match bosun_engine::workflow::select(go.recv(), quit.recv()).await {
                bosun_engine::workflow::Either::First(n) => drop(ctx.call(WORK, &n?).await?),
                bosun_engine::workflow::Either::Second(end) => return end,
            }
        }
    };
    let code = WorkflowRegistry::new().workflow("counts", counts);
    let test = DeterminismTest::new(code, "counts").input(Just(())).signal("go", 0..9_u32).activity("work", 0..9_u32);
    test.lives(64).in_this_process_only().without_case_files().run();
}
