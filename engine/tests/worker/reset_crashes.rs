//! Resets under storage faults and crashes: the old run is ended and the new one is there with all of its history, or neither.

use bosun_engine::log::InjectedFault;
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry, replay};
use bosun_engine::*;

use crate::kit::*;

fn code() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("steps", |ctx: WfContext, (): ()| async move {
        let mut said = vec![ctx.activity::<String>("work", "first", quick()).await?];
        for _ in 0..2 {
            let word: String = ctx.signal_channel("word").recv().await?;
            said.push(ctx.activity("work", &word, quick()).await?);
        }
        Ok(said)
    })
}

async fn world() -> (Ledger, TestEnvironment) {
    let ledger = Ledger::default();
    let mut activities = ActivityRegistry::new();
    let noted = ledger.clone();
    activities.register("work", move |ctx: ActivityContext, what: String| {
        noted.note(format!("{} {what}", ctx.idempotency_key()));
        async move { Ok(what) }
    });
    let environment = environment_with(code(), activities);
    let client = environment.client();
    client.start(start("steps", "steps", &())).await.unwrap();
    settled(&environment).await;
    client.signal(&target("steps"), signal("word", "second")).await.unwrap();
    settled(&environment).await;
    (ledger, environment)
}

/// To before the second step was asked for: the first is not done again, the second is, because of its signal.
fn request() -> ResetRequest {
    ResetRequest { request_id: Some("once".into()), ..ResetRequest::new(target("steps"), ResetTo::Event(EventId(5))) }
}

/// Resets, with a fault at the n-th write from then on and a crash after it; asks again until there is an answer. Says whether
/// the fault came.
async fn run(n: u64, fault: InjectedFault) -> bool {
    let (ledger, mut environment) = world().await;
    let source = environment.client().turns(&target("steps")).await.unwrap();
    environment.log().fail_at(n, fault);
    let mut came = false;
    let mut step = 0;
    let last = loop {
        let client = environment.client();
        let said = match step {
            0 => client.reset(request()).await.map(|done| assert!(done.run_id.is_some())),
            1 => client.signal(&target("steps"), signal_once("word", "third", "third")).await,
            _ => match client.result(&target("steps"), WHOLE).await {
                Ok(ended) => break ended.unwrap(),
                Err(why) => Err(why),
            },
        };
        match said {
            Ok(()) => step += 1,
            Err(Rejection::StorageFailed { .. } | Rejection::StorageFull { .. }) if !came => {
                came = true;
                environment = environment.crash(n, |_| {}).unwrap();
                all_or_nothing(&environment.client(), &source, step).await;
            }
            Err(why) => panic!("{fault:?} at write {n}: {why}"),
        }
    };
    let client = environment.client();
    assert_eq!(decoded::<Vec<String>>(last.outcome), ["first", "second", "third"], "{fault:?} at write {n}");
    let turns = client.turns(&target("steps")).await.unwrap();
    replay(&code(), &turns).unwrap();
    let runs = client.list(ListRequest { query: String::new(), limit: 9 }).await.unwrap();
    assert_eq!(runs.len(), 2, "{fault:?} at write {n}");
    assert!(client.verify().await.unwrap().is_sound());
    let mut effects = ledger.entries();
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 4, "{fault:?} at write {n}: {effects:?}");
    came
}

/// After a crash one run is there to go on: the old one as it was, or the new one with all that was copied. Until the word that
/// it waits for is in its history it is open; a word whose write was reported as failed may be there, and the run at its end.
async fn all_or_nothing(client: &Client, source: &[Turn], step: usize) {
    let runs = client.list(ListRequest { query: String::new(), limit: 9 }).await.unwrap();
    let turns = client.turns(&target("steps")).await.unwrap();
    let events: Vec<&EventKind> = turns.iter().flat_map(|turn| &turn.events).collect();
    let copied: Vec<&EventKind> = source.iter().flat_map(|turn| &turn.events).collect();
    let third = |event: &&EventKind| matches!(event, EventKind::WorkflowExecutionSignaled(said) if said.request_id.as_ref() == Some(&"third".into()));
    let told = events.iter().any(third);
    assert!(told || step < 2, "what was acknowledged is there");
    assert!(told || runs[0].status.is_open(), "{:?}", runs[0].status);
    match &runs[..] {
        [old] => {
            assert_eq!((old.run_id, step), (source[0].run, 0));
            assert_eq!(events[..copied.len()], copied[..]);
        }
        [new, old] => {
            assert_eq!((old.status, old.next_run), (WorkflowStatus::Terminated, Some(new.run_id)));
            let forked = events.iter().position(|event| event.name() == "WorkflowExecutionForked").unwrap();
            assert_eq!(events[1..forked], copied[1..forked]);
            assert!(matches!(events[forked + 1], EventKind::WorkflowExecutionSignaled(_)), "{:?}", events[forked + 1]);
        }
        more => panic!("{more:?}"),
    }
}

/// G1, G2, G11, E26: a fault at every write of a reset and of what follows it, then a power cut.
#[tokio::test]
async fn a_crash_after_any_write_leaves_a_whole_reset_or_none() {
    for fault in [InjectedFault::Eio, InjectedFault::EioAfter, InjectedFault::Enospc] {
        let mut n = 1;
        while run(n, fault).await {
            n += 1;
        }
        assert!(n > 5, "the sweep ended at write {n}");
    }
}
