//! `init`: a new project that runs at once: a supervisor in YAML with its test, or a Rust program with a workflow.
//!
//! Invariant: it writes new files only. If one of them is there already, nothing is written. What it writes needs no key, no
//! server and no network, except for the crates that a Rust program is built from.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::list::shell_word;
use super::output::Screen;

const SUPERVISOR: &str = include_str!("init/supervisor.yaml");
const SCENE: &str = include_str!("init/first.scene.yaml");
const CONFIG: &str = include_str!("init/bosun.toml");
const PROGRAM: &str = include_str!("../../examples/first_steps.rs");
/// What is data, and what is made from the rest.
const IGNORED: &str = "/.bosun\n";
const IGNORED_OF_RUST: &str = "/.bosun\n/target\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Starter {
    /// A supervisor in YAML, and a scene that tests it.
    Spec,
    /// A program with a workflow and an activity, built with cargo.
    Rust,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// Where to put the project; the directory is created if it does not exist.
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// What kind of project to create.
    #[arg(long, value_enum, default_value = "spec")]
    template: Starter,
}

pub(super) fn init(screen: &mut Screen, args: &InitArgs) -> Result<Exit, CliError> {
    let failed = |path: &Path, why: std::io::Error| {
        CliError::new(Code::Failed, format!("{} cannot be written", path.display())).cause(why)
    };
    let dir = std::path::absolute(&args.dir).map_err(|why| failed(&args.dir, why))?;
    let name = name_of(&dir);
    let files = files(args.template, &name);
    // Looked at before the first one is written: half a project is worse than none.
    if let Some((there, _)) = files.iter().find(|(file, _)| dir.join(file).symlink_metadata().is_ok()) {
        return Err(CliError::usage(format!("{} is there already; nothing was written", dir.join(there).display()))
            .help("name a directory of its own: `bosun init DIR`"));
    }
    let mut made = Vec::new();
    for (file, text) in &files {
        let path = dir.join(file);
        if let Err(why) = put(&path, text, &mut made) {
            // A full disk must not leave what the next try would find.
            made.iter().rev().for_each(|path| {
                std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path)).ok();
            });
            return Err(failed(&path, why));
        }
    }
    let written: Vec<PathBuf> = files.iter().map(|(file, _)| dir.join(file)).collect();
    written.iter().for_each(|path| screen.line(path.display().to_string()));
    screen.object("init", json!({ "dir": dir, "files": written }));
    let there = if args.dir == Path::new(".") {
        String::new()
    } else {
        format!("cd {} && ", shell_word(&args.dir.to_string_lossy()))
    };
    match args.template {
        Starter::Spec => screen.line(format!("next: {there}bosun run supervisor.yaml")),
        Starter::Rust => screen.line(format!("next: {there}cargo run -- worker run")),
    }
    Ok(Exit::Ok)
}

/// Writes a file and notes what came to be on the way.
fn put(path: &Path, text: &str, made: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|parent| !parent.exists()).collect();
    for parent in missing.into_iter().rev() {
        std::fs::create_dir(parent)?;
        made.push(parent.to_owned());
    }
    let mut file = std::fs::File::create_new(path)?;
    made.push(path.to_owned());
    std::io::Write::write_all(&mut file, text.as_bytes())
}

fn files(template: Starter, name: &str) -> Vec<(&'static str, String)> {
    match template {
        Starter::Spec => vec![
            ("supervisor.yaml", SUPERVISOR.replace("NAME", name)),
            ("first.scene.yaml", SCENE.to_owned()),
            ("bosun.toml", CONFIG.to_owned()),
            (".gitignore", IGNORED.to_owned()),
        ],
        Starter::Rust => vec![
            ("Cargo.toml", manifest(name)),
            // The example's head is about the example.
            ("src/main.rs", PROGRAM.split_once("// guide\n").map_or(PROGRAM, |(_, program)| program).to_owned()),
            ("bosun.toml", CONFIG.to_owned()),
            (".gitignore", IGNORED_OF_RUST.to_owned()),
        ],
    }
}

/// In a checkout of Bosun the crates are that checkout's; else they are the published ones.
fn manifest(name: &str) -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let from = |folder: &str, name: &str| match crates.parent().map(|checkout| checkout.join(folder)) {
        Some(path) if path.join("Cargo.toml").exists() => {
            format!("{name} = {{ path = {:?} }}", path.display().to_string())
        }
        _ => format!("{name} = \"{}\"", super::VERSION),
    };
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{}\n{}\n",
        from("engine", "bosun-engine"),
        from("worker", "bosun-worker")
    )
}

/// What cargo takes for no package, or is a crate that the program depends on.
const TAKEN: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "bosun-engine",
    "bosun-worker",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// A name that cargo and a spec take: the folder's, in small letters.
fn name_of(dir: &Path) -> String {
    let folder = dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().to_lowercase());
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = folder.chars().map(plain).collect();
    let name = name.trim_matches('-').to_owned();
    match name.chars().next() {
        Some(first) if first.is_ascii_alphabetic() && !TAKEN.contains(&name.as_str()) => name,
        Some(_) => format!("my-{name}"),
        None => "my-project".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_a_name_that_cargo_takes() {
        let names = [
            ("/a/true", "my-true"),
            ("/a/Tea Time", "tea-time"),
            ("/a/2026", "my-2026"),
            ("/", "my-project"),
            ("/a/_x_", "x"),
        ];
        for (folder, name) in names {
            assert_eq!(name_of(Path::new(folder)), name);
        }
    }

    #[test]
    fn nothing_is_overwritten_and_nothing_is_half_written() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("new");
        let args = |template| InitArgs { dir: dir.clone(), template };
        let (mut screen, output) = Screen::captured();
        init(&mut screen, &args(Starter::Spec)).unwrap();
        assert!(output.stdout().contains("bosun run supervisor.yaml"), "{}", output.stdout());
        let before = std::fs::read(dir.join("bosun.toml")).unwrap();
        let refused = init(&mut screen, &args(Starter::Rust)).unwrap_err();
        assert!(refused.message.contains("bosun.toml is there already"), "{}", refused.message);
        assert_eq!(std::fs::read(dir.join("bosun.toml")).unwrap(), before);
        assert!(!dir.join("Cargo.toml").exists());
    }
}
