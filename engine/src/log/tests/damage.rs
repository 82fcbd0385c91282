//! G6: damage to any file of a data directory is either harmless or a named error: never less history, never other
//! history, never a panic, never a hang.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use super::journal::small;
use super::story::{Dice, Difference, Model};
use crate::log::*;

const MUTATIONS: u64 = 560;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let mut entries: Vec<_> = std::fs::read_dir(from).unwrap().map(Result::unwrap).collect();
    // A database that is copied while it is fed is a prefix; what it names must be there.
    entries.sort_by_key(|entry| entry.file_name() != "log");
    for entry in entries {
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// The files of a data directory, relative to it, without the lock, which holds nothing.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.file_name().is_some_and(|name| name != "bosun.lock") {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn open(dir: &Path, instance: u8) -> Result<Journal, StorageError> {
    let options = SledOptions {
        instance: Some([instance; 16]),
        cache_bytes: 4 * 1024 * 1024,
        wal_bytes: 64 * 1024,
        ..SledOptions::default()
    };
    Journal::open(Arc::new(DiskLog::open(dir, options)?), small())
}

fn tell(dir: &Path, instance: u8, model: &mut Model, dice: &mut Dice, steps: usize) {
    let journal = open(dir, instance).unwrap();
    for _ in 0..steps {
        model.step(&journal, dice).unwrap();
    }
    journal.close().unwrap();
}

struct Scene {
    _home: tempfile::TempDir,
    /// The directory to damage, an older copy of it, and one of another instance with the same story.
    current: PathBuf,
    stale: PathBuf,
    other: PathBuf,
    model: Model,
}

fn scene() -> Scene {
    let home = tempfile::tempdir().unwrap();
    let [current, stale, other] = ["current", "stale", "other"].map(|name| home.path().join(name));
    let (mut model, mut dice) = (Model::default(), Dice(77));
    tell(&current, 1, &mut model, &mut dice, 60);
    copy_dir(&current, &stale);
    tell(&current, 1, &mut model, &mut dice, 25);
    tell(&other, 2, &mut Model::default(), &mut Dice(77), 85);
    Scene { _home: home, current, stale, other, model }
}

/// Damages one file; answers what was done.
fn mutate(dir: &Path, scene: &Scene, dice: &mut Dice) -> String {
    let all = files(dir);
    // Most of the bytes are in sled's file, most of the files are blobs: give both their share.
    let file = if dice.roll(3) == 0 { Path::new("log/db") } else { &all[dice.roll(all.len() as u64) as usize] };
    let path = dir.join(file);
    let mut bytes = std::fs::read(&path).unwrap();
    // The file ends in zeros that sled has only reserved.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1) as u64;
    let at = dice.roll(used) as usize;
    let replaced_by = |source: &Path| {
        let candidates = files(source);
        let same = candidates.iter().find(|other| *other == file);
        let alike = same.or_else(|| candidates.iter().find(|other| other.parent() == file.parent()));
        alike.map(|other| std::fs::copy(source.join(other), &path).unwrap())
    };
    let what = match dice.roll(8) {
        0 | 1 => {
            let bit = dice.roll(8);
            bytes[at] ^= 1 << bit;
            std::fs::write(&path, &bytes).unwrap();
            format!("bit {bit} of byte {at} flipped")
        }
        2 => {
            let length = [16usize, 512, 4_096][dice.roll(3) as usize];
            let start = at / length * length;
            let end = (start + length).min(bytes.len());
            bytes[start..end].fill(0);
            std::fs::write(&path, &bytes).unwrap();
            format!("{start}..{end} zeroed")
        }
        3 => {
            bytes.truncate(at);
            std::fs::write(&path, &bytes).unwrap();
            format!("cut to {at}")
        }
        4 => {
            std::fs::remove_file(&path).unwrap();
            "deleted".to_owned()
        }
        5 => format!("stale: {:?}", replaced_by(&scene.stale)),
        6 => format!("from another instance: {:?}", replaced_by(&scene.other)),
        _ => {
            let length = [512usize, 4_096][dice.roll(2) as usize].min(bytes.len());
            let from = dice.roll((bytes.len() - length + 1) as u64) as usize / length * length;
            let to = (at / length * length).min(bytes.len() - length);
            bytes.copy_within(from..from + length, to);
            std::fs::write(&path, &bytes).unwrap();
            format!("{length} bytes at {from} copied to {to}")
        }
    };
    format!("{}: {what}", file.display())
}

/// What reading a damaged directory gave.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Intact,
    NamedError,
    Silent(String),
    Panic,
    Hang,
}

/// Opens, reads everything, goes on working, in a thread of its own.
fn classify(dir: &Path, model: &Model) -> Class {
    let (report, answer) = mpsc::channel();
    let (dir, model) = (dir.to_owned(), model.clone());
    std::thread::spawn(move || {
        let judged = std::panic::catch_unwind(|| {
            let journal = match open(&dir, 1) {
                Ok(journal) => journal,
                Err(_) => return Class::NamedError,
            };
            match model.compare(&journal) {
                Ok(()) => {}
                Err(Difference::Error(_)) => return Class::NamedError,
                // A list skips what it cannot read and says so in the log; whether it is silent shows run by run.
                Err(Difference::Wrong(detail)) => return Class::Silent(detail),
            }
            let sound = journal.verify().is_sound();
            let worked = journal.commit(&model.next_group(&mut Dice(5))).is_ok() && journal.close().is_ok();
            if sound && worked { Class::Intact } else { Class::NamedError }
        });
        let _ = report.send(judged.unwrap_or(Class::Panic));
    });
    answer.recv_timeout(PATIENCE).unwrap_or(Class::Hang)
}

/// G6: 560 seeded mutations over all files.
#[test]
fn damage_to_any_file_is_harmless_or_named() {
    let scene = scene();
    assert_eq!(classify(&copy_of(&scene.current, "as it is"), &scene.model), Class::Intact);
    let mut counts: BTreeMap<Class, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for seed in 1..=MUTATIONS {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        copy_dir(&scene.current, &dir);
        let what = mutate(&dir, &scene, &mut Dice(seed * 0x9e37_79b9));
        let class = classify(&dir, &scene.model);
        if !matches!(class, Class::Intact | Class::NamedError) {
            wrong.push(format!("seed {seed}, {what}: {class:?}"));
        }
        *counts.entry(class).or_default() += 1;
    }
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{} of {MUTATIONS}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(counts[&Class::Intact] > 20 && counts[&Class::NamedError] > 100, "the mutations hit nothing: {counts:?}");
}

fn copy_of(dir: &Path, name: &str) -> PathBuf {
    let copy = dir.with_file_name(name);
    copy_dir(dir, &copy);
    copy
}
