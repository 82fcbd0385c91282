//! Verbs and options of the command line that ask once, again and again, or about a file: `result --no-wait`, `list --watch`,
//! `cost --group-by`, `config validate`, `agent list`.
//!
//! Real processes on a real directory.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess};
use serde_json::{Value, json};

use crate::pages::{Pages, gated};
use crate::supervisor_cli::{command, run, said};

#[test]
fn a_result_that_nobody_waits_for_says_how_it_stands() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.supervisor("asks", &gated("a publication", "publish it"));
    let asked = pages.asked("asks");
    pages.program("goes-on", json!([{ "wait_signal": { "name": "go" } }]));
    let now = |id: &str| run(&data, &["result", id, "--no-wait"]);
    let asks = now("asks");
    let told = said(&asks);
    assert_eq!(asks.status.code(), Some(15), "{told}");
    assert!(told.contains(&format!("approval approve {}", asked["id"].as_str().unwrap())), "{told}");
    let open = now("goes-on");
    assert!(open.status.code() == Some(1) && said(&open).contains("has not closed yet"), "{}", said(&open));
    pages.post("/api/v1/workflows/asks/answers", &json!({ "id": asked["id"], "approved": true }));
    pages.ended("asks");
    let done = now("asks");
    assert!(done.status.success() && said(&done).contains("done"), "{}", said(&done));
    assert_eq!(now("nobody").status.code(), Some(30));
    assert_eq!(run(&data, &["result", "asks", "--no-wait", "--timeout", "1s"]).status.code(), Some(2));
}

#[test]
fn a_list_is_listed_again_when_it_has_changed() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.program("first", json!([{ "wait_signal": { "name": "go" } }]));
    assert_eq!(run(&data, &["list", "--watch", "-o", "json"]).status.code(), Some(2));
    let mut watching =
        command(&data, &["list", "--watch=100ms", "-o", "jsonl"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    // Each of them comes; the harness ends a test that waits for ever.
    let mut next = || -> (String, String) {
        let row: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        (row["workflow_id"].as_str().unwrap().to_owned(), row["status"].as_str().unwrap().to_owned())
    };
    assert_eq!(next(), ("first".to_owned(), "Running".to_owned()));
    pages.bosun(&["signal", "first", "go"]);
    while next() != ("first".to_owned(), "Completed".to_owned()) {}
    watching.kill().unwrap();
    watching.wait().unwrap();
}

/// Whoever watches goes on watching when another worker takes the place of one that was killed.
#[test]
fn a_list_is_watched_over_the_end_of_its_worker() {
    let mut pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.program("first", json!([{ "wait_signal": { "name": "go" } }]));
    let mut watching =
        command(&data, &["list", "--watch=100ms", "-o", "jsonl"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut until = |status: &str| loop {
        let row: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if row["workflow_id"] == "first" && row["status"] == status {
            return;
        }
    };
    until("Running");
    pages.kill();
    pages.start_again();
    pages.bosun(&["signal", "first", "go"]);
    until("Completed");
    watching.kill().unwrap();
    watching.wait().unwrap();
}

/// What is in the way of a run is told where its result is asked for and not there yet, and beside the task that it is in the
/// way of.
#[test]
fn a_result_that_cannot_come_says_what_is_in_the_way() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    let fails = json!([{ "activity": { "type": "process", "input": { "argv": ["false"] }, "retry": { "initial_interval": "1h" } } }]);
    pages.program("stuck", fails);
    let begin = Instant::now();
    loop {
        let open = run(&data, &["result", "stuck", "--no-wait"]);
        assert_eq!(open.status.code(), Some(1), "{}", said(&open));
        if said(&open).contains("activity retry-now stuck 1") {
            assert!(said(&open).contains("of stuck: attempt 2 in "), "{}", said(&open));
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", said(&open));
        std::thread::sleep(Duration::from_millis(100));
    }
    let told = pages.http.request("GET", "/api/v1/workflows/stuck/result", None).unwrap();
    assert_eq!(told.status, 202);
    let told: Value = told.json().unwrap();
    assert!(told["obstacles"][0]["help"].as_str().is_some_and(|help| help.ends_with("retry-now stuck 1")), "{told}");
    let about: Value = pages.http.request("GET", "/api/v1", None).unwrap().json().unwrap();
    assert_eq!(about["openapi"], "/api/v1/openapi.json");
}

/// The result of a supervisor is waited for with its tasks in view, as by `run`, and not with its operations.
#[test]
fn the_result_of_a_supervisor_is_drawn_by_its_tasks() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.supervisor("asks", &gated("a publication", "publish it"));
    let asked = pages.asked("asks");
    pages.post("/api/v1/workflows/asks/answers", &json!({ "id": asked["id"], "approved": true }));
    pages.ended("asks");
    let shown = said(&run(&data, &["result", "asks"]));
    assert!(shown.contains("tell: a publication") && !shown.contains("scripted"), "{shown}");
}

/// Without channels there are none to list, which is no fault.
#[test]
fn a_list_of_no_channels_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let listed = run(&dir.path().join("data"), &["notify", "list"]);
    assert!(listed.status.success() && said(&listed).contains("no channel is configured"), "{}", said(&listed));
}

/// A command that is said to help names the run that was asked.
#[test]
fn an_update_of_a_run_that_is_paused_names_the_run() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.program("held", json!([{ "wait_signal": { "name": "go" } }]));
    pages.bosun(&["pause", "held"]);
    let refused = run(&data, &["update", "held", "any"]);
    assert!(!refused.status.success() && said(&refused).contains("resume held`"), "{}", said(&refused));
}

