//! G9: databases of every released format open for ever. How they are made: `fixtures/databases/README.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::damage::copy_dir;
use super::journal::{KEEP, small};
use super::samples::*;
use crate::log::*;
use crate::vocabulary::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/databases")
}

/// Writes the data directory of this version and what it must read as. Touches every part of the format: archive and
/// log, open, closed and deleted runs, a blob, a snapshot, an index that is behind the log.
fn write(dir: &Path) {
    let options = SledOptions { instance: Some([0xb0; 16]), ..SledOptions::default() };
    let journal = Journal::open(Arc::new(SledLog::open(&dir.join("v1"), options).unwrap()), small()).unwrap();
    for n in 1..=6 {
        journal.commit(&[start(n, &format!("order-{n}")), step(n, 4, 300)]).unwrap();
    }
    journal.commit(&[close(1, 6), close(2, 6), heartbeat(3, 6)]).unwrap();
    let snapshot = Snapshot { event: EventId(6), build: BuildId(7), state: b"state of run 3".to_vec() };
    journal.put_snapshot(run_id(3), snapshot).unwrap();
    journal.housekeep(Timestamp(0), KEEP).unwrap();
    journal.delete_run(run_id(2)).unwrap();
    journal.checkpoint().unwrap();
    journal.commit(&[step_with(4, 6, Payload::bytes(vec![4; 30_000])), close(5, 6)]).unwrap();
    journal.close().unwrap();
    journal.commit(&[step(3, 6, 10)]).unwrap();
    let histories: BTreeMap<String, Vec<Turn>> =
        (1..=6).map(|n| (run_id(n).to_string(), journal.turns(run_id(n), EventId(1)).unwrap())).collect();
    let text = serde_json::to_string_pretty(&histories).unwrap();
    drop(journal);
    std::fs::remove_file(dir.join("v1/bosun.lock")).unwrap();
    std::fs::write(dir.join("v1.json"), text + "\n").unwrap();
}

/// G9: the database of format 1 reads as it did when it was written, is sound, and can be worked with.
#[test]
fn the_database_of_format_1_opens_for_ever() {
    // Never over one that is there: it is what a released version wrote.
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() && !fixtures().join("v1").exists() {
        std::fs::create_dir_all(fixtures()).unwrap();
        write(&fixtures());
    }
    let home = tempfile::tempdir().unwrap();
    copy_dir(&fixtures().join("v1"), home.path());
    let text = std::fs::read_to_string(fixtures().join("v1.json")).unwrap();
    let expected: BTreeMap<String, Vec<Turn>> = serde_json::from_str(&text).unwrap();
    let medium = Arc::new(SledLog::open(home.path(), SledOptions::default()).unwrap());
    let journal = Journal::open(medium, small()).unwrap();
    assert_eq!(journal.instance(), [0xb0; 16]);
    assert_eq!(expected.len(), 6);
    for (run, turns) in &expected {
        assert_eq!(journal.turns(run.parse().unwrap(), EventId(1)).unwrap(), *turns);
    }
    assert_eq!((journal.info().runs_open, journal.info().runs_closed), (3, 2));
    assert_eq!(journal.run(run_id(2)), None, "it was deleted");
    assert_eq!(journal.snapshot(run_id(3)).map(|found| found.state), Some(b"state of run 3".to_vec()));
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
