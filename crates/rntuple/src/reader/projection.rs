//! [`Projection`]: the fields that a reader reads.

use crate::error::{Error, Result};
use crate::tree::{FieldKind, FieldNode, FieldTree};
use crate::types::Type;

/// In a path, selects the number of items of a list without their members.
const COUNT: &str = "#";

/// A selection of fields of one RNTuple.
///
/// Dots in a path separate members of records; items of lists, arrays and optional values need no name:
/// `tracks.pt` is the member `pt` of all records in the list `tracks`. `tracks.#` is the list with
/// items that have no members, for their number alone.
#[derive(Clone, Debug)]
pub struct Projection {
    nodes: Vec<FieldNode>,
}

impl Projection {
    pub(super) fn all(tree: &FieldTree) -> Self {
        Projection { nodes: tree.nodes.clone() }
    }

    pub(super) fn of(tree: &FieldTree, paths: &[impl AsRef<str>]) -> Result<Self> {
        let paths: Vec<&str> = paths.iter().map(AsRef::as_ref).collect();
        for path in &paths {
            check(tree, path)?;
        }
        Ok(Projection { nodes: prune(&tree.nodes, &paths) })
    }

    pub(super) fn nodes(&self) -> &[FieldNode] {
        &self.nodes
    }

    /// Names and types of the selected top-level fields.
    pub fn members(&self) -> Vec<(String, Type)> {
        self.nodes.iter().map(|node| (node.name.clone(), node.logical_type())).collect()
    }
}

/// The members, or the parts of members, that one of the paths selects.
fn prune(members: &[FieldNode], paths: &[&str]) -> Vec<FieldNode> {
    members.iter().filter_map(|member| prune_member(member, paths)).collect()
}

fn prune_member(member: &FieldNode, paths: &[&str]) -> Option<FieldNode> {
    if paths.contains(&member.name.as_str()) {
        return Some(member.clone());
    }
    let below: Vec<&str> = paths.iter().filter_map(|path| strip(path, &member.name)).collect();
    (!below.is_empty())
        .then(|| FieldNode { name: member.name.clone(), kind: prune_kind(&member.kind, &below) })
}

fn prune_kind(kind: &FieldKind, paths: &[&str]) -> FieldKind {
    let prune_item = |item: &FieldNode| {
        let kind = if paths.iter().all(|path| *path == COUNT) {
            FieldKind::Record { class: String::new(), members: vec![] }
        } else {
            prune_kind(&item.kind, paths)
        };
        Box::new(FieldNode { name: item.name.clone(), kind })
    };
    match kind {
        FieldKind::Record { class, members } => {
            FieldKind::Record { class: class.clone(), members: prune(members, paths) }
        }
        FieldKind::List { offsets, item, optional } => FieldKind::List {
            offsets: offsets.clone(),
            item: prune_item(item),
            optional: *optional,
        },
        FieldKind::Fixed { size, item } => FieldKind::Fixed { size: *size, item: prune_item(item) },
        other => other.clone(),
    }
}

fn strip<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    path.strip_prefix(name)?.strip_prefix('.')
}

fn check(tree: &FieldTree, path: &str) -> Result<()> {
    let mut members = &tree.nodes[..];
    let mut rest = path;
    loop {
        let found = members.iter().find(|m| m.name == rest || strip(rest, &m.name).is_some());
        let Some(member) = found else { return Err(no_field(path, members)) };
        match strip(rest, &member.name) {
            None => return Ok(()),
            Some(COUNT) if matches!(member.kind, FieldKind::List { .. }) => return Ok(()),
            Some(below) => (rest, members) = (below, members_of(member)),
        }
    }
}

/// The members of a record, or of the records in a collection.
fn members_of(node: &FieldNode) -> &[FieldNode] {
    match &node.kind {
        FieldKind::Record { members, .. } => members,
        FieldKind::List { item, .. } | FieldKind::Fixed { item, .. } => members_of(item),
        _ => &[],
    }
}

fn no_field(path: &str, members: &[FieldNode]) -> Error {
    const CANDIDATES_MAX: usize = 20;
    Error::NotFound {
        what: "field",
        name: path.to_owned(),
        candidates: members.iter().take(CANDIDATES_MAX).map(|node| node.name.clone()).collect(),
    }
}
