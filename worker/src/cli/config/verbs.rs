//! The verbs of `bosun config`, and what `list` shows of each key.
//!
//! Invariant: every key is told with the source of its value, also where what the values are together does not hold; a secret is
//! told by where it is, never by what it is.

use super::*;

#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// List every key with its value and the source of the value.
    #[command(visible_alias = "ls")]
    List {
        /// Say where each value comes from, as `config list` always does.
        #[arg(long)]
        origin: bool,
    },
    /// Print the value of one key that is in force.
    Get(edit::GetArgs),
    /// Write one value into bosun.toml; comments and the order of keys are kept.
    Set(edit::SetArgs),
    /// Remove one value from bosun.toml, which brings its default back.
    Unset(edit::UnsetArgs),
    /// List the profiles of bosun.toml: sets of values that `--profile NAME` puts in force.
    Profiles,
    /// Check a configuration file and all of its profiles, without putting them in force.
    Validate(validate::ValidateArgs),
    /// Print the JSON Schema of `bosun.toml`, for editors.
    Schema,
}

pub(in crate::cli) fn config(screen: &mut Screen, loaded: &Loaded, verb: ConfigVerb) -> Result<Exit, CliError> {
    match verb {
        ConfigVerb::Schema => screen.block(&format!("{:#}", json!(schemars::schema_for!(Config)))),
        ConfigVerb::List { origin: _ } => list(screen, loaded)?,
        ConfigVerb::Get(args) => return edit::get(screen, loaded, &args),
        ConfigVerb::Set(args) => return edit::set(screen, loaded, &args),
        ConfigVerb::Unset(args) => return edit::unset(screen, loaded, &args),
        ConfigVerb::Profiles => return edit::profiles(screen, loaded),
        ConfigVerb::Validate(args) => return validate::validate(screen, loaded, &args),
    }
    Ok(Exit::Ok)
}

impl ConfigVerb {
    /// Whether it shows what is in force, or else needs no configuration that holds: these mend one that does not.
    pub(in crate::cli) fn shows_what_is_in_force(&self) -> bool {
        matches!(self, ConfigVerb::Get(_) | ConfigVerb::Profiles)
    }
}

fn list(screen: &mut Screen, loaded: &Loaded) -> Result<(), CliError> {
    let found = |key: &str| loaded.origins.get(key).cloned().unwrap_or_else(|| (Value::Null, "default".to_owned()));
    let known = KEYS.iter().map(|(key, _)| {
        let (value, origin) = found(key);
        let value = if value.is_null() { value } else { without_path(key, &value) };
        json!({ "key": key, "value": value, "origin": origin, "variable": variable_of(key) })
    });
    let of_channels = loaded.origins.iter().filter(|(key, _)| key.starts_with("notify.channels."));
    let of_channels = of_channels.map(|(key, (value, origin))| {
        json!({ "key": key, "value": without_path(key, value), "origin": origin, "variable": null })
    });
    let rows: Vec<Value> = known.chain(of_channels).collect();
    let cells = rows.iter().map(|row| {
        let text = |name: &str| super::super::result::value_text(&row[name]);
        let value = if row["value"].is_null() { "-".to_owned() } else { row["value"].to_string() };
        let variable = if row["variable"].is_null() { "-".to_owned() } else { text("variable") };
        vec![
            Cell::of(text("key"), TextStyle::Bold),
            value.into(),
            text("origin").into(),
            Cell::of(variable, TextStyle::Dim),
        ]
    });
    let cells = cells.collect();
    screen.objects("config.list", "keys", rows);
    screen.table(&["key", "value", "origin", "variable"], cells)?;
    // Every key is told, also where what is said of them does not hold.
    loaded.refused().map_or(Ok(()), |why| Err(why.clone().help("`bosun config set` and `unset` change it")))
}

/// The address of a channel without its path, which is often a secret; of the keys of the store only where they are.
pub(super) fn without_path(key: &str, value: &Value) -> Value {
    let shown = |text: &str| if text.parse::<SecretRef>().is_ok() { text.to_owned() } else { "(hidden)".to_owned() };
    if key == "store.key" || key == "store.old_keys" {
        return match value {
            Value::String(text) => shown(text).into(),
            Value::Array(all) => all.iter().map(|one| shown(one.as_str().unwrap_or_default())).collect(),
            _ => "(hidden)".into(),
        };
    }
    match value.as_str() {
        Some(url) if key.ends_with(".webhook") || key.ends_with(".slack") => match url.contains("://") {
            true => host_of(url).into(),
            false => url.into(),
        },
        _ => value.clone(),
    }
}
