//! Bugs of handlers: a validator or a query that changes what it looks at.

use std::cell::Cell;
use std::rc::Rc;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::{Failure, Query, Update};

use super::{caught, caught_naming, kit, quick};

const HERE: (&str, &str) = ("messages.rs", include_str!("messages.rs"));
const ADD: Update<u32, u32> = Update::named("add");
const PEEK: Query<(), u32> = Query::named("peek");

/// A validator writes a cell of the workflow: every update is refused.
async fn validator_writes(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let total = ctx.state("total", n);
    let seen = total.clone();
    let validator = move |x: &u32| {
        seen.write(|total| *total += x); // validator writes
        Ok(())
    };
    ctx.on_update(ADD, validator, |_, x| async move { Ok(x) });
    ctx.signal_channel::<u32>("go").recv().await?;
    ctx.activity("work", &total.get(), quick()).await
}

#[test]
fn a_validator_that_writes_a_cell_is_caught_at_the_line() {
    let code = WorkflowRegistry::new().workflow("bug", validator_writes);
    let failed = caught_naming(kit(code).updates(ADD, 0..9_u32), &["validator-mutates"], HERE, "validator writes");
    assert!(
        failed.to_string().contains("the validator of update add changed the workflow: the state total"),
        "{failed}"
    );
}

/// A query counts, behind the back of the engine.
async fn query_counts(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let asked = Rc::new(Cell::new(n));
    let counts = asked.clone();
    ctx.on_query(PEEK, move |()| {
        counts.set(counts.get() + 1);
        Ok(0)
    });
    ctx.signal_channel::<u32>("go").recv().await?;
    ctx.activity("work", &asked.get(), quick()).await
}

#[test]
fn a_query_that_changes_something_is_named_as_the_cause() {
    let failed = caught(kit(WorkflowRegistry::new().workflow("bug", query_counts)).queries(PEEK, &()));
    assert!(failed.to_string().contains("hint: the life needs the query"), "{failed}");
    // No code has changed, so that no patch would help.
    assert!(!failed.to_string().contains("guard the change"), "{failed}");
    assert!(failed.to_string().contains("help: the code did not change"), "{failed}");
}
