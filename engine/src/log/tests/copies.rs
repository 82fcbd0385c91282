//! What is done with a whole directory: it is isolated in place, restored, made compact, swept; and who may read it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use super::damage::copy_dir;
use super::journal::{KEEP, small};
use super::opening::{Scene, changed, look, mutate, open, scene};
use super::salvage::{as_marked, begins_as, ends_as};
use super::samples::*;
use super::story::Dice;
use crate::log::*;
use crate::vocabulary::*;

/// What a journal says against what was told; runs that are held may end early.
fn compare(scene: &Scene, dir: &Path) -> Result<(u64, u64), String> {
    let journal = open(dir).map_err(|why| format!("it does not open: {why}"))?;
    let held: BTreeMap<RunId, String> = journal.medium.held().unwrap().into_iter().collect();
    let (mut whole, mut less) = (0, 0);
    for (run, expected) in &scene.model.runs {
        match journal.turns(*run, EventId(1)) {
            Ok(found) if found == *expected => whole += 1,
            Ok(found) if found.is_empty() => less += 1,
            Ok(found) => match held.get(run) {
                // Begun as the index knows of it, or with how it ended behind the gap.
                Some(_) if as_marked(expected, &found).starts_with(&found) => less += 1,
                Some(_) if ends_as(expected, &found) || begins_as(expected, &found) => less += 1,
                Some(why) => return Err(format!("{run} is held ({why}) with turns it never had")),
                None => return Err(format!("{run}: {} of {} turns, and not held", found.len(), expected.len())),
            },
            Err(_) if held.contains_key(run) => less += 1,
            Err(why) => return Err(format!("{run}: {why}")),
        }
    }
    journal.close().map_err(|why| format!("it does not close: {why}"))?;
    Ok((whole, less))
}

/// G7: in place, damage costs at most the runs that it hit; the damaged files are kept as they were, and the directory
/// goes on.
#[test]
fn a_damaged_directory_is_isolated_in_place() {
    let scene = scene();
    let (mut refused, mut whole, mut less, mut wrong) = (0, 0, 0, Vec::new());
    // How many damages matter depends on what lies where by chance.
    for seed in 1..=600_u64 {
        if refused == 8 {
            break;
        }
        let mut dice = Dice(seed * 0x9e37_79b9 + 7);
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        copy_dir(if seed.is_multiple_of(2) { &scene.closed } else { &scene.killed }, &dir);
        let (_, what) = mutate(&dir, &scene, &mut dice);
        if what.contains("cut to") || open(&dir).is_ok() {
            continue;
        }
        refused += 1;
        let damaged = bytes(&dir);
        let (report, aside) = match isolate(&dir, None) {
            Ok(done) => done,
            Err(why) => {
                wrong.push(format!("seed {seed}, {what}: {why}"));
                continue;
            }
        };
        for (name, content) in &damaged {
            let kept = std::fs::read(aside.join(name)).or_else(|_| std::fs::read(dir.join(name)));
            assert_eq!(kept.unwrap(), *content, "seed {seed}, {what}: {} is not what it was", name.display());
        }
        match compare(&scene, &dir) {
            Ok((all, some)) => (whole, less) = (whole + all, less + some),
            Err(why) => wrong.push(format!("seed {seed}, {what}: {why}")),
        }
        assert!(!report.damage.is_empty() || !report.groups_lost.is_empty(), "seed {seed}, {what}: nothing is said");
    }
    println!("{refused} damages isolated: {whole} runs whole, {less} held or lost");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused == 8 && whole > less * 10, "{refused} refused, {whole} whole, {less} not");
}

/// Damage that comes again and again leaves a few copies, and then a refusal that says what to do: not a full disk.
#[test]
fn an_isolation_is_not_repeated_without_end() {
    let scene = scene();
    let dir = &scene.closed;
    for n in 1..=COPIES_MAX {
        std::fs::write(dir.join("log/conf"), "damaged").unwrap();
        assert_eq!(isolate(dir, None).unwrap().1, dir.join(format!("damaged-{n}")));
    }
    std::fs::write(dir.join("log/conf"), "damaged").unwrap();
    let before = bytes(dir);
    let why = isolate(dir, None).unwrap_err();
    assert_eq!(why, StorageError::IsolatedTooOften { dir: dir.clone(), copies: COPIES_MAX });
    assert!(why.to_string().contains("move the damaged-N directories away"), "{why}");
    assert_eq!(changed(&before, dir), Vec::<std::path::PathBuf>::new());
    // What is done as it says goes on.
    std::fs::rename(dir.join("damaged-1"), scene.home.path().join("kept")).unwrap();
    assert_eq!(isolate(dir, None).unwrap().1, dir.join("damaged-1"));
    assert_eq!(compare(&scene, dir).unwrap().1, 0);
}

