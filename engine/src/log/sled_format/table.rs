//! Where the parts of each page lie, and the snapshot file that keeps it.
//!
//! Invariant: a table that was printed is read back the same, by sled too; a snapshot whose CRC is wrong is none.

use super::{put_number, take_number};

/// A message that a page is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PagePart {
    pub(crate) lsn: u64,
    /// Where it begins in `db`.
    pub(crate) at: u64,
    /// The body is in this file under `blobs/`.
    pub(crate) blob: Option<i64>,
    pub(crate) length: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    /// A number that no page has had, as far as the log tells.
    Unknown,
    Free(PagePart),
    Present {
        base: PagePart,
        changes: Vec<PagePart>,
    },
}

impl Page {
    /// The messages it is made of; none that count for a free one.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &PagePart> {
        let (base, changes) = match self {
            Page::Present { base, changes } => (Some(base), changes.as_slice()),
            Page::Unknown | Page::Free(_) => (None, [].as_slice()),
        };
        base.into_iter().chain(changes)
    }
}

/// The pages up to a place in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PageTable {
    /// The LSN of the first message that is not in it.
    pub(crate) stable: u64,
    /// The segment that goes on behind it.
    pub(crate) active: Option<u64>,
    pub(crate) pages: Vec<Page>,
}

impl PageTable {
    fn slot(&mut self, page: u64) -> Option<&mut Page> {
        let index = usize::try_from(page).ok().filter(|index| *index < 1 << 37)?;
        if self.pages.len() <= index {
            self.pages.resize(index + 1, Page::Unknown);
        }
        self.pages.get_mut(index)
    }
    pub(crate) fn replace(&mut self, page: u64, base: PagePart) {
        if let Some(slot) = self.slot(page) {
            *slot = Page::Present { base, changes: Vec::new() };
        }
    }
    pub(crate) fn free(&mut self, page: u64, part: PagePart) {
        if let Some(slot) = self.slot(page) {
            *slot = Page::Free(part);
        }
    }
    /// A change of a page whose base is not known was overtaken by a base further on.
    pub(crate) fn change(&mut self, page: u64, part: PagePart) {
        let known = usize::try_from(page).ok().and_then(|page| self.pages.get_mut(page));
        if let Some(Page::Present { base, changes }) = known
            && changes.last().map_or(base.lsn, |last| last.lsn) < part.lsn
        {
            changes.push(part);
        }
    }

    /// The bytes of a snapshot file; nothing if there is a page that it cannot hold.
    pub(crate) fn print(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        out.extend_from_slice(&(i64::try_from(self.stable).ok()? + 1).to_le_bytes());
        put_number(&mut out, self.active.map_or(0, |active| active + 1));
        for page in &self.pages {
            match page {
                Page::Unknown => return None,
                Page::Free(part) => {
                    out.push(0);
                    put_place(&mut out, part);
                }
                Page::Present { base, changes } => {
                    out.push(u8::try_from(changes.len() + 1).ok()?);
                    for part in std::iter::once(base).chain(changes) {
                        put_place(&mut out, part);
                        put_number(&mut out, part.length);
                    }
                }
            }
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&(out.len() as u64).to_le_bytes());
        out.extend_from_slice(&crc.to_le_bytes());
        Some(out)
    }

    /// The table in a snapshot file, if it is whole.
    pub(crate) fn parse(bytes: &[u8]) -> Option<PageTable> {
        let (content, end) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
        // sled looks at the length only where it compresses, and the CRC does not cover it.
        if crc32fast::hash(content).to_le_bytes() != end[8..] || (content.len() as u64).to_le_bytes() != end[..8] {
            return None;
        }
        let mut input = content;
        let stable = u64::try_from(take_i64(&mut input)?.checked_sub(1)?).ok()?;
        let active = take_number(&mut input)?.checked_sub(1);
        let mut pages = Vec::new();
        while let Some((&count, rest)) = input.split_first() {
            input = rest;
            if count == 0 {
                pages.push(Page::Free(take_place(&mut input)?));
                continue;
            }
            let mut part = || {
                let part = take_place(&mut input)?;
                Some(PagePart { length: take_number(&mut input)?, ..part })
            };
            let base = part()?;
            let changes = (1..count).map(|_| part()).collect::<Option<Vec<PagePart>>>()?;
            pages.push(Page::Present { base, changes });
        }
        Some(PageTable { stable, active, pages })
    }
}

fn put_place(out: &mut Vec<u8>, part: &PagePart) {
    out.extend_from_slice(&(part.lsn as i64).to_le_bytes());
    out.push(u8::from(part.blob.is_some()));
    put_number(out, part.at);
    if let Some(blob) = part.blob {
        out.extend_from_slice(&blob.to_le_bytes());
    }
}

fn take_place(input: &mut &[u8]) -> Option<PagePart> {
    let lsn = u64::try_from(take_i64(input)?).ok()?;
    let (&kind, rest) = input.split_first()?;
    *input = rest;
    let at = take_number(input)?;
    let blob = match kind {
        0 => None,
        1 => Some(take_i64(input)?),
        _ => return None,
    };
    Some(PagePart { lsn, at, blob, length: 0 })
}

fn take_i64(input: &mut &[u8]) -> Option<i64> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(i64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_back_and_damage_is_noticed() {
        let part = |lsn| PagePart { lsn, at: lsn + 7, blob: (lsn == 9).then_some(9), length: lsn * 300 };
        let free = PagePart { length: 0, ..part(4) };
        let pages = vec![Page::Present { base: part(1), changes: vec![part(9), part(10)] }, Page::Free(free)];
        let table = PageTable { stable: 1 << 20, active: Some(1 << 19), pages };
        let bytes = table.print().unwrap();
        assert_eq!(PageTable::parse(&bytes), Some(table));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PageTable::parse(&damaged), None);
        }
    }
}
