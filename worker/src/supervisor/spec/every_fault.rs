//! Everything that is wrong with the types of a spec at once: what is wrong is told, taken out, and the rest is read again.
//!
//! Invariant: the first fault is the one that reading alone finds, every other one is at a place of its own, in the places of the
//! value as it was given; what fits is read once. It judges no more than the types: what they mean together is checked after.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::typed::typed;
use crate::supervisor::fields::FieldError;

/// Faults that are told at most.
const FAULTS_MAX: usize = 20;

/// The value as a `T`; the other faults follow on the first one. `under`: what their places begin with, where the value stands in
/// another one; whoever reads that one says it of the first.
pub(super) fn typed_whole<T: DeserializeOwned>(value: &Value, under: &str) -> Result<T, FieldError> {
    let mut first = match typed(value) {
        Ok(read) => return Ok(read),
        Err(why) => why,
    };
    let rest = rest::<T>(value, &first).into_iter();
    first.others = rest.map(|one| FieldError::at(format!("{under}{}", one.path), one.problem)).collect();
    Err(first)
}

/// The faults after this one.
fn rest<T: DeserializeOwned>(value: &Value, first: &FieldError) -> Vec<FieldError> {
    let mut left = Pruned { value: value.clone(), gone: Vec::new() };
    let (mut told, mut found) = (vec![first.path.clone()], Vec::new());
    let mut fault = first.clone();
    // What is taken out may leave a hole, which is the same fault again: that takes out what is around it.
    for _ in 0..4 * FAULTS_MAX {
        if !left.take_out(&fault.path) {
            break;
        }
        let Err(next) = typed::<T>(&left.value) else { break };
        let path = left.given(&next.path);
        if !told.iter().any(|old| *old == path || is_within(old, &path)) {
            told.push(path.clone());
            found.push(FieldError::at(path, next.problem.clone()));
        }
        if found.len() + 1 >= FAULTS_MAX {
            break;
        }
        fault = next;
    }
    found
}

/// Whether a place is below another one.
fn is_within(place: &str, above: &str) -> bool {
    !above.is_empty() && place.strip_prefix(above).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// A value without what was wrong in it.
struct Pruned {
    value: Value,
    /// Elements of lists that were taken out: the list as it was called then, and the place in it.
    gone: Vec<(String, usize)>,
}

impl Pruned {
    /// Takes out what is at the place; where nothing is, what is around it. Whether anything was.
    fn take_out(&mut self, path: &str) -> bool {
        let mut path = path;
        loop {
            let Some((above, last)) = parted(path) else { return false };
            let taken = match (find(&mut self.value, above), last) {
                (Some(Value::Object(map)), PathPart::Key(key)) => map.remove(key).is_some(),
                (Some(Value::Array(list)), PathPart::Index(at)) if at < list.len() => {
                    list.remove(at);
                    self.gone.push((above.to_owned(), at));
                    true
                }
                _ => false,
            };
            if taken {
                return true;
            }
            path = above;
        }
    }

    /// A place as it is called in the value as it was given.
    fn given(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for (list, gone) in self.gone.iter().rev() {
            let Some((at, rest)) = path.strip_prefix(list.as_str()).and_then(index) else { continue };
            if at >= *gone {
                path = format!("{list}[{}]{rest}", at + 1);
            }
        }
        path
    }
}

enum PathPart<'p> {
    Key(&'p str),
    Index(usize),
}

/// A leading `[3]`, and what follows.
fn index(text: &str) -> Option<(usize, &str)> {
    let (number, rest) = text.strip_prefix('[')?.split_once(']')?;
    Some((number.parse().ok()?, rest))
}

/// What a place is in, and the last step to it; nothing for the whole.
fn parted(path: &str) -> Option<(&str, PathPart<'_>)> {
    if let Some((above, at)) = path.strip_suffix(']').and_then(|path| path.rsplit_once('[')) {
        return Some((above, PathPart::Index(at.parse().ok()?)));
    }
    match path.rsplit_once('.') {
        Some((above, key)) => Some((above, PathPart::Key(key))),
        None => (!path.is_empty()).then_some(("", PathPart::Key(path))),
    }
}

fn find<'v>(value: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    let Some((above, last)) = parted(path) else { return path.is_empty().then_some(value) };
    let above = find(value, above)?;
    match last {
        PathPart::Key(key) => above.get_mut(key),
        PathPart::Index(at) => above.get_mut(at),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Team {
        #[serde(rename = "objective")]
        _objective: String,
        #[serde(rename = "agents", default)]
        _agents: Vec<Member>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Member {
        #[serde(rename = "name")]
        _name: String,
        #[serde(rename = "tries", default)]
        _tries: u32,
    }

    #[track_caller]
    fn check(value: Value, places: &[&str]) {
        let why = typed_whole::<Team>(&value, "").unwrap_err();
        let mut told: Vec<&str> = std::iter::once(&why).chain(&why.others).map(|one| one.path.as_str()).collect();
        told.sort_unstable();
        assert_eq!(told, places, "{why:?}");
    }

    #[test]
    fn every_fault_is_told_at_its_place_in_the_value_as_given() {
        check(json!({ "objektive": "x", "objective": 3, "agents": [] }), &["objective", "objektive"]);
        check(
            json!({ "agents": [{ "name": "a", "rolle": 1 }, { "tries": 1 }, { "name": "b" }, { "name": "c", "tries": "x" }],
                "objective": "x" }),
            &["agents[0].rolle", "agents[1].name", "agents[3].tries"],
        );
        check(json!({ "agents": [3, { "name": 1 }, "x"] }), &["agents[0]", "agents[1].name", "agents[2]", "objective"]);
        check(json!("no mapping"), &[""]);
        assert!(typed_whole::<Team>(&json!({ "objective": "x" }), "").is_ok());
    }
}
