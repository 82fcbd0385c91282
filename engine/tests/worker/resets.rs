//! Resets: a run goes back to an earlier point of its history, under its workflow id.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry, replay};
use bosun_engine::*;

use crate::kit::*;
use crate::scene::{MINUTE, SECOND, Stage, until};

/// How much of what is added the code counts: a deploy changes it.
#[derive(Clone, Copy)]
struct Version {
    name: &'static str,
    /// Fails at a review that says `bad`.
    strict: bool,
}

const OLD: Version = Version { name: "old", strict: true };
const NEW: Version = Version { name: "new", strict: false };

fn code(version: Version) -> WorkflowRegistry {
    WorkflowRegistry::new()
        .version(version.name)
        .workflow("draft", move |ctx: WfContext, (): ()| async move {
            let written: String = ctx.activity("work", "write", quick()).await?;
            let verdict: String = ctx.activity("work", "review", quick()).await?;
            if verdict == "bad" && version.strict {
                return Err(Failure::application("Rejected", "the review was bad"));
            }
            Ok(format!("{written}, {verdict}, by {}", version.name))
        })
        .workflow("counter", |ctx: WfContext, (): ()| async move {
            let (sum, seen) = (ctx.state("sum", 0_u64), ctx.state("seen", Vec::<u64>::new()));
            let shown = seen.clone();
            ctx.on_query("seen", move |()| Ok(shown.get()));
            let (own, noted) = (sum.clone(), seen.clone());
            ctx.on_update(
                "add",
                |n: &u64| if *n == 0 { Err(nothing()) } else { Ok(()) },
                move |_, n: u64| {
                    own.write(|sum| *sum += n);
                    noted.write(|seen| seen.push(n));
                    let now = own.get();
                    async move { Ok(now) }
                },
            );
            while sum.get() < 10 {
                let n = ctx.signal_channel::<u64>("add").recv().await?;
                sum.write(|sum| *sum += n);
                seen.write(|seen| seen.push(n));
            }
            Ok(seen.get())
        })
        .workflow("parent", |ctx: WfContext, (): ()| async move {
            let child = ctx.child_workflow::<String>("helper", "helper", &(), ChildWorkflowOptions::default());
            ctx.signal_channel::<()>("go").recv().await?;
            let other = ctx.child_workflow::<String>("helper", "other", &(), ChildWorkflowOptions::default());
            Ok(format!("{} {}", child.await?, other.await?))
        })
        .workflow("helper", |ctx: WfContext, (): ()| async move { ctx.signal_channel::<String>("end").recv().await })
        .workflow("grandparent", |ctx: WfContext, (): ()| async move {
            let options = ChildWorkflowOptions::default();
            ctx.child_workflow::<Vec<u64>>("counter", "counter", &(), options).await
        })
        .workflow("sleep", |ctx: WfContext, (): ()| async move {
            ctx.signal_channel::<()>("go").recv().await?;
            ctx.timer(HOUR).await?;
            ctx.signal_channel::<()>("go").recv().await?;
            Ok(ctx.now().0)
        })
        .workflow("rounds", |ctx: WfContext, left: u64| async move {
            let n: u64 = ctx.signal_channel("add").recv().await?;
            if left > 0 {
                return ctx.continue_as_new::<u64>(&(left - 1), ContinueAsNewOptions::default());
            }
            Ok(n)
        })
}

fn nothing() -> Failure {
    Failure::application("Nothing", "zero adds nothing")
}

fn reset(id: &str, to: ResetTo) -> ResetRequest {
    ResetRequest { reason: "as tested".into(), ..ResetRequest::new(target(id), to) }
}

fn add(n: u64) -> SignalRequest {
    signal("add", &n)
}

/// The newest run, after its history was replayed.
async fn check(client: &Client, id: &str, version: Version) -> Vec<Event> {
    let turns = client.turns(&target(id)).await.unwrap();
    replay(&code(version), &turns).unwrap_or_else(|why| panic!("{id}: {why}"));
    turns.iter().flat_map(Turn::numbered).collect()
}

async fn runs(client: &Client, id: &str) -> Vec<RunInfo> {
    client.list(ListRequest { query: format!("WorkflowId = '{id}'"), limit: 100 }).await.unwrap()
}

