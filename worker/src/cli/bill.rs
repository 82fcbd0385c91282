//! What the calls of a run and of those below it cost, added up by model, by run and by agent.
//!
//! Invariant: an agent says itself what it and those below it spent; who asks models itself has their answers in its history. A
//! call whose answer nobody heard is a call of unknown price. What somebody claims absurdly much of is added up all the same.

use std::collections::BTreeMap;

use bosun_engine::*;
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::below::ChildRun;
use super::budget::dollars;
use super::context::Context;
use super::error::CliError;
use super::explain::Code;
use super::supervise::ask;
use crate::agent::AGENT;
use crate::agent::ends::{cut_before, may_be_paid};
use crate::capability::model::{MODEL, ModelInput, ModelOutput};
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// Calls of one model.
#[derive(Debug, Default)]
pub(super) struct ModelTotal {
    pub(super) calls: u64,
    pub(super) tokens: u64,
    pub(super) cost_micros: u64,
}

/// All that was counted of a run and those below it.
#[derive(Debug, Default)]
pub(super) struct RunBill {
    pub(super) models: BTreeMap<String, ModelTotal>,
    /// In the order in which the runs were looked at: a run before those below it.
    pub(super) runs: Vec<(WorkflowId, ModelTotal)>,
    /// By the name of who asked: an agent's, or the type of a run that asked for itself.
    pub(super) agents: BTreeMap<String, ModelTotal>,
    /// What the account of a supervisor says that it spent, with all below it: what `budget show` shows.
    pub(super) account: Option<ModelTotal>,
    /// Calls of which nobody knows what they cost, whoever made them.
    pub(super) unpriced: u64,
    /// There are more runs below than were looked at.
    pub(super) cut: bool,
}

impl RunBill {
    pub(super) fn add(&mut self, model: &str, sum: ModelTotal) {
        self.models.entry(model.to_owned()).or_default().add(&sum);
    }

    /// What a run of an agent has asked belongs to the agent; of another run each call says for whom it was.
    pub(super) async fn of_run(&mut self, cx: &Context, run: &ChildRun, more: ModelTotal) {
        if run.workflow_type.as_str() == AGENT {
            let state = ask(cx, &run.target, "state", &Value::Null).await.unwrap_or_default();
            let name = state["name"].as_str().unwrap_or(AGENT);
            self.agents.entry(name.to_owned()).or_default().add(&more);
        }
        self.runs.push((run.target.workflow_id.clone(), more));
    }

    /// An agent counts what those below it spent.
    pub(super) async fn agent(&mut self, cx: &Context, target: &Target) -> Result<(), CliError> {
        let spent = ask(cx, target, "cost", &Value::Null).await?;
        self.unpriced = self.unpriced.saturating_add(spent["unpriced_calls"].as_u64().unwrap_or_default());
        for (model, tally) in spent["by_model"].as_object().into_iter().flatten() {
            let of = |key: &str| tally[key].as_u64().unwrap_or_default();
            self.add(model, ModelTotal { calls: of("calls"), tokens: of("tokens"), cost_micros: of("cost_micros") });
        }
        Ok(())
    }

