//! Two hundred images, at most twenty resized at a time: as an async function and as a state machine.
//!
//! `cargo run -p bosun-engine --example fan_out`. The first image that cannot be resized fails the run: no cleanup is
//! needed here.

use std::collections::VecDeque;
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, for_each_bounded};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

pub const GALLERY: Workflow<Vec<String>, u64> = Workflow::named("gallery");
pub const RESIZE: Activity<String, u64> = Activity::named("resize").start_to_close(Duration::from_secs(60));

/// How many images are resized at a time.
pub const AT_ONCE: usize = 20;

// workflow: async
pub async fn gallery(ctx: WfContext, images: Vec<String>) -> Result<u64, Failure> {
    let sizes = for_each_bounded(AT_ONCE, images, |image| ctx.call(RESIZE, &image)).await;
    sizes.into_iter().sum()
}
// end

// workflow: machine
#[derive(Serialize, Deserialize)]
pub struct Gallery {
    waiting: VecDeque<String>,
    running: usize,
    bytes: u64,
}

impl StateMachine for Gallery {
    const TYPE: &'static str = "gallery-machine";
    type Input = Vec<String>;
    type Output = u64;

    fn start(images: Vec<String>, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let mut gallery = Gallery { waiting: images.into(), running: 0, bytes: 0 };
        gallery.go_on(cx);
        Ok(gallery)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { result, .. } => self.bytes += RESIZE.result(result)?,
            WorkflowEvent::CancelRequested { reason } => return Err(Failure::canceled(reason)),
            _ => return Ok(()),
        }
        self.running -= 1;
        self.go_on(cx);
        Ok(())
    }
}

impl Gallery {
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        while self.running < AT_ONCE
            && let Some(image) = self.waiting.pop_front()
        {
            cx.call(RESIZE, &image);
            self.running += 1;
        }
        if self.running == 0 {
            cx.complete(&self.bytes);
        }
    }
}
// end

pub fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow(GALLERY, gallery).state_machine::<Gallery>()
}

pub fn activities() -> ActivityRegistry {
    let mut activities = ActivityRegistry::new();
    activities.register(RESIZE, |_, image| async move { Ok(image.len() as u64) });
    activities
}

pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let environment = TestEnvironment::start(workflows(), activities())?;
    let client = environment.client();
    let images: Vec<String> = (0..200).map(|n| format!("{n:03}.jpg")).collect();
    let function = client.start_workflow(GALLERY, "gallery", &images).await?.result().await?;
    let machine = client.start_workflow(Gallery::WORKFLOW, "gallery-machine", &images).await?.result().await?;
    println!("200 images: {function} bytes, {machine} bytes");
    assert_eq!((function, machine), (1_400, 1_400));
    for name in ["gallery", "gallery-machine"] {
        let history = client.history(&Target::workflow(name.parse()?), EventId(1), 2_000).await?;
        assert_eq!(most_at_once(&history), AT_ONCE, "{name}");
    }
    Ok(())
}

/// How many images were being resized at once, at most.
fn most_at_once(history: &[Event]) -> usize {
    let (mut running, mut most) = (0_usize, 0);
    for event in history {
        match &event.kind {
            EventKind::ActivityTaskScheduled(_) => running += 1,
            EventKind::ActivityTaskCompleted { .. } => running -= 1,
            _ => {}
        }
        most = most.max(running);
    }
    most
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Runtime::new()?.block_on(run())
}
