//! The mailbox: appended, bounded, delivered, counted.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::supervisor::outbox::Ask;
use crate::supervisor::spec::Mailbox;
use crate::supervisor::team::mailbox::*;

fn filled(count: usize, limit: u32) -> (Mailboxes, Outbox) {
    let (mut mailbox, mut out) = (Mailboxes::new(Mailbox { limit, ..Mailbox::default() }), outbox(0));
    for i in 1..=count {
        mailbox.append(MailDraft::new("a", "b", format!("m{i}")), &mut out).unwrap();
    }
    (mailbox, out)
}

fn seqs(messages: &[MailboxMessage]) -> Vec<u64> {
    messages.iter().map(|message| message.seq).collect()
}

/// SHN-10: the four fields by their names, in either spelling; a strange kind of content is kept as JSON.
#[test]
fn a_signal_appends_its_message() {
    let (mut mailbox, mut out) = (Mailboxes::default(), outbox(7));
    let mut signal = |input| mailbox.received(&input, &mut out);
    assert_eq!(signal(json!({ "From": "a", "To": "b", "Role": "researcher", "Content": "new product" })), Ok(1));
    assert_eq!(signal(json!({ "from": "a", "to": "c", "content": { "n": 1 }, "type": "request" })), Ok(2));
    let view = mailbox.view();
    assert_eq!(
        serde_json::to_value(&view[0]).unwrap(),
        json!({ "Seq": 1, "AgentSeq": 1, "From": "a", "To": "b", "Role": "researcher", "Content": "new product",
                "Kind": "info", "At": at(7) })
    );
    assert_eq!((view[1].draft.content.as_str(), view[1].draft.kind), (r#"{"n":1}"#, MessageKind::Request));
    assert_eq!(noted(&out), [NoteKind::MailboxAppended, NoteKind::MailboxAppended]);
}

/// SHN-10: what is no message changes nothing, says which field is wrong, and hinders no later one.
#[test]
fn a_signal_that_is_no_message_is_counted_and_passed_over() {
    let (mut mailbox, mut out) = (Mailboxes::default(), outbox(0));
    for (input, said) in [
        (json!({ "From": "a", "Content": "x" }), ".: missing field `To`"),
        (json!({ "To": 3 }), "To: invalid type: integer `3`, expected a string"),
        (json!("hello"), ".: invalid type: string \"hello\", expected struct MailDraft"),
        (
            json!({ "To": "b", "Kind": "shout" }),
            "Kind: unknown variant `shout`, expected one of `request`, `offer`, `accept`, `delegation`, `info`",
        ),
    ] {
        assert_eq!(mailbox.received(&input, &mut out).unwrap_err().to_string(), said);
    }
    assert_eq!((mailbox.view(), mailbox.counts().refused), (vec![], 4));
    assert_eq!(mailbox.received(&json!({ "To": "b" }), &mut out), Ok(1));
}

/// SHN-11: a full queue skips the message, counts and notes the drop, and later signals are handled.
#[test]
fn a_full_delivery_queue_skips_and_never_waits() {
    let rules = Mailbox { queue: 2, ..Mailbox::default() };
    let (mut mailbox, mut out) = (Mailboxes::new(rules), outbox(0));
    for i in 1..=4 {
        mailbox.append(MailDraft::new("a", "b", format!("m{i}")), &mut out).unwrap();
    }
    assert_eq!(seqs(&mailbox.unread("b")), [1, 2]);
    assert_eq!(mailbox.counts().dropped, 2);
    let dropped: Vec<&serde_json::Value> =
        out.notes().iter().filter(|note| note.kind == NoteKind::MailboxDropped).map(|note| &note.data).collect();
    assert_eq!(dropped.len(), 2);
    assert_eq!(
        dropped[1],
        &json!({ "seq": 4, "to": "b", "reason": "the delivery queue of the recipient is full", "dropped": 2 })
    );
    // Others still get theirs, and so does b once it has read.
    mailbox.append(MailDraft::new("a", "c", "m5"), &mut out).unwrap();
    mailbox.mark_read("b", 1);
    mailbox.append(MailDraft::new("a", "b", "m6"), &mut out).unwrap();
    assert_eq!((seqs(&mailbox.unread("c")), seqs(&mailbox.unread("b"))), (vec![5], vec![2, 6]));
    assert_eq!(mailbox.view().len(), 6, "what was not delivered can still be read by people");
}

/// SHN-12: the view is a copy, and looking notes nothing.
#[test]
fn the_view_is_a_copy() {
    let (mailbox, out) = filled(3, 100);
    let (before, notes) = (mailbox.clone(), out.notes().len());
    let mut view = mailbox.view();
    view[0].draft.content = "changed".into();
    view.clear();
    assert_eq!((mailbox, out.notes().len()), (before, notes));
}

/// SHN-13: exactly the limit stays; one more, and the oldest half goes. The default limit is 100.
#[test]
fn one_message_too_many_keeps_the_latter_half() {
    assert_eq!(Mailbox::default().limit, 100);
    for (count, limit, first, kept, trimmed) in [
        (100, 100, 1, 100, 0),
        (101, 100, 51, 51, 50),
        (150, 100, 51, 100, 50),
        (151, 100, 101, 51, 100),
        (4, 4, 1, 4, 0),
        (5, 4, 3, 3, 2),
        (2, 1, 2, 1, 1),
        (3, 0, 0, 0, 3),
    ] {
        let (mailbox, out) = filled(count, limit);
        let view = mailbox.view();
        assert_eq!(view.first().map_or(0, |message| message.seq), first, "{count} of {limit}");
        let counts = mailbox.counts();
        assert_eq!((counts.kept, counts.trimmed), (kept, trimmed), "{count} of {limit}");
        assert_eq!(noted(&out).contains(&NoteKind::MailboxTrimmed), trimmed > 0);
    }
}

/// SHN-14: a message reaches an agent that depends on nobody, in its next context, until it has worked with it.
#[test]
fn a_message_is_in_the_next_context_of_its_recipient() {
    let (mut mailbox, mut out) = (Mailboxes::default(), outbox(0));
    mailbox.append(MailDraft::new("researcher", "analyst", "look at the new product"), &mut out).unwrap();
    mailbox.append(MailDraft::new("researcher", "writer", "later"), &mut out).unwrap();
    let shown = mailbox.unread("analyst");
    assert_eq!(shown[0].draft.content, "look at the new product");
    assert_eq!(mailbox.unread("analyst"), shown, "an attempt that failed takes nothing with it");
    mailbox.append(MailDraft::new("researcher", "analyst", "and this"), &mut out).unwrap();
    mailbox.mark_read("analyst", shown[0].seq);
    assert_eq!(seqs(&mailbox.unread("analyst")), [3], "what came meanwhile is for the context after");
    assert_eq!(seqs(&mailbox.unread("writer")), [2]);
    assert!(mailbox.unread("nobody").is_empty());
}

/// SHN-16: a message for another run is a signal to that run, under a key of its own.
#[test]
fn another_run_is_signaled() {
    let (mut mailbox, mut out) = (Mailboxes::default(), outbox(0));
    let draft = MailDraft::new("a", "b", "hello").role("analyst");
    for _ in 0..2 {
        mailbox.send_elsewhere("other-run", &json!(draft), &mut out).unwrap();
    }
    assert!(mailbox.send_elsewhere("other-run", &json!({ "Content": "to nobody" }), &mut out).is_err());
    assert_eq!(out.asks().len(), 2);
    let Ask::SignalExternal { key, workflow_id, signal, input } = &out.asks()[0] else { panic!("{:?}", out.asks()) };
    assert_eq!(
        (key.to_string().as_str(), workflow_id.as_str(), signal.as_str()),
        ("mailbox/send/1", "other-run", "mailbox_v1")
    );
    // The other run takes exactly what was sent.
    let mut other = Mailboxes::default();
    other.received(input, &mut outbox(1)).unwrap();
    assert_eq!(other.view()[0].draft, draft);
    assert!(matches!(&out.asks()[1], Ask::SignalExternal { key, .. } if *key == "mailbox/send/2"));
    assert!(mailbox.view().is_empty(), "it is not ours");
}

/// SHN-17: numbers per agent, five kinds, 1 MB, what came after a number, a window of 200, 48 hours.
#[test]
fn a_swarm_mailbox_numbers_limits_and_fetches() {
    let (mut mailbox, mut out) = (Mailboxes::new(Mailbox { limit: 500, ..Mailbox::default() }), outbox(0));
    let kinds =
        [MessageKind::Request, MessageKind::Offer, MessageKind::Accept, MessageKind::Delegation, MessageKind::Info];
    for (i, kind) in kinds.into_iter().enumerate() {
        let to = if i % 2 == 0 { "x" } else { "y" };
        mailbox.append(MailDraft::new("lead", to, "").kind(kind), &mut out).unwrap();
    }
    let numbers = |messages: Vec<MailboxMessage>| -> Vec<u64> { messages.iter().map(|m| m.agent_seq).collect() };
    assert_eq!(numbers(mailbox.fetch("x", 0, None, at(0))), [1, 2, 3]);
    assert_eq!(numbers(mailbox.fetch("y", 0, None, at(0))), [1, 2]);
    assert_eq!(numbers(mailbox.fetch("x", 2, None, at(0))), [3]);
    assert_eq!(numbers(mailbox.fetch("x", 3, None, at(0))), Vec::<u64>::new());
    let names: Vec<String> = kinds.iter().map(|kind| serde_json::to_string(kind).unwrap()).collect();
    assert_eq!(names, ["\"request\"", "\"offer\"", "\"accept\"", "\"delegation\"", "\"info\""]);

    let content = "x".repeat(1_048_576);
    assert_eq!(mailbox.append(MailDraft::new("a", "z", content.clone()), &mut out), Ok(6));
    let before = mailbox.clone();
    let why = mailbox.append(MailDraft::new("a", "z", content + "x"), &mut out).unwrap_err();
    assert_eq!(why.to_string(), "the content has 1048577 bytes; a message carries at most 1048576");
    assert_eq!(mailbox, before);

    for _ in 0..201 {
        mailbox.append(MailDraft::new("a", "w", ""), &mut outbox(10)).unwrap();
    }
    let fetched = numbers(mailbox.fetch("w", 0, None, at(10)));
    assert_eq!((fetched.len(), fetched[0]), (200, 2));
    assert_eq!(numbers(mailbox.fetch("w", 0, Some(1), at(10))), [201]);
    let two_days = 48 * 3_600;
    assert_eq!(mailbox.fetch("w", 0, None, at(10 + two_days)).len(), 200);
    assert_eq!(mailbox.fetch("w", 0, None, at(11 + two_days)).len(), 0);
}

/// SHN-13: a flood is taken in a bounded space. (How long it takes is not asserted.)
#[test]
fn a_hundred_thousand_messages_need_a_bounded_space() {
    let mut mailbox = Mailboxes::default();
    for i in 0..100_000_u64 {
        let draft = MailDraft::new("a", format!("agent-{}", i % 2_000), "x");
        mailbox.append(draft, &mut outbox(0)).unwrap();
        assert!(mailbox.counts().kept <= 100);
    }
    let counts = mailbox.counts();
    assert_eq!((counts.received, counts.kept + counts.trimmed), (100_000, 100_000));
    assert_eq!((counts.queued, counts.dropped), (100 * FULL_QUEUES_MAX, 90_000));
}

#[derive(Debug, Clone)]
enum Step {
    Append(u8),
    Read(u8, u64),
    Malformed,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4_u8).prop_map(Step::Append),
        1 => ((0..4_u8), (0..80_u64)).prop_map(|(to, seq)| Step::Read(to, seq)),
        1 => Just(Step::Malformed),
    ]
}

