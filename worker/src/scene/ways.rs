//! A scene in all its ways: straight, replayed, crashed after every event, and with concurrent calls ending in other orders.
//!
//! Invariant: a scene passes only if it is as expected in every way, all ways end alike, and no call is made twice but one
//! that was under way when a worker died. The straight way comes first: where it fails, the others say nothing new.

use std::fmt;
use std::time::{Duration, Instant};

use bosun_engine::RunId;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_replay::{History, Prefixes, Verdict, replay_history};
use serde_json::Value;

use super::file::{PERMUTE, Scene};
use super::judge::{Ended, judge, unmet, unused, warned};
use super::life::{BEGIN, Forks, Life, Stuck};
use super::matcher::shown;
use super::orders::Orders;
use super::outside::{Complaint, Outside};

/// Orders that are drawn where there are more than can be tried.
const SAMPLES: usize = 24;
/// Copies of the log that are kept for crashes. Of a life of ten thousand events each costs megabytes, and a crash of it seconds.
const COPIES_MAX: usize = 1_000;
/// Events that a failure shows.
const LAST_EVENTS: usize = 8;

/// One way of living through a scene.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Without a disturbance.
    Straight,
    /// The history replayed, with every call forbidden.
    Replay,
    /// After so many commits.
    Crash(usize),
    /// Concurrent calls end in this other order.
    Permute(String),
}

impl Way {
    /// The word of `--ways` and of reports.
    pub fn name(&self) -> &'static str {
        match self {
            Way::Straight => "straight",
            Way::Replay => "replay",
            Way::Crash(_) => "crash",
            Way::Permute(_) => "permute",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Straight => f.write_str("straight"),
            Way::Replay => f.write_str("replayed"),
            Way::Crash(at) => write!(f, "crashed after commit {at}"),
            Way::Permute(order) => write!(f, "calls ended in another order ({order})"),
        }
    }
}

/// Which ways are gone, and how.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Names of ways; all if there are none.
    pub ways: Vec<String>,
    /// Which orders are drawn where there are too many.
    pub seed: u64,
    /// On directories, as a worker has them; in memory otherwise.
    pub disk: bool,
    /// Each crash, and as many orders as of other scenes, where a scene asks for fewer.
    pub full: bool,
}

impl Choice {
    fn takes(&self, way: &str) -> bool {
        self.ways.is_empty() || self.ways.iter().any(|name| name == way)
    }
}

/// Why a scene fails.
#[derive(Debug, Clone)]
pub struct SceneFailure {
    /// Where it showed.
    pub way: Way,
    /// The path of the expectation, or what all scenes must hold.
    pub at: String,
    /// What the scene expects there.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// The last events before it.
    pub last: Vec<String>,
    /// The histories of the failing life: the first run's, as a file's text.
    pub history: Option<String>,
    /// The place in the scene's file and the value that was seen there, where a plain value was expected.
    pub update: Option<(String, Value)>,
}

/// What became of a scene.
#[derive(Debug, Clone, Default)]
pub struct SceneResult {
    /// Nothing if it passes.
    pub failures: Vec<SceneFailure>,
    /// Events of the straight life.
    pub events: usize,
    /// How many crashes were tried.
    pub crashes: usize,
    /// Whether that is one after every commit.
    pub all_crashes: bool,
    /// How many other orders were tried.
    pub orders: usize,
    /// Whether those are all that there are.
    pub all_orders: bool,
    /// Rules of the world that answered nothing, straight.
    pub unused: Vec<String>,
    /// How long all ways took.
    pub took: Duration,
}

/// Plays a scene.
pub(crate) fn play(scene: &Scene, workflows: &WorkflowRegistry, choice: &Choice) -> SceneResult {
    let began = Instant::now();
    let mut played = SceneResult::default();
    Play { scene, workflows, choice, played: &mut played }.all();
    played.took = began.elapsed();
    played
}

/// The history of the first run, straight, as a file's text; or why the scene fails.
pub(crate) fn history(scene: &Scene, workflows: &WorkflowRegistry) -> Result<String, Vec<SceneFailure>> {
    let choice = Choice { ways: vec!["straight".to_owned()], ..Choice::default() };
    let mut played = SceneResult::default();
    let lived = Play { scene, workflows, choice: &choice, played: &mut played }.straight();
    let told = |(_, outside, ..): (Ended, Outside, Forks, Orders)| {
        History::new(outside.history(outside.root?)).ok().map(|history| history.to_json())
    };
    lived.and_then(told).ok_or(played.failures)
}

