//! The epoch file, by the real binary: a data directory that was put back as a whole is told from outside of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::ledger::Ledger;
use bosun_tests::harness::load::{Load, Shape};
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess};
use bosun_tests::harness::{Chance, say};
use serde_json::Value;

use crate::opening::{copy, said_by, stored};

/// Refused by policy, as `bosun explain exit-codes` says.
const REFUSED: Option<i32> = Some(32);

struct Place {
    home: tempfile::TempDir,
    data: PathBuf,
    epoch: PathBuf,
}

impl Place {
    fn new() -> Place {
        let home = tempfile::tempdir().unwrap();
        let (data, epoch) = (home.path().join("data"), home.path().join("epoch"));
        Place { home, data, epoch }
    }
    fn worker(&self, more: &[&str]) -> Program {
        let mut program = Program::bosun_worker().unwrap().env("BOSUN_EPOCH_FILE", self.epoch.to_str().unwrap());
        program.arguments.extend(more.iter().map(Into::into));
        program
    }
    /// A life with a few workflows and a clean end.
    fn lives(&self, prefix: &str, more: &[&str]) {
        let (mut worker, http) = WorkerProcess::start(&self.worker(more), &self.data, READY_MAX).unwrap();
        let ledger = Arc::new(Ledger::create(&self.home.path().join(format!("{prefix}.jsonl"))).unwrap());
        let shape = Shape { prefix: prefix.into(), workflows_max: 1, clients: 4, ..Shape::default() };
        let load = Load::start(ledger, shape);
        load.worker_is(&http.endpoint);
        load.finish().unwrap();
        worker.terminate().unwrap();
        assert!(worker.wait(REQUEST_MAX).unwrap().is_some_and(|status| status.success()), "{}", worker.said());
    }
    fn put_back(&self, from: &Path) {
        fs::remove_dir_all(&self.data).unwrap();
        copy(from, &self.data);
    }
    fn group(&self) -> u64 {
        let text = fs::read_to_string(&self.epoch).unwrap();
        text.lines().find_map(|line| line.strip_prefix("group ")).unwrap().parse().unwrap()
    }
    fn said(&self, words: &str) -> (Option<i32>, String) {
        let mut words: Vec<&str> = words.split(' ').collect();
        words.extend(["--epoch-file", self.epoch.to_str().unwrap()]);
        said_by(&words, &self.data)
    }
}

/// What an answer says, of all that was said: the log comes behind it.
fn json(said: &str) -> Value {
    let values = serde_json::Deserializer::from_str(&said[said.find('{').unwrap()..]);
    values.into_iter::<Value>().next().unwrap().unwrap()
}

