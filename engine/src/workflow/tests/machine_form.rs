//! The state machine form: transitions, queries, updates, snapshots.

use serde::Deserialize;

use super::*;

/// An order that is charged, shipped by a child, and can be nudged, changed and canceled.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    items: Vec<String>,
    charge: Option<Seq>,
    child: Option<Seq>,
    reminder: Option<Seq>,
    lucky: u64,
    rolled: u32,
    log: Vec<String>,
    /// Changed by a query handler that should not.
    #[serde(skip_serializing_if = "counts_nothing", default)]
    peeked: std::cell::Cell<u32>,
}

fn counts_nothing(cell: &std::cell::Cell<u32>) -> bool {
    cell.get() == 0
}

impl StateMachine for Order {
    const TYPE: &'static str = "order";
    type Input = Vec<String>;
    type Output = Vec<String>;

    fn start(items: Vec<String>, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        if items.is_empty() {
            return Err(Failure::application("EmptyOrder", "nothing to sell"));
        }
        let charge = cx.schedule_activity("charge", &items, options());
        let reminder = cx.start_timer(SECOND);
        Ok(Order {
            items,
            charge: Some(charge),
            child: None,
            reminder: Some(reminder),
            lucky: cx.random_u64(),
            rolled: cx.side_effect(|| 4),
            log: Vec::new(),
            peeked: std::cell::Cell::new(0),
        })
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        self.log.push(format!("{event:?}").split([' ', '(']).next().unwrap_or_default().to_owned());
        match event {
            WorkflowEvent::ActivityResolved { result: Err(failure), .. } if cx.cancel_requested().is_some() => {
                return Err(failure);
            }
            WorkflowEvent::ActivityResolved { result, .. } => {
                result?;
                self.charge = None;
                let options = ChildWorkflowOptions::default();
                self.child = Some(cx.start_child("ship", "ship-1", &self.items, options));
                if let Some(reminder) = self.reminder.take() {
                    cx.cancel_timer(reminder);
                }
            }
            WorkflowEvent::TimerFired { .. } => {
                self.reminder = Some(cx.start_timer_at(cx.now().plus(SECOND)));
                cx.patched("remind-twice");
            }
            WorkflowEvent::Signal(signal) => match signal.name.as_str() {
                "later" => cx.defer_signal(signal),
                "panic" => panic!("asked to"),
                "again" => cx.continue_as_new(&self.items, ContinueAsNewOptions::default()),
                "bad options" => drop(cx.schedule_activity("x", &(), ActivityOptions::default())),
                "cancel activity" => cx.cancel_activity(self.charge.ok_or_else(|| Failure::application("No", ""))?),
                _ => self.items.push(signal.input.decode()?),
            },
            WorkflowEvent::CancelRequested { .. } => match self.charge {
                Some(charge) => cx.cancel_activity(charge),
                None => cx.cancel(Some(json(&self.log))),
            },
            WorkflowEvent::Update { update_id, input, .. } => {
                self.items.push(input.decode()?);
                if self.items.len() < 5 {
                    cx.complete_update(update_id, Ok(&self.items.len()));
                }
            }
            WorkflowEvent::ChildResolved { result, .. } => {
                result?;
                cx.complete(&self.items);
                // What is asked for after the end is ignored.
                cx.schedule_activity("late", &(), options());
            }
            WorkflowEvent::ChildStarted { .. }
            | WorkflowEvent::SignalDelivered { .. }
            | WorkflowEvent::CancelDelivered { .. } => {}
        }
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        &["items", "peek", "panic"]
    }
    fn query(&self, name: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        match name.as_str() {
            "items" => Ok(Payload::encode(&self.items)?),
            "peek" => {
                self.peeked.set(1);
                Ok(Payload::null())
            }
            _ => panic!("no answer"),
        }
    }
    fn validate_update(&self, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        match name.as_str() {
            "add" => input.decode::<String>().map(drop).map_err(Failure::from),
            _ => Err(Failure::application("UnknownUpdate", "only add")),
        }
    }
}

fn registry() -> WorkflowRegistry {
    WorkflowRegistry::new().state_machine::<Order>()
}

fn order() -> World {
    World::start(&registry(), "order", ["tea"])
}

/// E04, E10, E15, E20: transitions ask for commands in order, with places, and the run completes.
#[test]
fn a_state_machine_runs_from_event_to_event() {
    let mut world = order();
    let commands = world.turns[0].events.len();
    assert_eq!(commands, 4);
    assert!(world.driver.command_location(0).unwrap().file.ends_with("machine_form.rs"));
    assert_eq!(world.driver.awaiting().len(), 2);
    assert_eq!(kinds(&world.complete(1, ())), ["child ship-1#4", "cancel timer#2"]);
    assert_eq!(world.fire(2), [], "a canceled timer is not heard of");
    world.signal("add", "milk");
    let run_id = RunId([9; 16]);
    world.happen(EventKind::ChildWorkflowExecutionStarted { seq: Seq(4), run_id });
    let commands = world.happen(EventKind::ChildWorkflowExecutionCompleted { seq: Seq(4), result: json(()) });
    assert_eq!(kinds(&commands), ["complete"]);
    world.assert_completed(["tea", "milk"]);
    world.check_replay();
}

