//! Who is next: in order, by share, by priority, within limits; and that nobody waits for ever.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn slots(slots: usize) -> QueueSettings {
    QueueSettings { slots, external: slots, ..QueueSettings::default() }
}

/// A slot for a function of this process.
fn slot(queue: &str) -> SlotUse {
    SlotUse { queue: queue.into(), external: false }
}

/// A slot for what leaves the process.
fn external(queue: &str) -> SlotUse {
    SlotUse { external: true, ..slot(queue) }
}

fn of(workflow: &str, queue: &str, n: u64) -> WaitingAttempt {
    WaitingAttempt {
        namespace: Namespace::of("default"),
        workflow_id: WorkflowId::of(workflow),
        run_id: RunId([0; 16]),
        seq: Seq(n),
        attempt: Attempt(1),
        slot: slot(queue),
    }
}

fn wait(
    queues: &mut TaskQueues,
    workflow: &str,
    queue: &str,
    n: u64,
    priority: Option<Priority>,
) -> Vec<WaitingAttempt> {
    queues.enqueue(of(workflow, queue, n), priority, NOW)
}

/// Ends the attempt that runs and says who follows, until nobody does. There is one slot, taken from queue `first`.
fn drain(queues: &mut TaskQueues, first: &str) -> Vec<WaitingAttempt> {
    let (mut taken, mut served) = (slot(first), Vec::new());
    while let Some(next) = queues.release(&taken, NOW).pop() {
        taken = next.slot.clone();
        served.push(next);
    }
    served
}

#[test]
fn slots_are_given_in_the_order_of_arrival_over_all_queues() {
    let mut queues = TaskQueues::new(slots(1));
    assert!(queues.take(&slot("a"), NOW));
    assert_eq!(wait(&mut queues, "w", "b", 1, None), []);
    assert_eq!(wait(&mut queues, "w", "a", 2, None), []);
    assert!(!queues.take(&slot("a"), NOW), "nobody overtakes");
    assert_eq!(queues.release(&slot("a"), NOW), [of("w", "b", 1)]);
    assert_eq!(queues.release(&slot("b"), NOW), [of("w", "a", 2)]);
    assert_eq!(queues.release(&slot("a"), NOW), []);
    assert_eq!((queues.free(), queues.running_by_queue().len()), (1, 0));
}

