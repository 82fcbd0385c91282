//! G6, E38: a verification tells of flipped bits wherever they are (each byte of small files, places of all parts of large
//! ones), but in room that nothing uses, which is listed here by name.
//!
//! `cargo full` for the whole sweep; `BOSUN_DAMAGE` for another number of bytes of each file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::damage::copy_dir;
use super::journal::small;
use super::opening::{look, open};
use super::samples::*;
use super::story::{Dice, Model};
use crate::log::files::DataDir;
use crate::log::parts::place_in;
use crate::log::sled_format::table::{PagePart, PageTable};
use crate::log::sled_format::tree::Tree;
use crate::log::sled_format::{HEADER, SEGMENT};
use crate::log::*;

/// A store with files of every kind, after a close and after a kill.
fn stores(home: &Path) -> [PathBuf; 2] {
    let [closed, killed] = ["closed", "killed"].map(|name| home.join(name));
    let (mut model, mut dice) = (Model::default(), Dice(77));
    for life in 0..2 {
        let journal = open(&closed).unwrap();
        (0..50).for_each(|_| model.step(&journal, &mut dice).unwrap());
        // Longer than what the database takes, and shorter than a payload with a file of its own.
        for run in [900 + life * 10, 901 + life * 10, 902 + life * 10] {
            journal.commit(&[start(run, &format!("long-{run}")), step(run, 4, 4_000)]).unwrap();
        }
        if life > 0 {
            copy_dir(&closed, &killed);
        }
        journal.close().unwrap();
    }
    [closed, killed]
}

/// The bytes of each file that count, or that somebody needs who writes; of the other files, all.
fn used(dir: &Path) -> BTreeMap<PathBuf, Vec<Range<u64>>> {
    let data = DataDir::new(dir);
    let format = data.identify().unwrap().unwrap();
    let looked = look::look(&data, format).unwrap();
    let mut used: BTreeMap<PathBuf, Vec<Range<u64>>> = BTreeMap::new();
    // Pages that were written again, and room behind the last one, are not read by anybody. What a killed process wrote to the
    // database since its last snapshot looks like what a crash has torn, if it is damaged: what must be there is known by the
    // tail anchor, and the write-ahead files have it.
    let snapshots = bytes(&data.sled()).into_iter().filter(|(name, _)| name.to_string_lossy().starts_with("snap."));
    let known = snapshots.map(|(_, content)| PageTable::parse(&content).unwrap().stable).max().unwrap_or(0);
    let counts = |part: &&PagePart| format.wal.is_none() || part.lsn < known;
    let parts = looked.pages.table().pages.iter().flat_map(|page| page.parts());
    let db = used.entry("log/db".into()).or_default();
    for part in parts.filter(counts) {
        let segment = part.at / SEGMENT * SEGMENT;
        db.extend([part.at..part.at + part.length, segment..segment + HEADER as u64]);
    }
    // Between the two slots lies a block, so that no torn write hits both.
    used.insert("anchor".into(), vec![0..64, 4_096..4_160]);
    let shelves = Tree::open(looked.pages.clone(), b"shelves").unwrap();
    for (tree, folder) in [(&looked.groups, "groups"), (&shelves, "values")] {
        // Values that were replaced or removed stay until their file is swept; what is told of their heads comes on top.
        let files = bytes(&dir.join(folder));
        assert!(!files.is_empty() || folder == "groups" && format.wal.is_some(), "nothing in {folder}");
        for name in files.into_keys() {
            used.insert(Path::new(folder).join(name), std::iter::once(0..32).collect());
        }
        let mut named = |key: &[u8], entry: &[u8]| {
            if let Some(place) = place_in(entry) {
                let file = Path::new(folder).join(format!("{:016x}", place.file));
                used.entry(file).or_default().push(place.frame(key));
            }
            Ok(true)
        };
        tree.upwards(&[], &mut named).unwrap();
    }
    // Records of groups that the database has, of former laps, and zeros.
    if let Some(id) = format.wal {
        let read = wal::read(&data.wal(), &id).unwrap();
        assert!(!read.groups.is_empty());
        for segment in ["wal/0", "wal/1"] {
            used.insert(segment.into(), Vec::new());
        }
        for group in looked.ahead.iter().flatten() {
            let content = std::fs::read(&group.file).unwrap();
            let at = content.windows(group.value.len()).position(|it| it == group.value).unwrap() as u64;
            let file = group.file.strip_prefix(dir).unwrap().to_owned();
            used.get_mut(&file).unwrap().push(at - 24..at + group.value.len() as u64);
        }
    }
    // A payload goes some time after the last run that had it.
    let journal = look(dir).unwrap();
    for first_byte in 0..=u8::MAX {
        for hash in journal.medium.blobs(first_byte).unwrap() {
            let refers = journal.medium.shelf_keys(Shelf::BlobRefs, &hash.0, ScanFrom::First, 1).unwrap();
            if refers.is_empty() {
                let file = journal.medium.file_of_blob(&hash);
                used.insert(file.strip_prefix(dir).unwrap().to_owned(), Vec::new());
            }
        }
    }
    used
}

/// All of a small file; else its beginning, some places of it, and both ends of everything that is used.
fn places(length: u64, used: Option<&[Range<u64>]>, count: u64, dice: &mut Dice) -> Vec<u64> {
    if length <= 400 {
        return (0..length).collect();
    }
    let mut places: Vec<u64> = (0..32).chain((0..count).map(|_| dice.roll(length))).collect();
    for range in used.into_iter().flatten().filter(|range| !range.is_empty()) {
        places.extend([range.start, range.start + dice.roll(range.end - range.start), range.end - 1]);
    }
    let most = (count * 4) as usize;
    while places.len() > most {
        let at = dice.roll(places.len() as u64) as usize;
        places.swap_remove(at);
    }
    places
}

