//! Tokens while they come: a bounded broadcast for whoever is watching now.
//!
//! Invariant: nothing here is durable and nobody waits for a watcher; one that is too slow misses tokens and is told how
//! many. Every attempt begins with `reset`, upon which what earlier attempts showed is to be dropped.

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::{CallTag, StreamToken, TokenSink};

/// How many tokens a slow watcher may be behind.
const CAPACITY: usize = 1024;

/// One thing to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveToken {
    #[serde(flatten)]
    pub tag: CallTag,
    /// From 0 in each attempt, without gaps.
    pub seq: u64,
    pub what: LiveWhat,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveWhat {
    /// A new attempt begins.
    Reset,
    Text(String),
    /// The model is calling this tool.
    ToolCall(String),
    /// The attempt is over, with an answer or without.
    End,
}

/// The broadcast. Clones are the same one.
#[derive(Debug, Clone)]
pub struct TokenBroadcast(broadcast::Sender<LiveToken>);

impl Default for TokenBroadcast {
    fn default() -> Self {
        TokenBroadcast(broadcast::Sender::new(CAPACITY))
    }
}

impl TokenBroadcast {
    /// Everything from now on.
    pub fn watch(&self) -> broadcast::Receiver<LiveToken> {
        self.0.subscribe()
    }

    /// The sink of one attempt.
    pub(super) fn sink(&self, tag: CallTag) -> LiveSink {
        let mut sink = LiveSink { live: self.clone(), tag, seq: 0 };
        sink.send(LiveWhat::Reset);
        sink
    }
}

/// Shows the tokens of one attempt, and its end when dropped.
#[derive(Debug)]
pub(super) struct LiveSink {
    live: TokenBroadcast,
    tag: CallTag,
    seq: u64,
}

impl LiveSink {
    fn send(&mut self, what: LiveWhat) {
        // An error means that nobody watches.
        let _ = self.live.0.send(LiveToken { tag: self.tag.clone(), seq: self.seq, what });
        self.seq += 1;
    }
}

impl TokenSink for LiveSink {
    fn token(&mut self, token: StreamToken<'_>) {
        self.send(match token {
            StreamToken::Text(text) => LiveWhat::Text(text.to_owned()),
            StreamToken::ToolCall(name) => LiveWhat::ToolCall(name.to_owned()),
        });
    }
}

impl Drop for LiveSink {
    fn drop(&mut self) {
        self.send(LiveWhat::End);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    fn tag(attempt: u32) -> CallTag {
        CallTag { workflow_id: "w".into(), run_id: "r".into(), activity: 4, attempt }
    }

    #[test]
    fn a_new_attempt_resets_and_the_last_word_is_the_end() {
        let live = TokenBroadcast::default();
        let mut watcher = live.watch();
        for attempt in [1, 2] {
            let mut sink = live.sink(tag(attempt));
            sink.token(StreamToken::Text("half"));
            sink.token(StreamToken::ToolCall("search"));
        }
        let mut seen = Vec::new();
        while let Ok(token) = watcher.try_recv() {
            seen.push((token.tag.attempt, token.seq, token.what));
        }
        let of = |attempt| {
            let what =
                [LiveWhat::Reset, LiveWhat::Text("half".into()), LiveWhat::ToolCall("search".into()), LiveWhat::End];
            what.into_iter().enumerate().map(move |(seq, what)| (attempt, seq as u64, what))
        };
        assert_eq!(seen, of(1).chain(of(2)).collect::<Vec<_>>());
    }

    #[test]
    fn a_slow_watcher_misses_tokens_and_holds_nobody_up() {
        let live = TokenBroadcast::default();
        let mut watcher = live.watch();
        let mut sink = live.sink(tag(1));
        (0..CAPACITY * 2).for_each(|_| sink.token(StreamToken::Text("x")));
        assert_eq!(watcher.try_recv(), Err(TryRecvError::Lagged(CAPACITY as u64 + 1)));
        assert_eq!(watcher.try_recv().unwrap().seq, CAPACITY as u64 + 1);
    }

    #[test]
    fn a_token_is_flat_data() {
        let token = LiveToken { tag: tag(2), seq: 1, what: LiveWhat::Text("a".into()) };
        let wanted = serde_json::json!({
            "workflow_id": "w", "run_id": "r", "activity": 4, "attempt": 2, "seq": 1, "what": {"text": "a"},
        });
        assert_eq!(serde_json::to_value(token).unwrap(), wanted);
    }
}
