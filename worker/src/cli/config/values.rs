//! Values by their keys: how a text becomes one, where files, the environment and the command line have them, and what they make
//! together.
//!
//! Invariant: a value is of the kind of its key, and a key that is not known is named with its place. What holds for several
//! values together is asked of those whose they are: nothing is judged here that a worker judges otherwise.

use super::*;

/// The origin of a value that the command line sets.
pub(super) const SET: &str = "--set";

/// Values by their keys.
pub(super) type Values = BTreeMap<String, Value>;

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct FileText {
    pub(super) values: Values,
    pub(super) profiles: BTreeMap<String, Values>,
}

impl KeyKind {
    pub(super) fn read(self, text: &str) -> Option<Value> {
        Some(match self {
            KeyKind::Text => json!(text),
            KeyKind::Number => json!(text.trim().parse::<u64>().ok()?),
            KeyKind::Switch => json!(text.trim().parse::<bool>().ok()?),
            // As a file has it, and `config list` shows it: a text may hold a comma.
            KeyKind::Texts if text.trim_start().starts_with('[') => {
                json!(serde_json::from_str::<Vec<String>>(text).ok()?)
            }
            KeyKind::Texts => json!(text.split(',').map(str::trim).filter(|one| !one.is_empty()).collect::<Vec<_>>()),
        })
    }
    pub(super) fn wanted(self) -> &'static str {
        match self {
            KeyKind::Text => "a text is wanted",
            KeyKind::Number => "a whole number is wanted",
            KeyKind::Switch => "true or false is wanted",
            KeyKind::Texts => "texts separated by commas are wanted, or a list as JSON: [\"a\", \"b\"]",
        }
    }
}

pub(super) fn kind_of(key: &str) -> Option<KeyKind> {
    if let Some((_, of)) = key.strip_prefix("notify.channels.").and_then(|rest| rest.split_once('.')) {
        return OF_CHANNEL.iter().find(|(known, _)| *known == of).map(|(_, kind)| *kind);
    }
    KEYS.iter().find(|(known, _)| *known == key).map(|(_, kind)| *kind)
}

/// Puts a value under a path of names.
pub(super) fn put(object: &mut Map<String, Value>, key: &str, value: Value) {
    match key.split_once('.') {
        None => _ = object.insert(key.to_owned(), value),
        Some((first, rest)) => {
            let below = object.entry(first).or_insert_with(|| json!({}));
            if let Value::Object(below) = below {
                put(below, rest, value);
            }
        }
    }
}

/// The values of an option of the command line, before clap reads it.
pub(super) fn values_of(args: &[OsString], option: &str) -> Vec<String> {
    let mut values = Vec::new();
    let mut args = args.iter().map(|arg| arg.to_string_lossy()).take_while(|arg| arg != "--");
    while let Some(arg) = args.next() {
        if arg == option {
            values.extend(args.next().map(|value| value.into_owned()));
        } else if let Some(value) = arg.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
            values.push(value.to_owned());
        }
    }
    values
}

