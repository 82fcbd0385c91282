//! Recruiting and retiring: asked, authorized, at work, gone.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::supervisor::core::key::{TeamKey, key};
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Answer, CallFailure, ChildKind, Purpose};
use crate::supervisor::spec::{LateRecruits, RecruitJoin, RecruitRule, Team};
use crate::supervisor::team::directory::*;
use crate::supervisor::team::recruit::*;

fn yes() -> Answer {
    Ok(json!({ "allow": true }))
}

fn ask_for(team: &mut Roster, description: &str, role: &str) -> Requested {
    team.recruit_signal(&json!({ "Description": description, "Role": role }), &mut outbox(0))
}

/// A team in which `count` recruits with roles r1, r2 ... are at work.
fn team_of(count: u64) -> Roster {
    let mut team = Roster::default();
    for n in 1..=count {
        ask_for(&mut team, "work", &format!("r{n}")).unwrap();
        team.answered(&key(&format!("recruit/{n}/authorize")), yes(), &mut outbox(0));
    }
    team
}

fn agents(list: &[TeamAgent]) -> Vec<String> {
    list.iter().map(|agent| format!("{} {} {:?}", agent.agent_id, agent.role, agent.status)).collect()
}

fn refusals(out: &Outbox) -> Vec<&str> {
    let refused = out.notes().iter().filter(|note| note.kind == NoteKind::RecruitRefused);
    refused.map(|note| note.data["reason"].as_str().unwrap()).collect()
}

/// SHN-20: policy, then a simple task with the description as query and the role in its context, then the result.
#[test]
fn a_recruit_is_authorized_starts_and_brings_its_result() {
    let (mut team, mut out) = (Roster::default(), outbox(0));
    let signal = json!({ "Description": "Deep analysis of each product's pricing", "Role": "pricing_analyst" });
    team.recruit_signal(&signal, &mut out).unwrap();
    let Ask::Call(call) = &out.asks()[0] else { panic!("{:?}", out.asks()) };
    assert_eq!((call.purpose, call.key.to_string().as_str()), (Purpose::AuthorizeTeamAction, "recruit/1/authorize"));
    assert_eq!(
        call.context,
        json!({ "action": "recruit", "source": "signal", "role": "pricing_analyst",
                "description": "Deep analysis of each product's pricing", "task": null, "team_size": 0, "max_size": 10 })
    );
    assert!(team.directory.list().is_empty(), "nobody joins before the policy has spoken");

    let mut out = outbox(1);
    let recruited = team.answered(&key("recruit/1/authorize"), yes(), &mut out);
    let (agent_id, role) = ("dynamic_pricing_analyst".to_owned(), "pricing_analyst".to_owned());
    assert_eq!(recruited, TeamOutcome::Recruited { agent_id: agent_id.clone(), role: role.clone() });
    let Ask::StartChild { key: child, kind, task } = &out.asks()[0] else { panic!("{:?}", out.asks()) };
    assert_eq!((child.to_string().as_str(), *kind), ("recruit/1/child", ChildKind::SimpleTask));
    assert_eq!(task.query, "Deep analysis of each product's pricing");
    assert_eq!((task.role.as_ref(), task.agent_id.as_ref()), (Some(&role), Some(&agent_id)));
    assert_eq!(noted(&out), [NoteKind::AgentRecruited, NoteKind::ProgressEmitted]);
    assert_eq!(told(&out), ["TEAM_RECRUITED dynamic_pricing_analyst: Deep analysis of each product's pricing"]);

    let ended = team.answered(&key("recruit/1/child"), Ok(json!({ "result": "cheap" })), &mut outbox(11));
    assert_eq!(ended, TeamOutcome::Ended { agent_id: agent_id.clone(), succeeded: true });
    let result = &team.results()[0];
    assert_eq!((&result.agent_id, &result.role, result.success), (&agent_id, &role, true));
    assert_eq!(result.response, json!({ "result": "cheap" }));
}

