//! Supervisors by the shipped binary: the demonstration, presets as a new user runs them, approvals over kill -9.
//!
//! What specs and runs mean is tested beside them; here are only the real processes and the real directory.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) use bosun_tests::harness::binary::said;
use bosun_tests::harness::process::bosun;
use bosun_worker::supervisor::spec::Preset;
use serde_json::{Value, json};

use crate::tidy::workspace;

pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) fn command(data: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(bosun().unwrap());
    command.args(words).arg("--data").arg(data).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(data: &Path, words: &[&str]) -> Output {
    command(data, words).output().unwrap()
}

/// The chapter-15 demonstration: killed while it waits for an approval, it publishes once, calls nobody twice, and the same
/// history at another level of trust is asked less.
#[test]
fn the_demonstration_shows_what_it_claims() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(bosun().unwrap()).args(["demo", "--dir"]).arg(dir.path()).output().unwrap();
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for line in
        ["killed with -9", "published exactly once", "each made once", "1 of 1 approvals would not have been asked"]
    {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("published.txt")).unwrap(), "published\n");
}

/// The plan of a plan file's run is shown as that of any supervisor.
#[test]
fn the_plan_of_a_plan_file_is_shown() {
    let data = tempfile::tempdir().unwrap();
    let plan = workspace().join("fixtures/plans/small.yaml");
    let ran = run(data.path(), &["run", plan.to_str().unwrap(), "-w", "small"]);
    assert!(ran.status.success(), "{}", said(&ran));
    let shown = said(&run(data.path(), &["plan", "show", "small"]));
    let line = |task: &str| shown.lines().find(|line| line.starts_with(task)).unwrap_or_else(|| panic!("{shown}"));
    assert!(line("1 ").contains("completed") && line("1 ").contains("Write the numbers from one to five"), "{shown}");
    assert!(line("2 ").contains("Add the numbers up"), "{shown}");
}

/// Every preset's own spec is run by the command of the README, with no key and no network, and its run fits its code. All
/// at once, each in a directory of its own: scripted agents take their time.
#[test]
fn every_preset_runs_from_the_command_line() {
    let folder = workspace().join("fixtures/supervisors/presets");
    let dir = tempfile::tempdir().unwrap();
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let data = dir.path().join(path.file_stem().unwrap());
        let words = ["run", path.to_str().unwrap(), "-o", "json", "--timeout", "90s"];
        runs.push((path.clone(), data.clone(), command(&data, &words).spawn().unwrap()));
    }
    assert_eq!(runs.len(), Preset::ALL.len(), "one for each preset");
    for (path, data, child) in runs {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {}", path.display(), said(&output));
        let checked = run(&data, &["replay", "check", "--query", "WorkflowType = 'supervisor'", "-o", "json"]);
        let told: Value =
            serde_json::from_slice(&checked.stdout).unwrap_or_else(|why| panic!("{why}: {}", said(&checked)));
        assert_eq!((told["do_not_fit"].as_u64(), told["unreadable"].as_u64()), (Some(0), Some(0)), "{told}");
        assert!(told["fit"].as_u64() >= Some(1), "{told}");
    }
}

pub(crate) const GATED: &str = "
kind: supervisor
preset: shannon-supervisor
objective: two steps and a publication
planner: { script: [{ on: plan, say: { subtasks: [
  { id: look, description: look around }, { id: tell, description: tell it, action: publish it, deps: [look] }] } }] }
agents: [{ name: worker }]
script: [{ on: execute_worker, say: done }, { on: synthesize, say: done }]
";

/// The runner of a spec, which is ended with the test whatever happens.
pub(crate) struct Runner(pub(crate) Child);

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pending(data: &Path) -> Option<String> {
    let told: Value = serde_json::from_slice(&run(data, &["approval", "list", "-o", "json"]).stdout).ok()?;
    Some(told["waiting"][0]["request"]["id"].as_str()?.to_owned())
}

