//! Whether scenes notice: one value is changed, and somebody should complain (`bosun test --mutate`).
//!
//! ```text
//!   expectation of a scene · answer of its world ─► that scene must fail
//!   value of a preset ─► one of the scenes with that preset must fail, if it does not say the value itself
//! ```
//!
//! Invariant: the same seed gives the same mutants; a change that makes a file invalid is none. Mutants are lived straight
//! only.

use std::collections::BTreeSet;

use bosun_engine::workflow::WorkflowRegistry;
use serde_json::{Map, Value, json};

use super::file::Scene;
use super::ways::{Choice, play};
use super::{SceneFile, beside};
use crate::supervisor::parse_yaml;
use crate::supervisor::spec::{Preset, schema};

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    Preset,
    Answer,
    Expectation,
}

impl Mutation {
    pub const ALL: [Mutation; 3] = [Mutation::Preset, Mutation::Answer, Mutation::Expectation];

    pub fn name(self) -> &'static str {
        match self {
            Mutation::Preset => "presets",
            Mutation::Answer => "answers",
            Mutation::Expectation => "expectations",
        }
    }
}

/// One change, and who noticed it.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The preset or the scene's file.
    pub of: String,
    pub at: String,
    pub from: Value,
    pub to: Value,
    /// The scene that failed.
    pub noticed_by: Option<String>,
    /// How many scenes were asked.
    pub asked: usize,
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

/// Makes this many mutants and looks which scenes notice.
pub fn mutate(
    scenes: &[SceneFile],
    workflows: &WorkflowRegistry,
    kinds: &[Mutation],
    count: usize,
    seed: u64,
) -> Vec<Mutant> {
    let mut maker = Maker { scenes, workflows, dice: Dice(seed), made: BTreeSet::new() };
    let mut mutants = Vec::new();
    // Many draws are none: a value that cannot be changed, a change that is refused.
    for draw in 0..count * 40 {
        if mutants.len() == count || kinds.is_empty() || scenes.is_empty() {
            break;
        }
        let made = match kinds[draw % kinds.len()] {
            Mutation::Preset => maker.of_preset(),
            Mutation::Answer => maker.of_scene("world", &["say", "fail", "after"]),
            Mutation::Expectation => maker.of_scene("expect", &[]),
        };
        mutants.extend(made);
    }
    mutants
}

struct Maker<'m> {
    scenes: &'m [SceneFile],
    workflows: &'m WorkflowRegistry,
    dice: Dice,
    made: BTreeSet<String>,
}

