//! flow-state's blocks as a program outside of this crate uses them: a loop of its own, and the whole as a spec.
//!
//! Invariant: only what the crate's documentation shows is used; a block that refuses leaves the state as it was.

use bosun_worker::supervisor::blocks::{
    PlanState, apply_review, capture_goal, planner_output_schema, review_output_schema, supervisor,
    supervisor_input_schema, supervisor_state_schema, update_plan_state,
};
use bosun_worker::supervisor::spec::{Agent, read_spec};
use serde_json::{Value, json};

#[track_caller]
fn fits(schema: &Value, value: &Value) {
    let judge = jsonschema::validator_for(schema).unwrap();
    if let Err(why) = judge.validate(value) {
        panic!("{value} should fit {schema}: {why}");
    }
}

#[track_caller]
fn misfits(schema: &Value, value: &Value) {
    assert!(!jsonschema::validator_for(schema).unwrap().is_valid(value), "{value} should not fit {schema}");
}

/// All that may be done is done by a worker that says what it was told.
fn work(state: &mut PlanState) -> Vec<String> {
    let tasks = state.executable();
    for task in &tasks {
        let told = task.feedback.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        state.worked(&task.id, json!(format!("{}{told}", task.goal))).unwrap();
    }
    tasks.into_iter().map(|task| task.id).collect()
}

fn assessment(id: &str, verdict: &str, feedback: &str) -> Value {
    json!({ "taskId": id, "verdict": verdict, "feedback": feedback, "score": 0.5 })
}

/// FSS-22: each block is usable alone, and together they are a loop: plan, work, review, plan again, until all is accepted.
#[test]
fn a_program_puts_its_own_loop_together() {
    let input = json!({ "goal": "Explain the tides" });
    fits(&supervisor_input_schema(), &input);
    let mut state = capture_goal(&input).unwrap();
    assert_eq!((state.goal(), state.executable()), ("Explain the tides", Vec::new()));

    let plan = json!({ "tasks": [{ "id": "spring", "goal": "Spring tides" },
        { "id": "neap", "goal": "Neap tides" }, { "id": "sum", "goal": "Sum up", "deps": ["neap"] }] });
    fits(&planner_output_schema(), &plan);
    update_plan_state(&mut state, &plan).unwrap();
    assert_eq!(work(&mut state), ["spring", "neap"]);
    assert_eq!(work(&mut state), ["sum"], "a task waits for the result that it needs");

    let review = json!({ "assessments": [assessment("spring", "accepted", ""), assessment("neap", "needs-revision", "why?"),
        assessment("sum", "needs-revision", "too long"), assessment("ebb", "accepted", "of another plan")],
        "needsReplanning": true, "overallAssessment": "half of it" });
    fits(&review_output_schema(), &review);
    let reviewed = apply_review(&mut state, &review).unwrap();
    assert_eq!((reviewed.accepted, reviewed.needs_replanning), (vec![("spring".into(), json!("Spring tides"))], true));
    fits(&supervisor_state_schema(), &state.to_value());
    assert!(work(&mut state.clone()).contains(&"neap".to_owned()), "what was sent back may be done again at once");

    // Accepted work stays, the rest is replaced, and feedback follows its task.
    let again = json!({ "tasks": [{ "id": "neap", "goal": "Neap tides and the moon" },
        { "id": "short", "goal": "Sum up shortly", "revises": "sum" }] });
    update_plan_state(&mut state, &again).unwrap();
    assert_eq!(work(&mut state), ["neap", "short"]);
    let review = json!({ "assessments": [assessment("neap", "accepted", ""), assessment("short", "escalate", "for a person"),
        assessment("spring", "needs-revision", "accepted work is not judged again")],
        "needsReplanning": false, "overallAssessment": "good" });
    let reviewed = apply_review(&mut state, &review).unwrap();
    let accepted = [("spring", "Spring tides"), ("neap", "Neap tides and the moon (why?)")];
    assert_eq!(reviewed.accepted, accepted.map(|(id, result)| (id.to_owned(), json!(result))));
    assert!(!reviewed.needs_replanning && state.executable().is_empty());
    let told = state.to_value();
    fits(&supervisor_state_schema(), &told);
    let status =
        |id: &str| told["tasks"].as_array().unwrap().iter().find(|task| task["id"] == id).unwrap()["status"].clone();
    assert_eq!([status("sum"), status("short")], [json!("cancelled"), json!("escalated")]);
    assert_eq!(told["iteration"], 2);
}

/// FSS-22: what does not fit its schema is refused with its place, and changes nothing.
#[test]
fn a_block_that_refuses_leaves_the_state_as_it_was() {
    for input in [json!({}), json!({ "goal": "g", "more": 1 }), json!("g")] {
        misfits(&supervisor_input_schema(), &input);
        assert!(capture_goal(&input).unwrap_err().to_string().contains("supervisor's input"), "{input}");
    }
    let mut state = capture_goal(&json!({ "goal": "g" })).unwrap();
    update_plan_state(&mut state, &json!({ "tasks": [{ "id": "a", "goal": "one" }] })).unwrap();
    work(&mut state);
    let before = state.to_value();
    for (plan, place) in [
        (json!({ "tasks": [{ "id": "b" }] }), "tasks[0]"),
        (json!({ "tasks": [{ "id": "b", "goal": "g", "priority": "urgent" }] }), "tasks[0].priority"),
    ] {
        misfits(&planner_output_schema(), &plan);
        assert!(update_plan_state(&mut state, &plan).unwrap_err().to_string().contains(place), "{plan}");
    }
    let missing = json!({ "tasks": [{ "id": "b", "goal": "g", "deps": ["c"] }] });
    assert!(update_plan_state(&mut state, &missing).unwrap_err().to_string().contains("missing task c"));
    for assessment in
        [assessment("a", "fine", ""), json!({ "taskId": "a", "verdict": "accepted", "feedback": "", "score": 2 })]
    {
        let review = json!({ "assessments": [assessment], "needsReplanning": false, "overallAssessment": "" });
        misfits(&review_output_schema(), &review);
        assert!(apply_review(&mut state, &review).unwrap_err().to_string().contains("assessments[0]"), "{review}");
    }
    assert!(state.worked("b", json!(1)).unwrap_err().to_string().contains("no task b"));
    assert!(state.worked("a", json!(1)).is_err(), "its result is under review");
    assert_eq!(state.to_value(), before);
}

/// FSS-22: the whole supervisor is a spec like one that is written in YAML, and a step of other runs.
#[test]
fn the_whole_is_a_spec() {
    let built = supervisor("tides").objective("Explain the tides").agent(Agent::new("worker")).build().unwrap();
    let written = "{ preset: flow-supervisor, name: tides, objective: Explain the tides, agents: [{ name: worker }] }";
    assert_eq!(built, read_spec("tides.yaml", written).unwrap().spec);
    assert!(supervisor("tides").build().unwrap_err().to_string().contains("requires either worker or workers"));
}
