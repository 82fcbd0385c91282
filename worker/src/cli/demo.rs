//! `demo`: a supervisor that waits for an approval is killed with -9, started again, approved, and publishes once.
//!
//! Invariant: it uses the program itself as any user would: another process is the worker, commands reach it through the
//! data directory, and what is claimed at the end is read from the history and from the published file. It works in a
//! directory of its own, which it makes, and removes nothing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use bosun_replay::{HistoryFile, Limits};
use clap::Args;

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
    /// Where to work [default: a new directory below the one for temporary files].
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
    let stage = Stage { program: std::env::current_exe().map_err(failed)?, data: dir.join("data"), dir: dir.clone() };
    let (screen, ended) = tokio::task::block_in_place(|| {
        let ended = stage.play(screen, &spec, &published);
        (screen, ended)
    });
    ended?;
    screen.note(&format!("everything is in {}", dir.display()));
    Ok(Exit::Ok)
}

struct Stage {
    program: PathBuf,
    data: PathBuf,
    dir: PathBuf,
}

impl Stage {
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
        screen.line("4. started again: the same approval still waits, no agent was asked again".to_owned());
        self.bosun(&["approval", "approve", &approval, "--by", "ann"])?;
        let ended = second.wait().map_err(|why| broken(&why.to_string()))?;
        check(ended.success(), "the approved run completes")?;
        let lines = std::fs::read_to_string(published).unwrap_or_default().lines().count();
        check(lines == 1, &format!("published once, not {lines} times"))?;
        screen.line("5. approved by ann: published exactly once".to_owned());
        let twice = self.called_twice()?;
        check(twice.is_empty(), &format!("no agent was called twice: {twice:?}"))?;
        screen.line("6. the history shows every call once".to_owned());
        self.expert(screen)
    }

    /// The same history under the trust of an expert.
    fn expert(&self, screen: &mut Screen) -> Result<(), CliError> {
        let file = self.dir.join("market.json");
        let path = file.to_string_lossy().into_owned();
        self.bosun(&["export", ID, "--out", &path])?;
        let loaded = HistoryFile::load(&file, &Limits::default()).map_err(|why| broken(&why.to_string()))?;
        let HistoryFile::Bosun(history) = loaded else { return Err(broken("the export is no history of ours")) };
        let saved = approvals_as_expert(history.turns()).map_err(|why| broken(&why))?;
        screen.line(format!(
            "7. the same history at trust level expert: {} of {} approvals would not have been asked",
            saved.not_asked.len(),
            saved.asked
        ));
        for one in &saved.not_asked {
            screen.line(format!("   - {one}"));
        }
        check(!saved.not_asked.is_empty(), "an expert is asked less")
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
            if let Ok(text) = self.bosun(&["-o", "json", "approval", "list"])
                && let Some(id) = id_in(&text)
            {
                return Ok(id);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(broken("nobody was asked for an approval in time"))
    }

    /// Calls that were scheduled more than once.
    fn called_twice(&self) -> Result<Vec<String>, CliError> {
        let text = self.bosun(&["-o", "json", "show", ID])?;
        let mut seen = std::collections::BTreeSet::new();
        let summaries = summaries(&text);
        Ok(summaries.into_iter().filter(|summary| !seen.insert(summary.clone())).collect())
    }
}

/// The first approval's id in a list.
fn id_in(text: &str) -> Option<String> {
    let begin = text.find("\"kind\"")?;
    let id = text[begin..].find("\"id\"").map(|at| &text[begin + at + 4..])?;
    Some(id.split('"').nth(1)?.to_owned())
}

/// The summaries of scheduled activities in a history.
fn summaries(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in text.split("ActivityTaskScheduled").skip(1) {
        if let Some(at) = part.find("\"summary\"") {
            found.extend(part[at + 9..].split('"').nth(1).map(str::to_owned));
        }
    }
    found
}

fn broken(why: &str) -> CliError {
    CliError::new(Code::Failed, format!("the demonstration failed: {why}"))
}

fn check(holds: bool, what: &str) -> Result<(), CliError> {
    if holds { Ok(()) } else { Err(broken(what)) }
}
