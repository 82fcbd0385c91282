//! Files of values that are too long for the database, written once and never again.
//!
//! sled writes a value again whenever it consolidates or splits the leaf it lies in: measured, one of some 2 KiB cost two
//! to four times its length, and one above 128 KiB leaves its log altogether. So long values are appended to the newest
//! file here, and the database keeps a [`ValuePlace`] of a few bytes.
//!
//! ```text
//! file  = "bosun values 1\n\0" | instance [16] | frame*
//! frame = crc32 of the head behind it u32 | crc32 of the body u32 | body length u32 | unpacked length u32
//!         | key length u8 | key | body          (unpacked length 0: the body is not packed)
//! ```
//!
//! Invariant: the entry in the database decides what counts; a frame without one is never read. Nothing is ever
//! overwritten: files are appended to, synced before an entry names what is in them, and removed as a whole by whoever
//! knows that their entries are gone for good (`sled.rs`). A file that ends in a torn frame gets a successor, so that all frames of a whole file can be found from
//! its start. What a value holds is checked by its reader.
//!
//! Here files are written and read; `frames` finds what is in one, `place` says where a value is.

mod frames;
mod place;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::StorageError;
use super::files::sync_dir;
use super::packing::{Packer, Unpacker};
use super::private;
use super::room::Room;
use super::sled_format::source::reading;
use crate::seeded::{self, Bug};

pub(crate) use place::{ValueFrame, ValuePlace};

const MAGIC: [u8; 16] = *b"bosun values 1\n\0";
const HEADER: u64 = 32;
/// The head of a frame without its key.
const HEAD: usize = 17;

/// See the module.
#[derive(Debug)]
pub(crate) struct ValueFiles {
    dir: PathBuf,
    instance: [u8; 16],
    /// A file that has reached this length gets a successor.
    file_bytes: u64,
    writing: Mutex<Writing>,
    reading: Mutex<ReadCache>,
    room: Option<Arc<Room>>,
}

#[derive(Debug, Default)]
struct Writing {
    files: BTreeSet<u64>,
    newest: Option<CurrentFile>,
    /// The last file is not to be written to.
    sealed: bool,
    dirty: bool,
    /// The directory has an entry that is not durable.
    new_entry: bool,
    packer: Packer,
}

/// The file that is written to.
#[derive(Debug, Clone)]
struct CurrentFile {
    name: u64,
    file: Arc<File>,
    length: u64,
}

#[derive(Debug, Default)]
struct ReadCache {
    /// The file read last: histories are read in order.
    file: Option<(u64, Arc<File>)>,
    unpacker: Unpacker,
}

impl ValueFiles {
    /// The files in `dir`, which may not be there yet. What a killed process left is made durable: only the last file and
    /// the directory, since each file is synced before its successor is made.
    pub(crate) fn open(dir: PathBuf, instance: [u8; 16], file_bytes: u64) -> Result<Self, StorageError> {
        let files = match listed(&dir)? {
            Some(files) => {
                if let Some(path) = files.last().map(|last| dir.join(format!("{last:016x}"))) {
                    let synced = File::open(&path).and_then(|file| file.sync_all());
                    synced.map_err(|why| StorageError::io("fsync", &path, &why))?;
                }
                sync_dir(&dir)?;
                files
            }
            None => BTreeSet::new(),
        };
        let writing = Mutex::new(Writing { files, ..Writing::default() });
        Ok(ValueFiles { dir, instance, file_bytes, writing, reading: Mutex::default(), room: None })
    }

    /// The files in `dir`, only to read from.
    pub(crate) fn look(dir: PathBuf, instance: [u8; 16]) -> Result<Self, StorageError> {
        let writing = Mutex::new(Writing { files: listed(&dir)?.unwrap_or_default(), ..Writing::default() });
        Ok(ValueFiles { dir, instance, file_bytes: 0, writing, reading: Mutex::default(), room: None })
    }

    /// Asks for room before it writes.
    pub(crate) fn with_room(self, room: Arc<Room>) -> Self {
        ValueFiles { room: Some(room), ..self }
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn reading(&self) -> MutexGuard<'_, ReadCache> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn path(&self, file: u64) -> PathBuf {
        self.dir.join(format!("{file:016x}"))
    }
    /// Lets the next value begin a new file. Answers a number above all names until then. Not while a value is being
    /// written.
    pub(crate) fn seal(&self) -> u64 {
        let mut writing = self.writing();
        (writing.newest, writing.sealed) = (None, true);
        writing.files.last().map_or(0, |last| last + 1)
    }
    /// The names of all files, in order.
    pub(crate) fn names(&self) -> Vec<u64> {
        self.writing().files.iter().copied().collect()
    }
    /// The names of all files but the one that is written to, in order.
    pub(crate) fn finished(&self) -> Vec<u64> {
        let writing = self.writing();
        let open = usize::from(!writing.sealed);
        writing.files.iter().copied().take(writing.files.len().saturating_sub(open)).collect()
    }

