//! A database as of a snapshot, in the form that plain ROOT readers read.
//!
//! Sealing writes this form into the database's file; the server synthesises it in memory. Both use this module, so
//! both show the same bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use femtobarn_catalog::{Catalogue, ContainerRow, Csn, DatabaseRow, VersionRow};
use rntuple::{Anchor, BlobSink, ByteSource, Reader};
use uuid::Uuid;

use crate::deletion::Deletions;
use crate::description::{self, DESCRIPTION, Description};
use crate::error::{Error, Result};
use crate::layout::ContainerOptions;
use crate::link;

/// The containers of a database with their newest versions as of a snapshot, ordered by id.
///
/// # Errors
/// [`Error::Catalogue`] if a look-up fails; [`Error::Corrupt`] if a container has no version.
pub fn versions(
    catalog: &dyn Catalogue,
    row: &DatabaseRow,
    at: Csn,
) -> Result<Vec<(ContainerRow, VersionRow)>> {
    let versions = catalog.newest_versions(row.id, at)?.into_iter();
    let mut versions: BTreeMap<_, _> =
        versions.map(|version| (version.container, version)).collect();
    let versioned = catalog.containers(row.id, at)?.into_iter().map(|container| {
        let version = versions.remove(&container.id).ok_or_else(|| Error::Corrupt {
            what: format!("container {:?} has no version", container.name),
        })?;
        Ok((container, version))
    });
    versioned.collect()
}

/// Writes the containers in that form, and their description; returns an anchor for each RNTuple. `source` is the
/// database's file.
///
/// # Errors
/// [`Error::Catalogue`] if a look-up fails; [`Error::Corrupt`] or [`Error::Storage`] if a version is damaged;
/// [`Error::Storage`] if `source` or `sink` fails; [`Error::Invalid`] if the options of a container are malformed.
pub fn complete(
    catalog: &dyn Catalogue,
    row: &DatabaseRow,
    versions: &[(ContainerRow, VersionRow)],
    source: &Arc<dyn ByteSource>,
    sink: &mut dyn BlobSink,
) -> Result<Vec<(String, Anchor)>> {
    let mut anchors = vec![];
    let mut descriptions = vec![];
    for (container, version) in versions {
        let anchor = completed(source, sink, row, container, version)?;
        anchors.push((container.name.clone(), anchor));
        descriptions.push(describe(catalog, container, version)?);
    }
    let written = description::write(sink, &**source, &descriptions);
    let (header, footer) = written.map_err(Error::storage(format!("database {}", row.name)))?;
    anchors.push((DESCRIPTION.to_owned(), Anchor::new(header, footer)));
    Ok(anchors)
}

/// Rewrites a version's metadata for plain readers: one header with 64-bit offsets, one representation of each column
/// and a field that marks deleted entries, right element offsets, and one cluster group.
fn completed(
    source: &Arc<dyn ByteSource>,
    sink: &mut dyn BlobSink,
    row: &DatabaseRow,
    container: &ContainerRow,
    version: &VersionRow,
) -> Result<Anchor> {
    let deletions = Deletions::of(&**source, version)?;
    let deleted =
        if deletions.count() == 0 { vec![] } else { deletions.runs(&**source, version.entries)? };
    let current = Anchor::new(link(&version.header), link(&version.footer));
    let options = ContainerOptions::from_json(&container.options)?.write_options();
    Reader::from_links(Arc::clone(source), &current.header, &current.footer)
        .and_then(|reader| rntuple::complete(&reader, sink, &current, &deleted, options))
        .map(|completed| completed.anchor)
        .map_err(Error::storage(format!("container {}/{}", row.name, container.name)))
}

/// The description of a container.
fn describe(
    catalog: &dyn Catalogue,
    container: &ContainerRow,
    version: &VersionRow,
) -> Result<Description> {
    let class = catalog.class(&container.class, Some(version.class_version))?;
    let targets = catalog.link_targets(container.database, container.id)?;
    Ok(Description {
        container: container.id.0,
        name: container.name.clone(),
        class: class.name,
        class_version: class.version,
        definition: class.definition,
        options: container.options.clone(),
        link_targets: targets.iter().map(Uuid::to_string).collect(),
        annex_offset: version.annex.offset,
        annex_size: version.annex.size,
        deleted: version.deleted,
    })
}
