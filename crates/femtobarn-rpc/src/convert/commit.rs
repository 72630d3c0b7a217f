//! Commits as messages, and back. Sealing, attaching and moving files have no message, because they need the
//! federation's folder.

use femtobarn_catalog::{
    Commit, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseState, DroppedDatabase, Error,
    FileWrite, NewContainer, NewDatabase, NewVersion, Result, VersionRow,
};

use super::{needed, uuid};
use crate::v1;

impl TryFrom<&Commit> for v1::Commit {
    type Error = Error;

    fn try_from(commit: &Commit) -> Result<Self> {
        let is_attached = |new: &NewDatabase| new.state != DatabaseState::Open;
        let is_upkeep = !commit.sealed.is_empty()
            || !commit.moved.is_empty()
            || commit.new_databases.iter().any(is_attached);
        if is_upkeep {
            return Err(Error::Unsupported {
                what:
                    "sealing, attaching and moving files need the federation's folder; do it on the server"
                        .to_owned(),
            });
        }
        Ok(v1::Commit {
            transaction: commit.transaction.into_bytes().to_vec(),
            message: commit.message.clone(),
            new_databases: commit.new_databases.iter().map(new_database).collect(),
            new_containers: commit.new_containers.iter().map(new_container).collect(),
            new_classes: commit.new_classes.iter().cloned().map(Into::into).collect(),
            versions: commit.versions.iter().map(new_version).collect(),
            link_targets: commit.link_targets.iter().map(link_targets).collect(),
            renamed_databases: commit
                .renamed_databases
                .iter()
                .map(|(database, seen, name)| named(*database, ContainerId(0), *seen, name))
                .collect(),
            renamed_containers: commit
                .renamed_containers
                .iter()
                .map(|(database, container, seen, name)| named(*database, *container, *seen, name))
                .collect(),
            dropped_databases: commit
                .dropped_databases
                .iter()
                .map(|dropped| v1::Seen {
                    keeps_file: dropped.keeps_file,
                    ..seen(dropped.id, ContainerId(0), Some(dropped.seen))
                })
                .collect(),
            dropped_containers: commit
                .dropped_containers
                .iter()
                .map(|(database, container, csn)| seen(*database, *container, Some(*csn)))
                .collect(),
            reads: commit
                .reads
                .iter()
                .map(|(database, container, csn)| seen(*database, *container, *csn))
                .collect(),
        })
    }
}

impl TryFrom<&Commit> for v1::PublishRequest {
    type Error = Error;

    fn try_from(commit: &Commit) -> Result<Self> {
        let fences = commit.fences.iter().cloned().map(Into::into).collect();
        let (writes, commit) = (&commit.writes, Some(commit.try_into()?));
        if writes.is_empty() {
            return Ok(v1::PublishRequest { commit, fences, ..Self::default() });
        }
        let write = |it: &FileWrite| v1::FileWrite {
            database: it.database.0,
            offset: it.offset,
            bytes: it.bytes.clone(),
        };
        let writes = writes.iter().map(write).collect();
        Ok(v1::PublishRequest { commit_with_writes: commit, writes, fences, ..Self::default() })
    }
}

/// The commit in a request to publish it, with the writes and fences that the request carries beside it.
///
/// # Errors
/// [`Error::Invalid`] if the request has no commit.
pub fn published(request: v1::PublishRequest) -> Result<Commit> {
    let commit = request.commit_with_writes.or(request.commit);
    let write = |it: v1::FileWrite| FileWrite {
        database: DatabaseId(it.database),
        offset: it.offset,
        bytes: it.bytes,
    };
    let writes = request.writes.into_iter().map(write).collect();
    let fences = request.fences.into_iter().map(Into::into).collect();
    Ok(Commit { writes, fences, ..Commit::try_from(needed(commit, "commit")?)? })
}

impl TryFrom<v1::Commit> for Commit {
    type Error = Error;

