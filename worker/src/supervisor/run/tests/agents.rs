//! Agents that call agents, as whole runs: delegation, background work, hand-off, crews, and the conversational loop.

use serde_json::{Value, json};

use crate::scene::kit::*;

/// An assistant asks a planner and a coder at once; the planner asks the coder twice.
const HIERARCHY: &str = "
kind: supervisor
name: hierarchy
preset: supyagent-delegation
objective: Build a REST API
agents:
  - name: assistant
    model: big
    delegates: [planner, coder]
    script:
      - { on: execute_worker, round: 1, say: { tool_calls: [
          { name: delegate_to_planner, args: { task: plan it } }, { name: delegate_to_coder, args: { task: fix it } } ] } }
      - { on: execute_worker, say: all is done }
  - name: planner
    model: small
    delegates: [coder]
    script:
      - { on: execute_worker, round: 1, after: 5s, say: { tool_calls: [
          { name: delegate_to_coder, args: { task: step 1 } }, { name: delegate_to_coder, args: { task: step 2 } } ] } }
      - { on: execute_worker, say: planned }
  - name: coder
    script:
      - { on: execute_worker, after: 10s, say: { content: '{{context.task}} is done', tokens: 7 } }
";

fn tool_messages(digest: &Value) -> Vec<String> {
    let messages = digest["messages"].as_array().into_iter().flatten();
    let tools = messages.filter(|message| message["role"] == "tool");
    tools.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

/// SUP-02, SUP-03, SUP-21, SUP-33: delegations run side by side, whatever comes first the end is the same, and each agent
/// uses its own model.
#[test]
fn a_hierarchy_of_agents_runs_to_its_answer_in_every_order() {
    let mut played = SceneText::new(HIERARCHY).play();
    assert_eq!(played.took, 15, "5 s of the planner and 10 s of two coders at once");
    let report = played.report();
    assert_eq!(report["final_result"], "all is done");
    assert_eq!(report["tokens"], 21);
    let answers = [r#"{"ok": true, "data": "planned"}"#, r#"{"ok": true, "data": "fix it is done"}"#];
    assert_eq!(tool_messages(&played.digest), answers, "in call order, though the coder was first");
    let models: Vec<Value> =
        played.noted("DecisionRequested").iter().map(|note| json!([note["agent"], note["model"]])).collect();
    assert_eq!(models[..3], [json!(["assistant", "big"]), json!(["planner", "small"]), json!(["coder", null])]);
    let stats = played.query("registry_stats", Value::Null);
    assert_eq!(stats, json!({"total": 5, "active": 0, "completed": 5, "failed": 0}));
}

/// SUP-06, SUP-10, SUP-18: an agent that asks itself stops at depth 5, with the error as the answer of its call.
#[test]
fn a_loop_of_delegations_ends_at_depth_five() {
    let spec = "
kind: supervisor
name: loop
preset: supyagent-delegation
objective: go deeper
agents:
  - name: a
    delegates: [a]
    script:
      - { on: execute_worker, contains: Cannot delegate further, say: 'this is the bottom' }
      - { on: execute_worker, round: 1, say: { tool_calls: [ { name: delegate_to_a, args: { task: deeper } } ] } }
      - { on: execute_worker, say: back }
";
    let mut played = SceneText::new(spec).play();
    let instances = played.query("registry", Value::Null);
    let depths: Vec<&Value> = instances.as_array().unwrap().iter().map(|instance| &instance["depth"]).collect();
    assert_eq!(depths, [0, 1, 2, 3, 4, 5]);
    let deepest = played.inputs.iter().filter(|(_, input)| {
        let prompt = input["prompt"].as_str().unwrap_or_default();
        prompt.contains(r#"{"ok": false, "error": "Maximum delegation depth (5) reached. Cannot delegate further."}"#)
    });
    assert_eq!(deepest.count(), 1);
    assert_eq!(played.report()["final_result"], "back");
}

fn supyagent(script: &str, coder: &str) -> String {
    format!(
        "
kind: supervisor
name: work
preset: supyagent-delegation
objective: do it
agents:
  - name: assistant
    delegates: [coder]
    script:
{script}
  - name: coder
    script:
      - {coder}
"
    )
}

const IN_BACKGROUND: &str = "      - { on: execute_worker, round: 1, say: { tool_calls: [
          { name: delegate_to_coder, args: { task: the suite, background: true } } ] } }
      - { on: execute_worker, say: started }";

