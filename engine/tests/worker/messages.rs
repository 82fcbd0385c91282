//! Queries and updates.

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

/// A counter: `add` is an update that takes an activity to answer, `bump` answers at once, `close` ends the run.
#[derive(Serialize, Deserialize)]
struct Counter {
    total: i64,
    adding: Vec<(Seq, UpdateId, i64)>,
    /// Changed by a query that must not.
    peeked: std::cell::Cell<u32>,
}

impl StateMachine for Counter {
    const TYPE: &'static str = "counter";
    type Input = i64;
    type Output = i64;

    fn start(total: i64, _cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Counter { total, adding: Vec::new(), peeked: 0.into() })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::Update { update_id, name, input } if name.as_str() == "bump" => {
                self.total += input.decode::<i64>()?;
                cx.complete_update(update_id, Ok(&self.total));
            }
            WorkflowEvent::Update { update_id, input, .. } => {
                let amount: i64 = input.decode()?;
                self.adding.push((cx.schedule_activity("weigh", &amount, quick()), update_id, amount));
            }
            WorkflowEvent::ActivityResolved { seq, result } => {
                result?;
                if let Some(at) = self.adding.iter().position(|(known, ..)| *known == seq) {
                    let (_, update_id, amount) = self.adding.remove(at);
                    self.total += amount;
                    cx.complete_update(update_id, Ok(&self.total));
                }
            }
            WorkflowEvent::Signal(_) => cx.complete(&self.total),
            _ => {}
        }
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["total", "peek", "broken"]
    }
    fn query(&self, name: &QueryName, _input: &Payload) -> Result<Payload, Failure> {
        match name.as_str() {
            "total" => Ok(Payload::encode(&self.total)?),
            "peek" => {
                self.peeked.set(self.peeked.get() + 1);
                Ok(Payload::encode(&self.peeked.get())?)
            }
            _ => Err(Failure::application("Broken", "this query never works")),
        }
    }
    fn validate_update(&self, _name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        match input.decode::<i64>()? {
            amount if amount >= 0 => Ok(()),
            _ => Err(Failure::application("Negative", "only upwards")),
        }
    }
}

/// The same as an async function.
async fn counter(ctx: WfContext, first: i64) -> Result<i64, Failure> {
    let total = ctx.state("total", first);
    let (shown, peeked) = (total.clone(), ctx.state("peeked", 0));
    ctx.on_query("total", move |()| Ok(shown.get()));
    ctx.on_query("peek", move |()| {
        peeked.write(|count| *count += 1);
        Ok(peeked.get())
    });
    ctx.on_query("broken", |()| Err::<(), _>(Failure::application("Broken", "this query never works")));
    let upwards = |amount: &i64| match *amount {
        0.. => Ok(()),
        _ => Err(Failure::application("Negative", "only upwards")),
    };
    let (bump, add) = (total.clone(), total.clone());
    ctx.on_update("bump", upwards, move |_, amount: i64| {
        bump.write(|total| *total += amount);
        let now = bump.get();
        async move { Ok(now) }
    });
    ctx.on_update("add", upwards, move |ctx, amount: i64| {
        let total = add.clone();
        async move {
            ctx.activity::<()>("weigh", &amount, quick()).await?;
            total.write(|total| *total += amount);
            Ok(total.get())
        }
    });
    ctx.signal_channel::<()>("close").recv().await?;
    Ok(total.get())
}

fn environment() -> TestEnvironment {
    let workflows = WorkflowRegistry::new().state_machine::<Counter>().workflow("counter-async", counter);
    let mut activities = ActivityRegistry::new();
    activities.register("weigh", |_, _amount: i64| async move { Ok(()) });
    environment_with(workflows, activities)
}

const FORMS: [&str; 2] = ["counter", "counter-async"];

/// E13, G19: queries answer from the current state of open and closed runs, after a restart too, and add nothing to the
/// log, whether they succeed, fail, are unknown, or try to change something.
#[tokio::test]
async fn queries_only_read() {
    for form in FORMS {
        let environment = environment();
        let client = environment.client();
        client.start(start(form, "c", &1)).await.unwrap();
        client.update(&target("c"), update("u", "bump", &2, UpdateWait::Completed)).await.unwrap();
        let environment = environment.restart(|_| {}).unwrap();
        let client = environment.client();
        for closed in [false, true] {
            if closed {
                client.signal(&target("c"), signal("close", &())).await.unwrap();
                outcome(&client, "c").await;
            }
            let before = (client.store_info().await.unwrap().last_group, environment.log().write_calls());
            for _ in 0..100 {
                assert_eq!(query::<i64>(&client, "c", "total").await, 3, "{form}");
            }
            let ask = |name: &str| {
                let (client, name) = (client.clone(), QueryName::of(name));
                async move { client.query(&target("c"), &name, Payload::null()).await }
            };
            let Err(Rejection::Query(QueryError::Mutated { what, .. })) = ask("peek").await else {
                panic!("{form}: a query that changes the workflow must be named");
            };
            assert!(what.contains("state"), "{what}");
            assert!(matches!(ask("broken").await, Err(Rejection::Query(QueryError::Failed { .. }))));
            let Err(Rejection::Query(QueryError::Unknown { known, .. })) = ask("nonsense").await else {
                panic!("{form}: an unknown query must be named");
            };
            assert!(known.contains(&"total".to_owned()), "{known:?}");
            assert_eq!((client.store_info().await.unwrap().last_group, environment.log().write_calls()), before);
        }
    }
}

