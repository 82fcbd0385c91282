//! Calls into sled, which may panic where it meets damage: what comes of one is a value or a typed error.
//!
//! Invariant: no panic of sled leaves this file, and none is printed. What is damage and what a failure of the disk is
//! decided here and nowhere else.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::{Db, Error};
use crate::log::StorageError;
use crate::log::files::DataDir;

/// How often a flush that lasts is looked at.
const LOOKED_AT: Duration = Duration::from_secs(1);

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call into sled: its errors and its panics become typed errors. The panic message is not printed.
pub(super) fn guard<T>(
    dir: &DataDir,
    op: &'static str,
    call: impl FnOnce() -> Result<T, Error>,
) -> Result<T, StorageError> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !GUARDED.with(Cell::get) {
                loud(panic);
            }
        }));
    });
    let outer = GUARDED.with(|guarded| guarded.replace(true));
    let result = catch_unwind(AssertUnwindSafe(call));
    GUARDED.with(|guarded| guarded.set(outer));
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(why)) => Err(translate(dir, op, why)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
            let detail = format!("{op} made the database panic: {text}");
            Err(StorageError::corrupt("database", dir.sled(), detail))
        }
    }
}

/// sled's own flush. A write that fails in another thread of sled's ends it, but whoever waits for that write already is not
/// always woken (`exit_reservation` tells nobody): while it lasts, somebody looks whether one has failed, and wakes them.
pub(super) fn flush(db: &Db) -> Result<(), Error> {
    let (done, over) = mpsc::channel::<()>();
    let look = move || {
        while over.recv_timeout(LOOKED_AT) == Err(RecvTimeoutError::Timeout) {
            if db.context.global_error().is_err() {
                // It ends at once with that failure, and wakes whoever waits. `flush` would wait for a lock that a batch may hold.
                _ = db.context.pagecache.log.make_stable(i64::MAX);
            }
        }
    };
    thread::scope(|threads| {
        // Without a thread to look it is as sled has it.
        _ = thread::Builder::new().name("bosun-flush".into()).spawn_scoped(threads, look);
        let flushed = db.flush();
        drop(done);
        flushed.map(drop)
    })
}

fn translate(dir: &DataDir, op: &'static str, why: Error) -> StorageError {
    let path = dir.sled();
    match why {
        Error::Io(io) if io.kind() == std::io::ErrorKind::WouldBlock => StorageError::Locked { dir: dir.root.clone() },
        // sled wraps the failure to lock in an error of its own kind.
        Error::Io(io) if io.to_string().contains("could not acquire lock") => {
            StorageError::Locked { dir: dir.root.clone() }
        }
        Error::Io(io) => match io.kind() {
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData | std::io::ErrorKind::Other => {
                match io.raw_os_error() {
                    Some(_) => StorageError::io(op, &path, &io),
                    None => StorageError::corrupt("database", path, format!("{op}: {io}")),
                }
            }
            _ => StorageError::io(op, &path, &io),
        },
        Error::Corruption { at, .. } => {
            StorageError::corrupt("database", path.join("db"), format!("{op}: damaged at {at:?}"))
        }
        other => StorageError::corrupt("database", path, format!("{op}: {other}")),
    }
}
