//! Reading a child's output with a cap: the first bytes are kept, the rest is counted and dropped.
//!
//! Invariant: a reader never stops reading because of the cap, so a chatty child never blocks; what was read so far is
//! there even when the reader is given up, because a grandchild may hold the pipe open for ever.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

#[derive(Default)]
struct Captured {
    kept: Vec<u8>,
    total: u64,
}

/// One stream being read in the background.
pub(super) struct Capture {
    captured: Arc<Mutex<Captured>>,
    reader: JoinHandle<()>,
}

impl Capture {
    pub(super) fn start(mut pipe: impl AsyncRead + Unpin + Send + 'static, max: u64) -> Self {
        let captured = Arc::new(Mutex::new(Captured::default()));
        let shared = captured.clone();
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
                let mut captured = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let room = max.saturating_sub(captured.kept.len() as u64).min(length as u64) as usize;
                captured.kept.extend_from_slice(&buffer[..room]);
                captured.total += length as u64;
            }
        });
        Capture { captured, reader }
    }

    /// Waits for the end of the stream, but no longer than `patience`. True if it came.
    pub(super) async fn finished_within(&mut self, patience: Duration) -> bool {
        self.reader.is_finished() || tokio::time::timeout(patience, &mut self.reader).await.is_ok()
    }

    pub(super) fn bytes_so_far(&self) -> u64 {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    /// The kept text and how many bytes there were in all.
    pub(super) fn take(self) -> (String, u64) {
        self.reader.abort();
        let mut captured = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = captured.total > captured.kept.len() as u64;
        let mut kept = std::mem::take(&mut captured.kept);
        if cut {
            kept.truncate(whole_characters(&kept));
        }
        (into_text(kept), captured.total)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// The last part of a text, for failures: at most `max` bytes, cut at a character.
pub(super) fn tail(text: &str, max: usize) -> &str {
    let mut from = text.len().saturating_sub(max);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// The length without a UTF-8 character that the cap has cut in two.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(why) if why.error_len().is_none() => why.valid_up_to(),
        _ => bytes.len(),
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|why| String::from_utf8_lossy(why.as_bytes()).into_owned())
}
