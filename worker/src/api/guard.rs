//! The guard in front of every route: who may ask, from where, and how much.
//!
//! Invariant: the checks run before any handler and before any body is read, in this order: Host (DNS rebinding), Origin
//! and Sec-Fetch-Site (other web pages), token, content type (forms cannot send JSON), body. No CORS header is ever
//! sent. The API takes tokens alone, and never a cookie; pages take the cookie of a session alone, and forms alone, so that
//! nothing that a browser sends by itself reaches the API. Connection limits (headers, time, number) are the server's (`serve`).
//!
//! Long: what every request passes stands in one place, in its order.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bosun_engine::Timestamp;
use bosun_engine::seeded::{self, Bug};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::caller::Caller;
use super::drain::drain;
use super::handlers::Api;
use super::problem::Problem;
use super::routes::{CODE_PATH, DECIDE_PATH, FORK_PATH, OPEN_PATHS, SIGN_IN_PATH, is_asset, is_page};
use super::serve::ServerLimits;
use super::session::{Session, Sessions};
use super::stream::while_open;
use super::tokens::Tokens;
use crate::backend::Backend;

/// The time by which tokens, sessions and links end: the worker's, which never goes back. What has expired stays so, also
/// when the clock of the machine is set back.
#[derive(Clone)]
pub struct WorkerTime(Arc<dyn Backend>);

impl WorkerTime {
    pub fn of(api: &Api) -> WorkerTime {
        WorkerTime(api.backend.clone())
    }
    pub fn now(&self) -> Timestamp {
        self.0.now()
    }
}

impl fmt::Debug for WorkerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerTime({})", self.now())
    }
}

/// What a request must satisfy.
#[derive(Debug, Clone)]
pub struct Guard {
    tokens: Arc<Tokens>,
    time: WorkerTime,
    sessions: Arc<Sessions>,
    /// Host names, lower case; without a port, or with the one that they must be named with.
    hosts: Arc<[String]>,
    /// The port that is bound: the one that a Host may name beside a bare name.
    port: u16,
    body_max: usize,
    history_body_max: usize,
    body_timeout: Duration,
    /// Places for bodies above `body_max`, so that memory stays bounded.
    large: Arc<Semaphore>,
}

