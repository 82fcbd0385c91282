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
//!
//! Long: the balance and the account that keeps it; whoever changes a rule of one has the other before them.

use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::awaited::{AnswerSource, AwaitedKeys};
use super::key::{CoreKey, Key};
use super::loans::{Available, ComesFromAbove, Loans};
use crate::agent::ledger::{Resource, TopUp};
use crate::agent::machine::Lent;
use crate::agent::spec::Share;
use crate::supervisor::model::OnExhausted;
use crate::supervisor::outbox::{Call, Outbox, Weight};

/// What is said of everything that the budget leaves undone.
pub const SPENT: &str = "the budget of the run is spent";
const TIME_OF_RUN: &str = "the time of the run";

/// The most that may be spent; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allowance {
    pub tokens: Option<u64>,
    pub cost_micros: Option<u64>,
    pub calls: Option<u64>,
    pub wall_ms: Option<u64>,
    /// Calls that do not say what they cost may go on while money is limited.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

/// Tokens, money and calls: of one call, or of all so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    pub tokens: u64,
    pub cost_micros: u64,
    pub calls: u64,
    /// Those of the calls of which nobody knows what they cost; no part of the money.
    #[serde(skip_serializing_if = "is_zero")]
    pub unpriced_calls: u64,
}

pub fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Spent {
    fn plus(self, more: Spent) -> Spent {
        Spent {
            tokens: self.tokens.saturating_add(more.tokens),
            cost_micros: self.cost_micros.saturating_add(more.cost_micros),
            calls: self.calls.saturating_add(more.calls),
            unpriced_calls: self.unpriced_calls.saturating_add(more.unpriced_calls),
        }
    }
}

/// What can be used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsedUp {
    Tokens,
    Cost,
    Calls,
    Wall,
    /// Money is limited, and a call did not say what it cost.
    Unpriced,
}

/// How a run ends that may spend nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// One last call may put together what there is.
    LastWord,
    /// With what there is.
    Stop,
    Fail,
}

/// The account at a moment, as families see it: a copy that goes with the outbox of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    pub spent: Spent,
    pub allowance: Allowance,
    then: OnExhausted,
    /// The time of the run is over.
    out_of_time: bool,
    /// What is left is too little for another call: it counts as spent.
    too_little: bool,
    last_word_given: bool,
    /// Of a part of the budget of a run above, how far that may raise it.
    #[serde(default, skip_serializing_if = "Raises::is_nothing")]
    raises: Raises,
}

/// How far a run above may raise what it has lent: as far as the run's own spec allows, until there is no more above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Raises {
    tokens: Option<u64>,
    cost_micros: Option<u64>,
    /// Whether only the run above forbids calls of unknown price.
    leave: bool,
}

impl Raises {
    /// Up to the limits of its own spec. `leave`: that allows calls of unknown price.
    pub fn to(own: Share, leave: bool) -> Raises {
        let most = |own: Option<u64>| Some(own.unwrap_or(u64::MAX));
        Raises { tokens: most(own.tokens), cost_micros: most(own.cost_micros), leave }
    }
    fn is_nothing(&self) -> bool {
        *self == Raises::default()
    }
}

impl Default for Balance {
    fn default() -> Self {
        Balance::new(Allowance::default(), OnExhausted::Synthesize)
    }
}

impl Balance {
    pub fn new(allowance: Allowance, then: OnExhausted) -> Self {
        let (spent, out_of_time, too_little, last_word_given) = (Spent::default(), false, false, false);
        Balance { spent, allowance, then, out_of_time, too_little, last_word_given, raises: Raises::default() }
    }

    /// What is used up, the first of it; none while calls may be made.
    pub fn used_up(&self) -> Option<UsedUp> {
        let limited = if self.allowance.tokens.is_some() { UsedUp::Tokens } else { UsedUp::Cost };
        self.over().or(self.too_little.then_some(limited))
    }

    /// What has been spent to its limit, the first of it.
    fn over(&self) -> Option<UsedUp> {
        let over = |limit: Option<u64>, spent: u64| limit.is_some_and(|limit| spent >= limit);
        let is_over = [
            (UsedUp::Tokens, over(self.allowance.tokens, self.spent.tokens)),
            (UsedUp::Cost, over(self.allowance.cost_micros, self.spent.cost_micros)),
            (UsedUp::Calls, over(self.allowance.calls, self.spent.calls)),
            (UsedUp::Wall, self.out_of_time),
            (UsedUp::Unpriced, self.needs_prices() && self.spent.unpriced_calls > 0),
        ];
        is_over.into_iter().find_map(|(resource, over)| over.then_some(resource))
    }

