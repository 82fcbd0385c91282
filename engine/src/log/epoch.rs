//! The epoch: outside of a data directory, which store it is and how far it reached.
//!
//! A directory that is put back as a whole to an older copy of itself is whole: log, chain and anchor fit, and nothing in
//! it can tell. A small file elsewhere can. It is written when a directory was opened and found whole, at each
//! checkpoint and at a clean stop, never by a commit; and compared at the next open before anything is written.
//!
//! What is done with whole directories: a backup, a restore and a compacted store keep instance and chain, so the copy is
//! as old as its last group says; a sweep changes neither. A salvage (also in place) makes another instance, which
//! notes in `bosun.format` what it comes from and how far that reached ([`StoreOrigin`]): it fits the epoch of its
//! source, if that was not older, and the next write makes the epoch its own.
//!
//! Invariant: the epoch never claims more than what is durable, and is written whole or not at all, so neither a kill nor
//! a power cut raises a false alarm. What was committed after the last write is not known to it: a copy from between is
//! not told. Neither is one whose epoch was put back with it; that is for its owner to keep apart.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::anchor::Anchor;
use super::chain::ChainHash;
use super::error::StorageError;
use super::files::{DataDir, sync_dir};
use super::group::Group;
use super::sled_format::source::read_whole;
use super::{Log, private};
use crate::vocabulary::{GroupSeq, hex, unhex};

const TITLE: &str = "bosun epoch";
const VERSION: u32 = 1;

/// What an epoch file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// The id of the data directory.
    pub instance: [u8; 16],
    /// Was durable when this was written.
    pub tail: Anchor,
}

/// What a salvaged store comes from, and the last group that was known there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreOrigin {
    /// The id of the directory that was damaged.
    pub instance: [u8; 16],
    /// The last group that was known there.
    pub last: GroupSeq,
}

/// Where an epoch is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochFile {
    path: PathBuf,
    accept: bool,
}

/// What of a store an epoch is compared with.
pub(crate) struct StoreStanding<'a> {
    pub(crate) root: &'a Path,
    pub(crate) instance: [u8; 16],
    pub(crate) origin: Option<StoreOrigin>,
    pub(crate) last: GroupSeq,
    /// A group that is still there.
    pub(crate) group: &'a dyn Fn(GroupSeq) -> Result<Option<Group>, StorageError>,
}

impl EpochFile {
    /// With `accept` a store that does not fit is taken as it is, and the file is written anew.
    pub fn new(path: &Path, accept: bool) -> EpochFile {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // What a link names is written, not the link.
        EpochFile { path: path.canonicalize().unwrap_or(path), accept }
    }

    /// The file, as an absolute path with links followed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says; nothing if there is no such file.
    pub fn read(&self) -> Result<Option<Epoch>, StorageError> {
        match read_whole(&self.path) {
            Ok(bytes) => parse(&self.path, &bytes).map(Some),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(StorageError::EpochUnreadable { epoch: self.path.clone(), why: why.to_string() }),
        }
    }

    /// Whether a store that is open, or is being looked at, fits. Answers what the file says.
    pub fn judge(&self, root: &Path, log: &dyn Log) -> Result<Option<Epoch>, StorageError> {
        // Before the tail of the log is looked at: meanwhile both may go on.
        let Some(epoch) = self.read()? else { return Ok(None) };
        let location = log.location();
        let last = log.bounds()?.map_or(GroupSeq(0), |(_, last)| last);
        let group = |seq| log.group(seq)?.map(|value| Group::parse(seq, value, &location)).transpose();
        let (instance, origin) = (log.instance(), log.origin());
        self.compare(&epoch, &StoreStanding { root, instance, origin, last, group: &group }).map(|()| Some(epoch))
    }

    /// Before anything is written: a store that does not fit is refused, unless it was accepted.
    pub(crate) fn check(&self, standing: &StoreStanding<'_>) -> Result<(), StorageError> {
        let compared = self.read().and_then(|epoch| epoch.map_or(Ok(()), |epoch| self.compare(&epoch, standing)));
        self.unless_accepted(compared)
    }

    /// Before a directory is taken, and a store made where there is none.
    pub(crate) fn check_before(&self, dir: &DataDir) -> Result<(), StorageError> {
        self.check_outside(&dir.root)?;
        if dir.is_begun()? { Ok(()) } else { self.check_no_store(&dir.root) }
    }

