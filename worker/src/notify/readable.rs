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
        let address = url.and_then(|place| match place {
            Place::Itself(_) => None,
            Place::At(reference) => Some(reference),
        });
        for reference in address.into_iter().chain(secret) {
            if let SecretRef::Cmd(_) = reference {
                continue;
            }
            let is_secret = secret.is_some_and(|secret| std::ptr::eq(secret, reference));
            let why = match reference.resolve().await {
                Err(why) => why.message,
                Ok(text) if is_secret => match signing_key(text.expose()) {
                    Ok(_) => continue,
                    Err(why) => why.to_owned(),
                },
                Ok(_) => continue,
            };
            found.push(UnreadableChannel { channel: name.clone(), why });
        }
    }
    found
}