/// A copy that cannot be finished changes nothing but the room that it leaves again.
#[test]
fn an_isolation_that_fails_leaves_everything() {
    let scene = scene();
    std::fs::remove_file(scene.closed.join("anchor")).unwrap();
    std::fs::remove_file(scene.closed.join("bosun.format")).unwrap();
    let before = bytes(&scene.closed);
    isolate(&scene.closed, None).unwrap_err();
    assert_eq!(changed(&before, &scene.closed), Vec::<std::path::PathBuf>::new());
}

/// A backup comes back whole, in a new directory only; one that is damaged is refused, and named.
#[test]
fn a_backup_is_restored() {
    let scene = scene();
    let at = |name: &str| scene.home.path().join(name);
    open(&scene.killed).unwrap().backup(&at("backup")).unwrap();
    let before = bytes(&at("backup"));
    restore(&at("backup"), &at("restored"), &small()).unwrap();
    assert_eq!(changed(&before, &at("backup")), Vec::<std::path::PathBuf>::new());
    assert_eq!(compare(&scene, &at("restored")).unwrap().1, 0);
    let again = restore(&at("backup"), &at("restored"), &small()).unwrap_err();
    assert!(matches!(again, StorageError::Taken { .. }), "{again}");
    assert!(matches!(restore(&at("none"), &at("new"), &small()), Err(StorageError::NotADatabase { .. })));
    let payload = bytes(&at("backup")).into_keys().find(|name| name.starts_with("payloads")).unwrap();
    std::fs::write(at("backup").join(&payload), "x").unwrap();
    let refused = restore(&at("backup"), &at("other"), &small()).unwrap_err();
    assert!(refused.to_string().contains(payload.to_str().unwrap()), "{refused}");
    assert!(!at("other").exists());
}

/// G10: a copy that a crash cuts short is no store, whatever of it is there, and may be begun again.
#[test]
fn a_copy_that_was_cut_short_is_no_store() {
    let scene = scene();
    let at = |name: &str| scene.home.path().join(name);
    open(&scene.closed).unwrap().backup(&at("backup")).unwrap();
    let cut = at("cut");
    copy_dir(&at("backup"), &cut.join("incoming"));
    std::fs::write(cut.join("bosun.lock"), "").unwrap();
    assert!(matches!(look(&cut), Err(StorageError::NotADatabase { .. })));
    restore(&at("backup"), &cut, &small()).unwrap();
    assert_eq!(compare(&scene, &cut).unwrap().1, 0);
    let parts = |dir: &Path| dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert!(!parts(&cut).iter().any(|name| name == "incoming" || name.to_string_lossy().starts_with("nothing")));
    // Nor is anything left of one that failed.
    std::fs::remove_file(at("backup").join("anchor")).unwrap();
    restore(&at("backup"), &at("none"), &small()).unwrap_err();
    assert!(!at("none").exists());
}

/// What a salvage holds is held in every copy of the directory.
#[test]
fn a_held_run_is_held_in_backups_and_in_what_is_salvaged_again() {
    let scene = scene();
    let at = |name: &str| scene.home.path().join(name);
    let run = open(&scene.closed).unwrap().open_runs()[0].0;
    let held = [(run, "its events 3 to 4 are lost".to_owned())];
    files::DataDir::new(&scene.closed).write_held(&held).unwrap();
    open(&scene.closed).unwrap().backup(&at("backup")).unwrap();
    assert_eq!(open(&at("backup")).unwrap().held_runs().unwrap(), held);
    salvage(&scene.closed, &at("saved"), None).unwrap();
    assert_eq!(open(&at("saved")).unwrap().held_runs().unwrap(), held);
    compact(&scene.closed, &small()).unwrap();
    assert_eq!(open(&scene.closed).unwrap().held_runs().unwrap(), held);
}

