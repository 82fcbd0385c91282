//! Encryption at rest as the owner's configuration says it (E31): the keys, and which of them a store needs.
//!
//! Invariant: a store that was ever written with a key says so in `keys.json`, before the first byte of it: without that key
//! it is not opened, and so not overwritten, whatever else is wrong. The file stands twice, also beside the database, so that
//! a copy that lacks one of them is no plain store, and so that damage to one of them costs nothing: each proves itself by a
//! hash. Keys are named by a hash of themselves, so that a wrong one is a missing
//! one. Compression comes before encryption. A key is shown by nothing.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bosun_engine::log::{CodecChain, Compression, Encryption, PayloadCodec};
use rustix::fs::{FlockOperation, StatVfsMountFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::durable::{mend_mode, of_this_writer, write_whole_with_mode};
use super::model::SecretRef;

/// The codecs of the stores of a process.
#[derive(Debug, Clone, Default)]
pub struct AtRest {
    pub codec: CodecChain,
    /// The name of the key that is written with, and of all that are there to read with.
    primary: Option<String>,
    keys: Vec<String>,
}

/// Where the keys are: `env:NAME`, `file:/path` or `cmd:program arguments`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreKeys {
    /// What is stored is encrypted with this key from now on: 64 hexadecimal digits.
    pub key: Option<String>,
    /// Keys before it, which only read.
    pub old_keys: Vec<String>,
}

/// Why a store is not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AtRestError {
    #[error(
        "{} is encrypted with the key {key}, which is not given: name it in `store.key` or `store.old_keys`; \
         nothing was touched", data.display()
    )]
    MissingKey { data: PathBuf, key: String },
    /// The file is damaged: which keys are needed is not known.
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error("{}: {why}; see whether the store belongs to another user, and to the disk", path.display())]
    Unreachable { path: PathBuf, why: String },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRegister {
    version: u32,
    /// The names of all keys that anything here was written with.
    keys: Vec<String>,
    /// A hash of these, so that a damaged name is not looked for. Version 1 had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<String>,
}

const VERSION: u32 = 2;
const FILE: &str = "keys.json";
/// So many digits of a hash name a key.
const NAME: usize = 12;

impl AtRest {
    /// Reads the keys: the one that is written with, and those before it, which only read.
    ///
    /// # Errors
    /// A sentence that names the reference, and never the key.
    pub async fn load(keys: &StoreKeys) -> Result<AtRest, String> {
        let StoreKeys { key, old_keys } = keys;
        if key.is_none() && !old_keys.is_empty() {
            return Err("`store.old_keys` only read: name the key that is written with in `store.key`".to_owned());
        }
        let Some(key) = key.as_deref() else { return Ok(AtRest::default()) };
        let (primary, secret) = read(key).await?;
        let mut keys = vec![primary.clone()];
        let mut encryption = Encryption::new(primary.clone(), secret);
        for old in old_keys {
            let (name, secret) = read(old).await?;
            encryption = encryption.also_reads(name.clone(), secret);
            keys.push(name);
        }
        let codecs: Vec<Arc<dyn PayloadCodec>> = vec![Arc::new(Compression::default()), Arc::new(encryption)];
        Ok(AtRest { codec: CodecChain::new(codecs), primary: Some(primary), keys })
    }

    /// The name of the key that is written with.
    pub fn primary(&self) -> Option<&str> {
        self.primary.as_deref()
    }

    /// Whether all keys are here that a directory needs. Touches nothing.
    ///
    /// # Errors
    /// The first that is not.
    pub fn fits(&self, data: &Path) -> Result<(), AtRestError> {
        match noted(data)?.keys.into_iter().find(|key| !self.keys.contains(key)) {
            Some(key) => Err(AtRestError::MissingKey { data: data.to_owned(), key }),
            None => Ok(()),
        }
    }

