//! A tree, read in key order in either direction.
//!
//! The inner nodes tell at which key each leaf begins; a leaf is read when it is asked for, with those to its right that
//! no inner node knows yet.
//!
//! Invariant: every entry of the tree is found once. Nothing is kept but the list of leaves and the leaf read last.

use std::sync::{Arc, Mutex, PoisonError};

use super::node::{Data, TreeNode};
use super::pages::Pages;
use crate::log::StorageError;

type Entries = Arc<Vec<(Vec<u8>, Vec<u8>)>>;

#[derive(Debug)]
pub(crate) struct Tree {
    pages: Arc<Pages>,
    /// The first key and the page of each leaf.
    leaves: Vec<(Vec<u8>, u64)>,
    last: Mutex<Option<(usize, Entries)>>,
}

impl Tree {
    /// A tree; one without a root is empty.
    pub(crate) fn open(pages: Arc<Pages>, name: &[u8]) -> Result<Tree, StorageError> {
        let mut level: Vec<(Vec<u8>, u64)> = pages.root(name)?.map(|root| (Vec::new(), root)).into_iter().collect();
        loop {
            let mut children = Vec::new();
            for at in 0..level.len() {
                for node in chain(&pages, &level, at)? {
                    let Data::Index(below) = node.data else { continue };
                    children.extend(below.into_iter().filter(|(_, child)| *child != node.merging_child));
                }
            }
            if children.is_empty() {
                return Ok(Tree { pages, leaves: level, last: Mutex::default() });
            }
            // A child that was taken in by its neighbour is gone before its parent knows.
            children.retain(|(_, child)| is_there(&pages, *child));
            level = children;
            if first_is_leaf(&pages, &level)? {
                return Ok(Tree { pages, leaves: level, last: Mutex::default() });
            }
        }
    }

    /// The number of the leaf in which a key belongs.
    fn leaf_of(&self, key: &[u8]) -> usize {
        self.leaves.partition_point(|(low, _)| low.as_slice() <= key).saturating_sub(1)
    }

    fn entries(&self, leaf: usize) -> Result<Entries, StorageError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, entries)) = &*last
            && *known == leaf
        {
            return Ok(entries.clone());
        }
        let mut entries = Vec::new();
        for node in chain(&self.pages, &self.leaves, leaf)? {
            match node.data {
                Data::Leaf(found) => entries.extend(found),
                Data::Index(_) => {
                    let detail = "an inner node lies where a leaf belongs";
                    return Err(StorageError::corrupt("database", self.pages.path(), detail));
                }
            }
        }
        let entries = Arc::new(entries);
        *last = Some((leaf, entries.clone()));
        Ok(entries)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        if self.leaves.is_empty() {
            return Ok(None);
        }
        let entries = self.entries(self.leaf_of(key))?;
        let found = entries.binary_search_by(|(known, _)| known.as_slice().cmp(key));
        Ok(found.ok().map(|at| entries[at].1.clone()))
    }

    /// Visits entries with keys from `low` on, upwards, until told to stop.
    pub(crate) fn upwards(
        &self,
        low: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        for leaf in self.leaf_of(low)..self.leaves.len() {
            let entries = self.entries(leaf)?;
            let from = entries.partition_point(|(key, _)| key.as_slice() < low);
            for (key, value) in &entries[from..] {
                if !visit(key, value)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Visits entries with keys below `high` (all, if there is none), downwards, until told to stop.
    pub(crate) fn downwards(
        &self,
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        let leaves = high.map_or(self.leaves.len(), |high| (self.leaf_of(high) + 1).min(self.leaves.len()));
        for leaf in (0..leaves).rev() {
            let entries = self.entries(leaf)?;
            let to = high.map_or(entries.len(), |high| entries.partition_point(|(key, _)| key.as_slice() < high));
            for (key, value) in entries[..to].iter().rev() {
                if !visit(key, value)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn is_there(pages: &Pages, page: u64) -> bool {
    use super::table::Page;
    let state = usize::try_from(page).ok().and_then(|page| pages.table().pages.get(page));
    matches!(state, Some(Page::Present { .. }))
}

fn first_is_leaf(pages: &Pages, level: &[(Vec<u8>, u64)]) -> Result<bool, StorageError> {
    match level.first() {
        Some((_, page)) => Ok(pages.node(*page)?.is_some_and(|node| matches!(node.data, Data::Leaf(_)))),
        None => Ok(true),
    }
}

/// The node at a place of a level, and those to its right that begin before the next of the level does.
fn chain(pages: &Pages, level: &[(Vec<u8>, u64)], at: usize) -> Result<Vec<TreeNode>, StorageError> {
    let end = level.get(at + 1).map(|(low, _)| low.as_slice());
    let mut nodes: Vec<TreeNode> = Vec::new();
    let mut page = level[at].1;
    loop {
        let Some(node) = pages.node(page)? else {
            let detail = format!("page {page} belongs to a tree and is not there");
            return Err(StorageError::corrupt("database", pages.path(), detail));
        };
        let more = node.next != 0 && !node.high.is_empty() && end.is_none_or(|end| node.high.as_slice() < end);
        page = node.next;
        nodes.push(node);
        if !more {
            return Ok(nodes);
        }
        if nodes.len() > pages.table().pages.len() {
            return Err(StorageError::corrupt("database", pages.path(), "the nodes of a tree form a circle"));
        }
    }
}
