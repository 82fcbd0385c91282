//! Defects of workflow code hold their run and destroy nothing: it goes on with mended code (E28, E30).

use std::time::Duration;

use bosun_engine::workflow::{Cx, JoinHandle, Saga, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

/// Gives back what it is told, and notes it.
fn noted(ledger: &Ledger) -> ActivityRegistry {
    let ledger = ledger.clone();
    let mut activities = ActivityRegistry::new();
    activities.register("note", move |_: ActivityContext, word: String| {
        ledger.note(&word);
        async { Ok(word) }
    });
    activities
}

/// Collects two words. `BROKEN` code panics at the first.
#[derive(Serialize, Deserialize)]
struct Words<const BROKEN: bool>(Vec<String>);

impl<const BROKEN: bool> StateMachine for Words<BROKEN> {
    const TYPE: &'static str = "machine";
    type Input = ();
    type Output = Vec<String>;

    fn start((): (), _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Words(Vec::new()))
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let WorkflowEvent::Signal(signal) = event else { return Ok(()) };
        assert!(!BROKEN, "boom");
        self.0.push(signal.input.decode()?);
        if self.0.len() == 2 {
            cx.complete(&self.0);
        }
        Ok(())
    }
}

fn words(broken: bool) -> WorkflowRegistry {
    let flows = WorkflowRegistry::new().version(if broken { "v1" } else { "v2" });
    let flows = flows.workflow("async", move |ctx: WfContext, (): ()| async move {
        let words = ctx.signal_channel::<String>("word");
        let first = words.recv().await?;
        assert!(!broken, "boom");
        Ok(vec![first, words.recv().await?])
    });
    if broken { flows.state_machine::<Words<true>>() } else { flows.state_machine::<Words<false>>() }
}

/// E30: a panic holds the run in both forms: the card names what, where and what to do, nothing of the turn is written,
/// what comes meanwhile is kept, over a crash as well, and mended code goes on with all of it, once and in order.
#[tokio::test]
async fn a_panic_holds_its_run_until_the_code_is_mended() {
    let mut environment = environment(words(true));
    for form in ["async", "machine"] {
        let client = environment.client();
        client.start(start(form, form, &())).await.unwrap();
        for word in ["one", "two"] {
            client.signal(&target(form), signal("word", word)).await.unwrap();
        }
        let seen = client.describe(&target(form)).await.unwrap();
        let card = seen.held.expect("it is held");
        for part in ["error[BOSUN0102]: workflow code panicked", "in answer to the signal word", "boom", "defects.rs:"]
        {
            assert!(card.contains(part), "{part} is not in:\n{card}");
        }
        assert!(card.contains("help: mend the code that panics and start the worker with it"), "{card}");
        assert_eq!((seen.inbox, names(&history(&client, form).await)), (2, vec!["WorkflowExecutionStarted"]));
    }
    // The same code again: held again, and nothing lost.
    environment = environment.crash(3, |_| {}).unwrap();
    settled(&environment).await;
    let seen = environment.client().describe(&target("machine")).await.unwrap();
    assert!(seen.held.is_some() && seen.inbox == 3, "the signals, and that the worker is another one: {seen:?}");
    environment.client().unpause(&target("async"), "again".into(), None).await.unwrap();
    assert!(environment.client().describe(&target("async")).await.unwrap().held.is_some());

    environment = environment.restart(|options| options.workflows = words(false)).unwrap();
    for form in ["async", "machine"] {
        assert_eq!(output::<Vec<String>>(&environment.client(), form).await, ["one", "two"]);
        assert_eq!(count(&history(&environment.client(), form).await, "WorkflowExecutionSignaled"), 2);
    }
}

