//! Supervisors on a cluster: the presets with their scripted agents, an approval, and what people ask of them.
//!
//! Invariant: the report is the one of the embedded engine, ids and times aside. Scripts wait for less here than in the files, so
//! that a preset takes seconds.

use serde_json::{Value, json};

use super::Scene;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] = &[
    ("presets_report_alike", presets_report_alike),
    ("an_approval_is_asked_for_and_given", an_approval),
    ("each_run_of_a_supervisor_that_goes_on_as_new_replays", goes_on_as_new),
];

/// Those whose order of events does not depend on how long anything takes.
const PRESETS: [&str; 6] = [
    "shannon-simple",
    "shannon-dag",
    "langgraph-supervisor",
    "swarm-handoff",
    "pydantask-fixed",
    "evaluator-optimizer",
];

pub(super) fn quick(preset: &str) -> String {
    let file = format!("{}/../fixtures/supervisors/presets/{preset}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{file}: {why}"));
    let mut quick = String::new();
    let mut parts = text.split("after: ");
    quick.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let unit = if part[digits..].starts_with('m') && !part[digits..].starts_with("ms") {
            1
        } else {
            usize::from(part[digits..].starts_with('s'))
        };
        quick.push_str(&format!(
            "after: {}ms{}",
            &part[..digits],
            &part[digits + unit + if unit == 0 { 2 } else { 0 }..]
        ));
    }
    quick
}

fn presets_report_alike(cluster: &Cluster) {
    let queue = cluster.name("presets");
    let worker = cluster.worker(&queue, &[]);
    let mut differ = Vec::new();
    for preset in PRESETS {
        let file = cluster.folder.path().join(format!("{preset}.yaml"));
        std::fs::write(&file, quick(preset)).unwrap();
        let file = file.display().to_string();
        let id = format!("preset-{preset}");
        let here = cluster.embedded("presets", &["run", &file, "-w", &id, "-o", "json"]);
        let there = cluster.run(&["run", &file, "-w", &id, "-q", &queue, "-o", "json"]);
        let (here, there) = (told(&here), told(&there));
        if here != there {
            differ.push(format!("{preset}:\n  embedded {here:?}\n  cluster  {there:?}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(worker.term(), 0);
}

/// The end and the result, without ids and times.
fn told(output: &std::process::Output) -> (i32, Value) {
    let last = output.stdout.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    let json: Value = serde_json::from_slice(last)
        .or_else(|_| serde_json::from_slice(&output.stdout))
        .unwrap_or_else(|why| panic!("{why}: {}", shown(output)));
    let mut told = json!({ "status": json["status"], "result": json["result"], "failure": json["failure"] });
    forget(&mut told);
    (output.status.code().unwrap_or(-1), told)
}

fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                !["run_id", "id", "at", "seconds", "ms", "elapsed"].contains(&name.as_str())
                    && !name.ends_with("_at")
                    && !name.ends_with("_ms")
                    && !name.ends_with("_seconds")
                    && !name.contains("duration")
                    && !name.ends_with("_id")
            });
            fields.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}

fn an_approval(cluster: &Cluster) {
    let queue = cluster.name("approvals");
    let worker = cluster.worker(&queue, &[]);
    let spec = format!("{}\nplanning: {{ approval: {{ required: true }} }}\n", quick("shannon-supervisor"));
    let file = cluster.folder.path().join("approval.yaml");
    std::fs::write(&file, spec).unwrap();
    let parked =
        cluster.run(&["run", &file.display().to_string(), "-w", "approval", "-q", &queue, "--no-wait", "-o", "json"]);
    assert_eq!(parked.status.code(), Some(15), "it waits for a person: {}", shown(&parked));
    let listed = cluster.json(&["approval", "list"]);
    let asked = &listed["waiting"][0];
    assert_eq!((&asked["kind"], &asked["workflow_id"]), (&json!("plan"), &json!("approval")), "{listed}");
    let plan = cluster.run(&["plan", "show", "approval"]);
    assert!(plan.status.success() && shown(&plan).contains("Competitors"), "{}", shown(&plan));
    let agents = cluster.run(&["agent", "list", "approval"]);
    assert!(agents.status.success(), "{}", shown(&agents));
    let taken = cluster.run(&["takeover", "approval", "--yes"]);
    assert!(taken.status.success(), "{}", shown(&taken));
    let released = cluster.run(&["release", "approval", "--yes"]);
    assert!(released.status.success(), "{}", shown(&released));
    let approved = cluster.run(&["plan", "approve", "approval", "--version", "1", "--yes"]);
    assert!(approved.status.success(), "{}", shown(&approved));
    let (exit, result) = cluster.result("approval");
    assert_eq!(exit, 0, "{result}");
    let cost = cluster.run(&["cost", "approval"]);
    assert!(cost.status.success(), "{}", shown(&cost));
    // What the supervisor noted is in the history of the cluster, and its code still fits it.
    let checked = cluster.run(&["replay", "check", "--query", "WorkflowId = 'approval'"]);
    let history = || shown(&cluster.temporal(&["workflow", "show", "-w", "approval"]));
    assert!(checked.status.success(), "{}\n{}", shown(&checked), history());
    assert_eq!(worker.term(), 0);
}

/// The border stands where the cluster's count of events put it, for who replays as well.
fn goes_on_as_new(cluster: &Cluster) {
    let queue = cluster.name("border");
    let worker = cluster.worker(&queue, &[]);
    let step = |n: u32| {
        let deps: Vec<String> = (n > 1).then(|| format!("s{}", n - 1)).into_iter().collect();
        json!({ "id": format!("s{n}"), "agent": "worker", "goal": format!("Step {n}"), "deps": deps })
    };
    let spec = json!({
        "kind": "supervisor", "preset": "shannon-dag", "name": "border", "objective": "Write it",
        "limits": { "history_events": 30 }, "agents": [{ "name": "worker" }],
        "script": [{ "on": "plan", "say": { "tasks": (1..=8).map(step).collect::<Vec<_>>() } },
            { "on": "execute_worker", "say": "done" }, { "on": "synthesize", "say": "all is done" }],
    });
    let file = cluster.folder.path().join("border.yaml");
    std::fs::write(&file, spec.to_string()).unwrap();
    let ran = cluster.run(&["run", &file.display().to_string(), "-w", "bordered", "-q", &queue, "-o", "json"]);
    assert!(ran.status.success() && shown(&ran).contains("all is done"), "{}", shown(&ran));
    let listed = || {
        let listed = cluster.run(&["list", "--query", "WorkflowId = 'bordered'", "-o", "jsonl"]);
        let runs = String::from_utf8_lossy(&listed.stdout).lines().filter(|line| line.starts_with('{')).count();
        (runs > 2).then_some(())
    };
    cluster.until("its runs are listed", listed);
    let checked = cluster.run(&["replay", "check", "--query", "WorkflowId = 'bordered'"]);
    assert!(checked.status.success(), "{}", shown(&checked));
    assert_eq!(worker.term(), 0);
}