/// SHN-20: a role that is empty, blank or absent is the generalist's.
#[test]
fn a_recruit_without_a_role_is_a_generalist() {
    for signal in [
        json!({ "Description": "help", "Role": "" }),
        json!({ "Description": "help", "Role": "  " }),
        json!({ "Description": "help" }),
        json!({ "description": "help" }),
    ] {
        let mut team = Roster::default();
        team.recruit_signal(&signal, &mut outbox(0)).unwrap();
        team.answered(&key("recruit/1/authorize"), yes(), &mut outbox(0));
        assert_eq!(agents(&team.directory.list()), ["dynamic_generalist generalist Running"]);
    }
}

/// SHN-21: a policy that says no, nothing it should, or fails: no child, a recorded denial, and later recruits work.
#[test]
fn a_denied_recruit_is_recorded_and_later_ones_work() {
    for (answer, reason) in [
        (Ok(json!({ "allow": false, "reason": "no budget" })), "no budget"),
        (Ok(json!({ "allow": false })), "not allowed by the policy"),
        (Err(CallFailure::error("policy engine is down")), "the authorization failed: policy engine is down"),
        (
            Ok(json!({ "allow": "yes" })),
            "the authorization does not conform at allow: invalid type: string \"yes\", expected a boolean",
        ),
        (Ok(Value::Null), "the authorization does not conform: expected a mapping, found nothing"),
    ] {
        let (mut team, mut out) = (Roster::default(), outbox(0));
        ask_for(&mut team, "a", "r").unwrap();
        let denied = team.answered(&key("recruit/1/authorize"), answer, &mut out);
        assert_eq!(denied, TeamOutcome::Denied { reason: reason.to_owned() });
        assert_eq!((asked(&out), refusals(&out)), (vec![], vec![reason]));
        assert_eq!((team.recruits_alive(), team.size()), (0, 0));
        ask_for(&mut team, "a", "r").unwrap();
        team.answered(&key("recruit/2/authorize"), yes(), &mut out);
        assert_eq!(asked(&out), ["start SimpleTask recruit/2/child"]);
    }
}

/// SHN-22: an authorized retirement cancels the recruit at work, which then is in no list any more but stays on the
/// roster as retired; what it still says is dropped.
#[test]
fn a_retired_recruit_is_cancelled_and_leaves() {
    let (mut team, mut out) = (team_of(2), outbox(0));
    team.retire_signal(&json!({ "AgentID": "dynamic_r1" }), &mut out).unwrap();
    assert_eq!(asked(&out), ["authorize_team_action retire/1/authorize"]);
    assert_eq!(team.directory.list().len(), 2, "nothing happens before the policy has spoken");
    let retired = team.answered(&key("retire/1/authorize"), yes(), &mut out);
    assert_eq!(retired, TeamOutcome::Retired { agent_id: "dynamic_r1".into(), tasks: vec![] });
    assert_eq!(asked(&out)[1..], ["cancel recruit/1/child"]);
    assert_eq!(agents(&team.directory.list()), ["dynamic_r2 r2 Running"]);
    assert_eq!(team.directory.get("dynamic_r1").unwrap().status, MemberStatus::Retired);
    assert_eq!(noted(&out), [NoteKind::AgentRetired, NoteKind::ProgressEmitted]);
    assert_eq!(told(&out), ["TEAM_RETIRED dynamic_r1: dynamic_r1 has left the team"]);
    let before = team.clone();
    assert_eq!(team.answered(&key("recruit/1/child"), Ok(json!("late")), &mut out), TeamOutcome::Dropped);
    assert_eq!(team, before);
    assert!(noted(&out).contains(&NoteKind::AttemptDropped));
}

/// SHN-22: an agent of the plan leaves with its tasks, which the run cancels; it does not start again.
#[test]
fn a_retired_agent_of_the_plan_names_its_tasks() {
    let (mut team, mut out) = (Roster::default(), outbox(0));
    assert!(team.directory.started("agent-1", "analyst", &TaskId::of("t1")));
    team.retire_signal(&json!({ "AgentID": "agent-1" }), &mut out).unwrap();
    let retired = team.answered(&key("retire/1/authorize"), yes(), &mut out);
    assert_eq!(retired, TeamOutcome::Retired { agent_id: "agent-1".into(), tasks: vec![TaskId::of("t1")] });
    assert!(!team.directory.started("agent-1", "analyst", &TaskId::of("t1")));
    assert!(!team.directory.ended("agent-1", Some(&TaskId::of("t1")), true));
}