pub(crate) fn until_pending(data: &Path) -> String {
    let begin = Instant::now();
    loop {
        if let Some(id) = pending(data) {
            return id;
        }
        assert!(begin.elapsed() < PATIENCE, "nobody was asked");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How an agent has done is told over all runs in which it has worked; who has not worked is none.
#[test]
fn an_agent_is_described_by_what_it_has_done_in_all_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("two.yaml"));
    let task = |id: &str, agent: &str| json!({ "id": id, "goal": id, "agent": agent, "required": false });
    let spec = |done: &str| {
        json!({
            "kind": "supervisor", "preset": "shannon-dag", "name": "two", "objective": "two tasks",
            "agents": [{ "name": "ann" }, { "name": "bob" }],
            "script": [{ "on": "plan", "say": { "tasks": [task("a", "ann"), task("b", "ann"), task("c", "bob")] } },
                { "on": "execute_worker", "say": done }, { "on": "synthesize", "say": "done" }],
        })
    };
    for id in ["first", "second"] {
        std::fs::write(&file, spec(id).to_string()).unwrap();
        let ran = run(&data, &["run", file.to_str().unwrap(), "-w", id, "--timeout", "120s"]);
        assert!(ran.status.success(), "{}", said(&ran));
    }
    let told = |name: &str| -> Value {
        let output = run(&data, &["agent", "describe", name, "-o", "json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", said(&output)))
    };
    let counts = |told: &Value| ["runs", "attempts", "done", "failed", "busy"].map(|key| told[key].as_u64().unwrap());
    assert_eq!((counts(&told("ann")), counts(&told("bob"))), ([2, 4, 4, 0, 0], [2, 2, 2, 0, 0]));
    let text = said(&run(&data, &["agent", "describe", "ann"]));
    assert!(text.contains("4 (4 done, 0 failed, 0 under way)") && text.contains("100 % of what has ended"), "{text}");
    let nobody = run(&data, &["agent", "describe", "eve"]);
    assert_eq!(nobody.status.code(), Some(30), "{}", said(&nobody));
    assert!(said(&nobody).contains("there are: ann, bob"), "{}", said(&nobody));
}

