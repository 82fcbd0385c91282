//! G7: damage costs at most the runs whose events it hit. What is whole goes to a new directory and on; a run that lost
//! a turn is held there with what came before.
//!
//! `cargo full` for the whole sweep; `BOSUN_DAMAGE` for another number.

use std::path::Path;
use std::sync::Arc;

use super::damage::copy_dir;
use super::journal::small;
use super::opening::{Scene, changed, look, mutate, open, scene};
use super::samples::*;
use super::story::Dice;
use crate::log::blob::BlobHash;
use crate::log::checkpoint::{CheckpointBatch, load_meta};
use crate::log::codec::pack;
use crate::log::files::DataDir;
use crate::log::index::Meta;
use crate::log::sled_format::source::{fail_read, reads};
use crate::log::*;
use crate::vocabulary::*;

struct Outcome {
    whole: u64,
    held: u64,
    lost: u64,
}

/// Salvages a damaged directory and compares it with the history from before.
fn compare(scene: &Scene, dir: &Path, target: &Path) -> Result<Outcome, String> {
    let before = bytes(dir);
    let report = salvage(dir, target, Some([9; 16])).map_err(|why| format!("no salvage: {why}"))?;
    if !changed(&before, dir).is_empty() {
        return Err("the source was changed".into());
    }
    let log = DiskLog::open(target, SledOptions::default()).map_err(|why| format!("the new one: {why}"))?;
    let journal = Journal::open(Arc::new(log), small()).map_err(|why| format!("the new one: {why}"))?;
    let held: std::collections::BTreeMap<RunId, String> = report.held.iter().cloned().collect();
    let mut outcome = Outcome { whole: 0, held: held.len() as u64, lost: 0 };
    let mut unnamed = 0;
    for (run, expected) in &scene.model.runs {
        let found = journal.turns(*run, EventId(1)).map_err(|why| format!("{run}: {why}"));
        match (held.get(run), found) {
            (Some(_), Err(_)) => {}
            (_, Err(why)) => return Err(why),
            (None, Ok(found)) if found == *expected => outcome.whole += 1,
            (None, Ok(found)) if found.is_empty() => {
                outcome.lost += 1;
                unnamed += u64::from(!report.runs_lost.contains(run));
            }
            (None, Ok(found)) => {
                return Err(format!("{run}: {} of {} turns, and not held", found.len(), expected.len()));
            }
            (Some(_), Ok(found)) if as_marked(expected, &found).starts_with(&found) => {}
            // Of one that was over its end is kept behind the gap.
            (Some(why), Ok(found)) if ends_as(expected, &found) && why.contains("how it ended is kept") => {}
            (Some(why), Ok(found)) if begins_as(expected, &found) && why.contains("its input is lost") => {}
            (Some(why), Ok(_)) => return Err(format!("{run} is held ({why}) with turns it never had")),
        }
    }
    // Where nothing names them any more, it is said how many there were.
    if unnamed != report.runs_unnamed && report.groups_lost.is_empty() {
        return Err(format!("{report:?}: {unnamed} runs are gone, and nobody says which"));
    }
    if journal.info().runs_lost != report.runs_lost {
        return Err("the new one tells of other lost runs".into());
    }
    if outcome.lost > 0 && report.groups_lost.is_empty() && report.damage.is_empty() {
        return Err(format!("{} runs are gone, and nothing says so", outcome.lost));
    }
    let mut listed = Vec::new();
    journal.scan_runs(&mut |info| {
        if !held.contains_key(&info.run_id) {
            listed.push(info.run_id);
        }
        true
    });
    if let Some(back) = listed.iter().find(|run| scene.model.deleted.contains(run)) {
        return Err(format!("{back} was deleted and is back"));
    }
    let told = journal.held_runs().map_err(|why| why.to_string())?;
    if told.iter().any(|(run, why)| held.get(run) != Some(why)) {
        return Err("the new one tells of other held runs".into());
    }
    journal.commit(&[start(999, "new")]).map_err(|why| format!("it does not go on: {why}"))?;
    journal.close().map_err(|why| format!("it does not close: {why}"))?;
    Ok(outcome)
}

