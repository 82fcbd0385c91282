//! The crates as they would be published, and the program as `cargo install` makes it (issue 19).
//!
//! Invariant: nothing is fetched and nothing is sent. `cargo full` compiles the packages, each from its own files alone, and
//! installs the worker; every run of the tests looks at what is in them.

use std::path::Path;
use std::process::Command;

use crate::tidy::workspace;

/// The cargo that runs these tests, on the workspace, with a target directory of its own.
fn cargo(target: &Path, words: &[&str]) -> String {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(words).current_dir(workspace()).env("CARGO_NET_OFFLINE", "true").env("CARGO_TARGET_DIR", target);
    let output = cargo.output().expect("cargo runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "cargo {words:?}\n{said}");
    said
}

const ALL: [&str; 3] = ["bosun-engine", "bosun-replay", "bosun-worker"];

/// Each has its licences, its changes and its README; the worker has the guide; none has tests, which need the repository.
#[test]
fn packages_have_what_they_need_and_no_more() {
    for name in ALL {
        let target = tempfile::tempdir().unwrap();
        let listed = cargo(target.path(), &["package", "--allow-dirty", "--list", "-p", name]);
        let files: Vec<&str> = listed.lines().collect();
        for needed in ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md", "README.md", "src/lib.rs"] {
            assert!(files.contains(&needed), "{name} lacks {needed}: {files:#?}");
        }
        let foreign = files.iter().find(|file| file.starts_with("tests/") || file.starts_with("benches/"));
        assert_eq!(foreign, None, "{name}");
        if name == "bosun-worker" {
            for chapter in bosun_worker::guide::CHAPTERS {
                let page = format!("guide/{}.md", chapter.name);
                assert!(files.contains(&page.as_str()), "the chapter {page} is left out");
            }
            assert!(files.contains(&"src/main.rs"));
        }
        let manifest = std::fs::read_to_string(workspace().join(name.trim_start_matches("bosun-")).join("Cargo.toml"));
        let manifest = manifest.unwrap();
        for key in ["description = ", "license.workspace", "rust-version.workspace", "keywords = ", "categories = "] {
            assert!(manifest.contains(key), "{name}: {key}");
        }
    }
}

/// Each package compiles from its own files, and `cargo install --path worker` gives a program that runs.
#[test]
#[ignore = "compiles the worker twice, and all that it is made of: cargo full"]
fn packages_compile_and_the_worker_is_installed() {
    let (target, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    cargo(target.path(), &["package", "--allow-dirty", "--workspace", "--exclude", "bosun-tests"]);
    for name in ALL {
        let made = std::fs::read_dir(target.path().join("package")).unwrap().map(|file| file.unwrap().file_name());
        let is_it = |file: &std::ffi::OsString| file.to_string_lossy().starts_with(name);
        assert!(made.into_iter().any(|file| is_it(&file)), "{name} was not packaged");
    }
    let root_of = root.path().to_str().unwrap();
    cargo(target.path(), &["install", "--path", "worker", "--debug", "--locked", "--root", root_of]);
    let bosun = root.path().join("bin/bosun");
    let version = Command::new(&bosun).args(["version", "--json"]).output().expect("it was installed");
    assert!(version.status.success() && String::from_utf8_lossy(&version.stdout).contains("bosun.version/1"));
}
