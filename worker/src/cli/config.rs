//! The owner's configuration: `bosun.toml` with its profiles, the environment, and `--set`, as one set of values.
//!
//! Invariant: for every key a flag (`--set KEY=VALUE`, or the option of its own where there is one) goes before the
//! environment (`BOSUN_` and the key in capitals), that before the profile that is asked for (`--profile`, or
//! `BOSUN_PROFILE`: a table `[profiles.NAME]` of the file), and that before the rest of the file. A key that is not known is an error that names
//! it, so that a guard that is misspelt is never silently absent. It reads; what the values mean stands where they are used.
//!
//! Long: each key stands here in its structure and in the list of keys, which a test holds together.

mod edit;
mod validate;
mod values;
mod verbs;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bosun_engine::Namespace;
use clap::builder::Resettable;
use clap::{Command, Subcommand, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::values::{
    FileText, SET, Values, beside, file_of, kind_of, no_profile, old_keys_fit, put_together, read_as_far_as_it_goes,
    read_file, read_text, unknown, values_of, wrong,
};
pub use self::verbs::ConfigVerb;
pub(super) use self::verbs::config;
use self::verbs::without_path;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::output::{Cell, Format, Screen, TextStyle};
use super::payload_store::parse_above;
use super::time_format::parse_duration;
use super::worker::{FEWEST_CONNECTIONS, parse_bytes};
use crate::capability::at_rest::StoreKeys;
use crate::capability::model::SecretRef;
use crate::capability::owner::{FileGuards, Guards, HttpGuards, ProcessGuards, QueuePolicy, StorePolicy};
use crate::notify::rules::channel::{CHANNEL_KEYS, Notify, NotifyConfig, host_of};

/// The file in the working directory.
const FILE: &str = "bosun.toml";

/// Everything that can be set. What is absent has the default that the option of the same name shows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The data directory (`--data`).
    pub data: Option<PathBuf>,
    /// The control API (`--address`).
    pub address: Option<String>,
    /// The file with the token (`--token-file`).
    pub token_file: Option<PathBuf>,
    pub namespace: Option<String>,
    /// The directory of payloads that are too large for a Temporal cluster (`--payload-store`).
    pub payload_store: Option<PathBuf>,
    /// Payloads that are longer are kept there: `256KiB` (`--payload-store-above`).
    pub payload_store_above: Option<String>,
    /// `text`, `json`, `jsonl` or `none`.
    pub output: Option<String>,
    pub worker: WorkerConfig,
    pub process: ProcessGuards,
    pub http: HttpGuards,
    pub file: FileGuards,
    pub store: StoreConfig,
    pub notify: NotifyConfig,
    /// `[profiles.NAME]`: values that hold where this profile is asked for.
    pub profiles: BTreeMap<String, Config>,
}

impl Config {
    /// What the owner allows the capabilities.
    pub fn guards(&self) -> Guards {
        let WorkerConfig { on_damage, retention, trust_clock, queue_limit, activities_per_second, .. } = &self.worker;
        let store = StorePolicy {
            isolate: *on_damage == Some(OnDamage::Isolate),
            // Looked at when it was read.
            retention: StorePolicy::retention_of(retention, *trust_clock).unwrap_or_default(),
        };
        let memory = self.worker.memory.as_deref().and_then(|text| parse_bytes(text).ok());
        let queues = QueuePolicy::of(queue_limit, activities_per_second.as_deref()).unwrap_or_default();
        let (process, http, file) = (self.process.clone(), self.http.clone(), self.file.clone());
        Guards { process, http, file, memory, store, queues, notify: self.notify() }
    }
}

impl Config {
    /// Whom the worker tells what.
    pub fn notify(&self) -> Notify {
        // Looked at when it was read.
        self.notify.check(parse_duration).unwrap_or_default()
    }
}

/// What the owner says of the store as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// What is stored is encrypted with this key from now on: 64 hexadecimal digits, or where they are.
    pub key: Option<String>,
    /// Keys before it, which only read.
    pub old_keys: Vec<String>,
    /// A file outside of the data directory that tells when the directory is put back to an older copy (`--epoch-file`).
    pub epoch_file: Option<PathBuf>,
}