/// These turns with a mark where one was found, if it names the payload that was there.
pub(super) fn as_marked(expected: &[Turn], found: &[Turn]) -> Vec<Turn> {
    let mut marked = expected.to_vec();
    for (turn, found) in marked.iter_mut().zip(found) {
        let mut payloads = Vec::new();
        found.clone().payloads_mut(&mut |_, payload| payloads.push(payload.clone()));
        let mut payloads = payloads.into_iter();
        turn.payloads_mut(&mut |_, payload| {
            let named = Payload::lost_blob(BlobHash::of(&pack(payload)));
            if payloads.next().as_ref() == Some(&named) {
                *payload = named;
            }
        });
    }
    marked
}

/// Issue 14: a run that has lost a payload, in the log or in the archive, is held with all else of its history, and the new
/// directory is sound: what is lost is marked there, under its hash, and is no payload that anybody could take for it.
#[test]
fn a_lost_payload_is_marked_and_leaves_the_rest() {
    let home = tempfile::tempdir().unwrap();
    let [worked, target] = ["worked", "new"].map(|name| home.path().join(name));
    let journal = open(&worked).unwrap();
    journal.commit(&[start(1, "archived"), step(1, 4, 50_000), close(1, 6)]).unwrap();
    journal.commit(&[start(3, "well"), step(3, 4, 70_000)]).unwrap();
    journal.housekeep(Timestamp::ZERO, &|_| None).unwrap();
    journal.commit(&[start(2, "missing"), step(2, 4, 60_000), step(2, 6, 10)]).unwrap();
    assert!(journal.info().first_group > GroupSeq(1), "something is in the archive");
    let before = [1, 2, 3].map(|n| journal.turns(run_id(n), EventId(1)).unwrap());
    let files = |length: u64| {
        let all = bytes(&worked).into_keys().filter(|path| path.starts_with("payloads"));
        let mut all = all.map(|path| worked.join(path));
        all.find(|path| path.metadata().unwrap().len().abs_diff(length) < 1_000).expect("a long payload is a file")
    };
    let (damaged, missing) = (files(50_000), files(60_000));
    let mut content = std::fs::read(&damaged).unwrap();
    content[25_000] ^= 1;
    std::fs::write(&damaged, content).unwrap();
    std::fs::remove_file(&missing).unwrap();
    assert!(journal.turns(run_id(2), EventId(1)).is_err());
    let shown = journal.turns_with_gaps(run_id(2), EventId(1), EventId(u64::MAX)).unwrap();
    assert!(shown == as_marked(&before[1], &shown) && shown[1].lost_payload().is_some());
    journal.close().unwrap();
    drop(journal);
    let report = salvage(&worked, &target, None).unwrap();
    assert_eq!((report.held.len(), report.groups_lost.len(), report.damage.len()), (2, 0, 2), "{report:?}");
    for file in [&damaged, &missing] {
        assert!(report.damage.iter().any(|damage| damage.starts_with(&file.display().to_string())), "{report:?}");
    }
    let saved = open(&target).unwrap();
    assert_eq!(saved.verify().findings, []);
    for (n, before) in [1, 2].into_iter().zip(&before) {
        let found = saved.turns(run_id(n), EventId(1)).unwrap();
        assert!(found == as_marked(before, &found) && found[1].lost_payload().is_some(), "{n}: {found:?}");
    }
    assert_eq!(saved.turns(run_id(3), EventId(1)).unwrap(), before[2]);
    assert_eq!(saved.run(run_id(1)).unwrap().info.status, WorkflowStatus::Completed);
}

