//! What a verb works with: a backend, a screen, and who is asking.
//!
//! Invariant: a verb reaches runs through the backend only, and prints through the screen only, so that a test can
//! give it both. How the backend was found does not show here, except for whether anybody carries runs on.

use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde_json::Value;

use super::error::{CliError, one_line};
use super::explain::Code;
use super::input::asked_outside;
use super::list::run_word;
use super::output::Screen;
use super::reconnect::Reconnect;
use crate::backend::{Attribution, Backend};

pub struct Context {
    pub backend: Arc<dyn Backend>,
    pub screen: Screen,
    pub identity: Identity,
    pub namespace: Namespace,
    pub yes: bool,
    pub no_input: bool,
    /// Whether somebody carries runs on: a worker we are attached to, or this process.
    pub carried_on: bool,
    /// Whether the backend is another process: paths and waiting mean something else then.
    pub attached: bool,
    pub reconnect: Reconnect,
    /// The run that the verb waits for or follows.
    pub awaited: Option<WorkflowId>,
    pub plans: Option<PlanLoader>,
    /// The workflow code of this program.
    pub workflows: WorkflowRegistry,
}

/// A plan file, read: the workflow it starts and its input.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFile {
    /// For the workflow id and for people.
    pub name: String,
    /// The workflow that carries it out.
    pub workflow_type: WorkflowType,
    /// What that is started with.
    pub input: Payload,
    /// What whoever starts it should know.
    pub notes: Vec<String>,
    /// Printed in place of a start: a program that called this one reads it (SUP-08).
    pub refused: Option<Value>,
}

/// A plan file as somebody wants it run.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRequest {
    /// The file.
    pub path: PathBuf,
    /// A mapping like the file itself, which wins over it.
    pub overrides: Value,
    /// How deep below other runs or processes.
    pub depth: u32,
}

/// Reads a plan file. The error is for people and names the field.
pub type PlanLoader = fn(&PlanRequest) -> Result<PlanFile, String>;

impl Context {
    pub fn because(&self, reason: Option<&str>) -> Attribution {
        let reason = reason.unwrap_or_default().to_owned();
        Attribution { reason, identity: Some(self.identity.clone()), request_id: None }
    }

    /// A run that is open and that nobody carries on would be taken for one that hangs.
    pub fn say_if_nobody_works(&mut self) {
        if !self.carried_on {
            let hint = self.screen.reach.complete("`bosun worker run`");
            self.screen.note(&format!("no worker runs: open runs go on when one does ({hint})"));
        }
    }

    /// Asks on the terminal, or refuses where nobody can answer.
    pub fn confirm(&mut self, question: &str) -> Result<(), CliError> {
        if self.yes {
            return Ok(());
        }
        let refused =
            |why: &str| Err(CliError::new(Code::NotConfirmed, why).help("add --yes to do it without a question"));
        if self.no_input || !std::io::stdin().is_terminal() {
            return refused(&format!("{question} needs a yes, and nobody can be asked"));
        }
        let ask = || self.screen.draw(&format!("{}? [y/N] ", one_line(question)));
        let read = asked_outside(ask, || {
            let mut answer = String::new();
            io::stdin().lock().read_line(&mut answer).map(|_| answer)
        });
        let answer = read.inspect_err(|_| self.screen.draw("\n"))?;
        match answer.map(|answer| answer.trim().to_ascii_lowercase()).as_deref() {
            Ok("y" | "yes") => Ok(()),
            _ => refused("not confirmed"),
        }
    }

    /// What becomes of what an interrupted verb waited for.
    pub(super) fn goes_on(&self, why: CliError) -> CliError {
        if why.code != Code::Interrupted || why.help.is_some() {
            return why;
        }
        match &self.awaited {
            Some(id) if self.attached => {
                let id = run_word(id.as_str());
                why.help(format!("the run goes on; `bosun result {id}` waits for its end"))
            }
            None if self.attached => why.help("what the worker does goes on without this command"),
            _ => why.help("what was recorded stays; the same command goes on where this one stopped"),
        }
    }
}

/// `user@host`, as it is recorded in histories: who the process belongs to, and not what its environment says.
pub fn identity() -> Identity {
    let uid = rustix::process::getuid().as_raw();
    let named = std::fs::read_to_string("/etc/passwd").ok().and_then(|users| user_of(&users, uid));
    let user = named.unwrap_or_else(|| format!("uid{uid}"));
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    let host = host.unwrap_or_else(|_| "localhost".to_owned());
    let clean: String = format!("{user}@{}", host.trim()).chars().filter(|c| !c.is_control()).take(100).collect();
    Identity::new(clean).unwrap_or_else(|_| Identity::of("unknown"))
}

/// The name of a user id in `/etc/passwd`.
fn user_of(users: &str, uid: u32) -> Option<String> {
    let mut lines = users.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_by_the_system() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbad\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(user_of(users, 0).as_deref(), Some("root"));
        assert_eq!(user_of(users, 1000).as_deref(), Some("ann"));
        assert_eq!(user_of(users, 7), None);
    }
}
