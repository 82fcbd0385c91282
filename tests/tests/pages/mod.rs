//! The pages as people meet them: a real worker, a real browser, and for the guard requests written by hand.

mod agents;
mod docs;
mod door;
mod forms;
mod guard;
mod hostile;
mod inbox;
mod live;
mod looks;
mod many;
mod moments;
mod roles;
mod sign_in;
mod start;
mod system;
mod waits;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_tests::harness::browser::{Browser, Page};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::{Http, escape};
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::workload;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::supervisor_cli::run;

/// A worker with its pages, in a directory of its own.
pub(crate) struct Pages {
    pub(crate) worker: WorkerProcess,
    pub(crate) http: Http,
    pub(crate) dir: TempDir,
}

impl Pages {
    pub(crate) fn serve() -> Pages {
        Pages::serve_by(&Program::bosun_worker().unwrap())
    }

    /// The same by a worker with more in its environment.
    pub(crate) fn serve_by(program: &Program) -> Pages {
        let dir = tempfile::tempdir().unwrap();
        let (worker, http) = WorkerProcess::start(program, &dir.path().join("data"), READY_MAX).unwrap();
        Pages { worker, http, dir }
    }

    /// Kills the worker without a warning.
    pub(crate) fn kill(&mut self) {
        self.worker.kill().unwrap();
    }

    /// Starts it again, on the same port.
    pub(crate) fn start_again(&mut self) {
        let mut program = Program::bosun_worker().unwrap();
        program.arguments.extend(["--port".into(), self.port().into()]);
        let data = self.dir.path().join("data");
        (self.worker, self.http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    }

    pub(crate) fn port(&self) -> String {
        self.http.endpoint.address.rsplit_once(':').unwrap().1.to_owned()
    }

    pub(crate) fn at(&self, place: &str) -> String {
        format!("http://{}{place}", self.http.endpoint.address)
    }

    /// What `bosun` prints with these words, in the directory of this worker.
    #[track_caller]
    pub(crate) fn bosun(&self, words: &[&str]) -> String {
        let output = run(&self.dir.path().join("data"), words);
        assert!(output.status.success(), "{words:?}: {}", crate::supervisor_cli::said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The link of `bosun ui`.
    pub(crate) fn link(&self) -> String {
        let said = self.bosun(&["ui", "--no-browser"]);
        let link = said.lines().find(|line| line.contains("/login?"));
        link.unwrap_or_else(|| panic!("no link: {said}")).trim().to_owned()
    }

    /// A token of its own for somebody.
    pub(crate) fn token(&self, name: &str, role: &str) -> String {
        self.bosun(&["token", "create", name, "--role", role]).lines().next().unwrap().to_owned()
    }

    /// A tab that is signed in as the owner, on the list of runs.
    pub(crate) fn signed_in(&self, browser: &Arc<Browser>) -> Page {
        let page = browser.page();
        page.go_to(&self.link());
        assert_eq!(page.address(), "/", "{}", page.shows());
        page
    }

    /// A tab that is signed in with a token.
    pub(crate) fn signed_in_with(&self, browser: &Arc<Browser>, token: &str) -> Page {
        let page = browser.page();
        page.go_to(&self.at("/login"));
        page.fill("#token", token);
        page.click_to_leave("main button[type=submit]");
        assert_eq!(page.address(), "/", "{}", page.shows());
        page
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.http.request("POST", path, Some(body.to_string().as_bytes())).unwrap();
        assert!((200..300).contains(&answer.status), "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json().unwrap()
    }

    /// Starts a supervisor of a spec.
    #[track_caller]
    pub(crate) fn supervisor(&self, id: &str, spec: &Value) {
        let start = json!({ "workflow_type": "supervisor", "workflow_id": id, "input": { "spec": spec } });
        self.post("/api/v1/workflows", &start);
    }

    /// Starts a run of the kitchen sink.
    pub(crate) fn program(&self, id: &str, steps: Value) {
        let input = json!({ "steps": steps });
        let start = json!({ "workflow_type": workload::KITCHEN_SINK, "workflow_id": id, "input": input });
        self.post("/api/v1/workflows", &start);
    }

    /// Waits until somebody is asked, and answers what is asked of whom.
    #[track_caller]
    pub(crate) fn asked(&self, id: &str) -> Value {
        let begin = Instant::now();
        loop {
            let answer = self.http.request("GET", "/api/v1/approvals", None).unwrap();
            let seen: Value = answer.json().unwrap();
            let all = seen["approvals"].as_array().cloned().unwrap_or_default();
            if let Some(one) = all.into_iter().find(|one| one["workflow_id"] == id) {
                return one;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{id} asks nobody: {seen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its events as JSON, the plain ones of the API.
    pub(crate) fn events(&self, id: &str) -> Vec<Value> {
        let path = format!("/api/v1/workflows/{}/history?limit=1000", escape(id));
        let seen: Value = self.http.request("GET", &path, None).unwrap().json().unwrap();
        seen["events"].as_array().cloned().unwrap_or_else(|| panic!("{seen}"))
    }

    /// How it has ended.
    #[track_caller]
    pub(crate) fn ended(&self, id: &str) -> Value {
        let path = format!("/api/v1/workflows/{}/result?wait=20s", escape(id));
        let seen: Value = self.http.request("GET", &path, None).unwrap().json().unwrap();
        assert_ne!(seen["status"], "Running", "{id} goes on");
        seen
    }
}

/// A supervisor that asks a person before it begins.
pub(crate) fn gated(objective: &str, action: &str) -> Value {
    json!({
        "kind": "supervisor", "preset": "shannon-supervisor", "objective": objective,
        "planner": { "script": [{ "on": "plan", "say": { "subtasks": [
            { "id": "tell", "description": format!("tell: {objective}"), "action": action }] } }] },
        "agents": [{ "name": "worker" }],
        "script": [{ "on": "execute_worker", "say": "done" }, { "on": "synthesize", "say": "done" }],
    })
}
