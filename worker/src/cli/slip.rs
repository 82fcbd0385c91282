//! What people type who know other tools: words, options and values that this command line does not take, each with what it has
//! for them.
//!
//! Invariant: nothing is guessed and nothing is done: clap has refused the line, and one sentence is added to what it says.
//! Whoever says that a run shall end is told how; no other slip leads to a verb that destroys something.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use super::DESTRUCTIVE;
use super::args::Cli;
use super::reach::Reach;
use crate::supervisor::fields::similar;

const ENDS: &str = "`bosun pause ID` holds a run, `bosun cancel ID` lets its code end it, `bosun terminate ID` ends it at \
     once; `bosun worker stop` ends the worker";

/// Verbs of other tools.
const VERBS: &[(&[&str], &str)] = &[
    (
        &["status", "get", "inspect", "info"],
        "`bosun describe ID` shows how a run stands, `bosun list` how all of them do",
    ),
    (&["ps"], "`bosun list` shows the runs, `bosun top` what is going on"),
    (&["stop", "kill"], ENDS),
    (
        &["logs", "log"],
        "`bosun show ID --follow` shows what a run does, event by event; log lines are the worker's, on its standard error",
    ),
    (
        &["trace", "follow", "tail", "watch", "attach", "stream"],
        "`bosun show ID --follow` gives the events of a run as they come, `bosun result ID` draws it until it ends",
    ),
    (&["history", "events"], "`bosun show ID` shows the history of a run"),
    (&["stack", "metadata"], "`bosun describe ID` shows what the code of a run awaits, with its lines"),
    (
        &["approve", "reject", "answer"],
        "`bosun approval list` shows what waits for a person, with the command that answers",
    ),
    (&["serve", "server", "daemon"], "`bosun worker run` starts a worker, `bosun dev` one with pages and sample runs"),
    (&["import"], "`show`, `diff`, `fork` and `replay` take the file of a history where they take a run"),
    (&["upgrade"], "`bosun replay check --query FILTER` says which runs fit the code"),
    (&["new"], "`bosun init` makes a project, `bosun start` and `bosun run` a run"),
    (&["runs", "workflows"], "`bosun list` shows the runs"),
    (&["inbox", "tasks", "todo"], "`bosun approval list` shows what waits for a person, with the command that answers"),
    (
        &["restart", "rerun", "retry"],
        "`bosun reset ID --to first-turn` begins a run anew under its id, `bosun run FILE.yaml --again` a spec",
    ),
    (&["workers"], "`bosun worker describe` shows the worker of the directory"),
    (&["top-up", "topup"], "`bosun budget top-up ID` gives a run more to spend"),
];

/// The same of verbs of one noun: what nobody built here, with what there is instead (operating.md says why).
const NOUN_VERBS: &[(&str, &[&str], &str)] = &[
    ("worker", &["list", "ls"], "a directory has one worker: `bosun worker describe` shows it"),
    ("worker", &["start", "serve"], "`bosun worker run` starts it"),
    ("budget", &["set", "update"], "nothing lowers a budget: `bosun budget top-up ID` raises it"),
    (
        "store",
        &["retention"],
        "`bosun worker run --retention 30d` says how long closed runs are kept; `bosun store info` shows it",
    ),
    (
        "store",
        &["migrate", "upgrade"],
        "a store of an older version is read as it is; `bosun store info` shows its format",
    ),
    ("schedule", &["toggle"], "`bosun schedule pause ID` and `bosun schedule unpause ID`"),
    (
        "schedule",
        &["list-matching-times", "times"],
        "`bosun schedule next` shows the times of a spec, `bosun schedule describe ID` those of a schedule",
    ),
    (
        "schedule",
        &["run", "start"],
        "`bosun schedule trigger ID` starts one now, `bosun schedule create` makes a schedule",
    ),
    ("config", &["delete", "remove", "rm"], "`bosun config unset KEY`"),
    (
        "agent",
        &["test"],
        "an agent exists only in a run: run a spec of one agent; `bosun llm ping MODEL` only checks that its model answers",
    ),
    (
        "agent",
        &["enable", "disable", "recruit"],
        "the spec of a run says who works in it: `bosun takeover ID` holds all agents, `bosun plan revise ID` gives their tasks to others",
    ),
    ("replay", &["run"], "`bosun replay check ID` does this, for one history or for many"),
    (
        "cassette",
        &["list", "verify", "redact", "prune"],
        "a cassette is a JSON file, without keys in it: use `ls`, `jq` and `rm`",
    ),
];