    /// Appends a value; durable after the next [`ValueFiles::sync`]. If it needs a new file, that is called `name`, or
    /// the number behind the last one if that is higher.
    pub(crate) fn write(&self, name: Option<u64>, key: &[u8], value: &[u8]) -> Result<ValuePlace, StorageError> {
        self.write_as(true, name, key, value)
    }

    /// The same, packed or not.
    pub(crate) fn write_as(
        &self,
        pack: bool,
        name: Option<u64>,
        key: &[u8],
        value: &[u8],
    ) -> Result<ValuePlace, StorageError> {
        let mut writing = self.writing();
        let packed = if pack { writing.packer.pack(value) } else { None };
        let unpacked = packed.as_ref().map_or(0, |_| value.len());
        let body = packed.as_deref().unwrap_or(value);
        let too_long = |_| StorageError::corrupt("value", &self.dir, "it exceeds 4 GiB, or its key 255 bytes");
        let length = u32::try_from(body.len()).map_err(too_long)?;
        let mut head = crc32fast::hash(body).to_be_bytes().to_vec();
        head.extend_from_slice(&length.to_be_bytes());
        head.extend_from_slice(&u32::try_from(unpacked).map_err(too_long)?.to_be_bytes());
        head.push(u8::try_from(key.len()).map_err(too_long)?);
        head.extend_from_slice(key);
        let frame = [crc32fast::hash(&head).to_be_bytes().as_slice(), &head, body].concat();
        let newest = self.newest(&mut writing, name)?;
        let place = ValuePlace { file: newest.name, offset: newest.length, length };
        if let Some(room) = &self.room {
            room.claim(&newest.file, &self.path(newest.name), newest.length, frame.len() as u64)?;
        }
        let written = newest.file.write_all_at(&frame, newest.length);
        written.map_err(|why| StorageError::io("write", &self.path(place.file), &why))?;
        writing.newest = Some(CurrentFile { length: newest.length + frame.len() as u64, ..newest });
        writing.dirty = true;
        Ok(place)
    }

    /// The file that takes the next frame.
    fn newest(&self, writing: &mut Writing, name: Option<u64>) -> Result<CurrentFile, StorageError> {
        // Never the name of one that is there, nor a lower one: what is removed is removed by these numbers.
        let name = name.unwrap_or(1).max(writing.files.last().map_or(1, |last| last + 1));
        if writing.newest.is_none()
            && !writing.sealed
            && let Some(last) = writing.files.last().copied()
        {
            writing.newest = self.whole(last)?;
        }
        if let Some(newest) = &writing.newest {
            if newest.length < self.file_bytes {
                return Ok(newest.clone());
            }
            let synced = newest.file.sync_data();
            synced.map_err(|why| StorageError::io("fsync", &self.path(newest.name), &why))?;
        }
        let path = self.path(name);
        let io = |why: std::io::Error| StorageError::io("create", &path, &why);
        let make = || private::create(&path).map_err(|why| io(why).before_a_change());
        let file = self.room.as_ref().map_or_else(make, |room| room.make(make))?;
        if let Some(room) = &self.room {
            room.claim(&file, &path, 0, HEADER)?;
        }
        file.write_all_at(&[MAGIC, self.instance].concat(), 0).map_err(io)?;
        writing.files.insert(name);
        (writing.dirty, writing.new_entry, writing.sealed) = (true, true, false);
        let newest = CurrentFile { name, file: Arc::new(file), length: HEADER };
        // Known from here on, so that what asks again for want of room writes to this one.
        writing.newest = Some(newest.clone());
        Ok(newest)
    }

    /// A file of a former process, if it can be appended to: frames from its start to its end.
    fn whole(&self, name: u64) -> Result<Option<CurrentFile>, StorageError> {
        let path = self.path(name);
        let file = private::open(&path, OpenOptions::new().read(true).write(true));
        let file = file.map(Arc::new).map_err(|why| StorageError::io("open", &path, &why))?;
        let mut header = [0; HEADER as usize];
        match file.read_exact_at(&mut header, 0) {
            Ok(()) if header[..16] == MAGIC && header[16..] == self.instance => {}
            Err(why) if why.kind() != ErrorKind::UnexpectedEof => {
                return Err(StorageError::io("read", &self.path(name), &why));
            }
            _ => return Ok(None),
        }
        let length = self.length(name, &file)?;
        let (frames, _) = self.frames_of(name, &file)?;
        let end = frames.last().map_or(HEADER, |frame| frame.end);
        Ok((end == length).then_some(CurrentFile { name, file, length }))
    }

