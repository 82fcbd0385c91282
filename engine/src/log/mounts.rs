//! What is mounted where, as the kernel tells it.
//!
//! Invariant: where nobody can tell, nothing is refused. It mounts nothing.

use std::fs;
use std::path::Path;

/// The types of file systems on which a lock holds nobody off.
const NETWORK_FILESYSTEMS: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "afs", "ncpfs"];

/// Whether another file system, or another place of this one, is mounted right there.
pub(crate) fn is_mount_point(path: &Path) -> bool {
    let Ok(path) = fs::canonicalize(path) else { return false };
    // Where nobody can tell, a rename will.
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mount_points(&mounts).any(|(point, _)| path == Path::new(&point))
}

/// Where something is mounted, and of which type.
fn mount_points(mounts: &str) -> impl Iterator<Item = (String, &str)> {
    mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        Some((point.replace("\\040", " "), kind))
    })
}

/// The type of the file system a path lies on, if it is one of the network.
pub(crate) fn network_filesystem(path: &Path) -> Option<String> {
    // The nearest ancestor that exists decides where a new directory would go.
    let path = path.ancestors().find_map(|ancestor| fs::canonicalize(ancestor).ok())?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut nearest: Option<(usize, &str)> = None;
    for (point, kind) in mount_points(&mounts) {
        if path.starts_with(&point) && nearest.is_none_or(|(length, _)| point.len() >= length) {
            nearest = Some((point.len(), kind));
        }
    }
    nearest.map(|(_, kind)| kind).filter(|kind| NETWORK_FILESYSTEMS.contains(kind)).map(str::to_owned)
}
