//! What reports claim, for random specs of every family and preset, plans, seed plans, agents, people and faults (promise:
//! no report claims what no call did, no success covers work that is neither done nor excused, and what a report says that
//! the run cost is what its answers said).
//!
//! Invariant: what agents do is a function of the words they are given, written here once; what a report may say is
//! judged from the calls that were made and those words, never from what the run says of itself. Runs are scenes, on the
//! production worker; that the judging can fail is shown with reports that lie.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::scene::kit::*;
use crate::supervisor::spec::Preset;

/// What an agent does that is given this word: at each try, once the first has failed, or never. One gives nothing, one
/// what nobody can read, and one is slower than its time.
const WORDS: [&str; 9] = ["works", "heals", "breaks", "refuses", "works", "hushes", "mumbles", "stalls", "works"];
/// How long an agent may take, in seconds.
const TIME: u64 = 60;
/// What an answer of an agent takes, and what it costs.
const TOKENS: u64 = 3;
const DOLLARS: f64 = 0.002;
const MICROS: u64 = 2_000;
/// The words of a person who says no.
const NO: &str = "not with me";

/// The agents: the word decides, and an answer says whose it is, so that it can be told from any other text.
fn hands(after: u64) -> Value {
    json!([
        { "on": "hands", "contains": "breaks", "after": after, "fail": "broken" },
        { "on": "hands", "contains": "heals", "attempt": 1, "fail": "broken" },
        { "on": "hands", "contains": "refuses", "after": after, "say": { "success": false, "reason": "will not" } },
        { "on": "hands", "contains": "hushes", "after": after, "say": null },
        { "on": "hands", "contains": "mumbles", "after": after, "say": { "result": "done", "confidence": "very" } },
        { "on": "hands", "contains": "stalls", "after": 2 * TIME, "say": "done too late" },
        { "on": "hands", "after": after, "say": { "result": "done under {{key}}", "tokens": TOKENS, "cost_usd": DOLLARS } },
    ])
}

/// What happens from outside, after so many milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outside {
    Nothing,
    /// The worker is killed.
    Killed(u64),
    /// Somebody pauses the run, and lets it go on.
    Paused(u64),
    Cancelled(u64),
    /// Somebody does the first task by hand, in a takeover.
    TakenOver(u64),
}

impl Outside {
    pub(super) fn any() -> impl Strategy<Value = Outside> {
        let at = (0..4u64).prop_map(|seconds| seconds * 1_000);
        prop_oneof![
            4 => Just(Outside::Nothing),
            2 => at.clone().prop_map(Outside::Killed),
            1 => at.clone().prop_map(Outside::Paused),
            1 => at.clone().prop_map(Outside::Cancelled),
            1 => at.prop_map(Outside::TakenOver),
        ]
    }

    /// A person who holds the run does so while calls are under way: all of these begin and end on whole seconds. What comes
    /// in the moment of an answer may be heard before it or after it.
    pub(super) fn between_answers(self) -> Outside {
        match self {
            Outside::Paused(at) => Outside::Paused(at + 500),
            Outside::TakenOver(at) => Outside::TakenOver(at + 500),
            other => other,
        }
    }

    pub(super) fn of(self, scene: SceneText) -> SceneText {
        let told = || json!({ "reason": "so", "requested_by": "ann" });
        let between = |at: u64, first: &'static str, last: &'static str, scene: SceneText| {
            scene.at_ms(at, Act::Signal(first, told())).at_ms(at + 60_000, Act::Signal(last, told()))
        };
        match self {
            Outside::Nothing => scene,
            Outside::Killed(at) => scene.kill(at / 1_000),
            Outside::Paused(at) => between(at, "pause_v1", "resume_v1", scene),
            Outside::Cancelled(at) => scene.at_ms(at, Act::Signal("cancel_v1", told())),
            Outside::TakenOver(at) => between(at, "human_takeover_v1", "human_release_v1", scene),
        }
    }
}

/// Whether an agent that is given the word ever gives something.
fn gives(word: &str, tries: u64) -> bool {
    match word {
        "works" | "hushes" => true,
        "heals" => tries > 1,
        _ => false,
    }
}

