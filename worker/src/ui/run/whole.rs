//! What is done to a run as a whole, from its page or from a page of many.
//!
//! Invariant: what the command line and the API refuse is refused here: a schedule is ended on its own page.

use bosun_engine::Target;

use crate::api::people::{pause_run, release_run, resume_run};
use crate::api::problem::Problem;
use crate::backend::{Attribution, Backend};
use crate::own_work::may_be_ended;

/// What ends a run.
const ENDS: [&str; 2] = ["cancel", "terminate"];

/// What is done to a run as a whole.
pub(in crate::ui) async fn act_on(
    backend: &dyn Backend,
    target: Target,
    verb: &str,
    because: Attribution,
) -> Result<(), Problem> {
    if ENDS.contains(&verb) {
        may_be_ended(backend, &target).await?;
    }
    match verb {
        "pause" => Ok(pause_run(backend, target, because).await?),
        "resume" => Ok(resume_run(backend, target, because).await?),
        "release" => Ok(release_run(backend, target, because).await?),
        "cancel" => Ok(backend.cancel(target, because).await?),
        "terminate" => Ok(backend.terminate(target, because).await?),
        other => Err(Problem::bad_request(format!("nothing is called {other:?} here"))),
    }
}
