//! The bearer token: 32 random bytes in a file only its owner can read. And its verifier: what a worker keeps of it.
//!
//! Invariant: the token is never printed, never in a URL, and compared in constant time (G32). It is sent only to
//! who has proved to know its verifier: a proof is a keyed hash of the client's challenge and of the address that the
//! client believes to speak to, so that nobody in between can pass on the proof of another.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bosun_engine::seeded::{self, Bug};
use serde::{Deserialize, Serialize};

/// A secret that only the `Authorization` header gets to see.
#[derive(Clone)]
pub struct Token(String);

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot read the token file {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    #[error("cannot create the token file {}: {why}", path.display())]
    Uncreatable { path: PathBuf, why: io::Error },
    #[error("the token file {} can be read by others (mode {mode:o}); run `chmod 600` on it", path.display())]
    TooOpen { path: PathBuf, mode: u32 },
    #[error("the token file {} holds no token: at least 32 visible ASCII characters are expected", path.display())]
    Malformed { path: PathBuf },
}

impl Token {
    pub fn of(text: impl Into<String>) -> Self {
        Token(text.into())
    }
    /// For who made it, once.
    pub fn secret(&self) -> &str {
        &self.0
    }
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
    /// What is public of it: which token it is.
    pub fn id(&self) -> String {
        let mut parts = self.0.splitn(3, '_');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("bosun"), Some(id), Some(_)) => id.to_owned(),
            _ => OWNER_ID.to_owned(),
        }
    }
    /// For the test of the test: a comparison that is satisfied with a part.
    pub(super) fn begins_with(&self, other: &str) -> bool {
        seeded::on(Bug::TokenByPrefix) && !other.is_empty() && self.0.starts_with(other)
    }
    pub fn verifier(&self) -> Verifier {
        Verifier(blake3::derive_key("bosun control API 2026-11 token verifier", self.0.as_bytes()))
    }
    #[cfg(test)]
    pub fn matches(&self, other: &str) -> bool {
        self.verifier().fits(&Token::of(other))
    }

    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let unreadable = |why| TokenError::Unreadable { path: path.into(), why };
        let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::TooOpen { path: path.into(), mode });
        }
        let text = fs::read_to_string(path).map_err(unreadable)?;
        let text = text.trim();
        if text.len() < 32 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(TokenError::Malformed { path: path.into() });
        }
        Ok(Token(text.to_owned()))
    }

    /// The token of a data directory; made at the first start. A crash while it is made leaves a temporary file only.
    pub fn read_or_create(path: &Path) -> Result<Token, TokenError> {
        match Token::read(path) {
            Err(TokenError::Unreadable { why, .. }) if why.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let create = || -> io::Result<()> {
            let temporary = path.with_extension(format!("tmp{}", std::process::id()));
            let _ = fs::remove_file(&temporary);
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(format!("{}\n", random_hex(32)?).as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        create().map_err(|why| TokenError::Uncreatable { path: path.into(), why })?;
        Token::read(path)
    }
}

/// The id of the directory's own token.
pub const OWNER_ID: &str = "owner";

/// What is known of a token by who checks it. The token cannot be made from it.
#[derive(Clone, Copy)]
pub struct Verifier([u8; 32]);

impl Verifier {
    /// Takes the same time wherever the two differ.
    pub fn fits(&self, token: &Token) -> bool {
        // blake3::Hash compares in constant time.
        blake3::Hash::from_bytes(self.0) == blake3::Hash::from_bytes(token.verifier().0)
    }

    /// Proves that the verifier is known, to one who asks with this challenge at this address (`host:port`).
    pub fn proof(&self, challenge: &str, host: &str) -> String {
        let said = format!("bosun proof 1\n{}\n{challenge}\n{host}", challenge.len());
        blake3::keyed_hash(&self.0, said.as_bytes()).to_hex().to_string()
    }
    /// A key of two, which nobody can make who knows one of them alone.
    pub fn with(&self, other: &Verifier) -> Verifier {
        let mut both = [0; 64];
        both[..32].copy_from_slice(&self.0);
        both[32..].copy_from_slice(&other.0);
        Verifier(blake3::derive_key("bosun control API 2026-11 sealing key", &both))
    }

    /// Seals a text of a kind: nobody can do it who does not know the verifier, and a seal of one kind is none of another.
    pub fn seal(&self, kind: &str, text: &str) -> String {
        blake3::keyed_hash(&self.0, format!("bosun seal 1\n{kind}\n{text}").as_bytes()).to_hex().to_string()
    }
    /// Takes the same time wherever the two differ.
    pub fn has_sealed(&self, seal: &str, kind: &str, text: &str) -> bool {
        let expected = blake3::Hash::from_hex(self.seal(kind, text));
        matches!((expected, blake3::Hash::from_hex(seal)), (Ok(expected), Ok(seal)) if expected == seal)
    }
    pub fn is_proof(&self, proof: &str, challenge: &str, host: &str) -> bool {
        let expected = blake3::Hash::from_hex(self.proof(challenge, host));
        matches!((expected, blake3::Hash::from_hex(proof)), (Ok(expected), Ok(proof)) if expected == proof)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(…)")
    }
}

impl PartialEq for Verifier {
    fn eq(&self, other: &Self) -> bool {
        blake3::Hash::from_bytes(self.0) == blake3::Hash::from_bytes(other.0)
    }
}
impl Eq for Verifier {}

impl Serialize for Verifier {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&bosun_engine::hex(&self.0))
    }
}
impl<'de> Deserialize<'de> for Verifier {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = blake3::Hash::from_hex(text).map_err(serde::de::Error::custom)?;
        Ok(Verifier(*hash.as_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Random bytes from the operating system as hexadecimal digits.
pub fn random_hex(bytes: usize) -> io::Result<String> {
    let mut buffer = vec![0; bytes];
    fs::File::open("/dev/urandom")?.read_exact(&mut buffer)?;
    Ok(bosun_engine::hex(&buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G32: the token file is made once, with mode 0600, and one that others can read is refused.
    #[test]
    fn the_token_file_is_private_and_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let first = Token::read_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(first.0.len(), 64);
        let second = Token::read_or_create(&path).unwrap();
        assert!(second.matches(&first.0));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Token::read(&path), Err(TokenError::TooOpen { mode: 0o644, .. })));
    }

    /// G31: printing a token for debugging does not show it.
    #[test]
    fn a_token_is_not_printed() {
        let token = Token::of("x".repeat(64));
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert!(token.matches(&"x".repeat(64)));
        assert!(!token.matches(&"x".repeat(63)));
        assert!(!token.matches(""));
    }
}