/// The file: `--config`, `BOSUN_CONFIG_FILE`, `./bosun.toml`, or the user's own. One that is named must be there.
pub(super) fn file_of(
    args: &[OsString],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<PathBuf>, CliError> {
    let named = values_of(args, "--config").pop().or_else(|| environment("BOSUN_CONFIG_FILE")).map(PathBuf::from);
    if let Some(named) = named {
        return match named.is_file() {
            true => Ok(Some(named)),
            false => Err(wrong(&format!("there is no file {}", named.display()))),
        };
    }
    let home = environment("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| environment("HOME").map(|home| Path::new(&home).join(".config")));
    let own = home.map(|home| home.join("bosun/config.toml"));
    Ok([Some(PathBuf::from(FILE)), own].into_iter().flatten().find(|path| path.is_file()))
}

/// The configuration that values make, checked.
pub(super) fn put_together(values: &Values) -> Result<Config, CliError> {
    let mut whole = Map::new();
    for (key, value) in values {
        put(&mut whole, key, value.clone());
    }
    let config: Config = serde_path_to_error::deserialize(Value::Object(whole))
        .map_err(|why| wrong(&format!("`{}`: {}", why.path(), why.inner())))?;
    StorePolicy::retention_of(&config.worker.retention, false)
        .map_err(|why| wrong(&format!("`worker.retention`: {why}")))?;
    config.notify.check(parse_duration).map_err(|why| wrong(&why.to_string()))?;
    QueuePolicy::of(&config.worker.queue_limit, None).map_err(|why| wrong(&format!("`worker.queue_limit`: {why}")))?;
    QueuePolicy::of(&[], config.worker.activities_per_second.as_deref())
        .map_err(|why| wrong(&format!("`worker.activities_per_second`: {why}")))?;
    if let Some(text) = &config.output {
        Format::from_str(text, false).map_err(|_| {
            let known: Vec<_> = Format::value_variants().iter().filter_map(Format::to_possible_value).collect();
            let known: Vec<&str> = known.iter().map(|value| value.get_name()).collect();
            wrong(&format!("`output`: {text:?} is not one of {}", known.join(", ")))
        })?;
    }
    if let Some(text) = &config.namespace {
        Namespace::new(text).map_err(|why| wrong(&format!("`namespace`: {why}")))?;
    }
    if let Some(text) = &config.worker.bind {
        text.parse::<IpAddr>().map_err(|_| wrong(&format!("`worker.bind`: {text:?} is no IP address")))?;
    }
    if let Some(text) = &config.worker.drain_timeout {
        parse_duration(text).map_err(|why| wrong(&format!("`worker.drain_timeout`: {why}")))?;
    }
    if let Some(text) = &config.payload_store_above {
        parse_above(text).map_err(|why| wrong(&format!("`payload_store_above`: {why}")))?;
    }
    let at_least = |key: &str, number: Option<u64>, least: u64| match number {
        Some(number) if number < least => Err(wrong(&format!("`{key}`: at least {least}"))),
        _ => Ok(()),
    };
    at_least("worker.external_slots", config.worker.external_slots, 1)?;
    at_least("worker.connections", config.worker.connections, FEWEST_CONNECTIONS)?;
    for (key, text) in config.store.references() {
        text.parse::<SecretRef>().map_err(|why| wrong(&format!("`{key}`: {why}")))?;
    }
    if let Some(text) = &config.worker.memory {
        parse_bytes(text).map_err(|why| wrong(&format!("`worker.memory`: {why}")))?;
    }
    Ok(config)
}

/// Old keys are of use beside a key only, which may be said elsewhere than they are: in the environment, or by a flag.
pub(super) fn old_keys_fit(values: &Values, elsewhere: &Values) -> Result<(), CliError> {
    let has_old = values.get("store.old_keys").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    let has_key = [values, elsewhere].iter().any(|values| values.contains_key("store.key"));
    if has_old && !has_key {
        return Err(wrong("`store.old_keys`: they only read; `store.key` names the key that is written with"));
    }
    Ok(())
}

pub(super) fn no_profile(name: &str, place: &str, there: &[String]) -> CliError {
    let has = match there {
        [] if place.is_empty() => "there is no bosun.toml".to_owned(),
        [] => format!("{place} has none"),
        there => format!("{place} has {}", there.join(", ")),
    };
    CliError::usage(format!("there is no profile {name}: {has}"))
        .help("a table [profiles.NAME] in bosun.toml is one; `bosun config profiles` lists them")
}

/// The keys of a file with their values.
pub(super) fn read_file(path: &Path) -> Result<FileText, CliError> {
    let (read, refused) = read_as_far_as_it_goes(path);
    refused.map_or(Ok(read), Err)
}

/// The same of a file that may be refused: what it says besides.
pub(super) fn read_as_far_as_it_goes(path: &Path) -> (FileText, Option<CliError>) {
    match super::super::input::read_short(path) {
        Ok(text) => text_as_far_as_it_goes(&text, path),
        Err(why) => (FileText::default(), Some(wrong(&format!("{}: {why}", path.display())))),
    }
}

/// Keys that hold directories.
const DIRECTORIES: [&str; 2] = ["file.roots", "http.secret_dirs"];

/// A relative directory is one beside the file that names it, wherever a worker starts.
pub(super) fn beside(file: &Path, values: &mut Values) {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let Some(own) = file.parent() else { return };
    for key in DIRECTORIES {
        let named = values.get_mut(key).and_then(Value::as_array_mut);
        for one in named.into_iter().flatten() {
            if let Some(text) = one.as_str() {
                // `.` is the directory itself, and not something in it.
                let whole: std::path::PathBuf = own.join(text).components().collect();
                *one = whole.display().to_string().into();
            }
        }
    }
}

pub(super) fn read_text(text: &str, path: &Path) -> Result<FileText, CliError> {
    let (read, refused) = text_as_far_as_it_goes(text, path);
    refused.map_or(Ok(read), Err)
}

/// What a text says by keys that are known, and what it is refused for: the first of its mistakes.
fn text_as_far_as_it_goes(text: &str, path: &Path) -> (FileText, Option<CliError>) {
    let (mut read, mut refused) = (FileText::default(), None);
    let value: Value = match toml::from_str(text) {
        Ok(value) => value,
        Err(why) => return (read, Some(wrong(&format!("{}: {why}", path.display())))),
    };
    let mut found = Vec::new();
    collect("", &value, &mut found);
    for (name, _) in value["profiles"].as_object().into_iter().flatten() {
        // One without values is a profile too.
        read.profiles.insert(name.clone(), Values::new());
    }
    for (key, value) in found {
        let of_profile = key.strip_prefix("profiles.").and_then(|rest| rest.split_once('.'));
        let known = of_profile.map_or(key.as_str(), |(_, key)| key);
        if kind_of(known).is_none() {
            refused.get_or_insert_with(|| unknown(&key, &path.display().to_string()));
            continue;
        }
        match of_profile {
            Some((name, of)) => _ = read.profiles.entry(name.to_owned()).or_default().insert(of.to_owned(), value),
            None => _ = read.values.insert(key, value),
        }
    }
    (read, refused)
}

pub(super) fn collect(above: &str, value: &Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let key = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
                collect(&key, value, found);
            }
        }
        value => found.push((above.to_owned(), value.clone())),
    }
}

