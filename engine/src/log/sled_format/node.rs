//! What a page says: a node of a tree, or which trees there are.
//!
//! Invariant: bytes that do not make a whole node are an error with its reason, never a part of one. A key is kept as
//! the tree's user knows it, with the prefix that all keys of its node share.

use super::take_number;

/// A node after all its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeNode {
    /// The node to the right, 0 if there is none.
    pub(crate) next: u64,
    /// A child that is being taken in by its neighbour.
    pub(crate) merging_child: u64,
    prefix: Vec<u8>,
    /// The first key behind the node; empty: there is none.
    pub(crate) high: Vec<u8>,
    pub(crate) data: Data,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Data {
    Leaf(Vec<(Vec<u8>, Vec<u8>)>),
    Index(Vec<(Vec<u8>, u64)>),
}

type Parsed<T> = Result<T, &'static str>;

fn bytes<'a>(input: &mut &'a [u8]) -> Parsed<&'a [u8]> {
    let length = number(input)?;
    let (bytes, rest) = usize::try_from(length).ok().and_then(|n| input.split_at_checked(n)).ok_or("it is cut off")?;
    *input = rest;
    Ok(bytes)
}

fn number(input: &mut &[u8]) -> Parsed<u64> {
    take_number(input).ok_or("it is cut off")
}

fn byte(input: &mut &[u8]) -> Parsed<u8> {
    let (byte, rest) = input.split_first().ok_or("it is cut off")?;
    *input = rest;
    Ok(*byte)
}

impl TreeNode {
    pub(crate) fn parse(mut input: &[u8]) -> Parsed<TreeNode> {
        let input = &mut input;
        let (next, merging_child) = (number(input)?, number(input)?);
        let (_merging, prefix_length) = (byte(input)?, byte(input)?);
        let (low, high) = (bytes(input)?, bytes(input)?);
        let prefix = low.get(..usize::from(prefix_length)).ok_or("its prefix is longer than its first key")?.to_vec();
        let (kind, count) = (byte(input)?, number(input)?);
        let mut keys = Vec::new();
        for _ in 0..count {
            keys.push([prefix.as_slice(), bytes(input)?].concat());
        }
        let data = match kind {
            0 => {
                let entries = keys.into_iter().map(|key| Ok((key, bytes(input)?.to_vec())));
                Data::Leaf(entries.collect::<Parsed<_>>()?)
            }
            1 => {
                let children = keys.into_iter().map(|key| Ok((key, number(input)?)));
                Data::Index(children.collect::<Parsed<_>>()?)
            }
            _ => return Err("its kind is unknown"),
        };
        if !input.is_empty() {
            return Err("bytes follow its end");
        }
        Ok(TreeNode { next, merging_child, prefix, high: high.to_vec(), data })
    }

    /// Applies a change.
    pub(crate) fn change(&mut self, mut input: &[u8]) -> Parsed<()> {
        let input = &mut input;
        let kind = byte(input)?;
        match (kind, &mut self.data) {
            (0 | 1, Data::Leaf(entries)) => {
                let key = [self.prefix.as_slice(), bytes(input)?].concat();
                let place = entries.binary_search_by(|(known, _)| known.cmp(&key));
                match (kind, place) {
                    (0, Ok(place)) => entries[place].1 = bytes(input)?.to_vec(),
                    (0, Err(place)) => entries.insert(place, (key, bytes(input)?.to_vec())),
                    (_, Ok(place)) => drop(entries.remove(place)),
                    (_, Err(_)) => {}
                }
            }
            (2, _) => self.merging_child = number(input)?,
            (3, Data::Index(children)) => {
                let merged = std::mem::take(&mut self.merging_child);
                children.retain(|(_, child)| *child != merged);
            }
            // The node itself is being taken in: what it holds does not change.
            (4, _) => {}
            _ => return Err("a change does not fit its node"),
        }
        Ok(())
    }
}

/// The roots of the trees by name.
pub(crate) fn parse_roots(mut input: &[u8]) -> Parsed<Vec<(Vec<u8>, u64)>> {
    let mut roots = Vec::new();
    while !input.is_empty() {
        roots.push((bytes(&mut input)?.to_vec(), number(&mut input)?));
    }
    Ok(roots)
}
