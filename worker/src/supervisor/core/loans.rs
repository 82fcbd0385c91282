//! What a run has lent of its budget: shares, and who asks for more (G41).
//!
//! ```text
//!   free = budget − charged − lent       who is lent something begins with a part of it, asks for more, and gives back
//!   lend ──► (request ──► more)* ──► returned          a child that is cancelled keeps its share until its bill comes
//! ```
//!
//! Invariant: what is lent at a time, and what was charged, are never more than the budget; nothing is lent twice, and
//! nothing that may still be spent counts as free. Who asks for more than is free waits as long as others may give
//! something back; then it gets the rest, as the last. Pure: what is left is told, and who is to be told of a loan is
//! answered; nothing here knows children, signals or the plan. Calls are lent to supervisors only, and one that is lent some counts
//! as one call already: what is lent of them is what it may make beyond that.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::Seq;
use serde::{Deserialize, Serialize};

use crate::agent::ledger::Resource;
use crate::agent::machine::Lent;
use crate::agent::spec::Share;

/// Why a request for more can never be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoanRefusal {
    #[error("only tokens, money and calls are shared, and leave to go on with calls of unknown price")]
    NotShared,
    #[error("{0} is no worker of this run that was lent anything")]
    NotLent(String),
}

/// What may be lent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Available {
    /// What is left of the budget; none where there is no limit.
    pub left: Share,
    /// The part of it that nobody was lent.
    pub free: Share,
    /// The same of calls, for supervisors below: what is left, and what of it nobody was lent.
    pub calls: Option<CallsAvailable>,
    /// One works at a time.
    pub alone: bool,
    /// Who gets no more waits for people.
    pub asks: bool,
    /// Money is limited, and calls that do not say what they cost are not allowed.
    pub needs_prices: bool,
    /// What the run above may give more of.
    pub from_above: ComesFromAbove,
}

/// Calls that may still be made, and those of them that nobody was lent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallsAvailable {
    pub left: u64,
    pub free: u64,
}

/// What a run above may still give.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ComesFromAbove {
    pub tokens: bool,
    pub money: bool,
    pub calls: bool,
    /// To go on with calls of unknown price.
    pub leave: bool,
}

impl Available {
    /// What one gets of what is free: half, if others may want the rest.
    pub fn part(&self, free: u64) -> u64 {
        if self.alone { free } else { free.div_ceil(2) }
    }

    /// The share of somebody who begins. Where no price is known before a call, the dearest so far is held for it, so that no
    /// more than one call is beyond the share.
    pub fn share(&self) -> Option<Share> {
        let Share { tokens, cost_micros } = self.free;
        let part = |free: Option<u64>| free.map(|free| self.part(free));
        let share = Share { tokens: part(tokens), cost_micros: part(cost_micros) };
        (share != Share::default()).then_some(share)
    }

    /// The calls of a supervisor that begins, beyond the one that its start counts as.
    pub fn calls_for_child(&self) -> Option<u64> {
        self.calls.map(|calls| self.part(calls.free))
    }

    /// Whether a run below does better to wait for what others give back.
    pub fn too_little_for_child(&self) -> bool {
        let little = |left: Option<u64>, free: Option<u64>| match (left, free) {
            (Some(left), Some(free)) => free < left && self.part(free).saturating_mul(8) < left,
            _ => false,
        };
        little(self.left.tokens, self.free.tokens)
            || little(self.left.cost_micros, self.free.cost_micros)
            || little(self.calls.map(|calls| calls.left), self.calls.map(|calls| calls.free))
    }

    fn of(&self, resource: Resource) -> u64 {
        let free = match resource {
            Resource::Cost => self.free.cost_micros,
            Resource::Steps => self.calls.map(|calls| calls.free),
            Resource::Unpriced => None,
            _ => self.free.tokens,
        };
        free.unwrap_or(0)
    }

    /// Whether more than is free of this may come: from people, or from the run above.
    fn may_come(&self, what: Resource) -> bool {
        let ComesFromAbove { tokens, money, calls, leave } = self.from_above;
        self.asks
            || match what {
                Resource::Tokens => tokens,
                Resource::Cost => money,
                Resource::Steps => calls,
                Resource::Unpriced => leave,
                _ => false,
            }
    }

    fn meets(&self, request: &LoanRequest) -> bool {
        match request.resource {
            // Who needs nothing any more says so.
            _ if request.wanted == 0 => true,
            Resource::Unpriced => !self.needs_prices,
            resource => self.of(resource) >= request.wanted,
        }
    }
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loans {
    /// By the engine's number of the child.
    lent: BTreeMap<Seq, Loan>,
    /// Who asks for more, in order.
    requests: Vec<LoanRequest>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Loan {
    /// The workflow id of the child.
    agent: String,
    share: Share,
    /// Calls beyond the one that its start counts as; of a supervisor, where they are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    /// It was given what there was, as the last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    last: bool,
    /// It asks for nothing more.
    cancelled: bool,
}

/// A worker that asks for more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoanRequest {
    /// Its workflow id.
    agent: String,
    resource: Resource,
    wanted: u64,
    /// More than this is of no use to it; none: as much as there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    most: Option<u64>,
}

impl Loans {
    pub fn is_empty(&self) -> bool {
        *self == Loans::default()
    }

