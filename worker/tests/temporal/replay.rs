//! Histories of a cluster and the code of this program: by id, and from Temporal's own JSON.
//!
//! Invariant: a run that this code carried out replays without a difference, whatever its workflow tasks were made of; code that
//! does not fit is told with the card of the embedded engine, exit 20.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::Scene;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] = &[
    ("histories_of_a_cluster_replay", histories_replay),
    ("a_run_of_a_cluster_is_compared_asked_and_stepped_through", compared_asked_and_stepped_through),
];

fn histories_replay(cluster: &Cluster) {
    let queue = cluster.name("replays");
    let worker = cluster.worker(&queue, &[]);
    let echo = |value: Value| json!({ "activity": { "type": "echo", "input": value, "as": "a" } });
    let steps = json!([echo(json!(1)), { "timer": "5ms" }, { "side_effect": { "value": 3, "as": "s" } }, echo(json!(2)), { "return": "$a" }]);
    cluster.start_program(&queue, "replays", &json!({ "steps": steps }));
    assert_eq!(cluster.result("replays").0, 0);
    assert_eq!(worker.term(), 0);
    // With it, the programs of all scenes before it on this server.
    let kept_elsewhere = super::payloads::RUNS.map(|id| format!(" AND WorkflowId != '{id}'")).concat();
    let query = format!("WorkflowType = 'kitchen-sink' AND ExecutionStatus != 'Running'{kept_elsewhere}");
    let checked = cluster.until("its run is listed", || {
        let checked = cluster.run(&["replay", "check", "--query", &query]);
        (checked.status.code() != Some(30)).then_some(checked)
    });
    assert!(checked.status.success(), "{}", shown(&checked));
    let history = cluster.temporal(&["workflow", "show", "-w", "replays", "--output", "json"]);
    let file = cluster.folder.path().join("replays.json");
    std::fs::write(&file, &history.stdout).unwrap();
    let file = file.display().to_string();
    for args in [vec!["replay", "check", &file], vec!["replay", "show", &file], vec!["replay", "explain", &file]] {
        let output = cluster.embedded("files", &args);
        assert!(output.status.success(), "{args:?}: {}", shown(&output));
    }
    let shown_run = cluster.run(&["replay", "show", "replays"]);
    assert!(shown(&shown_run).contains("ActivityTaskScheduled"), "{}", shown(&shown_run));

    // Other code: the program in the history asks for another activity than history holds.
    let mut other: Value = serde_json::from_slice(&history.stdout).unwrap();
    for event in other["events"].as_array_mut().unwrap() {
        if event["eventType"] == "EVENT_TYPE_ACTIVITY_TASK_SCHEDULED" {
            event["activityTaskScheduledEventAttributes"]["activityType"]["name"] = json!("shout");
        }
    }
    let changed = cluster.folder.path().join("changed.json");
    std::fs::write(&changed, other.to_string()).unwrap();
    let refused = cluster.embedded("files", &["replay", "check", &changed.display().to_string()]);
    let text = shown(&refused);
    assert_eq!(refused.status.code(), Some(20), "{text}");
    assert!(text.contains("BOSUN0101") || text.contains("no longer matches history"), "{text}");
}

/// `diff`, `what-if` and `debug` of runs of a cluster, beside one of the embedded engine.
fn compared_asked_and_stepped_through(cluster: &Cluster) {
    let queue = cluster.name("apart");
    let worker = cluster.worker(&queue, &[]);
    let echo = |value: Value| json!({ "activity": { "type": "echo", "input": value, "as": "a" } });
    let program = |last: Value| {
        let effect = json!({ "side_effect": { "value": 3, "as": "s" } });
        json!({ "steps": [echo(json!(1)), { "timer": "5ms" }, effect, echo(last), { "return": "$a" }] })
    };
    for (id, last) in [("apart-1", 2), ("apart-2", 2), ("apart-3", 7)] {
        cluster.start_program(&queue, id, &program(json!(last)));
        assert_eq!(cluster.result(id).0, 0);
    }
    assert_eq!(worker.term(), 0);
    let exit = |args: &[&str], wanted: i32| {
        let output = cluster.run(args);
        assert_eq!(output.status.code(), Some(wanted), "{args:?}: {}", shown(&output));
        shown(&output)
    };
    exit(&["diff", "apart-1", "apart-2"], 0);
    let differ = exit(&["diff", "apart-1", "apart-3"], 22);
    assert!(differ.contains("input"), "{differ}");
    // The same program on the embedded engine has decided the same.
    let input = program(json!(2)).to_string();
    let ran = cluster.embedded("apart", &["execute", "kitchen-sink", "-w", "apart-1", "-q", &queue, "--input", &input]);
    assert!(ran.status.success(), "{}", shown(&ran));
    let file = cluster.folder.path().join("embedded.json");
    let export = cluster.embedded("apart", &["export", "apart-1"]);
    std::fs::write(&file, &export.stdout).unwrap();
    exit(&["diff", "apart-1", &file.display().to_string()], 0);

    let same = exit(&["replay", "what-if", "apart-1"], 0);
    assert!(same.contains("0 changed, 0 new, 0 gone"), "{same}");
    let other = program(json!(9)).to_string();
    let changed = exit(&["replay", "what-if", "apart-1", "--set-input", &other], 22);
    assert!(changed.contains("first decision that differs"), "{changed}");

    // The debugger needs a terminal: one is made for it, and `q` leaves.
    let ends = stepped_through(cluster, "apart-1");
    assert!(ends.contains("ActivityTaskScheduled") || ends.contains("activity"), "{ends}");
}

fn stepped_through(cluster: &Cluster, id: &str) -> String {
    let script = r#"
import fcntl, os, pty, select, struct, sys, termios
pid, screen = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
for keys in (b"n", b"n", b"n", b"q"):
    while select.select([screen], [], [], 3)[0]:
        try:
            more = os.read(screen, 65536)
        except OSError:
            more = b""
        if not more:
            break
        seen += more
    try:
        os.write(screen, keys)
    except OSError:
        pass
while True:
    try:
        more = os.read(screen, 65536)
    except OSError:
        break
    if not more:
        break
    seen += more
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(status))
"#;
    let mut command = Command::new("python3");
    command.args(["-c", script, env!("CARGO_BIN_EXE_bosun"), "--temporal", &cluster.address, "replay", "debug", id]);
    command.env("TERM", "xterm").current_dir(cluster.folder.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    shown(&output)
}
