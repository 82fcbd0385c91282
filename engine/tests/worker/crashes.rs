//! A workflow of everything, crashed after every write: it ends as it would have without.

use std::collections::BTreeSet;
use std::time::Duration;

use bosun_engine::log::InjectedFault;
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{
    Cx, Saga, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, branch, join_all, race,
};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

/// Fans out, races, waits, signals, starts children, compensates and goes on in a new run.
async fn sink(ctx: WfContext, round: u32) -> Result<Vec<String>, Failure> {
    if round == 0 {
        let names = ["a", "b", "c"].map(|name| ctx.activity::<String>("work", name, quick()));
        let done = join_all(names).await.into_iter().collect::<Result<Vec<String>, _>>()?;
        ctx.upsert_search_attributes([("Stage".into(), SearchValue::Int(1))].into());
        let noted: String = ctx.side_effect(|| done.concat());
        ctx.timer(Duration::from_secs(60)).await?;
        let (winner, _) = race(
            &ctx,
            vec![
                branch(|ctx| async move { ctx.timer(Duration::from_secs(30)).await }),
                branch(|ctx| async move { ctx.timer(Duration::from_secs(3_000)).await }),
            ],
        )
        .await;
        ctx.activity::<String>("work", &format!("{noted}{winner}"), quick()).await?;
        return ctx.continue_as_new(&1, ContinueAsNewOptions::default());
    }
    let steps = ctx.clone();
    let undone: Result<(), Failure> = Saga::run(&ctx, |saga| async move {
        for step in ["one", "two"] {
            saga.compensate_with(step, move |ctx| async move {
                ctx.activity::<String>("work", &format!("undo {step}"), quick()).await.map(drop)
            });
            steps.activity::<String>("work", step, quick()).await?;
        }
        Err(Failure::application("Planned", "to compensate"))
    })
    .await;
    let child: String = ctx.child_workflow("helper", "helper", &7, ChildWorkflowOptions::default()).await?;
    let to = ExternalTarget { workflow_id: "listener".into(), run_id: None };
    ctx.signal_external(to, "word", "from the sink").await?;
    let mut said = vec![child, undone.unwrap_err().type_name().to_owned()];
    for _ in 0..2 {
        said.push(ctx.signal_channel::<String>("say").recv().await?);
    }
    Ok(said)
}

#[derive(Serialize, Deserialize)]
struct Helper {
    waiting: Seq,
}

impl StateMachine for Helper {
    const TYPE: &'static str = "helper";
    type Input = u32;
    type Output = String;

    fn start(input: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Helper { waiting: cx.schedule_activity("work", &format!("helper {input}"), quick()) })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { result, .. } => {
                result?;
                self.waiting = cx.start_timer(Duration::from_secs(5));
            }
            WorkflowEvent::TimerFired { seq } if seq == self.waiting => cx.complete("helped"),
            _ => {}
        }
        Ok(())
    }
}

async fn listener(ctx: WfContext, (): ()) -> Result<Vec<String>, Failure> {
    ctx.signal_channel::<()>("stop").recv().await?;
    ctx.signal_channel::<String>("word").drain().into_iter().collect()
}

/// What the outside sees of a whole execution.
#[derive(Debug, PartialEq)]
struct Seen {
    said: Vec<String>,
    heard: Vec<String>,
    /// What was done, each under one idempotency key however often it was tried.
    effects: Vec<String>,
    stages: Vec<SearchAttributes>,
    /// How many activities completed, in all runs.
    completed: usize,
}

fn world() -> (Ledger, TestEnvironment) {
    let ledger = Ledger::default();
    let mut activities = ActivityRegistry::new();
    let noted = ledger.clone();
    activities.register("work", move |ctx: ActivityContext, what: String| {
        noted.note(format!("{} {what}", ctx.idempotency_key()));
        async move { Ok(what) }
    });
    let workflows =
        WorkflowRegistry::new().state_machine::<Helper>().workflow("sink", sink).workflow("listener", listener);
    let environment = environment_with(workflows, activities);
    (ledger, environment)
}

/// What a client does from outside, step by step. Every step can be repeated.
async fn step(client: &Client, n: usize) -> Result<(), Rejection> {
    let once = |start: StartWorkflow, id: &str| StartWorkflow { request_id: Some(id.into()), ..start };
    match n {
        0 => client.start(once(start("listener", "listener", &()), "s0")).await.map(drop),
        1 => client
            .signal_with_start(once(start("sink", "sink", &0), "s1"), signal_once("say", "early", "m1"))
            .await
            .map(drop),
        2 => client.signal(&target("sink"), signal_once("say", "late", "m2")).await,
        3 => client.result(&target("sink"), WHOLE).await.map(|ended| assert!(ended.is_some(), "it hangs")),
        _ => client.signal(&target("listener"), signal_once("stop", &(), "m3")).await,
    }
}

const STEPS: usize = 5;