/// Flips a bit of each place; answers the places of which nothing was told and that are used, and how many were told of.
fn sweep(dir: &Path, count: u64) -> (Vec<String>, u64) {
    let (used, mut silent, mut told, mut dice) = (used(dir), Vec::new(), 0, Dice(41));
    assert!(look(dir).unwrap().verify().is_sound(), "{:?}", look(dir).unwrap().verify());
    for (file, content) in bytes(dir) {
        let (path, ranges) = (dir.join(&file), used.get(&file));
        for at in places(content.len() as u64, ranges.map(Vec::as_slice), count, &mut dice) {
            let mut damaged = content.clone();
            damaged[at as usize] ^= 1 << dice.roll(8);
            std::fs::write(&path, damaged).unwrap();
            let is_told = look(dir).is_err() || !look(dir).is_ok_and(|journal| journal.verify().is_sound());
            told += u64::from(is_told);
            if !is_told && ranges.is_none_or(|used| used.iter().any(|range| range.contains(&at))) {
                silent.push(format!("{}: byte {at} of {}", file.display(), content.len()));
            }
        }
        std::fs::write(&path, content).unwrap();
    }
    (silent, told)
}

fn verify_tells(count: u64) {
    let home = tempfile::tempdir().unwrap();
    let [closed, killed] = stores(home.path());
    // One with a list of held runs, and what it was made from.
    let [hurt, saved] = ["hurt", "saved"].map(|name| home.path().join(name));
    copy_dir(&closed, &hurt);
    let blobs = bytes(&hurt).into_keys().filter(|path| path.starts_with("payloads"));
    blobs.take(3).for_each(|blob| std::fs::remove_file(hurt.join(blob)).unwrap());
    salvage(&hurt, &saved, None).unwrap();
    assert!(saved.join("held").exists());
    drop(open_other(&saved));
    for (dir, name) in [(&closed, "closed"), (&killed, "killed")] {
        let (silent, told) = sweep(dir, count);
        println!("{name}: {told} flips told");
        assert!(
            silent.is_empty(),
            "{name}: {} of {}:\n{}",
            silent.len(),
            silent.len() as u64 + told,
            silent.join("\n")
        );
        assert!(told > 200, "{name}: the flips hit nothing: {told}");
    }
    // What it has lost is told anyhow; what else is damaged is told, too.
    for name in ["held", "bosun.format"] {
        let (file, content) = (saved.join(name), std::fs::read(saved.join(name)).unwrap());
        let sound = look(&saved).map(|journal| journal.verify().findings.len());
        for at in 0..content.len() {
            let mut damaged = content.clone();
            damaged[at] ^= 1;
            std::fs::write(&file, damaged).unwrap();
            let found = look(&saved).map(|journal| journal.verify().findings.len());
            assert_ne!(found, sound, "{name}: byte {at}");
        }
        std::fs::write(&file, content).unwrap();
    }
}

/// As the worker that goes on with what was saved.
fn open_other(dir: &Path) -> Journal {
    Journal::open(std::sync::Arc::new(DiskLog::open(dir, SledOptions::default()).unwrap()), small()).unwrap()
}

#[test]
fn a_verification_tells_of_every_flipped_bit() {
    verify_tells(std::env::var("BOSUN_DAMAGE").ok().and_then(|count| count.parse().ok()).unwrap_or(25));
}

#[test]
#[ignore = "minutes: cargo full"]
fn a_verification_tells_of_every_flipped_bit_in_full() {
    verify_tells(400);
}

/// What nothing needs which counts hinders no copy, and a copy is whole; the worker writes the anchor anew.
#[test]
fn damage_that_costs_nothing_is_told_and_mended() {
    let home = tempfile::tempdir().unwrap();
    let [closed, _] = stores(home.path());
    let dir = &closed;
    let flip = |file: &Path, at: usize| {
        let mut content = std::fs::read(file).unwrap();
        content[at] ^= 4;
        std::fs::write(file, content).unwrap();
    };
    let findings = |dir: &Path| {
        let report = look(dir).unwrap().verify();
        report.findings.into_iter().map(|finding| (finding.class, finding.file, finding.offset)).collect::<Vec<_>>()
    };
    let groups = bytes(&dir.join("groups")).into_keys().next().unwrap();
    let groups = dir.join("groups").join(groups);
    flip(&dir.join("anchor"), 4_100);
    flip(&groups, 20);
    let (anchor, header) = ((dir.join("anchor"), Some(4_096)), (groups.clone(), Some(0)));
    let of = |(file, offset): &(PathBuf, Option<u64>)| (FindingClass::File, file.clone(), *offset);
    assert_eq!(findings(dir), [of(&anchor), of(&header)]);
    let copy = home.path().join("copy");
    compact_to(dir, &copy, &small()).unwrap();
    assert_eq!(findings(&copy), []);
    // A worker that holds the store tells of it, too; it has written the anchor.
    let journal = open(dir).unwrap();
    let told = journal.verify().findings;
    assert_eq!(told.iter().map(|finding| &finding.file).collect::<Vec<_>>(), [&groups], "{told:?}");
    journal.close().unwrap();
    drop(journal);
    assert_eq!(findings(dir), [of(&header)]);
    compact(dir, &small()).unwrap();
    assert_eq!(findings(dir), []);
}
