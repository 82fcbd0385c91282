//! Sending a request and reading its answer, hop by hop, within time and size.
//!
//! Invariant: no redirect is followed by the client library; each hop is checked first. The answer is read in chunks
//! after decompression and cut at the cap, so neither a long nor a well-compressed body fills the memory. No proxy is
//! used: a proxy would connect where the guard cannot look.

use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bosun_engine::{ActivityContext, ActivityError, Failure, Timestamp, hex};
use reqwest::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, redirect};

use super::address::GuardedResolver;
use super::request::{Prepared, refused, shown};
use super::retry::failure_of;
use super::*;
use crate::capability::in_time;
use crate::capability::scrub::Scrubber;

/// The most of a refusal that goes into a message.
const SAID_CHARS: usize = 300;

/// A client with its guard. Cheap to clone; connections are shared.
#[derive(Clone)]
pub struct GuardedClient {
    config: Arc<HttpConfig>,
    client: Client,
}

/// A client that connects to allowed addresses only, follows no redirect and uses no proxy. Fails only when the TLS roots
/// of this machine cannot be loaded.
pub(crate) fn guarded_client(config: &Arc<HttpConfig>) -> Result<Client, reqwest::Error> {
    static PROVIDER: Once = Once::new();
    // An error means that the program around us has installed a provider already, which is as good.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    Client::builder()
        .redirect(redirect::Policy::none())
        // Attempts are the run machine's, and each is seen in the history.
        .retry(reqwest::retry::never())
        .no_proxy()
        .dns_resolver(Arc::new(GuardedResolver(config.clone())))
        .connect_timeout(Duration::from_secs(10))
        .pool_max_idle_per_host(4)
        .user_agent(concat!("bosun/", env!("CARGO_PKG_VERSION")))
        .build()
}

impl GuardedClient {
    /// Fails only when the TLS roots of this machine cannot be loaded.
    pub fn new(config: HttpConfig) -> Result<Self, reqwest::Error> {
        let config = Arc::new(config);
        let client = guarded_client(&config)?;
        Ok(GuardedClient { config, client })
    }

    /// The activity function.
    pub async fn run(self, context: ActivityContext, input: HttpInput) -> Result<HttpOutput, ActivityError> {
        let asked_at = context.task().scheduled_at;
        in_time::begins(input.within_ms, asked_at, now())?;
        let waits = |failure| in_time::waits(failure, context.attempt(), input.within_ms, asked_at, now());
        let prepared = Prepared::new(&self.config, &input, &context.idempotency_key())?;
        let target = prepared.target();
        tokio::select! {
            result = self.exchange(prepared, &input) => Ok(result.map_err(waits)?),
            () = context.canceled() => Err(ActivityError::Canceled(None)),
            () = tokio::time::sleep(Duration::from_millis(input.timeout_ms)) => {
                let message = format!("{} {target} had no answer after {} ms", input.method, input.timeout_ms);
                Err(Failure::application(HTTP_TIMEOUT, message).into())
            }
        }
    }

