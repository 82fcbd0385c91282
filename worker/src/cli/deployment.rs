//! What a worker says of the versioned deployment of a Temporal cluster that it takes part in.
//!
//! Invariant: a version is the build of the code, which nobody can give a wrong name. Which version is the current one is the
//! cluster's affair, and said with Temporal's own tools.

use clap::{Args, ValueEnum};

use crate::backend::Deployment;

#[derive(Debug, Clone, Default, Args)]
pub struct DeploymentArgs {
    /// On a cluster: the versioned deployment of which this worker's build is a version. The cluster gives the worker the runs
    /// of that version; `temporal worker deployment set-current-version` chooses the version for new runs.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub deployment: Option<String>,
    /// With --deployment: whether a run stays with the build that began it, or moves to the current version.
    #[arg(long, value_enum, value_name = "HOW", default_value = "pinned", requires = "deployment")]
    pub versioning: Versioning,
}

/// What becomes of the open runs of a versioned deployment when another version becomes the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Versioning {
    /// A run stays with the build that began it.
    #[default]
    Pinned,
    /// A run goes on with the current version, whose code must fit it.
    AutoUpgrade,
}

impl DeploymentArgs {
    /// The deployment, if one is named.
    pub(super) fn named(&self) -> Option<Deployment> {
        let auto_upgrade = self.versioning == Versioning::AutoUpgrade;
        self.deployment.clone().map(|name| Deployment { name, auto_upgrade })
    }
}

fn name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a deployment needs a name".to_owned()),
        // The cluster parts name and build there.
        name if name.contains(['.', ':']) => Err("a deployment's name holds no `.` and no `:`".to_owned()),
        name => Ok(name.to_owned()),
    }
}
