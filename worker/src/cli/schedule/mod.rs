//! `bosun schedule`: workflows that are started at the times of a spec.
//!
//! Invariant: these are a run's own updates and queries under handy names (`crate::schedule::messages`); what a schedule says
//! is checked here as well, so that what is wrong is told before a store is opened. `next` and `--dry-run` open none.

mod act;
mod show;
mod when;

use clap::{Args, Subcommand};

use super::context::{Context, PlanLoader};
use super::error::CliError;
use super::exit::Exit;
use super::output::Screen;
use act::{BackfillArgs, CreateScheduleArgs, UpdateScheduleArgs};
use show::{NextArgs, ScheduleListArgs};

#[derive(Debug, Subcommand)]
pub enum ScheduleVerb {
    /// Start a workflow, or a plan or supervisor from its file, at set times.
    Create(Box<CreateScheduleArgs>),
    /// List all schedules and when each starts next.
    #[command(visible_alias = "ls")]
    List(ScheduleListArgs),
    /// Show what a schedule starts and when, which runs are open, which wait, and which have ended.
    Describe(ScheduleId),
    /// Change a schedule from now on; options that you leave out stay as they are.
    Update(Box<UpdateScheduleArgs>),
    /// Pause a schedule; starts that fall due meanwhile are not made up for.
    Pause(NoteArgs),
    /// Resume a paused schedule.
    #[command(visible_alias = "resume")]
    Unpause(NoteArgs),
    /// Start one run now, even if the schedule is paused.
    Trigger(TriggerArgs),
    /// Start the runs of a range of times in the past, even if the schedule is paused.
    Backfill(BackfillArgs),
    /// Remove a schedule; the runs that it started go on.
    Delete(ScheduleId),
    /// Print the times of a spec; needs no schedule and no store.
    Next(NextArgs),
}

/// Names a schedule.
#[derive(Debug, Clone, Args)]
pub struct ScheduleId {
    /// The id of the schedule.
    #[arg(value_name = "ID")]
    pub id: String,
}

#[derive(Debug, Args)]
pub struct NoteArgs {
    #[command(flatten)]
    pub schedule: ScheduleId,
    /// Why; shown with the schedule.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: String,
}

#[derive(Debug, Args)]
pub struct TriggerArgs {
    #[command(flatten)]
    pub schedule: ScheduleId,
    /// What to do when runs of it are open [default: the schedule's].
    #[arg(long, value_enum, value_name = "POLICY")]
    pub overlap: Option<when::OverlapChoice>,
}

impl ScheduleVerb {
    pub(super) fn only_looks(&self) -> bool {
        matches!(self, ScheduleVerb::List(_) | ScheduleVerb::Describe(_))
    }
    pub(super) fn makes_a_run(&self) -> bool {
        matches!(self, ScheduleVerb::Create(_))
    }

    /// Does what needs no engine, and gives the rest back. What cannot be is refused before a store is made for it.
    pub(super) fn without_an_engine(
        self,
        screen: &mut Screen,
        plans: Option<PlanLoader>,
    ) -> Result<Result<Exit, CliError>, ScheduleVerb> {
        match self {
            ScheduleVerb::Next(args) => Ok(show::next(screen, &args)),
            ScheduleVerb::Create(args) => match act::new_schedule(plans, &args) {
                Err(why) => Ok(Err(why)),
                Ok(schedule) if args.dry_run => Ok(show::preview(screen, &args.id, &schedule)),
                Ok(_) => Err(ScheduleVerb::Create(args)),
            },
            more => Err(more),
        }
    }
}

pub(super) async fn schedule(cx: &mut Context, verb: ScheduleVerb) -> Result<Exit, CliError> {
    match verb {
        ScheduleVerb::Create(args) => act::create(cx, *args).await,
        ScheduleVerb::List(args) => show::list(cx, args).await,
        ScheduleVerb::Describe(args) => show::describe(cx, &args.id).await,
        ScheduleVerb::Update(args) => act::update(cx, *args).await,
        ScheduleVerb::Pause(args) => act::note(cx, "pause", args).await,
        ScheduleVerb::Unpause(args) => act::note(cx, "unpause", args).await,
        ScheduleVerb::Trigger(args) => act::trigger(cx, args).await,
        ScheduleVerb::Backfill(args) => act::backfill(cx, args).await,
        ScheduleVerb::Delete(args) => act::delete(cx, &args.id).await,
        // Taken before an engine is opened.
        ScheduleVerb::Next(_) => Err(CliError::usage("this verb runs without an engine")),
    }
}
