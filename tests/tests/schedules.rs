//! Schedules by the shipped binary: every time once over kill -9 (E24, G18), and what people do with them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use bosun_tests::harness::Chance;
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_worker::schedule::text::parse_moment;
use serde_json::Value;

use crate::supervisor_cli::{run, said};
use crate::tidy::workspace;

#[track_caller]
fn ok(data: &Path, words: &[&str]) -> Output {
    let output = run(data, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    output
}

/// What a verb says as JSON.
#[track_caller]
fn told(data: &Path, words: &[&str]) -> Value {
    let output = ok(data, &[words, &["-o", "json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", said(&output)))
}

fn seconds_of(text: &str) -> i64 {
    parse_moment(text).unwrap().0.div_euclid(1_000_000)
}

/// How often each nominal time was started.
fn started(data: &Path) -> BTreeMap<i64, usize> {
    let words = ["list", "--query", "TemporalScheduledById = 'ticks'", "--limit", "1000"];
    let mut started = BTreeMap::new();
    for run in told(data, &words)["workflows"].as_array().unwrap() {
        let id = run["workflow_id"].as_str().unwrap();
        *started.entry(seconds_of(id.strip_prefix("tick-").unwrap())).or_insert(0) += 1;
    }
    started
}

/// E24, G18: a schedule of every second, and a worker that is killed again and again. No time is started twice, none within
/// the catch-up window is left out, those before it are counted.
#[test]
fn every_time_is_started_once_over_kill_9() {
    let mut chance = Chance::from_env("every_time_is_started_once_over_kill_9");
    let dir = tempfile::tempdir().unwrap();
    let (data, program) = (dir.path().join("data"), Program::bosun_worker().unwrap());
    let words = ["schedule", "create", "ticks", "kitchen-sink", "--input", r#"{"steps":[]}"#, "--every", "1s"];
    let more = ["--overlap", "allow-all", "--catch-up", "10s", "--workflow-id", "tick"];
    let created = told(&data, &[&words[..], &more].concat());
    let first = seconds_of(created["next"]["at"].as_str().unwrap());
    let (mut worker, _) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(200 + chance.below(1_200)));
        worker.kill().unwrap();
        worker = WorkerProcess::spawn(&program, &data).unwrap();
        // Some are killed before they are ready.
        if chance.below(3) > 0 {
            worker.wait_ready(READY_MAX).unwrap();
        }
    }
    worker.wait_ready(READY_MAX).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    ok(&data, &["schedule", "pause", "ticks", "--note", "enough"]);
    let shown = until_quiet(&data);
    let started = started(&data);
    let twice: Vec<_> = started.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "started more than once: {twice:?}");
    let counts = &shown["counts"];
    assert_eq!(counts["actions"], started.len(), "{shown:#}");
    let last = *started.keys().last().unwrap();
    let missing = (first..=last).filter(|second| !started.contains_key(second)).count();
    assert_eq!(counts["missed_catchup_window"], missing, "no time is left out but what was late: {shown:#}");
    assert!(started.len() >= 10, "{} starts", started.len());
    assert_eq!(shown["schedule"]["state"]["note"], "enough");
    for run in shown["recent"].as_array().unwrap() {
        assert_eq!(run["outcome"], "completed", "{shown:#}");
    }
    // The history fits the code, also over all the crashes.
    ok(&data, &["replay", "check", "--query", "WorkflowType STARTS_WITH 'bosun.schedule'"]);
}

