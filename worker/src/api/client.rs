//! The attached client: a [`Backend`] that speaks to the control API of a running worker.
//!
//! Invariant: a refusal comes back as the same [`Rejection`] the engine gave; everything else that goes wrong says which
//! worker was asked. The token goes into the header only, and to nobody who has not just proved to know it. What a busy worker
//! has refused, and so not begun, is sent again when it says (`Retry-After`), for [`PATIENCE`] at most. Nothing else is retried:
//! the caller knows what is idempotent.
//!
//! Long: each method of a backend stands here.

mod about;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::*;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::{Method, Response, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::address::{escape, run_path, segment, with_scheme};
use super::guard::now;
use super::handlers::{StartAnswer, StartRequestBody, WAIT_MAX};
use super::problem::Problem;
use super::proof::{CLOSED_FIRST, Proof, Unproven, chain, was_not_sent};
use super::routes::EXACT;
use super::serve::BUSY;
use super::token::Token;
use crate::backend::*;
// The engine has a `EngineHealth` of its own.
use crate::backend::EngineHealth;

pub(super) const CONNECT_MAX: Duration = Duration::from_secs(2);
/// So long a busy worker is asked again.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A connection that has been quiet for longer is not used again: the worker closes those that are quiet for long, and a
/// request that is just being sent would be lost with it.
const POOL_IDLE: Duration = Duration::from_secs(5);

/// Speaks to one worker. Cheap to clone.
#[derive(Clone)]
pub struct HttpClient(Arc<Inner>);

struct Inner {
    http: reqwest::Client,
    /// Without a trailing slash.
    address: String,
    token: Token,
    /// For messages.
    token_file: String,
    proof: Proof,
    patience: Duration,
}

impl HttpClient {
    pub fn new(address: &str, token: Token, token_file: &str) -> Result<Self, CallError> {
        Self::with_patience(address, token, token_file, PATIENCE)
    }

    /// With another time than [`PATIENCE`]; none: a busy worker's refusal is told at once.
    pub fn with_patience(address: &str, token: Token, token_file: &str, patience: Duration) -> Result<Self, CallError> {
        let address = with_scheme(address);
        // Redirects are not followed: they would carry the token elsewhere.
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(POOL_IDLE)
            .connect_timeout(CONNECT_MAX);
        // Only the first installation counts; a second one is not an error worth knowing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if address.starts_with("http://") {
            // No certificates are needed, and a machine without any must do.
            http = http.tls_certs_only([]);
        }
        let http = http.build().map_err(|why| CallError::Unreachable { address: address.clone(), why: chain(&why) })?;
        Ok(HttpClient(Arc::new(Inner {
            http,
            address,
            token,
            token_file: token_file.to_owned(),
            proof: Proof::default(),
            patience,
        })))
    }

    /// Whether the worker of the token answers, and nobody else: the token is sent to nobody who has not proved to know it.
    ///
    /// # Errors
    /// [`CallError::Unreachable`]: nobody answers; [`CallError::Unproven`]: somebody does.
    pub async fn prove(&self) -> Result<(), CallError> {
        self.0.prove(Instant::now() + self.0.patience).await
    }

    pub fn address(&self) -> &str {
        &self.0.address
    }
}

impl Inner {
    fn unreachable(&self, why: &reqwest::Error) -> CallError {
        CallError::Unreachable { address: self.address.clone(), why: chain(why) }
    }

    async fn prove(&self, until: Instant) -> Result<(), CallError> {
        let Inner { http, address, token, token_file, proof, .. } = self;
        proof.ask(http, address, token, until).await.map_err(|why| match why {
            Unproven::Busy => CallError::Refused {
                status: StatusCode::SERVICE_UNAVAILABLE.as_u16(),
                code: BUSY.into(),
                message: format!(
                    "{address} is busy: all of its connections are at work (`--connections` of the worker); try again later"
                ),
            },
            Unproven::HostNotAllowed => CallError::Unreachable {
                address: address.clone(),
                why: "it is not to be called by this name: start it with `--allow-host NAME`, and let a proxy in between pass \
                      on the `Host` that it is called by"
                    .into(),
            },
            Unproven::Unreachable(why) => CallError::Unreachable { address: address.clone(), why },
            Unproven::Stranger => CallError::Unproven { address: address.clone(), token_file: token_file.clone() },
        })
    }

