//! What an owner sets and looks up by hand, by the shipped binary: single values of the configuration and its profiles, and the
//! models of the environment.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use bosun_tests::harness::binary::said;
use bosun_tests::harness::process::bosun;
use bosun_worker::capability::model::Wire;
use bosun_worker::capability::model::mock::{MockAnswer, MockProvider, says};
use serde_json::Value;

fn run(home: &Path, variables: &[(&str, &str)], words: &[&str]) -> Output {
    let mut command = Command::new(bosun().unwrap());
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "BOSUN_PROFILE"] {
        command.env_remove(name);
    }
    // Nobody's own configuration.
    command.env("HOME", home).env_remove("XDG_CONFIG_HOME");
    command.args(words).envs(variables.iter().copied()).current_dir(home).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn ok(home: &Path, words: &[&str]) -> String {
    let output = run(home, &[], words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn values_of_the_configuration_are_set_and_comments_stay() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let file = home.join("bosun.toml");
    ok(home, &["config", "set", "worker.slots", "4"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "[worker]\nslots = 4\n");
    std::fs::write(&file, "# ours\nnamespace = \"shop\" # not the default\n\n[worker]\nslots = 4\n").unwrap();
    ok(home, &["config", "set", "process.allow", "git, cargo"]);
    ok(home, &["config", "set", "worker.slots", "2", "--in-profile", "dev"]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# ours\nnamespace = \"shop\" # not the default\n"), "{text}");
    assert!(
        text.contains("allow = [\"git\", \"cargo\"]") && text.contains("[profiles.dev.worker]\nslots = 2"),
        "{text}"
    );
    assert_eq!(ok(home, &["config", "get", "worker.slots"]).trim(), "4");
    assert_eq!(ok(home, &["config", "get", "worker.slots", "--profile", "dev"]).trim(), "2");
    assert_eq!(ok(home, &["config", "get", "process.allow"]).trim(), "git,cargo");
    let told: Value =
        serde_json::from_str(&ok(home, &["config", "get", "worker.slots", "--profile", "dev", "-o", "json"])).unwrap();
    assert!(told["origin"].as_str().unwrap().ends_with("bosun.toml [profiles.dev]"), "{told}");
    assert!(ok(home, &["config", "profiles", "--profile", "dev"]).contains("dev  (in force)"));
    // What stands around a value stays, and what goes before it is told.
    std::fs::write(&file, text.replace("slots = 4\n", "slots   =  4   # as many as cores\n")).unwrap();
    let hidden = |words: &[&str]| -> Value {
        let words = [words, &["-o", "json"]].concat();
        serde_json::from_str::<Value>(&ok(home, &words)).unwrap()["hidden_by"].clone()
    };
    let set = ["config", "set", "worker.slots", "3"];
    assert_eq!(hidden(&set), serde_json::json!(["[profiles.dev], with --profile dev,"]));
    let changed = std::fs::read_to_string(&file).unwrap();
    assert!(changed.contains("slots   =  3   # as many as cores\n"), "{changed}");
    let asked = [&set[..], &["--profile", "dev"]].concat();
    assert_eq!(hidden(&asked), serde_json::json!(["[profiles.dev]"]));
    assert_eq!(hidden(&[&asked[..], &["--in-profile", "dev"]].concat()), serde_json::json!([]));
    let variable = run(home, &[("BOSUN_WORKER_SLOTS", "9")], &set);
    assert!(said(&variable).contains("BOSUN_WORKER_SLOTS sets it too, and goes before this"), "{}", said(&variable));
    ok(home, &["config", "unset", "worker.slots"]);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("slots = 4"));

    // As `config list` shows it, also where a word has a comma.
    ok(home, &["config", "set", "notify.channels.desk.command", r#"["tee", "-a", "x, y"]"#]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(r#"command = ["tee", "-a", "x, y"]"#), "{text}");

    // What could not be used is not written.
    let before = std::fs::read_to_string(&file).unwrap();
    for (words, code, part) in [
        (["config", "set", "worker.slot", "4"].as_slice(), 2, "no key is called `worker.slot`"),
        (&["config", "set", "worker.slots", "many"], 2, "a whole number is wanted"),
        (&["config", "set", "worker.memory", "much"], 2, "worker.memory"),
        (&["config", "set", "worker.bind", "999.1.1.1"], 2, "worker.bind"),
        (&["config", "set", "worker.drain_timeout", "abc"], 2, "worker.drain_timeout"),
        (&["config", "set", "output", "xml"], 2, "\"xml\" is not one of text, json"),
        (&["config", "set", "notify.channels.desk.command", "[\"tee\""], 2, "a list as JSON"),
        (&["config", "set", "worker.retention", "7", "--in-profile", "dev"], 2, "worker.retention"),
        (&["config", "unset", "worker.port"], 30, "does not set worker.port"),
        (&["config", "list", "--profile", "prod"], 2, "there is no profile prod"),
    ] {
        let refused = run(home, &[], words);
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {}", said(&refused));
        assert!(said(&refused).contains(part), "{words:?}: {}", said(&refused));
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
}

/// The file lies behind a link, as those of dotfiles do, and others may read it: both stay so. Commands at the same time lose
/// nothing of each other.
#[test]
fn a_configuration_behind_a_link_is_changed_where_it_lies_by_many_at_once() {
    let home = tempfile::tempdir().unwrap();
    let (home, kept) = (home.path(), home.path().join("dotfiles"));
    std::fs::create_dir(&kept).unwrap();
    let file = kept.join("ours.toml");
    std::fs::write(&file, "namespace = \"shop\" # ours\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("dotfiles/ours.toml", home.join("bosun.toml")).unwrap();
    let keys = ["slots", "port", "queue", "bind", "memory", "drain_timeout"];
    let values = ["4", "8080", "mail", "127.0.0.1", "64MiB", "5s"];
    std::thread::scope(|scope| {
        for (key, value) in keys.iter().zip(values) {
            scope.spawn(move || ok(home, &["config", "set", &format!("worker.{key}"), value]));
        }
    });
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("namespace = \"shop\" # ours\n"), "{text}");
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(ok(home, &["config", "get", &format!("worker.{key}")]).trim(), value, "{text}");
    }
    assert!(home.join("bosun.toml").is_symlink(), "the link is still one");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 1, "nothing is left beside it");
    std::fs::remove_file(&file).unwrap();
    let refused = run(home, &[], &["config", "set", "worker.slots", "4"]);
    assert!(!refused.status.success() && said(&refused).contains("leads nowhere"), "{}", said(&refused));
}

/// A provider that only lists: what it was asked with, and one answer.
fn lists(body: &'static str) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
        let mut stream = stream;
        let length = body.len();
        let told = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(told.as_bytes()).unwrap();
        head
    });
    (format!("http://{address}/v1"), asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_of_the_environment_are_listed_asked_and_priced() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let key = "sk-this-is-a-key-of-nobody-1234567890";
    let none = ok(home, &["llm", "models"]);
    assert!(none.contains("schema") && !none.contains("openai"), "{none}");

    // A model of the program itself is not asked for a list that it has not.
    let own = run(home, &[], &["llm", "models", "schema", "-o", "json"]);
    assert!(own.status.success(), "{}", said(&own));
    let own: Value = serde_json::from_slice(&own.stdout).unwrap();
    assert_eq!(own["models"], serde_json::json!([]), "{own}");
    assert!(said(&run(home, &[], &["llm", "models", "schema"])).contains("is in this program"));

    let (base, asked) = lists(r#"{"object": "list", "data": [{"id": "tiny"}, {"id": "large"}]}"#);
    let variables = [("OPENAI_BASE_URL", base.as_str()), ("OPENAI_API_KEY", key)];
    let listed = run(home, &variables, &["llm", "models", "openai", "-o", "json"]);
    assert!(listed.status.success(), "{}", said(&listed));
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!([&listed["models"][0]["model"], &listed["models"][1]["model"]], ["tiny", "large"], "{listed}");
    let head = asked.join().unwrap();
    assert!(head.starts_with("GET /v1/models ") && head.contains(&format!("Bearer {key}")), "{head}");
    let shown = run(home, &variables, &["llm", "models"]);
    assert!(said(&shown).contains(&base) && !said(&shown).contains(key), "{}", said(&shown));

    let mock = MockProvider::start(|request| match request.model.as_str() {
        "tiny" => MockAnswer::from(says("pong")),
        _ => MockAnswer::refuse(401, "invalid_api_key", "no such key"),
    })
    .await
    .unwrap();
    let base = mock.base_url(Wire::OpenAi);
    let prices = home.join("prices.json");
    let table = r#"{"as_of": "2026-11-20", "models": {"openai/tiny": {"input": 1000000, "output": 2000000}}}"#;
    std::fs::write(&prices, table).unwrap();
    let variables =
        [("OPENAI_BASE_URL", base.as_str()), ("OPENAI_API_KEY", key), ("BOSUN_PRICES", prices.to_str().unwrap())];
    let pong = run(home, &variables, &["llm", "ping", "tiny", "-o", "json"]);
    assert!(pong.status.success(), "{}", said(&pong));
    let pong: Value = serde_json::from_slice(&pong.stdout).unwrap();
    // Ten tokens and five, as the mock counts.
    assert_eq!((&pong["said"], &pong["cost"]["micros"]), (&"pong".into(), &20.into()), "{pong}");
    let misplaced = run(home, &variables, &["llm", "ping", "schema"]);
    assert!(said(&misplaced).contains("`bosun llm ping schema --provider schema`"), "{}", said(&misplaced));
    let refused = run(home, &variables, &["llm", "ping", "other"]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(
        said(&refused).contains("a run would wait for a person") && !said(&refused).contains(key),
        "{}",
        said(&refused)
    );
    let prices = run(home, &variables, &["llm", "prices"]);
    assert!(said(&prices).contains("openai/tiny") && said(&prices).contains("2026-11-20"), "{}", said(&prices));
    let unknown = run(home, &variables, &["llm", "models", "nobody"]);
    assert!(!unknown.status.success() && said(&unknown).contains("nobody"), "{}", said(&unknown));
}
