//! The place of a forbidden call: from the stack to the line of the user's code, and what the call was about.
//!
//! Invariant: a call that is harmless has no cause. A stack is turned into text once; what is the user's is told from what
//! is a library's by files alone, as names may be short. Nothing is noted here.
//!
//! Unsafe code: glibc is asked for the addresses on the stack.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Mutex;

use super::trip::{CallSite, ForbiddenCall};

unsafe extern "C" {
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
}

/// What a call was about, and the user's functions that led to it, the innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) call: ForbiddenCall,
    pub(super) stack: Vec<CallSite>,
}

/// So many addresses tell one stack from another.
const DEPTH: usize = 64;

/// Where a call came from, and what it was about; nothing if it is harmless. Remembered by the addresses on the stack:
/// turning those into places is slow.
pub(super) fn cause_of(call: ForbiddenCall, wire: &CStr) -> Option<Cause> {
    static KNOWN: Mutex<BTreeMap<Vec<usize>, Option<Cause>>> = Mutex::new(BTreeMap::new());
    let mut frames = [std::ptr::null_mut::<c_void>(); DEPTH];
    // SAFETY: glibc writes at most as many addresses as the array holds, and says how many.
    let found = unsafe { backtrace(frames.as_mut_ptr(), DEPTH as c_int) };
    let key: Vec<usize> = frames.iter().take(usize::try_from(found).unwrap_or(0)).map(|at| *at as usize).collect();
    if let Ok(known) = KNOWN.lock()
        && let Some(cause) = known.get(&key)
    {
        return cause.clone();
    }
    let cause = read_stack(call, &wire.to_string_lossy(), &std::backtrace::Backtrace::force_capture().to_string());
    if let Ok(mut known) = KNOWN.lock() {
        known.insert(key, cause.clone());
    }
    cause
}

/// The user's functions on a printed stack that the kit has taken at a request of workflow code, the innermost first.
pub(crate) fn callers_on(stack: &str) -> Vec<CallSite> {
    let frames = frames(stack);
    let own = |frame: &Frame<'_>| frame.place.is_some_and(|place| place.contains(REQUESTS_FILE));
    let above = frames.iter().rposition(own).map_or(&[][..], |at| &frames[at + 1..]);
    let end = above.iter().position(Frame::is_guard).unwrap_or(above.len());
    let site = |frame: &Frame<'_>| {
        let place = frame.place?;
        Some(CallSite { function: full_name(frame.name, place), place: place.to_owned() })
    };
    above[..end].iter().filter(|frame| frame.is_users()).filter_map(site).collect()
}

/// Where the kit takes such a stack.
const REQUESTS_FILE: &str = "/simulate/callers.rs";

/// Reads a printed stack: `  5: name` and, below it, `at file:line:column`. It begins above the wire itself; names may
/// be short, so that files tell what is whose where there are any.
fn read_stack(call: ForbiddenCall, wire: &str, stack: &str) -> Option<Cause> {
    let frames = frames(stack);
    let above = frames
        .iter()
        .position(|Frame { name, place }| place.is_some() && (*name == wire || name.rsplit("::").next() == Some(wire)))
        .map_or(&[][..], |at| &frames[at + 1..]);
    // Below the guard is the engine, which called the code.
    let end = above.iter().position(Frame::is_guard).unwrap_or(above.len());
    let above = &above[..end];
    let users: Vec<&Frame<'_>> = above.iter().filter(|frame| frame.is_users()).collect();
    let first = above.iter().position(Frame::is_users).unwrap_or(above.len());
    let inner = &above[..first];
    if inner.iter().any(|frame| is_any_of(frame.name, &HARMLESS)) || above.iter().any(Frame::is_logging) {
        return None;
    }
    let site = |frame: &&Frame<'_>| {
        let place = frame.place?;
        Some(CallSite { function: full_name(frame.name, place), place: place.to_owned() })
    };
    let call = if call == ForbiddenCall::Random { seed_or_random(inner)? } else { call };
    Some(Cause { call, stack: users.iter().filter_map(site).collect() })
}

