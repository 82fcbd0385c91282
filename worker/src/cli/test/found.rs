//! Which files `bosun test` plays: those that are named, and what lies in directories that are.
//!
//! Invariant: a file in a directory is passed over only where it cannot be a scene that somebody wrote wrongly: where others
//! refer to it by its name, as scenes do to specs, or where it is no YAML and has nothing of a scene. Any other stands
//! among the scenes, and is told what is wrong with it. It plays nothing.

use std::path::{Path, PathBuf};

use crate::cli::error::CliError;
use crate::cli::input::read_short;

/// What only scenes have at their top.
const OWN: [&str; 4] = ["scene", "world", "people", "expect"];

/// A file of a directory.
struct FoundFiles {
    path: PathBuf,
    text: String,
}

/// The scenes that are named: files, and what lies in directories, in order.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for path in paths {
        let about = std::fs::metadata(path).map_err(|why| CliError::no_file(path.display(), &why))?;
        if about.is_file() {
            files.push(path.clone());
        } else {
            files.extend(scenes_in(path)?);
        }
    }
    Ok(files)
}

fn scenes_in(directory: &Path) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |path: &Path, why: std::io::Error| CliError::no_file(path.display(), &why);
    let mut folders = vec![directory.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|why| unreadable(&folder, why))? {
            let path = entry.map_err(|why| unreadable(&folder, why))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if ["yaml", "yml", "json"].iter().any(|end| ends_in(&path, end)) {
                // What cannot be read is told so when it is played.
                let text = read_short(&path).unwrap_or_default();
                found.push(FoundFiles { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let is_wanted = |file: &&FoundFiles| names_key(&file.text, "scene", str::eq) || is_astray(file, directory, &found);
    Ok(found.iter().filter(is_wanted).map(|file| file.path.clone()).collect())
}

fn ends_in(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|known| known == end)
}

/// Whether a file may be a scene that says so in other words, or in none.
fn is_astray(file: &FoundFiles, directory: &Path, all: &[FoundFiles]) -> bool {
    let below = file.path.strip_prefix(directory).unwrap_or(&file.path);
    // What tools keep for themselves is not about scenes.
    if below.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.')) {
        return false;
    }
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    let refers = |other: &&FoundFiles| other.path != file.path && other.text.contains(&*name);
    if all.iter().any(|other| refers(&other)) {
        return false;
    }
    !ends_in(&file.path, "json") || OWN.iter().any(|key| names_key(&file.text, key, str::eq_ignore_ascii_case))
}

/// Whether a document has a key at its top, however it is written.
fn names_key(text: &str, key: &str, is: fn(&str, &str) -> bool) -> bool {
    let is_key = |text: &str| {
        let text = text.trim_start_matches(['"', '\'']);
        let (word, rest) = text.split_at_checked(key.len()).unwrap_or((text, ""));
        is(word, key) && rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':')
    };
    let text = text.trim_start_matches('\u{feff}');
    match text.trim_start().strip_prefix('{') {
        // In braces a key stands behind one of them, or behind a comma.
        Some(inside) => inside.split(['{', ',']).any(|part| is_key(part.trim_start())),
        None => text.lines().any(is_key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scene_is_found_however_its_key_is_written() {
        for scene in [
            "scene: x",
            "# first\nscene : x",
            "\"scene\": x",
            "'scene': x",
            "{ \"rows\": [], \"scene\": 1 }",
            "{scene: x}",
        ] {
            assert!(names_key(scene, "scene", str::eq), "{scene}");
        }
        for other in ["kind: supervisor", "spec:\n  scene: x", "scenes: 2", "obscene: 1", "Scene: x"] {
            assert!(!names_key(other, "scene", str::eq), "{other}");
        }
    }

    /// What is neither a scene nor named by one is not passed over in silence.
    #[test]
    fn a_file_is_passed_over_only_where_others_name_it_or_it_is_about_something_else() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a.yaml", "scene: x\nspec: specs/team.yaml");
        write("specs/team.yaml", "preset: plan-run\nseed_plan: { file: audit.yml }");
        write("specs/audit.yml", "tasks: []");
        write("b.yaml", "Scene: x");
        write("c.yaml", "preset: plan-run");
        write("d.yml", "");
        write("e.json", "{ \"Scene\": \"x\" }");
        write("f.json", "{ \"turns\": [] }");
        write(".github/ci.yaml", "on: push");
        write(".kept/g.yaml", "scene: y");
        let found = files(&[root.path().to_owned()]).unwrap();
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(root.path()).unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, [".kept/g.yaml", "a.yaml", "b.yaml", "c.yaml", "d.yml", "e.json"]);
    }
}
