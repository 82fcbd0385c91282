//! What keeps a page up to date: a stream that says that something has happened, and nothing of what it was.
//!
//! Invariant: at most one word a second, however much happens; a page that hears it asks for itself again, with the rights
//! of whoever is signed in. A stream ends by itself after a while, so that one whose session has ended does not stay.

use std::convert::Infallible;
use std::time::Duration;

use async_stream::stream;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};

use super::forms::{Query, Visitor};
use crate::backend::Backend;

// A browser tells no script of an event without data.
const PACE: Duration = Duration::from_secs(1);
/// A browser asks again by itself.
const LASTS: Duration = Duration::from_secs(600);
/// Between two words of a stream on which nothing happens, by which a dead connection is found.
const QUIET_MAX: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
pub(super) struct LiveQuery {
    #[serde(default)]
    query: String,
}

pub(super) async fn live(visitor: Visitor, Query(LiveQuery { query }): Query<LiveQuery>) -> Response {
    let mut events = visitor.backend.watch(query, None);
    let ends = Instant::now() + LASTS;
    let words = stream! {
        yield Ok::<Event, Infallible>(Event::default().event("ready").data("1"));
        while let Ok(Some(happened)) = timeout_at(ends, events.next()).await {
            let word = match happened {
                Ok(_) => Event::default().event("changed").data("1"),
                Err(why) => Event::default().event("refused").data(one_line(&why.to_string())),
            };
            // What has happened up to now is in the page that is asked for now; what happens from now on is another word.
            while let Some(Some(_)) = futures_util::FutureExt::now_or_never(events.next()) {}
            yield Ok(word);
            sleep(PACE).await;
        }
    };
    Sse::new(words).keep_alive(KeepAlive::new().interval(QUIET_MAX)).into_response()
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
