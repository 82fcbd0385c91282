//! Tests of the checks: each of the 20 seeded bugs of the engine (15 of them from the requirements of the engine §5) is made, and named checks
//! must find it. A check that cannot fail proves nothing.
//!
//! Invariant: a check is run as it stands, by this very program, twice in a process of its own: without a bug it must
//! pass, with the bug one of its own assertions must fail. A crash, a hang, or a failure anywhere else does not count. The
//! checks of the engine are compiled in from where they belong; nothing of them is repeated here. This does not
//! look for bugs: it says which check would find one.

mod catch;
mod engine;
mod lives;
mod log;

use std::path::{Path, PathBuf};
use std::process::Command;

use bosun_engine::seeded::Bug;
use bosun_tests::harness::process::example;

use catch::{Catcher, POWER_CUTS, STRACE, caught};

const FSYNC_CONTRACT: &str = "fsync_contract::every_answer_comes_after_the_sync_of_what_it_acknowledges";
const LIVES: &str = "seeded::lives::the_first_lives_of_the_simulator_keep_the_word";
const POWER_CUT: &str = "power_cut::a_power_cut_on_ext4_loses_nothing_acknowledged";
const STORY: &str = "power_cut::a_power_cut_in_the_middle_of_trims_and_long_groups_loses_nothing";
const CRASH_SWEEP: &str = "seeded::engine::crashes::a_crash_after_any_write_changes_nothing_that_can_be_seen";
const TWO_CRASHES: &str = "seeded::engine::crashes::a_second_crash_during_the_recovery_from_the_first_changes_nothing";

