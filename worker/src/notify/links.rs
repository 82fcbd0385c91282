//! Signed links: an address that decides one request of one run, once, until it expires.
//!
//! ```text
//!   claim (run · request · hash of what was shown · decision · channel · end) ──HMAC──► link
//!   link ──► ours? ──► not late? ──► not used? ──► asked still, and the same? ──► decided, then noted as used
//! ```
//!
//! Invariant: only the worker of this directory can make a link, and whoever holds one can do what it says and nothing else. All
//! links of one request are used up together, whichever of them is used. It is noted after the decision is durable: who is cut
//! off in between can use the link again, and the run takes the answer once.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bosun_engine::{Namespace, RunId, Timestamp, WorkflowId, hex};
use ring::hmac;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard};

use crate::api::Token;
use crate::api::token::TokenError;

/// What a link says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkClaim {
    pub(crate) namespace: Namespace,
    pub(crate) workflow_id: WorkflowId,
    pub(crate) run_id: RunId,
    /// The id of the request.
    pub(crate) request: String,
    /// The hash of what was asked: an approval, the arguments of a call, a version of a plan.
    pub(crate) shown: String,
    pub(crate) approve: bool,
    /// Who was told.
    pub(crate) channel: String,
    pub(crate) expires_at: Timestamp,
}

impl LinkClaim {
    /// What all links of one request have in common.
    pub(crate) fn of_request(&self) -> String {
        let parts = serde_json::json!([self.run_id, self.request, self.shown]).to_string();
        hex(&blake3::derive_key("bosun 2026 use of a link", parts.as_bytes())[..16])
    }
}

/// Why a link opens nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkRefusal {
    /// Altered, guessed, of another worker: nobody is told which.
    #[error("this link was not made by this worker, or it was altered; answer on the pages, or with `bosun approval`")]
    NotOurs,
    #[error("this link has expired: the request can be answered on the pages, or by `bosun approval`")]
    Expired,
    #[error("a link of this request has been used already, and each request is decided once")]
    Used,
    #[error("the links of this worker cannot be read: {0}")]
    Unreadable(String),
}

impl From<TokenError> for LinkRefusal {
    fn from(why: TokenError) -> Self {
        LinkRefusal::Unreadable(why.to_string())
    }
}

/// The seal is for links and for nothing else.
const SEALED: &[u8] = b"bosun link 1\n";
/// More is no link.
const LENGTH_MAX: usize = 4_096;

/// The links of a data directory.
#[derive(Debug)]
pub(crate) struct Links {
    directory: PathBuf,
    /// Read when the first one is used.
    used: Mutex<Option<UsedLinks>>,
}

impl Links {
    pub(crate) fn of(data: &Path) -> Links {
        Links { directory: data.join("links"), used: Mutex::default() }
    }

    fn key_file(&self) -> PathBuf {
        self.directory.join("key")
    }

    /// The link of a claim; with it the key, which only the owner can read.
    pub(crate) fn make(&self, claim: &LinkClaim) -> Result<String, LinkRefusal> {
        let unreadable = |why: io::Error| LinkRefusal::Unreadable(why.to_string());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).map_err(unreadable)?;
        let key = Token::read_or_create(&self.key_file())?;
        let said = serde_json::to_vec(claim).map_err(|why| LinkRefusal::Unreadable(why.to_string()))?;
        let seal = hmac::sign(&key_of(&key), &[SEALED, &said].concat());
        Ok(format!("{}.{}", URL_SAFE_NO_PAD.encode(&said), URL_SAFE_NO_PAD.encode(seal)))
    }

    /// What a link says, if it is ours and has not expired.
    pub(crate) fn read(&self, link: &str, now: Timestamp) -> Result<LinkClaim, LinkRefusal> {
        // Whoever has never made one has none to know again.
        if link.len() > LENGTH_MAX || !self.key_file().exists() {
            return Err(LinkRefusal::NotOurs);
        }
        let key = Token::read(&self.key_file())?;
        let (said, seal) = link.split_once('.').ok_or(LinkRefusal::NotOurs)?;
        let read = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| LinkRefusal::NotOurs);
        let (said, seal) = (read(said)?, read(seal)?);
        // In constant time.
        hmac::verify(&key_of(&key), &[SEALED, &said].concat(), &seal).map_err(|_| LinkRefusal::NotOurs)?;
        let claim: LinkClaim = serde_json::from_slice(&said).map_err(|_| LinkRefusal::NotOurs)?;
        if now >= claim.expires_at { Err(LinkRefusal::Expired) } else { Ok(claim) }
    }

    /// The links that were used; nobody else decides by one meanwhile.
    pub(crate) async fn used(&self, now: Timestamp) -> Result<UsedGuard<'_>, LinkRefusal> {
        let mut guard = self.used.lock().await;
        if guard.is_none() {
            let opened = UsedLinks::open(&self.directory.join("used"), now);
            *guard = Some(opened.map_err(|why| LinkRefusal::Unreadable(why.to_string()))?);
        }
        Ok(UsedGuard(guard))
    }
}

fn key_of(key: &Token) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.secret().as_bytes())
}

/// See [`Links::used`].
pub(crate) struct UsedGuard<'l>(MutexGuard<'l, Option<UsedLinks>>);

