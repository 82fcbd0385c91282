//! Kinds of steps: how often each is drawn, as a strategy that shrinks, or by throwing dice.
//!
//! Invariant: both ways draw from the same table, so that what is lived very often is what is lived with all doubts. Which
//! kinds a plan has at all is decided by a mask (swarm: many faults at once hide each other); time and deliveries always
//! come through. Nothing is run here.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;

use super::search::mix;
use crate::simulate::{Boundary, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Deliver,
    ToDeadline,
    Duplicate,
    Lose,
    Zombie,
    Heartbeat,
    Signal,
    Repeat,
    Cancel,
    Query,
    Update,
    Pause,
    Tick,
    Delay,
    WallJump,
    Crash,
    Evict,
    Deploy,
}

/// The weight of each kind. The first two are in every plan.
const KINDS: [(u32, Kind); 18] = [
    (10, Kind::Deliver),
    (3, Kind::ToDeadline),
    (2, Kind::Duplicate),
    (1, Kind::Lose),
    (2, Kind::Zombie),
    (1, Kind::Heartbeat),
    (4, Kind::Signal),
    (1, Kind::Repeat),
    (1, Kind::Cancel),
    (2, Kind::Query),
    (2, Kind::Update),
    (1, Kind::Pause),
    (2, Kind::Tick),
    (2, Kind::Delay),
    (1, Kind::WallJump),
    (3, Kind::Crash),
    (2, Kind::Evict),
    (1, Kind::Deploy),
];

const PICKS: u16 = 4;
const RESULTS: u16 = 6;
const SHORT_MS: std::ops::Range<u32> = 1..2_000;
const LONG_MS: [u32; 2] = [60_000, 3_600_000];
const WALL_SECONDS: std::ops::Range<i32> = -100_000..100_000;

/// What the test gives its lives; without it the steps that need it do nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Possible {
    pub(super) signals: bool,
    pub(super) queries: bool,
    pub(super) updates: bool,
    pub(super) deploys: bool,
}

impl Possible {
    fn allows(self, kind: Kind) -> bool {
        match kind {
            Kind::Signal => self.signals,
            Kind::Query => self.queries,
            Kind::Update => self.updates,
            Kind::Deploy => self.deploys,
            _ => true,
        }
    }
    fn kinds(self, mask: u32) -> impl Iterator<Item = (u32, Kind)> {
        let passes = move |(bit, (_, kind)): &(usize, (u32, Kind))| {
            *bit < 2 || (self.allows(*kind) && mask & (1 << (bit - 2)) != 0)
        };
        KINDS.into_iter().enumerate().filter(passes).map(|(_, weighted)| weighted)
    }

    /// A step of one of the kinds that the mask lets through.
    pub(super) fn strategy(self, mask: u32) -> BoxedStrategy<Step> {
        Union::new_weighted(self.kinds(mask).map(|(weight, kind)| (weight, strategy(kind))).collect()).boxed()
    }

    /// At most so many steps, from a seed.
    pub(super) fn thrown(self, seed: u64, most: usize) -> Vec<Step> {
        let mut dice = Dice(seed);
        // Which bits are taken does not matter; half of the kinds are there.
        let kinds: Vec<(u32, Kind)> = self.kinds(dice.throw() as u32).collect();
        let all: u32 = kinds.iter().map(|(weight, _)| weight).sum();
        let length = dice.below(most as u64 + 1);
        (0..length).map(|_| dice.step(&kinds, all)).collect()
    }
}

