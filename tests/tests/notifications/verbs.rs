//! What an owner does with channels: looks at them, tests them, and is told what is wrong with them.

use std::process::Command;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use serde_json::{Value, json};

use super::receiver::Receiver;
use super::{SECRET, config};
use crate::supervisor_cli::said;

fn run(config: &std::path::Path, words: &[&str]) -> std::process::Output {
    let mut command = Command::new(bosun().unwrap());
    command.args(words).arg("--config").arg(config).env("OPS_SECRET", SECRET).current_dir(config.parent().unwrap());
    command.output().unwrap()
}

/// A webhook, something that takes Slack's JSON, and a command are told of a test; one that is not there says so.
#[test]
fn channels_are_listed_and_tested() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(0);
    let told = dir.path().join("told.json");
    let ops = format!("webhook = \"http://{}/secret-path\"\nsecret = \"env:OPS_SECRET\"", receiver.address);
    let text = format!(
        "[notify.channels.ops]\n{ops}\nquiet = \"22:00-07:00\"\nzone = \"Europe/Berlin\"\n\
         [notify.channels.chat]\nslack = \"http://{}/chat\"\nevents = [\"failed\"]\n\
         [notify.channels.desk]\ncommand = [\"sh\", \"-c\", \"cat >{}\"]\n",
        receiver.address,
        told.display()
    );
    let path = config(dir.path(), &text);
    let listed = run(&path, &["notify", "list"]);
    let text = said(&listed);
    assert!(listed.status.success(), "{text}");
    for part in ["ops", "chat", "desk", "22:00-07:00 Europe/Berlin", "worker_gone"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("secret-path") && !text.contains(SECRET), "{text}");
    let shown = said(&run(&path, &["config", "list"]));
    assert!(shown.contains("notify.channels.ops.webhook") && !shown.contains("secret-path"), "{shown}");

    let tested = run(&path, &["notify", "test"]);
    assert!(tested.status.success(), "{}", said(&tested));
    let all = receiver.all();
    assert_eq!(all.len(), 2, "{all:?}");
    let hook = all.iter().find(|one| one.body["kind"] == "test").unwrap();
    assert!(hook.signed && hook.body["id"] == *hook.id && hook.body["channel"] == "ops", "{hook:?}");
    let chat = all.iter().find(|one| one.body["blocks"].is_array()).unwrap();
    assert_eq!(chat.body["text"], "A test of Bosun");
    let given: Value = serde_json::from_slice(&std::fs::read(&told).unwrap()).unwrap();
    assert_eq!((&given["kind"], &given["channel"]), (&json!("test"), &json!("desk")));

    let text = "[notify.channels.desk]\ncommand = [\"sh\", \"-c\", \"echo out of paper >&2; exit 3\"]\n";
    let path = config(dir.path(), text);
    let failed = run(&path, &["notify", "test", "--channel", "desk"]);
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert!(said(&failed).contains("out of paper"), "{}", said(&failed));
    let nobody = run(&path, &["notify", "test", "--channel", "nobody"]);
    assert!(said(&nobody).contains("there is no channel nobody"), "{}", said(&nobody));
}

/// A channel whose secret is not there tells nobody: the worker says so at its start, and `doctor` whenever it is asked.
#[test]
fn a_channel_that_cannot_be_used_is_told_before_anybody_waits() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[notify.channels.ops]\nwebhook = \"http://127.0.0.1:9/\"\nsecret = \"env:NOBODY_SETS_THIS\"\n";
    let path = config(dir.path(), text);
    let data = dir.path().join("data");
    let mut program = Program::bosun_worker().unwrap();
    program.arguments.extend(["--config".into(), path.clone().into()]);
    let (worker, _) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    let began = std::time::Instant::now();
    while !worker.said().contains("NOBODY_SETS_THIS") {
        assert!(began.elapsed() < READY_MAX, "{}", worker.said());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(worker.said().contains("ops"), "{}", worker.said());
    let doctor = said(&run(&path, &["doctor", "--data", data.to_str().unwrap()]));
    assert!(doctor.contains("nobody is told by the channel ops") && doctor.contains("NOBODY_SETS_THIS"), "{doctor}");
    // A secret that nobody could verify, or that anybody could forge, is none: it is said before, and nothing is sent.
    let receiver = Receiver::start(0);
    let hook =
        format!("[notify.channels.ops]\nwebhook = \"http://{}/\"\nsecret = \"env:OPS_SECRET\"\n", receiver.address);
    let path = config(dir.path(), &hook);
    for none in ["correct-horse-battery", "whsec_", "whsec_!!!"] {
        let with = |words: &[&str]| {
            let mut command = Command::new(bosun().unwrap());
            command.args(words).arg("--config").arg(&path).env("OPS_SECRET", none).current_dir(dir.path());
            command.output().unwrap()
        };
        let doctor = said(&with(&["doctor", "--data", data.to_str().unwrap()]));
        assert!(doctor.contains("nobody is told by the channel ops") && doctor.contains("whsec_$(openssl"), "{doctor}");
        let tested = with(&["notify", "test"]);
        assert_eq!(tested.status.code(), Some(1), "{}", said(&tested));
        assert!(said(&tested).contains("at least 16 bytes"), "{}", said(&tested));
    }
    assert!(receiver.all().is_empty(), "{:?}", receiver.all());
    let fine = config(dir.path(), "[notify.channels.desk]\ncommand = [\"true\"]\n");
    let doctor = said(&run(&fine, &["doctor", "--data", data.to_str().unwrap()]));
    assert!(doctor.contains("1 of 1 channels can be used"), "{doctor}");
}

