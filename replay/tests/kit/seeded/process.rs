//! Bugs 25 to 41: the code asks its process, its thread or its build of the registry for something that another process
//! has otherwise.
//!
//! Invariant: each is found without a call being forbidden, by the twin in another process or on another thread; where the
//! call itself can be noticed, that is tested beside it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::SystemTime;

use bosun_engine::Failure;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_replay::determinism::ForbiddenCall;

use super::{caught_calling, caught_naming, kit, quick};

const HERE: (&str, &str) = ("process.rs", include_str!("process.rs"));
const ELSEWHERE: &[&str] = &["other-process"];
const ON_ANOTHER_THREAD: &[&str] = &["replay-mismatch", "unstable-commands"];

fn code<F>(bug: impl Fn(WfContext, u32) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    F: Future<Output = Result<u32, Failure>> + 'static,
{
    WorkflowRegistry::new().workflow("bug", bug)
}

/// 25: the process as a part of a key.
async fn pid(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let key = format!("{}-{n}", std::process::id());
    ctx.activity("work", &key, quick()).await // bug 25
}

#[test]
fn bug_25_a_pid_is_caught_at_the_call_and_in_another_process() {
    caught_calling(kit(code(pid)), ForbiddenCall::Process, HERE.0);
    caught_naming(kit(code(pid)).allow(ForbiddenCall::Process), ELSEWHERE, HERE, "bug 25");
}

/// 26: a flag of the command line.
async fn arguments(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let flags: Vec<String> = std::env::args().skip(1).filter(|flag| flag.starts_with("--")).collect();
    ctx.activity("work", &(n, flags), quick()).await // bug 26
}

#[test]
fn bug_26_arguments_are_caught_in_another_process() {
    caught_naming(kit(code(arguments)), ELSEWHERE, HERE, "bug 26");
}

/// 27: the directory in which the worker was started.
async fn directory(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let here = std::env::current_dir().map_err(|why| Failure::application("Here", why.to_string()))?;
    ctx.activity("work", &(here, n), quick()).await // bug 27
}

#[test]
fn bug_27_the_directory_is_caught_at_the_call_and_in_another_process() {
    caught_calling(kit(code(directory)), ForbiddenCall::Host, HERE.0);
    caught_naming(kit(code(directory)).allow(ForbiddenCall::Host), ELSEWHERE, HERE, "bug 27");
}

/// 28: the locale, read when the workflow is registered, so that no call is made in the run.
fn localized() -> WorkflowRegistry {
    let language = std::env::var("LANG").unwrap_or_default();
    code(move |ctx, n| {
        let turkish = language.starts_with("tr");
        async move {
            if turkish {
                ctx.activity::<u32>("more", &n, quick()).await?; // bug 28
            }
            ctx.activity("work", &n, quick()).await // bug 28
        }
    })
}

#[test]
fn bug_28_a_locale_that_was_read_before_the_run_is_caught_in_another_process() {
    caught_naming(kit(localized()), ELSEWHERE, HERE, "bug 28");
}

/// 29: the hour of the day where the worker stands, of a time that the workflow gives.
#[expect(unsafe_code, reason = "what crates for local time do")]
async fn local_hour(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    unsafe extern "C" {
        fn localtime_r(time: *const i64, into: *mut [i32; 16]) -> *mut [i32; 16];
    }
    let (seconds, mut parts) = (ctx.now().as_micros() / 1_000_000, [0_i32; 16]);
    // SAFETY: `struct tm` of Linux has 56 bytes, and the array has 64.
    unsafe { localtime_r(&raw const seconds, &raw mut parts) };
    ctx.activity("work", &(n, parts[2], parts[1]), quick()).await // bug 29
}

#[test]
fn bug_29_local_time_is_caught_at_the_call_and_in_another_time_zone() {
    caught_calling(kit(code(local_hour)), ForbiddenCall::Host, HERE.0);
    caught_naming(kit(code(local_hour)).allow(ForbiddenCall::Host), ELSEWHERE, HERE, "bug 29");
}

/// 30: the name of the thread.
async fn thread_name(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let name = std::thread::current().name().unwrap_or("nobody").to_owned();
    ctx.activity("work", &(name, n), quick()).await // bug 30
}

#[test]
fn bug_30_a_thread_name_is_caught_by_a_twin_whose_thread_has_another() {
    caught_naming(kit(code(thread_name)), ON_ANOTHER_THREAD, HERE, "bug 30");
}

/// 31: the id of the thread decides.
async fn thread_id(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let id = format!("{:?}", std::thread::current().id());
    ctx.activity("work", &(id, n), quick()).await // bug 31
}

#[test]
fn bug_31_a_thread_id_is_caught_by_a_twin_on_another_thread() {
    caught_naming(kit(code(thread_id)), ON_ANOTHER_THREAD, HERE, "bug 31");
}

/// 32: looks whether there is a runtime: there is none in production, and one in an async test that replays.
async fn ambient(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    if tokio::runtime::Handle::try_current().is_ok() {
        return ctx.activity("more", &n, quick()).await; // bug 32
    }
    ctx.activity("work", &n, quick()).await // bug 32
}

#[test]
fn bug_32_looking_for_a_runtime_is_caught_by_a_twin_that_has_one() {
    caught_naming(kit(code(ambient)), ON_ANOTHER_THREAD, HERE, "bug 32");
}

/// 33: the address of a static; it is the same as long as the process lives.
async fn address_of_a_static(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static TABLE: [u32; 4] = [1, 2, 3, 4];
    let key = TABLE.as_ptr() as usize >> 12;
    ctx.activity("work", &(key, n), quick()).await // bug 33
}

#[test]
fn bug_33_an_address_of_a_static_is_caught_in_another_process() {
    caught_naming(kit(code(address_of_a_static)), ELSEWHERE, HERE, "bug 33");
}

/// 34: the address of a function as an id of it.
async fn address_of_code(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let id = localized as fn() -> WorkflowRegistry as usize;
    ctx.activity("work", &(id, n), quick()).await // bug 34
}

#[test]
fn bug_34_an_address_of_code_is_caught_in_another_process() {
    caught_naming(kit(code(address_of_code)), ELSEWHERE, HERE, "bug 34");
}

/// 35: a map that was made once, outside of every run: its order is the same until the process ends.
async fn map_outside(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static PRICES: LazyLock<HashMap<&str, u32>> =
        LazyLock::new(|| ["tea", "rum", "oil", "rye", "fig", "nut", "yam"].into_iter().zip(1..).collect());
    let mut sum = n;
    for (name, price) in PRICES.iter() {
        sum += price;
        ctx.activity::<u32>("more", name, quick()).await?; // bug 35
    }
    ctx.activity("work", &sum, quick()).await
}

#[test]
fn bug_35_a_map_built_outside_the_run_is_caught_in_another_process() {
    caught_naming(kit(code(map_outside)), ELSEWHERE, HERE, "bug 35");
}

/// 36: the same, given to the workflow when it was registered.
fn map_of_the_registry() -> WorkflowRegistry {
    let regions: HashMap<u32, String> = (0..9).map(|n| (n, format!("region-{n}"))).collect();
    code(move |ctx, n| {
        let regions = regions.clone();
        async move {
            let all: Vec<String> = regions.into_values().collect();
            ctx.activity("work", &(n, all), quick()).await // bug 36
        }
    })
}

#[test]
fn bug_36_a_map_of_the_registry_is_caught_in_another_process() {
    caught_naming(kit(map_of_the_registry()), ELSEWHERE, HERE, "bug 36");
}

/// 37: a hash of std chooses the shard.
async fn shard(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let shard = KEYS.hash_one(n) % 1_000;
    ctx.activity("work", &shard, quick()).await // bug 37
}

#[test]
fn bug_37_a_hash_that_chooses_is_caught_in_another_process() {
    drop(LazyLock::new(RandomState::new));
    caught_naming(kit(code(shard)), ELSEWHERE, HERE, "bug 37");
}

/// 38: when the worker was started.
fn started() -> WorkflowRegistry {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    code(move |ctx, n| async move {
        ctx.activity("work", &(since, n), quick()).await // bug 38
    })
}

#[test]
fn bug_38_a_time_from_before_the_run_is_caught_in_another_process() {
    caught_naming(kit(started()), ELSEWHERE, HERE, "bug 38");
}

/// 39: the home of the user, read when the workflow is registered.
fn homely() -> WorkflowRegistry {
    let home = std::env::var("HOME").unwrap_or_default();
    code(move |ctx, n| {
        let path = format!("{home}/{n}");
        async move {
            ctx.activity("work", &path, quick()).await // bug 39
        }
    })
}

#[test]
fn bug_39_a_home_that_was_read_before_the_run_is_caught_in_another_process() {
    caught_naming(kit(homely()), ELSEWHERE, HERE, "bug 39");
}

/// 40: who started the worker.
async fn parent(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let key = (std::os::unix::process::parent_id(), n);
    ctx.activity("work", &key, quick()).await // bug 40
}

#[test]
fn bug_40_the_parent_process_is_caught_at_the_call_and_in_another_process() {
    caught_calling(kit(code(parent)), ForbiddenCall::Process, HERE.0);
    caught_naming(kit(code(parent)).allow(ForbiddenCall::Process), ELSEWHERE, HERE, "bug 40");
}

/// 41: as many at once as there are processors.
async fn processors(ctx: WfContext, n: u32) -> Result<u32, Failure> {
    let most = std::thread::available_parallelism().map_or(1, usize::from); // bug 41
    ctx.activity("work", &(most, n), quick()).await
}

#[test]
fn bug_41_the_number_of_processors_is_caught_at_the_call() {
    // Std asks for the limits of the container first, which are files.
    caught_naming(kit(code(processors)), &["forbidden-call"], HERE, "bug 41");
}
