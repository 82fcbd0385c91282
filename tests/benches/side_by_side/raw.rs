//! The physical limit: a plain file, append and fdatasync, with the same group size and bytes.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// Appends `total` records of `bytes` in groups of `group`, each group with one write and one fdatasync.
pub(crate) fn appends(group: usize, total: usize, bytes: usize) -> Duration {
    let directory = tempfile::tempdir_in(super::flows::bench_dir()).expect("a directory");
    let path = directory.path().join("raw");
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    let record = vec![7u8; bytes * group];
    file.write_all(&record).expect("a write");
    file.sync_all().expect("a sync");
    super::timed(|| {
        for _ in 0..total.div_ceil(group) {
            file.write_all(&record).expect("a write");
            file.sync_data().expect("a sync");
        }
    })
}