/// G7: a memo that is lost costs its run, and not the store: recovery reads the memos of what came behind the checkpoint.
#[test]
fn a_lost_memo_does_not_refuse_the_store() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("worked");
    let journal = open(&dir).unwrap();
    let mut dice = Dice(7);
    let noise: Vec<u8> = (0..90_000).map(|_| dice.roll(256) as u8).collect();
    let mut begun = start(1, "noted");
    let EventKind::WorkflowExecutionStarted(started) = &mut begun.events[0] else { panic!("{begun:?}") };
    started.memo = [(FieldName::of("pad"), Payload { encoding: ENCODING_BYTES.into(), data: noise.into() })].into();
    journal.commit(&[begun, start(2, "well")]).unwrap();
    drop(journal);
    let files = bytes(&dir).into_keys().filter(|path| path.starts_with("payloads"));
    let large = files.map(|path| dir.join(path)).find(|path| path.metadata().unwrap().len() > 80_000);
    std::fs::remove_file(large.expect("a long payload is a file")).unwrap();
    let journal = open(&dir).unwrap();
    let known = journal.run(run_id(1)).unwrap().info;
    assert!(known.memo.values().all(Payload::is_lost) && !known.memo.is_empty(), "{known:?}");
    assert!(journal.turns(run_id(1), EventId(1)).is_err());
    assert_eq!(journal.turns(run_id(2), EventId(1)).unwrap().len(), 1);
}

/// Whether these are the first turns of a run, and then how it ended, without the turns in between.
pub(super) fn ends_as(expected: &[Turn], found: &[Turn]) -> bool {
    let Some((end, before)) = found.split_last() else { return false };
    let closes = |turn: &&Turn| turn.events.iter().any(|event| event.closes().is_some());
    let closing = expected.iter().find(closes).filter(|_| expected.starts_with(before));
    closing.is_some_and(|was| {
        let at = was.events.iter().position(|event| event.closes().is_some()).unwrap_or_default();
        end.events == was.events[at..] && end.at == was.at && end.outlook == Outlook::default()
    })
}

/// Whether this is the start of a run as its index knew it, and then perhaps how it ended.
pub(super) fn begins_as(expected: &[Turn], found: &[Turn]) -> bool {
    let Some((first, rest)) = found.split_first() else { return false };
    let [EventKind::WorkflowExecutionStarted(told)] = first.events.as_slice() else { return false };
    let Some(EventKind::WorkflowExecutionStarted(was)) = expected[0].events.first() else { return false };
    let of = |started: &WorkflowExecutionStarted| {
        (started.namespace.clone(), started.workflow_id.clone(), started.workflow_type.clone(), started.memo.clone())
    };
    let ended = rest.is_empty() || ends_as(expected, &[&expected[..1], rest].concat());
    told.input.is_lost() && of(told) == of(was) && first.at == expected[0].at && ended
}

/// A byte of each place where these stand in the files is another.
pub(super) fn destroy(dir: &Path, text: &[u8]) {
    for path in bytes(dir).into_keys().map(|path| dir.join(path)) {
        let mut content = std::fs::read(&path).unwrap();
        let places: Vec<usize> =
            content.windows(text.len()).enumerate().filter(|(_, it)| *it == text).map(|(at, _)| at).collect();
        places.iter().for_each(|at| content[*at] ^= 0x10);
        if !places.is_empty() {
            std::fs::write(&path, content).unwrap();
        }
    }
}

