//! Scenes in tests of Rust: what a test says and sees, played as every scene is.
//!
//! Invariant: nothing here runs anything: a scene is written down as YAML would say it, and played by `ways` on the
//! production worker. A test sees the straight life; a scene that fails in any way fails its test.

use std::collections::BTreeMap;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{EventKind, Marker, RunId, Turn};
use proptest::test_runner::Config as ProptestConfig;
use serde_json::{Map, Value, json};

use super::file;
use super::judge::Ended;
use super::life::Life;
use super::ways::{Choice, SceneResult as Failures, straight_life};
use crate::supervisor::parse_yaml;

/// How many cases a property test draws: `PROPTEST_CASES` if set, so that a long run needs no change.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let usual = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    };
    ProptestConfig { failure_persistence: None, ..usual }
}

/// What somebody does.
#[derive(Clone)]
pub(crate) enum Act {
    Signal(&'static str, Value),
    Update(&'static str, Value),
    /// An update that is refused for this reason.
    Refused(&'static str, Value, &'static str),
    /// Any act as a scene has it.
    Do(Value),
    Cancel,
}

#[derive(Clone)]
pub(crate) struct SceneText(Map<String, Value>);

/// How it went, straight.
pub(crate) struct SceneRun {
    life: Life<'static>,
    /// The run is still open.
    pub(crate) open: bool,
    pub(crate) digest: Value,
    report: Value,
    /// Keys of calls, in the order they were made, with the run's place for children (`child-1:plan/1`).
    pub(crate) calls: Vec<String>,
    /// What calls of the first run were told, by key.
    pub(crate) inputs: BTreeMap<String, Value>,
    /// What calls were answered, with their purpose.
    pub(crate) said: Vec<(String, Value)>,
    /// In seconds.
    pub(crate) took: u64,
    /// What the first run noted.
    pub(crate) notes: Vec<Value>,
}

impl SceneText {
    /// A scene of a spec in YAML; its own script answers.
    pub(crate) fn new(spec: &str) -> Self {
        let spec = parse_yaml(spec).unwrap_or_else(|why| panic!("{why}: {spec}"));
        let whole = json!({ "scene": "of a test", "spec": spec, "expect": { "outcome": { "exists": true } } });
        SceneText(whole.as_object().cloned().unwrap())
    }
    /// A whole scene, as its file would say it.
    #[track_caller]
    pub(crate) fn whole(scene: Value) -> Self {
        SceneText(scene.as_object().cloned().unwrap_or_else(|| panic!("no scene: {scene}")))
    }
    /// Plays it four ways; what fails, if anything does.
    #[track_caller]
    pub(crate) fn failures(self) -> Option<String> {
        let scene = self.read().unwrap_or_else(|why| panic!("{why}"));
        let played = super::ways::play(&scene, &registry(), &Choice::default());
        (!played.failures.is_empty()).then(|| told(&played))
    }
    /// Where the run stands.
    pub(crate) fn context(mut self, context: Value) -> Self {
        self.0.insert("context".to_owned(), context);
        self
    }
    /// Rules of the world, before the script of the spec.
    pub(crate) fn world(mut self, rules: Value) -> Self {
        self.0.insert("world".to_owned(), rules);
        self
    }
    /// The worker is killed after so many seconds.
    pub(crate) fn kill(mut self, seconds: u64) -> Self {
        self.0.insert("faults".to_owned(), json!([{ "at": seconds, "do": "kill" }]));
        self
    }
    pub(crate) fn at(self, seconds: u64, act: Act) -> Self {
        self.acts("at", seconds.into(), act)
    }
    pub(crate) fn at_ms(self, millis: u64, act: Act) -> Self {
        self.acts("at", format!("{millis}ms").into(), act)
    }
    pub(crate) fn once(self, when: Value, act: Act) -> Self {
        self.acts("when", when, act)
    }
    fn acts(mut self, key: &str, when: Value, act: Act) -> Self {
        let mut cue = match act {
            Act::Signal(name, input) => json!({ "do": "signal", "name": name, "input": input }),
            Act::Update(name, input) => json!({ "do": "update", "name": name, "input": input }),
            Act::Refused(name, input, why) => json!({ "do": "update", "name": name, "input": input, "refused": why }),
            Act::Do(act) => act,
            Act::Cancel => json!({ "do": "cancel", "reason": "asked" }),
        };
        cue[key] = when;
        let people = self.0.entry("people").or_insert_with(|| json!([]));
        people.as_array_mut().unwrap().push(cue);
        self
    }
    /// The order of completions decides what happens, as it must.
    pub(crate) fn order_counts(mut self) -> Self {
        self.0.insert("order".to_owned(), "matters".into());
        self
    }
    /// Stops looking after so many seconds; the run may still be open.
    pub(crate) fn until(mut self, seconds: u64) -> Self {
        self.0.insert("until".to_owned(), seconds.into());
        self
    }

    fn read(self) -> Result<file::Scene, String> {
        let no_files = |name: &str| Err(format!("there is no {name}"));
        file::Scene::of("a test", &Value::Object(self.0), &no_files).map_err(|why| why.to_string())
    }

    /// Lives it straight, and judges nothing: for random lives, in which an act may come too late.
    #[track_caller]
    pub(crate) fn straight(self) -> SceneRun {
        let (scene, workflows) = self.leaked();
        let lived = Life::begin(scene, workflows, false).and_then(|mut life| life.go().map(|()| life));
        SceneRun::of(lived.unwrap_or_else(|stuck| panic!("{stuck:?}")))
    }

    /// Plays it four ways; the straight one is told.
    #[track_caller]
    pub(crate) fn play(self) -> SceneRun {
        self.in_ways(&[])
    }

    /// Plays it straight, and in these ways.
    #[track_caller]
    pub(crate) fn in_ways(self, ways: &[&str]) -> SceneRun {
        let choice = Choice { ways: ways.iter().map(|way| (*way).to_owned()).collect(), ..Choice::default() };
        let (scene, workflows) = self.leaked();
        let (failures, life) = straight_life(scene, workflows, &choice);
        assert!(failures.failures.is_empty(), "{}", told(&failures));
        SceneRun::of(life.unwrap_or_else(|| panic!("it did not begin")))
    }

    /// A test program ends soon; what is lived in may stay until then.
    #[track_caller]
    fn leaked(self) -> (&'static file::Scene, &'static WorkflowRegistry) {
        let scene = Box::leak(Box::new(self.read().unwrap_or_else(|why| panic!("{why}"))));
        (scene, Box::leak(Box::new(registry())))
    }
}

fn registry() -> WorkflowRegistry {
    crate::supervisor::run::register(crate::agent::workflow::register(WorkflowRegistry::new()))
}

fn told(played: &Failures) -> String {
    let line = |one: &super::ways::SceneFailure| {
        let last = one.last.join("\n");
        format!("{}: {}\n  expected {}\n  seen     {}\n{last}", one.way, one.at, one.expected, one.seen)
    };
    played.failures.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl SceneRun {
    fn of(mut life: Life<'static>) -> SceneRun {
        let ended = Ended::of(&mut life);
        let digest = life.query("digest", Value::Null).unwrap_or_default();
        let root = life.outside.root.map_or(RunId([0; 16]), |root| life.outside.first_of(root));
        let mut names: Vec<RunId> = vec![root];
        let (mut calls, mut inputs, mut said) = (Vec::new(), BTreeMap::new(), Vec::new());
        for made in &life.outside.calls {
            let run = life.outside.first_of(made.asked.run);
            if !names.contains(&run) {
                names.push(run);
            }
            let place = names.iter().position(|known| *known == run).unwrap_or_default();
            said.extend(made.said.result.iter().map(|answer| (made.asked.on().to_owned(), answer.clone())));
            let key = made.asked.call.key.to_string();
            if place == 0 {
                inputs.insert(key.clone(), serde_json::to_value(&made.asked.call).unwrap());
            }
            calls.push(if place == 0 { key } else { format!("child-{place}:{key}") });
        }
        let history = life.outside.chain();
        let noted = history.iter().flat_map(|turn| &turn.events).filter_map(|kind| match kind {
            EventKind::MarkerRecorded(Marker::SideEffect { value, .. }) => value.to_json().as_array().cloned(),
            _ => None,
        });
        let notes = noted.flatten().collect();
        let open = !life.outside.is_over();
        let took = life.took().as_secs();
        SceneRun { open, digest, report: ended.report, calls, inputs, said, took, notes, life }
    }

    /// The history, of all runs in which the first one went on.
    pub(crate) fn turns(&self) -> Vec<Turn> {
        self.life.outside.chain()
    }
    pub(crate) fn query(&mut self, name: &str, input: Value) -> Value {
        self.life.query(name, input).unwrap_or_else(|why| panic!("{name}: {why}"))
    }
    /// The report of a run that is over.
    #[track_caller]
    pub(crate) fn report(&self) -> Value {
        assert!(!self.open, "the run has no report yet; digest {:#}", self.digest);
        self.report.clone()
    }
    /// Whether the run has completed.
    pub(crate) fn completed(&self) -> bool {
        let end = self.life.outside.root().and_then(|root| root.closed.as_ref());
        end.is_some_and(|(_, kind)| matches!(**kind, EventKind::WorkflowExecutionCompleted { .. }))
    }
    /// `id=status` of all tasks, in plan order.
    pub(crate) fn statuses(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |task: &Value| format!("{}={}", text(&task["id"]), text(&task["status"]));
        self.digest["tasks"].as_array().into_iter().flatten().map(line).collect::<Vec<_>>().join(" ")
    }
    pub(crate) fn noted(&self, kind: &str) -> Vec<&Value> {
        self.notes.iter().filter(|note| note["kind"] == kind).map(|note| &note["data"]).collect()
    }
}
