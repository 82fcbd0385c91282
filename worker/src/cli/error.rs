//! Errors as people see them: `error[BOSUN0007]: …`, the cause, and what to do.
//!
//! Invariant: every error has a code of the table in `explain`, and through it an exit code. Errors go to stderr.

use bosun_engine::{
    FIRST_TURN_BACKS_OFF, InvalidId, NOTHING_STARTED, QueryError, RUN_IS_PAUSED, Rejection, START_IS_DELAYED,
    WorkflowId,
};
use serde_json::json;

use super::explain::Code;
use super::list::run_word;
use super::reach::program;
use crate::backend::{CallError, OpenError, PAYLOAD_STORE_CODE};

/// Why a command did not do what it was asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    pub code: Code,
    pub message: String,
    pub cause: Option<String>,
    pub help: Option<String>,
}

impl CliError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        CliError { code, message: message.into(), cause: None, help: None }
    }
    pub fn usage(message: impl Into<String>) -> Self {
        CliError::new(Code::Usage, message)
    }
    /// A file that somebody named, whatever for.
    pub(super) fn no_file(path: impl std::fmt::Display, why: &std::io::Error) -> Self {
        CliError::new(Code::NoFile, format!("the file {path} cannot be read")).cause(why)
    }
    pub fn cause(mut self, cause: impl ToString) -> Self {
        self.cause = Some(cause.to_string());
        self
    }
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same with the run that it is about in the commands that help.
    pub(super) fn about(mut self, id: &WorkflowId) -> Self {
        if let Some(help) = &mut self.help {
            *help = help.replace("`bosun resume ID`", &format!("`bosun resume {}`", run_word(id.as_str())));
        }
        self
    }

    /// For people.
    pub fn render(&self, color: bool) -> String {
        let (red, bold, off) = if color { ("\x1b[1;31m", "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}error[{}]{off}{bold}: {}{off}\n", self.code, below(&self.message));
        if let Some(cause) = &self.cause {
            text.push_str(&format!("  cause: {}\n", below(cause)));
        }
        if let Some(help) = &self.help {
            text.push_str(&format!("  help: {}\n", below(help)));
        }
        text.push_str(&format!("  for more: {} explain {}\n", program(), self.code));
        text
    }

    /// For programs, on stderr with `-o json` and `-o jsonl`.
    pub fn json(&self) -> String {
        json!({
            "schema": "bosun.error/1",
            "code": self.code.to_string(),
            "message": self.message,
            "cause": self.cause,
            "help": self.help,
            "exit": self.code.exit().number(),
        })
        .to_string()
    }
}

/// Text whose further lines stand further in than any line of our own.
fn below(text: &str) -> String {
    printable(text).replace('\n', "\n    ")
}

/// Text from elsewhere without what could steer a terminal or turn its lines around. Line breaks stay, as a diff needs
/// them: what must be one line is put through [`one_line`].
pub fn printable(text: &str) -> String {
    let shown = |c: char| if misleads(c) && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

/// The same on one line: nothing in it can look like a line of its own.
pub fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// Control characters, other line breaks, and those that change the direction of what is shown or are not shown at all.
pub(crate) fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

impl From<Rejection> for CliError {
    fn from(rejection: Rejection) -> Self {
        let error = CliError::new(Code::of_rejection(&rejection), rejection.to_string());
        match &rejection {
            Rejection::NotFound { .. } => error.help("`bosun list` shows the newest runs"),
            Rejection::Closed { workflow_id, .. } => {
                error.help(format!("`bosun result {}` shows how it ended", run_word(workflow_id.as_str())))
            }
            Rejection::AlreadyOpen { workflow_id, .. } => {
                error.help(format!("`bosun describe {}` shows the open run", run_word(workflow_id.as_str())))
            }
            Rejection::UnknownWorkflowType { workflow_type, known } => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let near = crate::supervisor::fields::similar(workflow_type.as_str(), &known);
                let file = workflow_type.as_str();
                let is_file = [".yaml", ".yml", ".json"].iter().any(|ending| file.ends_with(ending));
                error.help(match near {
                    _ if is_file => {
                        format!("a spec or a plan is run by its file: `bosun run {file}`, or `run --no-wait`")
                    }
                    Some(near) => format!("did you mean `{near}`? A spec is run by its file: `bosun run FILE.yaml`"),
                    None => {
                        "register it in the program of this worker; a spec is run by its file: `bosun run FILE.yaml`"
                            .to_owned()
                    }
                })
            }
            Rejection::Held { why } if why.starts_with(NOTHING_STARTED) => {
                error.help("mend the workflow code, or its input, and start it again")
            }
            // One that says itself what helps.
            Rejection::Held { why } if why.contains("`bosun ") => error,
            Rejection::Held { why } if why == RUN_IS_PAUSED => {
                error.help("nothing was kept: `bosun resume ID` lets the run go on; send it again then")
            }
            Rejection::Held { why } if [START_IS_DELAYED, FIRST_TURN_BACKS_OFF].contains(&why.as_str()) => error
                .help("nothing was kept: send it again when the code has begun, or send a signal, which waits for it"),
            Rejection::Held { .. } => {
                error.help("deploy workflow code that fits the history; inputs are kept until then")
            }
            _ => error,
        }
    }
}

