//! What calls cost, as far as the account of the run is concerned: read once from what came back, before anybody hears it.
//! What a run below cost is in its end (`child_end`).
//!
//! Invariant: the account is charged with what an answer, a model or a run below says that it cost, and with nothing that
//! is data of a result; whoever asked reads the answer without it where it has no place for it. Money of which nobody says how
//! much it is, is told as unknown and is never 0. It decides nothing: the account does.

use bosun_engine::{Failure, Payload, Timestamp};
use serde_json::{Map, Value};

use super::{RunContext, SupervisorRun};
use crate::agent::ends::{cut_before, may_be_paid};
use crate::capability::model::ModelOutput;
use crate::supervisor::core::account::{Account, Allowance, Raises, Spent};
use crate::supervisor::core::asker::AnswerForm;
use crate::supervisor::core::key::Key;
use crate::supervisor::graph::Reply;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Call, Outbox, Purpose, Weight};
use crate::supervisor::spec::{Money, OnExhausted, Span, SupervisorSpec, Via};

/// The account of a run of this spec. Only the parent can raise the budget of a child run.
pub(super) fn account(spec: &SupervisorSpec, context: &RunContext) -> Account {
    let budget = &spec.budget;
    let allowance = Allowance {
        tokens: budget.tokens,
        cost_micros: budget.cost.map(Money::as_micros),
        calls: budget.llm_calls,
        wall_ms: budget.wall.map(Span::as_ms),
        unpriced: budget.allow_unpriced,
    };
    let then = match budget.on_exhausted {
        OnExhausted::Ask if context.shared => OnExhausted::Stop,
        then => then,
    };
    let mut account = Account::new(allowance, then);
    if context.shared {
        account.is_part(Raises::to(context.own_limits, context.own_calls, context.own_leave));
    }
    account
}

/// One call of somebody who says nothing of tokens or money: a program, a script, a service.
const ONE: Spent = Spent { tokens: 0, cost_micros: 0, calls: 1, unpriced_calls: 0 };

/// What a step of a model cost, with its attempts that were cut; none where the call was none.
pub(super) fn of_model(spec: &SupervisorSpec, call: &Call, result: &Result<Payload, Failure>) -> Option<Spent> {
    let Via::Model(_) = spec.via(call) else { return None };
    match result {
        Ok(result) => {
            let output = result.decode::<ModelOutput>().ok()?;
            let (calls, tokens, micros) = output.paid();
            let unpriced_calls = if micros.is_none() { calls } else { 0 };
            Some(Spent { tokens, cost_micros: micros.unwrap_or(0), calls, unpriced_calls })
        }
        Err(failure) => {
            let cut = u64::from(cut_before(failure.root()));
            // Whatever may have been answered may have to be paid for; nobody heard how many tokens it took.
            let unpriced_calls = cut + u64::from(may_be_paid(failure));
            (unpriced_calls > 0).then_some(Spent { calls: ONE.calls + cut, unpriced_calls, ..ONE })
        }
    }
}

/// What an answer says that it cost. What the asker has no place for is taken out of it.
pub(super) fn taken_from(form: AnswerForm, call: &Call, answer: &mut Answer) -> Spent {
    let Ok(value) = answer else { return ONE };
    let Value::Object(map) = value else { return ONE };
    // Undoing is paid for as it was done, though it needs no budget.
    if call.purpose == Purpose::Compensate {
        return if Reply::tells_cost(map) { Reply::cost_in(map) } else { ONE };
    }
    if call.weight() != Weight::Call {
        return ONE;
    }
    match (form, call.purpose) {
        (AnswerForm::Reply, _) => match Reply::is_reply(map) {
            true => Reply::cost_in(map),
            // What a worker gives is its result, whatever it calls the parts of it.
            false => ONE,
        },
        (AnswerForm::Result, _) => {
            const KNOWN: [&str; 4] = ["result", "tokens", "cost_usd", "cost_micros"];
            let wrapped = map.len() > 1 && map.contains_key("result") && map.keys().all(|key| KNOWN.contains(&&**key));
            if !wrapped {
                return ONE;
            }
            let cost = Reply::cost_in(map);
            *value = map.remove("result").unwrap_or_default();
            cost
        }
        (_, Purpose::Plan | Purpose::Decide | Purpose::Review) => {
            let cost = Reply::cost_in(map);
            let no_place = map.contains_key("delegations") || call.purpose == Purpose::Review;
            strip(map, no_place);
            cost
        }
        _ => Reply::cost_in(map),
    }
}

fn strip(map: &mut Map<String, Value>, tokens: bool) {
    for key in ["cost_usd", "cost_micros"] {
        map.remove(key);
    }
    if tokens {
        map.remove("tokens");
    }
}

impl SupervisorRun {
    /// Where the parts of the run leave what they want, with the account as it stands,
    /// and what it waits for, until what was left is taken.
    pub(super) fn outbox(&mut self, now: Timestamp) -> Outbox {
        let awaited = std::mem::take(&mut self.awaited);
        Outbox::new(self.run.clone(), now)
            .with_budget(self.account.balance())
            .with_held(self.parts.control.is_held())
            .with_awaited(awaited)
    }

    /// The call has ended, whoever hears of it and when.
    pub(super) fn settle(&mut self, key: &Key, cost: Spent, out: &mut Outbox) {
        self.account.settle(key, cost, out.awaited_mut());
        out.set_budget(self.account.balance());
    }

    pub(super) fn time_is_over(&mut self, out: &mut Outbox) {
        self.account.time_is_over();
        out.set_budget(self.account.balance());
    }

    /// Tells a family that its budget is spent as often as it goes on; what that leaves undone is noted once.
    pub(super) fn end_for_budget(&mut self, out: &mut Outbox) {
        if self.parts.control.is_running() && out.budget().exhausted().is_some() {
            self.nobody_lets_through(out);
            self.strategy.exhausted(out);
        }
        if self.strategy.is_cut()
            && let Some(note) = self.account.note_of_end(out.budget())
        {
            out.note(NoteKind::BudgetExhausted, note);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::capability::model::Cost;
    use crate::supervisor::core::key::GraphKey;
    use crate::supervisor::outbox::Purpose;

    /// What attempts that were cut may have cost counts as the answer does, and money that nobody knows is not 0.
    #[test]
    fn what_a_model_reports_is_charged_with_its_attempts_that_were_cut() {
        let spec: SupervisorSpec = serde_json::from_value(json!({
            "preset": "flow-supervisor", "objective": "o", "agents": [{ "name": "a" }], "via": { "model": { "name": "m" } },
        }))
        .unwrap();
        let call = Call::new(GraphKey::Execute { task: 1.into(), attempt: 1 }, Purpose::ExecuteWorker, json!({}));
        let charged = |cost: &Cost, estimated: Option<u64>| {
            let output = json!({ "response": { "said": { "content": "hm" }, "stop": "end", "usage": { "input": 2000, "output": 7 }, "model": "m" },
                "cost": cost, "cut": 1, "estimated": estimated });
            let result = Ok(Payload::encode(&output).unwrap());
            of_model(&spec, &call, &result).unwrap()
        };
        let priced = Spent { tokens: 4_014, cost_micros: 10, calls: 2, unpriced_calls: 0 };
        assert_eq!(charged(&Cost::Micros(5), None), priced);
        let unpriced = Cost::Unpriced("nobody knows".into());
        assert_eq!(charged(&unpriced, None), Spent { cost_micros: 0, unpriced_calls: 2, ..priced });
        assert_eq!(charged(&unpriced, Some(30)).tokens, 60, "tokens that were not counted are not 0");
    }
}
