//! The five programs of `engine/examples` with the whole command line around them, each under its name:
//! `cargo run -p bosun-worker --example programs -- payment_saga execute pay -i '{"id": "book", "cents": 1900}'`.
//!
//! The code is that of the engine's examples, in both forms; `replay/tests/kit/programs.rs` has the determinism test of each. What
//! a program needs to have a command line is here: its workflows, its activities, and a name.

use std::ffi::OsString;
use std::process::ExitCode;

use bosun_engine::ActivityRegistry;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_worker::App;

macro_rules! examples {
    ($($name:ident = $path:literal;)*) => {$(
        #[path = $path]
        #[expect(dead_code, unreachable_pub, reason = "it is a program of its own, with a `main` of its own")]
        mod $name;
    )*};
}

examples! {
    account = "../../engine/examples/account.rs";
    approval = "../../engine/examples/approval.rs";
    fan_out = "../../engine/examples/fan_out.rs";
    payment_saga = "../../engine/examples/payment_saga.rs";
    subscription = "../../engine/examples/subscription.rs";
}

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let name = if args.len() > 1 { args.remove(1) } else { OsString::new() };
    let (about, workflows, activities) = match name.to_str() {
        Some("account") => ("An account with thousands of entries.", account::workflows(), ActivityRegistry::new()),
        Some("approval") => ("An approval with a deadline.", approval::workflows(), approval::activities()),
        Some("fan_out") => ("Many images, few at once.", fan_out::workflows(), fan_out::activities()),
        Some("payment_saga") => {
            ("A payment that is undone when it fails.", payment_saga::workflows(), payment_saga::activities())
        }
        Some("subscription") => ("A subscription of a year.", subscription::workflows(), subscription::activities()),
        _ => {
            eprintln!("name a program: account, approval, fan_out, payment_saga or subscription");
            return ExitCode::from(2);
        }
    };
    program(workflows, activities).about(about).name(format!("programs {}", name.display())).run(args).into()
}

fn program(workflows: WorkflowRegistry, activities: ActivityRegistry) -> App {
    App::new()
        .workflows(|_| workflows)
        .activities(|registered| *registered = activities)
        .version(env!("CARGO_PKG_VERSION"))
        .hide(["agent", "plan", "budget", "llm", "demo", "takeover", "release", "cost"])
}
