//! What a run waits for: every answer and every time, from the ask on until whoever asked hears of it.
//!
//! ```text
//!   asked ──► (put off, under way, held in a pause) ──► heard            a time: runs ⇄ stands still ──► come
//!     └──► taken back                                                              └──► taken back
//! ```
//!
//! A key is here from the moment in which it is asked for, also while `core::calls` puts the call off or keeps its answer, so
//! that strategies need no list of their own: they ask the outbox, with which this goes through a turn. A deadline of any kind
//! (of the run, of a decision, a delegation, an approval) is a time here; whoever wants one gives its length.
//!
//! Invariant: the answer to a key that is no longer here is ignored; a deadline that is held does not fire, and continues
//! with the rest of its time; the cost of a call is unknown from `reserved` to `settled`. It sends nothing: the outbox does.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};

use super::key::{Key, PeopleKey};

/// What an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerSource {
    Call,
    Child,
}

/// An answer that is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Pending {
    of: AnswerSource,
    /// Whoever asked waits for it.
    wanted: bool,
    /// It counts for the account, which does not know yet what it costs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reserved: bool,
    /// It is not asked for before a person has let it through, or before the run has gone on in a new one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    of_people: bool,
    /// It is of a run below that only people can bring on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    below_waits: bool,
}

impl Pending {
    fn of(of: AnswerSource) -> Pending {
        Pending { of, wanted: false, reserved: false, of_people: false, below_waits: false }
    }
}

/// A time that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Deadline {
    Until(Timestamp),
    /// It stands still, with so much left.
    #[serde(rename = "left")]
    Held(Duration),
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedKeys {
    answers: BTreeMap<Key, Pending>,
    times: BTreeMap<Key, Deadline>,
}

impl AwaitedKeys {
    /// An answer is asked for, for the first time or again.
    pub fn asked(&mut self, key: &Key, of: AnswerSource) {
        match self.answers.get_mut(key) {
            Some(pending) => pending.wanted = true,
            None => drop(self.answers.insert(key.clone(), Pending { wanted: true, ..Pending::of(of) })),
        }
    }

    /// Whoever asked hears the answer now, or does not want it any more. Whether it was waited for.
    pub fn heard(&mut self, key: &Key) -> bool {
        self.change(key, |pending| std::mem::take(&mut pending.wanted))
    }

