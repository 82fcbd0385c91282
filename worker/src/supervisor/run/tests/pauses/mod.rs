//! The pause-point suite: every kind of pause, at every depth, beside every sibling, answered in every way.
//!
//! ```text
//!   kind × depth 0-3 × families above × what siblings do × answer × which run the answer is sent to   ─►   a scene   ─►   four ways
//! ```
//!
//! A cell of the product is one scene, made by `leaf` (the run that pauses, and what a person does) and `above` (the runs
//! over it). Every scene is played straight, replayed, crashed and with its calls ended in other orders.
//!
//! Invariant, of every cell: one addressee, whose answer counts once; every other answer is refused for what happened and
//! changes nothing; siblings are neither stopped nor made again; no work is made twice and none is lost. The first run
//! shows who asks whom, whatever the depth. Scenes that people read are in `fixtures/scenes/pause`.

mod above;
mod held;
mod leaf;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use self::above::{ABOVE, Above};
use crate::scene::kit::SceneText;

/// What a run can be waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The approval of a task.
    Approval,
    /// The approval of a tool call, asked for by a policy of the run.
    Policy,
    /// The approval of a tool call of an agent that is a run of its own.
    Tool,
    /// An agent of a conversation asks.
    Question,
    /// A worker of a plan asks.
    Interrupt,
    PlanReview,
    Takeover,
    /// `on_exhausted: ask`.
    Budget,
    /// The model wants a key.
    Key,
}

const KINDS: [Kind; 9] = [
    Kind::Approval,
    Kind::Policy,
    Kind::Tool,
    Kind::Question,
    Kind::Interrupt,
    Kind::PlanReview,
    Kind::Takeover,
    Kind::Budget,
    Kind::Key,
];

/// What a sibling does on every level, while the pause lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Runs,
    /// It asks a person too.
    Waits,
    Failed,
    Done,
}

const BESIDE: [Beside; 4] = [Beside::Runs, Beside::Waits, Beside::Failed, Beside::Done];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Approve,
    Reject,
    /// Yes, but otherwise.
    Edit,
    /// When its time is over.
    Late,
    /// A second one, which says the opposite.
    Twice,
    /// About something that was shown before, then as it is.
    Stale,
    /// To a run that did not ask, then to the one that did.
    Wrong,
}

const ANSWERS: [Answer; 7] =
    [Answer::Approve, Answer::Reject, Answer::Edit, Answer::Late, Answer::Twice, Answer::Stale, Answer::Wrong];

/// Which run the answer is sent to: the one that asks, or the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Asker,
    Root,
}

/// One of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    kind: Kind,
    depth: usize,
    /// The family of the first run; those below it are of the other families in turn.
    above: Above,
    beside: Beside,
    answer: Answer,
    door: Door,
}

impl Cell {
    /// Whether there is such a thing: what has no time of its own is never late, and what shows nothing is never stale.
    fn exists(self) -> bool {
        let of_hold = matches!(self.kind, Kind::Takeover | Kind::Budget | Kind::Key);
        let answer = match self.answer {
            Answer::Approve | Answer::Reject | Answer::Twice | Answer::Wrong => true,
            Answer::Edit => !matches!(self.kind, Kind::Tool | Kind::Key),
            // A first run that has ended hears nobody.
            Answer::Late => match self.kind {
                Kind::Tool | Kind::Budget | Kind::Key => false,
                // A first run that is a chat ends with the run that speaks in it, when its time is over.
                Kind::PlanReview | Kind::Takeover => match self.depth {
                    0 => false,
                    1 => self.above != Above::Chat,
                    _ => true,
                },
                Kind::Approval | Kind::Policy | Kind::Question | Kind::Interrupt => true,
            },
            Answer::Stale => !of_hold,
        };
        // The first run is the one that asks.
        answer && (self.depth > 0 || self.door == Door::Asker && self.above == Above::Plan)
    }