/// Whether what asks for randomness makes a map of std; nothing if it is a map that keeps its order.
fn seed_or_random(inner: &[Frame<'_>]) -> Option<ForbiddenCall> {
    let seed = |frame: &Frame<'_>| {
        frame.name.contains("std::hash::random::")
            || frame.name.ends_with("hashmap_random_keys")
            || frame.place.is_some_and(|at| at.contains("/std/src/hash/random.rs"))
    };
    let Some(at) = inner.iter().position(seed) else { return Some(ForbiddenCall::Random) };
    // Whose map a seed is for is told by the first function above the standard library.
    let Some(whose) = inner[at..].iter().find(|frame| !is_std(frame.name, frame.place)) else {
        return Some(ForbiddenCall::HashSeed);
    };
    // The order of these maps is the order of insertion; serde_json's objects are made of them.
    let is_ordered = match whose.place {
        Some(place) => place.contains("/indexmap-") || place.contains("/serde_json-"),
        // Libraries that were built without line tables have names only.
        None => is_any_of(whose.name, &ORDERED),
    };
    if is_ordered {
        return None;
    }
    // Some take the keys of a map for dice.
    let dice =
        is_any_of(whose.name, &DICE) || DICE_FILES.iter().any(|file| whose.place.is_some_and(|at| at.contains(file)));
    Some(if dice { ForbiddenCall::Random } else { ForbiddenCall::HashSeed })
}

/// The engine's call of workflow code.
const GUARD: &str = "bosun_engine::workflow::panic::guard";
const GUARD_FILE: &str = "/workflow/panic.rs";

/// Where the engine's own sources are, if they are not those of a library.
const ENGINE: &str = "engine/src/workflow/";

/// The module and the function that a place is in. Line tables know closures and async functions without their names; the
/// source does: the function is the last one before that begins further to the left.
fn full_name(name: &str, place: &str) -> String {
    if name.contains("::") && !name.starts_with('{') {
        return name.to_owned();
    }
    let named = || {
        let (file, rest) = place.split_once(".rs:")?;
        let line: usize = rest.split(':').next()?.parse().ok()?;
        let text = std::fs::read_to_string(format!("{file}.rs")).ok()?;
        let stem = file.rsplit('/').next()?;
        Some(format!("{stem}::{}", function_before(&text, line)?))
    };
    named().unwrap_or_else(|| name.to_owned())
}

fn function_before(text: &str, line: usize) -> Option<&str> {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let within = indent(lines.last()?);
    lines.iter().rev().enumerate().find_map(|(at, line)| {
        let (before, rest) = line.split_once("fn ")?;
        let declares = before.split_whitespace().all(|word| word.starts_with("pub") || DECLARES.contains(&word));
        // A function of one line is its own place.
        if !declares || (at > 0 && indent(line) >= within) {
            return None;
        }
        rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
    })
}

const DECLARES: [&str; 4] = ["async", "const", "unsafe", "extern"];

/// Functions of std that look at the world, and whose answers no decision is made of: where a replay differs by them, its
/// commands say so.
/// The channels of tokio throw dice for which of several lists a waiter is put into.
/// Libraries of regular expressions ask how many processors there are, for the size of their pools.
const HARMLESS: [&str; 7] =
    ["std::backtrace", "std::backtrace_rs", "backtrace", "tokio::sync", "regex", "regex_automata", "aho_corasick"];

/// What logs: subscribers write and read clocks, and workflow code does not see it.
const LOGGING: [&str; 8] = [
    "tracing_core::event::Event",
    "tracing_core::dispatcher::Dispatch",
    "tracing_core::dispatcher::get_default",
    "tracing_core::callsite",
    "tracing_core::subscriber",
    "tracing::__macro_support",
    "log::__private_api",
    "log::logger",
];

