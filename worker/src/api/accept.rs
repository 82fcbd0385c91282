//! Accepting connections, also while the process has no file descriptor left for one.
//!
//! Invariant: a connection that cannot be accepted ends nothing: it is tried again until it can. The first failure is logged at
//! once, and then one line a minute says how many attempts failed since, so that an outage of hours does not fill a disk.
//! Nothing is refused here.

use std::io::Error;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};

/// How often a failure that lasts is logged.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// How long to wait for a file descriptor to come back.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Door {
    listener: TcpListener,
    told_at: Option<Instant>,
    failures: u64,
}

impl Door {
    pub(super) fn new(listener: TcpListener) -> Door {
        Door { listener, told_at: None, failures: 0 }
    }

    /// The next connection.
    pub(super) async fn next(&mut self) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(why) => {
                    self.hear(&why);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn hear(&mut self, why: &Error) {
        self.failures += 1;
        if self.told_at.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            tracing::warn!(error = %why, attempts = self.failures, "cannot accept connections, and tries again");
            (self.told_at, self.failures) = (Some(Instant::now()), 0);
        }
    }
}
