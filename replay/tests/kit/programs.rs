//! Programs that are written with references, first of all those of `engine/examples`, both forms of each: they do what
//! they say, and every life of them is deterministic.

use std::time::Duration;

use bosun_engine::workflow::{StateMachine, WfContext, WorkflowRegistry};
use bosun_engine::{Activity, Failure, Query, Signal, Update, Workflow};
use bosun_replay::determinism::{DeterminismTest, armed};
use proptest::collection::vec;
use proptest::prelude::*;

macro_rules! examples {
    ($($name:ident = $path:literal;)*) => {$(
        #[path = $path]
        #[expect(dead_code, unreachable_pub, reason = "it is a program of its own, with a `main` of its own")]
        mod $name;
    )*};
}

examples! {
    account = "../../../engine/examples/account.rs";
    approval = "../../../engine/examples/approval.rs";
    fan_out = "../../../engine/examples/fan_out.rs";
    payment_saga = "../../../engine/examples/payment_saga.rs";
    subscription = "../../../engine/examples/subscription.rs";
}

/// The lines of code between the mark of a form and its end: what is neither blank nor a comment.
fn lines_of(form: &str, source: &str) -> usize {
    let code = source.split_once(&format!("// workflow: {form}\n")).expect("the form is marked").1;
    let code = code.split_once("// end\n").expect("its end is marked").0;
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// Typed references make no workflow longer than names did: each form stays within the lines that it took with names.
#[test]
fn workflows_with_references_are_no_longer_than_with_names() {
    let with_names = [
        ("payment_saga", include_str!("../../../engine/examples/payment_saga.rs"), 21, 83),
        ("subscription", include_str!("../../../engine/examples/subscription.rs"), 52, 88),
        ("fan_out", include_str!("../../../engine/examples/fan_out.rs"), 16, 41),
        ("account", include_str!("../../../engine/examples/account.rs"), 28, 33),
        ("approval", include_str!("../../../engine/examples/approval.rs"), 36, 49),
    ];
    for (name, source, function, machine) in with_names {
        let lines = (lines_of("async", source), lines_of("machine", source));
        assert!(lines.0 > 0 && lines.0 <= function, "{name}: {} lines as a function, {function} with names", lines.0);
        assert!(lines.1 > 0 && lines.1 < machine, "{name}: {} lines as a machine, {machine} with names", lines.1);
    }
}

#[tokio::test]
async fn every_example_does_what_it_says() {
    account::run().await.unwrap();
    approval::run().await.unwrap();
    fan_out::run().await.unwrap();
    payment_saga::run().await.unwrap();
    subscription::run().await.unwrap();
}

/// What is undone was begun, and a failure undoes all that was begun.
#[test]
fn a_payment_is_deterministic() {
    use payment_saga::*;
    assert!(armed());
    for workflow in [PAY, Payment::WORKFLOW] {
        let order = (0..10_000_u64).prop_map(|cents| Order { id: "order".into(), cents });
        let mut test = DeterminismTest::of(workflows(), workflow, order).without_case_files();
        for step in [RESERVE, CHARGE, SHIP, RELEASE, REFUND, RECALL] {
            test = test.results(step, "[a-z]{1,8}");
        }
        for (step, undo) in [(RESERVE, RELEASE), (CHARGE, REFUND), (SHIP, RECALL)] {
            test = test.invariant(format!("{} follows {}", undo.name(), step.name()), move |run| {
                match (run.scheduled(step.name()).len(), run.scheduled(undo.name()).len()) {
                    (0, 0) | (1, 0 | 1) => Ok(()),
                    counts => Err(format!("begun and undone: {counts:?}")),
                }
            });
        }
        test.run();
    }
}

#[test]
fn a_subscription_is_deterministic() {
    use subscription::*;
    for workflow in [SUBSCRIPTION, Subscription::WORKFLOW] {
        let plan = (0..1_000_u64).prop_map(|cents| Plan { email: "ada@example.org".into(), cents });
        DeterminismTest::of(workflows(), workflow, plan)
            .results(WELCOME, Just(()))
            .results(CHARGE, 0..1_000_u64)
            .results(GOODBYE, Just(()))
            .signals(CANCEL, "[a-z]{1,8}")
            .queries(BILL, &())
            .invariant("at most twelve charges", |run| match run.scheduled("charge").len() {
                0..=12 => Ok(()),
                n => Err(format!("{n} charges")),
            })
            .steps(60)
            .without_case_files()
            .run();
    }
}

#[test]
fn a_fan_out_is_deterministic() {
    use fan_out::*;
    for workflow in [GALLERY, Gallery::WORKFLOW] {
        DeterminismTest::of(workflows(), workflow, vec("[a-z]{1,8}", 0..50))
            .results(RESIZE, 0..1_000_u64)
            .steps(60)
            .without_case_files()
            .run();
    }
}

#[test]
fn an_account_is_deterministic() {
    use account::*;
    for workflow in [ACCOUNT, Account::WORKFLOW] {
        DeterminismTest::of(workflows(), workflow, Just(Balance::default()))
            .signals(ENTRY, prop_oneof![9 => (0..1_000_u64).prop_map(Entry::Deposit), 1 => Just(Entry::Close)])
            .queries(BALANCE, &())
            .runs_for_ever()
            .without_case_files()
            .run();
    }
}

#[test]
fn an_approval_is_deterministic() {
    use approval::*;
    let decision = || {
        prop_oneof![Just(Decision::Approved { by: "grace".into() }), Just(Decision::Refused { why: "too dear".into() }),]
    };
    for workflow in [APPROVAL, Approval::WORKFLOW] {
        let ends = prop_oneof![9 => Just(Ok(())), 1 => Just(Err(Failure::application("Mail", "no such address")))];
        let expense = (0..1_000_u64).prop_map(|cents| Expense { by: "ada".into(), cents });
        DeterminismTest::of(workflows(), workflow, expense)
            .activity_ends(ASK.name(), ends)
            .results(REMIND, Just(()))
            .results(TELL, Just(()))
            .signals(DECIDE, decision())
            .invariant("told once", |run| match run.scheduled("tell").len() {
                0 | 1 => Ok(()),
                n => Err(format!("told {n} times")),
            })
            .without_case_files()
            .run();
    }
}

const TALLY: Workflow<u64, u64> = Workflow::named("tally");
const COUNT: Activity<String, u64> = Activity::named("count").start_to_close(Duration::from_secs(10));
const ADD: Signal<u64> = Signal::named("add");
const ADD_WORD: Update<String, u64> = Update::named("add-word");
const TOTAL: Query<(), u64> = Query::named("total");

/// Every kind of handler, and a next run while they are at work.
async fn tally(ctx: WfContext, from: u64) -> Result<u64, Failure> {
    let total = ctx.state("total", from);
    let (shown, signaled, updated) = (total.clone(), total.clone(), total.clone());
    ctx.on_query(TOTAL, move |()| Ok(shown.get()));
    ctx.on_signal(ADD, move |ctx, n| {
        let total = signaled.clone();
        async move {
            ctx.timer(Duration::from_secs(60)).await?;
            total.write(|total| *total += n);
            Ok(())
        }
    });
    ctx.on_update(
        ADD_WORD,
        |_| Ok(()),
        move |ctx, word| {
            let total = updated.clone();
            async move {
                let letters = ctx.call(COUNT, &word).await?;
                total.write(|total| *total += letters);
                Ok(total.get())
            }
        },
    );
    ctx.timer(Duration::from_secs(3_600)).await?;
    ctx.all_handlers_finished().await?;
    if total.get() < 50 { ctx.continue_as(TALLY, &(total.get() + 10)) } else { Ok(total.get()) }
}

#[test]
fn handlers_by_reference_are_deterministic() {
    DeterminismTest::of(WorkflowRegistry::new().workflow(TALLY, tally), TALLY, 0..9_u64)
        .results(COUNT, 0..9_u64)
        .signals(ADD, 0..9_u64)
        .updates(ADD_WORD, "[a-z]{1,8}")
        .queries(TOTAL, &())
        .without_case_files()
        .run();
}