/// E13: queries of a state machine read its state, open and closed; one that changes it is an error.
#[test]
fn queries_read_the_state_and_must_not_change_it() {
    let mut world = order();
    assert_eq!(world.query("items"), Ok(json(["tea"])));
    assert_eq!(world.driver.state_json().unwrap()["items"], serde_json::json!(["tea"]));
    let Err(QueryError::Failed { failure, .. }) = world.query("panic") else { panic!() };
    assert_eq!(failure.type_name(), FAILURE_PANIC);
    assert!(matches!(world.query("size"), Err(QueryError::Unknown { known, .. }) if known.len() == 3));
    // G22, bug 22.
    assert!(matches!(world.query("peek"), Err(QueryError::Mutated { .. })));
    let mut world = order();
    world.cancel();
    assert_eq!(world.query("items"), Ok(json(["tea"])));
}

/// E14: validators refuse; accepted updates are answered now, later, or at the end as workflow closed.
#[test]
fn updates_are_answered_or_closed() {
    let mut world = order();
    assert!(world.driver.validate_update(&UpdateName::of("add"), &json(1)).is_err());
    assert!(world.driver.validate_update(&UpdateName::of("sub"), &json("x")).is_err());
    assert_eq!(world.driver.validate_update(&UpdateName::of("add"), &json("x")), Ok(()));
    for n in 2..=4 {
        assert_eq!(kinds(&world.update(&format!("u{n}"), "add", "x")), [format!("update u{n} ok")]);
    }
    assert_eq!(world.update("u5", "add", "x"), []);
    assert_eq!(world.driver.awaiting().last().unwrap().what, "the answer to update u5");
    assert_eq!(kinds(&world.cancel()), ["cancel activity#1", "update u5 failed", "canceled"]);
    world.check_replay();
}

/// E07, E17: a canceled activity resolves right after the transition that canceled it, and only once.
#[test]
fn a_canceled_activity_resolves_once() {
    let mut world = order();
    let commands = world.signal("cancel activity", ());
    assert_eq!(kinds(&commands), ["cancel activity#1", "fail Canceled"]);
    assert!(world.failure().is_canceled());
    world.check_replay();

    let mut world = order();
    assert_eq!(kinds(&world.cancel()), ["cancel activity#1", "canceled"]);
    assert_eq!(world.happen(EventKind::ActivityTaskCanceled { seq: Seq(1), details: None }), []);
}

/// E11, E19: deferred signals go along to the next run, which hears carried ones before new ones.
#[test]
fn deferred_signals_are_carried_and_heard_first() {
    let mut world = order();
    world.signal("later", 1);
    world.signal("again", ());
    let EventKind::WorkflowExecutionContinuedAsNew(next) = world.last() else { panic!() };
    assert_eq!(next.unconsumed_signals, [signal("later", 1)]);
    world.check_replay();

    let mut start = started("order", json(["tea"]));
    start.carried_signals = vec![signal("add", "a"), signal("add", "b"), signal("again", ()), signal("add", "c")];
    let world = World::start_with(&registry(), start);
    let EventKind::WorkflowExecutionContinuedAsNew(next) = world.last() else { panic!() };
    assert_eq!(next.input, json(["tea", "a", "b"]));
    assert_eq!(next.unconsumed_signals, [signal("add", "c")]);
    world.check_replay();
}

/// E11: deferred signals of a run that closes are reported as unhandled.
#[test]
fn deferred_signals_are_reported_when_the_run_closes() {
    let mut world = order();
    world.signal("later", 1);
    world.cancel();
    let EventKind::WorkflowExecutionCanceled { unhandled_signals, .. } = world.last() else { panic!() };
    assert_eq!(unhandled_signals, [SignalName::of("later")]);
}

