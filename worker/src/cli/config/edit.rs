//! `config get`, `config set`, `config unset` and `config profiles`: single values of the owner's configuration, and the file
//! that holds them.
//!
//! Invariant: a file is changed only if what it says afterwards can be used, all of it; what it says besides, comments and order
//! too, stays as it was. It is written whole beside the old one and put in its place.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use toml_edit::{Array, DocumentMut, Item, Table};

use super::super::error::CliError;
use super::super::exit::Exit;
use super::super::explain::Code;
use super::super::output::Screen;
use super::{KeyKind, Loaded, kind_of, put_together, read_text, unknown, without_path, wrong};

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
    #[arg(long = "in-profile", value_name = "NAME")]
    profile: Option<String>,
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
    let key = args.key.as_str();
    let kind = kind_of(key).ok_or_else(|| unknown(key, "config set"))?;
    let value = kind.read(&args.value).ok_or_else(|| wrong(&format!("{key}={}: {}", args.value, kind.wanted())))?;
    let path = args.place.path(loaded);
    let (before, mut document) = read(&path)?;
    let item = item_of(kind, &value);
    *slot(&mut document, &args.place.full(key))? = item;
    write(&path, &before, &document)?;
    say(screen, loaded, "config.set", &path, json!({ "key": key, "value": without_path(key, &value) }), key);
    Ok(Exit::Ok)
}

pub(super) fn unset(screen: &mut Screen, loaded: &Loaded, args: &UnsetArgs) -> Result<Exit, CliError> {
    let key = args.key.as_str();
    kind_of(key).ok_or_else(|| unknown(key, "config unset"))?;
    let path = args.place.path(loaded);
    let (before, mut document) = read(&path)?;
    let full = args.place.full(key);
    let (above, last) = full.rsplit_once('.').unwrap_or(("", &full));
    let mut names = above.split('.').filter(|name| !name.is_empty());
    let table = names.try_fold(document.as_item_mut(), |at, name| at.get_mut(name));
    let removed = table.and_then(Item::as_table_like_mut).and_then(|table| table.remove(last));
    if removed.is_none() {
        return Err(CliError::new(Code::NotFound, format!("{} does not set {full}", path.display())));
    }
    write(&path, &before, &document)?;
    say(screen, loaded, "config.unset", &path, json!({ "key": key }), key);
    Ok(Exit::Ok)
}

impl Place {
    fn path(&self, loaded: &Loaded) -> PathBuf {
        let in_force = || loaded.file.clone().unwrap_or_else(|| PathBuf::from(super::FILE));
        self.file.clone().unwrap_or_else(in_force)
    }

    fn full(&self, key: &str) -> String {
        match &self.profile {
            Some(profile) => format!("profiles.{profile}.{key}"),
            None => key.to_owned(),
        }
    }
}

/// What was done, and whether something else goes before it.
fn say(screen: &mut Screen, loaded: &Loaded, schema: &str, path: &Path, mut told: Value, key: &str) {
    told["file"] = json!(path);
    screen.object(schema, told);
    screen.line(format!("written to {}", path.display()));
    if let Some((_, origin)) = loaded.origins.get(key)
        && !origin.starts_with(&path.display().to_string())
    {
        screen.note(&format!("{origin} sets {key} too, and goes before the file"));
    }
    screen.note("a worker reads it when it starts");
}

fn read(path: &Path) -> Result<(String, DocumentMut), CliError> {
    let bad = |why: String| wrong(&format!("{}: {why}", path.display()));
    let text = match fs::read_to_string(path) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.map_err(|why| bad(why.to_string()))?,
    };
    let document = text.parse::<DocumentMut>().map_err(|why| bad(why.to_string()))?;
    Ok((text, document))
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

/// Puts the new text in the place of the old one, if it can be used.
fn write(path: &Path, before: &str, document: &DocumentMut) -> Result<(), CliError> {
    let text = document.to_string();
    let read = read_text(&text, path)?;
    put_together(&read.values)?;
    for profile in read.profiles.values() {
        let mut whole = read.values.clone();
        whole.extend(profile.clone());
        put_together(&whole)?;
    }
    if text == before {
        return Ok(());
    }
    let bad = |why: std::io::Error| {
        CliError::new(Code::Failed, format!("{} cannot be written", path.display())).cause(why.to_string())
    };
    let mode = fs::metadata(path).map_or(0o600, |found| found.permissions().mode() & 0o777);
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside).map_err(bad)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(bad)?;
    fs::rename(&beside, path).map_err(bad)
}
