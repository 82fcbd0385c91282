//! The budget of an agent and of all agents below it: what may be spent, is held back, and was spent.
//!
//! ```text
//!   reserve ──► held ──► settle ──► spent          remaining = cap − spent − held
//! ```
//!
//! Invariant: at every reservation `spent + held` is within every cap; what is settled leaves what was held, once, so
//! that the sums are the same however often the run is replayed. Money that nobody named is counted apart and is never
//! 0 (the requirements of operating §3.5). Integers only. It reads no clock and decides nothing about what happens when it is used up.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use super::limits::TopUp;
use super::spec::{Limits, Price, Share};
pub use super::wall::Wall;
use crate::capability::model::Usage;

/// What a budget is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    Steps,
    ToolCalls,
    Tokens,
    Cost,
    Wall,
    /// Money is limited, and a call did not say what it cost.
    Unpriced,
}

/// An amount of everything that is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amount {
    pub steps: u64,
    pub tool_calls: u64,
    pub tokens: u64,
    pub cost_micros: u64,
}

/// The most of everything that is counted; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Caps {
    pub steps: Option<u64>,
    pub tool_calls: Option<u64>,
    pub tokens: Option<u64>,
    pub cost_micros: Option<u64>,
}

/// What is told of calls that did not say all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnknownUsage {
    /// Calls without a known cost.
    pub unpriced_calls: u64,
    /// Calls whose tokens were counted as they had been estimated.
    pub estimated_calls: u64,
}

/// The calls of one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub calls: u64,
    pub tokens: u64,
    pub cost_micros: u64,
    pub unpriced_calls: u64,
}

/// What was spent for a key, and what of it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bill {
    pub amount: Amount,
    pub unknown: UnknownUsage,
}

/// The budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetLedger {
    caps: Caps,
    /// What is lent of the budget of a run, which binds like the caps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<Share>,
    spent: Amount,
    held: BTreeMap<u64, Amount>,
    unknown: UnknownUsage,
    by_model: BTreeMap<String, Tally>,
    /// The dearest call so far: what the next one is expected to cost where no price is known.
    dearest_micros: u64,
    pub(super) wall: Wall,
}

impl Amount {
    fn fields(&self) -> [(Resource, u64); 4] {
        [
            (Resource::Steps, self.steps),
            (Resource::ToolCalls, self.tool_calls),
            (Resource::Tokens, self.tokens),
            (Resource::Cost, self.cost_micros),
        ]
    }
    pub fn plus(self, other: Amount) -> Amount {
        Amount {
            steps: self.steps.saturating_add(other.steps),
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
            tokens: self.tokens.saturating_add(other.tokens),
            cost_micros: self.cost_micros.saturating_add(other.cost_micros),
        }
    }
}

impl Caps {
    pub fn of(limits: &Limits) -> Caps {
        Caps {
            steps: limits.max_steps,
            tool_calls: limits.max_tool_calls,
            tokens: limits.max_tokens,
            cost_micros: limits.max_cost_micros,
        }
    }
    fn of_resource(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Steps => self.steps,
            Resource::ToolCalls => self.tool_calls,
            Resource::Tokens => self.tokens,
            Resource::Cost => self.cost_micros,
            Resource::Wall | Resource::Unpriced => None,
        }
    }
    /// The smaller of both, in everything.
    pub fn within(self, other: Caps) -> Caps {
        let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Caps {
            steps: least(self.steps, other.steps),
            tool_calls: least(self.tool_calls, other.tool_calls),
            tokens: least(self.tokens, other.tokens),
            cost_micros: least(self.cost_micros, other.cost_micros),
        }
    }
    /// What a lease of these caps takes away: what is not limited below is not limited above, and takes nothing.
    pub fn amount(self) -> Amount {
        Amount {
            steps: self.steps.unwrap_or(0),
            tool_calls: self.tool_calls.unwrap_or(0),
            tokens: self.tokens.unwrap_or(0),
            cost_micros: self.cost_micros.unwrap_or(0),
        }
    }
}

