//! One attempt: a notification is sent to its channel, once.
//!
//! Invariant: how an attempt ends is data, which the run of the notification decides upon; what has been answered meanwhile, or
//! escalated, which is another notification, is not told any more; what is asked is told as it is now. Secrets are read, and
//! links made, for one attempt, and are in no result. No redirect is followed: it would carry links elsewhere. What the worker knows to be secret is cut out of what comes from runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bosun_engine::*;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Url};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::asked::{asked_of, text_of};
use super::links::{LinkClaim, Links};
use super::rules::channel::{Channel, ChannelKind, Notify, Place};
use super::rules::occasion::Occasion;
use super::rules::run::{DELIVER, Delivery, NOTIFICATION, Notification};
use super::rules::told::{TellLinks, body, signature, slack};
use crate::api::guard::now;
use crate::backend::{Backend, CallError};
use crate::batch::carry_out::EngineHere;
use crate::capability::environment;
use crate::capability::http::{HttpConfig, guarded_client, retry_after};
use crate::inbox;
use crate::own_work::only_in;

/// The whole exchange, or the whole life of a command: meanwhile it takes a slot of the worker.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Characters of what a command has to say.
const SAID: usize = 300;
/// The variables that a command has of the worker.
const ENV: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// Tells channels.
#[derive(Clone)]
pub(crate) struct Teller(Arc<TellerParts>);

struct TellerParts {
    notify: Notify,
    links: Links,
    /// By host.
    clients: Mutex<BTreeMap<String, Client>>,
}

impl Teller {
    pub(crate) fn new(notify: Notify, data: &Path) -> Teller {
        Teller(Arc::new(TellerParts { notify, links: Links::of(data), clients: Mutex::default() }))
    }

    /// Adds the activity, which asks this engine.
    pub(crate) fn register(&self, activities: &mut ActivityRegistry, here: &EngineHere) {
        let (teller, here) = (self.clone(), here.clone());
        activities.external(DELIVER);
        activities.register(DELIVER, move |ctx: ActivityContext, asked: Notification| {
            let (teller, here) = (teller.clone(), here.clone());
            async move { teller.deliver(&ctx, &*here.backend()?, asked).await }
        });
    }

    async fn deliver(
        &self,
        ctx: &ActivityContext,
        backend: &dyn Backend,
        notification: Notification,
    ) -> Result<Delivery, ActivityError> {
        if let Some(why) = self.is_made_up(ctx, backend).await? {
            return Ok(Delivery::Refused { why });
        }
        let name = &notification.channel;
        let Some(channel) = self.0.notify.channels.get(name) else {
            return Ok(Delivery::Refused { why: format!("no channel {name} is configured any more") });
        };
        let occasion = match as_it_is(backend, &notification.occasion).await {
            Ok(occasion) => occasion,
            Err(over) => return Ok(over),
        };
        let links = match self.links(name, channel, &occasion, backend.now()) {
            Ok(links) => links,
            Err(why) => return Ok(Delivery::Failed { why, retry_after_ms: None }),
        };
        let id = notification.id();
        let told = reminding(&occasion, notification.reminder);
        let ended = tokio::select! {
            ended = self.send(&id, name, channel, &told, &links) => ended,
            () = ctx.canceled() => return Err(ActivityError::Canceled(None)),
        };
        if let Delivery::Failed { why, .. } = &ended {
            // Who reads the log learns of it before somebody asks why nobody was told.
            tracing::warn!(channel = %name, notification = %id, %why, "an attempt to notify people has failed");
        }
        Ok(ended)
    }

    /// A notification is believed only if the worker made it: a child, or a fork with another input, says anything.
    async fn is_made_up(&self, ctx: &ActivityContext, backend: &dyn Backend) -> Result<Option<String>, ActivityError> {
        only_in(ctx, NOTIFICATION)?;
        let task = ctx.task();
        let (workflow_id, run_id) = (task.workflow_id.clone(), Some(task.run_id));
        let target = Target { namespace: task.namespace.clone(), workflow_id, run_id };
        let info = backend.describe(target).await.map_err(|why| Failure::application("NotNow", why.to_string()))?.info;
        let made_up =
            info.parent.is_some() || info.continued_from.is_some() || info.forked_from.is_some_and(|from| !from.reset);
        let why = "the worker alone starts notifications: as a child, a fork or what another run goes on as it is nobody's word";
        Ok(made_up.then(|| why.to_owned()))
    }

