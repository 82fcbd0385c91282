//! What the shipped binary tells a user to do next is what helps: every command that it prints is run here as it stands.
//!
//! What the commands themselves do is tested beside them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::said;
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};

const WAITS: &str = "
kind: supervisor
preset: shannon-supervisor
objective: a publication
planner: { script: [{ on: plan, say: { subtasks: [{ id: tell, description: tell it, action: publish it }] } }] }
agents: [{ name: worker }]
script: [{ on: execute_worker, say: done }, { on: synthesize, say: done }]
";

/// A folder of a user with a spec in it, where `bosun` is found by its name.
struct UserFolder {
    dir: tempfile::TempDir,
    path: String,
}

impl UserFolder {
    fn with(spec: &str) -> UserFolder {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(bosun().unwrap(), bin.join("bosun")).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let desk = UserFolder { dir, path };
        desk.write(spec);
        desk
    }
    fn write(&self, spec: &str) {
        std::fs::write(self.file("spec.yaml"), spec).unwrap();
    }
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    /// Runs a line as a shell does.
    fn sh(&self, line: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(self.dir.path()).env("PATH", &self.path).output().unwrap()
    }
    #[track_caller]
    fn done(&self, line: &str) -> String {
        let output = self.sh(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        said(&output)
    }
}

/// The command between back-ticks, or behind `next:`, that has this word.
#[track_caller]
fn printed<'t>(text: &'t str, word: &str) -> &'t str {
    let ticked = text.split('`').skip(1).step_by(2);
    let next = text.lines().filter_map(|line| line.strip_prefix("next: "));
    let mut commands = ticked.chain(next).filter(|command| command.starts_with("bosun ") && command.contains(word));
    commands.next().unwrap_or_else(|| panic!("no command with {word:?} in:\n{text}"))
}

fn is_open(desk: &UserFolder, data: &str) -> usize {
    let counted = desk.done(&format!("bosun count --data {data} -q \"ExecutionStatus = 'Running'\""));
    counted.trim().parse().unwrap()
}

/// The data directory that a command named is named again, so that what is printed reaches the same run.
#[test]
fn a_command_that_is_printed_reaches_the_same_run() {
    let desk = UserFolder::with(WAITS);
    let left = desk.sh("bosun run spec.yaml --no-wait --data 'my runs'");
    assert_eq!(left.status.code(), Some(15), "{}", said(&left));
    let left = said(&left);
    let approve = printed(&left, "approval approve").to_owned();
    assert_eq!(left.matches(&approve).count(), 2, "beside what waits, and at the end: {left}");
    let shown = desk.done(&approve.replace("approval approve", "approval show"));
    assert!(shown.contains("publish it") && printed(&shown, "approval approve") == approve, "{shown}");
    let listed = desk.done("bosun list --data 'my runs'");
    assert!(
        listed.contains("no worker runs") && printed(&listed, "worker run").contains("--data 'my runs'"),
        "{listed}"
    );
    let described = desk.done(printed(&listed, "describe"));
    assert!(described.contains("answer with") && described.contains(&approve), "{described}");
    assert!(desk.done(printed(&described, "show").trim_end_matches(" --follow")).contains("WorkflowExecutionStarted"));
    desk.done(&approve);
    let ended = desk.done("bosun run spec.yaml --data 'my runs'");
    assert!(ended.contains("done"), "{ended}");
    assert!(!Path::new(&desk.file(".bosun")).exists(), "a hint went to another directory");
}

/// Whoever names the run in the place of what it asks is told what it asks.
#[test]
fn an_approval_is_found_by_the_id_of_its_run() {
    let desk = UserFolder::with(WAITS);
    assert_eq!(desk.sh("bosun run spec.yaml --no-wait --data d -w story").status.code(), Some(15));
    let refused = desk.sh("bosun approval approve story --data d");
    let text = said(&refused);
    assert_eq!(refused.status.code(), Some(30), "{text}");
    assert!(text.contains("story is a run, and no approval") && text.contains("answers what it asks"), "{text}");
    desk.done(printed(&text, "approval approve"));
}

