//! Bugs 1 to 5, 8, 15 to 17: the code asks something of the machine it runs on.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::{ActivityOptions, Failure, HistoryBuilder, Payload};
use bosun_replay::determinism::ForbiddenCall;
use bosun_replay::{History, Prefixes, Verdict};

use super::{caught_by_effect, caught_calling, caught_naming, kit, quick};

const HERE: &str = "surroundings.rs";

fn code<F>(bug: impl Fn(WfContext, u32) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    F: Future<Output = Result<u32, Failure>> + 'static,
{
    WorkflowRegistry::new().workflow("bug", bug)
}

async fn work(ctx: &WfContext, input: u32) -> Result<u32, Failure> {
    ctx.activity("work", &input, quick()).await
}

/// 1: iterates a HashMap to schedule activities.
async fn hash_map(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let items: HashMap<u32, u32> = (0..6).map(|i| (i, i + n)).collect(); // bug 1
    let mut sum = 0_u32;
    for item in items.values() {
        sum = sum.wrapping_add(work(&ctx, *item).await?);
    }
    Ok(sum)
}

const BY_ORDER: &[&str] = &["replay-mismatch", "unstable-commands"];
const SOURCE: (&str, &str) = (HERE, include_str!("surroundings.rs"));

#[test]
fn bug_01_a_hash_map_is_caught_by_its_order_and_suspected_where_it_is_made() {
    caught_naming(kit(code(hash_map)), BY_ORDER, SOURCE, "bug 1");
    caught_by_effect(kit(code(hash_map)).allow(ForbiddenCall::HashSeed), BY_ORDER);
}

/// 2: a HashSet becomes a list becomes the input of an activity.
async fn hash_set(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let set: HashSet<u32> = (n..n + 8).collect(); // bug 2
    let list: Vec<u32> = set.into_iter().collect();
    ctx.activity("work", &list, quick()).await
}

#[test]
fn bug_02_a_hash_set_in_an_input_is_caught_by_the_hash_of_the_input() {
    caught_naming(kit(code(hash_set)), BY_ORDER, SOURCE, "bug 2");
    let test = kit(code(hash_set)).allow(ForbiddenCall::HashSeed);
    caught_by_effect(test, &["replay-mismatch", "unstable-commands"]);
}

/// 3: branches on the wall clock.
async fn wall_clock(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if (now.as_secs() / 3_000_000).is_multiple_of(2) { work(&ctx, n).await } else { work(&ctx, n + 1).await }
}

#[test]
fn bug_03_the_wall_clock_is_caught_at_the_call() {
    caught_calling(kit(code(wall_clock)), ForbiddenCall::Clock, HERE);
}

#[test]
fn bug_03_the_wall_clock_is_caught_by_a_twin_whose_clock_goes_wrong() {
    caught_by_effect(
        kit(code(wall_clock)).allow(ForbiddenCall::Clock).twins(4),
        &["replay-mismatch", "unstable-commands"],
    );
}

/// 54: branches on the time of libc, as code in C and its bindings ask for it.
#[expect(unsafe_code, reason = "what such bindings do")]
async fn libc_time(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    unsafe extern "C" {
        fn time(into: *mut std::ffi::c_long) -> std::ffi::c_long;
    }
    // SAFETY: libc writes to no place that is null.
    let now = unsafe { time(std::ptr::null_mut()) };
    if now % 2 == 0 { work(&ctx, n).await } else { work(&ctx, n + 1).await }
}

#[test]
fn bug_54_the_time_of_libc_is_caught_at_the_call() {
    caught_calling(kit(code(libc_time)), ForbiddenCall::Clock, HERE);
}

/// 4: measures a timeout with `Instant`.
async fn elapsed(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let begun = Instant::now();
    let done = work(&ctx, n).await?;
    if begun.elapsed() > Duration::from_secs(5) { Err(Failure::application("Late", "too late")) } else { Ok(done) }
}

#[test]
fn bug_04_an_instant_is_caught_at_the_call() {
    caught_calling(kit(code(elapsed)), ForbiddenCall::Clock, HERE);
}

/// 5: a random id.
async fn random_id(ctx: WfContext, _: u32) -> Result<u32, Failure> {
    let id = uuid::Uuid::new_v4().to_string();
    ctx.activity("work", &id, quick()).await
}

#[test]
fn bug_05_a_random_id_is_caught_at_the_call_and_by_the_hash_of_the_input() {
    caught_calling(kit(code(random_id)), ForbiddenCall::Random, HERE);
    caught_by_effect(kit(code(random_id)).allow(ForbiddenCall::Random), &["replay-mismatch"]);
}

/// 8: does the work on a thread of its own.
async fn thread(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let (send, receive) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || send.send(n + 1));
    let next = receive.recv().unwrap_or_default();
    drop(worker.join());
    work(&ctx, next).await
}

#[test]
fn bug_08_a_thread_is_caught_when_it_is_made() {
    caught_calling(kit(code(thread)), ForbiddenCall::Thread, HERE);
}