    pub fn lend(&mut self, seq: Seq, agent: &str, share: Share) {
        self.lent.insert(seq, Loan { agent: agent.to_owned(), share, calls: None, last: false, cancelled: false });
    }

    /// Calls that it may make beyond the one that its start counts as.
    pub fn lend_calls(&mut self, seq: Seq, calls: u64) {
        if let Some(loan) = self.lent.get_mut(&seq) {
            loan.calls = Some(calls);
        }
    }

    /// All calls that it may make, where they are limited.
    pub fn calls_of(&self, seq: Seq) -> Option<u64> {
        self.lent.get(&seq)?.calls.map(|calls| calls.saturating_add(1))
    }

    /// Whether it was told that there is no more.
    pub fn had_the_last(&self, seq: Seq) -> bool {
        self.lent.get(&seq).is_some_and(|loan| loan.last)
    }

    /// Calls that are lent and do not count yet.
    pub fn lent_calls(&self) -> u64 {
        self.lent.values().filter_map(|loan| loan.calls).fold(0, u64::saturating_add)
    }

    pub fn has(&self, seq: Seq) -> bool {
        self.lent.contains_key(&seq)
    }

    /// A child has ended, and said what it spent: what it was lent.
    pub fn returned(&mut self, seq: Seq) -> Option<Share> {
        self.lent.remove(&seq).map(|loan| loan.share)
    }

    /// A child was cancelled; its bill is still to come.
    pub fn cancelled(&mut self, seq: Seq) {
        if let Some(loan) = self.lent.get_mut(&seq) {
            loan.cancelled = true;
        }
    }

    /// What may still be spent of what is not charged.
    pub fn lent(&self) -> Share {
        let shares = self.lent.values().map(|loan| loan.share);
        shares.fold(Share { tokens: Some(0), cost_micros: Some(0) }, Share::plus)
    }

    /// Keeps a request; a worker has one.
    ///
    /// # Errors
    /// Why it is none that can ever be met.
    pub fn request(&mut self, request: LoanRequest) -> Result<(), LoanRefusal> {
        if !matches!(request.resource, Resource::Tokens | Resource::Cost | Resource::Steps | Resource::Unpriced) {
            return Err(LoanRefusal::NotShared);
        }
        if !self.lent.values().any(|loan| loan.agent == request.agent) {
            return Err(LoanRefusal::NotLent(request.agent));
        }
        self.requests.retain(|other| other.agent != request.agent);
        self.requests.push(request);
        Ok(())
    }

    /// Meets the first request that can be met; or, where nobody is left who could give something back and people are not
    /// asked for more, gives the first one what there is, as the last. Whom to tell, and what.
    pub fn lend_more(&mut self, left: Available) -> Option<(String, Lent)> {
        self.forget_ended();
        let last = self.all_wait() && self.requests.first().is_some_and(|first| !left.may_come(first.resource));
        let at = self.requests.iter().position(|request| left.meets(request));
        let (request, last) = match at {
            Some(at) => (self.requests.remove(at), false),
            None if last => (self.requests.remove(0), true),
            None => return None,
        };
        let free = left.of(request.resource);
        let amount = if last { free } else { request.wanted.max(left.part(free)) };
        let amount = request.most.map_or(amount, |most| amount.min(most));
        let more = match request.resource {
            Resource::Cost => Share { cost_micros: Some(amount), tokens: None },
            // What is lent is the leave, or calls.
            Resource::Unpriced | Resource::Steps => Share::default(),
            _ => Share { tokens: Some(amount), cost_micros: None },
        };
        let loan = self.lent.values_mut().find(|loan| loan.agent == request.agent)?;
        loan.share = loan.share.plus(more);
        loan.last |= last;
        let calls = (request.resource == Resource::Steps).then_some(amount);
        loan.calls = calls.map(|more| loan.calls.unwrap_or_default().saturating_add(more)).or(loan.calls);
        Some((request.agent, Lent { more, calls, last }))
    }

    /// Whether somebody asks for more than there is, and nobody is left who could give something back.
    pub fn waits_in_vain(&mut self, left: Available) -> bool {
        self.forget_ended();
        self.all_wait() && !self.requests.iter().any(|request| left.meets(request))
    }

    /// Whether somebody asks for more than there is.
    pub fn wants_more(&mut self, left: Available) -> bool {
        self.forget_ended();
        self.requests.iter().any(|request| !left.meets(request))
    }

    /// What the first of those lacks who wait in vain.
    pub fn lacks(&self, left: Available) -> Option<(Resource, u64)> {
        let request = self.requests.first().filter(|request| self.all_wait() && !left.meets(request))?;
        Some((request.resource, request.wanted.saturating_sub(left.of(request.resource))))
    }

    /// Whether somebody asks for leave to go on with calls of unknown price.
    pub fn wants_leave(&self) -> bool {
        self.requests.iter().any(|request| request.resource == Resource::Unpriced)
    }

