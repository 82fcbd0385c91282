//! E31: encrypted at rest, readable with the right keys only, through every way data takes to the disk.

use std::path::Path;
use std::sync::Arc;

use super::journal::KEEP;
use super::samples::*;
use crate::log::*;
use crate::vocabulary::*;

fn options(codecs: Vec<Arc<dyn PayloadCodec>>) -> JournalOptions {
    JournalOptions { codec: CodecChain::new(codecs), log_keep_bytes: 0, ..JournalOptions::default() }
}

fn open(dir: &Path, encryption: Encryption) -> Result<Journal, StorageError> {
    let medium = Arc::new(DiskLog::open(dir, SledOptions::default())?);
    Journal::open(medium, options(vec![Arc::new(Compression::default()), Arc::new(encryption)]))
}

fn contains(dir: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contains(&path, needle)
        } else {
            std::fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle)
        }
    })
}

/// E31: no payload is readable on the disk: not in groups, archive, blobs, snapshots or the index.
#[test]
fn no_payload_reaches_the_disk_in_the_clear() {
    let secret = Payload::raw_json("\"canary-in-a-payload\"");
    let large = Payload::bytes(b"canary-in-a-blob ".iter().copied().cycle().take(200_000).collect::<Vec<u8>>());
    let tell = |journal: &Journal| {
        journal.commit(&[start_with(1, "a", secret.clone()), step_with(1, 4, secret.clone())]).unwrap();
        journal.commit(&[start_with(2, "b", secret.clone()), close(2, 4)]).unwrap();
        let snapshot =
            MachineSnapshot { event: EventId(4), build: BuildId(1), state: b"canary-in-a-snapshot".to_vec() };
        journal.put_snapshot(run_id(1), snapshot.clone()).unwrap();
        journal.checkpoint().unwrap();
        journal.commit(&[step_with(1, 6, large.clone())]).unwrap();
        journal.housekeep(Timestamp(0), KEEP).unwrap();
        journal.commit(&[step_with(1, 8, secret.clone())]).unwrap();
        journal.close().unwrap();
        assert_eq!(journal.turns(run_id(1), EventId(6)).unwrap()[0], step_with(1, 6, large.clone()));
        assert_eq!(journal.snapshot(run_id(1)), Some(snapshot));
    };
    let clear = tempfile::tempdir().unwrap();
    tell(
        &Journal::open(Arc::new(DiskLog::open(clear.path(), SledOptions::default()).unwrap()), options(Vec::new()))
            .unwrap(),
    );
    let sealed = tempfile::tempdir().unwrap();
    tell(&open(sealed.path(), Encryption::new("k1", [1; 32])).unwrap());
    for canary in ["canary-in-a-payload", "canary-in-a-blob", "canary-in-a-snapshot", "memo-canary"] {
        assert!(contains(clear.path(), canary.as_bytes()), "the test would not see {canary}");
        assert!(!contains(sealed.path(), canary.as_bytes()), "{canary} is readable");
    }
}

/// E31, G7: a run whose start is lost comes back without what is encrypted of its memo, which is bound to where it lay: the
/// salvaged store opens with its key, and the run has its id.
#[test]
fn a_lost_start_keeps_no_encrypted_memo() {
    let home = tempfile::tempdir().unwrap();
    let [worked, killed, target] = ["worked", "killed", "new"].map(|name| home.path().join(name));
    let key = || Encryption::new("k1", [1; 32]);
    let journal = open(&worked, key()).unwrap();
    journal.commit(&[start(1, "a")]).unwrap();
    journal.commit(&[start(2, "b")]).unwrap();
    journal.checkpoint().unwrap();
    super::damage::copy_dir(&worked, &killed);
    let content = std::fs::read(killed.join("wal/0")).unwrap();
    let first = (0..content.len()).step_by(4_096).find(|at| content[*at..].starts_with(b"bosunwa1")).unwrap();
    super::salvage::destroy(&killed, &content[first + 200..first + 232]);
    let report = salvage(&killed, &target, None).unwrap();
    let saved = open(&target, key()).unwrap();
    let (run, why) = report.held.first().expect("nothing was lost");
    assert!(*run == run_id(1) && why.contains("its input is lost"), "{report:?}");
    let known = saved.run(*run).unwrap().info;
    assert_eq!((known.workflow_id.as_str(), known.memo.len()), ("a", 0));
    assert_eq!(saved.turns(run_id(2), EventId(1)).unwrap(), [start(2, "b")]);
}

/// E31: with a rotated ring old and new data are readable; without the old key it is a typed error.
#[test]
fn keys_rotate_and_a_missing_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let first = Encryption::new("k1", [1; 32]);
    let journal = open(dir.path(), first).unwrap();
    journal.commit(&[start(1, "a")]).unwrap();
    journal.close().unwrap();
    drop(journal);
    let both = Encryption::new("k2", [2; 32]).also_reads("k1", [1; 32]);
    let journal = open(dir.path(), both.clone()).unwrap();
    journal.commit(&[step(1, 4, 100)]).unwrap();
    assert_eq!(journal.turns(run_id(1), EventId(1)).unwrap(), [start(1, "a"), step(1, 4, 100)]);
    journal.close().unwrap();
    drop(journal);
    let refused = open(dir.path(), Encryption::new("k2", [2; 32])).and_then(|j| j.turns(run_id(1), EventId(1)));
    let missing = CodecError::MissingKey { key: "k1".into() };
    assert!(matches!(&refused, Err(StorageError::PayloadCodec { why, .. }) if *why == missing), "{refused:?}");
    let refused = open(dir.path(), Encryption::new("k2", [9; 32]).also_reads("k1", [1; 32]))
        .and_then(|j| j.turns(run_id(1), EventId(1)));
    let wrong = CodecError::NotAuthentic { key: "k2".into() };
    assert!(matches!(&refused, Err(StorageError::PayloadCodec { why, .. }) if *why == wrong), "{refused:?}");
    assert_eq!(open(dir.path(), both).unwrap().turns(run_id(1), EventId(1)).unwrap().len(), 2);
}
