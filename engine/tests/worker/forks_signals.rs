//! Signals that reached the source after the fork reach the fork again, each once and in order, unless that is declined.

use bosun_engine::workflow::{WfContext, WorkflowRegistry, replay};
use bosun_engine::*;

use crate::kit::*;

/// Collects words until `end`. A word `again` continues as new with what was heard.
fn code() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("listen", |ctx: WfContext, mut heard: Vec<String>| async move {
        let words = ctx.signal_channel::<String>("word");
        loop {
            let word = words.recv().await?;
            match word.as_str() {
                "end" => return Ok(heard),
                "again" => {
                    heard.push(word);
                    return ctx.continue_as_new(&heard, ContinueAsNewOptions::default());
                }
                _ => heard.push(word),
            }
        }
    })
}

/// A run that was told these words, one request each.
async fn source(client: &Client, words: &[&str]) {
    client.start(start("listen", "source", &Vec::<String>::new())).await.unwrap();
    for (number, word) in words.iter().enumerate() {
        client.signal(&target("source"), signal_once("word", word, &format!("r{number}"))).await.unwrap();
    }
}

fn of_source(id: &str) -> ForkRequest {
    ForkRequest::new(ForkSource::Run(target("source")), id.into())
}

fn said(nth: usize, word: &str) -> ForkChange {
    ForkChange::Signal { name: "word".into(), nth: Some(nth), input: payload(word) }
}

fn told(forked: &Forked) -> Vec<(&str, ForkTelling)> {
    forked.plan.told.iter().map(|line| (line.what.as_str(), line.why)).collect()
}

/// Every run of a chain replays.
async fn replays(client: &Client, id: &str) {
    let query = format!("WorkflowId = '{id}'");
    for run in client.list(ListRequest { query, limit: 10 }).await.unwrap() {
        let turns = client.turns(&Target::run(run.workflow_id, run.run_id)).await.unwrap();
        replay(&code(), &turns).unwrap_or_else(|why| panic!("{id}: {why}"));
    }
}

/// E26, G13: the dry run lists what is sent again, and the fork hears it, in the order of the source, around the signal
/// that is replaced; with `none` it is named as dropped.
#[tokio::test]
async fn signals_after_the_fork_are_sent_again_once_and_in_order() {
    let environment = environment(code());
    let client = environment.client();
    source(&client, &["a", "b", "c", "end"]).await;
    assert_eq!(output::<Vec<String>>(&client, "source").await, ["a", "b", "c"]);

    let request = of_source("fork").change(said(2, "B"));
    let dry = client.fork(ForkRequest { dry_run: true, ..request.clone() }).await.unwrap();
    let forked = client.fork(request).await.unwrap();
    assert_eq!(dry.plan, forked.plan);
    let again = ForkTelling::Reapplied;
    assert_eq!(
        told(&forked),
        [
            ("signal word = \"B\"", ForkTelling::Changed),
            ("signal word = \"c\"", again),
            ("signal word = \"end\"", again)
        ]
    );
    assert_eq!(output::<Vec<String>>(&client, "fork").await, ["a", "B", "c"]);
    replays(&client, "fork").await;

    // Cut before the replaced signal: the one between keeps its place.
    client.fork(of_source("earlier").at(EventId(1)).change(said(2, "B"))).await.unwrap();
    assert_eq!(output::<Vec<String>>(&client, "earlier").await, ["a", "B", "c"]);
    // From the beginning, with another input too.
    let anew = of_source("anew").change(ForkChange::Input(payload(&["x"]))).change(said(1, "A"));
    client.fork(anew).await.unwrap();
    assert_eq!(output::<Vec<String>>(&client, "anew").await, ["x", "A", "b", "c"]);
    replays(&client, "anew").await;

    let none = client.fork(of_source("none").change(said(2, "B")).reapply(ForkReapply::None)).await.unwrap();
    assert_eq!(told(&none), [("signal word = \"B\"", ForkTelling::Changed)]);
    assert_eq!(none.plan.signals_dropped, ["word".into(), "word".into()]);
    client.signal(&target("none"), signal("word", "end")).await.unwrap();
    assert_eq!(output::<Vec<String>>(&client, "none").await, ["a", "B"]);
}

/// E19, E26, G13: a fork that continues as new, or ends, before it has heard all of it leaves the rest to the next run or
/// reports it, as any run does.
#[tokio::test]
async fn a_fork_that_ends_before_it_has_heard_all_loses_nothing_silently() {
    let environment = environment(code());
    let client = environment.client();
    source(&client, &["a", "b", "c", "end"]).await;
    output::<Vec<String>>(&client, "source").await;

    client.fork(of_source("chain").change(said(2, "again"))).await.unwrap();
    assert_eq!(output::<Vec<String>>(&client, "chain").await, ["a", "again", "c"]);
    replays(&client, "chain").await;

    client.fork(of_source("early").change(said(1, "end"))).await.unwrap();
    assert_eq!(output::<Vec<String>>(&client, "early").await, Vec::<String>::new());
    let events = history(&client, "early").await;
    let Some(EventKind::WorkflowExecutionCompleted { unhandled_signals, .. }) = events.last().map(|last| &last.kind)
    else {
        panic!("{events:?}")
    };
    assert_eq!(unhandled_signals.len(), 3);
    replays(&client, "early").await;
    // A request that was sent again is known to the fork: its retry is answered and changes nothing.
    client.signal(&target("early"), signal_once("word", "b", "r1")).await.unwrap();
    assert_eq!(history(&client, "early").await, events);
}

/// What is different was said by whoever asks for the fork; what is told again, by whoever said it.
#[tokio::test]
async fn a_changed_signal_is_of_who_changed_it() {
    let environment = environment(code());
    let client = environment.client();
    client.start(start("listen", "source", &Vec::<String>::new())).await.unwrap();
    for word in ["a", "b"] {
        let signal = SignalRequest { identity: Some("cfo".into()), ..signal("word", word) };
        client.signal(&target("source"), signal).await.unwrap();
    }
    let request = ForkRequest { identity: Some("ann".into()), ..of_source("fork").change(said(1, "A")) };
    client.fork(request).await.unwrap();
    settled(&environment).await;
    let events = client.history(&target("fork"), EventId(1), 100).await.unwrap();
    let signaled: Vec<(serde_json::Value, Option<Identity>)> = events
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::WorkflowExecutionSignaled(signal) => Some((signal.input.to_json(), signal.identity)),
            _ => None,
        })
        .collect();
    assert_eq!(signaled, [("A".into(), Some("ann".into())), ("b".into(), Some("cfo".into()))]);
}