/// A run that has lost the group of its start does not vanish: with the index it is held under its workflow id, and what began
/// it reads as lost; without, its id is told for as long as the store is there, and in copies of it.
#[test]
fn a_run_that_lost_its_start_does_not_vanish() {
    for indexed in [true, false] {
        let home = tempfile::tempdir().unwrap();
        let [worked, killed, target, copy, again] =
            ["worked", "killed", "new", "copy", "again"].map(|name| home.path().join(name));
        let journal = open(&worked).unwrap();
        journal.commit(&[start_with(4, "gone", Payload::raw_json("\"the last input\"")), close(4, 4)]).unwrap();
        journal.commit(&[start(3, "well")]).unwrap();
        journal.commit(&[start_with(1, "open-one", Payload::raw_json("\"the first input\""))]).unwrap();
        journal.commit(&[start_with(2, "over", Payload::raw_json("\"the other input\""))]).unwrap();
        journal.commit(&[step(1, 4, 10)]).unwrap();
        journal.commit(&[close(2, 4)]).unwrap();
        if indexed {
            journal.checkpoint().unwrap();
        }
        copy_dir(&worked, &killed);
        destroy(&killed, b"the first input");
        destroy(&killed, b"the other input");
        destroy(&killed, b"the last input");
        let report = salvage(&killed, &target, None).unwrap();
        let saved = open(&target).unwrap();
        let (namespace, held) = (Namespace::of(DEFAULT_NAMESPACE), saved.held_runs().unwrap());
        let known = |id: &str| saved.latest_run(&namespace, &WorkflowId::of(id));
        assert_eq!(known("well"), Some(run_id(3)));
        if indexed {
            assert_eq!(known("open-one"), Some(run_id(1)), "its id is not free: {report:?}");
            let (run, why) = &held[0];
            assert!(*run == run_id(1) && held.len() == 1 && why.contains("its input is lost"), "{held:?}");
            let over = saved.run(run_id(2)).map(|entry| entry.info.status);
            assert_eq!(over, Some(WorkflowStatus::Completed), "{report:?}");
            let EventKind::WorkflowExecutionStarted(started) = &saved.turns(*run, EventId(1)).unwrap()[0].events[0]
            else {
                panic!("no start");
            };
            let why = started.input.decode::<String>().unwrap_err().to_string();
            assert!(why.contains("damage to the store took it"), "{why}");
            // Of what was over nothing comes back as open: where its end is lost too, it is told by its id.
            assert_eq!((known("gone"), saved.info().runs_lost), (None, vec![run_id(4)]));
        } else {
            assert_eq!((known("open-one"), held.len()), (None, 0));
            assert_eq!(report.runs_lost, [run_id(1), run_id(2), run_id(4)]);
            saved.backup(&copy).unwrap();
            saved.close().unwrap();
            drop(saved);
            for dir in [&target, &copy] {
                assert_eq!(open(dir).unwrap().info().runs_lost, [run_id(1), run_id(2), run_id(4)]);
            }
            assert_eq!(salvage(&target, &again, None).unwrap().runs_lost, [run_id(1), run_id(2), run_id(4)]);
        }
    }
}

/// A run that was over and has lost a turn in its middle stays over: it is not open again, its id is free, and the gap is named.
#[test]
fn a_closed_run_that_lost_a_turn_stays_closed() {
    let home = tempfile::tempdir().unwrap();
    let [worked, killed] = ["worked", "killed"].map(|name| home.path().join(name));
    let journal = open(&worked).unwrap();
    let ends = [step(1, 4, 10), step(1, 6, 10), close(1, 8)];
    journal.commit(&[start(1, "over")]).unwrap();
    for turn in &ends {
        journal.commit(std::slice::from_ref(turn)).unwrap();
    }
    copy_dir(&worked, &killed);
    let content = std::fs::read(killed.join("wal/0")).unwrap();
    let records: Vec<usize> =
        (0..content.len()).step_by(4_096).filter(|at| content[*at..].starts_with(b"bosunwa1")).collect();
    assert_eq!(records.len(), 4, "one for each group");
    for (lost, stays) in [(1, true), (2, true), (3, false)] {
        let dir = home.path().join(format!("lost-{lost}"));
        copy_dir(&killed, &dir);
        let mut damaged = content.clone();
        damaged[records[lost] + 60] ^= 0x10;
        std::fs::write(dir.join("wal/0"), damaged).unwrap();
        let target = home.path().join(format!("saved-{lost}"));
        let report = salvage(&dir, &target, None).unwrap();
        let (run, why) = report.held.first().unwrap();
        assert_eq!((*run, report.held.len()), (run_id(1), 1), "{report:?}");
        let saved = open(&target).unwrap();
        let status = saved.run(run_id(1)).unwrap().info.status;
        assert_eq!(status.is_open(), !stays, "group {lost}: {status}: {why}");
        assert_eq!(why.contains("how it ended is kept"), stays, "{why}");
        if stays {
            let first = 4 + 2 * (lost as u64 - 1);
            assert!(why.contains(&format!("its events {first} to")), "{why}");
            assert_eq!(saved.turns(run_id(1), EventId(1)).unwrap().last().unwrap().first_event, EventId(first));
            assert!(saved.open_runs().is_empty());
        }
        saved.close().unwrap();
    }
}

