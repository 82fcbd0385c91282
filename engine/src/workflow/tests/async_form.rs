//! The async form: operations, signals, queries, updates, the next run, failures.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;

fn flow<I, O, F>(code: impl Fn(WfContext, I) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    I: serde::de::DeserializeOwned + 'static,
    O: Serialize + 'static,
    F: Future<Output = Result<O, Failure>> + 'static,
{
    WorkflowRegistry::new().workflow("flow", code)
}

/// E04: the command carries what the call gave, and the result comes back typed.
#[test]
fn an_activity_is_scheduled_at_the_call_and_gives_its_result() {
    let registry = flow(|ctx, name: String| async move {
        let greeting: String = ctx.activity("greet", &name, options()).await?;
        Ok(format!("{greeting}!"))
    });
    let mut world = World::start(&registry, "flow", "ada");
    let EventKind::ActivityTaskScheduled(scheduled) = world.last() else { panic!("nothing scheduled") };
    assert_eq!(scheduled.input, json("ada"));
    assert_eq!(scheduled.options, options());
    assert!(world.driver.command_location(0).unwrap().file.ends_with("async_form.rs"));
    assert_eq!(world.driver.awaiting()[0].what, "activity 1 greet");
    world.complete(1, "hello ada");
    world.assert_completed("hello ada!");
    world.check_replay();
}

/// E04: an activity without a close timeout is refused before anything is recorded.
#[test]
fn an_activity_without_a_close_timeout_is_a_failure_that_asks_for_nothing() {
    let registry = flow(|ctx, ()| async move { ctx.activity::<()>("greet", &(), ActivityOptions::default()).await });
    let world = World::start(&registry, "flow", ());
    assert_eq!(world.failure().type_name(), "InvalidOptions");
    assert_eq!(world.events().len(), 2);
}

/// E10: zero and past timers are timers like any other, absolute, labelled, and fire in the order asked.
#[test]
fn zero_and_past_timers_are_started_and_fire_in_order() {
    let registry = flow(|ctx, ()| async move {
        let late = ctx.sleep_until(Timestamp::ZERO);
        let now = ctx.timer(Duration::ZERO);
        let labelled = ctx.labelled_timer(SECOND, "breathe");
        late.await?;
        now.await?;
        labelled.await?;
        Ok(ctx.now())
    });
    let mut world = World::start(&registry, "flow", ());
    let at: Vec<Timestamp> = world
        .events()
        .iter()
        .filter_map(|event| match event {
            EventKind::TimerStarted { fire_at, .. } => Some(*fire_at),
            _ => None,
        })
        .collect();
    assert_eq!(at, [Timestamp::ZERO, Timestamp::from_millis(1_000), Timestamp::from_millis(2_000)]);
    assert!(matches!(world.last(), EventKind::TimerStarted { summary: Some(label), .. } if label == "breathe"));
    world.fire(1);
    world.fire(2);
    world.now = Timestamp::from_millis(2_003);
    world.fire(3);
    world.assert_completed(2_003_000);
    world.check_replay();
}

/// E10: a canceled timer resolves as canceled at once, with one command, and never fires.
#[test]
fn a_canceled_timer_resolves_at_once() {
    let registry = flow(|ctx, ()| async move {
        let timer = ctx.timer(SECOND);
        ctx.signal_channel::<()>("stop").recv().await?;
        timer.cancel();
        timer.cancel();
        Ok(timer.await.is_err_and(|failure| failure.is_canceled()))
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.signal("stop", ())), ["cancel timer#1", "complete"]);
    world.assert_completed(true);
    world.check_replay();
}

/// E11: signals that come before anybody waits are kept, in order; receive, try-receive and drain take them.
#[test]
fn signals_wait_for_the_code_in_order() {
    let registry = flow(|ctx, ()| async move {
        ctx.activity::<()>("step", &(), options()).await?;
        let channel = ctx.signal_channel::<u32>("n");
        let first = channel.recv().await?;
        let second = channel.try_recv().unwrap()?;
        let rest: Result<Vec<u32>, Failure> = channel.drain().into_iter().collect();
        let rest = rest?;
        assert!(channel.try_recv().is_none());
        let last = channel.recv().await?;
        Ok((first, second, rest, last))
    });
    let mut world = World::start(&registry, "flow", ());
    for n in 1..=4 {
        world.signal("n", n);
    }
    world.complete(1, ());
    assert_eq!(world.driver.awaiting()[0].what, "signal n");
    world.signal("n", 5);
    world.assert_completed((1, 2, [3, 4], 5));
    world.check_replay();
}

/// E11: what nobody took is reported when the run closes, one name per signal, in order of arrival.
#[test]
fn unhandled_signals_are_reported_at_the_end() {
    let registry = flow(|ctx, ()| async move { ctx.signal_channel::<()>("end").recv().await });
    let mut world = World::start(&registry, "flow", ());
    world.signal("b", 1);
    world.signal("a", 2);
    world.signal("b", 3);
    world.signal("end", ());
    let EventKind::WorkflowExecutionCompleted { unhandled_signals, .. } = world.last() else { panic!() };
    assert_eq!(unhandled_signals, ["b", "a", "b"].map(SignalName::of));
    world.check_replay();
}

/// E11: a signal whose input is not what the code reads is a failure of that receive, with the type named.
#[test]
fn an_undecodable_signal_is_a_failure_of_its_receive() {
    let registry = flow(|ctx, ()| async move {
        let wrong = ctx.signal_channel::<u32>("n").recv().await.unwrap_err();
        let right = ctx.signal_channel::<u32>("n").recv().await?;
        Ok((wrong.type_name().to_owned(), right))
    });
    let mut world = World::start(&registry, "flow", ());
    world.signal("n", "seven");
    world.signal("n", 7);
    world.assert_completed(("PayloadError", 7));
}

/// E11, E19: continue-as-new hands over state and the signals nobody took; the next run hears them before new ones.
#[test]
fn continue_as_new_carries_input_and_unconsumed_signals() {
    let registry = flow(|ctx, round: u32| async move {
        let first = ctx.signal_channel::<String>("word").recv().await?;
        if round == 0 {
            return ctx.continue_as_new(&(round + 1), ContinueAsNewOptions::default());
        }
        Ok((first, ctx.signal_channel::<String>("word").recv().await?))
    });
    let mut world = World::start(&registry, "flow", 0);
    world.signal("other", "kept");
    world.signal("word", "one");
    let EventKind::WorkflowExecutionContinuedAsNew(next) = world.last() else { panic!() };
    assert_eq!((next.input.clone(), next.unconsumed_signals.clone()), (json(1), vec![signal("other", "kept")]));
    world.check_replay();

    let mut carried = started("flow", json(1));
    carried.carried_signals = vec![signal("word", "two"), signal("other", "kept")];
    let mut next = World::start_with(&registry, carried);
    next.signal("word", "three");
    next.assert_completed(("two", "three"));
    let EventKind::WorkflowExecutionCompleted { unhandled_signals, .. } = next.last() else { panic!() };
    assert_eq!(unhandled_signals, [SignalName::of("other")]);
    next.check_replay();
}

/// E19: continue-as-new is suggested by the length of the history, the same live and in replay.
#[test]
fn continue_as_new_is_suggested_at_4096_events() {
    let registry = flow(|ctx, ()| async move {
        let ticks = ctx.signal_channel::<()>("tick");
        let mut taken = 0u32;
        while !ctx.continue_as_new_suggested() {
            ticks.recv().await?;
            taken += 1;
        }
        ctx.continue_as_new::<()>(&taken, ContinueAsNewOptions::default())
    });
    let mut world = World::start(&registry, "flow", ());
    for _ in 0..4_094 {
        assert_eq!(world.signal("tick", ()), []);
    }
    assert_eq!(kinds(&world.signal("tick", ())), ["continue as new"]);
    world.replay_with(&registry).unwrap();
}

/// E13: queries answer from the current state, on an open and on a closed run; unknown ones name the known.
#[test]
fn queries_answer_on_open_and_closed_runs() {
    let registry = flow(|ctx, ()| async move {
        let words = ctx.state("words", Vec::<String>::new());
        let read = words.clone();
        ctx.on_query("count", move |()| Ok(read.read(Vec::len)));
        let channel = ctx.signal_channel::<String>("word");
        while words.read(Vec::len) < 2 {
            let word = channel.recv().await?;
            words.write(|all| all.push(word));
        }
        Ok(())
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(world.query("count"), Ok(json(0)));
    world.signal("word", "a");
    assert_eq!(world.query("count"), Ok(json(1)));
    assert_eq!(world.driver.state_json(), Some(serde_json::json!({"words": ["a"]})));
    world.signal("word", "b");
    assert_eq!(world.query("count"), Ok(json(2)));
    let Err(QueryError::Unknown { known, .. }) = world.query("size") else { panic!() };
    assert_eq!(known, ["count"]);
    world.check_replay();
}

/// E13, G22 (bug 22): a query handler that changes the workflow is an error, and the change does not happen.
#[test]
fn a_query_handler_that_mutates_is_an_error() {
    let registry = flow(|ctx, ()| async move {
        let count = ctx.state("count", 0u32);
        let (writes, asks, panics) = (count.clone(), ctx.clone(), ctx.clone());
        ctx.on_query("write", move |()| {
            writes.set(7);
            Ok(())
        });
        ctx.on_query("ask", move |()| {
            drop(asks.activity::<()>("sneak", &(), options()));
            Ok(asks.random_u64())
        });
        ctx.on_query("panic", move |()| -> Result<(), Failure> { panic!("in {}", panics.workflow_id()) });
        ctx.signal_channel::<()>("end").recv().await?;
        Ok((count.get(), ctx.random_u64()))
    });
    let untouched = {
        let mut world = World::start(&registry, "flow", ());
        world.signal("end", ());
        world.last()
    };
    let mut world = World::start(&registry, "flow", ());
    let Err(QueryError::Mutated { what, .. }) = world.query("write") else { panic!() };
    assert!(what.starts_with("the state count (at ") && what.contains("async_form.rs:"), "{what}");
    let Err(QueryError::Mutated { what, .. }) = world.query("ask") else { panic!() };
    assert_eq!(what, "an activity");
    let Err(QueryError::Failed { failure, .. }) = world.query("panic") else { panic!() };
    assert!(failure.message.starts_with("in test-1 (at "), "{failure}");
    world.signal("end", ());
    assert_eq!(world.last(), untouched);
    world.check_replay();
}

/// E14: a validator refuses without an event, an accepted update runs like workflow code and is answered.
#[test]
fn updates_are_validated_then_handled_in_order_with_an_answer() {
    let registry = flow(|ctx, ()| async move {
        let total = ctx.state("total", 0i64);
        let held = total.clone();
        ctx.on_update(
            "add",
            |n: &i64| if *n < 0 { Err(Failure::application("Negative", "no")) } else { Ok(()) },
            move |ctx, n: i64| {
                let total = held.clone();
                async move {
                    let fee: i64 = ctx.activity("fee", &n, options()).await?;
                    total.write(|total| *total += n + fee);
                    Ok(total.get())
                }
            },
        );
        let read = total.clone();
        ctx.wait_until(move || read.get() >= 100).await?;
        ctx.all_handlers_finished().await?;
        Ok(total.get())
    });
    let mut world = World::start(&registry, "flow", ());
    let name = UpdateName::of("add");
    assert_eq!(world.driver.validate_update(&name, &json(-1)).unwrap_err().type_name(), "Negative");
    assert_eq!(world.driver.validate_update(&name, &json("x")).unwrap_err().type_name(), "PayloadError");
    let unknown = world.driver.validate_update(&UpdateName::of("sub"), &json(1)).unwrap_err();
    assert!(unknown.message.ends_with("it has: add"), "{unknown}");
    assert_eq!(world.driver.validate_update(&name, &json(5)), Ok(()));

    assert_eq!(kinds(&world.update("u1", "add", 5)), ["fee#1"]);
    assert_eq!(kinds(&world.update("u2", "add", 90)), ["fee#2"]);
    assert_eq!(kinds(&world.complete(2, 9)), ["update u2 ok"]);
    assert_eq!(kinds(&world.complete(1, 1)), ["update u1 ok", "complete"]);
    world.assert_completed(105);
    world.check_replay();
}

/// E12, E14: an update that comes with the start finds the handler that the first activation registered.
#[test]
fn an_update_right_after_the_start_finds_its_handler() {
    let registry = flow(|ctx, ()| async move {
        ctx.on_update("ping", |_: &u32| Ok(()), |_, n: u32| async move { Ok(n + 1) });
        ctx.signal_channel::<()>("end").recv().await
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(world.driver.validate_update(&UpdateName::of("ping"), &json(1)), Ok(()));
    let commands = world.update("u1", "ping", 1);
    assert_eq!(commands, [Command::CompleteUpdate { update_id: UpdateId::of("u1"), result: Ok(json(2)) }]);
    world.check_replay();
}

/// E14: updates that are still being handled when the run closes are answered with a failure, before it closes.
#[test]
fn an_update_open_at_the_end_is_answered_as_workflow_closed() {
    let registry = flow(|ctx, ()| async move {
        ctx.on_update("slow", |(): &()| Ok(()), |ctx, ()| async move { ctx.activity::<()>("x", &(), options()).await });
        ctx.signal_channel::<()>("end").recv().await
    });
    let mut world = World::start(&registry, "flow", ());
    world.update("u1", "slow", ());
    let commands = world.signal("end", ());
    assert_eq!(kinds(&commands), ["update u1 failed", "complete"]);
    let Command::CompleteUpdate { result: Err(failure), .. } = &commands[0] else { panic!() };
    assert_eq!(failure.type_name(), "WorkflowClosed");
    world.check_replay();
}

/// E15: start and result of a child are events of their own; its signals go to the run that started.
#[test]
fn a_child_starts_hears_signals_and_gives_its_result() {
    let registry = flow(|ctx, ()| async move {
        let child = ctx.child_workflow::<u32>("kid", "kid-1", &7, ChildWorkflowOptions::default());
        let run_id = child.started().await?;
        child.signal("go", &()).await?;
        Ok((run_id, child.await?))
    });
    let mut world = World::start(&registry, "flow", ());
    let run_id = RunId([9; 16]);
    let commands = world.happen(EventKind::ChildWorkflowExecutionStarted { seq: Seq(1), run_id });
    let Command::SignalExternalWorkflow { target, .. } = &commands[0] else { panic!() };
    assert_eq!(*target, ExternalTarget { workflow_id: "kid-1".into(), run_id: Some(run_id) });
    world.happen(EventKind::ExternalWorkflowExecutionSignaled { seq: Seq(2) });
    world.happen(EventKind::ChildWorkflowExecutionCompleted { seq: Seq(1), result: json(42) });
    world.assert_completed((run_id.to_string(), 42));
    world.check_replay();
}

/// E15, E30: a child that cannot be started fails its start and its result; a failed one names itself, cause inside.
#[test]
fn a_child_that_fails_says_which_and_why() {
    let registry = flow(|ctx, ()| async move {
        let one = ctx.child_workflow::<()>("kid", "one", &(), ChildWorkflowOptions::default());
        let two = ctx.child_workflow::<()>("kid", "two", &(), ChildWorkflowOptions::default());
        let start = one.started().await.unwrap_err();
        let result = one.await.unwrap_err();
        assert_eq!(start, result);
        Err::<(), _>(two.await.unwrap_err())
    });
    let mut world = World::start(&registry, "flow", ());
    let failure = Failure::application("AlreadyOpen", "in use");
    world.happen(EventKind::StartChildWorkflowExecutionFailed { seq: Seq(1), failure });
    let failure = Failure::application("Broken", "bones");
    world.happen(EventKind::ChildWorkflowExecutionFailed { seq: Seq(2), failure });
    let failure = world.failure();
    assert_eq!(failure.to_string(), "child workflow two failed; caused by: Broken: bones");
    assert!(matches!(failure.kind, FailureKind::ChildWorkflow { .. }));
    world.check_replay();
}

/// E16: signals and cancel requests to other runs resolve by their delivery events.
#[test]
fn messages_to_other_runs_resolve_by_event() {
    let registry = flow(|ctx, ()| async move {
        let target = ExternalTarget { workflow_id: "other".into(), run_id: None };
        let signal = ctx.signal_external(target.clone(), "hi", &1);
        let cancel = ctx.cancel_external(target, "bye");
        let delivered = signal.await.is_ok();
        Ok((delivered, cancel.await.unwrap_err().message))
    });
    let mut world = World::start(&registry, "flow", ());
    let failure = Failure::application("NotFound", "nobody there");
    world.happen(EventKind::RequestCancelExternalWorkflowExecutionFailed { seq: Seq(2), failure });
    world.happen(EventKind::ExternalWorkflowExecutionSignaled { seq: Seq(1) });
    world.assert_completed((true, "nobody there"));
    world.check_replay();
}

/// E20: a side effect runs once; replay gets the recorded value and runs nothing. Random values and ids are derived.
#[test]
fn side_effects_run_once_and_random_values_repeat() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let registry = flow(move |ctx: WfContext, ()| {
        let runs = counted.clone();
        async move {
            let rolled = ctx.side_effect(|| runs.fetch_add(1, Ordering::Relaxed) + 100);
            let (random, id) = (ctx.random_u64(), ctx.uuid());
            ctx.activity::<()>("use", &(rolled, random, id.to_string()), options()).await?;
            Ok((rolled, random != ctx.random_u64(), id != ctx.uuid()))
        }
    });
    let mut world = World::start(&registry, "flow", ());
    world.complete(2, ());
    world.assert_completed((100, true, true));
    world.check_replay();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

/// E30: an activity failure names the activity, its retry state, and the cause.
#[test]
fn an_activity_failure_wraps_its_cause() {
    let registry = flow(|ctx, ()| async move { ctx.activity::<()>("charge", &(), options()).await });
    let mut world = World::start(&registry, "flow", ());
    world.fail(1, Failure::application("CardDeclined", "no money"));
    let failure = world.failure();
    let FailureKind::Activity { activity_type, retry_state, .. } = &failure.kind else { panic!("{failure:?}") };
    assert_eq!((activity_type.as_str(), *retry_state), ("charge", RetryState::MaximumAttemptsReached));
    assert_eq!(failure.type_name(), "CardDeclined");
    world.check_replay();
}

/// E30: a panic fails that run, with message and place, and prints nothing; the code never runs again.
#[test]
fn a_panic_fails_the_run_with_message_and_place() {
    let registry = flow(|ctx, ()| async move {
        ctx.timer(SECOND).await?;
        let nothing: Option<u32> = ctx.info().identity.as_ref().map(|_| 1);
        Ok(nothing.expect("no luck today"))
    });
    let mut world = World::start(&registry, "flow", ());
    world.fire(1);
    let failure = world.failure();
    assert_eq!(failure.type_name(), FAILURE_PANIC);
    assert!(failure.message.starts_with("no luck today (at engine/src/workflow/tests/async_form.rs:"), "{failure}");
    assert_eq!(world.signal("more", ()), []);
    world.turns.pop();
    world.check_replay();
}

/// E30: an input that the code cannot read fails the run at its start, clearly and for good.
#[test]
fn an_undecodable_input_fails_the_run_at_its_start() {
    let registry = flow(|_, n: u32| async move { Ok(n) });
    let world = World::start(&registry, "flow", "seven");
    let failure = world.failure();
    assert!(matches!(&failure.kind, FailureKind::Application { failure_type, non_retryable: true, .. }
        if failure_type == "InvalidInput"));
    assert!(failure.message.contains("the input of the workflow flow cannot be read"), "{failure}");
    world.check_replay();
}

/// G22 (bug 7): a future that no job can resolve is named instead of being waited for.
#[test]
fn a_future_from_outside_the_context_is_named() {
    let registry = flow(|ctx, ()| async move {
        ctx.timer(SECOND).await?;
        std::future::pending::<()>().await;
        Ok(())
    });
    let mut world = World::start(&registry, "flow", ());
    world.fire(1);
    let failure = world.failure();
    assert_eq!(failure.type_name(), FAILURE_FOREIGN_FUTURE);
    assert!(failure.message.contains("the workflow function flow"), "{failure}");
}

/// G22 (bug 8): a wake-up from another thread is named.
#[test]
#[expect(clippy::disallowed_methods, reason = "the workflow under test does what it must not")]
fn a_wake_up_from_another_thread_is_named() {
    let registry = flow(|ctx, ()| async move {
        let done = Rc::new(RefCell::new(false));
        let polled = done.clone();
        let foreign = std::future::poll_fn(move |cx| {
            let waker = cx.waker().clone();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            if polled.replace(true) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        select(ctx.timer(SECOND), foreign).await;
        Ok(())
    });
    let world = World::start(&registry, "flow", ());
    let failure = world.failure();
    assert_eq!(failure.type_name(), FAILURE_FOREIGN_FUTURE);
    assert!(failure.message.contains("woken from outside"), "{failure}");
}

/// G22 (bug 20): `Drop` code of an evicted workflow asks for nothing, and replay of the run is the same.
#[test]
fn dropping_a_workflow_asks_for_nothing() {
    struct Sneak(WfContext);
    impl Drop for Sneak {
        fn drop(&mut self) {
            drop(self.0.activity::<()>("cleanup", &(), options()));
            self.0.cancel_scope("dropped");
            self.0.side_effect(|| 7);
        }
    }
    let registry = flow(|ctx, ()| async move {
        let _guard = Sneak(ctx.clone());
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ctx.timer(SECOND)));
        caught.map_err(|_| Failure::panic("caught"))?.await
    });
    let mut world = World::start(&registry, "flow", ());
    // Evict and load again by replay.
    world.driver = world.replay_with(&registry).unwrap().driver;
    // Live, the drop at the end of the function is part of the code and the same on every replay.
    assert_eq!(
        kinds(&world.fire(1)),
        ["side effect#3", "complete"],
        "cleanup is taken back in the turn that asks for it"
    );
    world.check_replay();
}

/// G24: an evicted workflow is freed, although its handlers hold the context that holds them.
#[test]
fn an_evicted_workflow_is_freed() {
    let token = std::sync::Arc::new(());
    let held = token.clone();
    let registry = flow(move |ctx, ()| {
        let held = held.clone();
        async move {
            let (in_query, in_wait, cell) = (held.clone(), held.clone(), ctx.state("s", 0u8));
            let (a, b) = (ctx.clone(), ctx.clone());
            ctx.on_query("q", move |()| Ok((std::sync::Arc::strong_count(&in_query), a.now(), cell.get())));
            ctx.wait_until(move || std::sync::Arc::strong_count(&in_wait) == 0 || b.is_canceled()).await
        }
    });
    let world = World::start(&registry, "flow", ());
    assert_eq!(std::sync::Arc::strong_count(&token), 5);
    drop(world.driver);
    assert_eq!(std::sync::Arc::strong_count(&token), 2);
}
