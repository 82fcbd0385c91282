//! The values that can be changed, and what each is changed to.
//!
//! Invariant: a change is another value of the same kind, never the same one; what only says where something is looked
//! for, or is loose on purpose (a range, a list of words that will do), is left alone. It plays nothing.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::scene::{expect, file};
use crate::supervisor::spec::{Preset, SupervisorSpec};
use crate::supervisor::spec_schema::schema;

/// A value, with the way to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) path: Vec<String>,
    from: Value,
    /// The words that may stand there, if only some may.
    words: Vec<String>,
    /// What stands there usually, where that is something else.
    usual: Option<Value>,
}

/// A value that was changed.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) path: Vec<String>,
    pub(super) from: Value,
    pub(super) to: Value,
}

/// Sections of a spec that a preset does not decide.
const NOT_OF_PRESETS: [&str; 18] = [
    "kind",
    "name",
    "preset",
    "objective",
    "seed_plan",
    "agents",
    "via",
    "planner",
    "supervisor",
    "reviewer",
    "synthesizer",
    "advisor",
    "services",
    "manager_llm",
    "manager_agent",
    "policies",
    "script",
    "progress",
];
/// Keys that choose what is looked at, and expect nothing.
const CHOOSING: [&str; 9] = ["query", "path", "input", "on", "to", "kind", "note", "event", "call"];
/// Words that are loose on purpose, and what must not happen at all.
const LOOSE: [&str; 5] = ["one_of", "not", "at_least", "at_most", "never"];

impl Found {
    /// Everything that it can be changed to.
    pub(super) fn in_every_way(self) -> Vec<Change> {
        let Found { path, from, words, usual } = self;
        let mut all: Vec<Value> = usual.into_iter().chain(others(&from, &words)).filter(|to| *to != from).collect();
        let mut seen = Vec::new();
        all.retain(|to| {
            !seen.contains(to) && {
                seen.push(to.clone());
                true
            }
        });
        all.into_iter().map(|to| Change { path: path.clone(), from: from.clone(), to }).collect()
    }

    /// Another value of the same kind, if there is one.
    pub(super) fn changed(self, dice: &mut Dice) -> Option<Change> {
        let Found { path, from, words, usual } = self;
        let all = others(&from, &words);
        let by_itself = all.get(dice.below(all.len())).cloned();
        let to = match (usual, by_itself) {
            (Some(usual), Some(other)) => {
                if dice.below(2) == 0 {
                    usual
                } else {
                    other
                }
            }
            (usual, other) => usual.or(other)?,
        };
        (to != from).then_some(Change { path, from, to })
    }
}

/// What a preset decides, and what it leaves as it is everywhere.
///
/// It decides what it sets, and what stands in a section that it switches on; the sections that it leaves switched off are
/// in neither.
pub(super) fn of_preset(preset: Preset) -> (Vec<Found>, Vec<Found>) {
    let whole = |spec: &SupervisorSpec| {
        let mut whole = serde_json::to_value(spec).unwrap_or_default();
        if let Value::Object(map) = &mut whole {
            map.retain(|key, _| !NOT_OF_PRESETS.contains(&key.as_str()));
        }
        whole
    };
    let (values, plain) = (preset.values(), preset.base());
    let switches = [
        ("hitl", values.hitl.enabled),
        ("trust", values.trust.enabled),
        ("routing", values.routing.enabled),
        ("team", values.team.recruit),
        ("memory", values.memory.advisor || values.memory.record),
    ];
    let (values, plain) = (whole(&values), whole(&plain));
    let mut all = Vec::new();
    leaves(&values, true, &mut Vec::new(), &mut all);
    let (mut own, mut usual) = (Vec::new(), Vec::new());
    for (path, from) in all {
        let section = path.first().map(String::as_str);
        let switch = switches.iter().find(|(name, _)| Some(*name) == section).map(|(_, on)| *on);
        let plain = get(&plain, &path).cloned().unwrap_or_default();
        let sets = plain != from;
        let words = alternatives(&path);
        let found = Found { from, words, usual: sets.then_some(plain), path };
        match (sets, switch) {
            (true, _) | (false, Some(true)) => own.push(found),
            (false, None) => usual.push(found),
            (false, Some(false)) => {}
        }
    }
    (own, usual)
}

/// Of a list of more entries than this the first, the middle and the last stand for all: two hundred tasks that are alike are
/// one thing that a scene says.
const ALIKE: usize = 8;

/// Whether a value is in an entry that another one of the same long list stands for.
fn is_like_another(whole: &Value, path: &[String]) -> bool {
    let mut place = Some(whole);
    path.iter().any(|key| {
        let list = place.and_then(Value::as_array);
        let like = list
            .zip(key.parse::<usize>().ok())
            .is_some_and(|(list, at)| list.len() > ALIKE && ![0, list.len() / 2, list.len() - 1].contains(&at));
        place = place.and_then(|value| get(value, std::slice::from_ref(key)));
        like
    })
}

/// What a world answers: `say`, `fail` and `after` of its rules.
pub(super) fn answers(world: &Value) -> Vec<Found> {
    let mut all = Vec::new();
    leaves(world, false, &mut Vec::new(), &mut all);
    let said = |(path, from): (Vec<String>, Value)| {
        let of_answer = path.get(1).is_some_and(|key| ["say", "fail", "after"].contains(&key.as_str()));
        let words = statuses();
        // The rules themselves are each a thing of its own.
        let alike = path.split_first().is_some_and(|(rule, below)| {
            get(world, std::slice::from_ref(rule)).is_some_and(|rule| is_like_another(rule, below))
        });
        (of_answer && !alike).then_some(Found { path, from, words, usual: None })
    };
    all.into_iter().filter_map(said).collect()
}

