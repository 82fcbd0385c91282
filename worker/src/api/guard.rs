//! The guard in front of every route: who may ask, from where, and how much.
//!
//! Invariant: the checks run before any handler and before any body is read, in this order: Host (DNS rebinding), Origin
//! and Sec-Fetch-Site (other web pages), token, content type (forms cannot send JSON), body. No CORS header is ever
//! sent. Connection limits (headers, time, number) are the server's (`serve`).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bosun_engine::seeded::{self, Bug};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;
use super::routes::{FORK_PATH, OPEN_PATH};
use super::serve::Limits;
use super::token::Token;

/// What a request must satisfy.
#[derive(Debug, Clone)]
pub struct Guard {
    token: Token,
    /// Host names without a port, lower case.
    hosts: Arc<[String]>,
    body_max: usize,
    history_body_max: usize,
    body_timeout: Duration,
    /// Places for bodies above `body_max`, so that memory stays bounded.
    large: Arc<Semaphore>,
}

impl Guard {
    /// `bound` and loopback are allowed as hosts, and the names given.
    pub fn new(token: Token, bound: SocketAddr, names: &[String], limits: &Limits) -> Self {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        if !bound.ip().is_unspecified() {
            hosts.push(match bound.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            });
        }
        hosts.extend(names.iter().map(|name| name.to_ascii_lowercase()));
        Guard {
            token,
            hosts: hosts.into(),
            body_max: limits.body,
            history_body_max: limits.history_body.max(limits.body),
            body_timeout: limits.body_timeout,
            large: Arc::new(Semaphore::new(limits.history_bodies)),
        }
    }

    fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let host = self.host(uri, headers)?;
        origin(headers, host)?;
        if uri.path() != OPEN_PATH {
            self.authorize(headers)?;
        }
        if matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
            json_only(headers)?;
        }
        Ok(())
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
        let name = name_of(host).ok_or_else(|| forbidden("the Host header is malformed"))?.to_ascii_lowercase();
        if !self.hosts.contains(&name) && !seeded::on(Bug::HostNotChecked) {
            return Err(forbidden("this Host is not allowed; start the worker with --allow-host to allow it"));
        }
        Ok(host)
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let refused = |why: &str| Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", why));
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return refused("send the token of the data directory as `Authorization: Bearer …`");
        };
        let token = value.to_str().ok().and_then(|text| text.split_once(' '));
        match token {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && self.token.matches(token) => Ok(()),
            _ => refused("the token is wrong"),
        }
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

/// The host without its port; `None` when it is malformed.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']')?;
            let (name, after) = host.split_at(end + 2);
            (name, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let port_fits = port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    (!name.is_empty() && port_fits).then_some(name)
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
    let (parts, body) = request.into_parts();
    if let Err(problem) = guard.check(&parts.method, &parts.uri, &parts.headers) {
        return problem.into_response();
    }
    match guard.body(&parts.uri, &parts.headers, body).await {
        Ok((body, place)) => {
            let answer = next.run(Request::from_parts(parts, body)).await;
            drop(place);
            answer
        }
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_without_its_port() {
        for (host, name) in [
            ("localhost", Some("localhost")),
            ("127.0.0.1:80", Some("127.0.0.1")),
            ("[::1]:8233", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("[::1", None),
            ("[::1]x", None),
            ("localhost:", None),
            ("localhost:80:90", None),
            ("localhost:8o", None),
            ("", None),
            (":80", None),
        ] {
            assert_eq!(name_of(host), name, "{host:?}");
        }
    }
}