/// What has happened in all, and what the reviews say.
fn reviewed() -> (Ledger, TestEnvironment) {
    let ledger = Ledger::default();
    let mut activities = ActivityRegistry::new();
    let noted = ledger.clone();
    activities.register("work", move |ctx: ActivityContext, what: String| {
        noted.note(format!("{what} {}", ctx.idempotency_key()));
        async move { Ok(if what == "review" { "bad".to_owned() } else { what }) }
    });
    (ledger, environment_with(code(OLD), activities))
}

/// E26: what failed because of its code is reset to its last turn, under the same workflow id, once the code is better: no
/// step is done again, whoever waits for the id has the new end, and both runs say where the other is.
#[tokio::test]
async fn a_failed_run_decides_its_last_turn_again_with_other_code() {
    let (ledger, environment) = reviewed();
    environment.client().start(start("draft", "draft", &())).await.unwrap();
    assert!(matches!(outcome(&environment.client(), "draft").await, CloseOutcome::Failed(_)));
    let environment = environment.restart(|options| options.workflows = code(NEW)).unwrap();
    let client = environment.client();
    let old = client.describe(&target("draft")).await.unwrap().info;
    let before = client.turns(&target("draft")).await.unwrap();

    let dry = client.reset(ResetRequest { dry_run: true, ..reset("draft", ResetTo::LastTurn) }).await.unwrap();
    assert_eq!((dry.run_id, dry.newly_started, runs(&client, "draft").await.len()), (None, false, 1));
    let done = client.reset(reset("draft", ResetTo::LastTurn)).await.unwrap();
    assert_eq!((done.plan.event, &done.plan), (EventId(6), &dry.plan));
    assert_eq!(done.plan.told[0].why, ForkTelling::Again);
    assert_eq!((done.terminated, &done.workflow_id), (None, &WorkflowId::of("draft")), "it had ended by itself");
    assert_eq!(output::<String>(&client, "draft").await, "write, bad, by new");
    assert_eq!(ledger.entries().len(), 2, "nothing was done again: {:?}", ledger.entries());
    let names = names(&check(&client, "draft", NEW).await);
    assert_eq!(
        names[6..],
        ["WorkflowExecutionForked", "ActivityTaskCompleted", "WorkflowExecutionCompleted"],
        "{names:?}"
    );
    let info = client.describe(&target("draft")).await.unwrap().info;
    let from = ForkPoint { workflow_id: "draft".into(), run_id: old.run_id, event: EventId(6), reset: true };
    assert_eq!((Some(info.run_id), info.forked_from), (done.run_id, Some(from)));
    let kept = client.turns(&Target::run("draft".into(), old.run_id)).await.unwrap();
    assert_eq!(kept, before, "the old run is as it was");
}

/// E26, E18: an open run is ended in the commit in which the new one begins, says which one, and whoever waits for it goes on
/// to that one.
#[tokio::test]
async fn an_open_run_is_ended_and_says_which_one_goes_on() {
    let environment = environment_with(code(OLD), ActivityRegistry::new());
    let client = environment.client();
    let first = client.start(start("counter", "counter", &())).await.unwrap().run_id;
    for n in [1, 2, 3] {
        client.signal(&target("counter"), add(n)).await.unwrap();
    }
    settled(&environment).await;
    let waits = tokio::spawn({
        let client = client.clone();
        async move { client.result(&Target::run("counter".into(), first), WHOLE).await }
    });
    let done = client.reset(reset("counter", ResetTo::Event(EventId(2)))).await.unwrap();
    let new = done.run_id.unwrap();
    assert_eq!(done.terminated, Some(first));
    let old = history_of(&client, &Target::run("counter".into(), first)).await;
    let EventKind::WorkflowExecutionTerminated { reason, reset: Some(into), .. } = &old.last().unwrap().kind else {
        panic!("{:?}", old.last());
    };
    assert!(reason.contains(&new.to_string()) && reason.ends_with("as tested"), "{reason}");
    assert_eq!(into.run_id, new);
    let infos = runs(&client, "counter").await;
    assert_eq!((infos[0].run_id, infos[1].next_run), (new, Some(new)));
    assert_eq!((infos[0].first_run, infos[0].status), (first, WorkflowStatus::Running));
    assert_eq!(query::<Vec<u64>>(&client, "counter", "seen").await, [1, 2, 3], "signals reach it again");
    client.signal(&target("counter"), add(4)).await.unwrap();
    let ended = waits.await.unwrap().unwrap().unwrap();
    assert_eq!(ended.run_id, new);
    assert_eq!(decoded::<Vec<u64>>(ended.outcome), [1, 2, 3, 4]);
    check(&client, "counter", OLD).await;
    let this = client.result(&Target::run("counter".into(), first), THIS_RUN).await.unwrap().unwrap();
    assert!(matches!(this.outcome, CloseOutcome::Terminated { .. }));
}

