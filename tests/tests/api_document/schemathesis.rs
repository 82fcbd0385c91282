//! The document as a fuzzer reads it that is not ours: schemathesis from PyPI.
//!
//! Invariant: it is pinned, and kept in `target/schemathesis`, where `.ci/run` installs it. Where it is not there, that is said
//! loudly; with `BOSUN_REQUIRE_SCHEMATHESIS=1` it fails. Backups are left out: they would go to made-up places on this machine.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use bosun_tests::harness::say;

use crate::tidy::workspace;

fn schemathesis() -> Option<PathBuf> {
    let program = workspace().join("target/schemathesis/bin/schemathesis");
    if program.exists() {
        return Some(program);
    }
    let is_required = std::env::var_os("BOSUN_REQUIRE_SCHEMATHESIS").is_some_and(|value| value == "1");
    assert!(!is_required, "schemathesis is needed and not at {}", program.display());
    say("skipped: schemathesis is not at target/schemathesis; `.ci/run` installs it");
    None
}

/// Every value at every border of every schema: what fits is taken, what does not is refused, and no answer is a surprise.
#[test]
fn schemathesis_finds_nothing() {
    let Some(schemathesis) = schemathesis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(bosun().unwrap(), &["worker", "run", "--queue", "default"]);
    let (mut worker, http) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
    // It computes far longer than the worker answers, on one core: half of the operations each, beside one another.
    let halves = ["--include-path-regex", "--exclude-path-regex"].map(|half| {
        let mut command = Command::new(&schemathesis);
        command.arg("run").arg(format!("http://{}/api/v1/openapi.json", http.endpoint.address));
        command.arg("--header").arg(format!("Authorization: Bearer {}", http.endpoint.token));
        command.args(["--phases", "coverage", "--exclude-operation-id", "backupStore", "--no-color"]);
        command.args([half, "^/api/v1/workflow"]);
        // What it keeps of a run stands beside the data.
        let folder = dir.path().join(half);
        std::fs::create_dir(&folder).unwrap();
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    // Each is read by a thread of its own: a full pipe would hold the other up.
    let outputs = halves.map(|half| std::thread::spawn(|| half.wait_with_output().unwrap()));
    for output in outputs.map(|output| output.join().unwrap()) {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(" passed"), "{said}");
    }
    worker.kill().unwrap();
}
