//! What is in a file of values, found from its start: for whoever sweeps, saves, or begins to write behind it.
//!
//! Invariant: a frame counts when its head proves itself; behind a torn one none is found, but by a salvage, which looks at
//! every byte and says what is damaged. Nothing is written.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use super::{HEAD, HEADER, ValueFiles, ValueFrame, ValuePlace, number};
use crate::log::error::StorageError;
use crate::log::sled_format::source::ReadOnlyFile;

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
