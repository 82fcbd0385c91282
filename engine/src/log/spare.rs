//! What is in the files of a directory twice, or is needed only by who writes: damage there costs nothing yet.
//!
//! Reading a store does not come across it: the other slot of the tail anchor, headers of files, the list of held runs once it
//! was read. A verification looks at it all the same, since what is damaged is not what was written, and the disk may do it again.
//!
//! Invariant: nothing is changed, and nothing is told of a directory that a crash left in order. What no entry names any more is
//! not looked at: values and groups that were overwritten or removed, pages that were written again, room that was reserved,
//! payloads without a run.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::anchor::AnchorFile;
use super::error::StorageError;
use super::files::DataDir;
use super::look::check_conf;
use super::sled_format::pages::Pages;
use super::sled_format::{SEGMENT, segment_header};
use super::values::ValueFiles;

/// A part of a file that is not what was written, while all that counts can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPart {
    /// The file.
    pub file: PathBuf,
    /// Where in it, if that is known.
    pub offset: Option<u64>,
    /// What it is, and what becomes of it.
    pub detail: String,
}

impl DamagedPart {
    pub(crate) fn new(file: PathBuf, offset: u64, detail: &str) -> DamagedPart {
        let detail = format!("{}: at byte {offset}: {detail}", file.display());
        DamagedPart { file, offset: Some(offset), detail }
    }

    fn of(file: PathBuf, why: &StorageError) -> DamagedPart {
        DamagedPart { file, offset: None, detail: why.to_string() }
    }
}

/// What can be looked at beside a worker that writes.
pub(crate) fn check(dir: &DataDir, instance: [u8; 16], files: [&ValueFiles; 2]) -> Vec<DamagedPart> {
    let mut found = Vec::new();
    match AnchorFile::damaged_slots(&dir.anchor(), instance) {
        Ok(slots) => found.extend(slots.into_iter().map(|at| {
            let detail = "this slot of the tail anchor is damaged; the other one counts, and the next start writes this one anew";
            DamagedPart::new(dir.anchor(), at, detail)
        })),
        Err(why) => found.push(DamagedPart::of(dir.anchor(), &why)),
    }
    let conf = dir.sled().join("conf");
    found.extend(check_conf(&conf).err().map(|why| DamagedPart::of(conf, &why)));
    found.extend(dir.identify().err().map(|why| DamagedPart::of(dir.format(), &why)));
    found.extend(dir.read_held().err().map(|why| DamagedPart::of(dir.held_list(), &why)));
    files.into_iter().for_each(|files| files.check(&mut found));
    found
}

/// The headers of the segments in which pages lie: with a snapshot, nobody reads them.
pub(crate) fn check_segments(pages: &Pages) -> Vec<DamagedPart> {
    let used: BTreeSet<u64> =
        pages.table().pages.iter().flat_map(|page| page.parts()).map(|part| part.at / SEGMENT * SEGMENT).collect();
    let (mut header, mut found) = (Vec::new(), Vec::new());
    for at in used {
        match pages.segment_start(&mut header, at) {
            Ok(()) if segment_header(&header).is_some() => {}
            Ok(()) => {
                let detail = "the header of a segment is damaged; all pages in it are whole, and `bosun store compact` writes a new file";
                found.push(DamagedPart::new(pages.path().to_owned(), at, detail));
            }
            Err(why) => found.push(DamagedPart::of(pages.path().to_owned(), &why)),
        }
    }
    found
}