/// E14: what the validator refuses is no event; accepted updates are events in order, each with its answer.
#[tokio::test]
async fn a_refused_update_is_no_event_and_accepted_ones_are_ordered() {
    for form in FORMS {
        let environment = environment();
        let client = environment.client();
        client.start(start(form, "c", &0)).await.unwrap();
        let before = client.store_info().await.unwrap().last_group;
        for (name, input) in [("bump", -1), ("add", -5)] {
            let refused = client.update(&target("c"), update("no", name, &input, UpdateWait::Completed)).await;
            let Err(Rejection::UpdateRefused { failure, .. }) = refused else { panic!("{form}: {refused:?}") };
            assert_eq!(failure.type_name(), "Negative");
        }
        assert_eq!(client.store_info().await.unwrap().last_group, before);
        for n in 1..=5_i64 {
            let request = update(&format!("u{n}"), "bump", &n, UpdateWait::Completed);
            let total: i64 = (1..=n).sum();
            let answer = client.update(&target("c"), request).await.unwrap();
            assert_eq!(answer, UpdateOutcome::Completed(Ok(payload(&total))));
        }
        let accepted: Vec<String> = history(&client, "c")
            .await
            .into_iter()
            .filter_map(|event| match event.kind {
                EventKind::WorkflowExecutionUpdateAccepted { update_id, .. } => Some(update_id.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(accepted, ["u1", "u2", "u3", "u4", "u5"], "{form}");
    }
}

/// E14: an update id counts once, over a crash between acceptance and answer; waiting may end at acceptance.
#[tokio::test]
async fn an_update_is_accepted_once_and_its_answer_survives_a_crash() {
    for form in FORMS {
        let environment = environment();
        let client = environment.client();
        client.start(start(form, "c", &0)).await.unwrap();
        let accepted = client.update(&target("c"), update("u", "add", &7, UpdateWait::Accepted)).await.unwrap();
        assert_eq!(accepted, UpdateOutcome::Accepted);
        let environment = environment.crash(13, |_| {}).unwrap();
        let client = environment.client();
        let done = UpdateOutcome::Completed(Ok(payload(&7)));
        assert_eq!(client.update_result(&target("c"), &"u".into()).await.unwrap(), done, "{form}");
        for wait in [UpdateWait::Completed, UpdateWait::Accepted] {
            assert_eq!(client.update(&target("c"), update("u", "add", &7, wait)).await.unwrap(), done);
        }
        client.signal(&target("c"), signal("close", &())).await.unwrap();
        assert_eq!(output::<i64>(&client, "c").await, 7);
        let again = client.update(&target("c"), update("u", "add", &7, UpdateWait::Completed)).await.unwrap();
        assert_eq!(again, done, "known after the end too");
        let late = client.update(&target("c"), update("late", "add", &7, UpdateWait::Completed)).await;
        assert!(matches!(late, Err(Rejection::Closed { .. })), "{late:?}");
        assert!(matches!(client.update_result(&target("c"), &"late".into()).await, Err(Rejection::Invalid { .. })));
    }
}

/// E14: an update that is open when its run ends is answered with a failure that says so.
#[tokio::test]
async fn an_open_update_hears_of_the_end_of_its_run() {
    for form in FORMS {
        let environment = environment();
        let client = environment.client();
        // Nobody serves this queue, so that the update stays open.
        let environment = environment.restart(|options| options.task_queues = Some(["other".into()].into())).unwrap();
        drop(client);
        let client = environment.client();
        client.start(start(form, "c", &0)).await.unwrap();
        client.update(&target("c"), update("u", "add", &1, UpdateWait::Accepted)).await.unwrap();
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.update_result(&target("c"), &"u".into()).await }
        });
        client.signal(&target("c"), signal("close", &())).await.unwrap();
        let Ok(UpdateOutcome::Completed(Err(failure))) = waiting.await.unwrap() else {
            panic!("{form}: the update must be answered with a failure");
        };
        assert_eq!(failure.type_name(), "WorkflowClosed");
    }
}
