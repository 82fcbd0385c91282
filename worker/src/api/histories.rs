//! The recorded runs of one namespace.
//!
//! Invariant: a run of another namespace is a run that is not there. It decides nothing about roles: whoever reads histories
//! has the directory, or a token that `authority` has asked about.

use std::sync::Arc;

use bosun_engine::*;

use super::authority::within;
use crate::backend::{CallError, Histories, Reply};

/// Recorded runs of one namespace, and nothing of others.
pub(crate) struct NamespaceHistories {
    pub(crate) histories: Arc<dyn Histories>,
    pub(crate) namespace: Namespace,
}

impl NamespaceHistories {
    fn check(&self, target: &Target) -> Result<(), CallError> {
        if target.namespace == self.namespace {
            return Ok(());
        }
        Err(Rejection::NotFound { workflow_id: target.workflow_id.clone(), run_id: target.run_id }.into())
    }
}

impl Histories for NamespaceHistories {
    fn run(&self, target: Target) -> Reply<'_, RunInfo> {
        Box::pin(async move {
            self.check(&target)?;
            self.histories.run(target).await
        })
    }
    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>> {
        let ListRequest { query, limit } = request;
        Box::pin(async move {
            let query = within(&query, std::iter::once(&self.namespace))?;
            self.histories.list(ListRequest { query, limit }).await
        })
    }
    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>> {
        Box::pin(async move {
            self.check(&target)?;
            self.histories.turns(target).await
        })
    }
}
