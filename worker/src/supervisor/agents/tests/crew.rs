//! Crews: a manager, its coworkers, and a list of tasks.

use super::*;

fn task(id: &str) -> CrewTask {
    CrewTask { id: id.to_owned(), description: format!("do {id}"), ..CrewTask::default() }
}

fn crew(tasks: Vec<CrewTask>) -> Crew {
    Crew { manager_llm: Some("m1".to_owned()), tasks, ..Crew::default() }
}

fn workers() -> Vec<AgentDef> {
    vec![agent("Senior Researcher"), agent("writer").tool(ToolDef::new("spell"))]
}

fn begin(crew: Crew, start: CrewStart) -> Result<Rig, AgentsRefused> {
    Rig::build(|out| AgentLoop::crew(of_crewai(), workers(), crew, start, &AgentInput::default(), out))
}

#[track_caller]
fn run(tasks: Vec<CrewTask>) -> Rig {
    begin(crew(tasks), CrewStart::Fresh).unwrap()
}

#[track_caller]
fn refusal(crew: Crew) -> String {
    match begin(crew, CrewStart::Fresh) {
        Ok(_) => panic!("it was started"),
        Err(why) => why.to_string(),
    }
}

const MANAGER: &str = "Crew Manager";

fn asks(tool: &str, coworker: &str) -> Value {
    let what = if tool.starts_with("Ask") { "question" } else { "task" };
    calls([(tool, json!({what: "who was Ada?", "context": "be brief", "coworker": coworker}))])
}

fn prompt_of(call: &Call) -> String {
    sent(call)[0].text().to_owned()
}

fn outputs(rig: &Rig) -> Vec<(String, String, bool)> {
    rig.it.view(false).outputs.into_iter().map(|output| (output.task, output.text, output.skipped)).collect()
}

/// CRW-01: a manager of some kind is needed.
#[test]
fn a_crew_needs_a_manager() {
    let none = Crew { manager_llm: None, ..crew(vec![task("a")]) };
    let text = "Attribute `manager_llm` or `manager_agent` is required when using hierarchical process.";
    assert_eq!(refusal(none.clone()), text);
    let own = Crew { manager_agent: Some(agent("boss")), ..none };
    assert_eq!(begin(own, CrewStart::Fresh).unwrap().awaited(), ["boss"]);
    let rig = run(vec![task("a")]);
    assert_eq!(rig.pending(MANAGER).context["model"], "m1");
}

/// CRW-02: the manager is none of the agents and has no tools.
#[test]
fn a_manager_is_no_agent_of_the_crew_and_has_no_tools() {
    let with = |manager: AgentDef| Crew { manager_agent: Some(manager), ..crew(vec![task("a")]) };
    assert_eq!(refusal(with(agent("writer"))), "Manager agent should not be included in agents list.");
    let tooled = agent("boss").tool(ToolDef::new("spell"));
    assert_eq!(refusal(with(tooled)), "Manager agent should not have tools");
}

/// CRW-03: the manager carries out every task, in the order of the list; none of them needs an agent.
#[test]
fn the_manager_carries_out_every_task_in_list_order() {
    let mut rig = run(vec![task("b"), task("a")]);
    assert_eq!(rig.awaited(), [MANAGER]);
    assert_eq!(prompt_of(rig.pending(MANAGER)), "do b");
    rig.answer(MANAGER, says("b is done"));
    assert_eq!(prompt_of(rig.pending(MANAGER)), "do a\n\nThis is the context you're working with:\nb is done");
    rig.answer(MANAGER, says("a is done"));
    assert!(rig.outcome().ok);
    assert_eq!(rig.outcome().result, "a is done");
    let done = |id: &str| (id.to_owned(), format!("{id} is done"), false);
    assert_eq!(outputs(&rig), [done("b"), done("a")]);
}