/// SUP-22: a background delegation outlives the answer of its parent, and crashes; the run waits for it.
#[test]
fn background_work_is_durable() {
    let spec = supyagent(IN_BACKGROUND, "{ on: execute_worker, after: 24h, say: 42 passed }");
    let spec = spec.replace("- name: coder\n", "- name: coder\n    timeout: 25h\n");
    let mut played = SceneText::new(&spec).play();
    assert_eq!(played.took, 86_400);
    assert_eq!(played.report()["final_result"], "started");
    let all = json!({ "include_completed": true });
    assert_eq!(played.query("list_processes", all)[0]["status"], "completed");
    assert_eq!(played.query("get_process_output", json!({ "process_id": "agent_1" })), "42 passed");
}

/// SUP-25: a process is killed from outside, once; its call is taken back and the run ends.
#[test]
fn a_background_process_can_be_killed_from_outside() {
    let spec = supyagent(IN_BACKGROUND, "{ on: execute_worker, after: 24h, say: 42 passed }");
    let kill = || {
        Act::Do(json!({ "do": "update", "name": "kill_process", "input": { "process_id": "agent_1" },
            "answers": "Process agent_1 killed" }))
    };
    let mut played = SceneText::new(&spec)
        .at(5, Act::Refused("kill_process", json!({ "process_id": "agent_9" }), "Process agent_9 not found"))
        .at(10, kill())
        .order_counts()
        .play();
    assert_eq!(played.took, 10);
    assert_eq!(played.query("check_process", json!({ "process_id": "agent_1" }))["status"], "killed");
    assert_eq!(played.query("registry_stats", Value::Null)["failed"], 1);
}

const ONE: &str = "      - { on: execute_worker, round: 1, say: { tool_calls: [
          { name: delegate_to_coder, args: { task: long } } ] } }
      - { on: execute_worker, say: enough }";

