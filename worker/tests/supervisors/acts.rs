//! What people and programs send to a run: every name of supervisors.md §5.7, with inputs that fit and that do not.
//!
//! Invariant: strangers' ids, wrong versions, and inputs of other shapes come along with what is right, and each update is
//! right often enough to be accepted (`accepted` counts). The kit repeats, reorders and delays them; nothing here knows
//! in what state the run is.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use serde_json::{Value, json};

pub(crate) const QUERIES: [&str; 14] = [
    "digest",
    "report",
    "progress",
    "notes",
    "getMailbox",
    "listTeamAgents",
    "control_state_v1",
    "get_plan",
    "get_task",
    "takeover_context",
    "pending_approvals",
    "pending_interrupts",
    "why_not_running",
    "budget",
];

type Inputs = BoxedStrategy<Value>;

/// Of no use to anybody.
fn nonsense() -> Inputs {
    let all =
        vec![Value::Null, json!(7), json!("x"), json!([]), json!({}), json!({ "task_id": 3.5 }), json!({ "a": [1] })];
    select(all).boxed()
}

/// The task ids there are, and two of strangers.
fn ids(tasks: &[&'static str]) -> Inputs {
    select([tasks, &["nobody", "99"]].concat()).prop_map(Value::from).boxed()
}

/// Fits five times out of six.
fn mostly(inputs: impl Strategy<Value = Value> + 'static) -> Inputs {
    Union::new_weighted(vec![(5, inputs.boxed()), (1, nonsense())]).boxed()
}

fn control() -> Inputs {
    let with_timeout = json!({ "reason": "look", "requested_by": "ann", "timeout": "10m" });
    mostly(select(vec![json!({ "reason": "look", "requested_by": "ann" }), with_timeout, json!({})]))
}

fn message(agents: &[&'static str]) -> Inputs {
    let to = select([agents, &["supervisor", "nobody"]].concat());
    mostly(
        (to, "[a-z]{0,6}").prop_map(|(to, text)| json!({ "From": "ann", "To": to, "Role": "human", "Content": text })),
    )
}

/// Ids are numbers of the run (the kit's first run has sevens for its id): the first few may be those that are pending.
fn approval_id() -> impl Strategy<Value = String> {
    let run = bosun_engine::RunId([7; 16]).to_string();
    (1..4_u8).prop_map(move |n| format!("{run}/ap-{n}"))
}
fn later() -> Inputs {
    (approval_id(), select(vec!["1s", "10m", "0s"]))
        .prop_map(|(id, by)| json!({ "approval_id": id, "by": by, "requested_by": "ann" }))
        .boxed()
}
fn louder() -> Inputs {
    approval_id().prop_map(|id| json!({ "approval_id": id, "requested_by": "ann" })).boxed()
}
fn approval() -> Inputs {
    (approval_id(), any::<bool>(), any::<bool>())
        .prop_map(|(id, approved, retry)| {
            let feedback = (retry && !approved).then_some("better");
            let mut response = json!({ "approval_id": id, "approved": approved, "approver": "ann" });
            if let Some(feedback) = feedback {
                response["feedback"] = feedback.into();
            }
            response
        })
        .boxed()
}

fn resume(tasks: &[&'static str]) -> Inputs {
    mostly(prop_oneof![
        ids(tasks).prop_map(|id| json!({ "task": id, "resume": "yes" })),
        Just(json!({ "resume": "yes" }))
    ])
}

/// All signals.
pub(crate) fn signals(tasks: &[&'static str], agents: &[&'static str]) -> Vec<(&'static str, Inputs)> {
    let recruit =
        select([agents, &["stranger"]].concat()).prop_map(|role| json!({ "Role": role, "Description": "help" }));
    let retire = select([agents, &["stranger"]].concat()).prop_map(|agent| json!({ "AgentID": agent }));
    let words = prop_oneof![Just(json!("go on")), Just(json!({ "message": "go on" }))];
    vec![
        ("mailbox_v1", message(agents)),
        ("recruit_v1", mostly(recruit)),
        ("retire_v1", mostly(retire)),
        ("pause_v1", control()),
        ("resume_v1", control()),
        ("cancel_v1", control()),
        ("human_takeover_v1", control()),
        ("human_release_v1", control()),
        ("human_input_v1", mostly(words)),
        ("approval_response_v1", mostly(approval())),
        ("interrupt_resume_v1", resume(tasks)),
        ("extend_approval", mostly(later())),
        ("escalate_approval", mostly(louder())),
        ("unheard_of_v1", nonsense()),
    ]
}

fn new_task(tasks: &[&'static str]) -> Inputs {
    ids(tasks)
        .prop_map(|on| json!({ "sub_task_objective": "one more", "capability": "research", "dependencies": [on] }))
        .boxed()
}

fn status(tasks: &[&'static str]) -> Inputs {
    let names =
        vec!["ready", "pending", "completed", "failed", "cancelled", "skipped", "blocked", "running", "rerun", "done"];
    (ids(tasks), select(names))
        .prop_map(|(id, status)| json!({ "task_id": id, "status": status, "reason": "a person says so" }))
        .boxed()
}

fn plan_of(tasks: &[&'static str]) -> Inputs {
    let first = tasks.first().copied().unwrap_or_default();
    (0..4_u64)
        .prop_map(move |version| {
            let tasks = json!([{ "id": "n1", "goal": "anew" }, { "id": "n2", "goal": "then", "deps": ["n1"] }, { "id": first, "goal": "again" }]);
            json!({ "version": version, "tasks": tasks })
        })
        .boxed()
}

/// What people may change of their own part of the spec while it runs; the mode has an update of its own.
fn policy() -> Inputs {
    select(vec![
        json!({ "enabled": false }),
        json!({ "enabled": true, "gates": ["before"] }),
        json!({ "approval": { "timeout": "5m", "on_timeout": "approve" } }),
        json!({ "plan_keywords": ["report"], "exceptions": [] }),
        json!({ "mode": "human_in_command" }),
        json!({ "gates": ["never"] }),
    ])
    .boxed()
}

/// Ids as runs give them: the first of a conversation's own agent, its second, and one of an agent below.
fn processes() -> Inputs {
    select(vec!["agent_1", "agent_2", "agent_1_1", "stranger"]).prop_map(|id| json!({ "process_id": id })).boxed()
}

/// How old an agent may be that is still active (SUP-14), and whether those that have ended go too (SUP-13).
fn cleanup() -> Inputs {
    select(vec![json!({}), json!({ "max_age_hours": 24 }), json!({ "max_age_hours": 0, "completed": false })]).boxed()
}

/// The update that no run has.
pub(crate) const UNHEARD_OF: &str = "unheard_of";

/// All updates.
pub(crate) fn updates(tasks: &[&'static str]) -> Vec<(&'static str, Inputs)> {
    let of_task = || mostly(ids(tasks).prop_map(|id| json!({ "task_id": id })));
    let patch = ids(tasks).prop_map(|id| json!({ "task_id": id, "sub_task_objective": "something else" }));
    let by_hand = ids(tasks).prop_map(|id| json!({ "task_id": id, "result": "by hand" }));
    let verdict = (0..4_u64, any::<bool>())
        .prop_map(|(version, approved)| json!({ "version": version, "approved": approved, "approver": "ann" }));
    let feedback = (0..4_u64).prop_map(|version| json!({ "version": version, "message": "shorter" }));
    let mode = select(vec!["human_in_command", "human_in_the_loop", "human_on_the_loop", "none"]);
    let mode = mode.prop_map(|mode| json!({ "mode": mode, "requested_by": "ann" }));
    let incident = select(vec!["minor", "serious", "odd"]).prop_map(|of| json!({ "severity": of }));
    vec![
        ("add_task", mostly(new_task(tasks))),
        ("patch_task", mostly(patch)),
        ("cancel_task", of_task()),
        ("mark_final_task", of_task()),
        ("update_task_status", mostly(status(tasks))),
        ("complete_task_manually", mostly(by_hand)),
        ("revise_plan", mostly(plan_of(tasks))),
        ("plan_feedback", mostly(feedback)),
        ("approve_plan", mostly(verdict)),
        ("respond_approval", mostly(approval())),
        ("extend_approval", mostly(later())),
        ("escalate_approval", mostly(louder())),
        ("respond_interrupt", resume(tasks)),
        ("set_hitl_mode", mostly(mode)),
        ("report_incident", mostly(incident)),
        ("set_policy", mostly(policy())),
        ("kill_process", mostly(processes())),
        ("cleanup_agents", mostly(cleanup())),
        (UNHEARD_OF, nonsense()),
    ]
}