    /// Notes the key before anything is written with it.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn note(&self, data: &Path) -> Result<(), AtRestError> {
        let Some(primary) = &self.primary else { return Ok(()) };
        note_in(data, || {
            let mut keys = noted(data)?.keys;
            if !keys.contains(primary) {
                keys.push(primary.clone());
            }
            Ok(KeyRegister::of(keys))
        })
    }

    /// Notes the keys of a directory where a copy of it is to be made, so that one cut short right after it came is not taken
    /// for a plain store. A place that is not free is left as it is: who copies refuses it.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn copy_ahead(from: &Path, to: &Path) -> Result<(), AtRestError> {
        let is_free = match fs::read_dir(to) {
            Ok(mut entries) => entries.next().is_none(),
            Err(why) => why.kind() == io::ErrorKind::NotFound,
        };
        if !is_free || noted(from)?.keys.is_empty() {
            return Ok(());
        }
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(to);
        made.map_err(|why| AtRestError::Unreachable { path: to.to_owned(), why: why.to_string() })?;
        AtRest::copy(from, to)
    }

    /// Refuses a place for a copy that names other keys than the directory: the copy would not open there.
    ///
    /// # Errors
    /// It does, or one of them cannot be read.
    pub fn is_of(from: &Path, to: &Path) -> Result<(), AtRestError> {
        let path = to.join(FILE);
        let there = noted_at(&path)?.map_or_else(Vec::new, |there| there.keys);
        let known = noted(from)?.keys;
        // Fewer are those of a copy that was begun before a new key.
        if there.iter().all(|key| known.contains(key)) {
            return Ok(());
        }
        let why = "it names the keys of another store; choose a new directory".to_owned();
        Err(AtRestError::File { path, why })
    }

    /// The same for a copy of a directory.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn copy(from: &Path, to: &Path) -> Result<(), AtRestError> {
        let known = noted(from)?;
        if known.keys.is_empty() {
            return Ok(());
        }
        note_in(to, || Ok(KeyRegister::of(known.keys.clone())))
    }
}

/// The names of the keys that a directory needs.
///
/// # Errors
/// The file cannot be read.
pub fn needed(data: &Path) -> Result<Vec<String>, AtRestError> {
    Ok(noted(data)?.keys)
}

async fn read(reference: &str) -> Result<(String, [u8; 32]), String> {
    let reference: SecretRef = reference.parse().map_err(|why| format!("the key of the store: {why}"))?;
    if let SecretRef::File(path) = &reference {
        only_for_its_owner(path)?;
    }
    let text = reference.resolve().await.map_err(|why| format!("the key of the store: {}", why.message))?;
    let key = blake3::Hash::from_hex(text.expose()).map_err(|_| {
        format!("what {reference} gives is no key: 64 hexadecimal digits, as of `openssl rand -hex 32`")
    })?;
    let name = blake3::Hash::from_bytes(blake3::derive_key("bosun 2026 name of a key", key.as_bytes())).to_hex();
    Ok((name.as_str()[..NAME].to_owned(), *key.as_bytes()))
}

/// A key that others can read hides nothing from them. One that the worker's user could not close to them, as a secret that Docker
/// or Kubernetes mounts, is used, with a warning: who runs it decides who else is there.
fn only_for_its_owner(path: &Path) -> Result<(), String> {
    // One that cannot be looked at is said to be by whoever reads it.
    let Ok(about) = fs::metadata(path) else { return Ok(()) };
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let fixed = rustix::fs::statvfs(path).is_ok_and(|of| of.f_flag.contains(StatVfsMountFlags::RDONLY));
    if fixed || about.uid() != rustix::process::geteuid().as_raw() {
        tracing::warn!(path = %path.display(), mode = %format!("{mode:o}"), "others can read the key of the store");
        return Ok(());
    }
    Err(format!(
        "the key of the store: the file {} can be read by others (mode {mode:o}); run `chmod 600` on it",
        path.display()
    ))
}

/// In the directory, and beside its database.
fn places(data: &Path) -> [PathBuf; 2] {
    [data.to_owned(), data.join("log")].map(|dir| dir.join(FILE))
}

impl KeyRegister {
    fn of(keys: Vec<String>) -> KeyRegister {
        let check = blake3::hash(keys.join(",").as_bytes()).to_hex();
        KeyRegister { version: VERSION, keys, check: Some(check.as_str()[..NAME].to_owned()) }
    }

    fn proves_itself(&self) -> bool {
        self.check.is_some()
    }
}