/// Functions of the process do not wait for programs, also not behind them in their queue.
#[test]
fn who_leaves_the_process_has_fewer_slots_and_keeps_nobody_waiting() {
    let mut queues = TaskQueues::new(QueueSettings { external: 1, ..slots(3) });
    assert!(queues.take(&external("q"), NOW));
    assert!(!queues.take(&external("q"), NOW), "one may leave");
    let program = |n| WaitingAttempt { slot: external("q"), ..of("programs", "q", n) };
    assert_eq!(queues.enqueue(program(1), None, NOW), []);
    assert!(queues.take(&slot("q"), NOW) && queues.take(&slot("q"), NOW), "the others do not wait for it");
    assert_eq!(wait(&mut queues, "functions", "q", 2, None), []);
    assert_eq!(queues.waiting_by_queue().into_values().next().unwrap(), [("q".into(), 2)].into());
    let all = queues.waiting_in(&"q".into(), |_| true, 10);
    assert_eq!(all.iter().map(|share| share.waiting).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(queues.release(&slot("q"), NOW), [of("functions", "q", 2)]);
    assert_eq!(queues.release(&slot("q"), NOW), [], "a slot alone is not enough");
    assert_eq!(queues.release(&external("q"), NOW), [program(1)]);
    assert_eq!((queues.free(), queues.free_external()), (1, 0));
    assert_eq!(queues.running_by_queue(), [("q".into(), 2)].into(), "the limits of a queue count both");
}

#[test]
fn queues_that_are_not_served_wait_and_block_nobody() {
    let mut queues = TaskQueues::new(QueueSettings { served: Some([TaskQueue::of("mine")].into()), ..slots(1) });
    assert!(!queues.take(&slot("other"), NOW));
    assert_eq!(wait(&mut queues, "w", "other", 1, None), []);
    assert!(queues.take(&slot("mine"), NOW));
    assert_eq!(queues.waiting(), 1);
    let in_other = [(TaskQueue::of("other"), 1)].into();
    assert_eq!(queues.waiting_by_queue(), [(Namespace::of("default"), in_other)].into());
}

#[test]
fn ten_of_one_queue_are_done_after_twenty_beside_a_hundred_thousand_of_another() {
    let mut queues = TaskQueues::new(slots(1));
    assert!(queues.take(&slot("many"), NOW));
    for n in 0..100_000 {
        assert_eq!(wait(&mut queues, &format!("w{}", n % 7), "many", n, None), []);
    }
    for n in 0..10 {
        assert_eq!(wait(&mut queues, "other", "few", n, None), []);
    }
    let served = drain(&mut queues, "many");
    assert_eq!(served.len(), 100_010);
    let last = served.iter().rposition(|next| next.slot == slot("few")).unwrap();
    assert!(last <= 20, "the last of ten was number {last}");
}

#[test]
fn ten_of_one_workflow_are_done_after_twenty_beside_a_hundred_thousand_of_another() {
    let mut queues = TaskQueues::new(slots(1));
    assert!(queues.take(&slot("q"), NOW));
    for n in 0..100_000 {
        assert_eq!(wait(&mut queues, "large", "q", n, None), []);
    }
    for n in 0..10 {
        assert_eq!(wait(&mut queues, "small", "q", n, None), []);
    }
    let served = drain(&mut queues, "q");
    let last = served.iter().rposition(|next| next.workflow_id == WorkflowId::of("small")).unwrap();
    assert!(last <= 20, "the last of ten was number {last}");
}

#[test]
fn a_queue_runs_no_more_than_its_limit_and_others_pass_it() {
    let limits = QueueLimits { max_concurrent_activities: Some(2), max_activities_per_second: None };
    let mut queues = TaskQueues::new(QueueSettings { limits: [("mail".into(), limits)].into(), ..slots(10) });
    let started: usize = (0..5).map(|n| wait(&mut queues, "w", "mail", n, None).len()).sum();
    assert_eq!(started, 2);
    assert!(!queues.take(&slot("mail"), NOW), "the limit is reached");
    assert!(queues.take(&slot("other"), NOW), "whoever waits for the limit of a queue is in nobody's way");
    assert_eq!(queues.release(&slot("other"), NOW), []);
    assert_eq!(queues.release(&slot("mail"), NOW), [of("w", "mail", 2)]);
    assert_eq!(queues.next_at(NOW), None, "time alone lets nobody start");
}

#[test]
fn a_slot_with_which_nothing_was_started_counts_for_no_rate() {
    let limits = QueueLimits { max_activities_per_second: Some("1".parse().unwrap()), ..QueueLimits::default() };
    let mut queues = TaskQueues::new(QueueSettings { limits: [("mail".into(), limits)].into(), ..slots(10) });
    assert!(queues.take(&slot("mail"), NOW));
    assert!(!queues.take(&slot("mail"), NOW));
    assert_eq!(wait(&mut queues, "w", "mail", 1, None), []);
    assert_eq!(queues.next_at(NOW), Some(NOW.plus(std::time::Duration::from_secs(1))));
    assert_eq!(queues.give_back(&slot("mail"), NOW), [of("w", "mail", 1)]);
}

#[test]
fn a_clock_that_steps_back_holds_a_rate_for_no_longer_than_one_step() {
    let limits = QueueLimits { max_activities_per_second: Some("2".parse().unwrap()), ..QueueLimits::default() };
    let mut queues = TaskQueues::new(QueueSettings { limits: [("mail".into(), limits)].into(), ..slots(10) });
    assert!(queues.take(&slot("mail"), NOW));
    let before = Timestamp(NOW.0 - 86_400_000_000);
    assert_eq!(queues.enqueue(of("w", "mail", 1), None, before), []);
    assert_eq!(queues.next_at(before), Some(before.plus(std::time::Duration::from_millis(500))));
}

/// What waits in one queue: per key its weight and how many, per attempt a priority.
#[derive(Debug, Clone)]
struct Load(Vec<(u8, u32, usize)>);

fn load() -> impl Strategy<Value = Load> {
    proptest::collection::vec((1..=5_u8, 100..=10_000_u32, 1..60_usize), 1..8).prop_map(Load)
}

impl Load {
    fn key(of: usize) -> String {
        format!("key-{of}")
    }
    fn into_queue(self) -> TaskQueues {
        let mut queues = TaskQueues::new(slots(1));
        assert!(queues.take(&slot("q"), NOW));
        for (key, (priority, weight, n)) in self.0.iter().enumerate() {
            let priority = Priority::of(*priority).fair(Load::key(key)).with_weight(FairnessWeight(*weight));
            for seq in 0..*n {
                wait(&mut queues, &Load::key(key), "q", seq as u64, Some(priority.clone()));
            }
        }
        queues
    }
}

/// A step of those who use the queues.
#[derive(Debug, Clone, Copy)]
enum Step {
    Arrive { queue: u8, workflow: u8, priority: u8, weight: u32 },
    TakeAtOnce { queue: u8 },
    End { queue: u8, unused: bool },
    Later { millis: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8, 0..5_u8, 1..=5_u8, 1..=1_000_000_u32)
            .prop_map(|(queue, workflow, priority, weight)| Step::Arrive { queue, workflow, priority, weight }),
        1 => (0..4_u8).prop_map(|queue| Step::TakeAtOnce { queue }),
        3 => (0..4_u8, any::<bool>()).prop_map(|(queue, unused)| Step::End { queue, unused }),
        2 => (0..700_u32).prop_map(|millis| Step::Later { millis }),
    ]
}