#[test]
fn a_configuration_is_checked_with_all_of_its_profiles() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("other.toml"));
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        run(&data, &["config", "validate", file.to_str().unwrap()])
    };
    let well = check("namespace = \"dev\"\n[worker]\nslots = 4\n[profiles.night]\nworker.slots = 8\n");
    assert!(well.status.success() && said(&well).contains("2 keys, and the profiles night"), "{}", said(&well));
    let one = check("namespace = \"dev\"\n");
    assert!(said(&one).contains("is well: 1 key\n"), "{}", said(&one));
    for (text, named) in [
        ("slots = 4\n", "slots"),
        ("[worker]\nslots = \"many\"\n", "worker.slots"),
        ("[profiles.night]\nworker.retention = [\"soon\"]\n", "profiles.night"),
        ("not toml", "other.toml"),
    ] {
        let refused = check(text);
        assert!(refused.status.code() == Some(2) && said(&refused).contains(named), "{text}: {}", said(&refused));
    }
    assert!(!data.exists(), "no store is made for it");
}

#[test]
fn a_team_is_a_table() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.supervisor("asks", &gated("a publication", "publish it"));
    let asked = pages.asked("asks");
    pages.post("/api/v1/workflows/asks/answers", &json!({ "id": asked["id"], "approved": true }));
    pages.ended("asks");
    let shown = said(&run(&data, &["agent", "list", "asks"]));
    let mut lines = shown.lines();
    assert_eq!(lines.next().unwrap().split_whitespace().collect::<Vec<_>>(), ["AGENT", "ROLE", "STATUS"], "{shown}");
    let member: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert!(member.len() == 3 && member[2] == "completed", "{shown}");
    assert!(shown.contains("agents started: ") && !shown.contains('{'), "{shown}");
    let told: Value = serde_json::from_slice(&run(&data, &["agent", "list", "asks", "-o", "json"]).stdout).unwrap();
    assert_eq!(told["schema"], "bosun.agent.list/1", "{told}");
    assert!(told["team"].is_array() && told["registry"]["total"].is_u64(), "{told}");
}

/// By models, and by the runs that asked them, it is the same sum.
#[test]
fn costs_are_added_up_by_models_or_by_runs() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.program("plain", json!([]));
    pages.ended("plain");
    let none = said(&run(&data, &["cost", "plain", "--group-by", "run"]));
    assert!(none.contains("no model was called"), "{none}");
    let told: Value = serde_json::from_slice(&run(&data, &["cost", "plain", "-o", "json"]).stdout).unwrap();
    assert_eq!(
        told["by_run"],
        json!([{ "workflow_id": "plain", "calls": 0, "tokens": 0, "cost_micros": 0 }]),
        "{told}"
    );
}

