//! The clippy configuration that ships for users' workflow crates: it names things that exist, and finds what it names.

use std::path::Path;
use std::process::Command;

const CODE: &str = r#"
use std::collections::HashMap;
pub fn bad() -> usize {
    let now = std::time::SystemTime::now();
    drop(std::thread::spawn(move || now));
    let half = std::env::var("HALF").map_or(0.5_f64, |_| 2.0_f64.powf(0.5));
    let ids: HashMap<u8, f64> = std::iter::once((1, half)).collect();
    ids.len()
}
pub fn good(items: &std::collections::BTreeMap<u8, u8>) -> usize { items.len() }
"#;

/// Layer 2 (the requirements of the engine §3): a crate with the configuration that ships is refused for each forbidden thing, with the reason
/// that stands there, and every path in it exists.
#[test]
fn the_configuration_that_ships_names_existing_paths_and_finds_them() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("workflow-clippy.toml");
    std::fs::copy(&configuration, folder.path().join("clippy.toml")).unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("src/lib.rs"), CODE).unwrap();
    let manifest = "[package]\nname = \"flows\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    let clippy = Command::new(env!("CARGO"))
        .args(["clippy", "--offline", "--quiet", "--message-format", "short"])
        .current_dir(folder.path())
        .env("CARGO_TARGET_DIR", folder.path().join("target"))
        .env_remove("RUSTFLAGS")
        .output();
    let clippy = match clippy {
        Ok(output) if !String::from_utf8_lossy(&output.stderr).contains("no such command") => output,
        other if std::env::var_os("BOSUN_REQUIRE").is_some() => panic!("clippy is needed: {other:?}"),
        _ => return eprintln!("SKIPPED: there is no clippy here"),
    };
    let said = String::from_utf8_lossy(&clippy.stderr);
    assert!(clippy.status.success(), "{said}");
    for wrong in ["std::time::SystemTime::now", "std::thread::spawn", "std::env::var", "HashMap", "f64::powf"] {
        assert!(said.lines().any(|line| line.contains("disallowed") && line.contains(wrong)), "{wrong}\n{said}");
    }
    // A path that does not exist is told as a warning of the configuration itself.
    assert!(!said.contains("clippy.toml") && !said.contains("does not refer to"), "{said}");
    assert!(!said.contains("BTreeMap"), "{said}");
}
