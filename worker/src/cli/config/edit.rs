//! `config get`, `config set`, `config unset` and `config profiles`: single values of the owner's configuration, and the file
//! that holds them.
//!
//! Invariant: a file is changed only if what it says afterwards can be used, all of it; what it says besides, comments and order
//! too, stays as it was: with a value that is taken out goes the comment that stands at it. It is written as a whole where it
//! lies, also behind a link, and by one command at a time, so that a crash or another command loses nothing of it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use toml_edit::{Array, DocumentMut, Item, Table};

use super::super::error::CliError;
use super::super::exit::Exit;
use super::super::explain::Code;
use super::super::output::Screen;
use super::{
    FileText, KeyKind, Loaded, SET, Values, kind_of, old_keys_fit, put_together, read_text, unknown, variable_of,
    without_path, wrong,
};
use crate::capability::durable::write_whole;

#[derive(Debug, Args)]
pub struct GetArgs {
    /// The key, for example worker.slots.
    #[arg(value_name = "KEY")]
    key: String,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// The key, for example worker.slots.
    #[arg(value_name = "KEY")]
    key: String,
    /// The value; several of a list are separated by commas.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: String,
    /// More keys, each with its value, that are of use only together: the address of a webhook and its secret.
    #[arg(value_name = "KEY VALUE")]
    more: Vec<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub struct UnsetArgs {
    /// The key, for example worker.slots.
    #[arg(value_name = "KEY")]
    key: String,
    #[command(flatten)]
    place: Place,
}

/// Which file is changed, and where in it.
#[derive(Debug, Args)]
struct Place {
    /// Change the values of this profile, and not those of the whole file.
    // An argument called `profile` would hide the one of all verbs.
    #[arg(long, value_name = "NAME")]
    in_profile: Option<String>,
    /// The file [default: the one that is in force, or else ./bosun.toml].
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// One value in force, and where it comes from.
pub(super) fn get(screen: &mut Screen, loaded: &Loaded, args: &GetArgs) -> Result<Exit, CliError> {
    let key = args.key.as_str();
    kind_of(key).ok_or_else(|| unknown(key, "config get"))?;
    let Some((value, origin)) = loaded.origins.get(key) else {
        screen.object("config.get", json!({ "key": key, "value": null, "origin": "default" }));
        screen.note(&format!("{key} is not set: it has its default"));
        return Ok(Exit::Ok);
    };
    let value = without_path(key, value);
    screen.object("config.get", json!({ "key": key, "value": value, "origin": origin }));
    let text = match &value {
        Value::Array(items) => items.iter().map(super::super::result::value_text).collect::<Vec<_>>().join(","),
        value => super::super::result::value_text(value),
    };
    screen.line(text);
    Ok(Exit::Ok)
}

/// The profiles of the file in force.
pub(super) fn profiles(screen: &mut Screen, loaded: &Loaded) -> Result<Exit, CliError> {
    let rows: Vec<Value> = loaded
        .profiles
        .iter()
        .map(|name| json!({ "profile": name, "in_force": loaded.profile.as_ref() == Some(name) }))
        .collect();
    for name in &loaded.profiles {
        let mark = if loaded.profile.as_ref() == Some(name) { "  (in force)" } else { "" };
        screen.line(format!("{name}{mark}"));
    }
    if rows.is_empty() {
        screen.note("no profiles: a table [profiles.NAME] in bosun.toml is one, with the same keys");
    }
    screen.objects("config.profiles", "profiles", rows);
    Ok(Exit::Ok)
}

pub(super) fn set(screen: &mut Screen, loaded: &Loaded, args: &SetArgs) -> Result<Exit, CliError> {
    let mut asked = vec![(args.key.as_str(), args.value.as_str())];
    let (more, odd) = args.more.as_chunks::<2>();
    if let [key] = odd {
        return Err(CliError::usage(format!("{key}: no value is given for it")));
    }
    asked.extend(more.iter().map(|[key, value]| (key.as_str(), value.as_str())));
    let mut file = TomlFile::open(args.place.path(loaded), loaded.beside_the_file())?;
    let mut set = Vec::new();
    for (key, text) in asked {
        let kind = kind_of(key).ok_or_else(|| unknown(key, "config set"))?;
        let value = kind.read(text).ok_or_else(|| wrong(&format!("{key}={text}: {}", kind.wanted())))?;
        put_at(slot(&mut file.document, &args.place.full(key))?, item_of(kind, &value));
        set.push((key, without_path(key, &value)));
    }
    // One text for all of them: what each lacks may be said by another.
    let says = file.read()?;
    file.keep()?;
    let hidden = set.iter().flat_map(|(key, _)| args.place.hidden(loaded, &file, &says, key)).collect();
    let mut told = json!({ "key": set[0].0, "value": set[0].1 });
    if set.len() > 1 {
        told["also"] = set[1..].iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
    }
    said(screen, "config.set", &file, told, hidden);
    Ok(Exit::Ok)
}

pub(super) fn unset(screen: &mut Screen, loaded: &Loaded, args: &UnsetArgs) -> Result<Exit, CliError> {
    let key = args.key.as_str();
    let mut file = TomlFile::open(args.place.path(loaded), loaded.beside_the_file())?;
    let full = args.place.full(key);
    let (above, last) = full.rsplit_once('.').unwrap_or(("", &full));
    let mut names = above.split('.').filter(|name| !name.is_empty());
    let table = names.try_fold(file.document.as_item_mut(), |at, name| at.get_mut(name));
    let removed = table.and_then(Item::as_table_like_mut).and_then(|table| table.remove(last));
    if removed.is_none() {
        // A key that is not known is taken out of a file that has it: nothing else mends that.
        kind_of(key).ok_or_else(|| unknown(key, "config unset"))?;
        return Err(CliError::new(Code::NotFound, format!("{} does not set {full}", file.path.display())));
    }
    let says = match file.read() {
        // Of several mistakes one is taken out after the other.
        Err(why) if file.was_refused() => {
            file.keep()?;
            screen.note(&format!("it is still refused: {}", why.message));
            FileText::default()
        }
        says => says.and_then(|says| file.keep().map(|()| says))?,
    };
    said(screen, "config.unset", &file, json!({ "key": key }), args.place.hidden(loaded, &file, &says, key));
    Ok(Exit::Ok)
}

impl Place {
    fn path(&self, loaded: &Loaded) -> PathBuf {
        let in_force = || loaded.file.clone().unwrap_or_else(|| PathBuf::from(super::FILE));
        self.file.clone().unwrap_or_else(in_force)
    }

