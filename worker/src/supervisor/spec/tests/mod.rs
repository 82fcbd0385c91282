//! The contract of specs, row by row, with the exact texts.

mod reading;