impl Tally {
    /// A provider that claims absurd numbers must not end the run.
    fn add(&mut self, more: Tally) {
        self.calls = self.calls.saturating_add(more.calls);
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost_micros = self.cost_micros.saturating_add(more.cost_micros);
        self.unpriced_calls = self.unpriced_calls.saturating_add(more.unpriced_calls);
    }
}

impl BudgetLedger {
    pub fn new(caps: Caps, wall: Wall) -> BudgetLedger {
        BudgetLedger { caps, wall, ..BudgetLedger::default() }
    }
    pub fn spent(&self) -> Amount {
        self.spent
    }
    pub fn caps(&self) -> Caps {
        self.caps
    }
    pub fn unknown(&self) -> UnknownUsage {
        self.unknown
    }
    pub fn held(&self) -> Amount {
        self.held.values().fold(Amount::default(), |sum, held| sum.plus(*held))
    }
    pub fn remaining(&self) -> Caps {
        let Share { tokens, cost_micros } = self.share.unwrap_or_default();
        self.left_of(self.caps.within(Caps { tokens, cost_micros, ..Caps::default() }))
    }
    fn left_of(&self, caps: Caps) -> Caps {
        let taken = self.spent.plus(self.held());
        let left = |cap: Option<u64>, taken: u64| cap.map(|cap| cap.saturating_sub(taken));
        Caps {
            steps: left(caps.steps, taken.steps),
            tool_calls: left(caps.tool_calls, taken.tool_calls),
            tokens: left(caps.tokens, taken.tokens),
            cost_micros: left(caps.cost_micros, taken.cost_micros),
        }
    }
    /// Begins with a share; only then can more be lent.
    pub fn with_share(self, share: Option<Share>) -> BudgetLedger {
        BudgetLedger { share, ..self }
    }
    /// What was lent is a cap like others.
    pub fn own(&mut self) {
        let Share { tokens, cost_micros } = self.share.take().unwrap_or_default();
        self.caps = self.caps.within(Caps { tokens, cost_micros, ..Caps::default() });
    }
    /// The share grows; what is not lent stays so.
    pub fn lend(&mut self, more: Share) {
        self.share = self.share.map(|share| share.plus(more));
    }
    /// How much more of the share this needs, as far as the caps have it.
    pub fn short_of_share(&self, resource: Resource, wanted: u64) -> Option<u64> {
        let own = self.left_of(self.caps).of_resource(resource);
        let wanted = own.map_or(wanted, |own| wanted.min(own));
        wanted.checked_sub(self.remaining().of_resource(resource)?).filter(|missing| *missing > 0)
    }
    /// Whether the share is what has the least left.
    pub fn share_binds(&self, resource: Resource) -> bool {
        let own = self.left_of(self.caps).of_resource(resource);
        self.remaining().of_resource(resource).is_some_and(|left| own.is_none_or(|own| left < own))
    }

    /// Holds an amount back, or says what there is too little of. A key is held once.
    pub fn reserve(&mut self, key: u64, amount: Amount) -> Result<(), Resource> {
        let remaining = self.remaining();
        for (resource, wanted) in amount.fields() {
            if remaining.of_resource(resource).is_some_and(|left| wanted > left) {
                return Err(resource);
            }
        }
        self.held.insert(key, amount);
        Ok(())
    }

