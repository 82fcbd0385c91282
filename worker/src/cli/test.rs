//! `bosun test`: scenes, and whether what happens in them is what they expect.
//!
//! Invariant: every scene that is named is played, whatever became of the others, and results stand in the order of the
//! files, however many are played at once. Exit code 0: all passed. 1: some failed. 2: some cannot be read. It opens no
//! store and no network; what a scene is and how it is played is in `scene`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bosun_engine::workflow::WorkflowRegistry;
use clap::Args;
use serde_json::{Value, json};

use super::error::{CliError, printable};
use super::exit::Exit;
use super::explain::Code;
use super::list::shell_word;
use super::output::{Format, Paint, Screen};
use super::replay::junit::escaped;
use crate::scene::{BadScene, Choice, Failure, Played, SceneFile};

/// Play scenes: a spec, a world that answers, what people do, and what must then be true.
///
/// Every scene is played straight, replayed with every call forbidden, crashed after each event, and with its concurrent
/// calls ending in other orders. Exit code 0: all passed. 1: some failed. 2: some cannot be read.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// Scenes (YAML), or directories of them.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Only scenes whose file or sentence holds this text.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Only these ways, beside the straight one: replay, crash, permute.
    #[arg(long, value_name = "WAY", value_delimiter = ',', value_parser = ["straight", "replay", "crash", "permute"])]
    pub way: Vec<String>,
    /// Which orders are drawn where there are too many to try all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// How many scenes are played at once [default: one a core].
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Where the histories of failed scenes are written [default: bosun-scenes in the system's directory for temporary files].
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// A scene and what became of it.
struct Tested {
    file: String,
    sentence: String,
    rows: Vec<String>,
    result: Result<Played, BadScene>,
}

pub(super) fn test(screen: &mut Screen, workflows: &WorkflowRegistry, args: &TestArgs) -> Result<Exit, CliError> {
    let files = files(&args.paths)?;
    let began = Instant::now();
    let scenes: Vec<(PathBuf, Result<SceneFile, BadScene>)> =
        files.into_iter().map(|file| (file.clone(), SceneFile::load(&file))).collect();
    let wanted = |file: &Path, scene: &Result<SceneFile, BadScene>| match (&args.only, scene) {
        (None, _) => true,
        (Some(only), Ok(scene)) => file.to_string_lossy().contains(only) || scene.sentence().contains(only),
        (Some(only), Err(_)) => file.to_string_lossy().contains(only),
    };
    let scenes: Vec<_> = scenes.into_iter().filter(|(file, scene)| wanted(file, scene)).collect();
    if scenes.is_empty() {
        let help =
            "a test that tests nothing would always pass; scenes are files that end in .yaml and have a key `scene`";
        return Err(CliError::new(Code::NotFound, "no scene fits").help(help));
    }
    let tested = play_all(screen, workflows, args, scenes);
    let keep = args.keep.clone().unwrap_or_else(|| std::env::temp_dir().join("bosun-scenes"));
    report(screen, &tested, &keep, began.elapsed());
    let bad = tested.iter().any(|one| one.result.is_err());
    let failed = tested.iter().any(|one| one.result.as_ref().is_ok_and(|played| !played.failures.is_empty()));
    Ok(match (bad, failed) {
        (true, _) => Exit::Usage,
        (false, true) => Exit::Error,
        (false, false) => Exit::Ok,
    })
}

/// The scenes that are named: files, and what lies in directories, in order.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |path: &Path, why: std::io::Error| {
        CliError::new(Code::Usage, format!("{} cannot be read", path.display())).cause(why)
    };
    let mut files = Vec::new();
    for path in paths {
        if std::fs::metadata(path).map_err(|why| unreadable(path, why))?.is_file() {
            files.push(path.clone());
            continue;
        }
        let mut folders = vec![path.clone()];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).map_err(|why| unreadable(&folder, why))? {
                let path = entry.map_err(|why| unreadable(&folder, why))?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") && is_scene(&path) {
                    found.push(path);
                }
            }
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

/// Specs that scenes name lie beside them: a scene has a line that says what it shows.
fn is_scene(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| line.starts_with("scene:")))
}