/// A run that begins in a lost group costs its neighbours nothing: they have no turn there. A name that damage has made may be
/// any run's, and then all that may go on there are held.
#[test]
fn a_run_that_begins_in_a_lost_group_holds_no_neighbour() {
    for (destroyed, held) in
        [(b"what the new one is to do".as_slice(), vec![run_id(1)]), (&run_id(1).0, vec![run_id(1), run_id(2)])]
    {
        let home = tempfile::tempdir().unwrap();
        let [worked, killed, target] = ["worked", "killed", "new"].map(|name| home.path().join(name));
        let journal = open(&worked).unwrap();
        journal.commit(&[start(1, "goes-on-there"), start(2, "neighbour")]).unwrap();
        let input = Payload::raw_json("\"what the new one is to do\"");
        journal.commit(&[start_with(3, "begins-there", input), step(1, 4, 10)]).unwrap();
        copy_dir(&worked, &killed);
        // Of the second group only: its record begins behind the first one.
        let path = killed.join("wal/0");
        let mut content = std::fs::read(&path).unwrap();
        let second =
            (1..content.len() / 4_096).map(|block| block * 4_096).find(|at| content[*at..].starts_with(b"bosunwa1"));
        let second = second.expect("a second record");
        let at = content[second..].windows(destroyed.len()).position(|it| it == destroyed).expect("it is there");
        content[second + at] ^= 0x10;
        std::fs::write(&path, content).unwrap();
        let report = salvage(&killed, &target, None).unwrap();
        let found: Vec<RunId> = report.held.iter().map(|(run, _)| *run).collect();
        assert_eq!(found, held, "{report:?}");
        assert!(report.runs_lost.contains(&run_id(3)), "{report:?}");
    }
}

/// A directory that is whole is copied whole.
#[test]
fn a_whole_directory_comes_over_whole() {
    let scene = scene();
    for (n, source) in [&scene.closed, &scene.killed].into_iter().enumerate() {
        let target = scene.home.path().join(format!("new-{n}"));
        assert_eq!(assess(source).unwrap().damage, Vec::<String>::new());
        let outcome = compare(&scene, source, &target).unwrap();
        assert_eq!((outcome.whole, outcome.held, outcome.lost), (scene.model.runs.len() as u64, 0, 0));
        assert!(salvage(source, &target, None).is_err(), "a directory that holds something is no target");
    }
}

/// A worker that dies between the batches of a checkpoint leaves entries of the index that are newer than what its meta names:
/// what they know already is not counted again, and no whole run is held for it.
#[test]
fn a_checkpoint_that_was_cut_short_costs_no_run() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let journal = open(&dir).unwrap();
    // Two turns of one run in one group, and others.
    journal.commit(&[start(1, "one"), step(1, 4, 10)]).unwrap();
    journal.commit(&[start(2, "two"), step(1, 6, 10)]).unwrap();
    journal.checkpoint().unwrap();
    journal.commit(&[step(1, 8, 10), step(1, 10, 10)]).unwrap();
    let ended = load_meta(&*journal.medium).unwrap().unwrap();
    let begun = Meta::origin(ended.trimmed.chain);
    let between = Meta { at: begun.at, chain: begun.chain, log_bytes: begun.log_bytes, ..ended };
    CheckpointBatch::new(&*journal.medium, between).write().unwrap();
    drop(journal);
    let target = home.path().join("new");
    let report = salvage(&dir, &target, None).unwrap();
    assert_eq!((report.runs_whole, report.held, report.damage), (2, Vec::new(), Vec::new()));
    assert_eq!(open(&target).unwrap().turns(run_id(1), EventId(1)).unwrap().len(), 5);
}

/// A read that fails costs nothing where another one gives what it did not, and is told where none does.
#[test]
fn a_failed_read_ends_no_salvage() {
    let scene = scene();
    let dir = scene.home.path().join("whole");
    copy_dir(&scene.killed, &dir);
    fail_read(u64::MAX);
    assess(&dir).unwrap();
    let all = reads();
    assert!(all > 8, "{all} reads");
    for n in 1..=all {
        fail_read(n);
        let report = assess(&dir).unwrap_or_else(|why| panic!("read {n} of {all}: {why}"));
        fail_read(u64::MAX);
        let told = !report.damage.is_empty();
        let whole = report.runs_whole == scene.model.runs.len() as u64 && report.held.is_empty();
        assert!(whole || told, "read {n} of {all}: {report:?}");
        assert!(report.runs_whole + report.held.len() as u64 == scene.model.runs.len() as u64, "read {n}: {report:?}");
    }
}

