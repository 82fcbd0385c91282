//! Whoever receives webhooks: notes what comes, verifies it by itself, and now and then is not able to.
//!
//! Invariant: the signature is checked by another implementation than the one that makes it (`hmac` and `sha2`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::SECRET;

/// One request that was answered with 200, or would have been.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) id: String,
    pub(super) body: Value,
    pub(super) signed: bool,
    pub(super) headers: BTreeMap<String, String>,
    /// The bytes of the body.
    pub(super) raw: Vec<u8>,
}

/// Listens until the test ends.
pub(super) struct Receiver {
    pub(super) address: String,
    received: Arc<Mutex<Vec<Received>>>,
    refused: Arc<AtomicU32>,
}

impl Receiver {
    /// Refuses one request of so many with 503, and hangs up on another; 0: takes all.
    pub(super) fn start(fails_of: u32) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (received, refused) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(0)));
        let (noted, counted) = (received.clone(), refused.clone());
        std::thread::spawn(move || {
            for (nth, stream) in (1_u32..).zip(listener.incoming().flatten()) {
                let (noted, counted) = (noted.clone(), counted.clone());
                std::thread::spawn(move || {
                    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
                    // A worker that was killed in the middle has told nothing.
                    let Some(request) = read(&stream) else { return };
                    let mut stream = stream;
                    match nth % fails_of.max(1) {
                        1 if fails_of > 0 => {
                            counted.fetch_add(1, Ordering::Relaxed);
                            let _ =
                                stream.write_all(b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
                        }
                        // Taken, and nobody hears of it: it comes again.
                        2 if fails_of > 0 => noted.lock().unwrap().push(request),
                        _ => {
                            noted.lock().unwrap().push(request);
                            let _ =
                                stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
                        }
                    }
                });
            }
        });
        Receiver { address, received, refused }
    }

    pub(super) fn all(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
    pub(super) fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }
    /// The ids of each run's notifications of a kind, and how many requests there were.
    pub(super) fn ids(&self, kind: &str, key: &str) -> BTreeMap<String, (BTreeSet<String>, usize)> {
        let mut found: BTreeMap<String, (BTreeSet<String>, usize)> = BTreeMap::new();
        for one in self.all().into_iter().filter(|one| one.body["kind"] == kind) {
            let entry = found.entry(one.body[key].as_str().unwrap_or_default().to_owned()).or_default();
            entry.0.insert(one.id);
            entry.1 += 1;
        }
        found
    }
}

/// One request a connection; the worker opens another one for the next.
fn read(stream: &TcpStream) -> Option<Received> {
    let mut from = BufReader::new(stream);
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    loop {
        line.clear();
        from.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    from.read_exact(&mut body).ok()?;
    let id = headers.get("webhook-id").cloned().unwrap_or_default();
    let signed = is_signed(&headers, &body).is_some();
    let told = serde_json::from_slice(&body).unwrap_or_default();
    Some(Received { id, signed, body: told, headers, raw: body })
}

/// Whether it comes from who knows the secret, now.
fn is_signed(headers: &BTreeMap<String, String>, body: &[u8]) -> Option<()> {
    let (id, at) = (headers.get("webhook-id")?, headers.get("webhook-timestamp")?);
    let age = UNIX_EPOCH.elapsed().ok()?.as_secs().abs_diff(at.parse().ok()?);
    let key = STANDARD.decode(SECRET.strip_prefix("whsec_")?).ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    mac.update(format!("{id}.{at}.").as_bytes());
    mac.update(body);
    let given = STANDARD.decode(headers.get("webhook-signature")?.strip_prefix("v1,")?).ok()?;
    mac.verify_slice(&given).ok()?;
    (age < 300).then_some(())
}