    /// Whether a call that does not say what it cost is the last.
    pub fn needs_prices(&self) -> bool {
        self.allowance.cost_micros.is_some() && !self.allowance.unpriced
    }

    /// How much more of this the run above may give; none where it may give none.
    fn room_above(&self, what: Resource) -> Option<u64> {
        let room = |limit: Option<u64>, most: Option<u64>| most?.checked_sub(limit?).filter(|room| *room > 0);
        let limits = &self.allowance;
        match what {
            Resource::Tokens => room(limits.tokens, self.raises.tokens),
            Resource::Cost => room(limits.cost_micros, self.raises.cost_micros),
            Resource::Unpriced => (self.needs_prices() && self.raises.leave).then_some(1),
            _ => None,
        }
    }

    /// What is used up of what the run above may give more of.
    fn short_of(&self) -> Option<Resource> {
        let what = match self.over().filter(|_| !self.out_of_time)? {
            UsedUp::Tokens => Resource::Tokens,
            UsedUp::Cost => Resource::Cost,
            UsedUp::Unpriced => Resource::Unpriced,
            UsedUp::Calls | UsedUp::Wall => return None,
        };
        self.room_above(what).map(|_| what)
    }

    /// How the run ends, if it has to; none while it may go on, or waits for people, or the run above, to give it more.
    pub fn exhausted(&self) -> Option<Exhausted> {
        self.used_up()?;
        if self.short_of().is_some() {
            return None;
        }
        match self.then {
            // Nobody can give a run more time.
            OnExhausted::Ask if self.out_of_time => Some(Exhausted::Stop),
            OnExhausted::Ask => None,
            OnExhausted::Synthesize => Some(Exhausted::LastWord),
            OnExhausted::Stop => Some(Exhausted::Stop),
            OnExhausted::Fail => Some(Exhausted::Fail),
        }
    }

    /// Whether people may be asked for more of it.
    pub fn may_ask(&self) -> bool {
        let limits = &self.allowance;
        self.then == OnExhausted::Ask
            && (limits.tokens.is_some() || limits.cost_micros.is_some() || limits.calls.is_some())
    }

    /// Whether nothing more is started before people have given the run more.
    pub fn asks(&self) -> bool {
        self.used_up().is_some() && self.exhausted().is_none()
    }

    /// Whether one last call may still put together what there is.
    pub fn has_last_word(&self) -> bool {
        self.exhausted() == Some(Exhausted::LastWord) && !self.last_word_given
    }

    pub fn is_out_of_time(&self) -> bool {
        self.out_of_time
    }

    /// What is left of tokens and money; none where there is no limit.
    pub fn left(&self) -> Share {
        let left = |limit: Option<u64>, spent: u64| limit.map(|limit| limit.saturating_sub(spent));
        Share {
            tokens: left(self.allowance.tokens, self.spent.tokens),
            cost_micros: left(self.allowance.cost_micros, self.spent.cost_micros),
        }
    }

    pub fn calls_left(&self) -> Option<u64> {
        self.allowance.calls.map(|limit| limit.saturating_sub(self.spent.calls))
    }

    /// What is used up and how much there was of it, in a sentence.
    pub fn text(&self) -> String {
        let Allowance { tokens, cost_micros, calls, wall_ms, unpriced: _ } = self.allowance;
        let of = |spent: u64, limit: Option<u64>| format!("{SPENT}: {spent} of {}", limit.unwrap_or_default());
        let dollars = |micros: u64| format!("${}.{:06}", micros / 1_000_000, micros % 1_000_000);
        match self.used_up() {
            Some(UsedUp::Tokens) => format!("{} tokens", of(self.spent.tokens, tokens)),
            Some(UsedUp::Cost) => {
                let (spent, limit) = (dollars(self.spent.cost_micros), dollars(cost_micros.unwrap_or_default()));
                format!("{SPENT}: {spent} of {limit}")
            }
            Some(UsedUp::Calls) => format!("{} calls", of(self.spent.calls, calls)),
            Some(UsedUp::Wall) => format!("{SPENT}: its {} ms are over", wall_ms.unwrap_or_default()),
            Some(UsedUp::Unpriced) => {
                let limit = dollars(cost_micros.unwrap_or_default());
                format!(
                    "{SPENT}: nobody knows what {} of its calls cost, and it has {limit}",
                    self.spent.unpriced_calls
                )
            }
            None => SPENT.to_owned(),
        }
    }

