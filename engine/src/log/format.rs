//! What `bosun.format` says: whose directory it is, and how it is to be read.
//!
//! Text, so that a person can read it, with its CRC. Invariant: a version that this program does not know is told as one,
//! whatever follows it; what follows the lines of a version is not looked at by programs that know no later one.

use std::path::Path;

use super::epoch::StoreOrigin;
use super::error::StorageError;
use super::{FORMAT_VERSION, WAL_FORMAT_VERSION};
use crate::vocabulary::{GroupSeq, hex, unhex};

/// What `bosun.format` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreFormat {
    pub(crate) instance: [u8; 16],
    /// Without the write-ahead files.
    pub(crate) version: u32,
    /// The id of the write-ahead files, if they count.
    pub(crate) wal: Option<[u8; 16]>,
    /// False while the directory is being created.
    pub(crate) ready: bool,
    /// Whether there is a list of runs that a salvage could not save whole.
    pub(crate) held: bool,
    /// What a salvage made it from.
    pub(crate) origin: Option<StoreOrigin>,
}

/// Text, so that a person can read it: three lines and their CRC.
pub(crate) fn print(format: StoreFormat) -> String {
    let state = if format.ready { "ready" } else { "creating" };
    let held = if format.held { "held\n" } else { "" };
    let instance = hex(&format.instance);
    let from = |from: StoreOrigin| format!("from {} {}\n", hex(&from.instance), from.last);
    let from = format.origin.map_or(String::new(), from);
    let wal = format.wal.map_or(String::new(), |id| format!("wal {} over {}\n", hex(&id), format.version));
    let version = if format.wal.is_some() { WAL_FORMAT_VERSION } else { format.version };
    let text = format!("bosun data directory\nformat {version} {state}\ninstance {instance}\n{held}{from}{wal}");
    format!("{text}crc {:08x}\n", crc32fast::hash(text.as_bytes()))
}

pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<StoreFormat, StorageError> {
    let corrupt = |detail: &str| StorageError::corrupt("data directory", path, detail);
    let text = std::str::from_utf8(bytes).map_err(|_| corrupt("it is not text"))?;
    let (content, crc) = text.rsplit_once("crc ").ok_or_else(|| corrupt("it has no CRC line"))?;
    if format!("{:08x}\n", crc32fast::hash(content.as_bytes())) != crc {
        return Err(corrupt("its CRC is wrong"));
    }
    let mut lines = content.lines().skip(1);
    let mut version = lines.next().and_then(|line| line.strip_prefix("format ")).unwrap_or_default().split(' ');
    let found: u32 = version.next().and_then(|n| n.parse().ok()).ok_or_else(|| corrupt("it names no version"))?;
    if found > WAL_FORMAT_VERSION {
        return Err(StorageError::FormatTooNew { file: path.to_owned(), found, supported: WAL_FORMAT_VERSION });
    }
    let ready = match version.next() {
        Some("ready") => true,
        Some("creating") => false,
        _ => return Err(corrupt("it names no state")),
    };
    let instance = lines.next().and_then(|line| line.strip_prefix("instance ")).and_then(unhex);
    let instance = instance.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| corrupt("it names no instance"))?;
    let (mut version, mut wal, mut held, mut origin) = (found, None, false, None);
    // What a version does not know it does not look at.
    for line in lines {
        held |= line == "held";
        if let Some((instance, last)) = line.strip_prefix("from ").and_then(|rest| rest.split_once(' ')) {
            let instance = unhex(instance).and_then(|id| id.try_into().ok());
            origin =
                instance.zip(last.parse().ok()).map(|(instance, last)| StoreOrigin { instance, last: GroupSeq(last) });
        }
        if let Some((id, over)) = line.strip_prefix("wal ").and_then(|rest| rest.split_once(" over ")) {
            wal = unhex(id).and_then(|id| id.try_into().ok());
            version =
                over.parse().ok().filter(|_| wal.is_some()).ok_or_else(|| corrupt("it names no write-ahead files"))?;
        }
    }
    if version > FORMAT_VERSION {
        return Err(corrupt("it names no write-ahead files"));
    }
    Ok(StoreFormat { instance, version, wal, ready, held, origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_file_reads_back_and_any_damage_is_noticed() {
        let origin = Some(StoreOrigin { instance: [8; 16], last: GroupSeq(9) });
        let format = StoreFormat { instance: [7; 16], version: 1, wal: None, ready: true, held: true, origin };
        let text = print(format);
        assert_eq!(parse(Path::new("f"), text.as_bytes()), Ok(format));
        let format = StoreFormat { wal: Some([0xa5; 16]), ..format };
        let text = print(format);
        assert_eq!(parse(Path::new("f"), text.as_bytes()), Ok(format));
        // What a program of format 2 looks at.
        assert!(text.contains("\nformat 3 ready\n"), "{text}");
        for bit in 0..text.len() * 8 {
            let mut damaged = text.clone().into_bytes();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(Path::new("f"), &damaged).is_err(), "bit {bit} passed");
        }
    }

    /// G9: a newer format is refused by name.
    #[test]
    fn a_newer_format_is_refused() {
        let content = "bosun data directory\nformat 9 ready\nwhatever comes then\n";
        let text = format!("{content}crc {:08x}\n", crc32fast::hash(content.as_bytes()));
        let refused = parse(Path::new("f"), text.as_bytes());
        assert!(matches!(refused, Err(StorageError::FormatTooNew { found: 9, .. })), "{refused:?}");
    }
}