impl Guard {
    /// `bound` and loopback are allowed as hosts, and the names given.
    pub fn new(
        tokens: Arc<Tokens>,
        time: WorkerTime,
        bound: SocketAddr,
        names: &[String],
        limits: &ServerLimits,
    ) -> Self {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        if !bound.ip().is_unspecified() {
            hosts.push(match bound.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            });
        }
        hosts.extend(names.iter().map(|name| name.to_ascii_lowercase()));
        Guard {
            tokens,
            time,
            sessions: Arc::new(Sessions::begin()),
            hosts: hosts.into(),
            port: bound.port(),
            body_max: limits.body,
            history_body_max: limits.history_body.max(limits.body),
            body_timeout: limits.body_timeout,
            large: Arc::new(Semaphore::new(limits.history_bodies)),
        }
    }

    fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<RequestSource, Problem> {
        let host = self.host(uri, headers)?;
        let page = is_page(uri.path());
        // Somebody follows a link to a page: that shows it and does nothing.
        let visit = page && *method == Method::GET && is_visit(headers);
        origin(headers, host, visit)?;
        let passed = match uri.path() {
            path if OPEN_PATHS.contains(&path) => RequestSource::Anybody { proof: self.proof(headers, host) },
            SIGN_IN_PATH => RequestSource::SignIn,
            DECIDE_PATH => RequestSource::ByLink,
            path if is_asset(path) => RequestSource::Anybody { proof: None },
            _ if page => self.session(headers).map_or(RequestSource::Stranger, RequestSource::SignedIn),
            _ => RequestSource::Known(self.authorize(headers)?),
        };
        if matches!(*method, Method::POST | Method::PUT | Method::PATCH) && has_body(headers) {
            match page {
                true => content_type(headers, "application/x-www-form-urlencoded", "pages take forms")?,
                false => json_only(headers)?,
            }
        }
        Ok(passed)
    }

    fn session(&self, headers: &HeaderMap) -> Option<Session> {
        let name = session_cookie(self.port);
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let (_, cookie) = pairs.find(|(given, _)| *given == name)?;
        self.sessions.session(&self.tokens, cookie, self.time.now())
    }

    /// Who is about to send a token may ask first whether we know it. The answer is for the address that they see.
    fn proof(&self, headers: &HeaderMap, host: &str) -> Option<HeaderValue> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let challenge = text(CHALLENGE_HEADER).filter(|text| (32..=128).contains(&text.len()))?;
        let proof = self.tokens.proof(text(TOKEN_ID_HEADER).unwrap_or_default(), challenge, host);
        HeaderValue::from_str(&proof).ok()
    }

    fn host<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
        let forbidden = |why: &str| Problem::new(StatusCode::FORBIDDEN, HOST_NOT_ALLOWED, why);
        let mut given = headers.get_all(header::HOST).iter();
        let host = match (given.next(), given.next()) {
            (Some(host), None) => host.to_str().map_err(|_| forbidden("the Host header is not ASCII"))?,
            (None, _) => return Err(forbidden("there is no Host header")),
            (Some(_), Some(_)) => return Err(forbidden("there is more than one Host header")),
        };
        // A request line with a whole URL must name the same host.
        if uri.authority().is_some_and(|authority| authority.as_str() != host) {
            return Err(forbidden("the Host header and the request line differ"));
        }
        let (name, port) = parts_of(host).ok_or_else(|| forbidden("the Host header is malformed"))?;
        let (name, whole) = (name.to_ascii_lowercase(), host.to_ascii_lowercase());
        let ours = self.hosts.contains(&name) && port.is_none_or(|port| port == self.port);
        if !ours && !self.hosts.contains(&whole) && !seeded::on(Bug::HostNotChecked) {
            return Err(forbidden("this Host is not allowed; start the worker with --allow-host to allow it"));
        }
        Ok(host)
    }

    /// One answer to whatever is wrong: nobody learns whether a token was ever one.
    fn authorize(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        bearer(headers).and_then(|token| self.tokens.caller(token, self.time.now())).ok_or_else(|| {
            let message = "send a token of the data directory that is valid as `Authorization: Bearer …`";
            Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
        })
    }

    /// Asks again, later, whether who sent these headers may still look.
    fn still_opens(&self, uri: &Uri, headers: &HeaderMap) -> impl Fn() -> bool + Send + 'static + use<> {
        let (guard, page) = (self.clone(), is_page(uri.path()));
        let shown = [header::AUTHORIZATION, header::COOKIE].map(|name| (name.clone(), headers.get_all(name)));
        let shown =
            shown.into_iter().flat_map(|(name, values)| values.iter().map(move |it| (name.clone(), it.clone())));
        let shown: HeaderMap = shown.collect();
        move || if page { guard.session(&shown).is_some() } else { guard.authorize(&shown).is_ok() }
    }

    /// The whole body, within the limits, and the place that it holds if it is a large one.
    async fn body(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Body, Option<OwnedSemaphorePermit>), Problem> {
        let max = if uri.path() == FORK_PATH { self.history_body_max } else { self.body_max };
        let too_large = || {
            let message = format!("the body is larger than {max} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
        };
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > max) {
            drain(body, self.body_timeout).await;
            return Err(too_large());
        }
        // A body of unknown length may become as large as is allowed.
        let place = match length.unwrap_or(max) > self.body_max {
            true => Some(self.large.clone().try_acquire_owned().map_err(|_| busy())?),
            false => None,
        };
        match tokio::time::timeout(self.body_timeout, to_bytes(body, max)).await {
            Ok(Ok(bytes)) => Ok((Body::from(bytes), place)),
            // Without a length the limit is the only thing that stops a complete, well-formed body.
            Ok(Err(_)) if length.is_none() => Err(too_large()),
            Ok(Err(why)) => Err(Problem::bad_request(format!("the body broke off: {why}"))),
            Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body came too slowly")),
        }
    }
}

fn busy() -> Problem {
    let message = "other large requests are being read; try again in a second";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
}

/// The token of a request that shows one, and one alone.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let value = given.next().filter(|_| given.next().is_none());
    let (scheme, token) = value?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Who a request comes from.