/// A channel of notifications needs two keys at once: neither is of use alone.
#[test]
fn keys_that_need_each_other_are_set_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("bosun.toml"));
    let place = file.to_str().unwrap().to_owned();
    let set = |words: &[&str]| run(&data, &[&["config", "set"], words, &["--file", &place]].concat());
    let (webhook, url) = ("notify.channels.ops.webhook", "https://ops.example/hook");
    let alone = set(&[webhook, url]);
    assert!(alone.status.code() == Some(2) && said(&alone).contains("a webhook is signed"), "{}", said(&alone));
    let odd = set(&[webhook, url, "notify.channels.ops.secret"]);
    assert!(odd.status.code() == Some(2) && said(&odd).contains("no value is given for it"), "{}", said(&odd));
    assert!(!file.exists(), "nothing was written");
    let both = set(&[webhook, url, "notify.channels.ops.secret", "env:OPS_SECRET"]);
    assert!(both.status.success(), "{}", said(&both));
    assert!(run(&data, &["config", "validate", &place]).status.success());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(url) && text.contains("env:OPS_SECRET"), "{text}");
}

/// What holds of an activity is told, also after it was changed.
#[test]
fn an_activity_tells_its_limits() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let bosun = bosun_tests::harness::process::bosun().unwrap();
    let program = Program::new(bosun, &["worker", "run", "--queue", "default"]);
    let (worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let pages = Pages { worker, http, dir };
    let waits = json!({ "type": "echo", "input": 1, "task_queue": "nobody-serves-it", "start_to_close": "30s" });
    pages.program("waits", json!([{ "activity": waits }]));
    let told = |words: &[&str]| said(&run(&data, &[words, &["activity", "describe", "waits", "1"]].concat()));
    let before = told(&[]);
    assert!(before.contains("start-to-close 30s") && before.contains("schedule-to-close none"), "{before}");
    let more = ["activity", "update-options", "waits", "1", "--start-to-close", "10m", "--maximum-attempts", "8"];
    assert!(run(&data, &more).status.success());
    let after = told(&[]);
    assert!(after.contains("start-to-close 10m") && after.contains("8 attempts in all"), "{after}");
    let json: Value = serde_json::from_str(&told(&["-o", "json"])).unwrap();
    assert_eq!((&json["options"]["start_to_close"], &json["options"]["maximum_attempts"]), (&json!("10m"), &json!(8)));
    let seen: Value = pages.http.request("GET", "/api/v1/workflows/waits", None).unwrap().json().unwrap();
    assert_eq!(seen["pending_activities"][0]["options"]["start_to_close"], "10m", "{seen}");
}

/// A version that there never was is not called old.
#[test]
fn a_version_of_a_plan_that_is_none_is_called_so() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    let mut spec = gated("a publication", "publish it");
    spec["planning"] = json!({ "approval": { "required": true } });
    pages.supervisor("planned", &spec);
    pages.asked("planned");
    let refused = run(&data, &["plan", "approve", "planned", "--version", "7"]);
    let told = said(&refused);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("there is no version 7 of the plan of planned: the newest is 1"), "{told}");
    // Its review is no approval that could wait longer.
    let listed = run(&data, &["approval", "list", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let id = listed["waiting"][0]["request"]["id"].as_str().unwrap_or_else(|| panic!("{listed:#}"));
    for (words, done) in [(&["extend", id, "--by", "1h"][..], "extended"), (&["escalate", id], "escalated")] {
        let told = said(&run(&data, &[&["approval"], words].concat()));
        let expected =
            format!("{id} is a plan that waits for a review, and no approval: only an approval can be {done}");
        assert!(told.contains(&expected) && told.contains("plan approve planned --version 1` answers it"), "{told}");
    }
    assert!(run(&data, &["plan", "approve", "planned", "--version", "1"]).status.success());
}

/// A name that lists have for every run is refused to code as it is to a start: nothing could be found by it.
#[test]
fn code_gives_no_search_attribute_a_name_that_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let execute = |id: &str, steps: Value| {
        let input = json!({ "steps": steps }).to_string();
        run(&data, &["execute", "kitchen-sink", "-w", id, "--input", &input])
    };
    let refused = execute("taken", json!([{ "upsert": { "WorkflowId": "x" } }, { "return": 1 }]));
    let told = said(&refused);
    assert_eq!(refused.status.code(), Some(10), "{told}");
    assert!(told.contains("BadSearchAttributes") && told.contains("the search attribute WorkflowId"), "{told}");
    // Another name is one, and what was refused fits its code all the same.
    assert!(execute("free", json!([{ "upsert": { "City": "x" } }, { "return": 1 }])).status.success());
    let checked = run(&data, &["replay", "check", "taken"]);
    assert!(checked.status.success(), "{}", said(&checked));
}

