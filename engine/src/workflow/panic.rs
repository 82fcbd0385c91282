//! Panics of workflow code: caught at the driver's edge, with their message and place.
//!
//! Invariant: a panic inside an activation ends that run's code and nothing else, and prints nothing; panics elsewhere
//! go to the hook that was installed before ours. Code whose thread was taken from it, or that asks for more than a turn may
//! hold, leaves the same way at its next call.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

/// How user code left without returning.
#[derive(Debug, PartialEq)]
pub(crate) enum Unwound {
    /// The message and, when known, the place: `index out of bounds (at src/flows.rs:12:5)`.
    Panicked(String),
    /// It cannot go on because it no longer matches history; see [`diverge`].
    Diverged,
}

/// The payload of an unwinding that is no panic.
struct DivergenceUnwind;

thread_local! {
    /// How many guarded calls of user code this thread is inside.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// How many of these calls are in a part that may look at the world: a side effect.
    static RECORDED: Cell<u32> = const { Cell::new(0) };
    /// Set by whoever takes the thread's work away.
    static ABANDONED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Whether this thread is inside workflow code that must be deterministic; inside a side effect it is not. For test kits
/// that watch for forbidden calls: it allocates nothing, so that it can be asked from anywhere.
pub fn inside_workflow_code() -> bool {
    DEPTH.with(Cell::get) > 0 && RECORDED.with(Cell::get) == 0
}

/// Ends the part in which the world may be looked at, even when user code panics.
struct RecordingGuard;

impl Drop for RecordingGuard {
    fn drop(&mut self) {
        RECORDED.with(|recorded| recorded.set(recorded.get() - 1));
    }
}

/// Runs a side effect: its value is recorded, so it may look at the world.
pub(crate) fn recording<T>(effect: impl FnOnce() -> T) -> T {
    RECORDED.with(|recorded| recorded.set(recorded.get() + 1));
    let _ends = RecordingGuard;
    effect()
}

/// Runs user code and catches its panic. The caller must not use what the code left half-changed.
pub(crate) fn guard<T>(code: impl FnOnce() -> T) -> Result<T, Unwound> {
    install();
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    let result = panic::catch_unwind(AssertUnwindSafe(code));
    DEPTH.with(|depth| depth.set(depth.get() - 1));
    result.map_err(|payload| {
        let message = MESSAGE.with(|message| message.borrow_mut().take());
        if payload.is::<DivergenceUnwind>() {
            return Unwound::Diverged;
        }
        Unwound::Panicked(message.unwrap_or_else(|| text_of(payload.as_ref())))
    })
}

/// Leaves user code in the middle of a call that has no value to give.
pub(crate) fn diverge() -> ! {
    panic::resume_unwind(Box::new(DivergenceUnwind))
}

/// From here on, workflow code on this thread leaves at its next call once the flag is set.
pub fn leave_when(abandoned: Arc<AtomicBool>) {
    ABANDONED.with(|flag| *flag.borrow_mut() = Some(abandoned));
}

/// Leaves user code whose thread was taken from it. For calls that code makes again and again.
pub(crate) fn leave_if_abandoned() {
    let abandoned = || ABANDONED.with(|flag| flag.borrow().as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)));
    if abandoned() {
        leave();
    }
}

/// Leaves user code, where that can be: not in the midst of another unwinding, and not outside of it.
pub(crate) fn leave() {
    if DEPTH.with(Cell::get) > 0 && !std::thread::panicking() {
        diverge();
    }
}

fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if DEPTH.with(Cell::get) == 0 {
                before(info);
                return;
            }
            let text = describe(info);
            MESSAGE.with(|message| *message.borrow_mut() = Some(text));
        }));
    });
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let text = text_of(info.payload());
    match info.location() {
        Some(place) => format!("{text} (at {place})"),
        None => text,
    }
}

fn text_of(payload: &dyn std::any::Any) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The message without the place, which moves with every edit of the file.
pub(crate) fn without_place(message: &str) -> &str {
    match message.rfind(" (at ") {
        Some(at) if message.ends_with(')') => &message[..at],
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_that_must_be_deterministic_counts_as_workflow_code() {
        assert!(!inside_workflow_code());
        let seen = guard(|| (inside_workflow_code(), recording(inside_workflow_code), inside_workflow_code()));
        assert_eq!(seen, Ok((true, false, true)));
        assert!(guard(|| recording(|| panic!("no luck"))).is_err());
        assert_eq!(guard(inside_workflow_code), Ok(true));
    }

    #[test]
    fn a_panic_keeps_its_message_and_place() {
        let Err(Unwound::Panicked(text)) = guard(|| panic!("no {}", "luck")) else { panic!("it did panic") };
        assert!(text.starts_with("no luck (at ") && text.contains("panic.rs:"), "{text}");
        assert_eq!(without_place(&text), "no luck");
        assert_eq!(guard(|| diverge()), Err::<(), _>(Unwound::Diverged));
        assert_eq!(guard(|| 7), Ok(7));
    }
}