fn play_all(
    screen: &mut Screen,
    workflows: &WorkflowRegistry,
    args: &TestArgs,
    scenes: Vec<(PathBuf, Result<SceneFile, BadScene>)>,
) -> Vec<Tested> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cores).clamp(1, scenes.len());
    let choice = Choice { ways: args.way.clone(), seed: args.seed };
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let total = scenes.len();
    let places: Vec<Mutex<Option<Tested>>> = scenes.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let (Some((file, scene)), Some(place)) = (scenes.get(number), places.get(number)) else { return };
            let tested = one(file, scene, workflows, &choice);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(tested);
            done.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        while screen.live && threads.iter().any(|thread| !thread.is_finished()) {
            screen.draw(&format!("\r{} of {total} scenes", done.load(Ordering::SeqCst)));
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    if screen.live {
        screen.draw("\r\x1b[K");
    }
    places.into_iter().filter_map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

fn one(file: &Path, scene: &Result<SceneFile, BadScene>, workflows: &WorkflowRegistry, choice: &Choice) -> Tested {
    let name = file.display().to_string();
    match scene {
        Ok(scene) => Tested {
            file: name,
            sentence: scene.sentence().to_owned(),
            rows: scene.rows().to_vec(),
            result: Ok(scene.play(workflows, choice)),
        },
        Err(why) => Tested { file: name, sentence: String::new(), rows: Vec::new(), result: Err(why.clone()) },
    }
}

fn report(screen: &mut Screen, tested: &[Tested], keep: &Path, took: Duration) {
    screen.document(Format::Junit, &junit(tested, took));
    let mut rows = Vec::new();
    for one in tested {
        let head = match &one.result {
            Ok(played) if played.failures.is_empty() => {
                let ways = screen.paint(Paint::Dim, &ways(played));
                format!("{}  {}  {ways}", screen.paint(Paint::Green, "ok  "), printable(&one.sentence))
            }
            Ok(_) => format!("{}  {}", screen.paint(Paint::Red, "FAIL"), printable(&one.sentence)),
            Err(_) => format!("{}  {}", screen.paint(Paint::Red, "BAD "), one.file),
        };
        screen.line(head);
        let mut kept = None;
        match &one.result {
            Ok(played) => {
                for (place, failure) in played.failures.iter().enumerate() {
                    let before = place.checked_sub(1).and_then(|before| played.failures.get(before));
                    let more = played.failures.get(place + 1).is_some_and(|next| next.way == failure.way);
                    fail(screen, one, failure, before.is_none_or(|before| before.way != failure.way), !more);
                }
                if let Some(failure) = played.failures.iter().find(|failure| failure.history.is_some()) {
                    kept = keep_history(screen, keep, one, failure);
                }
            }
            Err(why) => screen.block(&format!("      {}", why.why)),
        }
        rows.push(one.json(kept.as_deref()));
    }
    let count = |good: fn(&Tested) -> bool| tested.iter().filter(|one| good(one)).count();
    let passed = count(|one| one.result.as_ref().is_ok_and(|played| played.failures.is_empty()));
    let bad = count(|one| one.result.is_err());
    let failed = tested.len() - passed - bad;
    if screen.format == Format::Json {
        screen.object("test", json!({ "scenes": rows, "passed": passed, "failed": failed, "bad": bad }));
    } else {
        rows.into_iter().for_each(|row| screen.row("test.scene", row));
    }
    let unread = if bad > 0 { format!(", {bad} cannot be read") } else { String::new() };
    let text =
        format!("\n{} scenes: {passed} passed, {failed} failed{unread}  ({:.1}s)", tested.len(), took.as_secs_f64());
    let paint = if passed == tested.len() { Paint::Green } else { Paint::Red };
    screen.line(screen.paint(paint, &text));
}

/// `38 events, 38 crashes, 6 orders, 12 ms`.
fn ways(played: &Played) -> String {
    let orders = match (played.orders, played.all_orders) {
        (0 | 1, _) => String::new(),
        (orders, true) => format!(", {orders} orders"),
        (orders, false) => format!(", {orders} sampled orders"),
    };
    format!("({} events, {} crashes{orders}, {} ms)", played.events, played.crashes, played.took.as_millis())
}

/// What was expected and seen; the way stands above the first of its failures, the events below the last.
fn fail(screen: &mut Screen, one: &Tested, failure: &Failure, first: bool, last: bool) {
    let field = |screen: &mut Screen, name: &str, text: &str| {
        let text = printable(text);
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default().to_owned();
        screen.line(format!("      {} {first}", screen.paint(Paint::Dim, &format!("{name:<9}"))));
        lines.for_each(|line| screen.line(format!("                {line}")));
    };
    if first {
        field(screen, "file", &one.file);
        field(screen, "way", &failure.way.to_string());
    }
    field(screen, "at", &failure.at);
    field(screen, "expected", &failure.expected);
    let seen = screen.paint(Paint::Yellow, &printable(&failure.seen));
    field(screen, "seen", &seen);
    if last && !failure.last.is_empty() {
        field(screen, "last", &failure.last.join("\n"));
    }
}

/// Writes the history of a failed life, and says how to look at it.
fn keep_history(screen: &mut Screen, keep: &Path, one: &Tested, failure: &Failure) -> Option<String> {
    let stem = Path::new(&one.file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let path = keep.join(format!("{stem}.{}.history.json", failure.way.name()));
    let history = failure.history.as_ref()?;
    let written = std::fs::create_dir_all(keep).and_then(|()| std::fs::write(&path, history));
    if let Err(why) = written {
        screen.note(&format!("the history cannot be written to {}: {why}", path.display()));
        return None;
    }
    let shown = path.display().to_string();
    let line = format!("      {} bosun replay debug {}", screen.paint(Paint::Dim, "look     "), shell_word(&shown));
    screen.line(line);
    Some(shown)
}

impl Tested {
    fn json(&self, history: Option<&str>) -> Value {
        let mut row = json!({ "file": self.file, "scene": self.sentence, "rows": self.rows });
        match &self.result {
            Err(why) => {
                row["verdict"] = "bad".into();
                row["error"] = json!({ "at": why.why.path, "problem": why.why.problem });
            }
            Ok(played) => {
                row["verdict"] = if played.failures.is_empty() { "passed" } else { "failed" }.into();
                row["events"] = played.events.into();
                row["crashes"] = played.crashes.into();
                row["orders"] = played.orders.into();
                row["all_orders"] = played.all_orders.into();
                row["took_ms"] = u64::try_from(played.took.as_millis()).unwrap_or(u64::MAX).into();
                let failure = |failure: &Failure| {
                    json!({ "way": failure.way.name(), "which": failure.way.to_string(), "at": failure.at,
                        "expected": failure.expected, "seen": failure.seen, "last": failure.last })
                };
                row["failures"] = played.failures.iter().map(failure).collect();
            }
        }
        if let Some(history) = history {
            row["history"] = history.into();
        }
        row
    }
}

fn junit(tested: &[Tested], took: Duration) -> String {
    let failed =
        tested.iter().filter(|one| one.result.as_ref().is_ok_and(|played| !played.failures.is_empty())).count();
    let errors = tested.iter().filter(|one| one.result.is_err()).count();
    let counts =
        format!(r#"tests="{}" failures="{failed}" errors="{errors}" time="{:.3}""#, tested.len(), took.as_secs_f64());
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"bosun test\" {counts}>\n"
    );
    for one in tested {
        let time = one.result.as_ref().map_or(0.0, |played| played.took.as_secs_f64());
        let name = if one.sentence.is_empty() { &one.file } else { &one.sentence };
        xml += &format!(
            "    <testcase classname=\"{}\" name=\"{}\" time=\"{time:.3}\"",
            escaped(&one.file),
            escaped(name)
        );
        let element = |kind: &str, message: &str, text: &str| {
            format!(">\n      <{kind} message=\"{}\">{}</{kind}>\n    </testcase>\n", escaped(message), escaped(text))
        };
        xml += &match &one.result {
            Err(why) => element("error", &why.why.path, &why.to_string()),
            Ok(played) => match played.failures.first() {
                None => "/>\n".to_owned(),
                Some(first) => {
                    let line = |failure: &Failure| {
                        format!(
                            "{}: {}\nexpected  {}\nseen      {}",
                            failure.way, failure.at, failure.expected, failure.seen
                        )
                    };
                    let all: Vec<String> = played.failures.iter().map(line).collect();
                    element("failure", &format!("{}: {}", first.way, first.at), &all.join("\n\n"))
                }
            },
        };
    }
    xml + "  </testsuite>\n</testsuites>\n"
}