    /// The links of an occasion, as far as the channel may have them.
    fn links(&self, name: &str, channel: &Channel, occasion: &Occasion, now: Timestamp) -> Result<TellLinks, String> {
        let Some(url) = &self.0.notify.public_url else { return Ok(TellLinks::default()) };
        let Some(about) = &occasion.about else { return Ok(TellLinks::default()) };
        let namespace = occasion.namespace.as_str();
        let run = about.run_id;
        let page = match &occasion.asked {
            Some(_) => format!("{url}/inbox?run_id={run}&namespace={}", crate::ui::query_text(namespace)),
            None => format!("{url}{}", crate::ui::run_link(namespace, about.workflow_id.as_str(), Some(run))),
        };
        let mut links = TellLinks { page: Some(page), ..TellLinks::default() };
        let decided = occasion.asked.as_ref().filter(|asked| channel.links && asked.word != "question");
        if let Some(asked) = decided {
            let expires_at = expiry(occasion.at, self.0.notify.links_for, now);
            let link = |approve: bool| {
                let claim = LinkClaim {
                    namespace: occasion.namespace.clone(),
                    workflow_id: about.workflow_id.clone(),
                    run_id: run,
                    request: asked.id.clone(),
                    shown: asked.shown.clone(),
                    approve,
                    channel: name.to_owned(),
                    expires_at,
                };
                let link = self.0.links.make(&claim).map_err(|why| why.to_string())?;
                Ok::<_, String>(format!("{url}{}?link={link}", crate::api::routes::DECIDE_PATH))
            };
            (links.approve, links.reject, links.expires_at) = (Some(link(true)?), Some(link(false)?), Some(expires_at));
        }
        Ok(links)
    }

    /// Sends it to a channel.
    pub(crate) async fn send(
        &self,
        id: &str,
        name: &str,
        channel: &Channel,
        occasion: &Occasion,
        links: &TellLinks,
    ) -> Delivery {
        let mut body = body(id, name, occasion, links);
        environment::scrub(&mut body);
        let sent = async {
            match &channel.kind {
                ChannelKind::Webhook { url, secret } => {
                    let secret = secret.resolve().await.map_err(|why| later(why.message))?;
                    self.post(url, body.to_string(), Some((id, secret.expose()))).await
                }
                ChannelKind::Slack { url } => {
                    let mut told = slack(occasion, links);
                    environment::scrub(&mut told);
                    self.post(url, told.to_string(), None).await
                }
                ChannelKind::Command { argv } => command(argv, id, body.to_string()).await,
            }
        };
        match tokio::time::timeout(ATTEMPT, sent).await {
            Ok(Ok(answer)) => Delivery::Delivered { answer },
            Ok(Err(failed)) => failed,
            Err(_) => later(format!("it did not end within {} s", ATTEMPT.as_secs())),
        }
    }

    async fn post(&self, place: &Place, body: String, sealed: Option<(&str, &str)>) -> Result<String, Delivery> {
        let url = match place {
            Place::Itself(url) => url.clone(),
            Place::At(reference) => {
                reference.resolve().await.map_err(|why| later(why.message))?.expose().trim().to_owned()
            }
        };
        let url = Url::parse(&url).map_err(|_| later(format!("{place} is not an address")))?;
        let client = self.client(url.host_str().unwrap_or_default()).map_err(later)?;
        let mut request = client.post(url).header(CONTENT_TYPE, "application/json");
        if let Some((id, secret)) = sealed {
            let second = now().0.div_euclid(1_000_000);
            let signed = signature(secret, id, second, body.as_bytes()).map_err(|why| later(why.to_owned()))?;
            request = request
                .header("webhook-id", id)
                .header("webhook-timestamp", second.to_string())
                .header("webhook-signature", signed);
        }
        let answer = request.body(body).send().await.map_err(|why| later(chain(&why.without_url())))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(format!("HTTP {}", status.as_u16()));
        }
        let asked = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let wait = asked.and_then(|text| retry_after(text, now()));
        let retry_after_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        Err(Delivery::Failed { why: format!("{place} answered HTTP {}", status.as_u16()), retry_after_ms })
    }

    fn client(&self, host: &str) -> Result<Client, String> {
        let mut clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(host) {
            return Ok(client.clone());
        }
        // The owner named it, wherever it is.
        let config = HttpConfig { allow_hosts: vec![host.to_owned()], ..HttpConfig::default() };
        let client = guarded_client(&Arc::new(config)).map_err(|why| chain(&why))?;
        clients.insert(host.to_owned(), client.clone());
        Ok(client)
    }
}

/// The occasion in the words of a reminder, if it is one.
fn reminding(occasion: &Occasion, reminder: u32) -> Occasion {
    match reminder {
        0 => occasion.clone(),
        n => Occasion { title: format!("still waits (reminder {n}): {}", occasion.title), ..occasion.clone() },
    }
}

fn later(why: String) -> Delivery {
    Delivery::Failed { why, retry_after_ms: None }
}