/// Until nothing runs that the schedule has started.
fn until_quiet(data: &Path) -> Value {
    let began = Instant::now();
    loop {
        let shown = told(data, &["schedule", "describe", "ticks"]);
        if shown["running"] == serde_json::json!([]) {
            return shown;
        }
        assert!(began.elapsed() < READY_MAX, "{shown:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A run of a schedule that cannot go on is told in the list of schedules.
#[test]
fn the_list_of_schedules_shows_a_held_run() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (_worker, _) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    // It can be started; what it asks for in its first turn is more than a turn may hold.
    let endless = r#"{"steps": [{"loop": {"times": 1000000, "steps": [{"side_effect": {"value": 1}}]}}]}"#;
    ok(&data, &["schedule", "create", "s", "kitchen-sink", "--every", "24h", "--input", endless]);
    ok(&data, &["schedule", "trigger", "s"]);
    let begin = Instant::now();
    loop {
        let listed = said(&ok(&data, &["schedule", "list"]));
        if listed.contains("problem") && listed.contains(" is held: `bosun --data ") {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{listed}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// All verbs, on a directory that nobody holds: a schedule of a supervisor's spec is made, seen, changed and removed.
#[test]
fn a_schedule_is_made_seen_changed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let spec = workspace().join("fixtures/supervisors/presets/flow-supervisor.yaml");
    let spec = spec.to_str().unwrap();
    let create = ["schedule", "create", "nightly", spec, "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin"];
    let dry = ok(&data, &[&create[..], &["--dry-run"]].concat());
    assert!(said(&dry).contains("starts         supervisor as nightly-TIME"), "{}", said(&dry));
    assert!(!data.exists(), "a dry run makes nothing");
    let created = ok(&data, &create);
    assert!(said(&created).contains("02:30:00 +0"), "{}", said(&created));
    let again = run(&data, &create);
    assert_eq!(again.status.code(), Some(32), "{}", said(&again));
    assert!(said(&again).contains("there is a schedule nightly already"), "{}", said(&again));
    let list = said(&ok(&data, &["schedule", "list"]));
    assert!(
        list.contains("nightly") && list.contains("active") && list.contains("30 2 * * * (Europe/Berlin)"),
        "{list}"
    );
    ok(&data, &["schedule", "update", "nightly", "--every", "12h", "--overlap", "buffer-one", "--jitter", "1m"]);
    let shown = told(&data, &["schedule", "describe", "nightly"]);
    assert_eq!(shown["schedule"]["spec"]["intervals"][0]["every"], "12h", "{shown:#}");
    assert_eq!(shown["schedule"]["spec"]["cron"], Value::Null, "{shown:#}");
    assert_eq!(shown["schedule"]["policies"]["overlap"], "buffer_one");
    assert_eq!(shown["schedule"]["action"]["workflow_type"], "supervisor");
    ok(&data, &["schedule", "pause", "nightly", "--note", "a holiday"]);
    let text = said(&ok(&data, &["schedule", "describe", "nightly"]));
    assert!(text.contains("paused: a holiday"), "{text}");
    let triggered = told(&data, &["schedule", "trigger", "nightly"]);
    ok(&data, &["schedule", "unpause", "nightly"]);
    let (mut worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let id = format!("nightly-{}", triggered["nominal"].as_str().unwrap());
    let result = http.result(&id, READY_MAX).unwrap().unwrap_or_else(|| panic!("{id} has not ended"));
    assert_eq!(result.outcome.status(), bosun_engine::WorkflowStatus::Completed, "{result:?}");
    worker.kill().unwrap();
    let refused = run(&data, &["schedule", "delete", "nightly", "--no-input"]);
    assert_eq!(refused.status.code(), Some(32), "{}", said(&refused));
    ok(&data, &["schedule", "delete", "nightly", "--yes"]);
    for gone in ["nightly", "nobody"] {
        let none = run(&data, &["schedule", "describe", gone]);
        assert_eq!(none.status.code(), Some(30), "{}", said(&none));
        assert!(said(&none).contains(&format!("there is no schedule {gone}")), "{}", said(&none));
    }
    assert_eq!(told(&data, &["schedule", "list"])["schedules"], serde_json::json!([]));
}

/// `next` needs no store, and what is wrong is said in the words of the command line.
#[test]
fn times_are_shown_without_a_schedule() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("none");
    let next = ["schedule", "next", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin", "-n", "3"];
    let shown = ok(&data, &[&next[..], &["--after", "2026-10-24T12:00:00Z"]].concat());
    let lines = ["Sun 2026-10-25 02:30:00 +02:00", "Mon 2026-10-26 02:30:00 +01:00", "Tue 2026-10-27 02:30:00 +01:00"];
    assert_eq!(String::from_utf8_lossy(&shown.stdout).lines().collect::<Vec<_>>(), lines);
    for (words, expected) in [
        (["--cron", "0 25 * * *"], "spec.cron[0] (--cron): hour: \"25\" is no value from 0 to 23"),
        (["--time-zone", "Mars"], "spec (--cron, --every, --calendar): it names no time"),
        (["--calendar", "hours=9"], "--calendar \"hours=9\": hours is no field of a calendar"),
    ] {
        let refused = run(&data, &[&["schedule", "next"], &words[..]].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        assert!(said(&refused).contains(expected), "{}", said(&refused));
    }
    assert!(!data.exists());
}

/// A list that is longer than a page says so, and how it goes on; all pages together are the whole.
#[test]
fn a_long_list_of_schedules_says_that_there_are_more() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (_worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    for n in 0..7 {
        let schedule = format!(
            r#"{{"schedule_id":"s{n}","schedule":{{"spec":{{"cron":["@daily"]}},"action":{{"workflow_type":"kitchen-sink","workflow_id":"s{n}","input":{{"steps":[]}}}}}}}}"#
        );
        let made = http.request("POST", "/api/v1/schedules", Some(schedule.as_bytes())).unwrap();
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    }
    let page = said(&ok(&data, &["schedule", "list", "--limit", "3"]));
    assert!(page.contains("there are more: `bosun ") && page.contains("schedule list --limit 3 --cursor "), "{page}");
    let whole = said(&ok(&data, &["schedule", "list"]));
    assert!(!whole.contains("there are more"), "{whole}");
    let (mut seen, mut more) = (Vec::new(), Vec::new());
    loop {
        let words: Vec<&str> =
            ["schedule", "list", "--limit", "3"].into_iter().chain(more.iter().map(String::as_str)).collect();
        let page = told(&data, &words);
        let names =
            page["schedules"].as_array().unwrap().iter().map(|one| one["schedule_id"].as_str().unwrap().to_owned());
        seen.extend(names);
        let Some(next) = page["next_cursor"].as_str() else { break };
        more = vec!["--cursor".to_owned(), next.to_owned()];
        assert!(seen.len() < 7, "{seen:?}");
    }
    seen.sort();
    assert_eq!(seen, ["s0", "s1", "s2", "s3", "s4", "s5", "s6"]);
    let wrong = run(&data, &["schedule", "list", "--cursor", "nonsense"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
}

/// What cannot work is refused when the schedule is made, by name.
#[test]
fn a_schedule_that_can_never_work_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let create = |what: &[&str]| run(dir.path(), &[&["schedule", "create", "s"], what].concat());
    let own = create(&["bosun.batch", "--every", "1h"]);
    assert!(own.status.code() == Some(2) && said(&own).contains("bosun.batch is Bosun's own"), "{}", said(&own));
    let none = create(&["supervisor", "--input", "{}", "--every", "1h"]);
    assert!(none.status.code() == Some(2) && said(&none).contains("input.spec: it is needed"), "{}", said(&none));
    let nth = create(&["kitchen-sink", "--cron", "0 9 * * mon#1", "--input", r#"{"steps":[]}"#]);
    let text = said(&nth);
    assert!(nth.status.code() == Some(2) && text.contains("`mon#1` is not known"), "{text}");
    assert!(text.contains("`0 9 1-7 * mon`"), "{text}");
    // What it says instead is the first Monday.
    let next =
        said(&ok(dir.path(), &["schedule", "next", "--cron", "0 9 1-7 * mon", "--after", "2026-12-08T00:00:00Z"]));
    assert!(next.contains("2027-01-04"), "{next}");
}

/// A start that the overlap policy leaves out is not called triggered.
#[test]
fn a_trigger_says_what_became_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let _worker = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let parked = r#"{"steps": [{"wait_signal": {"name": "go"}}]}"#;
    ok(&data, &["schedule", "create", "s", "kitchen-sink", "--every", "24h", "--input", parked]);
    let first = told(&data, &["schedule", "trigger", "s"]);
    assert_eq!(first["became"], "started", "{first}");
    let second = said(&ok(&data, &["schedule", "trigger", "s"]));
    assert!(second.contains("has left out") && second.contains("--overlap buffer-one"), "{second}");
    assert!(!second.contains("triggered"), "{second}");
    let third = told(&data, &["schedule", "trigger", "s", "--overlap", "buffer-one"]);
    assert_eq!(third["became"], "waits", "{third}");
}

/// To end the run of a schedule would delete it: that is what the schedule's own verbs are for, and only they say so.
#[test]
fn a_schedule_is_not_ended_as_a_run_is() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let words = ["schedule", "create", "nightly", "kitchen-sink", "--input", r#"{"steps":[]}"#, "--every", "24h"];
    let none = run(&data, &[&words[..], &["--remaining", "0"]].concat());
    assert!(none.status.code() == Some(2) && said(&none).contains("(--remaining): 0"), "{}", said(&none));
    let wrong =
        run(&data, &[&words[..], &["--cron", "0 24 * * *", "--time-zone", "Mars", "--catch-up", "1s"]].concat());
    assert_eq!(wrong.status.code(), Some(2));
    for flag in ["--cron", "--time-zone", "--catch-up"] {
        assert!(said(&wrong).contains(&format!("({flag})")), "{flag}: {}", said(&wrong));
    }
    ok(&data, &words);
    ok(&data, &["schedule", "update", "nightly", "--note", "until the move"]);
    let shown = told(&data, &["schedule", "describe", "nightly"]);
    assert_eq!(shown["schedule"]["state"]["note"], "until the move", "{shown:#}");
    let (worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    for verb in ["cancel", "terminate"] {
        let refused = run(&data, &[verb, "schedule:nightly", "--yes"]);
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        for word in
            ["is a schedule", "schedule delete nightly` deletes it", "schedule pause nightly` has it start nothing"]
        {
            assert!(said(&refused).contains(word), "{verb} {word}: {}", said(&refused));
        }
        let path = format!("/api/v1/workflows/schedule%3Anightly/{verb}");
        let answer = http.request("POST", &path, None).unwrap();
        assert_eq!(answer.status, 409, "{answer:?}");
        assert!(String::from_utf8_lossy(&answer.body).contains("is_schedule"), "{answer:?}");
    }
    // Nor does it go back: it would start again what it has started.
    let refused = run(&data, &["reset", "schedule:nightly", "--to", "first-turn", "--yes"]);
    assert!(!refused.status.success() && said(&refused).contains("is not reset"), "{}", said(&refused));
    let path = "/api/v1/workflows/schedule%3Anightly/reset";
    let answer = http.request("POST", path, Some(br#"{"to":"first-turn"}"#)).unwrap();
    assert_eq!(answer.status, 409, "{answer:?}");
    let conflict = ["-w", "schedule:nightly", "--id-conflict-policy", "terminate-existing"];
    let steps = ["kitchen-sink", "--input", r#"{"steps":[]}"#];
    for (verb, more) in [("start", [].as_slice()), ("signal-with-start", &["--signal-name", "x"])] {
        let refused = run(&data, &[&[verb], &steps[..], &conflict[..], more].concat());
        assert_eq!(refused.status.code(), Some(2), "{verb}: {}", said(&refused));
        assert!(said(&refused).contains("schedule delete nightly` deletes it"), "{verb}: {}", said(&refused));
    }
    assert_eq!(told(&data, &["schedule", "describe", "nightly"])["schedule"]["state"]["paused"], false);
    ok(&data, &["schedule", "delete", "nightly", "--yes"]);
    drop(worker);
}
