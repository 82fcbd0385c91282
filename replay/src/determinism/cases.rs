//! Case files: failures that were found once, kept beside the test and tried first ever after.
//!
//! Invariant: files are only read from, and written to, the folder of the test's own source file, under names that begin
//! with that file's name and the workflow type; none is ever overwritten or removed. A file that cannot be read fails
//! the test: a case that is silently skipped protects nobody.

use std::path::{Path, PathBuf};

use bosun_engine::{Payload, WorkflowType, hex};

use super::DeterminismTest;
use crate::simulate::{LifePlan, Violation, case_text};

impl DeterminismTest {
    /// The folder and the beginning of the names of this test's files, if its source can be found.
    fn case_files(&self) -> Option<(PathBuf, String)> {
        if !self.keep_cases {
            return None;
        }
        let file = Path::new(self.place.file());
        let prefix = format!("{}.{}.", file.file_stem()?.to_str()?, plain(&self.drawn.workflow_type));
        if let Some(folder) = &self.case_folder {
            return Some((folder.clone(), prefix));
        }
        // Sources are named from the root of the workspace, tests run in the root of their crate.
        let crate_root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
        let source = crate_root.ancestors().map(|root| root.join(file)).find(|path| path.is_file())?;
        Some((source.with_file_name(""), prefix))
    }

    /// The plans that are kept, in the order of their names.
    pub(super) fn kept(&self) -> Result<Vec<(PathBuf, LifePlan)>, Violation> {
        let Some((folder, prefix)) = self.case_files() else { return Ok(Vec::new()) };
        let unreadable = |path: &Path, why: String| Violation::Setup { why: format!("{}: {why}", path.display()) };
        let entries = match std::fs::read_dir(&folder) {
            // It is made with the first case.
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|why| unreadable(&folder, why.to_string()))?,
        };
        let ours = |name: &str| name.starts_with(&prefix) && name.ends_with(".case");
        let mut paths: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(ours))
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        let read = |path: PathBuf| {
            let text = std::fs::read_to_string(&path).map_err(|why| unreadable(&path, why.to_string()))?;
            let plan = text.parse().map_err(|why: crate::simulate::CaseError| unreadable(&path, why.to_string()))?;
            Ok((path, plan))
        };
        paths.into_iter().map(read).collect()
    }

    /// Keeps a plan; says where.
    pub(super) fn keep(&self, plan: &LifePlan, finding: &Violation) -> Option<PathBuf> {
        let (folder, prefix) = self.case_files()?;
        let text = case_text(plan, &format!("found: {}", finding.kind()));
        let name = &hex(&Payload::bytes(plan.to_string().into_bytes()).digest())[..8];
        std::fs::create_dir_all(&folder).ok()?;
        let path = folder.join(format!("{prefix}{}-{name}.case", finding.kind()));
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => std::io::Write::write_all(&mut file, text.as_bytes()).ok().map(|()| path),
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => Some(path),
            // A source tree that cannot be written to keeps no cases; the seed is printed all the same.
            Err(_) => None,
        }
    }
}

/// A workflow type as a part of a file name.
fn plain(workflow_type: &WorkflowType) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    workflow_type.as_str().chars().map(keep).collect()
}