macro_rules! seeded_bugs {
    ($($(#[$doc:meta])* $test:ident: $bug:ident by $catchers:expr;)*) => {
        $($(#[$doc])* #[test] fn $test() { caught(Bug::$bug, &$catchers); })*
        const TRIED: &[Bug] = &[$(Bug::$bug),*];
    };
}

seeded_bugs! {
    /// G1, G3: acknowledged before it is synced.
    an_acknowledgement_before_the_sync_is_caught: AckBeforeFsync by [
        Catcher::of(LIVES),
        Catcher::of(CRASH_SWEEP),
        Catcher::with(STRACE, FSYNC_CONTRACT),
        Catcher::with(POWER_CUTS, POWER_CUT),
    ];
    /// G3: something is synced, but not what was written.
    a_sync_of_another_file_is_caught: FsyncWrongFile by
        [Catcher::with(STRACE, FSYNC_CONTRACT), Catcher::with(POWER_CUTS, POWER_CUT)];
    /// G3: a file whose name a power cut may take.
    a_directory_that_is_not_synced_is_caught: SkipDirFsync by [Catcher::with(STRACE, FSYNC_CONTRACT)];
    /// G11: a decision that was taken on an older state of the run is written.
    a_commit_without_compare_and_set_is_caught: NoCas by
        [Catcher::of("seeded::log::journal::a_turn_that_does_not_fit_is_refused_with_its_whole_group")];
    /// G13: a repeated request is carried out again, after a restart or in the next run.
    a_request_id_that_is_forgotten_is_caught: DedupeNotPersisted by [
        Catcher::of(LIVES),
        Catcher::of(CRASH_SWEEP),
        Catcher::of("seeded::engine::signals::every_signal_is_delivered_once_and_in_order_of_its_sender"),
        Catcher::of("seeded::engine::signals::unconsumed_signals_go_to_the_next_run_once"),
    ];
    /// G14: a restart starts a timer that is started.
    a_timer_that_is_armed_twice_is_caught: TimerArmedTwice by [
        Catcher::of(LIVES),
        Catcher::of("seeded::engine::timers::a_restart_with_work_under_way_arms_no_timer_again"),
    ];
    /// G13: a signal is acknowledged and forgotten.
    a_signal_that_is_dropped_is_caught: SignalDroppedInFlight by [
        Catcher::of(LIVES),
        Catcher::of("seeded::engine::signals::every_signal_is_delivered_once_and_in_order_of_its_sender"),
    ];
    /// G20: an attempt that has lost its place completes or heartbeats the one that has it.
    a_lease_that_is_not_checked_is_caught: EpochNotChecked by [
        Catcher::of(LIVES),
        Catcher::of("seeded::engine::completion_by_token::a_token_that_is_over_changes_nothing"),
        Catcher::of("seeded::engine::storage::repeated_and_late_outcomes_are_refused_and_change_nothing"),
    ];
    /// G2, G18: what recovery repeats happens twice.
    a_recovery_that_is_not_idempotent_is_caught: RecoveryNotIdempotent by
        [Catcher::of(LIVES), Catcher::of(CRASH_SWEEP), Catcher::of(TWO_CRASHES)];
    /// E32: space is taken back that holds a run.
    a_compaction_that_takes_a_live_record_is_caught: CompactionDeletesLive by [
        Catcher::of(LIVES),
        Catcher::of("seeded::log::journal::a_long_lived_run_does_not_hold_the_log"),
        Catcher::of("seeded::log::journal::a_deleted_run_does_not_come_back"),
    ];
    /// G4, G11: what is in memory and not in the log is acknowledged.
    a_run_that_goes_on_after_a_failed_commit_is_caught: CacheNotEvicted by [
        Catcher::of(LIVES),
        Catcher::of("seeded::engine::storage::a_run_that_is_ahead_of_a_failed_log_acknowledges_nothing"),
    ];
    /// E33: a reader of a history misses an event at the beginning of a page.
    a_page_that_begins_too_late_is_caught: PageOffByOne by [
        Catcher::of(LIVES),
        Catcher::of("seeded::engine::visibility::the_events_of_a_run_are_followed_without_gap_or_repetition"),
    ];
    /// G32: a part of the token opens.
    a_token_compared_by_prefix_is_caught: TokenByPrefix by
        [Catcher::of("api_guard::nothing_but_the_whole_token_opens")];
    /// G33: any name opens.
    a_missing_host_check_is_caught: HostNotChecked by
        [Catcher::of("api_guard::a_worker_answers_to_its_own_names_only")];
    /// E05, G12: a restart gives an activity attempts that it has used.
    a_count_of_attempts_that_is_reset_is_caught: AttemptsResetOnReplay by [
        Catcher::of(LIVES),
        Catcher::of("seeded::engine::activities::crashes_never_add_attempts"),
        Catcher::of("seeded::engine::activities::the_backoff_of_an_activity_survives_crashes"),
    ];
    /// G1, G3: the database is synced, and not what it names.
    a_value_that_is_not_synced_is_caught: ValueNotSynced by
        [Catcher::with(STRACE, FSYNC_CONTRACT), Catcher::with(POWER_CUTS, STORY)];
    /// G1, G3: acknowledged when it is written ahead, and not yet synced.
    an_acknowledgement_before_the_sync_of_what_was_written_ahead_is_caught: AckBeforeJournalSync by
        [Catcher::with(STRACE, FSYNC_CONTRACT), Catcher::with(POWER_CUTS, POWER_CUT)];
    /// G1: the only durable copy is overwritten.
    a_place_that_is_used_again_too_early_is_caught: TrimBeforeSledSync by
        [Catcher::of("seeded::log::ahead::what_was_written_ahead_is_there_after_a_kill")];
    /// G1, G2: a start forgets what a kill left.
    a_replay_that_is_too_short_is_caught: ReplaySkipsLastJournalGroup by
        [Catcher::of("seeded::log::ahead::what_was_written_ahead_is_there_after_a_kill")];
    /// G2, G6: a torn record is taken for a group.
    a_checksum_that_is_not_checked_is_caught: JournalChecksumNotChecked by
        [Catcher::of("seeded::log::ahead::a_torn_record_that_nobody_was_told_of_is_no_damage")];
}

/// The list above is complete, and in the order of the requirements.
#[test]
fn every_seeded_bug_has_its_catchers() {
    assert_eq!(TRIED, Bug::ALL);
}

/// No dependency of what ships turns the bugs on, and the worker of these tests has them.
#[test]
fn the_binary_that_ships_has_no_seeded_bug() {
    let features = |edges: &str, package: &str| {
        let mut tree = Command::new(env!("CARGO"));
        tree.args(["tree", "--offline", "--prefix", "none", "--edges", edges, "--package", package]);
        let output = tree.current_dir(crate::tidy::workspace()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let ships = features("normal,build,features", "bosun-worker");
    assert!(ships.contains("bosun-engine v") && !ships.contains("seeded-bugs"), "{ships}");
    assert!(features("normal,build,dev,features", "bosun-tests").contains("bosun-engine feature \"seeded-bugs\""));
    assert!(names_the_variable(&example("bosun").unwrap()));
}

/// The very bytes of the release do not name the variable that chooses a bug.
#[test]
#[ignore = "it builds the release: cargo full"]
fn the_bytes_of_the_release_have_no_seeded_bug() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--package", "bosun-worker", "--bin", "bosun", "--message-format", "json"]);
    let output = cargo.current_dir(crate::tidy::workspace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let built = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let built = built.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back().unwrap();
    assert!(!names_the_variable(&built), "{}", built.display());
}

fn names_the_variable(program: &Path) -> bool {
    let variable = bosun_engine::seeded::VARIABLE.as_bytes();
    std::fs::read(program).unwrap().windows(variable.len()).any(|bytes| bytes == variable)
}
