//! Golden histories of supervisors: for every preset a run that goes well, one that fails, and one in which a person
//! has a say.
//!
//! `fixtures/scenes/golden/<preset>/<scenario>.yaml` is the scene: the spec with its scripted agents, and what a person does;
//! `fixtures/supervisors/golden/<preset>/<scenario>.history.json` the history that the engine wrote, as `bosun export` writes it.
//!
//! Invariant: a preset without its three histories is a failure; a history that is there replays on today's code to
//! the end that it holds, and today's code on the engine ends the same way. `BOSUN_RENEW=1 cargo test -p bosun-worker
//! --test golden` lets every scenario happen again and writes what has changed; it judges nothing.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of its own, around what decides")]

mod ends;

use std::path::PathBuf;
use std::sync::OnceLock;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{EventKind, WorkflowStatus};
use bosun_replay::{History, HistoryLimits, Prefixes, Verdict, replay_history};
use bosun_worker::scene::SceneFile;
use bosun_worker::supervisor::run;
use bosun_worker::supervisor::spec::Preset;
use serde_json::{Value, json};

/// What a preset is shown to do.
const SCENARIOS: [&str; 3] = ["happy", "failure", "human"];
/// What a history may weigh, so that the repository stays small.
const BYTES_MAX: usize = 100 * 1024;

/// One scenario of one preset.
#[derive(Clone, Copy)]
struct Scenario {
    preset: Preset,
    name: &'static str,
}

impl Scenario {
    fn all() -> Vec<Scenario> {
        let of = |preset| SCENARIOS.map(|name| Scenario { preset, name });
        Preset::ALL.into_iter().flat_map(of).collect()
    }

    fn id(self) -> String {
        format!("{}-{}", self.preset.name(), self.name)
    }

    fn file(self, folder: &str, end: &str) -> PathBuf {
        let fixtures = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures"));
        fixtures.join(folder).join(self.preset.name()).join(format!("{}.{end}", self.name))
    }

    fn kept(self) -> PathBuf {
        self.file("supervisors/golden", "history.json")
    }

    /// The history of its scene on today's code, straight; the scene must hold.
    fn play(self) -> Result<String, String> {
        let scene = SceneFile::load(&self.file("scenes/golden", "yaml")).map_err(|why| why.to_string())?;
        scene.history(&code()).map_err(|failures| {
            let told = failures.iter().map(|one| format!("{}: {} instead of {}", one.at, one.seen, one.expected));
            told.collect::<Vec<_>>().join("; ")
        })
    }

    fn history(self) -> Result<History, String> {
        let path = self.kept();
        let text = std::fs::read(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        if text.len() > BYTES_MAX {
            return Err(format!("{}: {} bytes; at most {BYTES_MAX} are kept", path.display(), text.len()));
        }
        History::from_json(&text, &HistoryLimits::default()).map_err(|why| format!("{}: {why}", path.display()))
    }
}

fn code() -> WorkflowRegistry {
    run::register(WorkflowRegistry::new()).version("golden-1")
}

/// How a run ended: its status, what it says of why, and its report.
fn end_of(history: &History) -> Value {
    let last = history.turns().iter().flat_map(|turn| &turn.events).next_back();
    let (why, report) = match last {
        Some(EventKind::WorkflowExecutionCompleted { result, .. }) => (Value::Null, result.to_json()),
        Some(EventKind::WorkflowExecutionCanceled { details, .. }) => {
            (Value::Null, details.as_ref().map_or(Value::Null, |details| details.to_json()))
        }
        Some(EventKind::WorkflowExecutionFailed { failure, .. }) => {
            let details = match &failure.kind {
                bosun_engine::FailureKind::Application { details: Some(details), .. } => details.to_json(),
                _ => Value::Null,
            };
            (json!(failure.message), details)
        }
        other => panic!("{}: the history does not end with the end of the run: {other:?}", history.run_id()),
    };
    json!({ "status": history.status(), "why": why, "report": report })
}

/// All that is wrong, one line each; panics with them.
#[track_caller]
fn all_hold(check: impl Fn(Scenario) -> Result<(), String>) {
    renew_if_asked();
    hold(check);
}

/// Before the first test looks at a history, all are written again, if that was asked for.
fn renew_if_asked() {
    static RENEWED: OnceLock<()> = OnceLock::new();
    RENEWED.get_or_init(|| {
        if std::env::var_os("BOSUN_RENEW").is_some() {
            hold(renewed);
        }
    });
}

#[track_caller]
fn hold(check: impl Fn(Scenario) -> Result<(), String>) {
    let wrong: Vec<String> = Scenario::all()
        .into_iter()
        .filter_map(|scenario| check(scenario).err().map(|why| format!("{}: {why}", scenario.id())))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), Scenario::all().len(), wrong.join("\n"));
}

fn renewed(scenario: Scenario) -> Result<(), String> {
    let path = scenario.kept();
    let text = scenario.play()?;
    if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    folder.and_then(|()| std::fs::write(&path, text)).map_err(|why| format!("{}: {why}", path.display()))
}