#[derive(Debug, Clone)]
struct Planned {
    word: &'static str,
    /// The key that says who does it, if any.
    asks: &'static str,
    deps: Vec<usize>,
    /// Nothing excuses it.
    required: bool,
    /// A person is asked before it starts.
    asked: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Life {
    preset: &'static str,
    agents: usize,
    tasks: Vec<Planned>,
    on_error: &'static str,
    on_failure: &'static str,
    tries: u64,
    verdict: &'static str,
    again: bool,
    /// Who answers what nobody can read: nobody, or whoever plans, reviews or decides.
    nonsense: &'static str,
    /// What a person says of the first tasks that they are asked about, and of the plan; in silence the time passes.
    of_task: &'static str,
    of_plan: &'static str,
    steps: u32,
    /// Which task a plan that is given marks as its final one.
    last: usize,
    /// The round in which who decides says that this is enough, or that it must be planned again.
    ends: u32,
    /// How long each call takes.
    after: u64,
    pub(super) outside: Outside,
}

const PRESETS: [&str; 14] = [
    "flow-supervisor",
    "flow-supervisor-per-task",
    "flow-plan-and-execute",
    "flow-coordinator",
    "cuga-structured",
    "shannon-supervisor",
    "shannon-dag",
    "pydantask-fixed",
    "pydantask-llm",
    "pydantask-hybrid",
    "shannon-simple",
    "evaluator-optimizer",
    "map-reduce",
    "plan-run",
];

/// The key that says who does a task, if any.
const ASKS: [&str; 9] =
    ["", "", "agent: w0", "agent: w1", "agent: nobody", "capability: w0", "capability: none", "role: r1", "role: r9"];

pub(super) fn lives() -> impl Strategy<Value = Life> {
    let asks = select(&ASKS[..]);
    let required = prop_oneof![5 => Just(false), 1 => Just(true)];
    let asked = prop_oneof![4 => Just(false), 1 => Just(true)];
    let task = (select(&WORDS[..]), asks, proptest::collection::vec(0..5usize, 0..2), required, asked);
    let task = task.prop_map(|(word, asks, deps, required, asked)| Planned { word, asks, deps, required, asked });
    let tasks = proptest::collection::vec(task, 0..5).prop_map(|mut tasks| {
        tasks.iter_mut().enumerate().for_each(|(at, task)| task.deps.retain(|on| *on < at));
        tasks
    });
    let rules = (
        select(vec!["skip", "fail", "retry", "fail_task"]),
        select(vec!["skip", "wait", "cancel", "run", "block"]),
        1..3u64,
        select(vec!["accepted", "accepted", "needs-revision", "escalate"]),
    );
    let nonsense = prop_oneof![6 => Just(""), 1 => Just("plan"), 2 => Just("review"), 1 => Just("decide")];
    let of_task = select(&["", "approve", "reject", "reject"][..]);
    let of_plan = select(&["", "", "", "", "approve_plan", "approve_plan", "reject_plan", "silence"][..]);
    let review = (any::<bool>(), nonsense, of_task, of_plan);
    let rest = (review, 1..6u32, 0..4usize, 1..5u32, 0..3u64, Outside::any());
    (select(&PRESETS[..]), 1..3usize, tasks, rules, rest).prop_map(
        |(
            preset,
            agents,
            tasks,
            (on_error, on_failure, tries, verdict),
            ((again, nonsense, of_task, of_plan), steps, last, ends, after, outside),
        )| Life {
            preset,
            agents,
            tasks,
            on_error,
            on_failure,
            tries,
            verdict,
            again,
            nonsense,
            of_task,
            of_plan,
            steps,
            last,
            ends,
            after,
            outside,
        },
    )
}

impl Life {
    /// The spec as a user writes it.
    fn spec(&self) -> String {
        let agents = (0..self.agents)
            .map(|n| format!("{{ name: w{n}, role: r{n}, timeout: {TIME}s, via: {{ activity: hands }} }}"));
        let agents = agents.collect::<Vec<_>>().join(", ");
        let own = match self.preset {
            "shannon-supervisor" => "routing: { enabled: false }\nhitl: { triggers: { consecutive_failures: null } }",
            _ => "",
        };
        let planning: Vec<&str> = [
            (self.preset == "cuga-structured", "force: true"),
            (self.is_evaluated(), "replan: true"),
            (self.has_review(), "approval: { required: true }"),
        ]
        .into_iter()
        .filter_map(|(said, key)| said.then_some(key))
        .collect();
        let own = match planning.is_empty() {
            true => own.to_owned(),
            false => format!("{own}\nplanning: {{ {} }}", planning.join(", ")),
        };
        // Where the first error is final there are no tries to give (supervisors.md §4.1 no. 4).
        let tries = if self.preset == "flow-supervisor-per-task" && self.on_error == "fail_task" {
            String::new()
        } else {
            format!(", tries: {}", self.tries)
        };
        let mut text = format!(
            "kind: supervisor\nname: life\npreset: {}\nobjective: works\nagents: [{agents}]\n{own}\nfailure: {{ on_subtask_error: {}{tries} }}\n",
            self.preset, self.on_error,
        );
        // Writing to a String cannot fail. What has no effect would be refused.
        let iterations = if self.is_evaluated() { ", max_iterations: 2" } else { "" };
        if self.is_pydantask() || matches!(self.preset, "flow-plan-and-execute" | "cuga-structured") {
            let _ = writeln!(text, "loop: {{ max_steps: {}{iterations} }}", self.steps);
        }
        if !matches!(self.preset, "shannon-simple" | "evaluator-optimizer") {
            let _ = writeln!(text, "dependencies: {{ on_failure: {} }}", self.on_failure);
        }
        match self.preset {
            "pydantask-fixed" | "pydantask-hybrid" | "plan-run" => self.seed_plan(&mut text),
            "pydantask-llm" => self.by_tools(&mut text),
            _ => self.planner(&mut text),
        }
        text
    }