/// E30: code that panics in its first turn, at a timer, or in the turn that follows a start at once holds its run too.
#[tokio::test]
async fn a_panic_at_the_start_or_at_a_timer_holds() {
    let flows = |broken: bool| {
        WorkflowRegistry::new()
            .version(if broken { "v1" } else { "v2" })
            .workflow("at-once", move |_: WfContext, word: String| async move {
                assert!(!broken, "boom");
                Ok(word)
            })
            .workflow("later", move |ctx: WfContext, word: String| async move {
                ctx.timer(HOUR).await?;
                assert!(!broken, "boom");
                Ok(word)
            })
            .workflow("with-signal", move |ctx: WfContext, _: String| async move {
                let word = ctx.signal_channel::<String>("word").recv().await?;
                assert!(!broken, "boom");
                Ok(word)
            })
            .workflow("again", move |ctx: WfContext, word: String| async move {
                let said = ctx.signal_channel::<String>("word").recv().await?;
                match word.as_str() {
                    "first" => ctx.continue_as_new(&"second", ContinueAsNewOptions::default()),
                    _ => {
                        assert!(!broken, "boom");
                        Ok(said)
                    }
                }
            })
    };
    let environment = environment(flows(true));
    let client = environment.client();
    for flow in ["at-once", "later"] {
        client.start(start(flow, flow, "x")).await.unwrap();
    }
    let with = signal("word", "x");
    client.signal_with_start(start("with-signal", "with-signal", "-"), with.clone()).await.unwrap();
    client.start(start("again", "again", "first")).await.unwrap();
    client.signal(&target("again"), with.clone()).await.unwrap();
    client.signal(&target("again"), with).await.unwrap();
    environment.sleep(2 * HOUR).await;
    let all = ["at-once", "later", "with-signal", "again"];
    for flow in all {
        let seen = client.describe(&target(flow)).await.unwrap();
        assert!(seen.held.as_ref().is_some_and(|card| card.contains("boom")), "{flow}: {seen:?}");
    }
    let environment = environment.restart(|options| options.workflows = flows(false)).unwrap();
    for flow in all {
        assert_eq!(output::<String>(&environment.client(), flow).await, "x", "{flow}");
    }
}

/// E30, E28: a result that the code no longer reads holds the run before anything is undone; code that reads it goes on.
#[tokio::test]
async fn a_result_that_no_longer_decodes_holds_and_undoes_nothing() {
    async fn pay<T: for<'de> Deserialize<'de> + Serialize + 'static>(ctx: WfContext, (): ()) -> Result<T, Failure> {
        let code = ctx.clone();
        Saga::run(&ctx, |saga| async move {
            saga.compensate_with("undo", |ctx| async move {
                ctx.activity::<String>("note", "undone", quick()).await.map(drop)
            });
            code.signal_channel::<()>("go").recv().await?;
            code.activity::<T>("note", "paid", quick()).await
        })
        .await
    }
    let ledger = Ledger::default();
    let strings = || WorkflowRegistry::new().version("strings").workflow("pay", pay::<String>);
    let numbers = || WorkflowRegistry::new().version("numbers").workflow("pay", pay::<u64>);
    let environment = environment_with(strings(), noted(&ledger));
    environment.client().start(start("pay", "live", &())).await.unwrap();
    environment.client().start(start("pay", "replayed", &())).await.unwrap();
    let environment = environment.restart(|options| options.workflows = numbers()).unwrap();
    environment.client().signal(&target("live"), signal("go", &())).await.unwrap();
    settled(&environment).await;
    let card = environment.client().describe(&target("live")).await.unwrap().held.expect("it is held");
    for part in ["workflow code cannot read a payload", "the result of activity 1 (asked for at ", "defects.rs:"] {
        assert!(card.contains(part), "{part} is not in:\n{card}");
    }
    assert_eq!(ledger.entries(), ["paid"]);

    let environment = environment.restart(|options| options.workflows = strings()).unwrap();
    assert_eq!(output::<String>(&environment.client(), "live").await, "paid");
    assert_eq!(ledger.entries(), ["paid"], "nothing is done again, and nothing undone");
}