/// Lets everything happen, with a storage fault at the n-th write and a crash after it, then with the next fault, as far
/// as there are that many writes. Says what was seen, and how many faults came.
async fn run(faults: &[(u64, InjectedFault)]) -> (Seen, usize) {
    let (ledger, mut environment) = world();
    let (mut came, mut n) = (0, 0);
    let break_soon = |environment: &TestEnvironment, came: usize| {
        if let Some((n, fault)) = faults.get(came) {
            environment.log().fail_at(*n, *fault);
        }
    };
    break_soon(&environment, came);
    let mut acknowledged = Vec::new();
    while n < STEPS {
        match step(&environment.client(), n).await {
            Ok(()) => {
                acknowledged.push(n);
                n += 1;
            }
            Err(Rejection::StorageFailed { .. } | Rejection::StorageFull { .. }) if came < faults.len() => {
                environment = environment.crash(faults[came].0, |_| {}).unwrap();
                came += 1;
                break_soon(&environment, came);
                check_acknowledged(&environment.client(), &acknowledged).await;
            }
            Err(why) => panic!("step {n} with {faults:?}: {why}"),
        }
    }
    let client = environment.client();
    let heard = output(&client, "listener").await;
    let said = output(&client, "sink").await;
    let runs = client.list(ListRequest { query: "ORDER BY WorkflowType, Stage".into(), limit: 100 }).await.unwrap();
    assert_eq!(runs.len(), 4, "{faults:?}");
    let mut completed = 0;
    for run in &runs {
        let events = history_of(&client, &Target::run(run.workflow_id.clone(), run.run_id)).await;
        completed += count(&events, "ActivityTaskCompleted");
        assert!(events.windows(2).all(|pair| pair[0].id.next() == pair[1].id && pair[0].at <= pair[1].at));
    }
    assert!(client.verify().await.unwrap().is_sound(), "{faults:?}");
    let stages = runs.into_iter().map(|run| run.search_attributes).collect();
    // An entry is a key and what was done; attempts of one activity are one entry.
    let keyed: BTreeSet<String> = ledger.entries().into_iter().collect();
    let mut effects: Vec<String> =
        keyed.iter().filter_map(|entry| entry.split_once(' ')).map(|(_, what)| what.into()).collect();
    effects.sort();
    (Seen { said, heard, effects, stages, completed }, came)
}

/// Nothing that was acknowledged is missing after the crash.
async fn check_acknowledged(client: &Client, acknowledged: &[usize]) {
    for step in acknowledged {
        let (id, name) = match step {
            0 => ("listener", None),
            1 => ("sink", Some("early")),
            2 => ("sink", Some("late")),
            3 => ("sink", None),
            _ => ("listener", None),
        };
        assert!(client.turns(&target(id)).await.is_ok(), "the start of {id} was acknowledged");
        let Some(word) = name else { continue };
        let runs = client.list(ListRequest { query: format!("WorkflowId = '{id}'"), limit: 10 }).await.unwrap();
        let mut found = 0;
        for run in runs {
            for turn in client.turns(&Target::run(run.workflow_id, run.run_id)).await.unwrap() {
                found += turn
                    .events
                    .iter()
                    .filter(|event| matches!(event, EventKind::WorkflowExecutionSignaled(signal) if signal.input == payload(word)))
                    .count();
            }
        }
        assert_eq!(found, 1, "the signal {word:?} was acknowledged");
    }
}

/// G1, G11, G13, G18: a fault at every n-th write, of each kind, then a power cut that leaves an arbitrary part of what
/// was not synced. Nothing acknowledged is missing, and everything ends as it does undisturbed.
#[tokio::test]
async fn a_crash_after_any_write_changes_nothing_that_can_be_seen() {
    let (undisturbed, _) = run(&[]).await;
    assert_eq!(undisturbed.said, ["helped", "Planned", "early", "late"]);
    assert_eq!(undisturbed.heard, ["from the sink"]);
    assert_eq!((undisturbed.effects.len(), undisturbed.completed), (9, 9));
    for fault in [InjectedFault::Eio, InjectedFault::EioAfter, InjectedFault::Enospc] {
        let mut n = 1;
        loop {
            let (seen, came) = run(&[(n, fault)]).await;
            assert_eq!(seen, undisturbed, "{fault:?} at write {n}");
            if came == 0 {
                break;
            }
            n += 1;
        }
        assert!(n > 25, "the sweep ended at write {n}");
    }
}

/// G2, G18: two crashes, the second one soon after the first, in the middle of what the first restart makes good. How many
/// writes there are depends on which turns share one, so the first crash is tried at each of them, up to the last.
#[tokio::test]
async fn a_second_crash_during_the_recovery_from_the_first_changes_nothing() {
    let (undisturbed, _) = run(&[]).await;
    let mut first = 1;
    loop {
        let mut came = 0;
        for second in 1..=8 {
            let fault = if second % 2 == 0 { InjectedFault::Eio } else { InjectedFault::EioAfter };
            let (seen, faults) = run(&[(first, InjectedFault::EioAfter), (second, fault)]).await;
            assert_eq!(seen, undisturbed, "at write {first}, then at write {second}");
            came = came.max(faults);
        }
        if came == 0 {
            break;
        }
        first += 1;
    }
    assert!(first > 25, "the sweep ended at write {first}");
}
