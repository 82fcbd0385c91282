//! `bosun test`: scenes, and whether what happens in them is what they expect.
//!
//! Invariant: every scene that is named is played, whatever became of the others, and results are told as soon as they are
//! known, in the order of the files, however many are played at once. Exit code 0: all passed. 1: some failed. 2: some cannot be read. It opens no
//! store and no network; what a scene is and how it is played is in `scene`.

mod found;
mod told;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use bosun_engine::workflow::WorkflowRegistry;
use clap::Args;
use serde_json::{Value, json};

use self::found::files;
use self::told::ScenesTold;
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
    /// Scenes (YAML), or directories of them. A YAML file of a directory that is no scene is an error, unless another file there
    /// names it, as scenes name specs.
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
    #[arg(long, value_name = "WHAT", value_delimiter = ',', requires = "mutate", value_parser = ["presets", "answers", "expectations", "defaults"])]
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
        "0" => Err("a test of no changes would always pass".to_owned()),
        number => number.parse().map(Count::Of).map_err(|_| format!("`{number}` is neither a number nor `all`")),
    }
}

/// Passes of `--update` over one scene at most: what an expectation hides shows when it is met.
const UPDATES_MAX: usize = 20;

/// A scene and what became of it.
struct Tested {
    file: String,
    sentence: String,
    rows: Vec<String>,
    result: Result<(SceneFile, SceneResult), BadScene>,
    /// How many expectations became what was seen.
    updated: usize,
    /// Why these could not be written, if they could not.
    unwritten: Option<String>,
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
    let keep = args.keep.clone().unwrap_or_else(|| std::env::temp_dir().join("bosun-scenes"));
    let mut report = ScenesTold::into(keep);
    let tested = play_all(screen, workflows, args, &scenes, &mut report);
    report.end(screen, &tested, began.elapsed());
    if let Some((file, why)) = tested.iter().find_map(|one| Some((&one.file, one.unwritten.as_ref()?))) {
        return Err(CliError::new(Code::Failed, format!("{file} cannot be written: {why}")));
    }
    let bad = tested.iter().any(|one| one.result.is_err());
    let failed = tested.iter().any(Tested::failed);
    Ok(match (bad, failed) {
        (true, _) => Exit::Usage,
        (false, true) => Exit::Error,
        (false, false) => Exit::Ok,
    })
}

/// Which changes no scene notices. Exit code 1 if there are any.
fn mutants(
    screen: &mut Screen,
    workflows: &WorkflowRegistry,
    args: &TestArgs,
    scenes: Vec<(PathBuf, Result<SceneFile, BadScene>)>,
    count: Count,
) -> Result<Exit, CliError> {
    if screen.format == Format::Junit {
        return Err(CliError::usage("-o junit tells of scenes, and not of mutants: ask for json"));
    }
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

/// How many are played at once.
fn jobs(args: &TestArgs) -> usize {
    args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Plays them, and tells what became of each as soon as that of all before it is told.
fn play_all(
    screen: &mut Screen,
    workflows: &WorkflowRegistry,
    args: &TestArgs,
    scenes: &[(PathBuf, Result<SceneFile, BadScene>)],
    report: &mut ScenesTold,
) -> Vec<Tested> {
    let jobs = jobs(args).min(scenes.len());
    let choice = Choice { ways: args.way.clone(), seed: args.seed, disk: args.disk, full: args.full };
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let work = |sender: mpsc::Sender<(usize, Tested)>| {
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let Some((file, scene)) = scenes.get(number) else { return };
            if sender.send((number, one(file, scene, workflows, &choice, args.update))).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for sender in vec![sender; jobs] {
            scope.spawn(|| work(sender));
        }
        let (mut tested, mut early) = (Vec::new(), BTreeMap::new());
        for (number, result) in receiver {
            early.insert(number, result);
            if screen.live {
                screen.draw("\r\x1b[K");
            }
            while let Some(next) = early.remove(&tested.len()) {
                report.one(screen, &next);
                tested.push(next);
            }
            let done = tested.len() + early.len();
            if screen.live && done < scenes.len() {
                screen.draw(&format!("\r{done} of {} scenes", scenes.len()));
            }
        }
        tested
    })
}

fn one(
    file: &Path,
    scene: &Result<SceneFile, BadScene>,
    workflows: &WorkflowRegistry,
    choice: &Choice,
    update: bool,
) -> Tested {
    let name = file.display().to_string();
    let bad = |why: BadScene, updated| Tested {
        file: name.clone(),
        sentence: String::new(),
        rows: Vec::new(),
        result: Err(why),
        updated,
        unwritten: None,
    };
    let mut scene = match scene {
        Ok(scene) => scene.clone(),
        Err(why) => return bad(why.clone(), 0),
    };
    let mut played = scene.play(workflows, choice);
    let (mut updated, mut unwritten) = (0, None);
    for _ in 0..if update { UPDATES_MAX } else { 0 } {
        let (text, count) = scene.updated(&played);
        if count == 0 {
            break;
        }
        if let Err(why) = std::fs::write(file, text) {
            unwritten = Some(why.to_string());
            break;
        }
        updated += count;
        scene = match SceneFile::load(file) {
            Ok(scene) => scene,
            Err(why) => return bad(why, updated),
        };
        played = scene.play(workflows, choice);
    }
    let (sentence, rows) = (scene.sentence().to_owned(), scene.rows().to_vec());
    Tested { file: name, sentence, rows, result: Ok((scene, played)), updated, unwritten }
}
