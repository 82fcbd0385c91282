//! All integration tests in one binary: one link, one file a feature.

mod rig;
