//! [`Appender::replace`]: new values of existing entries.

use std::sync::Arc;

use super::appender::Appender;
use super::edit::ClusterEdit;
use super::groups::Touched;
use super::splice::splices_of;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::page_list::Cluster;
use crate::reader::{FileBounds, StoredCluster, deferred_repetitions};
use crate::source::{BlobSink, ByteSource};
use crate::summary::{ClusterSummary, summary_kinds};
use crate::tree::{FieldKind, FieldNode};

impl Appender {
    /// Replaces the values of one field of some entries: all of them or, on an error, none.
    ///
    /// `field` is the path of a top-level field or, with dots, of a member through records alone.
    /// `entries` ascend, and `values` has one value for each. Pages with any of these values are rewritten,
    /// with their neighbours if sizes of collections change; variants are rewritten for the whole cluster.
    /// The old pages stay for earlier versions.
    ///
    /// `source` reads the bytes of the sink. If entries of the cluster under construction are replaced, the
    /// cluster ends first, and `source` must have its bytes too.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the field or an entry does not exist, [`Error::Invalid`] if the values do not
    /// have its type, [`Error::Corrupt`] if the old pages are damaged, [`Error::Io`] from sink or source.
    pub fn replace(
        &mut self,
        sink: &mut dyn BlobSink,
        source: &dyn ByteSource,
        field: &str,
        entries: &[u64],
        values: &Array,
    ) -> Result<()> {
        let node = node_of(&self.writer.tree.nodes, field)?.clone();
        self.check_replacement(&node, field, entries, values)?;
        let Some(&last) = entries.last() else { return Ok(()) };
        if last >= self.state.first_entry {
            self.end_cluster(sink)?;
        }
        let repetitions = deferred_repetitions(&self.schema)?;
        let kinds = summary_kinds(&self.writer.tree, self.schema.columns.len());
        let bounds = FileBounds { file_size: source.size()?, key_size_max: u64::MAX };
        let mut edited = vec![];
        for touched in self.state.groups.touched(entries, source)? {
            let Touched { place, cluster, positions } = touched;
            let splices = splices_of(&cluster, &entries[positions.clone()], positions.start);
            let stored = StoredCluster::of((*cluster).clone(), &repetitions, bounds)?;
            let options = self.options.page_options();
            let mut edit = ClusterEdit::new(&self.schema, source, &stored, &kinds, options, sink);
            edit.replace(&node, values, splices, cluster.entries)?;
            edited.push((place, edit.finish(&cluster)));
        }
        for (place, edited) in edited {
            let Cluster { first_entry, entries, .. } = edited.cluster;
            let columns = edited.bounds;
            let summary = ClusterSummary { first_entry, entries, is_widening: true, columns };
            self.state.summaries.push(Arc::new(summary));
            self.state.bytes += edited.bytes;
            self.writer.shift_offsets(&edited.growth);
            self.state.groups.replace(place, edited.cluster);
        }
        Ok(())
    }

    fn check_replacement(
        &self,
        node: &FieldNode,
        field: &str,
        entries: &[u64],
        values: &Array,
    ) -> Result<()> {
        values.validate(&node.logical_type()).map_err(|error| match error {
            Error::Invalid { what } => Error::invalid(format!("field {field:?}: {what}")),
            other => other,
        })?;
        if values.len() != entries.len() {
            let (values, entries) = (values.len(), entries.len());
            return Err(Error::invalid(format!("{values} values for {entries} entries")));
        }
        if !entries.is_sorted_by(|one, next| one < next) {
            return Err(Error::invalid("entries to replace must ascend: sort them"));
        }
        match entries.last() {
            Some(last) if *last >= self.entries() => Err(Error::NotFound {
                what: "entry",
                name: last.to_string(),
                candidates: vec![format!("entries 0..{}", self.entries())],
            }),
            _ => Ok(()),
        }
    }
}

/// The field with a path through records.
fn node_of<'a>(nodes: &'a [FieldNode], path: &str) -> Result<&'a FieldNode> {
    let (mut members, mut rest) = (nodes, path);
    loop {
        let (name, below) = rest.split_once('.').map_or((rest, None), |(a, b)| (a, Some(b)));
        let found = members.iter().find(|node| node.name == name);
        match (found.ok_or_else(|| no_field(path, members))?, below) {
            (node, None) => return Ok(node),
            (FieldNode { kind: FieldKind::Record { members: inner, .. }, .. }, Some(below)) => {
                (members, rest) = (inner, below);
            }
            (node, Some(_)) => {
                let name = &node.name;
                return Err(Error::invalid(format!(
                    "field {path:?} cannot be replaced alone: {name:?} is not a record; replace all \
                     of {name:?}"
                )));
            }
        }
    }
}

fn no_field(path: &str, members: &[FieldNode]) -> Error {
    Error::NotFound {
        what: "field",
        name: path.to_owned(),
        candidates: members.iter().map(|node| node.name.clone()).collect(),
    }
}
