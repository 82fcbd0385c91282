//! `dev`: a worker, its pages and a few runs to look at, in one command.
//!
//! Invariant: it is `worker run` with a directory of its own, which it removes when it ends, unless `--persist` or `--data`
//! says to keep one; the runs are ordinary runs of specs that ship with it, scripted, without a key and without a network.

use std::path::{Path, PathBuf};

use bosun_engine::{IdConflictPolicy, IdReusePolicy, Namespace, StartWorkflow, WorkflowId};
use clap::Args;
use serde_json::json;

use super::args::{DATA_DEFAULT, Global};
use super::config::Loaded;
use super::context::{PlanLoader, PlanRequest};
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::output::Screen;
use super::worker::{self, WorkerArgs};
use crate::api::token::random_hex;
use crate::backend::{Backend, CallError, OpenEngine};

#[derive(Debug, Args)]
pub struct DevArgs {
    /// The port of the pages and the API; 0 takes any free port.
    #[arg(long, default_value_t = 8233)]
    port: u16,
    /// Keep the runs in the data directory `.bosun`, or in the one of --data. Without either, they are removed at the end.
    #[arg(long)]
    persist: bool,
    /// Start no sample runs.
    #[arg(long)]
    no_demo: bool,
    /// Only print the link to the pages.
    #[arg(long)]
    no_browser: bool,
}

/// The runs that show what there is to see: a plan with an approval, a plan under review, a question, a chat, a delegation.
const SHOWN: [(&str, &str); 5] = [
    ("release-notes", include_str!("dev/release-notes.yaml")),
    ("market-report", include_str!("dev/market-report.yaml")),
    ("trip", include_str!("dev/trip.yaml")),
    ("cat-names", include_str!("dev/cat-names.yaml")),
    ("small-service", include_str!("dev/small-service.yaml")),
];

/// What a worker does beside its work when it is one of `dev`.
pub(super) struct Beside {
    plans: Option<PlanLoader>,
    directory: PathBuf,
    demo: bool,
    pub no_browser: bool,
}

pub(super) async fn dev(
    screen: &mut Screen,
    global: &Global,
    loaded: &Loaded,
    opener: &dyn OpenEngine,
    plans: Option<PlanLoader>,
    args: DevArgs,
) -> Result<Exit, CliError> {
    let keeps = args.persist || global.data != Path::new(DATA_DEFAULT);
    let own = if keeps { None } else { Some(new_directory()?) };
    let data = own.clone().unwrap_or_else(|| global.data.clone());
    let global = Global {
        data: data.clone(),
        epoch_file: if own.is_some() { None } else { global.epoch_file.clone() },
        ..global.clone()
    };
    let beside = Beside { plans, directory: data, demo: !args.no_demo, no_browser: args.no_browser };
    let ended = worker::run(screen, &global, loaded, opener, WorkerArgs::of_port(args.port), Some(&beside)).await;
    if let Some(own) = own {
        // What is left behind is only in the way; whoever wants to keep it says --persist.
        let _ = std::fs::remove_dir_all(own);
    }
    ended
}

fn new_directory() -> Result<PathBuf, CliError> {
    let name = random_hex(6).map_err(|why| CliError::new(Code::Failed, "there are no random numbers").cause(why))?;
    Ok(std::env::temp_dir().join(format!("bosun-dev-{name}")))
}

impl Beside {
    /// Starts the runs; those that are there already go on.
    pub(super) async fn begin(&self, backend: &dyn Backend, namespace: &Namespace) -> Result<(), CliError> {
        let Some(load) = self.plans.filter(|_| self.demo) else { return Ok(()) };
        let folder = self.directory.join("dev");
        for (id, text) in SHOWN {
            let path = write(&folder, id, text)?;
            let plan = load(&PlanRequest { path, overrides: json!({}), depth: 0 });
            let plan = plan.map_err(|why| CliError::new(Code::BadPlan, why))?;
            let start = StartWorkflow {
                namespace: namespace.clone(),
                id_conflict_policy: IdConflictPolicy::UseExisting,
                id_reuse_policy: IdReusePolicy::RejectDuplicate,
                ..StartWorkflow::new(plan.workflow_type, WorkflowId::of(id)).input(plan.input)
            };
            match backend.start(start).await {
                Ok(_) | Err(CallError::Rejected(bosun_engine::Rejection::IdReused { .. })) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }
}

fn write(folder: &Path, id: &str, text: &str) -> Result<PathBuf, CliError> {
    let path = folder.join(format!("{id}.yaml"));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
    written.map_err(|why| CliError::new(Code::Failed, format!("cannot write {}", path.display())).cause(why))?;
    Ok(path)
}