/// CRW-04: two tools, and an assigned task restricts coworkers to its agent, unless the scope is all.
#[test]
fn the_manager_has_two_tools_and_asks_the_assigned_agent() {
    let assigned = CrewTask { agent: Some("writer".to_owned()), ..task("a") };
    let mut rig = run(vec![assigned.clone(), task("b")]);
    let first = rig.pending(MANAGER).clone();
    assert_eq!(tools_of(&first), ["Delegate work to coworker", "Ask question to coworker"]);
    let keys = |i: usize| first.context["tools"][i]["parameters"]["required"].clone();
    assert_eq!(keys(0), json!(["task", "context", "coworker"]));
    assert_eq!(keys(1), json!(["question", "context", "coworker"]));
    rig.answer(MANAGER, asks("Delegate work to coworker", "Senior Researcher"));
    let told = tool_texts(&sent(rig.pending(MANAGER)));
    assert!(told[0].ends_with("one of the following options: writer"), "{told:?}");
    rig.answer(MANAGER, asks("Delegate work to coworker", "writer"));
    assert_eq!(rig.awaited(), ["writer"]);
    rig.answer("writer", says("text")).answer(MANAGER, says("a is done"));
    rig.answer(MANAGER, asks("Ask question to coworker", "Senior Researcher"));
    assert_eq!(rig.awaited(), ["Senior Researcher"], "a task without agent may ask everybody");
    let mut rules = of_crewai();
    rules.delegation.scope = DelegationScope::All;
    let all = crew(vec![assigned]);
    let input = AgentInput::default();
    let mut rig = Rig::build(|out| AgentLoop::crew(rules, workers(), all, CrewStart::Fresh, &input, out)).unwrap();
    rig.answer(MANAGER, asks("Ask question to coworker", "Senior Researcher"));
    assert_eq!(rig.awaited(), ["Senior Researcher"]);
}

/// CRW-05: case, blanks and quotes make no difference, a list names its first; somebody unknown is told with the options.
#[test]
fn a_coworker_is_found_whatever_case_blanks_and_quotes() {
    for name in [
        "Senior Researcher",
        "senior researcher",
        "  SENIOR   Researcher ",
        "\"Senior Researcher\"",
        "'senior researcher'",
        "[Senior Researcher, writer]",
        "[\"Senior Researcher\"]",
        "senior\nresearcher",
    ] {
        let mut rig = run(vec![task("a")]);
        rig.answer(MANAGER, asks("Delegate work to coworker", name));
        assert_eq!(rig.awaited(), ["Senior Researcher"], "{name:?}");
    }
    for name in ["Researcher", "", "[]"] {
        let mut rig = run(vec![task("a")]);
        rig.answer(MANAGER, asks("Delegate work to coworker", name));
        let text = "Error executing tool. coworker mentioned not found, it must be one of the following options: \
                    Senior Researcher, writer";
        assert_eq!(tool_texts(&sent(rig.pending(MANAGER))), [text], "{name:?}");
    }
}

/// CRW-06: a worker that fails is told to the manager, which goes on.
#[test]
fn a_worker_that_fails_is_told_to_the_manager() {
    let mut rig = run(vec![task("a")]);
    rig.answer(MANAGER, asks("Delegate work to coworker", "writer")).fail("writer", "out of ink");
    let told = tool_texts(&sent(rig.pending(MANAGER)));
    assert_eq!(told, ["Error executing task with agent 'writer'. Error: out of ink"]);
    rig.answer(MANAGER, says("I did it myself"));
    assert!(rig.outcome().ok);
}

/// CRW-07: a delegate knows what it is told and nothing of the manager's conversation.
#[test]
fn a_delegate_knows_only_what_is_passed() {
    let mut rig = run(vec![task("secret plan")]);
    rig.answer(MANAGER, asks("Ask question to coworker", "writer"));
    let told = sent(rig.pending("writer"));
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].text(), "who was Ada?\n\nContext:\nbe brief");
    assert_eq!(tools_of(rig.pending("writer")), ["spell"]);
    assert!(!rig.pending("writer").prompt.contains("secret plan"));
}

fn async_task(id: &str) -> CrewTask {
    CrewTask { async_execution: true, ..task(id) }
}