    fn check_no_store(&self, root: &Path) -> Result<(), StorageError> {
        let compared = self.read().and_then(|epoch| match epoch {
            Some(epoch) => {
                let Epoch { instance, tail } = epoch;
                let detail = format!("there is none, but the file names {} up to group {}", hex(&instance), tail.last);
                Err(StorageError::EpochOfOther { root: root.to_owned(), epoch: self.path.clone(), detail })
            }
            None => Ok(()),
        });
        self.unless_accepted(compared)
    }

    fn unless_accepted(&self, compared: Result<(), StorageError>) -> Result<(), StorageError> {
        match compared {
            Err(why) if self.accept && why.may_be_accepted() => {
                tracing::warn!(%why, "accepted: the store is taken as it is");
                Ok(())
            }
            compared => compared,
        }
    }

    /// In the directory it would be put back with it.
    pub(crate) fn check_outside(&self, root: &Path) -> Result<(), StorageError> {
        let real = |path: &Path| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            // Of what is not there yet the nearest that is.
            let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
            let rest = found.as_ref().and_then(|(above, _)| path.strip_prefix(above).ok()).map(Path::to_owned);
            found.zip(rest).map_or(path.clone(), |((_, real), rest)| real.join(rest))
        };
        match real(&self.path).starts_with(real(root)) {
            true => Err(StorageError::EpochInside { root: root.to_owned(), epoch: self.path.clone() }),
            false => Ok(()),
        }
    }

    fn compare(&self, epoch: &Epoch, standing: &StoreStanding<'_>) -> Result<(), StorageError> {
        let StoreStanding { root, instance, origin, .. } = *standing;
        let tail = epoch.tail;
        let rolled_back = |last: GroupSeq, detail: String| {
            let (root, epoch) = (root.to_owned(), self.path.clone());
            Err(StorageError::RolledBack { root, epoch, noted: tail.last, last, detail })
        };
        if instance != epoch.instance {
            return match origin.filter(|origin| origin.instance == epoch.instance) {
                Some(origin) if origin.last >= tail.last => Ok(()),
                Some(origin) => rolled_back(
                    origin.last,
                    format!(
                        "what it was salvaged from ended at group {}, but group {} was durable",
                        origin.last, tail.last
                    ),
                ),
                None => {
                    let detail = format!("it is {}, the file names {}", hex(&instance), hex(&epoch.instance));
                    Err(StorageError::EpochOfOther { root: root.to_owned(), epoch: self.path.clone(), detail })
                }
            };
        }
        let ends = |last| rolled_back(last, format!("it ends at group {last}, but group {} was durable", tail.last));
        if standing.last < tail.last {
            return ends(standing.last);
        }
        match standing.chain_at(tail.last) {
            Ok(Some(found)) if found != tail.chain => rolled_back(
                standing.last,
                format!("its group {} has another chain: an older copy was put back, and went on", tail.last),
            ),
            Ok(_) => Ok(()),
            // Of groups that are not whole only the last is forgiven, as one that was never acknowledged: this one was.
            Err(StorageError::Corrupt { .. }) => ends(GroupSeq(tail.last.0.saturating_sub(1))),
            Err(why) => Err(why),
        }
    }

    /// Writes it, durably and at once.
    pub(crate) fn write(&self, epoch: &Epoch) -> Result<(), StorageError> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let temporary = self.path.with_file_name(name);
        let put = || -> std::io::Result<()> {
            let mut file = private::create(&temporary)?;
            file.write_all(print(epoch).as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, &self.path)
        };
        let unwritable = |why: String| StorageError::EpochUnwritable { epoch: self.path.clone(), why };
        put().map_err(|why| unwritable(why.to_string()))?;
        sync_dir(self.path.parent().unwrap_or(Path::new("/"))).map_err(|why| unwritable(why.to_string()))
    }
}

impl StoreStanding<'_> {
    /// The chain behind a group; nothing if the group was trimmed.
    fn chain_at(&self, seq: GroupSeq) -> Result<Option<ChainHash>, StorageError> {
        if seq.0 == 0 {
            return Ok(Some(ChainHash::origin(&self.instance)));
        }
        if let Some(group) = (self.group)(seq)? {
            return Ok(Some(group.chain()));
        }
        Ok((self.group)(seq.next())?.map(|next| next.previous()))
    }
}

/// The epoch of a store that is open.
#[derive(Debug)]
pub(crate) struct EpochKeeper {
    file: EpochFile,
    written: Mutex<Option<Epoch>>,
}

