//! The graph machine by itself: flow-state's loops, pydantask's cycles, CUGA's controller, Shannon's failures.

mod blocks;
mod flow;
mod people;
mod property;
mod pydantask;
mod shannon;
mod stage;
