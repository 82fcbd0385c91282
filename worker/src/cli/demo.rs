//! `demo`: a supervisor that waits for an approval is killed with -9, started again, approved, and publishes once.
//!
//! Invariant: it uses the program itself as any user would: another process is the worker, commands reach it through the
//! data directory, and what is claimed at the end is read from the history and from the published file. It works in a
//! directory of its own, which it makes, and removes nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use bosun_engine::{EventKind, Turn};
use bosun_replay::{HistoryFile, HistoryLimits};
use clap::Args;
use serde_json::Value;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::output::Screen;
use crate::supervisor::run::again::approvals_as_expert;

/// The market analysis with a publication that needs a person.
const SPEC: &str = include_str!("demo.yaml");
const ID: &str = "market-analysis";
/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Where to work [default: a new temporary directory].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

pub(super) async fn demo(screen: &mut Screen, _global: &Global, args: DemoArgs) -> Result<Exit, CliError> {
    let dir = match args.dir {
        Some(dir) => dir,
        None => std::env::temp_dir().join(format!("bosun-demo-{}", std::process::id())),
    };
    let failed = |why: std::io::Error| CliError::new(Code::Failed, format!("{}: {why}", dir.display()));
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let published = dir.join("published.txt");
    let spec = dir.join("market.yaml");
    std::fs::write(&spec, SPEC.replace("PUBLISHED", &published.to_string_lossy())).map_err(failed)?;
    let stage =
        DemoStage { program: std::env::current_exe().map_err(failed)?, data: dir.join("data"), dir: dir.clone() };
    let (screen, ended) = tokio::task::block_in_place(|| {
        let ended = stage.play(screen, &spec, &published);
        (screen, ended)
    });
    ended?;
    screen.note(&format!("everything is in {}", dir.display()));
    Ok(Exit::Ok)
}

struct DemoStage {
    program: PathBuf,
    data: PathBuf,
    dir: PathBuf,
}

impl DemoStage {
    fn play(&self, screen: &mut Screen, spec: &Path, published: &Path) -> Result<(), CliError> {
        screen.line(format!("1. bosun run {}: four agents, a recruit, a report, and a publication", spec.display()));
        let mut first = self.run(spec)?;
        let approval = self.until_asked()?;
        screen.line(format!("2. it waits for a person: {approval}"));
        first.kill().and_then(|()| first.wait()).map_err(|why| broken(&format!("kill -9: {why}")))?;
        screen.line("3. killed with -9 while it waits; nobody runs".to_owned());
        let mut second = self.run(spec)?;
        let again = self.until_asked()?;
        check(again == approval, "after the restart the same approval waits")?;
        screen.line("4. started again: the same approval still waits".to_owned());
        self.bosun(&["approval", "approve", &approval])?;
        let ended = second.wait().map_err(|why| broken(&why.to_string()))?;
        check(ended.success(), "the approved run completes")?;
        let lines = std::fs::read_to_string(published).unwrap_or_default().lines().count();
        check(lines == 1, &format!("published once, not {lines} times"))?;
        screen.line("5. approved: published exactly once".to_owned());
        let turns = self.history()?;
        let calls = calls_once(&turns)?;
        screen.line(format!("6. the history shows {calls} calls of agents, each made once"));
        expert(screen, &turns)
    }

    fn history(&self) -> Result<Vec<Turn>, CliError> {
        let file = self.dir.join("market.json");
        self.bosun(&["export", ID, "--out", &file.to_string_lossy()])?;
        match HistoryFile::load(&file, &HistoryLimits::default()).map_err(|why| broken(&why.to_string()))? {
            HistoryFile::Bosun(history) => Ok(history.turns().to_vec()),
            HistoryFile::Temporal(_) => Err(broken("the export is no history of ours")),
        }
    }

    fn run(&self, spec: &Path) -> Result<Child, CliError> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.join("run.log"));
        let log = log.map_err(|why| broken(&why.to_string()))?;
        let mut program = self.command();
        program.arg("run").arg(spec).args(["-w", ID]).stdout(Stdio::null()).stderr(log);
        program.spawn().map_err(|why| broken(&why.to_string()))
    }

    fn command(&self) -> Program {
        let mut program = Program::new(&self.program);
        program.arg("--data").arg(&self.data).stdin(Stdio::null());
        // The owner's is of another store.
        program.arg("--epoch-file").arg(self.dir.join("epoch"));
        program
    }

    fn bosun(&self, args: &[&str]) -> Result<String, CliError> {
        let out = self.command().args(args).output().map_err(|why| broken(&why.to_string()))?;
        if !out.status.success() {
            let why = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            return Err(broken(&format!("bosun {}: {why}", args.join(" "))));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// The id of the approval that waits, once one does.
    fn until_asked(&self) -> Result<String, CliError> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            // Nobody holds the directory while a run starts: that is asked again, too.
            let told = self.bosun(&["-o", "json", "approval", "list"]).unwrap_or_default();
            let told: Value = serde_json::from_str(&told).unwrap_or_default();
            if let Some(id) = told["waiting"][0]["request"]["id"].as_str() {
                return Ok(id.to_owned());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(broken("nobody was asked for an approval in time"))
    }
}

/// How many calls of agents there were; an error if one was made more than once, by a second attempt or as a second call.
fn calls_once(turns: &[Turn]) -> Result<usize, CliError> {
    let mut calls = BTreeSet::new();
    let mut started = 0;
    for event in turns.iter().flat_map(|turn| &turn.events) {
        match event {
            EventKind::ActivityTaskScheduled(task) => {
                let name = task.options.summary.clone().unwrap_or_else(|| task.seq.to_string());
                check(calls.insert(name.clone()), &format!("{name} was called twice"))?;
            }
            EventKind::ActivityTaskStarted { .. } => started += 1,
            _ => {}
        }
    }
    check(!calls.is_empty() && started == calls.len(), &format!("{} calls, started {started} times", calls.len()))?;
    Ok(calls.len())
}

/// The same history under the trust of an expert.
fn expert(screen: &mut Screen, turns: &[Turn]) -> Result<(), CliError> {
    let saved = approvals_as_expert(turns).map_err(|why| broken(&why.to_string()))?;
    let (asked, not_asked) = (saved.asked, saved.not_asked.len());
    screen.line(format!(
        "7. the same history at trust level expert: {not_asked} of {asked} approvals would not have been asked"
    ));
    for one in &saved.not_asked {
        screen.line(format!("   - {one}"));
    }
    check(not_asked > 0, "an expert is asked less")
}

fn broken(why: &str) -> CliError {
    CliError::new(Code::Failed, format!("the demonstration failed: {why}"))
}

fn check(holds: bool, what: &str) -> Result<(), CliError> {
    if holds { Ok(()) } else { Err(broken(what)) }
}