pub(super) fn wrong(why: &str) -> CliError {
    CliError::new(Code::Usage, format!("the configuration: {why}")).help("`bosun config list` shows every key")
}

pub(super) fn unknown(key: &str, place: &str) -> CliError {
    let error = wrong(&format!("{place}: no key is called `{key}`"));
    let of_profile = key.strip_prefix("profiles.").and_then(|rest| rest.split_once('.'));
    match of_profile.filter(|(_, key)| kind_of(key).is_some()) {
        Some((name, key)) if place == "config set" => {
            error.help(format!("`bosun config set {key} VALUE --in-profile {name}` sets a key of a profile"))
        }
        Some((name, key)) => {
            error.help(format!("`bosun {place} {key}` with `--profile {name}`, or `--in-profile` to change it"))
        }
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_directory_of_a_file_is_beside_it() {
        let roots = json!([".", "work", "/srv"]);
        let mut values: Values = [("file.roots".to_owned(), roots), ("data".to_owned(), json!("d"))].into();
        beside(Path::new("/etc/bosun/bosun.toml"), &mut values);
        assert_eq!(values["file.roots"], json!(["/etc/bosun", "/etc/bosun/work", "/srv"]));
        assert_eq!(values["data"], "d", "that of a store is where the command is");
    }
}