    fn forget_ended(&mut self) {
        let open: BTreeSet<&str> =
            self.lent.values().filter(|loan| !loan.cancelled).map(|loan| loan.agent.as_str()).collect();
        self.requests.retain(|request| open.contains(request.agent.as_str()));
    }

    fn all_wait(&self) -> bool {
        !self.requests.is_empty() && self.requests.len() == self.lent.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A worker as far as its budget goes: it needs so many tokens, `call` at a time.
    struct Working {
        needs: u64,
        call: u64,
        spent: u64,
        share: u64,
        last: bool,
        asking: bool,
    }

    proptest! {
        /// G41: whatever workers begin, need and give back, in any order: what is lent and was charged is never more than the
        /// budget, nobody waits for ever, and nobody ends short of budget while there is some that nobody has.
        #[test]
        fn what_is_lent_is_never_more_than_what_is_left(
            budget in 0u64..5_000,
            alone in any::<bool>(),
            needs in prop::collection::vec((0u64..2_000, 1u64..300), 1..8),
            order in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let (mut loans, mut charged) = (Loans::default(), 0u64);
            let mut waiting: Vec<(u64, u64)> = needs;
            let mut working: BTreeMap<u64, Working> = BTreeMap::new();
            let left = |loans: &Loans, charged: u64| {
                let all = budget.checked_sub(charged).expect("no more is spent than there is");
                let lent = loans.lent().tokens.unwrap();
                assert!(lent <= all, "{lent} is lent of {all}");
                let free = Share { tokens: Some(all - lent), cost_micros: None };
                Available { left: Share { tokens: Some(all), cost_micros: None }, free, alone, ..Available::default() }
            };
            let mut steps = 0;
            while !(waiting.is_empty() && working.is_empty()) {
                let able: Vec<u64> = working.iter().filter(|(_, one)| !one.asking).map(|(name, _)| *name).collect();
                let may_begin = !waiting.is_empty() && (!alone || working.is_empty());
                prop_assert!(may_begin || !able.is_empty(), "everybody waits");
                steps += 1;
                prop_assert!(steps < 5_000, "it does not end");
                let choice = order[steps % order.len()].index(able.len() + usize::from(may_begin));
                if choice == able.len() {
                    let (needs, call) = waiting.pop().unwrap();
                    let name = waiting.len() as u64;
                    let share = left(&loans, charged).share();
                    loans.lend(Seq(name), &name.to_string(), share.unwrap());
                    let share = share.and_then(|share| share.tokens).unwrap();
                    working.insert(name, Working { needs, call, spent: 0, share, last: false, asking: false });
                } else {
                    let name = able[choice];
                    let one = working.get_mut(&name).unwrap();
                    let wanted = one.call.min(one.needs - one.spent);
                    let has = one.share - one.spent;
                    if has < wanted && !one.last {
                        one.asking = true;
                        loans.request(LoanRequest { agent: name.to_string(), resource: Resource::Tokens, wanted: wanted - has, most: None }).unwrap();
                    } else if one.spent == one.needs || has == 0 {
                        // A share of nothing is asked for before, unless nobody else has anything.
                        let (spent, short) = (one.spent, one.spent < one.needs);
                        working.remove(&name);
                        loans.returned(Seq(name)).unwrap();
                        charged += spent;
                        prop_assert!(!short || left(&loans, charged).free.tokens < Some(wanted) || !working.is_empty());
                    } else {
                        one.spent += wanted.min(has);
                    }
                }
                while let Some((name, lent)) = { let left = left(&loans, charged); loans.lend_more(left) } {
                    let one = working.get_mut(&name.parse().unwrap()).unwrap();
                    prop_assert!(one.asking);
                    (one.asking, one.last) = (false, lent.last);
                    one.share += lent.more.tokens.unwrap();
                }
            }
        }
    }

    /// What a cancelled child may have spent is not free before its bill.
    #[test]
    fn nothing_that_may_be_spent_is_free() {
        let share = |tokens| Share { tokens: Some(tokens), cost_micros: None };
        let mut loans = Loans::default();
        (1..=3).for_each(|n| loans.lend(Seq(n), &format!("w{n}"), share(100)));
        let asks =
            |agent: &str| LoanRequest { agent: agent.to_owned(), resource: Resource::Tokens, wanted: 50, most: None };
        assert!(loans.request(asks("stranger")).is_err());
        loans.request(asks("w1")).unwrap();
        loans.request(asks("w2")).unwrap();
        loans.cancelled(Seq(2));
        let nothing = Available { left: share(300), free: share(0), ..Available::default() };
        assert_eq!(loans.lend_more(nothing), None, "the third may give something back");
        assert_eq!(loans.returned(Seq(3)), Some(share(100)));
        assert_eq!(loans.lend_more(nothing), None, "and so may the bill of the second");
        assert_eq!((loans.returned(Seq(2)), loans.lent().tokens), (Some(share(100)), Some(100)));
        let (agent, lent) = loans.lend_more(nothing).unwrap();
        assert_eq!((agent.as_str(), lent.last), ("w1", true));
    }
}
