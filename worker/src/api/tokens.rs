//! The named tokens of a data directory: `<data>/tokens.json`, written by `bosun token`, read by the worker.
//!
//! Invariant: no token can be made from what is stored: it holds verifiers, which are hashes of the tokens. The file is
//! whole or as it was, mode 0600, and changed under a lock. A token that has expired, was revoked or cannot be read opens
//! nothing. A change is heard of at the next request, without a restart.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bosun_engine::{Namespace, Timestamp};
use serde::{Deserialize, Serialize};

use super::caller::{Caller, OWNER, TokenRole};
use super::token::{OWNER_ID, Token, TokenError, Verifier, random_hex};

/// One named token, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedToken {
    /// Public: it stands in the token, and in requests for a proof.
    pub id: String,
    pub name: String,
    pub role: TokenRole,
    /// Only these; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeSet<Namespace>>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    verifier: Verifier,
}

impl NamedToken {
    fn caller(self) -> Caller {
        Caller { name: self.name, role: self.role, namespaces: self.namespaces, token: Some(self.id) }
    }

    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// What a new token is for.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub role: TokenRole,
    pub namespaces: Option<BTreeSet<Namespace>>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error("the disk is full: {} cannot be written, and is as it was", .0.display())]
    Full(PathBuf),
    #[error("the name {0:?} cannot be used: 1 to 60 letters, digits and `.-_@`, and not `owner`")]
    Name(String),
    #[error("there is a token named {0} already; revoke it first")]
    Taken(String),
    #[error("there is no token named {0}")]
    Unknown(String),
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    tokens: Vec<NamedToken>,
}

const VERSION: u32 = 1;

/// The file of a data directory.
pub fn path_in(data: &Path) -> PathBuf {
    data.join("tokens.json")
}

/// All named tokens.
pub fn list(data: &Path) -> Result<Vec<NamedToken>, TokensError> {
    Ok(read(&path_in(data))?.tokens)
}

/// Makes a token. What is returned is shown once and stored nowhere.
pub fn create(data: &Path, new: NewToken) -> Result<Token, TokensError> {
    let known = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
    if new.name.is_empty()
        || new.name.len() > 60
        || !new.name.chars().all(known)
        || new.name.eq_ignore_ascii_case(OWNER)
    {
        return Err(TokensError::Name(new.name));
    }
    changed(data, false, |stored| {
        if stored.tokens.iter().any(|token| token.name == new.name) {
            return Err(TokensError::Taken(new.name.clone()));
        }
        let random = |bytes| random_hex(bytes).map_err(|why| failed(data)(why));
        let id = random(4)?;
        let token = Token::of(format!("bosun_{id}_{}", random(32)?));
        let NewToken { name, role, namespaces, created_at, expires_at } = new.clone();
        let verifier = token.verifier();
        stored.tokens.push(NamedToken { id, name, role, namespaces, created_at, expires_at, verifier });
        Ok(token)
    })
}

/// Takes a token away. On a full disk, too: with a part of the reserve.
pub fn revoke(data: &Path, name: &str) -> Result<(), TokensError> {
    changed(data, true, |stored| {
        let before = stored.tokens.len();
        stored.tokens.retain(|token| token.name != name);
        if stored.tokens.len() == before { Err(TokensError::Unknown(name.to_owned())) } else { Ok(()) }
    })
}

/// Whose token this is in a directory that nobody serves; nobody's if it opens nothing.
pub fn known_in(data: &Path, token: &Token, now: Timestamp) -> Result<Option<Caller>, TokensError> {
    let owners = [Token::read(&data.join("token")).ok().map(|own| own.verifier()), noted_owner(data)];
    if owners.into_iter().flatten().any(|owner| owner.fits(token)) {
        return Ok(Some(Caller::owner()));
    }
    let found = list(data)?.into_iter().find(|named| named.verifier.fits(token) && !named.has_expired(now));
    Ok(found.map(NamedToken::caller))
}

/// Beside the directory's own token: what is known of one that lies elsewhere.
fn owner_noted_in(data: &Path) -> PathBuf {
    data.join("token.served")
}

fn noted_owner(data: &Path) -> Option<Verifier> {
    serde_json::from_str(&fs::read_to_string(owner_noted_in(data)).ok()?).ok()
}

/// Keeps what is known of the owner's token where it does not lie in the directory, so that it is the owner's without a worker
/// too. None: it lies there.
pub fn note_owner(data: &Path, elsewhere: Option<&Token>) -> Result<(), TokensError> {
    let path = owner_noted_in(data);
    if elsewhere.is_some_and(|token| noted_owner(data).is_some_and(|noted| noted.fits(token))) {
        return Ok(());
    }
    let done = match elsewhere {
        Some(token) => (|| {
            let beside = data.join("token.served.new");
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&serde_json::to_vec(&token.verifier())?)?;
            file.sync_all()?;
            fs::rename(&beside, &path)
        })(),
        None => fs::remove_file(&path),
    };
    match done {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(failed(&path)(why)),
        _ => Ok(()),
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> TokensError {
    move |why| match why.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => TokensError::Full(path.to_owned()),
        _ => TokensError::File { path: path.to_owned(), why: why.to_string() },
    }
}