    /// Makes everything durable that was written.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        let mut writing = self.writing();
        if writing.dirty
            && let Some(newest) = &writing.newest
            && !seeded::on(Bug::ValueNotSynced)
        {
            let synced = newest.file.sync_data();
            synced.map_err(|why| StorageError::io("fsync", &self.path(newest.name), &why))?;
            writing.dirty = false;
        }
        if writing.new_entry {
            sync_dir(&self.dir)?;
            writing.new_entry = false;
        }
        Ok(())
    }

    /// The value at a place; nothing if the file is gone.
    pub(crate) fn read(&self, key: &[u8], place: ValuePlace) -> Result<Option<Vec<u8>>, StorageError> {
        let path = self.path(place.file);
        let corrupt =
            |detail: &str| StorageError::corrupt("value", &path, format!("at byte {}: {detail}", place.offset));
        let io = |why: std::io::Error| StorageError::io("read", &path, &why);
        let file = match self.opened(place.file) {
            Err(StorageError::Io { kind: ErrorKind::NotFound, .. }) => return Ok(None),
            file => file?,
        };
        let (length, start) = (self.length(place.file, &file)?, place.offset.saturating_add((HEAD + key.len()) as u64));
        if start.saturating_add(u64::from(place.length)) > length {
            return Err(corrupt(&format!("the file ends at byte {length}, before the value does")));
        }
        let mut bytes = vec![0; HEAD + key.len() + place.length as usize];
        reading().and_then(|()| file.read_exact_at(&mut bytes, place.offset)).map_err(io)?;
        let (head, body) = bytes.split_at(HEAD + key.len());
        if number(head, 0) != crc32fast::hash(&head[4..]) {
            return Err(corrupt("the head of its frame has another CRC"));
        }
        if number(head, 8) != place.length || &head[HEAD..] != key {
            return Err(corrupt("another value lies there"));
        }
        if number(head, 4) != crc32fast::hash(body) {
            return Err(corrupt("it has another CRC"));
        }
        match number(head, 12) {
            0 => Ok(Some(body.to_vec())),
            unpacked => {
                let value = self.reading().unpacker.unpack(body, unpacked as usize);
                value.map(Some).map_err(|why| corrupt(&why))
            }
        }
    }

    fn opened(&self, name: u64) -> Result<Arc<File>, StorageError> {
        let mut reading = self.reading();
        match &reading.file {
            Some((known, file)) if *known == name => Ok(file.clone()),
            _ => {
                let file = self.existing(name)?;
                reading.file = Some((name, file.clone()));
                Ok(file)
            }
        }
    }

    /// Opens a file. Its header is for whoever appends: each frame proves itself, and the reader of a value knows whether
    /// it belongs to this data directory.
    fn existing(&self, name: u64) -> Result<Arc<File>, StorageError> {
        let path = self.path(name);
        private::open(&path, OpenOptions::new().read(true))
            .map(Arc::new)
            .map_err(|why| StorageError::io("open", &path, &why))
    }

    /// The length of a file; 0 if it is gone.
    pub(crate) fn length_of(&self, name: u64) -> Result<u64, StorageError> {
        match fs::metadata(self.path(name)) {
            Ok(found) => Ok(found.len()),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(0),
            Err(why) => Err(StorageError::io("read", &self.path(name), &why)),
        }
    }

    fn length(&self, name: u64, file: &File) -> Result<u64, StorageError> {
        file.metadata().map(|found| found.len()).map_err(|why| StorageError::io("read", &self.path(name), &why))
    }

    /// Removes a finished file.
    pub(crate) fn remove(&self, name: u64) -> Result<(), StorageError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(why) if why.kind() != ErrorKind::NotFound => return Err(StorageError::io("remove", &path, &why)),
            _ => {}
        }
        self.writing().files.remove(&name);
        // An open handle would keep its space.
        self.reading().file.take_if(|(known, _)| *known == name);
        Ok(())
    }
}

/// The names of the files in a directory; nothing if there is no such directory.
fn listed(dir: &Path) -> Result<Option<BTreeSet<u64>>, StorageError> {
    let io = |why: std::io::Error| StorageError::io("list", dir, &why);
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(io(why)),
    };
    let mut files = BTreeSet::new();
    for entry in entries {
        files.extend(entry.map_err(io)?.file_name().to_str().and_then(parse_name));
    }
    Ok(Some(files))
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |number| u32::from_be_bytes(*number))
}