impl EpochKeeper {
    pub(crate) fn new(file: EpochFile) -> EpochKeeper {
        let written = file.read().ok().flatten();
        EpochKeeper { file, written: Mutex::new(written) }
    }

    pub(crate) fn note(&self, epoch: Epoch) -> Result<(), StorageError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written != Some(epoch) {
            self.file.write(&epoch)?;
            *written = Some(epoch);
        }
        Ok(())
    }
}

fn print(epoch: &Epoch) -> String {
    let Epoch { instance, tail } = epoch;
    let (instance, chain) = (hex(instance), hex(&tail.chain.0));
    let mut text = format!("{TITLE}\nformat {VERSION}\ninstance {instance}\ngroup {}\nchain {chain}\n", tail.last);
    let crc = crc32fast::hash(text.as_bytes());
    // Writing to a text does not fail.
    let _ = writeln!(text, "crc {crc:08x}");
    text
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Epoch, StorageError> {
    let unreadable = |why: &str| StorageError::EpochUnreadable { epoch: path.to_owned(), why: why.into() };
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable("it is not text"))?;
    let (content, crc) = text.rsplit_once("crc ").ok_or_else(|| unreadable("it has no CRC line"))?;
    if format!("{:08x}\n", crc32fast::hash(content.as_bytes())) != crc {
        return Err(unreadable("its CRC is wrong"));
    }
    let mut lines = content.lines();
    if lines.next() != Some(TITLE) {
        return Err(unreadable("it is no epoch file"));
    }
    let mut value = |name: &str| {
        let found = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.ok_or_else(|| unreadable(&format!("it names no {name}")))
    };
    let found = value("format")?.parse().map_err(|_| unreadable("it names no format"))?;
    if found > VERSION {
        return Err(StorageError::FormatTooNew { file: path.to_owned(), found, supported: VERSION });
    }
    let instance = unhex(value("instance")?).and_then(|bytes| bytes.try_into().ok());
    let last = value("group")?.parse().ok().map(GroupSeq);
    let chain = unhex(value("chain")?).and_then(|bytes| bytes.try_into().ok()).map(ChainHash);
    match (instance, last.zip(chain)) {
        (Some(instance), Some((last, chain))) => Ok(Epoch { instance, tail: Anchor { last, chain } }),
        _ => Err(unreadable("a line cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_back_and_any_damage_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        let file = EpochFile::new(&home.path().join("epoch"), false);
        assert_eq!(file.read(), Ok(None));
        let epoch = Epoch { instance: [7; 16], tail: Anchor { last: GroupSeq(41), chain: ChainHash([0xa5; 32]) } };
        file.write(&epoch).unwrap();
        assert_eq!(file.read(), Ok(Some(epoch)));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1, "nothing else is left");
        let whole = std::fs::read(file.path()).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(file.path(), &damaged).is_err(), "bit {bit} passed");
        }
        for length in 0..whole.len() {
            assert!(parse(file.path(), &whole[..length]).is_err(), "{length} bytes passed");
        }
    }

    /// G9: a newer format is refused by name, and nobody's acceptance overwrites it.
    #[test]
    fn a_newer_format_is_refused() {
        let content = format!("{TITLE}\nformat 9\nwhatever comes then\n");
        let text = format!("{content}crc {:08x}\n", crc32fast::hash(content.as_bytes()));
        let why = parse(Path::new("f"), text.as_bytes()).unwrap_err();
        assert!(matches!(why, StorageError::FormatTooNew { found: 9, .. }) && !why.may_be_accepted(), "{why}");
    }

    /// Also by a way round, and in a directory that is not there yet.
    #[test]
    fn a_file_in_the_directory_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        let inside = |path: &str| EpochFile::new(&home.path().join(path), true).check_outside(&data);
        assert!(matches!(inside("data/epoch"), Err(StorageError::EpochInside { .. })));
        std::fs::create_dir_all(data.join("below")).unwrap();
        std::os::unix::fs::symlink(data.join("below"), home.path().join("link")).unwrap();
        for path in ["data/epoch", "data/below/epoch", "link/epoch", "data/../data/epoch"] {
            assert!(matches!(inside(path), Err(StorageError::EpochInside { .. })), "{path}");
        }
        for path in ["epoch", "data.epoch", "data/../epoch"] {
            inside(path).unwrap();
        }
    }
}
