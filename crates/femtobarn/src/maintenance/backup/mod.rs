//! Backups: copies of the catalogue and the database files while the federation is written to.
//!
//! A full backup is a federation that can be opened. An incremental backup holds the chunks that differ from
//! those of another backup; they are found by reading everything and comparing checksums, so that no state is
//! kept between backups.
//!
//! Invariants:
//! 1. The catalogue is copied first. The bytes it refers to are in the files by then and stay there, since
//!    the maintenance lock excludes vacuum; bytes that writers add later are harmless.
//! 2. The manifest is written last, when all files are durable.

mod copy;
mod manifest;
mod restore;

use std::path::{Path, PathBuf};

use femtobarn_catalog::{CATALOGUE_FILE, Csn, DATABASES_FOLDER, DatabaseState};

pub use restore::restore;

use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::progress::{Progress, Watch};
use crate::storage::{file, nearline, places};
use copy::FileCopy;
use manifest::Manifest;

/// The size of a backup that was made, and the files that it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// The newest commit in it.
    pub csn: Csn,
    /// Number of files that it covers.
    pub files: u64,
    /// Bytes of these files in the federation.
    pub bytes: u64,
    /// Bytes that the backup itself stores; fewer than `bytes` if it is incremental.
    pub stored: u64,
    /// Databases that are in stores alone; the restored federation reads them from there.
    pub nearline: Vec<String>,
    /// Attached files outside the federation's folder, which are not copied.
    pub left_out: Vec<PathBuf>,
}

impl Federation {
    /// Copies the federation with its history into a new folder, while it is written to. With `since`, the
    /// folder of an earlier backup, only the differences are stored.
    ///
    /// # Errors
    /// `Exists` if `folder` is not empty; `Invalid` if `since` is of another federation; `NotFound` if
    /// `since` is incomplete; `Busy` if a vacuum runs for ten minutes more; `Closed` if `progress` stops it; `Io` or
    /// `Full` if a file cannot be read or written. Then `folder` holds no complete backup.
    pub fn backup(
        &self,
        folder: &Path,
        since: Option<&Path>,
        progress: &mut Watch<'_>,
    ) -> Result<BackupReport> {
        let catalog = self.inner.local()?;
        let parent = since.map(Manifest::read).transpose()?;
        self.check_parent(parent.as_ref())?;
        let _no_vacuum = self.inner.locks().owner().share_maintenance(MAINTENANCE_WAIT)?;
        make_empty(folder)?;
        // Bytes that cannot be written back are in the copy of the catalogue.
        drop(catalog.write_back());
        let draft = folder.join("draft");
        std::fs::create_dir(&draft).map_err(|error| Error::io("create", &draft, error))?;
        let csn = catalog.backup_to(&draft.join(CATALOGUE_FILE))?;
        let mut manifest = Manifest::new(parent.as_ref(), self.uuid(), self.name(), csn);
        let files = places::files(self.folder())?;
        let mut state = Progress { doing: "backing up", of: String::new(), done: 0, total: 0 };
        let catalogue_bytes = draft.join(CATALOGUE_FILE).metadata().map_or(0, |facts| facts.len());
        state.total = catalogue_bytes + files.iter().map(|file| file.size).sum::<u64>();
        let mut stored = 0;
        let files = files.into_iter().map(|file| (self.folder(), file.relative));
        let catalogue = (&*draft, CATALOGUE_FILE.to_owned());
        for (from, path) in std::iter::once(catalogue).chain(files) {
            state.of.clone_from(&path);
            places::make_folder_of(&folder.join(&path))?;
            let known = parent.as_ref().and_then(|parent| parent.file(&path));
            let copying = FileCopy { from, to: folder, path: &path, known };
            // Progress is reported for databases only; the catalogue is small.
            let mut report = |state: &Progress| path == CATALOGUE_FILE || progress(state);
            let Some((entry, bytes)) = copying.run(&mut state, &mut report)? else { continue };
            stored += bytes;
            manifest.files.push(entry);
        }
        std::fs::remove_dir_all(&draft).map_err(|error| Error::io("remove", &draft, error))?;
        places::folders(folder)?.iter().try_for_each(|folder| file::sync_folder(folder))?;
        manifest.write(folder)?;
        Ok(BackupReport {
            csn,
            files: manifest.files.len() as u64,
            bytes: manifest.files.iter().map(|file| file.size).sum(),
            stored,
            nearline: self.nearline(csn)?,
            left_out: self.attached_outside(csn)?,
        })
    }

    fn check_parent(&self, parent: Option<&Manifest>) -> Result<()> {
        match parent.filter(|parent| parent.federation != self.uuid()) {
            None => Ok(()),
            Some(parent) => Err(Error::invalid(format!(
                "the earlier backup is of federation {:?} ({}), not of {:?} ({})",
                parent.name,
                parent.federation,
                self.name(),
                self.uuid()
            ))),
        }
    }

    fn nearline(&self, csn: Csn) -> Result<Vec<String>> {
        let mut names = vec![];
        for row in self.catalog().databases(csn)? {
            if nearline::is_nearline(self.catalog(), &row)? {
                names.push(row.name);
            }
        }
        Ok(names)
    }

    fn attached_outside(&self, csn: Csn) -> Result<Vec<PathBuf>> {
        let databases = self.catalog().databases(csn)?;
        let attached = databases.iter().filter(|row| row.state == DatabaseState::Attached);
        let paths = attached.map(|row| self.inner.path_of(row));
        Ok(paths.filter(|path| !path.starts_with(self.folder())).collect())
    }
}

/// How long a backup waits for a vacuum.
const MAINTENANCE_WAIT: std::time::Duration = std::time::Duration::from_secs(600);

/// Creates the folders of a backup or of a restored federation; `Exists` if `folder` is not empty.
fn make_empty(folder: &Path) -> Result<()> {
    let is_empty = || std::fs::read_dir(folder).map(|mut entries| entries.next().is_none());
    if folder.exists() && !is_empty().map_err(|error| Error::io("list", folder, error))? {
        return Err(Error::Exists {
            what: format!("{} is not empty; choose a new folder", folder.display()),
        });
    }
    let databases = folder.join(DATABASES_FOLDER);
    std::fs::create_dir_all(&databases).map_err(|error| Error::io("create", &databases, error))
}