    /// The note of a run that its budget has ended.
    pub fn note(&self) -> Value {
        let mut note = json!({ "what": self.used_up(), "spent": self.spent, "limits": self.allowance });
        if let Some(limit) = self.allowance.tokens {
            (note["tokens_used"], note["token_budget"]) = (self.spent.tokens.into(), limit.into());
        }
        note
    }

    /// What it makes of a call that is about to be sent.
    fn weigh(&self, call: &Call) -> Result<Spent, Withheld> {
        let calls = u64::from(call.weight() == Weight::Call);
        let open = call.weight() == Weight::Free || self.used_up().is_none() || (call.last && self.has_last_word());
        match open {
            true => Ok(Spent { calls, ..Spent::default() }),
            false if self.asks() => Err(Withheld::UntilThereIsMore),
            false => Err(Withheld::ForGood),
        }
    }

    /// A call is sent: it counts from now on, so that whoever makes several in one turn knows when to stop.
    pub fn sent(&mut self, call: &Call) {
        if let Ok(spent) = self.weigh(call) {
            self.spent = self.spent.plus(spent);
            self.last_word_given |= call.last;
        }
    }

    /// What an answer cost; its call counts since it was sent.
    pub fn charge(&mut self, cost: Spent) {
        self.spent = self.spent.plus(Spent { calls: cost.calls.saturating_sub(1), ..cost });
    }

    /// The time of the run is over.
    pub fn time_is_over(&mut self) {
        self.out_of_time = true;
    }
}

/// Why a call is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// People are asked for more.
    UntilThereIsMore,
    ForGood,
}

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

    /// What a run below may take of time and calls: what is left of them.
    pub fn left_for_child(&self, now: Timestamp, awaited: &AwaitedKeys) -> (Option<u64>, Option<u64>) {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let left = awaited.left(&CoreKey::Wall.into(), now).map(ms);
        (left.or(self.balance.out_of_time.then_some(0)), self.balance.calls_left())
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
            Resource::Unpriced => (what, 1),
            _ => (what, over(limits.tokens, spent.tokens)),
        });
        let room = |what: Resource| self.balance.room_above(what);
        let wanted = || self.loans.lacks(free).filter(|(what, _)| room(*what).is_some());
        self.asked_above = used_up.or_else(wanted).map(|(resource, wanted)| {
            // Without a limit of its own there is always room.
            let most = room(resource).filter(|room| *room < u64::MAX / 2);
            AskedAbove { resource, wanted: most.map_or(wanted, |most| wanted.min(most)), most, is_sent: false }
        });
        self.asked_above.is_some()
    }

    /// What is to be asked of the run above, once.
    pub fn next_ask_above(&mut self) -> Option<AskedAbove> {
        let asked = self.asked_above.as_mut().filter(|asked| !asked.is_sent)?;
        asked.is_sent = true;
        Some(*asked)
    }

    /// The run above has answered: what it gives, and whether that is all. `false`: it was not asked.
    pub fn lent_from_above(&mut self, lent: &Lent) -> bool {
        let Some(asked) = self.asked_above.take_if(|asked| asked.is_sent) else { return false };
        let Share { tokens, cost_micros } = lent.more;
        let allow_unpriced = asked.resource == Resource::Unpriced && !lent.last;
        self.top_up(&TopUp { tokens, cost_micros, allow_unpriced, ..TopUp::default() });
        let raises = &mut self.balance.raises;
        match asked.resource {
            _ if !lent.last => {}
            Resource::Tokens => raises.tokens = None,
            Resource::Cost => raises.cost_micros = None,
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
        let (tokens, money) = (above(Resource::Tokens), above(Resource::Cost));
        let from_above = ComesFromAbove { tokens, money, leave: above(Resource::Unpriced) };
        Available { left, free, alone, asks, needs_prices, from_above }
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