/// SHH-07, SHH-11, SHN-60, SHN-66: people answer a run of another process: what is not pending is refused by name, a pause
/// and a takeover show, a rejection skips the task; bad specs are refused with the place of the fault.
#[test]
fn people_reach_a_run_from_another_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("gated.yaml"));
    std::fs::write(&spec, GATED).unwrap();
    let words = ["run", spec.to_str().unwrap(), "-w", "gated"];
    let mut runner = Runner(command(&data, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let id = until_pending(&data);
    let stranger = run(&data, &["approval", "approve", &format!("{id}0")]);
    assert!(!stranger.status.success() && said(&stranger).contains("waits for a person"), "{}", said(&stranger));
    assert!(said(&run(&data, &["pause", "gated"])).contains("PAUSED"));
    assert!(said(&run(&data, &["resume", "gated"])).contains("RUNNING"));
    let taken = said(&run(&data, &["takeover", "gated", "--reason", "let me"]));
    assert!(taken.contains("handed_to_human") && taken.contains("Answer for task tell"), "{taken}");
    assert!(said(&run(&data, &["release", "gated"])).contains("RUNNING"));
    let plan = said(&run(&data, &["plan", "show", "gated"]));
    assert!(plan.contains("awaiting_approval") && plan.contains("waits for an approval"), "{plan}");
    runner.0.kill().unwrap();
    runner.0.wait().unwrap();
    let rejected = run(&data, &["approval", "reject", &id, "--comment", "not now"]);
    assert!(rejected.status.success(), "{}", said(&rejected));
    let ended = run(&data, &words);
    let text = said(&ended);
    assert!(ended.status.success() && text.contains("skipped: tell") && text.contains("not now"), "{text}");
    std::fs::write(&spec, GATED.replace("planner:", "planer:")).unwrap();
    let bad = run(&data, &words);
    assert!(!bad.status.success() && said(&bad).contains("planer"), "{}", said(&bad));
    let nowhere = dir.path().join("nowhere");
    assert!(!run(&nowhere, &words).status.success() && !nowhere.exists(), "no directory is made for a bad spec");
}

/// SHN-68: what a person does by hand in a run that they have taken over is done; before that it is refused, with the command
/// that takes it over.
#[test]
fn a_task_is_completed_by_hand_from_another_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("gated.yaml"));
    std::fs::write(&spec, GATED).unwrap();
    let words = ["run", spec.to_str().unwrap(), "-w", "gated"];
    let mut runner = Runner(command(&data, &words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    until_pending(&data);
    let by_hand = ["plan", "complete", "gated", "--task", "tell", "--result", "told by hand"];
    let early = run(&data, &by_hand);
    assert!(!early.status.success() && said(&early).contains("takeover gated"), "{}", said(&early));
    assert!(said(&run(&data, &["takeover", "gated"])).contains("handed_to_human"));
    // The hint goes by how the run stands, whatever words its refusal has.
    let other = said(&run(&data, &["plan", "complete", "gated", "--task", "takeover-notes"]));
    assert!(other.contains("takeover-notes") && other.contains("plan show gated`"), "{other}");
    let done = run(&data, &by_hand);
    assert!(done.status.success() && said(&done).contains("completed by hand"), "{}", said(&done));
    assert!(said(&run(&data, &["release", "gated"])).contains("RUNNING"));
    assert!(runner.0.wait().unwrap().success());
    let history = said(&run(&data, &["show", "gated", "-o", "jsonl"]));
    assert!(history.contains("told by hand"), "whoever sums up is told: {history}");
}

/// FSS-36: a run whose spec says so returns while a task waits for its human reviewer, with a reason and a code of its own;
/// the same command goes on with it after the answer, and asks no agent again. `--no-wait` does so for any supervisor.
#[test]
fn a_run_that_waits_for_its_reviewer_may_return() {
    const REVIEWED: &str = "
kind: supervisor
preset: flow-supervisor
objective: write a note
review: { scope: none, human: true, park_exit: true }
agents: [{ name: writer }]
script:
  - { on: plan, say: { tasks: [{ id: t1, goal: write }] } }
  - { on: execute_worker, say: a note }
  - { on: synthesize, say: The note. }
";
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("reviewed.yaml"));
    std::fs::write(&spec, REVIEWED).unwrap();
    let words = ["run", spec.to_str().unwrap(), "-w", "reviewed", "--timeout", "60s"];
    let parked = run(&data, &words);
    assert_eq!(parked.status.code(), Some(15), "{}", said(&parked));
    let id = pending(&data).expect("somebody is asked");
    assert!(said(&parked).contains(&format!("reviewed is parked for review: it waits for approval {id}")));
    let again = run(&data, &words);
    assert_eq!(again.status.code(), Some(15), "nothing has changed: {}", said(&again));
    assert!(run(&data, &["approval", "approve", &id]).status.success());
    let ended = run(&data, &words);
    assert!(ended.status.success() && said(&ended).contains("The note."), "{}", said(&ended));
    let history = said(&run(&data, &["show", "reviewed", "-o", "jsonl"]));
    let asked = |line: &&str| line.contains("ActivityTaskScheduled") && line.contains("\"key\":\"execute/t1/1\"");
    assert_eq!(history.lines().filter(asked).count(), 1, "the writer was asked once: {history}");
    std::fs::write(&spec, REVIEWED.replace(", park_exit: true", "")).unwrap();
    let words = ["run", spec.to_str().unwrap(), "-w", "other", "--no-wait", "--timeout", "60s"];
    assert_eq!(run(&data, &words).status.code(), Some(15));
}

