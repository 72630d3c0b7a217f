//! Sealing: a database becomes a complete ROOT file that never changes again.
//!
//! What is sealed is appended first and made durable; the front of the file, which makes it a ROOT
//! file, is written over in place next; the catalogue says "sealed" last. Killed before that, the
//! database is still open: nothing committed depends on the front, and sealing can be done again.

use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{
    Commit, ContainerRow, Csn, DatabaseId, DatabaseRow, DatabaseState, LockGuard, VersionRow,
};
use rntuple::tfile::{self, Sealing};
use rntuple::{Anchor, EnvelopeLink, Reader};
use uuid::Uuid;

use crate::annex::Annex;
use crate::chain;
use crate::deletion::Deletions;
use crate::description::{self, DESCRIPTION, Description};
use crate::error::{Error, Result};
use crate::extent::ExtentWriter;
use crate::federation::{Federation, Inner};
use crate::file::{self, DatabaseFile};
use crate::inventory::{Inventory, Ranges};
use crate::options::ContainerOptions;
use crate::view::{Source, link};

impl Federation {
    /// Seals a database: waits for its writers, and makes it a complete ROOT file that takes no more
    /// changes.
    ///
    /// # Errors
    /// `NotFound` for the name; `Closed` if it is sealed or attached already; `Busy` if a transaction
    /// writes to it for longer than `lock_wait`; `Conflict` if one did all the same; as the disk.
    /// Then the database is open as before.
    pub fn seal(&self, name: &str, lock_wait: Duration) -> Result<Csn> {
        let inner = &*self.inner;
        let row = inner.local()?.database(name, Csn::MAX)?;
        if row.state != DatabaseState::Open {
            return Err(Error::Closed {
                what: format!("database {name:?} is {} already", row.state),
            });
        }
        let _lock = lock_alone(inner, row.id, lock_wait)?;
        // Locks are politeness: the commit refuses what came after this look.
        let seen = inner.catalog.head()?;
        let anchors = write_anchored(inner, &row, seen)?;
        inner.retire_extents(row.id)?;
        complete(inner, &row, &anchors)?;
        let message = format!("seal {name}");
        let transaction = Uuid::new_v4();
        let commit =
            Commit { transaction, message, sealed: vec![(row.id, seen)], ..Commit::default() };
        Ok(inner.catalog.commit(commit)?)
    }
}

/// Locks a database against all transactions.
pub(crate) fn lock_alone(inner: &Inner, database: DatabaseId, wait: Duration) -> Result<LockGuard> {
    Ok(inner.locks().owner().lock_database_exclusive(database, wait)?)
}

/// Writes the containers as others read them, and what the file says about them; returns an anchor
/// for each RNTuple.
fn write_anchored(inner: &Inner, row: &DatabaseRow, seen: Csn) -> Result<Vec<(String, Anchor)>> {
    let mut extents = inner.take_extents(row)?;
    let mut anchors = vec![];
    let mut descriptions = vec![];
    for container in inner.catalog.containers(row.id, seen)? {
        let version = inner.catalog.version(row.id, container.id, seen)?;
        let version = version.ok_or_else(|| Error::NotFound {
            what: format!("container {:?} has no version", container.name),
        })?;
        let footer = completed(&mut extents, row, &container, &version)?;
        anchors.push((container.name.clone(), Anchor::new(link(&version.header), footer)));
        descriptions.push(describe(inner, &container, &version)?);
    }
    let source = Source(extents.file().clone());
    let written = description::write(&mut extents, &source, &descriptions);
    let (header, footer) = written.map_err(Error::storage(format!("database {}", row.name)))?;
    anchors.push((DESCRIPTION.to_owned(), Anchor::new(header, footer)));
    extents.flush()?;
    inner.return_extents(row.id, extents);
    Ok(anchors)
}

/// Makes a version such that those can read it who know nothing of Femtobarn: right element offsets,
/// one representation of each column, and a field that says which entries are deleted.
fn completed(
    extents: &mut ExtentWriter,
    row: &DatabaseRow,
    container: &ContainerRow,
    version: &VersionRow,
) -> Result<EnvelopeLink> {
    let what = format!("container {}/{}", row.name, container.name);
    let source = Arc::new(Source(extents.file().clone()));
    let deleted = match version.deleted {
        0 => vec![],
        count => {
            let annex = Annex::read(&*source, version.annex)?;
            let deletions = Deletions::new(&annex.deletions, count, version.entries)?;
            deletions.runs(&*source, version.entries)?
        }
    };
    let footer = link(&version.footer);
    let options = ContainerOptions::from_json(&container.options)?.write_options();
    Reader::from_links(source, &link(&version.header), &footer)
        .and_then(|reader| rntuple::complete(&reader, extents, footer, &deleted, options))
        .map(|completed| completed.footer)
        .map_err(Error::storage(what))
}

/// What the file says about a container.
fn describe(inner: &Inner, container: &ContainerRow, version: &VersionRow) -> Result<Description> {
    let class = inner.catalog.class(&container.class, Some(version.class_version))?;
    let targets = inner.catalog.link_targets(container.database, container.id)?;
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

/// Appends anchors, list of keys and the rest, and writes the front that refers to them.
fn complete(inner: &Inner, row: &DatabaseRow, anchors: &[(String, Anchor)]) -> Result<()> {
    let file = DatabaseFile::open_to_write(inner.path_of(row))?;
    // Nobody may extend the file between finding its end and writing there.
    let _lock = inner.locks().lock_allocation(row.id)?;
    let identity = file.identity()?;
    keep_live(inner, row, &file)?;
    let gaps = chain::mend(&file)?;
    let end = file.size()?;
    let sealing = Sealing { identity: &identity, end, anchors, gaps: &gaps, modified: file::now() };
    let sealed = tfile::seal(&sealing).map_err(Error::storage(format!("database {}", row.name)))?;
    file.write(&sealed.tail, end)?;
    file.sync()?;
    file.write(&sealed.front, 0)?;
    file.sync()
}

/// Sees to it that no byte of a version lies between keys: what lies there is nobody's once the file
/// is sealed, or is cut off. Killed writers leave nothing of the kind, but a damaged key does.
fn keep_live(inner: &Inner, row: &DatabaseRow, file: &DatabaseFile) -> Result<()> {
    let survey = chain::survey(file)?;
    if survey.faults.is_empty() {
        return Ok(());
    }
    let source = Source(DatabaseFile::open(inner.path_of(row))?.into());
    let live = Inventory::of(&source, &inner.local()?.all_versions(row.id)?)?;
    let between: Ranges = survey.faults.into_iter().collect();
    let mut free = between.clone();
    free.remove_all(&live);
    if free != between {
        chain::cover(file, &live)?;
    }
    Ok(())
}