/// E26, E11, E14: what came after the point reaches the new run again, or does not, as is asked; what is dropped is named, and
/// a sender that had no answer cannot bring it in again.
#[tokio::test]
async fn later_signals_and_updates_are_reapplied_as_is_asked() {
    for (reapply, seen, dropped) in [
        (ResetReapply::All, vec![1, 2, 3, 4], (0, 0)),
        (ResetReapply::Signal, vec![1, 2, 4], (0, 1)),
        (ResetReapply::Update, vec![1, 3], (2, 0)),
        (ResetReapply::None, vec![1], (2, 1)),
    ] {
        let environment = environment_with(code(OLD), ActivityRegistry::new());
        let client = environment.client();
        client.start(start("counter", "counter", &())).await.unwrap();
        client.signal(&target("counter"), add(1)).await.unwrap();
        client.signal(&target("counter"), signal_once("add", &2_u64, "two")).await.unwrap();
        let answer = client.update(&target("counter"), update("up", "add", &3_u64, UpdateWait::Completed)).await;
        assert!(matches!(answer, Ok(UpdateOutcome::Completed(Ok(_)))), "{answer:?}");
        client.pause(&target("counter"), "look".into(), None).await.unwrap();
        client.signal(&target("counter"), add(4)).await.unwrap();
        let done = client.reset(reset("counter", ResetTo::Event(EventId(2))).reapply(reapply)).await.unwrap();
        let found = (done.plan.signals_dropped.len(), done.plan.updates_dropped.len());
        assert_eq!((done.plan.event, found), (EventId(1), dropped), "{reapply:?}");
        client.signal(&target("counter"), signal_once("add", &2_u64, "two")).await.unwrap();
        settled(&environment).await;
        // The signal at the point is what is decided anew, whatever is asked of later ones.
        assert_eq!(query::<Vec<u64>>(&client, "counter", "seen").await, seen, "{reapply:?}");
        check(&client, "counter", OLD).await;
        let environment = environment.crash(7, |_| {}).unwrap();
        let client = environment.client();
        assert_eq!(query::<Vec<u64>>(&client, "counter", "seen").await, seen, "{reapply:?}");
        if reapply.updates() {
            let answer = client.update_result(&target("counter"), &"up".into()).await.unwrap();
            assert!(matches!(answer, UpdateOutcome::Completed(Ok(_))), "{answer:?}");
        }
    }
}

