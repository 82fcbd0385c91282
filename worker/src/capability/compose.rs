//! The `compose` activity: a markdown report from the results of other tasks, written atomically.
//!
//! Invariant: the file is whole or not there (written beside its place, synced, renamed), and lies inside the given
//! directory with links resolved. It invents nothing: title, intro and sections come from its input.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use bosun_engine::{ActivityContext, ActivityError, Failure};
use serde::{Deserialize, Serialize};

use super::durable::write_whole;
use super::file::FileConfig;

/// The activity type.
pub const COMPOSE: &str = "compose";
/// The failure type of a report that cannot be written.
pub const COMPOSE_FAILED: &str = "ComposeFailed";

/// A report to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComposeInput {
    /// The heading of the report.
    pub title: String,
    /// A paragraph before the sections.
    #[serde(default)]
    pub intro: Option<String>,
    /// The sections, in order.
    #[serde(default)]
    pub sections: Vec<Section>,
    /// Where to write, relative to `directory`. Nothing is written without.
    #[serde(default)]
    pub out: Option<String>,
    /// The directory that the file must not leave.
    pub directory: PathBuf,
}

/// A section of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Its text, as Markdown.
    pub text: String,
    /// Shown as it is, in a fence.
    #[serde(default)]
    pub code: bool,
}

/// The report that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComposeOutput {
    /// Its text, as Markdown.
    pub report: String,
    /// The file, if one was written.
    pub path: Option<String>,
    /// The length of the report.
    pub bytes: u64,
}

/// The activity function.
#[doc(hidden)]
pub async fn run(
    config: FileConfig,
    context: ActivityContext,
    input: ComposeInput,
) -> Result<ComposeOutput, ActivityError> {
    let key = context.idempotency_key();
    let written = tokio::task::spawn_blocking(move || compose(&config, &input, &key)).await;
    written.map_err(|why| Failure::application(COMPOSE_FAILED, format!("writing the report panicked: {why}")))?
}

fn compose(config: &FileConfig, input: &ComposeInput, key: &str) -> Result<ComposeOutput, ActivityError> {
    let report = render(input);
    let path = match &input.out {
        None => None,
        Some(_) if !config.allows(&input.directory) => {
            let place = input.directory.display();
            let why = format!("the worker's owner does not allow reports in {place} (`file.roots`)");
            return Err(Failure::application(COMPOSE_FAILED, why).non_retryable().into());
        }
        Some(_) if config.is_own(&input.directory) => return Err(in_own(&input.directory)),
        Some(out) => {
            let failed = |why: io::Error| {
                Failure::application(
                    COMPOSE_FAILED,
                    format!("cannot write {out:?} in {}: {why}", input.directory.display()),
                )
            };
            Some(write(config, &input.directory, out, &report, key).map_err(failed)?.display().to_string())
        }
    };
    Ok(ComposeOutput { bytes: report.len() as u64, report, path })
}

fn in_own(place: &Path) -> ActivityError {
    let why = format!("no report is written to {}: it lies in the worker's data directory", place.display());
    Failure::application(COMPOSE_FAILED, why).non_retryable().into()
}

fn render(input: &ComposeInput) -> String {
    let mut report = format!("# {}\n", input.title);
    if let Some(intro) = &input.intro {
        // Writing to a String cannot fail, here and below.
        let _ = write!(report, "\n{}\n", intro.trim_end());
    }
    for Section { heading, text, code } in &input.sections {
        let _ = write!(report, "\n## {heading}\n\n");
        let text = text.trim_end();
        if *code {
            let fence = fence(text);
            let _ = writeln!(report, "{fence}text\n{text}\n{fence}");
        } else {
            let _ = writeln!(report, "{text}");
        }
    }
    report
}

/// Longer than any run of backticks in the text.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

