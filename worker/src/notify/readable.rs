//! Whether the secrets and addresses of channels can be read from here, before there is something to tell.
//!
//! Invariant: it reads variables and files, shows none of them, and runs no program: what a `cmd:` gives is known when it is
//! needed. It sends nothing.

use super::rules::channel::{ChannelKind, Notify, Place};
use super::rules::told::signing_key;
use crate::capability::model::SecretRef;

/// A channel that cannot be told, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnreadableChannel {
    pub channel: String,
    pub why: String,
}

/// The channels that name something which cannot be read.
pub(crate) async fn unreadable(notify: &Notify) -> Vec<UnreadableChannel> {
    let mut found = Vec::new();
    for (name, channel) in &notify.channels {
        let (url, secret) = match &channel.kind {
            ChannelKind::Webhook { url, secret } => (Some(url), Some(secret)),
            ChannelKind::Slack { url } => (Some(url), None),
            ChannelKind::Command { .. } => (None, None),
        };
        let mut problem = |why: String| found.push(UnreadableChannel { channel: name.clone(), why });
        // What a program gives is known when it is run.
        if let Some(Place::At(reference)) = url
            && !matches!(reference, SecretRef::Cmd(_))
            && let Err(why) = reference.resolve().await
        {
            problem(why.message);
        }
        let Some(reference) = secret.filter(|reference| !matches!(reference, SecretRef::Cmd(_))) else { continue };
        match reference.resolve().await.map(|secret| signing_key(secret.expose()).map(drop)) {
            Err(why) => problem(why.message),
            Ok(Err(why)) => problem(why.to_owned()),
            Ok(Ok(())) => {}
        }
    }
    found
}