/// G6: a damaged record of a write-ahead file is named by its place, to whoever opens the directory and by a salvage.
#[test]
fn damage_of_a_write_ahead_file_is_named() {
    let home = tempfile::tempdir().unwrap();
    let [worked, killed] = ["worked", "killed"].map(|name| home.path().join(name));
    let journal = open(&worked).unwrap();
    for n in 0..9 {
        journal.commit(&[start(n, "w")]).unwrap();
    }
    copy_dir(&worked, &killed);
    let content = std::fs::read(killed.join("wal/0")).unwrap();
    let mut named = 0;
    for at in (0..content.len()).step_by(4_096).filter(|at| content[*at..].starts_with(b"bosunwa1")) {
        let dir = home.path().join(format!("at-{at}"));
        copy_dir(&killed, &dir);
        let mut damaged = content.clone();
        damaged[at + 60] ^= 0x10;
        std::fs::write(dir.join("wal/0"), damaged).unwrap();
        let why = look(&dir).err().unwrap().to_string();
        assert!(why.contains("wal/0") && why.contains(&format!("at byte {at}:")), "{why}");
        let report = assess(&dir).unwrap();
        let place = format!("wal/0: at byte {at}:");
        assert!(report.damage.iter().any(|told| told.contains(&place)), "{report:?}");
        assert_eq!(report.groups_lost.len(), 1, "{report:?}");
        named += 1;
    }
    assert_eq!(named, 9);
}

/// A damage that hits nothing but the record of a deletion brings no run back, wherever that record lay.
#[test]
fn a_deletion_that_was_hit_is_proven_by_the_chain() {
    let home = tempfile::tempdir().unwrap();
    let [worked, killed] = ["worked", "killed"].map(|name| home.path().join(name));
    let journal = open(&worked).unwrap();
    for n in 0..3 {
        journal.commit(&[start(n, "w"), close(n, 4)]).unwrap();
    }
    assert!(journal.delete_run(run_id(1)).unwrap());
    journal.commit(&[start(7, "later")]).unwrap();
    copy_dir(&worked, &killed);
    let mut content = std::fs::read(killed.join("wal/0")).unwrap();
    let records = (0..content.len()).step_by(4_096).filter(|at| content[*at..].starts_with(b"bosunwa1"));
    let deletion = records.collect::<Vec<_>>()[3];
    content[deletion..deletion + 4_096].fill(0);
    std::fs::write(killed.join("wal/0"), content).unwrap();
    assert!(look(&killed).is_err());
    let report = salvage(&killed, &home.path().join("new"), None).unwrap();
    assert_eq!((report.groups_lost, report.held, report.runs_whole), (Vec::new(), Vec::new(), 3));
    let saved = open(&home.path().join("new")).unwrap();
    assert!(saved.turns(run_id(1), EventId(1)).unwrap().is_empty());
}

/// See the module.
#[test]
fn what_was_not_hit_is_saved() {
    save_what_was_not_hit(60);
}

/// The whole sweep.
#[test]
#[ignore = "minutes: cargo full"]
fn what_two_thousand_damages_did_not_hit_is_saved() {
    save_what_was_not_hit(2_000);
}

