//! The control API: the engine over HTTP on loopback, under `/api/v1`. People and their programs send and get plain JSON
//! (`people`); the command line asks the same routes for exact values (`routes::EXACT`, `handlers`). Pages (`crate::ui`) are
//! served behind the same guard, to browsers that are signed in (`session`).
//!
//! Invariant: nobody without the token gets past `guard` (except to `/healthz` and the page to sign in), and what an attached client sees is
//! exactly what an embedded one sees. Nothing here decides about runs; every handler is one call to a [`Backend`].
//!
//! [`Backend`]: crate::backend::Backend

mod accept;
mod address;
pub mod authority;
pub mod caller;
pub mod client;
mod crowd;
pub mod discovery;
mod drain;
pub mod guard;
pub mod handlers;
pub(crate) mod histories;
pub mod json_depth;
pub mod people;
pub mod problem;
mod proof;
pub mod routes;
pub mod serve;
pub mod session;
pub mod stream;
#[cfg(test)]
pub(crate) mod tests;
pub mod token;
pub mod tokens;
mod watch;

pub(crate) use address::with_scheme;
pub use authority::CallerBackend;
pub use caller::{Caller, TokenRole};
pub use client::HttpClient;
pub use discovery::{DirectoryId, WorkerFile};
pub use serve::{ServeError, Server, ServerLimits, take_file_handles};
pub use token::Token;
pub use tokens::Tokens;
