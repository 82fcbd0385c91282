//! What Prometheus reads of a real worker, and who may read it; and the rules and the dashboard in `fixtures/telemetry`,
//! which name only what there is.
//!
//! It does not judge the times that are measured.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::{Endpoint, Http, escape};
use bosun_tests::harness::mount::tool;
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess, bosun};
use bosun_tests::harness::{all_required, say};
use serde_json::{Value, json};

/// A worker that has done something: one run that completed, one that failed.
fn worked(data: &Path) -> (WorkerProcess, Http) {
    let (worker, owner) = WorkerProcess::start(&Program::bosun_worker().unwrap(), data, READY_MAX).unwrap();
    let asked = json!({ "provider": "schema", "request": { "model": "any", "messages": [{ "role": "user", "content": "hello" }] } });
    for (id, steps) in [
        ("asks", json!([{ "activity": { "type": "model", "input": asked } }])),
        ("good", json!([{ "activity": { "type": "echo", "input": 1, "as": "said" } }, { "return": "$said" }])),
        ("bad", json!([{ "fail": { "type": "Broken", "message": "no" } }])),
    ] {
        let start = json!({ "workflow_type": "kitchen-sink", "workflow_id": id, "input": { "steps": steps } });
        let started: Value = owner.call("POST", "/api/v1/workflows", Some(&start)).acknowledged().unwrap();
        assert_eq!(started["newly_started"], true, "{started}");
        let path = format!("/api/v1/workflows/{id}/result?wait=20s");
        let ended: Value = owner.call("GET", &path, None::<&()>).acknowledged().unwrap();
        assert_ne!(ended["status"], "Running", "{ended}");
    }
    (worker, owner)
}

fn scrape(http: &Http) -> (u16, String) {
    let answer = http.request("GET", "/metrics", None).unwrap();
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
}

/// The names of what is measured, as rules write them.
fn names(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

#[test]
fn what_the_worker_did_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (_worker, owner) = worked(&dir.path().join("data"));
    let (status, text) = scrape(&owner);
    assert_eq!(status, 200);
    for line in [
        "bosun_closed_runs_total{workflow_type=\"kitchen-sink\",status=\"completed\"} 2",
        "bosun_closed_runs_total{workflow_type=\"kitchen-sink\",status=\"failed\"} 1",
        "bosun_activity_duration_seconds_count{activity_type=\"echo\",outcome=\"completed\"} 1",
        "bosun_runs{state=\"closed\"} 3",
        "bosun_activity_duration_seconds_count{activity_type=\"model\",outcome=\"completed\"} 1",
        "bosun_ready 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
    let commits = text.lines().find_map(|line| line.strip_prefix("bosun_commit_duration_seconds_count "));
    assert!(commits.and_then(|count| count.parse().ok()).is_some_and(|count: u64| count >= 2), "{text}");
}

/// Whether Debian's Prometheus is there; says so if not. CI installs it and may not.
fn prometheus_or_explain() -> bool {
    let found = tool("prometheus").is_some() && tool("promtool").is_some();
    if !found {
        assert!(!all_required(), "prometheus is needed and not installed");
        say("SKIPPED: no Prometheus reads the metrics: it is not installed");
    }
    found
}

fn promtool(words: &[&str], file: &Path) {
    let checked = Command::new("promtool").args(words).arg(file).output().unwrap();
    assert!(checked.status.success(), "{words:?}: {}", String::from_utf8_lossy(&checked.stderr));
}

/// The older format, for whoever asks for it, passes the linter; nobody else gets it.
#[test]
fn prometheus_text_is_what_promtool_accepts() {
    if !prometheus_or_explain() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (_worker, owner) = worked(&dir.path().join("data"));
    let scrape = |accept: &str| {
        let answer = owner.request_with("GET", "/metrics", None, &[accept]).unwrap();
        String::from_utf8(answer.body).unwrap()
    };
    let text = scrape("Accept: text/plain");
    assert!(
        !text.contains("# EOF") && !text.contains("# UNIT") && text.contains("# TYPE bosun_build_info gauge"),
        "{text}"
    );
    let (open, both) = (
        scrape("Accept: */*"),
        scrape("Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3"),
    );
    assert!(open.ends_with("# EOF\n") && both.ends_with("# EOF\n"), "{open}");
    assert_eq!(names(&text), names(&open), "the same samples");
    let file = dir.path().join("metrics.txt");
    std::fs::write(&file, &text).unwrap();
    let checked =
        Command::new("promtool").args(["check", "metrics"]).stdin(std::fs::File::open(&file).unwrap()).output();
    let checked = checked.unwrap();
    let told = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&told));
}