/// Holes go, everything else stays, in place or in a new directory.
#[test]
fn a_compact_store_is_smaller_and_the_same() {
    let scene = scene();
    let dir = &scene.closed;
    let journal = open(dir).unwrap();
    for n in 500..700 {
        journal.commit(&[start(n, &format!("w{n}")), step(n, 4, 3_000), close(n, 6)]).unwrap();
    }
    while journal.housekeep(Timestamp(0), KEEP).unwrap().archived > 0 {}
    for n in 500..700 {
        assert!(journal.delete_run(run_id(n)).unwrap());
    }
    journal.close().unwrap();
    drop(journal);
    let new = scene.home.path().join("compact");
    let apart = compact_to(dir, &new, &small()).unwrap();
    assert_eq!(compare(&scene, &new).unwrap().1, 0);
    let done = compact(dir, &small()).unwrap();
    assert!(done.bytes_after < done.bytes_before, "{done:?}");
    assert!(done.bytes_after.abs_diff(apart.bytes_after) < 1 << 20, "{apart:?} {done:?}");
    assert_eq!(compare(&scene, dir).unwrap().1, 0);
    assert!(!dir.join("incoming").exists() && !dir.join("compacted-1").exists());
    let report = open(dir).unwrap().verify();
    assert!(report.is_sound(), "{report:?}");
}

/// Cut short in its swap, the same command again completes it, and so does a sweep.
#[test]
fn a_compaction_that_was_cut_short_in_its_swap_is_given_again() {
    for again in [compact, collect_garbage] {
        let scene = scene();
        let dir = files::DataDir::new(&scene.closed);
        let new = scene.home.path().join("new");
        copy_dir(&scene.closed, &new);
        std::fs::rename(new, swap::incoming(&dir)).unwrap();
        std::fs::create_dir(scene.closed.join("compacted-1")).unwrap();
        let parts = "bosun.format log anchor payloads groups values";
        let lines = format!("aside compacted-1\nold {parts}\nnew {parts}\n");
        let note = format!("{lines}crc {:08x}\n", crc32fast::hash(lines.as_bytes()));
        std::fs::write(scene.closed.join("swapping"), note).unwrap();
        std::fs::rename(scene.closed.join("bosun.format"), scene.closed.join("compacted-1/bosun.format")).unwrap();
        assert!(matches!(StoreReader::open(&scene.closed), Err(StorageError::SwapUnfinished { .. })));
        again(&scene.closed, &small()).unwrap();
        assert_eq!(compare(&scene, &scene.closed).unwrap().1, 0);
        assert!(!scene.closed.join("compacted-1").exists() && !scene.closed.join("swapping").exists());
    }
}

/// Payloads without a run and what a crash left half made go; what counts stays.
#[test]
fn garbage_is_collected_and_nothing_else() {
    let scene = scene();
    let dir = &scene.closed;
    let stray = b"nobody's payload";
    open(dir).unwrap().medium.put_blob(&BlobHash::of(stray), stray).unwrap();
    std::fs::write(dir.join("payloads/half.new"), "x").unwrap();
    std::fs::create_dir_all(dir.join("payloads/ab")).unwrap();
    std::fs::write(dir.join("payloads/ab/half.new"), "x").unwrap();
    std::fs::create_dir(dir.join("incoming")).unwrap();
    std::fs::create_dir(dir.join("damaged-1")).unwrap();
    std::fs::create_dir(dir.join("compacted-1")).unwrap();
    let done = collect_garbage(dir, &small()).unwrap();
    assert_eq!((done.blobs_removed, done.leftovers_removed), (1, 2), "{done:?}");
    assert_eq!(done.set_aside.len(), 1, "what was put aside is its owner's");
    assert!(!dir.join("compacted-1").exists(), "a store that was made compact since then");
    assert!(!dir.join("incoming").exists() && dir.join("damaged-1").exists());
    assert_eq!(compare(&scene, dir).unwrap().1, 0);
    let empty = scene.home.path().join("empty");
    assert!(collect_garbage(&empty, &small()).is_err() && !empty.exists());
}

/// A directory and files that were there before, open to others, are closed to them; so is all that is made.
#[test]
fn nobody_else_reads_a_store() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let tell = |n: u64| {
        let journal = open(&dir).unwrap();
        journal.commit(&[start_with(n, "a", Payload::bytes(vec![n as u8; 50_000])), step(n, 4, 40_000)]).unwrap();
        journal.close().unwrap();
    };
    tell(1);
    let open_to_others = || -> Vec<_> {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o077;
        let files = bytes(&dir).into_keys().map(|name| dir.join(name));
        let dirs = ["", "log", "payloads", "groups", "values"].map(|name| dir.join(name));
        files.chain(dirs).filter(|path| mode(path) != 0).collect()
    };
    assert_eq!(open_to_others(), Vec::<std::path::PathBuf>::new());
    for path in [dir.join("log/db"), dir.join("payloads"), dir.clone()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    tell(2);
    assert_eq!(open_to_others(), Vec::<std::path::PathBuf>::new());
}