    /// All that there is.
    fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for kind in KINDS {
            for answer in ANSWERS {
                for (depth, above) in (0..=3).flat_map(|depth| ABOVE.map(|above| (depth, above))) {
                    for beside in BESIDE {
                        for door in [Door::Asker, Door::Root] {
                            cells.push(Cell { kind, depth, above, beside, answer, door });
                        }
                    }
                }
            }
        }
        cells.retain(|cell| cell.exists());
        cells
    }

    /// Every kind with every answer, the other four chosen so that each pair of the six comes up.
    fn pairwise() -> Vec<Cell> {
        let mut groups: BTreeMap<(usize, usize), Vec<Cell>> = BTreeMap::new();
        for cell in Cell::all() {
            groups.entry((cell.kind as usize, cell.answer as usize)).or_default().push(cell);
        }
        let (mut chosen, mut covered) = (Vec::new(), BTreeSet::new());
        let added = |cell: &Cell, covered: &BTreeSet<Pair>| {
            pairs_of(cell).into_iter().filter(|pair| !covered.contains(pair)).count()
        };
        for group in groups.values() {
            // Among equals another one each time.
            let rank = |at: usize| (at + chosen.len() * 5) % group.len();
            let best = group.iter().enumerate().max_by_key(|(at, cell)| (added(cell, &covered), rank(*at)));
            let Some((_, best)) = best else { continue };
            covered.extend(pairs_of(best));
            chosen.push(*best);
        }
        for cell in Cell::all() {
            if added(&cell, &covered) > 0 {
                covered.extend(pairs_of(&cell));
                chosen.push(cell);
            }
        }
        chosen
    }

    fn scene(self, ways: &Value) -> Value {
        let leaf = leaf::of(self);
        let spec = above::over(self, leaf.spec);
        let world: Vec<Value> = leaf.world.into_iter().chain(above::world(self)).collect();
        let mut calls = leaf.calls;
        let clean = leaf.outcome.is_none() && !matches!(self.answer, Answer::Reject | Answer::Late);
        calls.extend(above::calls(self, clean));
        let people: Vec<Value> = leaf.people.into_iter().chain(above::people(self)).collect();
        let mut scene = json!({
            "scene": format!("{self:?}"), "spec": spec, "world": world, "people": people,
            "expect": {
                "outcome": leaf.outcome.unwrap_or_else(|| json!({ "one_of": ["completed", "partial"] })),
                "calls": calls, "notes": leaf.notes,
                "at": above::looks(self, &leaf.asks),
            },
            "ways": ways,
        });
        if let Some(expect) = scene["expect"].as_object_mut() {
            // What expects nothing is no expectation.
            expect.retain(|_, expected| *expected != json!([]) && *expected != json!({}));
        }
        if leaf.order_counts {
            scene["order"] = "matters".into();
        }
        scene
    }
}

/// Two of the five choices of a cell, by their places.
type Pair = ((usize, usize), (usize, usize));

fn pairs_of(cell: &Cell) -> Vec<Pair> {
    let choices = [
        cell.kind as usize,
        cell.depth,
        cell.above as usize,
        cell.beside as usize,
        cell.answer as usize,
        cell.door as usize,
    ];
    let mut pairs = Vec::new();
    for (i, a) in choices.iter().enumerate() {
        pairs.extend(choices.iter().enumerate().skip(i + 1).map(|(j, b)| ((i, *a), (j, *b))));
    }
    pairs
}

/// Each pair of choices that there is at all is played.
#[test]
fn the_cells_that_are_played_have_every_pair() {
    let chosen = Cell::pairwise();
    let covered: BTreeSet<Pair> = chosen.iter().flat_map(pairs_of).collect();
    for cell in Cell::all() {
        assert!(pairs_of(&cell).iter().all(|pair| covered.contains(pair)), "{cell:?}");
        assert!(chosen.iter().any(|other| (other.kind, other.answer) == (cell.kind, cell.answer)), "{cell:?}");
    }
    assert_eq!(Cell::all().len(), 5476, "fixtures/README.md tells how many there are");
    assert!(chosen.len() < 80, "{} take too long for every run of the tests", chosen.len());
}

/// Plays the cells of these kinds: a sample, and of their crashes and orders some. `BOSUN_PAUSES=all` plays the whole
/// product with a crash after every event; `BOSUN_PAUSES_TO=DIR` writes the cells down as scenes for `bosun test DIR`,
/// and plays none.
fn play(kinds: &[Kind]) {
    let all = std::env::var("BOSUN_PAUSES").is_ok_and(|word| word == "all");
    let cells = if all { Cell::all() } else { Cell::pairwise() };
    let cells = cells.into_iter().filter(|cell| kinds.contains(&cell.kind));
    let folder = std::env::var("BOSUN_PAUSES_TO");
    let whole = all || folder.is_ok();
    let ways = if whole { json!({ "permute": 4 }) } else { json!({ "permute": 1, "crash": 1 }) };
    if let Ok(folder) = folder {
        for cell in cells {
            let Cell { kind, depth, above, beside, answer, door } = cell;
            let name = format!("{folder}/{kind:?}-{depth}-{above:?}-{beside:?}-{answer:?}-{door:?}.yaml");
            let scene = cell.scene(&ways);
            let keys = scene.as_object().unwrap().iter().map(|(key, value)| format!("{key}: {value}\n"));
            std::fs::write(name, keys.collect::<String>()).unwrap();
        }
        return;
    }
    let failures: Vec<String> = cells
        .filter_map(|cell| SceneText::whole(cell.scene(&ways)).failures().map(|why| format!("{cell:?}\n{why}")))
        .collect();
    assert!(failures.is_empty(), "{} cells fail\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn approvals_of_tasks() {
    play(&[Kind::Approval]);
}

#[test]
fn approvals_of_tools() {
    play(&[Kind::Policy, Kind::Tool]);
}

#[test]
fn questions() {
    play(&[Kind::Question, Kind::Interrupt]);
}

#[test]
fn plans_and_takeovers() {
    play(&[Kind::PlanReview, Kind::Takeover]);
}

#[test]
fn budgets_and_keys() {
    play(&[Kind::Budget, Kind::Key]);
}
