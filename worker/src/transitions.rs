//! Transition tables of the worker's machines as text, for the tests that keep them: what each state becomes by each event.
//!
//! Invariant: a row stands for every state that can be reached from the first one, and names every event that changes what
//! is shown of it; what is left out leaves it as it is. A state is what `shown` says of it, and the first machine that comes
//! to look like that stands for all.

use std::collections::{BTreeSet, VecDeque};

/// An event, by its name, and what it does to a machine.
pub(crate) type Event<'e, S> = (&'e str, Box<dyn Fn(&mut S) + 'e>);

/// More states than this are no table.
const STATES_MAX: usize = 100;

pub(crate) fn table<S: Clone>(first: S, events: &[Event<'_, S>], shown: impl Fn(&S) -> String) -> String {
    let mut known = BTreeSet::from([shown(&first)]);
    let (mut waiting, mut lines) = (VecDeque::from([first]), String::new());
    while let Some(machine) = waiting.pop_front() {
        let state = shown(&machine);
        lines += &format!("{state}\n");
        for (name, happens) in events {
            let mut next = machine.clone();
            happens(&mut next);
            let becomes = shown(&next);
            if becomes != state {
                lines += &format!("    {name:<28} {becomes}\n");
            }
            if known.insert(becomes) {
                waiting.push_back(next);
            }
        }
        assert!(known.len() <= STATES_MAX, "too many states: {known:#?}");
    }
    lines
}

/// Compares with the text beside a test, `path` from the crate's folder; `BOSUN_WRITE_FIXTURES=1` writes it anew.
#[track_caller]
pub(crate) fn compare(path: &str, shown: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        std::fs::write(&file, shown).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    assert_eq!(shown, kept, "{path} is not what it was; BOSUN_WRITE_FIXTURES=1 writes it anew");
}
