//! The account of a run: what it may spend, has spent, has lent to runs below, and what happens when it is used up.
//!
//! ```text
//!   a call ──► reserve ──► under way ──► settle ──► spent          exhausted = something is at its limit, or nobody can
//!               │  ▲                                                           make a call of what is left
//!               │  └── the last word, once (`on_exhausted: synthesize`)
//!               └──► withheld, or held until there is more (`on_exhausted: ask`)
//! ```
//!
//! Every call of every family is reserved here before it is sent and settled with what it cost when its answer is there,
//! whoever makes it: planners, deciders, reviewers, speakers, selectors, managers, guards and formatters like workers.
//! Tokens, money (in micros), calls and time are integers. A call that did not say what it cost is counted apart and is never
//! 0: where money is limited the account is used up by it, before people or the spec allow such calls.
//!
//! Invariant: once the account is exhausted no call is sent but one last word where the spec wants it. What calls cost is
//! known when they are over, so the run spends at most its budget and what those calls cost that were under way when it
//! was used up, each of them once, and that last word; of what was lent nothing is spent beyond the loan. What is settled
//! is settled once. It reads no clock and ends nothing: families end in their own way.

mod balance;

use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::balance::{
    Allowance, BUDGET_EXHAUSTED, Balance, Exhausted, Raises, SPENT, Spent, UsedUp, Withheld, is_zero,
};
use super::awaited::{AnswerSource, AwaitedKeys};
use super::key::{CoreKey, Key};
use super::loans::{Available, CallsAvailable, ComesFromAbove, Loans};
use crate::agent::ledger::{Resource, TopUp};
use crate::agent::machine::Lent;
use crate::agent::spec::Share;
use crate::supervisor::model::OnExhausted;
use crate::supervisor::outbox::{Call, Outbox};

const TIME_OF_RUN: &str = "the time of the run";

/// The account.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    balance: Balance,
    #[serde(default, skip_serializing_if = "Loans::is_empty")]
    pub loans: Loans,
    /// The end by the budget is noted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    noted: bool,
    /// The run above is asked for more, and has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked_above: Option<AskedAbove>,
}

/// More of its budget that a run below asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedAbove {
    pub resource: Resource,
    pub wanted: u64,
    /// More than this it may not have; none: no limit of its own.
    pub most: Option<u64>,
    /// It is on its way.
    is_sent: bool,
    /// Nobody needs it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_withdrawn: bool,
}

impl Account {
    pub fn new(allowance: Allowance, then: OnExhausted) -> Self {
        Account { balance: Balance::new(allowance, then), ..Account::default() }
    }

    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// Takes a call into the account before it is sent, or says why it is not sent. One that is sent again (its worker was
    /// lost, its provider wanted a key) counts once.
    pub fn reserve(&mut self, call: &Call, of: AnswerSource, awaited: &mut AwaitedKeys) -> Result<(), Withheld> {
        if awaited.is_reserved(&call.key) {
            return Ok(());
        }
        self.balance.weigh(call)?;
        self.balance.sent(call);
        awaited.reserved(&call.key, of);
        Ok(())
    }

    /// The call is over, and has cost this. Of one that is not under way nothing is charged.
    pub fn settle(&mut self, key: &Key, cost: Spent, awaited: &mut AwaitedKeys) {
        if awaited.settled(key) {
            self.balance.charge(cost);
        }
    }

    /// A run below counts as one call from its start until it tells how many it has made, also where what it does is a tool's
    /// work or free, and was not counted when it was sent.
    pub fn begins_below(&mut self, counted: bool) {
        if !counted {
            self.balance.spent.calls = self.balance.spent.calls.saturating_add(1);
        }
    }

    /// A run below called nobody: what it has counted as since its start was no call.
    pub fn called_nobody(&mut self) {
        self.balance.spent.calls = self.balance.spent.calls.saturating_sub(1);
    }

    /// What was spent by somebody whose call nobody waits for any more.
    pub fn charge_late(&mut self, cost: Spent) {
        self.balance.charge(cost);
    }

    /// The time of the run begins, if it is limited.
    pub fn start_clock(&self, out: &mut Outbox) {
        if let Some(wall) = self.balance.allowance.wall_ms {
            out.timer(CoreKey::Wall, out.now().plus(Duration::from_millis(wall)), TIME_OF_RUN);
        }
    }

    /// The time of the run passes while it works, and stands still while it only waits for people.
    pub fn keep_clock(&self, works: bool, out: &mut Outbox) {
        out.keep_time(CoreKey::Wall, works, || TIME_OF_RUN.to_owned());
    }

