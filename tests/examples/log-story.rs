//! Tells the story of `harness::log_story` to a data directory and says each step that is durable, until it is killed, its
//! disk is gone, or it has told all steps it was asked for, behind which it waits: `log-story FROM UNTIL --data DIR`.

use std::path::PathBuf;
use std::process::ExitCode;

use bosun_tests::harness::log_story;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, until, _, dir] = words.as_slice() else {
        eprintln!("usage: log-story FROM UNTIL --data DIR");
        return ExitCode::from(2);
    };
    let steps = |word: &str| word.parse().expect("FROM and UNTIL are numbers of steps");
    match log_story::tell(&PathBuf::from(dir), steps(from), steps(until), &mut std::io::stdout()) {
        Ok(()) => loop {
            std::thread::park();
        },
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