    fn play(&self) -> SceneRun {
        self.play_with("")
    }

    /// With these keys of the spec besides.
    pub(super) fn play_with(&self, keys: &str) -> SceneRun {
        let spec = format!("{}{keys}\n", self.spec());
        let mut scene = self.outside.of(SceneText::new(&spec).world(hands(self.after)));
        let by = |act: &str| json!({ "do": act, "by": "ann", "after": 1, "comment": NO });
        if !self.of_task.is_empty() {
            scene = scene.once(json!({ "approval": "any" }), Act::Do(by(self.of_task)));
        }
        if self.of_plan.ends_with("_plan") {
            // Where a later plan may come, it is that one that the word is about.
            let first = if self.again { "approve_plan" } else { self.of_plan };
            scene = scene.once(json!({ "plan": 1 }), Act::Do(by(first)));
            scene = scene.once(json!({ "plan": 2 }), Act::Do(by(self.of_plan)));
        }
        scene.straight()
    }

    /// Whether people see the plan first.
    fn has_review(&self) -> bool {
        let no_plan = ["pydantask-llm", "shannon-simple", "evaluator-optimizer", "map-reduce"];
        !self.of_plan.is_empty() && !no_plan.contains(&self.preset)
    }

    fn is_pydantask(&self) -> bool {
        self.preset.starts_with("pydantask")
    }

    fn planner(&self, text: &mut String) {
        let mut tasks = Vec::new();
        for (at, task) in self.tasks.iter().enumerate() {
            let deps: Vec<String> = task.deps.iter().map(|on| format!("t{on}")).collect();
            let asks = if task.asks.is_empty() { String::new() } else { format!(", {}", task.asks) };
            let asks = if task.required { asks + ", required: true" } else { asks };
            let asks = if task.asked { asks + ", requires_approval: true" } else { asks };
            tasks.push(format!("{{ id: t{at}, goal: {}, deps: [{}]{asks} }}", task.word, deps.join(", ")));
        }
        let verdict = |at: usize| format!("{{ taskId: t{at}, verdict: {}, feedback: so, score: 0.5 }}", self.verdict);
        let verdicts: Vec<String> = (0..self.tasks.len()).map(verdict).collect();
        let review = match (self.preset, self.nonsense) {
            (_, "review") => "nonsense".to_owned(),
            ("flow-supervisor", _) => format!(
                "{{ assessments: [{}], needsReplanning: {}, overallAssessment: so }}",
                verdicts.join(", "),
                self.again
            ),
            _ => format!("{{ verdict: {}, feedback: so, score: 0.5 }}", self.verdict),
        };
        let decision = if self.verdict == "accepted" { "complete" } else { "replan" };
        let evaluator = match self.is_evaluated() {
            true if self.nonsense == "decide" => "\n- { on: decide, say: nonsense }".to_owned(),
            true => format!(
                "\n- {{ on: decide, round: {}, say: {{ decision: {decision}, reason: so }} }}\n- {{ on: decide, say: {{ decision: continue }} }}",
                self.ends
            ),
            false => String::new(),
        };
        let plan = match self.nonsense {
            "plan" => "{ tasks: [{ id: t0, goal: works, deps: [t9] }], strategy: guess }".to_owned(),
            _ => format!("{{ tasks: [{}] }}", tasks.join(", ")),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "script:\n- {{ on: plan, say: {plan} }}\n- {{ on: review, say: {review} }}\n- {{ on: synthesize, say: summed up }}{evaluator}",
        );
    }