    async fn send(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Response, CallError> {
        let until = Instant::now() + self.patience;
        let body = body.map(Bytes::from);
        loop {
            self.prove(until).await?;
            let mut request = self
                .http
                .request(method.clone(), format!("{}/{path}", self.address))
                .header(header::AUTHORIZATION, self.token.header())
                .header(header::ACCEPT, EXACT);
            if let Some(body) = body.clone() {
                request = request.header(header::CONTENT_TYPE, "application/json").body(body);
            }
            let response = match request.send().await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => response,
                Err(why) if was_not_sent(&why) && is_before(until, CLOSED_FIRST) => {
                    tokio::time::sleep(CLOSED_FIRST).await;
                    continue;
                }
                Err(why) => return Err(self.unreachable(&why)),
            };
            let wait = retry_after(&response);
            let refusal = self.refusal(response).await;
            match wait {
                Some(wait) if was_not_begun(&refusal) && is_before(until, wait) => tokio::time::sleep(wait).await,
                _ => return Err(refusal),
            }
        }
    }

    async fn refusal(&self, response: Response) -> CallError {
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED {
            return CallError::Unauthorized { address: self.address.clone(), token_file: self.token_file.clone() };
        }
        let body = response.bytes().await.unwrap_or_default();
        match serde_json::from_slice::<Problem>(&body) {
            Ok(Problem { rejection: Some(rejection), .. }) => CallError::Rejected(rejection),
            Ok(Problem { code, message, .. }) => CallError::Refused { status: status.as_u16(), code, message },
            Err(_) => {
                let message = format!("{} answered with {status} and no explanation", self.address);
                CallError::Refused { status: status.as_u16(), code: "unknown".into(), message }
            }
        }
    }

    fn unreadable(&self, why: impl std::fmt::Display) -> CallError {
        CallError::Refused {
            status: 200,
            code: "unreadable_answer".into(),
            message: format!("{} gave an answer this version cannot read: {why}", self.address),
        }
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, CallError> {
        serde_json::from_slice(body).map_err(|why| self.unreadable(why))
    }

    async fn start(&self, body: StartRequestBody) -> Result<StartAnswer, CallError> {
        self.post(&api("workflows"), &body).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        let response = self.send(Method::GET, path, None).await?;
        self.read(&response.bytes().await.map_err(|why| self.unreachable(&why))?)
    }

    async fn post<B: Serialize + Sync, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, CallError> {
        let body = serde_json::to_vec(body).map_err(|why| Rejection::Invalid {
            what: "request".into(),
            why: format!("it cannot be written as JSON: {why}"),
        })?;
        let response = self.send(Method::POST, path, Some(body)).await?;
        self.read(&response.bytes().await.map_err(|why| self.unreachable(&why))?)
    }
}

/// When a busy worker wants to be asked again. Whoever answers may say what they like: it is bounded.
pub(super) fn retry_after(response: &Response) -> Option<Duration> {
    crate::capability::http::retry_after(response.headers().get(header::RETRY_AFTER)?.to_str().ok()?, now())
}

/// Whether so much later there is still time.
pub(super) fn is_before(until: Instant, wait: Duration) -> bool {
    wait < until.saturating_duration_since(Instant::now())
}

/// A refusal of a worker that has too much to do: nothing of the request has happened.
fn was_not_begun(refusal: &CallError) -> bool {
    match refusal {
        CallError::Rejected(rejection) => matches!(rejection, Rejection::Overloaded { .. }),
        CallError::Refused { code, .. } => code == BUSY,
        _ => false,
    }
}

fn api(path: &str) -> String {
    format!("api/v1/{path}")
}

impl HttpClient {
    fn run_post<'a, B, T>(&'a self, target: Target, rest: &'static str, body: B) -> Reply<'a, T>
    where
        B: Serialize + Send + Sync + 'a,
        T: DeserializeOwned + Send + 'a,
    {
        Box::pin(async move { self.0.post(&api(&run_path(&target, rest)?), &body).await })
    }

    fn run_get<'a, T: DeserializeOwned + Send + 'a>(&'a self, target: Target, rest: String) -> Reply<'a, T> {
        Box::pin(async move { self.0.get(&api(&run_path(&target, &rest)?)).await })
    }

    /// Sends a signal, a query or an update.
    fn message_post<'a, B, T>(&'a self, target: Target, kind: &'static str, name: String, body: B) -> Reply<'a, T>
    where
        B: Serialize + Send + Sync + 'a,
        T: DeserializeOwned + Send + 'a,
    {
        Box::pin(async move {
            let path = run_path(&target, &format!("/{kind}/{}", segment(&name)?))?;
            self.0.post(&api(&path), &body).await
        })
    }

    fn activity_post<'a, B: Serialize + Send + Sync + 'a>(
        &'a self,
        target: Target,
        activity: ActivityId,
        verb: &'static str,
        body: B,
    ) -> Reply<'a, ()> {
        Box::pin(async move {
            let rest = format!("/activities/{}/{verb}", segment(activity.as_str())?);
            self.0.post(&api(&run_path(&target, &rest)?), &body).await
        })
    }

