//! How long values are made smaller: deflate with a dictionary of what every group has.
//!
//! Invariant: `unpack` undoes `pack` exactly, on every machine and for ever: the dictionary is part of the format, and
//! another one would need another number. Damaged input is an error and never more memory than was asked for.

use std::sync::LazyLock;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// What a group has besides the bytes of its users: names of events and of their parts, as rmp-serde and JSON write
/// them. What is likely stands last: a match that is near is cheaper.
static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| PIECES.concat());

const PIECES: &[&[u8]] = &[
    b"FirstWorkflowTaskScheduled WorkflowExecutionSignaled WorkflowExecutionPaused WorkflowExecutionUnpaused ",
    b"WorkflowExecutionUpdateAccepted WorkflowExecutionUpdateCompleted WorkflowExecutionCancelRequested ",
    b"WorkflowExecutionCompleted WorkflowExecutionFailed WorkflowExecutionTimedOut WorkflowExecutionCanceled ",
    b"WorkflowExecutionTerminated WorkflowExecutionContinuedAsNew WorkflowExecutionForked WorkflowPropertiesModified ",
    b"UpsertWorkflowSearchAttributes StartChildWorkflowExecutionInitiated StartChildWorkflowExecutionFailed ",
    b"ChildWorkflowExecutionStarted ChildWorkflowExecutionCompleted ChildWorkflowExecutionFailed ",
    b"ChildWorkflowExecutionCanceled ChildWorkflowExecutionTimedOut ChildWorkflowExecutionTerminated ",
    b"SignalExternalWorkflowExecutionInitiated ExternalWorkflowExecutionSignaled MarkerRecorded SideEffect Patch ",
    b"ActivityTaskAttemptFailed ActivityTaskTimedOut ActivityTaskFailed ActivityTaskCancelRequested ",
    b"ActivityTaskCanceled ActivityTaskPaused ActivityTaskUnpaused ActivityTaskAwaitingCompletion TimerCanceled ",
    br#"{"status":200,"headers":{"content-type":"application/json"},"body":"","url":"https://","method":"GET"}"#,
    br#"{"exit_code":0,"stdout":"","stderr":"","argv":[""],"path":"","error":{"kind":"","message":"","reason":""}}"#,
    br#"{"name":"","description":"","parameters":{"type":"object","properties":{"#,
    br#""required":[]}},"provider":"","system":"","task":"","temperature":0,"timeout_ms":600000,"#,
    br#""messages":[{"role":"user","content":""},{"role":"assistant","content":""},{"role":"tool","id":"","content":""}]"#,
    br#"{"id":"","goal":"","result":"","summary":"","steps":[{"agent":"","input":"","depends_on":[]}]"#,
    b"\xafWorkflowExecutionStarted\xacTimerStarted\x93\x01\xcf\x00\x06\xaaTimerFired\x91\xc0\xc0",
    b"\x00\x00\x00\x00\x00\x00\x00\x99\xc4\x10\x01\xa2\xcf\x00\x06\xcff\x93R\x93\x81\xb5ActivityTaskCompleted\x93\x12",
    br#"json{"cost":{"micros":0},"response":{"said":{"content":"#,
    br#"","tool_calls":[{"id":"call_","name":"","arguments":{"at":"#,
    br#"}}]},"stop":"tools","usage":{"input":,"output":,"cached":"#,
    br#"","tool_calls":[]},"stop":"end","usage":{"input":,"output":},"model":"}}"#,
    b"\xc0\x81\xb5ActivityTaskScheduled\x95\x12\xa218\xabagent_model\x92\xa4json\xc4",
    br#"]{"key":1,"purpose":"answer","model":"","max_tokens":4096,"after":1,"items":[{"given":1}]}"#,
    b"\x98\xc0\xc0\xc0\x92\xcd\x02X\x00\xc0\x95\x92\x01\x00\xcd\x07\xd0\x92<\x00\n\x92\xafModelNeedsHuman\xaaModelFatal",
    b"\xc0\xc0\xc0\x92K\x00\xc0\x95\x92\x01\x00\xcd\x07\xd0\xc0\x01\x90\xa9TryCancel\xa1",
    b"\x81\xb3ActivityTaskStarted\x92\x12\x01\x90\x00\x90\x92\xcf\x00\x06\xc3",
];

/// The cheapest level at which zlib-rs fits its codes to the text.
const LEVEL: Compression = Compression::new(2);

/// Packs bodies, one after the other, in the same memory.
#[derive(Debug)]
pub(crate) struct Packer(Compress);

impl Default for Packer {
    fn default() -> Self {
        Packer(Compress::new(LEVEL, false))
    }
}

impl Packer {
    /// The packed bytes, if they are fewer.
    pub(crate) fn pack(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        self.0.reset();
        self.0.set_dictionary(&DICTIONARY).ok()?;
        // What does not fit in this is not worth it.
        let mut packed = Vec::with_capacity(body.len() - body.len() / 16);
        match self.0.compress_vec(body, &mut packed, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => Some(packed),
            _ => {
                // One that gave up is no good any more: its reset keeps what it had not yet written, and it panics when
                // that has become too much (zlib-rs 0.6.8).
                self.0 = Compress::new(LEVEL, false);
                None
            }
        }
    }
}

/// Unpacks bodies, one after the other, in the same memory.
#[derive(Debug)]
pub(crate) struct Unpacker(Decompress);

