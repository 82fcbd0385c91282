//! Keys by reference: configuration says where a key is, and the key is read when a request is sent.
//!
//! Invariant: a key is in memory for one exchange and is shown by nothing: no `Debug`, no error. A text that is no
//! reference is not repeated in the error, since it may be the key itself. A command is started by its words, without a
//! shell.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use super::ModelError;
use super::call::code;
use crate::capability::environment;

/// Longer is no key.
const SECRET_BYTES_MAX: u64 = 64 * 1024;
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

/// Where a key is: `env:NAME`, `file:/path`, or `cmd:program "first argument" second`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SecretRef {
    /// A variable of the worker's environment.
    Env(String),
    /// The content of a file, without the line end.
    File(PathBuf),
    /// What a program prints, by its words.
    Cmd(Vec<String>),
}

/// A key.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretRef {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or_default();
        match kind {
            _ if rest.trim().is_empty() => {}
            "env" => return Ok(SecretRef::Env(rest.to_owned())),
            "file" => return Ok(SecretRef::File(PathBuf::from(rest))),
            "cmd" => return Ok(SecretRef::Cmd(words(rest)?)),
            _ => {}
        }
        Err("a key is given as env:NAME, file:/path or cmd:program arguments, and not as itself".into())
    }
}

impl TryFrom<String> for SecretRef {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SecretRef> for String {
    fn from(reference: SecretRef) -> String {
        reference.to_string()
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretRef::Env(name) => write!(f, "env:{name}"),
            SecretRef::File(path) => write!(f, "file:{}", path.display()),
            SecretRef::Cmd(words) => {
                let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
                write!(f, "cmd:{}", quoted.join(" "))
            }
        }
    }
}

fn quote(word: &str) -> String {
    let is_plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'));
    if is_plain { word.to_owned() } else { format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")) }
}

/// Words at spaces, with quotes as in a shell and nothing else of a shell.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote in the command for a key is not closed".into());
    }
    words.extend(word);
    Ok(words)
}

impl SecretRef {
    /// Reads the key. That it cannot be read is for somebody to see: the run waits for them.
    pub(crate) async fn resolve(&self) -> Result<Secret, ModelError> {
        let unavailable = |why: String| ModelError::needs_human(code::SECRET, format!("no key from {self}: {why}"));
        let text = match self {
            SecretRef::Env(name) => environment::var(name).ok_or_else(|| unavailable("it is not set".into()))?,
            SecretRef::File(path) => {
                let file = tokio::fs::File::open(path).await.map_err(|why| unavailable(why.to_string()))?;
                read(file).await.map_err(unavailable)?
            }
            SecretRef::Cmd(words) => output(words).await.map_err(unavailable)?,
        };
        let key = text.trim();
        if key.is_empty() {
            return Err(unavailable("it is empty".into()));
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(unavailable("it has characters that no header may have".into()));
        }
        environment::note_secret(key);
        Ok(Secret(key.to_owned()))
    }
}

async fn read(from: impl tokio::io::AsyncRead + Unpin) -> Result<String, String> {
    let mut bytes = Vec::new();
    from.take(SECRET_BYTES_MAX).read_to_end(&mut bytes).await.map_err(|why| why.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is no text".into())
}

/// What a command prints. What it says on its error output may hold the key and is not shown.
async fn output(words: &[String]) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("the command is empty")?;
    let mut command = tokio::process::Command::new(program);
    // It is the owner's, and may need what the worker was given.
    command.env_clear().envs(environment::all());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|why| why.to_string())?;
    let stdout = child.stdout.take().ok_or("the command has no output")?;
    let finish = async {
        let text = read(stdout).await?;
        let status = child.wait().await.map_err(|why| why.to_string())?;
        if status.success() { Ok(text) } else { Err(format!("the command ended with {status}")) }
    };
    tokio::time::timeout(COMMAND_TIMEOUT, finish).await.unwrap_or_else(|_| Err("the command takes too long".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::model::ErrorClass;

    #[test]
    fn references_are_read_and_written() {
        for (text, wanted) in [
            ("env:A_KEY", SecretRef::Env("A_KEY".into())),
            ("file:/run/secrets/key", SecretRef::File("/run/secrets/key".into())),
            ("cmd:pass show \"my key\" 'a \\b' c\\ d ''", {
                let words = ["pass", "show", "my key", "a \\b", "c d", ""];
                SecretRef::Cmd(words.map(str::to_owned).to_vec())
            }),
        ] {
            let read: SecretRef = text.parse().unwrap();
            assert_eq!(read, wanted, "{text}");
            assert_eq!(read.to_string().parse(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn a_key_in_the_place_of_a_reference_is_refused_and_not_repeated() {
        for text in
            ["sk-live-0123456789", "env:", "cmd: ", "https://sk-live-0123456789", "cmd:a 'sk-live-0123456789", ""]
        {
            let why = text.parse::<SecretRef>().unwrap_err();
            assert!(!why.contains("sk-live"), "{why}");
        }
    }

    #[tokio::test]
    async fn keys_come_from_files_and_commands_and_are_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, " sk-file-1\n").unwrap();
        let secret = SecretRef::File(file.clone()).resolve().await.unwrap();
        assert_eq!((secret.expose(), format!("{secret:?}").as_str()), ("sk-file-1", "Secret(..)"));
        let command: SecretRef = format!("cmd:cat {}", file.display()).parse().unwrap();
        assert_eq!(command.resolve().await.unwrap().expose(), "sk-file-1");
        // No shell: the words are arguments.
        let command: SecretRef = "cmd:echo $HOME;ls".parse().unwrap();
        assert_eq!(command.resolve().await.unwrap().expose(), "$HOME;ls");
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_read_waits_for_somebody() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "line one\nline two").unwrap();
        for text in [
            "env:BOSUN_TEST_THIS_IS_NOT_SET".to_owned(),
            "file:/nonexistent/key".into(),
            "cmd:false".into(),
            "cmd:/nonexistent/program".into(),
            "cmd:true".into(),
            format!("file:{}", file.display()),
        ] {
            let error = text.parse::<SecretRef>().unwrap().resolve().await.unwrap_err();
            assert_eq!((error.class, error.code.as_deref()), (ErrorClass::NeedsHuman, Some(code::SECRET)), "{text}");
            assert!(!error.message.contains("line one"), "{error}");
        }
    }
}
