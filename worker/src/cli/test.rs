//! `bosun test`: scenes, and whether what happens in them is what they expect.
//!
//! Invariant: every scene that is named is played, whatever became of the others, and results stand in the order of the
//! files, however many are played at once. Exit code 0: all passed. 1: some failed. 2: some cannot be read. It opens no
//! store and no network; what a scene is and how it is played is in `scene`.

mod told;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bosun_engine::workflow::WorkflowRegistry;
use clap::Args;
use serde_json::{Value, json};

use self::told::report;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::output::{Format, Screen, TextStyle};
use crate::scene::{BadScene, Choice, Mutant, Mutation, SceneFile, SceneResult, Wanted, mutate};

/// Play scenes: a spec, a world that answers, what people do, and what must then be true.
///
/// Every scene is played straight, replayed with every call forbidden, crashed after each event, and with its concurrent
/// calls ending in other orders. Exit code 0: all passed. 1: some failed. 2: some cannot be read.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// Scenes (YAML), or directories of them.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Run only scenes whose file name or title contains this text.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Run each scene only in these ways, and in the straight one: replay, crash, permute.
    #[arg(long, value_name = "WAY", value_delimiter = ',', value_parser = ["straight", "replay", "crash", "permute"])]
    pub way: Vec<String>,
    /// Ignore the scenes' `ways:`, which ask for less: crash after each event, and try as many orders as usual. Slower.
    #[arg(long)]
    pub full: bool,
    /// The seed that chooses orders where there are too many to try them all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// How many scenes run at once [default: one per core].
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Use a log on disk, as a worker does, instead of one in memory. Slower.
    #[arg(long)]
    pub disk: bool,
    /// Replace expected plain values by those that were seen. Look at the difference before you keep it.
    #[arg(long, conflicts_with = "mutate")]
    pub update: bool,
    /// Test the scenes: change one value of presets, answers or expectations, this many times, and list the changes that no
    /// scene notices. `all` changes each value in each way.
    #[arg(long, value_name = "N|all", value_parser = count)]
    pub mutate: Option<Count>,
    /// What --mutate changes [default: presets,answers,expectations]. `presets` are the values that a preset sets, `defaults`
    /// those that it leaves alone.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ["presets", "answers", "expectations", "defaults"])]
    pub mutants: Vec<String>,
    /// Where to write the histories of failed scenes [default: bosun-scenes in the system's directory for temporary files].
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// How many mutants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    All,
    Of(usize),
}

fn count(text: &str) -> Result<Count, String> {
    match text {
        "all" => Ok(Count::All),
        number => number.parse().map(Count::Of).map_err(|_| format!("`{number}` is neither a number nor `all`")),
    }
}

/// A scene and what became of it.
struct Tested {
    file: String,
    sentence: String,
    rows: Vec<String>,
    result: Result<(SceneFile, SceneResult), BadScene>,
}

impl Tested {
    fn played(&self) -> Option<&SceneResult> {
        self.result.as_ref().ok().map(|(_, played)| played)
    }
    fn failed(&self) -> bool {
        self.played().is_some_and(|played| !played.failures.is_empty())
    }
    fn passed(&self) -> bool {
        self.played().is_some_and(|played| played.failures.is_empty())
    }
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
    if let Some(count) = args.mutate {
        return mutants(screen, workflows, args, scenes, count);
    }
    let mut tested = play_all(screen, workflows, args, scenes);
    if args.update {
        tested = updated(screen, workflows, args, tested)?;
    }
    let keep = args.keep.clone().unwrap_or_else(|| std::env::temp_dir().join("bosun-scenes"));
    report(screen, &tested, &keep, began.elapsed());
    let bad = tested.iter().any(|one| one.result.is_err());
    let failed = tested.iter().any(Tested::failed);
    Ok(match (bad, failed) {
        (true, _) => Exit::Usage,
        (false, true) => Exit::Error,
        (false, false) => Exit::Ok,
    })
}

/// Writes what was seen into the files of scenes that failed, and plays these again.
fn updated(
    screen: &mut Screen,
    workflows: &WorkflowRegistry,
    args: &TestArgs,
    tested: Vec<Tested>,
) -> Result<Vec<Tested>, CliError> {
    let mut all = Vec::new();
    for one in tested {
        let new = match &one.result {
            Ok((scene, played)) => Some(scene.updated(played)).filter(|(_, count)| *count > 0),
            Err(_) => None,
        };
        let Some((text, count)) = new else {
            all.push(one);
            continue;
        };
        let path = PathBuf::from(&one.file);
        std::fs::write(&path, text)
            .map_err(|why| CliError::new(Code::Failed, format!("{} cannot be written", one.file)).cause(why))?;
        screen.note(&format!("{}: {count} expectations are what was seen now", one.file));
        let scene = SceneFile::load(&path);
        all.extend(play_all(screen, workflows, args, vec![(path, scene)]));
    }
    Ok(all)
}