/// What a scene expects, where it expects one thing.
pub(super) fn expectations(expect: &Value) -> Vec<Found> {
    let mut all = Vec::new();
    leaves(expect, false, &mut Vec::new(), &mut all);
    let meant = |(path, from): (Vec<String>, Value)| {
        let last = path.last()?;
        let chooses = CHOOSING.contains(&last.as_str()) || path.iter().any(|key| LOOSE.contains(&key.as_str()));
        // Of what must not be there only the number says something: another name is not there either.
        let entry = get(expect, path.get(..2)?);
        let none = entry.and_then(|entry| entry.get("times")).is_some_and(|times| *times == json!(0));
        let words = if path.first().is_some_and(|key| key == "outcome") { outcomes() } else { statuses() };
        (!chooses && (!none || last == "times")).then_some(Found { path, from, words, usual: None })
    };
    all.into_iter().filter_map(meant).collect()
}

/// The plain values in a value, each with the way to it. In a spec a list of them is one value.
fn leaves(value: &Value, lists: bool, path: &mut Vec<String>, all: &mut Vec<(Vec<String>, Value)>) {
    let mut step = |key: String, value: &Value| {
        path.push(key);
        leaves(value, lists, path, all);
        path.pop();
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| step(key.clone(), value)),
        Value::Array(list) if !lists || list.iter().any(|one| one.is_object() || one.is_array()) => {
            list.iter().enumerate().for_each(|(i, value)| step(i.to_string(), value));
        }
        leaf => all.push((path.clone(), leaf.clone())),
    }
}

/// The other values of the same kind; of a list one entry less.
fn others(value: &Value, words: &[String]) -> Vec<Value> {
    match value {
        Value::Bool(is) => vec![(!is).into()],
        Value::Number(number) => number.as_f64().map(other_numbers).unwrap_or_default(),
        Value::String(text) if words.contains(text) => {
            words.iter().filter(|other| *other != text).map(|other| other.clone().into()).collect()
        }
        Value::String(text) => vec![match file::parse_moment(text) {
            Some(time) if time.as_millis() != 7 => "7ms".into(),
            Some(_) => "1h".into(),
            None => format!("{text} (changed)").into(),
        }],
        Value::Array(list) => {
            let without =
                |at: usize| list.iter().enumerate().filter(move |(i, _)| *i != at).map(|(_, one)| one.clone());
            (0..list.len()).map(|at| without(at).collect::<Vec<_>>().into()).collect()
        }
        Value::Null | Value::Object(_) => Vec::new(),
    }
}

/// One more, and about a half.
fn other_numbers(number: f64) -> Vec<Value> {
    let fraction = number.fract() != 0.0;
    let changed = if fraction { vec![number / 2.0] } else { vec![number + 1.0, (number / 2.0).floor()] };
    let json =
        |changed: f64| if changed.fract() == 0.0 && changed >= 0.0 { json!(changed as u64) } else { json!(changed) };
    changed.into_iter().map(|changed| json(if changed == number { number + 1.0 } else { changed })).collect()
}

fn statuses() -> Vec<String> {
    crate::supervisor::TaskStatus::ALL.iter().map(|status| status.as_str().to_owned()).collect()
}

fn outcomes() -> Vec<String> {
    expect::OUTCOMES.iter().filter(|word| **word != "cancelled").map(|word| (*word).to_owned()).collect()
}

/// The words that the schema of specs allows at a path.
fn alternatives(path: &[String]) -> Vec<String> {
    let schema = schema();
    let mut at = &schema;
    for key in path {
        at = resolved(&schema, at);
        let next = at.get("properties").and_then(|properties| properties.get(key)).or_else(|| at.get("items"));
        let Some(next) = next else { return Vec::new() };
        at = next;
    }
    let at = resolved(&schema, at);
    let listed = at.get("enum").and_then(Value::as_array).into_iter().flatten();
    let single = at.get("oneOf").and_then(Value::as_array).into_iter().flatten().filter_map(|one| one.get("const"));
    let words: BTreeSet<&str> = listed.chain(single).filter_map(Value::as_str).collect();
    words.into_iter().map(str::to_owned).collect()
}

fn resolved<'s>(schema: &'s Value, mut at: &'s Value) -> &'s Value {
    loop {
        let one_of =
            at.get("anyOf").and_then(Value::as_array).and_then(|all| all.iter().find(|one| one.get("$ref").is_some()));
        let name = one_of.unwrap_or(at).get("$ref").and_then(Value::as_str);
        match name.and_then(|name| schema.pointer(name.trim_start_matches('#'))) {
            Some(next) => at = next,
            None => return at,
        }
    }
}

/// What stands at a path.
pub(super) fn get<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| match value {
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    })
}

/// Puts a value where there is one.
pub(super) fn put(value: &mut Value, path: &[String], new: Value) -> Option<()> {
    let place = path.iter().try_fold(value, |value, key| match value {
        Value::Array(list) => list.get_mut(key.parse::<usize>().ok()?),
        other => other.get_mut(key),
    })?;
    *place = new;
    Some(())
}

pub(super) fn merged(base: Value, over: &Value) -> Value {
    match (base, over) {
        (Value::Object(mut base), Value::Object(over)) => {
            for (key, value) in over {
                let old = base.remove(key).unwrap_or_else(|| Value::Object(Map::new()));
                base.insert(key.clone(), merged(old, value));
            }
            Value::Object(base)
        }
        (_, over) => over.clone(),
    }
}

/// A small generator (splitmix64).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 16) as usize) % sides.max(1)
    }

    /// Every order is as likely as any other.
    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
    }
}
