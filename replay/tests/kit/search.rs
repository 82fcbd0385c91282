//! The search itself: what it says, what it keeps, and that it is as deterministic as it asks others to be.

use std::time::Duration;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;
use bosun_replay::determinism::DeterminismTest;
use bosun_replay::simulate::{Boundary, Doubts, LifePlan, LifeStep, RARE, Versions, Violation, live};
use proptest::prelude::*;

/// Charges again when the answer is late: a bug that needs a fault to show.
async fn impatient(ctx: WfContext, cents: u32) -> Result<u32, Failure> {
    let options = ActivityOptions {
        retry_policy: Some(RetryPolicy::no_retry()),
        ..ActivityOptions::start_to_close(Duration::from_secs(5))
    };
    match ctx.activity::<u32>("charge", &cents, options.clone()).await {
        Err(failure) if failure.type_name() == "Timeout" => ctx.activity("charge", &cents, options).await,
        other => other,
    }
}

fn test() -> DeterminismTest {
    DeterminismTest::new(WorkflowRegistry::new().workflow("impatient", impatient), "impatient")
        .input(0..1_000_u32)
        .activity("charge", any::<u32>())
        .invariant("charged once", |run| match run.scheduled("charge").len() {
            0 | 1 => Ok(()),
            n => Err(format!("{n} charges")),
        })
        .without_case_files()
}

/// A failure is made small, and says how to see it again.
#[test]
fn a_failure_is_small_and_can_be_repeated() {
    let failed = test().check().unwrap_err();
    assert_eq!(*failed.finding, Violation::Invariant { name: "charged once".into(), why: "2 charges".into() });
    // One attempt is lost, and the time for it passes.
    assert_eq!(failed.plan.input, Payload::encode(&0).unwrap());
    assert!(failed.plan.steps.len() <= 2, "{failed}");
    assert!(failed.again.starts_with("BOSUN_SEED=0x") && failed.again.contains("a_failure_is_small"), "{failed}");
}

/// The same test gives the same answer, whatever else runs beside it (same seed, same trace).
#[test]
fn the_same_seed_gives_the_same_lives() {
    let again: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|_| scope.spawn(|| test().check().unwrap_err())).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let first = test().check().unwrap_err();
    assert!(again.iter().all(|one| (&one.finding, &one.seed, one.after) == (&first.finding, &first.seed, first.after)));
}

/// A failure is kept as a file, which fails the test from then on, also when no new life would.
#[test]
fn a_failure_is_kept_and_tried_first() {
    let folder = tempfile::tempdir().unwrap();
    // It is made when there is something to keep.
    let folder = folder.path().join("cases");
    let keeping = |lives: u32| test().lives(lives).cases_in(&folder);
    keeping(0).check().unwrap();
    assert!(!folder.exists());
    let failed = keeping(256).check().unwrap_err();
    let path = failed.case.clone().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# found: invariant\nworkflow impatient\ninput 0\n"), "{text}");
    let again = keeping(0).check().unwrap_err();
    assert_eq!((again.case.as_ref(), again.seed, &again.plan), (Some(&path), None, &failed.plan));
    std::fs::write(&path, "workflow impatient\nstep fly\n").unwrap();
    let unreadable = keeping(0).check().unwrap_err();
    assert_eq!(unreadable.kind(), "setup");
    assert!(unreadable.to_string().contains("line 2: unknown step \"fly\""), "{unreadable}");
}

/// What a test forgot is said, not guessed.
#[test]
fn a_test_that_lacks_something_says_so() {
    let code = || WorkflowRegistry::new().workflow("impatient", impatient);
    let failed = DeterminismTest::new(code(), "impatient").input(0..9_u32).without_case_files().check().unwrap_err();
    assert!(failed.to_string().contains("the activity charge, and the test gives no results"), "{failed}");
    let failed = DeterminismTest::new(code(), "patient").without_case_files().check().unwrap_err();
    assert!(failed.to_string().contains("no workflow type patient"), "{failed}");
    let failed = test().lives(0).must_meet(&["timer fired"]).check().unwrap_err();
    assert!(failed.to_string().contains("never met: timer fired"), "{failed}");
}