fn save_what_was_not_hit(count: u64) {
    let scene = scene();
    let count: u64 = std::env::var("BOSUN_DAMAGE").ok().and_then(|count| count.parse().ok()).unwrap_or(count);
    let (mut sum, mut most, mut wrong) = ((0, 0, 0), 0, Vec::new());
    for seed in 1..=count {
        let mut dice = Dice(seed * 0x9e37_79b9 + 7);
        let source = if seed.is_multiple_of(2) { &scene.closed } else { &scene.killed };
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        copy_dir(source, &dir);
        let (_, what) = mutate(&dir, &scene, &mut dice);
        match compare(&scene, &dir, &home.path().join("new")) {
            // Of a file that ends early more is hit than a block.
            Ok(_) if what.contains("cut to") => {}
            Ok(outcome) => {
                sum = (sum.0 + outcome.whole, sum.1 + outcome.held, sum.2 + outcome.lost);
                most = most.max(outcome.held + outcome.lost);
            }
            // The record of a deletion may lie in what was cut off, and all that was known of a run.
            Err(why) if what.contains("cut to") && (why.ends_with("is back") || why.ends_with("says which")) => {}
            Err(why) => wrong.push(format!("seed {seed}, {what}: {why}")),
        }
    }
    let (whole, held, lost) = sum;
    println!(
        "{count} damages, {} runs each: {whole} whole, {held} held, {lost} lost; at most {most} of one",
        scene.model.runs.len()
    );
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(whole > (held + lost) * 20, "{whole} whole, {held} held, {lost} lost");
}

/// A held run stays held over restarts, until it is over.
#[test]
fn a_held_run_is_held_until_it_is_over() {
    let scene = scene();
    let dir = scene.home.path().join("held");
    copy_dir(&scene.closed, &dir);
    let data = files::DataDir::new(&dir);
    let run = open(&dir).unwrap().open_runs()[0].0;
    data.write_held(&[(run, "its events 3 to 4 are lost".into())]).unwrap();
    let journal = open(&dir).unwrap();
    assert_eq!(journal.held_runs().unwrap(), [(run, "its events 3 to 4 are lost".to_owned())]);
    drop(journal);
    std::fs::remove_file(data.held_list()).unwrap();
    assert!(open(&dir).unwrap_err().to_string().contains("held"), "the list must not get lost unseen");
}

/// A list of held runs that is damaged, or missing, lets none of them go on: every open run is held, and the list is named.
#[test]
fn a_damaged_list_of_held_runs_holds_what_may_go_on() {
    let scene = scene();
    let dir = scene.home.path().join("listed");
    copy_dir(&scene.closed, &dir);
    let data = files::DataDir::new(&dir);
    let open_runs: Vec<RunId> = open(&dir).unwrap().open_runs().iter().map(|(run, ..)| *run).collect();
    data.write_held(&[(open_runs[0], "its events 3 to 4 are lost".into())]).unwrap();
    let list = std::fs::read(data.held_list()).unwrap();
    for (n, damaged) in [Some([b"x", &list[1..]].concat()), None].into_iter().enumerate() {
        std::fs::remove_file(data.held_list()).unwrap();
        damaged.iter().for_each(|bytes| std::fs::write(data.held_list(), bytes).unwrap());
        let target = scene.home.path().join(format!("saved-{n}"));
        let report = salvage(&dir, &target, None).unwrap();
        assert!(report.damage.iter().any(|told| told.contains("held")), "{report:?}");
        let held: Vec<RunId> = open(&target).unwrap().held_runs().unwrap().iter().map(|(run, _)| *run).collect();
        assert_eq!(held.len(), open_runs.len(), "{report:?}");
        std::fs::write(data.held_list(), &list).unwrap();
    }
}

/// G6: the database of another store in the place of this one's: its runs are not served as this one's, and it is told.
#[test]
fn groups_of_another_store_are_left_out() {
    let home = tempfile::tempdir().unwrap();
    let [own, other, target] = ["own", "other", "new"].map(|name| home.path().join(name));
    let journal = open(&own).unwrap();
    journal.commit(&[start(1, "mine")]).unwrap();
    journal.close().unwrap();
    drop(journal);
    let options = SledOptions { instance: Some([2; 16]), ..SledOptions::default() };
    let journal = Journal::open(Arc::new(DiskLog::open(&other, options).unwrap()), small()).unwrap();
    journal.commit(&[start(5, "theirs")]).unwrap();
    journal.commit(&[start(6, "theirs-too")]).unwrap();
    journal.close().unwrap();
    drop(journal);
    std::fs::remove_dir_all(own.join("log")).unwrap();
    copy_dir(&other.join("log"), &own.join("log"));
    let report = salvage(&own, &target, None).unwrap();
    assert!(report.damage.iter().any(|told| told.contains("of another directory are left out")), "{report:?}");
    assert!(open(&target).unwrap().open_runs().is_empty(), "{report:?}");
}

