//! Resets of an earlier run of a chain: what reached the later runs reaches the one that goes on, whichever run hears it.

use bosun_engine::workflow::{WfContext, WorkflowRegistry, replay};
use bosun_engine::*;

use crate::kit::*;

/// Keeps what it is told, by signal and by update; `next` lets it go on as new with that.
fn code() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("notes", |ctx: WfContext, before: Vec<String>| async move {
        let seen = ctx.state("seen", before);
        let (shown, noted) = (seen.clone(), seen.clone());
        ctx.on_query("seen", move |()| Ok(shown.get()));
        ctx.on_update(
            "note",
            |_: &String| Ok(()),
            move |_, word: String| {
                noted.write(|seen| seen.push(word));
                async move { Ok(()) }
            },
        );
        loop {
            match ctx.signal_channel::<String>("word").recv().await?.as_str() {
                "next" => return ctx.continue_as_new::<()>(&seen.get(), ContinueAsNewOptions::default()),
                word => seen.write(|seen| seen.push(word.to_owned())),
            }
        }
    })
}

/// E14, E19, E26: updates and signals of later runs come in their order, also where the reset run goes on as new again.
#[tokio::test]
async fn what_later_runs_were_told_reaches_the_chain_in_its_order() {
    let environment = environment(code());
    let client = environment.client();
    let none: [String; 0] = [];
    let first = client.start(start("notes", "a", &none)).await.unwrap();
    let note = |word: &str| update(word, "note", word, UpdateWait::Completed);
    client.update(&target("a"), note("1")).await.unwrap();
    client.signal(&target("a"), signal("word", "next")).await.unwrap();
    settled(&environment).await;
    client.update(&target("a"), note("2")).await.unwrap();
    client.signal(&target("a"), signal("word", "3")).await.unwrap();
    client.update(&target("a"), note("4")).await.unwrap();
    client.signal(&target("a"), signal("word", "next")).await.unwrap();
    settled(&environment).await;
    client.update(&target("a"), note("5")).await.unwrap();
    let whole = ["1", "2", "3", "4", "5"];
    assert_eq!(query::<Vec<String>>(&client, "a", "seen").await, whole);

    let of_first = Target { run_id: Some(first.run_id), ..target("a") };
    let reset = client.reset(ResetRequest::new(of_first.clone(), ResetTo::FirstTurn)).await.unwrap();
    assert!(reset.plan.updates_dropped.is_empty() && reset.plan.signals_dropped.is_empty(), "{:?}", reset.plan);
    settled(&environment).await;
    assert_eq!(query::<Vec<String>>(&client, "a", "seen").await, whole);
    let turns = client.turns(&target("a")).await.unwrap();
    replay(&code(), &turns).unwrap_or_else(|why| panic!("{why}"));

    let signals = ResetRequest { reapply: ResetReapply::Signal, ..ResetRequest::new(of_first, ResetTo::FirstTurn) };
    let reset = client.reset(signals).await.unwrap();
    assert_eq!(reset.plan.updates_dropped.len(), 4, "{:?}", reset.plan);
    settled(&environment).await;
    assert_eq!(query::<Vec<String>>(&client, "a", "seen").await, ["3"]);
}