impl StoreConfig {
    pub fn keys(&self) -> StoreKeys {
        StoreKeys { key: self.key.clone(), old_keys: self.old_keys.clone() }
    }

    /// Where its keys are, each with the name of what says so.
    fn references(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let key = self.key.iter().map(|text| ("store.key", text.as_str()));
        key.chain(self.old_keys.iter().map(|text| ("store.old_keys", text.as_str())))
    }
}

/// What `worker run` begins with: its options, by their names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerConfig {
    pub port: Option<u16>,
    pub bind: Option<String>,
    pub allow_host: Vec<String>,
    pub slots: Option<u64>,
    /// Of them, those for programs, models, MCP servers and HTTP.
    pub external_slots: Option<u64>,
    /// Of the control API, at once.
    pub connections: Option<u64>,
    /// What loaded runs and waiting requests may take together: `320MiB`.
    pub memory: Option<String>,
    pub queue: Vec<String>,
    /// What is allowed of a queue: `mail=5` attempts at once, `mail=10/s` that start in a second.
    pub queue_limit: Vec<String>,
    /// How many attempts start in a second, over all queues: `30`, `0.5`.
    pub activities_per_second: Option<String>,
    pub drain_timeout: Option<String>,
    /// What to do when the store is damaged: `refuse` to start, or `isolate` the runs that were hit.
    pub on_damage: Option<OnDamage>,
    /// How long closed runs are kept: `30d`, `dev=12h` for one namespace, `forever`.
    pub retention: Vec<String>,
    /// The clock is right, also where it jumped: for retention, time in which no worker ran counts too.
    pub trust_clock: bool,
}

/// What to do when the store is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum OnDamage {
    /// Do not start; touch nothing.
    Refuse,
    /// Keep the damaged files as they are in `DIR/damaged-N`, hold the runs that were hit, and go on with all others.
    Isolate,
}

/// Keys, each with what a text in the environment stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Text,
    Number,
    Switch,
    /// Separated by commas.
    Texts,
}

/// Every key. A new one stands here and in its structure; a test holds them together.
const KEYS: &[(&str, KeyKind)] = &[
    ("data", KeyKind::Text),
    ("address", KeyKind::Text),
    ("token_file", KeyKind::Text),
    ("namespace", KeyKind::Text),
    ("payload_store", KeyKind::Text),
    ("payload_store_above", KeyKind::Text),
    ("output", KeyKind::Text),
    ("worker.port", KeyKind::Number),
    ("worker.bind", KeyKind::Text),
    ("worker.allow_host", KeyKind::Texts),
    ("worker.slots", KeyKind::Number),
    ("worker.external_slots", KeyKind::Number),
    ("worker.connections", KeyKind::Number),
    ("worker.memory", KeyKind::Text),
    ("worker.queue", KeyKind::Texts),
    ("worker.queue_limit", KeyKind::Texts),
    ("worker.activities_per_second", KeyKind::Text),
    ("worker.drain_timeout", KeyKind::Text),
    ("worker.on_damage", KeyKind::Text),
    ("worker.retention", KeyKind::Texts),
    ("worker.trust_clock", KeyKind::Switch),
    ("process.allow", KeyKind::Texts),
    ("process.kill_grace_ms", KeyKind::Number),
    ("process.address_space", KeyKind::Number),
    ("process.cpu_seconds", KeyKind::Number),
    ("process.file_size", KeyKind::Number),
    ("process.open_files", KeyKind::Number),
    ("http.allow_hosts", KeyKind::Texts),
    ("http.allow_private", KeyKind::Switch),
    ("http.secret_env", KeyKind::Texts),
    ("http.secret_dirs", KeyKind::Texts),
    ("file.roots", KeyKind::Texts),
    ("store.key", KeyKind::Text),
    ("store.old_keys", KeyKind::Texts),
    ("store.epoch_file", KeyKind::Text),
    ("notify.public_url", KeyKind::Text),
    ("notify.links_for", KeyKind::Text),
    ("notify.remind", KeyKind::Text),
];