/// The README's second line: the same file, scripted, and played by a model behind two environment variables; what the model
/// said is in the history, and an unknown provider pauses the run with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_spec_is_played_by_a_model() {
    use bosun_worker::capability::model::Wire;
    use bosun_worker::capability::model::mock::{MockProvider, gives, says};
    let plan = serde_json::json!({ "tasks": [{ "id": "t1", "goal": "look" }] });
    let verdict = serde_json::json!({ "assessments": [{ "taskId": "t1", "verdict": "accepted", "feedback": "", "score": 1 }],
        "needsReplanning": false, "overallAssessment": "good" });
    let mock = MockProvider::start(move |request| match request.schema.as_ref().map(|schema| schema.name.as_str()) {
        Some("plan") => gives(&plan),
        Some("review") => gives(&verdict),
        _ => says("the model was here"),
    });
    let mock = mock.await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let spec = workspace().join("fixtures/supervisors/presets/flow-supervisor.yaml");
    let words = ["run", spec.to_str().unwrap(), "-w", "played", "--timeout", "60s"];
    let address = mock.base_url(Wire::OpenAi);
    let play = |data: &str, model: &str, words: &[&str]| {
        let mut command = command(&dir.path().join(data), words);
        command.env("OPENAI_BASE_URL", &address).env("BOSUN_MODEL", model).env_remove("BOSUN_ALLOW_MODEL_REQUESTS");
        command.output().unwrap()
    };
    let played = play("data", "tiny", &words);
    assert!(played.status.success() && said(&played).contains("the model was here"), "{}", said(&played));
    assert!(said(&played).contains("played by the model tiny"), "{}", said(&played));
    let asked = mock.count();
    assert!(asked >= 4 && mock.asked().iter().all(|asked| asked.request.model == "tiny"), "{asked}");
    let again = play("data", "tiny", &words);
    assert!(again.status.success() && mock.count() == asked, "it has completed: nobody is asked again");
    let checked = run(&dir.path().join("data"), &["replay", "check", "--query", "WorkflowType = 'agent'"]);
    assert!(checked.status.success() && mock.count() == asked, "{}", said(&checked));
    let cost = said(&run(&dir.path().join("data"), &["cost", "played"]));
    assert!(cost.contains(&format!("in all {asked} calls")) && cost.contains("of unknown price"), "{cost}");
    let by_run = said(&run(&dir.path().join("data"), &["cost", "played", "--group-by", "run"]));
    let calls: usize = by_run
        .lines()
        .filter(|line| line.contains(" calls ") && !line.starts_with("in all") && !line.starts_with("no model"))
        .map(|line| line.split_whitespace().nth(1).and_then(|calls| calls.parse::<usize>().ok()).unwrap_or(0))
        .sum();
    assert!(calls == asked && by_run.contains(&format!("in all {asked} calls")), "{by_run}");
    // An agent has one line, however many runs it had; what the supervisor asked for itself is its own.
    let cost: Value = serde_json::from_slice(
        &run(&dir.path().join("data"), &["cost", "played", "--group-by", "agent", "-o", "json"]).stdout,
    )
    .unwrap();
    let of = |one: &Value| one["calls"].as_u64().unwrap_or_default();
    let by_agent = cost["by_agent"].as_object().unwrap();
    assert_eq!(by_agent.values().map(of).sum::<u64>(), asked as u64, "{cost}");
    assert!(by_agent.len() <= cost["by_run"].as_array().unwrap().len(), "{cost}");
    let by_agent = said(&run(&dir.path().join("data"), &["cost", "played", "--group-by", "agent"]));
    assert!(by_agent.contains(&format!("in all {asked} calls")), "{by_agent}");
    // What the run recorded plays the same spec again, where no request may leave.
    let tape = dir.path().join("tape.json");
    let made =
        run(&dir.path().join("data"), &["llm", "cassette", "from-run", "played", "--out", tape.to_str().unwrap()]);
    assert!(made.status.success() && said(&made).contains(&format!("({asked} answers)")), "{}", said(&made));
    let mut replayed = command(&dir.path().join("replayed"), &words);
    replayed.env("OPENAI_BASE_URL", &address).env("BOSUN_MODEL", "tiny").env("BOSUN_ALLOW_MODEL_REQUESTS", "0");
    replayed.env("BOSUN_CASSETTE_MODE", "replay").env("BOSUN_CASSETTE_DIR", &tape);
    let replayed = replayed.output().unwrap();
    assert!(replayed.status.success() && said(&replayed).contains("the model was here"), "{}", said(&replayed));
    assert_eq!(mock.count(), asked, "nobody is asked again");
    let swarm = workspace().join("fixtures/supervisors/presets/swarm-handoff.yaml");
    let scripted =
        run(&dir.path().join("data"), &["run", swarm.to_str().unwrap(), "-w", "scripted", "--timeout", "60s"]);
    assert!(scripted.status.success(), "{}", said(&scripted));
    // Who handed over to whom is told as it happens, and afterwards.
    let handed = "triage -> cancellation";
    assert!(said(&scripted).contains(&format!("handed over  {handed}")), "{}", said(&scripted));
    let described = said(&run(&dir.path().join("data"), &["describe", "scripted"]));
    assert!(described.contains(&format!("handed over    {handed}")), "{described}");
    let none = run(&dir.path().join("data"), &["llm", "cassette", "from-run", "scripted"]);
    assert!(said(&none).contains("no model has answered in scripted"), "{}", said(&none));
    // Agents that call tools of the run are asked by the run itself, and cost as much.
    let talked = play("data", "tiny", &["run", swarm.to_str().unwrap(), "-w", "talked", "--timeout", "60s"]);
    assert!(talked.status.success(), "{}", said(&talked));
    let steps = mock.count() - asked;
    let cost = said(&run(&dir.path().join("data"), &["cost", "talked"]));
    assert!(steps > 0 && cost.contains(&format!("in all {steps} calls")), "{cost}");
    let stopped = play("other", "anthropic/claude", &["run", swarm.to_str().unwrap(), "--no-wait", "--timeout", "60s"]);
    assert_eq!(stopped.status.code(), Some(15), "{}", said(&stopped));
    assert!(said(&stopped).contains("no model provider `anthropic`"), "{}", said(&stopped));
}

