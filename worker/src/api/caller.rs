//! Who asks: the name of a token, what it may do, and where.
//!
//! Invariant: a caller is made from a token that was checked, or from the right to open the directory itself; nothing that
//! a request says of itself changes who it comes from. What a role may do stands in one order: each may what those before
//! it may.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use bosun_engine::{DEFAULT_NAMESPACE, Identity, Namespace};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    /// Looks: lists, histories, queries.
    Viewer,
    /// And answers what runs ask people: approvals, questions, reviews of plans.
    Approver,
    /// And starts, signals, updates, pauses, cancels and terminates runs.
    Operator,
    /// And deletes runs and copies the store.
    Owner,
}

impl fmt::Display for TokenRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenRole::Viewer => "viewer",
            TokenRole::Approver => "approver",
            TokenRole::Operator => "operator",
            TokenRole::Owner => "owner",
        })
    }
}

impl FromStr for TokenRole {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        <TokenRole as ValueEnum>::from_str(text, false)
    }
}

/// The name of whoever holds the directory, or its own token.
pub const OWNER: &str = "owner";

/// Somebody whose token was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub role: TokenRole,
    /// Only these; `None`: all.
    pub namespaces: Option<BTreeSet<Namespace>>,
    /// The id of the named token that was checked; `None`: it is none of those.
    pub token: Option<String>,
}

impl Caller {
    /// Whoever may read the directory's own token, or opens the directory.
    pub fn owner() -> Caller {
        Caller { name: OWNER.to_owned(), role: TokenRole::Owner, namespaces: None, token: None }
    }

    /// The one namespace that it may see, if it is one.
    pub fn only_namespace(&self) -> Option<&Namespace> {
        let mut only = self.namespaces.as_ref()?.iter();
        only.next().filter(|_| only.next().is_none())
    }

    /// The namespace of what is begun: what was named, else the one that the caller has, else the default.
    pub fn namespace_of_new(&self, named: Option<Namespace>) -> Namespace {
        named.or_else(|| self.only_namespace().cloned()).unwrap_or_else(|| Namespace::of(DEFAULT_NAMESPACE))
    }

    pub fn sees(&self, namespace: &Namespace) -> bool {
        self.namespaces.as_ref().is_none_or(|only| only.contains(namespace))
    }

    /// As histories record it: the name of the token, and beside it what the request says of itself.
    pub fn identity(&self, says: Option<&Identity>) -> Identity {
        let name = &self.name;
        let text = match says.map(Identity::as_str).filter(|says| *says != name) {
            Some(says) => format!("{name} ({says})"),
            None => name.clone(),
        };
        let short: String = text.chars().take(Caller::IDENTITY_CHARS).collect();
        Identity::new(short).unwrap_or_else(|_| Identity::of(OWNER))
    }

    const IDENTITY_CHARS: usize = 200;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_it_is_comes_before_what_it_says() {
        let ann = Caller { name: "ann".into(), ..Caller::owner() };
        assert_eq!(ann.identity(Some(&Identity::of("bob@host"))).as_str(), "ann (bob@host)");
        assert_eq!(ann.identity(Some(&Identity::of("ann"))).as_str(), "ann");
        assert_eq!(ann.identity(None).as_str(), "ann");
        assert!(TokenRole::Viewer < TokenRole::Approver && TokenRole::Operator < TokenRole::Owner);
    }
}
