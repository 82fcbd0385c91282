//! The guide: how supervisors, workflows, pages and workers are used.
//!
//! Its chapters are the files of `worker/guide`, so that they can also be read beside the code, and on the pages of a worker
//! (`/docs`). The Rust in them is compiled by the tests, and their commands and files are tried (`tests/tests/guide.rs`).

/// A chapter of the guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chapter {
    /// Its file, without the ending, and its place below `/docs`.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// Markdown; its first line is the title.
    pub text: &'static str,
}

macro_rules! chapters {
    ($($name:ident $file:literal $about:literal)+) => {
        $(
            #[allow(clippy::test_attr_in_doctest, reason = "readers write a test; a hidden line calls what it calls")]
            #[doc = include_str!($file)]
            pub mod $name {}
        )+

        /// All chapters, in the order of reading.
        pub static CHAPTERS: [Chapter; [$($file),+].len()] = [
            $(Chapter { name: stringify!($name), about: $about, text: include_str!($file) }),+
        ];
    };
}

chapters! {
    first_steps "../guide/first_steps.md" "A workflow in Rust, from an empty folder"
    concepts "../guide/concepts.md" "Runs, histories, turns, activities, replay: the words, and what follows from them"
    supervisors "../guide/supervisors.md" "Who plans, who works, who checks: specs, presets, plans, scenes"
    models "../guide/models.md" "Agents and the models that they ask"
    workflows "../guide/workflows.md" "Workflow code: what it may do, and how that is checked"
    testing "../guide/testing.md" "Scenes, test environments, recorded histories, crashes"
    replay "../guide/replay.md" "Looking at a run event by event, forking it, checking a deploy"
    operating "../guide/operating.md" "A worker that runs for years: store, limits, telemetry, schedules, notifications"
    filters "../guide/filters.md" "List filters: fields, types, operators, dates"
    api "../guide/api.md" "The pages, and the API from any language"
    other_pages "../guide/other_pages.md" "What the pages can do, beside those of Temporal, Restate, Inngest and LangGraph"
    cluster "../guide/cluster.md" "When one machine is not enough: the same program on a Temporal cluster"
    guarantees "../guide/guarantees.md" "What is promised, and which test shows it"
    from_temporal "../guide/from_temporal.md" "For those who come from Temporal"
    from_agent_frameworks "../guide/from_agent_frameworks.md" "For those who come from LangGraph, CrewAI or AutoGen"
}
