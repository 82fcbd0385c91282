//! The account at a moment: what may be spent, has been spent, and what that means for the next call.
//!
//! Invariant: a copy that goes with the outbox of a turn, so that every family sees the same. It decides what is used up, whether
//! more may come from people or from the run above, and whether a call may be sent; it keeps no call and asks nobody.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent::ledger::Resource;
use crate::agent::spec::Share;
use crate::supervisor::model::OnExhausted;
use crate::supervisor::outbox::{Call, Weight};

/// The code of a run that has left something undone for want of budget.
pub const BUDGET_EXHAUSTED: &str = "budget_exhausted";
/// What is said of everything that the budget leaves undone.
pub const SPENT: &str = "the budget of the run is spent";

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
    pub(super) then: OnExhausted,
    /// The time of the run is over.
    pub(super) out_of_time: bool,
    /// What is left is too little for another call: it counts as spent.
    pub(super) too_little: bool,
    last_word_given: bool,
    /// Of a part of the budget of a run above, how far that may raise it.
    #[serde(default, skip_serializing_if = "Raises::is_nothing")]
    pub(super) raises: Raises,
}

/// How far a run above may raise what it has lent: as far as the run's own spec allows, until there is no more above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Raises {
    pub(super) tokens: Option<u64>,
    pub(super) cost_micros: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) calls: Option<u64>,
    /// Whether only the run above forbids calls of unknown price.
    pub(super) leave: bool,
}

impl Raises {
    /// Up to the limits of its own spec. `leave`: that allows calls of unknown price.
    pub fn to(own: Share, own_calls: Option<u64>, leave: bool) -> Raises {
        let most = |own: Option<u64>| Some(own.unwrap_or(u64::MAX));
        Raises { tokens: most(own.tokens), cost_micros: most(own.cost_micros), calls: most(own_calls), leave }
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
        self.over().next().or(self.too_little.then_some(limited))
    }

    /// What has been spent to its limit.
    fn over(&self) -> impl Iterator<Item = UsedUp> {
        let over = |limit: Option<u64>, spent: u64| limit.is_some_and(|limit| spent >= limit);
        let is_over = [
            (UsedUp::Tokens, over(self.allowance.tokens, self.spent.tokens)),
            (UsedUp::Cost, over(self.allowance.cost_micros, self.spent.cost_micros)),
            (UsedUp::Calls, over(self.allowance.calls, self.spent.calls)),
            (UsedUp::Wall, self.out_of_time),
            (UsedUp::Unpriced, self.needs_prices() && self.spent.unpriced_calls > 0),
        ];
        is_over.into_iter().filter_map(|(resource, over)| over.then_some(resource))
    }

    /// Whether a call that does not say what it cost is the last.
    pub fn needs_prices(&self) -> bool {
        self.allowance.cost_micros.is_some() && !self.allowance.unpriced
    }

    /// How much more of this the run above may give; none where it may give none.
    pub(super) fn room_above(&self, what: Resource) -> Option<u64> {
        let room = |limit: Option<u64>, most: Option<u64>| most?.checked_sub(limit?).filter(|room| *room > 0);
        let limits = &self.allowance;
        match what {
            Resource::Tokens => room(limits.tokens, self.raises.tokens),
            Resource::Cost => room(limits.cost_micros, self.raises.cost_micros),
            Resource::Steps => room(limits.calls, self.raises.calls),
            Resource::Unpriced => (self.needs_prices() && self.raises.leave).then_some(1),
            _ => None,
        }
    }

    /// What is used up of what the run above may give more of; none where something else is used up too, so that more of
    /// this would be of no use.
    pub(super) fn short_of(&self) -> Option<Resource> {
        let from_above = |what: UsedUp| {
            let what = match what {
                UsedUp::Tokens => Resource::Tokens,
                UsedUp::Cost => Resource::Cost,
                UsedUp::Calls => Resource::Steps,
                UsedUp::Unpriced => Resource::Unpriced,
                UsedUp::Wall => return None,
            };
            self.room_above(what).map(|_| what)
        };
        let short: Option<Vec<Resource>> = self.over().map(from_above).collect();
        short?.first().copied()
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

    /// Whether people are asked for more calls: then a request is not handed on, so that they are asked where it was made.
    pub fn asks_for_calls(&self) -> bool {
        self.then == OnExhausted::Ask && self.allowance.calls.is_some()
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
    pub(super) fn weigh(&self, call: &Call) -> Result<Spent, Withheld> {
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