    /// Asks again and again until the run has closed or the time is up.
    async fn wait(&self, target: Target, request: ResultRequest) -> Result<Option<RunResult>, CallError> {
        let deadline = request.timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let left = deadline.map_or(WAIT_MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            let path = run_path(&target, "/result")?;
            let path = format!("{path}follow_runs={}&timeout_ms={}", request.follow_runs, left.as_millis());
            let response = self.0.send(Method::GET, &api(&path), None).await?;
            if response.status() != StatusCode::NO_CONTENT {
                let body = response.bytes().await.map_err(|why| self.0.unreachable(&why))?;
                return self.0.read(&body).map(Some);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
        }
    }

    /// The JSON lines of a streaming route.
    fn lines<T: DeserializeOwned + Send + 'static>(
        &self,
        path: Result<String, CallError>,
    ) -> impl Stream<Item = Result<T, CallError>> + Send + 'static {
        let inner = self.0.clone();
        async_stream::stream! {
            let opened = match path {
                Ok(path) => inner.send(Method::GET, &api(&path), None).await,
                Err(why) => Err(why),
            };
            let mut chunks = match opened {
                Ok(response) => response.bytes_stream(),
                Err(why) => {
                    yield Err(why);
                    return;
                }
            };
            let mut buffer = BytesMut::new();
            // Of a line that is not complete: what has been looked through.
            let mut searched = 0;
            while let Some(chunk) = chunks.next().await {
                match chunk {
                    Ok(chunk) => buffer.extend_from_slice(&chunk),
                    Err(why) => {
                        yield Err(inner.unreachable(&why));
                        return;
                    }
                }
                while let Some(end) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
                    let line = buffer.split_to(searched + end + 1).freeze();
                    searched = 0;
                    if !line.trim_ascii().is_empty() {
                        yield inner.item(&line);
                    }
                }
                searched = buffer.len();
            }
        }
    }
}

impl Inner {
    /// One line of a stream: an item, or the error that ended it.
    fn item<T: DeserializeOwned>(&self, line: &Bytes) -> Result<T, CallError> {
        #[derive(serde::Deserialize)]
        struct Ended {
            error: Problem,
        }
        match serde_json::from_slice::<Ended>(line) {
            Ok(Ended { error: Problem { rejection: Some(rejection), .. } }) => Err(rejection.into()),
            Ok(Ended { error: Problem { code, message, .. } }) => {
                Err(CallError::Refused { status: 200, code, message })
            }
            Err(_) => self.read(line),
        }
    }
}

