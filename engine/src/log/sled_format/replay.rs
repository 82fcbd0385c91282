//! From the newest snapshot and the messages behind it to the table of pages, as sled makes it at an open, and stricter.
//!
//! sled skips what it cannot read and overwrites it. Here the log ends at the first place that is not whole, and whoever
//! asked decides whether that is a torn tail or damage: by what must be in it (the tail anchor). Two things are no end:
//! - A segment number that is missing among older ones: all of its pages were written again, and its room was reused.
//! - A segment whose rest belongs to a newer one that was never begun: it was being reused when the process died.
//!
//! Invariant: a read error is an error, wherever it is; the table is that of a prefix of the log.

use std::collections::BTreeMap;

use super::source::ReadOnlyFile;
use super::table::{PagePart, PageTable};
use super::{HEADER, SEGMENT, SledMessage, SledMessageKind, has_room, message_at, number_behind, segment_header};
use crate::log::StorageError;

/// See the module.
#[derive(Debug)]
pub(crate) struct ReplayedLog {
    /// Begins a new segment behind what was found.
    pub(crate) table: PageTable,
    /// Segments that could pass for the continuation of the log and are none, by place.
    pub(crate) torn: Vec<u64>,
    /// The place in the file where the log is not whole, if it does not just end.
    pub(crate) broken: Option<u64>,
}

struct SegmentWalk<'a> {
    db: &'a ReadOnlyFile,
    table: PageTable,
    /// Segments by LSN: place, and whether the header is whole.
    order: BTreeMap<u64, (u64, bool)>,
    /// The LSN behind the last message.
    end: u64,
    /// The first LSN that counts.
    from: u64,
    /// Below it segments may be missing: they were reused.
    stable: u64,
    /// Messages of batches that are not complete yet, and what completes them.
    pending: Vec<(SledMessageKind, u64, PagePart)>,
    pending_from: u64,
    needs: Option<u64>,
    broken: Option<u64>,
}

/// How a segment ended.
enum SegmentEnd {
    /// The next one may follow.
    Full,
    /// Not whole from here on.
    Broken(u64),
}

pub(crate) fn replay(db: &ReadOnlyFile, snapshot: PageTable) -> Result<ReplayedLog, StorageError> {
    let from = snapshot.stable;
    let (order, stable) = segments(db, from / SEGMENT * SEGMENT)?;
    let mut walk = SegmentWalk {
        db,
        table: snapshot,
        order,
        end: from,
        from,
        stable,
        pending: Vec::new(),
        pending_from: 0,
        needs: None,
        broken: None,
    };
    walk.run()?;
    let SegmentWalk { mut table, order, end, broken, .. } = walk;
    table.stable = end.next_multiple_of(SEGMENT);
    table.active = None;
    let torn = order.range(table.stable..).filter(|(_, (_, whole))| *whole).map(|(_, (at, _))| *at).collect();
    Ok(ReplayedLog { table, torn, broken })
}

/// The segments from an LSN on, and below which LSN one may be missing. One whose header is not whole is known by the
/// messages in it.
fn segments(db: &ReadOnlyFile, from: u64) -> Result<(BTreeMap<u64, (u64, bool)>, u64), StorageError> {
    let (mut order, mut buffer, mut headless, mut stable) = (BTreeMap::new(), Vec::new(), Vec::new(), from);
    for at in (0..db.length()).step_by(SEGMENT as usize) {
        db.read(&mut buffer, at, HEADER)?;
        match segment_header(&buffer) {
            Some(header) if header.lsn < from => {}
            Some(header) => {
                stable = stable.max(header.stable);
                if let Some((other, _)) = order.insert(header.lsn, (at, true)) {
                    let detail = format!("at byte {at}: the segment there says that it is the one at byte {other}");
                    return Err(StorageError::corrupt("database", db.path(), detail));
                }
            }
            None => headless.push(at),
        }
    }
    for at in headless {
        db.read(&mut buffer, at, SEGMENT as usize)?;
        if let Some(lsn) =
            number_behind(&buffer, 0).and_then(|number| number.checked_mul(SEGMENT)).filter(|lsn| *lsn >= from)
        {
            order.entry(lsn).or_insert((at, false));
        }
    }
    Ok((order, stable / SEGMENT * SEGMENT))
}

