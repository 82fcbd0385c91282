//! Forks of the whole corpus, at every event: each is a history like any other.
//!
//! Invariant: whatever was under way at the event, the fork is planned, begun, passes the check that guards imports, and
//! replays at every prefix.

use bosun_engine::machine::{Environment, Limits as MachineLimits, PlannedFork};
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_replay::{History, HistoryLimits, Prefixes, diff, plan_fork, replay_history};

use super::{index, read};

/// The corpus's code. What is put in place of a value may be nothing that it reads: such a run fails here, as it is held
/// otherwise, so that there is a history to look at.
fn code() -> WorkflowRegistry {
    super::live::code().on_defect(DefectPolicy::Fail)
}

/// Begins a planned fork without a worker: what would be written.
fn begun(fork: PlannedFork, slots: bool, now: Timestamp) -> Result<Vec<Turn>, Rejection> {
    let limits = MachineLimits::default();
    let registry = code();
    let mut take_slot = |_: &ActivityType, _: &TaskQueue| slots;
    let mut environment = Environment { now, build: registry.build_id(), limits: &limits, take_slot: &mut take_slot };
    let (_, mut turns, decision) = fork.begin(&registry, &mut environment)?;
    let (turn, _) = decision.seal();
    turns.push(turn);
    Ok(turns)
}

/// What would be written, after everything that a history must stand.
fn checked(fork: PlannedFork, slots: bool, now: Timestamp) -> Result<History, String> {
    let turns = begun(fork, slots, now).map_err(|why| why.to_string())?;
    let forked = History::from_turns(turns, &HistoryLimits::default()).map_err(|why| why.to_string())?;
    let report = replay_history(&code(), &forked, Prefixes::All);
    if report.is_ok() { Ok(forked) } else { Err(report.to_string()) }
}

/// The signals that a run was given, in order: those it decided, and those that wait.
fn signals(history: &History) -> Vec<WorkflowExecutionSignaled> {
    let mut inbox = std::collections::VecDeque::new();
    let mut found = Vec::new();
    for turn in history.turns() {
        found.extend(turn.events.iter().filter_map(|event| match event {
            EventKind::WorkflowExecutionSignaled(signal) => Some(signal.clone()),
            _ => None,
        }));
        inbox.drain(..turn.inbox_taken as usize);
        inbox.extend(turn.inbox_added.iter().cloned());
    }
    found.extend(inbox.into_iter().filter_map(|input| match input {
        Input::Signal(signal) => Some(signal),
        _ => None,
    }));
    found
}

/// What can be replaced in a history, each in its own fork: outcomes, values, signals, the input.
fn changes(history: &History) -> Vec<(Option<EventId>, ForkChange)> {
    let other = || Payload::raw_json("[\"other\"]");
    let of = |event: EventId| ForkSubject::Event(event);
    let mut found = vec![(Some(EventId(1)), ForkChange::Input(history.started().input.clone()))];
    let mut signals = std::collections::BTreeMap::new();
    for event in history.events() {
        match event.kind {
            EventKind::ActivityTaskCompleted { .. } | EventKind::ChildWorkflowExecutionCompleted { .. } => {
                let failure = Failure::application("Other", "by the fork");
                found.push((Some(event.id), ForkChange::Outcome { of: of(event.id), outcome: Err(failure) }));
                found.push((Some(event.id), ForkChange::Outcome { of: of(event.id), outcome: Ok(other()) }));
            }
            EventKind::ActivityTaskFailed { .. }
            | EventKind::ActivityTaskTimedOut { .. }
            | EventKind::StartChildWorkflowExecutionFailed { .. }
            | EventKind::ChildWorkflowExecutionFailed { .. } => {
                found.push((Some(event.id), ForkChange::Outcome { of: of(event.id), outcome: Ok(other()) }));
            }
            EventKind::MarkerRecorded(Marker::SideEffect { .. }) => {
                found.push((None, ForkChange::Outcome { of: of(event.id), outcome: Ok(Payload::raw_json("7")) }));
            }
            EventKind::WorkflowExecutionSignaled(signal) => {
                let nth = signals.entry(signal.name.clone()).or_insert(0);
                *nth += 1;
                let change = ForkChange::Signal { name: signal.name, nth: Some(*nth), input: other() };
                found.push((Some(event.id), change));
            }
            _ => {}
        }
    }
    found
}