enum RequestSource {
    /// To an open path; with the proof that was asked for.
    Anybody {
        proof: Option<HeaderValue>,
    },
    Known(Caller),
    /// To a page.
    SignedIn(Session),
    /// To a page, without a session that holds.
    Stranger,
    /// To the one page that makes sessions.
    SignIn,
    /// To the one page that asks for a signed link, and for nothing else.
    ByLink,
}

/// What signing in and out needs.
#[derive(Debug, Clone)]
pub struct SignIn {
    pub tokens: Arc<Tokens>,
    pub sessions: Arc<Sessions>,
    pub time: WorkerTime,
    /// The name of the cookie.
    pub cookie: String,
}

/// For whoever shows a token: as themselves. The guard has checked the token.
pub async fn sign_in_code(Extension(at): Extension<SignIn>, headers: HeaderMap) -> Result<Json<Value>, Problem> {
    let code = at.sessions.code(&at.tokens, bearer(&headers).unwrap_or_default(), at.time.now());
    let code = code.ok_or_else(|| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_code", "no code could be made"))?;
    Ok(Json(json!({ "code": code })))
}

/// Browsers send cookies to all ports of a host: each worker's has a name of its own.
fn session_cookie(port: u16) -> String {
    format!("bosun_session_{port}")
}

/// Asked beside the open path: a random text, and which token is meant.
pub const CHALLENGE_HEADER: &str = "bosun-challenge";
pub const TOKEN_ID_HEADER: &str = "bosun-token-id";
/// The code of who calls the worker by a name that its owner has not allowed.
pub const HOST_NOT_ALLOWED: &str = "host_not_allowed";
/// And answered.
pub const PROOF_HEADER: &str = "bosun-proof";

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The host and its port; `None` when it is malformed.
fn parts_of(host: &str) -> Option<(&str, Option<u16>)> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']')?;
            let (name, after) = host.split_at(end + 2);
            (name, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return None;
    }
    let digits = |port: &&str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port {
        None => Some((name, None)),
        Some(port) => Some((name, Some(Some(port).filter(digits)?.parse().ok()?))),
    }
}

/// A person goes to a page from a link, in a window of its own: nothing of another site sees or frames it.
fn is_visit(headers: &HeaderMap) -> bool {
    let says = |name: &str, what: &str| headers.get(name).is_some_and(|value| value.as_bytes() == what.as_bytes());
    says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document")
}

/// Only pages of this very server may ask; other programs send no Origin.
fn origin(headers: &HeaderMap, host: &str, visit: bool) -> Result<(), Problem> {
    let forbidden = |why: &str| Err(Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", why));
    for origin in headers.get_all(header::ORIGIN) {
        let text = origin.to_str().ok();
        let after = |scheme: &str| text.and_then(|text| text.strip_prefix(scheme)).is_some_and(|origin| origin == host);
        // `https` where somebody stands before us who speaks it, which is under a name that was allowed.
        let same = after("http://") || after("https://") && !is_loopback(host);
        if !same {
            return forbidden("requests from other origins are refused");
        }
    }
    for site in headers.get_all("sec-fetch-site") {
        if !visit && !matches!(site.as_bytes(), b"same-origin" | b"none") {
            return forbidden("requests from other sites are refused");
        }
    }
    Ok(())
}

fn is_loopback(host: &str) -> bool {
    let name = parts_of(host).map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || name == "[::1]" || name.starts_with("127.")
}

/// Whether a body comes, or anything is said of one.
fn has_body(headers: &HeaderMap) -> bool {
    let empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length.as_bytes() == b"0");
    !empty || headers.contains_key(header::TRANSFER_ENCODING) || headers.contains_key(header::CONTENT_TYPE)
}

/// `curl -d` calls every body a form: with a token in a header of its own it cannot come from one. Its body is read as JSON
/// all the same.
fn json_only(headers: &HeaderMap) -> Result<(), Problem> {
    if bearer(headers).is_some() && content_type(headers, "application/x-www-form-urlencoded", "").is_ok() {
        return Ok(());
    }
    content_type(headers, "application/json", "send JSON with `Content-Type: application/json` (curl: `--json`)")
}

