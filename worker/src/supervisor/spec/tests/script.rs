//! Scripted answers: which rule fits, what is filled in, and what happens without a rule.

use serde_json::{Value, json};

use crate::supervisor::core::key::GraphKey;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Call, Purpose};
use crate::supervisor::spec::{
    Script, ScriptFailure, ScriptRule, Span, SupervisorSpec, answer, read_spec, told_nobody,
};

fn script(rules: &str) -> Script {
    let text: String = rules.lines().map(|line| format!("  {line}\n")).collect();
    read_spec("s", &format!("script:\n{text}")).unwrap_or_else(|why| panic!("{why}")).spec.script
}

fn work(task: &str, attempt: u32) -> Call {
    Call::new(
        GraphKey::Execute { task: TaskId::of(task), attempt },
        Purpose::ExecuteWorker,
        json!({ "role": "analyst" }),
    )
    .agent("ann")
    .task(TaskId::of(task), attempt)
    .round(2)
    .prompt("Please count the boats.".to_owned())
}

fn said(script: &Script, call: &Call) -> Value {
    answer(script, call).result.unwrap()
}

#[test]
fn the_first_rule_that_fits_answers() {
    let script = script(
        "- { on: execute_worker, agent: bob, say: 1 }\n\
         - { on: execute_worker, task: 7, attempt: 1, say: 2 }\n\
         - { on: execute_worker, task: 7, say: 3 }\n\
         - { on: execute_worker, round: 9, say: 4 }\n\
         - { on: execute_worker, role: writer, say: 5 }\n\
         - { on: execute_worker, contains: trains, say: 6 }\n\
         - { on: review, say: 7 }\n\
         - { on: execute_worker, contains: boats, role: analyst, round: 2, agent: ann, say: 8 }\n\
         - { on: execute_worker, say: 9 }",
    );
    assert_eq!([work("7", 1), work("7", 2), work("8", 1)].map(|call| said(&script, &call)), [2, 3, 8]);
    assert_eq!(said(&script, &work("8", 1).round(9)), 4);
    assert_eq!(said(&script, &work("8", 1).agent("bob")), 1);
    assert_eq!(said(&script, &Call::new(GraphKey::Format, Purpose::ExecuteWorker, json!({ "role": "writer" }))), 5);
    assert_eq!(said(&script, &work("8", 1).prompt("about trains".into())), 6);
    assert_eq!(said(&script, &Call::new(GraphKey::Format, Purpose::ExecuteWorker, Value::Null)), 9);
}

#[test]
fn data_of_the_call_is_filled_in() {
    let script = script(
        "- on: execute_worker\n  \
         say: { text: \"{{agent}} on {{task}}, try {{ attempt }} of round {{round}}: {{context.goal.1}}!\", \
         whole: \"{{context.goal}}\", number: \"{{attempt}}\", nothing: \"{{context.no.such}}\", gap: \"<{{context.no}}>\", \
         plain: \"\\\\{{task}}\", open: \"{{ and\", same: [\"{{task}}\", 5, null, true] }",
    );
    let mut call = work("t1", 3);
    call.context = json!({ "goal": ["count", "boats"] });
    let expected = json!({
        "text": "ann on t1, try 3 of round 2: boats!", "whole": ["count", "boats"], "number": 3, "nothing": null,
        "gap": "<>", "plain": "{{task}}", "open": "{{ and", "same": ["t1", 5, null, true],
    });
    assert_eq!(said(&script, &call), expected);
}

#[test]
fn rules_may_fail_and_take_time() {
    let script = script(
        "- { on: execute_worker, attempt: 1, fail: \"{{task}} is broken\", after: 2s }\n\
         - { on: execute_worker, fail: { message: again, retryable: true } }",
    );
    let first = answer(&script, &work("t1", 1));
    assert_eq!(first.after, Span::from_secs(2));
    assert_eq!(first.result, Err(ScriptFailure { message: "t1 is broken".into(), retryable: false }));
    assert_eq!(answer(&script, &work("t1", 2)).result, Err(ScriptFailure { message: "again".into(), retryable: true }));
}

/// Nobody answers whom no rule lets answer; what is missing is named. Only telling somebody needs no answer.
#[test]
fn without_a_rule_nothing_is_answered() {
    let none = Script::default();
    let why = answer(&none, &work("t1", 2)).result.unwrap_err().message;
    assert!(why.contains("(agent: ann, task: t1, attempt: 2, round: 2)"), "{why}");
    assert!(why.contains("such as `- { on: execute_worker, task: t1, say: { ... } }`"), "{why}");
    for purpose in Purpose::ALL {
        let call = Call::new(GraphKey::Format, purpose, Value::Null).round(4).agent("ann");
        let told = matches!(
            purpose,
            Purpose::RecordDecomposition
                | Purpose::NotifyForApproval
                | Purpose::LogApprovalResult
                | Purpose::EmitProgress
        );
        match answer(&none, &call).result {
            Ok(answer) => assert!(told && answer == told_nobody(), "{purpose:?}: {answer}"),
            Err(why) => {
                let fits = if purpose == Purpose::ExecuteWorker { "agent: ann" } else { "round: 4" };
                let purpose = purpose.as_str();
                assert_eq!(
                    why.message,
                    format!(
                        "no scripted answer for `{purpose}` (agent: ann, task: none, attempt: 1, round: 4). Add a rule to \
                         `script:`, such as `- {{ on: {purpose}, {fits}, say: {{ ... }} }}`, or say with `via:` how the \
                         agent is run."
                    )
                );
                assert!(!told && !why.retryable);
            }
        }
    }
}

#[test]
fn an_agents_own_script_comes_first_then_the_jobs_then_the_runs() {
    let text = "agents:\n- { name: ann, script: [{ on: execute_worker, task: 1, say: own }] }\n\
                reviewer: { script: [{ on: review, task: 1, say: job }] }\n\
                script: [{ on: execute_worker, say: run }, { on: review, say: run }]";
    let spec: SupervisorSpec = read_spec("s", text).unwrap().spec;
    let said = |call: &Call| spec.scripted(call).result.unwrap();
    assert_eq!([said(&work("1", 1)), said(&work("2", 1))], ["own", "run"]);
    let review = |task: &str| Call::new(GraphKey::Format, Purpose::Review, Value::Null).task(TaskId::of(task), 1);
    assert_eq!([said(&review("1")), said(&review("2"))], ["job", "run"]);
}

#[test]
fn rules_can_be_written_in_rust() {
    let rule =
        ScriptRule::on(Purpose::Review).agent("ann").round(2).say(json!({ "passed": true })).after(Span::from_secs(1));
    let text = "- { on: review, agent: ann, round: 2, say: { passed: true }, after: 1s }";
    assert_eq!(Script(vec![rule]), script(text));
    let rule = ScriptRule::on(Purpose::Plan).attempt(1).contains("x").task(TaskId::from(3)).fail("no", true);
    let text = "- { on: plan, attempt: 1, contains: x, task: 3, fail: { message: \"no\", retryable: true } }";
    assert_eq!(Script(vec![rule]), script(text));
}