/// What either of the two says. One that is damaged costs nothing where the other proves itself.
fn noted(data: &Path) -> Result<KeyRegister, AtRestError> {
    let both = places(data).map(|path| noted_at(&path));
    let is_proven = both.iter().flatten().flatten().any(KeyRegister::proves_itself);
    let mut keys: Vec<String> = Vec::new();
    for found in both {
        match found {
            Ok(found) => {
                let new = found.into_iter().flat_map(|found| found.keys).filter(|key| !keys.contains(key));
                let new: Vec<String> = new.collect();
                keys.extend(new);
            }
            Err(AtRestError::File { path, why }) if is_proven => {
                tracing::warn!(path = %path.display(), why, "the names of the keys are taken from the other file");
            }
            Err(why) => return Err(why),
        }
    }
    Ok(KeyRegister::of(keys))
}

fn noted_at(path: &Path) -> Result<Option<KeyRegister>, AtRestError> {
    let bad = |why: String| AtRestError::File { path: path.to_owned(), why };
    let bytes = match fs::metadata(path).and_then(|about| match about.is_file() {
        true => fs::read(path),
        // A pipe would be waited for.
        false => Err(io::Error::other("it is no file")),
    }) {
        Ok(bytes) => bytes,
        Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(why) => return Err(AtRestError::Unreachable { path: path.to_owned(), why: why.to_string() }),
    };
    let damaged = |why: &str| {
        bad(format!(
            "it does not name the keys of this store as it did when it was written ({why}); put back a copy of it"
        ))
    };
    let noted: KeyRegister = serde_json::from_slice(&bytes).map_err(|why| damaged(&why.to_string()))?;
    match noted.version {
        1 if noted.check.is_none() => Ok(Some(noted)),
        VERSION if noted == KeyRegister::of(noted.keys.clone()) => Ok(Some(noted)),
        VERSION | 1 => Err(damaged("its check is wrong")),
        newer => Err(bad(format!("version {newer} is not {VERSION}"))),
    }
}

/// Writes what is not there yet. The second one has no place before there is a database. What two processes note at the same
/// moment is one after the other: `known` says what is known then.
fn note_in(data: &Path, known: impl Fn() -> Result<KeyRegister, AtRestError>) -> Result<(), AtRestError> {
    let unreachable =
        |path: &Path, why: &io::Error| AtRestError::Unreachable { path: path.to_owned(), why: why.to_string() };
    if !data.is_dir() {
        return Ok(());
    }
    let alone = File::open(data).map_err(|why| unreachable(data, &why))?;
    // There are network disks without locks. There whoever looks for the other key finds that it is missing, and says so.
    let _ = rustix::fs::flock(&alone, FlockOperation::LockExclusive);
    let known = known()?;
    for path in places(data) {
        let Some(dir) = path.parent().filter(|dir| dir.is_dir()) else { continue };
        // One that is damaged is written anew: what is known came from the other. One of older programs stays as they read it.
        let is_there = noted_at(&path).is_ok_and(|there| there.is_some_and(|there| there.keys == known.keys));
        let written = match is_there {
            true => mode_beside(dir).and_then(|mode| mend_mode(&path, mode)),
            false => write(dir, &known),
        };
        written.map_err(|why| unreachable(&path, &why))?;
    }
    Ok(())
}

/// The names of keys are no secret: whoever may read what is there may read which key it needs.
fn mode_beside(dir: &Path) -> io::Result<u32> {
    Ok(0o600 | (fs::metadata(dir)?.permissions().mode() & 0o044))
}

