//! What every [`Log`] promises, one function a promise, run over each implementation.
//!
//! `reopen` takes the medium away and gives it back as a process that ended normally would find it. What a power cut
//! leaves can only be tried on the memory log; see `tests/crash.rs`.

use std::path::Path;
use std::sync::Arc;

use super::*;

/// A medium under test and how to reopen it.
pub(crate) trait MediumUnderTest {
    fn open(&self) -> Arc<dyn Log>;
    fn reopen(&self, medium: Arc<dyn Log>) -> Arc<dyn Log>;
}

struct InMemory;

impl MediumUnderTest for InMemory {
    fn open(&self) -> Arc<dyn Log> {
        Arc::new(MemoryLog::new([1; 16]))
    }
    fn reopen(&self, medium: Arc<dyn Log>) -> Arc<dyn Log> {
        medium
    }
}

struct OnSled(tempfile::TempDir);

impl OnSled {
    fn at(path: &Path) -> Arc<dyn Log> {
        Arc::new(SledLog::open_opaque(path, SledOptions { instance: Some([1; 16]), ..SledOptions::default() }).unwrap())
    }
}

impl MediumUnderTest for OnSled {
    fn open(&self) -> Arc<dyn Log> {
        Self::at(self.0.path())
    }
    fn reopen(&self, medium: Arc<dyn Log>) -> Arc<dyn Log> {
        drop(medium);
        Self::at(self.0.path())
    }
}

struct OnDisk(tempfile::TempDir);

impl OnDisk {
    fn at(path: &Path) -> Arc<dyn Log> {
        let options = SledOptions { instance: Some([1; 16]), ..SledOptions::default() };
        Arc::new(DiskLog::open_opaque(path, options).unwrap())
    }
}

impl MediumUnderTest for OnDisk {
    fn open(&self) -> Arc<dyn Log> {
        Self::at(self.0.path())
    }
    fn reopen(&self, medium: Arc<dyn Log>) -> Arc<dyn Log> {
        drop(medium);
        Self::at(self.0.path())
    }
}

macro_rules! conformance {
    ($($promise:ident)*) => {
        mod memory {
            $(#[test] fn $promise() { super::$promise(&super::InMemory); })*
        }
        mod on_sled {
            $(#[test] fn $promise() { super::$promise(&super::OnSled(tempfile::tempdir().unwrap())); })*
        }
        mod on_disk {
            $(#[test] fn $promise() { super::$promise(&super::OnDisk(tempfile::tempdir().unwrap())); })*
        }
    };
}

conformance! {
    a_new_log_is_empty
    groups_come_back_in_order_and_survive_a_reopen
    large_groups_come_back_whole
    removed_groups_are_gone_and_the_rest_stays
    the_anchor_names_the_last_sync
    a_commit_is_a_group_and_the_anchor
    shelves_are_separate_and_scan_in_key_order
    shelf_batches_replace_and_remove
    large_shelf_values_leave_nothing_behind
    blobs_are_kept_by_hash
}

fn tail(last: u64) -> Anchor {
    Anchor { last: GroupSeq(last), chain: ChainHash([last as u8; 32]) }
}

fn a_commit_is_a_group_and_the_anchor(bench: &dyn MediumUnderTest) {
    let mut medium = bench.open();
    for seq in 1..=40 {
        let value = value(seq, (seq as usize * 997) % 30_000);
        medium.commit(GroupSeq(seq), &value, value.len() / 2, tail(seq)).unwrap();
        assert_eq!(medium.group(GroupSeq(seq)).unwrap().unwrap(), value);
        assert_eq!(medium.anchor(), Ok(Some(tail(seq))));
        if seq == 20 {
            medium = bench.reopen(medium);
        }
    }
    medium.remove_groups(1..=9).unwrap();
    assert_eq!(medium.bounds(), Ok(Some((GroupSeq(10), GroupSeq(40)))));
    medium = bench.reopen(medium);
    assert_eq!(medium.bounds(), Ok(Some((GroupSeq(10), GroupSeq(40)))));
    assert_eq!(all(&*medium, 0).len(), 31);
    assert_eq!(medium.anchor(), Ok(Some(tail(40))));
}

fn value(seq: u64, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u64 * 31 + seq) as u8).collect()
}

fn append(medium: &dyn Log, seq: u64, length: usize) {
    medium.append(GroupSeq(seq), &value(seq, length), length).unwrap();
}

fn all(medium: &dyn Log, from: u64) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut visit = |seq: GroupSeq, value| {
        found.push((seq.0, value));
        Ok(true)
    };
    medium.groups_from(GroupSeq(from), &mut visit).unwrap();
    found
}