/// SHN-22: who has ended work leaves without a cancellation; who may not leave, is unknown or has left stays as it is.
#[test]
fn a_retirement_of_nobody_changes_nothing() {
    let mut team = team_of(2);
    team.answered(&key("recruit/1/child"), Ok(json!("done")), &mut outbox(0));
    let mut out = outbox(0);
    team.retire_signal(&json!({ "AgentID": "dynamic_r1" }), &mut out).unwrap();
    team.answered(&key("retire/1/authorize"), yes(), &mut out);
    assert_eq!(asked(&out), ["authorize_team_action retire/1/authorize"], "there is nothing to cancel");
    assert_eq!(team.results().len(), 1, "what it brought back stays");

    team.retire_signal(&json!({ "agent_id": "dynamic_r2" }), &mut out).unwrap();
    let denied = team.answered(&key("retire/2/authorize"), Ok(json!({ "allow": false, "reason": "needed" })), &mut out);
    assert_eq!(denied, TeamOutcome::Denied { reason: "needed".into() });
    let before = team.clone();
    for (signal, reason) in [
        (json!({ "AgentID": "dynamic_r1" }), "Agent 'dynamic_r1' is not in the team"),
        (json!({ "AgentID": "x" }), "Agent 'x' is not in the team"),
        (json!({}), ".: missing field `AgentID`"),
    ] {
        assert_eq!(team.retire_signal(&signal, &mut out).unwrap_err().to_string(), reason);
        assert_eq!(refusals(&out).last(), Some(&reason));
    }
    assert_eq!(team, before);
    team.retire_signal(&json!({ "AgentID": "dynamic_r2" }), &mut out).unwrap();
    let twice = team.retire_signal(&json!({ "AgentID": "dynamic_r2" }), &mut out).unwrap_err();
    assert_eq!(twice.to_string(), "dynamic_r2 is being retired already");
}

/// SHN-23: ten at once and no more, those in front of the policy included; every way of ending frees a slot.
#[test]
fn the_eleventh_member_at_once_is_refused() {
    type Freeing = fn(&mut Roster);
    let freed: [Freeing; 4] = [
        |team| drop(team.answered(&key("recruit/3/child"), Ok(json!("done")), &mut outbox(0))),
        |team| drop(team.answered(&key("recruit/3/child"), Err(CallFailure::error("broke")), &mut outbox(0))),
        |team| {
            team.retire_signal(&json!({ "AgentID": "dynamic_r3" }), &mut outbox(0)).unwrap();
            team.answered(&key("retire/1/authorize"), yes(), &mut outbox(0));
        },
        |team| drop(team.answered(&key("recruit/10/authorize"), Ok(json!({ "allow": false })), &mut outbox(0))),
    ];
    for free in freed {
        let mut team = team_of(9);
        ask_for(&mut team, "work", "r10").unwrap();
        let (before, mut out) = (team.clone(), outbox(0));
        let signal = json!({ "Description": "work", "Role": "r11" });
        let full = team.recruit_signal(&signal, &mut out).unwrap_err();
        assert_eq!(full.to_string(), "the team is full: 10 of 10 members are at work");
        assert_eq!((refusals(&out), asked(&out)), (vec!["the team is full: 10 of 10 members are at work"], vec![]));
        assert_eq!(team, before);
        free(&mut team);
        ask_for(&mut team, "work", "r11").unwrap();
        assert_eq!(ask_for(&mut team, "work", "r12"), Err(TeamRefusal::Full { running: 10, max: 10 }));
    }
}

