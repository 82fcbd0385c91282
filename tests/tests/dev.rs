//! `bosun dev`, by the shipped binary: what it leaves behind, and what it keeps.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};

const DEV: [&str; 4] = ["dev", "--no-browser", "--port", "0"];

fn list(data: &Path) -> String {
    let output = Command::new(bosun().unwrap()).args(["list", "--data"]).arg(data).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn ends(mut child: Child) {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Whoever names a data directory has its runs again the next time.
#[test]
fn a_directory_that_is_named_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("kept");
    let program = Program::new(bosun().unwrap(), &DEV);
    let (worker, _) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let began = Instant::now();
    while !list(&data).contains("market-report") {
        assert!(began.elapsed() < READY_MAX, "{}", worker.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    worker.terminate().unwrap();
    let mut worker = worker;
    assert!(worker.wait(READY_MAX).unwrap().is_some_and(|status| status.success()), "{}", worker.said());
    assert!(list(&data).contains("market-report"), "without a worker: {}", list(&data));
}

/// And whoever names none finds nothing behind, in the temporary directory neither.
#[test]
fn without_one_nothing_is_left_behind() {
    let home = tempfile::tempdir().unwrap();
    let dev = Command::new(bosun().unwrap())
        .args(DEV)
        .env("TMPDIR", home.path())
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let there = || std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path());
    while !there().any(|data| data.join("worker.json").exists()) {
        assert!(began.elapsed() < READY_MAX);
        std::thread::sleep(Duration::from_millis(50));
    }
    ends(dev);
    assert_eq!(there().count(), 0, "{:?}", there().collect::<Vec<_>>());
}