    /// Whether somebody is asked after each step if the plan still holds.
    fn is_evaluated(&self) -> bool {
        self.preset == "flow-plan-and-execute" && self.again
    }

    /// The place of the final task of a plan that is given.
    fn final_at(&self) -> usize {
        self.last % self.tasks.len().max(1)
    }

    /// What pydantask's capability of a task is. A plan file names none that nobody has.
    fn capability(&self, task: &Planned) -> &'static str {
        if task.asks.contains("no") && self.is_pydantask() { "none" } else { "w0" }
    }

    fn seed_plan(&self, text: &mut String) {
        let mut tasks = Vec::new();
        for (at, task) in self.tasks.iter().enumerate() {
            let deps: Vec<String> = task.deps.iter().map(|on| (on + 1).to_string()).collect();
            tasks.push(format!(
                "{{ task_id: {}, sub_task_objective: {}, capability: {}, sub_task_dependencies: [{}], is_final: {}, required: {}, requires_approval: {} }}",
                at + 1,
                task.word,
                self.capability(task),
                deps.join(", "),
                at == self.final_at(),
                task.required,
                task.asked,
            ));
        }
        if tasks.is_empty() {
            tasks.push("{ task_id: 1, sub_task_objective: works, capability: w0 }".to_owned());
        }
        let _ = writeln!(text, "seed_plan: {{ plan: {{ objective: works, tasks: [{}] }} }}", tasks.join(", "));
        // A plan file is carried out by nobody.
        if self.is_pydantask() {
            self.supervisor(text, tasks.len(), "");
        }
    }

    /// The plan that a supervisor makes with its tools, in its first round.
    fn by_tools(&self, text: &mut String) {
        let mut calls = Vec::new();
        for task in &self.tasks {
            let deps: Vec<String> = task.deps.iter().map(|on| (on + 1).to_string()).collect();
            calls.push(format!(
                "{{ tool: add_task, args: {{ sub_task_objective: {}, capability: {}, dependencies: [{}] }} }}",
                task.word,
                self.capability(task),
                deps.join(", ")
            ));
        }
        calls.push(format!("{{ tool: mark_final_task, args: {{ task_id: {} }} }}", self.final_at() + 1));
        let first = format!("- {{ on: decide, round: 1, say: {{ tool_calls: [{}] }} }}\n", calls.join(", "));
        self.supervisor(text, self.tasks.len(), &first);
    }

    /// The round in which a supervisor says that all is done; the plan that it makes is there after the first.
    fn judges_in(&self) -> u32 {
        self.ends + u32::from(self.preset == "pydantask-llm")
    }

    /// It wants every task in every round, until it has enough.
    fn supervisor(&self, text: &mut String, tasks: usize, first: &str) {
        let all: Vec<String> = (1..=tasks).map(|id| id.to_string()).collect();
        let passed = self.verdict == "accepted";
        let last = self.judges_in();
        let nonsense = if self.nonsense == "decide" { "- { on: decide, round: 2, say: nonsense }\n" } else { "" };
        let _ = writeln!(
            text,
            "script:\n{first}{nonsense}- {{ on: decide, round: {last}, say: {{ all_tasks_completed: true }} }}\n- {{ on: decide, say: {{ tasks_to_execute: [{}] }} }}\n- {{ on: review, say: {{ passed: {passed}, reasoning: so }} }}",
            all.join(", ")
        );
    }

    /// The place in the plan of the task that a report calls so; a step that was planned anew is of the same task (FSP-06).
    fn place(&self, id: &str) -> Option<usize> {
        let id = id.split_once("-replan-").map_or(id, |(id, _)| id);
        let is_number = self.is_pydantask() || self.preset == "plan-run";
        let n: usize = id.trim_start_matches('t').parse().ok()?;
        n.checked_sub(usize::from(is_number))
    }