/// All ways that are chosen, and the straight life to look at.
#[cfg(test)]
pub(crate) fn straight_life<'s>(
    scene: &'s Scene,
    workflows: &'s WorkflowRegistry,
    choice: &Choice,
) -> (SceneResult, Option<Life<'s>>) {
    let played = play(scene, workflows, choice);
    let lived = Life::begin(scene, workflows, choice.disk).and_then(|mut life| life.go().map(|()| life));
    (played, lived.ok())
}

struct Play<'p> {
    scene: &'p Scene,
    workflows: &'p WorkflowRegistry,
    choice: &'p Choice,
    played: &'p mut SceneResult,
}

impl Play<'_> {
    fn all(&mut self) {
        if let Some(refused) = &self.scene.refused {
            if let Some(complaint) = refused.complaint() {
                self.fail(Way::Straight, None, complaint);
            }
            return;
        }
        let Some((straight, outside, forks, orders)) = self.straight() else { return };
        if self.choice.takes("replay") {
            self.replayed(&outside);
        }
        if self.choice.takes("crash") {
            self.crashed(&straight, forks);
        }
        if self.choice.takes("permute") && !self.scene.order_matters && self.scene.ways.permute > 0 {
            self.permuted(&straight, orders);
        }
    }

    /// The straight way. Nothing if it fails.
    fn straight(&mut self) -> Option<(Ended, Outside, Forks, Orders)> {
        let begun = Life::begin(self.scene, self.workflows, self.choice.disk);
        let mut life = begun.map_err(|stuck| self.fail(Way::Straight, None, stuck.complaint())).ok()?;
        life.asked = Some(Vec::new());
        life.orders = Some(Orders::default());
        life.forks = self.choice.takes("crash").then(|| Forks::new(self.copies_max()));
        let ended = self.live(&mut life, &Way::Straight, None)?;
        self.played.events = life.outside.events();
        let forks = life.forks.take().unwrap_or_else(|| Forks::new(1));
        let orders = life.orders.take().unwrap_or_default();
        Some((ended, life.outside, forks, orders))
    }

    /// Lives to the end, and judges. Nothing if it fails.
    fn live(&mut self, life: &mut Life<'_>, way: &Way, straight: Option<&Ended>) -> Option<Ended> {
        let gone = life.go();
        // Nobody takes copies of what is only looked at.
        let forks = life.forks.take();
        let ended = Ended::of(life);
        life.forks = forks;
        let mut complaints = match gone {
            Err(stuck) => vec![stuck.complaint()],
            Ok(()) => judge(self.scene, &ended, &life.outside, straight.is_none()),
        };
        if straight.is_none() {
            complaints.extend(warned(self.scene));
        }
        if straight.is_none() {
            self.played.unused = unused(self.scene, &life.outside);
            // Also beside another failure: what did not happen is often why.
            complaints.extend(unmet(life));
        }
        if let Some(twice) = life.outside.twice.first() {
            complaints.push(Complaint::new("all scenes", "every call is made once", format!("made twice: {twice}")));
        }
        if let Some(straight) = straight.filter(|_| complaints.is_empty()) {
            complaints.extend(other_end(&straight.digest, &ended.digest, self.scene.order_matters));
        }
        let failed = !complaints.is_empty();
        for complaint in complaints {
            self.fail(way.clone(), Some(&life.outside), complaint);
        }
        (!failed).then_some(ended)
    }

    fn fail(&mut self, way: Way, outside: Option<&Outside>, complaint: Complaint) {
        let Complaint { at, expected, seen, update } = complaint;
        let last = outside.map(|outside| outside.last_events(LAST_EVENTS, BEGIN)).unwrap_or_default();
        let history = outside.and_then(|outside| History::new(outside.history(outside.root?)).ok());
        let history = history.map(|history| history.to_json());
        self.played.failures.push(SceneFailure { way, at, expected, seen, last, history, update });
    }

    /// Every run's history fits the code; nobody is there who could be called.
    fn replayed(&mut self, outside: &Outside) {
        let runs: Vec<RunId> = outside.runs.keys().copied().collect();
        for run in runs {
            let seen = match History::new(outside.history(run)) {
                Err(why) => why.to_string(),
                Ok(history) => match replay_history(self.workflows, &history, Prefixes::None).verdict {
                    Verdict::Ok => continue,
                    other => other.to_string(),
                },
            };
            let expected = format!("run {run} replays without a call, to the same end");
            return self.fail(Way::Replay, Some(outside), Complaint::new("all scenes", expected, seen));
        }
    }

    /// The most crashes that are tried.
    fn crashes_max(&self) -> usize {
        self.scene.ways.crash.filter(|most| *most == 0 || !self.choice.full).unwrap_or(usize::MAX)
    }

    /// Of how many commits a copy is kept: more than are tried, since they are thinned out by halves.
    fn copies_max(&self) -> usize {
        let unless_full = if self.choice.full { usize::MAX } else { COPIES_MAX };
        self.crashes_max().saturating_mul(2).min(unless_full)
    }

    fn crashed(&mut self, straight: &Ended, forks: Forks) {
        let kept = forks.kept.len();
        let tried = self.crashes_max().min(kept);
        self.played.all_crashes = forks.are_all() && tried == kept;
        // Spread evenly, and exactly so many.
        let is_tried = |at: &usize| (at + 1) * tried / kept > at * tried / kept;
        for (_, fork) in forks.kept.into_iter().enumerate().filter(|(at, _)| is_tried(at)) {
            let way = Way::Crash(fork.number);
            self.played.crashes += 1;
            let lived = match Life::resume(self.scene, self.workflows, fork) {
                Ok(mut life) => self.live(&mut life, &way, Some(straight)).is_some(),
                Err(stuck) => {
                    self.fail(way, None, stuck.complaint());
                    false
                }
            };
            if !lived {
                return;
            }
        }
    }

    fn permuted(&mut self, straight: &Ended, first: Orders) {
        let asked = self.scene.ways.permute;
        let most = if self.choice.full { asked.max(PERMUTE) } else { asked };
        self.played.orders = 1;
        self.played.all_orders = first.count() <= most;
        if !self.played.all_orders {
            for seed in 1..=SAMPLES.min(most) as u64 {
                if self.order(straight, Orders::seeded(self.choice.seed.wrapping_add(seed))).is_none() {
                    return;
                }
            }
            return;
        }
        let mut next = first.next();
        while let Some(orders) = next.take().filter(|_| self.played.orders < most) {
            match self.order(straight, orders) {
                Some(tried) => next = tried.next(),
                None => return,
            }
        }
    }

    /// One order; nothing if it fails.
    fn order(&mut self, straight: &Ended, orders: Orders) -> Option<Orders> {
        self.played.orders += 1;
        let mut life = match Life::begin(self.scene, self.workflows, self.choice.disk) {
            Ok(life) => life,
            Err(stuck) => {
                self.fail(Way::Permute(orders.shown()), None, stuck.complaint());
                return None;
            }
        };
        life.orders = Some(orders);
        // Which order it is, is known when it has been lived.
        let before = self.played.failures.len();
        let lived = self.live(&mut life, &Way::Permute(String::new()), Some(straight)).is_some();
        let orders = life.orders.take().unwrap_or_default();
        let swapped = life.swapped.take().map(|swapped| format!("\nhere {swapped}")).unwrap_or_default();
        for failure in &mut self.played.failures[before..] {
            failure.way = Way::Permute(orders.shown());
            failure.seen += &swapped;
        }
        lived.then_some(orders)
    }
}

