//! The path of the field that each column belongs to.

use super::Reader;
use crate::schema::ColumnId;
use crate::summary::{SummaryKind, summary_kinds};
use crate::tree::{FieldKind, FieldNode, FieldTree};

/// The field that a column belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPath {
    /// The column.
    pub column: ColumnId,
    /// Path of its field, as [`Reader::select`] takes it: names of members with dots between them.
    /// Items of lists, arrays and optional values, and alternatives of variants, have the path of the
    /// field around them.
    pub path: String,
    /// Whether the elements are end offsets of lists, strings or optional values, so that their
    /// differences are sizes.
    pub is_size: bool,
    /// Whether a [`ClusterSummary`](crate::ClusterSummary) has bounds of the column.
    pub is_summarised: bool,
}

impl Reader {
    /// The paths of all columns but those of fields that this crate cannot read. The columns of all
    /// representations of a field have the same path.
    pub fn column_paths(&self) -> Vec<ColumnPath> {
        column_paths(self.tree(), self.schema().columns.len())
    }
}

/// The paths of all columns of a tree.
pub(crate) fn column_paths(tree: &FieldTree, columns: usize) -> Vec<ColumnPath> {
    let mut paths = vec![];
    tree.nodes.iter().for_each(|node| add(node, node.name.clone(), &mut paths));
    let kinds = summary_kinds(tree, columns);
    for path in &mut paths {
        path.is_summarised = kinds[path.column as usize].is_some();
        debug_assert!(!path.is_summarised || path.is_size == is_sizes(kinds[path.column as usize]));
    }
    paths
}

fn is_sizes(kind: Option<SummaryKind>) -> bool {
    kind == Some(SummaryKind::Sizes)
}

fn add(node: &FieldNode, path: String, paths: &mut Vec<ColumnPath>) {
    let sizes: &[ColumnId] = match &node.kind {
        FieldKind::String { offsets, .. } | FieldKind::List { offsets, .. } => offsets,
        _ => &[],
    };
    paths.extend(node.columns().map(|column| ColumnPath {
        column,
        path: path.clone(),
        is_size: sizes.contains(&column),
        is_summarised: false,
    }));
    for child in node.children() {
        let path = match node.kind {
            FieldKind::Record { .. } => format!("{path}.{}", child.name),
            _ => path.clone(),
        };
        add(child, path, paths);
    }
}
