//! Tests of escalations: what fires, in which order, and who waits.

use serde_json::json;

use super::super::escalation::{Action, EscalationPriority, Escalations, Observed, PlanShape};
use super::{MINUTE, after, asks, at, notes, only_note};
use crate::supervisor::core::key::{PeopleKey, key};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::{Task, TaskId};
use crate::supervisor::spec::{
    Gate, Hitl, HitlException, HitlMode, Money, PlanPolicy, Ratio, Risk, Span, Trigger, TriggerOrder, Triggers,
};

use HitlMode::{HumanInCommand, HumanInTheLoop, HumanOnTheLoop};

fn texts(triggers: &Hitl, observed: &Observed) -> Vec<String> {
    triggers.reasons(observed).into_iter().map(|reason| reason.text).collect()
}

fn everything() -> Observed {
    Observed {
        confidence: Some(Ratio::from_bp(4_550)),
        proposed_action: Some("publish".into()),
        cost: Some(Money::from_micros(1_239_000)),
        consecutive_failures: 4,
        decision_took: Some(Span::from_mins(6)),
        out_of_scope: Some("painting".into()),
        risk: Risk::Low,
    }
}

/// SHH-01: the defaults of the seed, and each is a setting.
#[test]
fn the_triggers_have_the_defaults_of_the_seed() {
    let triggers = Triggers::default();
    assert_eq!(triggers.confidence, Some(Ratio::from_bp(6_000)));
    assert_eq!(triggers.action_cost, Some(Money::from_micros(1_000_000)));
    assert_eq!(triggers.sensitive, ["delete", "publish", "pay", "send_email"]);
    assert_eq!((triggers.consecutive_failures, triggers.decision_timeout), (Some(3), Some(Span::from_mins(5))));
    let triggers = serde_json::from_value(json!({
        "confidence": 0.3, "action_cost": 2.0, "sensitive": ["paint"], "consecutive_failures": 5,
        "decision_timeout": null
    }))
    .unwrap();
    let mine = Hitl { triggers, ..Hitl::default() };
    let observed = Observed { out_of_scope: None, ..everything() };
    assert!(texts(&mine, &observed).is_empty());
    let paint = Observed { proposed_action: Some("paint".into()), consecutive_failures: 5, ..Observed::default() };
    assert_eq!(texts(&mine, &paint).len(), 2);
}

/// SHH-02, SHH-03, SHH-16, SHH-17: the texts, and all of them in the order of the table.
#[test]
fn every_reason_that_fires_is_recorded_in_the_order_of_the_table() {
    let expected = [
        ("Sensitive operation requires approval: publish", EscalationPriority::Highest),
        ("Cost exceeds limit: $1.24 > $1.00", EscalationPriority::High),
        ("Confidence too low: 0.46 < 0.60", EscalationPriority::Medium),
        ("Consecutive failures: 4 times", EscalationPriority::Medium),
        ("Decision timeout", EscalationPriority::Medium),
        ("Out of scope: no registered agent or tool matches 'painting'", EscalationPriority::Low),
    ];
    let reasons = Hitl::default().reasons(&everything());
    let found: Vec<_> = reasons.iter().map(|reason| (reason.text.as_str(), reason.priority)).collect();
    assert_eq!(found, expected);
}

/// SHH-03: the order of the seed's code is an option.
#[test]
fn the_code_order_looks_at_the_confidence_first() {
    let triggers = Hitl { order: TriggerOrder::BookCode, ..Hitl::default() };
    let order: Vec<Trigger> = triggers.reasons(&everything()).into_iter().map(|reason| reason.trigger).collect();
    use Trigger::*;
    assert_eq!(order, [Confidence, Sensitive, ActionCost, ConsecutiveFailures, DecisionTimeout, OutOfScope]);
}

