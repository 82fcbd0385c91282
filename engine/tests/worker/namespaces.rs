//! Namespaces: what is in one is not there for who names another one.

use std::time::Duration;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;
use futures_util::StreamExt;

use crate::kit::*;

const PROD: &str = "prod";
const DEV: &str = "dev";

async fn waiter(ctx: WfContext, (): ()) -> Result<String, Failure> {
    ctx.on_query("seen", |(): ()| Ok("seen"));
    ctx.signal_channel::<String>("word").recv().await
}

/// Sends to a run that is named by both its ids.
async fn messenger(ctx: WfContext, run: RunId) -> Result<(bool, bool), Failure> {
    let to = || ExternalTarget { workflow_id: "w".into(), run_id: Some(run) };
    let signaled = ctx.signal_external(to(), "word", "from the other side").await.is_ok();
    let canceled = ctx.cancel_external(to(), "from the other side").await.is_ok();
    Ok((signaled, canceled))
}

fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("waiter", waiter).workflow("messenger", messenger)
}

fn within(namespace: &str, start: StartWorkflow) -> StartWorkflow {
    StartWorkflow { namespace: namespace.into(), ..start }
}

/// Every request that names a run, with what it came to.
async fn everything(client: &Client, target: &Target) -> Vec<(&'static str, Option<Rejection>)> {
    let because = || "because".to_owned();
    let events: Vec<_> = client.events(target.clone(), EventId(1), false).take(1).collect().await;
    let fork = ForkRequest {
        namespace: target.namespace.clone(),
        ..ForkRequest::new(ForkSource::Run(target.clone()), "fork".into())
    };
    vec![
        ("describe", client.describe(target).await.err()),
        ("query", client.query(target, &"seen".into(), Payload::null()).await.err()),
        ("history", client.history(target, EventId(1), 10).await.err()),
        ("turns", client.turns(target).await.err()),
        ("events", events.into_iter().find_map(Result::err)),
        ("result", client.result(target, ResultRequest { timeout: Some(Duration::ZERO), ..THIS_RUN }).await.err()),
        ("fork", client.fork(fork).await.err()),
        ("update", client.update(target, update("u", "set", &(), UpdateWait::Accepted)).await.err()),
        ("update result", client.update_result(target, &"u".into()).await.err()),
        ("pause", client.pause(target, because(), None).await.err()),
        ("unpause", client.unpause(target, because(), None).await.err()),
        ("pause activity", client.pause_activity(target, &"a".into(), because(), None).await.err()),
        ("unpause activity", client.unpause_activity(target, &"a".into(), None).await.err()),
        ("cancel", client.cancel(target, because(), None, None).await.err()),
        ("signal", client.signal(target, signal("word", "from the other side")).await.err()),
        ("terminate", client.terminate(target, because(), None).await.err()),
        ("delete", client.delete(target).await.err()),
    ]
}

/// E34: a run of another namespace is not there, although both its ids are known; loaded, parked and closed.
#[tokio::test]
async fn a_run_is_not_reached_from_another_namespace() {
    let mut environment = environment(workflows());
    let client = environment.client();
    let ours = client.start(within(PROD, start("waiter", "w", &()))).await.unwrap().run_id;
    client.start(within(DEV, start("waiter", "w", &()))).await.unwrap();
    let prod = Target { namespace: PROD.into(), ..Target::run("w".into(), ours) };
    let length = |client: Client| {
        let prod = prod.clone();
        async move { client.history(&prod, EventId(1), 100).await.unwrap().len() }
    };
    let before = length(client.clone()).await;
    for state in ["loaded", "parked", "closed"] {
        if state == "parked" {
            environment = environment.restart(|_| {}).unwrap();
        }
        let client = environment.client();
        if state == "closed" {
            client.signal(&prod, signal("word", "ours")).await.unwrap();
            assert_eq!(decoded::<String>(client.result(&prod, THIS_RUN).await.unwrap().unwrap().outcome), "ours");
        }
        let ended = length(client.clone()).await;
        for namespace in [DEV, "default", "never-used"] {
            let other = Target { namespace: namespace.into(), ..prod.clone() };
            for (request, refused) in everything(&client, &other).await {
                let is_not_there = matches!(refused, Some(Rejection::NotFound { .. }));
                assert!(is_not_there, "{state}, {request} from {namespace}: {refused:?}");
            }
        }
        assert_eq!(length(client.clone()).await, ended, "{state}");
        assert!(state == "closed" || ended == before, "{state}: {ended} events, {before} before");
    }
}

/// The same of what runs send to each other.
#[tokio::test]
async fn a_message_of_a_run_stays_in_its_namespace() {
    let environment = environment(workflows());
    let client = environment.client();
    let ours = client.start(within(PROD, start("waiter", "w", &()))).await.unwrap().run_id;
    client.start(within(DEV, start("messenger", "m", &ours))).await.unwrap();
    let messenger = Target { namespace: DEV.into(), ..target("m") };
    let arrived = client.result(&messenger, THIS_RUN).await.unwrap().unwrap().outcome;
    assert_eq!(decoded::<(bool, bool)>(arrived), (false, false));
    let prod = Target { namespace: PROD.into(), ..Target::run("w".into(), ours) };
    let seen = client.describe(&prod).await.unwrap();
    assert!(seen.info.status.is_open() && !seen.cancel_requested);
    // Within one it arrives.
    client.start(within(PROD, start("messenger", "m", &ours))).await.unwrap();
    let messenger = Target { namespace: PROD.into(), ..target("m") };
    let arrived = client.result(&messenger, THIS_RUN).await.unwrap().unwrap().outcome;
    assert!(decoded::<(bool, bool)>(arrived).0);
}
