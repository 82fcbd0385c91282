//! One determinism test a preset, and what must hold of every run after every commit.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{ActivityOutcome, EventKind, Failure, FailureKind, Marker, Payload};
use bosun_replay::determinism::{DeterminismTest, Report, armed};
use bosun_replay::simulate::RunView;
use bosun_worker::supervisor::run::{SUPERVISOR, SupervisorInput, register};
use bosun_worker::supervisor::spec::read_spec;
use bosun_worker::supervisor::{Actor, TaskStatus};
use serde_json::{Value, json};

use super::acts;

/// Lives of each cast at full scale, and the tenth of them that every run of the tests lives. `BOSUN_CASES` tries more.
const LIVES: u32 = 400;
const SAMPLE: u32 = LIVES / 10;

/// The input of a preset's own spec, with more at its end.
pub(crate) fn input(preset: &str, more: &str) -> Value {
    read(preset, text(preset) + more)
}

/// The same spec with one thing in it otherwise.
fn changed(preset: &str, from: &str, to: &str) -> Value {
    let text = text(preset);
    assert!(text.contains(from), "{from:?} is not in the spec of {preset}");
    read(preset, text.replace(from, to))
}

fn text(preset: &str) -> String {
    let path = format!("{}/../fixtures/supervisors/presets/{preset}.yaml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"))
}

fn read(preset: &str, text: String) -> Value {
    let file = read_spec(preset, &text).unwrap_or_else(|why| panic!("{why}"));
    json!(SupervisorInput::new(file.resolve().unwrap_or_else(|why| panic!("{why}"))))
}

/// What the activity `scripted` does.
pub(crate) fn scripted(input: &Payload) -> ActivityOutcome {
    let answer = &input.to_json()["answer"];
    match answer.get("say") {
        Some(value) => ActivityOutcome::Completed(Payload::encode(value).unwrap_or_default()),
        None => {
            let why = answer["fail"].as_str().unwrap_or("no answer");
            ActivityOutcome::Failed(Failure::application("ScriptedFailure", why).non_retryable())
        }
    }
}

/// A preset with what its runs may be started with, and the tasks and agents they know.
pub(crate) struct Cast {
    preset: &'static str,
    pub(crate) inputs: Vec<Value>,
    pub(crate) tasks: &'static [&'static str],
    pub(crate) agents: &'static [&'static str],
}

fn kit(cast: &Cast, lives: u32) -> DeterminismTest {
    assert!(armed());
    let Cast { inputs, tasks, agents, .. } = cast;
    let mut kit = DeterminismTest::new(register(WorkflowRegistry::new()), SUPERVISOR)
        .input(proptest::sample::select(inputs.clone()))
        .activity_answers("scripted", scripted)
        .invariant("a call is made once", calls_once)
        .invariant("a task that is over stays as it is", terminal_is_final)
        .invariant("a closed run has nothing under way", closed_is_over)
        .invariant("what is waited for was asked for", awaited_was_asked)
        .invariant("what is paused starts nothing", paused_starts_nothing)
        .lives(lives)
        .steps(24)
        .on_all_cores()
        .without_case_files();
    for (name, inputs) in acts::signals(tasks, agents) {
        kit = kit.signal(name, inputs);
    }
    for (name, inputs) in acts::updates(tasks) {
        kit = kit.update(name, inputs);
    }
    for name in acts::QUERIES {
        kit = kit.query(name, &json!({ "task_id": tasks.first(), "agent_id": agents.first() }));
    }
    kit
}