/// Every preset has its three histories (supervisors.md §5.9: missing is a failure), each of a run of that preset that
/// has come to its end, and each shows what its name says.
#[test]
fn every_preset_has_its_golden_histories() {
    assert_eq!(Scenario::all().len(), 69);
    all_hold(|scenario| {
        let history = scenario.history()?;
        let input = history.started().input.to_json();
        if input["resolved"]["spec"]["preset"] != scenario.preset.name() {
            return Err(format!("it is a run of {}", input["resolved"]["spec"]["preset"]));
        }
        shows(scenario, &history)
    });
}

/// That a run goes well, that something fails in it, or that a person has a say in it which is not refused.
fn shows(scenario: Scenario, history: &History) -> Result<(), String> {
    let end = end_of(history);
    let events = || history.turns().iter().flat_map(|turn| &turn.events);
    let of = |fits: fn(&EventKind) -> bool| events().any(fits);
    let asked = of(|event| {
        matches!(event, EventKind::WorkflowExecutionSignaled(_) | EventKind::WorkflowExecutionUpdateAccepted { .. })
    });
    let completed = history.status() == WorkflowStatus::Completed;
    let failed =
        history.status() == WorkflowStatus::Failed || of(|event| matches!(event, EventKind::ActivityTaskFailed { .. }));
    let tasks = end["report"]["tasks"].as_array();
    let failed = failed || tasks.into_iter().flatten().any(|task| task["status"] == "failed");
    let shown = match scenario.name {
        "happy" => completed && !asked && end["report"]["success"] == true && end["report"]["error"].is_null(),
        "failure" => !asked && failed,
        _ => completed && asked && !history.to_json().contains("\"ActionRefused\""),
    };
    if shown { Ok(()) } else { Err(format!("this is no {} run: {end:#}", scenario.name)) }
}

/// Every committed history replays on today's code, from every one of its prefixes: the same commands, the same notes
/// (supervisors.md §5.8), and the end that it holds.
#[test]
fn every_golden_history_replays_on_todays_code() {
    let code = code();
    all_hold(|scenario| {
        let history = scenario.history()?;
        let report = replay_history(&code, &history, Prefixes::All);
        if report.verdict == Verdict::Ok { Ok(()) } else { Err(format!("{report}")) }
    });
}

/// Every scenario, on the engine with today's code, ends as its golden history does.
#[test]
fn every_scenario_still_ends_as_its_golden_history() {
    all_hold(|scenario| {
        let fresh = History::from_json(scenario.play()?.as_bytes(), &HistoryLimits::default())
            .map_err(|why| why.to_string())?;
        let fresh = end_of(&fresh);
        let golden = end_of(&scenario.history()?);
        if fresh == golden { Ok(()) } else { Err(format!("it ended as {golden:#}\nand now ends as {fresh:#}")) }
    });
}

/// What each scenario comes to, as it was found right when it was written: renewing histories does not renew this.
#[test]
fn every_scenario_ends_as_it_should() {
    let told: Vec<(&str, &str)> = ends::ENDS.iter().map(|end| (end.0, end.1)).collect();
    let all: Vec<(&str, &str)> =
        Scenario::all().iter().map(|scenario| (scenario.preset.name(), scenario.name)).collect();
    assert_eq!(told, all, "one line each, in order");
    all_hold(|scenario| {
        let (_, _, status, seconds, result) = ends::of(scenario.preset.name(), scenario.name);
        let history = scenario.history()?;
        let end = end_of(&history);
        let last = history.turns().last().map_or(0, |turn| turn.at.since(TestEnvironment::EPOCH).as_secs());
        let report = &end["report"];
        let shown = if report["error"].is_null() { &report["final_result"] } else { &report["error"] };
        let shown = shown.as_str().map_or_else(|| shown.to_string(), str::to_owned);
        if (report["status"].as_str(), last, shown.as_str()) == (Some(status), seconds, result) {
            return Ok(());
        }
        Err(format!("{}, {last} s, {shown:?}; it should be {status}, {seconds} s, {result:?}", report["status"]))
    });
}

/// The checks have teeth: a history that is missing, and one that holds another spec, another answer or another note
/// than the code comes to, are found out.
#[test]
fn what_does_not_fit_is_found_out() {
    renew_if_asked();
    let scenario = Scenario { preset: Preset::FlowSupervisor, name: "happy" };
    assert!(Scenario { name: "missing", ..scenario }.history().is_err());
    let text = scenario.history().unwrap().to_json();
    for (held, changed) in [
        ("Spring tides", "Autumn tides"),
        (r#""json": "t1 is explained.""#, r#""json": "t1 is not explained.""#),
        (r#""reason": "dependencies_satisfied""#, r#""reason": "a whim""#),
        (r#""brief": "t1 is explained.""#, r#""brief": "t1 is not explained.""#),
    ] {
        let other = text.replacen(held, changed, 1);
        assert_ne!(other, text, "{held} is not in the history");
        let other = History::from_json(other.as_bytes(), &HistoryLimits::default()).unwrap();
        assert_ne!(replay_history(&code(), &other, Prefixes::None).verdict, Verdict::Ok, "{held}");
    }
}