    fn full(&self, key: &str) -> String {
        match &self.in_profile {
            Some(profile) => format!("profiles.{profile}.{key}"),
            None => key.to_owned(),
        }
    }

    /// What goes before a value here: where else it is set, and when.
    fn hidden(&self, loaded: &Loaded, file: &TomlFile, says: &FileText, key: &str) -> Vec<String> {
        let mut all = Vec::new();
        if self.in_profile.is_none() {
            let others = says.profiles.iter().filter(|(_, values)| values.contains_key(key));
            all.extend(others.map(|(name, _)| match loaded.profile.as_ref() == Some(name) {
                true => format!("[profiles.{name}]"),
                false => format!("[profiles.{name}], with --profile {name},"),
            }));
        }
        let in_force = loaded.file.as_ref().and_then(|path| path.canonicalize().ok());
        let elsewhere = in_force.is_some_and(|in_force| in_force != file.path);
        let origin = loaded.origins.get(key).map(|(_, origin)| origin.as_str());
        all.extend(
            origin.filter(|origin| elsewhere || *origin == SET || *origin == variable_of(key)).map(str::to_owned),
        );
        all
    }
}

/// What was done, and what goes before it.
fn said(screen: &mut Screen, schema: &str, file: &TomlFile, mut told: Value, hidden: Vec<String>) {
    told["file"] = json!(file.path);
    told["hidden_by"] = json!(hidden);
    screen.object(schema, told);
    screen.line(format!("written to {}", file.path.display()));
    hidden.iter().for_each(|by| screen.note(&format!("{by} sets it too, and goes before this")));
    screen.note("a worker reads it when it starts");
}

/// A file that this command alone changes.
struct TomlFile {
    path: PathBuf,
    /// Held until the end.
    directory: File,
    before: String,
    document: DocumentMut,
    /// What holds beside it: the environment, the command line.
    beside: Values,
}

impl TomlFile {
    fn open(path: PathBuf, beside: Values) -> Result<TomlFile, CliError> {
        let bad = |why: String| wrong(&format!("{}: {why}", path.display()));
        // A link stays one: the file that it leads to is changed.
        let there = match path.canonicalize() {
            Err(why) if why.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
                return Err(bad("it is a link, and leads nowhere".to_owned()));
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => path.clone(),
            there => there.map_err(|why| bad(why.to_string()))?,
        };
        let parent = there.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = File::open(parent).and_then(locked).map_err(|why| bad(why.to_string()))?;
        let before = match fs::read_to_string(&there) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(|why| bad(why.to_string()))?,
        };
        let document = before.parse::<DocumentMut>().map_err(|why| bad(why.to_string()))?;
        Ok(TomlFile { path: there, directory, before, document, beside })
    }