/// E30: an input that the code cannot read is the caller's mistake where a client starts, and a defect where a deploy
/// brought it about: in a child, in the next run, in what waits.
#[tokio::test]
async fn an_input_that_the_code_cannot_read_is_refused_or_held() {
    let flows = |version: &str| {
        WorkflowRegistry::new()
            .version(version)
            .workflow("number", |_: WfContext, n: u64| async move { Ok(n) })
            .workflow("parent", |ctx: WfContext, (): ()| async move {
                ctx.child_workflow::<u64>("number", "child", "seven", ChildWorkflowOptions::default()).await
            })
    };
    let environment = environment(flows("v1"));
    let client = environment.client();
    let refused = client.start(start("number", "n", "seven")).await;
    let Err(Rejection::Invalid { what, why }) = &refused else { panic!("{refused:?}") };
    assert!(what.contains("the input of the workflow number") && why.contains("u64"), "{what}: {why}");
    assert!(matches!(client.describe(&target("n")).await, Err(Rejection::NotFound { .. })));

    client.start(start("parent", "p", &())).await.unwrap();
    settled(&environment).await;
    let card = client.describe(&target("child")).await.unwrap().held.expect("it is held");
    assert!(card.contains("the input of the workflow number cannot be read"), "{card}");
    let mended = flows("v2").workflow("number", |_: WfContext, word: String| async move { Ok(word.len()) });
    let environment = environment.restart(|options| options.workflows = mended).unwrap();
    assert_eq!(output::<u64>(&environment.client(), "p").await, 5);
}

/// G22, E30: a deploy that waits for a future from outside of the context holds its runs.
#[tokio::test]
async fn a_foreign_future_after_a_deploy_holds() {
    let flows = |version: &str, foreign: bool| {
        WorkflowRegistry::new().version(version).workflow("wait", move |ctx: WfContext, (): ()| async move {
            ctx.signal_channel::<()>("go").recv().await?;
            if foreign {
                std::future::pending::<()>().await;
            }
            Ok(7)
        })
    };
    let environment = environment(flows("v1", false));
    environment.client().start(start("wait", "w", &())).await.unwrap();
    let environment = environment.restart(|options| options.workflows = flows("v2", true)).unwrap();
    environment.client().signal(&target("w"), signal("go", &())).await.unwrap();
    let card = environment.client().describe(&target("w")).await.unwrap().held.expect("it is held");
    assert!(card.contains("waits for something outside of its context") && card.contains("timers"), "{card}");
    let environment = environment.restart(|options| options.workflows = flows("v3", false)).unwrap();
    assert_eq!(output::<u64>(&environment.client(), "w").await, 7);
}

/// E30: a condition that changes the workflow holds the run as other defects do: in the turn in which it does, and with
/// the signal kept for mended code. Under the other policy the run fails with a type of its own.
#[tokio::test]
async fn a_condition_that_changes_the_workflow_holds() {
    let flows = |version: &str, changes: bool| {
        WorkflowRegistry::new().version(version).workflow("wait", move |ctx: WfContext, (): ()| async move {
            let (words, code) = (ctx.signal_channel::<String>("word"), ctx.clone());
            let seen = ctx.state("seen", 0);
            let read = seen.clone();
            let _counting: JoinHandle<()> = ctx.spawn(move |_| async move {
                while words.recv().await.is_ok() {
                    seen.write(|seen| *seen += 1);
                }
            });
            ctx.wait_until(move || {
                if changes && read.get() > 0 {
                    drop(code.timer(HOUR));
                }
                read.get() > 1
            })
            .await?;
            Ok(7)
        })
    };
    let environment = environment(flows("v1", true));
    let client = environment.client();
    client.start(start("wait", "w", &())).await.unwrap();
    assert!(client.describe(&target("w")).await.unwrap().held.is_none(), "the condition only read so far");
    client.signal(&target("w"), signal("word", "one")).await.unwrap();
    let seen = client.describe(&target("w")).await.unwrap();
    let card = seen.held.expect("it is held");
    for part in ["a condition changed the workflow", "in answer to the signal word", "let the condition only read"] {
        assert!(card.contains(part), "{part} is not in:\n{card}");
    }
    assert_eq!((seen.inbox, count(&history(&client, "w").await, "TimerStarted")), (1, 0));
    let environment = environment.restart(|options| options.workflows = flows("v2", false)).unwrap();
    environment.client().signal(&target("w"), signal("word", "two")).await.unwrap();
    assert_eq!(output::<u64>(&environment.client(), "w").await, 7);

    let failing = flows("v3", true).on_defect(DefectPolicy::Fail);
    let environment = crate::kit::environment(failing);
    environment.client().start(start("wait", "f", &())).await.unwrap();
    environment.client().signal(&target("f"), signal("word", "one")).await.unwrap();
    let ended = outcome(&environment.client(), "f").await;
    assert!(matches!(&ended, CloseOutcome::Failed(why) if why.type_name() == FAILURE_CONDITION_MUTATED), "{ended:?}");
}

