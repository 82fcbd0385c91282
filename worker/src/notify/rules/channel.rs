//! Channels as the owner's configuration names them: where something is told, what, and when not.
//!
//! Invariant: what is read here is whole and makes sense, or it is refused by its place; a secret is given by reference and
//! never as itself. It sends nothing and reads no secret.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bosun_engine::Namespace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::occasion::{Occasion, OccasionKind};
use super::quiet::QuietHours;
use crate::capability::model::SecretRef;

/// `[notify]` as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyConfig {
    /// Where people reach the pages of this worker: `https://bosun.example`. Without it a notification holds no links.
    pub public_url: Option<String>,
    /// How long a link decides, for example `24h`, which is the default; one that is sent later than the first word, with a
    /// reminder, for at least half of it.
    pub links_for: Option<String>,
    /// After how long a person is told again of what still waits for them, for example `4h`; without it nobody is.
    pub remind: Option<String>,
    /// `[notify.channels.NAME]`: where something is told.
    pub channels: BTreeMap<String, ChannelConfig>,
}

/// One channel as it is written: one of `webhook`, `slack` and `command` says where it leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelConfig {
    /// An address that JSON is sent to: itself, or where it is (`env:NAME`, `file:/path`, `cmd:program`).
    pub webhook: Option<String>,
    /// Where the secret is that signs what is sent to the webhook.
    pub secret: Option<String>,
    /// The address of an incoming webhook of Slack, or of something that takes the same JSON; itself, or where it is.
    pub slack: Option<String>,
    /// A program and its arguments, which is given the JSON on its standard input. No shell reads it.
    pub command: Option<Vec<String>>,
    /// What is told [default: everything].
    pub events: Option<Vec<OccasionKind>>,
    /// Of which namespaces [default: all].
    pub namespaces: Option<Vec<String>>,
    /// Whether a notification of an approval holds links that decide it. Whoever reads it can use them.
    pub links: bool,
    /// When nothing is told: `22:00-07:00`. It is told at the end of them.
    pub quiet: Option<String>,
    /// The time zone of the quiet hours [default: UTC].
    pub zone: Option<String>,
    /// What is told in quiet hours too.
    pub urgent: Vec<OccasionKind>,
}

/// The keys of a channel, each with what its value is.
pub const CHANNEL_KEYS: [&str; 10] =
    ["webhook", "secret", "slack", "command", "events", "namespaces", "links", "quiet", "zone", "urgent"];

/// A key, and what is wrong with its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{at}`: {why}")]
pub struct InvalidNotify {
    pub at: String,
    pub why: String,
}

/// What the owner says of notifications, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notify {
    /// Without a slash at its end.
    pub public_url: Option<String>,
    pub links_for: Duration,
    /// `None`: nobody is told twice.
    pub remind: Option<Duration>,
    pub channels: BTreeMap<String, Channel>,
}

/// A text, or where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Itself(String),
    At(SecretRef),
}

impl std::fmt::Display for Place {
    /// Of an address only the host: its path is often a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Itself(url) => f.write_str(&host_of(url)),
            Place::At(reference) => reference.fmt(f),
        }
    }
}

/// An address without its path, which is often a secret, and without a user.
pub fn host_of(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".to_owned() };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}/…")
}

/// Where a channel leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelKind {
    Webhook { url: Place, secret: SecretRef },
    Slack { url: Place },
    Command { argv: Vec<String> },
}

/// A channel, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub kind: ChannelKind,
    pub events: BTreeSet<OccasionKind>,
    /// `None`: all.
    pub namespaces: Option<BTreeSet<Namespace>>,
    pub links: bool,
    pub quiet: Option<QuietHours>,
    pub urgent: BTreeSet<OccasionKind>,
}

impl Channel {
    /// Whether an occasion is told here.
    pub fn tells(&self, occasion: &Occasion) -> bool {
        let named = |only: &BTreeSet<Namespace>| only.contains(&occasion.namespace);
        // What is of no run concerns everybody.
        let sees = occasion.about.is_none() || self.namespaces.as_ref().is_none_or(named);
        self.events.contains(&occasion.kind) && sees
    }

    /// The quiet hours that an occasion keeps.
    pub fn quiet_for(&self, kind: OccasionKind) -> Option<&QuietHours> {
        self.quiet.as_ref().filter(|_| !self.urgent.contains(&kind))
    }

