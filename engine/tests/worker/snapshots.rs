//! Shadow replay: what a snapshot loses is found, told, and harms no run that is compared (E37).

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

/// Counts signals; the sum is what serde skips.
#[derive(Serialize, Deserialize)]
struct Skips {
    signals: u64,
    #[serde(skip)]
    sum: u64,
}

impl StateMachine for Skips {
    const TYPE: &'static str = "skips";
    type Input = ();
    type Output = u64;

    fn start((): (), _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Skips { signals: 0, sum: 0 })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let WorkflowEvent::Signal(signal) = event else { return Ok(()) };
        if signal.name.as_str() == "end" {
            cx.complete(&self.sum);
            return Ok(());
        }
        self.signals += 1;
        self.sum += cx.side_effect(|| 4_u64);
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["sum"]
    }
    fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        Ok(Payload::encode(&self.sum)?)
    }
}

/// The same without a query: only what it does in the end tells.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Silent(Skips);

impl StateMachine for Silent {
    const TYPE: &'static str = "silent";
    type Input = ();
    type Output = u64;

    fn start((): (), cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Skips::start((), cx).map(Silent)
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        self.0.on_event(event, cx)
    }
}

fn half<S: serde::Serializer>(sum: &u64, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u64(sum / 2)
}

/// Writes another number than it has; what is written of what was read differs.
#[derive(Serialize, Deserialize)]
struct Halves {
    of: Sums,
}

#[derive(Serialize, Deserialize)]
struct Sums {
    kept: u64,
    #[serde(serialize_with = "half")]
    halved: u64,
}

impl StateMachine for Halves {
    const TYPE: &'static str = "halves";
    type Input = ();
    type Output = u64;

    fn start((): (), _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Halves { of: Sums { kept: 0, halved: 0 } })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let WorkflowEvent::Signal(signal) = event else { return Ok(()) };
        if signal.name.as_str() == "end" {
            cx.complete(&self.of.halved);
            return Ok(());
        }
        self.of.kept += 4;
        self.of.halved += 4;
        Ok(())
    }
}

fn flows() -> WorkflowRegistry {
    WorkflowRegistry::new().state_machine::<Skips>().state_machine::<Silent>().state_machine::<Halves>()
}

/// So many runs of a type with ten signals each, put away and brought back from their snapshots.
async fn brought_back(workflow_type: &str, runs: usize, every: u32) -> TestEnvironment {
    let environment = TestEnvironment::start_with(flows(), ActivityRegistry::new(), |options| {
        (options.housekeeping_every, options.shadow_replay_every) = (HOUR, every);
    })
    .unwrap();
    for run in 0..runs {
        let id = format!("{workflow_type}-{run}");
        environment.client().start(start(workflow_type, &id, &())).await.unwrap();
        for _ in 0..10 {
            environment.client().signal(&target(&id), signal("add", &())).await.unwrap();
        }
    }
    environment.restart(|_| {}).unwrap()
}

async fn end(client: &Client, id: &str) -> u64 {
    client.signal(&target(id), signal("end", &())).await.unwrap();
    output(client, id).await
}

async fn warnings(client: &Client, id: &str) -> String {
    client.describe(&target(id)).await.unwrap().warnings.join("\n")
}

/// A field that serde skips is found at the first run of its type that comes back, before anybody asks for it; that run and
/// all after it are right, and the card names the run, what differs, and what is written.
#[tokio::test]
async fn a_field_that_serde_skips_is_found() {
    let without = brought_back("skips", 1, 0).await;
    let wrong: u64 = query(&without.client(), "skips-0", "sum").await;
    assert_eq!(wrong, 0, "this is what there is to find");
    assert_eq!(warnings(&without.client(), "skips-0").await, "");
    assert_eq!(without.worker().untrusted_snapshots(), 0, "nobody compares");

    let environment = brought_back("skips", 20, 64).await;
    let client = environment.client();
    let card = warnings(&client, "skips-0").await;
    for part in
        ["error[BOSUN0103]", "skips-0 (", "type skips", "the query sum gets another answer", "written are: signals."]
    {
        assert!(card.contains(part), "{part} is not in:\n{card}");
    }
    assert_eq!(environment.worker().untrusted_snapshots(), 1, "what a metric and an alert show");
    for run in 0..20 {
        let id = format!("skips-{run}");
        assert_eq!(query::<u64>(&client, &id, "sum").await, 40, "{id}");
        assert_eq!(end(&client, &id).await, 40, "{id}");
    }
}

/// Without a query the difference shows in what the code asks for; the turn in which it shows is right already.
#[tokio::test]
async fn a_difference_that_only_shows_in_commands_is_found_in_time() {
    assert_eq!(end(&brought_back("silent", 1, 0).await.client(), "silent-0").await, 0, "this is what there is to find");
    let environment = brought_back("silent", 2, 64).await;
    let client = environment.client();
    assert_eq!(warnings(&client, "silent-0").await, "");
    assert_eq!(end(&client, "silent-0").await, 40);
    let card = warnings(&client, "silent-0").await;
    assert!(card.contains("in answer to the signal end, code from the history asks for"), "{card}");
    assert_eq!(end(&client, "silent-1").await, 40);
}

/// A field that is written wrongly is named by its path.
#[tokio::test]
async fn a_field_that_is_written_wrongly_is_named() {
    let environment = brought_back("halves", 1, 64).await;
    let card = warnings(&environment.client(), "halves-0").await;
    assert!(card.contains("field .of.halved differs between the snapshot and the history"), "{card}");
    assert_eq!(end(&environment.client(), "halves-0").await, 40);
}

/// Waits before it answers; how long is what the code has changed.
#[derive(Serialize, Deserialize)]
struct Waits<const HOURS: u32>;

impl<const HOURS: u32> StateMachine for Waits<HOURS> {
    const TYPE: &'static str = "waits";
    type Input = ();
    type Output = u32;

    fn start((): (), _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Waits)
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::Signal(signal) if signal.name.as_str() == "end" => cx.complete(&HOURS),
            WorkflowEvent::Signal(_) => drop(cx.start_timer(HOUR * HOURS)),
            _ => {}
        }
        Ok(())
    }
}

/// E22, E40: a restart of the test environment with other code under the same version, which a snapshot would hide, is
/// compared with what the runs have done; one that the code does not fit is held, and goes on with the code that does.
#[tokio::test]
async fn other_code_under_the_same_version_is_compared_with_history() {
    let one = || WorkflowRegistry::new().state_machine::<Waits<1>>();
    let environment = environment(one());
    environment.client().start(start("waits", "w", &())).await.unwrap();
    environment.client().signal(&target("w"), signal("wait", &())).await.unwrap();
    let two = WorkflowRegistry::new().state_machine::<Waits<2>>();
    assert_eq!(one().build_id(), two.build_id());
    let environment = environment.restart(|options| options.workflows = two).unwrap();
    let held = environment.client().describe(&target("w")).await.unwrap().held;
    assert!(held.as_ref().is_some_and(|card| card.contains("error[BOSUN0101]")), "{held:?}");
    let environment = environment.restart(|options| options.workflows = one()).unwrap();
    environment.client().signal(&target("w"), signal("end", &())).await.unwrap();
    assert_eq!(output::<u32>(&environment.client(), "w").await, 1);
}