/// The facts that a turn noted.
fn notes(event: &EventKind) -> Vec<Value> {
    match event {
        EventKind::MarkerRecorded(Marker::SideEffect { value, .. }) => {
            value.to_json().as_array().cloned().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Calls scheduled and how they ended: again only after the worker was lost.
fn calls_once(run: &RunView<'_>) -> Result<(), String> {
    let (mut keys, mut again) = (BTreeMap::new(), BTreeSet::new());
    for event in run.events() {
        match event {
            EventKind::ActivityTaskScheduled(task) => {
                let key = task.input.to_json()["key"].as_str().unwrap_or_default().to_owned();
                if keys.values().any(|other| *other == key) && !again.remove(&key) {
                    return Err(format!("{key} is called twice"));
                }
                keys.insert(task.seq, key);
            }
            EventKind::ActivityTaskFailed { seq, failure, .. }
                if matches!(failure.root().kind, FailureKind::WorkerLost) =>
            {
                again.extend(keys.get(seq).cloned());
            }
            _ => {}
        }
    }
    Ok(())
}

/// By the facts noted: each change begins where the last one ended, and is in the table for who asked.
fn terminal_is_final(run: &RunView<'_>) -> Result<(), String> {
    let mut statuses: BTreeMap<String, TaskStatus> = BTreeMap::new();
    for note in run.events().flat_map(notes) {
        let data = &note["data"];
        // A later plan may name again what gave nothing: it is another task under its name (FSS-12).
        if note["kind"] == "TaskAdded" && !data["replaces"].is_null() {
            let was = statuses.remove(&data["task"].to_string());
            let gave_nothing = [TaskStatus::Failed, TaskStatus::Skipped, TaskStatus::Cancelled];
            if !was.is_some_and(|was| gave_nothing.contains(&was) && json!(was) == data["replaces"]) {
                return Err(format!("task {} replaces one that was {was:?}: {data}", data["task"]));
            }
        }
        if note["kind"] != "TaskStatusChanged" {
            continue;
        }
        let of = |key: &str| serde_json::from_value::<TaskStatus>(data[key].clone()).map_err(|why| why.to_string());
        let by = serde_json::from_value::<Actor>(data["by"].clone()).map_err(|why| why.to_string())?;
        let (task, from, to) = (data["task"].to_string(), of("from")?, of("to")?);
        if let Some(last) = statuses.insert(task.clone(), to)
            && last != from
        {
            return Err(format!("task {task} was {last}, and then changed from {from} to {to}"));
        }
        if from.is_terminal() || !from.may_become(to, by) {
            return Err(format!("task {task} changed from {from} to {to} by the {by}"));
        }
    }
    Ok(())
}

/// Whatever was scheduled has ended when the run is closed, or the close ended it: nothing may follow the close.
fn closed_is_over(run: &RunView<'_>) -> Result<(), String> {
    let Some(outcome) = run.outcome() else { return Ok(()) };
    let Some(state) = run.state() else { return Ok(()) };
    let open: Vec<String> =
        under_way(&state).filter(|(kind, _)| *kind != "timer").map(|(kind, key)| format!("{kind} {key}")).collect();
    let tasks = state["strategy"]["graph"]["plan"]["tasks"].as_object();
    let running: Vec<&String> =
        tasks.into_iter().flatten().filter(|(_, task)| task["status"] == "running").map(|(id, _)| id).collect();
    match open.is_empty() && running.is_empty() {
        true => Ok(()),
        false => Err(format!("closed ({outcome:?}) with {open:?} under way, tasks {running:?} running")),
    }
}

/// What the engine was asked for and has not ended: what it is, and its key.
fn under_way(state: &Value) -> impl Iterator<Item = (&str, &str)> {
    let all = state["calls"]["under_way"].as_object().expect("a run knows what is under way");
    all.values().flat_map(|what| what.as_object().into_iter().flatten()).map(|(kind, what)| {
        let key = if what["key"].is_string() { &what["key"] } else { &what["call"]["key"] };
        (kind.as_str(), key.as_str().expect("everything has its key"))
    })
}

/// What a run waits for it has asked for: it is under way, or put off or kept until the run goes on.
fn awaited_was_asked(run: &RunView<'_>) -> Result<(), String> {
    let Some(state) = run.state().filter(|_| run.outcome().is_none()) else { return Ok(()) };
    let listed = |of: &Value, part: &str| -> Vec<String> {
        let list = of.as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|one| one.pointer(part)?.as_str().map(str::to_owned)).collect()
    };
    let calls = &state["calls"];
    let mut asked: BTreeSet<String> = under_way(&state).map(|(_, key)| key.to_owned()).collect();
    asked.extend(listed(&calls["put_off"], "/key"));
    asked.extend(["/answer/key", "/fired/key"].iter().flat_map(|part| listed(&calls["held"], part)));
    let waits = |part: &str, waits: fn(&Value) -> bool| -> Vec<String> {
        let all = state["awaited"][part].as_object().expect("a run knows what it waits for");
        all.iter().filter(|(_, one)| waits(one)).map(|(key, _)| key.clone()).collect()
    };
    let answers = waits("answers", |answer| answer["wanted"] == true);
    let times = waits("times", |time| time.get("until").is_some());
    match answers.into_iter().chain(times).find(|key| !asked.contains(key)) {
        None => Ok(()),
        Some(key) => Err(format!("{key} is waited for, and nobody was asked for it; asked for is {asked:?}")),
    }
}

/// Between the turn that notes a pause and the one that notes its end no attempt of a task begins.
fn paused_starts_nothing(run: &RunView<'_>) -> Result<(), String> {
    let mut held = false;
    for note in run.events().flat_map(notes) {
        match note["kind"].as_str().unwrap_or_default() {
            "Paused" | "HumanTookOver" => held = true,
            "Resumed" | "HumanReleased" | "CancelRequested" => held = false,
            "AttemptStarted" | "DecisionRequested" | "SpeakerSelected" if held => {
                return Err(format!("paused, and {} begins", note["data"]));
            }
            _ => {}
        }
    }
    Ok(())
}

/// People are asked before the plan starts, before tasks start, and before results count.
const PEOPLE: &str = "hitl: { approval: { timeout: 10m } }
planning: { approval: { required: true } }
";

/// The book's analysis: as it is, with people at the plan, and with one task that a person does.
pub(crate) fn shannon() -> Cast {
    let preset = "shannon-supervisor";
    let by_hand = changed(preset, "goal: Trends }", "goal: Trends, capability: human }");
    let inputs = vec![input(preset, ""), input(preset, PEOPLE), by_hand];
    Cast { preset, inputs, tasks: &["A", "B", "D", "E", "F"], agents: &["researcher", "analyst", "writer"] }
}

/// The same, where a person commands: every task is asked for.
pub(crate) fn commanded() -> Cast {
    Cast { inputs: vec![input("shannon-supervisor", "hitl: { mode: human_in_command }\n")], ..shannon() }
}

pub(crate) fn flow() -> Cast {
    let preset = "flow-supervisor";
    Cast { preset, inputs: vec![input(preset, "")], tasks: &["t1", "t2", "t3"], agents: &["worker"] }
}

pub(crate) fn pydantask() -> Cast {
    let preset = "pydantask-llm";
    Cast { preset, inputs: vec![input(preset, "")], tasks: &["1", "2", "3"], agents: &["researcher", "writer"] }
}

/// As in supyagent's own example, and with the planner in the background.
pub(crate) fn delegating() -> Cast {
    let preset = "supyagent-delegation";
    let aside = changed(preset, "task: Plan and build it }", "task: Plan and build it, background: true }");
    Cast { preset, inputs: vec![input(preset, ""), aside], tasks: &["1"], agents: &["assistant", "planner", "coder"] }
}

pub(crate) fn chatting() -> Cast {
    let preset = "autogen-groupchat";
    Cast { preset, inputs: vec![input(preset, "")], tasks: &["1"], agents: &["alice", "bob", "carol"] }
}

/// G21: the book's analysis, with people at the plan or without; recruits, pauses, takeovers, cancellation.
#[test]
fn shannon_supervisors_keep_their_promises() {
    live(&shannon(), SAMPLE);
}

/// G21: iterations of review and planning.
#[test]
fn flow_supervisors_keep_their_promises() {
    live(&flow(), SAMPLE);
}

/// G21: the decider makes the plan by its tools.
#[test]
fn pydantask_supervisors_keep_their_promises() {
    live(&pydantask(), SAMPLE);
}

/// G21: agents that call agents.
#[test]
fn delegating_agents_keep_their_promises() {
    live(&delegating(), SAMPLE);
}

/// G21: a group chat.
#[test]
fn group_chats_keep_their_promises() {
    live(&chatting(), SAMPLE);
}

/// G21: ten times as many lives of each.
#[test]
#[ignore = "minutes: cargo full"]
fn supervisors_of_every_family_keep_their_promises_at_full_scale() {
    for cast in [shannon(), commanded(), flow(), pydantask(), delegating(), chatting()] {
        live(&cast, LIVES);
    }
}

#[track_caller]
fn live(cast: &Cast, lives: u32) {
    tell(cast.preset, &kit(cast, lives).run());
}

/// Prints past the capture of the test runner, so that figures are seen when nothing is wrong.
fn tell(preset: &str, report: &Report) {
    use std::io::Write;
    // Lives that all end alike would doubt nothing.
    for end in ["Completed", "Failed", "Canceled"] {
        assert!(
            report.lives < u64::from(SAMPLE) || report.ends.contains_key(end),
            "no life of {preset} is {end}: {report}"
        );
    }
    assert!(report.lives < u64::from(SAMPLE) || report.rare.contains_key("attempt lost"), "{report}");
    // Figures that cannot be printed change nothing.
    let _ = writeln!(std::io::stderr(), "{preset}: {report}");
}
