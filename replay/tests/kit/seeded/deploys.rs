//! Bugs 10 to 14: the next version of the code does not fit the histories of this one.

use std::time::Duration;

use bosun_engine::Failure;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_replay::simulate::Violation;

use super::{caught, kit, quick};

/// The code as it was, changed by `bug`.
async fn flow(ctx: WfContext, n: u32, bug: u32) -> Result<u32, Failure> {
    let work = async || ctx.activity::<u32>("work", &if bug == 12 { n + 1 } else { n }, quick()).await;
    let more = async || ctx.activity::<u32>(if bug == 11 { "more-2" } else { "more" }, &n, quick()).await;
    if bug == 14 {
        ctx.activity::<u32>("check", &n, quick()).await?;
    }
    let (first, second) = if bug == 10 { (more().await?, work().await?) } else { (work().await?, more().await?) };
    if bug != 13 {
        ctx.timer(Duration::from_secs(30)).await?;
    }
    Ok(first + second)
}

fn code(bug: u32) -> WorkflowRegistry {
    WorkflowRegistry::new().version(bug.to_string()).workflow("bug", move |ctx, n: u32| flow(ctx, n, bug))
}

#[track_caller]
fn caught_at_the_gate(bug: u32, says: &str) {
    let failed = caught(kit(code(0)).deploys(code(bug)));
    let Violation::DeployMismatch(card) = *failed.finding else { panic!("not caught at the gate: {}", failed.finding) };
    assert!(card.to_string().contains(says), "{card}");
    assert!(card.location.is_none_or(|place| place.file.ends_with("deploys.rs")));
}

/// 10: two commands in another order.
#[test]
fn bug_10_a_changed_order_is_caught_at_the_gate() {
    caught_at_the_gate(10, "more");
}

/// 11: an activity has another name.
#[test]
fn bug_11_a_renamed_activity_is_caught_at_the_gate() {
    caught_at_the_gate(11, "more-2");
}

/// 12: only the input of an activity differs.
#[test]
fn bug_12_a_changed_input_is_caught_at_the_gate() {
    caught_at_the_gate(12, "(changed)");
}

/// 13: a timer is gone.
#[test]
fn bug_13_a_removed_timer_is_caught_at_the_gate() {
    caught_at_the_gate(13, "StartTimer");
}

/// 14: a new step without a patch.
#[test]
fn bug_14_a_step_without_a_patch_is_caught_at_the_gate() {
    caught_at_the_gate(14, "check");
}

/// The same new step behind a patch is no bug.
#[test]
fn a_step_behind_a_patch_passes_the_gate() {
    let patched = WorkflowRegistry::new().version("2").workflow("bug", |ctx: WfContext, n: u32| async move {
        if ctx.patched("check") {
            ctx.activity::<u32>("more", &n, quick()).await?;
        }
        flow(ctx, n, 0).await
    });
    kit(code(0)).deploys(patched).run();
}