fn put(medium: &dyn Log, shelf: Shelf, key: &[u8], value: Option<&[u8]>) {
    let change = ShelfChange { shelf, key: key.to_vec(), value: value.map(<[u8]>::to_vec) };
    medium.change_shelves(&[change]).unwrap();
}

fn keys(medium: &dyn Log, shelf: Shelf, prefix: &[u8], from: ScanFrom<'_>, limit: usize) -> Vec<Vec<u8>> {
    medium.shelf_scan(shelf, prefix, from, limit).unwrap().into_iter().map(|(key, _)| key).collect()
}

fn a_new_log_is_empty(bench: &dyn MediumUnderTest) {
    let medium = bench.open();
    assert_eq!(medium.instance(), [1; 16]);
    assert_eq!(medium.anchor(), Ok(None));
    assert_eq!(medium.bounds(), Ok(None));
    assert_eq!(medium.group(GroupSeq(1)), Ok(None));
    assert_eq!(all(&*medium, 0), []);
}

fn groups_come_back_in_order_and_survive_a_reopen(bench: &dyn MediumUnderTest) {
    let mut medium = bench.open();
    for seq in 1..=300 {
        append(&*medium, seq, seq as usize);
        assert_eq!(medium.group(GroupSeq(seq)).unwrap().unwrap(), value(seq, seq as usize), "readable at once");
        medium.sync(tail(seq)).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(medium.bounds(), Ok(Some((GroupSeq(1), GroupSeq(300)))));
        assert_eq!(all(&*medium, 7), (7..=300).map(|seq| (seq, value(seq, seq as usize))).collect::<Vec<_>>());
        medium = bench.reopen(medium);
    }
}

fn large_groups_come_back_whole(bench: &dyn MediumUnderTest) {
    let mut medium = bench.open();
    let lengths = [0, 1, 12_287, 12_288, 12_289, 49_152, 300_000, 2_000_000];
    for (seq, length) in (1..).zip(lengths) {
        append(&*medium, seq, length);
        medium.sync(tail(seq)).unwrap();
    }
    medium = bench.reopen(medium);
    let expected: Vec<(u64, Vec<u8>)> = (1..).zip(lengths).map(|(seq, length)| (seq, value(seq, length))).collect();
    assert!(all(&*medium, 0) == expected);
    assert_eq!(medium.bounds(), Ok(Some((GroupSeq(1), GroupSeq(8)))));
}

fn removed_groups_are_gone_and_the_rest_stays(bench: &dyn MediumUnderTest) {
    let mut medium = bench.open();
    (1..=600).for_each(|seq| append(&*medium, seq, 20_000 / seq as usize));
    medium.remove_groups(1..=550).unwrap();
    medium.remove_groups(1..=550).unwrap();
    medium.sync(tail(600)).unwrap();
    medium = bench.reopen(medium);
    assert_eq!(medium.bounds(), Ok(Some((GroupSeq(551), GroupSeq(600)))));
    assert_eq!(all(&*medium, 0).len(), 50);
    medium.remove_groups(600..=600).unwrap();
    assert_eq!(medium.bounds(), Ok(Some((GroupSeq(551), GroupSeq(599)))));
}

fn the_anchor_names_the_last_sync(bench: &dyn MediumUnderTest) {
    let mut medium = bench.open();
    for seq in 1..=5 {
        medium.append(GroupSeq(seq), b"x", 1).unwrap();
        medium.sync(tail(seq)).unwrap();
        assert_eq!(medium.anchor(), Ok(Some(tail(seq))));
    }
    medium.append(GroupSeq(6), b"x", 1).unwrap();
    medium.settle_anchor().unwrap();
    medium = bench.reopen(medium);
    assert_eq!(medium.anchor(), Ok(Some(tail(5))));
}

