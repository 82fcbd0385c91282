//! The whole engine, through the public API: one file a family of features.

mod smoke;
