//! Tests of trust: up step by step, down at once.

use bosun_engine::Timestamp;
use serde_json::json;

use super::super::autonomy::Autonomy;
use super::super::trust::{Incident, NoUpgrade, Severity, TrustRecord};
use super::{at, notes, only_note};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::spec::{self, HitlMode, TrustLevel, TrustRules};

const DAY: i64 = 86_400_000;

fn day(days: i64) -> Timestamp {
    Timestamp::from_millis(days * DAY)
}

fn trust(level: TrustLevel, tasks_completed: u64, successes: u64) -> TrustRecord {
    TrustRecord { tasks_completed, successes, ..TrustRecord::new(level, Timestamp::ZERO) }
}

fn told(trust: &TrustRecord, now: Timestamp) -> String {
    match trust.can_upgrade(&TrustRules::default(), now) {
        Ok(level) => level.as_str().to_owned(),
        Err(why) => why.to_string(),
    }
}

/// SHT-01: levels, their names and their modes.
#[test]
fn each_level_has_its_mode() {
    let levels = TrustLevel::ALL.map(|level| (level.as_str(), level.mode()));
    assert_eq!(
        levels,
        [
            ("novice", HitlMode::HumanInCommand),
            ("proficient", HitlMode::HumanInTheLoop),
            ("expert", HitlMode::HumanOnTheLoop)
        ]
    );
    assert_eq!(TrustLevel::ALL.map(|level| json!(level)), ["novice", "proficient", "expert"].map(|name| json!(name)));
    assert_eq!(HitlMode::ALL.map(HitlMode::level), TrustLevel::ALL);
}

/// SHT-02, SHT-03, SHT-04: all conditions at their boundaries, in the order of the seed, with its texts.
#[test]
fn the_conditions_are_checked_in_order_with_the_texts_of_the_seed() {
    let novice = |tasks, successes| trust(TrustLevel::Novice, tasks, successes);
    let proficient = |tasks, successes| trust(TrustLevel::Proficient, tasks, successes);
    let since = |trust: TrustRecord, days| TrustRecord { last_incident: Some(day(days)), ..trust };
    for (trust, days, expected) in [
        (novice(49, 0), 0, "Insufficient tasks: 49/50"),
        (novice(50, 44), 0, "Insufficient success rate: 88.0%/90.0%"),
        (novice(50, 45), 6, "Insufficient running days: 6/7"),
        (novice(50, 45), 7, "proficient"),
        (since(novice(50, 45), 1), 7, "Insufficient days since last incident: 6/7"),
        (since(novice(50, 45), 1), 8, "proficient"),
        (proficient(199, 199), 99, "Insufficient tasks: 199/200"),
        (proficient(200, 195), 99, "Insufficient success rate: 97.5%/98.0%"),
        (proficient(200, 196), 29, "Insufficient running days: 29/30"),
        (proficient(200, 196), 30, "expert"),
        (since(proficient(200, 196), 71), 100, "Insufficient days since last incident: 29/30"),
        (since(proficient(200, 196), 70), 100, "expert"),
        (trust(TrustLevel::Expert, 9_999, 9_999), 999, "Already at highest level"),
    ] {
        assert_eq!(told(&trust, day(days)), expected);
    }
}

/// SHT-02, SHT-06: days are whole days of workflow time, rounded down; the rate is compared exactly.
#[test]
fn days_are_floored_and_rates_exact() {
    let almost = Timestamp(day(7).as_micros() - 1);
    assert_eq!(told(&trust(TrustLevel::Novice, 50, 45), almost), "Insufficient running days: 6/7");
    // 97.999 % reads as 98.0 % and is not enough.
    let close = trust(TrustLevel::Proficient, 100_000, 97_999);
    assert_eq!(told(&close, day(30)), "Insufficient success rate: 98.0%/98.0%");
}

/// SHT-05: a serious incident ends at novice, a minor one costs one level; novice stays novice.
#[test]
fn incidents_take_levels_away() {
    for (level, severity, after) in [
        (TrustLevel::Expert, Severity::Serious, TrustLevel::Novice),
        (TrustLevel::Proficient, Severity::Serious, TrustLevel::Novice),
        (TrustLevel::Novice, Severity::Serious, TrustLevel::Novice),
        (TrustLevel::Expert, Severity::Minor, TrustLevel::Proficient),
        (TrustLevel::Proficient, Severity::Minor, TrustLevel::Novice),
        (TrustLevel::Novice, Severity::Minor, TrustLevel::Novice),
    ] {
        let mut trust = trust(level, 500, 500);
        let mut out = at(40 * DAY);
        trust.incident(&Incident { severity, description: None, reported_by: None }, &mut out);
        assert_eq!((trust.level, trust.last_incident), (after, Some(day(40))));
        let expected: &[NoteKind] = match level == after {
            true => &[NoteKind::IncidentReported],
            false => &[NoteKind::IncidentReported, NoteKind::TrustChanged],
        };
        assert_eq!(notes(&out), expected);
        assert_eq!((trust.tasks_completed, trust.successes), (500, 500));
    }
    let read = Incident::read(&json!({ "severity": "awful" })).unwrap_err();
    assert!(read.to_string().starts_with("invalid incident: severity: unknown variant `awful`"), "{read}");
    assert!(Incident::read(&json!({ "severity": "minor", "reported_by": "ann" })).is_ok());
}

