//! From the activity's input to the requests that are sent: method, headers with secrets, body, redirects.
//!
//! Invariant: a secret is read from the environment or a file when it is needed, is marked sensitive, and is cut out of
//! everything that comes back ([`Scrubber`]). Another origin gets none of the headers that may be credentials.

use std::collections::BTreeMap;

use bosun_engine::Failure;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};

use super::*;
use crate::capability::environment;
use crate::capability::file::lies_in;
use crate::capability::scrub::Scrubber;

/// One request to send, and what may become of it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Vec<u8>>,
    /// Cuts out what nobody may see again, in case the server echoes what it was sent.
    pub(super) secrets: Scrubber,
}

/// A very short value would cut holes into every text and is no secret.
const SECRET_LEN_MIN: usize = 4;

pub(super) fn refused(message: impl Into<String>) -> Failure {
    Failure::application(HTTP_REQUEST, message).non_retryable()
}

/// Headers that another origin may see.
const HARMLESS: [&str; 5] = ["accept", "accept-language", "content-type", "user-agent", "idempotency-key"];

impl Prepared {
    pub(super) fn new(config: &HttpConfig, input: &HttpInput, idempotency_key: &str) -> Result<Prepared, Failure> {
        let method = Method::from_bytes(input.method.to_ascii_uppercase().as_bytes())
            .map_err(|_| refused(format!("{:?} is no HTTP method", input.method)))?;
        let url = Url::parse(&input.url).map_err(|why| refused(format!("the URL cannot be read: {why}")))?;
        let mut secrets = Scrubber::default();
        let mut headers = header_map(config, &input.headers, &mut secrets)?;
        let body = match (&input.body, &input.json) {
            (Some(_), Some(_)) => return Err(refused("either body or json, not both")),
            (Some(body), None) => Some(body.clone().into_bytes()),
            (None, Some(json)) => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                Some(json.to_string().into_bytes())
            }
            (None, None) => None,
        };
        if input.idempotency_key {
            let value = HeaderValue::from_str(idempotency_key).map_err(|why| refused(why.to_string()))?;
            headers.entry("idempotency-key").or_insert(value);
        }
        Ok(Prepared { method, url, headers, body, secrets })
    }

    /// Refuses a target before anything is sent, at the first hop and at every later one.
    pub(super) fn check_target(&self, config: &HttpConfig) -> Result<(), Failure> {
        if !matches!(self.url.scheme(), "http" | "https") {
            return Err(refused(format!("the scheme {}: is not http or https", self.url.scheme())));
        }
        if !self.url.username().is_empty() || self.url.password().is_some() {
            let why = "the URL has a user or password, which would be kept in history; use a header with {env: NAME}";
            return Err(refused(why));
        }
        let host = self.url.host_str().ok_or_else(|| refused("the URL has no host"))?;
        config
            .check_literal(host)
            .map_err(|why| Failure::application(HTTP_REFUSED_ADDRESS, why.to_string()).non_retryable())
    }

    /// Turns to where the answer points, as browsers do: 303, and 301 or 302 of a POST, become a GET.
    pub(super) fn follow(&mut self, status: StatusCode, location: &str) -> Result<(), Failure> {
        let next = self.url.join(location).map_err(|why| refused(format!("cannot follow the redirect: {why}")))?;
        if next.origin() != self.url.origin() {
            let doomed: Vec<HeaderName> =
                self.headers.keys().filter(|name| !HARMLESS.contains(&name.as_str())).cloned().collect();
            doomed.iter().for_each(|name| drop(self.headers.remove(name)));
        }
        let becomes_get = match status.as_u16() {
            303 => self.method != Method::HEAD,
            301 | 302 => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body = None;
            self.headers.remove(CONTENT_TYPE);
        }
        self.url = next;
        Ok(())
    }

    /// Where it goes, for messages: no query, which may hold secrets.
    pub(super) fn target(&self) -> String {
        shown(&self.url)
    }
}

/// A URL without user, password, query and fragment.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // These fail for URLs without a host, which have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

fn header_map(
    config: &HttpConfig,
    texts: &BTreeMap<String, HeaderText>,
    secrets: &mut Scrubber,
) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, text) in texts {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| refused(format!("{name:?} cannot be the name of a header")))?;
        let (value, secret) = match text {
            HeaderText::Text(text) => (text.clone(), false),
            HeaderText::Env(from) => (format!("{}{}", from.prefix, from_env(config, &from.env, secrets)?), true),
            HeaderText::File(from) => (format!("{}{}", from.prefix, from_file(config, from, secrets)?), true),
        };
        // The value is not shown: it may be a secret.
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| refused(format!("the value of the header {name} has characters that no header may have")))?;
        value.set_sensitive(secret);
        headers.insert(header, value);
    }
    Ok(headers)
}

fn from_env(config: &HttpConfig, name: &str, secrets: &mut Scrubber) -> Result<String, Failure> {
    if config.secret_env.as_ref().is_some_and(|allowed| !allowed.iter().any(|allowed| allowed == name)) {
        return Err(refused(format!("headers may not be taken from the environment variable {name}")));
    }
    let secret = environment::var(name);
    let secret = secret.ok_or_else(|| refused(format!("the environment variable {name} is not set")))?;
    environment::note_secret(&secret);
    secrets.add(&secret, SECRET_LEN_MIN);
    Ok(secret)
}

fn from_file(config: &HttpConfig, from: &FromFile, secrets: &mut Scrubber) -> Result<String, Failure> {
    let path = from.file.display();
    let unreadable = |why: std::io::Error| refused(format!("the file {path} for a header cannot be read: {why}"));
    let file = from.file.canonicalize().map_err(unreadable)?;
    // The file is where it really lies, so the directory is, too.
    let within = |dir: &PathBuf| file.starts_with(dir.canonicalize().unwrap_or_else(|_| dir.clone()));
    if config.secret_dirs.as_ref().is_some_and(|dirs| !dirs.iter().any(within)) {
        return Err(refused(format!("headers may not be taken from the file {path}")));
    }
    if lies_in(&file, config.own.as_deref()) {
        return Err(refused(format!("headers are not taken from {path}: it lies in the worker's data directory")));
    }
    let secret = std::fs::read_to_string(file).map_err(unreadable)?.trim().to_owned();
    secrets.add(&secret, SECRET_LEN_MIN);
    Ok(secret)
}