/// SHH-04: 0.60 does not fire, 1.00 does not, three failures do; what is missing does not.
#[test]
fn the_boundaries_are_where_the_seed_has_them() {
    let fires = |observed: Observed| !Hitl::default().reasons(&observed).is_empty();
    let of = |confidence: Option<u32>, cost: Option<u64>, consecutive_failures| Observed {
        confidence: confidence.map(Ratio::from_bp),
        cost: cost.map(Money::from_micros),
        consecutive_failures,
        ..Observed::default()
    };
    for (observed, expected) in [
        (of(Some(6_000), None, 0), false),
        (of(Some(5_999), None, 0), true),
        (of(None, Some(1_000_000), 0), false),
        (of(None, Some(1_000_001), 0), true),
        (of(None, None, 2), false),
        (of(None, None, 3), true),
        (of(None, None, 0), false),
    ] {
        assert_eq!(fires(observed.clone()), expected, "{observed:?}");
    }
    let took = |ms| Observed { decision_took: Some(Span::from_ms(ms)), ..Observed::default() };
    assert!(!fires(took(300_000)) && fires(took(300_001)));
    let action = |action: &str| Observed { proposed_action: Some(action.into()), ..Observed::default() };
    for (name, expected) in [("publish", true), ("Publish", false), ("publish it", false), ("send", false)] {
        assert_eq!(fires(action(name)), expected, "{name}: the result gate compares the whole name");
    }
}

/// SHH-05: in command every action is asked for, in the loop what is sensitive or too dear, on the loop nothing.
#[test]
fn the_mode_decides_which_actions_are_asked_for() {
    let triggers = Hitl::default();
    let plain = Action::default();
    let sensitive = Action { is_sensitive: true, ..Action::default() };
    let dear = Action { cost: Some(Money::from_micros(1_000_001)), ..Action::default() };
    let limit = Action { cost: Some(Money::from_micros(1_000_000)), ..Action::default() };
    for (mode, expected) in [
        (HumanInCommand, [true, true, true, true]),
        (HumanInTheLoop, [false, true, true, false]),
        (HumanOnTheLoop, [false, false, false, false]),
    ] {
        let found = [&plain, &sensitive, &dear, &limit].map(|action| triggers.needs_approval(mode, action));
        assert_eq!(found, expected, "{}", mode.as_str());
    }
    let names: Vec<_> = HitlMode::ALL.iter().map(|mode| serde_json::to_value(mode).unwrap()).collect();
    assert_eq!(names, ["human_in_command", "human_in_the_loop", "human_on_the_loop"]);
}

/// SHH-20: on the loop only the exceptions are asked for: critical risk and failures in a row, or what is configured.
#[test]
fn on_the_loop_asks_for_exceptions_only() {
    let triggers = Hitl::default();
    let asks = |triggers: &Hitl, action: &Action| triggers.needs_approval(HumanOnTheLoop, action);
    for (risk, failures, expected) in
        [(Risk::High, 2, false), (Risk::Critical, 0, true), (Risk::Low, 3, true), (Risk::Low, 2, false)]
    {
        let action = Action { is_sensitive: true, risk, consecutive_failures: failures, ..Action::default() };
        assert_eq!(asks(&triggers, &action), expected, "{risk:?} {failures}");
    }
    let mine = Hitl { exceptions: vec![HitlException::Sensitive], ..triggers };
    let critical = Action { risk: Risk::Critical, consecutive_failures: 9, ..Action::default() };
    assert!(!asks(&mine, &critical));
    assert!(asks(&mine, &Action { is_sensitive: true, ..Action::default() }));

    let mut escalations = Escalations::default();
    let low = Observed { confidence: Some(Ratio::from_bp(1)), ..Observed::default() };
    assert!(!escalations.weigh(HumanOnTheLoop, None, low.clone(), &mut at(0)).unwrap().blocking);
    assert!(escalations.weigh(HumanInTheLoop, None, low.clone(), &mut at(0)).unwrap().blocking);
    let critical = Observed { risk: Risk::Critical, ..low };
    assert!(escalations.weigh(HumanOnTheLoop, None, critical, &mut at(0)).unwrap().blocking);
}

