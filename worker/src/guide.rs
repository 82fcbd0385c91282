//! The guide: how supervisors, workflows, pages and workers are used.
//!
//! Its chapters are the files of `worker/guide`, so that they can also be read beside the code. The Rust in them is compiled by the
//! tests. This module holds no code.

#[doc = include_str!("../guide/first_steps.md")]
pub mod first_steps {}

#[doc = include_str!("../guide/from_temporal.md")]
pub mod from_temporal {}

#[doc = include_str!("../guide/supervisors.md")]
pub mod supervisors {}

#[doc = include_str!("../guide/models.md")]
pub mod models {}

#[doc = include_str!("../guide/workflows.md")]
pub mod workflows {}

#[doc = include_str!("../guide/replay.md")]
pub mod replay {}

#[doc = include_str!("../guide/operating.md")]
pub mod operating {}

#[doc = include_str!("../guide/cluster.md")]
pub mod cluster {}

#[doc = include_str!("../guide/api.md")]
pub mod api {}

#[doc = include_str!("../guide/guarantees.md")]
pub mod guarantees {}
