//! The client asks about the store as a whole: whether it is sound, how large it is, how long runs are kept; a backup.
//!
//! Invariant: nothing here waits for a turn thread, and none of it is a failure of the log when it is refused.

use std::path::Path;

use super::Client;
use crate::log::{BackupReport, HousekeepingReport, StoreInfo, VerifyReport};
use crate::service::RetentionInfo;
use crate::vocabulary::*;

impl Client {
    /// Does now what a worker does now and then: checkpoints, archives, deletes runs past retention, collects blobs; a
    /// bounded piece of each (E32).
    pub async fn housekeep(&self) -> Result<HousekeepingReport, Rejection> {
        self.read(crate::service::housekeep).await
    }

    /// Checks everything that is stored (E38).
    pub async fn verify(&self) -> Result<VerifyReport, Rejection> {
        self.admit_reading("verify", None)?;
        self.read(|shared| Ok(shared.journal.verify())).await
    }
    /// Copies a consistent prefix of the log to a new directory, while work goes on (E38, G10).
    pub async fn backup(&self, directory: &Path) -> Result<BackupReport, Rejection> {
        self.admit_reading("backup", None)?;
        let directory = directory.to_owned();
        self.read(move |shared| shared.journal.backup(&directory)).await
    }
    /// How long closed runs are kept, and what that means now.
    pub fn retention(&self) -> RetentionInfo {
        self.shared.retention()
    }
    /// What the data directory holds, in numbers.
    pub async fn store_info(&self) -> Result<StoreInfo, Rejection> {
        self.admit_reading("store-info", None)?;
        self.read(|shared| Ok(shared.journal.info())).await
    }
}
