//! Code and history: what is recorded, what replays, what new code may change, and what holds a run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bosun_engine::log::{FindingClass, Shelf};
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

fn echo() -> ActivityRegistry {
    let mut activities = ActivityRegistry::new();
    for name in ["old", "new", "last"] {
        activities.register(name, move |_, input: String| async move { Ok(format!("{name} {input}")) });
    }
    activities
}

/// E20: a side effect runs once, and it, time, random numbers and uuids are the same after every restart.
#[tokio::test]
async fn what_is_not_computed_is_recorded_or_derived() {
    type Drawn = (u32, u64, String, i64);
    #[derive(Serialize, Deserialize)]
    struct Draw(Drawn);
    static MACHINE_EFFECTS: AtomicU32 = AtomicU32::new(0);
    impl StateMachine for Draw {
        const TYPE: &'static str = "machine";
        type Input = ();
        type Output = ();
        fn start((): (), cx: &mut Cx<'_>) -> Result<Self, Failure> {
            let effect = cx.side_effect(|| MACHINE_EFFECTS.fetch_add(1, Ordering::SeqCst) + 100);
            Ok(Draw((effect, cx.random_u64(), cx.uuid().to_string(), cx.now().as_micros())))
        }
        fn on_event(&mut self, _: WorkflowEvent, _: &mut Cx<'_>) -> Result<(), Failure> {
            Ok(())
        }
        fn queries() -> &'static [&'static str] {
            &["drawn"]
        }
        fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
            Ok(Payload::encode(&self.0)?)
        }
    }
    let effects = Arc::new(AtomicU32::new(0));
    let counted = effects.clone();
    let workflows = WorkflowRegistry::new().state_machine::<Draw>().workflow("async", move |ctx: WfContext, (): ()| {
        let counted = counted.clone();
        async move {
            let effect = ctx.side_effect(|| counted.fetch_add(1, Ordering::SeqCst) + 100);
            let drawn = (effect, ctx.random_u64(), ctx.uuid().to_string(), ctx.now().as_micros());
            ctx.on_query("drawn", move |()| Ok(drawn.clone()));
            ctx.signal_channel::<()>("end").recv().await
        }
    });
    let mut environment = environment(workflows);
    for form in ["machine", "async"] {
        environment.client().start(start(form, form, &())).await.unwrap();
    }
    let mut first: Option<[Drawn; 2]> = None;
    for seed in 0..4 {
        let client = environment.client();
        let drawn = [query(&client, "machine", "drawn").await, query(&client, "async", "drawn").await];
        assert_eq!(first.get_or_insert_with(|| drawn.clone()), &drawn);
        environment = environment.crash(seed, |_| {}).unwrap();
        environment.sleep(HOUR).await;
    }
    assert_eq!((effects.load(Ordering::SeqCst), MACHINE_EFFECTS.load(Ordering::SeqCst)), (1, 1));
    let [machine, asynchronous] = first.unwrap();
    assert_ne!(machine.1, asynchronous.1, "each run has its own numbers");
}

/// The four lives of a change: before it, patched, deprecated, forgotten.
fn life(version: &'static str) -> WorkflowRegistry {
    WorkflowRegistry::new().version(version).workflow("change", move |ctx: WfContext, (): ()| async move {
        let go = ctx.signal_channel::<()>("go");
        let new = match version {
            "v1" => false,
            "v2" => ctx.patched("use-new"),
            "v3" => {
                ctx.deprecate_patch("use-new");
                true
            }
            _ => true,
        };
        go.recv().await?;
        ctx.activity::<String>(if new { "new" } else { "old" }, version, quick()).await
    })
}

