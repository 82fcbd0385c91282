//! How far an agent may go, and what happens then.
//!
//! Invariant: limits are data of the spec, and are handed down narrowed and never widened. Nothing is counted here.

use serde::{Deserialize, Serialize};

use super::ledger::Resource;
use super::spec::Price;

/// How far an agent and all agents below it may go. What is absent is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Calls of models.
    pub max_steps: Option<u64>,
    pub max_tool_calls: Option<u64>,
    pub max_tokens: Option<u64>,
    pub max_cost_micros: Option<u64>,
    /// Whether calls may go on that report no cost while money is limited.
    pub allow_unpriced: bool,
    /// Time from the start on. What does not count is the time in which nothing is under way and people are waited for: a
    /// halt, a pause, an approval; or a share. An agent below is under way, also while it waits itself.
    pub wall_ms: Option<u64>,
    /// How often an answer that does not conform is sent back.
    pub repairs: u32,
    /// The same call so many times in a row, or the same round of calls, is a loop. 0: no loop is looked for.
    pub loop_repeats: u32,
    /// Above this estimate the older half of the conversation is summed up.
    pub context_tokens: u64,
    /// Tools that run at a time.
    pub fan_out: u32,
    /// How deep agents may delegate.
    pub depth: u32,
    /// The most that a model is shown of one result of a tool.
    pub result_bytes: u64,
    /// How often one model call is tried before people are asked.
    pub model_attempts: u32,
    /// Events of a history after which the run goes on in a new one (continue-as-new), before a model is asked again; absent, or more,
    /// is what the engine suggests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_events: Option<u64>,
    pub on_exhausted: OnExhausted,
    /// What ends the agent when it is used up where it would ask: of this it was lent no more, and nobody can add to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stops_at: Vec<Resource>,
    /// What a supervisor lends of the budget of its run, beside all other limits. When it is used up the agent asks for
    /// more; when there is no more, it ends as with `stops_at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// The money of the run of the supervisor is limited: a call that does not say what it cost is the last one, before the
    /// supervisor gives leave for more, or with `stops_at` for good.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_prices: bool,
    /// `wall_ms` is what was left of the time of the run above: when it is over, what is under way ends, nothing begins, and the
    /// agent ends with what it has.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub wall_of_run: bool,
    /// The cheaper model for `degrade`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degrade: Option<Degrade>,
}

impl Limits {
    /// What was lent becomes a limit like others, to which people can add: nobody above lends more, or has lent the last.
    pub fn own(&mut self) {
        let least = |own: Option<u64>, lent: Option<u64>| match (own, lent) {
            (Some(own), Some(lent)) => Some(own.min(lent)),
            (own, lent) => own.or(lent),
        };
        let Share { tokens, cost_micros } = self.share.take().unwrap_or_default();
        self.max_tokens = least(self.max_tokens, tokens);
        self.max_cost_micros = least(self.max_cost_micros, cost_micros);
        self.stops_at.clear();
        (self.needs_prices, self.wall_of_run) = (false, false);
    }
}

/// A part of a budget that others spend as well. What is absent is not lent, and not limited by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Share {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
}

impl Share {
    /// Whether it limits nothing.
    pub fn is_no_limit(&self) -> bool {
        *self == Share::default()
    }
    /// What is lent.
    pub fn resources(self) -> Vec<Resource> {
        let parts = [(Resource::Tokens, self.tokens), (Resource::Cost, self.cost_micros)];
        parts.into_iter().filter_map(|(resource, part)| part.map(|_| resource)).collect()
    }
    /// Both together. What is not lent stays so.
    pub fn plus(self, more: Share) -> Share {
        let sum = |one: Option<u64>, other: Option<u64>| one.map(|one| one.saturating_add(other.unwrap_or(0)));
        Share { tokens: sum(self.tokens, more.tokens), cost_micros: sum(self.cost_micros, more.cost_micros) }
    }
}

/// The signal `budget_top_up_v1`: how much more there is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopUp {
    pub tokens: Option<u64>,
    pub cost_micros: Option<u64>,
    /// Steps and calls of tools.
    pub calls: Option<u64>,
    pub wall_ms: Option<u64>,
    /// Calls without a known cost may go on from now on.
    pub allow_unpriced: bool,
}

/// What happens when a budget is used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// The run waits for `budget_top_up_v1`.
    #[default]
    Ask,
    /// The run ends with what there is.
    Stop,
    /// The cheaper model goes on; when that is too dear as well, the run ends.
    Degrade,
}

/// The model that goes on when the budget gets short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Degrade {
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// From this part of the tokens or the money on, in thousandths.
    #[serde(default = "degrade_at")]
    pub at_permille: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_steps: Some(50),
            max_tool_calls: Some(200),
            max_tokens: None,
            max_cost_micros: None,
            allow_unpriced: false,
            wall_ms: None,
            repairs: 2,
            loop_repeats: 3,
            context_tokens: 100_000,
            fan_out: 4,
            depth: 2,
            result_bytes: 32 * 1024,
            model_attempts: 10,
            history_events: None,
            on_exhausted: OnExhausted::Ask,
            stops_at: Vec::new(),
            share: None,
            needs_prices: false,
            wall_of_run: false,
            degrade: None,
        }
    }
}

fn degrade_at() -> u64 {
    800
}