/// Options of other tools, and those of another verb: the verb, the option, and what there is.
const OPTIONS: &[(&[&str], &[&str], &str)] = &[
    (
        &["run", "execute"],
        &["--detach", "-d", "--background"],
        "`bosun start TYPE` starts a workflow and returns; beside `bosun worker run`, a run of a spec goes on when you leave it \
         with Ctrl-C, and `bosun run SPEC --no-wait` leaves it as soon as it waits for a person",
    ),
    (
        &["approve", "reject"],
        &["--reason", "--message", "-m"],
        "the words of a decision are its --comment; --feedback sends the work back",
    ),
    (
        &["show"],
        &["--raw", "--json"],
        "`bosun show ID -o json` prints the events as they are, and `bosun export ID` writes a file",
    ),
    (
        &["terminate", "cancel", "signal"],
        &["--all"],
        "many runs are named by a filter: `--query \"ExecutionStatus = 'Running'\"`; with --dry-run it shows which they are",
    ),
    (&["list"], &["--status"], "write `bosun list --query \"ExecutionStatus = 'Running'\"`"),
    (&["list", "show"], &["-n"], "--limit N says how many are shown"),
];

/// Adds what helps, where it is known.
pub(super) fn explained(mut why: clap::Error, args: &[OsString]) -> clap::Error {
    if let Some(help) = help(&why, &path(args)) {
        let styled = StyledStr::from(Reach::default().complete(&help));
        why.remove(ContextKind::SuggestedSubcommand);
        why.remove(ContextKind::SuggestedArg);
        why.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![styled]));
    }
    why
}

fn help(why: &clap::Error, path: &[String]) -> Option<String> {
    let text = |kind: ContextKind| match why.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let verb = path.last().map(String::as_str).unwrap_or_default();
    match why.kind() {
        ErrorKind::InvalidSubcommand if path.iter().all(|noun| noun == "workflow") => {
            let typed = text(ContextKind::InvalidSubcommand)?;
            let of =
                VERBS.iter().find(|(words, _)| words.contains(&typed.as_str())).map(|(_, help)| (*help).to_owned());
            // `help` itself looks for nothing similar.
            of.or_else(|| like(&typed).filter(|_| why.get(ContextKind::SuggestedSubcommand).is_none()))
        }
        ErrorKind::InvalidSubcommand => {
            let typed = text(ContextKind::InvalidSubcommand)?;
            let of = |(noun, words, _): &&(&str, &[&str], &str)| *noun == verb && words.contains(&typed.as_str());
            NOUN_VERBS.iter().find(of).map(|(_, _, help)| (*help).to_owned())
        }
        ErrorKind::UnknownArgument => {
            let typed = text(ContextKind::InvalidArg)?;
            let fits = |(verbs, options, _): &&(&[&str], &[&str], &str)| {
                verbs.contains(&verb) && options.contains(&typed.split('=').next().unwrap_or_default())
            };
            OPTIONS.iter().find(fits).map(|(_, _, help)| (*help).to_owned())
        }
        ErrorKind::ValueValidation if text(ContextKind::InvalidArg)?.starts_with("--limit") => {
            Some("--limit takes how many are shown, as a number: `--limit 20`".to_owned())
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = text(ContextKind::InvalidArg)?;
            match verb {
                "reset" if missing.starts_with("--to") => Some(
                    "`bosun show ID` shows the events: `bosun reset ID --to 5` keeps five of them, `--to first-turn` begins again, \
                     `--to last-turn` decides the last turn again"
                        .to_owned(),
                ),
                "list" if path.first().is_some_and(|noun| noun == "agent") => Some(
                    "agents belong to runs: `bosun list` shows the runs, `bosun agent describe NAME` how an agent has done in all \
                     of them"
                        .to_owned(),
                ),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The verb or noun that was probably meant, unless it ends something.
fn like(typed: &str) -> Option<String> {
    let command = Cli::command();
    let known: Vec<&str> =
        command.get_subcommands().map(Command::get_name).filter(|verb| !DESTRUCTIVE.contains(verb)).collect();
    similar(typed, &known).map(|verb| format!("a similar subcommand exists: `bosun {verb}`"))
}

/// The nouns and verbs of a line.
fn path(args: &[OsString]) -> Vec<String> {
    let (mut at, mut path): (Command, Vec<String>) = (Cli::command(), Vec::new());
    for word in args.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(next) = at.find_subcommand(word).cloned() {
            path.push(next.get_name().to_owned());
            at = next;
        }
    }
    path
}