/// `BOSUN_LOG=debug`: requests, failed attempts and the end of runs, each with its run, and not the store's own lines.
#[test]
fn debug_shows_what_bosun_does_and_not_what_its_store_does() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::bosun_worker().unwrap().env("BOSUN_LOG", "debug");
    let (mut worker, owner) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
    let steps = json!([{ "activity": { "type": "process", "input": { "argv": ["false"] }, "retry": { "maximum_attempts": 1 } } }]);
    let start = json!({ "workflow_type": "kitchen-sink", "workflow_id": "bad:1", "input": { "steps": steps } });
    let _: Value = owner.call("POST", "/api/v1/workflows", Some(&start)).acknowledged().unwrap();
    let _: Value = owner.call("GET", "/api/v1/workflows/bad%3A1/result?wait=20s", None::<&()>).acknowledged().unwrap();
    worker.terminate().unwrap();
    worker.wait(REQUEST_MAX).unwrap();
    let said = worker.stderr();
    let lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of_message = |message: &str| {
        let found = lines.iter().filter(|line| line["fields"]["message"] == message);
        found.map(ToString::to_string).find(|line| line.contains("bad:1")).unwrap_or_default()
    };
    for (message, with) in [
        ("answered", "{id}/result"),
        ("the attempt failed", "\"attempt\":1"),
        ("the run closes", "\"status\":\"failed\""),
    ] {
        assert!(of_message(message).contains(with), "{message}: {said}");
    }
    assert!(
        !lines.iter().any(|line| line["target"].as_str().is_some_and(|target| target.starts_with("sled"))),
        "{said}"
    );
}