/// SHN-23: agents of the plan are members too.
#[test]
fn agents_of_the_plan_count_for_the_size() {
    let mut team = Roster::default();
    for n in 1..=10 {
        assert!(team.directory.started(&format!("agent-{n}"), "generalist", &TaskId::from(n)));
    }
    assert_eq!(ask_for(&mut team, "work", "r"), Err(TeamRefusal::Full { running: 10, max: 10 }));
    assert!(team.directory.ended("agent-4", Some(&TaskId::from(4)), false));
    ask_for(&mut team, "work", "r").unwrap();
}

/// SHN-24: a copy of agent, role and status in the order of joining; by role exactly; an unknown role is nobody's.
#[test]
fn the_directory_lists_and_finds_by_role() {
    let mut team = team_of(1);
    for (agent, role) in [("a", "researcher"), ("b", "analyst"), ("c", "analyst")] {
        team.directory.started(agent, role, &TaskId::of(agent));
    }
    team.directory.ended("b", Some(&TaskId::of("b")), true);
    team.directory.ended("c", Some(&TaskId::of("c")), false);
    let mut list = team.directory.list();
    assert_eq!(
        agents(&list),
        ["dynamic_r1 r1 Running", "a researcher Running", "b analyst Completed", "c analyst Failed"]
    );
    assert_eq!(
        serde_json::to_value(&list[2]).unwrap(),
        json!({ "AgentID": "b", "Role": "analyst", "Status": "completed" })
    );
    assert_eq!(agents(&team.directory.find_by_role("analyst")), ["b analyst Completed", "c analyst Failed"]);
    for unknown in ["Analyst", "analys", ""] {
        assert!(team.directory.find_by_role(unknown).is_empty());
    }
    list.clear();
    assert_eq!(team.directory.list().len(), 4);
}

/// An agent with several tasks at once runs until the last of them has ended.
#[test]
fn an_agent_with_several_tasks_ends_with_its_last() {
    let mut directory = Directory::default();
    for task in ["t1", "t2"] {
        directory.started("a", "writer", &TaskId::of(task));
    }
    directory.ended("a", Some(&TaskId::of("t1")), false);
    assert_eq!(directory.get("a").unwrap().status, MemberStatus::Running);
    directory.ended("a", Some(&TaskId::of("t2")), true);
    assert_eq!(directory.get("a").unwrap().status, MemberStatus::Completed);
}

/// SHN-25: two recruits are with the policy and at work at the same time, and both are in the directory.
#[test]
fn recruits_go_on_side_by_side_and_are_listed() {
    let (mut team, mut out) = (Roster::default(), outbox(0));
    ask_for(&mut team, "a", "x").unwrap();
    ask_for(&mut team, "b", "x").unwrap();
    team.answered(&key("recruit/2/authorize"), yes(), &mut out);
    team.answered(&key("recruit/1/authorize"), yes(), &mut out);
    assert_eq!(asked(&out), ["start SimpleTask recruit/2/child", "start SimpleTask recruit/1/child"]);
    assert_eq!(agents(&team.directory.list()), ["dynamic_x x Running", "dynamic_x_2 x Running"]);
    team.answered(&key("recruit/1/child"), Ok(json!("of a")), &mut out);
    assert_eq!(agents(&team.directory.list()), ["dynamic_x x Running", "dynamic_x_2 x Completed"]);
    team.answered(&key("recruit/2/child"), Err(CallFailure::error("broke")), &mut out);
    assert_eq!(agents(&team.directory.list()), ["dynamic_x x Failed", "dynamic_x_2 x Completed"]);
    // Results are in the order of the requests, whoever came back first.
    let brought: Vec<(String, Value)> = team.results().into_iter().map(|r| (r.agent_id, r.response)).collect();
    assert_eq!(brought, [("dynamic_x_2".to_owned(), json!("of a")), ("dynamic_x".to_owned(), json!("broke"))]);
}

/// SHN-26: a recruit's failure, also one it tells itself, is a failed result of its own.
#[test]
fn a_recruit_that_says_it_failed_has_failed() {
    let mut team = team_of(1);
    let said = json!({ "success": false, "error": "no data" });
    let ended = team.answered(&key("recruit/1/child"), Ok(said), &mut outbox(0));
    assert_eq!(ended, TeamOutcome::Ended { agent_id: "dynamic_r1".into(), succeeded: false });
    assert!(!team.results()[0].success);
}