/// Queue 0 has no limits, 1 a number, 2 a rate, 3 both.
fn limited() -> QueueSettings {
    let limits = |max, rate: Option<&str>| QueueLimits {
        max_concurrent_activities: max,
        max_activities_per_second: rate.map(|rate| rate.parse().unwrap()),
    };
    let limits = [("q1", limits(Some(2), None)), ("q2", limits(None, Some("4"))), ("q3", limits(Some(3), Some("2.5")))];
    QueueSettings {
        limits: limits.into_iter().map(|(queue, limits)| (queue.into(), limits)).collect(),
        per_second: Some("30".parse().unwrap()),
        external: 3,
        ..slots(6)
    }
}

/// What was given out, as whoever holds it knows.
#[derive(Default)]
struct Holders {
    running: BTreeMap<TaskQueue, usize>,
    external: BTreeMap<TaskQueue, usize>,
    starts: Vec<(Timestamp, TaskQueue)>,
    arrived: usize,
    begun: usize,
}

impl Holders {
    fn begin(&mut self, SlotUse { queue, external }: &SlotUse, at: Timestamp) {
        *self.running.entry(queue.clone()).or_default() += 1;
        *self.external.entry(queue.clone()).or_default() += usize::from(*external);
        self.starts.push((at, queue.clone()));
    }
    fn all(&self) -> usize {
        self.running.values().sum()
    }
    /// One that runs in the queue ends: first those that left the process.
    fn take_one(&mut self, queue: &TaskQueue) -> Option<SlotUse> {
        let held = self.running.get_mut(queue).filter(|held| **held > 0)?;
        *held -= 1;
        let external = self.external.get_mut(queue).filter(|held| **held > 0);
        let external = external.map(|held| *held -= 1).is_some();
        Some(SlotUse { queue: queue.clone(), external })
    }
    /// In each window that ends with a start there are no more than the rate allows.
    fn keeps(&self, queue: Option<&str>, per_second: f64, at_once: f64) {
        let starts: Vec<i64> = self
            .starts
            .iter()
            .filter(|(_, of)| queue.is_none_or(|queue| *of == queue.into()))
            .map(|(at, _)| at.0)
            .collect();
        for (from, first) in starts.iter().enumerate() {
            for (to, last) in starts.iter().enumerate().skip(from) {
                let allowed = (last - first) as f64 / 1e6 * per_second + at_once + 1e-3;
                assert!(
                    (to - from + 1) as f64 <= allowed,
                    "{} starts of {queue:?} in {} us",
                    to - from + 1,
                    last - first
                );
            }
        }
    }
}

