//! How a command that is printed reaches the runs that it is printed for: what was said of the data directory, the API and the
//! namespace is said again.
//!
//! Invariant: a hint can be copied as it stands, in the same folder and with the same environment. Only our own hints are
//! completed, never a text of a workflow.

use std::sync::OnceLock;

use bosun_engine::{DEFAULT_NAMESPACE, Namespace};
use clap::CommandFactory;

use super::args::{Cli, Global};
use super::list::shell_word;

/// How this program is called, where it is not `bosun`.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// The name of the stock program, as hints are written.
const STOCK: &str = "bosun";

/// From here on hints name this program.
pub(super) fn call_program(name: &str) {
    // A process has one name; whoever sets it first has read it off the command line.
    let _ = PROGRAM.set(name.to_owned());
}

/// How this program is called.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or(STOCK, String::as_str)
}

/// Whether that is the name of the stock program.
pub(super) fn is_stock() -> bool {
    program() == STOCK
}

/// What follows `bosun` in a hint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    options: String,
    /// The same for the worker itself, which is asked at no address.
    of_worker: String,
}

/// Where a store is named otherwise, or nothing is looked for in one.
const ELSEWHERE: [&str; 6] = ["explain", "help", "version", "schema", "config", "test"];

impl Reach {
    /// What of the command line the environment does not say to every command.
    pub fn of(global: &Global, environment: impl Fn(&str) -> Option<String>) -> Reach {
        let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
        // Where the environment of a cluster may name another.
        let own = global.namespace_named && global.temporal.is_some();
        let payloads = global.payload_store.as_deref().filter(|_| global.temporal.is_some());
        let said = [
            ("--data", "BOSUN_STORE", Some(path(&global.data)).filter(|data| data != ".bosun")),
            ("--address", "BOSUN_ADDRESS", global.address.clone()),
            ("--temporal", "BOSUN_TEMPORAL", global.temporal.clone()),
            ("--payload-store", "BOSUN_PAYLOAD_STORE", payloads.map(path)),
            ("--token-file", "BOSUN_TOKEN_FILE", global.token_file.as_deref().map(path)),
            ("--namespace", "BOSUN_NAMESPACE", Some(global.namespace.clone()).filter(|name| name != "default" || own)),
        ];
        let (mut options, mut of_worker) = (String::new(), String::new());
        for (option, variable, value) in said {
            if let Some(value) = value.filter(|value| environment(variable).as_ref() != Some(value)) {
                let said = format!(" {option} {}", shell_word(&value));
                options.push_str(&said);
                if ["--data", "--temporal", "--payload-store"].contains(&option) {
                    of_worker.push_str(&said);
                }
            }
        }
        Reach { options, of_worker }
    }

    /// A command for a run in this namespace, where nothing else has named one.
    pub(crate) fn complete_in(&self, namespace: &Namespace, command: &str) -> String {
        // A worker and its queues are of no namespace.
        let is_of_none = ["bosun worker ", "bosun queue "].iter().any(|verb| command.starts_with(verb));
        match namespace.as_str() {
            DEFAULT_NAMESPACE => self.complete(command),
            _ if is_of_none || command.is_empty() => self.complete(command),
            other => self.complete(&format!("{command} --namespace {}", shell_word(other))),
        }
    }

    /// A hint of ours whose commands reach the same place.
    pub fn complete(&self, hint: &str) -> String {
        let mut parts = hint.split("bosun ");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let begins = text.chars().next_back().is_none_or(|before| " `(".contains(before));
            let end = part.find(['`', '·']).unwrap_or(part.len());
            let verb = part.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap_or_default();
            let is_one = begins && (verb == "help" || Cli::command().find_subcommand(verb).is_some());
            text.push_str(if is_one { program() } else { STOCK });
            // These two name both directories themselves.
            let is_copy = ["store restore ", "store salvage "].iter().any(|verb| part.starts_with(verb));
            if is_one && !is_copy && !ELSEWHERE.contains(&verb) && !part[..end].contains("--data") {
                text.push_str(if part.starts_with("worker run") { &self.of_worker } else { &self.options });
            }
            text.push(' ');
            text.push_str(part);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(words: &[&str]) -> Reach {
        use clap::Parser;
        let words = ["bosun"].iter().chain(words).chain(&["version"]);
        let cli = super::super::args::Cli::try_parse_from(words).unwrap();
        Reach::of(&cli.global, |name| (name == "BOSUN_NAMESPACE").then(|| "team".to_owned()))
    }

    #[test]
    fn hints_name_the_place_that_the_command_named() {
        let here = reach(&["--data", "my runs", "--namespace", "team"]);
        assert_eq!(here.complete("bosun approval approve 1/2"), "bosun --data 'my runs' approval approve 1/2");
        assert_eq!(
            here.complete("`bosun list` shows all, `bosun explain X` tells why"),
            "`bosun --data 'my runs' list` shows all, `bosun explain X` tells why"
        );
        assert_eq!(
            here.complete("bosun result a · bosun diff a b"),
            "bosun --data 'my runs' result a · bosun --data 'my runs' diff a b"
        );
        assert_eq!(here.complete("bosun list --data other"), "bosun list --data other");
        for other in ["the directory .bosun is gone", "no bosun is here", "bosun"] {
            assert_eq!(here.complete(other), other);
        }
    }

    #[test]
    fn a_command_for_a_run_names_its_namespace() {
        let here = reach(&["--data", "d"]);
        let of = |namespace: &str, command: &str| here.complete_in(&Namespace::of(namespace), command);
        assert_eq!(of("default", "bosun resume a"), "bosun --data d resume a");
        assert_eq!(of("team a", "bosun resume a"), "bosun --data d resume a --namespace 'team a'");
        assert_eq!(of("team", "bosun queue list"), "bosun --data d queue list");
    }

    #[test]
    fn what_was_not_named_is_not_repeated() {
        assert_eq!(reach(&["--namespace", "team"]), Reach::default());
        assert_eq!(Reach::default().complete("bosun list"), "bosun list");
        assert_eq!(
            reach(&["--address", "http://127.0.0.1:1", "--namespace", "other"]).complete("bosun list"),
            "bosun --address http://127.0.0.1:1 --namespace other list"
        );
        assert_eq!(reach(&["--address", "http://127.0.0.1:1"]).complete("bosun worker run"), "bosun worker run");
    }
}