/// E20: everything that can be replaced is, one after the other; nothing from the replaced event on is kept.
#[test]
fn a_fork_with_anything_replaced_is_a_history_that_replays() {
    let mut forks = 0;
    for entry in index().histories {
        let (_, history) = read(&entry.file);
        let last = history.turns().last().map_or(Timestamp::ZERO, |turn| turn.at);
        for (number, (replaced, change)) in changes(&history).into_iter().enumerate() {
            let run_id = history.run_id().derive("replaced", number as u64);
            let request = ForkRequest::new(ForkSource::History(Vec::new()), "fork".into()).change(change.clone());
            let told = || format!("{} with {change:?}", entry.file);
            let fork = PlannedFork::plan(&request, history.turns(), run_id, last)
                .unwrap_or_else(|why| panic!("{}: {why}", told()));
            if let Some(replaced) = replaced {
                assert_eq!(fork.point().event.next(), replaced, "{}", told());
            }
            let forked = checked(fork, number % 2 == 0, last).unwrap_or_else(|why| panic!("{}: {why}", told()));
            assert_eq!(forked.started().workflow_id, "fork".into());
            let inputs =
                |history: &History| signals(history).into_iter().map(|signal| signal.input).collect::<Vec<_>>();
            let (mut given, of_fork) = (inputs(&history), inputs(&forked));
            if let ForkChange::Signal { name, nth: Some(nth), input } = change {
                let of_name = signals(&history).into_iter().enumerate().filter(|(_, signal)| signal.name == name);
                let place = of_name.map(|(place, _)| place).nth(nth - 1).expect("it is there");
                given[place] = input;
            }
            assert_eq!(of_fork, given, "{}: signals", entry.file);
            forks += 1;
        }
    }
    println!("{forks} forks");
    assert!(forks > 500, "{forks} forks");
}

/// E20, E26, G13, G18, G21: forked at every event, a day later, with and without free slots; signals after the event reach
/// the fork again, each once and in order.
#[test]
fn a_fork_at_any_event_of_any_history_is_a_history_that_replays() {
    let (mut forks, mut told) = (0, 0);
    for entry in index().histories {
        let (_, history) = read(&entry.file);
        let last = history.turns().last().map_or(Timestamp::ZERO, |turn| turn.at);
        let now = last.plus(std::time::Duration::from_secs(86_400));
        let mut seen = None;
        for at in 0..=history.len() as u64 {
            let run_id = history.run_id().derive("fork", at);
            let reapply = if at % 3 == 0 { ForkReapply::None } else { ForkReapply::Signals };
            let wish = ForkRequest::new(ForkSource::History(Vec::new()), "fork".into()).reapply(reapply);
            let request = wish.clone().at(EventId(at));
            let fork =
                PlannedFork::plan(&request, history.turns(), run_id, now).unwrap_or_else(|why| panic!("{at}: {why}"));
            let event = fork.point().event;
            assert!(event.0 <= at, "{} at {at}", entry.file);
            if seen == Some(event) {
                continue;
            }
            seen = Some(event);
            told += fork.summary().told.len();
            assert_eq!(*fork.summary(), plan_fork(&history, &wish.at(event), Some(&code())).unwrap());
            let forked = checked(fork, at % 2 == 0, now).unwrap_or_else(|why| panic!("{} at {at}: {why}", entry.file));
            if reapply == ForkReapply::Signals {
                assert_eq!(signals(&forked), signals(&history), "{} at {at}: each once, in order", entry.file);
            }
            let compared = diff(&history, &forked);
            let parts = compared.divergence.is_none_or(|first| first.line.left().is_none_or(|left| left > event.0));
            assert!(parts, "{} at {at}: what was copied is the same", entry.file);
            forks += 1;
        }
    }
    println!("{forks} forks, {told} things told at them");
    assert!(forks > 900 && told > 50, "{forks} forks, {told} told");
}
