//! The program of the guide's first steps: `cargo run -p bosun-worker --example first_steps -- worker run`.
//!
//! `worker/guide/first_steps.md` shows it from the first `use` on, and a test takes the steps of that page with it.

// guide
use std::process::ExitCode;
use std::time::Duration;

use bosun_engine::workflow::WfContext;
use bosun_engine::{Activity, ActivityContext, ActivityError, Failure, Query, Signal, Workflow};
use bosun_worker::App;

const BREW: Workflow<String, String> = Workflow::named("brew");
const BOIL: Activity<String, u32> = Activity::named("boil").start_to_close(Duration::from_secs(30));
const POUR: Signal<String> = Signal::named("pour");
const STAGE: Query<(), String> = Query::named("stage");

async fn brew(ctx: WfContext, tea: String) -> Result<String, Failure> {
    let stage = ctx.state("stage", "boiling".to_owned());
    let shown = stage.clone();
    ctx.on_query(STAGE, move |()| Ok(shown.get()));

    let degrees = ctx.call(BOIL, &tea).await?;
    stage.set("drawing".to_owned());
    ctx.timer(Duration::from_secs(3)).await?;
    stage.set("ready".to_owned());
    let cup = ctx.signal_channel(POUR).recv().await?;
    Ok(format!("{tea} tea of {degrees} degrees in a {cup}"))
}

async fn boil(_: ActivityContext, tea: String) -> Result<u32, ActivityError> {
    Ok(if tea == "green" { 70 } else { 95 })
}

fn main() -> ExitCode {
    App::new().about("Brews tea.").workflow(BREW, brew).activity(BOIL, boil).main()
}