impl Maker<'_> {
    fn of_preset(&mut self) -> Option<Mutant> {
        let presets: BTreeSet<&str> = self.scenes.iter().filter_map(SceneFile::preset).map(Preset::name).collect();
        let presets: Vec<Preset> = Preset::ALL.into_iter().filter(|preset| presets.contains(preset.name())).collect();
        let preset = *presets.get(self.dice.below(presets.len()))?;
        let mut values = serde_json::to_value(preset.values()).ok()?;
        if let Value::Object(map) = &mut values {
            map.retain(|key, _| !NOT_OF_PRESETS.contains(&key.as_str()));
        }
        let (path, from) = self.leaf(&values)?;
        let to = other(&from, &alternatives(&path), &mut self.dice)?;
        let at = path.join(".");
        self.made.insert(format!("{} {at} {to}", preset.name())).then_some(())?;
        let over = path.iter().rev().fold(to.clone(), |inner, key| json!({ key: inner }));
        let (mut asked, mut noticed_by) = (0, None);
        for scene in self.scenes.iter().filter(|scene| scene.preset() == Some(preset)) {
            // What a scene says itself is not the preset's.
            let own = serde_json::to_value(scene.scene.spec.as_deref()).ok()?;
            if own.pointer(&format!("/{}", path.join("/"))) != Some(&from) {
                continue;
            }
            let mut value = parse_yaml(&scene.text).ok()?;
            let given = value.get("input").cloned().unwrap_or_else(|| json!({}));
            value["input"] = merged(given, &over);
            let Some(noticed) = self.notices(scene, &value) else { continue };
            asked += 1;
            if noticed {
                noticed_by = Some(scene.file().to_owned());
                break;
            }
        }
        (asked > 0).then(|| Mutant { of: preset.name().to_owned(), at, from, to, noticed_by, asked })
    }

    fn of_scene(&mut self, section: &str, only: &[&str]) -> Option<Mutant> {
        let scene = self.scenes.get(self.dice.below(self.scenes.len()))?;
        let mut value = parse_yaml(&scene.text).ok()?;
        let (mut path, from) = self.leaf(value.get(section)?)?;
        let is_free = |key: &String| !CHOOSING.contains(&key.as_str()) && key != "never";
        let meant = only.is_empty() || path.iter().any(|key| only.contains(&key.as_str()));
        if !meant || !path.last().is_some_and(is_free) || path.first().is_some_and(|key| key == "never") {
            return None;
        }
        let to = other(&from, &words(&path), &mut self.dice)?;
        path.insert(0, section.to_owned());
        let at = path.join(".");
        self.made.insert(format!("{} {at} {to}", scene.file())).then_some(())?;
        *value.pointer_mut(&format!("/{}", path.join("/")))? = to.clone();
        let noticed = self.notices(scene, &value)?;
        let noticed_by = noticed.then(|| scene.file().to_owned());
        Some(Mutant { of: scene.file().to_owned(), at, from, to, noticed_by, asked: 1 })
    }

    /// Whether the changed scene fails; nothing if it is no scene any more.
    fn notices(&self, scene: &SceneFile, value: &Value) -> Option<bool> {
        let changed = Scene::of(scene.file(), value, &beside(&scene.folder)).ok()?;
        let straight = Choice { ways: vec!["straight".to_owned()], ..Choice::default() };
        Some(!play(&changed, self.workflows, &straight).failures.is_empty())
    }

    /// One of the plain values in a value, with the way to it.
    fn leaf(&mut self, value: &Value) -> Option<(Vec<String>, Value)> {
        let mut all = Vec::new();
        leaves(value, &mut Vec::new(), &mut all);
        let chosen = self.dice.below(all.len());
        (chosen < all.len()).then(|| all.swap_remove(chosen))
    }
}

impl SceneFile {
    fn preset(&self) -> Option<Preset> {
        self.scene.spec.as_deref()?.preset
    }
}

fn leaves(value: &Value, path: &mut Vec<String>, all: &mut Vec<(Vec<String>, Value)>) {
    let mut step = |key: String, value: &Value| {
        path.push(key);
        leaves(value, path, all);
        path.pop();
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| step(key.clone(), value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| step(i.to_string(), value)),
        Value::Null => {}
        leaf => all.push((path.clone(), leaf.clone())),
    }
}

/// Another value of the same kind.
fn other(value: &Value, alternatives: &[String], dice: &mut Dice) -> Option<Value> {
    match value {
        Value::Bool(is) => Some((!is).into()),
        Value::Number(number) => {
            let number = number.as_f64()?;
            let changed = if dice.below(2) == 0 { number + 1.0 } else { (number / 2.0).floor() };
            let changed = if number.fract() != 0.0 { number / 2.0 } else { changed };
            let whole = changed.fract() == 0.0 && changed >= 0.0;
            let changed = if whole { json!(changed as u64) } else { json!(changed) };
            (changed != *value).then_some(changed)
        }
        Value::String(text) => {
            let others: Vec<&String> = alternatives.iter().filter(|other| *other != text).collect();
            if alternatives.contains(text) {
                return others.get(dice.below(others.len())).map(|other| (**other).clone().into());
            }
            match super::file::parse_moment(text) {
                Some(time) if time.as_millis() != 7 => Some("7ms".into()),
                Some(_) => Some("1h".into()),
                None => Some(format!("{text} (changed)").into()),
            }
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Words that stand for each other in a scene: statuses, and ways to end.
fn words(path: &[String]) -> Vec<String> {
    let of_end = path.first().is_some_and(|key| key == "outcome");
    let statuses = crate::supervisor::TaskStatus::ALL.iter().map(|status| status.as_str());
    let outcomes = super::expect::OUTCOMES.iter().copied().filter(|word| *word != "cancelled");
    if of_end { outcomes.map(str::to_owned).collect() } else { statuses.map(str::to_owned).collect() }
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
    listed.chain(single).filter_map(|word| Some(word.as_str()?.to_owned())).collect()
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

fn merged(base: Value, over: &Value) -> Value {
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
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 16) as usize) % sides.max(1)
    }
}
