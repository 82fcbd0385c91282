//! `completion` and `man`: what a shell completes, and the manual pages.
//!
//! Invariant: both are made from the grammar, so that they know every verb and option of the program, its own name, and what
//! it hides. Workflow ids are completed from the store as it is at that moment; a completion decides nothing, starts no
//! engine, and gives up after a second.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::{ListRequest, RunInfo};
use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{Bash, CompleteEnv, Elvish, EnvCompleter, Fish, Powershell, Zsh};

use super::Program;
use super::args::{Cli, Global};
use super::config::Loaded;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::locate::{Readable, locate_histories};
use super::output::{Format, Screen};
use super::reach;
use crate::batch::BATCH;
use crate::inbox::{HumanRequestKind, asked_by, asking_runs};
use crate::schedule::SCHEDULE;

/// Asks the program to complete a line, as the script that `completion` prints does.
const VARIABLE: &str = "BOSUN_COMPLETE";
/// Whoever presses a key waits no longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The newest runs, whose ids are offered.
const OFFERED: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    Powershell,
}

impl Shell {
    fn completer(self) -> &'static dyn EnvCompleter {
        match self {
            Shell::Bash => &Bash,
            Shell::Zsh => &Zsh,
            Shell::Fish => &Fish,
            Shell::Elvish => &Elvish,
            Shell::Powershell => &Powershell,
        }
    }
}

/// Prints the script that makes a shell ask this program.
pub(super) fn print(screen: &mut Screen, shell: Shell) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    let name = reach::program();
    let own = std::env::current_exe().map_or_else(|_| name.to_owned(), |path| path.display().to_string());
    let written = shell.completer().write_registration(VARIABLE, name, name, &own, &mut script);
    written.map_err(|why| CliError::new(Code::Failed, "the script cannot be written").cause(why))?;
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash {
        script = whole_words(&script);
    }
    screen.object("completion", serde_json::json!({ "script": script }));
    screen.document(Format::Text, &script);
    Ok(Exit::Ok)
}

/// bash takes `:` and `=` for ends of words, which stand in ids and in options: the words are put together again before the
/// program is asked, and what bash has typed already is left out of the answers.
fn whole_words(script: &str) -> String {
    const ASKED: &str = r#"    local words=("${COMP_WORDS[@]}")
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        words[COMP_CWORD]="$2"
    fi
"#;
    const WHOLE: &str = r#"    local words=() rest="${COMP_LINE}" before="" piece at
    for ((at = 0; at <= COMP_CWORD; at++)); do
        piece="${COMP_WORDS[at]}"
        if [[ $at -eq 0 || "$rest" == [[:blank:]]* ]]; then
            words+=("")
            rest="${rest#"${rest%%[![:blank:]]*}"}"
        fi
        rest="${rest#"$piece"}"
        before="${words[${#words[@]} - 1]}"
        if [[ $at -eq COMP_CWORD && "$piece" == [:=]* ]]; then
            before+="$piece"
        elif [[ $at -eq COMP_CWORD ]]; then
            piece="$2"
        fi
        words[${#words[@]} - 1]+="$piece"
    done
    _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1))
"#;
    const ANSWERED: &str = "    if [[ $? != 0 ]]; then\n        unset COMPREPLY\n";
    const LEFT_OUT: &str = "    if [[ $? != 0 ]]; then\n        unset COMPREPLY\n        return\n    fi\n    \
         if [[ -n \"$before\" ]]; then\n        COMPREPLY=(\"${COMPREPLY[@]#\"$before\"}\")\n    fi\n    \
         if [[ -z \"${COMPREPLY-}\" ]]; then\n        unset COMPREPLY\n";
    script.replace(ASKED, WHOLE).replace(ANSWERED, LEFT_OUT)
}

/// Answers the shell, if it is the shell that asks; then there is nothing else to do.
pub(super) fn answered(program: &Program, args: &[std::ffi::OsString]) -> bool {
    // Looked at first: making the grammar costs more than most commands.
    if crate::capability::environment::var(VARIABLE).is_none_or(|shell| shell.is_empty() || shell == "0") {
        return false;
    }
    let grammar = || with_ids(program.face.dress(Cli::command()), program);
    let here = std::env::current_dir().ok();
    match CompleteEnv::with_factory(grammar).var(VARIABLE).try_complete(args.iter().cloned(), here.as_deref()) {
        Ok(answered) => answered,
        Err(why) => {
            let _ = why.print();
            true
        }
    }
}

