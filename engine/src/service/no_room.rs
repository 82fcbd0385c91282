//! A full disk, as those see it who wait for something to be written.
//!
//! Invariant: what was decided stays decided, and is written when there is room. Nobody waits for that in silence: whoever waits
//! for longer than [`LOOKS_MAX`] looks is told, and so is, at once, whoever asks for a change while that is so. Reads go on: of
//! what is on the disk. Time is counted in looks of the committer, so this has no clock.

use std::time::Duration;

use tokio::sync::watch;

use crate::vocabulary::Rejection;

/// How often a full disk is looked at again.
pub(super) const ROOM_LOOKS: Duration = Duration::from_millis(100);
/// How many looks are waited: two seconds.
const LOOKS_MAX: u64 = 20;

#[derive(Debug, Default, Clone)]
struct Waiting {
    /// Why there is no room, while something waits for it.
    why: Option<String>,
    /// How many looks there were, and how many when something began to wait.
    looks: u64,
    began: u64,
}

/// Whether something that was decided waits for room on the disk.
pub(crate) struct NoRoom(watch::Sender<Waiting>);

impl NoRoom {
    pub(super) fn new() -> NoRoom {
        NoRoom(watch::Sender::new(Waiting::default()))
    }

    /// There was no room. Says whether that is new.
    pub(super) fn looked(&self, why: &str) -> bool {
        let mut is_new = false;
        self.0.send_modify(|state| {
            is_new = state.why.is_none();
            state.looks += 1;
            if is_new {
                (state.why, state.began) = (Some(why.to_owned()), state.looks);
            }
        });
        is_new
    }

    /// What waited is written. Says whether anything had waited.
    pub(super) fn is_over(&self) -> bool {
        self.0.send_if_modified(|state| state.why.take().is_some())
    }

    pub(crate) fn waits(&self) -> bool {
        self.0.borrow().why.is_some()
    }

    /// Why a change cannot be taken now, if something has waited for long already.
    pub(crate) fn refusal(&self) -> Option<Rejection> {
        let state = self.0.borrow();
        let why = state.why.clone().filter(|_| state.looks >= state.began + LOOKS_MAX)?;
        Some(Rejection::StorageFull { why })
    }

    /// Resolves when whoever begins to wait now has waited for long. It may be done all the same, when there is room.
    pub(crate) async fn for_long(&self) -> Rejection {
        let mut watch = self.0.subscribe();
        let since = watch.borrow_and_update().looks;
        loop {
            {
                let state = watch.borrow_and_update();
                if let Some(why) = state.why.as_ref().filter(|_| state.looks >= since.max(state.began) + LOOKS_MAX) {
                    let why = format!("{why}; it is done when there is room, if it was taken: ask again then");
                    return Rejection::StorageFull { why };
                }
            }
            if watch.changed().await.is_err() {
                // The sender is `self`.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn who_waits_is_told_after_its_own_time_and_who_comes_later_at_once() {
        let room = NoRoom::new();
        assert!(room.looked("no room for 7 bytes"));
        assert!(room.waits() && room.refusal().is_none());
        for _ in 0..10 {
            assert!(!room.looked("no room for 8 bytes"));
        }
        let mut late = Box::pin(room.for_long());
        assert!(now(late.as_mut()).is_none());
        for _ in 1..LOOKS_MAX {
            assert!(!room.looked(""));
        }
        assert!(matches!(room.refusal(), Some(Rejection::StorageFull { why }) if why == "no room for 7 bytes"));
        assert!(now(late.as_mut()).is_none(), "it has not waited for as long");
        room.looked("");
        assert!(matches!(now(late.as_mut()), Some(Rejection::StorageFull { .. })));
        assert!(room.is_over() && !room.waits() && room.refusal().is_none() && !room.is_over());
        assert!(now(room.for_long()).is_none());
    }
}