fn write(dir: &Path, noted: &KeyRegister) -> io::Result<()> {
    let content = serde_json::to_vec_pretty(noted)?;
    let beside = format!("{FILE}.new-{}", of_this_writer()?);
    write_whole_with_mode(File::open(dir)?, FILE, beside.as_str(), &content, mode_beside(dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(dir: &Path, name: &str, text: &str) -> String {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        format!("file:{}", path.display())
    }

    async fn loaded(key: Option<&str>, old_keys: &[&str]) -> Result<AtRest, String> {
        let old_keys = old_keys.iter().map(|key| (*key).to_owned()).collect();
        AtRest::load(&StoreKeys { key: key.map(str::to_owned), old_keys }).await
    }

    #[tokio::test]
    async fn a_directory_needs_every_key_that_it_was_written_with() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (key(dir.path(), "one", &"1".repeat(64)), key(dir.path(), "two", &"2".repeat(64)));
        let data = tempfile::tempdir().unwrap();
        let none = loaded(None, &[]).await.unwrap();
        none.fits(data.path()).unwrap();
        none.note(data.path()).unwrap();
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0, "without a key nothing is noted");
        let first = loaded(Some(&one), &[]).await.unwrap();
        first.note(data.path()).unwrap();
        first.fits(data.path()).unwrap();
        let lost = none.fits(data.path()).unwrap_err();
        assert!(lost.to_string().contains(&format!("the key {}", first.primary().unwrap())), "{lost}");
        let wrong = loaded(Some(&two), &[]).await.unwrap();
        assert_eq!(wrong.fits(data.path()), Err(lost.clone()), "a wrong key is a missing one");
        let rotated = loaded(Some(&two), &[&one]).await.unwrap();
        rotated.fits(data.path()).unwrap();
        rotated.note(data.path()).unwrap();
        assert_eq!(needed(data.path()).unwrap().len(), 2);
        assert!(first.fits(data.path()).is_err(), "it has been written with the other since");
        let copy = tempfile::tempdir().unwrap();
        AtRest::copy(data.path(), copy.path()).unwrap();
        assert!(first.fits(copy.path()).is_err());
        // Either of the two files is enough, and the next start brings the other back.
        fs::create_dir(data.path().join("log")).unwrap();
        rotated.note(data.path()).unwrap();
        for lost in places(data.path()) {
            fs::remove_file(&lost).unwrap();
            assert!(none.fits(data.path()).is_err() && first.fits(data.path()).is_err(), "{}", lost.display());
            rotated.fits(data.path()).unwrap();
            rotated.note(data.path()).unwrap();
            assert!(lost.exists());
        }
        // So is it with damage, and a damaged name of a key is looked for by nobody.
        let whole = fs::read_to_string(&places(data.path())[0]).unwrap();
        let other = whole.replacen(first.primary().unwrap(), "92576da02f91", 1);
        for damage in ["{", &other] {
            for damaged in places(data.path()) {
                fs::write(&damaged, damage).unwrap();
                rotated.fits(data.path()).unwrap();
                assert!(none.fits(data.path()).is_err());
                rotated.note(data.path()).unwrap();
                assert_eq!(fs::read_to_string(&damaged).unwrap(), whole);
            }
        }
        places(data.path()).iter().for_each(|path| fs::write(path, &other).unwrap());
        let why = rotated.fits(data.path()).unwrap_err().to_string();
        assert!(why.contains("put back a copy") && why.contains("check"), "{why}");
        // As it was written before there was a hash.
        let old = format!("{{\"version\": 1, \"keys\": [\"{}\"]}}", first.primary().unwrap());
        places(data.path()).iter().for_each(|path| fs::write(path, &old).unwrap());
        rotated.fits(data.path()).unwrap();
        assert!(AtRest::is_of(data.path(), copy.path()).is_err(), "the copy names two keys");
        AtRest::is_of(copy.path(), copy.path()).unwrap();
    }

    /// Of workers that begin with keys of their own at once, none forgets another's.
    #[tokio::test]
    async fn keys_that_are_noted_at_once_are_all_noted() {
        let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut all = Vec::new();
        for digit in ["1", "2", "3", "4", "5", "6"] {
            all.push(loaded(Some(&key(dir.path(), digit, &digit.repeat(64))), &[]).await.unwrap());
        }
        let begin = std::sync::Barrier::new(all.len());
        std::thread::scope(|threads| {
            for one in &all {
                let begin = &begin;
                let data = data.path();
                threads.spawn(move || {
                    begin.wait();
                    one.note(data).unwrap();
                });
            }
        });
        assert_eq!(needed(data.path()).unwrap().len(), all.len());
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1, "nothing is left beside");
    }

    #[tokio::test]
    async fn a_key_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = key(dir.path(), "open", &"1".repeat(64));
        fs::set_permissions(dir.path().join("open"), fs::Permissions::from_mode(0o640)).unwrap();
        let why = loaded(Some(&open), &[]).await.unwrap_err();
        assert!(why.contains("mode 640") && why.contains("chmod 600"), "{why}");
        // Another user's file cannot be closed by the worker's.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path().join("open"), Some(65_534), None).unwrap();
            loaded(Some(&open), &[]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_no_key_is_refused_and_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let short = key(dir.path(), "short", "secret");
        for (reference, old) in [(Some(short.as_str()), vec![]), (Some("secret"), vec![]), (None, vec![short.as_str()])]
        {
            let why = loaded(reference, &old).await.unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
