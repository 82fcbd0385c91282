//! A mailbox that never stops: the state of the run does not grow with what it was sent.

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::supervisor::run::{SUPERVISOR, register};
use serde_json::{Value, json};

const RUN: RunId = RunId([5; 16]);

fn give(driver: &mut dyn Driver, job: Job) {
    let (at, history) = (Timestamp(1_767_225_600_000_000), HistorySize::default());
    drop(driver.activate(Activation { at, run_id: RUN, history, job, markers: Markers::Fresh }));
}

fn counts(driver: &mut dyn Driver) -> Value {
    let answer = driver.query(&"mailbox_counts".into(), &Payload::null());
    answer.unwrap_or_else(|why| panic!("{why}")).to_json()
}

/// The run after so many messages: the size of its snapshot, and what became of them.
fn after(messages: &[u64]) -> Vec<(usize, Value)> {
    let input = Payload::encode(&super::lives::input("shannon-supervisor", "")).unwrap();
    let request = StartWorkflow::new(WorkflowType::of(SUPERVISOR), WorkflowId::of("bounded")).input(input);
    let first = request.first_event(RUN, Timestamp(1_767_225_600_000_000));
    let mut driver = register(WorkflowRegistry::new()).create(&first, RUN).unwrap();
    give(driver.as_mut(), Job::InitializeWorkflow(Box::new(first)));
    let (mut sent, mut sizes) = (0, Vec::new());
    for many in messages {
        for n in sent..*many {
            let message = json!({ "From": "ann", "To": format!("agent-{}", n % 10), "Content": format!("{n:08}") });
            let input = Payload::encode(&message).unwrap();
            let name = SignalName::of("mailbox_v1");
            give(
                driver.as_mut(),
                Job::SignalWorkflow(WorkflowExecutionSignaled { name, input, identity: None, request_id: None }),
            );
        }
        sent = *many;
        sizes.push((driver.snapshot().map_or(0, |bytes| bytes.len()), counts(driver.as_mut())));
    }
    sizes
}

/// SHN-11, SHN-13: after 100 000 messages the snapshot is no larger than after 10 000 (the numbers in it have more
/// digits), every message is accounted for, and the run still holds a bounded part of them.
#[test]
fn a_hundred_thousand_messages_do_not_make_the_state_larger() {
    let sizes = after(&[1_000, 10_000, 100_000]);
    let [(thousand, _), (ten, _), (hundred, counts)] = sizes.as_slice() else { panic!("three sizes") };
    let told = format!("{thousand}, {ten}, {hundred} bytes; {counts}");
    assert!(*thousand > 10_000 && hundred * 10 <= thousand * 11 && hundred * 50 <= ten * 51, "{told}");
    let count = |key: &str| counts[key].as_u64().unwrap_or_else(|| panic!("{key}: {told}"));
    assert_eq!((count("received"), count("refused")), (100_000, 0), "{told}");
    assert_eq!(count("kept") + count("trimmed"), 100_000, "{told}");
    assert_eq!(count("queued") + count("read") + count("dropped"), 100_000, "{told}");
    assert!(count("kept") > 0 && count("queued") > 0 && count("dropped") > 0, "{told}");
}
