//! Seeded bugs: the checks must be able to fail (the requirements of the engine §5).
//!
//! Each [`Bug`] is one wrong line at the place in the production code where such a bug would really be made. The tests
//! run named checks with one of them on and demand that they fail. With the feature `seeded-bugs` the bug is chosen by
//! the variable `BOSUN_SEEDED_BUG`, read once, so that nothing is built again; without a bug chosen a point costs one
//! relaxed load. Without the feature [`on`] is the constant `false`, and nothing of a bug is in the program.
//!
//! Invariant: pure modules may ask [`on`], which is the same from the first question to the end of the process; it is
//! the only thing outside their arguments that they ask for. No behaviour of a shipped program depends on this file.

/// The bugs that the checks must find. Each says what is wrong, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A group counts as durable when it is written; the sync comes with some later one. `log/journal.rs`
    AckBeforeFsync = 1,
    /// The sync goes to a file that is not the database. `log/sled/back.rs`
    FsyncWrongFile,
    /// The names of new files are never made durable. `log/files.rs`
    SkipDirFsync,
    /// A turn is written without a look at the run's next event. `log/journal.rs`
    NoCas,
    /// A run that is loaded again, or goes on in a new one, has forgotten which requests it has carried out.
    /// `machine/execution.rs`, `machine/close.rs`
    DedupeNotPersisted,
    /// A restart arms the timers that wait, which are armed already. `machine/lifecycle.rs`
    TimerArmedTwice,
    /// A signal that comes while a decision of its run is being written is acknowledged and forgotten. `service/turn.rs`
    SignalDroppedInFlight,
    /// Whoever has a task token of the activity, of any attempt, may heartbeat and complete it. `machine/activity.rs`
    EpochNotChecked,
    /// After a restart a message to another run goes out as a new one, so it arrives twice. `machine/lifecycle.rs`
    RecoveryNotIdempotent,
    /// A trim removes one group more than it has archived. `log/trim.rs`
    CompactionDeletesLive,
    /// After a failed commit the runs in memory, which are ahead of the log, go on answering. `service/committer.rs`
    CacheNotEvicted,
    /// A page of a history begins one event too late. `client.rs`
    PageOffByOne,
    /// The beginning of the token is enough. `worker/src/api/token.rs`
    TokenByPrefix,
    /// The name by which the server was asked for does not matter. `worker/src/api/guard.rs`
    HostNotChecked,
    /// A run that is loaded again counts the attempts of its activities from one. `machine/execution.rs`
    AttemptsResetOnReplay,
    /// Values beside the database are named by it and never synced. `log/values.rs`
    ValueNotSynced,
    /// A group that was written ahead counts as durable before its sync. `log/wal/segments.rs`
    AckBeforeJournalSync,
    /// What was fed to the database counts as durable before its sync, and its place is used again. `log/wal/front.rs`
    TrimBeforeSledSync,
    /// The start after a crash leaves out the newest group that was written ahead. `log/wal/segments.rs`
    ReplaySkipsLastJournalGroup,
    /// A record that was written ahead and torn passes for a whole one. `log/wal/segments.rs`
    JournalChecksumNotChecked,
}

/// Whether this bug is to be made.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
pub const fn on(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "seeded-bugs")]
pub use chosen::{VARIABLE, on};

#[cfg(feature = "seeded-bugs")]
mod chosen {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Bug;

    /// Names the bug; unset or `none` for none.
    pub const VARIABLE: &str = "BOSUN_SEEDED_BUG";

    const NOT_READ: u8 = u8::MAX;
    static CHOSEN: AtomicU8 = AtomicU8::new(NOT_READ);

    /// Whether this bug is to be made.
    #[inline]
    pub fn on(bug: Bug) -> bool {
        match CHOSEN.load(Ordering::Relaxed) {
            NOT_READ => choose() == bug as u8,
            chosen => chosen == bug as u8,
        }
    }

    /// Reading twice at once gives the same twice.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "a bug is chosen from outside, once, by tests only")]
    fn choose() -> u8 {
        let chosen = match std::env::var(VARIABLE) {
            Err(_) => 0,
            Ok(name) if name.is_empty() || name == "none" => 0,
            Ok(name) => match Bug::ALL.into_iter().find(|bug| bug.name() == name) {
                Some(bug) => bug as u8,
                None => panic!("{VARIABLE}={name}: there is no such bug; there are {:?}", Bug::ALL.map(Bug::name)),
            },
        };
        CHOSEN.store(chosen, Ordering::Relaxed);
        chosen
    }

    impl Bug {
        /// In the order of the requirements, and then what they could not know of.
        pub const ALL: [Bug; 20] = [
            Bug::AckBeforeFsync,
            Bug::FsyncWrongFile,
            Bug::SkipDirFsync,
            Bug::NoCas,
            Bug::DedupeNotPersisted,
            Bug::TimerArmedTwice,
            Bug::SignalDroppedInFlight,
            Bug::EpochNotChecked,
            Bug::RecoveryNotIdempotent,
            Bug::CompactionDeletesLive,
            Bug::CacheNotEvicted,
            Bug::PageOffByOne,
            Bug::TokenByPrefix,
            Bug::HostNotChecked,
            Bug::AttemptsResetOnReplay,
            Bug::ValueNotSynced,
            Bug::AckBeforeJournalSync,
            Bug::TrimBeforeSledSync,
            Bug::ReplaySkipsLastJournalGroup,
            Bug::JournalChecksumNotChecked,
        ];

        /// What the variable calls it.
        pub const fn name(self) -> &'static str {
            match self {
                Bug::AckBeforeFsync => "ack-before-fsync",
                Bug::FsyncWrongFile => "fsync-wrong-file",
                Bug::SkipDirFsync => "skip-dir-fsync",
                Bug::NoCas => "no-cas-on-decision",
                Bug::DedupeNotPersisted => "dedupe-not-persisted",
                Bug::TimerArmedTwice => "timer-armed-twice",
                Bug::SignalDroppedInFlight => "signal-dropped-in-flight",
                Bug::EpochNotChecked => "epoch-not-checked",
                Bug::RecoveryNotIdempotent => "recovery-not-idempotent",
                Bug::CompactionDeletesLive => "compaction-deletes-live",
                Bug::CacheNotEvicted => "cache-not-evicted",
                Bug::PageOffByOne => "page-off-by-one",
                Bug::TokenByPrefix => "token-by-prefix",
                Bug::HostNotChecked => "host-not-checked",
                Bug::AttemptsResetOnReplay => "attempts-reset-on-replay",
                Bug::ValueNotSynced => "value-not-synced",
                Bug::AckBeforeJournalSync => "ack-before-journal-sync",
                Bug::TrimBeforeSledSync => "trim-before-sled-sync",
                Bug::ReplaySkipsLastJournalGroup => "replay-skips-last-journal-group",
                Bug::JournalChecksumNotChecked => "journal-checksum-not-checked",
            }
        }
    }
}
