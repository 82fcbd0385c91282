//! Mistakes that do not compile, and what the compiler says of each: `fixtures/mistakes`.
//!
//! Each program is checked with the engine that this test is linked with: `rustc` is asked directly, so nothing is built a
//! second time (a build of all dependencies costs 100 times as much as the programs). The texts hold for one compiler.
//! What does not count is taken out of them: line numbers, and where the workspace and the toolchain lie.

use std::path::{Path, PathBuf};
use std::process::Command;

use bosun_engine as _;

/// The compiler whose words these are; others say the same in other words.
const COMPILER: &str = "rustc 1.95.";
/// Set, the texts are written anew.
const OVERWRITE: &str = "BOSUN_OVERWRITE";

/// A compiler, and a library that it links with.
struct Compiler {
    library: PathBuf,
    dependencies: PathBuf,
    scratch: tempfile::TempDir,
}

impl Compiler {
    /// The newest library beside this test with which a correct program compiles.
    fn beside_this_test() -> Compiler {
        let dependencies = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let scratch = tempfile::tempdir().unwrap();
        let control = scratch.path().join("control.rs");
        std::fs::write(&control, CORRECT).unwrap();
        let mut libraries: Vec<PathBuf> = files_of(&dependencies, "rlib");
        libraries.retain(|file| file.file_name().unwrap().to_string_lossy().starts_with("libbosun_engine-"));
        libraries.sort_by_key(|file| std::cmp::Reverse(file.metadata().and_then(|meta| meta.modified()).ok()));
        let mut compiler = Compiler { library: PathBuf::new(), dependencies, scratch };
        let mut said = String::new();
        for library in libraries {
            compiler.library = library;
            match compiler.check(&control) {
                Ok(()) => return compiler,
                Err(why) => said = why,
            }
        }
        panic!("no library in {} compiles a correct program: {said}", compiler.dependencies.display());
    }

    /// What the compiler says, if it does not take the program.
    fn check(&self, program: &Path) -> Result<(), String> {
        let output = Command::new("rustc")
            .args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--color=never", "--diagnostic-width=140"])
            .arg("--out-dir")
            .arg(self.scratch.path())
            .arg("-L")
            .arg(format!("dependency={}", self.dependencies.display()))
            .arg("--extern")
            .arg(format!("bosun_engine={}", self.library.display()))
            .arg(program)
            // From here it does not find the engine's own lines, which change: it names the file alone.
            .current_dir(self.scratch.path())
            .output()
            .expect("rustc starts: the tests were compiled");
        match output.status.success() {
            true => Ok(()),
            false => Err(comparable(&String::from_utf8_lossy(&output.stderr))),
        }
    }
}

const CORRECT: &str = r#"
use bosun_engine::workflow::WfContext;
use bosun_engine::*;
const CHARGE: Activity<u64, String> = Activity::named("charge").start_to_close(std::time::Duration::from_secs(30));
pub async fn pay(ctx: WfContext, cents: u64) -> Result<String, Failure> {
    ctx.call(CHARGE, &cents).await
}
fn main() {}
"#;

fn files_of(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|why| panic!("{}: {why}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

/// What the compiler says, without what differs between machines and between versions of the engine's own files.
fn comparable(said: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_string_lossy().into_owned();
    let mut kept = String::new();
    for line in said.lines() {
        let end = ["error: aborting due to", "For more information about", "Some errors have detailed"];
        if end.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        kept.push_str(&without_place(line).replace(&root, "$WORKSPACE"));
        kept.push('\n');
    }
    kept.trim_end().to_owned() + "\n"
}

/// The line without its number at the left, or the line and column of a place in a file.
fn without_place(line: &str) -> String {
    let rest = line.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ' ');
    if let Some(place) = rest.strip_prefix("--> ").or_else(|| rest.strip_prefix("::: ")) {
        let file = place.split(':').next().unwrap_or(place);
        let file = match file.split_once("/library/") {
            Some((_, inside)) => format!("$RUST/{inside}"),
            None => file.to_owned(),
        };
        return format!(" --> {file}");
    }
    if let Some((before, others)) = line.split_once("and ")
        && others.ends_with(" others")
    {
        return format!("{before}and $N others");
    }
    match rest.starts_with(['|', '+', '-', '~', '=']) && !line.starts_with(rest) || rest == "|" {
        true => format!("  {rest}"),
        false => line.to_owned(),
    }
}

/// E04, E11, E13 to E15: names and types of references are checked where the program is compiled.
#[test]
fn mistakes_do_not_compile_and_the_compiler_says_what_is_wrong() {
    let version = Command::new("rustc").arg("--version").output().expect("the tests were compiled");
    if !String::from_utf8_lossy(&version.stdout).starts_with(COMPILER) {
        return eprintln!("not looked at: the texts are those of {COMPILER}");
    }
    let compiler = Compiler::beside_this_test();
    let programs = files_of(&Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fixtures/mistakes"), "rs");
    assert!(programs.len() >= 12, "there are {} programs", programs.len());
    let mut wrong = Vec::new();
    for program in programs {
        let (name, text) = (program.file_name().unwrap().to_string_lossy(), program.with_extension("stderr"));
        let Err(said) = compiler.check(&program) else {
            wrong.push(format!("{name} compiles"));
            continue;
        };
        if std::env::var_os(OVERWRITE).is_some() {
            std::fs::write(&text, &said).unwrap();
        }
        let expected = std::fs::read_to_string(&text).unwrap_or_default();
        if said != expected {
            wrong.push(format!("{name}: expected\n{expected}\nbut the compiler says\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
