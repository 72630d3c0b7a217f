//! Sealing: a database becomes a complete ROOT file that never changes again.
//!
//! What is sealed is appended first and made durable; the front of the file, which makes it a ROOT
//! file, is written over in place next; the catalogue says "sealed" last. Killed before that, the
//! database is still open: nothing committed depends on the front, and sealing can be done again.

use std::time::Duration;

use femtobarn_catalog::{
    Commit, ContainerRow, Csn, DatabaseId, DatabaseRow, DatabaseState, LockGuard,
};
use rntuple::Anchor;
use rntuple::tfile::{self, Sealing};
use uuid::Uuid;

use crate::chain;
use crate::description::{self, DESCRIPTION, Description};
use crate::error::{Error, Result};
use crate::federation::{Federation, Inner};
use crate::file::{self, DatabaseFile};
use crate::view::{Source, link};

impl Federation {
    /// Seals a database: waits for its writers, and makes it a complete ROOT file that takes no more
    /// changes.
    ///
    /// # Errors
    /// `NotFound` for the name; `Closed` if it is sealed or attached already; `Busy` if a container
    /// is written for longer than `lock_wait`; `Conflict` if one was created meanwhile; as the disk.
    /// Then the database is open as before.
    pub fn seal(&self, name: &str, lock_wait: Duration) -> Result<Csn> {
        let inner = &*self.inner;
        let row = inner.catalog.database(name, Csn::MAX)?;
        if row.state != DatabaseState::Open {
            return Err(Error::Closed {
                what: format!("database {name:?} is {} already", row.state),
            });
        }
        let containers = inner.catalog.containers(row.id, Csn::MAX)?;
        let _locks = lock_all(inner, row.id, &containers, lock_wait)?;
        // Who creates a container waits for nobody; the commit refuses what came after this look.
        let seen = inner.catalog.head()?;
        let containers = inner.catalog.containers(row.id, seen)?;
        let mut anchors = anchors(inner, row.id, &containers, seen)?;
        anchors.push((DESCRIPTION.to_owned(), describe(inner, &row, &containers)?));
        inner.retire_extents(row.id)?;
        complete(inner, &row, &anchors)?;
        let message = format!("seal {name}");
        let transaction = Uuid::new_v4();
        let commit =
            Commit { transaction, message, sealed: vec![(row.id, seen)], ..Commit::default() };
        Ok(inner.catalog.commit(commit)?)
    }
}

pub(crate) fn lock_all(
    inner: &Inner,
    database: DatabaseId,
    containers: &[ContainerRow],
    wait: Duration,
) -> Result<Vec<LockGuard>> {
    let owner = inner.locks().owner();
    let guards = containers.iter().map(|row| owner.lock_container(database, row.id, wait));
    Ok(guards.collect::<femtobarn_catalog::Result<_>>()?)
}

/// An anchor for the version of each container.
fn anchors(
    inner: &Inner,
    database: DatabaseId,
    containers: &[ContainerRow],
    seen: Csn,
) -> Result<Vec<(String, Anchor)>> {
    let anchor = |row: &ContainerRow| {
        let version = inner.catalog.version(database, row.id, seen)?;
        let version = version.ok_or_else(|| Error::NotFound {
            what: format!("container {:?} has no version", row.name),
        })?;
        Ok((row.name.clone(), Anchor::new(link(&version.header), link(&version.footer))))
    };
    containers.iter().map(anchor).collect()
}

/// Writes what the file says about its containers.
fn describe(inner: &Inner, row: &DatabaseRow, containers: &[ContainerRow]) -> Result<Anchor> {
    let describe = |container: &ContainerRow| {
        let class = inner.catalog.class(&container.class, Some(container.class_version))?;
        let targets = inner.catalog.link_targets(row.id, container.id)?;
        Ok(Description {
            container: container.id.0,
            name: container.name.clone(),
            class: class.name,
            class_version: class.version,
            definition: class.definition,
            options: container.options.clone(),
            link_targets: targets.iter().map(Uuid::to_string).collect(),
        })
    };
    let descriptions = containers.iter().map(describe).collect::<Result<Vec<_>>>()?;
    let mut extents = inner.take_extents(row.id, inner.path_of(row))?;
    let source = Source(extents.file().clone());
    let written = description::write(&mut extents, &source, &descriptions);
    let (header, footer) = written.map_err(Error::storage(format!("database {}", row.name)))?;
    extents.flush()?;
    inner.return_extents(row.id, extents);
    Ok(Anchor::new(header, footer))
}

/// Appends anchors, list of keys and the rest, and writes the front that refers to them.
fn complete(inner: &Inner, row: &DatabaseRow, anchors: &[(String, Anchor)]) -> Result<()> {
    let file = DatabaseFile::open_to_write(inner.path_of(row))?;
    // Nobody may extend the file between finding its end and writing there.
    let _lock = inner.locks().lock_allocation(row.id)?;
    let identity = file.identity()?;
    let gaps = chain::mend(&file)?;
    let end = file.size()?;
    let sealing = Sealing { identity: &identity, end, anchors, gaps: &gaps, modified: file::now() };
    let sealed = tfile::seal(&sealing).map_err(Error::storage(format!("database {}", row.name)))?;
    file.write(&sealed.tail, end)?;
    file.sync()?;
    file.write(&sealed.front, 0)?;
    file.sync()
}