fn saga(broken: bool) -> WorkflowRegistry {
    let flows = WorkflowRegistry::new().version(if broken { "v1" } else { "v2" });
    flows.workflow("saga", move |ctx: WfContext, (): ()| async move {
        let note = |word: &'static str| {
            move |ctx: WfContext| async move { ctx.activity::<String>("note", word, quick()).await.map(drop) }
        };
        Saga::run(&ctx, |saga| async move {
            saga.compensate_with("first", note("undo first"));
            saga.compensate_with("second", move |ctx: WfContext| async move {
                assert!(!broken, "no luck");
                note("undo second")(ctx).await
            });
            saga.compensate_with("third", note("undo third"));
            Err::<(), _>(Failure::application("Declined", "no money").non_retryable())
        })
        .await
    })
}

/// E28: a compensation that panics skips no other. By default the run is held, and with mended code every compensation
/// runs once, in order; where the policy is to fail, the others run and the failure names the one that did not.
#[tokio::test]
async fn a_compensation_that_panics_skips_no_other() {
    let ledger = Ledger::default();
    let environment = environment_with(saga(true), noted(&ledger));
    environment.client().start(start("saga", "s", &())).await.unwrap();
    settled(&environment).await;
    let seen = environment.client().describe(&target("s")).await.unwrap();
    assert!(seen.held.as_ref().is_some_and(|card| card.contains("no luck")), "{seen:?}");
    assert_eq!(ledger.entries(), ["undo third"]);
    let environment = environment.restart(|options| options.workflows = saga(false)).unwrap();
    let CloseOutcome::Failed(failure) = outcome(&environment.client(), "s").await else { panic!("it was declined") };
    assert_eq!(failure.type_name(), "Declined");
    assert_eq!(ledger.entries(), ["undo third", "undo second", "undo first"]);

    let ledger = Ledger::default();
    let fails = saga(true).on_defect_of("saga", DefectPolicy::Fail);
    let environment = environment_with(fails, noted(&ledger));
    environment.client().start(start("saga", "s", &())).await.unwrap();
    let CloseOutcome::Failed(failure) = outcome(&environment.client(), "s").await else { panic!("it was declined") };
    assert!(failure.to_string().contains("1 compensations failed: second: Panic: no luck"), "{failure}");
    assert_eq!(failure.type_name(), "Declined", "the cause is kept");
    assert_eq!(ledger.entries(), ["undo third", "undo first"]);
    // What was written under one policy is a history under the other.
    let environment = environment.restart(|options| options.workflows = saga(true)).unwrap();
    let seen = environment.client().describe(&target("s")).await.unwrap();
    assert_eq!((seen.held, seen.info.status), (None, WorkflowStatus::Failed));
}

/// E14, E30: an update that the code cannot carry out is refused to whoever sent it; the run is as it was and goes on.
#[tokio::test]
async fn an_update_that_panics_is_refused_and_harms_nothing() {
    let flows = WorkflowRegistry::new().workflow("counts", |ctx: WfContext, (): ()| async move {
        let sum = ctx.state("sum", 0_u64);
        let total = sum.clone();
        ctx.on_update(
            "add",
            |_: &u64| Ok(()),
            move |_, n: u64| {
                total.write(|total| *total += n);
                assert!(n < 10, "too much");
                async move { Ok(n) }
            },
        );
        ctx.signal_channel::<()>("end").recv().await?;
        Ok(sum.get())
    });
    let environment = environment(flows);
    let client = environment.client();
    client.start(start("counts", "c", &())).await.unwrap();
    for (id, n) in [("a", 3_u64), ("b", 30), ("c", 4)] {
        let answer = client.update(&target("c"), update(id, "add", &n, UpdateWait::Completed)).await;
        match (n, answer) {
            (30, Err(Rejection::UpdateRefused { failure, .. })) => {
                assert!(failure.message.contains("too much"), "{failure}");
            }
            (30, other) => panic!("{other:?}"),
            (_, answer) => assert_eq!(answer.unwrap(), UpdateOutcome::Completed(Ok(payload(&n)))),
        }
    }
    assert_eq!(client.describe(&target("c")).await.unwrap().held, None);
    client.signal(&target("c"), signal("end", &())).await.unwrap();
    assert_eq!(output::<u64>(&client, "c").await, 7);
}