/// Which changes no scene notices. Exit code 1 if there are any.
fn mutants(
    screen: &mut Screen,
    workflows: &WorkflowRegistry,
    args: &TestArgs,
    scenes: Vec<(PathBuf, Result<SceneFile, BadScene>)>,
    count: Count,
) -> Result<Exit, CliError> {
    let scenes: Result<Vec<SceneFile>, BadScene> = scenes.into_iter().map(|(_, scene)| scene).collect();
    let scenes = scenes.map_err(|why| CliError::usage(why.to_string()))?;
    let named = |kind: &Mutation| args.mutants.iter().any(|name| name == kind.name());
    let kinds = match args.mutants.is_empty() {
        true => Mutation::USUAL.to_vec(),
        false => Mutation::ALL.into_iter().filter(named).collect(),
    };
    let every_way = count == Count::All;
    let count = if let Count::Of(count) = count { count } else { usize::MAX };
    let wanted = Wanted { kinds, count, every_way, seed: args.seed, jobs: jobs(args) };
    let made = mutate(&scenes, workflows, &wanted).map_err(|red| {
        let text = format!("{} scenes fail as they are, and would fail of any change: {}", red.len(), red.join(", "));
        CliError::new(Code::Failed, text).help("mend them first, or choose others with --only")
    })?;
    let noticed = made.iter().filter(|one| one.noticed_by.is_some()).count();
    let row = |one: &Mutant| json!({ "kind": one.kind.name(), "of": one.of, "at": one.at, "from": one.from, "to": one.to, "noticed_by": one.noticed_by, "scenes": one.asked });
    if screen.format == Format::Json {
        let rows: Vec<Value> = made.iter().map(row).collect();
        screen
            .object("test.mutants", json!({ "mutants": rows, "noticed": noticed, "unnoticed": made.len() - noticed }));
    } else {
        made.iter().for_each(|one| screen.row("test.mutant", row(one)));
    }
    for one in made.iter().filter(|one| one.noticed_by.is_none()) {
        let text = format!("{}  {}: {} instead of {}", one.of, one.at, one.to, one.from);
        let line = format!("{}  {}", screen.paint(TextStyle::Yellow, "unnoticed"), text);
        screen.line(format!("{line}  ({} scenes)", one.asked));
    }
    let unnoticed = made.len() - noticed;
    screen.line(format!("{} mutants: {noticed} noticed, {unnoticed} unnoticed", made.len()));
    Ok(if unnoticed == 0 { Exit::Ok } else { Exit::Error })
}

/// The scenes that are named: files, and what lies in directories, in order.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |path: &Path, why: std::io::Error| CliError::no_file(path.display(), &why);
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
                } else if path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
                    && is_scene(&path)
                {
                    found.push(path);
                }
            }
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

/// Specs that scenes name lie beside them: a scene says what it shows, under a key of its own.
fn is_scene(path: &Path) -> bool {
    super::input::read_short(path).is_ok_and(|text| names_scene(&text))
}

/// Whether a document has the key `scene` at its top, however it is written: a scene that is passed over is not seen to fail.
fn names_scene(text: &str) -> bool {
    let is_key = |text: &str| {
        let text = text.trim_start_matches(['"', '\'']);
        let rest = text.strip_prefix("scene").map(|rest| rest.trim_start_matches(['"', '\'']));
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    let text = text.trim_start_matches('\u{feff}');
    match text.trim_start().strip_prefix('{') {
        // In braces a key stands behind one of them, or behind a comma.
        Some(inside) => inside.split(['{', ',']).any(|part| is_key(part.trim_start())),
        None => text.lines().any(is_key),
    }
}

/// How many are played at once.
fn jobs(args: &TestArgs) -> usize {
    args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

fn play_all(
    screen: &mut Screen,
    workflows: &WorkflowRegistry,
    args: &TestArgs,
    scenes: Vec<(PathBuf, Result<SceneFile, BadScene>)>,
) -> Vec<Tested> {
    let jobs = jobs(args).min(scenes.len());
    let choice = Choice { ways: args.way.clone(), seed: args.seed, disk: args.disk, full: args.full };
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
            result: Ok((scene.clone(), scene.play(workflows, choice))),
        },
        Err(why) => Tested { file: name, sentence: String::new(), rows: Vec::new(), result: Err(why.clone()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scene_is_found_however_its_key_is_written() {
        for scene in [
            "scene: x",
            "# first\nscene : x",
            "\"scene\": x",
            "'scene': x",
            "{ \"rows\": [], \"scene\": 1 }",
            "{scene: x}",
        ] {
            assert!(names_scene(scene), "{scene}");
        }
        for other in ["kind: supervisor", "spec:\n  scene: x", "scenes: 2", "obscene: 1"] {
            assert!(!names_scene(other), "{other}");
        }
    }
}
