//! A browser that is signed in: the cookie that stands for a token, the code that signs in without pasting one, and the
//! word that every form carries.
//!
//! Invariant: neither holds a token or anything that a token could be made from. Each is a text with a seal that only the
//! worker can make, over the id of the token and the moment at which it ends: the key of the seal is made of the owner's token
//! and of the verifier of the one that is meant, so that a copy of the file of verifiers opens no page. A session lives through
//! a restart of the worker, and dies with its token, or with the owner's. The seals of sessions, forms, sign-in codes and proofs are of
//! different kinds: none can be used as another. A sign-in code opens once, at the worker that made it.
//! What a session may do is the token's affair.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bosun_engine::Timestamp;

use super::caller::Caller;
use super::token::{Token, random_hex};
use super::tokens::Tokens;

/// So long a browser stays signed in.
const SESSION: Duration = Duration::from_secs(24 * 3_600);
/// So long a sign-in code may wait to be used.
pub const SIGN_IN_CODE: Duration = Duration::from_secs(120);

const OF_SESSION: &str = "session";
const OF_FORM: &str = "form";
const OF_CODE: &str = "sign-in";

/// Somebody who is signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub caller: Caller,
    /// What every form of this session carries, and no page of another site can know.
    pub form_seal: String,
}

/// A text with its seal, taken apart.
struct Sealed<'a> {
    token_id: &'a str,
    ends_at: Timestamp,
    text: &'a str,
    seal: &'a str,
}

impl<'a> Sealed<'a> {
    fn read(whole: &'a str) -> Option<Sealed<'a>> {
        let (text, seal) = whole.rsplit_once('.')?;
        let mut parts = text.split('.');
        let (token_id, ends_at, nonce) = (parts.next()?, parts.next()?, parts.next()?);
        let ends_at = Timestamp(ends_at.parse().ok()?);
        (parts.next().is_none() && !nonce.is_empty()).then_some(Sealed { token_id, ends_at, text, seal })
    }

    /// Whose token sealed it, if it is of this kind and has not ended.
    fn open(&self, tokens: &Tokens, kind: &str, now: Timestamp) -> Option<Caller> {
        let (key, caller) = tokens.sealing_key(self.token_id, now)?;
        (now < self.ends_at && key.has_sealed(self.seal, kind, self.text)).then_some(caller)
    }
}

fn text_of(token_id: &str, now: Timestamp, holds: Duration) -> std::io::Result<String> {
    let ends_at = now.0.saturating_add(i64::try_from(holds.as_micros()).unwrap_or(i64::MAX));
    Ok(format!("{token_id}.{ends_at}.{}", random_hex(16)?))
}

/// A text of a kind, sealed; nothing for a token that opens nothing.
fn sealed(tokens: &Tokens, kind: &str, token_id: &str, now: Timestamp, holds: Duration) -> Option<String> {
    let (key, _) = tokens.sealing_key(token_id, now)?;
    let text = text_of(token_id, now, holds).ok()?;
    let seal = key.seal(kind, &text);
    Some(format!("{text}.{seal}"))
}

/// The sessions of a worker: which codes were used, and nothing else.
#[derive(Debug)]
pub struct Sessions {
    used: Mutex<BTreeMap<String, Timestamp>>,
    /// The kind of seal of its codes. Those of an earlier worker open nothing, whatever the clock says: nobody knows any more
    /// which of them were used.
    of_code: String,
}

impl Sessions {
    pub fn begin() -> Sessions {
        // Without random numbers no code is made either.
        let worker = random_hex(16).unwrap_or_default();
        Sessions { used: Mutex::default(), of_code: format!("{OF_CODE} {worker}") }
    }

    /// The cookie for whoever shows a token; `None` if it opens nothing.
    pub fn by_token(&self, tokens: &Tokens, token: &str, now: Timestamp) -> Option<String> {
        tokens.caller(token, now)?;
        sealed(tokens, OF_SESSION, &Token::of(token).id(), now, SESSION)
    }

    /// A code by which a browser signs in as whoever shows a token, once and soon.
    pub fn code(&self, tokens: &Tokens, token: &str, now: Timestamp) -> Option<String> {
        tokens.caller(token, now)?;
        sealed(tokens, &self.of_code, &Token::of(token).id(), now, SIGN_IN_CODE)
    }

    /// The cookie for a sign-in code, which opens nothing from then on.
    pub fn by_code(&self, tokens: &Tokens, code: &str, now: Timestamp) -> Option<String> {
        let read = Sealed::read(code)?;
        read.open(tokens, &self.of_code, now)?;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, ends_at| now < *ends_at);
        if used.insert(read.text.to_owned(), read.ends_at).is_some() {
            return None;
        }
        sealed(tokens, OF_SESSION, read.token_id, now, SESSION)
    }

