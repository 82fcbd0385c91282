//! Whether scenes notice: one value is changed, and somebody should complain (`bosun test --mutate`).
//!
//! ```text
//!   expectation of a scene · answer of its world ─► that scene must fail
//!   value of a preset ─► one of the scenes with that preset must fail, if it does not say the value itself
//! ```
//!
//! Invariant: the same seed gives the same mutants, on however many threads; a change that makes a file invalid, or that
//! no scene can be asked about, is none; a scene that fails as it is notices nothing. Mutants are lived straight only, and
//! the first scene that fails ends the asking.

mod values;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bosun_engine::workflow::WorkflowRegistry;
use serde_json::{Value, json};

use self::values::{Change, Dice};
use super::file::Scene;
use super::ways::{Choice, play};
use super::{SceneFile, beside};
use crate::supervisor::parse_yaml;
use crate::supervisor::spec::Preset;

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// What a preset sets, and what stands in the sections that it switches on.
    Preset,
    /// What the world of a scene answers.
    Answer,
    /// What a scene expects.
    Expectation,
    /// What a preset leaves as it is in every spec.
    Default,
}

impl Mutation {
    /// Those that are made if nobody chooses.
    pub const USUAL: [Mutation; 3] = [Mutation::Preset, Mutation::Answer, Mutation::Expectation];
    /// Every kind.
    pub const ALL: [Mutation; 4] = [Mutation::Preset, Mutation::Answer, Mutation::Expectation, Mutation::Default];

    /// The word of the command line and of reports.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::Preset => "presets",
            Mutation::Answer => "answers",
            Mutation::Expectation => "expectations",
            Mutation::Default => "defaults",
        }
    }
}

/// One change, and who noticed it.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// What kind of value was changed.
    pub kind: Mutation,
    /// The preset or the scene's file.
    pub of: String,
    /// The path of the value.
    pub at: String,
    /// The value that stands there.
    pub from: Value,
    /// The value that was put in its place.
    pub to: Value,
    /// The scene that failed.
    pub noticed_by: Option<String>,
    /// How many scenes were asked.
    pub asked: usize,
}

/// How many mutants are wanted, of what.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Which kinds.
    pub kinds: Vec<Mutation>,
    /// How many, if not every one.
    pub count: usize,
    /// Each value in each way that it can be changed, and not in one that is drawn.
    pub every_way: bool,
    /// Which ones are drawn.
    pub seed: u64,
    /// How many are lived at once.
    pub jobs: usize,
}

impl Wanted {
    fn changes(&self, value: values::Found, dice: &mut Dice) -> Vec<Change> {
        if self.every_way { value.in_every_way() } else { value.changed(dice).into_iter().collect() }
    }
}

/// A change that is still to be tried.
#[derive(Debug, Clone)]
struct Draw {
    kind: Mutation,
    of: Of,
    change: Change,
}

#[derive(Debug, Clone, Copy)]
enum Of {
    Preset(Preset),
    /// The place among the scenes.
    Scene(usize),
}

/// Makes this many mutants and looks which scenes notice; fewer if there are no more. The error is the scenes that fail
/// unchanged.
pub fn mutate(scenes: &[SceneFile], workflows: &WorkflowRegistry, wanted: &Wanted) -> Result<Vec<Mutant>, Vec<String>> {
    let asked = MutationInput { scenes, workflows };
    let fails = |scene: &SceneFile| asked.fails(&scene.scene).then(|| scene.file().to_owned());
    let red: Vec<String> = in_parallel(scenes, wanted.jobs, fails).into_iter().flatten().collect();
    if !red.is_empty() {
        return Err(red);
    }
    let mut draws = asked.draws(wanted).into_iter();
    let mut mutants = Vec::new();
    // What cannot be asked is none: others are drawn in its place.
    while mutants.len() < wanted.count {
        let some: Vec<Draw> = draws.by_ref().take(wanted.count - mutants.len()).collect();
        if some.is_empty() {
            break;
        }
        mutants.extend(in_parallel(&some, wanted.jobs, |draw| asked.mutant(draw)).into_iter().flatten());
    }
    Ok(mutants)
}

/// What comes of each, in order.
fn in_parallel<T: Sync, R: Send>(all: &[T], jobs: usize, one: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let places: Vec<Mutex<Option<R>>> = all.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let (Some(job), Some(place)) = (all.get(number), places.get(number)) else { return };
            let done = one(job);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        }
    };
    std::thread::scope(|scope| (0..jobs.clamp(1, all.len().max(1))).for_each(|_| drop(scope.spawn(work))));
    places.into_iter().filter_map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

struct MutationInput<'m> {
    scenes: &'m [SceneFile],
    workflows: &'m WorkflowRegistry,
}