impl From<CallError> for CliError {
    fn from(why: CallError) -> Self {
        match why {
            CallError::Rejected(Rejection::Query(QueryError::Unknown { name, known })) if known.is_empty() => {
                CliError::new(Code::UnknownQuery, format!("no query named {name}: this workflow answers none"))
            }
            CallError::Rejected(rejection) => rejection.into(),
            CallError::Unreachable { address, why } => {
                CliError::new(Code::Unreachable, format!("the worker at {address} cannot be reached")).cause(why)
            }
            why @ CallError::Unproven { .. } => CliError::new(Code::Unproven, why.to_string())
                .help("name the worker's own address and token file, with --address and --token-file"),
            CallError::Refused { status: 403, message, .. } => CliError::new(Code::Forbidden, message),
            why @ CallError::Unauthorized { .. } => CliError::new(Code::Unauthorized, why.to_string())
                .help("name the worker's token file with --token-file or BOSUN_TOKEN_FILE"),
            // What it is says why, wherever it was asked.
            CallError::Refused { status: 409, code, message }
                if ["is_schedule", "is_batch"].contains(&code.as_str()) =>
            {
                CliError::new(Code::Invalid, message)
            }
            CallError::Refused { code, message, .. } if code == PAYLOAD_STORE_CODE => {
                CliError::new(Code::PayloadNotHad, message)
            }
            // Of a cluster, which has no control API: its words are enough.
            CallError::Refused { status: 501 | 503 | 504, message, .. } => CliError::new(Code::ApiRefused, message),
            why @ CallError::Refused { .. } => CliError::new(Code::ApiRefused, why.to_string()),
        }
    }
}

impl From<InvalidId> for CliError {
    fn from(why: InvalidId) -> Self {
        CliError::new(Code::Invalid, why.to_string())
    }
}

impl From<OpenError> for CliError {
    fn from(why: OpenError) -> Self {
        let code = match &why {
            OpenError::Missing(_) => Code::NoStore,
            OpenError::Locked(_) => Code::StoreLocked,
            OpenError::Corrupt(_) => Code::Corrupt,
            OpenError::Unsupported(_) => Code::Unsupported,
            OpenError::MissingKey(_) => Code::NoKey,
            OpenError::RolledBack(_) => Code::RolledBack,
            OpenError::Refused(_) => Code::Failed,
            OpenError::Taken(_) => Code::Invalid,
            OpenError::Full(_) => Code::StorageFull,
            OpenError::Unreachable(_) => Code::Unreachable,
            OpenError::Failed(_) => Code::StorageFailed,
        };
        let error = CliError::new(code, why.to_string());
        match code {
            Code::NoStore => error.help("name an existing directory with --data or BOSUN_STORE"),
            Code::StoreLocked => error.help("wait for it to end, or name its control API with --address"),
            Code::Corrupt => error.help("`bosun store verify` names every damaged place"),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_code_cause_and_help() {
        let error = CliError::new(Code::StoreLocked, "another process holds ./data").cause("pid 7").help("try again");
        assert_eq!(
            error.render(false),
            "error[BOSUN0007]: another process holds ./data\n  cause: pid 7\n  help: try again\n  \
             for more: bosun explain BOSUN0007\n"
        );
        assert_eq!(
            error.json(),
            r#"{"schema":"bosun.error/1","code":"BOSUN0007","message":"another process holds ./data","cause":"pid 7","help":"try again","exit":31}"#
        );
    }

    /// G38: what looks like a line break or turns text around is shown as what it is.
    #[test]
    fn nothing_looks_like_a_line_of_its_own() {
        for bad in ['\u{2028}', '\u{2029}', '\u{85}', '\u{202e}', '\u{2066}', '\u{200f}', '\u{feff}', '\x1b'] {
            assert_eq!(printable(&format!("a{bad}b")), "a\u{fffd}b", "{bad:?}");
        }
        assert_eq!(one_line("a\nb\tc"), "a b c");
        assert_eq!(printable("größer שלום 日本 \u{301}"), "größer שלום 日本 \u{301}", "letters of any script stay");
    }

    /// G38: text from a workflow cannot steer the terminal of who reads the error.
    #[test]
    fn control_characters_are_not_printed() {
        let text = CliError::new(Code::Failed, "a\x1b[2Jb\r\x07c").render(false);
        assert!(text.starts_with("error[BOSUN0001]: a\u{fffd}[2Jb\u{fffd}\u{fffd}c\n"), "{text}");
    }
}
