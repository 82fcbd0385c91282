//! An answer that found no place: the disk behind stdout is full, or its reader has gone.
//!
//! Invariant: what could not be printed is an error of the command, unless whoever read it had seen enough; what is shown once
//! is lost either way. What the command did stays done.

use std::io::{self, ErrorKind};

use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::output::Screen;

impl Screen {
    /// Whether stdout takes nothing any more: its reader has gone (`bosun show -f | head`), or its disk is full.
    pub fn closed(&self) -> bool {
        self.lost.is_some()
    }

    /// The error of an answer that was not printed. A reader that has gone has read what it wanted.
    pub(super) fn unprinted(&self) -> Option<CliError> {
        let why = self.lost.as_ref().filter(|why| why.kind() != ErrorKind::BrokenPipe)?;
        Some(unprinted(why).help("what the command did stays done; make room there, and ask again for what is missing"))
    }

    /// As [`Screen::unprinted`] for what is shown once and never again, so that a reader that has gone has lost it, too.
    pub(super) fn shown_once(&self, what: &str, help: &str) -> Result<(), CliError> {
        match &self.lost {
            None => Ok(()),
            Some(why) => {
                let message = format!("{what} cannot be written to standard output, and is lost");
                Err(CliError::new(Code::Failed, message).cause(why).help(help))
            }
        }
    }
}

/// What was to be printed has no place.
fn unprinted(why: &io::Error) -> CliError {
    CliError::new(Code::Failed, "the answer cannot be written to standard output: what is there is not all").cause(why)
}

/// Prints a usage error, or the help that was asked for.
pub(super) fn print_help(why: &clap::Error) -> Exit {
    match why.print() {
        _ if why.use_stderr() => Exit::Usage,
        Err(lost) if lost.kind() != ErrorKind::BrokenPipe => {
            eprint!("{}", unprinted(&lost).render(false));
            Exit::Error
        }
        _ => Exit::Ok,
    }
}
