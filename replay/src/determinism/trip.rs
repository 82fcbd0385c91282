//! What a wire has caught: which call, where in the code, and what to do instead.
//!
//! Invariant: a place is of the user's code, or there is none.

use std::fmt;

/// What a forbidden call was after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForbiddenCall {
    /// The time of the machine: `SystemTime`, `Instant`, `gettimeofday`, `time`.
    Clock,
    /// Bytes from the operating system.
    Random,
    /// The seed of a `HashMap` or `HashSet` of std, whose order differs from run to run.
    HashSeed,
    /// Variables of the process.
    Environment,
    /// The file system.
    File,
    /// The network.
    Socket,
    /// Other threads, or the id or name of this one.
    Thread,
    /// Other processes, or the id of this one.
    Process,
    /// The machine: its name, user, cores or memory.
    Host,
    /// The last digits of `powf`, `exp`, `sin` … differ between machines and build profiles.
    FloatMath,
}

/// A forbidden call, caught in the act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trip {
    /// What was asked for.
    pub call: ForbiddenCall,
    /// The function of libc, and what it was asked, where that says something.
    pub function: String,
    /// Where in the code, as `file:line:column`, when known.
    pub place: Option<String>,
    /// The functions of the code that led to the call, the one that made it first.
    pub stack: Vec<CallSite>,
}

/// A function of the user's code on the way to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSite {
    /// Its path, as the compiler prints it.
    pub function: String,
    /// `file:line:column`.
    pub place: String,
}

impl Trip {
    /// Whether the call is no mistake by itself: of a map without an order only the order is, and only where it is used.
    pub fn is_only_suspect(&self) -> bool {
        self.call == ForbiddenCall::HashSeed
    }
}

impl fmt::Display for ForbiddenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ForbiddenCall::Clock => "reads a clock; take the time from the workflow context",
            ForbiddenCall::Random => "asks for randomness; take random values and ids from the workflow context",
            ForbiddenCall::HashSeed => {
                "makes a HashMap or HashSet of std, whose order differs from run to run; if its order is used, use a \
                 BTreeMap"
            }
            ForbiddenCall::Environment => "reads the environment; give it to the workflow as input",
            ForbiddenCall::File => "touches the file system; do that in an activity",
            ForbiddenCall::Socket => "opens a socket; do that in an activity",
            ForbiddenCall::Thread => "uses threads; use the branches of the workflow context",
            ForbiddenCall::Process => "starts or looks at a process; do that in an activity",
            ForbiddenCall::Host => {
                "asks for the host, its directory, time zone, locale or processors; give that to the workflow as input"
            }
            ForbiddenCall::FloatMath => {
                "computes a float whose last digits differ between machines and build profiles; do that in an activity"
            }
        })
    }
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the workflow code {} ({})", self.call, self.function)?;
        for site in self.stack.iter().take(SITES_MAX) {
            write!(f, "\n  at {} in {}", site.place, site.function)?;
        }
        match &self.place {
            // A suspect is no finding: nothing needs to be allowed.
            Some(place) if !self.is_only_suspect() => {
                let line = place.rsplit_once(':').map_or(place.as_str(), |(line, _)| line);
                let file = line.rsplit('/').next().unwrap_or(line);
                write!(f, "\n  where it is harmless: .allow_at(ForbiddenCall::{:?}, {file:?})", self.call)
            }
            _ => Ok(()),
        }
    }
}

/// So many functions on the way to a call are printed.
const SITES_MAX: usize = 3;