/// E26: runs in every state can be reset: paused, held, closed in each way.
#[tokio::test]
async fn runs_in_every_state_are_reset() {
    for state in ["paused", "completed", "canceled", "terminated", "timed-out", "failed", "twice"] {
        let (mut stage, activities) = Stage::new();
        let environment = environment_with(code(OLD), activities);
        let client = environment.client();
        // Before the limit of the activity, of which another attempt would follow.
        let run_timeout = (state == "timed-out").then_some(10 * SECOND);
        client.start(StartWorkflow { run_timeout, ..start("draft", state, &()) }).await.unwrap();
        stage.next().await.complete("write");
        let review = stage.next().await;
        let mut late = Vec::new();
        let to = target(state);
        match state {
            "completed" => review.complete("good"),
            "failed" => review.complete("bad"),
            "timed-out" => {
                // Time passes while no function runs.
                review.later();
                environment.sleep(MINUTE).await;
            }
            other => {
                // Its end comes when nobody waits for it any more.
                late.push(review);
                match other {
                    "paused" => client.pause(&to, "look".into(), None).await.unwrap(),
                    "canceled" => client.cancel(&to, "enough".into(), None, None).await.unwrap(),
                    "terminated" => client.terminate(&to, "enough".into(), None).await.unwrap(),
                    _ => drop(client.reset(reset(state, ResetTo::FirstTurn)).await.unwrap()),
                }
            }
        }
        let again = state == "twice";
        if again {
            stage.next().await.complete("write");
            late.push(stage.next().await);
        }
        let open = ["paused", "twice"].contains(&state);
        if !open {
            outcome(&client, state).await;
        }
        // The first activity has ended: it is not done again.
        let done = client.reset(reset(state, ResetTo::Event(EventId(4)))).await.unwrap();
        assert_eq!(done.terminated.is_some(), open, "{state}");
        late.into_iter().for_each(|attempt| attempt.complete("late"));
        let attempt = stage.next().await;
        assert_eq!((attempt.label.as_str(), attempt.attempt()), ("review", 1), "{state}");
        attempt.complete("good");
        assert_eq!(output::<String>(&client, state).await, "write, good, by old", "{state}");
        check(&client, state, OLD).await;
        assert_eq!(runs(&client, state).await.len(), if again { 3 } else { 2 }, "{state}");
        let environment = environment.restart(|_| {}).unwrap();
        assert_eq!(output::<String>(&environment.client(), state).await, "write, good, by old", "{state}");
        assert!(environment.client().verify().await.unwrap().is_sound());
    }
}

/// E26, G22: a run that is held because the code does not fit goes on from before the difference; a point behind it is refused.
#[tokio::test]
async fn a_held_run_is_reset_to_before_what_does_not_fit() {
    let other = WorkflowRegistry::new().version("other").workflow("draft", |ctx: WfContext, (): ()| async move {
        let written: String = ctx.activity("work", "write", quick()).await?;
        ctx.timer(MINUTE).await?;
        Ok(format!("{written}, unread"))
    });
    let (mut stage, activities) = Stage::new();
    let environment = environment_with(code(OLD), activities);
    environment.client().start(start("draft", "draft", &())).await.unwrap();
    stage.next().await.complete("write");
    let review = stage.next().await;
    let environment = environment.crash(3, |options| options.workflows = other).unwrap();
    drop(review);
    let client = environment.client();
    assert!(client.describe(&target("draft")).await.unwrap().held.is_some());
    let behind = client.reset(reset("draft", ResetTo::Event(EventId(6)))).await;
    assert!(matches!(behind, Err(Rejection::DoesNotFit { .. })), "{behind:?}");
    client.reset(reset("draft", ResetTo::LastTurn)).await.unwrap();
    assert_eq!(output::<String>(&client, "draft").await, "write, unread");
    assert!(client.list(ListRequest { query: "Held = true".into(), limit: 9 }).await.is_ok_and(|held| held.is_empty()));
}

/// E26, E22: a reset to a build goes to before what this build decided first.
#[tokio::test]
async fn a_reset_to_a_build_undoes_what_it_decided() {
    let environment = environment_with(code(OLD), ActivityRegistry::new());
    environment.client().start(start("counter", "counter", &())).await.unwrap();
    environment.client().signal(&target("counter"), add(1)).await.unwrap();
    settled(&environment).await;
    let environment = environment.restart(|options| options.workflows = code(NEW)).unwrap();
    let client = environment.client();
    client.signal(&target("counter"), add(2)).await.unwrap();
    client.signal(&target("counter"), add(3)).await.unwrap();
    settled(&environment).await;
    let turns = client.turns(&target("counter")).await.unwrap();
    let build = turns.last().unwrap().build;
    let request = reset("counter", ResetTo::Build(build)).reapply(ResetReapply::None);
    let done = client.reset(request).await.unwrap();
    assert_eq!((done.plan.event, done.plan.signals_dropped.len()), (EventId(2), 1));
    assert_eq!(query::<Vec<u64>>(&client, "counter", "seen").await, [1, 2], "its first turn is decided anew");
    let unknown = client.reset(reset("counter", ResetTo::Build(BuildId(7)))).await;
    let Err(Rejection::Invalid { what, why }) = unknown else { panic!("{unknown:?}") };
    assert!(what.starts_with("reset: ") && why.contains(&build.to_string()), "{what}: {why}");
}

