//! Callers: which functions of the user led to a request, for a finding that names a helper.
//!
//! Invariant: stacks are kept only while somebody asks for them, and turned into places only for the request that is told of.
//! Nothing that is compared depends on them.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bosun_engine::workflow::on_every_request;

use crate::determinism::{CallSite, callers_on};

/// How many lives are lived for their stacks, on whatever threads.
static WANTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The stacks of the activation that is under way.
    static STACKS: RefCell<Vec<Arc<Backtrace>>> = const { RefCell::new(Vec::new()) };
}

fn keep_stack() {
    if WANTED.load(Ordering::Relaxed) > 0 {
        let stack = Arc::new(Backtrace::force_capture());
        STACKS.with(|stacks| stacks.borrow_mut().push(stack));
    }
}

/// Runs something, and keeps the stacks of what workflow code asks for in it.
pub(crate) fn with_callers<T>(work: impl FnOnce() -> T) -> T {
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            WANTED.fetch_sub(1, Ordering::Relaxed);
        }
    }
    on_every_request(keep_stack);
    WANTED.fetch_add(1, Ordering::Relaxed);
    let _over = Over;
    work()
}

/// The stacks of one activation, one a request. They are no part of what is compared.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestStacks(Vec<Arc<Backtrace>>);

impl PartialEq for RequestStacks {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl RequestStacks {
    /// Of the activation that has just ended on this thread; it had so many requests.
    pub(super) fn take(requests: usize) -> Self {
        let stacks = STACKS.with(|stacks| std::mem::take(&mut *stacks.borrow_mut()));
        // Some were taken back: which ones, nobody can say.
        RequestStacks(if stacks.len() == requests { stacks } else { Vec::new() })
    }
    /// The user's functions that led to a request, the innermost first.
    pub(super) fn callers(&self, at: usize) -> Vec<CallSite> {
        self.0.get(at).map(|stack| callers_on(&stack.to_string())).unwrap_or_default()
    }
}