    fn try_from(commit: v1::Commit) -> Result<Self> {
        let renamed_containers = commit.renamed_containers.into_iter().map(|row| {
            let csn = needed(row.csn, "commit that was read")?;
            Ok((DatabaseId(row.database), ContainerId(row.container), Csn(csn), row.name))
        });
        let dropped_databases = commit.dropped_databases.into_iter().map(|row| {
            let seen = Csn(needed(row.csn, "commit that was read")?);
            Ok(DroppedDatabase { id: DatabaseId(row.database), seen, keeps_file: row.keeps_file })
        });
        Ok(Commit {
            transaction: uuid(&commit.transaction)?,
            message: commit.message,
            new_databases: all(commit.new_databases, database_of)?,
            new_containers: commit.new_containers.into_iter().map(container_of).collect(),
            new_classes: commit.new_classes.into_iter().map(Into::into).collect(),
            versions: all(commit.versions, version_of)?,
            link_targets: all(commit.link_targets, targets_of)?,
            renamed_databases: all(commit.renamed_databases, |row| {
                let csn = needed(row.csn, "commit that was read")?;
                Ok((DatabaseId(row.database), Csn(csn), row.name))
            })?,
            renamed_containers: renamed_containers.collect::<Result<_>>()?,
            dropped_databases: dropped_databases.collect::<Result<_>>()?,
            dropped_containers: all(commit.dropped_containers, |row| {
                let csn = needed(row.csn, "commit that was read")?;
                Ok((DatabaseId(row.database), ContainerId(row.container), Csn(csn)))
            })?,
            reads: all(commit.reads, |row| {
                Ok((DatabaseId(row.database), ContainerId(row.container), row.csn.map(Csn)))
            })?,
            ..Commit::default()
        })
    }
}

fn all<T, U>(parts: Vec<T>, decode: impl FnMut(T) -> Result<U>) -> Result<Vec<U>> {
    parts.into_iter().map(decode).collect()
}

fn seen(database: DatabaseId, container: ContainerId, csn: Option<Csn>) -> v1::Seen {
    v1::Seen {
        database: database.0,
        container: container.0,
        csn: csn.map(|csn| csn.0),
        name: String::new(),
        keeps_file: false,
    }
}

fn named(database: DatabaseId, container: ContainerId, csn: Csn, name: &str) -> v1::Seen {
    v1::Seen { name: name.to_owned(), ..seen(database, container, Some(csn)) }
}

fn new_database(new: &NewDatabase) -> v1::NewDatabase {
    v1::NewDatabase {
        id: new.id.0,
        uuid: new.uuid.into_bytes().to_vec(),
        name: new.name.clone(),
        path: new.path.clone(),
    }
}

fn database_of(new: v1::NewDatabase) -> Result<NewDatabase> {
    Ok(NewDatabase {
        id: DatabaseId(new.id),
        uuid: uuid(&new.uuid)?,
        name: new.name,
        path: new.path,
        state: DatabaseState::Open,
    })
}

fn new_container(new: &NewContainer) -> v1::ContainerRow {
    let new = new.clone();
    let row = ContainerRow {
        database: new.database,
        id: new.id,
        name: new.name,
        class: new.class,
        class_version: new.class_version,
        options: new.options,
        created: Csn::ZERO,
    };
    row.into()
}

fn container_of(new: v1::ContainerRow) -> NewContainer {
    let row = ContainerRow::from(new);
    NewContainer {
        database: row.database,
        id: row.id,
        name: row.name,
        class: row.class,
        class_version: row.class_version,
        options: row.options,
    }
}

fn new_version(new: &NewVersion) -> v1::NewVersion {
    v1::NewVersion { row: Some(new.to_row(Csn::ZERO).into()), base: new.base.map(|csn| csn.0) }
}

fn version_of(new: v1::NewVersion) -> Result<NewVersion> {
    let row = VersionRow::from(needed(new.row, "version")?);
    Ok(NewVersion::from_row(row, new.base.map(Csn)))
}

fn link_targets(
    (database, container, targets): &(DatabaseId, ContainerId, Vec<uuid::Uuid>),
) -> v1::LinkTargets {
    v1::LinkTargets {
        database: database.0,
        container: container.0,
        targets: targets.iter().map(|target| target.into_bytes().to_vec()).collect(),
    }
}

fn targets_of(list: v1::LinkTargets) -> Result<(DatabaseId, ContainerId, Vec<uuid::Uuid>)> {
    let targets = list.targets.iter().map(|target| uuid(target)).collect::<Result<_>>()?;
    Ok((DatabaseId(list.database), ContainerId(list.container), targets))
}