fn shelves_are_separate_and_scan_in_key_order(bench: &dyn MediumUnderTest) {
    let medium = bench.open();
    for shelf in Shelf::ALL {
        for key in ["a", "b1", "b2", "b3", "c"] {
            put(&*medium, shelf, key.as_bytes(), Some(&[shelf as u8]));
        }
    }
    for shelf in Shelf::ALL {
        assert_eq!(medium.shelf_get(shelf, b"b2"), Ok(Some(vec![shelf as u8])));
        let scan = |prefix: &str, from, limit| {
            let found = keys(&*medium, shelf, prefix.as_bytes(), from, limit);
            found.into_iter().map(|key| String::from_utf8(key).unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(scan("", ScanFrom::First, 9), "a b1 b2 b3 c");
        assert_eq!(scan("", ScanFrom::Last, 9), "c b3 b2 b1 a");
        assert_eq!(scan("b", ScanFrom::First, 2), "b1 b2");
        assert_eq!(scan("b", ScanFrom::Last, 2), "b3 b2");
        assert_eq!(scan("b", ScanFrom::After(b"b1"), 9), "b2 b3");
        assert_eq!(scan("b", ScanFrom::Before(b"b3"), 9), "b2 b1");
        assert_eq!(scan("b", ScanFrom::Before(b"b1"), 9), "");
        assert_eq!(scan("", ScanFrom::After(b"c"), 9), "");
        assert_eq!(scan("x", ScanFrom::First, 9), "");
    }
}

fn shelf_batches_replace_and_remove(bench: &dyn MediumUnderTest) {
    let mut medium = bench.open();
    put(&*medium, Shelf::Open, b"k", Some(b"old"));
    put(&*medium, Shelf::Closed, b"gone", Some(b"x"));
    let change = |shelf, key: &[u8], value: Option<&[u8]>| ShelfChange {
        shelf,
        key: key.to_vec(),
        value: value.map(<[u8]>::to_vec),
    };
    medium.change_shelves(&[change(Shelf::Open, b"k", Some(b"new")), change(Shelf::Closed, b"gone", None)]).unwrap();
    medium.sync(tail(0)).unwrap();
    medium = bench.reopen(medium);
    assert_eq!(medium.shelf_get(Shelf::Open, b"k"), Ok(Some(b"new".to_vec())));
    assert_eq!(medium.shelf_get(Shelf::Closed, b"gone"), Ok(None));
}

fn large_shelf_values_leave_nothing_behind(bench: &dyn MediumUnderTest) {
    let medium = bench.open();
    for length in [200_000, 3, 70_000, 0] {
        put(&*medium, Shelf::Archive, b"k", Some(&value(1, length)));
        assert!(medium.shelf_get(Shelf::Archive, b"k").unwrap() == Some(value(1, length)));
        assert_eq!(keys(&*medium, Shelf::Archive, b"", ScanFrom::First, 99), [b"k".to_vec()]);
    }
    put(&*medium, Shelf::Archive, b"k", None);
    assert_eq!(keys(&*medium, Shelf::Archive, b"", ScanFrom::First, 99), Vec::<Vec<u8>>::new());
}

fn blobs_are_kept_by_hash(bench: &dyn MediumUnderTest) {
    let mut medium = bench.open();
    let (one, two) = (vec![1u8; 40_000], b"two".to_vec());
    for bytes in [&one, &two, &one] {
        medium.put_blob(&BlobHash::of(bytes), bytes).unwrap();
    }
    medium = bench.reopen(medium);
    let listed: Vec<BlobHash> = (0..=255).flat_map(|byte| medium.blobs(byte).unwrap()).collect();
    let mut expected = vec![BlobHash::of(&one), BlobHash::of(&two)];
    expected.sort();
    assert_eq!(listed, expected);
    assert_eq!(medium.blob(&BlobHash::of(&one)), Ok(Some(one.clone())));
    medium.remove_blob(&BlobHash::of(&one)).unwrap();
    medium.remove_blob(&BlobHash::of(&one)).unwrap();
    assert_eq!(medium.blob(&BlobHash::of(&one)), Ok(None));
    assert_eq!(medium.blob(&BlobHash::of(&two)), Ok(Some(two)));
}
