//! Background processes, timeouts and sleeping.

use super::*;

fn background(task: &str) -> Value {
    calls([("delegate_to_coder", json!({"task": task, "background": true}))])
}

fn process(tool: &str, id: &str) -> Value {
    calls([(tool, json!({"process_id": id}))])
}

#[track_caller]
fn last(rig: &Rig) -> Value {
    serde_json::from_str(&rig.tool_messages().pop().unwrap()).unwrap()
}

/// SUP-22: a background delegation returns at once, and is looked at with four tools; an unknown id is said to be.
#[test]
fn a_background_delegation_returns_at_once_and_can_be_looked_at_later() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
    rig.answer("assistant", background("run the suite"));
    assert_eq!(rig.awaited(), ["coder", "assistant"], "the parent goes on while the child works");
    let expected = json!({"ok": true, "data": {"status": "backgrounded", "process_id": "agent_1", "pid": null,
        "message": "Process started in background", "log_file": null}});
    assert_eq!(last(&rig), expected);
    rig.answer("assistant", calls([("list_processes", json!({}))]));
    let line =
        json!({"process_id": "agent_1", "type": "agent", "status": "backgrounded", "pid": null, "agent": "coder"});
    assert_eq!(last(&rig), json!({"ok": true, "data": [line]}));
    let lines: Vec<String> = (1..=120).map(|i| format!("line {i}")).collect();
    rig.answer("coder", says(&lines.join("\n")));
    rig.answer("assistant", process("check_process", "agent_1"));
    let checked = last(&rig);
    assert_eq!(checked["data"]["status"], "completed");
    assert_eq!(checked["data"]["exit_code"], 0);
    assert_eq!(checked["data"]["metadata"], json!({"agent_name": "coder", "task": "run the suite"}));
    rig.answer("assistant", process("get_process_output", "agent_1"));
    assert_eq!(last(&rig)["data"]["output"], lines[20..].join("\n"), "the last 100 lines");
    rig.answer("assistant", calls([("get_process_output", json!({"process_id": "agent_1", "tail": 2}))]));
    assert_eq!(last(&rig)["data"]["output"], "line 119\nline 120");
    for tool in ["check_process", "get_process_output", "kill_process"] {
        rig.answer("assistant", process(tool, "agent_9"));
        assert_eq!(last(&rig), json!({"ok": false, "error": "Process agent_9 not found"}));
    }
    rig.answer("assistant", calls([("list_processes", json!({}))]));
    assert_eq!(last(&rig), json!({"ok": true, "data": []}), "finished ones are not listed");
    rig.answer("assistant", calls([("list_processes", json!({"include_completed": true}))]));
    assert_eq!(last(&rig)["data"][0]["status"], "completed");
}

#[test]
fn a_background_process_outlives_the_answer_of_its_parent() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
    rig.answer("assistant", background("run the suite")).answer("assistant", says("started"));
    assert!(rig.outcome().ok);
    assert_eq!(rig.it.processes_running(), 1);
    rig.after(Duration::from_secs(14 * 86_400));
    rig.answer("coder", says("42 passed"));
    assert_eq!(rig.it.get_process_output("agent_1", 100).unwrap(), "42 passed");
    rig.with(|it, out| assert!(it.say("and?", out)));
    rig.answer("assistant", process("check_process", "agent_1"));
    assert_eq!(rig.pending("assistant").context["messages"].as_array().unwrap().len(), 7);
}

fn timed_out(action: OnDelegationTimeout, timeout: Value, waits: u64) -> Rig {
    let mut rules = of_supyagent();
    rules.delegation.on_timeout = action;
    let mut rig = Rig::start(rules, planner_and_coder(), "go");
    let mut args = json!({"task": "long"});
    if !timeout.is_null() {
        args["timeout"] = timeout;
    }
    rig.answer("assistant", calls([("delegate_to_coder", args)]));
    rig.after(Duration::from_millis(waits * 1000 - 1));
    assert_eq!(rig.awaited(), ["coder"], "one millisecond before");
    rig.after(Duration::from_millis(1));
    rig
}