fn read(path: &Path) -> Result<Stored, TokensError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Ok(Stored { version: VERSION, tokens: Vec::new() });
        }
        Err(why) => return Err(failed(path)(why)),
    };
    let bad = |why: String| TokensError::File { path: path.to_owned(), why };
    let stored: Stored = serde_json::from_slice(&bytes).map_err(|why| bad(why.to_string()))?;
    if stored.version != VERSION {
        return Err(bad(format!("version {} is not {VERSION}", stored.version)));
    }
    Ok(stored)
}

/// Reads, changes and writes, with nobody between. `is_urgent`: what the reserve of the store is for.
fn changed<T>(
    data: &Path,
    is_urgent: bool,
    change: impl FnOnce(&mut Stored) -> Result<T, TokensError>,
) -> Result<T, TokensError> {
    let path = path_in(data);
    let lock = data.join("tokens.lock");
    let open = |path: &Path, new: bool| {
        fs::OpenOptions::new().write(true).create(true).truncate(new).mode(0o600).open(path).map_err(failed(path))
    };
    let held = open(&lock, false)?;
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).map_err(|why| failed(&lock)(why.into()))?;
    let mut stored = read(&path)?;
    let made = change(&mut stored)?;
    let beside = data.join("tokens.json.new");
    let bytes = serde_json::to_vec_pretty(&stored).map_err(|why| failed(&path)(why.into()))?;
    let write = || {
        let mut file = open(&beside, true)?;
        let written = file.write_all(&bytes).and_then(|()| file.sync_all());
        let placed = written.and_then(|()| fs::rename(&beside, &path)).inspect_err(|_| _ = fs::remove_file(&beside));
        placed.and_then(|()| File::open(data)?.sync_all()).map_err(failed(&path))
    };
    match write() {
        Err(TokensError::Full(_)) if is_urgent && bosun_engine::log::lend_reserve(data) => write()?,
        written => written?,
    }
    Ok(made)
}

/// What the worker checks tokens against.
#[derive(Debug)]
pub struct Tokens {
    own: Token,
    owner: Verifier,
    /// `None`: there are no named ones.
    data: Option<PathBuf>,
    cached: Mutex<Cached>,
    /// Stands for tokens that there are not, so that nobody learns which there are.
    nobody: Verifier,
}

/// Which state of a file it is: another one differs in its inode, its times or its length.
type FileState = (u64, i64, i64, u64);

#[derive(Debug, Default)]
struct Cached {
    seen: Option<FileState>,
    tokens: Vec<NamedToken>,
    /// What could not be read, and was told of.
    unread: Option<FileState>,
}

impl Tokens {
    /// The directory's own token, and the named ones beside it.
    pub fn new(owner: &Token, data: Option<PathBuf>) -> Result<Tokens, TokenError> {
        let random = random_hex(32).map_err(|why| TokenError::Unreadable { path: "/dev/urandom".into(), why })?;
        Ok(Tokens {
            own: owner.clone(),
            owner: owner.verifier(),
            data,
            cached: Mutex::default(),
            nobody: Token::of(random).verifier(),
        })
    }

    /// Whose token this is; nobody's if it opens nothing.
    pub fn caller(&self, token: &str, now: Timestamp) -> Option<Caller> {
        if self.own.begins_with(token) {
            return Some(Caller::owner());
        }
        let token = Token::of(token);
        if self.owner.fits(&token) {
            return Some(Caller::owner());
        }
        let found = self.named().into_iter().find(|named| named.verifier.fits(&token))?;
        (!found.has_expired(now)).then(|| found.caller())
    }

    /// What seals sessions of the token of an id, and whose it is; nothing of one that opens nothing. It is made of the owner's
    /// token too, which is in no file of verifiers.
    pub fn sealing_key(&self, id: &str, now: Timestamp) -> Option<(Verifier, Caller)> {
        if id == OWNER_ID {
            return Some((self.owner.with(&self.owner), Caller::owner()));
        }
        let found = self.named().into_iter().find(|named| named.id == id).filter(|named| !named.has_expired(now))?;
        Some((self.owner.with(&found.verifier), found.caller()))
    }

    /// What proves to the holder of a token that this worker knows it.
    pub fn proof(&self, id: &str, challenge: &str, host: &str) -> String {
        let named = || self.named().into_iter().find(|named| named.id == id).map(|named| named.verifier);
        let verifier = if id == OWNER_ID { Some(self.owner) } else { named() };
        verifier.unwrap_or(self.nobody).proof(challenge, host)
    }