/// The number in a file name; other files are not ours.
fn parse_name(name: &str) -> Option<u64> {
    u64::from_str_radix(name, 16).ok().filter(|number| format!("{number:016x}") == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &std::path::Path) -> ValueFiles {
        ValueFiles::open(dir.to_owned(), [1; 16], 2_000).unwrap()
    }

    /// Text that does not get smaller, so that files fill.
    fn value(n: u64) -> Vec<u8> {
        let mut state = n * 0x9e37_79b9 + 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..600).map(|_| next()).collect()
    }

    fn write(files: &ValueFiles, n: u64) -> ValuePlace {
        files.write(None, &n.to_be_bytes(), &value(n)).unwrap()
    }

    #[test]
    fn values_come_back_from_their_places_and_frames_are_found_from_the_start() {
        let home = tempfile::tempdir().unwrap();
        let (mut files, mut places) = (open(home.path()), Vec::new());
        for n in 0..20 {
            places.push(write(&files, n));
            if n == 9 {
                files = open(home.path());
            }
        }
        files.write(None, b"packed", &[7; 5_000]).unwrap();
        files.sync().unwrap();
        for (n, place) in (0..).zip(&places) {
            assert_eq!(files.read(&u64::to_be_bytes(n), *place), Ok(Some(value(n))));
            assert_eq!(ValuePlace::from_bytes(&place.to_bytes()), Some(*place));
        }
        let names: BTreeSet<u64> = places.iter().map(|place| place.file).collect();
        assert_eq!(names.len(), 5, "four values fill a file: {names:?}");
        let mut found = Vec::new();
        for name in names {
            let (frames, all) = files.frames(name).unwrap();
            assert!(all);
            found.extend(frames.into_iter().filter(|frame| frame.key.len() == 8).map(|frame| frame.place));
        }
        assert_eq!(found, places);
    }

    /// G2: a crash leaves a torn frame, zeros, or nothing; the next process begins a new file, and loses none before.
    #[test]
    fn a_file_with_a_torn_end_gets_a_successor() {
        for cut in [1, 16, 31, 32, 40, 600, 650, 660, 1_250] {
            let home = tempfile::tempdir().unwrap();
            let first = write(&open(home.path()), 1);
            let path = open(home.path()).path(first.file);
            let second = write(&open(home.path()), 2);
            assert_eq!(second.file, first.file);
            let bytes = std::fs::read(&path).unwrap();
            let zeros = vec![0; bytes.len() - cut.min(bytes.len())];
            for torn in [bytes[..cut.min(bytes.len())].to_vec(), [&bytes[..cut.min(bytes.len())], &zeros].concat()] {
                std::fs::write(&path, &torn).unwrap();
                let files = open(home.path());
                let third = write(&files, 3);
                // A torn body behind a whole head is stepped over.
                let heads = [32, 657, 682].iter().filter(|end| cut >= **end).count();
                let is_whole = [32, 657].contains(&torn.len()) || (heads == 3 && torn.len() == bytes.len());
                assert_eq!(third.file == first.file, is_whole, "cut at {cut}, {} bytes", torn.len());
                assert_eq!(files.read(&3u64.to_be_bytes(), third), Ok(Some(value(3))));
                if !is_whole && cut >= first.offset as usize + 625 {
                    assert_eq!(files.read(&1u64.to_be_bytes(), first), Ok(Some(value(1))));
                }
                std::fs::remove_file(files.path(third.file)).unwrap();
                std::fs::write(&path, &bytes).unwrap();
            }
        }
    }

    /// G6: every flipped bit of a file is noticed by who reads from it, and named with the file.
    #[test]
    fn every_flipped_bit_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        let (files, key) = (open(home.path()), 5u64.to_be_bytes());
        let place = write(&files, 5);
        let path = files.path(place.file);
        let whole = std::fs::read(&path).unwrap();
        for bit in HEADER as usize * 8..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, damaged).unwrap();
            let read = open(home.path()).read(&key, place);
            assert!(matches!(&read, Err(StorageError::Corrupt { file, .. }) if *file == path), "bit {bit}: {read:?}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(files.read(&6u64.to_be_bytes(), place).is_err(), "the value of another key");
        // The header says only whether a file may be appended to.
        for at in [0, 20] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(open(home.path()).read(&key, place), Ok(Some(value(5))));
            let next = write(&open(home.path()), 6);
            assert!(next.file > place.file);
            std::fs::remove_file(files.path(next.file)).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(open(home.path()).read(&key, place), Ok(None));
    }

    #[test]
    fn a_sealed_file_is_written_to_no_more() {
        let home = tempfile::tempdir().unwrap();
        let files = open(home.path());
        assert_eq!(files.seal(), 0);
        let first = write(&files, 1);
        assert!(files.finished().is_empty());
        assert_eq!(files.seal(), first.file + 1);
        assert_eq!(files.finished(), [first.file]);
        let second = write(&files, 2);
        assert!(second.file > first.file);
        assert_eq!(files.finished(), [first.file]);
        files.remove(first.file).unwrap();
        files.remove(first.file).unwrap();
        assert_eq!(files.read(&1u64.to_be_bytes(), first), Ok(None));
        assert_eq!(files.read(&2u64.to_be_bytes(), second), Ok(Some(value(2))));
    }
}
