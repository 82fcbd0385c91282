//! A plan that is up for review: what it says, what has been said about it, and how it differs from the version before.
//!
//! Invariant: what is shown is what is approved: the plan of the review, whole. The version before is read out of the
//! history, by replay; where that cannot be done, the plan is shown without it.

use std::collections::BTreeMap;

use bosun_engine::Target;
use maud::{Markup, html};
use serde_json::Value;

use crate::api::people::ask;
use crate::backend::Backend;
use crate::cli::request_text::what_it_does;
use crate::past::past;
use crate::ui::elements::value;
use crate::ui::forms::Visitor;

pub(super) async fn plan(visitor: &Visitor, target: &Target) -> Markup {
    let review = ask(&visitor.backend, target, "plan_review").await;
    let (version, plan) = (review["version"].as_u64().unwrap_or_default(), &review["current_plan"]);
    let before = if version > 1 { before(visitor, target).await } else { None };
    let said: Vec<&Value> = review["rounds"].as_array().into_iter().flatten().collect();
    let said: Vec<&Value> = said.into_iter().filter(|message| message["message"].as_str() != Some("")).collect();
    html! {
        p { "Version " (version) ", round " (review["round"])
            @if before.is_some() { ". What is different from the version before is marked: "
                span.badge.ok { "new" } " " span.badge.wait { "changed" } " " span.badge.bad { "gone" } } }
        (tasks(plan, before.as_ref()))
        details.folded { summary { "All of it" } (value(plan)) }
        @if !said.is_empty() {
            h3 { "What was said about it" }
            ol.messages { @for message in said { li {
                div.from { (message["role"].as_str().unwrap_or_default()) }
                (value(&message["message"]))
            } } }
        }
    }
}

/// How a task of one version stands to the version before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskChange {
    Same,
    New,
    Changed,
    Gone,
}

impl TaskChange {
    fn class(self) -> &'static str {
        match self {
            TaskChange::Same => "same",
            TaskChange::New => "added",
            TaskChange::Changed => "changed",
            TaskChange::Gone => "removed",
        }
    }
    fn word(self) -> &'static str {
        match self {
            TaskChange::Same => "",
            TaskChange::New => "new",
            TaskChange::Changed => "changed",
            TaskChange::Gone => "gone",
        }
    }
}

fn by_id(plan: &Value) -> BTreeMap<&str, &Value> {
    let tasks = plan["tasks"].as_array().into_iter().flatten();
    tasks.filter_map(|task| Some((task["id"].as_str()?, task))).collect()
}

/// The tasks of a plan in their order, and those that it had before; nothing where it names none.
fn changed<'p>(plan: &'p Value, before: Option<&'p Value>) -> Vec<(TaskChange, &'p Value)> {
    let (now, then) = (by_id(plan), before.map(by_id));
    let tasks = plan["tasks"].as_array().into_iter().flatten();
    let stands = |task: &Value| match (&then, task["id"].as_str()) {
        (Some(then), Some(id)) => match then.get(id) {
            None => TaskChange::New,
            Some(same) if *same == task => TaskChange::Same,
            Some(_) => TaskChange::Changed,
        },
        _ => TaskChange::Same,
    };
    let mut all: Vec<(TaskChange, &Value)> = tasks.map(|task| (stands(task), task)).collect();
    let gone = then.into_iter().flatten().filter(|(id, _)| !now.contains_key(id));
    all.extend(gone.map(|(_, task)| (TaskChange::Gone, task)));
    all
}

fn tasks(plan: &Value, before: Option<&Value>) -> Markup {
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
    let rows = changed(plan, before);
    html! { @if !rows.is_empty() {
        div.scroll tabindex="0" role="region" aria-label="The plan" { table.rows {
            thead { tr { th scope="col" { "Task" } th scope="col" { "Goal" } th scope="col" { "Who" } th scope="col" { "After" } th scope="col" { "Risk" } th scope="col" { "Change" } } }
            tbody { @for (change, task) in rows { tr class=(change.class()) {
                td { strong { (text(&task["id"])) } }
                td.wide { (text(&task["goal"])) @for (name, said) in what_it_does(task) { br; code { (name) ": " (said) } } }
                td { (["agent", "role", "capability"].iter().map(|key| text(&task[*key])).find(|who| !who.is_empty()).unwrap_or_default()) }
                td { (list(&task["dependencies"])) }
                td { (text(&task["risk"])) @if task["requires_approval"] == true { " asks again" } }
                td { (change.word()) }
            } } }
        } }
    } }
}

/// The plan that was shown before this one.
async fn before(visitor: &Visitor, target: &Target) -> Option<Value> {
    let turns = visitor.backend.turns(target.clone()).await.ok()?;
    past(turns, None, true).await.ok()?.plan_before
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_new_changed_and_gone_is_marked() {
        let plan = |tasks: &[(&str, &str)]| json!({ "tasks": tasks.iter().map(|(id, goal)| json!({ "id": id, "goal": goal })).collect::<Vec<_>>() });
        let (before, now) =
            (plan(&[("a", "x"), ("b", "y"), ("c", "z")]), plan(&[("a", "x"), ("c", "other"), ("d", "new")]));
        let all: Vec<(TaskChange, &str)> = changed(&now, Some(&before))
            .into_iter()
            .map(|(change, task)| (change, task["id"].as_str().unwrap()))
            .collect();
        use TaskChange::{Changed, Gone, New, Same};
        assert_eq!(all, [(Same, "a"), (Changed, "c"), (New, "d"), (Gone, "b")]);
        assert!(changed(&now, None).iter().all(|(change, _)| *change == Same));
    }
}
