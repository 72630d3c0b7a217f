//! Files that are not on the disk because the federation keeps them in a store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_archive::Archive;
use femtobarn_catalog::{Catalogue, DatabaseRow, DiskState, ErrorKind, Residence, ResidenceState};

use crate::error::{Error, Result};
use crate::progress::{Progress, Watch};
use crate::storage::file::DatabaseFile;

/// How long a reader waits for another process that stages the same database: practically without limit.
pub(crate) const STAGED_BY_ANOTHER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Called with an operation that stages the file that a reader needs; calls it with a watch, and returns its result.
pub(crate) type ReaderStaging =
    dyn Fn(&mut dyn FnMut(&mut Watch<'_>) -> Result<()>) -> Result<()> + Send + Sync;

/// Stages a database's file.
pub(crate) fn stage(
    catalog: &Arc<dyn Catalogue>,
    database: &DatabaseRow,
    lock_wait: Duration,
    watch: &mut Watch<'_>,
) -> Result<()> {
    let archive = Archive::open(catalog.clone())?;
    let size = archive.residence(database.id)?.replicas.first().map_or(0, |replica| replica.size);
    let mut report = moving("staging", &database.name, size, watch);
    Ok(archive.stage(database.id, lock_wait, &mut report)?)
}

/// A callback that reports the progress of moving bytes.
pub(crate) fn moving<'a>(
    doing: &'static str,
    of: &str,
    total: u64,
    progress: &'a mut Watch<'_>,
) -> impl FnMut(u64) -> bool + 'a {
    let mut state = Progress { doing, of: of.to_owned(), done: 0, total };
    move |done| {
        state.done = done.min(state.total);
        progress(&state)
    }
}

/// Why the file of a database is missing: [`Error::Nearline`] if a store has it, otherwise the error of opening it.
pub(crate) fn reason(catalog: &dyn Catalogue, database: &DatabaseRow, error: Error) -> Error {
    match residence(catalog, database) {
        // A file that should be on the disk but was lost is staged, too.
        Ok(residence) if residence.has_copy() => Error::Nearline {
            database: database.id,
            what: format!(
                "database {:?} is not on the disk, but in {}; stage it with: femtobarn stage {} {}",
                database.name,
                stores(&residence),
                catalog.folder().display(),
                database.name
            ),
        },
        Ok(residence) if residence.disk != DiskState::Online => Error::Corrupt {
            what: format!(
                "database {:?} is lost: its file left the disk, and no store has a good copy; restore \
                 it from a backup",
                database.name
            ),
        },
        Ok(_) => error,
        Err(cannot) => cannot,
    }
}

/// Whether the federation keeps a database in a store alone.
pub(crate) fn is_nearline(catalog: &dyn Catalogue, database: &DatabaseRow) -> Result<bool> {
    let state = residence(catalog, database)?.state();
    Ok(matches!(state, ResidenceState::Nearline | ResidenceState::Staging))
}

/// Opens a file on this machine; `None` if it is in a store alone.
pub(crate) fn open(
    catalog: &dyn Catalogue,
    database: &DatabaseRow,
    path: PathBuf,
) -> Result<Option<DatabaseFile>> {
    match DatabaseFile::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match reason(catalog, database, error) {
                Error::Nearline { .. } => Ok(None),
                error => Err(error),
            }
        }
        opened => opened.map(Some),
    }
}

fn residence(catalog: &dyn Catalogue, database: &DatabaseRow) -> Result<Residence> {
    Ok(catalog.local()?.residence(database.id)?)
}

fn stores(residence: &Residence) -> String {
    let complete = residence.replicas.iter().filter(|replica| replica.is_complete());
    let names: Vec<String> = complete.map(|replica| format!("store {:?}", replica.store)).collect();
    names.join(" and ")
}