    fn named(&self) -> Vec<NamedToken> {
        let Some(data) = &self.data else { return Vec::new() };
        let path = path_in(data);
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = fs::metadata(&path).ok().map(|file| (file.ino(), file.mtime(), file.mtime_nsec(), file.len()));
        if cached.seen != seen {
            *cached = match read(&path) {
                Ok(stored) => Cached { seen, tokens: stored.tokens, unread: None },
                // What fails may pass, while the file stays as it is: it is read again at the next request.
                Err(why) => {
                    if cached.unread != seen {
                        tracing::error!(%why, "named tokens open nothing until the file can be read");
                    }
                    Cached { seen: None, tokens: Vec::new(), unread: seen }
                }
            };
        }
        cached.tokens.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn new(name: &str, role: TokenRole, expires_at: Option<Timestamp>) -> NewToken {
        NewToken { name: name.into(), role, namespaces: None, created_at: NOW, expires_at }
    }

    fn secret(token: &Token) -> String {
        token.header().strip_prefix("Bearer ").unwrap().to_owned()
    }

    #[test]
    fn a_named_token_opens_until_it_expires_or_is_revoked() {
        let data = tempfile::tempdir().unwrap();
        let owner = Token::of("o".repeat(64));
        let tokens = Tokens::new(&owner, Some(data.path().into())).unwrap();
        let ann = create(data.path(), new("ann", TokenRole::Approver, None)).unwrap();
        let bob = create(data.path(), new("bob", TokenRole::Viewer, Some(Timestamp(2_000_000)))).unwrap();
        let who = |token: &Token, now| tokens.caller(&secret(token), now).map(|caller| (caller.name, caller.role));
        assert_eq!(who(&owner, NOW), Some(("owner".into(), TokenRole::Owner)));
        assert_eq!(who(&ann, NOW), Some(("ann".into(), TokenRole::Approver)));
        assert_eq!(who(&bob, Timestamp(1_999_999)), Some(("bob".into(), TokenRole::Viewer)));
        assert_eq!(who(&bob, Timestamp(2_000_000)), None, "it has expired");
        revoke(data.path(), "ann").unwrap();
        assert_eq!(who(&ann, NOW), None, "it was revoked, and nobody restarted anything");
        assert!(matches!(revoke(data.path(), "ann"), Err(TokensError::Unknown(_))));
        assert!(matches!(create(data.path(), new("bob", TokenRole::Viewer, None)), Err(TokensError::Taken(_))));
        for bad in ["", "owner", "Owner", "OWNER", "a b", "a\nb", "ä"] {
            assert!(
                matches!(create(data.path(), new(bad, TokenRole::Viewer, None)), Err(TokensError::Name(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn what_is_stored_opens_nothing() {
        let data = tempfile::tempdir().unwrap();
        let token = create(data.path(), new("ann", TokenRole::Owner, None)).unwrap();
        let text = fs::read_to_string(path_in(data.path())).unwrap();
        assert!(!text.contains(secret(&token).rsplit('_').next().unwrap()), "{text}");
        let mode = fs::metadata(path_in(data.path())).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let verifier = &list(data.path()).unwrap()[0].verifier;
        let tokens = Tokens::new(&Token::of("o".repeat(64)), Some(data.path().into())).unwrap();
        assert_eq!(tokens.caller(serde_json::to_value(verifier).unwrap().as_str().unwrap(), NOW), None);
        fs::write(path_in(data.path()), "{").unwrap();
        assert_eq!(tokens.caller(&secret(&token), NOW), None, "a file that cannot be read opens nothing");
    }

    /// A proof is for one token, one challenge and one address, and unknown tokens are answered alike.
    #[test]
    fn a_proof_says_that_the_token_is_known() {
        let data = tempfile::tempdir().unwrap();
        let owner = Token::of("o".repeat(64));
        let ann = create(data.path(), new("ann", TokenRole::Viewer, None)).unwrap();
        let tokens = Tokens::new(&owner, Some(data.path().into())).unwrap();
        for token in [&owner, &ann] {
            let proof = tokens.proof(&token.id(), "c1", "127.0.0.1:7");
            assert!(token.verifier().is_proof(&proof, "c1", "127.0.0.1:7"));
            for (challenge, host) in [("c2", "127.0.0.1:7"), ("c1", "127.0.0.1:8"), ("c11", "27.0.0.1:7")] {
                assert!(!token.verifier().is_proof(&proof, challenge, host));
            }
        }
        let stranger = Token::of("bosun_00000000_x".to_owned() + &"y".repeat(64));
        let answered = tokens.proof(&stranger.id(), "c1", "h");
        assert_eq!(answered.len(), 64);
        assert!(!stranger.verifier().is_proof(&answered, "c1", "h"));
    }
}