    /// What was held for a key is spent as the bill says. Settling again changes nothing.
    pub fn settle(&mut self, key: u64, bill: Bill) {
        if self.held.remove(&key).is_some() {
            self.spent = self.spent.plus(bill.amount);
            let UnknownUsage { unpriced_calls, estimated_calls } = bill.unknown;
            self.unknown.unpriced_calls = self.unknown.unpriced_calls.saturating_add(unpriced_calls);
            self.unknown.estimated_calls = self.unknown.estimated_calls.saturating_add(estimated_calls);
        }
    }
    /// Nobody knows what was spent: all that was held. Without a price that is the money of the dearest call so far (G41), and told
    /// as unknown; a guess before any call has told its cost is no amount.
    pub fn settle_lost(&mut self, key: u64, priced: bool) {
        if let Some(held) = self.held.get(&key).copied() {
            let amount = lost(held, priced, self.dearest_micros);
            let unknown = UnknownUsage { unpriced_calls: u64::from(!priced), estimated_calls: 1 };
            self.settle(key, Bill { amount, unknown });
        }
    }
    /// Attempts of a call of a model that were cut, and that another one followed: each may have taken what is held for the
    /// call. It is the same step all the same, and what is held stays held.
    pub fn count_cut(&mut self, key: u64, model: &str, times: u32, priced: bool) {
        let Some(held) = self.held.get(&key).copied() else { return };
        for _ in 0..times {
            self.held.insert(key, Amount { steps: 0, ..held });
            self.settle_lost_model(key, model, priced);
        }
        self.held.insert(key, held);
    }
    /// A call of a model whose end nobody knows, told by model.
    pub fn settle_lost_model(&mut self, key: u64, model: &str, priced: bool) {
        let Some(held) = self.held.get(&key).copied() else { return };
        let Amount { tokens, cost_micros, .. } = lost(held, priced, self.dearest_micros);
        self.settle_lost(key, priced);
        let tally = self.by_model.entry(model.to_owned()).or_default();
        tally.add(Tally { calls: 1, tokens, cost_micros, unpriced_calls: u64::from(!priced) });
    }
    /// A call of a model: as [`BudgetLedger::settle`], and told by model.
    pub fn settle_model(&mut self, key: u64, model: &str, tokens: Option<u64>, cost_micros: Option<u64>) {
        let Some(held) = self.held.get(&key).copied() else { return };
        let amount = Amount {
            steps: 1,
            tokens: tokens.unwrap_or(held.tokens),
            cost_micros: cost_micros.unwrap_or(0),
            ..Amount::default()
        };
        let unknown = UnknownUsage {
            unpriced_calls: u64::from(cost_micros.is_none()),
            estimated_calls: u64::from(tokens.is_none()),
        };
        self.settle(key, Bill { amount, unknown });
        self.dearest_micros = self.dearest_micros.max(amount.cost_micros);
        let tally = self.by_model.entry(model.to_owned()).or_default();
        let (tokens, cost_micros) = (amount.tokens, amount.cost_micros);
        tally.add(Tally { calls: 1, tokens, cost_micros, unpriced_calls: unknown.unpriced_calls });
    }
    /// What agents below have spent by model; the sum is in their bill.
    pub fn tally(&mut self, by_model: &BTreeMap<String, Tally>) {
        for (model, more) in by_model {
            self.by_model.entry(model.clone()).or_default().add(*more);
        }
    }
    pub fn by_model(&self) -> &BTreeMap<String, Tally> {
        &self.by_model
    }
    /// What is held for a key.
    pub fn held_for(&self, key: u64) -> Amount {
        self.held.get(&key).copied().unwrap_or_default()
    }
    /// The keys that something is held for, in order.
    pub fn held_keys(&self) -> Vec<u64> {
        self.held.keys().copied().collect()
    }

