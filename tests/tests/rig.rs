//! Tests of the harness itself: does the rig lose what a power cut loses, and do the crash rounds find a worker that
//! lies about durability? A crash test that cannot fail proves nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use bosun_tests::harness::crash::{READY_MAX, kill_rounds, power_cut_rounds};
use bosun_tests::harness::faults::{Injection, SmallDisk, durable_file};
use bosun_tests::harness::load::Shape;
use bosun_tests::harness::power::{FileSystem, require_or_explain};
use bosun_tests::harness::process::{Program, WorkerProcess, bosun, example};
use bosun_tests::harness::{Chance, say};

fn double(promise: &str) -> Program {
    Program::new(example("worker-double").unwrap(), &["--promise", promise])
}

fn small() -> Shape {
    Shape { clients: 4, large_bytes: 20 << 10, completes: false, ..Shape::default() }
}

/// G1: the rig itself. What was fsynced survives a cut, what was not does not.
#[test]
fn a_power_cut_takes_what_was_not_synced_and_only_that() {
    for file_system in FileSystem::ALL {
        let Some(mut rig) = require_or_explain(file_system) else { continue };
        for round in 0..3 {
            let kept = rig.dir().join(format!("kept-{round}"));
            durable_file(&kept, &[7; 70_000]).unwrap();
            let lost = rig.dir().join(format!("lost-{round}"));
            let mut unsynced = File::create(&lost).unwrap();
            unsynced.write_all(&[9; 70_000]).unwrap();
            // The page cache serves it until the cut, as it serves a process that forgets to sync.
            assert_eq!(fs::read(&lost).unwrap().len(), 70_000);
            let mut sighted = None;
            rig.power_cut(|| {
                sighted = Some(unsynced.sync_all());
                drop(unsynced);
            })
            .unwrap();
            assert!(sighted.unwrap().is_err(), "a sync after the cut must fail");
            assert_eq!(fs::read(&kept).unwrap(), vec![7; 70_000], "{file_system:?}");
            let left = fs::metadata(&lost).map_or(0, |data| data.len());
            assert!(left < 70_000, "{file_system:?}: {left} unsynced bytes survived");
            assert!(fs::read_dir(rig.dir()).unwrap().count() > round, "earlier rounds are still there");
        }
        let (disk, device) = (rig.dir().to_owned(), rig.safe_dir().unwrap());
        drop(rig);
        assert!(!disk.exists() && !device.exists());
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(disk.to_str().unwrap()), "still mounted: {mounts}");
    }
}

/// G1: a worker that acknowledges before fsync is found out by power cuts, one that syncs first is not accused.
#[test]
fn power_cut_rounds_find_a_worker_that_does_not_sync() {
    let mut chance = Chance::from_env("power_cut_rounds_find_a_worker_that_does_not_sync");
    let Some(mut rig) = require_or_explain(FileSystem::Ext4) else { return };
    let honest = power_cut_rounds(&double("durable"), &mut rig, 3, &mut chance, small()).unwrap();
    honest.assert_clean("a worker that syncs");
    let lying = power_cut_rounds(&double("written"), &mut rig, 3, &mut chance, small()).unwrap();
    assert!(!lying.differences.lost.is_empty(), "nothing lost in {}", lying.summary());
}

/// G2: a worker that acknowledges before it writes is found out by kill -9, one that writes first is not accused.
#[test]
fn kill_rounds_find_a_worker_that_acknowledges_before_it_writes() {
    let mut chance = Chance::from_env("kill_rounds_find_a_worker_that_acknowledges_before_it_writes");
    for (promise, honest) in [("written", true), ("remembered", false)] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let outcome = kill_rounds(&double(promise), &data, dir.path(), 6, &mut chance, small()).unwrap();
        if honest {
            outcome.assert_clean("a worker that writes first");
            assert_eq!(outcome.crashes, 6);
        } else {
            assert!(!outcome.differences.lost.is_empty(), "nothing lost in {}", outcome.summary());
        }
    }
}