    /// What a run below may take of time: what is left of it.
    pub fn left_for_child(&self, now: Timestamp, awaited: &AwaitedKeys) -> Option<u64> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let left = awaited.left(&CoreKey::Wall.into(), now).map(ms);
        left.or(self.balance.out_of_time.then_some(0))
    }

    pub fn time_is_over(&mut self) {
        self.balance.time_is_over();
    }

    /// Somebody stopped for want of budget, and nobody is left who could give something back.
    pub fn too_little_is_left(&mut self) {
        self.balance.too_little = true;
    }

    /// What was lent by a run above is the run's own from here on: what its spec says happens when it is used up.
    pub fn own(&mut self, then: OnExhausted) {
        (self.balance.then, self.balance.raises, self.asked_above) = (then, Raises::default(), None);
    }

    /// The budget is a part of that of a run above, which may raise it so far.
    pub fn is_part(&mut self, raises: Raises) {
        self.balance.raises = raises;
    }

    /// Asks the run above for more: for what is used up, or for what somebody below wants who cannot be given it here. Whether
    /// it is asked, now or already.
    pub fn ask_above(&mut self, free: Available) -> bool {
        if self.asked_above.is_some() {
            return true;
        }
        let (spent, limits) = (self.balance.spent, self.balance.allowance);
        let over = |limit: Option<u64>, spent: u64| spent.saturating_sub(limit.unwrap_or_default()).saturating_add(1);
        let used_up = self.balance.short_of().map(|what| match what {
            Resource::Cost => (what, over(limits.cost_micros, spent.cost_micros)),
            Resource::Steps => (what, over(limits.calls, spent.calls)),
            Resource::Unpriced => (what, 1),
            _ => (what, over(limits.tokens, spent.tokens)),
        });
        let room = |what: Resource| self.balance.room_above(what);
        let wanted = || self.loans.lacks(free).filter(|(what, _)| room(*what).is_some());
        self.asked_above = used_up.or_else(wanted).map(|(resource, wanted)| {
            // Without a limit of its own there is always room.
            let most = room(resource).filter(|room| *room < u64::MAX / 2);
            AskedAbove {
                resource,
                wanted: most.map_or(wanted, |most| wanted.min(most)),
                most,
                is_sent: false,
                is_withdrawn: false,
            }
        });
        self.asked_above.is_some()
    }

    /// Nobody needs what the run above was asked for: it hears so, and asks nobody for it.
    pub fn withdraw_from_above(&mut self) {
        self.asked_above.take_if(|asked| !asked.is_sent);
        if let Some(asked) = self.asked_above.as_mut().filter(|asked| !asked.is_withdrawn) {
            *asked = AskedAbove { wanted: 0, most: Some(0), is_sent: false, is_withdrawn: true, ..*asked };
        }
    }

    /// Whether the run above is asked for something.
    pub fn has_asked_above(&self) -> bool {
        self.asked_above.is_some_and(|asked| !asked.is_withdrawn)
    }

    /// What is to be asked of the run above, once.
    pub fn next_ask_above(&mut self) -> Option<AskedAbove> {
        let asked = self.asked_above.as_mut().filter(|asked| !asked.is_sent)?;
        asked.is_sent = true;
        Some(*asked)
    }

    /// The run above has answered: what it gives, and whether that is all. `false`: it was not asked.
    pub fn lent_from_above(&mut self, lent: &Lent) -> bool {
        let Share { tokens, cost_micros } = lent.more;
        let gives = [tokens, cost_micros, lent.calls].into_iter().flatten().any(|more| more > 0);
        // One that was withdrawn may be answered twice: for what it was, and for that it was withdrawn.
        let Some(asked) = self.asked_above.take_if(|asked| asked.is_sent) else { return !gives && !lent.last };
        let allow_unpriced = asked.resource == Resource::Unpriced && !lent.last && !asked.is_withdrawn;
        self.top_up(&TopUp { tokens, cost_micros, calls: lent.calls, allow_unpriced, ..TopUp::default() });
        let raises = &mut self.balance.raises;
        match asked.resource {
            _ if !lent.last => {}
            Resource::Tokens => raises.tokens = None,
            Resource::Cost => raises.cost_micros = None,
            Resource::Steps => raises.calls = None,
            _ => raises.leave = false,
        }
        true
    }

    /// Raises what is limited, and allows calls of unknown price where money is. Whether anything was.
    pub fn top_up(&mut self, more: &TopUp) -> bool {
        let raise = |limit: &mut Option<u64>, more: Option<u64>| match (limit, more) {
            (Some(limit), Some(more)) => {
                *limit = limit.saturating_add(more);
                true
            }
            _ => false,
        };
        let limits = &mut self.balance.allowance;
        let raised = [
            raise(&mut limits.tokens, more.tokens),
            raise(&mut limits.cost_micros, more.cost_micros),
            raise(&mut limits.calls, more.calls),
            more.allow_unpriced && limits.cost_micros.is_some(),
        ];
        limits.unpriced |= raised[3];
        let any = raised.contains(&true);
        self.balance.too_little &= !raised[..3].contains(&true);
        any
    }

    /// What may be lent. `alone`: one works at a time.
    pub fn free(&self, alone: bool) -> Available {
        let (left, lent) = (self.balance.left(), self.loans.lent());
        let free = |left: Option<u64>, lent: Option<u64>| left.map(|left| left.saturating_sub(lent.unwrap_or(0)));
        let free =
            Share { tokens: free(left.tokens, lent.tokens), cost_micros: free(left.cost_micros, lent.cost_micros) };
        let (asks, needs_prices) = (self.balance.then == OnExhausted::Ask, self.balance.needs_prices());
        let above = |what: Resource| self.balance.room_above(what).is_some();
        let (tokens, money, calls) = (above(Resource::Tokens), above(Resource::Cost), above(Resource::Steps));
        let from_above = ComesFromAbove { tokens, money, calls, leave: above(Resource::Unpriced) };
        let lent_calls = self.loans.lent_calls();
        let calls = self.balance.calls_left();
        let calls = calls.map(|left| CallsAvailable { left, free: left.saturating_sub(lent_calls) });
        Available { left, free, calls, alone, asks, needs_prices, from_above }
    }

    /// The note that the budget has ended the run, the first time. `now` counts what this very turn has begun too.
    pub fn note_of_end(&mut self, now: &Balance) -> Option<Value> {
        let first = !std::mem::replace(&mut self.noted, true);
        first.then(|| now.note())
    }

    /// For the query `budget`. `limits`: those of the spec; what may be spent with all that was added since is `allowed`.
    pub fn view(&self, limits: Value, awaited: &AwaitedKeys) -> Value {
        let Balance { spent, allowance, .. } = self.balance;
        let Share { tokens, cost_micros } = self.balance.left();
        let left = json!({ "tokens": tokens, "cost_micros": cost_micros, "calls": self.balance.calls_left() });
        let mut view = json!({
            "spent": spent, "limits": limits, "left": left, "lent": self.loans.lent(), "under_way": awaited.under_way(),
            "used_up": self.balance.used_up(), "allowed": allowance,
        });
        if self.loans.lent_calls() > 0 {
            view["lent"]["calls"] = self.loans.lent_calls().into();
        }
        if self.balance.needs_prices() && self.loans.wants_leave() {
            view["wants_leave"] = true.into();
        }
        view
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::supervisor::core::key::GraphKey;
    use crate::supervisor::outbox::Purpose;

    fn key(attempt: u32) -> Key {
        GraphKey::Plan { attempt }.into()
    }

    fn call(attempt: u32) -> Call {
        Call::new(key(attempt), Purpose::Review, Value::Null)
    }

    fn limits(tokens: u64, calls: Option<u64>) -> Allowance {
        Allowance { tokens: Some(tokens), calls, ..Allowance::default() }
    }

    #[test]
    fn a_call_counts_once_and_costs_once() {
        let (mut awaited, mut account) = (AwaitedKeys::default(), Account::new(limits(10, Some(2)), OnExhausted::Stop));
        let cost = Spent { tokens: 4, calls: 1, ..Spent::default() };
        assert_eq!(
            (
                account.reserve(&call(1), AnswerSource::Call, &mut awaited),
                account.reserve(&call(1), AnswerSource::Call, &mut awaited)
            ),
            (Ok(()), Ok(()))
        );
        assert_eq!(account.balance().spent.calls, 1, "sent twice, counted once");
        account.settle(&key(1), cost, &mut awaited);
        account.settle(&key(1), cost, &mut awaited);
        account.settle(&key(9), cost, &mut awaited);
        assert_eq!(account.balance().spent, cost);
        assert_eq!(account.reserve(&call(2), AnswerSource::Call, &mut awaited), Ok(()));
        account.settle(&key(2), Spent { calls: 5, ..cost }, &mut awaited);
        assert_eq!(account.balance().spent.calls, 6, "calls of an agent below are calls");
        assert_eq!(account.reserve(&call(3), AnswerSource::Call, &mut awaited), Err(Withheld::ForGood));
        assert_eq!(account.balance().used_up(), Some(UsedUp::Calls));
    }

    /// `synthesize` has one last word, `stop` and `fail` have none, and `ask` waits; plumbing is never withheld.
    #[test]
    fn what_is_sent_of_an_exhausted_account() {
        use OnExhausted::{Ask, Fail, Stop, Synthesize};
        for (then, last, other) in [
            (Synthesize, Ok(()), Withheld::ForGood),
            (Stop, Err(Withheld::ForGood), Withheld::ForGood),
            (Fail, Err(Withheld::ForGood), Withheld::ForGood),
            (Ask, Err(Withheld::UntilThereIsMore), Withheld::UntilThereIsMore),
        ] {
            let (mut awaited, mut account) = (AwaitedKeys::default(), Account::new(limits(0, None), then));
            assert_eq!(account.reserve(&call(1), AnswerSource::Call, &mut awaited), Err(other), "{then:?}");
            assert_eq!(account.reserve(&call(2).last_word(), AnswerSource::Call, &mut awaited), last, "{then:?}");
            assert_eq!(
                account.reserve(&call(3).last_word(), AnswerSource::Call, &mut awaited),
                Err(other),
                "once: {then:?}"
            );
            assert_eq!(
                account.reserve(&Call { purpose: Purpose::Compensate, ..call(4) }, AnswerSource::Call, &mut awaited),
                Ok(()),
                "{then:?}"
            );
            assert_eq!(account.balance().spent.calls, u64::from(last.is_ok()), "{then:?}");
        }
    }

    /// Who asks is given more, but for time; what nobody limits cannot be raised.
    #[test]
    fn more_is_given_of_what_is_limited() {
        let (mut awaited, mut account) = (AwaitedKeys::default(), Account::new(limits(5, None), OnExhausted::Ask));
        account.reserve(&call(1), AnswerSource::Call, &mut awaited).unwrap();
        account.settle(&key(1), Spent { tokens: 5, calls: 1, ..Spent::default() }, &mut awaited);
        assert!(account.balance().asks() && account.balance().exhausted().is_none());
        assert!(!account.top_up(&TopUp { cost_micros: Some(5), ..TopUp::default() }));
        assert!(account.balance().asks());
        assert!(account.top_up(&TopUp { tokens: Some(1), ..TopUp::default() }));
        assert_eq!(
            (account.balance().used_up(), account.reserve(&call(2), AnswerSource::Call, &mut awaited)),
            (None, Ok(()))
        );
        account.time_is_over();
        assert_eq!(account.balance().exhausted(), Some(Exhausted::Stop), "time cannot be given");
    }

    proptest! {
        /// The bound: whatever calls cost, in whatever order they are made and end, what was charged exceeds the budget by
        /// no more than what the calls cost that were under way when it was used up, and one last word.
        #[test]
        fn no_more_is_charged_than_the_budget_and_what_was_under_way(
            tokens in 0u64..500,
            calls in proptest::option::of(0u64..20),
            ends in prop::collection::vec((any::<bool>(), 0u64..200, any::<prop::sample::Index>()), 1..80),
        ) {
            let (mut awaited, mut account) = (AwaitedKeys::default(), Account::new(limits(tokens, calls), OnExhausted::Synthesize));
            let (mut under_way, mut late, mut made) = (Vec::new(), 0u64, 0u64);
            for (number, (begins, cost, which)) in ends.into_iter().enumerate() {
                let exhausted = account.balance().used_up().is_some();
                if begins || under_way.is_empty() {
                    let call = call(number as u32);
                    let call = if number % 7 == 0 { call.last_word() } else { call };
                    let sent = account.reserve(&call, AnswerSource::Call, &mut awaited).is_ok();
                    prop_assert!(!exhausted || call.last || !sent, "nothing is sent of an exhausted account");
                    made += u64::from(sent && !exhausted);
                    under_way.extend(sent.then_some(number));
                } else {
                    let number = under_way.remove(which.index(under_way.len()));
                    let before = account.balance().spent.tokens;
                    account.settle(&key(number as u32), Spent { tokens: cost, calls: 1, ..Spent::default() }, &mut awaited);
                    // Of the call that uses it up, only what goes beyond it.
                    late += cost.saturating_sub(tokens.saturating_sub(before));
                }
                let spent = account.balance().spent;
                prop_assert!(spent.tokens <= tokens + late);
                prop_assert!(calls.is_none_or(|calls| made <= calls && spent.calls <= calls + 1));
            }
        }
    }
}
