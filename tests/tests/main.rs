//! All integration tests in one binary: one link, one file a feature.

// The engine's own checks are compiled into `seeded`, and find what they share where they expect it.
use bosun_engine::{log, vocabulary};

mod api_document;
mod api_guard;
mod api_verbs;
mod asked_below;
mod batches;
mod borders;
mod cassettes;
mod clock_steps;
mod dev;
mod doors;
mod encrypted;
mod epoch;
mod fairness;
mod fsync_contract;
mod full_disk;
mod guide;
mod hints;
mod kill;
#[path = "../../engine/tests/worker/kit.rs"]
#[expect(dead_code, reason = "other tests of the engine use the rest")]
mod kit;
mod manners;
mod metrics;
mod migrate;
mod mistakes;
mod notifications;
mod opening;
mod own_end;
mod own_program;
mod owner_words;
mod packages;
mod pages;
mod people_api;
mod plain_words;
mod poison;
mod power_cut;
mod queues;
mod replay_cli;
mod resets;
mod resumed;
mod rig;
mod roots;
mod rows;
#[path = "../../engine/tests/worker/scene.rs"]
#[expect(dead_code, unused_imports, reason = "other tests of the engine use the rest")]
mod scene;
mod scene_runner;
mod schedules;
mod seeded;
mod services;
mod simulation;
mod soak;
mod standalone;
mod storage_faults;
mod streams;
mod supervisor_cli;
mod supervisor_words;
mod terminal;
mod tidy;
mod timers;
mod tokens;
mod tools;
mod tutorials;
mod unreachable;
mod verbs;
mod waiting;
mod waits_told;
