//! Forks under storage faults and crashes: a fork is there with all of its history, or not at all.

use bosun_engine::log::InjectedFault;
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry, replay};
use bosun_engine::*;

use crate::kit::*;

async fn review(ctx: WfContext, (): ()) -> Result<Vec<String>, Failure> {
    let mut said = vec![ctx.activity::<String>("work", &ctx.uuid().to_string(), quick()).await?];
    let verdict: String = ctx.activity("review", "draft", quick()).await?;
    if verdict == "bad" {
        return Err(Failure::application("Rejected", "the review was bad"));
    }
    said.push(ctx.activity("work", "publish", quick()).await?);
    ctx.timer(HOUR).await?;
    said.push(ctx.activity("work", "archive", quick()).await?);
    Ok(said)
}

fn code() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("review", review)
}

async fn world() -> (Ledger, TestEnvironment) {
    let ledger = Ledger::default();
    let mut activities = ActivityRegistry::new();
    let noted = ledger.clone();
    activities.register("work", move |ctx: ActivityContext, what: String| {
        noted.note(format!("{} {what}", ctx.idempotency_key()));
        async move { Ok(what) }
    });
    activities.register("review", |_: ActivityContext, _: String| async move { Ok("bad".to_owned()) });
    let environment = environment_with(code(), activities);
    environment.client().start(start("review", "source", &())).await.unwrap();
    outcome(&environment.client(), "source").await;
    settled(&environment).await;
    (ledger, environment)
}

fn request() -> ForkRequest {
    let of = ForkSubject::Name { name: "review".into(), nth: None };
    let good = ForkChange::Outcome { of, outcome: Ok(payload("good")) };
    let request = ForkRequest::new(ForkSource::Run(target("source")), "fork".into()).change(good);
    ForkRequest { request_id: Some("once".into()), ..request }
}

/// Forks, with a fault at the n-th write from then on and a crash after it; asks again until there is an answer. Says
/// whether the fault came.
async fn run(n: u64, fault: InjectedFault) -> bool {
    let (ledger, mut environment) = world().await;
    let source = environment.client().turns(&target("source")).await.unwrap();
    environment.log().fail_at(n, fault);
    let mut came = false;
    let forked = loop {
        let asked = environment.client().fork(request()).await;
        match asked {
            Ok(forked) => break forked,
            Err(Rejection::StorageFailed { .. } | Rejection::StorageFull { .. }) if !came => {
                came = true;
                environment = environment.crash(n, |_| {}).unwrap();
                all_or_nothing(&environment.client(), &source).await;
            }
            Err(why) => panic!("{fault:?} at write {n}: {why}"),
        }
    };
    loop {
        let ended = environment.client().result(&target("fork"), WHOLE).await;
        match ended {
            Ok(ended) => {
                assert_eq!(ended.unwrap().outcome.status(), WorkflowStatus::Completed, "{fault:?} at write {n}");
                break;
            }
            Err(Rejection::StorageFailed { .. } | Rejection::StorageFull { .. }) if !came => {
                came = true;
                environment = environment.crash(n, |_| {}).unwrap();
                all_or_nothing(&environment.client(), &source).await;
            }
            Err(why) => panic!("{fault:?} at write {n}: {why}"),
        }
    }
    let client = environment.client();
    let turns = client.turns(&target("fork")).await.unwrap();
    replay(&code(), &turns).unwrap();
    assert_eq!(turns[0].run, forked.run_id.unwrap());
    assert_eq!(client.turns(&target("source")).await.unwrap(), source, "the source is as it was");
    assert!(client.verify().await.unwrap().is_sound());
    let mut effects = ledger.entries();
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 3, "{fault:?} at write {n}: {effects:?}");
    came
}

/// After a crash the fork has everything that was copied, or it is not there.
async fn all_or_nothing(client: &Client, source: &[Turn]) {
    match client.turns(&target("fork")).await {
        Err(Rejection::NotFound { .. }) => {}
        Ok(turns) => {
            let events: Vec<&EventKind> = turns.iter().flat_map(|turn| &turn.events).collect();
            let copied: Vec<&EventKind> = source.iter().flat_map(|turn| &turn.events).collect();
            let forked = events.iter().position(|event| event.name() == "WorkflowExecutionForked").unwrap();
            assert_eq!(events[1..forked], copied[1..forked]);
            assert!(
                matches!(events[forked + 1], EventKind::ActivityTaskCompleted { .. }),
                "the first turn is there too"
            );
        }
        Err(why) => panic!("{why}"),
    }
}

/// G1, G2, G11: a fault at every write of a fork and of what follows it, then a power cut.
#[tokio::test]
async fn a_crash_after_any_write_leaves_a_whole_fork_or_none() {
    for fault in [InjectedFault::Eio, InjectedFault::EioAfter, InjectedFault::Enospc] {
        let mut n = 1;
        while run(n, fault).await {
            n += 1;
        }
        assert!(n > 5, "the sweep ended at write {n}");
    }
}

/// G2: killed directly after the commit of the fork, before anything of it was released.
#[tokio::test]
async fn a_fork_survives_a_crash_directly_after_its_commit() {
    let (_, environment) = world().await;
    environment.client().fork(request()).await.unwrap();
    let environment = environment.crash(3, |_| {}).unwrap();
    let said: Vec<String> = output(&environment.client(), "fork").await;
    assert_eq!(said[1..], ["publish", "archive"]);
}
