//! Opening an engine so that its agents can read their own histories.
//!
//! Invariant: an engine that works lends its histories to the conversations; one that is only visited does not. It is
//! lent, not given: the engine ends when whoever opened it lets go of it.

use std::path::Path;
use std::sync::{Arc, Weak};

use bosun_engine::log::EpochFile;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{EventId, RunInfo, Target};

use super::activity::{Conversations, PAGE, RunHistory, TranscriptReading};
use crate::backend::{Access, BoxFuture, ClusterPlace, Engine, Histories, OpenEngine, OpenError};
use crate::capability::at_rest::StoreKeys;
use crate::store_work::StoreWork;

/// An opener whose engines have agents.
pub struct WithAgents<O> {
    pub opener: O,
    pub conversations: Conversations,
}

/// The histories of an engine, as long as it is there.
struct LentHistories(Weak<dyn Engine>);

impl RunHistory for LentHistories {
    fn events(&self, target: Target, from: EventId) -> TranscriptReading<'_> {
        Box::pin(async move {
            let engine = self.0.upgrade().ok_or("the worker has ended")?;
            engine.backend().history(target, from, PAGE).await.map_err(|why| why.to_string())
        })
    }
    fn run(&self, target: Target) -> BoxFuture<'_, Option<RunInfo>> {
        Box::pin(async move {
            let engine = self.0.upgrade()?;
            engine.backend().describe(target).await.ok().map(|description| description.info)
        })
    }
}

impl<O: OpenEngine> OpenEngine for WithAgents<O> {
    fn open<'a>(&'a self, data: &'a Path, purpose: &'a Access) -> BoxFuture<'a, Result<Arc<dyn Engine>, OpenError>> {
        Box::pin(async move {
            let engine = self.opener.open(data, purpose).await?;
            if matches!(purpose, Access::Work { .. }) {
                self.conversations.attach(Arc::new(LentHistories(Arc::downgrade(&engine))));
            }
            Ok(engine)
        })
    }
    fn open_cluster<'a>(
        &'a self,
        place: &'a ClusterPlace,
        data: &'a Path,
        purpose: &'a Access,
    ) -> BoxFuture<'a, Result<Arc<dyn Engine>, OpenError>> {
        Box::pin(async move {
            let engine = self.opener.open_cluster(place, data, purpose).await?;
            if matches!(purpose, Access::Work { .. }) {
                self.conversations.attach(Arc::new(LentHistories(Arc::downgrade(&engine))));
            }
            Ok(engine)
        })
    }
    fn namespace_of_cluster(&self, place: &ClusterPlace) -> Result<Option<String>, OpenError> {
        self.opener.namespace_of_cluster(place)
    }
    fn histories<'a>(&'a self, data: &'a Path) -> BoxFuture<'a, Result<Arc<dyn Histories>, OpenError>> {
        self.opener.histories(data)
    }
    fn store_work<'a>(
        &'a self,
        data: &'a Path,
        work: &'a StoreWork,
    ) -> BoxFuture<'a, Result<serde_json::Value, OpenError>> {
        self.opener.store_work(data, work)
    }
    fn set_keys(&self, keys: StoreKeys) {
        self.opener.set_keys(keys);
    }
    fn set_epoch(&self, epoch: Option<EpochFile>) {
        self.opener.set_epoch(epoch);
    }
    fn workflows(&self) -> WorkflowRegistry {
        self.opener.workflows()
    }
    fn workflow_types(&self) -> Vec<String> {
        self.opener.workflow_types()
    }
}
