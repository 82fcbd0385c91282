//! Which files of values may hold less than half of what they could.
//!
//! Invariant: a file is looked at only when what was taken from it is durable, and not again before as much more was
//! taken as would change the answer: so a removal costs no look at a file by itself. Counts only; it reads and removes
//! nothing.

use std::collections::BTreeMap;

use super::values::ValuePlace;

/// Files looked at, at a time.
const FILES: usize = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sweep {
    files: BTreeMap<u64, FileUsage>,
}

#[derive(Debug, Clone, Copy)]
struct FileUsage {
    /// The change that last took something from it.
    at: u64,
    /// Bytes that do not count any more; unknown until the file was looked at.
    dead: Option<u64>,
    length: u64,
}

impl Sweep {
    /// The files that a former process left: nobody knows what counts in them.
    pub(crate) fn of(files: &[u64]) -> Sweep {
        let unknown = FileUsage { at: 0, dead: None, length: 0 };
        Sweep { files: files.iter().map(|file| (*file, unknown)).collect() }
    }

    /// An entry names this place no more.
    pub(crate) fn replaced(&mut self, place: ValuePlace, length: u64, at: u64) {
        // A file that is not known was made by this process, and everything in it counted.
        let seen = self.files.entry(place.file).or_insert(FileUsage { at, dead: Some(0), length });
        (seen.at, seen.length) = (at, length);
        seen.dead = seen.dead.map(|dead| dead + place.bytes());
    }

    /// The files to look at: finished ones, by what is durable.
    pub(crate) fn ready(&self, durable: u64, finished: &[u64]) -> Vec<u64> {
        let worth = |seen: &FileUsage| seen.dead.is_none_or(|dead| dead * 2 > seen.length);
        let ready = self
            .files
            .iter()
            .filter(|(file, seen)| seen.at <= durable && worth(seen) && finished.binary_search(file).is_ok());
        ready.map(|(file, _)| *file).take(FILES).collect()
    }

    pub(crate) fn looked_at(&mut self, file: u64, length: u64, dead: u64) {
        // Asked for again when more is dead than now.
        let seen = self.files.entry(file).or_insert(FileUsage { at: 0, dead: None, length });
        (seen.dead, seen.length) = (Some(dead), length);
    }

    /// What counted in it was written elsewhere.
    pub(crate) fn emptied(&mut self, file: u64, length: u64, at: u64) {
        self.files.insert(file, FileUsage { at, dead: Some(length), length });
    }

    /// It is gone, or is left alone until the next open.
    pub(crate) fn forget(&mut self, file: u64) {
        self.files.remove(&file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(file: u64, length: u32) -> ValuePlace {
        ValuePlace::at(file, 32, length)
    }

    #[test]
    fn a_file_is_looked_at_when_half_of_it_is_dead_durably() {
        let mut sweep = Sweep::of(&[]);
        let finished = [1, 2];
        sweep.replaced(place(1, 400), 1_000, 5);
        assert!(sweep.ready(9, &finished).is_empty(), "most of it counts");
        sweep.replaced(place(1, 200), 1_000, 7);
        sweep.replaced(place(3, 900), 1_000, 7);
        assert!(sweep.ready(6, &finished).is_empty(), "it is not durable");
        assert_eq!(sweep.ready(7, &finished), [1], "the third is still written to");
        sweep.emptied(1, 1_000, 8);
        assert_eq!((sweep.ready(7, &finished), sweep.ready(8, &finished)), (vec![], vec![1]));
        sweep.forget(1);
        assert!(sweep.ready(8, &finished).is_empty());
    }

    #[test]
    fn a_file_of_a_former_process_is_looked_at_once() {
        let mut sweep = Sweep::of(&[1, 2, 3]);
        assert_eq!(sweep.ready(0, &[1, 2, 3]), [1, 2], "a few at a time");
        sweep.looked_at(1, 1_000, 400);
        sweep.forget(2);
        assert_eq!(sweep.ready(0, &[1, 2, 3]), [3]);
        sweep.replaced(place(1, 200), 1_000, 1);
        assert_eq!(sweep.ready(1, &[1, 2, 3]), [1, 3]);
    }
}