/// The keys of `[notify.channels.NAME]`. A channel stands in the file, or is set by `--set`.
const OF_CHANNEL: [(&str, KeyKind); CHANNEL_KEYS.len()] = [
    ("webhook", KeyKind::Text),
    ("secret", KeyKind::Text),
    ("slack", KeyKind::Text),
    ("command", KeyKind::Texts),
    ("events", KeyKind::Texts),
    ("namespaces", KeyKind::Texts),
    ("links", KeyKind::Switch),
    ("quiet", KeyKind::Text),
    ("zone", KeyKind::Text),
    ("urgent", KeyKind::Texts),
];

/// The variable of a key. The data directory has kept the name that it always had.
fn variable_of(key: &str) -> String {
    match key {
        "data" => "BOSUN_STORE".to_owned(),
        // Short, as the other files that a command line names.
        "store.epoch_file" => "BOSUN_EPOCH_FILE".to_owned(),
        key => format!("BOSUN_{}", key.replace('.', "_").to_ascii_uppercase()),
    }
}

/// The configuration with the origin of each value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loaded {
    pub config: Config,
    /// By key: `flag`, the variable, or the file.
    origins: BTreeMap<String, (Value, String)>,
    /// The file that was read.
    file: Option<PathBuf>,
    /// The profile that was asked for.
    profile: Option<String>,
    /// Those that the file has.
    profiles: Vec<String>,
    /// Why it is not used: what was read before that stands here all the same.
    refused: Option<CliError>,
}

