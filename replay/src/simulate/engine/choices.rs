//! Choices: the only source of chance in a simulated life.
//!
//! Invariant: what a choice means depends on what was chosen before and on nothing else. A list that is used up gives
//! zeros, which always stand for the first, harmless option.

/// See the module.
#[derive(Debug)]
pub(super) struct Choices<'a> {
    list: &'a [u16],
    used: usize,
}

impl<'a> Choices<'a> {
    pub(super) fn new(list: &'a [u16]) -> Self {
        Choices { list, used: 0 }
    }
    pub(super) fn are_used_up(&self) -> bool {
        self.used >= self.list.len()
    }
    pub(super) fn next(&mut self) -> u16 {
        let choice = self.list.get(self.used).copied().unwrap_or_default();
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

/// `count` choices from a seed (splitmix64): the same for ever.
pub(super) fn choices_of(seed: u64, count: usize) -> Vec<u16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..count).map(|_| (next() >> 48) as u16).collect()
}