/// SHN-27: late recruits are refused with a record, or taken and waited for; none after the end.
#[test]
fn a_late_recruit_is_refused_or_waited_for() {
    let (mut team, mut out) = (Roster::default(), outbox(0));
    team.synthesizing();
    let signal = json!({ "Description": "more", "Role": "r" });
    let late = "the run puts its results together; nobody is recruited any more";
    assert_eq!(team.recruit_signal(&signal, &mut out).unwrap_err().to_string(), late);
    assert_eq!(refusals(&out), [late]);

    let mut team = Roster::new(Team { late_recruits: LateRecruits::Wait, ..Team::default() });
    team.synthesizing();
    team.recruit_signal(&signal, &mut out).unwrap();
    assert_eq!(team.recruits_alive(), 1);
    team.answered(&key("recruit/1/authorize"), yes(), &mut out);
    assert_eq!(team.recruits_alive(), 1);
    team.answered(&key("recruit/1/child"), Ok(json!("here")), &mut out);
    assert_eq!((team.recruits_alive(), team.results().len()), (0, 1));
    team.closed(&mut out);
    assert_eq!(team.recruit_signal(&signal, &mut out), Err(TeamRefusal::Over));
    assert_eq!(refusals(&out).last(), Some(&"the run is over; nobody is recruited any more"));
}

/// SHN-26, SHN-70: those who depend on the recruiting task wait for its recruit, from the request to the end; with
/// `none` nobody does. A recruit of nobody in particular is waited for by whoever depends on anything.
#[test]
fn dependents_join_the_recruits_of_what_they_depend_on() {
    let on = |ids: &[&str]| -> Vec<TaskId> { ids.iter().map(|id| TaskId::of(id)).collect() };
    let mut team = Roster::default();
    let by_c = json!({ "Description": "pricing", "Role": "pricing_analyst", "Task": "c" });
    team.recruit_signal(&by_c, &mut outbox(0)).unwrap();
    assert_eq!(team.joins(&on(&["a", "b", "c", "d"])), ["dynamic_pricing_analyst"]);
    assert!(team.joins(&on(&["a", "b"])).is_empty());
    assert!(team.joins(&[]).is_empty());
    team.answered(&key("recruit/1/authorize"), yes(), &mut outbox(0));
    assert_eq!(team.joins(&on(&["c"])), ["dynamic_pricing_analyst"]);
    team.answered(&key("recruit/1/child"), Ok(json!("done")), &mut outbox(0));
    assert!(team.joins(&on(&["c"])).is_empty());

    ask_for(&mut team, "anything", "x").unwrap();
    assert_eq!(team.joins(&on(&["a"])), ["dynamic_x"]);
    assert!(team.joins(&[]).is_empty());

    let mut loose = Roster::new(Team { recruit_join: RecruitJoin::None, ..Team::default() });
    loose.recruit_signal(&by_c, &mut outbox(0)).unwrap();
    assert!(loose.joins(&on(&["c"])).is_empty());
}

/// SHN-71: the same description and role is refused while the first is alive, and taken again after it.
#[test]
fn the_same_recruit_twice_is_refused_while_the_first_lives() {
    let mut team = Roster::default();
    ask_for(&mut team, "pricing", "x").unwrap();
    let twin = TeamRefusal::Duplicate { agent: "dynamic_x".into() };
    assert_eq!(twin.to_string(), "dynamic_x works on that already");
    assert_eq!(ask_for(&mut team, " pricing ", "x"), Err(twin.clone()));
    team.answered(&key("recruit/1/authorize"), yes(), &mut outbox(0));
    assert_eq!(ask_for(&mut team, "pricing", "x"), Err(twin));
    ask_for(&mut team, "pricing", "y").unwrap();
    ask_for(&mut team, "patents", "x").unwrap();
    team.answered(&key("recruit/1/child"), Ok(json!("done")), &mut outbox(0));
    ask_for(&mut team, "pricing", "x").unwrap();
}

