//! Same history, same commands, byte for byte (G21).

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

/// A workflow that uses nearly everything, steered by signals. Long, because it is to be one workflow.
fn kitchen_sink() -> WorkflowRegistry {
    WorkflowRegistry::new().state_machine::<Sink>().workflow("sink", |ctx: WfContext, seed: u32| async move {
        let total = ctx.state("total", u64::from(seed));
        let (read, added) = (total.clone(), total.clone());
        ctx.on_query("total", move |()| Ok(read.get()));
        ctx.on_update(
            "add",
            |_: &u64| Ok(()),
            move |ctx, n: u64| {
                let total = added.clone();
                async move {
                    let fee: u64 = ctx.activity("fee", &n, options()).await?;
                    total.write(|total| *total = total.wrapping_add(n).wrapping_add(fee));
                    Ok(total.get())
                }
            },
        );
        let watch = ctx.spawn(|ctx| async move {
            let mut heard = 0u32;
            while ctx.signal_channel::<u32>("beat").recv().await.is_ok() {
                heard += 1;
            }
            heard
        });
        let inner = ctx.clone();
        let rolled = ctx.side_effect(|| 3u32) + u32::from(ctx.patched("loud"));
        let booked = Saga::run(&ctx, |saga| async move {
            let ctx = inner;
            let names = for_each_bounded(2, 0..rolled, |n| {
                let (ctx, saga) = (ctx.clone(), saga.clone());
                async move {
                    saga.compensate_with(format!("undo {n}"), move |ctx| async move {
                        ctx.activity::<u64>("undo", &(n, ctx.random_u64()), options()).await.map(drop)
                    });
                    ctx.activity::<u64>("book", &(n, ctx.uuid().to_string()), options()).await
                }
            });
            let sum: u64 = names.await.into_iter().sum::<Result<u64, Failure>>()?;
            let quick = branch(|ctx: WfContext| async move { ctx.activity::<u64>("quick", &1, options()).await });
            let slow = branch(|ctx: WfContext| async move { ctx.timer(SECOND).await.map(|()| 0) });
            let (winner, value) = race(&ctx, vec![quick, slow]).await;
            ctx.upsert_memo(Memo::from([(FieldName::of("winner"), json(winner))]));
            Ok(sum.wrapping_add(value?))
        });
        let booked = booked.await?;
        let (goal, read) = (booked % 7, total.clone());
        ctx.wait_until(move || read.get() >= goal).await?;
        watch.cancel("the rest is done");
        Ok((booked, total.get(), watch.await))
    })
}

/// The same idea as a state machine.
#[derive(Serialize, Deserialize)]
struct Sink {
    open: Vec<Seq>,
    sum: u64,
    noise: Vec<u64>,
}

impl StateMachine for Sink {
    const TYPE: &'static str = "machine-sink";
    type Input = u32;
    type Output = u64;

    fn start(seed: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let mut sink = Sink { open: Vec::new(), sum: u64::from(seed), noise: vec![cx.random_u64()] };
        for n in 0..3 {
            sink.open.push(cx.schedule_activity("book", &n, options()));
        }
        sink.noise.push(cx.side_effect(|| 11));
        Ok(sink)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { seq, result } => {
                self.open.retain(|open| *open != seq);
                self.sum = self.sum.wrapping_add(result?.decode()?);
                if self.open.len() < 2 && self.sum.is_multiple_of(3) {
                    let input = (self.sum, cx.uuid().to_string());
                    self.open.push(cx.schedule_activity("more", &input, options()));
                }
            }
            WorkflowEvent::Signal(_) => drop(cx.start_timer(SECOND)),
            WorkflowEvent::TimerFired { .. } => self.noise.push(cx.random_u64()),
            WorkflowEvent::CancelRequested { .. } => self.open.iter().for_each(|seq| cx.cancel_activity(*seq)),
            WorkflowEvent::Update { update_id, input, .. } => {
                self.sum = self.sum.wrapping_add(input.decode()?);
                cx.complete_update(update_id, Ok(&self.sum));
            }
            WorkflowEvent::ChildStarted { .. }
            | WorkflowEvent::ChildResolved { .. }
            | WorkflowEvent::SignalDelivered { .. }
            | WorkflowEvent::CancelDelivered { .. } => {}
        }
        if self.open.is_empty() {
            cx.complete(&self.sum);
        }
        Ok(())
    }
}

/// What happens next to a run, chosen from what is under way.
#[derive(Debug, Clone)]
enum Happens {
    Ends { which: usize, value: u64, fails: bool },
    Signal(u32),
    Update(u64),
    Cancel,
    Evict,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        12 => (any::<usize>(), any::<u64>(), prop::bool::weighted(0.1))
            .prop_map(|(which, value, fails)| Happens::Ends { which, value, fails }),
        2 => any::<u32>().prop_map(Happens::Signal),
        2 => any::<u64>().prop_map(Happens::Update),
        1 => Just(Happens::Cancel),
        2 => Just(Happens::Evict),
    ]
}

