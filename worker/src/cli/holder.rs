//! Whose token a command was given, where no worker is there to say it: it is worth the same in the directory itself.
//!
//! Invariant: who names no token opens the directory as its owner. A token that is named is never worth more than a worker of the
//! directory would make of it, by the clock of this machine: one that has expired, was revoked or is unknown opens nothing, and a
//! file that cannot be read is an error that names it.

use std::path::Path;
use std::sync::Arc;

use bosun_engine::{ListRequest, Rejection, RunInfo, Target, Turn};

use super::args::Global;
use super::error::CliError;
use super::explain::Code;
use super::time_format::now;
use crate::api::authority::{FORBIDDEN, within};
use crate::api::caller::OWNER;
use crate::api::token::OWNER_ID;
use crate::api::{Caller, Token, TokenRole, tokens};
use crate::backend::{Access, CallError, Histories, Reply};

/// Who acts in the directory by the token that the command line names. `None`: whoever may open it.
pub(super) fn caller_of(global: &Global, purpose: &Access) -> Result<Option<Caller>, CliError> {
    let Some(file) = &global.token_file else { return Ok(None) };
    if is_own(file, &global.data) {
        return Ok(None);
    }
    let token = super::locate::read_token(file)?;
    if let Some(caller) = tokens::known_in(&global.data, &token, now())? {
        return Ok((caller.name != OWNER).then_some(caller));
    }
    // Whoever serves says which token is the owner's. One with a name is never that.
    if matches!(purpose, Access::Work { .. }) && token.id() == OWNER_ID {
        return Ok(None);
    }
    let message = format!("the token of {} opens nothing in {}", file.display(), global.data.display());
    Err(CliError::new(Code::Unauthorized, message)
        .cause("it has expired, was revoked, or is of another directory; no worker is there that knows it")
        .help("who may open the directory needs none: leave --token-file and BOSUN_TOKEN_FILE away"))
}

/// What is done with the directory as a whole, by no engine, is its owner's to do.
pub(super) fn owns(global: &Global) -> Result<(), CliError> {
    match caller_of(global, &Access::Look)? {
        Some(caller) if caller.role < TokenRole::Owner || caller.namespaces.is_some() => {
            let (status, code) = FORBIDDEN;
            let message = format!("this is for the owner of the directory; the token {} is not", caller.name);
            Err(CallError::Refused { status, code: code.to_owned(), message }.into())
        }
        _ => Ok(()),
    }
}

/// Whether a file names somebody of the directory: such a token is no worker's own.
pub(super) fn is_of_somebody(file: &Path, data: &Path) -> bool {
    let Ok(token) = Token::read(file) else { return false };
    // One with a name stays somebody's when it has expired, was revoked, or cannot be looked up.
    let named = token.id() != OWNER_ID;
    named || matches!(tokens::known_in(data, &token, now()), Ok(Some(caller)) if caller.name != OWNER)
}

fn is_own(file: &Path, data: &Path) -> bool {
    let own = data.join("token");
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    whole(file) == whole(&own)
}

/// The histories that a caller may see.
pub(super) fn seen_by(histories: Arc<dyn Histories>, caller: Option<Caller>) -> Arc<dyn Histories> {
    match caller.filter(|caller| caller.namespaces.is_some()) {
        Some(caller) => Arc::new(SeenHistories { histories, caller }),
        None => histories,
    }
}

struct SeenHistories {
    histories: Arc<dyn Histories>,
    caller: Caller,
}

impl SeenHistories {
    /// A namespace that the caller may not see is none.
    fn may(&self, target: &Target) -> Result<(), Rejection> {
        let unknown = || Rejection::NotFound { workflow_id: target.workflow_id.clone(), run_id: target.run_id };
        self.caller.sees(&target.namespace).then_some(()).ok_or_else(unknown)
    }
}

impl Histories for SeenHistories {
    fn run(&self, target: Target) -> Reply<'_, RunInfo> {
        Box::pin(async move {
            self.may(&target)?;
            self.histories.run(target).await
        })
    }
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>> {
        Box::pin(async move {
            let only = self.caller.namespaces.iter().flatten();
            self.histories.list(ListRequest { query: within(&request.query, only)?, ..request }).await
        })
    }
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>> {
        Box::pin(async move {
            self.may(&target)?;
            self.histories.turns(target).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use clap::Parser;

    use super::*;
    use crate::api::tokens::NewToken;
    use crate::cli::args::Cli;

    fn named(data: &Path, name: &str, expires: Option<bosun_engine::Timestamp>) -> Token {
        let new = NewToken {
            name: name.into(),
            role: TokenRole::Viewer,
            namespaces: None,
            created_at: now(),
            expires_at: expires,
        };
        tokens::create(data, new).unwrap()
    }

    fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    }

    /// Nobody holds the directory: its tokens are worth there what a worker would make of them.
    #[test]
    fn a_token_is_worth_the_same_where_no_worker_is() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let own = Token::read_or_create(&data.join("token")).unwrap();
        let with = |token_file: Option<PathBuf>| {
            let global = Cli::try_parse_from(["bosun", "list"]).unwrap().global;
            Global { data: data.clone(), token_file, ..global }
        };
        let visit = Access::Visit { create: false };
        let who = |token_file: Option<PathBuf>| {
            caller_of(&with(token_file), &visit).map(|caller| caller.map(|caller| (caller.name, caller.role)))
        };
        assert_eq!(who(None).unwrap(), None);
        assert_eq!(who(Some(data.join("token"))).unwrap(), None);
        assert_eq!(who(Some(file(dir.path(), "copy", own.secret()))).unwrap(), None);
        let ann = file(dir.path(), "ann", named(&data, "ann", None).secret());
        assert_eq!(who(Some(ann.clone())).unwrap(), Some(("ann".into(), TokenRole::Viewer)));
        assert!(is_of_somebody(&ann, &data) && !is_of_somebody(&data.join("token"), &data));
        let late = file(dir.path(), "late", named(&data, "late", Some(now())).secret());
        let stranger = file(dir.path(), "stranger", &"x".repeat(64));
        for bad in [late, stranger, dir.path().join("none"), file(dir.path(), "short", "x")] {
            let why = who(Some(bad.clone())).unwrap_err();
            assert!(why.code == Code::Unauthorized && why.message.contains(bad.to_str().unwrap()), "{}", why.message);
        }
        tokens::revoke(&data, "ann").unwrap();
        assert!(who(Some(ann)).is_err());
        // A worker was served with a token that lies elsewhere: it is the owner's without one, too.
        let elsewhere = Token::of("y".repeat(64));
        tokens::note_owner(&data, Some(&elsewhere)).unwrap();
        assert_eq!(who(Some(file(dir.path(), "elsewhere", elsewhere.secret()))).unwrap(), None);
        tokens::note_owner(&data, None).unwrap();
        assert!(who(Some(dir.path().join("elsewhere"))).is_err());
    }
}
