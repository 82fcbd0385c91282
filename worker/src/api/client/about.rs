//! What a client asks of the worker itself, beside its runs.

use serde_json::{Value, json};

use super::{HttpClient, api};
use crate::backend::CallError;

impl HttpClient {
    /// A code by which a browser signs in with our token, once and soon.
    pub async fn sign_in_code(&self) -> Result<String, CallError> {
        let answer: Value = self.0.post(&api("sign-in-code"), &json!({})).await?;
        Ok(answer["code"].as_str().unwrap_or_default().to_owned())
    }

    /// What the worker says of itself: process, health, slots, queues, code (`GET /api/v1/worker`).
    ///
    /// # Errors
    /// As every request: nobody answers, the token is not accepted, or the answer makes no sense.
    pub async fn worker_facts(&self) -> Result<Value, CallError> {
        self.0.get(&api("worker")).await
    }
}
