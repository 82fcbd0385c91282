//! The `http` activity: one request, with limits, retry classes and a guard against forged targets (G36).
//!
//! Invariant: every address that is connected to has been checked, for every hop; secrets in headers are resolved at
//! dispatch, are sent to the origin they were meant for only, and appear in no result and no failure. Retrying is the
//! run machine's: this activity says which failures may pass and when to come back.

mod address;
mod exchange;
mod explain;
mod request;
mod retry;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(in crate::capability) use address::RefusedAddress;
#[doc(hidden)]
pub use address::is_public;
#[doc(hidden)]
pub use exchange::GuardedClient;
pub(crate) use exchange::guarded_client;
pub(in crate::capability) use exchange::now;
pub(in crate::capability) use explain::{excerpt, innermost};
pub(crate) use retry::retry_after;
pub(in crate::capability) use retry::{RETRY_AFTER_MAX, may_pass, seconds};

/// The activity type.
pub const HTTP: &str = "http";

/// Failure types beside `Http<status>`.
pub const HTTP_TRANSPORT: &str = "HttpTransport";
/// The whole exchange took longer than the input allows.
pub const HTTP_TIMEOUT: &str = "HttpTimeout";
/// The answer is longer than the input allows.
pub const HTTP_TOO_LARGE: &str = "HttpTooLarge";
/// The address is not public, and the owner did not allow it.
pub const HTTP_REFUSED_ADDRESS: &str = "HttpRefusedAddress";
/// There were more redirects than the input allows.
pub const HTTP_REDIRECTS: &str = "HttpRedirects";
/// The request cannot be made as it was asked for.
pub const HTTP_REQUEST: &str = "HttpRequest";

/// What to ask, and what of the answer to keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpInput {
    /// `GET` if it is left out.
    #[serde(default = "get")]
    pub method: String,
    /// `http` or `https`.
    pub url: String,
    /// Headers of the request.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderText>,
    /// Sent as it is.
    #[serde(default)]
    pub body: Option<String>,
    /// Sent as the body, with its content type.
    #[serde(default)]
    pub json: Option<Value>,
    /// For the whole exchange, redirects included.
    #[serde(default = "timeout_ms_default")]
    pub timeout_ms: u64,
    /// The most bytes of the answer's body.
    #[serde(default = "response_max_default")]
    pub response_max: u64,
    /// What happens to the rest of a longer answer.
    #[serde(default)]
    pub too_large: TooLarge,
    /// How many redirects are followed.
    #[serde(default = "follow_redirects_default")]
    pub follow_redirects: u32,
    /// Status codes that are a result. Empty: 200 to 299.
    #[serde(default)]
    pub success: Vec<u16>,
    /// Every answer is a result, whatever its status.
    #[serde(default)]
    pub any_status: bool,
    /// Whether the activity's idempotency key is sent as `Idempotency-Key`.
    #[serde(default = "yes")]
    pub idempotency_key: bool,
    /// No attempt begins later than this after the call was asked for: the time of its run is over then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
}

/// The value of a header: a text, or where the worker finds it when it sends. The latter are secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HeaderText {
    /// The value itself, which histories show.
    Text(String),
    /// A variable of the worker.
    Env(FromEnv),
    /// A file on the worker's machine.
    File(FromFile),
}

/// A secret in a variable of the worker's environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromEnv {
    /// The name of the variable.
    pub env: String,
    /// Put before the value, for example `Bearer `.
    #[serde(default)]
    pub prefix: String,
}

/// A secret in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromFile {
    /// The path of the file.
    pub file: PathBuf,
    /// Put before the value, for example `Bearer `.
    #[serde(default)]
    pub prefix: String,
}

/// What happens to an answer that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TooLarge {
    /// The attempt fails.
    #[default]
    Error,
    /// The beginning is kept.
    Truncate,
}

impl HttpInput {
    /// A GET with the defaults of everything else.
    pub fn get(url: impl Into<String>) -> Self {
        HttpInput {
            method: get(),
            url: url.into(),
            headers: BTreeMap::new(),
            body: None,
            json: None,
            timeout_ms: timeout_ms_default(),
            response_max: response_max_default(),
            too_large: TooLarge::default(),
            follow_redirects: follow_redirects_default(),
            success: Vec::new(),
            any_status: false,
            idempotency_key: true,
            within_ms: None,
        }
    }
}

fn get() -> String {
    "GET".into()
}
fn yes() -> bool {
    true
}
fn timeout_ms_default() -> u64 {
    30_000
}
fn response_max_default() -> u64 {
    1024 * 1024
}
fn follow_redirects_default() -> u32 {
    5
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HttpOutput {
    /// The status code.
    pub status: u16,
    /// Names in lower case; several values of one name joined by `, `; cookies are not kept.
    pub headers: BTreeMap<String, String>,
    /// Text, or hexadecimal digits of bytes that are no UTF-8.
    pub body: String,
    /// How to read [`body`](Self::body).
    pub encoding: BodyEncoding,
    /// The body as data, if it says that it is JSON.
    pub json: Option<Value>,
    /// Whether the body is only its beginning.
    pub truncated: bool,
    /// Where the answer came from, after redirects.
    pub url: String,
}

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyEncoding {
    /// As the text that it is.
    Text,
    /// As hexadecimal digits.
    Base16,
}

/// What the worker's owner allows.
#[derive(Debug, Clone, Default)]
pub struct HttpConfig {
    /// Hosts (names or addresses, without port) that may be reached wherever they are.
    pub allow_hosts: Vec<String>,
    /// Switches the address guard off.
    pub allow_private: bool,
    /// Environment variables that headers may take secrets from. `None`: any.
    pub secret_env: Option<Vec<String>>,
    /// Directories that headers may take secrets from. `None`: any.
    pub secret_dirs: Option<Vec<PathBuf>>,
    /// The worker's data directory, which holds its token: no header is taken from there, whatever `secret_dirs` say.
    pub own: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