/// Libraries that throw dice with the keys of maps.
const DICE: [&str; 3] = ["tokio::util::rand", "tokio::loom::std::rand", "fastrand"];
const DICE_FILES: [&str; 3] = ["/src/util/rand", "/src/loom/std/mod.rs", "/fastrand-"];

struct Frame<'a> {
    name: &'a str,
    place: Option<&'a str>,
}

impl Frame<'_> {
    /// Whether it is code of the user's own: not of a library, and not of the engine.
    fn is_users(&self) -> bool {
        let library = |place: &str| LIBRARIES.iter().any(|part| place.contains(part));
        self.place.is_some_and(|place| !library(place) && !place.contains(ENGINE)) && !is_of(self.name, "bosun_engine")
    }
    fn is_guard(&self) -> bool {
        let short = || self.place.is_some_and(|place| place.contains(GUARD_FILE)) && self.name.starts_with("guard");
        is_of(self.name, GUARD) || short()
    }
    fn is_logging(&self) -> bool {
        is_any_of(self.name, &LOGGING)
    }
}

fn frames(stack: &str) -> Vec<Frame<'_>> {
    let mut frames: Vec<Frame<'_>> = Vec::new();
    for line in stack.lines().map(str::trim) {
        match (line.strip_prefix("at "), frames.last_mut()) {
            (Some(place), Some(last)) => last.place = Some(place),
            _ => frames.extend(line.split_once(": ").map(|(_, name)| Frame { name, place: None })),
        }
    }
    frames
}

/// Whether a function is the standard library's, or of the maps that it is made of.
fn is_std(name: &str, place: Option<&str>) -> bool {
    match place {
        Some(place) => ["/rustc/", "/rustlib/", "/hashbrown-"].iter().any(|part| place.contains(part)),
        None => ["std", "core", "alloc", "hashbrown"].iter().any(|library| is_of(name, library)),
    }
}

/// Functions that make no maps but those in the order of insertion.
const ORDERED: [&str; 3] = ["indexmap", "serde_json::map", "serde_json::value"];

/// Whether a function is one of this module's, or of a type of it: `x::map::new`, `<x::map::Map<K, V> as Default>::default`.
fn is_of(name: &str, library: &str) -> bool {
    let rest = name.trim_start_matches('<').strip_prefix(library);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || rest.starts_with(['[', '<', '>', ' ']))
}

fn is_any_of(name: &str, libraries: &[&str]) -> bool {
    libraries.iter().any(|library| is_of(name, library))
}

