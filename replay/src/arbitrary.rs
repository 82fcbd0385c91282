//! Arbitrary histories for property tests: stories that a run machine could have written.
//!
//! Invariant: every history made here is structurally valid; what the commands are is chance.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::*;
use proptest::prelude::*;

use crate::History;

/// How many cases a property test runs: `PROPTEST_CASES` if set, so that a long run needs no change.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    }
}

/// One thing that happens; the number picks among what is pending.
type PlannedAct = (u8, usize, Payload);

pub(crate) fn histories(acts: usize) -> impl Strategy<Value = History> {
    let act = (any::<u8>(), any::<usize>(), payloads());
    (payloads(), prop::collection::vec(act, 0..acts)).prop_map(|(input, acts)| {
        let mut story = ArbitraryHistory::new(input);
        acts.into_iter().for_each(|act| story.act(act));
        History::new(story.builder.turns()).expect("the story is valid")
    })
}

pub(crate) fn payloads() -> impl Strategy<Value = Payload> {
    prop_oneof![
        Just(Payload::null()),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| Payload::encode(&n).unwrap()),
        any::<i64>().prop_map(|n| Payload::encode(&serde_json::json!({ "n": n, "json": [n] })).unwrap()),
        "\\PC{0,12}".prop_map(|text| Payload::encode(&text).unwrap()),
        "\\PC{0,12}".prop_map(Payload::raw_json),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(Payload::bytes),
    ]
}

struct ArbitraryHistory {
    builder: HistoryBuilder,
    activities: BTreeMap<Seq, (u32, bool, bool)>,
    timers: Vec<Seq>,
    children: BTreeMap<Seq, bool>,
    signals: Vec<Seq>,
    updates: Vec<String>,
    canceled: bool,
    paused: bool,
    closed: bool,
    /// A command may follow: the last turn has an activating event.
    active: bool,
}

impl ArbitraryHistory {
    fn new(input: Payload) -> Self {
        ArbitraryHistory {
            builder: HistoryBuilder::started("story", "story-1", input),
            activities: BTreeMap::new(),
            timers: Vec::new(),
            children: BTreeMap::new(),
            signals: Vec::new(),
            updates: Vec::new(),
            canceled: false,
            paused: false,
            closed: false,
            active: true,
        }
    }

    fn act(&mut self, (what, pick, payload): PlannedAct) {
        if self.closed {
            return;
        }
        if self.active && what % 2 == 0 {
            self.command(what / 2 % 14, pick, payload);
        } else {
            self.active = self.input(what / 2 % 16, pick, payload).unwrap_or(self.active);
        }
    }

    fn command(&mut self, what: u8, pick: usize, payload: Payload) {
        let h = &mut self.builder;
        match what {
            0..=2 => drop(self.activities.insert(h.activity_scheduled("work", payload), (0, false, false))),
            3 => self.timers.push(h.timer_started(Duration::from_millis(pick as u64 % 5_000))),
            4 => drop(self.children.insert(h.child_initiated("child", &format!("child-{pick}"), payload), false)),
            5 => self.signals.push(h.external_signal_initiated("other", "news", payload)),
            6 => _ = h.side_effect_recorded(payload),
            7 => _ = h.patch_recorded(&format!("patch-{}", pick % 3), pick.is_multiple_of(2)),
            8 => {
                let value = SearchValue::Float(pick as f64 / 7.0);
                h.search_attributes_upserted([(FieldName::of("score"), value)].into());
            }
            9 => _ = h.memo_modified([(FieldName::of("json"), payload)].into()),
            10 => {
                let pending = self.activities.iter_mut().find(|(_, (_, _, canceled))| !canceled);
                if let Some((seq, (_, _, canceled))) = pending {
                    *canceled = true;
                    h.activity_cancel_requested(*seq);
                }
            }
            11 => {
                if let Some(seq) = self.timers.pop() {
                    h.timer_canceled(seq);
                }
            }
            12 => {
                if let Some(id) = self.updates.pop() {
                    h.update_completed(&id, Ok(payload));
                }
            }
            _ => {
                self.closed = true;
                match pick % 4 {
                    0 => h.completed(payload),
                    1 if self.canceled => h.canceled(Some(payload)),
                    1 | 2 => h.failed(failure(payload)),
                    _ => h.continued_as_new("story", payload),
                };
            }
        }
    }

    /// Whether the new turn activates the code; nothing if nothing happened. Long because it is a list of what can.
    fn input(&mut self, what: u8, pick: usize, payload: Payload) -> Option<bool> {
        let nth = pick % self.activities.len().max(1);
        let activity = self.activities.iter().nth(nth).map(|(seq, state)| (*seq, *state));
        let child = self.children.iter().next().map(|(seq, started)| (*seq, *started));
        let h = &mut self.builder;
        match what {
            0 => {
                h.signaled("go", payload);
                Some(true)
            }
            1 => {
                let id = format!("update-{}", h.now().0);
                h.update_accepted(&id, "set", payload);
                self.updates.push(id);
                Some(true)
            }
            2 => {
                self.canceled = true;
                h.cancel_requested("enough");
                Some(true)
            }
            3 => {
                if self.paused {
                    h.unpaused("")
                } else {
                    h.paused("wait")
                };
                self.paused = !self.paused;
                Some(false)
            }
            4..=6 => {
                let (seq, (attempt, running, _)) = activity?;
                self.activities.get_mut(&seq)?.1 = !running;
                if running {
                    h.activity_attempt_failed(seq, attempt, failure(payload), Duration::from_secs(1));
                } else {
                    self.activities.get_mut(&seq)?.0 += 1;
                    h.activity_started(seq, attempt + 1);
                }
                Some(false)
            }
            7..=10 => {
                let (seq, (attempt, _, canceled)) = activity?;
                self.activities.remove(&seq);
                match pick % 3 {
                    0 if canceled => h.activity_canceled(seq, Some(payload)),
                    1 if attempt > 0 => h.activity_completed(seq, payload),
                    2 => h.activity_timed_out(seq, TimeoutType::ScheduleToClose, RetryState::Timeout),
                    _ => h.activity_failed(seq, failure(payload), RetryState::MaximumAttemptsReached),
                };
                Some(true)
            }
            11 => {
                let seq = self.timers.pop()?;
                h.timer_fired(seq);
                Some(true)
            }
            12 | 13 => {
                let (seq, started) = child?;
                if started {
                    self.children.remove(&seq)
                } else {
                    self.children.insert(seq, true)
                };
                if started {
                    h.child_completed(seq, payload)
                } else {
                    h.child_started(seq)
                };
                Some(true)
            }
            14 => {
                let seq = self.signals.pop()?;
                h.external_signaled(seq);
                Some(true)
            }
            _ => {
                self.closed = pick.is_multiple_of(5);
                if self.closed {
                    h.terminated("stop");
                }
                Some(false)
            }
        }
    }
}

fn failure(details: Payload) -> Failure {
    let cause = Failure::timeout(TimeoutType::Heartbeat, Some(details.clone()));
    Failure::application("Broken", "it broke").with_details(details).because(cause)
}
