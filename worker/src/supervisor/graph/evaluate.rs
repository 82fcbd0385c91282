//! The evaluator: after each step somebody may say that the rest is not needed, or must be planned again (FSP-05).
//!
//! Invariant: while it is asked nothing starts, and it is asked once for what has ended. What it wants planned again when
//! there are no iterations left is skipped, which nobody has called needless. How a new plan is taken is in `iterate`.

use serde_json::{Map, json};

use super::answers::answered;
use super::spellings::said_once;
use super::view::with_error;
use super::*;
use crate::supervisor::model::SkipReason;

impl Graph {
    /// Whether nothing may start because the evaluator has a word to say first.
    pub(super) fn evaluates(&mut self, out: &mut Outbox) -> bool {
        let may_ask = out.budget().exhausted().is_none() && self.in_flight.is_empty() && calls(out).next().is_none();
        if may_ask && self.rules.evaluator && self.ended_since_asked {
            self.ask_evaluator(out);
        }
        calls(out).any(|key| matches!(key, GraphKey::Evaluate { .. }))
    }

    /// FSP-05: after every step somebody may say that the rest is not needed, or must be planned again.
    fn ask_evaluator(&mut self, out: &mut Outbox) {
        self.ended_since_asked = false;
        self.cycle += 1;
        self.board_shown();
        let view = |task: &Task| {
            let result = Self::standing_result(task);
            let shown = json!({ "status": task.status, "result": result, "goal": task.goal });
            (task.id.to_string(), with_error(shown, task))
        };
        let tasks: Map<String, Value> = self.plan.in_order().into_iter().map(view).collect();
        let context = json!({ "goal": self.plan.objective, "iteration": self.iteration, "tasks": tasks });
        let prompt = prompt_of(Purpose::Decide, &context);
        let key = GraphKey::Evaluate { cycle: self.cycle };
        let call = Call::new(key, Purpose::Decide, context).round(self.cycle).prompt(prompt);
        self.call(call.agent("evaluator"), out);
    }

    pub(super) fn evaluated(&mut self, answer: Answer, gates: &mut dyn Gates, out: &mut Outbox) {
        let answer = answer.map(|value| said_once(&value).into_owned());
        let evaluation = match answered::<Evaluation>("evaluation", answer) {
            Ok(evaluation) => evaluation,
            Err(why) => {
                return self.abort("evaluation_failed", format!("evaluation failed: {why}"), Value::Null, gates, out);
            }
        };
        out.note(NoteKind::DecisionRecorded, json!({ "decision": evaluation.decision, "reason": evaluation.reason }));
        match evaluation.decision {
            EvaluationKind::Continue => {}
            EvaluationKind::Complete | EvaluationKind::Replan if self.ends_older_board("evaluate", out) => {}
            EvaluationKind::Complete => {
                let why = if evaluation.reason.is_empty() { "the goal is reached" } else { &evaluation.reason };
                self.skip_rest(SkipReason::NotNeeded, why, gates, out);
            }
            // The first planning is one of them (supervisors.md §4.2 no. 14). Nobody has said that the rest is not needed.
            EvaluationKind::Replan if self.iteration >= self.rules.max_iterations => {
                self.skip_rest(SkipReason::Iterations, "max iterations reached", gates, out);
            }
            EvaluationKind::Replan => match evaluation.tasks {
                Some(tasks) => match self.checked_of_model(PlannerOutput { tasks, ..PlannerOutput::default() }) {
                    Ok(plan) => {
                        self.iteration += 1;
                        let words = Some(evaluation.reason).filter(|reason| !reason.is_empty());
                        self.take_replan(plan.tasks, words, gates, out);
                    }
                    Err(why) => {
                        self.abort("planning_failed", format!("planning failed: {why}"), Value::Null, gates, out)
                    }
                },
                None if out.budget().exhausted().is_some() => {}
                None => {
                    self.overall_assessment = Some(evaluation.reason).filter(|reason| !reason.is_empty());
                    self.replan(out);
                }
            },
        }
    }

    fn skip_rest(&mut self, reason: SkipReason, why: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        let ids: Vec<TaskId> = self.open.iter().cloned().collect();
        for id in ids {
            self.give_up(&id, reason, format!("Skipped: {why}"), gates, out);
        }
        self.ended_since_asked = false; // the evaluator's own word is none
    }
}
