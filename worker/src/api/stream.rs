//! Streams over HTTP: one JSON value a line.
//!
//! Invariant: an error ends the stream with a line `{"error": problem}`; a quiet stream carries an empty line every
//! 15 s, so that neither side takes it for dead. A reader must skip empty lines. No stream outlives the token that opened it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bosun_engine::{Event, RunEvent, Turn};
use futures_core::Stream;
use futures_util::StreamExt;
use serde::Serialize;
use serde_json::json;

use super::problem::Problem;
use crate::backend::{CallError, EventStream, RunEventStream};

const QUIET_MAX: Duration = Duration::from_secs(15);

/// The events of one run.
pub fn json_lines(events: EventStream) -> Response {
    respond(lines::<Event>(events))
}

/// The events of many runs.
pub fn run_event_lines(events: RunEventStream) -> Response {
    respond(lines::<RunEvent>(events))
}

/// The turns of one run: line by line, so that a long history is neither built as one text nor cut as an idle answer.
pub fn turn_lines(turns: Vec<Turn>) -> Response {
    respond(lines(futures_util::stream::iter(turns.into_iter().map(Ok::<Turn, CallError>))))
}

fn respond(lines: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

fn lines<T: Serialize>(
    mut items: impl Stream<Item = Result<T, CallError>> + Unpin + Send,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        loop {
            match tokio::time::timeout(QUIET_MAX, items.next()).await {
                Err(_) => yield Ok(Bytes::from_static(b"\n")),
                Ok(None) => break,
                Ok(Some(Ok(item))) => yield Ok(line(&item)),
                Ok(Some(Err(why))) => {
                    yield Ok(line(&json!({ "error": Problem::from(why) })));
                    break;
                }
            }
        }
    }
}

fn line<T: Serialize>(value: &T) -> Bytes {
    // Our own types always serialise; should one not, the line says so instead of breaking the stream.
    let mut text =
        serde_json::to_vec(value).unwrap_or_else(|why| json!({ "error": why.to_string() }).to_string().into());
    text.push(b'\n');
    text.into()
}

/// How often it is asked whether who reads a stream may still read it.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(2);

/// A stream that breaks off soon after whoever reads it may not any more: their token was revoked, or has expired. It is
/// no end of what is streamed: whoever asks again is told why.
pub fn while_open(body: Body, is_open: impl Fn() -> bool + Send + 'static) -> Body {
    // A whole answer was made while it was.
    if axum::body::HttpBody::size_hint(&body).exact().is_some() {
        return body;
    }
    let mut data = body.into_data_stream();
    Body::from_stream(async_stream::stream! {
        let mut looks = tokio::time::interval(LOOKED_AT_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let chunk = tokio::select! {
                biased;
                _ = looks.tick() => match is_open() {
                    true => continue,
                    false => {
                        yield Err(axum::Error::new(std::io::Error::other("the token opens nothing any more")));
                        return;
                    }
                },
                chunk = data.next() => chunk,
            };
            match chunk {
                Some(chunk) => yield chunk,
                None => return,
            }
        }
    })
}

/// A body that keeps something alive until it has been sent.
pub fn hold<T: Send + 'static>(body: Body, held: T) -> Body {
    // A whole answer is written at once; only a stream of unknown length is worth watching.
    if axum::body::HttpBody::size_hint(&body).exact().is_some() {
        return body;
    }
    let mut data = body.into_data_stream();
    Body::from_stream(async_stream::stream! {
        let _held = held;
        while let Some(chunk) = data.next().await {
            yield chunk;
        }
    })
}
