//! Trip wires: calls that replay cannot repeat, noticed at the call, with the place in the code.
//!
//! ```text
//!   workflow code ──► std ──► clock_gettime (ours, in the test binary) ──► noted, with its place ──► libc's
//! ```
//!
//! Invariant: a wire changes no answer (except where a twin is disturbed on purpose) and notes nothing outside workflow
//! code; it allocates only when it has something to note, and never trips over itself. The functions that take libc's
//! names are made by [`trip_wires!`](crate::trip_wires) in the test binary that asks for them, so that nothing of this
//! is in a binary of production. Linux with glibc; elsewhere the macro makes nothing and the kit says that it is off.
//!
//! What asks the kernel without libc passes unseen here (crates that make system calls themselves, some of which read
//! the host's name so), and so does what libc keeps in memory. Twins, replays in other processes and a digest that a
//! corpus keeps (G21) find what such a call does.
//!
//! Unsafe code: taking libc's place cannot be said otherwise.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use bosun_engine::workflow::inside_workflow_code;

use super::place::{Cause, cause_of};
pub use super::trip::ForbiddenCall;
use super::trip::Trip;

static ARMED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// A wire is being handled on this thread: what it calls itself does not count.
    static HANDLING: Cell<bool> = const { Cell::new(false) };
    static TRIPS: RefCell<Vec<Trip>> = const { RefCell::new(Vec::new()) };
    static DISTURBED: Cell<Perturbation> = const { Cell::new(Perturbation { clock_seconds: 0, padding: 0 }) };
}

/// Whether this binary has wires.
pub fn armed() -> bool {
    ARMED.load(Ordering::Relaxed)
}

/// Called once by the binary that has wires.
pub extern "C" fn arm() {
    ARMED.store(true, Ordering::Relaxed);
}

/// What tripped on this thread since the last time.
pub(crate) fn take_trips() -> Vec<Trip> {
    TRIPS.with(|trips| trips.try_borrow_mut().map(|mut trips| std::mem::take(&mut *trips)).unwrap_or_default())
}

thread_local! {
    static SUSPECTS: RefCell<Vec<Trip>> = const { RefCell::new(Vec::new()) };
}

/// At most so many suspects are named.
const SUSPECTS_MAX: usize = 4;

/// Keeps calls that may turn out to be a cause, each place once.
pub(crate) fn suspect(trips: Vec<Trip>) {
    SUSPECTS.with(|suspects| {
        let mut suspects = suspects.borrow_mut();
        for trip in trips {
            if suspects.len() < SUSPECTS_MAX && suspects.iter().all(|known| known.place != trip.place) {
                suspects.push(trip);
            }
        }
    });
}

/// What is suspected on this thread.
pub(crate) fn suspects() -> Vec<Trip> {
    SUSPECTS.with(|suspects| suspects.borrow().clone())
}

pub(crate) fn forget_suspects() {
    SUSPECTS.with(|suspects| suspects.borrow_mut().clear());
}

/// How the surroundings of a twin differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Perturbation {
    /// The clock goes wrong by so much, for workflow code.
    clock_seconds: i64,
    /// So many small pieces of memory are taken first, so that addresses differ.
    padding: usize,
}

impl Perturbation {
    pub(crate) fn of(twin: u32) -> Self {
        Perturbation { clock_seconds: i64::from(twin) * 3_456_789, padding: (twin as usize * 37) % 509 + 1 }
    }
}

/// Disturbs this thread until it is dropped.
pub(crate) struct Disturbed {
    before: Perturbation,
    _padding: Vec<Vec<u8>>,
}

pub(crate) fn perturbed(how: Perturbation) -> Disturbed {
    let _padding = (0..how.padding).map(|size| Vec::with_capacity(16 + size % 97 * 8)).collect();
    Disturbed { before: DISTURBED.with(|disturbed| disturbed.replace(how)), _padding }
}

impl Drop for Disturbed {
    fn drop(&mut self) {
        DISTURBED.with(|disturbed| disturbed.set(self.before));
    }
}

/// Notes a call, if workflow code made it.
fn note(call: ForbiddenCall, function: &CStr, detail: Option<&CStr>) {
    if !inside_workflow_code() || HANDLING.with(|handling| handling.replace(true)) {
        return;
    }
    let cause = cause_of(call, function);
    if let Some(Cause { call, stack }) = cause {
        let place = stack.first().map(|site| site.place.clone());
        let name = function.to_string_lossy();
        let function = match detail {
            Some(detail) => format!("{name} {:?}", detail.to_string_lossy()),
            None => name.into_owned(),
        };
        TRIPS.with(|trips| {
            if let Ok(mut trips) = trips.try_borrow_mut()
                && trips.len() < 16
            {
                trips.push(Trip { call, function, place, stack });
            }
        });
    }
    HANDLING.with(|handling| handling.set(false));
}

