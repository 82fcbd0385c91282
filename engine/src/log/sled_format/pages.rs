//! The pages of a database, read one by one from where the table says they lie.
//!
//! Invariant: a part is used only if it is whole, of its page and of its segment; a failure names the byte in the file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::node::{TreeNode, parse_roots};
use super::source::{ReadOnlyFile, read_whole};
use super::table::{Page, PagePart, PageTable};
use super::{HEADER, META_PAGE, SEGMENT, SledMessage, SledMessageKind, message_at};
use crate::log::StorageError;

#[derive(Debug)]
pub(crate) struct Pages {
    db: ReadOnlyFile,
    blobs: PathBuf,
    table: PageTable,
}

impl Pages {
    pub(crate) fn new(db: ReadOnlyFile, blobs: PathBuf, table: PageTable) -> Pages {
        Pages { db, blobs, table }
    }
    pub(crate) fn path(&self) -> &Path {
        self.db.path()
    }
    pub(crate) fn table(&self) -> &PageTable {
        &self.table
    }
    /// The header of the segment that begins there, whole or not.
    pub(crate) fn segment_start(&self, header: &mut Vec<u8>, at: u64) -> Result<(), StorageError> {
        self.db.read(header, at, HEADER)
    }
    fn corrupt(&self, at: u64, detail: &str) -> StorageError {
        StorageError::corrupt("database", self.db.path(), format!("at byte {at}: {detail}"))
    }

    /// Reads every part of every page once, in the order of the file, and hands over the damaged ones.
    pub(crate) fn check(&self, damaged: &mut dyn FnMut(u64, &PagePart, StorageError)) -> Result<(), StorageError> {
        let mut by_segment: BTreeMap<u64, Vec<(u64, PagePart)>> = BTreeMap::new();
        for (page, state) in (0..).zip(&self.table.pages) {
            if *state == Page::Unknown {
                return Err(self.corrupt(0, &format!("page {page} is nowhere")));
            }
            for part in state.parts() {
                by_segment.entry(part.at / SEGMENT).or_default().push((page, *part));
            }
        }
        let mut buffer = Vec::new();
        for (segment, parts) in by_segment {
            self.db.read(&mut buffer, segment * SEGMENT, SEGMENT as usize)?;
            for (page, part) in parts {
                if let Err(why) = self.part(&buffer, (part.at % SEGMENT) as usize, page, &part) {
                    if matches!(why, StorageError::Io { .. }) {
                        return Err(why);
                    }
                    damaged(page, &part, why);
                }
            }
        }
        Ok(())
    }

    /// The kind and the body of a part that lies in `bytes`.
    fn part<'b>(
        &self,
        bytes: &'b [u8],
        at: usize,
        page: u64,
        part: &PagePart,
    ) -> Result<(SledMessageKind, Cow<'b, [u8]>), StorageError> {
        let message = message_at(bytes, at).ok_or_else(|| self.corrupt(part.at, "what lies there has a wrong CRC"))?;
        let SledMessage { kind, is_blob, segment, .. } = message;
        if message.page != page || segment != part.lsn / SEGMENT || is_blob != part.blob.is_some() {
            return Err(self.corrupt(part.at, &format!("page {page} is expected there, and another lies there")));
        }
        match part.blob {
            None => Ok((kind, Cow::Borrowed(message.body))),
            Some(blob) => self.blob(blob).map(|body| (kind, Cow::Owned(body))),
        }
    }

    fn blob(&self, blob: i64) -> Result<Vec<u8>, StorageError> {
        let path = self.blobs.join(blob.to_string());
        let bytes = match read_whole(&path) {
            Ok(bytes) => bytes,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
                return Err(StorageError::corrupt("database", path, "it is missing"));
            }
            Err(why) => return Err(StorageError::io("read", &path, &why)),
        };
        match bytes.split_first_chunk() {
            Some((crc, rest)) if crc32fast::hash(rest) == u32::from_le_bytes(*crc) && !rest.is_empty() => {
                Ok(rest[1..].to_vec())
            }
            _ => Err(StorageError::corrupt("database", path, "at byte 0: its CRC is wrong")),
        }
    }

    fn read(&self, page: u64, part: &PagePart) -> Result<(SledMessageKind, Vec<u8>), StorageError> {
        let mut buffer = Vec::new();
        let room = SEGMENT - part.at % SEGMENT;
        self.db.read(&mut buffer, part.at, part.length.min(room) as usize)?;
        self.part(&buffer, 0, page, part).map(|(kind, body)| (kind, body.into_owned()))
    }

    /// A node; nothing if there is no such page now.
    pub(crate) fn node(&self, page: u64) -> Result<Option<TreeNode>, StorageError> {
        let state = usize::try_from(page).ok().and_then(|page| self.table.pages.get(page));
        let Some(Page::Present { base, changes }) = state else { return Ok(None) };
        let wrong = |part: &PagePart, why: &str| self.corrupt(part.at, &format!("page {page}: {why}"));
        let mut node = match self.read(page, base)? {
            (SledMessageKind::Node, body) => TreeNode::parse(&body).map_err(|why| wrong(base, why))?,
            _ => return Err(wrong(base, "it is no node")),
        };
        for part in changes {
            match self.read(page, part)? {
                (SledMessageKind::Link, body) => node.change(&body).map_err(|why| wrong(part, why))?,
                _ => return Err(wrong(part, "it is no change of a node")),
            }
        }
        Ok(Some(node))
    }

    /// The root of a tree; nothing if there is no such tree.
    pub(crate) fn root(&self, tree: &[u8]) -> Result<Option<u64>, StorageError> {
        let Some(Page::Present { base, .. }) = self.table.pages.get(META_PAGE as usize) else { return Ok(None) };
        match self.read(META_PAGE, base)? {
            (SledMessageKind::Meta, body) => {
                let roots = parse_roots(&body).map_err(|why| self.corrupt(base.at, why))?;
                Ok(roots.into_iter().find(|(name, _)| name == tree).map(|(_, root)| root))
            }
            _ => Err(self.corrupt(base.at, "the list of trees is expected there")),
        }
    }
}