/// Writes the file so that a crash leaves the old one or the new one. `key` keeps attempts of two activities apart.
fn write(config: &FileConfig, directory: &Path, out: &str, text: &str, key: &str) -> io::Result<PathBuf> {
    let outside =
        |what: &Path| io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is outside", what.display()));
    let relative = Path::new(out);
    let Some(name) = relative.file_name() else { return Err(outside(relative)) };
    if !relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(outside(relative));
    }
    let directory = directory.canonicalize()?;
    let parent = make_parent(config, &directory, relative)?;
    if !parent.starts_with(&directory) {
        return Err(outside(&parent));
    }
    if config.is_own(&parent) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it lies in the worker's data directory"));
    }
    let beside = format!(".{}.{key}", name.to_string_lossy());
    write_whole(File::open(&parent)?, name, beside.as_str(), text.as_bytes())?;
    Ok(parent.join(name))
}

/// The parent directory with links resolved. Missing directories are made one by one, so that none is made outside.
fn make_parent(config: &FileConfig, directory: &Path, relative: &Path) -> io::Result<PathBuf> {
    let mut place = directory.to_owned();
    for part in relative.parent().into_iter().flat_map(Path::components) {
        place = place.join(part);
        match fs::create_dir(&place) {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
            _ => place = place.canonicalize()?,
        }
        if !place.starts_with(directory) || config.is_own(&place) {
            return Ok(place);
        }
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::testing::{failure, probe};

    fn input(directory: &Path, out: &str) -> ComposeInput {
        let section = |text: &str, code| Section { heading: "S".into(), text: text.into(), code };
        ComposeInput {
            title: "T".into(),
            intro: Some("hello\n".into()),
            sections: vec![section("plain\n", false), section("a ``` b\n", true)],
            out: Some(out.into()),
            directory: directory.into(),
        }
    }

    #[tokio::test]
    async fn a_report_is_written_whole_and_returned() {
        let dir = tempfile::tempdir().unwrap();
        let output = run(FileConfig::default(), probe(1).context, input(dir.path(), "target/x/r.md")).await.unwrap();
        assert_eq!(output.report, "# T\n\nhello\n\n## S\n\nplain\n\n## S\n\n````text\na ``` b\n````\n");
        let path = dir.path().join("target/x/r.md");
        assert_eq!(fs::read_to_string(&path).unwrap(), output.report);
        assert_eq!(output.path.unwrap(), path.canonicalize().unwrap().display().to_string());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing but the report is left");
    }

    /// G36: the owner's roots bound reports as they bound files.
    #[tokio::test]
    async fn the_owner_bounds_the_directories() {
        let dir = tempfile::tempdir().unwrap();
        let allowed = dir.path().join("allowed");
        fs::create_dir(&allowed).unwrap();
        std::os::unix::fs::symlink(dir.path(), allowed.join("way")).unwrap();
        let config = FileConfig { roots: Some(vec![allowed.clone()]), ..FileConfig::default() };
        assert!(run(config.clone(), probe(1).context, input(&allowed, "r.md")).await.is_ok());
        for outside in [dir.path(), &allowed.join("way"), Path::new("/nowhere"), Path::new(".")] {
            let failure = failure(run(config.clone(), probe(1).context, input(outside, "r.md")).await);
            assert!(failure.message.contains("does not allow"), "{failure:?}");
        }
        assert!(!dir.path().join("r.md").exists());
    }

    #[tokio::test]
    async fn no_report_is_written_to_the_workers_own_directory() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("data");
        fs::create_dir(&own).unwrap();
        let config = FileConfig { roots: None, own: Some(own.clone()) };
        for (from, out) in [(dir.path(), "data/tokens.json"), (dir.path(), "data/new/r.md"), (&own, "tokens.json")] {
            let failure = failure(run(config.clone(), probe(1).context, input(from, out)).await);
            assert!(failure.message.contains("the worker's data directory"), "{failure:?}");
        }
        assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_report_cannot_leave_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let jail = dir.path().join("jail");
        fs::create_dir(&jail).unwrap();
        std::os::unix::fs::symlink(dir.path(), jail.join("link")).unwrap();
        for out in ["../r.md", "/tmp/r.md", "link/r.md", "link/new/r.md", "a/../../r.md", ".."] {
            let failure = failure(run(FileConfig::default(), probe(1).context, input(&jail, out)).await);
            assert_eq!(failure.type_name(), COMPOSE_FAILED, "{out}");
        }
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["jail"]);
    }
}
