//! The orders in which concurrent calls can end: all of them, one after the other, or samples by a seed.
//!
//! Invariant: the same choices give the same life; the first order is the straight one. It knows nothing of calls.

/// The choices of one life: at each point one of several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orders {
    /// What is chosen first; after it the first of all, or what the seed draws.
    planned: Vec<usize>,
    seed: Option<u64>,
    /// How many there were to choose from, and which was chosen.
    made: Vec<(usize, usize)>,
}

impl Orders {
    pub(crate) fn planned(planned: Vec<usize>) -> Orders {
        Orders { planned, ..Orders::default() }
    }
    pub(crate) fn seeded(seed: u64) -> Orders {
        Orders { seed: Some(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), ..Orders::default() }
    }

    pub(crate) fn choose(&mut self, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        let planned = self.planned.get(self.made.len()).copied();
        let chosen = match (planned, &mut self.seed) {
            (Some(planned), _) => planned,
            (None, None) => 0,
            (None, Some(state)) => {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (*state >> 33) as usize
            }
        };
        let chosen = chosen % count;
        self.made.push((count, chosen));
        chosen
    }

    /// How many orders there are if every life has the choices of this one.
    pub(crate) fn count(&self) -> usize {
        self.made.iter().fold(1, |all: usize, (count, _)| all.saturating_mul(*count))
    }

    /// The next order, in the order of counting.
    pub(crate) fn next(mut self) -> Option<Orders> {
        while let Some((count, chosen)) = self.made.pop() {
            if chosen + 1 < count {
                let planned = self.made.iter().map(|(_, chosen)| *chosen).chain([chosen + 1]).collect();
                return Some(Orders::planned(planned));
            }
        }
        None
    }

    /// As a person reads it: `2,1,1`.
    pub(crate) fn shown(&self) -> String {
        let chosen: Vec<String> = self.made.iter().map(|(_, chosen)| (chosen + 1).to_string()).collect();
        chosen.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_orders_of_three_are_six() {
        let (mut orders, mut seen) = (Some(Orders::default()), Vec::new());
        while let Some(mut order) = orders {
            let mut left = vec!['a', 'b', 'c'];
            let mut ended = String::new();
            while !left.is_empty() {
                ended.push(left.remove(order.choose(left.len())));
            }
            seen.push(ended);
            orders = order.next();
        }
        assert_eq!(seen, ["abc", "acb", "bac", "bca", "cab", "cba"]);
    }
}
