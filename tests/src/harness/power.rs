//! The power-cut rig: a file system on a loop device that can be cut off in the middle of anything.
//!
//! Invariant: a cut is `FS_IOC_SHUTDOWN` without log flush: from that instant nothing more reaches the device, not even
//! what the file system had only in its journal buffers, exactly as when power fails; then unmount, and mount again
//! with journal replay. What was not fsynced before may be gone, what was must be there. The rig does not model a disk
//! that lies about its own cache: what the file system has sent to the device stays. It sends nothing by itself: until
//! somebody syncs, or minutes have passed, what was written is in memory only, so that a cut behind a missing sync loses.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use super::mount::{LoopDevice, Mounted, Scratch, may_mount, run, tool};
use super::say;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    pub const ALL: [FileSystem; 2] = [FileSystem::Ext4, FileSystem::Xfs];

    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }
    fn mkfs(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "mkfs.ext4",
            FileSystem::Xfs => "mkfs.xfs",
        }
    }
    /// How it is mounted. ext4 commits its journal every five seconds by itself, and writes out what is renamed over
    /// something; both would save a program that does not sync, by luck.
    fn options(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "commit=900,noauto_da_alloc",
            FileSystem::Xfs => "noatime",
        }
    }
    /// The image is sparse; xfs refuses less than 300 MiB.
    fn image_bytes(self) -> u64 {
        match self {
            FileSystem::Ext4 => 256 << 20,
            FileSystem::Xfs => 320 << 20,
        }
    }
}

/// Why the rig cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub why: String,
    /// The machine cannot do it, so that a test may be skipped. Otherwise something is missing that could be there.
    pub excused: bool,
}

/// Whether the rig can be used on this machine.
pub fn available(file_system: FileSystem) -> Result<(), Unavailable> {
    may_mount().map_err(|why| Unavailable { why, excused: true })?;
    if !Path::new("/dev/loop-control").exists() {
        return Err(Unavailable { why: "there is no /dev/loop-control".into(), excused: true });
    }
    let mkfs = file_system.mkfs();
    if tool(mkfs).is_none() {
        // ext4 is the promise; xfs is tested where its tool is there, or where everything must be tested.
        let excused = file_system == FileSystem::Xfs && !super::all_required();
        return Err(Unavailable { why: format!("{mkfs} is not installed"), excused });
    }
    Ok(())
}

/// A rig, or one line that says why the test is skipped. Panics when the rig should work here and does not, so that a
/// machine that could have run the test never passes without it.
#[track_caller]
pub fn require_or_explain(file_system: FileSystem) -> Option<PowerRig> {
    let name = file_system.name();
    match available(file_system) {
        Err(Unavailable { why, excused: true }) => {
            say(&format!("SKIPPED: power cuts on {name} are not tested: {why}"));
            None
        }
        Err(Unavailable { why, excused: false }) => panic!("power cuts on {name} could be tested here, but {why}"),
        Ok(()) => match PowerRig::new(file_system) {
            Ok(rig) => Some(rig),
            Err(why) => panic!("power cuts on {name} should work here, but the rig does not: {why}"),
        },
    }
}

/// One file system on a loop device. Fields are dropped in this order: unmount, detach, remove.
#[derive(Debug)]
pub struct PowerRig {
    mount: Option<Mounted>,
    device: LoopDevice,
    scratch: Scratch,
    file_system: FileSystem,
}

impl PowerRig {
    pub fn new(file_system: FileSystem) -> io::Result<PowerRig> {
        let scratch = Scratch::new()?;
        let image = scratch.path().join("image");
        File::create_new(&image)?.set_len(file_system.image_bytes())?;
        let image = image.to_str().ok_or_else(|| io::Error::other("the temporary directory is not UTF-8"))?;
        match file_system {
            FileSystem::Ext4 => {
                // Everything is written now, so that no background initialisation runs into a cut.
                let lazy = "lazy_itable_init=0,lazy_journal_init=0";
                run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", lazy, image])?;
            }
            FileSystem::Xfs => run("mkfs.xfs", &["-q", "-f", image]).map(|_| ())?,
        }
        let device = LoopDevice::attach(Path::new(image))?;
        let mut rig = PowerRig { mount: None, device, scratch, file_system };
        rig.mount()?;
        Ok(rig)
    }

    fn mount(&mut self) -> io::Result<()> {
        let device = self.device.path().to_str().ok_or_else(|| io::Error::other("a device path is not UTF-8"))?;
        let kind = self.file_system;
        let mounted =
            Mounted::new(&["-t", kind.name(), "-o", kind.options(), device], &self.scratch.path().join("disk"))?;
        self.mount = Some(mounted);
        Ok(())
    }

    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// The directory that loses power.
    pub fn dir(&self) -> &Path {
        self.mount.as_ref().expect("the rig is mounted except inside `restore`").path()
    }

    /// A directory on another disk, for what must outlive the cut.
    pub fn safe_dir(&self) -> io::Result<std::path::PathBuf> {
        let dir = self.scratch.path().join("safe");
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Cuts the power. Every later access to the directory fails with EIO until [`PowerRig::restore`].
    pub fn cut(&self) -> io::Result<()> {
        shut_down_without_log_flush(&File::open(self.dir())?)
    }

    /// Power is back: unmounts and mounts again, which replays the journal. All processes that use the directory must
    /// have ended.
    pub fn restore(&mut self) -> io::Result<&Path> {
        if let Some(mount) = self.mount.take() {
            mount.unmount()?;
        }
        self.mount()?;
        Ok(self.dir())
    }

    /// A whole power failure: the cut, then the end of whatever ran (it lost its disk first, as with real power
    /// nothing can be said after), then power again.
    pub fn power_cut(&mut self, end_processes: impl FnOnce()) -> io::Result<&Path> {
        self.cut()?;
        end_processes();
        self.restore()
    }
}

/// `FS_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`; xfs calls the same request `XFS_IOC_GOINGDOWN`.
fn shut_down_without_log_flush(directory: &File) -> io::Result<()> {
    const SHUTDOWN: Opcode = opcode::read::<u32>(b'X', 125);
    const NO_LOG_FLUSH: u32 = 2;
    // SAFETY: the request reads one u32 through the pointer it is given (despite its `_IOR` number), which is what
    // `Setter` passes; the kernel keeps no reference to it.
    #[expect(unsafe_code, reason = "no safe wrapper of this request exists")]
    unsafe {
        ioctl(directory, Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH))?;
    }
    Ok(())
}
