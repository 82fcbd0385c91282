//! Server-sent events: bytes in any chunks to events.
//!
//! Invariant: the events depend on the bytes and not on how they were cut into chunks; no line and no event is held
//! beyond its limit. A line is decoded when it is whole, so a character that was cut in two is whole again, and bytes
//! that are no UTF-8 become U+FFFD. An event that the end of the stream cuts off is no event. Pure.

/// One event. `id` and `retry` mean nothing to a request that is not resumed, and are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Empty when the server named none.
    pub(super) name: String,
    pub(super) data: String,
}

/// What may be held at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct SseLimits {
    pub(super) line: usize,
    pub(super) event: usize,
}

impl Default for SseLimits {
    fn default() -> Self {
        SseLimits { line: 1024 * 1024, event: 4 * 1024 * 1024 }
    }
}

/// A line or an event is longer than allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SseError {
    #[error("a line of the event stream has more than {0} bytes")]
    Line(usize),
    #[error("an event of the stream has more than {0} bytes")]
    Event(usize),
}

/// The state between two chunks.
#[derive(Debug, Default)]
pub(super) struct Parser {
    limits: SseLimits,
    line: Vec<u8>,
    /// A CR ended the last line: an LF that follows belongs to it.
    after_cr: bool,
    /// The first line is behind us: a byte order mark is text from now on.
    begun: bool,
    name: String,
    data: String,
    has_data: bool,
}

impl Parser {
    pub(super) fn new(limits: SseLimits) -> Self {
        Parser { limits, ..Parser::default() }
    }

