//! `ui`: the link to the pages of the worker that runs, and a browser opened on it.
//!
//! Invariant: the link signs in once, within two minutes, as the token that this command has; the token itself is in no
//! address and on no screen. Nothing is started: without a worker there are no pages.

use std::io::IsTerminal;
use std::process::{Command as Program, Stdio};

use bosun_engine::{Namespace, Target, WorkflowId};
use clap::Args;
use serde_json::json;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::locate::{attach, no_store};
use super::output::Screen;
use crate::api::session::SIGN_IN_CODE;
use crate::api::{HttpClient, WorkerFile, with_scheme};
use crate::backend::Backend;

#[derive(Debug, Args)]
pub struct UiArgs {
    /// The page of this run, by its workflow id; all runs if none is given.
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Only print the link.
    #[arg(long)]
    no_browser: bool,
}

pub(super) async fn ui(screen: &mut Screen, global: &Global, args: UiArgs) -> Result<Exit, CliError> {
    let file = WorkerFile::read(&global.data).filter(WorkerFile::process_lives);
    let address = match (&global.address, &file) {
        (Some(address), _) => with_scheme(address),
        (None, Some(file)) => file.address.clone(),
        (None, None) => {
            no_store(&global.data)?;
            return Err(CliError::new(Code::Unreachable, format!("no worker holds {}", global.data.display()))
                .help("`bosun worker run` starts a worker with its pages"));
        }
    };
    // Whoever answers there must know the token before it gets anything that is made of it.
    let worker = attach(&address, global).await?;
    let place = match &args.id {
        Some(id) => {
            let namespace = Namespace::new(&global.namespace)?;
            worker.describe(Target { namespace, ..Target::workflow(WorkflowId::new(id)?) }).await?;
            crate::ui::run_link(&global.namespace, id, None)
        }
        None => "/".to_owned(),
    };
    let link = link(&address, &worker, &place).await?;
    let minutes = SIGN_IN_CODE.as_secs() / 60;
    screen.object("ui", json!({ "url": link, "signs_in_for_s": SIGN_IN_CODE.as_secs() }));
    screen.line(link.clone());
    screen.note(&format!("the link signs in once, within {minutes} minutes"));
    if !args.no_browser {
        open_browser(screen, &link);
    }
    Ok(Exit::Ok)
}

/// A link that signs in as this command and goes to a page.
pub(super) async fn link(address: &str, worker: &HttpClient, place: &str) -> Result<String, CliError> {
    let code = worker.sign_in_code().await?;
    let query =
        form_urlencoded::Serializer::new(String::new()).append_pair("code", &code).append_pair("next", place).finish();
    Ok(format!("{}/login?{query}", address.trim_end_matches('/')))
}

/// Only where somebody sits in front of it: a script gets the link.
pub(super) fn open_browser(screen: &mut Screen, link: &str) {
    if !std::io::stdout().is_terminal() || std::env::var_os("CI").is_some() {
        return;
    }
    let own = std::env::var("BROWSER").ok();
    let program = own.as_deref().unwrap_or(if cfg!(target_os = "macos") { "open" } else { "xdg-open" });
    let opened =
        Program::new(program).arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(why) = opened {
        screen.note(&format!("no browser was opened ({program}: {why}): follow the link yourself"));
    }
}
