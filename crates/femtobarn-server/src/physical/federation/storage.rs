//! The storage: names, metadata and opening of databases as of a snapshot.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use femtobarn_archive::Recaller;
use femtobarn_catalog::{
    Catalogue, Csn, DatabaseId, DatabaseRow, DatabaseState, PinGuard, ResidenceState,
};
use femtobarn_format::completion;
use nix::errno::Errno;
use percent_encoding::percent_decode;

use super::error::{catalogue_error, read_only_error, synthesis_error};
use super::guarded::{FilesElsewhere, Writers};
use super::in_place::{InPlaceCounts, InPlaceStores};
use super::nearline::offline_metadata;
use super::request::{is_below_databases, is_databases_folder, is_for_this_server, is_raw};
use super::snapshot_file::{self, CompleteFile, SnapshotFile, SnapshotOrigin};
use super::synthesis::{FileSynthesizer, SynthesizedFile, time_of};
use crate::physical::{
    Creation, FolderEntry, Hints, Metadata, Opaque, OpenMode, PosixStorage, Space, Storage,
    StorageError, StoragePath, StorageResult, StoredFile, WantedBy,
};

/// The suffix of databases' names.
const SUFFIX: &str = ".root";
/// Bytes of synthesised parts that are cached for later opens, unless the server's settings say otherwise.
const CACHED_BYTES_MAX: u64 = 128 << 20;

/// The databases of a federation; see the module above.
pub struct FederationStorage {
    pub(super) catalogue: Arc<dyn Catalogue>,
    /// The federation's folder.
    pub(super) files: Arc<dyn Storage>,
    /// Brings back nearline databases; `None` if the federation has no stores.
    pub(super) recaller: Option<Arc<Recaller>>,
    /// The stores in which readers may read; `None` if there are none.
    pub(super) in_place: Option<Arc<InPlaceStores>>,
    /// `None` if the federation is read-only.
    pub(super) writers: Option<Arc<dyn Writers>>,
    synthesizer: FileSynthesizer,
}

/// The snapshot that a request reads.
struct PinnedSnapshot {
    csn: Csn,
    pin: PinGuard,
}

impl FederationStorage {
    /// A read-only view of a federation; `files` is its folder.
    pub fn new(catalogue: Arc<dyn Catalogue>, files: Arc<dyn Storage>) -> Self {
        FederationStorage {
            catalogue,
            files,
            recaller: None,
            in_place: None,
            writers: None,
            synthesizer: FileSynthesizer::new(CACHED_BYTES_MAX),
        }
    }

    /// Reads nearline databases in their stores, or brings them back, when they are opened.
    pub fn recalling(self, recaller: Option<Arc<Recaller>>) -> Self {
        let in_place = recaller.as_ref().and_then(|it| InPlaceStores::of(it.archive()));
        FederationStorage { recaller, in_place, ..self }
    }

    /// Caches at most so many bytes of synthesised parts for later opens.
    pub fn remembering(self, layout_bytes: u64) -> Self {
        FederationStorage { synthesizer: FileSynthesizer::new(layout_bytes), ..self }
    }

    /// Counts of reads in stores; `None` if readers may read in no store.
    pub fn in_place_counts(&self) -> Option<Arc<InPlaceCounts>> {
        Some(Arc::clone(&self.in_place.as_ref()?.counts))
    }

    /// Lets the sessions write that `writers` admit.
    pub fn writable(self, writers: Arc<dyn Writers>) -> Self {
        FederationStorage { writers: Some(writers), ..self }
    }

