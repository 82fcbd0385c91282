//! `bosun` as it ships, built with the seeded bugs in it: `BOSUN_SEEDED_BUG` chooses one. For the tests of the checks
//! that watch a worker process from outside; it is an example, so that nothing that ships has the feature.

use std::process::ExitCode;

fn main() -> ExitCode {
    bosun_worker::App::new().with_supervisors().main()
}
