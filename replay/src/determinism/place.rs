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

use super::wires::ForbiddenCall;

unsafe extern "C" {
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
}

type Cause = Option<(ForbiddenCall, Option<String>)>;

/// Where a call came from, and what it was about; nothing if it is harmless. Remembered by the addresses on the stack:
/// turning those into places is slow.
pub(super) fn cause_of(call: ForbiddenCall, wire: &CStr) -> Cause {
    static KNOWN: Mutex<BTreeMap<Vec<usize>, Cause>> = Mutex::new(BTreeMap::new());
    let mut frames = [std::ptr::null_mut::<c_void>(); 24];
    // SAFETY: glibc writes at most as many addresses as the array holds, and says how many.
    let found = unsafe { backtrace(frames.as_mut_ptr(), 24) };
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

/// Reads a printed stack: `  5: name` and, below it, `at file:line:column`. It begins above the wire itself; names may
/// be short, so that files tell what is whose where there are any.
fn read_stack(call: ForbiddenCall, wire: &str, stack: &str) -> Cause {
    let mut call = call;
    let mut above = false;
    // Whose map a seed is for is told by the first function above the standard library.
    let mut is_told = false;
    for Frame { name, place } in frames(stack) {
        if !above {
            above = place.is_some() && (name == wire || name.rsplit("::").next() == Some(wire));
            continue;
        }
        let is_seed =
            name.contains("std::hash::random::") || place.is_some_and(|at| at.contains("/std/src/hash/random.rs"));
        if call == ForbiddenCall::Random && is_seed {
            call = ForbiddenCall::HashSeed;
        } else if call == ForbiddenCall::HashSeed && !is_told && !is_std(name, place) {
            is_told = true;
            // The order of these maps is the order of insertion; serde_json's objects are made of them.
            let is_ordered = match place {
                Some(place) => place.contains("/indexmap-") || place.contains("/serde_json-"),
                // Libraries that were built without line tables have names only.
                None => ORDERED.iter().any(|maps| is_of(name, maps)),
            };
            if is_ordered {
                return None;
            }
        }
        if let Some(place) = place.filter(|place| !LIBRARIES.iter().any(|part| place.contains(part))) {
            return Some((call, Some(place.to_owned())));
        }
    }
    Some((call, None))
}

struct Frame<'a> {
    name: &'a str,
    place: Option<&'a str>,
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
    name.trim_start_matches('<')
        .strip_prefix(library)
        .is_some_and(|rest| rest.starts_with("::") || rest.starts_with('['))
}

/// Where the sources of libraries are.
const LIBRARIES: [&str; 4] = ["/rustc/", "/.cargo/registry/", "/.cargo/git/", "/rustlib/"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_frame_of_the_users_is_the_place() {
        let stack = "   0: cause_of\n             at ./src/determinism/wires.rs:1:1\n   1: clock_gettime\n             \
                     at ./tests/main.rs:3:1\n   2: now\n             at /rustc/abc/library/std/src/time.rs:9:9\n   \
                     3: flows::order::{{closure}}\n             at ./tests/flows.rs:12:9\n   4: bosun_engine::x\n";
        let place = Some("./tests/flows.rs:12:9".to_owned());
        assert_eq!(read_stack(ForbiddenCall::Clock, "clock_gettime", stack), Some((ForbiddenCall::Clock, place)));
        assert_eq!(read_stack(ForbiddenCall::Clock, "getenv", stack), Some((ForbiddenCall::Clock, None)));
    }

    #[test]
    fn the_seed_of_a_hash_map_is_told_from_other_randomness_and_from_ordered_maps() {
        let read = |between: &str| {
            let stack = format!("  1: x::getrandom\n     at ./main.rs:1:1\n{between}  9: order\n     at ./a.rs:1:1\n");
            read_stack(ForbiddenCall::Random, "getrandom", &stack)
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