    /// What a call of a model is expected to cost.
    pub fn expected_micros(&self, price: Option<Price>, input_tokens: u64, output_tokens: u64) -> u64 {
        match price {
            Some(price) => cost_micros(price, input_tokens, output_tokens),
            // Nothing is known yet: it costs something, so that an empty purse buys nothing.
            None if self.unknown.unpriced_calls == 0 => self.dearest_micros.max(1),
            None => self.dearest_micros,
        }
    }
    /// Raises caps; what is not limited stays so.
    pub fn top_up(&mut self, more: &TopUp, now: Timestamp) {
        let raise = |cap: &mut Option<u64>, by: Option<u64>| {
            if let (Some(cap), Some(by)) = (cap, by) {
                *cap = cap.saturating_add(by);
            }
        };
        raise(&mut self.caps.tokens, more.tokens);
        raise(&mut self.caps.cost_micros, more.cost_micros);
        raise(&mut self.caps.steps, more.calls);
        raise(&mut self.caps.tool_calls, more.calls);
        self.wall.extend(Duration::from_millis(more.wall_ms.unwrap_or(0)), now);
    }
    /// The part of tokens or money that is taken, in thousandths; the larger one. Of a share that grows no more
    /// (`last_of`), it is a limit like others.
    pub fn taken_permille(&self, last_of: &[Resource]) -> u64 {
        let share = self.share.unwrap_or_default();
        let last = |resource, part: Option<u64>| part.filter(|_| last_of.contains(&resource));
        let (tokens, cost_micros) = (last(Resource::Tokens, share.tokens), last(Resource::Cost, share.cost_micros));
        let caps = self.caps.within(Caps { tokens, cost_micros, ..Caps::default() });
        let taken = self.spent.plus(self.held());
        let part = |cap: Option<u64>, taken: u64| match cap {
            Some(0) => 1_000,
            Some(cap) => u64::try_from(u128::from(taken) * 1_000 / u128::from(cap)).unwrap_or(u64::MAX),
            None => 0,
        };
        part(caps.tokens, taken.tokens).max(part(caps.cost_micros, taken.cost_micros))
    }
    /// For the query `cost`.
    pub fn cost_view(&self) -> Value {
        json!({
            "spent": self.spent, "unpriced_calls": self.unknown.unpriced_calls,
            "estimated_calls": self.unknown.estimated_calls, "by_model": self.by_model,
        })
    }
    /// For the query `budget`.
    pub fn budget_view(&self, now: Timestamp) -> Value {
        json!({
            "caps": self.caps, "share": self.share, "spent": self.spent, "held": self.held(), "remaining": self.remaining(),
            "wall_left_ms": self.wall.left(now).map(|left| left.as_millis()),
            "unpriced_calls": self.unknown.unpriced_calls, "calls": self.calls(),
        })
    }
    /// Calls of models, with the attempts that were cut: each may have to be paid for, and is no step.
    fn calls(&self) -> u64 {
        let told = self.by_model.values().fold(0, |sum: u64, one| sum.saturating_add(one.calls));
        self.spent.steps.max(told)
    }
}

/// What a call of which this was held is told to have taken, where nobody knows: without a price, the money of the dearest call
/// so far, and none where no call has told any.
fn lost(held: Amount, priced: bool, dearest_micros: u64) -> Amount {
    if priced { held } else { Amount { cost_micros: held.cost_micros.min(dearest_micros), ..held } }
}

/// What a call took, by this price; unknown where it does not say how many tokens that were.
pub fn cost_by(price: Price, usage: &Usage) -> Option<u64> {
    Some(cost_micros(price, usage.input?, usage.output?))
}

