//! Tells the story of `harness::log_story` to a data directory and says each step that is durable, until it is killed or
//! its disk is gone: `log-story FROM --data DIR`. Dropping nothing at its end: the disk may be gone.

use std::path::PathBuf;
use std::process::ExitCode;

use bosun_tests::harness::log_story;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, _, dir] = words.as_slice() else {
        eprintln!("usage: log-story FROM --data DIR");
        return ExitCode::from(2);
    };
    let from = from.parse().expect("FROM is a number of steps");
    match log_story::tell(&PathBuf::from(dir), from, &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