    /// Whether this task may be missing from a success, by the rules of this spec and what was judged alone.
    fn excuses(&self, task: &Value, tasks: &[Value], calls: &[String]) -> bool {
        let place = |task: &Value| self.place(task["task_id"].as_str().unwrap_or_default());
        let error = task["error"].as_str().unwrap_or_default();
        let status = task["status"].as_str().unwrap_or_default();
        let own = place(task).and_then(|place| self.tasks.get(place));
        let judged = self.is_evaluated() && self.verdict == "accepted" && error == "Skipped: so";
        // One whose place another one took, and one that is not needed, nobody has to do.
        // The tools of a supervisor have no word for what is required.
        let required = own.is_some_and(|own| own.required) && self.preset != "pydantask-llm";
        if required && status != "completed" && status != "cancelled" && !judged {
            return false;
        }
        match status {
            "completed" => true,
            // Below the threshold failed tasks are left out (SHN-34).
            "failed" => self.preset == "shannon-supervisor",
            "skipped" | "cancelled" if error.contains("dependency") || error.contains("Upstream") => {
                let deps = own.map(|own| own.deps.clone()).unwrap_or_default();
                let mut on = tasks.iter().filter(|task| place(task).is_some_and(|place| deps.contains(&place)));
                !deps.is_empty() && on.all(|on| self.excuses(on, tasks, calls))
            }
            // Whoever is asked may say no, and so does silence (SHH-09, SHH-10).
            "skipped" if error.contains(NO) || error.contains("auto-rejected") => own.is_some_and(|own| own.asked),
            "skipped" if self.is_evaluated() && error.starts_with("Skipped: ") => {
                judged && calls.contains(&format!("evaluate/{}", self.ends))
            }
            "skipped" => matches!(self.on_error, "skip" | "retry"),
            "cancelled" => !error.starts_with("a new plan left it out"),
            _ => false,
        }
    }

    /// Whether what is charged is what the answers said: all of it where the run has ended as it was to, no less than what the
    /// completed tasks took, and never more.
    fn charges(report: &Value, said: &[(String, Value)]) -> Result<(), TestCaseError> {
        let of = |key: &str| report[key].as_u64().unwrap_or_default();
        let paid = said.iter().filter(|(_, answer)| answer["tokens"] == TOKENS).count() as u64;
        let done = |task: &&Value| {
            task["status"] == "completed" && task["brief"].as_str().is_some_and(|text| !text.is_empty())
        };
        let done = report["tasks"].as_array().into_iter().flatten().filter(done).count() as u64;
        let whole = report["status"] == "completed";
        for (key, each) in [("tokens", TOKENS), ("cost_micros", MICROS)] {
            let charged = of(key);
            prop_assert!(charged <= paid * each, "{charged} {key} are charged of {paid} answers: {report:#}");
            prop_assert!(charged >= done * each, "{charged} {key} are charged for {done} tasks: {report:#}");
            prop_assert!(!whole || charged == paid * each, "{charged} {key} of {paid} answers are charged: {report:#}");
        }
        prop_assert!(of("unpriced_calls") == 0, "every answer named its price: {report:#}");
        Ok(())
    }