/// E30: errors, impossible requests, undecodable inputs and panics fail the run, each under its name.
#[test]
fn failures_of_transitions_fail_the_run() {
    let world = World::start(&registry(), "order", Vec::<String>::new());
    assert_eq!(world.failure().type_name(), "EmptyOrder");
    world.check_replay();
    let world = World::start(&registry(), "order", 7);
    assert_eq!(world.failure().type_name(), "InvalidInput");
    world.check_replay();
    for (name, value, failure_type) in
        [("bad options", "", "InvalidOptions"), ("panic", "", FAILURE_PANIC), ("add", "7", "PayloadError")]
    {
        let mut world = order();
        if failure_type == "PayloadError" {
            world.signal(name, 7)
        } else {
            world.signal(name, value)
        };
        assert_eq!(world.failure().type_name(), failure_type);
        world.check_replay();
    }
    let mut world = order();
    world.signal("panic", ());
    assert!(world.failure().message.contains("asked to (at engine/src/workflow/tests/machine_form.rs:"));
    assert_eq!(world.driver.snapshot(), None, "the state of a panicked run is not trusted");
}

/// E37: at every event a driver restored from a snapshot equals one that replayed everything, now and to the end.
#[test]
fn a_restored_driver_equals_full_replay() {
    let script: Vec<EventKind> = {
        let mut world = order();
        world.signal("later", 1);
        world.fire(2);
        world.update("u1", "add", "jam");
        world.fire(4);
        world.complete(1, ());
        world.happen(EventKind::ChildWorkflowExecutionStarted { seq: Seq(6), run_id: RunId([9; 16]) });
        world.signal("add", "milk");
        world.happen(EventKind::ChildWorkflowExecutionCompleted { seq: Seq(6), result: json(()) });
        world.assert_completed(["tea", "jam", "milk"]);
        world.events().into_iter().skip(1).filter(|event| event.origin() == Origin::Activating).collect()
    };
    let registry = registry();
    assert!(registry.supports_snapshot(&"order".into()));
    for cut in 0..=script.len() {
        let (mut cached, mut restored) = (order(), order());
        for event in &script[..cut] {
            assert_eq!(cached.happen(event.clone()), restored.happen(event.clone()));
        }
        let bytes = restored.driver.snapshot().unwrap();
        restored.driver = registry.restore(&"order".into(), RunId([7; 16]), &bytes).unwrap();
        let replayed = cached.replay_with(&registry).unwrap().driver;
        assert_eq!(replayed.snapshot().unwrap(), bytes, "after {cut} events");
        assert_eq!(restored.driver.snapshot().unwrap(), bytes);
        for event in &script[cut..] {
            assert_eq!(cached.happen(event.clone()), restored.happen(event.clone()));
            assert_eq!(cached.driver.snapshot(), restored.driver.snapshot());
        }
        restored.check_replay();
    }
}

/// E37: what is no snapshot of this build is refused with a reason; the history is still there.
#[test]
fn unfit_snapshots_are_refused() {
    let registry = registry().workflow("flow", |_, ()| async { Ok(()) });
    let run_id = RunId([7; 16]);
    let refused = |workflow_type: &str, bytes: &[u8]| registry.restore(&workflow_type.into(), run_id, bytes).err();
    assert!(matches!(refused("order", b"junk"), Some(RestoreError::Unreadable { .. })));
    assert!(matches!(refused("flow", b""), Some(RestoreError::NotSupported { .. })));
    assert!(matches!(refused("other", b""), Some(RestoreError::UnknownWorkflowType { .. })));
    assert!(!registry.supports_snapshot(&"flow".into()));
}

/// E22: the build id depends on the version and the types, and on nothing else.
#[test]
fn the_build_id_names_version_and_types() {
    let flow = |registry: WorkflowRegistry| registry.workflow("flow", |_, ()| async { Ok(()) });
    let one = flow(registry().version("1"));
    assert_eq!(one.build_id(), flow(WorkflowRegistry::new()).state_machine::<Order>().version("1").build_id());
    assert_ne!(one.build_id(), registry().version("1").build_id());
    assert_ne!(one.build_id(), flow(registry().version("2")).build_id());
    assert_eq!(one.types().map(ToString::to_string).collect::<Vec<_>>(), ["flow", "order"]);
}

/// Writes down what it is called, each time something happens.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Named(Vec<String>);

impl StateMachine for Named {
    const TYPE: &'static str = "named";
    type Input = ();
    type Output = Vec<String>;

    fn start((): (), cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Named(cx.workflow_id().map(ToString::to_string).into_iter().collect()))
    }
    fn on_event(&mut self, _: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        self.0.extend(cx.workflow_id().map(ToString::to_string));
        cx.complete(&self.0);
        Ok(())
    }
}

/// E37: a run knows its workflow id from its first event on, also after a snapshot.
#[test]
fn a_run_knows_its_workflow_id() {
    let registry = WorkflowRegistry::new().state_machine::<Named>();
    let mut world = World::start(&registry, "named", ());
    let bytes = world.driver.snapshot().unwrap();
    world.driver = registry.restore(&"named".into(), RunId([7; 16]), &bytes).unwrap();
    world.signal("go", ());
    world.assert_completed(["test-1", "test-1"]);
}
