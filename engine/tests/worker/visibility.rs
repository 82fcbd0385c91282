//! Lists, counts, and streams of events.

use std::time::Duration;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;
use futures_util::StreamExt;

use crate::kit::*;

fn order(state: &str, cents: i64) -> SearchAttributes {
    [("State".into(), SearchValue::Keyword(state.into())), ("Cents".into(), SearchValue::Int(cents))].into()
}

/// An order: shipped at `ship`, then done at `done`.
async fn order_flow(ctx: WfContext, (): ()) -> Result<(), Failure> {
    ctx.signal_channel::<()>("ship").recv().await?;
    ctx.upsert_search_attributes([("State".into(), SearchValue::Keyword("shipped".into()))].into());
    ctx.signal_channel::<()>("done").recv().await?;
    ctx.upsert_search_attributes([("Cents".into(), SearchValue::Unset)].into());
    Ok(())
}

fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("order", order_flow).workflow("other", order_flow)
}

async fn ids(client: &Client, query: &str) -> Vec<String> {
    let runs = client.list(ListRequest { query: query.into(), limit: 1_000 }).await.unwrap();
    assert_eq!(client.count(query).await.unwrap(), runs.len() as u64, "{query}");
    runs.into_iter().map(|run| run.workflow_id.to_string()).collect()
}

/// E23: open and closed runs are found by filter, in the order asked for, with attributes as the code last set them; and
/// the same from an index rebuilt or checkpointed, after a crash and after a restart.
#[tokio::test]
async fn runs_are_listed_by_filter_before_and_after_restarts() {
    let mut environment = environment(workflows());
    let client = environment.client();
    for (n, cents) in [300, 100, 200, 500, 400].into_iter().enumerate() {
        let id = format!("order-{n}");
        let mut start = start(if n == 4 { "other" } else { "order" }, &id, &());
        start.search_attributes = order("new", cents);
        start.memo = [("buyer".into(), payload("ada"))].into();
        start.summary = Some("an order".into());
        start.details = Some("with *details*".into());
        client.start(start).await.unwrap();
        environment.sleep(Duration::from_secs(60)).await;
    }
    for (id, names) in [("order-1", ["ship", "done"].as_slice()), ("order-2", &["ship"]), ("order-3", &["ship"])] {
        for name in names {
            client.signal(&target(id), signal(name, &())).await.unwrap();
        }
    }
    client.terminate(&target("order-3"), "fraud".into(), None).await.unwrap();
    for round in 0..4 {
        let client = environment.client();
        for (query, expected) in [
            ("", ["order-4", "order-3", "order-2", "order-1", "order-0"].as_slice()),
            ("State = 'shipped' ORDER BY Cents DESC", &["order-3", "order-2", "order-1"]),
            ("State != 'shipped' ORDER BY WorkflowId", &["order-0", "order-4"]),
            ("Cents >= 200 AND Cents < 500 ORDER BY Cents", &["order-2", "order-0", "order-4"]),
            ("Cents IS NULL", &["order-1"]),
            ("ExecutionStatus IN ('Completed', 'Terminated') ORDER BY WorkflowId", &["order-1", "order-3"]),
            ("ExecutionStatus = 'Running' AND WorkflowType = 'order' ORDER BY StartTime", &["order-0", "order-2"]),
            ("WorkflowId STARTS_WITH 'order-' AND (Cents = 100 OR Cents BETWEEN 250 AND 450)", &["order-4", "order-0"]),
            ("StartTime < '2026-01-01T00:02:00Z' ORDER BY StartTime", &["order-0", "order-1"]),
            ("State = 'nowhere'", &[]),
        ] {
            assert_eq!(ids(&client, query).await, expected, "{query}, round {round}");
        }
        let newest = client.list(ListRequest { query: String::new(), limit: 2 }).await.unwrap();
        assert_eq!(newest.len(), 2);
        let info = client.describe(&target("order-1")).await.unwrap().info;
        assert_eq!((info.summary.as_deref(), info.details.as_deref()), (Some("an order"), Some("with *details*")));
        assert_eq!(info.memo[&"buyer".into()], payload("ada"));
        environment = match round {
            0 => environment.crash(1, |_| {}).unwrap(),
            1 => environment.restart(|_| {}).unwrap(),
            _ => {
                client.housekeep().await.unwrap();
                environment.crash(round, |_| {}).unwrap()
            }
        };
    }
    let refused = environment.client().list(ListRequest { query: "State = ".into(), limit: 1 }).await;
    assert!(matches!(refused, Err(Rejection::Invalid { .. })), "{refused:?}");
}