    /// Takes the next bytes and appends the events that they complete.
    pub(super) fn push(&mut self, mut chunk: &[u8], events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        while let Some(end) = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&chunk[..end])?;
            self.end_line(events)?;
            let is_cr = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            if is_cr {
                self.after_cr = chunk.is_empty();
                chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
            }
        }
        self.extend_line(chunk)
    }

    /// Whether the stream could end here without cutting anything off.
    pub(super) fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.has_data && self.name.is_empty()
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + bytes.len() > self.limits.line {
            return Err(SseError::Line(self.limits.line));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        let bytes = std::mem::take(&mut self.line);
        let mut bytes = &bytes[..];
        if !std::mem::replace(&mut self.begun, true) {
            bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        }
        let line = String::from_utf8_lossy(bytes);
        if line.is_empty() {
            self.end_event(events);
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.add_data(value)?,
            _ => {} // a comment, `id`, `retry`, or nothing known
        }
        Ok(())
    }

    fn add_data(&mut self, value: &str) -> Result<(), SseError> {
        if self.data.len() + value.len() + 1 > self.limits.event {
            return Err(SseError::Event(self.limits.event));
        }
        if self.has_data {
            self.data.push('\n');
        }
        self.data.push_str(value);
        self.has_data = true;
        Ok(())
    }

    /// An event without data is none.
    fn end_event(&mut self, events: &mut Vec<SseEvent>) {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            events.push(SseEvent { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_with(limits: SseLimits, chunks: &[&[u8]]) -> Result<Vec<SseEvent>, SseError> {
        let mut parser = Parser::new(limits);
        let mut events = Vec::new();
        for chunk in chunks {
            parser.push(chunk, &mut events)?;
        }
        Ok(events)
    }

    fn parse(text: &[u8]) -> Vec<(String, String)> {
        let events = parse_with(SseLimits::default(), &[text]).unwrap();
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    #[track_caller]
    fn check(text: &[u8], wanted: &[(&str, &str)]) {
        let wanted: Vec<_> = wanted.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect();
        assert_eq!(parse(text), wanted);
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        check(b"data: a\n\n", &[("", "a")]);
        check(b"data: a\ndata:b\ndata:  c\n\n", &[("", "a\nb\n c")]);
        check(b"event: x\ndata: 1\n\ndata: 2\n\n", &[("x", "1"), ("", "2")]);
        check(b": comment\nid: 7\nretry: 10\nnonsense\ndata: a\n\n", &[("", "a")]);
        check(b"event: x\n\ndata: a\n\n", &[("", "a")]);
        check(b"data\n\ndata:\ndata:\n\n", &[("", ""), ("", "\n")]);
        check(b"data: a", &[]);
        check(b"data: a\n", &[]);
        check(b"", &[]);
    }

    #[test]
    fn every_line_ending_ends_a_line_once() {
        check(b"data: a\r\rdata: b\r\n\r\ndata: c\n\n", &[("", "a"), ("", "b"), ("", "c")]);
        check(b"data: a\r\n\r\n\r\n", &[("", "a")]);
        check(b"data: a\n\r\n", &[("", "a")]);
    }

    #[test]
    fn a_byte_order_mark_is_dropped_at_the_beginning_only() {
        check(b"\xef\xbb\xbfdata: a\n\n", &[("", "a")]);
        check(b"data: a\n\n\xef\xbb\xbfdata: b\n\n", &[("", "a")]);
        check("data: \u{feff}a\n\n".as_bytes(), &[("", "\u{feff}a")]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_break_nothing_else() {
        check(b"data: a\xffb\n\ndata: c\n\n", &[("", "a\u{fffd}b"), ("", "c")]);
        check(b"data: \xe2\x82\n\n", &[("", "\u{fffd}")]);
    }

    #[test]
    fn lines_and_events_have_limits() {
        let limits = SseLimits { line: 10, event: 8 };
        assert_eq!(parse_with(limits, &[b"data: abcd\n\n"]).unwrap().len(), 1);
        assert_eq!(parse_with(limits, &[b"data: ", b"abcde"]), Err(SseError::Line(10)));
        assert_eq!(parse_with(limits, &[b"data:abc\ndata:abcde\n"]), Err(SseError::Event(8)));
        // Many short events are no long one.
        assert_eq!(parse_with(limits, &[&b"data:abc\n\n".repeat(100)]).unwrap().len(), 100);
    }

    #[test]
    fn the_end_inside_an_event_is_noticed() {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        parser.push(b"data: a\n\n", &mut events).unwrap();
        assert!(parser.is_between_events());
        parser.push(b"da", &mut events).unwrap();
        assert!(!parser.is_between_events());
        parser.push(b"ta: b\n", &mut events).unwrap();
        assert!(!parser.is_between_events());
    }

    /// Pieces that are likely to meet at a bad place.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let fixed: Vec<&'static [u8]> = vec![
            b"data",
            b":",
            b" ",
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"event: x",
            b"data: ",
            b"\xef\xbb\xbf",
            b"\xff",
            b"\xe2\x82\xac",
            b"\xf0\x9f\x9a\xa2",
            b"\xe2\x82",
            b": note",
            b"id: 1",
            b"{\"a\":1}",
            b"[DONE]",
        ];
        let piece = prop_oneof![
            4 => proptest::sample::select(fixed).prop_map(<[u8]>::to_vec),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(bytes in stream(), cuts in proptest::collection::vec(any::<usize>(), 0..20)) {
            let whole = parse_with(SseLimits::default(), &[&bytes]);
            prop_assert_eq!(&parse_with(SseLimits::default(), &pieces(&bytes, &cuts)), &whole);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&parse_with(SseLimits::default(), &single), &whole);
        }

        #[test]
        fn what_is_written_is_read(
            texts in proptest::collection::vec("[^\r\n]{0,20}(\n[^\r\n]{0,20}){0,3}", 0..8),
            ending in proptest::sample::select(vec!["\n", "\r", "\r\n"]),
            cuts in proptest::collection::vec(any::<usize>(), 0..20),
        ) {
            let written: String = texts
                .iter()
                .map(|text| text.split('\n').map(|line| format!("data: {line}{ending}")).collect::<String>() + ending)
                .collect();
            let events = parse_with(SseLimits::default(), &pieces(written.as_bytes(), &cuts)).unwrap();
            let read: Vec<String> = events.into_iter().map(|event| event.data).collect();
            prop_assert_eq!(read, texts);
        }
    }
}
