//! `notify list` and `notify test`: whom the configuration names, and whether they can be reached from here.
//!
//! Invariant: a test is one attempt for each channel, sent by this process: it needs no worker and no store, is recorded
//! nowhere, and says of each channel how it went. No secret is shown.

use bosun_engine::{DEFAULT_NAMESPACE, Namespace};
use clap::{Args, Subcommand};
use serde_json::json;

use super::args::Global;
use super::config::Loaded;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::output::{Cell, Screen, TextStyle};
use super::start::fresh_id;
use super::time_format::now;
use crate::api::WorkerFile;
use crate::notify::deliver::Teller;
use crate::notify::rules::channel::Channel;
use crate::notify::rules::occasion::{Occasion, OccasionKind};
use crate::notify::rules::run::Delivery;
use crate::notify::rules::told::TellLinks;

#[derive(Debug, Subcommand)]
pub enum NotifyVerb {
    /// List the channels of `bosun.toml`, and what each is notified of.
    #[command(visible_alias = "ls")]
    List,
    /// Send a test message to each channel, and report what became of it.
    Test(TestChannelArgs),
}

#[derive(Debug, Args)]
pub struct TestChannelArgs {
    /// Test only this channel.
    #[arg(long, value_name = "NAME")]
    pub channel: Option<String>,
}

pub(super) async fn notify(
    screen: &mut Screen,
    global: &Global,
    loaded: &Loaded,
    verb: NotifyVerb,
) -> Result<Exit, CliError> {
    let notify = loaded.config.notify();
    const HOW: &str = "write `[notify.channels.NAME]` with a `webhook`, `slack` or `command` into bosun.toml";
    match verb {
        NotifyVerb::List => {
            if notify.channels.is_empty() {
                screen.note(&format!("no channel is configured: {HOW}"));
            }
            list(screen, &notify.channels)
        }
        NotifyVerb::Test(_) if notify.channels.is_empty() => {
            Err(CliError::new(Code::Usage, "no channel is configured").help(HOW))
        }
        NotifyVerb::Test(TestChannelArgs { channel }) => {
            if let Some(name) = channel.as_ref().filter(|name| !notify.channels.contains_key(*name)) {
                return Err(CliError::new(Code::NotFound, format!("there is no channel {name}"))
                    .help("`bosun notify list` shows them"));
            }
            let chosen = notify.channels.clone().into_iter();
            let chosen = chosen.filter(|(name, _)| channel.as_ref().is_none_or(|only| only == name)).collect();
            if WorkerFile::read(&global.data).is_some_and(|file| file.process_lives()) {
                screen.note("sent by this command, with its own environment and configuration: the worker has those it was started with");
            }
            test(screen, &Teller::new(notify, &global.data), chosen).await
        }
    }
}

fn words<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

fn list(screen: &mut Screen, channels: &std::collections::BTreeMap<String, Channel>) -> Result<Exit, CliError> {
    let rows = channels.iter().map(|(name, channel)| {
        let quiet = channel.quiet.as_ref().map(ToString::to_string);
        json!({
            "channel": name, "to": channel.leads_to(), "events": channel.events, "namespaces": channel.namespaces,
            "links": channel.links, "quiet": quiet, "urgent": channel.urgent,
        })
    });
    let rows: Vec<_> = rows.collect();
    screen.objects("notify.list", "channels", rows);
    let cells = channels.iter().map(|(name, channel)| {
        let quiet = channel.quiet.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let all = || "all".to_owned();
        vec![
            Cell::of(name.clone(), TextStyle::Bold),
            channel.leads_to().into(),
            words(&channel.events).into(),
            channel.namespaces.as_ref().map_or_else(all, words).into(),
            (if channel.links { "yes" } else { "no" }).to_owned().into(),
            quiet.into(),
        ]
    });
    let cells = cells.collect();
    screen.table(&["channel", "to", "events", "namespaces", "links", "quiet"], cells)?;
    Ok(Exit::Ok)
}

async fn test(screen: &mut Screen, teller: &Teller, chosen: Vec<(String, Channel)>) -> Result<Exit, CliError> {
    let id = fresh_id("test")?;
    let occasion = Occasion {
        id: id.clone(),
        kind: OccasionKind::Test,
        at: now(),
        namespace: Namespace::of(DEFAULT_NAMESPACE),
        about: None,
        title: "A test of Bosun".to_owned(),
        text: "Nothing has happened: somebody has asked for a test with `bosun notify test`.".to_owned(),
        asked: None,
    };
    let (mut rows, mut failed) = (Vec::new(), 0_u32);
    for (name, channel) in &chosen {
        let ended = teller.send(&format!("{id}-{name}"), name, channel, &occasion, &TellLinks::default()).await;
        let (delivered, said) = match ended {
            Delivery::Delivered { answer } => (true, answer),
            Delivery::Failed { why, .. } | Delivery::Refused { why } | Delivery::Moot { why } => (false, why),
        };
        failed += u32::from(!delivered);
        rows.push(json!({ "channel": name, "to": channel.leads_to(), "delivered": delivered, "said": said }));
        let word = if delivered { "delivered" } else { "failed" };
        let style = if delivered { TextStyle::Green } else { TextStyle::Red };
        let word = screen.paint(style, word);
        screen.line(format!("{name}: {word} ({said})"));
    }
    screen.objects("notify.test", "channels", rows);
    if failed > 0 {
        let what = format!("{failed} of {} channels could not be reached", chosen.len());
        return Err(CliError::new(Code::Failed, what));
    }
    Ok(Exit::Ok)
}