    /// Pins the snapshot that opaque information names, or the newest.
    fn pinned_snapshot(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
    ) -> StorageResult<PinnedSnapshot> {
        let refused = |error| catalogue_error("open", path, error);
        let named = match (opaque.value_of("fb.csn"), opaque.value_of("fb.tag")) {
            (None, None) => {
                let (csn, pin) = self.catalogue.pin_head().map_err(refused)?;
                return Ok(PinnedSnapshot { csn, pin });
            }
            (Some(csn), None) => self.commit_number(path, csn)?,
            (None, Some(tag)) => {
                let tag = percent_decode(tag).decode_utf8_lossy();
                self.catalogue.tag(&tag).map_err(refused)?.csn
            }
            (Some(_), Some(_)) => {
                let what = format!("cannot open {path}: give fb.csn or fb.tag, not both");
                return Err(StorageError::refused(Errno::EINVAL, what));
            }
        };
        let pin = self.catalogue.pin(named).map_err(refused)?;
        Ok(PinnedSnapshot { csn: named, pin })
    }

    fn commit_number(&self, path: &StoragePath, number: &[u8]) -> StorageResult<Csn> {
        let shown = String::from_utf8_lossy(number);
        let Ok(csn) = shown.parse().map(Csn) else {
            let what = format!("cannot open {path}: invalid commit number fb.csn={shown}");
            return Err(StorageError::refused(Errno::EINVAL, what));
        };
        let head = self.catalogue.head().map_err(|error| catalogue_error("open", path, error))?;
        if csn > head {
            let what =
                format!("cannot open {path}: commit {csn} does not exist; the newest is {head}");
            return Err(StorageError::refused(Errno::ENOENT, what));
        }
        Ok(csn)
    }

    /// The database that a path names, if there is one.
    fn find_database(&self, path: &StoragePath, at: Csn) -> StorageResult<Option<DatabaseRow>> {
        let found = name_in(path).map(|name| self.catalogue.find_database(name, at)).transpose();
        Ok(found.map_err(|error| catalogue_error("open", path, error))?.flatten())
    }

    /// The databases that paths name or have named: one that was pinned may have been renamed since.
    fn once_named(&self, paths: &[StoragePath]) -> StorageResult<Vec<DatabaseId>> {
        let mut ids = vec![];
        for path in paths {
            let Some(name) = name_in(path) else { continue };
            let found = self.catalogue.local().and_then(|local| local.databases_once_named(name));
            ids.extend(found.map_err(|error| catalogue_error("unpin", path, error))?);
        }
        Ok(ids)
    }

    /// The database that a path names.
    pub(super) fn database(&self, path: &StoragePath, at: Csn) -> StorageResult<DatabaseRow> {
        self.find_database(path, at)?.ok_or_else(|| match path.parent() {
            None => StorageError::cannot("open", path, Errno::EISDIR),
            Some(_) => {
                let what = format!("cannot open {path}: no such database in snapshot {at}");
                StorageError::refused(Errno::ENOENT, what)
            }
        })
    }

    /// Redirects a client that wants a database whose file is at another server.
    pub(super) fn redirect(&self, database: DatabaseId, opaque: Opaque<'_>) -> StorageResult<()> {
        self.writers.as_ref().map_or(Ok(()), |writers| writers.redirect(database, opaque))
    }

    /// Opens the file of a database for reading. Of the opaque information the hints count.
    pub(super) fn file_of(
        &self,
        row: &DatabaseRow,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        self.redirect(row.id, opaque)?;
        self.file_here(row, opaque)
    }

    /// Opens the file of a database that is on the disk of this server.
    fn file_here(
        &self,
        row: &DatabaseRow,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let location = Path::new(&row.path);
        if !location.is_absolute() {
            let path = StoragePath::new(format!("/{}", row.path).as_bytes())?;
            return self.open_or_recall(&path, &row.name, opaque, || Ok(Some(row.id)));
        }
        // The user who attached the file gave its path, not a client.
        let shown = StoragePath::new(format!("/{}{SUFFIX}", row.name).as_bytes())?;
        PosixStorage::open_outside(location, &shown, opaque)
    }