    /// What the new text says, if it can be used.
    fn read(&self) -> Result<FileText, CliError> {
        read_whole(&self.document.to_string(), &self.path, &self.beside)
    }

    /// Whether what it said before could not be used.
    fn was_refused(&self) -> bool {
        read_whole(&self.before, &self.path, &self.beside).is_err()
    }

    /// Puts the new text in the place of the old one.
    fn keep(&self) -> Result<(), CliError> {
        let text = self.document.to_string();
        if text == self.before {
            return Ok(());
        }
        self.put(&text).map_err(|why| {
            CliError::new(Code::Failed, format!("{} cannot be written", self.path.display())).cause(why.to_string())
        })
    }

    fn put(&self, text: &str) -> io::Result<()> {
        let name = self.path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        if !self.path.exists() {
            // It may come to hold the address of a channel, which is often a secret.
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?;
        }
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(".new");
        write_whole(&self.directory, name, beside.as_os_str(), text.as_bytes())
    }
}

/// What a file says, with each of its profiles, if it can be used beside what else holds.
fn read_whole(text: &str, path: &Path, beside: &Values) -> Result<FileText, CliError> {
    let read = read_text(text, path)?;
    put_together(&read.values)?;
    old_keys_fit(&read.values, beside)?;
    for profile in read.profiles.values() {
        let mut whole = read.values.clone();
        whole.extend(profile.clone());
        put_together(&whole)?;
        old_keys_fit(&whole, beside)?;
    }
    Ok(read)
}

/// Nobody else changes a file in this directory by such a command meanwhile.
fn locked(directory: File) -> io::Result<File> {
    for _ in 0..LOCK_TRIES {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_AGAIN),
            locked => return locked.map(|()| directory).map_err(io::Error::from),
        }
    }
    Err(io::Error::other("another command changes it"))
}

/// Another command is done sooner.
const LOCK_TRIES: u32 = 100;
const LOCK_AGAIN: Duration = Duration::from_millis(50);

/// A value in the place of another one keeps what stands around it: the comment behind it.
fn put_at(slot: &mut Item, mut item: Item) {
    if let (Some(old), Some(new)) = (slot.as_value(), item.as_value_mut()) {
        *new.decor_mut() = old.decor().clone();
    }
    *slot = item;
}

fn item_of(kind: KeyKind, value: &Value) -> Item {
    match (kind, value) {
        (KeyKind::Texts, Value::Array(items)) => {
            let items = items.iter().filter_map(Value::as_str);
            toml_edit::value(items.collect::<Array>())
        }
        (KeyKind::Switch, Value::Bool(truth)) => toml_edit::value(*truth),
        (KeyKind::Number, Value::Number(number)) => toml_edit::value(number.as_i64().unwrap_or(i64::MAX)),
        (_, value) => toml_edit::value(value.as_str().unwrap_or_default()),
    }
}

/// The place of a key, with the tables above it.
fn slot<'a>(document: &'a mut DocumentMut, key: &str) -> Result<&'a mut Item, CliError> {
    let mut at = document.as_item_mut();
    let mut names = key.split('.').peekable();
    while let Some(name) = names.next() {
        let table = at.as_table_like_mut().ok_or_else(|| wrong(&format!("{key}: what is above it is no table")))?;
        if names.peek().is_none() {
            return Ok(table.entry(name).or_insert(Item::None));
        }
        at = table.entry(name).or_insert_with(|| {
            let mut below = Table::new();
            below.set_implicit(true);
            Item::Table(below)
        });
    }
    Err(wrong("a key has a name"))
}
