//! How far the log has been told: a small file of the data directory.
//!
//! Invariant: the file is whole or not there; it stands behind nothing that has not become a notification. One that stands too
//! far back costs only time: what is met again is the same notification. It begins with the first channel, so that whoever names
//! that one is not told of the past; a worker without channels leaves it where it stands.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bosun_engine::GroupSeq;
use serde::{Deserialize, Serialize};

const FILE: &str = "notified.json";

/// A worker that ended without a word, which nobody has been told yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GoneWorker {
    pub(crate) pid: u32,
    pub(crate) started_at: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    version: u32,
    /// The last group that was told; `None`: nobody has begun.
    group: Option<GroupSeq>,
    #[serde(default)]
    gone: Vec<GoneWorker>,
}

/// The file, and what it says.
#[derive(Debug)]
pub(crate) struct Cursor {
    path: PathBuf,
    contents: Contents,
    /// What stands in the file.
    saved: Contents,
    /// The file said nothing that makes sense: how far the log was told is not known.
    lost: bool,
}

impl Cursor {
    /// Reads it. One that cannot be read, or makes no sense, begins with the oldest group there is: what was told is known by
    /// its id, and no worker stays away because of this file.
    pub(crate) fn open(data: &Path) -> Cursor {
        let path = data.join(FILE);
        let contents = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|why| why.to_string()),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Contents::default()),
            Err(why) => Err(why.to_string()),
        };
        let lost = contents.is_err();
        let contents = contents.unwrap_or_else(|why| {
            tracing::warn!(path = %path.display(), why, "cannot be read: the whole log is looked through again");
            Contents { group: Some(GroupSeq(0)), ..Contents::default() }
        });
        Cursor { path, saved: contents.clone(), contents, lost }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }
    /// It makes no sense in this log.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// Whether a worker of this directory has ever told anything.
    pub(crate) fn is_begun(data: &Path) -> bool {
        data.join(FILE).exists()
    }

    pub(crate) fn group(&self) -> Option<GroupSeq> {
        self.contents.group
    }
    /// Everything up to here is told.
    pub(crate) fn move_to(&mut self, group: GroupSeq) {
        self.contents.group = Some(group);
    }
    pub(crate) fn gone(&self) -> Vec<GoneWorker> {
        self.contents.gone.clone()
    }
    /// Notes a worker that is gone, before its file is written over.
    pub(crate) fn note_gone(&mut self, gone: GoneWorker) -> io::Result<()> {
        if !self.contents.gone.contains(&gone) {
            self.contents.gone.push(gone);
        }
        self.save()
    }
    pub(crate) fn gone_is_told(&mut self, gone: &GoneWorker) {
        self.contents.gone.retain(|other| other != gone);
    }

    /// Writes it if anything has changed.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        if self.contents == self.saved {
            return Ok(());
        }
        self.contents.version = 1;
        let temporary = self.path.with_extension("json.tmp");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(&self.contents)?)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        self.saved = self.contents.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_there_again_and_nonsense_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let gone = GoneWorker { pid: 7, started_at: "then".into() };
        let mut cursor = Cursor::open(dir.path());
        assert_eq!(cursor.group(), None);
        cursor.move_to(GroupSeq(12));
        cursor.note_gone(gone.clone()).unwrap();
        cursor.note_gone(gone.clone()).unwrap();
        let mut again = Cursor::open(dir.path());
        assert_eq!((again.group(), again.gone()), (Some(GroupSeq(12)), vec![gone.clone()]));
        again.gone_is_told(&gone);
        again.save().unwrap();
        assert_eq!(Cursor::open(dir.path()).gone(), []);
        fs::write(dir.path().join(FILE), "{\"gro").unwrap();
        assert_eq!(Cursor::open(dir.path()).group(), Some(GroupSeq(0)));
        assert!(Cursor::is_begun(dir.path()));
        // A file that cannot be read: here a directory stands in its place.
        fs::remove_file(dir.path().join(FILE)).unwrap();
        fs::create_dir(dir.path().join(FILE)).unwrap();
        let mut unreadable = Cursor::open(dir.path());
        assert_eq!(unreadable.group(), Some(GroupSeq(0)));
        assert!(unreadable.note_gone(gone.clone()).is_err());
        assert_eq!(unreadable.gone(), [gone], "it is told by this worker all the same");
    }
}