impl Backend for HttpClient {
    fn looks_at_holds(&self) -> bool {
        true
    }
    fn start(&self, start: StartWorkflow) -> Reply<'_, Started> {
        Box::pin(async move { Ok(self.0.start(StartRequestBody { start, signal: None, update: None }).await?.started) })
    }
    fn fork(&self, request: ForkRequest) -> Reply<'_, Forked> {
        Box::pin(async move { self.0.post(&api("forks"), &request).await })
    }
    fn reset(&self, request: ResetRequest) -> Reply<'_, ResetDone> {
        self.run_post(request.target.clone(), "/reset", request)
    }
    fn signal(&self, target: Target, signal: SignalRequest) -> Reply<'_, ()> {
        self.message_post(target, "signals", signal.name.to_string(), signal)
    }
    fn signal_with_start(&self, start: StartWorkflow, then: SignalRequest) -> Reply<'_, Started> {
        Box::pin(async move {
            Ok(self.0.start(StartRequestBody { start, signal: Some(then), update: None }).await?.started)
        })
    }
    fn update(&self, target: Target, update: UpdateRequest) -> Reply<'_, UpdateOutcome> {
        self.message_post(target, "updates", update.name.to_string(), update)
    }
    fn update_with_start(&self, start: StartWorkflow, then: UpdateRequest) -> Reply<'_, (Started, UpdateOutcome)> {
        Box::pin(async move {
            let answer = self.0.start(StartRequestBody { start, signal: None, update: Some(then) }).await?;
            let outcome = answer.update.ok_or_else(|| self.0.unreadable("it says nothing of the update"))?;
            Ok((answer.started, outcome))
        })
    }
    fn update_result(&self, target: Target, update: UpdateId) -> Reply<'_, UpdateOutcome> {
        Box::pin(async move {
            let rest = format!("/updates/{}/result", segment(update.as_str())?);
            self.0.get(&api(&run_path(&target, &rest)?)).await
        })
    }
    fn query(&self, target: Target, name: QueryName, input: Payload) -> Reply<'_, Payload> {
        self.message_post(target, "queries", name.to_string(), input)
    }
    fn cancel(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        self.run_post(target, "/cancel", because)
    }
    fn terminate(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        self.run_post(target, "/terminate", because)
    }
    fn pause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        self.run_post(target, "/execution/pause", because)
    }
    fn unpause(&self, target: Target, because: Attribution) -> Reply<'_, ()> {
        self.run_post(target, "/execution/resume", because)
    }
    fn pause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        self.activity_post(target, activity, "pause", because)
    }
    fn unpause_activity(&self, target: Target, activity: ActivityId, because: Attribution) -> Reply<'_, ()> {
        self.activity_post(target, activity, "resume", because)
    }
    fn update_activity(&self, target: Target, activity: ActivityId, asked: ActivityAsked) -> Reply<'_, ()> {
        self.activity_post(target, activity, "update", asked)
    }
    fn complete_activity(&self, token: TaskToken, completion: ActivityCompletion) -> Reply<'_, ()> {
        Box::pin(async move {
            let path = format!("activities/{}", escape(&token.to_string()));
            self.0.post(&api(&path), &completion).await
        })
    }
    fn describe(&self, target: Target) -> Reply<'_, Description> {
        self.run_get(target, String::new())
    }
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>> {
        let path = format!("workflows?query={}&limit={}", escape(&request.query), request.limit);
        Box::pin(async move { self.0.get(&api(&path)).await })
    }
    fn count(&self, query: String) -> Reply<'_, u64> {
        Box::pin(async move {
            let answer: Value = self.0.get(&api(&format!("workflow-count?all=true&query={}", escape(&query)))).await?;
            self.0.read(answer["count"].to_string().as_bytes())
        })
    }
    fn result(&self, target: Target, request: ResultRequest) -> Reply<'_, Option<RunResult>> {
        Box::pin(self.wait(target, request))
    }
    fn history(&self, target: Target, from: EventId, limit: usize) -> Reply<'_, Vec<Event>> {
        Box::pin(async move {
            let path = run_path(&target, "/history")?;
            self.0.get(&api(&format!("{path}from={from}&limit={limit}"))).await
        })
    }
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>> {
        Box::pin(self.lines(run_path(&target, "/export")).try_collect())
    }
    fn events(&self, target: Target, from: EventId, follow: bool) -> EventStream {
        let path = run_path(&target, "/events").map(|path| format!("{path}from={from}&follow={follow}"));
        Box::pin(self.lines(path))
    }
    fn watch(&self, query: String, after: Option<GroupSeq>) -> RunEventStream {
        let after = after.map(|group| format!("&after={group}")).unwrap_or_default();
        Box::pin(self.lines(Ok(format!("events?query={}{after}", escape(&query)))))
    }
    fn delete(&self, target: Target) -> Reply<'_, ()> {
        Box::pin(async move {
            let path = api(&run_path(&target, "")?);
            let response = self.0.send(Method::DELETE, &path, None).await?;
            self.0.read(&response.bytes().await.map_err(|why| self.0.unreachable(&why))?)
        })
    }
    fn verify(&self) -> Reply<'_, Value> {
        Box::pin(async move { self.0.post(&api("store/verify"), &json!({})).await })
    }
    fn backup(&self, to: PathBuf) -> Reply<'_, Value> {
        Box::pin(async move { self.0.post(&api("store/backup"), &json!({ "to": to })).await })
    }
    fn store_info(&self) -> Reply<'_, Value> {
        Box::pin(async move { self.0.get(&api("store")).await })
    }
    fn health(&self) -> Reply<'_, EngineHealth> {
        Box::pin(async move { self.0.read(self.worker_facts().await?["health"].to_string().as_bytes()) })
    }
    fn worker_state(&self) -> Reply<'_, WorkerState> {
        Box::pin(async move { self.0.get(&api("queues")).await })
    }
    /// Of which namespaces, the token says.
    fn queue_shares(&self, queue: TaskQueue, _: Option<BTreeSet<Namespace>>) -> Reply<'_, Vec<WaitingShare>> {
        Box::pin(async move { self.0.get(&format!("{}/{}", api("queues"), segment(queue.as_str())?)).await })
    }
}
