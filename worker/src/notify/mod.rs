//! Notifications: what happens is told to people elsewhere, durably (requirements: the requirements of operating §6).
//!
//! ```text
//!   log ──► watcher ──► occasion ──start──► run: the workflow `bosun.notification`, one an occasion and channel
//!      after a cursor     │ pure                │  quiet hours and waits between attempts are its timers
//!   held runs, a worker   │                     ▼
//!   that is gone ─────────┘                  deliver: one attempt to a webhook, to Slack, or by a command
//! ```
//!
//! A notification is itself a run: it lives in the same log, goes on after kill -9, and is seen like any other. Its id is made of
//! what it tells and of the channel, so that an occasion that is met again after a crash is the same notification. The cursor
//! moves only behind what has become a notification: nothing is lost, and what was told twice is known by its id.
//!
//! A link in a notification of an approval decides it, once: `links` makes and reads them, `crate::ui` shows what they open.
//!
//! | what | where |
//! |---|---|
//! | what the owner says: channels, quiet hours | `rules::channel`, `rules::quiet` |
//! | what is worth telling, and its id | `rules::occasion` |
//! | what is told, in the words of each kind of channel | `rules::told` |
//! | when the next attempt is made | `rules::pace` |
//! | the workflow | `rules::run` |
//! | the cursor, and what follows the log | `cursor`, `watcher` |
//! | what a run asks people | `asked` |
//! | one attempt | `deliver` |
//! | whether one could be made | `readable` |
//! | who was told of a run | `notified` |
//!
//! Invariant: `rules` is pure. No link and no secret is in a history: an attempt makes the links, and reads the secrets, itself.

pub(crate) mod asked;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub(crate) mod cursor;
pub(crate) mod deliver;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub(crate) mod links;
pub(crate) mod notified;
pub(crate) mod readable;
#[doc(hidden)]
pub mod rules;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub(crate) mod watcher;

pub use rules::channel::{ChannelConfig, NotifyConfig};
pub use rules::run::{NOTIFICATION, register};

/// What the workflow id of a notification begins with.
pub const ID_PREFIX: &str = "notify:";
