//! All integration tests in one binary: one link, one file a feature.

mod fsync_contract;
mod full_disk;
mod kill;
mod power_cut;
mod replay_cli;
mod rig;
mod rows;
mod storage_faults;
mod tidy;
mod timers;