    /// Nobody waits for it, and its cost is known: there is nothing more to it.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Pending) -> bool) -> bool {
        let Some(pending) = self.answers.get_mut(key) else { return false };
        let changed = change(pending);
        if !pending.wanted && !pending.reserved {
            self.answers.remove(key);
        }
        changed
    }

    pub fn awaits(&self, key: &Key) -> bool {
        self.answers.get(key).is_some_and(|pending| pending.wanted)
    }

    /// The calls whose answers are waited for, in the order of their keys: those of plans first.
    pub fn calls(&self) -> impl Iterator<Item = &Key> {
        let wanted = |pending: &Pending| pending.wanted && pending.of == AnswerSource::Call;
        self.answers.iter().filter(move |(_, pending)| wanted(pending)).map(|(key, _)| key)
    }

    /// Whether the call has to wait until it may begin: what is waited for is no work of whoever is called. Whether that
    /// has changed.
    pub fn may_not_begin(&mut self, key: &Key, waits: bool) -> bool {
        self.answers.get_mut(key).is_some_and(|pending| std::mem::replace(&mut pending.of_people, waits) != waits)
    }

    /// The calls that people have not let through yet, or that wait for the border.
    pub fn before_people(&self) -> impl Iterator<Item = &Key> {
        self.answers.iter().filter(|(_, pending)| pending.wanted && pending.of_people).map(|(key, _)| key)
    }

    /// Whether the run below that gives the answer only waits for people. Whether that has changed.
    pub fn waits_below(&mut self, key: &Key, waits: bool) -> bool {
        self.answers.get_mut(key).is_some_and(|pending| std::mem::replace(&mut pending.below_waits, waits) != waits)
    }

    /// Those calls, and the ones that are runs below which only people can bring on: whoever is called does not work.
    pub fn above_people(&self) -> impl Iterator<Item = &Key> {
        let waits = |pending: &Pending| pending.wanted && (pending.of_people || pending.below_waits);
        self.answers.iter().filter(move |(_, pending)| waits(pending)).map(|(key, _)| key)
    }

    /// The account counts it from now on.
    pub fn reserved(&mut self, key: &Key, of: AnswerSource) {
        self.answers.entry(key.clone()).or_insert(Pending::of(of)).reserved = true;
    }

    pub fn is_reserved(&self, key: &Key) -> bool {
        self.answers.get(key).is_some_and(|pending| pending.reserved)
    }

    /// What it cost is known, or will never be. Whether it was not before.
    pub fn settled(&mut self, key: &Key) -> bool {
        self.change(key, |pending| std::mem::take(&mut pending.reserved))
    }

    /// How many there are whose cost is not known yet.
    pub fn under_way(&self) -> usize {
        self.answers.values().filter(|pending| pending.reserved).count()
    }

    /// A time is waited for.
    pub fn until(&mut self, key: Key, at: Timestamp) {
        self.times.insert(key, Deadline::Until(at));
    }

    /// The time has come. Whether it was waited for.
    pub fn came(&mut self, key: &Key) -> bool {
        let runs = matches!(self.times.get(key), Some(Deadline::Until(_)));
        runs && self.times.remove(key).is_some()
    }

    /// Nobody waits for the time any more. Whether it stood still, so that there is no timer to be cancelled.
    pub fn taken_back(&mut self, key: &Key) -> bool {
        matches!(self.times.remove(key), Some(Deadline::Held(_)))
    }

    /// The time stands still from now on. Whether it ran.
    pub fn stands_still(&mut self, key: &Key, now: Timestamp) -> bool {
        let Some(time) = self.times.get_mut(key) else { return false };
        let Deadline::Until(at) = *time else { return false };
        *time = Deadline::Held(at.since(now));
        true
    }

    /// The time goes on, until when; nothing where it does not stand still.
    pub fn goes_on(&mut self, key: &Key, now: Timestamp) -> Option<Timestamp> {
        let time = self.times.get_mut(key)?;
        let Deadline::Held(left) = *time else { return None };
        let at = now.plus(left);
        *time = Deadline::Until(at);
        Some(at)
    }

    /// What is left of a time that is waited for.
    pub fn left(&self, key: &Key, now: Timestamp) -> Option<Duration> {
        self.times.get(key).map(|time| match *time {
            Deadline::Until(at) => at.since(now),
            Deadline::Held(left) => left,
        })
    }

    /// Whether the time is waited for, and passes.
    pub fn runs(&self, key: &Key) -> bool {
        matches!(self.times.get(key), Some(Deadline::Until(_)))
    }

    /// Whether the time is waited for, and comes then.
    pub fn comes(&self, key: &Key, at: Timestamp) -> bool {
        self.times.get(key) == Some(&Deadline::Until(at))
    }

    /// The times that are waited for, in the order of their keys: those of plans first.
    pub fn times(&self) -> impl Iterator<Item = &Key> {
        self.times.keys()
    }

    /// Those of decisions, running or not.
    pub fn times_of_decisions(&self) -> impl Iterator<Item = &Key> {
        // The keys before theirs are those of notifications.
        let first = Bound::Excluded(Key::People(PeopleKey::ApprovalNotify(u64::MAX)));
        let from_there = self.times.range((first, Bound::Unbounded)).map(|(key, _)| key);
        from_there.take_while(|key| matches!(key, Key::People(PeopleKey::DecisionTimeout(_))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::core::key::key;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    /// An answer is heard once; the account counts a call once, however often it is sent.
    #[test]
    fn an_answer_is_waited_for_once() {
        let (mut awaited, a) = (AwaitedKeys::default(), key::<Key>("execute/t/1"));
        awaited.asked(&a, AnswerSource::Call);
        assert!(awaited.awaits(&a) && !awaited.is_reserved(&a));
        awaited.reserved(&a, AnswerSource::Call);
        awaited.asked(&a, AnswerSource::Call);
        assert!(awaited.is_reserved(&a), "asked again after a pause, it counts still");
        assert_eq!((awaited.under_way(), awaited.settled(&a), awaited.settled(&a)), (1, true, false));
        assert_eq!((awaited.heard(&a), awaited.heard(&a)), (true, false));
        assert_eq!(awaited, AwaitedKeys::default(), "nothing is left");
        awaited.asked(&a, AnswerSource::Call);
        awaited.reserved(&a, AnswerSource::Call);
        assert!(awaited.heard(&a) && !awaited.awaits(&a), "nobody wants it any more");
        assert_eq!((awaited.calls().count(), awaited.under_way()), (0, 1), "and it costs what it costs");
        assert!(awaited.settled(&a) && awaited == AwaitedKeys::default());
        awaited.asked(&key("route/dag"), AnswerSource::Child);
        assert_eq!(awaited.calls().count(), 0, "a child is no call");
    }

    /// Who waits for people below was let through: it is above them, and not before them, until they have answered.
    #[test]
    fn who_waits_below_is_above_people_and_not_before_them() {
        let (mut awaited, a, b) = (AwaitedKeys::default(), key::<Key>("execute/t/1"), key::<Key>("execute/u/1"));
        [&a, &b].into_iter().for_each(|key| awaited.asked(key, AnswerSource::Call));
        assert!(awaited.may_not_begin(&b, true) && awaited.waits_below(&a, true) && !awaited.waits_below(&a, true));
        assert_eq!(awaited.above_people().collect::<Vec<_>>(), [&a, &b]);
        assert_eq!(awaited.before_people().collect::<Vec<_>>(), [&b]);
        assert!(awaited.waits_below(&a, false) && awaited.above_people().eq([&b]));
        assert!(awaited.heard(&a) && !awaited.waits_below(&a, true), "nobody waits for it any more");
    }

    /// What stands still keeps what is left, does not come, and goes on; each once.
    #[test]
    fn a_time_stands_still_and_goes_on() {
        let (mut awaited, wall) = (AwaitedKeys::default(), key::<Key>("budget/wall"));
        let second = Duration::from_secs(1);
        awaited.until(wall.clone(), NOW.plus(3 * second));
        assert!(awaited.stands_still(&wall, NOW.plus(second)) && !awaited.stands_still(&wall, NOW.plus(second)));
        assert!(!awaited.came(&wall) && !awaited.runs(&wall));
        let later = NOW.plus(50 * second);
        assert_eq!(awaited.left(&wall, later), Some(2 * second));
        assert_eq!(
            (awaited.goes_on(&wall, later), awaited.goes_on(&wall, later)),
            (Some(later.plus(2 * second)), None)
        );
        assert!(awaited.came(&wall) && !awaited.came(&wall));
        awaited.until(wall.clone(), later);
        assert!(!awaited.taken_back(&wall), "its timer is to be cancelled");
        awaited.until(wall.clone(), later);
        awaited.stands_still(&wall, NOW);
        assert!(awaited.taken_back(&wall), "there is none");
        assert_eq!((awaited.left(&wall, NOW), awaited), (None, AwaitedKeys::default()));
    }

    /// Plans look at the first of all keys to know whether they wait for anything.
    #[test]
    fn keys_of_plans_come_first() {
        let mut awaited = AwaitedKeys::default();
        let decision = |of: &str| Key::People(PeopleKey::DecisionTimeout(Box::new(key(of))));
        let of_people = [PeopleKey::ApprovalNotify(9), PeopleKey::InterruptDeadline(0)].map(Key::People);
        let others =
            [key("budget/wall"), key("retry/z/9"), key("deps/a"), decision("decide/1"), decision("chat/select/2")];
        others.into_iter().chain(of_people).for_each(|key| awaited.until(key, NOW));
        let of_plans: Vec<bool> = awaited.times().map(|key| matches!(key, Key::Graph(_))).collect();
        assert_eq!(of_plans, [true, true, false, false, false, false, false]);
        let of_decisions: Vec<Key> = awaited.times_of_decisions().cloned().collect();
        assert_eq!(of_decisions, [decision("decide/1"), decision("chat/select/2")]);
    }
}