/// SHT-06: each task counts at once, in workflow time, and the level goes up by one when all holds.
#[test]
fn tasks_are_counted_and_the_level_rises_by_one() {
    let rules = TrustRules::default();
    let mut trust = trust(TrustLevel::Novice, 0, 0);
    for n in 1..=50 {
        let mut out = at(8 * DAY);
        trust.task_ended(n > 5, &rules, &mut out);
        if n < 50 {
            assert_eq!((trust.level, trust.tasks_completed, notes(&out).len()), (TrustLevel::Novice, n, 0));
        } else {
            let data = only_note(&out, NoteKind::TrustChanged);
            assert_eq!([&data["from"], &data["to"]], [&json!("novice"), &json!("proficient")]);
        }
    }
    assert_eq!((trust.level, trust.successes, trust.mode()), (TrustLevel::Proficient, 45, HitlMode::HumanInTheLoop));
    let view = trust.view(&rules, day(8));
    assert_eq!([&view["level"], &view["success_rate"]], [&json!("proficient"), &json!("90.0%")]);
    assert_eq!([&view["can_upgrade"], &view["why"]], [&json!(false), &json!("Insufficient tasks: 50/200")]);
    assert_eq!(trust, serde_json::from_str(&serde_json::to_string(&trust).unwrap()).unwrap());
}

/// SHT-04: without any incident the incident check holds, however short the time.
#[test]
fn no_incident_passes_the_incident_check() {
    let mut rules = TrustRules::default();
    rules.to_proficient.days = 0;
    rules.to_proficient.incident_days = 1_000_000;
    let clean = trust(TrustLevel::Novice, 50, 50);
    assert_eq!(clean.can_upgrade(&rules, day(0)), Ok(TrustLevel::Proficient));
    let incident = TrustRecord { last_incident: Some(day(0)), ..clean };
    assert_eq!(incident.can_upgrade(&rules, day(0)), Err(NoUpgrade::Incident { found: 0, needed: 1_000_000 }));
}

/// SHT-07: 99 % over 90 days is a matter of rules.
#[test]
fn the_diagram_of_the_seed_is_a_configuration() {
    let rules: TrustRules = serde_json::from_value(json!({
        "to_expert": { "tasks": 200, "success": 0.99, "days": 90, "incident_days": 30 }
    }))
    .unwrap();
    let told = |successes, days| match trust(TrustLevel::Proficient, 200, successes).can_upgrade(&rules, day(days)) {
        Ok(level) => level.as_str().to_owned(),
        Err(why) => why.to_string(),
    };
    assert_eq!(told(197, 90), "Insufficient success rate: 98.5%/99.0%");
    assert_eq!(told(198, 89), "Insufficient running days: 89/90");
    assert_eq!(told(198, 90), "expert");
    assert_eq!(rules.to_proficient, TrustRules::default().to_proficient);
}

/// SHT-01, SHT-05, SHH-05: the mode follows the level; a person may set another one, until an incident takes a level away.
#[test]
fn the_mode_follows_trust_unless_a_person_sets_it() {
    let hitl = spec::Hitl::default();
    let mut autonomy = Autonomy::new(&hitl, &spec::Trust::default(), day(0));
    let level = |autonomy: &Autonomy| autonomy.view(day(0))["level"].clone();
    assert_eq!((level(&autonomy), autonomy.mode()), (json!("proficient"), HitlMode::HumanInTheLoop));
    let mut out = at(0);
    let refused = autonomy.set_mode(&json!({ "mode": "human_off_the_loop" }), &mut out).unwrap_err();
    assert!(refused.to_string().starts_with("invalid hitl mode: mode: unknown variant"), "{refused}");
    assert_eq!((autonomy.mode(), notes(&out).len()), (HitlMode::HumanInTheLoop, 0));
    autonomy.set_mode(&json!({ "mode": "human_on_the_loop", "requested_by": "ann" }), &mut out).unwrap();
    assert_eq!(autonomy.mode(), HitlMode::HumanOnTheLoop);
    assert_eq!(only_note(&out, NoteKind::TrustChanged)["mode"], "human_on_the_loop");
    autonomy.report(&json!({ "severity": "serious" }), &mut at(1)).unwrap();
    assert_eq!((level(&autonomy), autonomy.mode()), (json!("novice"), HitlMode::HumanInCommand));
    assert_eq!(autonomy.view(day(0))["mode"], "human_in_command");

    let off = spec::Trust { enabled: false, ..spec::Trust::default() };
    let mut fixed = Autonomy::new(&spec::Hitl { mode: HitlMode::HumanInCommand, ..hitl.clone() }, &off, day(0));
    for _ in 0..60 {
        fixed.task_ended(true, &mut at(8 * DAY));
    }
    assert_eq!((fixed.view(day(0))["tasks_completed"].clone(), fixed.mode()), (json!(60), HitlMode::HumanInCommand));
    let level = spec::Trust { level: Some(TrustLevel::Novice), ..spec::Trust::default() };
    assert_eq!(Autonomy::new(&hitl, &level, day(0)).mode(), HitlMode::HumanInCommand);
}