/// E21: an old run takes the old branch after the deploy and a new run the new one; deprecated and forgotten patches
/// still fit the runs that have the marker.
#[tokio::test]
async fn patched_code_fits_old_and_new_runs_over_deploys() {
    let environment = environment_with(life("v1"), echo());
    for id in ["old-1", "old-2"] {
        environment.client().start(start("change", id, &())).await.unwrap();
    }
    let environment = environment.restart(|options| options.workflows = life("v2")).unwrap();
    let client = environment.client();
    for id in ["new-1", "new-2", "new-3"] {
        client.start(start("change", id, &())).await.unwrap();
    }
    for id in ["old-1", "new-1"] {
        client.signal(&target(id), signal("go", &())).await.unwrap();
    }
    assert_eq!(output::<String>(&client, "old-1").await, "old v2");
    assert_eq!(output::<String>(&client, "new-1").await, "new v2");
    assert_eq!(count(&history(&client, "new-1").await, "MarkerRecorded"), 1);
    assert_eq!(count(&history(&client, "old-1").await, "MarkerRecorded"), 0);

    let environment = environment.crash(1, |options| options.workflows = life("v3")).unwrap();
    let client = environment.client();
    client.start(start("change", "late", &())).await.unwrap();
    client.signal(&target("new-2"), signal("go", &())).await.unwrap();
    assert_eq!(output::<String>(&client, "new-2").await, "new v3");

    // `late` has a deprecated marker and fits code that says nothing of the patch; `new-3` has a real one.
    let environment = environment.restart(|options| options.workflows = life("v4")).unwrap();
    let client = environment.client();
    for id in ["late", "new-3", "old-2"] {
        client.signal(&target(id), signal("go", &())).await.unwrap();
    }
    assert_eq!(output::<String>(&client, "late").await, "new v4");
    assert!(client.describe(&target("new-3")).await.unwrap().held.is_some(), "its marker is not deprecated");
}

/// Three activities; `first` is the one that other builds change.
fn steps(version: &'static str, first: &'static str) -> WorkflowRegistry {
    let untouched = |ctx: WfContext, (): ()| async move {
        let words = ctx.signal_channel::<String>("word");
        Ok(format!("{} {}", words.recv().await?, words.recv().await?))
    };
    let registry = WorkflowRegistry::new().version(version).workflow("untouched", untouched);
    registry.workflow("steps", move |ctx: WfContext, (): ()| async move {
        let said = ctx.state("said", Vec::<String>::new());
        let shown = said.clone();
        ctx.on_query("said", move |()| Ok(shown.get()));
        let begun: String = ctx.activity(first, "a", quick()).await?;
        said.write(|said| said.push(begun));
        let words = ctx.signal_channel::<String>("word");
        for _ in 0..3 {
            let word = words.recv().await?;
            said.write(|said| said.push(word));
        }
        let last: String = ctx.activity("last", "b", quick()).await?;
        said.write(|said| said.push(last));
        Ok(said.get())
    })
}

/// E22, G22: after a deploy of changed code the runs that fit go on and the other is held, with a card that says what
/// differs; its inputs are accepted durably, its history does not grow, and the code that fits takes them in order.
#[tokio::test]
async fn a_run_whose_code_changed_is_held_until_code_that_fits_returns() {
    let environment = environment_with(steps("v1", "old"), echo());
    let client = environment.client();
    client.start(start("steps", "s", &())).await.unwrap();
    client.start(start("untouched", "u", &())).await.unwrap();
    settled(&environment).await;
    let word = |word: &str| signal_once("word", word, word);
    client.signal(&target("s"), word("one")).await.unwrap();
    client.signal(&target("u"), word("x")).await.unwrap();
    let before = history(&client, "s").await;

    let environment = environment.restart(|options| options.workflows = steps("v2", "new")).unwrap();
    let client = environment.client();
    client.signal(&target("u"), word("y")).await.unwrap();
    assert_eq!(output::<String>(&client, "u").await, "x y");
    let description = client.describe(&target("s")).await.unwrap();
    let card = description.held.expect("the run must be held");
    for part in ["error[BOSUN0101]", "history expects", "ScheduleActivity old", "ScheduleActivity new", "at event 2"] {
        assert!(card.contains(part), "{part:?} is missing in:\n{card}");
    }
    assert_eq!(description.info.status, WorkflowStatus::Running, "a mismatch is no failure of the run");
    for again in ["two", "two", "one", "three"] {
        client.signal(&target("s"), word(again)).await.unwrap();
    }
    let asked = client.query(&target("s"), &"said".into(), Payload::null()).await;
    assert!(matches!(asked, Err(Rejection::Held { .. })), "{asked:?}");
    let updated = client.update(&target("s"), update("u", "set", &1, UpdateWait::Accepted)).await;
    assert!(matches!(updated, Err(Rejection::Held { .. })), "{updated:?}");
    environment.sleep(HOUR).await;

    // Still held after a crash: nothing was appended to the history, and what was accepted is there.
    let environment = environment.crash(9, |_| {}).unwrap();
    let client = environment.client();
    settled(&environment).await;
    assert_eq!(history(&client, "s").await, before);
    let description = client.describe(&target("s")).await.unwrap();
    assert!(description.held.is_some());
    let kept = description.inbox;
    assert!(kept >= 2, "two signals wait, found {kept}");

    let environment = environment.restart(|options| options.workflows = steps("v3", "old")).unwrap();
    let client = environment.client();
    let said: Vec<String> = output(&client, "s").await;
    assert_eq!(said, ["old a", "one", "two", "three", "last b"]);
    assert_eq!(client.describe(&target("s")).await.unwrap().held, None);
    let mut builds: Vec<BuildId> = client.turns(&target("s")).await.unwrap().iter().map(|turn| turn.build).collect();
    builds.dedup();
    assert!(builds.len() >= 2 && builds[0] == steps("v1", "old").build_id(), "each turn names its build: {builds:?}");
    assert_eq!(builds.last(), Some(&steps("v3", "old").build_id()));
}