/// SUP-23, SUP-30: after 300 s the parent goes on; the child is promoted, killed, or a failure, as the spec says.
#[test]
fn a_delegation_that_takes_too_long_is_treated_as_the_spec_says() {
    let slow = "{ on: execute_worker, after: 400s, say: late }";
    for (on_timeout, took, told) in [
        ("background", 400, "Process promoted to background after 300s. "),
        ("kill", 300, r#"{"ok": false, "error": "Process killed after 300s timeout"}"#),
        ("wait", 300, r#"{"ok": false, "error": "Process killed after reaching max execution time"}"#),
        ("fail", 300, r#"{"ok": false, "error": "Delegation timeout - child took too long"}"#),
    ] {
        let spec = format!("{}delegation: {{ on_timeout: {on_timeout} }}\n", supyagent(ONE, slow));
        let played = SceneText::new(&spec).order_counts().play();
        assert!(tool_messages(&played.digest)[0].contains(told), "{on_timeout}: {:?}", tool_messages(&played.digest));
        assert_eq!(played.took, took, "{on_timeout}");
        assert_eq!(played.report()["final_result"], "enough");
    }
}

/// SUP-28: a sleep is a durable timer.
#[test]
fn a_sleep_is_a_durable_timer() {
    let sleep =
        "      - { on: execute_worker, round: 1, say: { tool_calls: [ { name: sleep, args: { seconds: 86400 } } ] } }
      - { on: execute_worker, say: awake }";
    let played = SceneText::new(&supyagent(sleep, "{ on: execute_worker, say: x }")).play();
    assert_eq!(played.took, 86_400);
    assert_eq!(tool_messages(&played.digest), [r#"{"ok": true, "data": "Slept for 86400 seconds"}"#]);
}

/// SUP-30: a model that refuses its key is a failure that the parent is told of, and the run goes on.
#[test]
fn a_child_that_fails_is_told_to_its_parent() {
    let spec = supyagent(ONE, "{ on: execute_worker, fail: invalid x-api-key }");
    let mut played = SceneText::new(&spec).play();
    assert!(tool_messages(&played.digest)[0].contains("Delegation to 'coder' failed: invalid x-api-key."));
    assert_eq!(played.report()["status"], "completed");
    assert_eq!(played.query("registry_stats", Value::Null)["failed"], 1);
}

/// A paused run starts nothing, and goes on where it was.
#[test]
fn a_paused_run_of_agents_starts_nothing() {
    let spec = supyagent(ONE, "{ on: execute_worker, after: 10s, say: quick }");
    let played = SceneText::new(&spec)
        .at(5, Act::Signal("pause_v1", json!({})))
        .at(60, Act::Signal("resume_v1", json!({})))
        .order_counts()
        .play();
    assert_eq!(played.took, 60, "the coder's answer of 10 s waits for the resume");
    assert_eq!(played.report()["final_result"], "enough");
}

/// What comes in while the run stands still is heard when it goes on, in the order in which it came: the answer of an
/// agent before the word of a person that came later.
#[test]
fn answers_and_words_in_a_pause_are_heard_in_their_order() {
    let spec = "
kind: supervisor
name: desk
preset: cuga-conversational
objective: go
policies: [{ type: tool_approval, name: people, tools: [delegate_to_clerk], message: 'Pay?' }]
agents:
  - name: boss
    delegates: [writer, clerk]
    script:
      - { on: execute_worker, round: 1, say: { tool_calls: [
          { name: delegate_to_clerk, args: { task: pay } }, { name: delegate_to_writer, args: { task: write } } ] } }
      - { on: execute_worker, say: all done }
  - name: writer
    delegates: [critic]
    script:
      - { on: execute_worker, round: 1, after: 20s, say: { tool_calls: [ { name: delegate_to_critic, args: { task: read } } ] } }
      - { on: execute_worker, say: written }
  - { name: critic, script: [ { on: execute_worker, say: read } ] }
  - { name: clerk, script: [ { on: execute_worker, say: paid } ] }
";
    let played = SceneText::new(spec)
        .at(10, Act::Signal("pause_v1", json!({})))
        .at(30, Act::Update("respond_interrupt", json!({ "resume": { "approved": true } })))
        .at(60, Act::Signal("resume_v1", json!({})))
        .order_counts()
        .play();
    assert_eq!(
        played.calls[2..4],
        ["agents/1.1.1.1.1.0/step/1", "agents/1.1.1.0/step/1"],
        "the critic, then the clerk"
    );
    assert_eq!((played.took, &played.report()["final_result"]), (60, &json!("all done")));
}

/// The same of the end of a sleep, which came after the answer.
#[test]
fn a_sleep_that_ends_in_a_pause_is_over_when_the_run_goes_on() {
    let spec = "
kind: supervisor
name: desk
preset: supyagent-delegation
objective: go
agents:
  - name: boss
    delegates: [sleeper, writer]
    script:
      - { on: execute_worker, round: 1, say: { tool_calls: [
          { name: delegate_to_sleeper, args: { task: wait } }, { name: delegate_to_writer, args: { task: write } } ] } }
      - { on: execute_worker, say: all done }
  - name: sleeper
    script:
      - { on: execute_worker, round: 1, say: { tool_calls: [ { name: sleep, args: { seconds: 25 } } ] } }
      - { on: execute_worker, say: awake }
  - name: writer
    delegates: [critic]
    script:
      - { on: execute_worker, round: 1, after: 20s, say: { tool_calls: [ { name: delegate_to_critic, args: { task: read } } ] } }
      - { on: execute_worker, say: written }
  - { name: critic, script: [ { on: execute_worker, say: read } ] }
";
    let played = SceneText::new(spec)
        .at(10, Act::Signal("pause_v1", json!({})))
        .at(60, Act::Signal("resume_v1", json!({})))
        .order_counts()
        .play();
    assert_eq!(
        played.calls[3..5],
        ["agents/1.1.1.1.1.0/step/1", "agents/1.1.1.0/step/2"],
        "the critic, then the sleeper"
    );
    assert_eq!((played.took, &played.report()["final_result"]), (60, &json!("all done")));
}

#[test]
fn a_canceled_run_of_agents_takes_everything_back() {
    let spec = supyagent(ONE, "{ on: execute_worker, after: 10s, say: quick }");
    let played = SceneText::new(&spec).at(5, Act::Cancel).order_counts().play();
    assert_eq!(played.took, 5);
    assert_eq!(played.report()["status"], "cancelled");
}

/// LGS-01, LGS-02, LGS-05: a supervisor hands over to two agents at once and ends by answering.
#[test]
fn a_supervisor_hands_over_and_gets_control_back() {
    let spec = "
kind: supervisor
name: graph
preset: langgraph-supervisor
objective: who and how many?
handoff: { parallel: true }
agents:
  - name: boss
    script:
      - { on: execute_worker, round: 1, say: { tool_calls: [
          { name: transfer_to_research_expert, args: {} }, { name: transfer_to_math, args: {} } ] } }
      - { on: execute_worker, say: 'Ada, 42' }
  - { name: Research Expert, script: [ { on: execute_worker, after: 9s, say: it is Ada } ] }
  - { name: math, script: [ { on: execute_worker, after: 3s, say: it is 42 } ] }
";
    let played = SceneText::new(spec).play();
    assert_eq!(played.report()["final_result"], "Ada, 42");
    assert_eq!(played.took, 9);
    let texts: Vec<&str> = played.digest["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert_eq!(
        texts[2..5],
        ["Successfully transferred to Research Expert", "Successfully transferred to math", "it is Ada"]
    );
    assert_eq!(texts.iter().filter(|text| **text == "Successfully transferred back to boss").count(), 2);
}

/// LGS-08: a supervisor is an agent of another one, as a run of its own.
#[test]
fn a_supervisor_can_be_an_agent_of_another_one() {
    let spec = "
kind: supervisor
name: outer
preset: langgraph-supervisor
objective: solve it
agents:
  - name: boss
    script:
      - { on: execute_worker, round: 1, say: { tool_calls: [ { name: transfer_to_lead, args: {} } ] } }
      - { on: execute_worker, contains: inner answer, say: relayed }
  - name: lead
    via: { supervisor: { spec: { kind: supervisor, name: inner, preset: langgraph-supervisor, objective: x, agents: [
      { name: worker, script: [ { on: execute_worker, say: inner answer } ] } ] } } }
";
    let played = SceneText::new(spec).order_counts().play();
    assert_eq!(played.report()["final_result"], "relayed", "{:#}", played.digest);
}

/// SWM-01, SWM-05: control moves for good, with the whole history; a loop that never answers ends at 25 messages.
#[test]
fn control_moves_to_another_agent_for_good() {
    let spec = "
kind: supervisor
name: swarm
preset: swarm-handoff
objective: I want to buy
agents:
  - { name: triage, script: [ { on: execute_worker, say: { handoff: sales } } ] }
  - { name: sales, script: [ { on: execute_worker, contains: I want to buy, say: sold } ] }
";
    let played = SceneText::new(spec).play();
    assert_eq!(played.report()["final_result"], "sold");
    assert_eq!(played.report()["details"]["active_agent"], "sales");
    assert_eq!(tool_messages(&played.digest), [r#"{"assistant": "sales"}"#]);
    let endless = spec.replace("contains: I want to buy, say: sold", "say: { handoff: triage }");
    let played = SceneText::new(&endless).play();
    assert_eq!(played.report()["status"], "completed");
    assert_eq!(played.report()["details"]["messages"].as_array().unwrap().len(), 26);
}

/// CRW-03, CRW-04, CRW-08, CRW-10: the manager carries out the tasks of the plan, asks coworkers, and a person looks at
/// the last output.
#[test]
fn a_crew_carries_out_its_tasks() {
    let spec = "
kind: supervisor
name: crew
preset: crewai-hierarchical
objective: a page about Ada
manager_llm: m1
seed_plan: { plan: { objective: a page, tasks: [
  { task_id: 1, sub_task_objective: find facts, capability: researcher,
    parameters: { async_execution: true } },
  { task_id: 2, sub_task_objective: find pictures, capability: researcher,
    parameters: { async_execution: true } },
  { task_id: 3, sub_task_objective: write it, capability: writer,
    parameters: { human_input: true } } ] } }
agents:
  - { name: researcher, script: [ { on: execute_worker, after: 7s, say: born 1815 } ] }
  - { name: writer, script: [ { on: execute_worker, after: 4s, say: a text } ] }
script:
  - { on: execute_worker, agent: Crew Manager, contains: more colour, say: a colourful page }
  - { on: execute_worker, agent: Crew Manager, round: 1, contains: write it, say: { tool_calls: [
      { name: Delegate work to coworker, args: { task: write, context: facts, coworker: WRITER } } ] } }
  - { on: execute_worker, agent: Crew Manager, round: 1, say: { tool_calls: [
      { name: Ask question to coworker, args: { question: when, context: Ada, coworker: '[researcher]' } } ] } }
  - { on: execute_worker, agent: Crew Manager, contains: write it, say: a page }
  - { on: execute_worker, agent: Crew Manager, say: found }
";
    let answer = |answer: Value| Act::Do(json!({ "do": "answer", "answer": answer }));
    let asked = || json!({ "question": "any" });
    let played = SceneText::new(spec)
        .once(asked(), answer(json!({ "approved": false, "feedback": "more colour" })))
        .once(asked(), answer(json!({ "approved": true })))
        .play();
    assert_eq!(played.report()["final_result"], "a colourful page", "{:#}", played.digest);
    assert_eq!(played.took, 11, "both async tasks at once");
    let done: Vec<&Value> = played.noted("TaskStatusChanged").iter().map(|note| &note["task"]).collect();
    assert_eq!(done.last(), Some(&&json!("3")));
}

/// CUG-08, CUG-10, CUG-17, CUG-37, CUG-38: the conversational loop: todos, variables along and back, a child that
/// remembers.
#[test]
fn the_conversational_supervisor_keeps_todos_and_variables() {
    let spec = "
kind: supervisor
name: cuga
preset: cuga-conversational
objective: add Ada and write to her
agents:
  - name: supervisor
    script:
      - { on: execute_worker, round: 1, say: { tool_calls: [
          { name: create_update_todos, args: { todos: [ { text: add, status: pending } ] } },
          { name: delegate_to_crm_agent, args: { task: add Ada } } ] } }
      - { on: execute_worker, round: 2, say: { tool_calls: [
          { name: delegate_to_crm_agent, args: { task: check Ada } } ] } }
      - { on: execute_worker, say: Ada is in }
  - name: crm-agent
    script:
      - { on: execute_worker, contains: check Ada, say: 'as I said: added' }
      - { on: execute_worker, say: { content: added, context_variables: { id: 7 } } }
";
    let played = SceneText::new(spec).play();
    assert_eq!(played.report()["final_result"], "Ada is in");
    assert_eq!(played.digest["agents"]["todos"], json!([{ "text": "add", "status": "pending" }]));
    assert_eq!(tool_messages(&played.digest)[2], "as I said: added");
    assert_eq!(played.report()["details"]["context_variables"], json!({ "id": 7 }));
    let second = played
        .inputs
        .values()
        .filter_map(|input| input["prompt"].as_str())
        .find(|prompt| prompt.contains("check Ada\n\nVariables:\n- id: 7"));
    assert!(second.is_some_and(|prompt| prompt.contains("add Ada")), "the child remembers, and is told the variable");
}