const GUIDE: &str = include_str!("../../../worker/guide/operating.md");

/// The text of a block of the section of the guide.
fn block(kind: &str) -> &'static str {
    let (_, section) = GUIDE.split_once("## Notifications").unwrap();
    let (_, rest) = section.split_once(&format!("```{kind}\n")).unwrap_or_else(|| panic!("no {kind} in the section"));
    rest.split_once("```").unwrap().0
}

/// The section of the guide: its file is one, its commands do what it says.
#[test]
fn the_section_of_the_guide_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), block("toml"));
    for line in block("sh").lines() {
        let words: Vec<&str> = line.strip_prefix("bosun ").unwrap().split(' ').collect();
        let output = run(&path, &words);
        assert!(output.status.success(), "{line}: {}", said(&output));
    }
    let told = std::fs::read_to_string(dir.path().join("told.jsonl")).unwrap();
    assert!(told.contains("\"channel\":\"desk\""), "{told}");
}

/// Its program knows what a worker has signed, and nothing else; with nothing but Python's standard library.
#[test]
fn the_python_of_the_section_knows_who_has_signed() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(0);
    let text =
        format!("[notify.channels.ops]\nwebhook = \"http://{}/\"\nsecret = \"env:OPS_SECRET\"\n", receiver.address);
    let tested = run(&config(dir.path(), &text), &["notify", "test"]);
    assert!(tested.status.success(), "{}", said(&tested));
    let one = receiver.all().remove(0);
    let (headers, body) = (json!(one.headers).to_string(), String::from_utf8(one.raw).unwrap());
    let program = format!(
        "{}\nimport json, sys\nsecret, headers, body = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3].encode()\n\
         assert is_from_bosun(secret, headers, body)\n\
         assert not is_from_bosun(secret, headers, body + b' ')\n\
         assert not is_from_bosun('whsec_' + 'A' * 32, headers, body)\n",
        block("python")
    );
    let ran = Command::new("python3").args(["-c", &program, SECRET, &headers, &body]).output();
    match ran {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound && !bosun_tests::harness::all_required() => {
            bosun_tests::harness::say("the_python_of_the_section_knows_who_has_signed: SKIPPED: there is no python3");
        }
        ran => {
            let ran = ran.unwrap();
            assert!(ran.status.success(), "{}", said(&ran));
        }
    }
}

#[test]
fn what_is_wrong_with_a_channel_is_said_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    // None is no mistake.
    let none = run(&config(dir.path(), ""), &["notify", "list"]);
    assert!(none.status.success() && said(&none).contains("no channel is configured"), "{}", said(&none));
    for (text, says) in [
        ("[notify.channels.ops]\nwebhok = \"https://x\"\n", "`notify.channels.ops.webhok`"),
        ("[notify]\npublic = \"x\"\n", "`notify.public`"),
        (
            "[notify.channels.ops]\nwebhook = \"https://x\"\nsecret = \"plain-text-secret\"\n",
            "notify.channels.ops.secret",
        ),
        ("[notify.channels.ops]\nslack = \"https://x\"\nquiet = \"10-11\"\n", "notify.channels.ops.quiet"),
        ("[notify.channels.ops]\nslack = \"https://x\"\nevents = [\"every\"]\n", "notify.channels.ops.events"),
        ("[notify.channels.ops]\nslack = \"https://x\"\nlinks = true\n", "notify.public_url"),
    ] {
        let refused = run(&config(dir.path(), text), &["notify", "list"]);
        assert_eq!(refused.status.code(), Some(2), "{text}: {}", said(&refused));
        assert!(said(&refused).contains(says), "{text}: {}", said(&refused));
        assert!(!said(&refused).contains("plain-text-secret"), "{}", said(&refused));
    }
}