impl MutationInput<'_> {
    /// All changes that could be tried, in the order of the seed: the kinds by turns.
    fn draws(&self, wanted: &Wanted) -> Vec<Draw> {
        let mut dice = Dice(wanted.seed);
        let mut of_kinds: Vec<std::vec::IntoIter<Draw>> = Vec::new();
        for kind in &wanted.kinds {
            let mut all = match kind {
                Mutation::Preset | Mutation::Default => self.of_presets(*kind, wanted, &mut dice),
                Mutation::Answer => self.of_scenes(*kind, "world", wanted, &mut dice),
                Mutation::Expectation => self.of_scenes(*kind, "expect", wanted, &mut dice),
            };
            dice.shuffle(&mut all);
            of_kinds.push(all.into_iter());
        }
        let mut draws = Vec::new();
        loop {
            let turn: Vec<Draw> = of_kinds.iter_mut().filter_map(Iterator::next).collect();
            if turn.is_empty() {
                return draws;
            }
            draws.extend(turn);
        }
    }

    /// Each value of each preset that a scene has, changed.
    fn of_presets(&self, kind: Mutation, wanted: &Wanted, dice: &mut Dice) -> Vec<Draw> {
        let used: BTreeSet<Preset> = self.scenes.iter().filter_map(SceneFile::preset).collect();
        let mut draws = Vec::new();
        for preset in used {
            let (own, usual) = values::of_preset(preset);
            let chosen = if kind == Mutation::Preset { own } else { usual };
            for value in chosen {
                let draw = |change| Draw { kind, of: Of::Preset(preset), change };
                draws.extend(wanted.changes(value, dice).into_iter().map(draw));
            }
        }
        draws
    }

    /// Each value of a section of each scene, changed.
    fn of_scenes(&self, kind: Mutation, section: &str, wanted: &Wanted, dice: &mut Dice) -> Vec<Draw> {
        let mut draws = Vec::new();
        for (place, scene) in self.scenes.iter().enumerate() {
            let Ok(text) = parse_yaml(&scene.text) else { continue };
            let Some(value) = text.get(section) else { continue };
            let meant = if section == "world" { values::answers(value) } else { values::expectations(value) };
            for mut value in meant {
                value.path.insert(0, section.to_owned());
                let draw = |change| Draw { kind, of: Of::Scene(place), change };
                draws.extend(wanted.changes(value, dice).into_iter().map(draw));
            }
        }
        draws
    }

    fn mutant(&self, draw: &Draw) -> Option<Mutant> {
        let (of, (asked, noticed_by)) = match draw.of {
            Of::Preset(preset) => (preset.name().to_owned(), self.asked_of_preset(preset, &draw.change)),
            Of::Scene(place) => {
                let scene = self.scenes.get(place)?;
                let mut value = parse_yaml(&scene.text).ok()?;
                values::put(&mut value, &draw.change.path, draw.change.to.clone())?;
                let noticed = self.notices(scene, &value)?;
                (scene.file().to_owned(), (1, noticed.then(|| scene.file().to_owned())))
            }
        };
        let Change { path, from, to } = draw.change.clone();
        (asked > 0).then(|| Mutant { kind: draw.kind, of, at: path.join("."), from, to, noticed_by, asked })
    }

    /// How many scenes of the preset were asked, and which of them noticed.
    fn asked_of_preset(&self, preset: Preset, change: &Change) -> (usize, Option<String>) {
        let over = change.path.iter().rev().fold(change.to.clone(), |inner, key| json!({ key: inner }));
        let mut asked = 0;
        for scene in self.scenes.iter().filter(|scene| scene.preset() == Some(preset)) {
            // What a scene says itself is not the preset's.
            let own = serde_json::to_value(scene.scene.spec.as_deref()).unwrap_or_default();
            if values::get(&own, &change.path) != Some(&change.from) {
                continue;
            }
            let Ok(mut value) = parse_yaml(&scene.text) else { continue };
            let given = value.get("input").cloned().unwrap_or_else(|| json!({}));
            value["input"] = values::merged(given, &over);
            match self.notices(scene, &value) {
                None => {}
                Some(false) => asked += 1,
                Some(true) => return (asked + 1, Some(scene.file().to_owned())),
            }
        }
        (asked, None)
    }

    /// Whether the changed scene fails; nothing if it is no scene any more.
    fn notices(&self, scene: &SceneFile, value: &Value) -> Option<bool> {
        Scene::of(scene.file(), value, &beside(&scene.folder)).ok().map(|changed| self.fails(&changed))
    }

    fn fails(&self, scene: &Scene) -> bool {
        let straight = Choice { ways: vec!["straight".to_owned()], ..Choice::default() };
        !play(scene, self.workflows, &straight).failures.is_empty()
    }
}

impl SceneFile {
    fn preset(&self) -> Option<Preset> {
        self.scene.spec.as_deref()?.preset
    }
}