/// G4: an injected error is the one that was asked for, the test can see that it happened, and only then.
#[test]
fn injected_errors_hit_the_call_that_was_named() {
    if !Injection::available_or_explain() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let injection = Injection {
        calls: "fdatasync",
        error: "EIO",
        when: 2,
        last: None,
        paths: vec![data.join("log.jsonl")],
        trace: dir.path().join("trace"),
    };
    let program = double("durable").wrapped(injection.wrapper());
    let (mut worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    // One connection is one thread of the double, and strace counts calls by thread.
    let start = |id: &str| http.start(&bosun_tests::harness::workload::mixed(id, 0)).acknowledged();
    start("a").unwrap();
    assert_eq!((injection.hits(), http.healthz().unwrap()), (0, 200));
    start("b").unwrap_err();
    assert_eq!((injection.hits(), http.healthz().unwrap()), (1, 503));
    worker.kill().unwrap();
    let (_worker, http) = WorkerProcess::start(&double("durable"), &data, READY_MAX).unwrap();
    assert_eq!(http.history("a").unwrap().len(), 1);
}

/// G5: a small disk is full when it is full, and has room when it was given some.
#[test]
fn a_small_disk_fills_up_and_can_be_enlarged() {
    const MIB: u64 = 1 << 20;
    let Some(disk) = SmallDisk::require_or_explain(8 * MIB) else { return };
    let filled = disk.fill().unwrap();
    assert!((7 * MIB..=8 * MIB).contains(&filled), "{filled}");
    let more = |bytes: usize| fs::write(disk.dir().join("more"), vec![1; bytes]);
    assert_eq!(more(8_192).unwrap_err().kind(), io::ErrorKind::StorageFull);
    disk.resize(64 * MIB).unwrap();
    more(20 << 20).unwrap();
    disk.free().unwrap();
    disk.free().unwrap();
    let dir = disk.dir().to_owned();
    drop(disk);
    assert!(!dir.exists());
}

/// A worker process is ready when its own worker.json says so; kill, restart, signals and its end are seen.
#[test]
fn a_worker_process_is_started_killed_and_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let patience = READY_MAX;
    let (mut first, _) = WorkerProcess::start(&double("durable"), dir.path(), patience).unwrap();
    first.kill().unwrap();
    assert!(dir.path().join("worker.json").exists(), "a killed worker leaves its file");
    let mut second = WorkerProcess::spawn(&double("durable"), dir.path()).unwrap();
    let http = second.wait_ready(patience).unwrap();
    assert_ne!(first.pid(), second.pid());
    assert_eq!(http.healthz().unwrap(), 200);
    second.terminate().unwrap();
    let status = second.wait(patience).unwrap().expect("SIGTERM ends it");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    assert!(second.stdout().contains("ready at http://127.0.0.1:"), "{}", second.said());
    assert!(http.healthz().is_err());
}

/// A worker that ends instead of becoming ready is reported with what it said, at once.
#[test]
fn a_worker_that_cannot_start_is_reported_with_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let program = double("nothing");
    let why = WorkerProcess::start(&program, dir.path(), READY_MAX).unwrap_err().to_string();
    assert!(why.contains("ended before it was ready") && why.contains("--promise nothing"), "{why}");
    // It has said so itself; nobody waited for it to become ready.
    assert!(began.elapsed() < READY_MAX);
    let missing = WorkerProcess::spawn(&Program::new("/no/such/worker", &[]), dir.path()).unwrap_err();
    assert!(missing.to_string().contains("/no/such/worker"), "{missing}");
}

/// The binary under test is the one of this source tree.
#[test]
fn the_bosun_binary_is_built_from_this_tree() {
    let path = bosun().unwrap();
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    say(&format!("testing {}", path.display()));
    assert!(path.is_file());
    let target = std::env::var_os("CARGO_TARGET_DIR").map(std::path::PathBuf::from);
    assert!(path.starts_with(tree) || target.is_some_and(|target| path.starts_with(target)), "{}", path.display());
}