/// SHN-71: a recruit comes from a signal, an agent's result, or a rule on results; the policy is told which.
#[test]
fn recruits_come_from_signals_results_and_rules() {
    let rule = |rule: Value| serde_json::from_value::<RecruitRule>(rule).unwrap();
    let rules = vec![
        rule(json!({ "when": { "contains": "Patent" }, "role": "patent_analyst", "description": "look into patents" })),
        rule(json!({ "when": { "task": "c", "field": "deep.0.much", "equals": true }, "role": "deep",
                     "description": "dig" })),
        rule(json!({ "when": { "field": "gap" }, "role": "filler", "description": "fill the gap" })),
        rule(json!({ "when": { "equals": "help" }, "description": "help" })),
        rule(json!({ "when": {}, "role": "everywhere", "description": "no condition" })),
    ];
    let told = |task: &str, result: Value, recruits: &[Value]| {
        let (mut team, mut out) = (Roster::new(Team { rules: rules.clone(), ..Team::default() }), outbox(0));
        team.wanted(&TaskId::of(task), Some(&result), recruits, &mut out);
        let line = |ask: &Ask| match ask {
            Ask::Call(call) => {
                let text = |field: &str| call.context[field].as_str().unwrap_or("-").to_owned();
                format!("{} {} of {}", text("source"), text("role"), text("task"))
            }
            other => panic!("{other:?}"),
        };
        (out.asks().iter().map(line).collect::<Vec<_>>(), refusals(&out).len())
    };
    let seen = |task: &str, result: Value| told(task, result, &[]);
    let one = |line: &str| (vec![line.to_owned()], 0);
    assert_eq!(seen("a", json!("many PATENTS found")), one("rule patent_analyst of a"));
    assert_eq!(seen("a", json!({ "text": ["patent"] })), one("rule patent_analyst of a"));
    assert_eq!(seen("a", json!("nothing")), (vec![], 0));
    let deep = |much: bool| json!({ "deep": [{ "much": much }] });
    assert_eq!(seen("c", deep(true)), one("rule deep of c"));
    assert_eq!(seen("d", deep(true)), (vec![], 0));
    assert_eq!(seen("c", deep(false)), (vec![], 0));
    assert_eq!(seen("c", json!({ "deep": [] })), (vec![], 0));
    assert_eq!(seen("c", json!({ "gap": null })), (vec![], 0));
    assert_eq!(seen("c", json!({ "gap": 0 })), one("rule filler of c"));
    assert_eq!(seen("c", json!("help")), one("rule generalist of c"));
    let asks =
        [json!({ "description": "pricing", "role": "p" }), json!({ "role": "q" }), json!({ "description": " " })];
    assert_eq!(told("c", json!("nothing"), &asks), (vec!["result p of c".to_owned()], 2));
}

/// SHN-20, SHN-22: without a policy all is allowed at once; one with a name of its own is an agent of the spec.
#[test]
fn the_policy_can_be_off_or_somebody() {
    let (mut team, mut out) = (Roster::new(Team { policy: None, ..Team::default() }), outbox(0));
    let recruited = team.recruit_signal(&json!({ "Description": "a", "Role": "r" }), &mut out);
    assert_eq!(recruited, Ok(Some(TeamOutcome::Recruited { agent_id: "dynamic_r".into(), role: "r".into() })));
    let retired = team.retire_signal(&json!({ "AgentID": "dynamic_r" }), &mut out);
    assert_eq!(retired, Ok(Some(TeamOutcome::Retired { agent_id: "dynamic_r".into(), tasks: vec![] })));
    assert_eq!(asked(&out), ["start SimpleTask recruit/1/child", "cancel recruit/1/child"]);

    let named = Team { policy: Some("head_of_people".into()), ..Team::default() };
    let (mut team, mut out) = (Roster::new(named), outbox(0));
    team.recruit_signal(&json!({ "Description": "a" }), &mut out).unwrap();
    let Ask::Call(call) = &out.asks()[0] else { panic!("{:?}", out.asks()) };
    assert_eq!(call.agent.as_deref(), Some("head_of_people"));
}