impl Loaded {
    /// Reads the configuration of a command line: the file that it names or that is found, then the environment, then
    /// `--set`.
    ///
    /// # Errors
    /// A file that is named and not there, a key that is not known, a value of the wrong kind.
    pub fn of(args: &[OsString], environment: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, CliError> {
        let loaded = Loaded::as_far_as_it_goes(args, environment);
        loaded.refused.clone().map_or(Ok(loaded), Err)
    }

    /// The same for who goes on without it: what is refused has its defaults.
    pub(super) fn as_far_as_it_goes(args: &[OsString], environment: &dyn Fn(&str) -> Option<String>) -> Loaded {
        let mut loaded = Loaded::default();
        loaded.refused = loaded.read(args, environment).err();
        loaded
    }

    /// Each place by itself: what one of them is refused for hides nothing of what the others say. The first refusal.
    fn read(&mut self, args: &[OsString], environment: &dyn Fn(&str) -> Option<String>) -> Result<(), CliError> {
        let mut refused = self.of_file(args, environment);
        for (key, kind) in KEYS {
            let variable = variable_of(key);
            if let Some(text) = environment(&variable) {
                let value = kind.read(&text);
                if value.is_none() {
                    refused.push(wrong(&format!("{variable}={text}: {}", kind.wanted())));
                }
                // A text that is no value stands there all the same, and goes before what others say.
                self.origins.insert((*key).to_owned(), (value.unwrap_or_else(|| json!(text)), variable));
            }
        }
        for set in values_of(args, SET) {
            let Some((key, text)) = set.split_once('=') else {
                refused.push(wrong("--set takes KEY=VALUE"));
                continue;
            };
            let Some(kind) = kind_of(key) else {
                refused.push(unknown(key, SET));
                continue;
            };
            let value = kind.read(text);
            if value.is_none() {
                refused.push(wrong(&format!("--set {key}={text}: {}", kind.wanted())));
            }
            self.origins.insert(key.to_owned(), (value.unwrap_or_else(|| json!(text)), SET.to_owned()));
        }
        refused.into_iter().next().map_or(Ok(()), Err)?;
        let values: Values = self.origins.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect();
        let config = put_together(&values)?;
        old_keys_fit(&values, &Values::new())?;
        self.config = config;
        Ok(())
    }

    /// What the file says, and the profile that is asked for; and what of it is refused.
    fn of_file(&mut self, args: &[OsString], environment: &dyn Fn(&str) -> Option<String>) -> Vec<CliError> {
        let mut refused = Vec::new();
        self.file = file_of(args, environment).unwrap_or_else(|why| {
            refused.push(why);
            None
        });
        let (mut read, wrong) = self.file.as_deref().map(read_as_far_as_it_goes).unwrap_or_default();
        if let Some(file) = &self.file {
            beside(file, &mut read.values);
            read.profiles.values_mut().for_each(|profile| beside(file, profile));
        }
        refused.extend(wrong);
        let place = self.file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        self.profiles = read.profiles.keys().cloned().collect();
        self.profile = values_of(args, "--profile").pop().or_else(|| environment("BOSUN_PROFILE"));
        self.origins.extend(read.values.into_iter().map(|(key, value)| (key, (value, place.clone()))));
        let Some(name) = &self.profile else { return refused };
        match read.profiles.get(name) {
            None => refused.push(no_profile(name, &place, &self.profiles)),
            Some(values) => {
                let origin = format!("{place} [profiles.{name}]");
                let of_profile = values.iter().map(|(key, value)| (key.clone(), (value.clone(), origin.clone())));
                self.origins.extend(of_profile);
            }
        }
        refused
    }

    /// What the environment and the command line say: it holds beside any file.
    fn beside_the_file(&self) -> Values {
        let beside = self.origins.iter().filter(|(key, (_, origin))| *origin == SET || *origin == variable_of(key));
        beside.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
    }

    /// Why the configuration is not used.
    pub(super) fn refused(&self) -> Option<&CliError> {
        self.refused.as_ref()
    }

    /// The options' defaults become what is configured. clap itself reads flags and the environment.
    pub(super) fn defaults_of(&self, command: Command) -> Command {
        let Config { data, address, token_file, namespace, output, worker, store, .. } = &self.config;
        let Config { payload_store, payload_store_above, .. } = &self.config;
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let globals = [
            ("data", path(data)),
            ("address", address.clone()),
            ("token_file", path(token_file)),
            ("epoch_file", path(&store.epoch_file)),
            ("namespace", namespace.clone()),
            ("payload_store", path(payload_store)),
            ("payload_store_above", payload_store_above.clone()),
            ("output", output.clone()),
        ];
        let ones = [
            ("port", number(worker.port.map(u64::from))),
            ("bind", worker.bind.clone()),
            ("slots", number(worker.slots)),
            ("external_slots", number(worker.external_slots)),
            ("connections", number(worker.connections)),
            ("memory", worker.memory.clone()),
            ("activities_per_second", worker.activities_per_second.clone()),
            ("drain_timeout", worker.drain_timeout.clone()),
            (
                "on_damage",
                worker.on_damage.and_then(|what| what.to_possible_value()).map(|value| value.get_name().to_owned()),
            ),
            ("trust_clock", worker.trust_clock.then(|| "true".to_owned())),
        ];
        let many = [
            ("allow_host", worker.allow_host.clone()),
            ("queue", worker.queue.clone()),
            ("queue_limit", worker.queue_limit.clone()),
            ("retention", worker.retention.clone()),
        ];
        let command = globals.into_iter().fold(command, with_default);
        let command =
            self.set_by_hand().fold(command, |command, id| command.mut_arg(id, |arg| arg.env(Resettable::Reset)));
        command.mut_subcommand("worker", |command| {
            command.mut_subcommand("run", |command| {
                let command = ones.into_iter().fold(command, with_default);
                many.into_iter().filter(|(_, values)| !values.is_empty()).fold(command, |command, (id, values)| {
                    let values: Vec<&'static str> = values.into_iter().map(kept).collect();
                    command.mut_arg(id, |arg| arg.default_values(values))
                })
            })
        })
    }
}

impl Loaded {
    /// The file that was read.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The profile that is in force.
    pub(super) fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// The variables of the environment that set a value.
    pub(super) fn variables(&self) -> Vec<&str> {
        let places = self.origins.iter().map(|(key, (_, place))| (variable_of(key), place.as_str()));
        places.filter(|(variable, place)| variable == place).map(|(_, place)| place).collect()
    }

    /// How much is configured, and where, in a few words.
    pub(super) fn told(&self) -> String {
        let places: std::collections::BTreeSet<&str> = self.origins.values().map(|(_, place)| place.as_str()).collect();
        match self.origins.len() {
            0 => "nothing is configured: every key has its default".to_owned(),
            1 => format!("1 key is set, by {}", places.into_iter().collect::<String>()),
            count => format!("{count} keys are set, by {}", places.into_iter().collect::<Vec<_>>().join(", ")),
        }
    }

