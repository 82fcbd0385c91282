//! The owner's table of MCP servers: `BOSUN_MCP` names a YAML or JSON file.
//!
//! ```yaml
//! servers:
//!   files:
//!     command: /usr/local/bin/mcp-files
//!     args: [--root, /srv/docs]
//!     env: { TOKEN: "env:FILES_TOKEN", MODE: { text: read-only } }
//!   search:
//!     url: https://mcp.example.com/mcp
//!     bearer: file:/run/secrets/search
//! ```
//!
//! Invariant: the table holds references to secrets and never a secret; an unknown key is refused with its path. A table
//! that cannot be read stops no worker: it is told to whoever calls a server. The environment is read once, by the
//! caller's function; what a server takes over of it is kept here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::capability::model::SecretRef;
use crate::capability::process::ENV_DEFAULT;

/// Longer is no table.
const TABLE_BYTES_MAX: usize = 1024 * 1024;

/// The servers of a worker.
#[derive(Debug, Clone, Default)]
pub struct McpConfig {
    /// By the name that agents use.
    pub servers: BTreeMap<String, McpServer>,
    /// What is wrong with the table, told to whoever asks any server.
    pub problem: Option<String>,
    /// What every server that is a process has of the worker's environment.
    pub environment: BTreeMap<String, String>,
}

/// A server, and what it may take.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServer {
    /// Where it is.
    pub reach: McpReach,
    /// Milliseconds for starting or reaching it.
    pub start_ms: u64,
    /// Calls at a time; more wait.
    pub concurrency: usize,
    /// Bytes of one message from it.
    pub message_bytes: usize,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum McpReach {
    /// It is started by the worker.
    Stdio(McpStdio),
    /// It runs somewhere.
    Http(McpHttp),
}

/// A process that speaks over its standard input and output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpStdio {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it begins.
    pub cwd: Option<PathBuf>,
    /// Its environment, beside that of every server.
    pub env: BTreeMap<String, McpValue>,
}

/// A server behind a URL.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpHttp {
    /// Where it listens.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub bearer: Option<SecretRef>,
    /// Sent with each request.
    pub headers: BTreeMap<String, McpValue>,
    /// Whether its host may be at an address that is not public.
    pub allow_private: bool,
}

/// The value of a variable or a header. A bare text is a reference to a secret, so that no secret gets into the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a reference (env:NAME, file:/path, cmd:program) or { text: .. }")]
pub enum McpValue {
    /// Read when it is needed.
    Secret(SecretRef),
    /// As it is.
    Text(PlainText),
}

/// A value that is no secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainText {
    /// The value.
    pub text: String,
}

impl McpServer {
    /// A server with the defaults of everything else.
    pub fn new(reach: McpReach) -> McpServer {
        McpServer { reach, start_ms: start_ms(), concurrency: concurrency(), message_bytes: message_bytes() }
    }
}

impl McpConfig {
    /// What the environment says; `variable` reads one.
    pub fn from_environment(variable: &dyn Fn(&str) -> Option<String>) -> McpConfig {
        let inherited = |name: &&str| Some(((*name).to_owned(), variable(name)?));
        let environment = ENV_DEFAULT.iter().filter_map(inherited).collect();
        let config = McpConfig { environment, ..McpConfig::default() };
        let Some(path) = variable("BOSUN_MCP").filter(|path| !path.trim().is_empty()) else { return config };
        match read(Path::new(path.trim())) {
            Ok(servers) => McpConfig { servers, ..config },
            Err(why) => McpConfig { problem: Some(format!("BOSUN_MCP: {path}: {why}")), ..config },
        }
    }

    /// Adds a server.
    pub fn with_server(mut self, name: &str, server: McpServer) -> Self {
        self.servers.insert(name.to_owned(), server);
        self
    }
}

fn read(path: &Path) -> Result<BTreeMap<String, McpServer>, String> {
    let text = std::fs::read_to_string(path).map_err(|why| why.to_string())?;
    if text.len() > TABLE_BYTES_MAX {
        return Err(format!("it has more than {TABLE_BYTES_MAX} bytes"));
    }
    parse(&text)
}

/// The table as it is written. What a text says is never repeated in an error: it may be a secret in the wrong place.
fn parse(text: &str) -> Result<BTreeMap<String, McpServer>, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|why| without_texts(&why.to_string()))?;
    let table: Table = serde_path_to_error::deserialize(value)
        .map_err(|why| format!("at {}: {}", why.path(), without_texts(&why.inner().to_string())))?;
    let named = |(name, server): (String, Written)| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err("at servers: a name has letters, digits, `-`, `_` and `.`, and at most 64 of them".to_owned());
        }
        match server.checked() {
            Ok(server) => Ok((name, server)),
            Err(why) => Err(format!("at servers.{name}: {why}")),
        }
    };
    table.servers.into_iter().map(named).collect()
}

/// Drops what stands in double quotes: messages of parsers repeat texts there.
fn without_texts(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.split('"').step_by(2).collect::<Vec<_>>().join("..")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    servers: BTreeMap<String, Written>,
}

/// A server as it is written: keys of both kinds, of which one kind must be there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, McpValue>,
    url: Option<String>,
    bearer: Option<SecretRef>,
    #[serde(default)]
    headers: BTreeMap<String, McpValue>,
    #[serde(default)]
    allow_private: bool,
    #[serde(default = "start_ms")]
    start_ms: u64,
    #[serde(default = "concurrency")]
    concurrency: usize,
    #[serde(default = "message_bytes")]
    message_bytes: usize,
}