/// G41: an agent whose budget is used up halts, and its supervisor is paused with the reason; a person gives it more, and the
/// same command goes on to the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_that_is_used_up_is_topped_up() {
    use bosun_worker::capability::model::Wire;
    use bosun_worker::capability::model::mock::{MockProvider, says};
    let mock = MockProvider::start(|_| says("written")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("poor.yaml"));
    let text = "
kind: supervisor
preset: shannon-simple
objective: write a note
agents: [{ name: writer, via: { model: { name: tiny, limits: { max_tokens: 10 } } } }]
";
    std::fs::write(&spec, text).unwrap();
    let address = mock.base_url(Wire::OpenAi);
    let play = || {
        let mut command =
            command(&data, &["run", spec.to_str().unwrap(), "-w", "poor", "--no-wait", "--timeout", "60s"]);
        command.env("OPENAI_BASE_URL", &address).env_remove("BOSUN_ALLOW_MODEL_REQUESTS").output().unwrap()
    };
    let halted = play();
    assert_eq!(halted.status.code(), Some(14), "{}", said(&halted));
    assert!(said(&halted).contains("0 of 10 tokens are spent") && mock.count() == 0, "{}", said(&halted));
    let resume = format!("gives it more, then `bosun --data {} resume poor`", data.display());
    assert!(said(&halted).contains(&resume), "{}", said(&halted));
    let listed = run(&data, &["list", "--query", "WorkflowType = 'agent'", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let agent = listed["workflows"][0]["workflow_id"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
    assert_tokens(&data, &agent, ["0", "0", "10", "10"]);
    assert_eq!(run(&data, &["budget", "top-up", &agent]).status.code(), Some(2), "more of what?");
    let none = run(&data, &["budget", "top-up", "poor", "--tokens", "1"]);
    assert!(none.status.code() == Some(2) && said(&none).contains("no budget of tokens"), "{}", said(&none));
    assert!(run(&data, &["budget", "top-up", &agent, "--tokens", "100000"]).status.success());
    assert!(run(&data, &["resume", "poor"]).status.success());
    let ended = play();
    assert!(ended.status.success() && said(&ended).contains("written") && mock.count() == 1, "{}", said(&ended));
}

/// G41: a run that asks waits for more, and goes on with it, also when nobody worked meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_budget_is_spent_is_topped_up() {
    use bosun_worker::capability::model::Wire;
    use bosun_worker::capability::model::mock::{MockProvider, says};
    let mock = MockProvider::start(|_| says("written")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("asks.yaml"));
    let text = "
kind: supervisor
preset: shannon-simple
objective: write a note
budget: { tokens: 10, on_exhausted: ask }
agents: [{ name: writer, via: { model: { name: tiny } } }]
";
    std::fs::write(&spec, text).unwrap();
    let address = mock.base_url(Wire::OpenAi);
    let play = || {
        let mut command =
            command(&data, &["run", spec.to_str().unwrap(), "-w", "asks", "--no-wait", "--timeout", "60s"]);
        command.env("OPENAI_BASE_URL", &address).env_remove("BOSUN_ALLOW_MODEL_REQUESTS").output().unwrap()
    };
    let parked = play();
    assert_eq!(parked.status.code(), Some(14), "{}", said(&parked));
    let command = format!("`bosun --data {} budget top-up asks --tokens 10`", data.display());
    assert!(said(&parked).contains("0 of 10 tokens are spent") && mock.count() == 0, "{}", said(&parked));
    assert!(said(&parked).contains(&command), "{}", said(&parked));
    assert_tokens(&data, "asks", ["0", "10", "10", "10"]);
    let shown: Value = serde_json::from_slice(&run(&data, &["budget", "show", "asks", "-o", "json"]).stdout).unwrap();
    assert_eq!(shown["budget"]["allowed"]["tokens"], 10, "{shown}");
    let wall = run(&data, &["budget", "top-up", "asks", "--wall", "5s"]);
    assert!(wall.status.code() == Some(2) && said(&wall).contains("is for agents"), "{}", said(&wall));
    let cost = run(&data, &["budget", "top-up", "asks", "--cost", "1"]);
    assert!(cost.status.code() == Some(2) && said(&cost).contains("no budget of cost"), "{}", said(&cost));
    let more = run(&data, &["budget", "top-up", "asks", "--tokens", "100000"]);
    assert!(more.status.success() && said(&more).contains("asks has more, and goes on"), "{}", said(&more));
    let ended = play();
    assert!(ended.status.success() && said(&ended).contains("written") && mock.count() == 1, "{}", said(&ended));
}

/// A model in no price table costs an unknown sum: a run whose money is limited asks before its next call, names the command that
/// lets such calls go on, and tells them as unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_unknown_price_are_asked_about_and_allowed() {
    use bosun_worker::capability::model::Wire;
    use bosun_worker::capability::model::mock::{MockProvider, says};
    let mock = MockProvider::start(|_| says("written")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("asks.yaml"));
    let text = "
kind: supervisor
preset: flow-coordinator
objective: write two notes
budget: { cost: 5, on_exhausted: ask }
dispatch: { max_concurrency: 1 }
planner: { script: [{ on: plan, say: { tasks: [{ id: one, goal: One }, { id: two, goal: Two }] } }] }
agents: [{ name: writer, via: { model: { name: tiny } } }]
";
    std::fs::write(&spec, text).unwrap();
    let address = mock.base_url(Wire::OpenAi);
    let play = || {
        let mut command =
            command(&data, &["run", spec.to_str().unwrap(), "-w", "dear", "--no-wait", "--timeout", "60s"]);
        command.env("OPENAI_BASE_URL", &address).env_remove("BOSUN_ALLOW_MODEL_REQUESTS").output().unwrap()
    };
    let parked = play();
    assert_eq!((parked.status.code(), mock.count()), (Some(14), 1), "{}", said(&parked));
    let command = format!("`bosun --data {} budget top-up dear --allow-unpriced`", data.display());
    assert!(said(&parked).contains(&command), "{}", said(&parked));
    let shown = said(&run(&data, &["budget", "show", "dear"]));
    assert!(shown.contains("calls of unknown price: 1") && shown.contains("used up: unpriced"), "{shown}");
    let more = run(&data, &["budget", "top-up", "dear", "--allow-unpriced"]);
    assert!(more.status.success() && said(&more).contains("dear has more, and goes on"), "{}", said(&more));
    let ended = play();
    assert!(ended.status.success() && mock.count() == 2, "{}", said(&ended));
    assert!(said(&ended).contains("2 calls of unknown price"), "{}", said(&ended));
    let cost = said(&run(&data, &["cost", "dear"]));
    assert!(cost.contains("2 calls of unknown price"), "{cost}");
}

