//! What an agent tells other runs: a halt and what it waits for to the run above, a pause and answers to those below.
//!
//! Invariant: what was told once is not told again before it has changed; a fork tells nobody above, since nobody there has
//! begun it. It decides nothing.

use bosun_engine::workflow::Cx;
use bosun_engine::{ExternalTarget, WorkflowId};
use serde_json::{Value, json};

use super::machine::{Halt, ToolApprovalResponse};
use super::workflow::{
    AgentRun, CommandKind, SIGNAL_APPROVAL, SIGNAL_BUDGET_REQUEST, SIGNAL_PAUSE, SIGNAL_WAITS, child_id,
};

impl AgentRun {
    /// A halt is told once to who shows it, or can end it; nothing waits for that.
    pub(super) fn tell_halt(&mut self, cx: &mut Cx<'_>) {
        let Some(halt) = self.agent.halt() else {
            self.told = false;
            return;
        };
        // One halt may follow on another in one turn.
        let halts = self.agent.halts();
        let told = self.told && self.told_halts == halts;
        let spec = self.agent.spec();
        let Some(to) = self.above(spec.report_to.as_deref(), cx).filter(|_| !told) else { return };
        let own = cx.workflow_id().map(ToString::to_string).unwrap_or_default();
        let target = ExternalTarget { workflow_id: to, run_id: None };
        match halt {
            Halt::Share { resource, wanted } => {
                let asked = json!({ "agent": own, "resource": resource, "wanted": wanted });
                cx.signal_external(target, SIGNAL_BUDGET_REQUEST, &asked);
            }
            Halt::Budget { .. } | Halt::NeedsHuman { .. } => {
                let by = format!("agent {} {own}", spec.name);
                cx.signal_external(target, SIGNAL_PAUSE, &json!({ "reason": halt.told(), "requested_by": by }));
            }
        }
        (self.told, self.told_halts) = (true, halts);
    }

    /// What people are asked is told to the run that began it.
    pub(super) fn tell_waits(&mut self, cx: &mut Cx<'_>) {
        if self.opening.is_some() {
            return;
        }
        let spec = self.agent.spec();
        let above = if spec.depth == 0 { &spec.report_to } else { &spec.called_by };
        let Some(above) = self.above(above.as_deref(), cx) else { return self.waits.nobody_hears() };
        let own = cx.workflow_id().map(ToString::to_string).unwrap_or_default();
        if let Some(told) = self.waits.changes(&self.agent, &own, &cx.run_id().to_string()) {
            cx.signal_external(ExternalTarget { workflow_id: above, run_id: None }, SIGNAL_WAITS, &told);
        }
    }

    /// The run that is told; nobody, once it is a fork, which nobody above has begun.
    pub(super) fn above(&self, id: Option<&str>, cx: &Cx<'_>) -> Option<WorkflowId> {
        id.filter(|_| !self.is_fork(cx)).and_then(|id| WorkflowId::new(id).ok())
    }

    pub(super) fn is_fork(&self, cx: &Cx<'_>) -> bool {
        self.began_as.is_some_and(|run| run != cx.run_id())
    }

    /// A fork owns what was lent to its source.
    pub(super) fn own_budget_in_a_fork(&mut self, cx: &Cx<'_>) {
        if self.is_fork(cx) && self.agent.is_lent() {
            self.agent.own_budget();
        }
    }

    /// An answer to what an agent below asks goes to the one that told of it; what is this agent's own is given back.
    pub(super) fn own_answer(
        &mut self,
        response: ToolApprovalResponse,
        cx: &mut Cx<'_>,
    ) -> Option<ToolApprovalResponse> {
        let Some((run, id)) = response.id.split_once('/') else { return Some(response) };
        if run == cx.run_id().to_string() {
            return Some(ToolApprovalResponse { id: id.to_owned(), ..response });
        }
        match self.waits.asker(&response) {
            Some((child, response)) => {
                let target = ExternalTarget { workflow_id: WorkflowId::of(child), run_id: None };
                cx.signal_external(target, SIGNAL_APPROVAL, &response);
            }
            None => self.waits.not_taken(&response.id),
        }
        None
    }

    /// What stands still or goes on does so below as well.
    pub(super) fn tell_below(&self, signal: &str, input: &Value, cx: &mut Cx<'_>) {
        for (key, _) in self.pending.values().filter(|(_, kind)| *kind == CommandKind::Child) {
            let target = ExternalTarget { workflow_id: child_id(cx, *key), run_id: None };
            cx.signal_external(target, signal, input);
        }
    }
}