/// CRW-08: async tasks run together, and the next task that is not async waits for them.
#[test]
fn async_tasks_run_together_and_are_awaited_before_the_next_sync_task() {
    let tasks = vec![task("a"), async_task("b"), async_task("c"), task("d"), async_task("e")];
    for swap in [false, true] {
        let mut rig = run(tasks.clone());
        assert_eq!(rig.awaited().len(), 1, "a sync task runs alone");
        rig.answer(MANAGER, says("A"));
        let prompts: Vec<String> =
            rig.calls.iter().map(|call| prompt_of(call).lines().next().unwrap().to_owned()).collect();
        assert_eq!(prompts, ["do b", "do c"]);
        let mut keys: Vec<_> = rig.calls.iter().map(|call| call.key.clone()).collect();
        let texts = if swap { ["C", "B"] } else { ["B", "C"] };
        if swap {
            keys.reverse();
        }
        rig.reply_to(&keys[0], Ok(says(texts[0])));
        assert_eq!(rig.awaited().len(), 1, "d waits for both");
        rig.reply_to(&keys[1], Ok(says(texts[1])));
        assert!(prompt_of(rig.pending(MANAGER)).ends_with("A\n\n----------\n\nB\n\n----------\n\nC"), "in list order");
        rig.answer(MANAGER, says("D"));
        assert!(rig.it.outcome().is_none(), "the trailing async task is awaited too");
        rig.answer(MANAGER, says("E"));
        assert_eq!(rig.outcome().result, "E");
    }
}

/// CRW-08: at most one async task at the end, and no task is told of a later one.
#[test]
fn two_trailing_async_tasks_and_contexts_of_the_future_are_refused() {
    let two = crew(vec![task("a"), async_task("b"), async_task("c")]);
    assert_eq!(refusal(two), "The crew must end with at most one asynchronous task.");
    assert!(begin(crew(vec![task("a"), async_task("b")]), CrewStart::Fresh).is_ok());
    let told = |id: &str, of: &str| CrewTask { context: Some(vec![of.to_owned()]), ..task(id) };
    let text = "Task 'a' has a context dependency on a future task 'b', which is not allowed.";
    assert_eq!(refusal(crew(vec![told("a", "b"), task("b")])), text);
    assert_eq!(refusal(crew(vec![told("a", "a")])), text.replace("'b'", "'a'"));
    assert!(begin(crew(vec![task("a"), told("b", "a")]), CrewStart::Fresh).is_ok());
    assert_eq!(refusal(crew(vec![task("a"), told("b", "x")])), "Task with id x not found in the crew's tasks.");
    let mut late = told("c", "b");
    late.async_execution = true;
    let text = "Task 'c' is asynchronous and cannot include other sequential asynchronous tasks in its context.";
    assert_eq!(refusal(crew(vec![task("a"), async_task("b"), late, task("d")])), text);
    assert_eq!(refusal(crew(vec![task("a"), task("a")])), "Task id 'a' is used twice or empty.");
}

fn conditional(id: &str, contains: &str) -> CrewTask {
    let when = OutputCondition { contains: Some(contains.to_owned()), ..OutputCondition::default() };
    CrewTask { when: Some(when), ..task(id) }
}

/// CRW-09: a task whose condition does not hold has an empty output; the first task has no condition, and one at least
/// has none.
#[test]
fn a_conditional_task_is_skipped_with_an_empty_output() {
    let tasks = vec![task("a"), conditional("b", "more"), task("c")];
    let mut rig = run(tasks.clone());
    rig.answer(MANAGER, says("enough"));
    assert!(prompt_of(rig.pending(MANAGER)).starts_with("do c"), "b is skipped");
    rig.answer(MANAGER, says("end"));
    assert_eq!(outputs(&rig)[1], ("b".to_owned(), String::new(), true));
    let mut rig = run(tasks);
    rig.answer(MANAGER, says("I need more"));
    assert!(prompt_of(rig.pending(MANAGER)).starts_with("do b"));
    let mut rig = run(vec![task("a"), conditional("b", "more")]);
    rig.answer(MANAGER, says("enough"));
    assert_eq!(rig.outcome().result, "enough", "the last output that says something");
    assert_eq!(refusal(crew(vec![conditional("a", "x"), task("b")])), "The first task cannot be a ConditionalTask.");
    let only = refusal(crew(vec![conditional("a", "x"), conditional("b", "x")]));
    assert_eq!(only, "Crew must include at least one non-conditional task");
    let both = CrewTask { async_execution: true, ..conditional("b", "x") };
    let text = "Conditional Task: b , cannot be executed asynchronously.";
    assert_eq!(refusal(crew(vec![task("a"), both])), text);
}