/// The line of tokens in the table of a budget: what is spent, reserved, allowed and left.
#[track_caller]
fn assert_tokens(data: &Path, id: &str, wanted: [&str; 4]) {
    let shown = said(&run(data, &["budget", "show", id]));
    let line = shown.lines().find(|line| line.starts_with("tokens")).unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(line.split_whitespace().skip(1).collect::<Vec<_>>(), wanted, "{shown}");
    assert!(!shown.contains('{'), "for people: {shown}");
}

/// G36: a tool call of an agent waits for a person like any approval of its supervisor: it is listed under it, shown with its
/// arguments, decided by its id while nobody works, and made once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_call_of_an_agent_is_approved() {
    use bosun_worker::capability::model::Wire;
    use bosun_worker::capability::model::mock::{MockProvider, calls, says};
    let mock = MockProvider::start(|request| match request.messages.len() {
        0..=2 => calls("note", serde_json::json!({ "text": "hello" })),
        _ => says("noted"),
    });
    let mock = mock.await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (data, spec, made) = (dir.path().join("data"), dir.path().join("asks.yaml"), dir.path().join("hello"));
    let text = format!(
        "
kind: supervisor
preset: shannon-simple
objective: write a note
agents: [{{ name: writer, via: {{ model: {{ name: tiny, tools: [ {{ name: note, description: make a folder, approval: true,
  parameters: {{ type: object, properties: {{ text: {{ type: string }} }}, required: [text] }},
  does: {{ process: {{ argv: [mkdir, '{{text}}'], cwd: {} }} }} }} ] }} }} }}]
",
        dir.path().display()
    );
    std::fs::write(&spec, text).unwrap();
    let address = mock.base_url(Wire::OpenAi);
    let words = ["run", spec.to_str().unwrap(), "-w", "asks", "--timeout", "60s"];
    let play = || {
        let mut command = command(&data, &words);
        command.env("OPENAI_BASE_URL", &address).env_remove("BOSUN_ALLOW_MODEL_REQUESTS");
        command
    };
    let mut runner = Runner(play().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let id = until_pending(&data);
    let of_run: Value =
        serde_json::from_slice(&run(&data, &["approval", "list", "asks", "-o", "json"]).stdout).unwrap();
    assert_eq!(of_run["waiting"][0]["request"]["id"], id, "{of_run}");
    let shown = said(&run(&data, &["approval", "show", &id]));
    assert!(shown.contains("\"hello\"") && shown.contains("note"), "{shown}");
    let changed = run(&data, &["approval", "approve", &id, "--modified-action", "other"]);
    assert_eq!(changed.status.code(), Some(2), "{}", said(&changed));
    assert!(!made.exists(), "nobody has agreed yet");
    runner.0.kill().unwrap();
    runner.0.wait().unwrap();
    let approved = run(&data, &["approval", "approve", &id]);
    assert!(approved.status.success(), "{}", said(&approved));
    let ended = play().output().unwrap();
    assert!(ended.status.success() && said(&ended).contains("noted"), "{}", said(&ended));
    assert!(made.is_dir());
    let told = mock.asked().last().map(|asked| format!("{:?}", asked.request.messages)).unwrap_or_default();
    assert!(!told.contains("File exists"), "it is made once: {told}");
    assert!(said(&run(&data, &["approval", "list"])).contains("nobody is asked"));
}