/// Activities and timers that are under way according to history.
fn under_way(world: &World) -> Vec<(Seq, bool)> {
    let mut open = std::collections::BTreeMap::new();
    for event in world.events() {
        match event {
            EventKind::ActivityTaskScheduled(scheduled) => drop(open.insert(scheduled.seq, true)),
            EventKind::TimerStarted { seq, .. } => drop(open.insert(seq, false)),
            EventKind::ActivityTaskCompleted { seq, .. }
            | EventKind::ActivityTaskFailed { seq, .. }
            | EventKind::TimerFired { seq }
            | EventKind::TimerCanceled { seq } => drop(open.remove(&seq)),
            _ => {}
        }
    }
    open.into_iter().collect()
}

fn play(workflow_type: &str, seed: u32, script: &[Happens]) -> World {
    let mut world = World::start(&kitchen_sink(), workflow_type, seed);
    for (n, step) in script.iter().enumerate() {
        if world.last().closes().is_some() {
            break;
        }
        world.now = world.now.plus(Duration::from_millis(7));
        match step {
            Happens::Ends { which, value, fails } => {
                let open = under_way(&world);
                let Some((seq, is_activity)) = open.get(which % open.len().max(1)) else { continue };
                match (is_activity, fails) {
                    (false, _) => world.fire(seq.0),
                    (true, false) => world.complete(seq.0, value),
                    (true, true) => world.fail(seq.0, Failure::application("Bad", value.to_string())),
                };
            }
            Happens::Signal(n) => drop(world.signal("beat", n)),
            Happens::Update(value) => drop(world.update(&format!("u{n}"), "add", value)),
            Happens::Cancel => drop(world.cancel()),
            Happens::Evict => world.driver = world.replay_with(&world.registry).unwrap().driver,
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// G21, G22: whatever happens in whatever order, with evictions in between, every prefix replays without a false
    /// alarm, and two histories of the same script are equal to the byte.
    #[test]
    fn any_history_replays_to_the_same_commands(
        machine in any::<bool>(),
        seed in any::<u32>(),
        script in prop::collection::vec(happens(), 0..40),
    ) {
        let workflow_type = if machine { "machine-sink" } else { "sink" };
        let world = play(workflow_type, seed, &script);
        let digest = world.check_replay();
        let unevicted: Vec<Happens> = script.iter().map(|step| match step {
            Happens::Evict => Happens::Ends { which: 0, value: 0, fails: false },
            step => step.clone(),
        }).collect();
        let again = play(workflow_type, seed, &script);
        prop_assert_eq!(rmp_serde::to_vec(&again.turns).unwrap(), rmp_serde::to_vec(&world.turns).unwrap());
        prop_assert_eq!(again.check_replay(), digest);
        play(workflow_type, seed, &unevicted).check_replay();
    }

    /// E37: a state machine restored from its snapshot at any moment goes on exactly like the one in memory.
    #[test]
    fn any_moment_is_good_for_a_snapshot(seed in any::<u32>(), script in prop::collection::vec(happens(), 0..30)) {
        let world = play("machine-sink", seed, &script);
        let registry = kitchen_sink();
        let (mut cached, mut restored) = (
            World::start(&registry, "machine-sink", seed),
            World::start(&registry, "machine-sink", seed),
        );
        for turn in &world.turns[1..] {
            let bytes = restored.driver.snapshot().unwrap();
            restored.driver = registry.restore(&"machine-sink".into(), RunId([7; 16]), &bytes).unwrap();
            (cached.now, restored.now) = (turn.at, turn.at);
            let event = turn.events[0].clone();
            prop_assert_eq!(cached.happen(event.clone()), restored.happen(event));
        }
        prop_assert_eq!(cached.driver.snapshot(), restored.driver.snapshot());
        prop_assert_eq!(&restored.turns, &world.turns);
    }
}

/// G21: the digest of a fixed script is the same in every build profile and on every machine. If it changes, histories
/// that exist no longer replay: that needs a new version of the rule, not a new number here.
#[test]
fn the_digest_of_a_fixed_script_is_a_constant() {
    let step = |which, value, fails| Happens::Ends { which, value, fails };
    let script = [
        Happens::Signal(1),
        step(1, 20, false),
        Happens::Update(9),
        Happens::Evict,
        step(0, 10, false),
        step(5, 30, false),
        step(2, 40, false),
        Happens::Cancel,
        step(0, 1, false),
        step(0, 2, true),
        step(0, 3, false),
        step(0, 4, false),
        step(0, 5, false),
    ];
    let digest = |workflow_type| hex(&play(workflow_type, 3, &script).check_replay()[..16]);
    assert_eq!(digest("sink"), "b09217415f7e50d392736d064a2acf7d");
    assert_eq!(digest("machine-sink"), "ac631165d1a2abbeb7df331e0c266472");
}

/// G21: a run is the same on whichever thread it is replayed.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test needs another thread; the code under test must not care")]
fn replay_does_not_depend_on_the_thread() {
    let world = play("sink", 1, &[Happens::Signal(1), Happens::Cancel]);
    let here = world.check_replay();
    let (registry, turns) = (kitchen_sink(), world.turns.clone());
    let there = std::thread::spawn(move || replay(&registry, &turns).unwrap().digest).join().unwrap();
    assert_eq!(here, there);
}