    /// Where it leads, without secrets.
    pub fn leads_to(&self) -> String {
        match &self.kind {
            ChannelKind::Webhook { url, .. } => format!("webhook {url}"),
            ChannelKind::Slack { url } => format!("slack {url}"),
            ChannelKind::Command { argv } => format!("command {}", argv.join(" ")),
        }
    }
}

const LINKS_FOR: Duration = Duration::from_secs(24 * 3_600);
const REMIND_MIN: Duration = Duration::from_secs(1);
/// A name is part of an id of a run.
const NAME_MAX: usize = 40;

impl NotifyConfig {
    /// Checks all of it. `duration` reads a length of time.
    ///
    /// # Errors
    /// The first key whose value makes no sense.
    pub fn check(&self, duration: impl Fn(&str) -> Result<Duration, String>) -> Result<Notify, InvalidNotify> {
        let at = |at: &str| {
            let at = format!("notify.{at}");
            move |why: String| InvalidNotify { at, why }
        };
        let links_for = self.links_for.as_deref().map_or(Ok(LINKS_FOR), &duration).map_err(at("links_for"))?;
        if links_for.is_zero() {
            return Err(at("links_for")("a link that never opens anything is none".to_owned()));
        }
        let remind = self.remind.as_deref().map(&duration).transpose().map_err(at("remind"))?;
        if remind.is_some_and(|remind| remind < REMIND_MIN) {
            return Err(at("remind")("a reminder comes after a second or more".to_owned()));
        }
        let public_url = self.public_url.as_deref().map(public_url).transpose().map_err(at("public_url"))?;
        let mut channels = BTreeMap::new();
        for (name, written) in &self.channels {
            let channel = written
                .check(name)
                .map_err(|why| InvalidNotify { at: format!("notify.channels.{name}{}", why.at), why: why.why })?;
            if channel.links && public_url.is_none() {
                let why = "a link needs an address: say `notify.public_url`".to_owned();
                return Err(InvalidNotify { at: format!("notify.channels.{name}.links"), why });
            }
            channels.insert(name.clone(), channel);
        }
        Ok(Notify { public_url, links_for, remind, channels })
    }
}

fn public_url(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('/');
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    match rest {
        Some(host) if !host.is_empty() && host.chars().all(plain) => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is not an address like https://bosun.example, without a path")),
    }
}

impl ChannelConfig {
    fn check(&self, name: &str) -> Result<Channel, InvalidNotify> {
        let wrong = |key: &str, why: String| InvalidNotify { at: key.to_owned(), why };
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(named) {
            return Err(wrong("", format!("a name has letters, digits, - and _, at most {NAME_MAX}")));
        }
        let namespace = |name: &String| Namespace::new(name).map_err(|why| wrong(".namespaces", why.to_string()));
        let namespaces = self.namespaces.as_ref().map(|names| names.iter().map(namespace).collect()).transpose()?;
        let quiet = self.quiet.as_deref().map(|text| QuietHours::read(text, self.zone.as_deref()));
        if self.zone.is_some() && self.quiet.is_none() {
            return Err(wrong(".zone", "there are no quiet hours that it is for".to_owned()));
        }
        let events = self.events.clone().unwrap_or_else(|| OccasionKind::ALL.to_vec());
        Ok(Channel {
            kind: self.kind()?,
            events: events.into_iter().collect(),
            namespaces,
            links: self.links,
            quiet: quiet.transpose().map_err(|why| wrong(".quiet", why))?,
            urgent: self.urgent.iter().copied().collect(),
        })
    }

    fn kind(&self) -> Result<ChannelKind, InvalidNotify> {
        let wrong = |key: &str, why: &str| InvalidNotify { at: key.to_owned(), why: why.to_owned() };
        let secret = self.secret.as_deref().map(str::parse::<SecretRef>).transpose();
        let secret = secret.map_err(|why| wrong(".secret", &why))?;
        let given = [self.webhook.is_some(), self.slack.is_some(), self.command.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            return Err(wrong("", "one of `webhook`, `slack` and `command` says where it leads"));
        }
        if secret.is_some() && self.webhook.is_none() {
            return Err(wrong(".secret", "only a webhook is signed"));
        }
        if let Some(url) = &self.webhook {
            let url = place(url).map_err(|why| wrong(".webhook", &why))?;
            let unsigned = "a webhook is signed: say where its secret is (env:NAME, file:/path, cmd:program)";
            return Ok(ChannelKind::Webhook { url, secret: secret.ok_or_else(|| wrong(".secret", unsigned))? });
        }
        if let Some(url) = &self.slack {
            return Ok(ChannelKind::Slack { url: place(url).map_err(|why| wrong(".slack", &why))? });
        }
        match self.command.as_deref() {
            Some(argv @ [program, ..]) if !program.is_empty() => Ok(ChannelKind::Command { argv: argv.to_vec() }),
            _ => Err(wrong(".command", "it names no program")),
        }
    }
}