    /// Opens a database as a complete file.
    fn open_complete(
        &self,
        row: &DatabaseRow,
        snapshot: PinnedSnapshot,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let PinnedSnapshot { csn, pin } = snapshot;
        let file = self.file_of(row, opaque)?;
        let origin =
            SnapshotOrigin { catalogue: Arc::clone(&self.catalogue), row: row.clone(), csn };
        if row.state != DatabaseState::Open {
            // A store keeps its copy for as long as a snapshot needs the database.
            let pin = file.is_remote().then_some(pin);
            return Ok(Arc::new(CompleteFile { file, origin, _pin: pin }));
        }
        let parts = self.synthesized(row, csn, &file)?;
        Ok(Arc::new(SnapshotFile::new(file, parts, origin, pin)))
    }

    fn synthesized(
        &self,
        row: &DatabaseRow,
        at: Csn,
        file: &Arc<dyn StoredFile>,
    ) -> StorageResult<Arc<SynthesizedFile>> {
        let versions = completion::versions(&*self.catalogue, row, at);
        let versions = versions.map_err(|error| synthesis_error(row, error))?;
        self.synthesizer.synthesize(&*self.catalogue, row, &versions, file)
    }

    /// The metadata of a database, on the disk of this server, as a complete file.
    fn metadata_of(&self, row: &DatabaseRow, at: Csn) -> StorageResult<Metadata> {
        let residence = self.residence(row)?;
        if let Some(metadata) = residence.as_ref().and_then(|it| offline_metadata(row.id, it)) {
            // Before the database was sealed, the file had another end.
            let was_open = row.state == DatabaseState::Open;
            let file = if was_open { self.open_in_place(row)? } else { None };
            return match file {
                Some(file) => Ok(self.synthesized(row, at, &file)?.metadata(metadata)),
                None => Ok(metadata),
            };
        }
        let file = self.file_here(row, Opaque::default())?;
        let is_backed_up = residence.is_some_and(|it| it.state() == ResidenceState::Both);
        let metadata = Metadata { is_backed_up, ..snapshot_file::read_only(file.metadata()?) };
        match row.state {
            DatabaseState::Open => Ok(self.synthesized(row, at, &file)?.metadata(metadata)),
            DatabaseState::Sealed | DatabaseState::Attached => Ok(metadata),
        }
    }

    /// The metadata of the top.
    fn metadata_of_top(&self, at: Csn) -> StorageResult<Metadata> {
        let top = StoragePath::new(b"/")?;
        let metadata = self.files.metadata(&top, Opaque::default())?;
        let modified = match self.catalogue.commit_by_csn(at) {
            Ok(commit) => time_of(commit.time_us),
            Err(_) => metadata.modified,
        };
        Ok(Metadata { size: 0, modified, changed: modified, ..snapshot_file::read_only(metadata) })
    }
}

/// The name of a database in its path.
fn name_in(path: &StoragePath) -> Option<&str> {
    let name = path.as_bytes()[1..].strip_suffix(SUFFIX.as_bytes())?;
    std::str::from_utf8(name).ok()
}

impl Storage for FederationStorage {
    fn read_only(&self, what: &str, path: &StoragePath) -> StorageError {
        read_only_error(what, path)
    }

    fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        if is_raw(opaque) {
            return self.open_raw(path, how, opaque);
        }
        if how.write || how.creation != Creation::Existing {
            return Err(read_only_error("write", path));
        }
        let snapshot = self.pinned_snapshot(path, opaque)?;
        let row = self.database(path, snapshot.csn)?;
        self.open_complete(&row, snapshot, opaque)
    }

    fn metadata(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Metadata> {
        if is_raw(opaque) && path.parent().is_some() {
            return if is_databases_folder(path) {
                self.files.metadata(path, Opaque::default())
            } else if is_below_databases(path) {
                self.raw_metadata(path, opaque)
            } else {
                self.open_raw(path, OpenMode::default(), opaque)?.metadata()
            };
        }
        let snapshot = self.pinned_snapshot(path, opaque)?;
        match path.parent() {
            None => self.metadata_of_top(snapshot.csn),
            Some(_) => {
                let row = self.database(path, snapshot.csn)?;
                self.redirect(row.id, opaque)?;
                self.metadata_of(&row, snapshot.csn)
            }
        }
    }

    /// A database whose file cannot be read is listed without metadata.
    fn list(
        &self,
        path: &StoragePath,
        with_metadata: bool,
        opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        if is_raw(opaque) && (is_databases_folder(path) || is_below_databases(path)) {
            return self.files.list(path, with_metadata, Opaque::default());
        }
        let snapshot = self.pinned_snapshot(path, opaque)?;
        if path.parent().is_some() {
            self.database(path, snapshot.csn)?;
            return Err(StorageError::cannot("list", path, Errno::ENOTDIR));
        }
        let rows = self.catalogue.databases(snapshot.csn);
        let mut rows = rows.map_err(|error| catalogue_error("list", path, error))?;
        let is_own = is_for_this_server(opaque);
        let FilesElsewhere { databases, mut metadata } = match &self.writers {
            Some(writers) if with_metadata || is_own => {
                writers.files_elsewhere(snapshot.csn, !is_own)?
            }
            _ => FilesElsewhere::default(),
        };
        rows.retain(|row| !is_own || !databases.contains(&row.id));
        let entry = |row: DatabaseRow| {
            let name = format!("{}{SUFFIX}", row.name).into_bytes();
            let metadata = if databases.contains(&row.id) {
                metadata.remove(&name)
            } else if with_metadata {
                self.metadata_of(&row, snapshot.csn).ok()
            } else {
                None
            };
            FolderEntry { name, metadata }
        };
        let mut entries: Vec<_> = rows.into_iter().map(entry).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn stage(
        &self,
        path: &StoragePath,
        wanted: WantedBy<'_>,
        opaque: Opaque<'_>,
    ) -> StorageResult<Option<Duration>> {
        let snapshot = self.pinned_snapshot(path, opaque)?;
        let deadline = wanted.deadline.or(Hints::of(opaque).deadline);
        let row = self.database(path, snapshot.csn)?;
        self.redirect(row.id, opaque)?;
        self.recall(&row, WantedBy { deadline, ..wanted })
    }

    fn evict(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        let snapshot = self.pinned_snapshot(path, opaque)?;
        let row = self.database(path, snapshot.csn)?;
        self.redirect(row.id, opaque)?;
        self.evict_database(&row)
    }

    fn pin(
        &self,
        paths: &[StoragePath],
        holder: &str,
        until: Option<SystemTime>,
    ) -> StorageResult<()> {
        if until.is_none() {
            return self.pin_databases(&self.once_named(paths)?, holder, None);
        }
        let snapshot = self.pinned_snapshot(&StoragePath::new(b"/")?, Opaque::default())?;
        let ids = paths.iter().filter_map(|path| {
            let found = self.find_database(path, snapshot.csn).transpose()?;
            Some(found.map(|row| row.id))
        });
        self.pin_databases(&ids.collect::<StorageResult<Vec<_>>>()?, holder, until)
    }

    fn remove_file(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        if !is_raw(opaque) || !is_below_databases(path) {
            return Err(read_only_error("remove", path));
        }
        self.remove_raw(path, opaque)
    }

    fn space(&self, _path: &StoragePath) -> StorageResult<Space> {
        self.files.space(&StoragePath::new(b"/")?)
    }

    /// Databases have no attributes.
    fn attributes(&self, path: &StoragePath) -> StorageResult<Vec<Vec<u8>>> {
        if path.parent().is_some() {
            let snapshot = self.pinned_snapshot(path, Opaque::default())?;
            self.database(path, snapshot.csn)?;
        }
        Ok(vec![])
    }

    fn attribute(&self, path: &StoragePath, _name: &[u8]) -> StorageResult<Vec<u8>> {
        self.attributes(path)?;
        Err(StorageError::cannot("read an attribute of", path, Errno::ENODATA))
    }
}
