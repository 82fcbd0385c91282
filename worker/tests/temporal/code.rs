//! A user's own program in three builds: code that changes under a run, and code that does not come back.
//!
//! Invariant: the builds are this very program, started again with [`CODE`] in its environment; what runs there is the shipped
//! library. A run is never harmed by code that does not fit it: it waits for code that does.

use std::process::ExitCode;
use std::time::Duration;

use bosun_engine::workflow::WfContext;
use bosun_engine::{ActivityOptions, Failure};
use bosun_worker::App;
use serde_json::{Value, json};

use super::Scene;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] = &[
    ("code_that_does_not_fit_fails_the_task_with_its_card", does_not_fit),
    ("code_that_does_not_come_back_fails_its_task_alone", does_not_come_back),
    ("a_run_of_a_deployment_stays_with_its_build", stays_with_its_build),
];

/// Names the build that this program is to be.
pub(super) const CODE: &str = "BOSUN_SCENE_CODE";

async fn changes(cx: WfContext, activity: &'static str) -> Result<String, Failure> {
    let said: String = cx.activity(activity, &"ann", ActivityOptions::start_to_close(Duration::from_secs(30))).await?;
    cx.signal_channel::<()>("go").recv().await?;
    Ok(said)
}

async fn blocks(_: WfContext, (): ()) -> Result<(), Failure> {
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Where the scene has asked for a build: its command line.
pub(super) fn main(build: &str) -> ExitCode {
    let asks = if build == "second" { "salute" } else { "greet" };
    App::new()
        .version(build)
        .activity("greet", |_, who: String| async move { Ok(format!("hello {who}")) })
        .activity("salute", |_, who: String| async move { Ok(format!("ahoy {who}")) })
        .workflow("changes", move |cx: WfContext, (): ()| changes(cx, asks))
        .workflow("blocks", blocks)
        .main()
}

/// Until the run waits for its signal.
fn waits(cluster: &Cluster, id: &str) {
    cluster.until("the run waits for its signal", || {
        let described = cluster.json(&["describe", "-w", id]);
        described["awaiting"].to_string().contains("signal").then_some(())
    });
}

fn held(cluster: &Cluster, id: &str) -> String {
    cluster.until("the workflow task has failed", || {
        let described = cluster.json(&["describe", "-w", id]);
        assert_eq!(described["workflow"]["status"], "Running", "{described}");
        described["held"].as_str().map(str::to_owned)
    })
}

fn does_not_fit(cluster: &Cluster) {
    let queue = cluster.name("changes");
    let first = cluster.worker_of("first", &queue);
    cluster.json(&["start", "changes", "-w", "changes", "--task-queue", &queue]);
    waits(cluster, "changes");
    assert_eq!(first.term(), 0);
    let second = cluster.worker_of("second", &queue);
    cluster.json(&["signal", "-w", "changes", "go"]);
    let held = held(cluster, "changes");
    for says in ["BOSUN0101", "workflow code no longer matches history", "greet", "salute"] {
        assert!(held.contains(says), "{says}: {held}");
    }
    // Whoever looks with Temporal's own tools sees it, too.
    let history = cluster.temporal(&["workflow", "show", "-w", "changes", "--output", "json"]);
    let history: Value = serde_json::from_slice(&history.stdout).unwrap();
    let failed = history["events"].as_array().unwrap().iter().rev();
    let failed = failed.map(|event| &event["workflowTaskFailedEventAttributes"]).find(|failed| !failed.is_null());
    let failed = failed.unwrap();
    assert_eq!(failed["cause"], "WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR", "{failed}");
    assert!(failed["failure"]["message"].as_str().unwrap().contains("BOSUN0101"), "{failed}");
    let stack = failed["failure"]["stackTrace"].as_str().unwrap();
    assert!(stack.contains("greet") && stack.contains("salute"), "{stack}");
    assert_eq!(second.term(), 0);
    let first = cluster.worker_of("first", &queue);
    let (exit, result) = cluster.result("changes");
    assert_eq!((exit, &result["result"]), (0, &json!("hello ann")), "the run was not harmed: {result}");
    assert_eq!(first.term(), 0);
}

fn does_not_come_back(cluster: &Cluster) {
    let queue = cluster.name("blocks");
    let worker = cluster.worker_of("first", &queue);
    // Some share the thread that is lost, whichever it is.
    let others: Vec<String> = (0..4).map(|n| format!("beside-{n}")).collect();
    for id in &others {
        cluster.json(&["start", "changes", "-w", id, "--task-queue", &queue]);
        waits(cluster, id);
    }
    cluster.json(&["start", "blocks", "-w", "blocks", "--task-queue", &queue]);
    let held = held(cluster, "blocks");
    assert!(held.contains("did not come back within") && held.contains("a blocking call"), "{held}");
    for id in &others {
        cluster.json(&["signal", "-w", id, "go"]);
        let (exit, result) = cluster.result(id);
        assert_eq!((exit, &result["result"]), (0, &json!("hello ann")), "{result}");
    }
    let ended = cluster.run(&["terminate", "-w", "blocks", "--yes"]);
    assert!(ended.status.success(), "{}", shown(&ended));
    worker.term();
}

/// The builds of a deployment, as Temporal's tools name them.
fn versions(cluster: &Cluster) -> Vec<String> {
    let described = cluster.temporal(&["worker", "deployment", "describe", "--name", "boats", "--output", "json"]);
    let described: Value = serde_json::from_slice(&described.stdout).unwrap_or_default();
    let summaries = described["versionSummaries"].as_array().cloned().unwrap_or_default();
    let build = |one: &Value| one["buildId"].as_str().or(one["BuildID"].as_str()).map(str::to_owned);
    summaries.iter().filter_map(build).collect()
}

/// A version that nobody knew before becomes the one that new runs begin with.
fn becomes_current(cluster: &Cluster, known: &[String]) -> String {
    let new = cluster.until("the cluster knows the version", || {
        versions(cluster).into_iter().find(|version| !known.contains(version))
    });
    let set =
        ["worker", "deployment", "set-current-version", "--deployment-name", "boats", "--build-id", &new, "--yes"];
    cluster.until("the version is the current one", || cluster.temporal(&set).status.success().then_some(()));
    new
}

/// Two builds that do not fit each other's runs work side by side: each run goes on with the build that began it.
fn stays_with_its_build(cluster: &Cluster) {
    let queue = cluster.name("deployed");
    let deployed = ["--deployment", "boats"];
    let first = cluster.worker_of_with("first", &queue, &deployed);
    let of_first = becomes_current(cluster, &[]);
    let start = |id: &str| cluster.json(&["start", "changes", "-w", id, "--task-queue", &queue]);
    start("deployed-1");
    waits(cluster, "deployed-1");
    let second = cluster.worker_of_with("second", &queue, &deployed);
    becomes_current(cluster, std::slice::from_ref(&of_first));
    start("deployed-2");
    waits(cluster, "deployed-2");
    for (id, said) in [("deployed-1", "hello ann"), ("deployed-2", "ahoy ann")] {
        cluster.json(&["signal", "-w", id, "go"]);
        let (exit, result) = cluster.result(id);
        assert_eq!((exit, &result["result"]), (0, &json!(said)), "{id}: {result}");
        let history = cluster.temporal(&["workflow", "show", "-w", id, "--output", "json"]);
        let history = String::from_utf8_lossy(&history.stdout).into_owned();
        assert!(!history.contains("WORKFLOW_TASK_FAILED"), "{id}: {history}");
        assert_eq!(history.contains(&of_first), id == "deployed-1", "{id} was worked on by {of_first}? {history}");
    }
    assert_eq!((first.term(), second.term()), (0, 0));
}