/// A run is reached by the commands that tell of it, also where its id has spaces or is called as a shorthand is.
#[test]
fn a_run_with_an_odd_id_is_reached_by_what_is_printed() {
    for id in ["my run", "latest"] {
        let desk = UserFolder::with(WAITS);
        assert_eq!(desk.sh(&format!("bosun run spec.yaml --no-wait --data d -w '{id}'")).status.code(), Some(15));
        desk.done(&format!("bosun takeover -w '{id}' --data d"));
        // Whoever means another run by the word would come upon this one.
        desk.done("bosun run spec.yaml --data d -w other --no-wait || true");
        let listed = desk.done("bosun approval list --data d");
        let release = printed(&listed.replace("    bosun", "next: bosun"), " release ").to_owned();
        let described = desk.done(&format!("bosun describe -w '{id}' --data d"));
        assert!(described.contains(&release), "{described}");
        let released = desk.done(&release);
        assert!(released.contains(id), "{released}");
        let left = desk.done("bosun approval list --data d");
        assert!(!left.contains(" release "), "{left}");
        let again =
            desk.sh(&format!("bosun start supervisor -w '{id}' --data d -i '{{\"spec\":{{\"objective\":\"x\"}}}}'"));
        assert!(!again.status.success(), "{}", said(&again));
        assert!(desk.done(printed(&said(&again), " describe ")).contains("Running"));
    }
}

/// A spec that is edited while its run is open begins another run. That is said, with what to do of it.
#[test]
fn a_file_that_is_edited_says_which_run_of_it_is_open() {
    let desk = UserFolder::with(WAITS);
    assert_eq!(desk.sh("bosun run spec.yaml --no-wait --data d").status.code(), Some(15));
    desk.write(&WAITS.replace("a publication", "another publication"));
    let second = desk.sh("bosun run spec.yaml --no-wait --data d");
    let text = said(&second);
    assert_eq!(second.status.code(), Some(15), "{text}");
    assert!(text.contains("is open beside it"), "{text}");
    let followed = desk.sh(&format!("{} --no-wait", printed(&text, "--workflow-id")));
    assert_eq!(followed.status.code(), Some(15), "{}", said(&followed));
    assert!(said(&followed).contains("going on with plan-spec-"), "{}", said(&followed));
    assert_eq!(is_open(&desk, "d"), 2);
    desk.done(printed(&text, "cancel"));
    // Canceled when somebody works; the other one still waits.
    let again = desk.sh("bosun run spec.yaml --no-wait --data d");
    assert_eq!(again.status.code(), Some(15), "{}", said(&again));
    assert_eq!(is_open(&desk, "d"), 1);
    assert!(!said(&again).contains("is open beside it"), "{}", said(&again));
}

/// A file of another kind is told by its kind, and a key that is there twice by its place.
#[test]
fn a_file_that_is_none_says_what_it_is() {
    let desk = UserFolder::with("scene: nothing is done\nspec: { preset: shannon-dag }\n");
    let refused = said(&desk.sh("bosun run spec.yaml"));
    assert!(refused.contains("spec.yaml is a scene"), "{refused}");
    assert_eq!(printed(&refused, "test"), "bosun test spec.yaml");
    desk.write("preset: shannon-dag\nobjective: once\nobjective: twice\n");
    let refused = said(&desk.sh("bosun run spec.yaml"));
    assert!(refused.contains("the key `objective` is given twice, again at line 3, column 1"), "{refused}");
    assert!(!desk.file(".bosun").exists());
}

/// G41: who starts a run and does not wait for people is let go also when it is a run below that asks, and is told how to answer it.
#[test]
fn a_question_of_a_run_below_lets_go_who_does_not_wait() {
    let kid = "
kind: supervisor
preset: map-reduce
name: kid
objective: one chapter
review: { human: true }
agents: [{ name: reader }]
script:
  - { on: plan, say: { tasks: [{ id: one, goal: Chapter one }] } }
  - { on: execute_worker, say: read }
  - { on: synthesize, say: summed up }
";
    let parent = "
kind: supervisor
preset: map-reduce
name: parent
objective: the book
agents: [{ name: reader, via: { supervisor: { file: kid.yaml } } }]
script:
  - { on: plan, say: { tasks: [{ id: a, goal: Part one }] } }
  - { on: synthesize, say: all summed up }
";
    let desk = UserFolder::with(parent);
    std::fs::write(desk.file("kid.yaml"), kid).unwrap();
    let left = desk.sh("bosun run spec.yaml --no-wait --timeout 60s --data below");
    assert_eq!(left.status.code(), Some(15), "{}", said(&left));
    desk.done(printed(&said(&left), "approval approve"));
    let ended = desk.done("bosun run spec.yaml --timeout 60s --data below");
    assert!(ended.contains("all summed up"), "{ended}");
}