fn start_ms() -> u64 {
    30_000
}
fn concurrency() -> usize {
    8
}
fn message_bytes() -> usize {
    8 * 1024 * 1024
}

impl Written {
    fn checked(self) -> Result<McpServer, String> {
        let Written { command, args, cwd, env, url, bearer, headers, allow_private, .. } = self;
        let is_process = !args.is_empty() || cwd.is_some() || !env.is_empty();
        let is_remote = bearer.is_some() || !headers.is_empty() || allow_private;
        let reach = match (command, url) {
            (Some(command), None) if is_remote => {
                return Err(format!("{command:?} is a process: it has no bearer, headers or allow_private"));
            }
            (None, Some(_)) if is_process => return Err("a url has no args, cwd or env".to_owned()),
            (Some(command), None) if command.is_empty() => return Err("the command is empty".to_owned()),
            (Some(command), None) => McpReach::Stdio(McpStdio { command, args, cwd, env }),
            (None, Some(url)) => McpReach::Http(McpHttp { url: place(url)?, bearer, headers, allow_private }),
            (Some(_), Some(_)) | (None, None) => return Err("it has a `command` or a `url`, and not both".to_owned()),
        };
        if self.concurrency == 0 || self.start_ms == 0 || self.message_bytes < 1024 {
            return Err("concurrency and start_ms are at least 1, message_bytes at least 1024".to_owned());
        }
        let Written { start_ms, concurrency, message_bytes, .. } = self;
        Ok(McpServer { reach, start_ms, concurrency, message_bytes })
    }
}

/// A URL without anything secret in it.
fn place(text: String) -> Result<String, String> {
    let url = reqwest::Url::parse(&text).map_err(|why| format!("the url cannot be read: {why}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the url is not one of http or https".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err("the url has a user, password or query; a secret is given by reference".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> McpConfig {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp.yaml");
        std::fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        McpConfig::from_environment(&move |name| match name {
            "BOSUN_MCP" => Some(path.clone()),
            "PATH" => Some("/bin".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn a_table_names_processes_and_places_and_references_to_secrets() {
        let config = of("servers:\n  files: { command: /bin/f, args: [-r], env: { T: 'env:X', M: { text: ro } } }\n  \
            web: { url: 'https://h/mcp', bearer: 'file:/k', headers: { X-A: 'cmd:pass a' }, concurrency: 2 }\n");
        assert_eq!(config.problem, None);
        assert_eq!(config.environment, BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]));
        let McpReach::Stdio(files) = &config.servers["files"].reach else { panic!("a process") };
        assert_eq!((files.command.as_str(), files.args.as_slice()), ("/bin/f", &["-r".to_owned()][..]));
        assert_eq!(files.env["T"], McpValue::Secret(SecretRef::Env("X".into())));
        assert_eq!(files.env["M"], McpValue::Text(PlainText { text: "ro".into() }));
        let McpReach::Http(web) = &config.servers["web"].reach else { panic!("a place") };
        assert_eq!((web.bearer.clone(), web.allow_private), (Some(SecretRef::File("/k".into())), false));
        assert_eq!((config.servers["web"].concurrency, config.servers["files"].concurrency), (2, 8));
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_path() {
        for (text, path) in [
            ("servers: { a: { command: f, arg: [x] } }", "servers.a"),
            ("servers: { a: { command: f, env: { K: { txt: x } } } }", "servers.a.env.K"),
            ("server: {}", "server"),
            ("servers: { a: { command: f, url: 'https://h/' } }", "servers.a"),
            ("servers: { a: { command: f, bearer: 'env:X' } }", "servers.a"),
            ("servers: { a: { url: 'https://h/', env: { A: 'env:X' } } }", "servers.a"),
            ("servers: { a: { url: 'https://u:p@h/' } }", "servers.a"),
            ("servers: { a: { url: 'file:///etc/passwd' } }", "servers.a"),
            ("servers: { a: {} }", "servers.a"),
            ("servers: { 'a b': { command: f } }", "servers"),
            ("servers: { a: { command: f, concurrency: 0 } }", "servers.a"),
            ("servers: [", "BOSUN_MCP"),
        ] {
            let problem = of(text).problem.unwrap_or_else(|| panic!("{text} was accepted"));
            assert!(problem.contains(path), "{text}: {problem}");
        }
        let missing = McpConfig::from_environment(&|name| (name == "BOSUN_MCP").then(|| "/nonexistent".to_owned()));
        assert!(missing.problem.unwrap().contains("/nonexistent"));
        assert_eq!(McpConfig::from_environment(&|_| None).problem, None);
    }

    #[test]
    fn a_secret_in_the_table_is_refused_and_not_repeated() {
        for text in [
            "servers: { a: { command: f, env: { K: sk-live-0123456789 } } }",
            "servers: { a: { url: 'https://h/', bearer: sk-live-0123456789 } }",
            "servers: { a: { command: f, args: sk-live-0123456789 } }",
            "servers: { a: { url: 'https://h/', headers: { A: 'Bearer sk-live-0123456789' } } }",
            "servers: { a: { url: 'https://h/?key=sk-live-0123456789' } }",
            "servers: { a: sk-live-0123456789 }",
            "servers: sk-live-0123456789",
        ] {
            let problem = of(text).problem.unwrap_or_else(|| panic!("{text} was accepted"));
            assert!(!problem.contains("sk-live"), "{problem}");
        }
    }
}
