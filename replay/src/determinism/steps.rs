//! Kinds of steps: how often each is drawn, as a strategy that shrinks, or by throwing dice.
//!
//! Invariant: both ways draw from the same table, so that what is lived very often is what is lived with all doubts. Which
//! kinds a plan has at all is decided by a mask (swarm: many faults at once hide each other); time and deliveries always
//! come through. Nothing is run here.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;

use super::search::mix;
use crate::simulate::{Boundary, LifeStep};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepKind {
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
const KINDS: [(u32, StepKind); 18] = [
    (10, StepKind::Deliver),
    (3, StepKind::ToDeadline),
    (2, StepKind::Duplicate),
    (1, StepKind::Lose),
    (2, StepKind::Zombie),
    (1, StepKind::Heartbeat),
    (4, StepKind::Signal),
    (1, StepKind::Repeat),
    (1, StepKind::Cancel),
    (2, StepKind::Query),
    (2, StepKind::Update),
    (1, StepKind::Pause),
    (2, StepKind::Tick),
    (2, StepKind::Delay),
    (1, StepKind::WallJump),
    (3, StepKind::Crash),
    (2, StepKind::Evict),
    (1, StepKind::Deploy),
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
    fn allows(self, kind: StepKind) -> bool {
        match kind {
            StepKind::Signal => self.signals,
            StepKind::Query => self.queries,
            StepKind::Update => self.updates,
            StepKind::Deploy => self.deploys,
            _ => true,
        }
    }
    fn kinds(self, mask: u32) -> impl Iterator<Item = (u32, StepKind)> {
        let passes = move |(bit, (_, kind)): &(usize, (u32, StepKind))| {
            *bit < 2 || (self.allows(*kind) && mask & (1 << (bit - 2)) != 0)
        };
        KINDS.into_iter().enumerate().filter(passes).map(|(_, weighted)| weighted)
    }

    /// A step of one of the kinds that the mask lets through.
    pub(super) fn strategy(self, mask: u32) -> BoxedStrategy<LifeStep> {
        Union::new_weighted(self.kinds(mask).map(|(weight, kind)| (weight, strategy(kind))).collect()).boxed()
    }

    /// At most so many steps, from a seed.
    pub(super) fn thrown(self, seed: u64, most: usize) -> Vec<LifeStep> {
        let mut dice = StepRng(seed);
        // Which bits are taken does not matter; half of the kinds are there.
        let kinds: Vec<(u32, StepKind)> = self.kinds(dice.throw() as u32).collect();
        let all: u32 = kinds.iter().map(|(weight, _)| weight).sum();
        let length = dice.below(most as u64 + 1);
        (0..length).map(|_| dice.step(&kinds, all)).collect()
    }
}

// long: one arm a kind.
fn strategy(kind: StepKind) -> BoxedStrategy<LifeStep> {
    let pick = 0..PICKS;
    let both = (0..PICKS, 0..RESULTS);
    let ms = prop_oneof![SHORT_MS, Just(LONG_MS[0]), Just(LONG_MS[1])];
    match kind {
        StepKind::Deliver => both.prop_map(|(pick, result)| LifeStep::Deliver { pick, result }).boxed(),
        StepKind::ToDeadline => Just(LifeStep::Tick { ms: 0 }).boxed(),
        StepKind::Duplicate => both.prop_map(|(pick, result)| LifeStep::Duplicate { pick, result }).boxed(),
        StepKind::Lose => pick.prop_map(|pick| LifeStep::Lose { pick }).boxed(),
        StepKind::Zombie => both.prop_map(|(pick, result)| LifeStep::Zombie { pick, result }).boxed(),
        StepKind::Heartbeat => pick.prop_map(|pick| LifeStep::Heartbeat { pick }).boxed(),
        StepKind::Signal => (0..RESULTS).prop_map(|pick| LifeStep::Signal { pick }).boxed(),
        StepKind::Repeat => Just(LifeStep::Repeat).boxed(),
        StepKind::Cancel => Just(LifeStep::Cancel).boxed(),
        StepKind::Query => pick.prop_map(|pick| LifeStep::Query { pick }).boxed(),
        StepKind::Update => (0..RESULTS).prop_map(|pick| LifeStep::Update { pick }).boxed(),
        StepKind::Pause => prop_oneof![Just(LifeStep::Pause), Just(LifeStep::Unpause)].boxed(),
        StepKind::Tick => ms.prop_map(|ms| LifeStep::Tick { ms }).boxed(),
        StepKind::Delay => ms.prop_map(|ms| LifeStep::Delay { ms }).boxed(),
        StepKind::WallJump => WALL_SECONDS.prop_map(|seconds| LifeStep::WallJump { seconds }).boxed(),
        StepKind::Crash => select(&Boundary::ALL[..]).prop_map(|at| LifeStep::Crash { at }).boxed(),
        StepKind::Evict => any::<bool>().prop_map(|snapshot| LifeStep::Evict { snapshot }).boxed(),
        StepKind::Deploy => Just(LifeStep::Deploy).boxed(),
    }
}

/// Numbers from a seed.
struct StepRng(u64);

impl StepRng {
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
    fn step(&mut self, kinds: &[(u32, StepKind)], all: u32) -> LifeStep {
        let mut left = self.below(u64::from(all)) as u32;
        let passed = kinds.iter().find(|(weight, _)| {
            let here = left < *weight;
            left = left.saturating_sub(*weight);
            here
        });
        match passed.map_or(StepKind::Deliver, |(_, kind)| *kind) {
            StepKind::Deliver => LifeStep::Deliver { pick: self.pick(PICKS), result: self.pick(RESULTS) },
            StepKind::ToDeadline => LifeStep::Tick { ms: 0 },
            StepKind::Duplicate => LifeStep::Duplicate { pick: self.pick(PICKS), result: self.pick(RESULTS) },
            StepKind::Lose => LifeStep::Lose { pick: self.pick(PICKS) },
            StepKind::Zombie => LifeStep::Zombie { pick: self.pick(PICKS), result: self.pick(RESULTS) },
            StepKind::Heartbeat => LifeStep::Heartbeat { pick: self.pick(PICKS) },
            StepKind::Signal => LifeStep::Signal { pick: self.pick(RESULTS) },
            StepKind::Repeat => LifeStep::Repeat,
            StepKind::Cancel => LifeStep::Cancel,
            StepKind::Query => LifeStep::Query { pick: self.pick(PICKS) },
            StepKind::Update => LifeStep::Update { pick: self.pick(RESULTS) },
            StepKind::Pause => [LifeStep::Pause, LifeStep::Unpause][usize::from(self.pick(2))],
            StepKind::Tick => LifeStep::Tick { ms: self.ms() },
            StepKind::Delay => LifeStep::Delay { ms: self.ms() },
            StepKind::WallJump => {
                let width = u64::from(WALL_SECONDS.start.abs_diff(WALL_SECONDS.end));
                LifeStep::WallJump { seconds: WALL_SECONDS.start + self.below(width) as i32 }
            }
            StepKind::Crash => LifeStep::Crash { at: Boundary::ALL[self.below(Boundary::ALL.len() as u64) as usize] },
            StepKind::Evict => LifeStep::Evict { snapshot: self.pick(2) == 1 },
            StepKind::Deploy => LifeStep::Deploy,
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
            let name = |step: LifeStep| step.to_string().split(' ').next().unwrap_or_default().to_owned();
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