/// G21: a fork goes on by itself. What it has taken over from its source is answered with the command that it prints, and
/// the source waits as before; what the runs below a fork ask shows at the fork.
#[test]
fn a_fork_of_a_run_that_waits_for_a_person_is_answered_by_itself() {
    let desk = UserFolder::with(WAITS);
    let left = desk.sh("bosun run spec.yaml --no-wait --workflow-id source --data forks");
    assert_eq!(left.status.code(), Some(15), "{}", said(&left));
    desk.done("bosun fork source --id fork --data forks");
    let of_fork = desk.done("bosun approval list fork --data forks");
    let of_source = desk.done("bosun approval list source --data forks");
    let answer = printed(&of_fork, "approval approve");
    assert!(answer.contains("--run") && !of_source.contains("--run"), "{of_fork}\n{of_source}");
    desk.done(answer);
    assert_eq!(desk.done("bosun approval list source --data forks"), of_source, "the source waits as before");
    assert!(desk.done("bosun approval list fork --data forks").contains("nobody is asked"));
    desk.done(printed(&of_source, "approval approve"));
    for run in ["source", "fork"] {
        let ended = desk.done(&format!("bosun run spec.yaml --workflow-id {run} --timeout 60s --data forks"));
        assert!(ended.contains("completed"), "{run}: {ended}");
    }
}

/// G21: a fork is told of under its own name before anything has happened in it: whoever approves its plan does not approve
/// that of its source.
#[test]
fn the_plan_of_a_fork_is_approved_under_the_name_of_the_fork() {
    let desk =
        UserFolder::with(&WAITS.replace("a publication", "a publication\nplanning: { approval: { required: true } }"));
    let left = desk.sh("bosun run spec.yaml --no-wait --workflow-id source --data forks");
    assert_eq!(left.status.code(), Some(15), "{}", said(&left));
    let of_source = "bosun --data forks plan approve source --version 1";
    let waits = desk.done("bosun describe source --data forks");
    assert!(waits.contains(of_source), "{waits}");
    desk.done("bosun fork source --id fork --data forks");
    for shown in ["bosun describe fork --data forks", "bosun approval list fork --data forks"] {
        let shown = desk.done(shown);
        assert!(shown.contains("plan approve fork --version 1") && !shown.contains("plan approve source"), "{shown}");
    }
    desk.done(&of_source.replace("approve source", "approve fork"));
    let waits = desk.done("bosun describe source --data forks");
    assert!(waits.contains(of_source), "the source waits as before: {waits}");
    let approved = desk.done("bosun describe fork --data forks");
    assert!(!approved.contains("plan approve"), "{approved}");
}

/// A fork of a run that had a part of its parent's budget owns what it has: it is given more by itself.
#[test]
fn a_fork_of_a_run_below_is_given_more_by_itself() {
    let desk = UserFolder::with(WAITS);
    let input = serde_json::json!({
        "spec": {
            "kind": "supervisor", "preset": "shannon-supervisor", "objective": "a publication",
            "planner": { "script": [{ "on": "plan", "say": { "subtasks": [
                { "id": "tell", "description": "tell it", "action": "publish it" }] } }] },
            "agents": [{ "name": "worker" }],
            "script": [{ "on": "execute_worker", "say": "done" }, { "on": "synthesize", "say": "done" }],
            "budget": { "tokens": 10 },
        },
        "context": { "shared": true, "above": "nobody" },
    });
    std::fs::write(desk.file("input.json"), input.to_string()).unwrap();
    desk.done("bosun start supervisor --workflow-id source --input @input.json --data forks");
    let left = desk.sh("bosun run spec.yaml --no-wait --workflow-id other --data forks");
    assert_eq!(left.status.code(), Some(15), "it carries the other one on as well: {}", said(&left));
    desk.done("bosun fork source --id fork --data forks");
    for run in ["source", "fork"] {
        desk.done(&format!("bosun budget top-up {run} --tokens 5 --data forks"));
    }
    // Whoever works hears the signals.
    assert_eq!(desk.sh("bosun run spec.yaml --no-wait --workflow-id third --data forks").status.code(), Some(15));
    let tokens = |run: &str| {
        let shown = desk.done(&format!("bosun budget show {run} --data forks -o json"));
        let shown = serde_json::from_str::<serde_json::Value>(&shown).unwrap();
        ["left", "allowed", "limits"].map(|of| shown["budget"][of]["tokens"].as_u64().unwrap())
    };
    assert_eq!(
        (tokens("source"), tokens("fork")),
        ([10, 10, 10], [15, 15, 10]),
        "left, with what was added, by the spec"
    );
}

