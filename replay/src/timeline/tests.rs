//! A run at every event: what is shown of it is what the live run showed, forwards and backwards.

use std::cell::RefCell;
use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent};
use serde_json::json;

use super::*;

fn options() -> ActivityOptions {
    ActivityOptions::start_to_close(Duration::from_secs(10))
}

/// Counts what it heard.
#[derive(serde::Serialize, serde::Deserialize)]
struct Counter {
    heard: u64,
    paid: Option<u64>,
    notes: Vec<String>,
}

impl StateMachine for Counter {
    const TYPE: &'static str = "counter";
    type Input = u64;
    type Output = u64;
    fn start(cents: u64, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.schedule_activity("charge", &cents, options());
        Ok(Counter { heard: 0, paid: None, notes: Vec::new() })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        self.heard += 1;
        match event {
            WorkflowEvent::ActivityResolved { result, .. } => self.paid = Some(result?.decode()?),
            WorkflowEvent::Signal(signal) => self.notes.push(signal.name.to_string()),
            WorkflowEvent::TimerFired { .. } => cx.complete(&self.heard),
            _ => {}
        }
        if self.heard == 2 {
            cx.start_timer(Duration::from_secs(30));
        }
        Ok(())
    }
}

fn code() -> WorkflowRegistry {
    WorkflowRegistry::new().state_machine::<Counter>()
}

fn told() -> History {
    let mut told = HistoryBuilder::started("counter", "c1", Payload::raw_json("5"));
    let charge = told.activity_scheduled("charge", Payload::raw_json("5"));
    told.activity_started(charge, 1);
    told.activity_attempt_failed(charge, 1, Failure::application("Declined", "no funds"), Duration::from_secs(1));
    told.after(Duration::from_secs(2)).activity_started(charge, 2);
    told.signaled("hurry", Payload::null());
    told.activity_completed(charge, Payload::raw_json("5"));
    let timer = told.timer_started(Duration::from_secs(30));
    told.timer_fired(timer);
    told.completed(Payload::raw_json("3"));
    History::new(told.turns()).unwrap()
}

#[test]
fn every_moment_shows_state_pending_work_and_what_is_awaited() {
    let registry = code();
    let timeline = Timeline::new(&registry, told());
    assert_eq!((timeline.code(), timeline.last()), (&CodeFit::Fits, EventId(10)));
    let shown: Vec<String> = (1..=10)
        .map(|id| {
            let moment = timeline.at(EventId(id)).unwrap();
            let state = moment.state.unwrap();
            format!(
                "{id} {} heard={} paid={} activities={} timers={} awaits={:?} failure={}",
                moment.event.kind.name(),
                state["heard"],
                state["paid"],
                moment.pending_activities.len(),
                moment.pending_timers.len(),
                moment.awaiting.unwrap_or_default().iter().map(|awaited| awaited.what.clone()).collect::<Vec<_>>(),
                moment.last_failure.map_or(0, |(id, _)| id.0),
            )
        })
        .collect();
    let expected = [
        "1 WorkflowExecutionStarted heard=0 paid=null activities=0 timers=0 awaits=[\"activity 1 charge\"] failure=0",
        "2 ActivityTaskScheduled heard=0 paid=null activities=1 timers=0 awaits=[\"activity 1 charge\"] failure=0",
        "3 ActivityTaskStarted heard=0 paid=null activities=1 timers=0 awaits=[\"activity 1 charge\"] failure=0",
        "4 ActivityTaskAttemptFailed heard=0 paid=null activities=1 timers=0 awaits=[\"activity 1 charge\"] failure=4",
        "5 ActivityTaskStarted heard=0 paid=null activities=1 timers=0 awaits=[\"activity 1 charge\"] failure=4",
        "6 WorkflowExecutionSignaled heard=1 paid=null activities=1 timers=0 awaits=[\"activity 1 charge\"] failure=4",
        "7 ActivityTaskCompleted heard=2 paid=5 activities=0 timers=0 awaits=[\"timer 2 until 2026-01-01T00:00:32.004000Z\"] failure=4",
        "8 TimerStarted heard=2 paid=5 activities=0 timers=1 awaits=[\"timer 2 until 2026-01-01T00:00:32.004000Z\"] failure=4",
        "9 TimerFired heard=3 paid=5 activities=0 timers=0 awaits=[] failure=4",
        "10 WorkflowExecutionCompleted heard=3 paid=5 activities=0 timers=0 awaits=[] failure=4",
    ];
    assert_eq!(shown, expected);
    // Backwards the same.
    for id in (1..=10).rev() {
        assert!(
            shown[id as usize - 1].contains(&format!("heard={}", timeline.state_at(EventId(id)).unwrap()["heard"]))
        );
    }
    assert_eq!(timeline.at(EventId(11)), None);
    assert!(timeline.at(EventId(2)).unwrap().location.unwrap().contains("timeline/tests.rs"));
    assert!(timeline.at(EventId(8)).unwrap().location.unwrap().contains("timeline/tests.rs"));
}

#[test]
fn state_differs_path_by_path_between_any_two_events() {
    let registry = code();
    let timeline = Timeline::new(&registry, told());
    let told = |from, to| -> Vec<String> {
        timeline.diff(EventId(from), EventId(to)).unwrap().iter().map(ToString::to_string).collect()
    };
    assert_eq!(told(5, 6), ["heard: 0 -> 1", "+ notes[0]: \"hurry\""]);
    assert_eq!(told(7, 5), ["heard: 2 -> 0", "paid: 5 -> null", "- notes[0]: \"hurry\""]);
    assert_eq!(told(2, 4), Vec::<String>::new());
    assert_eq!(timeline.changes_of(EventId(7)).len(), 2);
}

