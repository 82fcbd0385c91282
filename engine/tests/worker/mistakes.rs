//! Mistakes that do not compile, and what the compiler says of each: `fixtures/mistakes`.

/// The compiler whose words these are; others say the same in other words.
const COMPILER: &str = "rustc 1.95.";

/// E04, E11, E13 to E15: names and types of references are checked where the program is compiled.
#[test]
fn mistakes_do_not_compile_and_the_compiler_says_what_is_wrong() {
    let version = std::process::Command::new("rustc").arg("--version").output().expect("the tests were compiled");
    if !String::from_utf8_lossy(&version.stdout).starts_with(COMPILER) {
        return eprintln!("not looked at: the texts are those of {COMPILER}");
    }
    let mistakes = trybuild::TestCases::new();
    mistakes.compile_fail("../fixtures/mistakes/*.rs");
}
