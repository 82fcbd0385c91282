//! Opening never destroys (G4, G6): a read that fails and damage to any file end with an error and files that are what
//! they were; with the cause taken away everything is there. Who only looks changes nothing at all.
//!
//! `cargo full` for the whole sweep; `BOSUN_DAMAGE` for another number.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::damage::copy_dir;
use super::journal::small;
use super::samples::*;
use super::story::{Dice, Difference, Model};
use crate::log::sled_format::source::{fail_read, reads};
use crate::log::*;

/// What is different, by name only.
pub(super) fn changed(before: &Files, dir: &Path) -> Vec<PathBuf> {
    let after = bytes(dir);
    let names: std::collections::BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

pub(super) fn open(dir: &Path) -> Result<Journal, StorageError> {
    let options = SledOptions {
        instance: Some([1; 16]),
        cache_bytes: 4 * 1024 * 1024,
        wal_bytes: 64 * 1024,
        ..SledOptions::default()
    };
    Journal::open(Arc::new(DiskLog::open(dir, options)?), small())
}

pub(super) fn look(dir: &Path) -> Result<Journal, StorageError> {
    Journal::open(Arc::new(StoreReader::open(dir)?), small())
}

pub(super) struct Scene {
    pub(super) home: tempfile::TempDir,
    /// After a close, after a kill, and an older copy.
    pub(super) closed: PathBuf,
    pub(super) killed: PathBuf,
    stale: PathBuf,
    pub(super) model: Model,
}

pub(super) fn scene() -> Scene {
    let home = tempfile::tempdir().unwrap();
    let [closed, killed, stale] = ["closed", "killed", "stale"].map(|name| home.path().join(name));
    let (mut model, mut dice) = (Model::default(), Dice(77));
    let mut tell = |journal: &Journal, steps: usize| {
        for _ in 0..steps {
            model.step(journal, &mut dice).unwrap();
        }
    };
    let journal = open(&closed).unwrap();
    tell(&journal, 60);
    journal.close().unwrap();
    drop(journal);
    copy_dir(&closed, &stale);
    let journal = open(&closed).unwrap();
    tell(&journal, 40);
    copy_dir(&closed, &killed);
    journal.close().unwrap();
    drop(journal);
    Scene { home, closed, killed, stale, model }
}

fn whole(model: &Model, journal: &Journal) -> Result<(), String> {
    model.compare(journal).map_err(|why| format!("{why:?}"))
}

/// The looking verbs give what the worker gives, and leave every byte where it was.
#[test]
fn a_reader_reads_everything_and_changes_nothing() {
    let scene = scene();
    for dir in [&scene.closed, &scene.killed] {
        let before = bytes(dir);
        let journal = look(dir).unwrap();
        whole(&scene.model, &journal).unwrap();
        let report = journal.verify();
        assert!(report.is_sound(), "{report:?}");
        assert!(journal.info().runs_open > 0);
        assert!(journal.commit(&scene.model.next_group(&mut Dice(5))).is_err());
        drop(journal);
        assert_eq!(changed(&before, dir), Vec::<PathBuf>::new());
    }
    let empty = scene.home.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(matches!(look(&empty), Err(StorageError::NotADatabase { .. })));
    assert!(look(&scene.home.path().join("none")).is_err());
    assert_eq!(bytes(&empty), Files::new());
}

/// A worker that holds the directory is not read beside.
#[test]
fn a_reader_waits_for_no_worker() {
    let scene = scene();
    let journal = open(&scene.closed).unwrap();
    assert!(matches!(look(&scene.closed), Err(StorageError::Locked { .. })));
    drop(journal);
    let reading = look(&scene.closed).unwrap();
    assert!(matches!(open(&scene.closed), Err(StorageError::Locked { .. })));
    drop(reading);
}

/// Each of the first 200 reads of an open fails once.
#[test]
fn a_failed_read_changes_nothing() {
    let scene = scene();
    for source in [&scene.closed, &scene.killed] {
        let before = bytes(source);
        fail_read(u64::MAX);
        let dir = crate::log::files::DataDir::new(source);
        let format = dir.identify().unwrap().unwrap();
        crate::log::look::look(&dir, format).unwrap();
        // An open asks twice who the directory is.
        let looking = reads().min(199) + 1;
        assert!(looking > 8, "{looking} reads");
        for n in 1..=looking {
            let dir = tempfile::tempdir().unwrap();
            copy_dir(source, dir.path());
            fail_read(n);
            let opened = open(dir.path());
            fail_read(u64::MAX);
            match opened {
                Ok(journal) => whole(&scene.model, &journal).unwrap_or_else(|why| panic!("read {n}: {why}")),
                Err(why) => {
                    assert!(matches!(why, StorageError::Io { .. }), "read {n}: {why}");
                    assert_eq!(changed(&before, dir.path()), Vec::<PathBuf>::new(), "read {n}: {why}");
                }
            }
            whole(&scene.model, &open(dir.path()).unwrap()).unwrap_or_else(|why| panic!("after read {n}: {why}"));
        }
    }
}

/// Damages a file; answers what was done.
pub(super) fn mutate(dir: &Path, scene: &Scene, dice: &mut Dice) -> (PathBuf, String) {
    let all: Vec<PathBuf> = bytes(dir).into_keys().collect();
    let file = match dice.roll(3) {
        0 => all[dice.roll(all.len() as u64) as usize].clone(),
        _ => PathBuf::from("log/db"),
    };
    let path = dir.join(&file);
    let mut content = std::fs::read(&path).unwrap();
    let used = content.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1) as u64;
    let at = dice.roll(used) as usize;
    let length = [512usize, 4_096][dice.roll(2) as usize].min(content.len());
    let start = (at / length.max(1) * length).min(content.len() - length);
    let what = match dice.roll(6) {
        0 | 1 => {
            content[at.min(used as usize - 1)] ^= 1 << dice.roll(8);
            format!("byte {at} flipped")
        }
        2 => {
            content[start..start + length].fill(0);
            format!("{start}..+{length} zeroed")
        }
        3 => {
            content.truncate(at);
            format!("cut to {at}")
        }
        4 => {
            let from = dice.roll((content.len() - length + 1) as u64) as usize / length.max(1) * length;
            content.copy_within(from..from + length, start);
            format!("{length} bytes at {from} doubled at {start}")
        }
        _ => {
            let stale = std::fs::read(scene.stale.join(&file)).unwrap_or_default();
            let end = (start + length).min(stale.len());
            if start < end {
                content[start..end].copy_from_slice(&stale[start..end]);
            }
            format!("{start}..{end} stale")
        }
    };
    std::fs::write(&path, content).unwrap();
    (file.clone(), format!("{}: {what}", file.display()))
}