#[test]
fn a_condition_may_look_into_an_output() {
    let when = |when: Value| CrewTask { when: Some(serde_json::from_value(when).unwrap()), ..task("c") };
    let first = r#"{"count": 3}"#;
    for (condition, runs) in [
        (json!({"task": "a", "pointer": "/count", "equals": 3}), true),
        (json!({"task": "a", "pointer": "/count", "equals": 4}), false),
        (json!({"task": "a", "pointer": "/count"}), true),
        (json!({"task": "a", "pointer": "/other"}), false),
        (json!({"not_contains": "x"}), true),
        (json!({"not_contains": "B"}), false),
        (json!({"equals": "B"}), true),
        (json!({"contains": "B", "not_contains": "B"}), false),
    ] {
        let mut rig = run(vec![task("a"), task("b"), when(condition.clone())]);
        rig.answer(MANAGER, says(first)).answer(MANAGER, says("B"));
        assert_eq!(rig.it.outcome().is_none(), runs, "{condition}");
    }
}

/// CRW-10: an output that is not valid is made again with the error in the prompt, three times; then the task fails.
#[test]
fn a_guardrail_has_three_retries_with_the_error_in_the_prompt() {
    let guarded = CrewTask { guardrail: Some("checker".to_owned()), ..task("a") };
    let mut rig = run(vec![guarded.clone()]);
    rig.answer(MANAGER, says("too long"));
    assert_eq!(rig.pending("checker").context["output"], "too long");
    rig.answer("checker", json!({"success": false, "error": "keep it short"}));
    let prompt = prompt_of(rig.pending(MANAGER));
    assert!(prompt.starts_with("do a\n\n### Previous attempt failed validation: keep it short\n"), "{prompt}");
    assert!(prompt.contains("### Previous result:\ntoo long\n"));
    rig.answer(MANAGER, says("short")).answer("checker", json!({"success": true, "result": "SHORT"}));
    assert_eq!(rig.outcome().result, "SHORT", "a guardrail may put its result in place");

    let mut rig = run(vec![guarded.clone(), task("b")]);
    for i in 0..4 {
        assert!(rig.it.outcome().is_none(), "{i} retries are not too many");
        rig.answer(MANAGER, says("bad")).answer("checker", json!({"success": false, "error": format!("no {i}")}));
    }
    let error = rig.outcome().error.clone().unwrap();
    assert_eq!(error, "Task failed guardrail validation after 3 retries. Last error: no 3");
    assert!(rig.calls.is_empty(), "a task that fails stops the crew");

    let mut rig = run(vec![guarded]);
    rig.answer(MANAGER, says("x")).answer("checker", json!({"ok": true}));
    assert!(rig.outcome().error.as_deref().unwrap().contains("guardrail's answer does not conform"));
}

/// CRW-10: a person is asked before an output is accepted, after its guardrail; feedback makes it again.
#[test]
fn a_person_is_asked_before_an_output_is_accepted() {
    let asked = CrewTask { guardrail: Some("checker".to_owned()), human_input: true, ..task("a") };
    let mut rig = run(vec![asked, task("b")]);
    rig.answer(MANAGER, says("draft"));
    assert!(rig.it.human_needed().is_empty(), "nobody is bothered with what is not valid");
    rig.answer("checker", json!({"success": true}));
    let needed = rig.it.human_needed().remove(0);
    assert_eq!(needed.kind, HumanKind::TaskFeedback { task: "a".to_owned() });
    assert_eq!(needed.about, "draft");
    assert!(outputs(&rig).is_empty() && rig.calls.is_empty(), "nothing goes on meanwhile");
    let no = HumanAnswer { approved: false, feedback: "more colour".to_owned() };
    rig.with(|it, out| it.human(&needed.key, no.clone(), out).unwrap());
    assert!(prompt_of(rig.pending(MANAGER)).contains("more colour"));
    rig.with(|it, out| assert_eq!(it.human(&needed.key, no, out), Err(NotWaiting(needed.key.clone().into()))));
    rig.answer(MANAGER, says("colourful")).answer("checker", json!({"success": true}));
    let key = rig.it.human_needed().remove(0).key;
    rig.with(|it, out| it.human(&key, HumanAnswer { approved: true, feedback: String::new() }, out).unwrap());
    assert_eq!(outputs(&rig), [("a".to_owned(), "colourful".to_owned(), false)]);
    assert!(prompt_of(rig.pending(MANAGER)).starts_with("do b"));
}