/// G6: the directory is copied, worked on, and put back: the start is refused with its own code and exit 32, and nothing is
/// changed; `store verify` and `store info` say it; the owner may take it as it is, and it goes on.
#[test]
fn a_directory_that_was_put_back_is_refused() {
    let place = Place::new();
    let older = place.home.path().join("older");
    place.lives("first", &[]);
    copy(&place.data, &older);
    let before = place.group();
    place.lives("second", &[]);
    let newest = place.group();
    assert!(newest > before, "{newest} follows {before}");
    assert_eq!(place.said("store verify").0, Some(0));
    place.put_back(&older);
    let (bytes, epoch) = (stored(&place.data), fs::read(&place.epoch).unwrap());
    let unchanged = |what: &str| {
        assert!(bytes == stored(&place.data), "{what} changed the store");
        assert!(epoch == fs::read(&place.epoch).unwrap(), "{what} changed the epoch");
    };
    for words in ["worker run", "start kitchen-sink", "store gc", "store compact", "worker run --on-damage isolate"] {
        let (code, said) = place.said(words);
        assert_eq!(code, REFUSED, "{words}: {said}");
        for part in [&format!("group {newest} was durable"), "BOSUN0047", "--accept-rollback", "nothing was changed"] {
            assert!(said.contains(part), "{words}: {said}");
        }
        unchanged(words);
    }
    let (code, said) = place.said("store verify -o json");
    assert_eq!(code, Some(21), "{said}");
    let report = json(&said);
    assert!(report["epoch"]["fits"] == false && report["findings"][0]["class"] == "epoch", "{said}");
    let (code, said) = place.said("store info -o json");
    assert_eq!((code, &json(&said)["epoch"]["group"]), (Some(0), &Value::from(newest)), "{said}");
    let (code, said) = place.said("list");
    assert_eq!(code, Some(0), "who looks is not refused: {said}");
    assert!(said.contains(&format!("group {newest} was durable")), "and is told that it may be an older copy: {said}");
    let aside = place.home.path().join("saved");
    let (_, said) = place.said(&format!("store salvage {} --to {}", place.data.display(), aside.display()));
    assert!(said.contains(&format!("group {newest} was durable")), "{said}");
    let (code, said) = said_by(&["list", "--epoch-file", "/no/such/epoch"], &place.data);
    assert!(code == Some(0) && said.contains("the epoch file /no/such/epoch is not there"), "{said}");
    unchanged("a look");
    let (code, said) = said_by(&["worker", "run", "--accept-rollback"], &place.data);
    assert_eq!(code, Some(2), "without a file nothing is accepted: {said}");
    place.lives("third", &["--accept-rollback"]);
    place.lives("fourth", &[]);
    let (code, said) = place.said("store info -o json");
    assert_eq!((code, &json(&said)["epoch"]["fits"]), (Some(0), &Value::Bool(true)), "{said}");
}

/// Another store, a damaged file, one in the directory: each is refused by its name.
#[test]
fn an_epoch_that_is_of_no_use_is_refused() {
    let place = Place::new();
    place.lives("first", &[]);
    let other = Place { data: place.home.path().join("other"), ..Place::new() };
    let said = said_by(&["worker", "run", "--epoch-file", place.epoch.to_str().unwrap()], &other.data);
    assert!(said.0 == REFUSED && said.1.contains("is of another store"), "{said:?}");
    fs::write(&place.epoch, "bosun epoch\nformat 1\n").unwrap();
    let said = place.said("worker run");
    assert!(said.0 == REFUSED && said.1.contains("cannot be read: it has no CRC line"), "{said:?}");
    let inside = place.data.join("epoch");
    let said = said_by(&["worker", "run", "--set", &format!("store.epoch_file={}", inside.display())], &place.data);
    assert!(said.0 == REFUSED && said.1.contains("lies in the data directory"), "{said:?}");
    assert!(!inside.exists());
    let nowhere = Place::new().epoch.join("below/epoch");
    let said = said_by(&["worker", "run", "--epoch-file", nowhere.to_str().unwrap()], &place.data);
    assert!(said.0 == Some(1) && said.1.contains("cannot be written"), "{said:?}");
    place.lives("second", &["--accept-rollback"]);
}

/// Kills at any moment, also around the checkpoints that write the file: no start is refused.
#[test]
fn kills_raise_no_alarm() {
    let place = Place::new();
    let ledger = Arc::new(Ledger::create(&place.home.path().join("ledger.jsonl")).unwrap());
    let load = Load::start(ledger, Shape { clients: 4, large_bytes: 20 << 10, ..Shape::default() });
    let (mut chance, mut noted) = (Chance::new(0x000e_90c4), Vec::new());
    for kill in 0..20 {
        let (mut worker, http) = WorkerProcess::start(&place.worker(&[]), &place.data, READY_MAX)
            .unwrap_or_else(|why| panic!("after {kill} kills: {why}"));
        load.worker_is(&http.endpoint);
        // Housekeeping comes every five seconds.
        let life = if kill % 7 == 3 { 4_950 + chance.below(200) } else { 20 + chance.below(400) };
        std::thread::sleep(Duration::from_millis(life));
        worker.kill().unwrap();
        noted.push(place.group());
    }
    load.stop().unwrap();
    assert!(noted.is_sorted() && noted[0] < noted[19], "{noted:?}");
    say(&format!("20 kills, each start found its epoch: {noted:?}"));
    place.lives("last", &[]);
}