/// 15: branches on a variable of the environment.
async fn environment(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    if std::env::var("BOSUN_NEW_CODE").is_ok() { work(&ctx, n + 1).await } else { work(&ctx, n).await }
}

#[test]
fn bug_15_the_environment_is_caught_at_the_call() {
    caught_calling(kit(code(environment)), ForbiddenCall::Environment, HERE);
}

/// 15: branches on the build profile; a history of the other profile is what this one would never make.
async fn profile(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    work(&ctx, if cfg!(debug_assertions) { n + 1 } else { n }).await
}

/// Nothing is called that a wire could catch, and twins have the same profile: it takes a history of the other one, as the
/// corpus of fixtures/histories is replayed in both.
#[test]
fn bug_15_the_build_profile_is_caught_by_a_history_of_the_other_profile() {
    kit(code(profile)).run();
    let recorded = |input: u32| {
        let mut told = HistoryBuilder::started("bug", "bug-1", Payload::encode(&1_u32).unwrap());
        let work = told.activity_scheduled_with("work", Payload::encode(&input).unwrap(), quick());
        told.activity_started(work, 1);
        told.activity_completed(work, Payload::encode(&3_u32).unwrap());
        told.completed(Payload::encode(&3_u32).unwrap());
        let history = History::new(told.turns()).unwrap();
        bosun_replay::replay_history(&code(profile), &history, Prefixes::All)
    };
    let (debug, release) = (recorded(2), recorded(1));
    let (own, other) = if cfg!(debug_assertions) { (debug, release) } else { (release, debug) };
    assert!(own.is_ok(), "{own}");
    let Verdict::NonDeterministic(card) = other.verdict else { panic!("not caught: {other}") };
    assert!(card.location.as_ref().is_some_and(|place| place.file.contains(HERE)), "{card}");
}

/// 16: branches on a file: what is in it, whether it is there; opens a socket.
async fn file(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let beta = std::fs::read_to_string("/etc/hostname").is_ok_and(|name| name.starts_with("beta"));
    work(&ctx, if beta { n + 1 } else { n }).await
}

async fn exists(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    work(&ctx, if std::path::Path::new("/etc/bosun-beta").exists() { n + 1 } else { n }).await
}

async fn socket(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let there = std::net::TcpListener::bind("127.0.0.1:0").is_ok();
    work(&ctx, n + u32::from(there)).await
}

/// 16: branches on the host, as crates for its name ask libc.
#[expect(unsafe_code, reason = "what such crates do")]
async fn host(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    unsafe extern "C" {
        fn gethostname(name: *mut std::ffi::c_char, length: usize) -> std::ffi::c_int;
    }
    let mut name = [0_u8; 64];
    // SAFETY: libc writes at most as many bytes as the array has.
    let beta = unsafe { gethostname(name.as_mut_ptr().cast(), 64) } == 0 && name.starts_with(b"beta");
    work(&ctx, if beta { n + 1 } else { n }).await
}

/// 16: the same from the kernel's own description.
#[expect(unsafe_code, reason = "what such crates do")]
async fn system(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    unsafe extern "C" {
        fn uname(into: *mut std::ffi::c_void) -> std::ffi::c_int;
    }
    let mut names = [0_u8; 65 * 6];
    // SAFETY: `struct utsname` of Linux is six texts of 65 bytes.
    let beta = unsafe { uname(names.as_mut_ptr().cast()) } == 0 && names[65..].starts_with(b"beta");
    work(&ctx, if beta { n + 1 } else { n }).await
}

/// 16: asks a command.
async fn command(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let beta = std::process::Command::new("uname").output().is_ok_and(|said| said.stdout.starts_with(b"beta"));
    work(&ctx, if beta { n + 1 } else { n }).await
}

#[test]
fn bug_16_the_host_is_caught_when_it_is_asked_for() {
    caught_calling(kit(code(host)), ForbiddenCall::Host, HERE);
    caught_calling(kit(code(system)), ForbiddenCall::Host, HERE);
    // On its way to the command std looks for places and makes pipes.
    let failed = super::caught(kit(code(command)));
    assert_eq!(failed.kind(), "forbidden-call", "{failed}");
}

#[test]
fn bug_16_a_file_or_a_socket_is_caught_when_it_is_opened() {
    caught_calling(kit(code(file)), ForbiddenCall::File, HERE);
    caught_calling(kit(code(exists)), ForbiddenCall::File, HERE);
    caught_calling(kit(code(socket)), ForbiddenCall::Socket, HERE);
}

/// 17: a float whose last digits depend on the machine becomes a key.
async fn float(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let key = format!("{:?}", f64::from(n + 2).powf(0.3));
    ctx.activity("work", &key, ActivityOptions { summary: Some(key.clone()), ..quick() }).await
}

#[test]
fn bug_17_a_float_that_differs_between_machines_is_caught_at_the_call() {
    caught_calling(kit(code(float)), ForbiddenCall::FloatMath, HERE);
}