#[test]
fn breakpoints_stop_at_the_same_events_in_both_directions() {
    let registry = code();
    let timeline = Timeline::new(&registry, told());
    for (text, events) in [
        ("TimerFired", vec![9]),
        ("activitytaskstarted", vec![3, 5]),
        ("failure", vec![4]),
        ("name:charge", vec![2, 3, 4, 5, 7]),
        ("signal:hurry", vec![6]),
        ("state.paid changes", vec![7]),
        ("state.notes[0]", vec![6]),
        ("state", vec![6, 7, 9]),
        ("state.absent", vec![]),
    ] {
        let breakpoint = [Breakpoint::parse(text).unwrap()];
        let walk = |from: u64, direction| {
            let mut at = EventId(from);
            let mut found = Vec::new();
            while let Some(next) = timeline.find(at, direction, &breakpoint) {
                found.push(next.0);
                at = next;
            }
            found
        };
        assert_eq!(walk(0, Direction::Forwards), events, "{text}");
        assert_eq!(walk(11, Direction::Backwards).into_iter().rev().collect::<Vec<_>>(), events, "{text}");
    }
    for bad in ["", "nonsense", "name:", "other:x", "state.", "state.a[x]"] {
        assert!(Breakpoint::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn without_code_that_fits_the_facts_are_shown_and_the_mismatch_is_named() {
    let none = WorkflowRegistry::new();
    let timeline = Timeline::new(&none, told());
    assert!(matches!(timeline.code(), CodeFit::NotRun { why } if why.contains("counter")), "{:?}", timeline.code());
    let moment = timeline.at(EventId(5)).unwrap();
    assert_eq!((moment.pending_activities.len(), moment.state, moment.awaiting), (1, None, None));
    // Code that stops to fit at event 8: the states before are known.
    let other = WorkflowRegistry::new().workflow("counter", |cx: WfContext, cents: u64| async move {
        let phase = cx.state("phase", "charging".to_owned());
        cx.activity::<u64>("charge", &cents, options()).await?;
        phase.set("shipping".to_owned());
        cx.activity::<u64>("ship", &cents, options()).await
    });
    let timeline = Timeline::new(&other, told());
    assert!(
        matches!(timeline.code(), CodeFit::Mismatch(found) if found.event_id == EventId(8)),
        "{:?}",
        timeline.code()
    );
    assert_eq!(timeline.at(EventId(3)).unwrap().state, Some(json!({ "phase": "charging" })));
    assert_eq!(timeline.at(EventId(8)).unwrap().state, None);
    assert_eq!(timeline.at(EventId(8)).unwrap().pending_timers.len(), 1);
}

/// What the timeline shows at each turn is what the run and its code showed when they lived there.
#[test]
fn prefix_states_equal_live_states() {
    let registry = code();
    let history = told();
    let timeline = Timeline::new(&registry, history.clone());
    for prefix in 1..=history.turns().len() {
        let turns = history.prefix(prefix);
        let live = bosun_engine::machine::Execution::load(turns, &registry, registry.build_id()).unwrap();
        let at = EventId(turns[prefix - 1].next_event().0 - 1);
        let shown = timeline.at(at).unwrap();
        assert_eq!(shown.state, live.state_json(), "after {prefix} turns");
        assert_eq!(shown.awaiting, Some(live.awaiting()), "after {prefix} turns");
        assert_eq!(shown.pending_activities, live.run().pending_activities());
        assert_eq!(shown.pending_timers, live.run().pending_timers());
        assert_eq!(shown.status, live.run().info().status);
    }
}

/// Long histories: every state is what a straight replay gives, whatever lies between the whole states that are kept.
#[test]
fn states_of_long_histories_are_exact() {
    let mut told = HistoryBuilder::started("counter", "c2", Payload::raw_json("5"));
    told.activity_scheduled("charge", Payload::raw_json("5"));
    for number in 0..1_500 {
        told.signaled(&format!("note-{number}"), Payload::null());
        if number == 1 {
            told.timer_started(Duration::from_secs(30));
        }
    }
    let registry = code();
    let history = History::new(told.turns()).unwrap();
    let timeline = Timeline::new(&registry, history.clone());
    let straight = RefCell::new(BTreeMap::new());
    let mut replayer = Replayer::new(&registry);
    for turn in history.turns() {
        let note = |step: ReplayStep<'_>| drop(straight.borrow_mut().insert(step.event.id, step.driver.state_json()));
        replayer.turn(turn, &mut { note }).unwrap();
    }
    for (id, state) in straight.into_inner() {
        assert_eq!(timeline.state_at(id), state, "at {id}");
    }
    let pending = timeline.at(EventId(1_400)).unwrap();
    assert_eq!((pending.pending_activities.len(), pending.pending_timers.len()), (1, 1));
}

#[test]
fn changes_lead_from_one_value_to_the_other() {
    for (before, after) in [
        (json!(null), json!({ "a": 1 })),
        (json!({ "a": [1, 2, 3], "b": { "c": null } }), json!({ "a": [1, 5], "b": { "d": "x" } })),
        (json!({ "any key": [[], {}] }), json!({ "any key": [[1], { "k": 2 }, 3] })),
        (json!([1]), json!("text")),
    ] {
        let found = changes(&before, &after);
        let mut value = before.clone();
        super::change::apply(&mut value, &found);
        assert_eq!(value, after);
        for change in &found {
            assert_eq!(JsonPath::parse(&change.path.to_string()).unwrap_or_default(), change.path);
        }
    }
}