    async fn exchange(&self, mut prepared: Prepared, input: &HttpInput) -> Result<HttpOutput, Failure> {
        let mut hops = 0;
        let response = loop {
            let response = self.send(&prepared).await?;
            let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection());
            let Some(location) = location.filter(|_| input.follow_redirects > 0) else { break response };
            if hops == input.follow_redirects {
                let message = format!("{} redirected more than {hops} times", prepared.target());
                return Err(Failure::application(HTTP_REDIRECTS, message).non_retryable());
            }
            hops += 1;
            let location = location.to_str().map_err(|_| refused("the redirect has no readable location"))?.to_owned();
            prepared.follow(response.status(), &location)?;
        };
        self.receive(&prepared, input, response).await
    }

    async fn send(&self, prepared: &Prepared) -> Result<Response, Failure> {
        prepared.check_target(&self.config)?;
        let request = self.client.request(prepared.method.clone(), prepared.url.clone());
        let request = request.headers(prepared.headers.clone());
        let request = match &prepared.body {
            Some(body) => request.body(body.clone()),
            None => request,
        };
        request.send().await.map_err(|why| transport(prepared, why))
    }

    async fn receive(
        &self,
        prepared: &Prepared,
        input: &HttpInput,
        mut response: Response,
    ) -> Result<HttpOutput, Failure> {
        let status = response.status();
        let mut bytes = Vec::new();
        let mut truncated = false;
        while let Some(chunk) = response.chunk().await.map_err(|why| transport(prepared, why))? {
            let room = usize::try_from(input.response_max).unwrap_or(usize::MAX).saturating_sub(bytes.len());
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                truncated = true;
                break;
            }
        }
        let success = input.any_status
            || if input.success.is_empty() { status.is_success() } else { input.success.contains(&status.as_u16()) };
        if !success {
            let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let text = String::from_utf8_lossy(&bytes);
            let text = if truncated { prepared.secrets.cut_text(&text) } else { prepared.secrets.text(&text) };
            let said = excerpt(&text, SAID_CHARS);
            let colon = if said.is_empty() { "" } else { ": " };
            let message = format!("{} {} answered {status}{colon}{said}", prepared.method, prepared.target());
            return Err(failure_of(status.as_u16(), message, retry_after, now()));
        }
        if truncated && input.too_large == TooLarge::Error {
            let message = format!("the answer of {} has more than {} bytes", prepared.target(), input.response_max);
            return Err(Failure::application(HTTP_TOO_LARGE, message).non_retryable());
        }
        let says_json = |value: &str| value.contains("json");
        let json = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(says_json);
        let (body, encoding) = readable(bytes, &prepared.secrets, truncated);
        Ok(HttpOutput {
            status: status.as_u16(),
            headers: kept_headers(&response, &prepared.secrets),
            json: if json { serde_json::from_str(&body).ok() } else { None },
            body,
            encoding,
            truncated,
            url: prepared.secrets.text(prepared.url.as_str()),
        })
    }
}

fn readable(mut bytes: Vec<u8>, secrets: &Scrubber, truncated: bool) -> (String, BodyEncoding) {
    if let Err(why) = std::str::from_utf8(&bytes)
        && truncated
        && why.error_len().is_none()
    {
        bytes.truncate(why.valid_up_to()); // the cap cut a character in two
    }
    match String::from_utf8(bytes) {
        Ok(text) if truncated => (secrets.cut_text(&text), BodyEncoding::Text),
        Ok(text) => (secrets.text(&text), BodyEncoding::Text),
        Err(why) => (hex(&secrets.bytes(why.into_bytes(), truncated)), BodyEncoding::Base16),
    }
}

fn kept_headers(response: &Response, secrets: &Scrubber) -> BTreeMap<String, String> {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in response.headers() {
        let name = name.as_str();
        // Cookies are credentials: they would stay in history.
        if name == "set-cookie" {
            continue;
        }
        let value = secrets.text(&String::from_utf8_lossy(value.as_bytes()));
        headers.entry(name.to_owned()).and_modify(|all| *all = format!("{all}, {value}")).or_insert(value);
    }
    headers
}

/// The failure of a request without an answer. The library's message is used without its URL, which may hold secrets.
fn transport(prepared: &Prepared, why: reqwest::Error) -> Failure {
    let why = why.without_url();
    let text = match innermost(&why) {
        Ok(text) => text,
        Err(refused) => return Failure::application(HTTP_REFUSED_ADDRESS, refused.to_string()).non_retryable(),
    };
    let message = format!("{} {} failed: {}", prepared.method, shown(&prepared.url), prepared.secrets.text(&text));
    if why.is_builder() { refused(message) } else { Failure::application(HTTP_TRANSPORT, message) }
}

/// Only for dates and times that servers give. An activity may read the clock.
pub(in crate::capability) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