/// Of what there are ids in a place of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ids {
    Runs,
    Schedules,
    Batches,
    /// Of what waits for people: its runs have to be asked.
    Requests,
    /// The names of workflow types.
    Types,
    /// It is an id that there is not yet.
    Fresh,
}

/// What is offered in a place of a line.
#[derive(Debug, Clone, Copy)]
struct Offer {
    ids: Ids,
    /// The first of several words alone is one.
    once: bool,
}

impl Ids {
    /// Behind a noun and a verb. What a schedule starts has a workflow id of its own.
    fn at(path: &[String], arg: &str) -> Option<Offer> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let ids = match (path.as_slice(), arg) {
            (["schedule", "create"], "id") => Ids::Fresh,
            (["schedule", ..], "id") => Ids::Schedules,
            (["schedule", ..], "workflow_id") => Ids::Fresh,
            (["schedule", "create" | "update"], "words") => Ids::Types,
            (["batch", ..], "id") => Ids::Batches,
            (["approval", "list"], "id") | (["approval", ..], "run") => Ids::Runs,
            (["approval", ..], "id") => Ids::Requests,
            (_, "id" | "workflow_id") => Ids::Runs,
            ([.., "diff"], "left" | "right") => Ids::Runs,
            ([.., "start" | "execute" | "run"], "words" | "workflow_type") => Ids::Types,
            ([.., "fuzz"], "workflow_type") => Ids::Types,
            ([.., "signal" | "query"] | ["workflow", "update"] | ["update"], "words") => Ids::Runs,
            _ => return None,
        };
        Some(Offer { ids, once: arg == "words" })
    }

    /// The list filter of the runs that have them, and what of their workflow ids is not said.
    fn of_runs(self) -> (String, &'static str) {
        match self {
            Ids::Schedules => {
                let open = "ExecutionStatus IN ('Running', 'Paused')";
                (format!("WorkflowType = '{SCHEDULE}' AND {open}"), crate::schedule::ID_PREFIX)
            }
            Ids::Batches => (format!("WorkflowType = '{BATCH}'"), crate::batch::ID_PREFIX),
            Ids::Runs | Ids::Requests | Ids::Types | Ids::Fresh => (String::new(), ""),
        }
    }
}

/// The grammar with the ids of runs wherever a run is named, and of what else has ids where that is named.
fn with_ids(command: Command, program: &Program) -> Command {
    let program = Arc::new(program.clone());
    in_all(command, &[], &move |command, path| {
        command.mut_args(|arg| {
            let program = program.clone();
            match Ids::at(path, arg.get_id().as_str()) {
                Some(offer) => arg.add(ArgValueCompleter::new(move |begun: &OsStr| offered(&program, offer, begun))),
                None => arg,
            }
        })
    })
}

fn in_all(command: Command, path: &[String], change: &dyn Fn(Command, &[String]) -> Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| {
        let below: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
        command.mut_subcommand(name, |verb| in_all(verb, &below, change))
    });
    change(command, path)
}