/// SHH-06: four levels, in this order, with these names.
#[test]
fn risks_are_ordered() {
    let names: Vec<_> =
        [Risk::Low, Risk::Medium, Risk::High, Risk::Critical].map(|risk| serde_json::to_value(risk).unwrap()).to_vec();
    assert_eq!(names, ["low", "medium", "high", "critical"]);
    assert!(Risk::Low < Risk::Medium && Risk::Medium < Risk::High && Risk::High < Risk::Critical);
    assert!(serde_json::from_value::<Risk>(json!("severe")).is_err());
}

/// SHH-13: a declared action that contains a keyword in any case needs approval and has a high risk.
#[test]
fn declared_actions_are_sensitive_by_the_words_in_them() {
    let triggers = Hitl::default();
    for (action, sensitive) in [
        ("Publish the report", true),
        ("SEND to client", true),
        ("undelete", true),
        ("prepay", true),
        ("share", true),
        ("analyse", false),
        ("", false),
    ] {
        let marked = triggers.mark(action, Risk::Low);
        assert_eq!(marked.requires_approval, sensitive, "{action}");
        assert_eq!(marked.risk, if sensitive { Risk::High } else { Risk::Low }, "{action}");
    }
    assert_eq!(triggers.mark("pay", Risk::Critical).risk, Risk::Critical);
}