    /// Who is signed in with this cookie.
    pub fn session(&self, tokens: &Tokens, cookie: &str, now: Timestamp) -> Option<Session> {
        let sealed = Sealed::read(cookie)?;
        let caller = sealed.open(tokens, OF_SESSION, now)?;
        let (key, _) = tokens.sealing_key(sealed.token_id, now)?;
        Some(Session { caller, form_seal: key.seal(OF_FORM, sealed.text) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::caller::TokenRole;
    use super::super::tokens::{NewToken, create, revoke};
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);
    const DAY: i64 = 24 * 3_600 * 1_000_000;

    #[test]
    fn a_session_ends_with_its_time_and_with_its_token() {
        let data = tempfile::tempdir().unwrap();
        let owner = Token::of("o".repeat(64));
        let new = NewToken {
            name: "ann".into(),
            role: TokenRole::Viewer,
            namespaces: None,
            created_at: NOW,
            expires_at: None,
        };
        let ann = create(data.path(), new).unwrap();
        let tokens = Tokens::new(&owner, Some(data.path().into())).unwrap();
        let sessions = Sessions::begin();
        let cookie = sessions.by_token(&tokens, ann.secret(), NOW).unwrap();
        let session = sessions.session(&tokens, &cookie, NOW).unwrap();
        assert_eq!((session.caller.name.as_str(), session.caller.role), ("ann", TokenRole::Viewer));
        assert!(!cookie.contains(ann.secret()) && !cookie.contains(&session.form_seal));
        assert!(sessions.session(&tokens, &cookie, Timestamp(NOW.0 + DAY)).is_none(), "a day later");
        // A worker that was started again knows it, too.
        let again = Tokens::new(&owner, Some(data.path().into())).unwrap();
        assert!(Sessions::begin().session(&again, &cookie, NOW).is_some());
        revoke(data.path(), "ann").unwrap();
        assert!(sessions.session(&again, &cookie, NOW).is_none(), "her token was revoked");
        assert!(sessions.by_token(&tokens, "nobody's", NOW).is_none());
    }

    /// Whoever has a copy of the file of verifiers, such as a backup, and a worker of their own on it.
    #[test]
    fn a_copy_of_the_verifiers_opens_no_page() {
        let data = tempfile::tempdir().unwrap();
        let new = NewToken {
            name: "ann".into(),
            role: TokenRole::Owner,
            namespaces: None,
            created_at: NOW,
            expires_at: None,
        };
        let ann = create(data.path(), new).unwrap();
        let ours = Tokens::new(&Token::of("o".repeat(64)), Some(data.path().into())).unwrap();
        let theirs = Tokens::new(&Token::of("t".repeat(64)), Some(data.path().into())).unwrap();
        let sessions = Sessions::begin();
        let forged = sessions.by_token(&theirs, ann.secret(), NOW).unwrap();
        assert!(sessions.session(&theirs, &forged, NOW).is_some());
        assert!(sessions.session(&ours, &forged, NOW).is_none(), "the owner's token is no part of the file");
        let code = sessions.code(&theirs, ann.secret(), NOW).unwrap();
        assert!(sessions.by_code(&ours, &code, NOW).is_none());
    }

    #[test]
    fn a_code_opens_once_and_soon_and_is_no_cookie() {
        let owner = Token::of("o".repeat(64));
        let tokens = Tokens::new(&owner, None).unwrap();
        let sessions = Sessions::begin();
        let code = sessions.code(&tokens, owner.secret(), NOW).unwrap();
        assert!(sessions.session(&tokens, &code, NOW).is_none(), "a code is no session");
        let late = Timestamp(NOW.0 + 120_000_000);
        assert!(sessions.by_code(&tokens, &code, late).is_none());
        let cookie = sessions.by_code(&tokens, &code, NOW).unwrap();
        assert!(sessions.by_code(&tokens, &code, NOW).is_none(), "it was used");
        let next = Sessions::begin();
        assert!(next.by_code(&tokens, &code, Timestamp(NOW.0 - DAY)).is_none(), "the next worker, its clock set back");
        assert!(sessions.by_code(&tokens, &cookie, NOW).is_none(), "a session is no code");
        assert_eq!(sessions.session(&tokens, &cookie, NOW).unwrap().caller, Caller::owner());
        // What is altered opens nothing: not whose it is, not when it ends, not the seal.
        let other = Token::of("x".repeat(64));
        let elsewhere = Tokens::new(&other, None).unwrap();
        let stranger = Sessions::begin().code(&elsewhere, other.secret(), NOW).unwrap();
        assert!(sessions.by_code(&tokens, &stranger, NOW).is_none());
        assert!(sessions.code(&tokens, other.secret(), NOW).is_none(), "for a token of ours only");
        let parts: Vec<&str> = cookie.split('.').collect();
        let longer = format!("{}.{}.{}.{}", parts[0], NOW.0 + 9 * DAY, parts[2], parts[3]);
        for altered in [longer, cookie[..cookie.len() - 1].to_owned(), format!("{cookie}0"), String::new(), ".".into()]
        {
            assert!(sessions.session(&tokens, &altered, NOW).is_none(), "{altered}");
        }
    }
}