/// An error of a request with its causes, of which the first one says little.
fn chain(why: &reqwest::Error) -> String {
    let mut text = why.to_string();
    let mut cause = std::error::Error::source(why);
    while let Some(why) = cause {
        text.push_str(&format!(": {why}"));
        cause = why.source();
    }
    text
}

/// Until when a link decides that is sent now. Attempts of one message hold the same links as long as these have half of their
/// time left; what is told later, for example a reminder, holds newer ones.
fn expiry(told_since: Timestamp, lasts: Duration, now: Timestamp) -> Timestamp {
    let half = i64::try_from(lasts.as_micros() / 2).unwrap_or(i64::MAX).max(1);
    let halves = (now.0.saturating_sub(told_since.0)).max(0) / half;
    Timestamp(told_since.0.saturating_add(halves.saturating_mul(half))).plus(lasts)
}

/// An occasion with what is asked now; how the attempt ends, where there is nothing to tell any more, or it cannot be known now.
async fn as_it_is(backend: &dyn Backend, occasion: &Occasion) -> Result<Occasion, Delivery> {
    let (Some(asked), Some(about)) = (&occasion.asked, &occasion.about) else { return Ok(occasion.clone()) };
    let run = Target::run(about.workflow_id.clone(), about.run_id);
    let target = Target { namespace: occasion.namespace.clone(), ..run };
    let moot = |why: &str| Err(Delivery::Moot { why: why.to_owned() });
    let target = match inbox::going_on(backend, target).await {
        Ok(info) if !info.status.is_open() => return moot("the run has ended"),
        Ok(info) => inbox::target_of(&info),
        Err(CallError::Rejected(Rejection::NotFound { .. })) => return moot("the run is not there any more"),
        Err(why) => return Err(later(why.to_string())),
    };
    // A run that cannot be asked now still waits, as far as anybody knows.
    let Ok(all) = inbox::requests(backend, &target, &about.workflow_type).await else { return Ok(occasion.clone()) };
    let Some(one) = all.iter().find(|one| one.id() == asked.id && one.shown() == asked.shown) else {
        return moot("it has been answered");
    };
    let current = asked_of(one);
    if current.escalated() > asked.escalated() {
        return moot("it was escalated, which another notification tells");
    }
    let told = Occasion { asked: Some(current), ..occasion.clone() };
    let title = told.title.clone();
    Ok(told.says(title, &text_of(one)))
}

/// Runs a command with the notification on its standard input; its exit code 0 is delivery.
async fn command(argv: &[String], id: &str, body: String) -> Result<String, Delivery> {
    let Some((program, arguments)) = argv.split_first() else { return Err(later("it names no program".to_owned())) };
    let variables = ENV.iter().filter_map(|name| Some((*name, environment::var(name)?)));
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(variables).env("BOSUN_NOTIFICATION_ID", id).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|why| later(format!("cannot start {program}: {why}")))?;
    let group = EndGroup(child.id());
    let mut stdin = child.stdin.take();
    let feeding = async {
        if let Some(stdin) = &mut stdin {
            // One that reads nothing may still do its work. A line each: what is appended to a file is JSON lines.
            let _ = stdin.write_all(format!("{body}\n").as_bytes()).await;
        }
        drop(stdin.take());
    };
    let ((), ended) = tokio::join!(feeding, child.wait_with_output());
    drop(group);
    let output = ended.map_err(|why| later(format!("{program}: {why}")))?;
    if output.status.success() {
        return Ok("exit code 0".to_owned());
    }
    let mut said = Value::from(String::from_utf8_lossy(&output.stderr).chars().take(SAID).collect::<String>());
    environment::scrub(&mut said);
    Err(later(format!("{program} ended with {}: {}", output.status, said.as_str().unwrap_or_default().trim())))
}

/// Ends the group of a command that is given up, with all that it has started.
struct EndGroup(Option<u32>);

impl Drop for EndGroup {
    fn drop(&mut self) {
        let pid = self.0.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_half_of_its_time_left_whenever_it_is_sent() {
        let (told, hour) = (Timestamp(1_000_000_000_000), Duration::from_secs(3_600));
        let at = |minutes: u64| told.plus(Duration::from_secs(60 * minutes));
        assert_eq!(expiry(told, hour, told), at(60));
        assert_eq!(expiry(told, hour, at(29)), at(60), "another attempt sends the same");
        assert_eq!(expiry(told, hour, at(30)), at(90));
        assert_eq!(expiry(told, hour, at(7 * 24 * 60 + 10)), at(7 * 24 * 60 + 60));
        assert_eq!(expiry(told, hour, Timestamp(0)), at(60), "a clock that was put back");
        assert!(expiry(told, Duration::MAX, at(5)) > at(5) && expiry(told, Duration::ZERO, at(5)) >= at(5));
    }
}