    /// A run that asks models itself has their answers in its history.
    pub(super) async fn steps(&mut self, cx: &Context, run: &ChildRun) -> Result<(), CliError> {
        let mut events = cx.backend.events(run.target.clone(), EventId(1), false);
        let mut asked = BTreeMap::new();
        while let Some(event) = events.next().await {
            match event?.kind {
                EventKind::ActivityTaskScheduled(task) if task.activity_type.as_str() == MODEL => {
                    let who = asker(run, task.options.summary.as_deref().unwrap_or_default());
                    asked.insert(task.seq, (who, *task));
                }
                // Nobody waits for its answer any more: it may have to be paid for.
                EventKind::ActivityTaskCancelRequested { seq } => {
                    const WAITS: CancellationType = CancellationType::WaitCancellationCompleted;
                    if let Some((who, task)) = asked.remove(&seq) {
                        match task.options.cancellation {
                            WAITS => _ = asked.insert(seq, (who, task)),
                            _ => self.unheard(&task, 1, 1, who),
                        }
                    }
                }
                EventKind::ActivityTaskFailed { seq, failure, .. }
                | EventKind::ActivityTaskTimedOut { seq, failure, .. } => {
                    let Some((who, task)) = asked.remove(&seq) else { continue };
                    let cut = u64::from(cut_before(failure.root()));
                    let unpriced = cut.saturating_add(u64::from(may_be_paid(&failure)));
                    if unpriced > 0 {
                        self.unheard(&task, cut.saturating_add(1), unpriced, who);
                    }
                }
                EventKind::ActivityTaskCompleted { seq, result, .. } => {
                    let Some((who, _)) = asked.remove(&seq) else { continue };
                    let read =
                        |why| CliError::new(Code::Failed, format!("the answer of model call {}", seq.0)).cause(why);
                    self.step(&result.decode().map_err(read)?, who);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Calls of which nobody has heard the answer, and of so many what they cost: what they took is unknown, and not 0.
    pub(super) fn unheard(&mut self, task: &ActivityTaskScheduled, calls: u64, unpriced: u64, who: String) {
        let model = task.input.decode::<ModelInput>().map_or_else(|_| "?".to_owned(), |input| input.request.model);
        self.unpriced = self.unpriced.saturating_add(unpriced);
        let sum = ModelTotal { calls, ..ModelTotal::default() };
        self.agents.entry(who).or_default().add(&sum);
        self.add(&model, sum);
    }

    pub(super) fn step(&mut self, output: &ModelOutput, who: String) {
        let (calls, tokens, micros) = output.paid();
        if micros.is_none() {
            self.unpriced = self.unpriced.saturating_add(calls);
        }
        let sum = ModelTotal { calls, tokens, cost_micros: micros.unwrap_or(0) };
        self.agents.entry(who).or_default().add(&sum);
        self.add(&output.response.model, sum);
    }
}

/// For whom a run has asked a model: a supervisor labels a call with its agent (`execute/t1/1 (clerk)`), if it has one.
fn asker(run: &ChildRun, label: &str) -> String {
    let agent = label.strip_suffix(')').and_then(|label| label.rsplit_once(" ("));
    let of = agent.filter(|_| [SUPERVISOR, PLAN_RUN].contains(&run.workflow_type.as_str()));
    of.map_or_else(|| run.workflow_type.to_string(), |(_, agent)| agent.to_owned())
}

impl RunBill {
    /// What models were paid, and what all that was called costs: an account knows also of what is no model.
    pub(super) fn totals(&self) -> (ModelTotal, ModelTotal) {
        let mut models = ModelTotal::default();
        self.models.values().for_each(|one| models.add(one));
        let known = |of: fn(&ModelTotal) -> u64| self.account.as_ref().map_or(0, of).max(of(&models));
        let all = ModelTotal {
            calls: known(|one| one.calls),
            tokens: known(|one| one.tokens),
            cost_micros: known(|one| one.cost_micros),
        };
        (models, all)
    }
}

impl ModelTotal {
    pub(super) fn json(&self) -> Value {
        json!({ "calls": self.calls, "tokens": self.tokens, "cost_micros": self.cost_micros })
    }
    pub(super) fn add(&mut self, more: &ModelTotal) {
        // What somebody claims absurdly much of is no reason to tell nothing.
        self.calls = self.calls.saturating_add(more.calls);
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost_micros = self.cost_micros.saturating_add(more.cost_micros);
    }
    pub(super) fn less(&self, part: &ModelTotal) -> ModelTotal {
        ModelTotal {
            calls: self.calls.saturating_sub(part.calls),
            tokens: self.tokens.saturating_sub(part.tokens),
            cost_micros: self.cost_micros.saturating_sub(part.cost_micros),
        }
    }
    pub(super) fn is_nothing(&self) -> bool {
        self.calls == 0 && self.tokens == 0 && self.cost_micros == 0
    }
    pub(super) fn line(&self, of: &str) -> String {
        let ModelTotal { calls, tokens, cost_micros } = self;
        format!("{of:<32} {calls:>6} calls {tokens:>10} tokens  {}", dollars(*cost_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What somebody claims absurdly much of is told as much as can be told.
    #[test]
    fn absurd_numbers_are_added_up_all_the_same() {
        let most = || ModelTotal { calls: 1, tokens: u64::MAX, cost_micros: u64::MAX };
        let mut bill = RunBill { account: Some(most()), ..RunBill::default() };
        bill.add("a", most());
        bill.add("b", most());
        let (models, all) = bill.totals();
        assert_eq!((models.calls, models.tokens, all.cost_micros), (2, u64::MAX, u64::MAX));
        assert!(!all.is_nothing() && all.less(&models).is_nothing());
    }
}