proptest! {
    /// SHN-11, SHN-13: whatever happens, the bounds hold, the order is that of arrival, what stays is the newest, the
    /// counts add up, and a snapshot is the same mailbox.
    #[test]
    fn bounds_order_and_counts_hold(
        steps in proptest::collection::vec(step(), 0..120), limit in 0..20_u32, queue in 0..10_u32,
    ) {
        let mut mailbox = Mailboxes::new(Mailbox { limit, queue, ..Mailbox::default() });
        let mut out = outbox(0);
        for step in steps {
            match step {
                Step::Append(to) => {
                    mailbox.append(MailDraft::new("x", format!("a{to}"), ""), &mut out).unwrap();
                }
                Step::Read(to, seq) => mailbox.mark_read(&format!("a{to}"), seq),
                Step::Malformed => {
                    let _ = mailbox.received(&json!([]), &mut out);
                }
            }
            let (counts, view) = (mailbox.counts(), mailbox.view());
            prop_assert!(view.len() <= limit as usize);
            prop_assert_eq!(counts.received, counts.kept + counts.trimmed);
            prop_assert_eq!(counts.received, counts.queued + counts.read + counts.dropped);
            let newest: Vec<u64> = (counts.trimmed + 1..=counts.received).collect();
            prop_assert_eq!(seqs(&view), newest);
            let mut unread = 0;
            for to in 0..4 {
                let waiting = seqs(&mailbox.unread(&format!("a{to}")));
                prop_assert!(waiting.len() <= queue as usize && waiting.is_sorted());
                unread += waiting.len() as u64;
            }
            prop_assert_eq!(unread, counts.queued);
        }
        let text = serde_json::to_string(&mailbox).unwrap();
        prop_assert_eq!(serde_json::from_str::<Mailboxes>(&text).unwrap(), mailbox);
    }
}
