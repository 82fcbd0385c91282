//! The guard in front of every route: who may ask, from where, and how much.
//!
//! Invariant: the checks run before any handler and before any body is read, in this order: Host (DNS rebinding), Origin
//! and Sec-Fetch-Site (other web pages), token, content type (forms cannot send JSON), body. No CORS header is ever
//! sent. Connection limits (headers, time, number) are the server's (`serve`).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bosun_engine::Timestamp;
use bosun_engine::seeded::{self, Bug};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::caller::Caller;
use super::problem::Problem;
use super::routes::{FORK_PATH, OPEN_PATH};
use super::serve::ServerLimits;
use super::tokens::Tokens;

/// What a request must satisfy.
#[derive(Debug, Clone)]
pub struct Guard {
    tokens: Arc<Tokens>,
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
    pub fn new(tokens: Arc<Tokens>, bound: SocketAddr, names: &[String], limits: &ServerLimits) -> Self {
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
        origin(headers, host)?;
        let passed = match uri.path() {
            OPEN_PATH => RequestSource::Anybody { proof: self.proof(headers, host) },
            _ => RequestSource::Known(self.authorize(headers)?),
        };
        if matches!(*method, Method::POST | Method::PUT | Method::PATCH) && has_body(headers) {
            json_only(headers)?;
        }
        Ok(passed)
    }

    /// Who is about to send a token may ask first whether we know it. The answer is for the address that they see.
    fn proof(&self, headers: &HeaderMap, host: &str) -> Option<HeaderValue> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let challenge = text(CHALLENGE_HEADER).filter(|text| (32..=128).contains(&text.len()))?;
        let proof = self.tokens.proof(text(TOKEN_ID_HEADER).unwrap_or_default(), challenge, host);
        HeaderValue::from_str(&proof).ok()
    }

    fn host<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
        let forbidden = |why: &str| Problem::new(StatusCode::FORBIDDEN, "host_not_allowed", why);
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
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let value = given.next().filter(|_| given.next().is_none());
        let token = value.and_then(|value| value.to_str().ok()).and_then(|text| text.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        token.and_then(|(_, token)| self.tokens.caller(token, now())).ok_or_else(|| {
            let message = "send a token of the data directory that is valid as `Authorization: Bearer …`";
            Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
        })
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

/// Who a request comes from.
enum RequestSource {
    /// To the open path; with the proof that was asked for.
    Anybody {
        proof: Option<HeaderValue>,
    },
    Known(Caller),
}

/// Asked beside the open path: a random text, and which token is meant.
pub const CHALLENGE_HEADER: &str = "bosun-challenge";
pub const TOKEN_ID_HEADER: &str = "bosun-token-id";
/// And answered.
pub const PROOF_HEADER: &str = "bosun-proof";

fn now() -> Timestamp {
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

/// Only pages of this very server may ask; other programs send no Origin.
fn origin(headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    let forbidden = |why: &str| Err(Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", why));
    for origin in headers.get_all(header::ORIGIN) {
        let same = origin.to_str().ok().and_then(|text| text.strip_prefix("http://")).is_some_and(|o| o == host);
        if !same {
            return forbidden("requests from other origins are refused");
        }
    }
    for site in headers.get_all("sec-fetch-site") {
        if !matches!(site.as_bytes(), b"same-origin" | b"none") {
            return forbidden("requests from other sites are refused");
        }
    }
    Ok(())
}

/// Whether a body comes, or anything is said of one.
fn has_body(headers: &HeaderMap) -> bool {
    let empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length.as_bytes() == b"0");
    !empty || headers.contains_key(header::TRANSFER_ENCODING) || headers.contains_key(header::CONTENT_TYPE)
}

fn json_only(headers: &HeaderMap) -> Result<(), Problem> {
    let mut given = headers.get_all(header::CONTENT_TYPE).iter();
    let essence = match (given.next(), given.next()) {
        (Some(value), None) => value.to_str().ok().map(|text| text.split(';').next().unwrap_or("").trim()),
        _ => None,
    };
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let message = "send JSON with `Content-Type: application/json`";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message))
}

/// The guard as a layer over all routes, the missing ones included.
pub async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let proof = match guard.check(&parts.method, &parts.uri, &parts.headers) {
        Err(problem) => return problem.into_response(),
        Ok(RequestSource::Anybody { proof }) => proof,
        Ok(RequestSource::Known(caller)) => {
            parts.extensions.insert(caller);
            None
        }
    };
    match guard.body(&parts.uri, &parts.headers, body).await {
        Ok((body, place)) => {
            let mut answer = next.run(Request::from_parts(parts, body)).await;
            drop(place);
            if let Some(proof) = proof {
                answer.headers_mut().insert(PROOF_HEADER, proof);
            }
            answer
        }
        Err(problem) => problem.into_response(),
    }
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