impl Default for Unpacker {
    fn default() -> Self {
        Unpacker(Decompress::new(false))
    }
}

impl Unpacker {
    /// The body, which must have this length.
    pub(crate) fn unpack(&mut self, packed: &[u8], length: usize) -> Result<Vec<u8>, String> {
        // Deflate cannot shrink by more than a factor of about 1 032.
        if length / 1_040 > packed.len() {
            return Err(format!("{} bytes cannot hold {length}", packed.len()));
        }
        self.0.reset(false);
        self.0.set_dictionary(&DICTIONARY).map_err(|why| why.to_string())?;
        // One byte more, so that the end is reached and not only the length.
        let mut body = Vec::with_capacity(length + 1);
        match self.0.decompress_vec(packed, &mut body, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) if body.len() == length => Ok(body),
            failed => {
                *self = Unpacker::default();
                match failed {
                    Ok(_) => Err(format!("it unpacks to {} bytes instead of {length}", body.len())),
                    Err(why) => Err(why.to_string()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::BlobHash;
    use crate::log::tests::samples;

    fn there_and_back(body: &[u8]) -> Option<usize> {
        let packed = Packer::default().pack(body)?;
        assert_eq!(Unpacker::default().unpack(&packed, body.len()).as_deref(), Ok(body));
        Some(packed.len())
    }

    proptest! {
        /// What is packed comes back, whatever it is; what does not get smaller is left as it is.
        #[test]
        fn every_body_comes_back(
            noise in prop::collection::vec(any::<u8>(), 512..4_000),
            text in "[a-z \"{}:,]{512,4000}",
            repeat in 1usize..200,
        ) {
            prop_assert_eq!(there_and_back(&noise), None);
            prop_assert!(there_and_back(text.as_bytes()).unwrap() < text.len());
            prop_assert!(there_and_back(&text.repeat(repeat).into_bytes()).unwrap() < text.len() * repeat);
        }

        /// A packer goes on for ever, whatever it was given before.
        #[test]
        fn values_in_any_order_come_back(
            bodies in prop::collection::vec((prop::collection::vec(any::<u8>(), 513..9_000), any::<bool>()), 1..60),
        ) {
            let (mut packer, mut unpacker) = (Packer::default(), Unpacker::default());
            for (noise, text) in bodies {
                let body = if text { noise.iter().map(|byte| b'a' + byte % 26).collect() } else { noise };
                if let Some(packed) = packer.pack(&body) {
                    let found = unpacker.unpack(&packed, body.len());
                    prop_assert_eq!(found, Ok(body));
                }
            }
        }

        /// G6: damaged bytes are an error or another body (which the CRC of its frame finds before), never a panic, and
        /// never more than was asked for.
        #[test]
        fn damaged_bytes_do_no_harm(
            noise in prop::collection::vec(any::<u8>(), 0..600),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
            length in 0usize..3_000,
        ) {
            let body = rmp_serde::to_vec(&samples::step(1, 4, 2_000)).unwrap();
            let mut packed = Packer::default().pack(&body).unwrap();
            let at = at.index(packed.len());
            packed[at] ^= 1 << bit;
            for bytes in [&packed[..], &packed[..at], &noise[..]] {
                if let Ok(found) = Unpacker::default().unpack(bytes, length) {
                    prop_assert_eq!(found.len(), length);
                }
            }
        }
    }

    /// G6: a few bytes that claim to be gigabytes are refused before memory is asked for.
    #[test]
    fn a_bomb_is_refused() {
        let why = Unpacker::default().unpack(&[0; 100], 4_000_000_000).unwrap_err();
        assert_eq!(why, "100 bytes cannot hold 4000000000");
    }

    /// Bytes that do not get smaller are let through, however many of them come one after the other.
    #[test]
    fn what_does_not_shrink_harms_nothing() {
        let mut state = 1u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        for length in [520, 1_000, 3_000, 6_000, 10_000, 20_000, 100_000] {
            let mut packer = Packer::default();
            for _ in 0..300 {
                let noise: Vec<u8> = (0..length).map(|_| next()).collect();
                assert_eq!(packer.pack(&noise), None);
            }
            assert!(packer.pack(&vec![7; length]).is_some());
        }
    }

    /// One packer serves all bodies, and none sees another.
    #[test]
    fn a_packer_forgets_what_it_packed() {
        let (mut packer, mut unpacker) = (Packer::default(), Unpacker::default());
        let bodies: Vec<Vec<u8>> =
            (1..40).map(|n| rmp_serde::to_vec(&samples::step(n, 4, 50 * n as usize)).unwrap()).collect();
        let packed: Vec<Vec<u8>> = bodies.iter().map(|body| packer.pack(body).unwrap()).collect();
        for (packed, body) in packed.iter().zip(&bodies).rev() {
            assert_eq!(unpacker.unpack(packed, body.len()).as_ref(), Ok(body));
            assert_eq!(Packer::default().pack(body).as_ref(), Some(packed));
        }
    }

    /// G9: the dictionary is part of the format: bodies packed with it must be read for ever.
    #[test]
    fn the_dictionary_is_what_it_was() {
        let digest = BlobHash::of(&DICTIONARY).to_string();
        assert_eq!((DICTIONARY.len(), &digest[..16]), (2_174, "4e60cdbba2a89bbe"));
    }
}
