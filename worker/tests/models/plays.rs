//! A model that plays every part: it does what it is told, by the shape that is wanted and the tools there are.

use bosun_worker::capability::model::mock::{MockAnswer, calls, gives, says};
use bosun_worker::capability::model::{ChatRequest, Message};
use serde_json::{Value, json};

/// All that was said to the model.
pub(crate) fn told(request: &ChatRequest) -> String {
    let text = |message: &Message| match message {
        Message::System { content } | Message::User { content } | Message::Tool { content, .. } => content.clone(),
        Message::Assistant(said) => said.content.clone(),
    };
    request.messages.iter().map(text).collect::<Vec<_>>().join("\n")
}

pub(crate) fn play(request: &ChatRequest) -> MockAnswer {
    let told = told(request);
    let answer = match request.schema.as_ref().map(|schema| schema.name.as_str()) {
        Some("plan") => gives(&plan(&told)),
        Some("decision") => gives(&decision(&told)),
        Some("control") => gives(&control(&told)),
        Some("evaluation") => gives(&json!({ "decision": "continue", "reason": "as planned" })),
        Some("review") if request.schema.as_ref().unwrap().schema["properties"].get("assessments").is_some() => {
            gives(&assessments(&told))
        }
        Some("review") => gives(&json!({ "verdict": "accepted", "feedback": "good", "score": 0.9 })),
        Some("validation") => gives(&json!({ "success": true })),
        Some(other) => panic!("nobody wants {other}"),
        None => return step(request, &told),
    };
    answer.into()
}

/// Two tasks, one after the other; of agents that the planner is told of.
fn plan(told: &str) -> Value {
    let agents: Vec<&str> = ["crm-agent", "billing-agent"].into_iter().filter(|name| told.contains(name)).collect();
    let mut tasks = json!([{ "id": "t1", "goal": "look" }, { "id": "t2", "goal": "tell", "deps": ["t1"] }]);
    for (task, agent) in tasks.as_array_mut().unwrap().iter_mut().zip(agents) {
        task["agent"] = agent.into();
    }
    json!({ "tasks": tasks, "reasoning": "two are enough" })
}

/// The tasks of a list: id and status, as `t1 [ready]: look`.
fn board(told: &str) -> Vec<(String, String)> {
    let task = |line: &str| {
        let line = line.trim_start_matches("- ").trim_start_matches("task ");
        let (id, rest) = line.split_once(" [")?;
        (!id.contains(' ')).then(|| rest.split_once(']').map(|(status, _)| (id.to_owned(), status.to_owned())))?
    };
    told.lines().filter_map(task).collect()
}

fn decision(told: &str) -> Value {
    let board = board(told);
    if board.is_empty() {
        let capability = if told.contains("research") { "research" } else { "write" };
        let add = |goal: &str| json!({ "tool": "add_task", "args": { "sub_task_objective": goal, "capability": capability } });
        let last = json!({ "tool": "mark_final_task", "args": { "task_id": 1 } });
        return json!({ "reasoning": "a plan", "tasks_to_execute": [], "all_tasks_completed": false,
            "tool_calls": [add("write it"), last] });
    }
    let may_run = |status: &str| ["ready", "needs_revision", "pending"].contains(&status);
    let ready: Vec<&String> = board.iter().filter(|(_, status)| may_run(status)).map(|(id, _)| id).collect();
    json!({ "reasoning": "go on", "tasks_to_execute": ready, "all_tasks_completed": ready.is_empty() })
}

/// Whatever may run; at the end the conclusion.
fn control(told: &str) -> Value {
    let progress = |(_, status): &(String, String)| match status.as_str() {
        "completed" => "completed",
        "running" => "in-progress",
        _ => "not-started",
    };
    let progress: Vec<&str> = board(told).iter().map(progress).collect();
    let over = progress.iter().all(|progress| *progress == "completed");
    json!({ "thoughts": "go on", "subtasks_progress": progress, "next_subtask": "", "conclude_task": over })
}

fn assessments(told: &str) -> Value {
    let ids = ["t1", "t2"].into_iter().filter(|id| told.contains(id));
    let all: Vec<Value> =
        ids.map(|id| json!({ "taskId": id, "verdict": "accepted", "feedback": "", "score": 0.9 })).collect();
    json!({ "assessments": all, "needsReplanning": !told.contains("t2"), "overallAssessment": "good" })
}

/// A text; or, with tools and nothing said yet, the first delegation or hand-over there is.
fn step(request: &ChatRequest, told: &str) -> MockAnswer {
    let spoken = request.messages.iter().any(|message| matches!(message, Message::Assistant(_) | Message::Tool { .. }));
    let hands_on = |name: &str| {
        ["delegate_to_", "transfer_to_", "delegate_work", "ask_question"].iter().any(|prefix| name.starts_with(prefix))
    };
    // In a swarm whoever speaks first has the last word.
    let in_swarm = request.tools.iter().any(|tool| tool.name == "transfer_to_user");
    if let Some(tool) = request.tools.iter().find(|tool| hands_on(&tool.name)).filter(|_| !spoken && !in_swarm) {
        return calls(&tool.name, filled(&tool.parameters)).into();
    }
    if told.contains("is_request_satisfied") {
        let said = |answer: Value| json!({ "reason": "as it stands", "answer": answer });
        let over = told.contains("I say");
        return gives(&json!({
            "is_request_satisfied": said(json!(over)), "is_in_loop": said(json!(false)),
            "is_progress_being_made": said(json!(true)), "next_speaker": said(json!(first_of(told))),
            "instruction_or_question": said(json!("go on")),
        }))
        .into();
    }
    let select = ["select the next", "Select the next", "next role", "next speaker"];
    if request.tools.is_empty() && select.iter().any(|text| told.contains(text)) {
        return says(&first_of(told)).into();
    }
    says("I say it is done. TERMINATE").into()
}

/// The first participant that the model is told of.
fn first_of(told: &str) -> String {
    let known = ["alice", "bob", "carol", "planner", "writer", "editor", "archivist", "botanist", "surveyor"];
    let place = |name: &&str| told.find(*name);
    known.into_iter().filter(|name| told.contains(name)).min_by_key(place).unwrap_or("alice").to_owned()
}

/// Arguments that fit: each that is required, of its type.
fn filled(parameters: &Value) -> Value {
    let required = parameters["required"].as_array().cloned().unwrap_or_default();
    let value = |name: &Value| {
        let schema = &parameters["properties"][name.as_str().unwrap()];
        let value = match (schema["type"].as_str(), schema["enum"].as_array()) {
            (_, Some(all)) => all[0].clone(),
            (Some("integer" | "number"), _) => json!(1),
            (Some("boolean"), _) => json!(false),
            (Some("array"), _) => json!([]),
            (Some("object"), _) => json!({}),
            _ => json!("do it"),
        };
        (name.as_str().unwrap().to_owned(), value)
    };
    Value::Object(required.iter().map(value).collect())
}