/// SHH-14: complexity at or above the threshold and dangerous tools; the text of a denial.
#[test]
fn a_plan_is_approved_when_it_is_complex_or_dangerous() {
    assert_eq!(PlanPolicy::default().complexity, Some(Ratio::from_bp(8_000)));
    let dangerous_tools = ["file_system", "code_execution"].map(str::to_owned).to_vec();
    let policy = PlanPolicy { dangerous_tools, ..PlanPolicy::default() };
    let shape = |complexity, tools: &[&str]| PlanShape {
        complexity: Some(Ratio::from_bp(complexity)),
        tools: tools.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(policy.reasons(&shape(7_999, &["web_search"])), Vec::<String>::new());
    assert_eq!(policy.reasons(&shape(8_000, &[])), ["Complexity score 0.80 exceeds threshold 0.80"]);
    let half = PlanPolicy { complexity: Some(Ratio::from_bp(5_000)), ..policy.clone() };
    assert_eq!(half.reasons(&shape(5_000, &[])), ["Complexity score 0.50 exceeds threshold 0.50"]);
    assert_eq!(
        policy.reasons(&shape(9_000, &["code_execution", "web_search", "file_system", "code_execution"])),
        [
            "Complexity score 0.90 exceeds threshold 0.80",
            "Tool 'code_execution' requires approval",
            "Tool 'file_system' requires approval"
        ]
    );
    let off = PlanPolicy { complexity: None, dangerous_tools: Vec::new() };
    assert_eq!(off.reasons(&shape(10_000, &["code_execution"])), Vec::<String>::new());
    assert_eq!(PlanPolicy::denied("too broad"), "approval denied: too broad");
}

/// SHH-15: what is for notice only is recorded and makes nobody wait, unless something else waits.
#[test]
fn notify_only_escalations_do_not_block() {
    let triggers = Hitl { notify_only: vec![Trigger::Confidence, Trigger::OutOfScope], ..Hitl::default() };
    let mut escalations = Escalations::new(triggers);
    let low = Observed { confidence: Some(Ratio::from_bp(1)), ..Observed::default() };
    let mut out = at(0);
    let quiet = escalations.weigh(HumanInTheLoop, Some(TaskId::of("1")), low.clone(), &mut out).unwrap();
    assert!(!quiet.blocking && !quiet.waits());
    assert_eq!(only_note(&out, NoteKind::EscalationRaised)["blocking"], false);
    let both = Observed { proposed_action: Some("pay".into()), ..low };
    assert!(escalations.weigh(HumanInTheLoop, None, both, &mut at(0)).unwrap().waits());
}

/// SHH-16: a decision that takes longer than the limit escalates once; one that comes in time does not.
#[test]
fn a_decision_that_takes_too_long_escalates() {
    let mut escalations = Escalations::default();
    let mut out = at(0);
    escalations.decision_started(&key("decide/1"), &mut out);
    escalations.decision_started(&key("decide/2"), &mut out);
    assert_eq!(
        asks(&out),
        [
            format!("timer decision_timeout/decide/1 at {}", 5 * MINUTE),
            format!("timer decision_timeout/decide/2 at {}", 5 * MINUTE)
        ]
    );
    let mut out = after(out, 1);
    escalations.decision_ended(&key("decide/2"), &mut out);
    assert_eq!(asks(&out), ["cancel timer decision_timeout/decide/2"]);
    let mut out = after(out, 5 * MINUTE);
    let came = |of: &str, out: &mut super::Outbox| out.came(PeopleKey::DecisionTimeout(Box::new(key(of))));
    assert_eq!(
        (came("decide/1", &mut out), came("decide/1", &mut out), came("decide/2", &mut out)),
        (true, false, false)
    );
    let raised = escalations.decision_is_late(&mut out).unwrap();
    assert_eq!((raised.primary.as_str(), raised.task.clone()), ("Decision timeout", None));
    assert!(!raised.waits(), "there is nothing to approve: the decision goes on");
    escalations.decision_ended(&key("decide/1"), &mut out);
    assert!(out.asks().is_empty(), "an answer that comes later cancels nothing");
    let triggers = Triggers { decision_timeout: None, ..Triggers::default() };
    let off = Escalations::new(Hitl { triggers, ..Hitl::default() });
    let mut out = at(0);
    off.decision_started(&key("decide/1"), &mut out);
    assert!(out.asks().is_empty());
}

/// SHH-17: a task that no agent or tool matches is an escalation of low priority.
#[test]
fn a_task_that_nobody_can_do_escalates() {
    let mut escalations = Escalations::default();
    let raised = escalations.out_of_scope(TaskId::of("3"), "painting", &mut at(0)).unwrap();
    assert_eq!(raised.reasons[0].priority, EscalationPriority::Low);
    assert_eq!(raised.primary, "Out of scope: no registered agent or tool matches 'painting'");
}

/// SHH-18: the gate before a task looks at the declared action, the one after it at what the result proposes.
#[test]
fn both_gates_ask_each_by_its_own_detector() {
    let mut escalations = Escalations::default();
    let before = |action: &str| escalations.before(HumanInTheLoop, action, None, Risk::Low);
    assert_eq!(before("write the report"), None);
    let reasons = before("Publish the report").unwrap();
    assert_eq!(reasons[0].text, "Sensitive operation requires approval: Publish the report");
    assert_eq!(escalations.before(HumanInCommand, "write", None, Risk::Low), Some(Vec::new()));

    let after = |action: &str| Observed { proposed_action: Some(action.into()), ..Observed::default() };
    let report = escalations.weigh(HumanInTheLoop, Some(TaskId::of("F")), after("publish"), &mut at(0)).unwrap();
    assert_eq!(report.primary, "Sensitive operation requires approval: publish");
    assert_eq!(escalations.weigh(HumanInTheLoop, None, after("Publish the report"), &mut at(0)), None);

    for (gates, before, behind) in
        [(vec![Gate::Before], true, false), (vec![Gate::After], false, true), (vec![], false, false)]
    {
        let mut escalations = Escalations::new(Hitl { gates, ..Hitl::default() });
        assert_eq!(escalations.before(HumanInTheLoop, "publish", None, Risk::Low).is_some(), before);
        assert_eq!(escalations.weigh(HumanInTheLoop, None, after("publish"), &mut at(0)).is_some(), behind);
    }
}

/// Where people are switched off nobody is asked, and what fired is still recorded.
#[test]
fn nobody_is_asked_where_people_are_switched_off() {
    let mut escalations = Escalations::new(Hitl { enabled: false, ..Hitl::default() });
    assert_eq!(escalations.before(HumanInCommand, "publish", None, Risk::Critical), None);
    let raised = escalations.weigh(HumanInCommand, None, everything(), &mut at(0)).unwrap();
    assert!(!raised.blocking && !raised.reasons.is_empty());
}

/// SHH-04: failures are counted in a row: a success ends the row, a person's answer does not.
#[test]
fn failures_are_counted_in_a_row() {
    let mut escalations = Escalations::default();
    let weigh = |escalations: &mut Escalations| {
        let raised = escalations.weigh_failures(HumanInTheLoop, Risk::Low, &mut at(0));
        raised.map(|escalation| escalation.primary.clone())
    };
    for success in [false, false, true, false, false] {
        escalations.task_ended(success);
        assert_eq!(weigh(&mut escalations), None);
    }
    escalations.task_ended(false);
    assert_eq!(weigh(&mut escalations).as_deref(), Some("Consecutive failures: 3 times"));
    escalations.resolve("r1/esc-1", "go on", &mut at(1));
    escalations.task_ended(false);
    assert_eq!(weigh(&mut escalations).as_deref(), Some("Consecutive failures: 4 times"));
}

/// SHH-01, SHH-04: the n-th failure of a plan is raised when it ends, and holds up what starts until a person lets it.
#[test]
fn a_row_of_failures_holds_up_what_starts() {
    let mut escalations = Escalations::default();
    let (task, next) = (Task::new(TaskId::of("c"), "Three"), Task::new(TaskId::of("d"), "Four"));
    let fails = |escalations: &mut Escalations, asked: bool| {
        let mut out = at(0);
        escalations.row_ended(HumanInTheLoop, &task, false, asked, &mut out);
        notes(&out).len()
    };
    assert_eq!([fails(&mut escalations, false), fails(&mut escalations, false)], [0, 0]);
    assert_eq!(escalations.row_before(HumanInTheLoop, &next, &mut at(0)), None);
    assert_eq!(fails(&mut escalations, false), 1);
    assert_eq!(fails(&mut escalations, true), 0, "people are asked already");
    let row = escalations.row_before(HumanInTheLoop, &next, &mut at(0)).unwrap();
    assert_eq!(escalations.get(&row).unwrap().task, Some(TaskId::of("c")));
    let low = Observed { confidence: Some(Ratio::from_bp(9_000)), ..Observed::default() };
    assert_eq!(escalations.weigh(HumanInTheLoop, None, low, &mut at(0)), None, "a good result is left alone");
    // Whoever did not let one start has let none.
    escalations.resolve(&row, "rejected", &mut at(1));
    let again = escalations.row_before(HumanInTheLoop, &next, &mut at(1)).unwrap();
    assert_ne!(row, again);
    escalations.resolve(&again, "approved", &mut at(2));
    escalations.row_goes_on(&again);
    assert_eq!(escalations.row_before(HumanInTheLoop, &next, &mut at(2)), None);
    assert_eq!(fails(&mut escalations, false), 1, "the next failure is another matter");
    escalations.row_ended(HumanInTheLoop, &task, true, true, &mut at(3));
    assert!(escalations.row().is_some(), "whoever is asked has the word");
    escalations.row_ended(HumanInTheLoop, &task, true, false, &mut at(3));
    assert_eq!(escalations.row(), None);
}

/// SHH-15: before a task too, what only notifies is recorded once and asks nobody.
#[test]
fn what_is_only_told_is_told_once_before_a_task() {
    let notify_only = vec![Trigger::Sensitive, Trigger::ActionCost];
    let mut escalations = Escalations::new(Hitl { notify_only, ..Hitl::default() });
    let cost = Some(Money::from_micros(5_000_000));
    assert_eq!(escalations.before(HumanInTheLoop, "publish", cost, Risk::High), None);
    assert!(escalations.before(HumanInCommand, "publish", cost, Risk::High).is_some());
    let tells = |escalations: &mut Escalations| {
        let mut out = at(0);
        escalations.notice_before(Some(&TaskId::of("a")), "publish", cost, &mut out);
        notes(&out).len()
    };
    assert_eq!([tells(&mut escalations), tells(&mut escalations)], [1, 0], "a next try is the same work");
    assert_eq!(escalations.iter().next().unwrap().reasons.len(), 2);
}

/// SHH-03: an escalation keeps all reasons, and its first resolution.
#[test]
fn an_escalation_is_resolved_once() {
    let mut escalations = Escalations::default();
    let id = escalations.weigh(HumanInTheLoop, Some(TaskId::of("1")), everything(), &mut at(0)).unwrap().id.clone();
    assert_eq!(id, "r1/esc-1");
    let view = escalations.view();
    assert_eq!(view[0]["reasons"].as_array().unwrap().len(), 5, "failures in a row are counted by the machine");
    assert_eq!(view[0]["primary"], "Sensitive operation requires approval: publish");
    let mut out = at(1);
    assert!(escalations.resolve(&id, "approved", &mut out));
    assert_eq!(only_note(&out, NoteKind::EscalationResolved)["resolution"], "approved");
    assert!(!escalations.resolve(&id, "rejected", &mut out) && !escalations.resolve("r1/esc-2", "x", &mut out));
    assert_eq!(escalations.get(&id).unwrap().resolution.as_deref(), Some("approved"));
    assert_eq!(notes(&out).len(), 1);
}

#[test]
fn settled_escalations_are_bounded_and_waiting_ones_kept() {
    let mut escalations = Escalations::default();
    let sensitive = Observed { proposed_action: Some("pay".into()), ..Observed::default() };
    escalations.weigh(HumanInTheLoop, None, sensitive, &mut at(0));
    for _ in 0..1_500 {
        let low = Observed { confidence: Some(Ratio::from_bp(1)), ..Observed::default() };
        escalations.weigh(HumanOnTheLoop, None, low, &mut at(0));
    }
    assert!(escalations.iter().count() <= 1_002);
    assert!(escalations.get("r1/esc-1").unwrap().waits());
}

/// SHH-01: the rules can be changed while the run goes on; what does not conform changes nothing.
#[test]
fn a_policy_may_be_set() {
    let mut escalations = Escalations::default();
    let before = escalations.clone();
    for bad in [json!({ "plan_keyword": [] }), json!({ "exceptions": ["x"] }), json!([])] {
        assert!(escalations.set_policy(&bad).unwrap_err().to_string().starts_with("invalid policy: "), "{bad}");
        assert_eq!(escalations, before);
    }
    escalations.set_policy(&json!({ "plan_keywords": ["paint"] })).unwrap();
    assert!(escalations.before(HumanInTheLoop, "paint it", None, Risk::Low).is_some());
    assert_eq!(escalations.before(HumanInTheLoop, "share it", None, Risk::Low), None);
    assert_eq!(escalations.rules().triggers, Triggers::default());
}

/// SHH-16: while the run is paused the time of a decision stands still, and goes on where it stood.
#[test]
fn the_time_of_a_decision_stands_still_while_the_run_is_paused() {
    let (escalations, mut out) = (Escalations::default(), at(0));
    escalations.decision_started(&key("decide/1"), &mut out);
    let mut out = after(out, 2 * MINUTE);
    escalations.decisions_run(false, &mut out);
    escalations.decisions_run(false, &mut out);
    assert_eq!(asks(&out), ["cancel timer decision_timeout/decide/1"], "once");
    let mut out = after(out, 60 * MINUTE);
    escalations.decisions_run(true, &mut out);
    escalations.decisions_run(true, &mut out);
    assert_eq!(asks(&out), [format!("timer decision_timeout/decide/1 at {}", 63 * MINUTE)]);
    let mut out = after(out, 61 * MINUTE);
    escalations.decisions_run(false, &mut out);
    let mut out = after(out, 62 * MINUTE);
    escalations.decision_ended(&key("decide/1"), &mut out);
    assert!(out.asks().is_empty(), "its timer has been cancelled already");
}