/// A workflow that never comes to rest is told, unless it is meant to be so.
#[test]
fn a_workflow_that_never_rests_is_stuck_unless_it_says_so() {
    let forever = |ctx: WfContext, (): ()| async move {
        loop {
            ctx.timer(Duration::from_secs(60)).await?;
        }
        #[expect(unreachable_code, reason = "its type")]
        Ok(())
    };
    let test = || {
        let code = WorkflowRegistry::new().workflow("forever", forever);
        DeterminismTest::new(code, "forever").lives(4).without_case_files()
    };
    assert_eq!(test().check().unwrap_err().kind(), "stuck");
    test().runs_for_ever().run();
}

fn plans() -> impl Strategy<Value = LifePlan> {
    let step = prop_oneof![
        (any::<u16>(), any::<u16>()).prop_map(|(pick, result)| LifeStep::Deliver { pick, result }),
        (any::<u16>(), any::<u16>()).prop_map(|(pick, result)| LifeStep::Zombie { pick, result }),
        any::<u32>().prop_map(|ms| LifeStep::Tick { ms }),
        any::<i32>().prop_map(|seconds| LifeStep::WallJump { seconds }),
        proptest::sample::select(&Boundary::ALL[..]).prop_map(|at| LifeStep::Crash { at }),
        proptest::sample::select(vec![
            LifeStep::Repeat,
            LifeStep::Cancel,
            LifeStep::Pause,
            LifeStep::Deploy,
            LifeStep::Evict { snapshot: true }
        ]),
    ];
    let payload = prop_oneof![
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| Payload::encode(&n).unwrap()),
        "\\PC{0,12}".prop_map(|text| Payload::encode(&text).unwrap()),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(Payload::bytes),
        Just(Payload::raw_json("{ \"spaced\" : 1 }")),
    ];
    let outcome = prop_oneof![
        payload.clone().prop_map(ActivityOutcome::Completed),
        "\\PC{0,12}".prop_map(|text| ActivityOutcome::Failed(Failure::application("T", text))),
        Just(ActivityOutcome::Canceled(None)),
    ];
    (payload.clone(), prop::collection::vec(outcome, 0..4), prop::collection::vec(step, 0..9), any::<u8>()).prop_map(
        move |(input, outcomes, steps, slots)| {
            let mut plan = LifePlan::new("flow", input.clone());
            if !outcomes.is_empty() {
                plan.results.insert("work".into(), outcomes.clone());
            }
            plan.other_results = outcomes;
            plan.signals = vec![("go".into(), input.clone())];
            plan.children.insert("kid".into(), vec![CloseOutcome::Completed(input)]);
            (plan.steps, plan.slots) = (steps, slots);
            plan
        },
    )
}

proptest! {
    /// Case files hold a plan exactly.
    #[test]
    fn a_plan_is_read_back_as_it_was_written(plan in plans()) {
        prop_assert_eq!(plan.to_string().parse::<LifePlan>().unwrap(), plan);
    }
}

/// G11, G18: every boundary at every commit of a small life, alone and in pairs, enumerated.
#[test]
fn a_crash_at_every_boundary_and_every_pair_of_crashes_changes_nothing() {
    let mut plan = LifePlan::new("impatient", Payload::encode(&7).unwrap());
    plan.results.insert("charge".into(), vec![ActivityOutcome::Completed(Payload::encode(&1).unwrap())]);
    let code = Versions::of(WorkflowRegistry::new().workflow("impatient", impatient));
    let undisturbed = live(&plan, &code, &Doubts::default(), &[]).unwrap();
    assert!(undisturbed.commits >= 2 && undisturbed.outcome.is_some());
    let mut lives = 0;
    for (first, second) in (0..6).flat_map(|first| (first..8).map(move |second| (first, second))) {
        for (one, two) in Boundary::ALL.into_iter().flat_map(|one| Boundary::ALL.into_iter().map(move |two| (one, two)))
        {
            let life = live(&plan, &code, &Doubts::default(), &[(first, one), (second, two)]);
            let life = life.unwrap_or_else(|why| panic!("{one} at {first}, {two} at {second}: {why}"));
            assert!(life.outcome.is_some(), "{one} at {first}, {two} at {second}");
            lives += 1;
        }
    }
    println!("{lives} lives");
    assert!(RARE.contains(&"crash in recovery"));
}
