//! Continue-as-new: what goes along, what may change, and when it is time.

use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

fn keyword(text: &str) -> SearchValue {
    SearchValue::Keyword(text.into())
}

/// Three runs: the second keeps everything, the third changes what can be changed.
async fn relay(ctx: WfContext, round: u32) -> Result<(u32, Vec<String>), Failure> {
    match round {
        0 => {
            ctx.upsert_search_attributes([("Stage".into(), keyword("first"))].into());
            ctx.upsert_memo([("note".into(), payload("from the first"))].into());
            ctx.signal_channel::<()>("go").recv().await?;
            ctx.continue_as_new(&1, ContinueAsNewOptions::default())
        }
        1 => {
            let options = ContinueAsNewOptions {
                memo: Some([("note".into(), payload("from the second"))].into()),
                search_attributes: Some([("Stage".into(), keyword("last"))].into()),
                run_timeout: Some(HOUR),
                ..ContinueAsNewOptions::default()
            };
            ctx.continue_as_new_type("relay-end", &2, options)
        }
        _ => Err(Failure::application("Lost", "no such round")),
    }
}

async fn relay_end(ctx: WfContext, round: u32) -> Result<(u32, Vec<String>), Failure> {
    let words = ctx.signal_channel::<String>("word").drain().into_iter().collect::<Result<_, _>>()?;
    Ok((round, words))
}

/// Completes when it is told to go on in a new run, with the size at which it was told.
#[derive(Serialize, Deserialize)]
struct Growing;

impl StateMachine for Growing {
    const TYPE: &'static str = "growing";
    type Input = ();
    type Output = HistorySize;

    fn start((): (), _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Growing)
    }
    fn on_event(&mut self, _: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        if cx.continue_as_new_suggested() {
            cx.complete(&cx.history());
        }
        Ok(())
    }
}

fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new()
        .state_machine::<Growing>()
        .workflow("relay", relay)
        .workflow("relay-end", relay_end)
        .workflow("growing-async", |ctx: WfContext, (): ()| async move {
            let words = ctx.signal_channel::<String>("word");
            while !ctx.continue_as_new_suggested() {
                words.recv().await?;
            }
            Ok(ctx.history())
        })
}

/// E19: memo, search attributes and signals nobody took go along unless the code says otherwise; the id stays, and the
/// old run names the new one. A crash at each step changes nothing.
#[tokio::test]
async fn the_next_run_has_what_the_one_before_had() {
    let environment = environment(workflows());
    let client = environment.client();
    let first = client.start(start("relay", "r", &0)).await.unwrap().run_id;
    for word in ["one", "two"] {
        client.signal(&target("r"), signal("word", word)).await.unwrap();
    }
    let environment = environment.crash(21, |_| {}).unwrap();
    environment.client().signal(&target("r"), signal("go", &())).await.unwrap();
    let environment = environment.crash(22, |_| {}).unwrap();
    let client = environment.client();
    assert_eq!(output::<(u32, Vec<String>)>(&client, "r").await, (2, vec!["one".into(), "two".into()]));

    let mut run = client.describe(&Target::run("r".into(), first)).await.unwrap().info;
    let mut chain = vec![run.clone()];
    while let Some(next) = run.next_run {
        run = client.describe(&Target::run("r".into(), next)).await.unwrap().info;
        assert_eq!((run.first_run, run.continued_from), (first, Some(chain.last().unwrap().run_id)));
        chain.push(run.clone());
    }
    let stage = |info: &RunInfo| info.search_attributes[&"Stage".into()].clone();
    let note = |info: &RunInfo| info.memo[&"note".into()].decode::<String>().unwrap();
    let told: Vec<_> = chain.iter().map(|info| (stage(info), note(info), info.workflow_type.to_string())).collect();
    assert_eq!(
        told,
        [
            (keyword("first"), "from the first".into(), "relay".into()),
            (keyword("first"), "from the first".into(), "relay".into()),
            (keyword("last"), "from the second".into(), "relay-end".into()),
        ]
    );
    let one_run = client.result(&Target::run("r".into(), first), THIS_RUN).await.unwrap().unwrap();
    assert_eq!(one_run.outcome, CloseOutcome::ContinuedAsNew { new_run: chain[1].run_id });
}

/// E19: continue-as-new is suggested at exactly 4 096 events, in both forms.
#[tokio::test]
async fn a_new_run_is_suggested_at_4096_events() {
    let environment = environment(workflows());
    let client = environment.client();
    for form in ["growing", "growing-async"] {
        client.start(start(form, form, &())).await.unwrap();
        for _ in 1..4_096 {
            client.signal(&target(form), signal("word", "")).await.unwrap();
        }
        let size: HistorySize = output(&client, form).await;
        assert_eq!(size.events, 4_096, "{form}");
    }
}

/// E19: continue-as-new is suggested at 4 MiB, however few the events are.
#[tokio::test]
async fn a_new_run_is_suggested_at_4_mib() {
    let environment = environment(workflows());
    let client = environment.client();
    client.start(start("growing", "g", &())).await.unwrap();
    let word = "x".repeat(256 * 1024);
    for sent in 1..=16 {
        client.signal(&target("g"), signal("word", &word)).await.unwrap();
        let open = client.describe(&target("g")).await.unwrap().info.status.is_open();
        assert_eq!(open, sent < 16, "after {sent} signals of 256 KiB");
    }
    let size: HistorySize = output(&client, "g").await;
    assert!(size.bytes >= HistorySize::SUGGESTED_BYTES && size.events < 20, "{size:?}");
}