/// On a narrow terminal a list says how its runs stand, and a doctor what was found.
#[test]
fn a_narrow_terminal_keeps_what_is_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let id = "an-order-with-an-id-that-is-longer-than-any-terminal-of-those-that-are-looked-at-here-is-wide-0042";
    let input = r#"{"steps": [{"timer": "1h"}]}"#;
    assert!(run(&data, &["start", "kitchen-sink", "-w", id, "--input", input]).status.success());
    let shown = |columns: u16, verb: &str| {
        let bosun = bosun_tests::harness::process::bosun().unwrap();
        let line = format!("stty cols {columns}; {} --data {} --color never {verb}", bosun.display(), data.display());
        let mut script = std::process::Command::new("script");
        let output = script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for columns in [40, 60, 80] {
        let list = shown(columns, "list");
        let row = list.lines().find(|line| line.starts_with("an-order")).unwrap_or_else(|| panic!("{list}"));
        assert!(row.contains("Running") && row.contains('…') && row.contains("0042"), "{columns}: {list}");
        assert!(row.trim_end().chars().count() <= usize::from(columns), "{columns}: {list}");
        let doctor = shown(columns, "doctor");
        let head = doctor.lines().next().unwrap_or_default();
        assert!(["STATE", "CHECK", "FINDING"].iter().all(|name| head.contains(name)), "{columns}: {doctor}");
    }
}

/// Why somebody holds an activity back stands where the activity does.
#[test]
fn the_reason_of_a_pause_of_an_activity_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let steps = r#"{"steps": [{"activity": {"type": "echo", "input": "x"}}]}"#;
    for words in [
        &["start", "kitchen-sink", "-w", "held", "--input", steps][..],
        &["activity", "pause", "held", "1", "--reason", "look first"],
    ] {
        let done = run(&data, words);
        assert!(done.status.success(), "{}", said(&done));
    }
    let told = said(&run(&data, &["describe", "held"]));
    assert!(told.contains("activity 1: it is paused by ") && told.contains(": look first"), "{told}");
    let object: Value = serde_json::from_slice(&run(&data, &["describe", "held", "-o", "json"]).stdout).unwrap();
    let why = object["pending_activities"][0]["paused"].as_str();
    assert!(why.is_some_and(|why| why.ends_with(": look first")), "{object}");
}

/// `config list` takes the flag that asks for what it always says, and a key of a profile is set in its table.
#[test]
fn origins_are_listed_and_a_profile_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let config = |words: &[&str]| {
        let mut bosun = std::process::Command::new(bosun_tests::harness::process::bosun().unwrap());
        bosun.arg("config").args(words).current_dir(dir.path()).output().unwrap()
    };
    assert!(config(&["set", "worker.slots", "4"]).status.success());
    let set = config(&["set", "worker.slots", "2", "--in-profile", "dev"]);
    assert!(set.status.success(), "{}", said(&set));
    let listed = said(&config(&["list", "--origin", "--profile", "dev"]));
    let line = listed.lines().find(|line| line.starts_with("worker.slots")).unwrap_or_else(|| panic!("{listed}"));
    assert!(line.contains("[profiles.dev]"), "{line}");
}

/// Where one thing of a file is wrong, what it says besides is shown with its place; and keys that belong together may be said in
/// different places.
#[test]
fn a_configuration_is_judged_with_what_stands_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = |words: &[&str]| {
        let mut bosun = std::process::Command::new(bosun_tests::harness::process::bosun().unwrap());
        bosun.arg("config").args(words).current_dir(dir.path()).env("BOSUN_STORE_KEY", "env:K").output().unwrap()
    };
    let file = dir.path().join("bosun.toml");
    std::fs::write(&file, "namespace = \"dev\"\n[store]\nold_keys = [\"env:OLD\"]\n").unwrap();
    for words in [&["validate"][..], &["set", "output", "text"], &["list"]] {
        let well = config(words);
        assert!(well.status.success(), "{words:?}: {}", said(&well));
    }
    std::fs::write(&file, "namespace = \"dev\"\nnamspace = \"dev\"\n").unwrap();
    let listed = config(&["list"]);
    let text = said(&listed);
    assert!(listed.status.code() == Some(2) && text.contains("no key is called `namspace`"), "{text}");
    for (key, origin) in [("namespace", "bosun.toml"), ("store.key", "BOSUN_STORE_KEY")] {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(origin), "{line}");
    }
}
