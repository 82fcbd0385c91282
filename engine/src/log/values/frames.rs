//! What is in a file of values, found from its start: for whoever sweeps, saves, or begins to write behind it.
//!
//! Invariant: a frame counts when its head proves itself; behind a torn one none is found, but by a salvage, which looks at
//! every byte and says what is damaged. Nothing is written.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use super::{HEAD, HEADER, MAGIC, ValueFiles, ValueFrame, ValuePlace, number};
use crate::log::error::StorageError;
use crate::log::sled_format::source::ReadOnlyFile;
use crate::log::spare::DamagedPart;

impl ValueFiles {
    /// The frames of a file in order, and whether they are all: whether they reach to its end.
    pub(crate) fn frames(&self, name: u64) -> Result<(Vec<ValueFrame>, bool), StorageError> {
        match self.existing(name) {
            Err(StorageError::Io { kind: ErrorKind::NotFound, .. }) => Ok((Vec::new(), true)),
            Err(why) => Err(why),
            Ok(file) => self.frames_of(name, &file),
        }
    }

    pub(super) fn frames_of(&self, name: u64, file: &File) -> Result<(Vec<ValueFrame>, bool), StorageError> {
        let length = self.length(name, file)?;
        let (mut frames, mut at) = (Vec::new(), HEADER);
        while at < length {
            let mut head = vec![0; (length - at).min((HEAD + 255) as u64) as usize];
            file.read_exact_at(&mut head, at).map_err(|why| StorageError::io("read", &self.path(name), &why))?;
            let key_end = HEAD + head.get(16).map_or(0, |length| usize::from(*length));
            let Some(rest) = head.get(4..key_end).filter(|rest| crc32fast::hash(rest) == number(&head, 0)) else {
                break;
            };
            let place = ValuePlace { file: name, offset: at, length: number(&head, 8) };
            let end = at + key_end as u64 + u64::from(place.length);
            if end > length {
                break;
            }
            frames.push(ValueFrame { key: rest[HEAD - 4..].to_vec(), place, end });
            at = end;
        }
        Ok((frames, at == length))
    }

    /// Headers that are damaged, and frames that hide those behind them from who begins at the start.
    pub(crate) fn check(&self, found: &mut Vec<DamagedPart>) {
        for name in self.names() {
            match self.damaged_part(name) {
                Ok(part) => found.extend(part),
                Err(why) => {
                    found.push(DamagedPart { file: self.path(name), offset: None, detail: why.to_string() });
                }
            }
        }
    }

    fn damaged_part(&self, name: u64) -> Result<Option<DamagedPart>, StorageError> {
        let path = self.path(name);
        let file = match self.existing(name) {
            Err(StorageError::Io { kind: ErrorKind::NotFound, .. }) => return Ok(None),
            file => file?,
        };
        let mut header = [0; HEADER as usize];
        match file.read_exact_at(&mut header, 0) {
            // A crash cut short how it was made: nothing is in it.
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read.map_err(|why| StorageError::io("read", &path, &why))?,
        }
        let (frames, all) = self.frames_of(name, &file)?;
        let is_whole = header[..16] == MAGIC && header[16..] == self.instance;
        if !is_whole && !frames.is_empty() {
            let detail =
                "its header is damaged; all values in it prove themselves, and `bosun store compact` writes new files";
            return Ok(Some(DamagedPart::new(path, 0, detail)));
        }
        let end = frames.last().map_or(HEADER, |frame| frame.end);
        // Behind a torn end nothing is ever written.
        if all || !self.goes_on_behind(name, end)? {
            return Ok(None);
        }
        let detail = "the head of a value is damaged, and values follow; what counts is read without it, and `bosun store \
                      compact` writes new files";
        Ok(Some(DamagedPart::new(path, end, detail)))
    }

    /// Whether a whole value lies behind a place where none begins.
    fn goes_on_behind(&self, name: u64, end: u64) -> Result<bool, StorageError> {
        let (source, mut bytes) = (ReadOnlyFile::open(&self.path(name))?, Vec::new());
        source.read(&mut bytes, end, usize::try_from(source.length()).unwrap_or(usize::MAX))?;
        let is_whole = |at: usize| {
            let body_at = at + HEAD + usize::from(bytes[at + 16]);
            let head = bytes.get(at + 4..body_at).filter(|head| crc32fast::hash(head) == number(&bytes, at));
            let body = head.and_then(|_| bytes.get(body_at..body_at.checked_add(number(&bytes, at + 8) as usize)?));
            body.is_some_and(|body| crc32fast::hash(body) == number(&bytes, at + 4))
        };
        // One that begins right there has come since: a worker is writing.
        let places = bytes.len().saturating_sub(HEAD);
        Ok(places > 0 && !is_whole(0) && (1..places).any(is_whole))
    }

    /// Every value of a file that is whole, with its key, also behind damage.
    pub(crate) fn salvage(&self, name: u64, damage: &mut Vec<String>) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StorageError> {
        let source = ReadOnlyFile::open(&self.path(name))?;
        let (mut bytes, mut found, mut at) = (Vec::new(), Vec::new(), HEADER as usize);
        let failed = source.read_around(&mut bytes, 0, usize::try_from(source.length()).unwrap_or(usize::MAX));
        damage.extend(failed.iter().map(ToString::to_string));
        while at + HEAD <= bytes.len() {
            let body_at = at + HEAD + usize::from(bytes[at + 16]);
            let Some(rest) = bytes.get(at + 4..body_at).filter(|rest| crc32fast::hash(rest) == number(&bytes, at))
            else {
                at += 1;
                continue;
            };
            let end = body_at.saturating_add(number(&bytes, at + 8) as usize);
            let body = bytes.get(body_at..end).filter(|body| crc32fast::hash(body) == number(&bytes, at + 4));
            let value = body.and_then(|body| match number(&bytes, at + 12) {
                0 => Some(body.to_vec()),
                unpacked => self.reading().unpacker.unpack(body, unpacked as usize).ok(),
            });
            match value {
                Some(value) => found.push((rest[HEAD - 4..].to_vec(), value)),
                None => damage.push(format!("{}: at byte {at}: a value is damaged", source.path().display())),
            }
            at = if body.is_some() { end } else { body_at };
        }
        Ok(found)
    }
}