impl UsedGuard<'_> {
    pub(crate) fn check(&self, claim: &LinkClaim) -> Result<(), LinkRefusal> {
        let used = self.0.as_ref().is_some_and(|used| used.until.contains_key(&claim.of_request()));
        if used { Err(LinkRefusal::Used) } else { Ok(()) }
    }

    /// Notes, durably, that the request was decided.
    pub(crate) fn note(&mut self, claim: &LinkClaim) -> Result<(), LinkRefusal> {
        let Some(used) = self.0.as_mut() else { return Ok(()) };
        used.note(claim).map_err(|why| LinkRefusal::Unreadable(why.to_string()))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct UsedLine {
    of: String,
    until: Timestamp,
}

/// A line for each request that a link decided.
#[derive(Debug)]
pub(crate) struct UsedLinks {
    file: fs::File,
    until: BTreeMap<String, Timestamp>,
}

/// A link of one request may live longer than the one that was used.
const KEPT: std::time::Duration = std::time::Duration::from_secs(30 * 24 * 3_600);

impl UsedLinks {
    /// Reads the file, and leaves out of it what no link can name any more. A torn last line was never told as done.
    fn open(path: &Path, now: Timestamp) -> io::Result<UsedLinks> {
        let text = match fs::read_to_string(path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let lines = text.lines().filter_map(|line| serde_json::from_str::<UsedLine>(line).ok());
        let until: BTreeMap<String, Timestamp> =
            lines.filter(|line| now < line.until.plus(KEPT)).map(|line| (line.of, line.until)).collect();
        let temporary = path.with_extension("tmp");
        let create = || fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let mut file = create()?;
        for (of, until) in &until {
            file.write_all(&line_of(of, *until)?)?;
        }
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        if let Some(directory) = path.parent() {
            fs::File::open(directory)?.sync_all()?;
        }
        Ok(UsedLinks { file, until })
    }

    fn note(&mut self, claim: &LinkClaim) -> io::Result<()> {
        let of = claim.of_request();
        self.file.write_all(&line_of(&of, claim.expires_at)?)?;
        self.file.sync_data()?;
        self.until.insert(of, claim.expires_at);
        Ok(())
    }
}

fn line_of(of: &str, until: Timestamp) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&UsedLine { of: of.to_owned(), until })?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn claim() -> LinkClaim {
        LinkClaim {
            namespace: Namespace::of("default"),
            workflow_id: WorkflowId::of("order-7"),
            run_id: RunId([7; 16]),
            request: "ap-1".into(),
            shown: "hash".into(),
            approve: true,
            channel: "ops".into(),
            expires_at: Timestamp(2_000_000_000),
        }
    }

    #[test]
    fn a_link_says_what_was_claimed_until_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::of(dir.path());
        assert!(matches!(links.read("a.b", NOW), Err(LinkRefusal::NotOurs)), "none was ever made");
        let link = links.make(&claim()).unwrap();
        assert_eq!(link, links.make(&claim()).unwrap(), "every attempt sends the same");
        assert_eq!(Links::of(dir.path()).read(&link, NOW).unwrap(), claim());
        let last = Timestamp(claim().expires_at.0 - 1);
        assert!(links.read(&link, last).is_ok());
        assert!(matches!(links.read(&link, claim().expires_at), Err(LinkRefusal::Expired)));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&links.key_file()), mode(&links.directory)), (0o600, 0o700));
        fs::set_permissions(links.key_file(), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(links.read(&link, NOW), Err(LinkRefusal::Unreadable(_))), "others could have read the key");
    }

    /// Each byte of it, one cut off, and one of another worker.
    #[test]
    fn an_altered_link_is_none() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let links = Links::of(dir.path());
        let link = links.make(&claim()).unwrap();
        for at in 0..link.len() {
            let mut bytes = link.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(bytes).unwrap();
            assert!(matches!(links.read(&altered, NOW), Err(LinkRefusal::NotOurs)), "{at}: {altered}");
            assert!(matches!(links.read(&link[..at], NOW), Err(LinkRefusal::NotOurs)), "{at}");
        }
        let of_other = Links::of(other.path()).make(&claim()).unwrap();
        assert!(matches!(links.read(&of_other, NOW), Err(LinkRefusal::NotOurs)));
        let reject = LinkClaim { approve: false, ..claim() };
        let (said, _) =
            links.make(&reject).unwrap().split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let mixed = format!("{said}.{}", link.split_once('.').unwrap().1);
        assert!(matches!(links.read(&mixed, NOW), Err(LinkRefusal::NotOurs)), "the decision is sealed too");
    }

    #[tokio::test]
    async fn all_links_of_a_request_are_used_up_together_and_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::of(dir.path());
        links.make(&claim()).unwrap();
        let reject = LinkClaim { approve: false, channel: "chat".into(), ..claim() };
        let other = LinkClaim { shown: "other".into(), ..claim() };
        {
            let mut used = links.used(NOW).await.unwrap();
            used.check(&claim()).unwrap();
            used.note(&claim()).unwrap();
            assert!(matches!(used.check(&reject), Err(LinkRefusal::Used)));
            used.check(&other).unwrap();
        }
        // Torn in the middle of the next line, and read again.
        let path = dir.path().join("links/used");
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"of\":\"ab");
        fs::write(&path, text).unwrap();
        let again = Links::of(dir.path());
        let mut used = again.used(NOW).await.unwrap();
        assert!(matches!(used.check(&reject), Err(LinkRefusal::Used)));
        used.note(&other).unwrap();
        drop(used);
        let much_later = claim().expires_at.plus(KEPT);
        assert!(Links::of(dir.path()).used(much_later).await.unwrap().check(&claim()).is_ok(), "no link is that old");
    }
}