/// E26, E15, G18: a child that is under way at the point goes on as the new run's, over a crash too; one that was started
/// after it ends with the old run, and its id is free for the new one.
#[tokio::test]
async fn children_before_the_point_go_on_and_later_ones_end() {
    // Which run is looked at first after a crash depends on its id, hence more than one.
    for crash in [false, true, true, true, true] {
        let mut environment = environment_with(code(OLD), ActivityRegistry::new());
        let client = environment.client();
        client.start(start("parent", "parent", &())).await.unwrap();
        client.signal(&target("parent"), signal("go", &())).await.unwrap();
        until(&client, "parent", |seen| seen.pending_children.iter().filter(|one| one.run_id.is_some()).count() == 2)
            .await;
        let of = |runs: Vec<RunInfo>| runs[0].run_id;
        let (helper, other) = (of(runs(&client, "helper").await), of(runs(&client, "other").await));
        let done = client.reset(reset("parent", ResetTo::Event(EventId(3)))).await.unwrap();
        assert_eq!((done.plan.event, done.plan.children), (EventId(2), vec!["helper".into()]));
        if crash {
            environment = environment.crash(5, |_| {}).unwrap();
        }
        let client = environment.client();
        until(&client, "parent", |seen| seen.pending_children.iter().filter(|one| one.run_id.is_some()).count() == 2)
            .await;
        let helpers = runs(&client, "helper").await;
        assert_eq!((helpers.len(), helpers[0].run_id, helpers[0].status), (1, helper, WorkflowStatus::Running));
        let others = runs(&client, "other").await;
        assert_eq!((others.len(), others[1].run_id, others[1].status), (2, other, WorkflowStatus::Terminated));
        // Its parent is known by the run that was reset, which stays as long as the new one is open.
        let old = Target::run("parent".into(), done.terminated.unwrap());
        let deleted = client.delete(&old).await;
        assert!(deleted.is_err_and(|why| why.to_string().contains("goes on for it")));
        if crash {
            environment = environment.restart(|_| {}).unwrap();
        }
        let client = environment.client();
        for (id, word) in [("helper", "helped"), ("other", "too")] {
            client.signal(&target(id), signal("end", word)).await.unwrap();
        }
        assert_eq!(output::<String>(&client, "parent").await, "helped too", "crash: {crash}");
        check(&client, "parent", OLD).await;
        settled(&environment).await;
        client.delete(&old).await.unwrap();
    }
}

/// E15, E26: a child that is reset twice stays its parent's, which hears of the last end.
#[tokio::test]
async fn a_child_that_is_reset_reports_to_its_parent() {
    let environment = environment_with(code(OLD), ActivityRegistry::new());
    let client = environment.client();
    client.start(start("grandparent", "grandparent", &())).await.unwrap();
    until(&client, "grandparent", |seen| seen.pending_children.iter().any(|one| one.run_id.is_some())).await;
    for n in [2, 3] {
        client.signal(&target("counter"), add(n)).await.unwrap();
        client.reset(reset("counter", ResetTo::FirstTurn)).await.unwrap();
    }
    let environment = environment.crash(1, |_| {}).unwrap();
    let client = environment.client();
    assert_eq!(client.describe(&target("grandparent")).await.unwrap().info.status, WorkflowStatus::Running);
    client.signal(&target("counter"), add(5)).await.unwrap();
    assert_eq!(output::<Vec<u64>>(&client, "grandparent").await, [2, 3, 5]);
    // Now that it has ended, and has been told of, it is nobody's child.
    client.reset(reset("counter", ResetTo::FirstTurn).reapply(ResetReapply::None)).await.unwrap();
    let info = client.describe(&target("counter")).await.unwrap().info;
    assert_eq!((info.parent, info.first_run, info.status), (None, info.run_id, WorkflowStatus::Running));
    let environment = environment.restart(|_| {}).unwrap();
    let again = environment.client().describe(&target("counter")).await.unwrap().info;
    assert_eq!(again.status, WorkflowStatus::Running, "no parent's end reaches it");
}

