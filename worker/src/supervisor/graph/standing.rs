//! Policies that hold whatever anybody answers, in a run that carries out a plan (CUG-39).
//!
//! A guard ends the run before anything is planned; a playbook guides the planner, and its order is one of the plan's; a
//! tool is approved before the sub-task that would use it starts, which is a delegation too; a guide is told to whoever
//! has the tool; a formatter has the last word on the result.
//!
//! Invariant: the same functions decide here as where agents talk (`standing`), so a request meets the same
//! policies whichever kind of planning it gets. Nothing is resolved here.

use serde_json::{Map, json};

use super::*;
use crate::supervisor::model::{SkipReason, ToolApprovalWanted};
use crate::supervisor::reading::json_text;
use crate::supervisor::spec::delegate_tool;
use crate::supervisor::standing as policies;

impl GraphRules {
    /// Sub-tasks come in the order of the playbooks that fit the request, behind whatever order the plan has anyway.
    pub fn follow_playbooks(&mut self, request: &str) {
        let (_, order) = policies::playbooks(&self.standing, request);
        let known = &mut self.policies.sequence_order;
        for agent in order {
            if !known.contains(&agent) {
                known.push(agent);
            }
        }
    }

    /// How such a request is met, for the planner.
    pub(super) fn guidance(&self, request: &str) -> Vec<String> {
        let (guidance, _) = policies::playbooks(&self.standing, request);
        guidance.into_iter().filter(|text| !text.is_empty()).collect()
    }

    /// What guides say of handing work to an agent.
    pub(super) fn guides_to(&self, agent: &str) -> Vec<String> {
        policies::guides(&self.standing, &delegate_tool(agent))
    }

    /// What guides say of the tools of an agent, by tool.
    pub(super) fn guides_of(&self, card: &WorkerCard) -> Map<String, Value> {
        let guided = |tool: &String| {
            let guides = policies::guides(&self.standing, tool);
            (!guides.is_empty()).then(|| (tool.clone(), guides.join("\n").into()))
        };
        card.tools.iter().filter_map(guided).collect()
    }

    /// Formatters, if there are any, of which the first template and the first instruction count.
    fn formats(&self, answer: &Value) -> (Option<String>, Option<String>) {
        policies::formatted(&self.standing, &text_of(answer))
    }
}

impl Graph {
    /// Whether a guard answers in the place of the whole run: nothing is planned, and nobody is given work.
    pub(super) fn is_guarded(&mut self, gates: &mut dyn Gates, out: &mut Outbox) -> bool {
        let request = self.plan.objective.clone();
        let Some((policy, response)) = policies::blocked(&self.rules.standing, &request) else { return false };
        let (id, response) = (policy.id.clone(), response.to_owned());
        out.note(NoteKind::ActionRefused, json!({ "policy": id, "request": request }));
        self.enter(Phase::Planning, out);
        for task in self.open.clone() {
            self.give_up(&task, SkipReason::PolicyDenied, response.clone(), gates, out);
        }
        let outcome = GraphOutcome {
            phase: Phase::Completed,
            success: false,
            code: Some("policy_blocked".to_owned()),
            error: None,
            details: json!({ "policy_blocked": true, "policy": id, "selected_agents": [] }),
            final_result: Some(response.into()),
        };
        self.close(outcome, out);
        true
    }

    /// The task as gates see it: one whose agent, or a tool of it, must be approved says by which policy, and for what.
    pub(super) fn as_approved(&self, mut task: Task) -> Task {
        let Some(name) = self.who(&task).name() else { return task };
        let agent = self.rules.card(&name).map_or(name.as_str(), |card| card.name.as_str());
        task.requires_approval |= self.rules.policies.wants_approval(agent);
        let delegate = delegate_tool(agent);
        let own = self.rules.card(&name).into_iter().flat_map(|card| &card.tools);
        let mut tools = std::iter::once(&delegate).chain(own).chain(&task.tools);
        let wanted = tools.find_map(|tool| Some((tool, policies::approval(&self.rules.standing, tool)?)));
        let Some((tool, (policy, message))) = wanted else { return task };
        // What a tool is given is known when it is called: until then there is what its agent is asked to do.
        let delegation = format!("{delegate}({})", json_text(&json!({ "task": task.goal })));
        let code = if *tool == delegate { delegation } else { format!("{delegation}, which has the tool {tool}") };
        task.requires_approval = true;
        task.metadata.tool_approval =
            Some(ToolApprovalWanted { policy_name: policy.name.clone(), message: message.to_owned(), code });
        task
    }

    /// Puts the result into its form, which may take one more call; none where nobody wants a form.
    pub(super) fn put_in_form(&mut self, result: Value, out: &mut Outbox) {
        let (text, instruction) = self.rules.formats(&result);
        let result = text.map_or(result, Value::String);
        let Some(instruction) = instruction else { return self.conclude(Some(result), out) };
        if out.budget().exhausted().is_some() {
            self.cut = true;
            return self.conclude(Some(result), out);
        }
        let prompt = format!("{instruction}\n\n{}", text_of(&result));
        let context = json!({ "instructions": instruction, "answer": result });
        let call = Call::new(GraphKey::Format, Purpose::Synthesize, context).round(self.iteration).prompt(prompt);
        self.enter(Phase::Synthesizing, out);
        self.plain = Some(result);
        self.call(call, out);
    }

    /// The form came back. Without one the result stands as it was: it is there and it is right.
    pub(super) fn formed(&mut self, answer: Answer, out: &mut Outbox) {
        let (plain, formed) = (self.plain.take(), answer.ok().filter(|formed| !text_of(formed).trim().is_empty()));
        self.conclude(formed.or(plain), out);
    }
}
