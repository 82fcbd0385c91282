//! A provider's key is cut out of what comes back from it: answers, errors, and tokens while they come.
//!
//! Invariant: as in [`crate::capability::scrub`], also where a key comes in pieces. Pure.

use super::{ChatResponse, ModelError, StopReason, StreamToken, TokenSink};
use crate::capability::scrub::Scrubber;

/// Shorter values are words like `ollama` that local servers want instead of a key.
const KEY_LEN_MIN: usize = 8;

/// What cuts this key out, if there is one.
pub(super) fn of_key(key: Option<&str>) -> Scrubber {
    let mut scrubber = Scrubber::default();
    key.iter().for_each(|key| scrubber.add(key, KEY_LEN_MIN));
    scrubber
}

impl Scrubber {
    pub(super) fn response(&self, mut response: ChatResponse) -> ChatResponse {
        if self.is_empty() {
            return response;
        }
        response.said.content = self.text(&response.said.content);
        for call in &mut response.said.tool_calls {
            call.id = self.text(&call.id);
            call.name = self.text(&call.name);
            self.value(&mut call.arguments);
        }
        if let StopReason::Other(reason) = &mut response.stop {
            *reason = self.text(reason);
        }
        response.model = self.text(&response.model);
        response.id = response.id.map(|id| self.text(&id));
        response
    }

    pub(super) fn error(&self, mut error: ModelError) -> ModelError {
        error.message = self.cut_text(&error.message);
        error.code = error.code.map(|code| self.cut_text(&code));
        error
    }
}

/// Hands tokens on without keys: what may be the beginning of one is held back until it is known to be none.
pub(super) struct ScrubbedSink<'a> {
    scrubber: &'a Scrubber,
    sink: &'a mut dyn TokenSink,
    pending: String,
}

impl<'a> ScrubbedSink<'a> {
    pub(super) fn new(scrubber: &'a Scrubber, sink: &'a mut dyn TokenSink) -> Self {
        ScrubbedSink { scrubber, sink, pending: String::new() }
    }

    /// The answer is whole: nothing can follow that makes a key of what is held.
    pub(super) fn flush(&mut self) {
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.sink.token(StreamToken::Text(&self.scrubber.cut_text(&rest)));
        }
    }
}

impl TokenSink for ScrubbedSink<'_> {
    fn token(&mut self, token: StreamToken<'_>) {
        match token {
            StreamToken::Text(text) => {
                self.pending.push_str(text);
                let (ready, from) = self.scrubber.so_far(&self.pending);
                self.pending.drain(..from);
                if !ready.is_empty() {
                    self.sink.token(StreamToken::Text(&ready));
                }
            }
            StreamToken::ToolCall(name) => self.sink.token(StreamToken::ToolCall(&self.scrubber.text(name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-live/aB+\"9=xyzXYZ";

    proptest! {
        #[test]
        fn a_key_in_pieces_is_never_shown(
            before in "[a-zäk-]{0,12}", after in "[a-zäs]{0,12}", twice in any::<bool>(),
            cuts in proptest::collection::vec(any::<usize>(), 0..12),
        ) {
            let text = format!("{before}{KEY}{}{after}", if twice { KEY } else { "" });
            let mut places: Vec<usize> =
                cuts.iter().map(|cut| cut % text.len()).filter(|&cut| text.is_char_boundary(cut)).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let mut shown = String::new();
            let mut keep = |token: StreamToken<'_>| if let StreamToken::Text(text) = token { shown.push_str(text) };
            let scrubber = of_key(Some(KEY));
            let mut sink = ScrubbedSink::new(&scrubber, &mut keep);
            places.windows(2).for_each(|pair| sink.token(StreamToken::Text(&text[pair[0]..pair[1]])));
            sink.flush();
            prop_assert_eq!(shown, scrubber.text(&text));
        }
    }
}
