//! The client's question before it sends a token: does whoever is there know it?
//!
//! Invariant: the question holds nothing of the token but its public id. An answer is for this question and for the address
//! that we have connected to, so that nobody can pass on the answer of the true worker. It holds for a moment only: another
//! process may take the port at any time.

use std::error::Error as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Response, StatusCode};

use super::client::{CONNECT_MAX, is_before, retry_after};
use super::guard::{CHALLENGE_HEADER, HOST_NOT_ALLOWED, PROOF_HEADER, TOKEN_ID_HEADER};
use super::problem::Problem;
use super::serve::BUSY;
use super::token::{Token, random_hex};

/// Before a question is asked again that was not heard.
pub(super) const CLOSED_FIRST: Duration = Duration::from_millis(200);
/// So long a proof holds.
const HOLDS: Duration = Duration::from_secs(1);

/// When the last proof was given.
#[derive(Debug, Default)]
pub(super) struct Proof(Mutex<Option<Instant>>);

/// Why there is none.
pub(super) enum Unproven {
    Unreachable(String),
    /// Somebody answers who does not know the token.
    Stranger,
    /// Somebody answers that all connections are at work.
    Busy,
    /// Somebody answers that a worker is not to be called by this name.
    HostNotAllowed,
}

/// Why one question gave none.
enum Refusal {
    /// Ask again after this time.
    Busy(Duration),
    Other(Unproven),
}

impl From<Unproven> for Refusal {
    fn from(why: Unproven) -> Self {
        Refusal::Other(why)
    }
}

impl Proof {
    /// Asks again, until then, where the worker is too busy to answer.
    pub(super) async fn ask(
        &self,
        http: &reqwest::Client,
        address: &str,
        token: &Token,
        until: Instant,
    ) -> Result<(), Unproven> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|at| at.elapsed() < HOLDS) {
            return Ok(());
        }
        loop {
            match self.ask_once(http, address, token).await {
                Err(Refusal::Busy(wait)) if is_before(until, wait) => tokio::time::sleep(wait).await,
                Err(Refusal::Busy(_)) => return Err(Unproven::Busy),
                Err(Refusal::Other(why)) => return Err(why),
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn ask_once(&self, http: &reqwest::Client, address: &str, token: &Token) -> Result<(), Refusal> {
        let unreachable = |why: reqwest::Error| Unproven::Unreachable(chain(&why));
        let challenge =
            random_hex(32).map_err(|why| Unproven::Unreachable(format!("there is no randomness: {why}")))?;
        let ask = http.get(format!("{address}/healthz")).timeout(CONNECT_MAX);
        let ask = ask.header(CHALLENGE_HEADER, &challenge).header(TOKEN_ID_HEADER, token.id());
        let ask = ask.build().map_err(unreachable)?;
        // As the worker finds it in `Host`.
        let host = ask.url().host_str().unwrap_or_default();
        let host = ask.url().port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let answer = match http.execute(ask).await {
            Ok(answer) => answer,
            Err(why) if was_not_sent(&why) => return Err(Refusal::Busy(CLOSED_FIRST)),
            Err(why) => return Err(unreachable(why).into()),
        };
        let proof = answer.headers().get(PROOF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !token.verifier().is_proof(proof, &challenge, &host) {
            return Err(why_not(answer).await);
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(())
    }
}

/// What an answer without a proof says. A stranger may say the same as a worker that has no place for one more connection, or
/// is not to be called by this name, and is asked in vain: nothing is sent before there is a proof.
async fn why_not(answer: Response) -> Refusal {
    let (status, wait) = (answer.status(), retry_after(&answer));
    let body = answer.bytes().await.ok();
    let problem: Option<Problem> = body.and_then(|body| serde_json::from_slice(&body).ok());
    match (status, problem, wait) {
        (StatusCode::SERVICE_UNAVAILABLE, Some(problem), Some(wait)) if problem.code == BUSY => Refusal::Busy(wait),
        (StatusCode::FORBIDDEN, Some(problem), _) if problem.code == HOST_NOT_ALLOWED => {
            Unproven::HostNotAllowed.into()
        }
        _ => Unproven::Stranger.into(),
    }
}

/// Whether the other side closed the connection before any of the request was written, as a worker does that has no place for
/// who says nothing: the request may be sent again.
pub(super) fn was_not_sent(why: &reqwest::Error) -> bool {
    let mut cause = why.source();
    while let Some(why) = cause {
        if why.downcast_ref().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        cause = why.source();
    }
    false
}

/// The message of an error with its causes: reqwest's own says little.
pub(super) fn chain(why: &dyn std::error::Error) -> String {
    let mut text = why.to_string();
    let mut source = why.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