/// The first place at which two ends differ.
fn other_end(straight: &Value, seen: &Value, order_matters: bool) -> Option<Complaint> {
    let changes = bosun_replay::changes(straight, seen);
    let first = changes.first()?;
    let value = |value: &Option<Value>| shown(value.as_ref());
    let expected = format!("the same end as straight: {} = {}", first.path, value(&first.before));
    let more = if changes.len() > 1 { format!(" (and {} more differences)", changes.len() - 1) } else { String::new() };
    let hint = match order_matters {
        true => "\ncalls that end at the same instant may change places when they are made again",
        false => "\nwhere the order must decide, say `order: matters`",
    };
    Some(Complaint::new("all scenes", expected, format!("{}{more}{hint}", value(&first.after))))
}

impl Stuck {
    fn complaint(self) -> Complaint {
        match self {
            Stuck::NoAnswer { call, rule, near } => {
                let seen = if near.is_empty() { String::new() } else { format!("; there are, and want: {near}") };
                let expected = format!("a rule that answers {call}; for example\n{rule}");
                Complaint::new("world", expected, format!("no rule fits{seen}"))
            }
            Stuck::Refused(why) => Complaint::new("the run", "it starts and goes on", why),
            Stuck::Endless => Complaint::new("the run", "it comes to an end", "it goes on for ever; give `until:`"),
            Stuck::Held(why) => Complaint::new("the run", "the code fits what it did", why),
        }
    }
}
