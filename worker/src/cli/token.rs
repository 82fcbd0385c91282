//! `token create`, `list` and `revoke`: who else may use the control API, as what, and where.
//!
//! Invariant: it works on the files of the data directory, which only its owner can write; a worker that runs hears of it at
//! the next request. A token is printed once and stored nowhere.

use std::collections::BTreeSet;
use std::time::Duration;

use bosun_engine::Namespace;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::list::shell_word;
use super::locate::no_store;
use super::output::{Cell, Screen, TextStyle};
use super::time_format::parse_duration;
use crate::api::TokenRole;
use crate::api::tokens::{self, NamedToken, NewToken, TokensError};

#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Make a token and print it once. Histories record under its name what is done with it.
    Create(CreateTokenArgs),
    /// List the tokens and what each may do.
    #[command(visible_alias = "ls")]
    List,
    /// Revoke a token; it opens nothing from now on.
    Revoke {
        /// The name of the token.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct CreateTokenArgs {
    /// The name of whoever gets the token; histories record it.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// viewer looks; approver also answers what runs ask people; operator also starts and steers; owner does everything.
    #[arg(long, value_enum)]
    pub role: TokenRole,
    /// Only for this namespace; may be given several times [default: all].
    #[arg(long = "only-namespace", value_name = "NAME")]
    pub namespaces: Vec<String>,
    /// How long the token works, for example 30d.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub expires: Option<Duration>,
}

impl From<TokensError> for CliError {
    fn from(why: TokensError) -> Self {
        let code = match &why {
            TokensError::File { .. } => Code::Failed,
            TokensError::Full(_) => Code::StorageFull,
            TokensError::Name(_) | TokensError::Taken(_) => Code::Usage,
            TokensError::Unknown(_) => Code::NotFound,
        };
        CliError::new(code, why.to_string())
    }
}

pub(super) fn token(screen: &mut Screen, global: &Global, verb: TokenVerb) -> Result<Exit, CliError> {
    if global.address.is_some() {
        let why = "tokens are made where the data directory is, not over --address";
        return Err(CliError::usage(why).help("run it on the worker's machine, with --data"));
    }
    no_store(&global.data)?;
    super::holder::owns(global)?;
    match verb {
        TokenVerb::Create(args) => create(screen, global, args),
        TokenVerb::List => list(screen, global),
        TokenVerb::Revoke { name } => {
            tokens::revoke(&global.data, &name)?;
            screen.object("token.revoke", json!({ "name": name }));
            screen.line(format!("revoked {name}"));
            Ok(Exit::Ok)
        }
    }
}

fn create(screen: &mut Screen, global: &Global, args: CreateTokenArgs) -> Result<Exit, CliError> {
    let namespaces: BTreeSet<Namespace> = args.namespaces.iter().map(Namespace::new).collect::<Result<_, _>>()?;
    if args.expires.is_some_and(|expires| expires.is_zero()) {
        return Err(CliError::usage("--expires: a token that works for no time opens nothing"));
    }
    let created_at = super::time_format::now();
    let new = NewToken {
        name: args.name.clone(),
        role: args.role,
        namespaces: (!namespaces.is_empty()).then_some(namespaces),
        created_at,
        expires_at: args.expires.map(|expires| created_at.plus(expires)),
    };
    let token = tokens::create(&global.data, new)?;
    screen.object("token.create", json!({ "name": args.name, "role": args.role, "token": token.secret() }));
    screen.line(token.secret().to_owned());
    let name = shell_word(&args.name);
    let again = format!("`bosun token revoke {name}`, then `bosun token create {name}` makes another one");
    screen.shown_once(&format!("the token of {}", args.name), &again)?;
    screen.note("it is shown this once; give it to them as a file of mode 600, for --token-file or BOSUN_TOKEN_FILE");
    Ok(Exit::Ok)
}

/// Of the list.
const COLUMNS: &[&str] = &["name", "role", "namespaces", "expires_at"];

fn list(screen: &mut Screen, global: &Global) -> Result<Exit, CliError> {
    let tokens = tokens::list(&global.data)?;
    let rows: Vec<Value> = tokens.iter().map(|token| row(screen, token)).collect();
    screen.objects("token.list", "tokens", rows);
    if tokens.is_empty() {
        screen.table_columns(COLUMNS)?;
        screen.note("no named tokens; the token of the directory is its owner's");
        return Ok(Exit::Ok);
    }
    let now = super::time_format::now();
    let cells = tokens.iter().map(|token| {
        let namespaces = token.namespaces.as_ref().map_or_else(|| "all".to_owned(), names);
        let until = token.expires_at.map_or_else(|| "-".to_owned(), |at| screen.at(at));
        let until =
            if token.has_expired(now) { Cell::of(format!("{until} (expired)"), TextStyle::Red) } else { until.into() };
        vec![Cell::of(token.name.as_str(), TextStyle::Bold), token.role.to_string().into(), namespaces.into(), until]
    });
    let cells = cells.collect();
    screen.table(COLUMNS, cells)?;
    Ok(Exit::Ok)
}

fn names(namespaces: &BTreeSet<Namespace>) -> String {
    namespaces.iter().map(Namespace::as_str).collect::<Vec<_>>().join(", ")
}

fn row(screen: &Screen, token: &NamedToken) -> Value {
    json!({
        "name": token.name, "id": token.id, "role": token.role, "namespaces": token.namespaces,
        "created_at": screen.time.json(token.created_at),
        "expires_at": token.expires_at.map(|at| screen.time.json(at)),
    })
}
