//! A program of its own, as somebody writes it who has workflows and no supervisors: for the tests of what it shows of
//! itself, and of what it does with runs that its code does not fit. `OWN_PROGRAM` is the version of its code: with 1 it
//! panics, with 2 it does not, with 3 it asks for other things than 2.

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use bosun_engine::log::{CodecError, PayloadCodec, PayloadPlace};
use bosun_engine::workflow::WfContext;
use bosun_engine::*;
use bosun_worker::App;

/// What the kitchen has at hand.
struct Kettle(Mutex<u32>);

/// Says what it sees.
struct Watchful;

impl Interceptor for Watchful {
    fn activity(&self, task: &ActivityTask, next: ActivityFuture) -> ActivityFuture {
        eprintln!("watched {} of {}", task.activity_type, task.workflow_id);
        next
    }
}

/// Turns bytes around, so that nobody reads them at a glance.
#[derive(Debug)]
struct Turned;

impl PayloadCodec for Turned {
    fn encoding(&self) -> &'static str {
        "turned"
    }
    fn encode(&self, _: PayloadPlace, payload: &Payload) -> Result<Option<Payload>, CodecError> {
        let data: Vec<u8> = payload.encoding.bytes().chain([0]).chain(payload.data.iter().copied()).rev().collect();
        Ok(Some(Payload { encoding: "turned".into(), data: data.into() }))
    }
    fn decode(&self, _: PayloadPlace, payload: &Payload) -> Result<Payload, CodecError> {
        let data: Vec<u8> = payload.data.iter().copied().rev().collect();
        let (encoding, data) = match data.iter().position(|byte| *byte == 0) {
            Some(end) => (String::from_utf8_lossy(&data[..end]).into_owned(), data[end + 1..].to_vec()),
            None => ("bytes".to_owned(), data),
        };
        Ok(Payload { encoding: encoding.into(), data: data.into() })
    }
}

fn main() -> ExitCode {
    let version = std::env::var("OWN_PROGRAM").unwrap_or_else(|_| "2".to_owned());
    let (broken, other) = (version == "1", version == "3");
    App::new()
        .version(&version)
        .about("Brews what is ordered.")
        .program_version("7.1")
        .hide(["agent", "plan", "budget", "llm", "demo", "takeover", "release"])
        .state(Kettle(Mutex::new(0)))
        .interceptor(Watchful)
        .codec(Turned)
        .options(|options| options.limits.payload_max = 1_000)
        .workflow("order", move |cx: WfContext, what: String| async move {
            if other {
                cx.timer(Duration::from_secs(3_600)).await?;
            }
            cx.signal_channel::<()>("go").recv().await?;
            assert!(!broken, "no water");
            cx.activity::<String>("brew", &what, ActivityOptions::start_to_close(Duration::from_secs(60))).await
        })
        .activity("brew", |cx: ActivityContext, what: String| async move {
            let kettle = cx.state::<Kettle>()?;
            let mut cups = kettle.0.lock().unwrap();
            *cups += 1;
            // Any error will do.
            let number: u32 = cups.to_string().parse()?;
            Ok(format!("{what}, cup {number}"))
        })
        .main()
}
