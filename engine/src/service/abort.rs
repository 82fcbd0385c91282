//! Says on which thread the process aborts, while it does: a stack overflow, a failed allocation and `abort` all end in
//! SIGABRT, raised by the thread itself.
//!
//! Invariant: what is called then allocates nothing and takes no lock. It stops no abort: when the handler returns, the
//! C library takes it away and ends the process.

use std::io;

/// Takes the handler away when it is dropped.
pub(super) struct AbortHandler(signal_hook_registry::SigId);

impl Drop for AbortHandler {
    fn drop(&mut self) {
        signal_hook_registry::unregister(self.0);
    }
}

/// SIGABRT has this number on every system that Rust has an `abort` for.
const SIGABRT: i32 = 6;

/// `note` must be async-signal-safe: it may read what is there and make bare system calls.
#[expect(unsafe_code, reason = "a handler of a signal is registered")]
pub(super) fn on_abort(note: impl Fn() + Send + Sync + 'static) -> io::Result<AbortHandler> {
    // SAFETY: the only caller's closure reads a const thread-local without a destructor and an owned file descriptor, and
    // makes one `pwrite`; both are async-signal-safe, and neither allocates, locks or panics. The registry itself is
    // made for use in signal handlers, and restores what was there before.
    let id = unsafe { signal_hook_registry::register(SIGABRT, note) }?;
    Ok(AbortHandler(id))
}