/// SUP-23: after 300 s, or what the call says, a delegation goes to the background, is killed, or is waited for up to the
/// hard limit of 300 s.
#[test]
fn a_delegation_that_takes_too_long_is_treated_as_the_rules_say() {
    let mut rig = timed_out(OnDelegationTimeout::Background, Value::Null, 300);
    let told = last(&rig);
    assert_eq!(told["data"]["status"], "backgrounded");
    assert!(told["data"]["message"].as_str().unwrap().starts_with("Process promoted to background after 300s. "));
    assert_eq!(rig.awaited(), ["coder", "assistant"]);
    rig.answer("coder", says("late but there"));
    assert_eq!(rig.it.check_process("agent_1").unwrap()["status"], "completed");
    assert_eq!(rig.it.get_process_output("agent_1", 100).unwrap(), "late but there");

    let rig = timed_out(OnDelegationTimeout::Kill, json!(20), 20);
    assert_eq!(last(&rig), json!({"ok": false, "error": "Process killed after 20s timeout"}));
    assert_eq!(rig.awaited(), ["assistant"], "the child's call was taken back");

    let rig = timed_out(OnDelegationTimeout::Wait, json!(20), 300);
    assert_eq!(last(&rig), json!({"ok": false, "error": "Process killed after 300s hard timeout"}));
    let rig = timed_out(OnDelegationTimeout::Wait, json!(400), 400);
    assert_eq!(last(&rig), json!({"ok": false, "error": "Process killed after reaching max execution time"}));
    assert_eq!(of_supyagent().delegation.on_timeout, OnDelegationTimeout::Background);
    assert_eq!(of_supyagent().delegation.timeout.as_secs(), 300);
}

#[test]
fn a_child_that_answers_in_time_is_not_timed_out_later() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
    rig.answer("assistant", delegate("coder", "quick")).answer("coder", says("done"));
    assert!(rig.timers.is_empty(), "the deadline was taken back");
}

/// SUP-24: ten at once and no more; finished ones make room, and so does a kill.
#[test]
fn at_most_ten_processes_run_in_the_background() {
    let mut rules = of_supyagent();
    rules.repetitions = None;
    let mut rig = Rig::start(rules, planner_and_coder(), "go");
    for i in 0..10 {
        rig.answer("assistant", background(&format!("t{i}")));
        assert_eq!(last(&rig)["ok"], true);
    }
    rig.answer("assistant", background("one too many"));
    let told = last(&rig);
    assert_eq!(told["ok"], false);
    assert!(told["error"].as_str().unwrap().starts_with("Maximum background processes (10) reached. "));
    assert_eq!(rig.it.processes_running(), 10);
    rig.answer("coder", says("t0 is done"));
    rig.answer("assistant", background("in its place"));
    assert_eq!(last(&rig)["data"]["process_id"], "agent_11", "the finished one was cleaned first");
    assert_eq!(rig.it.check_process("agent_1"), Err(ProcessRefusal::NotFound("agent_1".to_owned())));
    rig.answer("assistant", process("kill_process", "agent_5"));
    assert_eq!(last(&rig), json!({"ok": true, "data": "Process agent_5 killed"}));
    rig.answer("assistant", background("in the killed one's place"));
    assert_eq!(last(&rig)["data"]["process_id"], "agent_12");
    assert_eq!(rig.it.processes_running(), 10);
}

#[test]
fn no_promotion_makes_more_processes_than_there_may_be() {
    let mut rules = of_supyagent();
    rules.delegation.background_max = 1;
    let mut rig = Rig::start(rules, planner_and_coder(), "go");
    rig.answer("assistant", background("a")).answer("assistant", delegate("coder", "b"));
    rig.after(Duration::from_secs(300));
    assert!(last(&rig)["error"].as_str().unwrap().starts_with("Maximum background processes (1) reached. "));
    assert_eq!(rig.it.processes_running(), 1);
    assert_eq!(rig.awaited(), ["coder", "assistant"], "the one that found no room was ended");
}

/// SUP-25: killed stays killed, whatever comes later; one that has ended cannot be killed.
#[test]
fn a_killed_process_stays_killed() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
    rig.answer("assistant", background("a"));
    let key = rig.pending("coder").key.clone();
    rig.answer("assistant", process("kill_process", "agent_1"));
    assert_eq!(rig.awaited(), ["assistant"], "its call was taken back");
    rig.with(|it, out| it.answered(&key.try_into().unwrap(), Ok(says("I was done anyway")), out));
    assert_eq!(rig.it.check_process("agent_1").unwrap()["status"], "killed");
    rig.answer("assistant", process("kill_process", "agent_1"));
    assert_eq!(last(&rig), json!({"ok": false, "error": "Process agent_1 is not running (status: killed)"}));
    rig.answer("assistant", background("b")).answer("coder", says("done"));
    rig.answer("assistant", process("kill_process", "agent_2"));
    assert_eq!(last(&rig), json!({"ok": false, "error": "Process agent_2 is not running (status: completed)"}));
    rig.answer("assistant", background("c")).fail("coder", "broken");
    rig.answer("assistant", process("kill_process", "agent_3"));
    assert_eq!(last(&rig), json!({"ok": false, "error": "Process agent_3 is not running (status: failed)"}));
    assert_eq!(rig.it.get_process_output("agent_3", 10).unwrap(), "Error: broken");
}