impl SegmentWalk<'_> {
    fn run(&mut self) -> Result<(), StorageError> {
        let (order, mut buffer, mut expected) = (self.order.clone(), Vec::new(), None);
        let newest = order.last_key_value().map_or(0, |(lsn, _)| *lsn);
        for (lsn, (at, whole)) in order {
            // What follows a hole in the tail was written and never acknowledged.
            if expected.is_some_and(|expected| expected < lsn && expected >= self.stable) {
                break;
            }
            if !whole {
                self.broken = Some(at);
                break;
            }
            self.db.read(&mut buffer, at, SEGMENT as usize)?;
            match self.segment(&buffer, lsn, at) {
                SegmentEnd::Full => {}
                SegmentEnd::Broken(place) if self.is_reused(&buffer, place - at, newest) => {}
                SegmentEnd::Broken(place) => {
                    let more = number_behind(&buffer, (place - at) as usize) == Some(lsn / SEGMENT) || lsn < newest;
                    self.broken = more.then_some(place);
                    break;
                }
            }
            expected = Some(lsn + SEGMENT);
        }
        if self.needs.is_some() {
            // A batch that did not get whole counts for nothing.
            self.end = self.pending_from;
        }
        Ok(())
    }

    /// Whether the rest of a segment belongs to one that is newer than all that were begun.
    fn is_reused(&self, segment: &[u8], place: u64, newest: u64) -> bool {
        number_behind(segment, place as usize).is_some_and(|number| number > newest / SEGMENT)
    }

    fn segment(&mut self, bytes: &[u8], lsn: u64, at: u64) -> SegmentEnd {
        let mut place = HEADER;
        while has_room(place) {
            let here = lsn + place as u64;
            let Some(message) = message_at(bytes, place).filter(|message| message.segment == lsn / SEGMENT) else {
                self.end = self.end.max(here);
                return SegmentEnd::Broken(at + place as u64);
            };
            if message.kind == SledMessageKind::Cap {
                self.end = self.end.max(here);
                return SegmentEnd::Full;
            }
            if here >= self.from {
                self.message(&message, here, at + place as u64);
            }
            place += message.length;
            self.end = self.end.max(lsn + place as u64);
            if self.needs.is_some_and(|needs| self.end > needs) {
                self.settle();
            }
        }
        SegmentEnd::Full
    }

    fn message(&mut self, message: &SledMessage<'_>, lsn: u64, at: u64) {
        let blob = if message.is_blob { message.lsn() } else { None };
        let part = PagePart { lsn, at, blob, length: message.length as u64 };
        match message.kind {
            SledMessageKind::Canceled | SledMessageKind::Cap => {}
            SledMessageKind::Manifest => {
                let needs = message.lsn().and_then(|lsn| u64::try_from(lsn).ok()).unwrap_or(0);
                if self.needs.is_none() {
                    self.pending_from = lsn;
                }
                self.needs = self.needs.max(Some(needs));
            }
            kind if self.needs.is_some() => self.pending.push((kind, message.page, part)),
            kind => self.apply(kind, message.page, part),
        }
    }

    fn settle(&mut self) {
        self.needs = None;
        for (kind, page, part) in std::mem::take(&mut self.pending) {
            self.apply(kind, page, part);
        }
    }

    fn apply(&mut self, kind: SledMessageKind, page: u64, part: PagePart) {
        match kind {
            SledMessageKind::Counter | SledMessageKind::Meta | SledMessageKind::Node => self.table.replace(page, part),
            SledMessageKind::Link => self.table.change(page, part),
            SledMessageKind::Free => self.table.free(page, part),
            SledMessageKind::Canceled | SledMessageKind::Cap | SledMessageKind::Manifest => {}
        }
    }
}