/// Recruiting can be off, and an ill-formed signal is refused with the field's name.
#[test]
fn what_may_not_be_is_refused_with_a_record() {
    let mut team = Roster::new(Team { recruit: false, ..Team::default() });
    assert_eq!(ask_for(&mut team, "a", "b"), Err(TeamRefusal::Off));
    let (mut team, mut out) = (Roster::default(), outbox(0));
    for (signal, reason) in [
        (json!({ "Role": "x" }), ".: missing field `Description`"),
        (json!({ "Description": 1 }), "Description: invalid type: integer `1`, expected a string"),
        (json!({ "Description": "" }), "a recruit needs a description of its task"),
    ] {
        assert_eq!(team.recruit_signal(&signal, &mut out).unwrap_err().to_string(), reason);
        assert_eq!(refusals(&out).last(), Some(&reason));
    }
    assert_eq!(team, Roster::default());
    assert_eq!(team.answered(&key("recruit/1/authorize"), yes(), &mut out), TeamOutcome::Dropped);
}

#[derive(Debug, Clone)]
enum Step {
    Recruit(u8, u8),
    Retire(u8),
    Authorized(bool, u64, bool),
    Child(u64, bool),
    Late,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8, 0..3_u8).prop_map(|(d, r)| Step::Recruit(d, r)),
        1 => (0..3_u8).prop_map(Step::Retire),
        4 => (any::<bool>(), 1..12_u64, any::<bool>()).prop_map(|(recruit, n, yes)| Step::Authorized(recruit, n, yes)),
        3 => (1..12_u64, any::<bool>()).prop_map(|(n, ok)| Step::Child(n, ok)),
        1 => Just(Step::Late),
    ]
}

proptest! {
    /// SHN-23, SHN-25, SHN-27: in whatever order things come, the team keeps to its size, every child started is ended
    /// or cancelled once or still alive, every result stands under an id of its own, and no request is lost.
    #[test]
    fn no_request_is_lost_and_the_size_holds(steps in proptest::collection::vec(step(), 0..80), max in 0..4_u32) {
        let mut team = Roster::new(Team { max_size: max, ..Team::default() });
        let mut out = outbox(0);
        let (mut requested, mut refused) = (0, 0);
        for step in steps {
            match step {
                Step::Recruit(description, role) => {
                    requested += 1;
                    let signal = json!({ "Description": format!("d{description}"), "Role": format!("r{role}") });
                    refused += usize::from(team.recruit_signal(&signal, &mut out).is_err());
                }
                Step::Retire(role) => {
                    let _ = team.retire_signal(&json!({ "AgentID": format!("dynamic_r{role}") }), &mut out);
                }
                Step::Authorized(recruit, n, allow) => {
                    let key = if recruit { TeamKey::AuthorizeRecruit(n) } else { TeamKey::AuthorizeRetirement(n) };
                    team.answered(&key, Ok(json!({ "allow": allow })), &mut out);
                }
                Step::Child(n, ok) => {
                    let answer = if ok { Ok(json!("x")) } else { Err(CallFailure::error("x")) };
                    team.answered(&key(&format!("recruit/{n}/child")), answer, &mut out);
                }
                Step::Late => team.synthesizing(),
            }
            prop_assert!(team.size() <= max as usize);
            prop_assert!(team.recruits_alive() == team.size());
        }
        let lines = asked(&out);
        let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        prop_assert_eq!(requested, refused + count("authorize_team_action recruit/"));
        let at_work = team.directory.running();
        prop_assert_eq!(count("start"), team.results().len() + count("cancel") + at_work);
        let mut ids: Vec<&str> = team.directory.roster().iter().map(|member| member.agent_id.as_str()).collect();
        ids.sort_unstable();
        prop_assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
        let text = serde_json::to_string(&team).unwrap();
        prop_assert_eq!(serde_json::from_str::<Roster>(&text).unwrap(), team);
    }
}