/// What so many tokens cost, rounded up.
pub fn cost_micros(price: Price, input_tokens: u64, output_tokens: u64) -> u64 {
    let input = u128::from(price.input) * u128::from(input_tokens);
    let cost = input.saturating_add(u128::from(price.output) * u128::from(output_tokens));
    u64::try_from(cost.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn caps(tokens: u64) -> Caps {
        Caps { tokens: Some(tokens), ..Caps::default() }
    }
    fn tokens(tokens: u64) -> Amount {
        Amount { tokens, ..Amount::default() }
    }

    #[test]
    fn what_is_held_cannot_be_held_again() {
        let mut ledger = BudgetLedger::new(caps(100), Wall::default());
        assert_eq!(ledger.reserve(1, tokens(60)), Ok(()));
        assert_eq!(ledger.reserve(2, tokens(60)), Err(Resource::Tokens));
        ledger.settle(1, Bill { amount: tokens(10), ..Bill::default() });
        ledger.settle(1, Bill { amount: tokens(10), ..Bill::default() });
        assert_eq!(ledger.spent(), tokens(10), "a second settlement of the same key changes nothing");
        assert_eq!(ledger.reserve(2, tokens(90)), Ok(()));
        assert_eq!(ledger.remaining().tokens, Some(0));
    }

    #[test]
    fn money_that_nobody_named_is_not_zero() {
        let mut ledger = BudgetLedger::new(Caps { cost_micros: Some(0), ..Caps::default() }, Wall::default());
        let expected = ledger.expected_micros(None, 10, 10);
        assert_eq!(ledger.reserve(1, Amount { cost_micros: expected, ..Amount::default() }), Err(Resource::Cost));
        assert_eq!(ledger.reserve(1, Amount { steps: 1, tokens: 7, ..Amount::default() }), Ok(()));
        ledger.settle_model(1, "m", None, None);
        assert_eq!(ledger.unknown(), UnknownUsage { unpriced_calls: 1, estimated_calls: 1 });
        assert_eq!(ledger.spent().tokens, 7, "unknown tokens count as they were estimated");
        assert_eq!(ledger.cost_view()["by_model"]["m"]["unpriced_calls"], 1);
    }

    #[test]
    fn a_lost_call_is_told_by_model_and_its_money_is_unknown_without_a_price() {
        let mut ledger = BudgetLedger::new(Caps::default(), Wall::default());
        let held = Amount { steps: 1, tokens: 7, cost_micros: 3, ..Amount::default() };
        for (key, priced) in [(1, true), (2, false)] {
            ledger.reserve(key, held).unwrap();
            ledger.settle_lost_model(key, "m", priced);
        }
        assert_eq!(ledger.spent(), Amount { steps: 2, tokens: 14, cost_micros: 3, ..Amount::default() });
        assert_eq!(ledger.unknown(), UnknownUsage { unpriced_calls: 1, estimated_calls: 2 });
        assert_eq!(ledger.by_model()["m"], Tally { calls: 2, tokens: 14, cost_micros: 3, unpriced_calls: 1 });
    }

    #[test]
    fn a_price_is_rounded_up_and_never_overflows() {
        assert_eq!(cost_micros(Price { input: 3_000_000, output: 15_000_000 }, 1_000, 100), 4_500);
        assert_eq!(cost_micros(Price { input: 1, output: 0 }, 1, 0), 1);
        assert_eq!(cost_micros(Price { input: u64::MAX, output: u64::MAX }, u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn waiting_for_people_takes_no_time() {
        let second = |n: u64| Timestamp(n as i64 * 1_000_000);
        let mut wall = Wall::new(Some(Duration::from_secs(10)), second(0));
        wall.halt(second(4));
        assert_eq!(wall.left(second(900)), Some(Duration::from_secs(6)));
        wall.go_on(second(1_000));
        assert!(!wall.is_over(second(1_005)));
        assert!(wall.is_over(second(1_006)));
        wall.extend(Duration::from_secs(3), second(1_020));
        assert_eq!(wall.left(second(1_020)), Some(Duration::from_secs(3)));
    }

    proptest! {
        #[test]
        fn spent_and_held_stay_within_the_cap_and_add_up(
            cap in 0..200_u64,
            acts in prop::collection::vec((0..8_u64, 0..60_u64, any::<bool>()), 0..60),
        ) {
            let mut ledger = BudgetLedger::new(caps(cap), Wall::default());
            let (mut held, mut spent) = (BTreeMap::new(), 0);
            for (key, amount, reserve) in acts {
                if reserve && !held.contains_key(&key) {
                    if ledger.reserve(key, tokens(amount)).is_ok() {
                        held.insert(key, amount);
                    } else {
                        prop_assert!(spent + held.values().sum::<u64>() + amount > cap);
                    }
                } else if let Some(most) = held.remove(&key) {
                    spent += amount.min(most);
                    ledger.settle(key, Bill { amount: tokens(amount.min(most)), ..Bill::default() });
                }
                prop_assert_eq!(ledger.spent().tokens, spent);
                prop_assert_eq!(ledger.held().tokens, held.values().sum::<u64>());
                prop_assert!(ledger.spent().tokens + ledger.held().tokens <= cap);
            }
        }
    }
}
