//! Numbers between ours and a cluster's: one count for all that the code asks for here, one count a kind there.
//!
//! Invariant: the numbers of a kind are 1, 2, 3, … in the order in which the code asked, as the official SDKs count them, so
//! that their replayers take these histories. What has ended is forgotten; a number is never given twice.

use std::collections::BTreeMap;

use bosun_engine::Seq;

/// What is counted by itself. Local activities are counted with activities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Activity,
    Timer,
    Child,
    ExternalSignal,
    ExternalCancel,
}

#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: BTreeMap<Kind, u32>,
    theirs: BTreeMap<Seq, (Kind, u32)>,
    ours: BTreeMap<(Kind, u32), Seq>,
}

impl Numbers {
    /// The next number of a kind, for what the code knows as `seq`.
    pub(super) fn give(&mut self, kind: Kind, seq: Seq) -> u32 {
        let number = self.give_to_nobody(kind);
        self.theirs.insert(seq, (kind, number));
        self.ours.insert((kind, number), seq);
        number
    }
    /// The next number of a kind, for something whose end the code does not wait for.
    pub(super) fn give_to_nobody(&mut self, kind: Kind) -> u32 {
        let last = self.last.entry(kind).or_default();
        *last += 1;
        *last
    }
    /// The number of something that has not ended.
    pub(super) fn of(&self, seq: Seq) -> Option<(Kind, u32)> {
        self.theirs.get(&seq).copied()
    }
    /// What the code knows as the number of a kind, while it has not ended.
    pub(super) fn ours(&self, kind: Kind, number: u32) -> Option<Seq> {
        self.ours.get(&(kind, number)).copied()
    }
    /// Forgets something that has ended, and says what the code knows it as.
    pub(super) fn ended(&mut self, kind: Kind, number: u32) -> Option<Seq> {
        let seq = self.ours.remove(&(kind, number))?;
        self.theirs.remove(&seq);
        Some(seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_counts_by_itself() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.give(Kind::Activity, Seq(1)), 1);
        assert_eq!(numbers.give(Kind::Timer, Seq(2)), 1);
        assert_eq!(numbers.give_to_nobody(Kind::Activity), 2);
        assert_eq!(numbers.give(Kind::Activity, Seq(4)), 3);
        assert_eq!(numbers.of(Seq(2)), Some((Kind::Timer, 1)));
        assert_eq!(numbers.ended(Kind::Activity, 1), Some(Seq(1)));
        assert_eq!(numbers.ended(Kind::Activity, 1), None, "once");
        assert_eq!(numbers.ended(Kind::Activity, 2), None, "nobody waits for it");
        assert_eq!(numbers.ours(Kind::Activity, 3), Some(Seq(4)));
    }
}