/// G22: the result of an attempt that came while the run was held is the result, also when a restart follows.
#[tokio::test]
async fn an_outcome_that_was_accepted_while_held_is_not_given_up_by_the_restart() {
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    let mut activities = echo();
    activities.register("outside", move |_, (): ()| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Err::<String, _>(ActivityError::WillCompleteLater) }
    });
    let code = |version: &'static str, name: &'static str| {
        WorkflowRegistry::new().version(version).workflow("w", move |ctx: WfContext, (): ()| async move {
            ctx.timer(Duration::from_millis(if version == "bad" { 2 } else { 1 })).await?;
            ctx.activity::<String>(name, &(), ActivityOptions::schedule_to_close(24 * HOUR)).await
        })
    };
    let environment = environment_with(code("good", "outside"), activities);
    environment.client().start(start("w", "w", &())).await.unwrap();
    environment.sleep(Duration::from_secs(1)).await;
    let pending = environment.client().describe(&target("w")).await.unwrap().pending_activities;
    let token: TaskToken = pending[0].task_token.as_ref().unwrap().parse().unwrap();
    let environment = environment.crash(1, |options| options.workflows = code("bad", "outside")).unwrap();
    settled(&environment).await;
    let done = ActivityCompletion::Complete(payload("from outside"));
    environment.client().complete_activity(token, done).await.unwrap();
    let environment = environment.crash(2, |options| options.workflows = code("good", "outside")).unwrap();
    let client = environment.client();
    assert_eq!(output::<String>(&client, "w").await, "from outside");
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

/// Counts what it is told. Every transition is counted outside too, to see how much is replayed.
#[derive(Serialize, Deserialize)]
struct Tally {
    sum: u64,
    seqs: Vec<Seq>,
}

static TRANSITIONS: AtomicU32 = AtomicU32::new(0);
static TALLIES: Mutex<()> = Mutex::new(());

impl StateMachine for Tally {
    const TYPE: &'static str = "tally";
    type Input = ();
    type Output = u64;

    fn start((): (), _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Tally { sum: 0, seqs: Vec::new() })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        TRANSITIONS.fetch_add(1, Ordering::SeqCst);
        let WorkflowEvent::Signal(signal) = event else { return Ok(()) };
        match signal.name.as_str() {
            "end" => cx.complete(&self.sum),
            "timer" => self.seqs.push(cx.start_timer(1_000 * HOUR)),
            _ => self.sum = self.sum * 31 % 1_000_003 + signal.input.decode::<u64>()? + cx.random_u64() % 7,
        }
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["state"]
    }
    fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        Ok(Payload::encode(self)?)
    }
}

/// The state the run shows, and how many transitions it took to load it.
async fn load(environment: &TestEnvironment) -> (serde_json::Value, u32) {
    settled(environment).await;
    TRANSITIONS.store(0, Ordering::SeqCst);
    let state = query(&environment.client(), "t", "state").await;
    (state, TRANSITIONS.load(Ordering::SeqCst))
}