/// A list says how to go on, and from the first to the last page every run is there once.
#[test]
fn a_list_goes_on_where_it_ended() {
    let desk = UserFolder::with(WAITS);
    let input = r#"{"spec":{"objective":"wait","agents":[{"name":"ann"}]}}"#;
    for run in ["one", "two", "three", "four", "five"] {
        let left = desk.sh(&format!("bosun start supervisor --workflow-id {run} --data 'my runs' --input '{input}'"));
        assert!(left.status.success(), "{}", said(&left));
    }
    let mut page = desk.done("bosun list --limit 2 --data 'my runs'");
    let mut seen: Vec<String> = Vec::new();
    loop {
        let ids = page.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
        seen.extend(ids.filter(|word| ["one", "two", "three", "four", "five"].contains(&word.as_str())));
        if !page.contains("--cursor") {
            break;
        }
        page = desk.done(printed(&page, "--cursor"));
    }
    assert_eq!(seen, ["five", "four", "three", "two", "one"]);
    let refused = desk.sh("bosun list --query 'ORDER BY CloseTime' --cursor 5.x --data 'my runs'");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
}

/// A worker of a directory, ended with the test.
fn worker_of(desk: &UserFolder, data: &str, more: &[&str]) -> WorkerProcess {
    let words: Vec<&str> = ["worker", "run"].iter().chain(more).copied().collect();
    WorkerProcess::start(&Program::new(bosun().unwrap(), &words), &desk.file(data), READY_MAX).unwrap().0
}

/// Looks again until the text that a command prints has these words.
#[track_caller]
fn until_said(desk: &UserFolder, line: &str, wanted: &[&str]) -> String {
    let begin = Instant::now();
    loop {
        let text = said(&desk.sh(line));
        if wanted.iter().all(|words| text.contains(words)) {
            return text;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{line} never says {wanted:?}: {text}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// `"help": "…"` of an object that is printed as JSON, with this word in it.
#[track_caller]
fn help_in<'t>(json: &'t str, word: &str) -> &'t str {
    let commands = json.split("\"help\": \"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut found = commands.filter(|command| command.contains(word));
    found.next().unwrap_or_else(|| panic!("no help with {word:?} in:\n{json}"))
}

/// What keeps runs of a namespace from going on, with commands that reach them when they are pasted: for people, for programs,
/// and on `top`, which shows no other namespace.
#[test]
fn what_is_in_the_way_is_told_with_commands_that_reach_it() {
    let desk = UserFolder::with(WAITS);
    let _worker = worker_of(&desk, "d", &[]);
    let fails =
        r#"{"steps":[{"activity":{"type":"process","input":{"argv":["false"]},"retry":{"initial_interval":"1h"}}}]}"#;
    let waits = r#"{"steps":[{"wait_signal":{"name":"go"}}]}"#;
    desk.done(&format!("bosun --data d start kitchen-sink --namespace nsx -w retry -i '{fails}'"));
    desk.done(&format!("bosun --data d start kitchen-sink --namespace nsx -w held -i '{waits}'"));
    desk.done(&format!("bosun --data d start kitchen-sink -w here -i '{waits}'"));
    desk.done("bosun --data d pause held --namespace nsx --reason 'look first'");
    let described = until_said(&desk, "bosun --data d --namespace nsx describe retry", &["stuck"]);
    let retry = "bosun --data d --namespace nsx activity retry-now retry 1";
    assert!(described.contains(retry), "{described}");
    let paused = desk.done("bosun --data d --namespace nsx describe held");
    assert!(paused.contains("it is paused by ") && paused.contains(": look first"), "{paused}");
    let listed = desk.done("bosun --data d --namespace nsx list -o json");
    desk.done(help_in(&listed, "retry-now"));
    let top = desk.done("bosun --data d --namespace nsx top");
    assert!(top.contains("held") && top.contains("retry") && !top.contains("here"), "{top}");
    let own = desk.done("bosun --data d top");
    assert!(own.contains("\nhere ") && !own.contains("\nheld "), "{own}");
    let top = desk.done("bosun --data d --namespace nsx top -o json");
    desk.done(help_in(&top, "resume"));
    let on = desk.done("bosun --data d --namespace nsx describe held");
    assert!(!on.contains("it is paused"), "{on}");
}

/// Slots are free and the queue is served: what waits says that the rate of its queue keeps it.
#[test]
fn what_waits_for_its_rate_says_so() {
    let desk = UserFolder::with(WAITS);
    let _worker = worker_of(&desk, "d", &["--queue-limit", "default=0.2/s"]);
    let each = r#"[{"activity":{"type":"echo","input":1}}]"#;
    let input = format!(r#"{{"steps":[{{"parallel":[{}]}}]}}"#, [each; 9].join(","));
    desk.done(&format!("bosun --data d start kitchen-sink -w many -i '{input}'"));
    let told = until_said(&desk, "bosun --data d describe many", &["may start in its task queue default"]);
    assert!(told.contains("0.2 a second") && !told.contains("nobody has taken it"), "{told}");
    let queue = desk.done("bosun --data d queue describe default");
    assert!(
        told.contains("bosun --data d queue describe default") && queue.contains("0.2 a second"),
        "{told}: {queue}"
    );
}