/// One damage: refused and untouched, or everything is there.
fn sweep(scene: &Scene, seed: u64) -> Result<&'static str, String> {
    let mut dice = Dice(seed * 0x9e37_79b9 + 7);
    let source = if seed.is_multiple_of(2) { &scene.closed } else { &scene.killed };
    let dir = tempfile::tempdir().unwrap();
    copy_dir(source, dir.path());
    let (file, what) = mutate(dir.path(), scene, &mut dice);
    let tell = |why: String| format!("seed {seed}, {what}: {why}");
    let damaged = bytes(dir.path());
    drop(look(dir.path()).map(|journal| journal.verify()));
    let unlike = changed(&damaged, dir.path());
    if !unlike.is_empty() {
        return Err(tell(format!("a look changed {unlike:?}")));
    }
    match DiskLog::open(dir.path(), SledOptions::default()) {
        Err(why) => {
            let unlike = changed(&damaged, dir.path());
            if !unlike.is_empty() {
                return Err(tell(format!("refused ({why}), and {unlike:?} changed")));
            }
            std::fs::copy(source.join(&file), dir.path().join(&file)).unwrap();
            let journal = open(dir.path()).map_err(|why| tell(format!("with the damage taken back: {why}")))?;
            whole(&scene.model, &journal).map_err(|why| tell(format!("with the damage taken back: {why}")))?;
            Ok("refused")
        }
        Ok(log) => match Journal::open(Arc::new(log), small()) {
            Err(_) => Ok("refused by recovery"),
            Ok(journal) => match scene.model.compare(&journal) {
                Ok(()) => Ok("intact"),
                Err(Difference::Error(_)) => Ok("named at its read"),
                Err(Difference::Wrong(why)) => Err(tell(format!("silent: {why}"))),
            },
        },
    }
}

/// G6: see the module.
#[test]
fn damage_is_refused_and_nothing_is_overwritten() {
    damages(150);
}

/// The whole sweep.
#[test]
#[ignore = "minutes: cargo full"]
fn two_thousand_damages_are_refused_and_nothing_is_overwritten() {
    damages(2_000);
}

fn damages(count: u64) {
    let scene = scene();
    let count = std::env::var("BOSUN_DAMAGE").ok().and_then(|count| count.parse().ok()).unwrap_or(count);
    let (mut classes, mut wrong) = (BTreeMap::<&str, u64>::new(), Vec::new());
    for seed in 1..=count {
        match sweep(&scene, seed) {
            Ok(class) => *classes.entry(class).or_default() += 1,
            Err(why) => wrong.push(why),
        }
    }
    println!("{count} damages: {classes:?}");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(classes["refused"] > count / 10, "the damages hit nothing: {classes:?}");
}

/// The snapshot that is written at each open and close takes a new segment each time; the room of the old ones is used
/// again.
#[test]
fn many_restarts_do_not_grow_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let (mut model, mut dice) = (Model::default(), Dice(3));
    for _ in 0..60 {
        let journal = open(dir.path()).unwrap();
        for _ in 0..3 {
            model.step(&journal, &mut dice).unwrap();
        }
        journal.close().unwrap();
    }
    let length = dir.path().join("log/db").metadata().unwrap().len();
    assert!(length <= 22 * 512 * 1024, "{length} bytes");
    whole(&model, &open(dir.path()).unwrap()).unwrap();
}

/// A file that is gone is damage like any other: told by its name, and nothing takes its place.
#[test]
fn a_file_that_is_missing_is_named() {
    let scene = scene();
    let dir = scene.home.path().join("missing");
    for from in [&scene.closed, &scene.killed] {
        for part in ["log/db", "log/conf", "anchor", "bosun.format", "wal/1"] {
            if !from.join(part).exists() {
                continue;
            }
            copy_dir(from, &dir);
            std::fs::remove_file(dir.join(part)).unwrap();
            let before = bytes(&dir);
            for found in [look(&dir), open(&dir)] {
                match found.map(|_| ()) {
                    Err(StorageError::Corrupt { file, .. }) => {
                        assert!(file.ends_with(part), "{part}: {}", file.display())
                    }
                    other => panic!("{part} is missing: {other:?}"),
                }
            }
            assert_eq!(changed(&before, &dir), Vec::<PathBuf>::new(), "{part}");
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
}