/// Where the sources of libraries are.
const LIBRARIES: [&str; 4] = ["/rustc/", "/.cargo/registry/", "/.cargo/git/", "/rustlib/"];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(call: ForbiddenCall, wire: &str, stack: &str) -> Option<(ForbiddenCall, Option<String>)> {
        let cause = read_stack(call, wire, stack)?;
        Some((cause.call, cause.stack.first().map(|site| site.place.clone())))
    }

    #[test]
    fn the_first_frame_of_the_users_is_the_place() {
        let stack = "   0: cause_of\n             at ./src/determinism/wires.rs:1:1\n   1: clock_gettime\n             \
                     at ./tests/main.rs:3:1\n   2: now\n             at /rustc/abc/library/std/src/time.rs:9:9\n   \
                     3: flows::order::{{closure}}\n             at ./tests/flows.rs:12:9\n   4: bosun_engine::x\n";
        let place = Some("./tests/flows.rs:12:9".to_owned());
        assert_eq!(read(ForbiddenCall::Clock, "clock_gettime", stack), Some((ForbiddenCall::Clock, place)));
        assert_eq!(read(ForbiddenCall::Clock, "getenv", stack), Some((ForbiddenCall::Clock, None)));
        let function = &read_stack(ForbiddenCall::Clock, "clock_gettime", stack).unwrap().stack[0].function;
        assert_eq!(function, "flows::order::{{closure}}");
    }

    #[test]
    fn what_logs_and_what_prints_stacks_is_harmless_and_code_around_it_is_not() {
        let clock = |between: &str| {
            let stack = format!(
                "  1: clock_gettime\n     at ./main.rs:1:1\n{between}  9: app::order\n     at ./a.rs:1:1\n  10: \
                 bosun_engine::workflow::panic::guard\n     at ./engine/panic.rs:1:1\n  11: tracing_core::event::Event\n"
            );
            read(ForbiddenCall::Clock, "clock_gettime", &stack).is_none()
        };
        assert!(!clock(""));
        assert!(clock(
            "  2: tracing_core::event::Event::dispatch\n     at /h/.cargo/registry/tracing-core/event.rs:1:1\n"
        ));
        // A layer of the user's own writes the time.
        assert!(clock("  2: app::layer\n     at ./l.rs:1:1\n  3: <tracing_core::dispatcher::Dispatch>::event\n"));
        assert!(clock("  2: std::backtrace::Backtrace::capture\n     at /rustc/x/library/std/src/backtrace.rs:1:1\n"));
        // Code that runs within a span is code all the same.
        assert!(!clock(
            "  8: app::inner\n     at ./a.rs:7:1\n  8: <tracing::instrument::Instrumented<T> as F>::poll\n"
        ));
        assert!(!clock("  8: app::inner\n     at ./a.rs:7:1\n  8: tracing_core::dispatcher::with_default\n"));
    }

    #[test]
    fn the_function_of_a_place_is_read_from_its_source() {
        let text = "fn one() {\n    two();\n}\n\nimpl X {\n    pub(crate) async fn three(&self) {\n        let fn_ = 1;\n        \
                    async {\n            four()\n        }\n    }\n}\nfn five() { six() }\n";
        let of = |line| function_before(text, line);
        assert_eq!((of(2), of(9), of(13)), (Some("one"), Some("three"), Some("five")));
    }

    #[test]
    fn the_seed_of_a_hash_map_is_told_from_other_randomness_and_from_ordered_maps() {
        let read = |between: &str| {
            let stack = format!("  1: x::getrandom\n     at ./main.rs:1:1\n{between}  9: order\n     at ./a.rs:1:1\n");
            read(ForbiddenCall::Random, "getrandom", &stack)
        };
        let seed = "  2: new\n     at /rustc/x/library/std/src/hash/random.rs:1:1\n";
        let ordered = format!("{seed}  3: new\n     at /home/x/.cargo/registry/src/y/indexmap-2.0/src/map.rs:1:1\n");
        let random = "  2: u128\n     at /home/x/.cargo/registry/src/uuid/rng.rs:1:1\n";
        let place = Some("./a.rs:1:1".to_owned());
        assert_eq!(read(seed), Some((ForbiddenCall::HashSeed, place.clone())));
        assert_eq!(read(&ordered), None);
        assert_eq!(read(random), Some((ForbiddenCall::Random, place.clone())));
        // The same of libraries without line tables.
        let seed = "  2: <std::hash::random::RandomState>::new\n";
        assert_eq!(read(seed), Some((ForbiddenCall::HashSeed, place.clone())));
        let of_mine = format!("{seed}  3: <mine::Map<indexmap::Key> as Default>::default\n");
        assert_eq!(read(&of_mine), Some((ForbiddenCall::HashSeed, place.clone())));
        // A hash map that serde makes is read out of a value with ordered maps.
        let between = "  3: <std::collections::hash::map::HashMap<K, V> as core::default::Default>::default\n  \
                       4: <serde_core::de::impls::MapVisitor<K, V> as serde_core::de::Visitor>::visit_map\n  \
                       5: serde_json::value::de::visit_object\n";
        assert_eq!(read(&format!("{seed}{between}")), Some((ForbiddenCall::HashSeed, place)));
        for name in [
            "<indexmap::map::IndexMap<K, V> as core::default::Default>::default",
            "indexmap[0f]::map::new",
            "<serde_json::value::de::<impl serde_core::de::Deserialize for serde_json::value::Value>::visit_map",
        ] {
            assert_eq!(read(&format!("{seed}  3: {name}\n")), None);
        }
    }
}
