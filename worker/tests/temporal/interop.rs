//! The official Python SDK: a client of our workflows, activities for them, and a child of theirs.
//!
//! Invariant: where there is no Python or no SDK to be had, that is said loudly; with `BOSUN_REQUIRE_TEMPORAL=1` it fails.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::Scene;
use super::python_sdk::python;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] = &[
    ("a_python_client_asks_our_workflow", a_python_client),
    ("our_workflow_calls_python", our_workflow_calls_python),
    ("python_shares_the_files_of_large_payloads", python_shares_files),
    ("what_was_deleted_is_gone", super::requests::what_was_deleted_is_gone),
];

fn script(cluster: &Cluster, python: &Path, name: &str, text: &str, more: &[&str]) -> Command {
    let file = cluster.folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(python);
    command.arg(file).arg(&cluster.address).args(more).stdin(Stdio::null());
    command
}

const CLIENT: &str = r#"
import asyncio, sys
from temporalio.client import Client, WorkflowUpdateFailedError

async def main():
    client = await Client.connect(sys.argv[1])
    program = {"steps": [
        {"set": {"ready": False}},
        {"wait_signal": {"name": "go", "as": "go"}},
        {"wait_var": {"name": "ready", "equals": True}},
        {"return": ["$go", "$ready"]}]}
    handle = await client.start_workflow("kitchen-sink", program, id="from-python", task_queue=sys.argv[2])
    await handle.signal("go", {"by": "python"})
    vars = await handle.query("vars")
    assert vars["ready"] is False, vars
    try:
        await handle.execute_update("set_var", {"name": "a.b", "value": 1})
        raise AssertionError("the update was not refused")
    except WorkflowUpdateFailedError:
        pass
    before = await handle.execute_update("set_var", {"name": "ready", "value": True})
    assert before is False, before
    result = await handle.result()
    assert result == [{"by": "python"}, True], result
    print("python is content")

if __name__ == "__main__":
    asyncio.run(main())
"#;

fn a_python_client(cluster: &Cluster) {
    let Some(python) = python() else { return };
    let queue = cluster.name("python");
    let worker = cluster.worker(&queue, &[]);
    let output = script(cluster, &python, "client.py", CLIENT, &[&queue]).output().unwrap();
    assert!(shown(&output).contains("python is content"), "{}", shown(&output));
    assert_eq!(worker.term(), 0);
}

const WORKER: &str = r#"
import asyncio, sys
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

@activity.defn(name="py_add")
async def add(given: dict) -> int:
    if given.get("fail"):
        raise ApplicationError("python said no", type="PythonNo", non_retryable=True)
    return given["a"] + given["b"]

@workflow.defn(name="py_double")
class Double:
    @workflow.run
    async def run(self, given: dict) -> int:
        inner = await workflow.execute_child_workflow(
            "kitchen-sink", {"steps": [{"return": given["n"]}]}, task_queue=given["queue"])
        return inner * 2

async def main():
    client = await Client.connect(sys.argv[1])
    print("python works", flush=True)
    await Worker(client, task_queue=sys.argv[2], activities=[add], workflows=[Double]).run()

if __name__ == "__main__":
    asyncio.run(main())
"#;

/// Ended with the scene.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn our_workflow_calls_python(cluster: &Cluster) {
    let Some(python) = python() else { return };
    let (ours, theirs) = (cluster.name("ours"), cluster.name("theirs"));
    let worker = cluster.worker(&ours, &[]);
    let _python = Ended(script(cluster, &python, "worker.py", WORKER, &[&theirs]).spawn().unwrap());
    let retry = json!({ "maximum_attempts": 1 });
    let call = |input: serde_json::Value| json!({ "activity": { "type": "py_add", "input": input, "as": "sum", "task_queue": theirs, "start_to_close": "60s", "retry": retry } });
    let steps = json!([
        call(json!({ "a": 2, "b": 3 })),
        { "try": { "steps": [call(json!({ "fail": true }))], "as": "why", "catch": [] } },
        { "return": ["$sum", "$why"] }
    ]);
    cluster.start_program(&ours, "calls-python", &json!({ "steps": steps }));
    let (exit, result) = cluster.result("calls-python");
    assert_eq!((exit, &result["result"][0]), (0, &json!(5)), "{result}");
    assert!(result["result"][1].to_string().contains("PythonNo"), "{result}");
    // Theirs calls ours as its child.
    let input = json!({ "n": 21, "queue": ours }).to_string();
    cluster.json(&["start", "py_double", "-w", "doubles", "-q", &theirs, "--input", &input]);
    let (exit, result) = cluster.result("doubles");
    assert_eq!((exit, &result["result"]), (0, &json!(42)), "{result}");
    assert_eq!(worker.term(), 0);
}

/// A storage driver of the official SDK for our directory.
const SHARES: &str = r#"
import asyncio, dataclasses, hashlib, os, sys
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DataConverter, ExternalStorage, StorageDriver, StorageDriverClaim

class Directory(StorageDriver):
    def __init__(self, root):
        self.root = root
    def name(self):
        return "bosun.directory"
    def path(self, digest):
        return os.path.join(self.root, "sha256", digest[:2], digest)
    async def store(self, context, payloads):
        claims = []
        for payload in payloads:
            data = payload.SerializeToString()
            digest = hashlib.sha256(data).hexdigest()
            os.makedirs(os.path.dirname(self.path(digest)), exist_ok=True)
            with open(self.path(digest), "wb") as file:
                file.write(data)
            claims.append(StorageDriverClaim({"hash_algorithm": "sha256", "hash_value": digest, "length": str(len(data))}))
        return claims
    async def retrieve(self, context, claims):
        found = []
        for claim in claims:
            with open(self.path(claim.claim_data["hash_value"]), "rb") as file:
                data = file.read()
            assert hashlib.sha256(data).hexdigest() == claim.claim_data["hash_value"]
            found.append(Payload.FromString(data))
        return found

async def main():
    storage = ExternalStorage(drivers=[Directory(sys.argv[3])])
    client = await Client.connect(sys.argv[1], data_converter=dataclasses.replace(DataConverter.default, external_storage=storage))
    given = "p" * 2_500_000
    program = {"steps": [{"activity": {"type": "echo", "input": "$given", "as": "e"}}, {"return": ["$e", "$given"]}], "vars": {"given": given}}
    result = await client.execute_workflow("kitchen-sink", program, id="python-shares", task_queue=sys.argv[2])
    assert result == [given, given]
    print("python is content")

if __name__ == "__main__":
    asyncio.run(main())
"#;

fn python_shares_files(cluster: &Cluster) {
    let Some(python) = python() else { return };
    let queue = cluster.name("shares");
    let directory = cluster.folder.path().join("shared");
    let directory = directory.to_str().unwrap();
    let worker = cluster.worker(&queue, &["--payload-store", directory]);
    let output = script(cluster, &python, "shares.py", SHARES, &[&queue, directory]).output().unwrap();
    assert!(shown(&output).contains("python is content"), "{}", shown(&output));
    assert_eq!(worker.term(), 0);
}
