//! Choices: the only source of chance in a simulated life.
//!
//! Invariant: what a choice means depends on what was chosen before and on nothing else. Each step has choices of its own,
//! so that a step can be left out when a failure is made small; what is used up gives zeros, which always stand for the
//! first, harmless option.

/// How many choices a step has at most.
pub const CHOICES_OF_A_STEP: usize = 6;

/// The choices of one step.
pub type StepChoices = [u16; CHOICES_OF_A_STEP];

/// See the module.
#[derive(Debug)]
pub(super) struct Choices<'a> {
    list: &'a [StepChoices],
    /// The steps that have begun, and how many choices the last of them has used.
    begun: usize,
    used: usize,
}

impl<'a> Choices<'a> {
    pub(super) fn new(list: &'a [StepChoices]) -> Self {
        Choices { list, begun: 0, used: 0 }
    }
    pub(super) fn are_used_up(&self) -> bool {
        self.begun >= self.list.len()
    }
    pub(super) fn begin_step(&mut self) {
        self.begun += 1;
        self.used = 0;
    }
    pub(super) fn next(&mut self) -> u16 {
        let step = self.begun.checked_sub(1).and_then(|step| self.list.get(step));
        let choice = step.and_then(|step| step.get(self.used)).copied().unwrap_or_default();
        self.used += 1;
        choice
    }
    /// A number below `sides`; 0 if there are none.
    pub(super) fn below(&mut self, sides: usize) -> usize {
        usize::from(self.next()) % sides.max(1)
    }
    /// The index of one of these weights, the heavier the likelier; `None` if there is no weight at all.
    pub(super) fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> Option<usize> {
        let total: u32 = weights.clone().sum();
        let mut left = u32::from(self.next()).checked_rem(total)?;
        for (index, weight) in weights.enumerate() {
            if left < weight {
                return Some(index);
            }
            left -= weight;
        }
        None
    }
}

/// The choices of `steps` steps from a seed (splitmix64): the same for ever.
pub(super) fn choices_of(seed: u64, steps: usize) -> Vec<StepChoices> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 48) as u16
    };
    (0..steps).map(|_| std::array::from_fn(|_| next())).collect()
}