    /// Whether what is reported is true of these calls.
    // long: one promise after the other.
    fn judge(&self, report: &Value, calls: &[String]) -> Result<(), TestCaseError> {
        let tasks: Vec<Value> = report["tasks"].as_array().cloned().unwrap_or_default();
        let made = |id: &str| calls.iter().any(|call| call.starts_with(&format!("execute/{id}/")));
        for task in tasks.iter().filter(|task| task["status"] == "completed") {
            let (id, goal) = (task["task_id"].as_str().unwrap_or_default(), task["title"].as_str().unwrap_or_default());
            prop_assert!(made(id), "no call did {id}: {report:#}\n{calls:?}");
            let word = WORDS.into_iter().find(|word| goal.contains(word)).unwrap_or("works");
            let tries = task["attempts"].as_u64().unwrap_or_default();
            prop_assert!(gives(word, tries), "nobody gave anything for {id} ({goal}): {report:#}");
            let brief = task["brief"].as_str().unwrap_or_default();
            if word == "hushes" {
                prop_assert!(task["brief"].is_null() || brief.is_empty(), "it gave nothing: {report:#}");
                continue;
            }
            prop_assert!(brief.starts_with(&format!("done under execute/{id}/")), "not its own answer: {report:#}");
        }
        if report["success"] != true {
            return Ok(());
        }
        prop_assert!(report["status"] != "failed" && report["error"].is_null(), "{report:#}");
        let done = tasks.iter().filter(|task| task["status"] == "completed").count();
        // Where the plan has no task there is nothing to do for those of flow-state whose rows say so (FSP-07, FSC-03): then
        // a call has planned so, and another one has summed it up if there is a text.
        let planned = |what: &str| calls.iter().any(|call| call.starts_with(what));
        let may_be_empty = matches!(self.preset, "flow-plan-and-execute" | "flow-coordinator");
        let empty = may_be_empty && tasks.is_empty() && self.tasks.is_empty() && planned("plan/");
        prop_assert!(done > 0 || empty, "a success of which nothing was done: {report:#}\n{calls:?}");
        let told = report["final_result"] == "summed up";
        prop_assert!(!told || planned("synthesize/"), "nobody said what it tells: {report:#}\n{calls:?}");
        // Who decides has said that all is done: then the final task counts (PDT-08), and what else is open was judged.
        let said = calls.iter().rfind(|call| call.starts_with("decide/"));
        if self.is_pydantask() || self.preset == "plan-run" {
            let last = tasks.get(self.final_at()).map(|task| task["status"].clone());
            prop_assert_eq!(last, Some(json!("completed")), "the final task counts: {:#}", report);
        }
        if self.is_pydantask() && said == Some(&format!("decide/{}", self.judges_in())) {
            return Ok(());
        }
        for task in &tasks {
            prop_assert!(
                self.excuses(task, &tasks, calls),
                "{} is neither done nor excused: {report:#}",
                task["task_id"]
            );
        }
        // What a word of the evaluator or another task has settled is not missing.
        let settled = |task: &&Value| {
            task["status"] == "completed" || task["status"] == "cancelled" || task["error"] == "Skipped: so"
        };
        let partial = !tasks.iter().all(|task| settled(&task));
        prop_assert!(!partial || report["status"] == "partial", "{report:#}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn no_report_of_tasks_claims_what_no_call_did(life in lives()) {
        let played = life.play();
        life.judge(&played.report(), &played.calls)?;
        Life::charges(&played.report(), &played.said)?;
    }
}

/// The judging has teeth: reports that lie about the same calls are found out.
#[test]
fn reports_of_tasks_that_lie_are_found_out() {
    let task = |word, deps: &[usize]| Planned { word, asks: "", deps: deps.to_vec(), required: false, asked: false };
    let life = Life {
        preset: "flow-plan-and-execute",
        agents: 1,
        tasks: vec![task("works", &[]), task("breaks", &[]), task("works", &[1])],
        on_error: "fail_task",
        on_failure: "skip",
        tries: 1,
        verdict: "accepted",
        again: false,
        nonsense: "",
        of_task: "",
        of_plan: "",
        steps: 5,
        last: 2,
        ends: 4,
        after: 1,
        outside: Outside::Nothing,
    };
    let played = life.play();
    let (report, calls) = (played.report(), &played.calls);
    life.judge(&report, calls).unwrap();
    assert_eq!((&report["success"], &report["tasks"][2]["status"]), (&json!(false), &json!("skipped")));
    let lie = |path: &str, value: Value, why: &str| {
        let mut other = report.clone();
        *other.pointer_mut(path).unwrap() = value;
        let found = life.judge(&other, calls).unwrap_err().to_string();
        assert!(found.contains(why), "{path}: {found}");
    };
    Life::charges(&report, &played.said).unwrap();
    for (key, lie) in
        [("tokens", 0), ("tokens", 6), ("cost_micros", 1_999), ("cost_micros", 4_000), ("unpriced_calls", 1)]
    {
        let mut other = report.clone();
        other[key] = lie.into();
        assert!(Life::charges(&other, &played.said).is_err(), "{key}: {lie}");
    }
    lie("/tasks/2/status", json!("completed"), "no call did t2");
    lie("/tasks/1/status", json!("completed"), "nobody gave anything for t1");
    lie("/tasks/0/brief", json!("done by nobody"), "not its own answer");
    lie("/success", json!(true), "is neither done nor excused");
    let nothing = json!({ "success": true, "status": "completed", "error": null, "tasks": [] });
    assert!(life.judge(&nothing, calls).unwrap_err().to_string().contains("nothing was done"));
}

/// The presets of this test and of the one about talk are all there are.
#[test]
fn every_preset_is_among_them() {
    let mut named: Vec<&str> = PRESETS.iter().chain(&super::talks::TALKS).copied().collect();
    let mut all: Vec<&str> = Preset::ALL.iter().map(|preset| preset.name()).collect();
    named.sort_unstable();
    all.sort_unstable();
    assert_eq!(named, all);
}