// long: one arm a kind.
fn strategy(kind: Kind) -> BoxedStrategy<Step> {
    let pick = 0..PICKS;
    let both = (0..PICKS, 0..RESULTS);
    let ms = prop_oneof![SHORT_MS, Just(LONG_MS[0]), Just(LONG_MS[1])];
    match kind {
        Kind::Deliver => both.prop_map(|(pick, result)| Step::Deliver { pick, result }).boxed(),
        Kind::ToDeadline => Just(Step::Tick { ms: 0 }).boxed(),
        Kind::Duplicate => both.prop_map(|(pick, result)| Step::Duplicate { pick, result }).boxed(),
        Kind::Lose => pick.prop_map(|pick| Step::Lose { pick }).boxed(),
        Kind::Zombie => both.prop_map(|(pick, result)| Step::Zombie { pick, result }).boxed(),
        Kind::Heartbeat => pick.prop_map(|pick| Step::Heartbeat { pick }).boxed(),
        Kind::Signal => (0..RESULTS).prop_map(|pick| Step::Signal { pick }).boxed(),
        Kind::Repeat => Just(Step::Repeat).boxed(),
        Kind::Cancel => Just(Step::Cancel).boxed(),
        Kind::Query => pick.prop_map(|pick| Step::Query { pick }).boxed(),
        Kind::Update => (0..RESULTS).prop_map(|pick| Step::Update { pick }).boxed(),
        Kind::Pause => prop_oneof![Just(Step::Pause), Just(Step::Unpause)].boxed(),
        Kind::Tick => ms.prop_map(|ms| Step::Tick { ms }).boxed(),
        Kind::Delay => ms.prop_map(|ms| Step::Delay { ms }).boxed(),
        Kind::WallJump => WALL_SECONDS.prop_map(|seconds| Step::WallJump { seconds }).boxed(),
        Kind::Crash => select(&Boundary::ALL[..]).prop_map(|at| Step::Crash { at }).boxed(),
        Kind::Evict => any::<bool>().prop_map(|snapshot| Step::Evict { snapshot }).boxed(),
        Kind::Deploy => Just(Step::Deploy).boxed(),
    }
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// The modulus is small against 2^64; nobody sees the difference.
    fn below(&mut self, end: u64) -> u64 {
        self.throw() % end.max(1)
    }
    fn pick(&mut self, end: u16) -> u16 {
        self.below(u64::from(end)) as u16
    }
    fn ms(&mut self) -> u32 {
        match self.below(3) {
            0 => SHORT_MS.start + self.below(u64::from(SHORT_MS.end - SHORT_MS.start)) as u32,
            1 => LONG_MS[0],
            _ => LONG_MS[1],
        }
    }

    // long: one arm a kind.
    fn step(&mut self, kinds: &[(u32, Kind)], all: u32) -> Step {
        let mut left = self.below(u64::from(all)) as u32;
        let passed = kinds.iter().find(|(weight, _)| {
            let here = left < *weight;
            left = left.saturating_sub(*weight);
            here
        });
        match passed.map_or(Kind::Deliver, |(_, kind)| *kind) {
            Kind::Deliver => Step::Deliver { pick: self.pick(PICKS), result: self.pick(RESULTS) },
            Kind::ToDeadline => Step::Tick { ms: 0 },
            Kind::Duplicate => Step::Duplicate { pick: self.pick(PICKS), result: self.pick(RESULTS) },
            Kind::Lose => Step::Lose { pick: self.pick(PICKS) },
            Kind::Zombie => Step::Zombie { pick: self.pick(PICKS), result: self.pick(RESULTS) },
            Kind::Heartbeat => Step::Heartbeat { pick: self.pick(PICKS) },
            Kind::Signal => Step::Signal { pick: self.pick(RESULTS) },
            Kind::Repeat => Step::Repeat,
            Kind::Cancel => Step::Cancel,
            Kind::Query => Step::Query { pick: self.pick(PICKS) },
            Kind::Update => Step::Update { pick: self.pick(RESULTS) },
            Kind::Pause => [Step::Pause, Step::Unpause][usize::from(self.pick(2))],
            Kind::Tick => Step::Tick { ms: self.ms() },
            Kind::Delay => Step::Delay { ms: self.ms() },
            Kind::WallJump => {
                let width = u64::from(WALL_SECONDS.start.abs_diff(WALL_SECONDS.end));
                Step::WallJump { seconds: WALL_SECONDS.start + self.below(width) as i32 }
            }
            Kind::Crash => Step::Crash { at: Boundary::ALL[self.below(Boundary::ALL.len() as u64) as usize] },
            Kind::Evict => Step::Evict { snapshot: self.pick(2) == 1 },
            Kind::Deploy => Step::Deploy,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALL: Possible = Possible { signals: true, queries: true, updates: true, deploys: true };

    #[test]
    fn dice_throw_every_kind_of_step_and_only_what_is_possible() {
        let names = |possible: Possible| {
            let steps = (0..400).flat_map(move |seed| possible.thrown(seed, 30));
            let name = |step: Step| step.to_string().split(' ').next().unwrap_or_default().to_owned();
            steps.map(name).collect::<BTreeSet<_>>()
        };
        let none = Possible { signals: false, queries: false, updates: false, deploys: false };
        // Pauses and evictions have two words each; a tick to the deadline is written as a tick.
        assert_eq!(names(ALL).len(), KINDS.len() + 1);
        assert_eq!(names(none).len(), KINDS.len() + 1 - 4);
        assert_eq!(ALL.thrown(7, 30), ALL.thrown(7, 30));
        assert!((0..400).any(|seed| ALL.thrown(seed, 30).is_empty()));
    }
}
