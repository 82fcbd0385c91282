//! The stock `bosun` binary: the command line with what ships in the box.

use std::process::ExitCode;

fn main() -> ExitCode {
    bosun_worker::App::new().with_supervisors().main()
}