/// E10, G14: a timer waits for what was left at the point; a timer that was started later is forgotten.
#[tokio::test]
async fn timers_wait_for_what_was_left() {
    let environment = environment_with(code(OLD), ActivityRegistry::new());
    let client = environment.client();
    client.start(start("sleep", "sleep", &())).await.unwrap();
    client.signal(&target("sleep"), signal("go", &())).await.unwrap();
    environment.sleep(10 * HOUR).await;
    let seen = client.describe(&target("sleep")).await.unwrap();
    assert_eq!(seen.pending_timers.len(), 0);
    let done = client.reset(reset("sleep", ResetTo::Event(EventId(3)))).await.unwrap();
    assert_eq!((done.plan.timers.len(), done.plan.timers[0].left), (1, HOUR));
    let now = environment.now();
    client.signal(&target("sleep"), signal("go", &())).await.unwrap();
    assert_eq!(Timestamp(output::<i64>(&client, "sleep").await), now.plus(HOUR));

    client.reset(reset("sleep", ResetTo::FirstTurn).reapply(ResetReapply::None)).await.unwrap();
    assert_eq!(client.describe(&target("sleep")).await.unwrap().pending_timers, []);
    check(&client, "sleep", OLD).await;
}

/// E19, G13: a reset of an earlier run of a chain ends the open one, and what reached any run since reaches the new one.
#[tokio::test]
async fn an_earlier_run_of_a_chain_is_reset_with_what_came_since() {
    let environment = environment_with(code(OLD), ActivityRegistry::new());
    let client = environment.client();
    let first = client.start(start("rounds", "rounds", &2_u64)).await.unwrap().run_id;
    client.signal(&target("rounds"), add(1)).await.unwrap();
    until(&client, "rounds", |seen| seen.info.run_id != first).await;
    let second = client.describe(&target("rounds")).await.unwrap().info.run_id;
    client.signal(&target("rounds"), add(2)).await.unwrap();
    until(&client, "rounds", |seen| seen.info.run_id != second).await;
    let third = client.describe(&target("rounds")).await.unwrap().info.run_id;
    client.pause(&target("rounds"), "look".into(), None).await.unwrap();
    client.signal(&target("rounds"), add(3)).await.unwrap();
    let request = ResetRequest::new(Target::run("rounds".into(), second), ResetTo::FirstTurn);
    let done = client.reset(request).await.unwrap();
    assert_eq!((done.terminated, done.plan.told.len()), (Some(third), 2));
    assert_eq!(output::<u64>(&client, "rounds").await, 3, "the second round again, then the third");
    let all = runs(&client, "rounds").await;
    assert_eq!(all.len(), 5);
    assert_eq!(all.iter().filter(|info| info.status.is_open()).count(), 0);
}

/// G13, G17, E26: a reset asked for again finds what it made, also when that was reset or continued since; a start that is
/// repeated finds the newest run as before.
#[tokio::test]
async fn a_repeated_reset_finds_what_it_made() {
    let environment = environment_with(code(OLD), ActivityRegistry::new());
    let client = environment.client();
    let begin = || StartWorkflow { request_id: Some("begin".into()), ..start("counter", "counter", &()) };
    client.start(begin()).await.unwrap();
    let once = |name: &str| ResetRequest { request_id: Some(name.into()), ..reset("counter", ResetTo::FirstTurn) };
    let first = client.reset(once("one")).await.unwrap();
    let second = client.reset(once("two")).await.unwrap();
    assert!(first.newly_started && second.newly_started);
    let environment = environment.crash(4, |_| {}).unwrap();
    let client = environment.client();
    for (name, made) in [("one", &first), ("two", &second)] {
        let again = client.reset(once(name)).await.unwrap();
        assert_eq!((again.newly_started, again.run_id, &again.from), (false, made.run_id, &made.from));
    }
    assert_eq!(runs(&client, "counter").await.len(), 3);
    let begun = client.start(begin()).await.unwrap();
    assert_eq!((begun.newly_started, Some(begun.run_id)), (false, second.run_id));
}

/// Lists what it is signaled, until that is 0.
fn listing() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("list", |ctx: WfContext, (): ()| async move {
        let seen = ctx.state("seen", Vec::<u64>::new());
        let shown = seen.clone();
        ctx.on_query("seen", move |()| Ok(shown.get()));
        loop {
            let n: u64 = ctx.signal_channel("add").recv().await?;
            if n == 0 {
                return Ok(seen.get());
            }
            seen.write(|seen| seen.push(n));
        }
    })
}

