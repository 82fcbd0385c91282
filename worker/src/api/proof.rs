//! The client's question before it sends a token: does whoever is there know it?
//!
//! Invariant: the question holds nothing of the token but its public id. An answer is for this question and for the address
//! that we have connected to, so that nobody can pass on the answer of the true worker. It holds for a moment only: another
//! process may take the port at any time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::StatusCode;

use super::client::{CONNECT_MAX, retry_after};
use super::guard::{CHALLENGE_HEADER, PROOF_HEADER, TOKEN_ID_HEADER};
use super::token::{Token, random_hex};

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
                Err(Refusal::Busy(wait)) if Instant::now() + wait < until => tokio::time::sleep(wait).await,
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
        let answer = http.execute(ask).await.map_err(unreachable)?;
        let proof = answer.headers().get(PROOF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !token.verifier().is_proof(proof, &challenge, &host) {
            let busy = (answer.status() == StatusCode::SERVICE_UNAVAILABLE).then(|| retry_after(&answer)).flatten();
            return Err(busy.map_or(Refusal::Other(Unproven::Stranger), Refusal::Busy));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(())
    }
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
