//! The pages: what runs do, what they wait for and what they cost, for people with a browser.
//!
//! Each page is made on the server, from the same backend as the API, with the rights of whoever is signed in; a form is
//! enough for everything that can be done here, so that pages work without a script. The script only keeps a page up to date
//! (`live`), moves the scrubber, and listens to keys.
//!
//! Invariant: looking changes nothing: only a POST with the seal of its session acts. Whatever comes from a run is text,
//! and is escaped by the one thing that writes HTML here (maud), and without what would mislead the eye (`neutral`). Pages
//! decide nothing about runs. What they can do beside the pages of others stands in the guide (`other_pages`).

mod agents;
mod assets;
mod batch;
mod decide;
mod docs;
mod elements;
pub(crate) mod export;
mod forms;
mod inbox;
mod layout;
mod live;
mod neutral;
mod run;
mod runs;
mod schedule_form;
mod schedules;
mod sign_in;
mod start;
mod state_tree;
mod system;
mod waits;

pub(crate) use elements::{query_value as query_text, run_link};

use axum::Router;
use axum::routing::{any, get, post};

use crate::api::handlers::Api;
use crate::api::routes::{DECIDE_PATH, SIGN_IN_PATH};

/// All pages, beside the routes of the API.
pub(crate) fn pages() -> Router<Api> {
    Router::new()
        .route("/", get(runs::page))
        .route(SIGN_IN_PATH, get(sign_in::page).post(sign_in::sign_in))
        .route("/logout", post(sign_in::sign_out))
        .route(DECIDE_PATH, get(decide::page).post(decide::decide))
        .route("/assets/{file}", get(assets::asset))
        .route("/batch", post(batch::batch))
        .route("/live", get(live::live))
        .route("/start", get(start::page).post(start::start))
        .route("/runs/{id}", get(run::page))
        .route("/runs/{id}/act", post(run::actions::act))
        .route("/runs/{id}/answer", post(inbox::answer))
        .route("/runs/{id}/fork", get(run::fork::page).post(run::fork::fork))
        .route("/runs/{id}/export", get(export::download))
        .route("/inbox", get(inbox::page))
        .route("/agents", get(agents::page))
        .route("/schedules", get(schedules::page))
        .route("/schedule", get(schedule_form::page).post(schedule_form::save))
        .route("/system", get(system::page))
        .route("/docs", get(docs::index))
        .route("/docs/openapi.json", get(docs::openapi))
        .route("/docs/{chapter}", get(docs::chapter))
        .route("/{*rest}", any(layout::no_such_page))
}
