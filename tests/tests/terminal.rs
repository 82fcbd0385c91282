//! What a terminal keeps of the live tree: the lines of a run, and none of the drawings before.
//!
//! A real terminal emulator (tmux) with its history, the shipped binary, real runs; and what a shell in it completes. Nothing is
//! said of the order of bytes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bosun_tests::harness::process::bosun;
use bosun_tests::harness::{all_required, say};
use serde_json::json;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);
/// Of a terminal here.
const ROWS: usize = 24;

/// A terminal of 80 columns and 24 rows that keeps what leaves its screen.
struct Terminal {
    dir: TempDir,
}

impl Terminal {
    /// Nothing where no tmux is installed.
    fn open_or_explain(command: &str) -> Option<Terminal> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(!all_required(), "tmux is needed and not installed");
            say("skipped: what a terminal keeps. tmux is not installed");
            return None;
        }
        let terminal = Terminal { dir: tempfile::tempdir().unwrap() };
        let settings = terminal.dir.path().join("tmux.conf");
        std::fs::write(&settings, "set -g history-limit 50000\nset -g remain-on-exit on\n").unwrap();
        terminal.tmux(&["-f", settings.to_str().unwrap(), "new-session", "-d", "-x", "80", "-y", "24", command]);
        Some(terminal)
    }

    #[track_caller]
    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-u").args(words).env("TMUX_TMPDIR", self.dir.path()).env_remove("TMUX");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The lines that have left the screen.
    fn kept(&self) -> usize {
        self.tmux(&["display-message", "-p", "#{history_size}"]).trim().parse().unwrap()
    }

    /// All that can be scrolled to, and the screen.
    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-"])
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&Terminal) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < PATIENCE, "it never came to this: {what}: {}", self.text());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    #[track_caller]
    fn until_ended(&self) {
        self.until("its end", |terminal| terminal.tmux(&["display-message", "-p", "#{pane_dead}"]).trim() == "1");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut end = Command::new("tmux");
        let _ = end.arg("kill-server").env("TMUX_TMPDIR", self.dir.path()).env_remove("TMUX").output();
    }
}

fn words(data: &Path, words: &str) -> String {
    format!("{} --data {} {words}", bosun().unwrap().display(), data.display())
}

/// A tree that takes all rows of the terminal, drawn again at every change and every second.
#[test]
fn a_tree_as_high_as_the_terminal_leaves_none_of_its_drawings_behind() {
    let dir = tempfile::tempdir().unwrap();
    let turn = json!([{ "timer": "300ms" }, { "activity": { "type": "echo", "input": 1 } }]);
    let branch = json!([{ "loop": { "times": 3, "steps": turn } }]);
    let input = dir.path().join("input.json");
    std::fs::write(&input, json!({ "steps": [{ "parallel": vec![branch; 30] }] }).to_string()).unwrap();
    let run = words(&dir.path().join("data"), &format!("run kitchen-sink -w wide -i @{}", input.display()));
    let Some(terminal) = Terminal::open_or_explain(&run) else { return };
    terminal.until_ended();
    assert!(terminal.text().contains("echo"), "{}", terminal.text());
    assert!(terminal.kept() <= 2 * ROWS, "{} lines were left behind", terminal.kept());
}

/// A wait with characters that take two columns each, in a command that the terminal breaks.
#[test]
fn a_wait_with_wide_characters_stays_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let input = json!({ "steps": [{ "activity": { "type": "process", "input": { "argv": ["false"] },
        "retry": { "initial_interval": "1h" } } }] });
    let file = dir.path().join("input.json");
    std::fs::write(&file, input.to_string()).unwrap();
    let id = "请把这份很长的报告翻译成中文并且写一个摘要然后发给所有的人看看有没有";
    let run = words(&dir.path().join("data"), &format!("run kitchen-sink -w {id} -i @{}", file.display()));
    let Some(terminal) = Terminal::open_or_explain(&run) else { return };
    let told = " in 59m";
    terminal.until("an attempt in less than an hour", |terminal| terminal.text().contains(told));
    // It is drawn again each second.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(terminal.text().matches(told).count(), 1, "{}", terminal.text());
    assert_eq!(terminal.kept(), 0, "{}", terminal.text());
}

/// bash takes `:` and `=` for ends of words; ids with them are completed whole, quoted or not, and so is what is no id.
#[test]
fn bash_completes_ids_with_colons_types_and_values() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    const ORDER: &str = r#"{"order_id": "o-1", "items": [{"sku": "tea", "quantity": 1}], "cents": 5}"#;
    for verb in [
        &["start", "order-saga", "-w", "order:77", "-i", ORDER][..],
        &["schedule", "create", "order-nightly", "order-saga", "--every", "24h", "-i", ORDER],
    ] {
        crate::resets::ok(&data, verb);
    }
    let start = dir.path().join("start.sh");
    let bosun = bosun().unwrap();
    let text =
        format!("export BOSUN_STORE={}\nsource <({} completion bash)\nPS1='> '\n", data.display(), bosun.display());
    std::fs::write(&start, text).unwrap();
    let Some(terminal) = Terminal::open_or_explain(&format!("bash --noprofile --rcfile {} -i", start.display())) else {
        return;
    };
    terminal.until("a prompt", |terminal| terminal.text().contains('>'));
    for (begun, completed) in [
        ("describe schedule:order-n", "describe schedule:order-nightly "),
        ("describe order:", "describe order:77 "),
        ("describe \"order:", "describe \"order:77\" "),
        ("diff order:77 order:7", "diff order:77 order:77 "),
        ("start order-s", "start order-saga "),
        ("start --type=order-s", "start --type=order-saga "),
        ("schedule create x --overlap buffer-o", "schedule create x --overlap buffer-one "),
        ("schedule describe order", "schedule describe order-nightly "),
    ] {
        terminal.tmux(&["send-keys", "-l", &format!("bosun {begun}")]);
        terminal.tmux(&["send-keys", "Tab"]);
        // What follows a completed word is a new one.
        terminal.tmux(&["send-keys", "-l", "x."]);
        let whole = format!("> bosun {completed}x.");
        terminal.until(&whole, |terminal| terminal.text().contains(&whole));
        terminal.tmux(&["send-keys", "C-u"]);
    }
}
