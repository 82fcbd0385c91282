//! Disks that fill up and system calls that fail.
//!
//! Invariant: a fault is exactly the one that was asked for, and the test can see that it happened ([`Injection::hits`]),
//! so that a test which never reached its fault does not pass. Errors are injected by strace from outside: the worker
//! has no code for it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::mount::{Mounted, Scratch, may_mount, run, tool};
use super::{all_required, say};

/// A tmpfs of a fixed size.
#[derive(Debug)]
pub struct SmallDisk {
    mount: Mounted,
    _scratch: Scratch,
}

impl SmallDisk {
    pub fn new(bytes: u64) -> io::Result<SmallDisk> {
        let scratch = Scratch::new()?;
        let options = format!("size={bytes},mode=0700");
        let mount = Mounted::new(&["-t", "tmpfs", "-o", &options, "tmpfs"], &scratch.path().join("disk"))?;
        Ok(SmallDisk { mount, _scratch: scratch })
    }

    /// A disk, or one line that says why the test is skipped; panics when it should work here and does not.
    #[track_caller]
    pub fn require_or_explain(bytes: u64) -> Option<SmallDisk> {
        if let Err(why) = may_mount() {
            say(&format!("SKIPPED: full disks are not tested: {why}"));
            return None;
        }
        match SmallDisk::new(bytes) {
            Ok(disk) => Some(disk),
            Err(why) => panic!("full disks could be tested here, but the tmpfs cannot be mounted: {why}"),
        }
    }

    pub fn dir(&self) -> &Path {
        self.mount.path()
    }

    /// Gives the disk another size while it is in use.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        let options = format!("remount,size={bytes}");
        run("mount", &["-o".as_ref(), options.as_ref(), self.dir().as_os_str()]).map(|_| ())
    }

    /// Fills the disk with a file of its own until nothing more fits, and gives the file's size.
    pub fn fill(&self) -> io::Result<u64> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.ballast())?;
        let mut chunk = vec![0x5a; 64 << 10];
        loop {
            match file.write(&chunk) {
                Ok(_) => {}
                Err(why) if why.kind() == io::ErrorKind::StorageFull && chunk.len() > 1 => {
                    chunk.truncate(chunk.len() / 2)
                }
                Err(why) if why.kind() == io::ErrorKind::StorageFull => return Ok(file.metadata()?.len()),
                Err(why) => return Err(why),
            }
        }
    }

    /// Gives back what [`SmallDisk::fill`] took.
    pub fn free(&self) -> io::Result<()> {
        match fs::remove_file(self.ballast()) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
            _ => Ok(()),
        }
    }

    fn ballast(&self) -> PathBuf {
        self.dir().join("ballast")
    }
}

/// A system call that fails from its n-th use in a thread on, for ever or up to another use.
#[derive(Debug, Clone)]
pub struct Injection {
    /// For example `fdatasync` or `pwrite64,write`.
    pub calls: &'static str,
    /// For example `EIO`.
    pub error: &'static str,
    /// The first call that fails; strace counts per thread.
    pub when: u32,
    /// The last call that fails. None: every later call of the thread fails too, as on a dead disk.
    pub last: Option<u32>,
    /// Only calls on these files.
    pub paths: Vec<PathBuf>,
    /// Where strace writes the calls it saw; must lie outside the tested directory.
    pub trace: PathBuf,
}

impl Injection {
    /// Whether strace is there; says so if not. A machine without it may skip, CI installs it and may not.
    #[track_caller]
    pub fn available_or_explain() -> bool {
        let found = tool("strace").is_some();
        if !found {
            assert!(!all_required(), "strace is needed and not installed");
            say("SKIPPED: failing system calls are not tested: strace is not installed");
        }
        found
    }

    /// The command line to put before the program. With `-D` the tracer is a grandchild, so that the process the
    /// harness starts, signals and waits for is the program itself.
    pub fn wrapper(&self) -> Vec<OsString> {
        let when = match self.last {
            Some(last) => format!("{}..{last}", self.when),
            None => format!("{}+", self.when),
        };
        let mut words: Vec<OsString> = ["strace", "-D", "-f", "-qq", "-o"].map(OsString::from).into();
        words.push(self.trace.clone().into());
        words.extend(["-e".into(), format!("trace={}", self.calls).into()]);
        words.extend(["-e".into(), format!("inject={}:error={}:when={when}", self.calls, self.error).into()]);
        for path in &self.paths {
            words.extend(["-P".into(), path.clone().into()]);
        }
        words.push("--".into());
        words
    }

    /// How many calls have failed so far because of this.
    pub fn hits(&self) -> usize {
        let trace = fs::read(&self.trace).unwrap_or_default();
        String::from_utf8_lossy(&trace).lines().filter(|line| line.ends_with("(INJECTED)")).count()
    }
}

/// The command line to put before a program whose calls of this name that are about this path take so much longer. As an
/// [`Injection`], from outside.
pub fn delayed(call: &str, by: std::time::Duration, path: &Path, trace: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["strace", "-D", "-f", "-qq", "-o"].map(OsString::from).into();
    words.push(trace.into());
    words.extend(["-e".into(), format!("trace={call}").into()]);
    words.extend(["-e".into(), format!("inject={call}:delay_enter={}", by.as_micros()).into()]);
    words.extend(["-P".into(), path.into(), "--".into()]);
    words
}

/// Creates an empty file and makes it durable, with its name.
pub fn durable_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(contents)?;
    file.sync_all()?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}