/// A directory that cannot be listed is damage that is told, and no directory without files.
#[test]
fn a_directory_that_cannot_be_listed_is_told() {
    let scene = scene();
    let dir = scene.home.path().join("looped");
    copy_dir(&scene.killed, &dir);
    std::fs::remove_dir_all(dir.join("wal")).unwrap();
    std::os::unix::fs::symlink("wal", dir.join("wal")).unwrap();
    let report = assess(&dir).unwrap();
    assert!(
        report.damage.iter().any(|told| told.starts_with("list of ") && told.contains("/wal failed")),
        "{report:?}"
    );
}

/// Runs that went on after the index was written are not counted as gone where a page of it is lost.
#[test]
fn a_lost_page_of_the_index_is_no_lost_run() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let journal = open(&dir).unwrap();
    let runs = 25;
    for n in 1..=runs {
        journal.commit(&[start(n, "w")]).unwrap();
    }
    journal.checkpoint().unwrap();
    for n in 1..=runs {
        journal.commit(&[step(n, 4, 10)]).unwrap();
    }
    copy_dir(&dir, &home.path().join("killed"));
    let length = std::fs::metadata(dir.join("log/db")).unwrap().len();
    for at in (0..length).step_by(512) {
        let hit = home.path().join("hit");
        let _ = std::fs::remove_dir_all(&hit);
        copy_dir(&home.path().join("killed"), &hit);
        let mut content = std::fs::read(hit.join("log/db")).unwrap();
        if content[at as usize..].iter().take(512).all(|byte| *byte == 0) {
            continue;
        }
        content[at as usize..].iter_mut().take(512).for_each(|byte| *byte ^= 0x10);
        std::fs::write(hit.join("log/db"), content).unwrap();
        let report = assess(&hit).unwrap();
        let known = report.runs_whole + (report.held.len() + report.runs_lost.len()) as u64;
        assert!(known == runs && report.runs_unnamed == 0, "at byte {at}: {report:?}");
    }
}

/// G6: a salvage that fails half way, and one that is cut short, leave nothing that could be taken for the store.
#[test]
fn a_salvage_that_is_cut_short_leaves_no_store() {
    let scene = scene();
    let (dir, target) = (scene.home.path().join("odd"), scene.home.path().join("cut"));
    copy_dir(&scene.killed, &dir);
    let odd = (0..=u8::MAX).map(|byte| dir.join(format!("payloads/{byte:02x}"))).find(|path| !path.exists()).unwrap();
    std::fs::write(&odd, "no directory").unwrap();
    salvage(&dir, &target, None).unwrap_err();
    assert!(!target.exists(), "nothing is left of it");
    std::fs::remove_file(&odd).unwrap();
    // What was being made when the process died: runs without the list of those that are held.
    let made = scene.home.path().join("made");
    salvage(&dir, &made, None).unwrap();
    std::fs::create_dir(&target).unwrap();
    copy_dir(&made, &target.join("incoming"));
    assert!(!DataDir::new(&target).is_begun().unwrap(), "half of it is no store");
    let outcome = compare(&scene, &dir, &target).unwrap();
    assert_eq!((outcome.whole, outcome.held, outcome.lost), (scene.model.runs.len() as u64, 0, 0));
    assert!(!target.join("incoming").exists());
}

/// G38: a target that was there, empty and open to others, is nobody else's as soon as something is in it.
#[test]
fn a_target_that_was_there_is_closed_to_others() {
    use std::os::unix::fs::PermissionsExt;
    let scene = scene();
    let [salvaged, restored] = ["salvaged", "restored"].map(|name| scene.home.path().join(name));
    for target in [&salvaged, &restored] {
        std::fs::create_dir(target).unwrap();
        std::fs::set_permissions(target, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    salvage(&scene.killed, &salvaged, None).unwrap();
    restore(&scene.closed, &restored, &small()).unwrap();
    for target in [&salvaged, &restored] {
        assert_eq!(std::fs::metadata(target).unwrap().permissions().mode() & 0o777, 0o700, "{}", target.display());
    }
}