/// A real Prometheus reads a worker by the configuration that ships, with its rules, and with a token that only looks.
#[test]
fn a_real_prometheus_scrapes_a_worker_and_evaluates_the_rules() {
    if !prometheus_or_explain() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, home) = (dir.path().join("data"), dir.path());
    let (_worker, owner) = worked(&data);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/telemetry");
    let rules = std::fs::read_to_string(shipped.join("rules.yml")).unwrap();
    std::fs::write(home.join("rules.yml"), &rules).unwrap();
    promtool(&["check", "rules"], &home.join("rules.yml"));
    let worker_at = owner.endpoint.address.clone();
    let config = std::fs::read_to_string(shipped.join("prometheus.yml")).unwrap();
    assert!(config.contains("127.0.0.1:8233") && config.contains("scrape_interval: 15s"), "{config}");
    let config = config.replace("127.0.0.1:8233", &worker_at).replace("scrape_interval: 15s", "scrape_interval: 1s");
    let config = config.replace("global:", "global:\n  evaluation_interval: 1s");
    std::fs::write(home.join("prometheus.yml"), config).unwrap();
    let made = Command::new(bosun().unwrap())
        .args(["token", "create", "prometheus", "--role", "viewer", "--data"])
        .arg(&data)
        .output()
        .unwrap();
    std::fs::write(home.join("bosun.token"), String::from_utf8(made.stdout).unwrap().trim()).unwrap();
    promtool(&["check", "config"], &home.join("prometheus.yml"));

    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", home.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", home.join("tsdb").display()))
        .arg(format!("--web.listen-address={address}"))
        .args(["--log.level=error"])
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let asked = Http::new(Endpoint { address, ..owner.endpoint.clone() }, REQUEST_MAX);
    let query = |text: &str| -> Value {
        let path = format!("/api/v1/query?query={}", escape(text));
        let answer = asked.request("GET", &path, None);
        answer.ok().and_then(|answer| serde_json::from_slice(&answer.body).ok()).unwrap_or_default()
    };
    let value = |text: &str| query(text)["data"]["result"][0]["value"][1].as_str().map(str::to_owned);
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let began = Instant::now();
        let expected = [
            ("up{job=\"bosun\"}", "1"),
            ("bosun_ready", "1"),
            ("bosun_closed_runs_total{status=\"completed\"}", "2"),
            ("bosun_activity_duration_seconds_count{activity_type=\"echo\"}", "1"),
        ];
        for (text, wanted) in expected {
            while value(text).as_deref() != Some(wanted) {
                assert!(began.elapsed() < READY_MAX * 2, "{text}: {}", query(text));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        let told = asked.request("GET", "/api/v1/rules", None).unwrap();
        let told: Value = serde_json::from_slice(&told.body).unwrap();
        let of_group = told["data"]["groups"][0]["rules"].as_array().unwrap();
        assert_eq!(of_group.len(), rules.matches("- record:").count() + rules.matches("- alert:").count());
        // Each is evaluated once the first interval is over.
        loop {
            let told = asked.request("GET", "/api/v1/rules", None).unwrap();
            let told: Value = serde_json::from_slice(&told.body).unwrap();
            let all = told["data"]["groups"][0]["rules"].as_array().unwrap().clone();
            assert!(all.iter().all(|rule| rule["health"] != "err"), "{told}");
            if all.iter().all(|rule| rule["health"] == "ok") {
                break;
            }
            assert!(began.elapsed() < READY_MAX * 2, "{told}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }));
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    if let Err(why) = seen {
        std::panic::resume_unwind(why);
    }
}

/// Queues and types are of all namespaces: who is bound to one does not see them. Whether it is ready, anybody may ask.
#[test]
fn who_may_read_what_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (_worker, owner) = worked(&data);
    let token = |words: &[&str]| {
        let output = Command::new(bosun().unwrap()).arg("token").args(words).arg("--data").arg(&data).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let as_whom = |token: String| Http::new(Endpoint { token, ..owner.endpoint.clone() }, REQUEST_MAX);
    assert_eq!(scrape(&as_whom(token(&["create", "prometheus", "--role", "viewer"]))).0, 200);
    let bound = as_whom(token(&["create", "team", "--role", "owner", "--only-namespace", "dev"]));
    assert_eq!(scrape(&bound).0, 403);
    let nobody = as_whom("0123456789abcdef0123456789abcdef".to_owned());
    assert_eq!(scrape(&nobody).0, 401);
    assert_eq!((nobody.readyz().unwrap(), nobody.healthz().unwrap()), (200, 200));
}

/// What supervisors spend stands beside what they may, and what schedules do is counted; that it is asked is no request.
#[test]
fn budgets_and_schedules_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (_worker, owner) = worked(&dir.path().join("data"));
    let mut poor = crate::people_api::gated("poor");
    poor["input"]["spec"]["budget"] = json!({ "llm_calls": 4 });
    let _: Value = owner.call("POST", "/api/v1/workflows", Some(&poor)).acknowledged().unwrap();
    let action = json!({ "workflow_type": "kitchen-sink", "workflow_id": "tick", "input": { "steps": [] } });
    let schedule = json!({ "schedule_id": "ticks", "schedule": { "spec": { "intervals": [{ "every": "1s" }] }, "action": action } });
    // Looked at before: what it starts is counted from here on.
    let calls = |text: &str| {
        text.lines().find(|line| line.starts_with("bosun_client_calls_total{call=\"query\"}")).map(str::to_owned)
    };
    let before = scrape(&owner).1;
    let _: Value = owner.call("POST", "/api/v1/schedules", Some(&schedule)).acknowledged().unwrap();
    let begin = Instant::now();
    let text = loop {
        let text = scrape(&owner).1;
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse::<f64>().unwrap()
        };
        let started = of("bosun_schedule_actions_total{outcome=\"started\"}");
        if started >= 2.0 && of("bosun_budget_spent{resource=\"calls\"}") >= 1.0 {
            assert!((of("bosun_budget_allowed{resource=\"calls\"}") - 4.0).abs() < f64::EPSILON, "{text}");
            assert!(
                of("bosun_budget_used_most_ratio") >= 0.25 && of("bosun_schedule_overdue_seconds") < 60.0,
                "{text}"
            );
            assert!((of("bosun_schedules{state=\"active\"}") - 1.0).abs() < f64::EPSILON, "{text}");
            break text;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{text}");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert_eq!(calls(&text), calls(&before), "a scrape is nobody's request");
}

/// A rule or a panel on a name that nobody measures is never heard of again.
#[test]
fn rules_and_dashboard_name_what_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (_worker, owner) = worked(&dir.path().join("data"));
    let text = scrape(&owner).1;
    // A family that has nothing to show yet tells its name all the same.
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let known: BTreeSet<&str> = names(&text).into_iter().chain(described).collect();
    for file in ["rules.yml", "grafana.json"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/telemetry").join(file);
        let told = std::fs::read_to_string(path).unwrap();
        let words = told.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let asked: BTreeSet<&str> = words.filter(|word| word.starts_with("bosun_")).collect();
        assert!(asked.len() >= 5, "{file}");
        let unknown: Vec<_> = asked.iter().filter(|name| !known.contains(**name)).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}; there are {known:?}");
    }
}