/// E33: a follower gets every event of a run once and in order, from the event it asks for, until the run has ended,
/// while it runs and afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_events_of_a_run_are_followed_without_gap_or_repetition() {
    let flow = |ctx: WfContext, (): ()| async move {
        let words = ctx.signal_channel::<u32>("word");
        for _ in 0..200 {
            words.recv().await?;
        }
        Ok(())
    };
    let environment = environment(WorkflowRegistry::new().workflow("flow", flow));
    let client = environment.client();
    client.start(start("flow", "f", &())).await.unwrap();
    let followers: Vec<_> = [1, 7, 150, 202]
        .map(|from| {
            let events = client.events(target("f"), EventId(from), true);
            tokio::spawn(async move { (from, events.map(|event| event.unwrap().id.0).collect::<Vec<_>>().await) })
        })
        .into();
    for n in 0..200 {
        client.signal(&target("f"), signal("word", &n)).await.unwrap();
    }
    outcome(&client, "f").await;
    for follower in followers {
        let (from, seen) = follower.await.unwrap();
        assert_eq!(seen, (from..=202).collect::<Vec<u64>>());
    }
    let later: Vec<u64> =
        client.events(target("f"), EventId(200), false).map(|event| event.unwrap().id.0).collect().await;
    assert_eq!(later, [200, 201, 202]);
    let beyond = client.events(target("f"), EventId(500), true).collect::<Vec<_>>().await;
    assert!(beyond.is_empty(), "a closed run has no more events to wait for");
}

/// E33: a watcher with a filter sees the events of all runs that fit, from any group on, also what was committed before
/// it came, each once and in the order of the log; it is told when the worker leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_many_runs_are_watched_without_gap_or_repetition() {
    let environment = environment(workflows());
    let client = environment.client();
    client.start(start("order", "before", &())).await.unwrap();
    let from = client.store_info().await.unwrap().last_group;
    let live = client.watch("WorkflowType = 'order'".into(), Some(from));
    let live = tokio::spawn(live.collect::<Vec<_>>());
    let work: Vec<_> = (0..8)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                for round in 0..10 {
                    let (id, kind) = (format!("{n}-{round}"), if round % 2 == 0 { "order" } else { "other" });
                    client.start(start(kind, &id, &())).await.unwrap();
                    for name in ["ship", "done"] {
                        client.signal(&target(&id), signal(name, &())).await.unwrap();
                    }
                }
            })
        })
        .collect();
    for work in work {
        work.await.unwrap();
    }
    settled(&environment).await;
    let mut expected = Vec::new();
    for n in 0..8 {
        for round in (0..10).step_by(2) {
            let id = format!("{n}-{round}");
            expected.extend(history(&client, &id).await.into_iter().map(|event| (id.clone(), event.id.0)));
        }
    }
    expected.sort();
    let all = client.watch("WorkflowType = 'order'".into(), Some(GroupSeq(0)));
    let all = tokio::spawn(all.collect::<Vec<_>>());
    // Time for the second watcher is not needed: it is told of the end only after it has seen what was there.
    tokio::task::yield_now().await;
    environment.worker().stop().unwrap();
    for (watcher, with_before) in [(live, false), (all, true)] {
        let mut seen = watcher.await.unwrap();
        let end = seen.pop().unwrap();
        assert_eq!(end, Err(Rejection::ShuttingDown));
        let seen: Vec<RunEvent> = seen.into_iter().map(Result::unwrap).collect();
        assert!(seen.windows(2).all(|pair| pair[0].group <= pair[1].group), "in the order of the log");
        let (mut told, before): (Vec<_>, Vec<_>) = seen
            .into_iter()
            .map(|event| (event.workflow_id.to_string(), event.event.id.0))
            .partition(|(id, _)| id != "before");
        told.sort();
        assert_eq!(told, expected);
        assert_eq!(!before.is_empty(), with_before);
    }
}