    /// The options whose value `--set` gives: clap must not find the variable, which comes after it.
    fn set_by_hand(&self) -> impl Iterator<Item = &'static str> {
        let ids = ["data", "address", "token_file", "namespace", "payload_store", "payload_store_above", "output"];
        let ids = ids.map(|id| (id, id));
        let ids = ids.into_iter().chain([("store.epoch_file", "epoch_file")]);
        ids.filter(|(key, _)| self.origins.get(*key).is_some_and(|(_, origin)| origin == "--set")).map(|(_, id)| id)
    }
}

fn with_default(command: Command, (id, value): (&'static str, Option<String>)) -> Command {
    match value {
        Some(value) => command.mut_arg(id, |arg| arg.default_value(kept(value))),
        None => command,
    }
}

/// clap keeps defaults as long as the process lives; there are a few, read once.
fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;

    fn loaded(file: &str, environment: &[(&str, &str)], args: &[&str]) -> Result<Loaded, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bosun.toml");
        std::fs::write(&path, file).unwrap();
        let mut words: Vec<OsString> = vec!["bosun".into(), "--config".into(), path.into()];
        words.extend(args.iter().map(OsString::from));
        let variable =
            |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Loaded::of(&words, &variable).map_err(|why| why.message)
    }

    #[test]
    fn a_flag_goes_before_the_environment_and_that_before_the_file() {
        let file = "namespace = \"file\"\n[http]\nallow_hosts = [\"a\"]\nallow_private = true\n[worker]\nslots = 3\n";
        let all = loaded(
            file,
            &[("BOSUN_HTTP_ALLOW_HOSTS", "b, c"), ("BOSUN_WORKER_SLOTS", "4")],
            &["--set", "worker.slots=5", "--set=process.allow=git,true"],
        );
        let all = all.unwrap();
        assert_eq!(all.config.namespace.as_deref(), Some("file"));
        assert_eq!(all.config.http.allow_hosts, ["b", "c"]);
        assert!(all.config.http.allow_private);
        assert_eq!(all.config.worker.slots, Some(5));
        assert_eq!(all.config.process.allow, Some(vec!["git".to_owned(), "true".to_owned()]));
        assert_eq!(all.origins["worker.slots"].1, "--set");
        assert_eq!(all.config.guards().memory, None);
        let memory = loaded("[worker]\nmemory = \"320MiB\"\n", &[], &[]).unwrap();
        assert_eq!(memory.config.guards().memory, Some(320 << 20));
        assert_eq!(all.origins["http.allow_hosts"].1, "BOSUN_HTTP_ALLOW_HOSTS");
    }

    #[test]
    fn a_profile_goes_before_the_rest_of_the_file_and_after_the_environment() {
        let file = "namespace = \"all\"\noutput = \"text\"\n[worker]\nslots = 3\n\
                    [profiles.dev]\nnamespace = \"dev\"\n[profiles.dev.worker]\nslots = 5\n[profiles.empty]\n";
        let of = |environment: &[(&str, &str)], args: &[&str]| {
            let all = loaded(file, environment, args).unwrap();
            (all.config.namespace.unwrap(), all.config.worker.slots.unwrap(), all.profiles)
        };
        let profiles = vec!["dev".to_owned(), "empty".to_owned()];
        assert_eq!(of(&[], &[]), ("all".to_owned(), 3, profiles.clone()));
        assert_eq!(of(&[], &["--profile=dev"]), ("dev".to_owned(), 5, profiles.clone()));
        let variables = [("BOSUN_PROFILE", "dev"), ("BOSUN_WORKER_SLOTS", "9")];
        assert_eq!(of(&variables, &[]), ("dev".to_owned(), 9, profiles.clone()));
        assert_eq!(of(&variables, &["--profile", "empty"]), ("all".to_owned(), 9, profiles));
    }

    /// The epoch file is named as the other files are: its flag before its variable, and that before the file.
    #[test]
    fn the_epoch_file_is_an_option_like_others() {
        let file = "[store]\nepoch_file = \"/file/epoch\"\n";
        let named = |environment: &[(&str, &str)], args: &[&str]| {
            let all = loaded(file, environment, &[]).unwrap();
            let words = ["bosun", "list"].iter().chain(args);
            let matches = all.defaults_of(super::super::args::Cli::command()).try_get_matches_from(words).unwrap();
            let cli = super::super::args::Cli::from_arg_matches(&matches).unwrap();
            (all.config.store.epoch_file, cli.global.epoch_file)
        };
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(named(&[], &[]), (path("/file/epoch"), path("/file/epoch")));
        let variable = [("BOSUN_EPOCH_FILE", "/variable/epoch")];
        assert_eq!(named(&variable, &[]), (path("/variable/epoch"), path("/variable/epoch")));
        assert_eq!(named(&variable, &["--epoch-file", "/flag/epoch"]).1, path("/flag/epoch"));
    }

    #[test]
    fn what_is_not_known_or_of_another_kind_is_refused_by_name() {
        for (file, args, part) in [
            ("[process]\nalow = [\"git\"]\n", vec![], "no key is called `process.alow`"),
            ("[http]\nallow_hosts = \"a\"\n", vec![], "http.allow_hosts"),
            ("= 1", vec![], "bosun.toml"),
            ("[worker]\nretention = [\"7\"]\n", vec![], "worker.retention"),
            ("[worker]\non_damage = \"repair\"\n", vec![], "worker.on_damage"),
            ("[worker]\nmemory = \"much\"\n", vec![], "worker.memory"),
            ("[notify.channels.ops]\nwebhok = \"x\"\n", vec![], "no key is called `notify.channels.ops.webhok`"),
            ("[notify.channels.ops]\nslack = \"x\"\n", vec![], "`notify.channels.ops.slack`"),
            ("[notify.channels]\nops = \"x\"\n", vec![], "no key is called `notify.channels.ops`"),
            ("[notify.channels.ops]\nlinks = true\nslack = \"env:S\"\n", vec![], "`notify.channels.ops.links`"),
            ("[worker]\nqueue_limit = [\"mail=many\"]\n", vec![], "worker.queue_limit"),
            ("[worker]\nconnections = 0\n", vec![], "`worker.connections`: at least 4"),
            ("[worker]\nexternal_slots = 0\n", vec![], "`worker.external_slots`: at least 1"),
            ("[store]\nkey = \"00ff\"\n", vec![], "`store.key`: a key is given as env:NAME"),
            ("[store]\nold_keys = [\"env:OLD\"]\n", vec![], "`store.old_keys`"),
            ("[worker]\nactivities_per_second = \"0\"\n", vec![], "worker.activities_per_second"),
            ("[profiles.dev.worker]\nslot = 1\n", vec![], "no key is called `profiles.dev.worker.slot`"),
            ("[profiles.dev]\noutput = \"json\"\n", vec!["--profile", "prod"], "there is no profile prod"),
            ("", vec!["--set", "worker.slots=many"], "a whole number is wanted"),
            ("", vec!["--set", "file.root=/"], "no key is called `file.root`"),
        ] {
            let why = loaded(file, &[], &args).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let missing = Loaded::of(&["bosun".into(), "--config=/nonexistent".into()], &|_| None);
        assert!(missing.unwrap_err().message.contains("there is no file /nonexistent"));
    }

    /// One mistake does not keep away the commands that mend it; a key that was written as itself is not shown.
    #[test]
    fn what_is_refused_is_known_as_far_as_it_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bosun.toml");
        std::fs::write(&path, "[worker]\nconnections = 0\n[profiles.dev]\n").unwrap();
        let words: Vec<OsString> = vec!["bosun".into(), "--config".into(), path.clone().into()];
        let all = Loaded::as_far_as_it_goes(&words, &|_| None);
        assert!(all.refused().unwrap().message.contains("worker.connections"));
        assert_eq!((all.config, all.file, all.profiles), (Config::default(), Some(path), vec!["dev".to_owned()]));
        assert_eq!(all.origins["worker.connections"].0, json!(0));
        assert_eq!(without_path("store.key", &json!("00ff")), json!("(hidden)"));
        assert_eq!(without_path("store.old_keys", &json!(["env:A", "00"])), json!(["env:A", "(hidden)"]));
    }

    /// A mistake in one place hides nothing that is said beside it, nor where it is said.
    #[test]
    fn a_key_that_is_not_known_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bosun.toml");
        std::fs::write(&path, "namespace = \"dev\"\nnamspace = \"x\"\n[worker]\nslots = 3\n").unwrap();
        let all = |set: &str, profile: Option<&str>| {
            let words: Vec<OsString> = vec!["bosun".into(), "--config".into(), path.clone().into(), set.into()];
            let profile = profile.map(str::to_owned);
            Loaded::as_far_as_it_goes(&words, &|name| match name {
                "BOSUN_WORKER_SLOTS" => Some("many".to_owned()),
                "BOSUN_OUTPUT" => Some("json".to_owned()),
                "BOSUN_PROFILE" => profile.clone(),
                _ => None,
            })
        };
        let found = all("--set=worker.port=80", None);
        let refused = found.refused().unwrap();
        assert!(refused.message.contains("no key is called `namspace`"), "the first mistake: {}", refused.message);
        let file = path.display().to_string();
        for (key, value, origin) in [
            ("namespace", json!("dev"), file.as_str()),
            ("output", json!("json"), "BOSUN_OUTPUT"),
            ("worker.slots", json!("many"), "BOSUN_WORKER_SLOTS"),
            ("worker.port", json!(80), "--set"),
        ] {
            assert_eq!(found.origins[key], (value, origin.to_owned()), "{key}");
        }
        let none = all("--set=worker.slot=4", Some("night"));
        assert_eq!(none.origins["namespace"].1, file);
        assert_eq!(none.config, Config::default(), "nothing of it is used");
    }

    /// The key may be said elsewhere than the old ones.
    #[test]
    fn old_keys_are_of_use_beside_a_key_wherever_it_is_said() {
        let file = "[store]\nold_keys = [\"env:OLD\"]\n";
        assert!(loaded(file, &[("BOSUN_STORE_KEY", "env:K")], &[]).is_ok());
        assert!(loaded(file, &[], &["--set", "store.key=env:K"]).is_ok());
        assert!(loaded(file, &[], &[]).unwrap_err().contains("store.old_keys"));
    }

    /// Each key has a place in the structure, and each place a key.
    #[test]
    fn keys_and_structure_fit() {
        let mut known: Vec<String> = KEYS.iter().map(|(key, _)| (*key).to_owned()).collect();
        for (key, kind) in KEYS {
            let text = match kind {
                _ if *key == "worker.on_damage" => "isolate",
                _ if *key == "worker.retention" => "7d,dev=1h",
                _ if *key == "worker.memory" => "320MiB",
                _ if *key == "payload_store_above" => "1MiB",
                _ if *key == "worker.bind" => "127.0.0.1",
                _ if *key == "worker.drain_timeout" => "5s",
                _ if *key == "output" => "json",
                _ if *key == "notify.public_url" => "https://bosun.example",
                _ if *key == "notify.links_for" || *key == "notify.remind" => "1h",
                _ if *key == "worker.queue_limit" => "mail=5,mail=10/s",
                _ if *key == "worker.activities_per_second" => "0.5",
                _ if *key == "worker.connections" => "4",
                _ if key.starts_with("store.") && key.contains("key") => "env:STORE_KEY",
                KeyKind::Number => "1",
                KeyKind::Switch => "true",
                KeyKind::Text | KeyKind::Texts => "x",
            };
            let file = if *key == "store.old_keys" { "[store]\nkey = \"env:KEY\"\n" } else { "" };
            loaded(file, &[], &["--set", &format!("{key}={text}")]).unwrap();
        }
        let schema = json!(schemars::schema_for!(Config));
        let mut places = Vec::new();
        for (name, value) in schema["properties"].as_object().unwrap() {
            let below = value["$ref"].as_str().and_then(|path| path.rsplit('/').next());
            match below.map(|below| schema["$defs"][below]["properties"].as_object().unwrap()) {
                Some(below) => places.extend(below.keys().map(|key| format!("{name}.{key}"))),
                None => places.push(name.clone()),
            }
        }
        // Channels have names, and their keys a list of their own.
        places.retain(|place| place != "notify.channels" && place != "profiles");
        known.sort();
        places.sort();
        assert_eq!(known, places);
        assert_eq!(OF_CHANNEL.map(|(key, _)| key), CHANNEL_KEYS);
    }
}