#[test]
fn killing_a_process_ends_everything_below_it() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
    rig.answer("assistant", calls([("delegate_to_planner", json!({"task": "a", "background": true}))]));
    rig.answer("planner", delegate("coder", "b"));
    rig.with(|it, out| assert!(it.kill_process("agent_1", out).is_ok()));
    assert_eq!(rig.awaited(), ["assistant"]);
    assert!(rig.timers.is_empty());
    let statuses: Vec<String> = rig.it.sessions_view().into_iter().map(|session| session.status).collect();
    assert_eq!(statuses, ["active", "failed", "failed"]);
}

/// CUG-38: of what ends together nothing begins on the way: a call that waits for the memory of its sibling is not made.
#[test]
fn a_sibling_that_waits_does_not_begin_when_both_are_ended() {
    let mut agents = planner_and_coder();
    agents[2].memory_scope = Some(MemoryScope::Conversation);
    let mut rig = Rig::start(of_supyagent(), agents, "go");
    rig.answer("assistant", calls([("delegate_to_planner", json!({"task": "a", "background": true}))]));
    let two = [("delegate_to_coder", json!({"task": "b"})), ("delegate_to_coder", json!({"task": "c"}))];
    rig.answer("planner", calls(two));
    let asked = rig.asked.len();
    assert_eq!(rig.awaited(), ["assistant", "coder"], "one after the other");
    rig.with(|it, out| assert!(it.kill_process("agent_1", out).is_ok()));
    assert_eq!(rig.awaited(), ["assistant"]);
    assert_eq!(rig.asked.len(), asked, "the second one never began");
    assert!(rig.timers.is_empty());
    // One from elsewhere that waits for the same memory is next as ever.
    rig.answer("assistant", delegate("coder", "d"));
    assert_eq!(rig.awaited(), ["coder"]);
}

/// What a killed process made room for begins when the run is resumed, as everything does.
#[test]
fn a_process_killed_in_a_pause_lets_nothing_begin_before_the_resume() {
    let mut agents = planner_and_coder();
    agents[2].memory_scope = Some(MemoryScope::Conversation);
    let mut rig = Rig::start(of_supyagent(), agents, "go");
    rig.answer("assistant", background("a")).answer("assistant", background("b"));
    assert_eq!(rig.awaited(), ["coder", "assistant"], "the second process waits for the first");
    rig.hold(true);
    rig.with(|it, out| {
        assert!(it.kill_process("agent_1", out).is_ok());
    });
    assert_eq!(rig.awaited(), ["assistant"]);
    rig.hold(false);
    assert_eq!(rig.awaited(), ["assistant", "coder"]);
    rig.answer("coder", says("did b"));
    assert_eq!(rig.it.check_process("agent_2").unwrap()["status"], "completed");
}

/// SUP-28: a sleep is a durable timer of more than 0 s and at most 24 h.
#[test]
fn sleep_is_a_timer_within_bounds() {
    let sleep = |seconds: Value| {
        let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
        rig.answer("assistant", calls([("sleep", json!({"seconds": seconds}))]));
        rig
    };
    for bad in [json!(0), json!(-1), json!("10"), json!(null), json!(true), json!(0.0)] {
        let told = last(&sleep(bad.clone()));
        assert_eq!(told, json!({"ok": false, "error": "seconds must be a positive number"}), "{bad}");
    }
    for long in [json!(86_401), json!(86_400.5), json!(1e300)] {
        let told = last(&sleep(long.clone()));
        assert_eq!(told, json!({"ok": false, "error": "Maximum sleep is 24 hours (86400 seconds)"}), "{long}");
    }
    for (seconds, ms) in [(json!(86_400), 86_400_000), (json!(0.5), 500)] {
        let mut rig = sleep(seconds.clone());
        assert!(rig.awaited().is_empty());
        rig.after(Duration::from_millis(ms - 1));
        assert!(rig.awaited().is_empty());
        rig.after(Duration::from_millis(1));
        assert_eq!(last(&rig), json!({"ok": true, "data": format!("Slept for {seconds} seconds")}));
        assert_eq!(rig.awaited(), ["assistant"]);
    }
}
