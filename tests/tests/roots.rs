//! The owner's file roots, at every door through which a workflow reaches files: the stock binary under `file.roots`
//! (G35, G36).
//!
//! The doors: `file` · `compose` · the directory, jail and reported files of `process` · an agent's tools of each of them ·
//! a plan's tasks. What a command opens by itself is bounded by its user, and what an MCP server opens by its owner.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bosun_tests::harness::binary::{run, said};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use bosun_worker::capability::model::Wire;
use bosun_worker::capability::model::mock::{MockProvider, calls, says};
use serde_json::{Value, json};

const REFUSAL: &str = "the worker's owner does not allow";

struct Place {
    dir: tempfile::TempDir,
    allowed: PathBuf,
    outside: PathBuf,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let (allowed, outside) = (dir.path().join("allowed"), dir.path().join("outside"));
        for place in [&allowed, &outside] {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join("text"), "what stands here").unwrap();
        }
        symlink(&outside, allowed.join("way")).unwrap();
        Place { dir, allowed, outside }
    }
    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
    fn roots(&self) -> String {
        format!("file.roots={}", self.allowed.display())
    }
    fn worker(&self) -> Program {
        Program::new(bosun().unwrap(), &["worker", "run", "--set", &self.roots()])
    }
}

/// What an activity gave, or why it did not.
fn acted(data: &Path, id: &str, activity: &str, input: &Value) -> String {
    let step = json!({ "activity": { "type": activity, "input": input, "as": "out", "start_to_close": "30s",
        "retry": { "maximum_attempts": 1 } } });
    let program = json!({ "steps": [step, { "return": "$out" }] }).to_string();
    let ended = run(data, &["execute", "kitchen-sink", "-w", id, "-i", &program, "-o", "json"]);
    said(&ended) + &said(&run(data, &["show", id, "-o", "jsonl"]))
}

/// G36: each activity that takes a directory from a workflow asks the owner first, links resolved; inside, each works.
#[test]
fn no_activity_reaches_files_outside_of_the_owners_roots() {
    let place = Place::new();
    let (_worker, _) = WorkerProcess::start(&place.worker(), &place.data(), READY_MAX).unwrap();
    let way = place.allowed.join("way");
    let doors = |at: &Path| {
        let file = |op: &str| json!({ "root": at, "op": op, "path": "text", "content": "changed" });
        [
            ("file", file("read")),
            ("file", json!({ "root": at, "op": "list", "path": "." })),
            ("file", file("write")),
            ("compose", json!({ "title": "T", "out": "report.md", "directory": at })),
            ("process", json!({ "argv": ["cat", "text"], "cwd": at })),
            ("process", json!({ "argv": ["cat", "text"], "jail": at })),
            ("process", json!({ "argv": ["cat", "text"], "jail": "/", "cwd": at })),
        ]
    };
    for (name, at) in [("outside", &place.outside), ("way", &way), ("above", &place.dir.path().to_owned())] {
        for (n, (activity, input)) in doors(at).iter().enumerate() {
            let told = acted(&place.data(), &format!("{name}-{n}"), activity, input);
            assert!(told.contains(REFUSAL) && !told.contains("what stands here"), "{name} {activity} {input}: {told}");
        }
    }
    for (n, (activity, input)) in doors(&place.allowed).iter().enumerate() {
        let told = acted(&place.data(), &format!("inside-{n}"), activity, input);
        assert!(told.contains("WorkflowExecutionCompleted"), "{activity} {input}: {told}");
    }
    // The size of a file says that it is there.
    let other = place.outside.join("text");
    let input = json!({ "argv": ["true"], "cwd": place.allowed, "report_files": ["text", "way/text", other] });
    let told = acted(&place.data(), "reported", "process", &input).replace(' ', "");
    assert!(told.contains(r#""text":{"size":7}"#) && told.contains(r#""way/text":{"size":null}"#), "{told}");
    assert_eq!(std::fs::read_to_string(place.outside.join("text")).unwrap(), "what stands here");
    assert_eq!(std::fs::read_dir(&place.outside).unwrap().count(), 1, "nothing was made there");
}

/// G36, G41: whatever a spec grants an agent, its tools stay inside too; so do the tasks of a plan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_agent_and_no_plan_reaches_files_outside_of_the_owners_roots() {
    let place = Place::new();
    let outside = place.outside.clone();
    let mock = MockProvider::start(move |request| match request.messages.len() {
        0..=2 => {
            let mut answer = calls("look", json!({ "op": "read", "path": "text" }));
            let note = calls("note", json!({ "title": "T", "out": "report.md", "directory": outside }));
            let list = calls("list", json!({}));
            answer.said.tool_calls.extend(note.said.tool_calls.into_iter().chain(list.said.tool_calls));
            answer
        }
        _ => says("done"),
    });
    let mock = mock.await.unwrap();
    let worker = place.worker().env("OPENAI_BASE_URL", &mock.base_url(Wire::OpenAi));
    let (_worker, _) = WorkerProcess::start(&worker, &place.data(), READY_MAX).unwrap();
    let spec = json!({ "name": "ann", "provider": "openai", "model": "tiny", "task": "look around", "tools": [
        { "name": "look", "does": { "file": { "root": place.outside } } },
        { "name": "note", "parameters": { "type": "object" }, "does": { "activity": { "activity_type": "compose" } } },
        { "name": "list", "parameters": { "type": "object", "properties": {} },
          "does": { "process": { "argv": ["ls"], "cwd": place.outside } } },
    ] });
    let ended = run(&place.data(), &["execute", "agent", "-w", "ann", "-i", &spec.to_string()]);
    let told = said(&ended) + &said(&run(&place.data(), &["show", "ann", "-o", "jsonl"]));
    assert!(!told.contains("what stands here") && mock.count() == 2, "{told}");
    let refused = |line: &&str| line.contains("ActivityTaskFailed") && line.contains(REFUSAL);
    assert_eq!(told.lines().filter(refused).count(), 3, "each of its tools is refused: {told}");
    let plan = place.dir.path().join("plan.yaml");
    let text = "objective: say it\ntasks:\n  - { task_id: 1, sub_task_objective: report, capability: compose, \
                parameters: { title: T, out: report.md } }\n";
    std::fs::write(&plan, text).unwrap();
    let mut planned = Command::new(bosun().unwrap());
    planned.args(["run", plan.to_str().unwrap(), "-w", "planned", "--timeout", "60s", "--data"]).arg(place.data());
    let planned = said(&planned.current_dir(&place.outside).stdin(Stdio::null()).output().unwrap());
    let told = planned + &said(&run(&place.data(), &["show", "planned", "-o", "jsonl"]));
    assert!(told.contains(REFUSAL), "{told}");
    assert_eq!(std::fs::read_dir(&place.outside).unwrap().count(), 1, "nothing was made there");
}