unsafe extern "C" {
    fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// The next definition of a name after ours, as the dynamic linker finds it.
const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;

const RTLD_LAZY: c_int = 1;

/// libc's own function behind a wire.
pub struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    /// The function of this name, looked up when it is first called.
    pub const fn named(name: &'static CStr) -> Self {
        Real { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }
    /// Notes the call, and gives the address of libc's function.
    pub fn called(&self, call: ForbiddenCall) -> *mut c_void {
        note(call, self.name, None);
        self.address()
    }
    /// As [`Real::called`], saying also what was asked for.
    ///
    /// # Safety
    /// `detail` is null or a text that ends with a zero.
    pub unsafe fn called_with(&self, call: ForbiddenCall, detail: *const c_char) -> *mut c_void {
        // SAFETY: the caller says so.
        let detail = (!detail.is_null()).then(|| unsafe { CStr::from_ptr(detail) });
        note(call, self.name, detail);
        self.address()
    }
    fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name ends with a zero; the linker answers for any name.
        let mut found = unsafe { dlsym(RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // The linker leaves out the library of mathematics when nobody but us has its names.
            // SAFETY: as above; a null handle is answered too.
            found = unsafe { dlsym(dlopen(c"libm.so.6".as_ptr(), RTLD_LAZY), self.name.as_ptr()) };
        }
        if found.is_null() {
            eprintln!("bosun: trip wires: libc has no {:?}", self.name);
            std::process::abort();
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// `struct timespec` of the platforms that have wires.
#[repr(C)]
#[derive(Debug)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: c_long,
}

/// Makes the clock of a disturbed twin go wrong.
///
/// # Safety
/// `time` is null or points to a time that was written.
pub unsafe fn disturb_clock(time: *mut Timespec) {
    let ahead = DISTURBED.with(Cell::get).clock_seconds;
    if ahead != 0 && inside_workflow_code() && !HANDLING.with(Cell::get) && !time.is_null() {
        // SAFETY: the caller says so.
        unsafe { (*time).seconds += ahead };
    }
}

/// Arms the trip wires of a test binary: write `bosun_replay::trip_wires!();` once, at the root of its crate.
///
/// The test binary then has functions that take the place of libc's (`clock_gettime`, `getrandom`, `getenv`, `open64`,
/// `socket`, `pthread_create` …), note calls that workflow code makes, and call libc's. Only on Linux with glibc.
#[macro_export]
macro_rules! trip_wires {
    () => {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        #[allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]
        mod __bosun_wires {
            use $crate::determinism::wires::{ForbiddenCall, Real, Timespec, arm, disturb_clock};
            use ::std::ffi::{c_char, c_int, c_long, c_uint, c_void};

            type text = *const c_char;
            type any = *mut c_void;

            #[used]
            #[unsafe(link_section = ".init_array")]
            static ARM: extern "C" fn() = arm;

            // A wire for each of libc's functions.
            $crate::__wires! {
                Clock: gettimeofday(time: any, zone: any) -> c_int;
                Clock: time(into: any) -> c_long;
                Clock: nanosleep(time: any, left: any) -> c_int;
                Clock: clock_nanosleep(clock: c_int, flags: c_int, time: any, left: any) -> c_int;
                Random: getrandom(buffer: any, length: usize, flags: c_uint) -> isize;
                Random: getentropy(buffer: any, length: usize) -> c_int;
                Environment: getenv(name: text) -> *mut c_char;
                Environment: secure_getenv(name: text) -> *mut c_char;
                File: open(path: text, flags: c_int, mode: c_uint) -> c_int;
                File: open64(path: text, flags: c_int, mode: c_uint) -> c_int;
                File: fopen(path: text, mode: text) -> any;
                File: fopen64(path: text, mode: text) -> any;
                File: opendir(path: text) -> any;
                File: access(path: text, mode: c_int) -> c_int;
                File: readlink(path: text, buffer: any, length: usize) -> isize;
                File: realpath(path: text, buffer: *mut c_char) -> *mut c_char;
                Host: getcwd(buffer: *mut c_char, length: usize) -> *mut c_char;
                Host: uname(into: any) -> c_int;
                Host: gethostname(buffer: *mut c_char, length: usize) -> c_int;
                Host: sched_getaffinity(pid: c_int, length: usize, mask: any) -> c_int;
                Host: localtime(time: any) -> any;
                Host: localtime_r(time: any, into: any) -> any;
                Host: setlocale(category: c_int, locale: text) -> any;
                Process: posix_spawn(pid: any, path: text, actions: any, attributes: any, argv: any, env: any) -> c_int;
                Process: posix_spawnp(pid: any, file: text, actions: any, attributes: any, argv: any, env: any) -> c_int;
                Socket: socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
                Socket: getaddrinfo(node: text, service: text, hints: any, into: any) -> c_int;
                Thread: pthread_create(thread: any, attributes: any, start: any, argument: any) -> c_int;
                FloatMath: pow(x: f64, y: f64) -> f64;
                FloatMath: powf(x: f32, y: f32) -> f32;
                FloatMath: exp(x: f64) -> f64;
                FloatMath: log(x: f64) -> f64;
                FloatMath: log10(x: f64) -> f64;
                FloatMath: log2(x: f64) -> f64;
                FloatMath: sin(x: f64) -> f64;
                FloatMath: cos(x: f64) -> f64;
                FloatMath: tan(x: f64) -> f64;
                FloatMath: tanh(x: f64) -> f64;
                FloatMath: atan2(y: f64, x: f64) -> f64;
                FloatMath: cbrt(x: f64) -> f64;
            }

            $crate::__wires! {
                @without_arguments
                Process: getpid() -> c_int;
                Process: getppid() -> c_int;
                Host: getuid() -> c_uint;
                Host: geteuid() -> c_uint;
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
                static REAL: Real = Real::named(c"clock_gettime");
                let real = REAL.called(ForbiddenCall::Clock);
                // SAFETY: it is libc's function of this name, and has this signature.
                let real: unsafe extern "C" fn(c_int, *mut Timespec) -> c_int = unsafe { ::std::mem::transmute(real) };
                // SAFETY: the caller has called libc's function, which has written the time.
                unsafe {
                    let answer = real(clock, time);
                    disturb_clock(time);
                    answer
                }
            }

            // std looks files up by their directory and by `statx`.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn statx(directory: c_int, path: text, flags: c_int, mask: c_uint, into: any) -> c_int {
                static REAL: Real = Real::named(c"statx");
                // SAFETY: libc wants a text there too.
                let real = unsafe { REAL.called_with(ForbiddenCall::File, path) };
                // SAFETY: it is libc's function of this name, and has this signature.
                let real: unsafe extern "C" fn(c_int, text, c_int, c_uint, any) -> c_int = unsafe { ::std::mem::transmute(real) };
                // SAFETY: the caller has called libc's function.
                unsafe { real(directory, path, flags, mask, into) }
            }
        }
    };
}

/// The wires of [`trip_wires!`](crate::trip_wires), one by one. The last argument of `open` is only there with some
/// flags; on the platforms that have wires, passing on what is in its register is harmless.
#[doc(hidden)]
#[macro_export]
macro_rules! __wires {
    ($($call:ident: $name:ident($first:ident: $first_type:ty $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($first: $first_type $(, $argument: $type)*) -> $result {
            static REAL: Real = match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => Real::named(name),
                Err(_) => panic!("a name without zeros"),
            };
            let real = $crate::__wires!(@note $call REAL $first);
            // SAFETY: it is libc's function of this name, and has this signature.
            let real: unsafe extern "C" fn($first_type $(, $type)*) -> $result = unsafe { ::std::mem::transmute(real) };
            // SAFETY: the caller has called libc's function.
            unsafe { real($first $(, $argument)*) }
        }
    )*};
    (@without_arguments $($call:ident: $name:ident() -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> $result {
            static REAL: Real = match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => Real::named(name),
                Err(_) => panic!("a name without zeros"),
            };
            let real = REAL.called(ForbiddenCall::$call);
            // SAFETY: it is libc's function of this name, and has this signature.
            let real: unsafe extern "C" fn() -> $result = unsafe { ::std::mem::transmute(real) };
            // SAFETY: the caller has called libc's function.
            unsafe { real() }
        }
    )*};
    // SAFETY: libc wants a text there too.
    (@note Environment $real:ident $text:ident) => { unsafe { $real.called_with(ForbiddenCall::Environment, $text) } };
    (@note File $real:ident $path:ident) => { unsafe { $real.called_with(ForbiddenCall::File, $path) } };
    (@note $call:ident $real:ident $first:ident) => { $real.called(ForbiddenCall::$call) };
}