/// G13, G17: signals that arrive while runs are reset are taken once each, in the order of their sender.
#[tokio::test]
async fn no_signal_falls_between_two_runs() {
    let environment = environment_with(listing(), ActivityRegistry::new());
    let client = environment.client();
    client.start(start("list", "list", &())).await.unwrap();
    let resets = Arc::new(AtomicU64::new(0));
    let sender = tokio::spawn({
        let client = client.clone();
        async move {
            for n in 1..=300 {
                client.signal(&target("list"), signal_once("add", &n, &format!("n{n}"))).await.unwrap();
            }
        }
    });
    while !sender.is_finished() {
        let to = if resets.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            ResetTo::FirstTurn
        } else {
            ResetTo::LastTurn
        };
        client.reset(reset("list", to)).await.unwrap();
    }
    sender.await.unwrap();
    client.signal(&target("list"), signal("add", &0_u64)).await.unwrap();
    let seen: Vec<u64> = output(&client, "list").await;
    assert_eq!(seen, (1..=300).collect::<Vec<u64>>(), "over {} resets", resets.load(Ordering::SeqCst));
}

/// G13, E26: a run that was reset is reset again, in that run itself and in one that a reset has made: each signal reaches the new
/// run once, also one that was never decided and one without a request id. The simulator has found it.
#[tokio::test]
async fn signals_are_told_once_however_often_a_run_is_reset() {
    let environment = environment_with(listing(), ActivityRegistry::new());
    let client = environment.client();
    let first = client.start(start("list", "list", &())).await.unwrap().run_id;
    client.signal(&target("list"), signal_once("add", &1_u64, "one")).await.unwrap();
    client.signal(&target("list"), signal("add", &2_u64)).await.unwrap();
    settled(&environment).await;
    client.pause(&target("list"), "look".into(), None).await.unwrap();
    client.signal(&target("list"), signal("add", &3_u64)).await.unwrap();
    client.reset(reset("list", ResetTo::FirstTurn)).await.unwrap();
    client.signal(&target("list"), signal("add", &4_u64)).await.unwrap();
    settled(&environment).await;
    let of_first = |to| ResetRequest { target: Target::run("list".into(), first), ..reset("list", to) };
    for to in [ResetTo::FirstTurn, ResetTo::LastTurn, ResetTo::FirstTurn] {
        client.reset(of_first(to)).await.unwrap();
        settled(&environment).await;
        let seen: Vec<u64> =
            client.query(&target("list"), &"seen".into(), Payload::null()).await.unwrap().decode().unwrap();
        assert_eq!(seen, [1, 2, 3, 4], "{to}");
    }
    client.signal(&target("list"), signal("add", &0_u64)).await.unwrap();
    assert_eq!(output::<Vec<u64>>(&client, "list").await, [1, 2, 3, 4]);
    check_listing(&client).await;
}

/// Every run of it replays.
async fn check_listing(client: &Client) {
    for run in runs(client, "list").await {
        let turns = client.turns(&Target::run(run.workflow_id, run.run_id)).await.unwrap();
        replay(&listing(), &turns).unwrap();
    }
}

/// What cannot be is refused by name, and changes nothing.
#[tokio::test]
async fn a_reset_that_cannot_be_is_refused() {
    let (mut stage, activities) = Stage::new();
    let environment = environment_with(code(OLD), activities);
    let client = environment.client();
    let nobody = client.reset(reset("nobody", ResetTo::FirstTurn)).await;
    assert!(matches!(nobody, Err(Rejection::NotFound { .. })), "{nobody:?}");
    client.start(start("draft", "draft", &())).await.unwrap();
    let attempt = stage.next().await;
    let before = client.turns(&target("draft")).await.unwrap();
    let far = client.reset(reset("draft", ResetTo::Event(EventId(99)))).await;
    assert!(far.is_err_and(|why| why.to_string() == "reset: event 99: the history has 3 events"));
    assert_eq!(client.turns(&target("draft")).await.unwrap(), before);
    attempt.complete("write");
    let review = stage.next().await;
    review.complete("good");
    assert_eq!(output::<String>(&client, "draft").await, "write, good, by old");
}
