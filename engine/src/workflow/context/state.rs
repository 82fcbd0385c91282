//! State cells: what an async workflow shares with its handlers, and shows to the debugger.
//!
//! Invariant: a cell changes while the run is activated and at no other time; a query handler or validator that writes one
//! changes nothing and is named as an error. Plain `Rc<RefCell<_>>` works too, and is seen and guarded by nobody.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::rc::Rc;

use serde::Serialize;

use super::WfContext;
use crate::workflow::panic::leave_if_abandoned;

/// The cells of a run by name, as functions that show them.
#[derive(Default)]
pub(crate) struct Cells(BTreeMap<String, Rc<dyn Fn() -> serde_json::Value>>);

impl Cells {
    pub(crate) fn to_json(&self) -> Option<serde_json::Value> {
        if self.0.is_empty() {
            return None;
        }
        Some(self.0.iter().map(|(name, show)| (name.clone(), show())).collect())
    }
}

/// A named value of the workflow. Clones are the same cell.
pub struct StateCell<T> {
    context: WfContext,
    name: Rc<str>,
    value: Rc<RefCell<T>>,
}

impl<T> Clone for StateCell<T> {
    fn clone(&self) -> Self {
        StateCell { context: self.context.clone(), name: self.name.clone(), value: self.value.clone() }
    }
}

impl<T> StateCell<T> {
    /// Looks at the value where it is.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.value.borrow())
    }
    /// Changes the value. In a query handler it does nothing, and the query fails; in the validator of an update it does
    /// nothing, and the update is refused.
    #[track_caller]
    pub fn write(&self, change: impl FnOnce(&mut T)) {
        leave_if_abandoned();
        let place = Location::caller();
        if self.context.shared.may_change_with(|| format!("the state {} (at {place})", self.name)) {
            change(&mut self.value.borrow_mut());
        }
    }
    /// As [`Self::write`], with another value in its place.
    #[track_caller]
    pub fn set(&self, value: T) {
        self.write(|held| *held = value);
    }
}

impl<T: Clone> StateCell<T> {
    /// A copy of the value.
    pub fn get(&self) -> T {
        self.value.borrow().clone()
    }
}

impl WfContext {
    /// A named value that handlers may read and the debugger shows.
    pub fn state<T: Serialize + 'static>(&self, name: &str, initial: T) -> StateCell<T> {
        let value = Rc::new(RefCell::new(initial));
        let shown = value.clone();
        let show = move || {
            let value = shown.try_borrow().ok();
            value.and_then(|value| serde_json::to_value(&*value).ok()).unwrap_or(serde_json::Value::Null)
        };
        if self.shared.may_change("a new state") {
            self.shared.cells.borrow_mut().0.insert(name.to_owned(), Rc::new(show));
        }
        StateCell { context: self.clone(), name: name.into(), value }
    }
}