fn content_type(headers: &HeaderMap, wanted: &str, message: &str) -> Result<(), Problem> {
    let mut given = headers.get_all(header::CONTENT_TYPE).iter();
    let essence = match (given.next(), given.next()) {
        (Some(value), None) => value.to_str().ok().map(|text| text.split(';').next().unwrap_or("").trim()),
        _ => None,
    };
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case(wanted)) {
        return Ok(());
    }
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message))
}

/// The guard as a layer over all routes, the missing ones included.
pub async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let page = is_page(request.uri().path());
    let mut answer = guarded(&guard, request, next).await;
    let set = answer.headers_mut();
    set.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if page {
        for (name, value) in PAGE_HEADERS {
            set.insert(name, HeaderValue::from_static(value));
        }
    }
    answer
}

/// What keeps pages to themselves: nothing foreign runs in them, frames them, or learns where somebody was.
const PAGE_HEADERS: [(header::HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    // `no-referrer` would take the Origin from forms, too.
    (header::REFERRER_POLICY, "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

async fn guarded(guard: &Guard, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let (mut proof, mut asks) = (None, false);
    match guard.check(&parts.method, &parts.uri, &parts.headers) {
        Err(problem) => return problem.into_response(),
        Ok(RequestSource::Anybody { proof: asked }) => proof = asked,
        Ok(RequestSource::Known(caller)) => {
            asks = true;
            parts.extensions.insert(caller);
        }
        Ok(RequestSource::SignedIn(session)) => {
            asks = true;
            parts.extensions.insert(session.caller.clone());
            parts.extensions.insert(session);
        }
        Ok(RequestSource::SignIn | RequestSource::ByLink) => {}
        Ok(RequestSource::Stranger) => return to_sign_in(&parts.method, &parts.uri),
    }
    if is_page(parts.uri.path()) || parts.uri.path() == CODE_PATH {
        let (tokens, sessions, time) = (guard.tokens.clone(), guard.sessions.clone(), guard.time.clone());
        parts.extensions.insert(SignIn { tokens, sessions, time, cookie: session_cookie(guard.port) });
    }
    let still = asks.then(|| guard.still_opens(&parts.uri, &parts.headers));
    // A form may itself be what ends a session: its answer says so.
    let is_form = is_page(parts.uri.path()) && parts.method != Method::GET;
    match guard.body(&parts.uri, &parts.headers, body).await {
        Ok((body, place)) => {
            let mut answer = next.run(Request::from_parts(parts, body)).await;
            if let Some(still) = still {
                // The request may have waited: the token may have been taken away meanwhile.
                answer = if is_form || still() { answer.map(|body| while_open(body, still)) } else { closed() };
            }
            drop(place);
            if let Some(proof) = proof {
                answer.headers_mut().insert(PROOF_HEADER, proof);
            }
            answer
        }
        Err(problem) => problem.into_response(),
    }
}

/// What a token has asked that opens nothing any more.
fn closed() -> Response {
    let message = "the token opened nothing any more when the answer was there";
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message).into_response()
}

/// Whoever looks is asked who they are, and comes back to where they wanted to go; a form is not sent twice.
fn to_sign_in(method: &Method, uri: &Uri) -> Response {
    let wanted = if *method == Method::GET { uri.path_and_query().map_or("/", |path| path.as_str()) } else { "/" };
    let encoded: String = wanted.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
        text
    });
    let place = HeaderValue::from_str(&format!("{SIGN_IN_PATH}?next={encoded}"));
    let place = place.unwrap_or(HeaderValue::from_static(SIGN_IN_PATH));
    let mut answer = StatusCode::SEE_OTHER.into_response();
    answer.headers_mut().insert(header::LOCATION, place);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_with_its_port() {
        for (host, name) in [
            ("localhost", Some(("localhost", None))),
            ("127.0.0.1:80", Some(("127.0.0.1", Some(80)))),
            ("[::1]:8233", Some(("[::1]", Some(8233)))),
            ("[::1]", Some(("[::1]", None))),
            ("localhost:65536", None),
            ("localhost:+80", None),
            ("[::1", None),
            ("[::1]x", None),
            ("localhost:", None),
            ("localhost:80:90", None),
            ("localhost:8o", None),
            ("", None),
            (":80", None),
        ] {
            assert_eq!(parts_of(host), name, "{host:?}");
        }
    }
}