/// A held run can be ended, and its own timeouts end it.
#[tokio::test]
async fn a_held_run_can_be_terminated_and_times_out() {
    let environment = environment(words(true));
    let client = environment.client();
    client.start(start("async", "ended", &())).await.unwrap();
    let mut limited = start("async", "limited", &());
    limited.run_timeout = Some(Duration::from_secs(60));
    client.start(limited).await.unwrap();
    for id in ["ended", "limited"] {
        client.signal(&target(id), signal("word", "one")).await.unwrap();
    }
    client.terminate(&target("ended"), "enough".into(), None).await.unwrap();
    environment.sleep(HOUR).await;
    assert!(matches!(outcome(&client, "ended").await, CloseOutcome::Terminated { .. }));
    assert!(matches!(outcome(&client, "limited").await, CloseOutcome::TimedOut(_)));
}

/// Held runs are found: lists show and filter them, and a worker with other code finds those that do not fit it, also if
/// nobody has asked for them yet.
#[tokio::test]
async fn lists_show_and_filter_held_runs() {
    let environment = environment(words(false));
    for id in ["a", "b", "c"] {
        environment.client().start(start("async", id, &())).await.unwrap();
    }
    environment.client().start(start("machine", "m", &())).await.unwrap();
    environment.client().signal(&target("a"), signal("word", "one")).await.unwrap();
    let changed = WorkflowRegistry::new().version("v3").state_machine::<Words<false>>().workflow(
        "async",
        |ctx: WfContext, (): ()| async move {
            ctx.timer(HOUR).await?;
            Ok(vec![String::new()])
        },
    );
    let environment =
        environment.restart(|options| (options.workflows, options.fit_runs_max) = (changed, 100)).unwrap();
    let client = environment.client();
    let fit = client.check_fit().await;
    assert_eq!((fit.other_build, fit.checked, fit.held), (4, 4, 3));
    let ids = |runs: Vec<RunInfo>| -> Vec<(String, bool)> {
        let mut ids: Vec<_> = runs.into_iter().map(|run| (run.workflow_id.to_string(), run.held)).collect();
        ids.sort();
        ids
    };
    let list = |query: &str| client.list(ListRequest { query: query.into(), limit: 10 });
    let held = |id: &str| (id.to_owned(), true);
    assert_eq!(ids(list("Held = true").await.unwrap()), [held("a"), held("b"), held("c")]);
    assert_eq!(ids(list("Held = false").await.unwrap()), [("m".to_owned(), false)]);
    assert_eq!(ids(list("ExecutionStatus = 'Running'").await.unwrap()).len(), 4, "a held run is a running one");
    assert_eq!(client.count("Held = true AND WorkflowId = 'a'").await.unwrap(), 1);
    assert!(client.describe(&target("a")).await.unwrap().info.held);
    client.terminate(&target("b"), "enough".into(), None).await.unwrap();
    assert_eq!(client.count("Held = true").await.unwrap(), 2);
}

/// E30: a value that cannot be written holds the run, and is told as what it is.
#[tokio::test]
async fn a_value_that_cannot_be_written_is_told_as_such() {
    async fn pairs(ctx: WfContext, (): ()) -> Result<String, Failure> {
        let pairs = std::collections::BTreeMap::from([((1_u32, 2_u32), 3_u32)]);
        ctx.activity("note", &pairs, quick()).await
    }
    let environment = environment(WorkflowRegistry::new().workflow("pairs", pairs));
    environment.client().start(start("pairs", "p", &())).await.unwrap();
    settled(&environment).await;
    let card = environment.client().describe(&target("p")).await.unwrap().held.expect("it is held");
    for part in [
        "workflow code cannot write a payload",
        "cannot write a value as json: it is of the type ",
        "BTreeMap<(u32, u32), u32>: key must be a string",
        "the keys of its maps must be text or numbers",
    ] {
        assert!(card.contains(part), "{part} is not in:\n{card}");
    }
    for wrong in ["cannot read", "0 bytes", "what was recorded"] {
        assert!(!card.contains(wrong), "{wrong} is in:\n{card}");
    }
}