/// Cassettes of agents with tools and of runs with commands play: what a model is shown of a command is what it did, not how
/// long it took, and it is told of a tool that failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cassette_of_an_agent_with_tools_plays() {
    use bosun_worker::capability::model::Wire;
    use bosun_worker::capability::model::mock::{MockProvider, calls, says};
    let mock = MockProvider::start(|request| match request.messages.len() {
        0..=2 => calls("slow", serde_json::json!({})),
        _ => says("it said so"),
    });
    let mock = mock.await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let spec = dir.path().join("tools.yaml");
    let text = "
kind: supervisor
preset: flow-supervisor
objective: count
review: { scope: none }
agents:
  - name: counter
    via: { model: { name: tiny, tools: [{ name: slow, description: counts, does: { process: {
      argv: [sh, -c, 'sleep 0.05; echo counted; exit 3'] } } }] } }
script:
  - { on: plan, say: { tasks: [{ id: t1, goal: count }] } }
  - { on: synthesize, say: done }
";
    std::fs::write(&spec, text).unwrap();
    let words = ["run", spec.to_str().unwrap(), "-w", "tools", "--timeout", "60s"];
    let address = mock.base_url(Wire::OpenAi);
    let mut play = command(&dir.path().join("data"), &words);
    let played = play.env("OPENAI_BASE_URL", &address).env_remove("BOSUN_ALLOW_MODEL_REQUESTS").output().unwrap();
    assert!(played.status.success(), "{}", said(&played));
    let asked = mock.count();
    let told = mock.asked().last().unwrap().request.messages.last().cloned();
    let told = format!("{told:?}");
    assert!(asked == 2 && told.contains("is_error: true") && told.contains("exit_code"), "{asked}: {told}");
    assert!(!told.contains("duration"), "{told}");
    let tape = dir.path().join("tape.json");
    let made =
        run(&dir.path().join("data"), &["llm", "cassette", "from-run", "tools", "--out", tape.to_str().unwrap()]);
    assert!(made.status.success(), "{}", said(&made));
    for again in ["one", "two"] {
        let mut replayed = command(&dir.path().join(again), &words);
        replayed.env("OPENAI_BASE_URL", &address).env("BOSUN_ALLOW_MODEL_REQUESTS", "0");
        replayed.env("BOSUN_CASSETTE_MODE", "replay").env("BOSUN_CASSETTE_DIR", &tape);
        let replayed = replayed.output().unwrap();
        assert!(replayed.status.success(), "{}", said(&replayed));
    }
    assert_eq!(mock.count(), asked, "nobody is asked again");
}