fn output(task: &str) -> TaskOutput {
    TaskOutput { task: task.to_owned(), text: format!("old {task}"), skipped: false, denied: None }
}

/// CRW-11: a replay takes earlier outputs as they are and goes on from a task, or after it; an unknown task is said.
#[test]
fn a_replay_begins_from_a_task_or_after_it() {
    let tasks = || crew(vec![task("a"), task("b"), task("c")]);
    let old = || vec![output("a"), output("b"), output("c")];
    let earlier = || CrewCheckpoint { outputs: old(), lineage: Vec::new() };
    let from = begin(tasks(), CrewStart::From("b".to_owned(), earlier())).unwrap();
    assert_eq!(prompt_of(from.pending(MANAGER)), "do b\n\nThis is the context you're working with:\nold a");
    let after = begin(tasks(), CrewStart::After("b".to_owned(), earlier())).unwrap();
    assert!(prompt_of(after.pending(MANAGER)).starts_with("do c\n"));
    assert!(prompt_of(after.pending(MANAGER)).ends_with("old a\n\n----------\n\nold b"));
    let mut rig = begin(tasks(), CrewStart::From("c".to_owned(), earlier())).unwrap();
    rig.answer(MANAGER, says("new c"));
    assert_eq!(rig.outcome().result, "new c");
    assert_eq!(rig.asked.len(), 1, "no earlier task ran");
    let unknown = begin(tasks(), CrewStart::From("x".to_owned(), earlier())).err().unwrap().to_string();
    assert_eq!(unknown, "Task with id x not found in the crew's tasks.");
}

/// CRW-12: a checkpoint holds every completed output; a restored crew skips those, and a fork has a lineage of its own.
#[test]
fn a_restored_crew_skips_what_is_completed() {
    let tasks = || crew(vec![task("a"), task("b"), task("c")]);
    let mut rig = begin(tasks(), CrewStart::Fresh).unwrap();
    assert!(rig.it.checkpoint().unwrap().outputs.is_empty());
    rig.answer(MANAGER, says("A")).answer(MANAGER, says("B"));
    let kept = rig.it.checkpoint().unwrap();
    assert_eq!(kept.outputs.iter().map(|output| output.text.as_str()).collect::<Vec<_>>(), ["A", "B"]);
    let completed: Vec<&Value> = rig.noted(NoteKind::TaskStatusChanged).iter().map(|note| &note["task"]).collect();
    assert_eq!(completed, ["a", "b"], "a checkpoint is noted with each task");
    let stored = serde_json::to_string(&kept).unwrap();
    let read: CrewCheckpoint = serde_json::from_str(&stored).unwrap();
    let mut restored = begin(tasks(), CrewStart::Restore(read)).unwrap();
    assert!(prompt_of(restored.pending(MANAGER)).starts_with("do c"));
    assert_eq!(restored.asked.len(), 1);
    restored.answer(MANAGER, says("C"));
    assert_eq!(restored.outcome().result, "C");
    let fork = begin(tasks(), CrewStart::Restore(kept.clone().fork("what-if"))).unwrap();
    assert_eq!(fork.it.checkpoint().unwrap().lineage, ["what-if"]);
    let again = fork.it.checkpoint().unwrap().fork("deeper");
    assert_eq!(again.lineage, ["what-if", "deeper"]);
    assert!(kept.lineage.is_empty(), "the original keeps its own");
}

#[test]
fn a_manager_that_does_not_come_to_an_end_is_asked_for_its_best_answer() {
    let mut rig = run(vec![task("a")]);
    rig.play(|call| {
        Ok(match (who(call).as_str(), tools_of(call).is_empty()) {
            (MANAGER, false) => asks("Ask question to coworker", "writer"),
            (MANAGER, true) => says("my best answer"),
            _ => says("I do not know"),
        })
    });
    assert_eq!(rig.outcome().result, "my best answer");
    assert_eq!(rig.asked.iter().filter(|call| who(call) == MANAGER).count(), 26);
}