/// Ids that begin so, the newest first, each with what it is.
fn offered(program: &Program, offer: Offer, begun: &OsStr) -> Vec<CompletionCandidate> {
    let ids = offer.ids;
    if ids == Ids::Fresh {
        return Vec::new();
    }
    let begun = begun.to_string_lossy().into_owned();
    // Everything behind `--` is the line that is being written.
    let line: Vec<_> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let Some(global) = global_of(&line) else { return Vec::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let (query, prefix) = ids.of_runs();
    let asked = async {
        let readable = locate_histories(&global, &*program.opener).await.ok()?;
        if ids == Ids::Requests {
            return Some(requested(&readable, &global.namespace).await);
        }
        let runs = readable.histories().list(ListRequest { query, limit: OFFERED }).await.ok()?;
        let here = runs.into_iter().filter(|run| run.namespace.as_str() == global.namespace);
        if ids == Ids::Types {
            // A worker may know others than this program.
            return Some(here.map(|run| (run.workflow_type.to_string(), "a workflow type".to_owned())).collect());
        }
        Some(
            here.filter_map(|run| Some((run.workflow_id.as_str().strip_prefix(prefix)?.to_owned(), about(&run))))
                .collect(),
        )
    };
    let mut found =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, asked).await }).ok().flatten().unwrap_or_default();
    if ids == Ids::Types {
        found.extend(program.opener.workflow_types().into_iter().map(|name| (name, "a workflow type".to_owned())));
        found.retain(|(name, _)| !name.starts_with("bosun."));
    }
    // The line has one already.
    if offer.once && line.iter().rev().skip(1).any(|word| found.iter().any(|(id, _)| word.to_str() == Some(id))) {
        return Vec::new();
    }
    let files = match (ids, offer.once) {
        (Ids::Types, true) => PathCompleter::any().complete(OsStr::new(&begun)),
        _ => Vec::new(),
    };
    let mut known = BTreeSet::new();
    // Of the runs of one id the newest says what it is.
    let fitting = found.into_iter().filter(|(id, _)| id.starts_with(&begun) && known.insert(id.clone()));
    fitting.map(|(id, help)| CompletionCandidate::new(id).help(Some(help.into()))).chain(files).collect()
}

fn about(run: &RunInfo) -> String {
    format!("{}, {}", run.workflow_type, run.status)
}

/// What waits for people, as the worker's runs say it: without a worker nobody is asked.
async fn requested(readable: &Readable, namespace: &str) -> Vec<(String, String)> {
    let Readable::Attached(client) = readable else { return Vec::new() };
    let Ok(asking) = asking_runs(client, "", None).await else { return Vec::new() };
    let here: Vec<_> = asking.runs.into_iter().filter(|(target, _)| target.namespace.as_str() == namespace).collect();
    let (all, _) = asked_by(client, &here).await;
    let told = all.iter().filter(|one| one.kind != HumanRequestKind::Elsewhere);
    told.map(|one| (one.id().to_owned(), format!("{} of {}", one.word(), one.target.workflow_id))).collect()
}

/// The data directory, the address and the namespace that a line names which is not finished yet.
fn global_of(line: &[std::ffi::OsString]) -> Option<Global> {
    let loaded = Loaded::of(line, &crate::capability::environment::var).ok()?;
    let command = loaded.defaults_of(Cli::command()).ignore_errors(true);
    let matches = command.try_get_matches_from([OsStr::new("bosun"), OsStr::new("version")]).ok()?;
    let mut global = super::args::of_matches(&matches).ok()?.global;
    let named = |option: &str| {
        let place = line.iter().rposition(|word| word == option);
        let joined = format!("{option}=");
        let inside = line.iter().rev().find_map(|word| word.to_str()?.strip_prefix(&joined).map(str::to_owned));
        place.and_then(|place| line.get(place + 1)?.to_str().map(str::to_owned)).or(inside)
    };
    if let Some(data) = named("--data") {
        global.data = PathBuf::from(data);
    }
    global.address = named("--address").or(global.address);
    if let Some(namespace) = named("--namespace") {
        (global.namespace, global.namespace_named) = (namespace, true);
    }
    Some(global)
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write a page for each verb into this directory, which is created. Without it, print the page of the program itself.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn man(screen: &mut Screen, program: &Program, args: &ManArgs) -> Result<Exit, CliError> {
    let cannot = |why: std::io::Error| CliError::new(Code::Failed, "the manual cannot be written").cause(why);
    let command = program.face.dress(Cli::command());
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(cannot)?;
        let page = String::from_utf8_lossy(&page);
        screen.object("man", serde_json::json!({ "page": page }));
        screen.document(Format::Text, &page);
        return Ok(Exit::Ok);
    };
    std::fs::create_dir_all(dir).map_err(cannot)?;
    clap_mangen::generate_to(command, dir).map_err(cannot)?;
    let pages = std::fs::read_dir(dir).map_err(cannot)?.count();
    screen.object("man", serde_json::json!({ "dir": dir, "pages": pages }));
    screen.line(format!("{pages} pages in {}", dir.display()));
    screen.next(&format!("man -l {}", dir.join(format!("{}.1", reach::program())).display()));
    Ok(Exit::Ok)
}