/// G7, format 1: long groups were split over several entries of the database; they are saved too.
#[test]
fn split_groups_of_format_1_are_saved() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let options = SledOptions { instance: Some([1; 16]), ..SledOptions::default() };
    let log = SledLog::open(&dir, options).unwrap();
    let (mut chain, mut told) = (chain::ChainHash::origin(&[1; 16]), Vec::new());
    for n in 1..=6 {
        let mut writer = group::GroupWriter::new(GroupSeq(n), chain);
        let turns = [start(n, &format!("w{n}")), step(n, 4, 4_000)];
        for turn in &turns {
            writer.turn(turn).unwrap();
        }
        let (value, next) = writer.finish();
        log.append_split(GroupSeq(n), &value, 700).unwrap();
        chain = next;
        log.sync(Anchor { last: GroupSeq(n), chain }).unwrap();
        told.push((run_id(n), turns));
    }
    log.settle_anchor().unwrap();
    drop(log);
    let report = salvage(&dir, &home.path().join("new"), None).unwrap();
    assert!(report.held.is_empty() && report.groups_lost.is_empty(), "{report:?}");
    let journal = open_any(&home.path().join("new"));
    for (run, turns) in &told {
        assert_eq!(journal.turns(*run, EventId(1)).unwrap(), turns, "{run}");
    }
}

fn open_any(dir: &Path) -> Journal {
    Journal::open(Arc::new(DiskLog::open(dir, SledOptions::default()).unwrap()), small()).unwrap()
}

/// G8: a worker whose lock file somebody removed still holds its database: nothing is put in the place of its store.
#[test]
fn a_store_whose_lock_file_is_gone_is_not_swapped_away() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let worker = open(&dir).unwrap();
    worker.commit(&[start(1, "one")]).unwrap();
    std::fs::remove_file(dir.join("bosun.lock")).unwrap();
    for refused in [compact(&dir, &small()).map(drop), isolate(&dir, None).map(drop)] {
        assert!(matches!(refused, Err(StorageError::Locked { .. })), "{refused:?}");
    }
    worker.commit(&[start(2, "two")]).unwrap();
    worker.close().unwrap();
    drop(worker);
    assert_eq!(open(&dir).unwrap().open_runs().len(), 2);
}

/// Parts that a rename does not move are refused before anything is put aside: the store opens as before.
#[test]
fn a_part_that_lies_elsewhere_is_refused_before_anything_is_moved() {
    let home = tempfile::tempdir().unwrap();
    let (dir, other) = (home.path().join("data"), home.path().join("other"));
    let journal = open(&dir).unwrap();
    journal.commit(&[start(1, "one")]).unwrap();
    journal.close().unwrap();
    drop(journal);
    std::fs::rename(dir.join("payloads"), &other).unwrap();
    std::os::unix::fs::symlink(&other, dir.join("payloads")).unwrap();
    for refused in [compact(&dir, &small()).map(drop), isolate(&dir, None).map(drop)] {
        assert!(matches!(&refused, Err(StorageError::Taken { .. })), "{refused:?}");
    }
    assert_eq!(open(&dir).unwrap().open_runs().len(), 1);
}

/// G1: the anchor may lag after a power cut. Where no group is in the database yet, all of them are whole in the files that are
/// written ahead, and whoever only looks sees them.
#[test]
fn a_store_whose_anchor_lags_before_its_first_sweep_is_no_damaged_one() {
    let home = tempfile::tempdir().unwrap();
    let (dir, copy) = (home.path().join("data"), home.path().join("copy"));
    let journal = open(&dir).unwrap();
    let anchor = std::fs::read(dir.join("anchor")).unwrap();
    for n in 1..=3 {
        journal.commit(&[start(n, "w")]).unwrap();
    }
    copy_dir(&dir, &copy);
    std::fs::write(copy.join("anchor"), anchor).unwrap();
    let seen = look(&copy).unwrap();
    assert_eq!((seen.open_runs().len(), seen.verify().findings), (3, Vec::new()));
}