/// E37: a state-machine run resumes from its snapshot, taken while it lived, with the state a full replay gives; a
/// snapshot that is damaged, of another run or of another build is not used.
#[tokio::test]
#[expect(clippy::await_holding_lock, reason = "the count of transitions is shared; no other task wants the lock")]
async fn a_long_run_resumes_from_its_snapshot_as_from_its_whole_history() {
    let _alone = TALLIES.lock().unwrap();
    let workflows = |version: &str| WorkflowRegistry::new().version(version).state_machine::<Tally>();
    // What is counted is how a run comes back, without the history beside it.
    let environment = TestEnvironment::start_with(workflows("v1"), ActivityRegistry::new(), |options| {
        (options.housekeeping_every, options.shadow_replay_every) = (HOUR, 0);
    })
    .unwrap();
    let client = environment.client();
    client.start(start("tally", "t", &())).await.unwrap();
    client.start(start("tally", "other", &())).await.unwrap();
    for n in 0..2_000_u64 {
        let name = if n % 50 == 7 { "timer" } else { "add" };
        client.signal(&target("t"), signal(name, &n)).await.unwrap();
    }
    for n in 0..600_u64 {
        client.signal(&target("other"), signal("add", &n)).await.unwrap();
    }
    let (expected, _) = load(&environment).await;
    client.housekeep().await.unwrap();

    let environment = environment.crash(4, |_| {}).unwrap();
    let (resumed, transitions) = load(&environment).await;
    assert_eq!(resumed, expected);
    assert!(transitions <= 600, "{transitions} transitions for a run of 2 000 signals");

    let environment = environment.restart(|options| options.workflows = workflows("v2")).unwrap();
    assert_eq!(load(&environment).await, (expected.clone(), 2_000), "a snapshot of another build is not used");

    let environment = environment.restart(|options| options.workflows = workflows("v2")).unwrap();
    assert_eq!(load(&environment).await, (expected.clone(), 0), "a stop in order leaves a snapshot of the last event");
    let environment = environment.restart(|_| {}).unwrap();
    let values = Mutex::new(Vec::new());
    environment.log().damage_shelf(Shelf::Snapshots, |_, value| {
        values.lock().unwrap().push(value.clone());
        true
    });
    let values = values.into_inner().unwrap();
    assert!(values.len() >= 2, "both runs have a snapshot");
    environment.log().damage_shelf(Shelf::Snapshots, |_, value| {
        // Each run gets the snapshot of the other one.
        let other = values.iter().find(|other| *other != value).cloned();
        *value = other.unwrap_or_default();
        true
    });
    let environment = environment.restart(|_| {}).unwrap();
    environment.log().damage_shelf(Shelf::Snapshots, |_, value| {
        value.iter_mut().skip(40).for_each(|byte| *byte ^= 0x55);
        true
    });
    let (replayed, transitions) = load(&environment).await;
    assert_eq!((replayed, transitions), (expected, 2_000), "damaged snapshots are not used");
    let client = environment.client();
    client.signal(&target("t"), signal("end", &())).await.unwrap();
    let _: u64 = output(&client, "t").await;
    // The snapshots are still damaged: they are told of, as what can be made again.
    let found: Vec<_> = client.verify().await.unwrap().findings.into_iter().map(|one| one.class).collect();
    assert_eq!(found, [FindingClass::Index; 2]);
}

/// G21: the same inputs give the same history, event for event, whether the run stays in memory, is put out of it after
/// every turn, or is rebuilt after a crash at every step.
#[tokio::test]
async fn the_same_history_whatever_is_cached() {
    let flow = |ctx: WfContext, (): ()| async move {
        let words = ctx.signal_channel::<u64>("word");
        let mut sum = 0;
        for _ in 0..6 {
            let word = words.recv().await?;
            let die = ctx.random_u64();
            let noted: u64 = ctx.side_effect(|| word * 3);
            let said: String = ctx.activity("new", &format!("{word} {die} {noted}"), quick()).await?;
            ctx.timer(Duration::from_millis(die % 50)).await?;
            sum += said.len();
        }
        Ok(sum)
    };
    let mut histories = Vec::new();
    for way in ["cached", "evicted", "crashed"] {
        let workflows = WorkflowRegistry::new()
            .workflow("flow", flow)
            .workflow("idle", |ctx: WfContext, (): ()| async move { ctx.signal_channel::<()>("never").recv().await });
        let mut environment = environment_with(workflows, echo());
        environment.client().start(start("flow", "f", &())).await.unwrap();
        environment.client().start(start("idle", "idle", &())).await.unwrap();
        let loaded_max = if way == "evicted" { 1 } else { 2_000 };
        let kept =
            |options: &mut WorkerOptions| (options.loaded_max, options.loaded_for) = (loaded_max, Duration::ZERO);
        environment = environment.restart(kept).unwrap();
        for word in 1..=6_u64 {
            environment.client().signal(&target("f"), signal("word", &word)).await.unwrap();
            environment.sleep(Duration::from_secs(1)).await;
            match way {
                "crashed" => environment = environment.crash(word, |_| {}).unwrap(),
                // Loads another run, which puts the first one out of memory.
                _ => drop(environment.client().describe(&target("idle")).await.unwrap()),
            }
        }
        outcome(&environment.client(), "f").await;
        histories.push(history(&environment.client(), "f").await);
    }
    assert!(histories[0].len() > 30);
    assert_eq!(histories[0], histories[1], "cached and evicted");
    assert_eq!(histories[0], histories[2], "cached and crashed");
}
