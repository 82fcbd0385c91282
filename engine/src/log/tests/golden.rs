//! G9: databases of every released format open for ever. How they are made: `fixtures/databases/README.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::damage::copy_dir;
use super::journal::{KEEP, small};
use super::samples::*;
use super::story::Dice;
use crate::log::*;
use crate::vocabulary::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/databases")
}

const STATE_LENGTH: usize = 9_000;

/// Text that hardly gets smaller, so that it lies beside the database.
fn long_text(n: u64) -> Payload {
    let mut dice = Dice(n * 77 + 1);
    Payload::encode(&(0..900).map(|_| char::from(b'0' + dice.roll(75) as u8)).collect::<String>()).unwrap()
}

/// Writes the data directory of this version and what it must read as. Touches every part of the format: archive and
/// log, open, closed and deleted runs, a blob, a snapshot, an index that is behind the log, long values of each kind.
///
/// The last format is that of a directory whose process was killed.
fn write(dir: &Path, version: u32) {
    let options = SledOptions { instance: Some([0xb0; 16]), wal_bytes: 128 * 1024, ..SledOptions::default() };
    let (name, home) = (format!("v{version}"), tempfile::tempdir().unwrap());
    let path = if version == WAL_FORMAT_VERSION { home.path().join(&name) } else { dir.join(&name) };
    let journal = Journal::open(Arc::new(DiskLog::open(&path, options).unwrap()), small()).unwrap();
    for n in 1..=6 {
        journal.commit(&[start(n, &format!("order-{n}")), step_with(n, 4, long_text(n))]).unwrap();
    }
    journal.commit(&[close(1, 6), close(2, 6), heartbeat(3, 6)]).unwrap();
    let state = b"state of run 3".iter().copied().cycle().take(STATE_LENGTH).collect();
    journal.put_snapshot(run_id(3), MachineSnapshot { event: EventId(6), build: BuildId(7), state }).unwrap();
    journal.housekeep(Timestamp(0), KEEP).unwrap();
    journal.delete_run(run_id(2)).unwrap();
    journal.checkpoint().unwrap();
    journal.commit(&[step_with(4, 6, Payload::bytes(vec![4; 30_000])), close(5, 6)]).unwrap();
    journal.close().unwrap();
    journal.commit(&[step_with(3, 6, long_text(7))]).unwrap();
    if version == WAL_FORMAT_VERSION {
        // Feeds the database, so that something is in each of the two.
        journal.close().unwrap();
        journal.commit(&[step_with(6, 6, long_text(8))]).unwrap();
    }
    let histories: BTreeMap<String, Vec<Turn>> =
        (1..=6).map(|n| (run_id(n).to_string(), journal.turns(run_id(n), EventId(1)).unwrap())).collect();
    let text = serde_json::to_string_pretty(&histories).unwrap();
    if version == WAL_FORMAT_VERSION {
        copy_dir(&path, &dir.join(&name));
    }
    drop(journal);
    std::fs::remove_file(dir.join(&name).join("bosun.lock")).unwrap();
    std::fs::write(dir.join(format!("{name}.json")), text + "\n").unwrap();
}

/// G9: the databases of all formats read as they did when they were written, are sound, and can be worked with.
#[test]
fn the_databases_of_all_formats_open_for_ever() {
    // Never over one that is there: it is what a released version wrote.
    for version in [FORMAT_VERSION, WAL_FORMAT_VERSION] {
        let missing = !fixtures().join(format!("v{version}")).exists();
        if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() && missing {
            std::fs::create_dir_all(fixtures()).unwrap();
            write(&fixtures(), version);
        }
    }
    (1..=WAL_FORMAT_VERSION).for_each(opens);
    let listed = |part: &str| std::fs::read_dir(fixtures().join("v2").join(part)).unwrap().count();
    assert!(listed("groups") > 0 && listed("values") > 0, "long values are part of format 2");
    let ahead = std::fs::read(fixtures().join("v3/wal/0")).unwrap();
    assert!(ahead.iter().any(|byte| *byte != 0), "groups that are written ahead are part of format 3");
}

fn opens(version: u32) {
    let home = tempfile::tempdir().unwrap();
    copy_dir(&fixtures().join(format!("v{version}")), home.path());
    let text = std::fs::read_to_string(fixtures().join(format!("v{version}.json"))).unwrap();
    let expected: BTreeMap<String, Vec<Turn>> = serde_json::from_str(&text).unwrap();
    let medium = Arc::new(DiskLog::open(home.path(), SledOptions::default()).unwrap());
    let journal = Journal::open(medium, small()).unwrap();
    assert_eq!(journal.instance(), [0xb0; 16]);
    assert_eq!(expected.len(), 6);
    for (run, turns) in &expected {
        assert_eq!(journal.turns(run.parse().unwrap(), EventId(1)).unwrap(), *turns);
    }
    assert_eq!((journal.info().runs_open, journal.info().runs_closed), (3, 2));
    assert_eq!(journal.run(run_id(2)), None, "it was deleted");
    let state = journal.snapshot(run_id(3)).expect("the snapshot").state;
    assert_eq!(state.len(), if version == 1 { 14 } else { STATE_LENGTH });
    assert!(state.iter().eq(b"state of run 3".iter().cycle().take(state.len())));
    assert!(journal.verify().is_sound(), "{:?}", journal.verify());
    journal.commit(&[start(50, "new")]).unwrap();
    journal.housekeep(Timestamp(0), KEEP).unwrap();
    journal.close().unwrap();
}

/// G9: re-encoding what was read gives the same bytes: this version writes format 1 as the first one did.
#[test]
fn turns_of_format_1_encode_to_the_same_bytes() {
    let text = std::fs::read_to_string(fixtures().join("v1.json")).unwrap();
    let expected: BTreeMap<String, Vec<Turn>> = serde_json::from_str(&text).unwrap();
    let mut bytes = Vec::new();
    for turn in expected.values().flatten() {
        bytes.extend(rmp_serde::to_vec(turn).unwrap());
    }
    let digest = BlobHash::of(&bytes).to_string();
    let path = fixtures().join("v1.digest");
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() && !path.exists() {
        std::fs::write(&path, format!("{digest}\n")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap().trim(), digest);
}