fn place(text: &str) -> Result<Place, String> {
    if text.starts_with("https://") || text.starts_with("http://") {
        return Ok(Place::Itself(text.to_owned()));
    }
    let not = |_| "it is not an address (https://…), nor where one is: env:NAME, file:/path, cmd:program".to_owned();
    text.parse().map(Place::At).map_err(not)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(config: Value) -> Result<Notify, String> {
        let config: NotifyConfig = serde_json::from_value(config).map_err(|why| why.to_string())?;
        config.check(|_| Ok(Duration::from_secs(60))).map_err(|why| why.to_string())
    }

    #[test]
    fn a_channel_leads_to_one_place_and_shows_no_secret() {
        let all = read(json!({ "public_url": "https://bosun.example/", "channels": {
            "ops": { "webhook": "https://x.example/secret/path?a=b", "secret": "env:OPS", "links": true },
            "chat": { "slack": "env:SLACK", "events": ["failed"], "quiet": "22:00-07:00", "urgent": ["failed"] },
            "desk": { "command": ["notify-send", "Bosun"], "namespaces": ["prod"] },
        } }))
        .unwrap();
        assert_eq!(all.public_url.as_deref(), Some("https://bosun.example"));
        let leads: Vec<String> = all.channels.values().map(Channel::leads_to).collect();
        assert_eq!(leads, ["slack env:SLACK", "command notify-send Bosun", "webhook https://x.example/…"]);
        assert!(all.channels["chat"].quiet_for(OccasionKind::Failed).is_none());
        assert!(all.channels["chat"].quiet_for(OccasionKind::Stuck).is_some());
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_place() {
        let channel = |channel: Value| json!({ "channels": { "ops": channel } });
        let url = "https://x.example";
        for (config, says) in [
            (channel(json!({})), "`notify.channels.ops`: one of `webhook`"),
            (channel(json!({ "webhook": url, "slack": url, "secret": "env:S" })), "one of `webhook`"),
            (channel(json!({ "webhook": url, "command": ["x"] })), "one of `webhook`"),
            (channel(json!({ "webhook": url })), "`notify.channels.ops.secret`: a webhook is signed"),
            (channel(json!({ "webhook": url, "secret": "hunter22hunter22" })), "and not as itself"),
            (channel(json!({ "webhook": "x.example", "secret": "env:S" })), "`notify.channels.ops.webhook`"),
            (channel(json!({ "slack": url, "secret": "env:S" })), "only a webhook is signed"),
            (channel(json!({ "command": [] })), "names no program"),
            (channel(json!({ "slack": url, "events": ["nothing"] })), "unknown variant"),
            (channel(json!({ "slack": url, "evnts": [] })), "unknown field"),
            (channel(json!({ "slack": url, "quiet": "late" })), "`notify.channels.ops.quiet`"),
            (channel(json!({ "slack": url, "zone": "UTC" })), "`notify.channels.ops.zone`"),
            (channel(json!({ "slack": url, "links": true })), "`notify.channels.ops.links`: a link needs an address"),
            (json!({ "channels": { "a b": { "slack": url } } }), "a name has letters"),
            (json!({ "public_url": "https://x.example/path" }), "`notify.public_url`"),
            (json!({ "public_url": "ftp://x" }), "`notify.public_url`"),
        ] {
            let why = read(config.clone()).unwrap_err();
            assert!(why.contains(says), "{config}: {why}");
        }
    }

    #[test]
    fn the_keys_of_a_channel_are_those_of_its_structure() {
        let schema = json!(schemars::schema_for!(ChannelConfig));
        let mut known = CHANNEL_KEYS.map(str::to_owned).to_vec();
        known.sort();
        let mut places: Vec<String> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        places.sort();
        assert_eq!(known, places);
    }
}