proptest! {
    /// Every attempt is served, and a less urgent one never before a more urgent one that waits.
    #[test]
    fn priorities_are_strict_and_all_are_served(load in load()) {
        let of_key: Vec<u8> = load.0.iter().map(|(priority, _, _)| *priority).collect();
        let all: usize = load.0.iter().map(|(_, _, n)| n).sum();
        let served = drain(&mut load.into_queue(), "q");
        prop_assert_eq!(served.len(), all);
        let key = |next: &WaitingAttempt| next.workflow_id.as_str().trim_start_matches("key-").parse::<usize>().unwrap();
        let priorities: Vec<u8> = served.iter().map(|next| of_key[key(next)]).collect();
        prop_assert!(priorities.is_sorted(), "{:?}", priorities);
        // Of one key, in the order in which they came.
        for one in 0..of_key.len() {
            prop_assert!(served.iter().filter(|next| key(next) == one).map(|next| next.seq).is_sorted());
        }
    }

    /// What is shown is the order of the first turns, over the namespaces that share the queue.
    #[test]
    fn who_waits_is_shown_in_the_order_of_the_turns(
        waiting in proptest::collection::vec((0..3_u8, 1..4_u8, 0..4_u8), 1..60),
        served in 0..30_usize,
    ) {
        let mut queues = TaskQueues::new(slots(1));
        queues.take(&slot("q"), NOW);
        for (n, (namespace, priority, workflow)) in waiting.into_iter().enumerate() {
            let one = WaitingAttempt {
                namespace: Namespace::of(format!("n{namespace}")),
                ..of(&format!("w{priority}-{workflow}"), "q", n as u64)
            };
            prop_assert_eq!(queues.enqueue(one, Some(Priority::of(priority)), NOW), []);
        }
        // Also in the midst of it.
        (0..served).for_each(|_| drop(queues.release(&slot("q"), NOW)));
        let name = |namespace: &Namespace, workflow: &WorkflowId| format!("{namespace} {workflow}");
        let told = |shares: Vec<WaitingShare>| -> Vec<String> {
            shares.iter().map(|one| name(&one.namespace, one.workflow_id.as_ref().unwrap())).collect()
        };
        let shown = told(queues.waiting_in(&"q".into(), |_| true, 100));
        let few = told(queues.waiting_in(&"q".into(), |_| true, 5));
        let of_one = told(queues.waiting_in(&"q".into(), |namespace| namespace.as_str() == "n1", 5));
        let mut first = Vec::new();
        for next in drain(&mut queues, "q") {
            let next = name(&next.namespace, &next.workflow_id);
            if !first.contains(&next) {
                first.push(next);
            }
        }
        prop_assert_eq!(&shown, &first);
        prop_assert_eq!(few, shown.iter().take(5).cloned().collect::<Vec<_>>());
        // No other namespace takes its room.
        prop_assert_eq!(of_one, first.into_iter().filter(|one| one.starts_with("n1 ")).take(5).collect::<Vec<_>>());
    }

    /// While two keys of one priority wait, what each was given, by its weight, differs by at most one turn of each.
    #[test]
    fn weights_hold_while_keys_wait(mut load in load()) {
        load.0.iter_mut().for_each(|(priority, _, _)| *priority = 3);
        let Load(keys) = load.clone();
        let served = drain(&mut load.into_queue(), "q");
        let turn = |key: usize| 1_000.0 / f64::from(keys[key].1);
        let mut given = vec![0_usize; keys.len()];
        for next in served {
            given[next.workflow_id.as_str().trim_start_matches("key-").parse::<usize>().unwrap()] += 1;
            for a in 0..keys.len() {
                for b in 0..a {
                    if given[a] < keys[a].2 && given[b] < keys[b].2 {
                        let apart = (given[a] as f64 * turn(a) - given[b] as f64 * turn(b)).abs();
                        prop_assert!(apart <= turn(a) + turn(b) + 1e-3, "{a} and {b} are {apart} apart: {given:?} of {keys:?}");
                    }
                }
            }
        }
    }

    /// Whatever comes, ends and is given back: no limit is passed, no slot is lost, nobody who may start waits, and all start
    /// in the end.
    #[test]
    fn limits_hold_and_nobody_waits_for_ever(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut queues, mut holders, mut now) = (TaskQueues::new(limited()), Holders::default(), NOW);
        let name = |queue: u8| TaskQueue::of(format!("q{queue}"));
        let finish = steps.len();
        // After what is given, everything ends and time passes, until nobody waits.
        let ends = (0..16_000_u32).map(|n| match n % 8 {
            even if even.is_multiple_of(2) => Step::End { queue: (even / 2) as u8, unused: false },
            _ => Step::Later { millis: 200 },
        });
        for (number, step) in steps.into_iter().chain(ends).enumerate() {
            // One of three leaves the process.
            let to = |queue: u8| SlotUse { queue: name(queue), external: number % 3 == 0 };
            let ready = match step {
                Step::Arrive { queue, workflow, priority, weight } => {
                    holders.arrived += 1;
                    let priority = Priority::of(priority).with_weight(FairnessWeight(weight));
                    let one = of(&workflow.to_string(), name(queue).as_str(), number as u64);
                    queues.enqueue(WaitingAttempt { slot: to(queue), ..one }, Some(priority), now)
                }
                Step::TakeAtOnce { queue } => {
                    if queues.take(&to(queue), now) {
                        holders.begin(&to(queue), now);
                    }
                    Vec::new()
                }
                Step::End { queue, unused } => match holders.take_one(&name(queue)) {
                    Some(slot) if unused && holders.starts.last().is_some_and(|(at, of)| *of == name(queue) && *at == now) => {
                        holders.starts.pop();
                        queues.give_back(&slot, now)
                    }
                    Some(slot) => queues.release(&slot, now),
                    None => Vec::new(),
                },
                Step::Later { millis } => {
                    now = now.plus(std::time::Duration::from_millis(u64::from(millis)));
                    queues.ready(now)
                }
            };
            for next in ready {
                holders.begun += 1;
                holders.begin(&next.slot, now);
            }
            prop_assert_eq!(queues.free() + holders.all(), 6);
            prop_assert_eq!(queues.free_external() + holders.external.values().sum::<usize>(), 3);
            prop_assert!(holders.running.get(&name(1)).is_none_or(|running| *running <= 2));
            prop_assert!(holders.running.get(&name(3)).is_none_or(|running| *running <= 3));
            prop_assert_eq!(queues.waiting(), holders.arrived - holders.begun);
            prop_assert!(queues.next_at(now).is_none_or(|at| at > now), "somebody waits who may start");
            if number > finish && queues.waiting() == 0 {
                break;
            }
        }
        prop_assert_eq!(queues.waiting(), 0, "{:?}", queues.waiting_by_queue());
        holders.keeps(Some("q2"), 4.0, 1.0);
        holders.keeps(Some("q3"), 2.5, 1.0);
        holders.keeps(None, 30.0, 3.0);
    }
}
