//! Mounts and loop devices that undo themselves.
//!
//! Invariant: everything made here carries the id of the process that made it in its path; it is undone on drop, and
//! what a killed test run left behind is undone by the next one. Nothing else on the machine is ever unmounted.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PREFIX: &str = "bosun-rig-";

/// Runs a system tool and gives its output; an error carries the command and what it said.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> io::Result<String> {
    let mut command = Command::new(tool(program).unwrap_or_else(|| PathBuf::from(program)));
    command.args(arguments);
    let output = command.output().map_err(|why| io::Error::new(why.kind(), format!("{command:?}: {why}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{command:?} ended with {}: {}", output.status, said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Where a tool is; system tools are often not on the path of tests.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Whether this process may mount: root, and not stripped of `CAP_SYS_ADMIN` as in most containers.
pub fn may_mount() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root".into());
    }
    const CAP_SYS_ADMIN: u32 = 21;
    let status = fs::read_to_string("/proc/self/status").map_err(|why| format!("/proc/self/status: {why}"))?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0").trim();
    match u64::from_str_radix(effective, 16) {
        Ok(bits) if bits & (1 << CAP_SYS_ADMIN) != 0 => Ok(()),
        _ => Err("it needs the capability CAP_SYS_ADMIN".into()),
    }
}

/// A directory of this test process, removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> io::Result<Scratch> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        sweep();
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir)?;
        Ok(Scratch(dir))
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A mounted directory.
#[derive(Debug)]
pub struct Mounted {
    dir: PathBuf,
}

impl Mounted {
    pub fn new(arguments: &[&str], dir: &Path) -> io::Result<Mounted> {
        fs::create_dir_all(dir)?;
        let arguments = arguments.iter().map(OsStr::new).chain([dir.as_os_str()]);
        run("mount", &arguments.collect::<Vec<_>>())?;
        Ok(Mounted { dir: dir.to_owned() })
    }
    pub fn path(&self) -> &Path {
        &self.dir
    }
    /// Unmounts, waiting a little for a process that has just been killed to let go of its files.
    pub fn unmount(self) -> io::Result<()> {
        let result = patiently(|| run("umount", &[&self.dir]).map(|_| ()));
        if result.is_ok() {
            std::mem::forget(self);
        }
        result
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if patiently(|| run("umount", &[&self.dir]).map(|_| ())).is_err() {
            let _ = run("umount", &[OsStr::new("-l"), self.dir.as_os_str()]);
        }
    }
}

/// A loop device over an image file.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    pub fn attach(image: &Path) -> io::Result<LoopDevice> {
        let found = run("losetup", &[OsStr::new("--find"), OsStr::new("--show"), image.as_os_str()])?;
        Ok(LoopDevice(PathBuf::from(found)))
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = patiently(|| run("losetup", &[OsStr::new("--detach"), self.0.as_os_str()]).map(|_| ()));
    }
}

/// Tries for up to a second.
fn patiently(mut action: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut result = action();
    for _ in 0..50 {
        if result.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        result = action();
    }
    result
}

/// Undoes what test processes that no longer live have left: mounts first, then loop devices, then directories.
fn sweep() {
    let temp = std::env::temp_dir();
    let Ok(entries) = fs::read_dir(&temp) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse::<u32>().ok())
        else {
            continue;
        };
        if !Path::new("/proc").join(pid.to_string()).exists() {
            discard(&entry.path());
        }
    }
}

fn discard(dir: &Path) {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    for mount in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
        if Path::new(mount).starts_with(dir) {
            let _ = run("umount", &["-l", mount]);
        }
    }
    let devices = run("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).unwrap_or_default();
    for (device, image) in devices.lines().filter_map(|line| line.split_once(char::is_whitespace)) {
        if Path::new(image.trim()).starts_with(dir) {
            let _ = run("losetup", &["--detach", device]);
        }
    }
    let _ = fs::remove_dir_all(dir);
}
