//! A federation as programs see it that know nothing of Femtobarn: its databases, each as a complete
//! ROOT file as of a snapshot.
//!
//! 1. The top lists every database as `NAME.root`. Opaque `fb.csn=41` names the snapshot, `fb.tag=NAME`
//!    a tagged one; without either it is the newest, in every request anew.
//! 2. What is opened stays as it was, whatever is committed or vacuumed meanwhile: its snapshot is
//!    pinned for as long as it is open.
//! 3. A database that takes no more changes in that snapshot is its file itself. Of any other, the front
//!    and the end are made up, and the rest is the file; see [`synthesis`]. The same commits give the same
//!    bytes, whoever asks and when.
//! 4. Nothing is changed here, but by Femtobarn's own clients: with opaque `fb.raw=1`, a path below
//!    `/databases`, or below a folder of that, is a database's file as it is, to be read, written and made, and
//!    to be removed while it is none of a database; any other path is the file of the database of that name.
//! 5. Who writes says for which database and by which session, `fb.database=7&fb.session=UUID`, and does so
//!    only while [`Writers`] let it. The same goes for removing a file whose database may yet be committed.

mod budget;
mod composite;
mod guarded;
mod snapshot_file;
mod source;
mod synthesis;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use femtobarn_catalog::{
    Catalogue, Csn, DATABASES_FOLDER, DatabaseId, DatabaseRow, DatabaseState, ErrorKind, PinGuard,
    is_database_path,
};
use femtobarn_format::completion;
use nix::errno::Errno;
use uuid::Uuid;

use super::{
    Creation, FolderEntry, Metadata, Opaque, OpenMode, PosixStorage, Space, Storage, StorageError,
    StoragePath, StorageResult, StoredFile,
};
use guarded::Guarded;
pub use guarded::{Permit, Writers};
use snapshot_file::{Origin, SnapshotFile, Whole};
use synthesis::{FileSynthesizer, MadeUp};

/// What the names of databases end with.
const ENDING: &str = ".root";
/// Bytes of what is made up that are kept for the next who opens the same.
const KEPT_BYTES_MAX: u64 = 128 << 20;

/// The databases of a federation: see the module.
pub struct FederationStorage {
    catalogue: Arc<dyn Catalogue>,
    /// The federation's folder.
    files: Arc<dyn Storage>,
    /// None if nobody may write.
    writers: Option<Arc<dyn Writers>>,
    maker: FileSynthesizer,
}

/// The snapshot that a request is about.
struct Moment {
    csn: Csn,
    pin: PinGuard,
}

impl FederationStorage {
    /// The databases of a federation, to be read; `files` is the federation's folder.
    pub fn new(catalogue: Arc<dyn Catalogue>, files: Arc<dyn Storage>) -> Self {
        FederationStorage {
            catalogue,
            files,
            writers: None,
            maker: FileSynthesizer::new(KEPT_BYTES_MAX),
        }
    }

    /// The same, to be written by those whom `writers` let.
    pub fn writable(self, writers: Arc<dyn Writers>) -> Self {
        FederationStorage { writers: Some(writers), ..self }
    }

    /// The snapshot that opaque information names.
    fn moment(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Moment> {
        let refused = |error| trouble("open", path, error);
        let named = match (opaque.value_of("fb.csn"), opaque.value_of("fb.tag")) {
            (None, None) => {
                let (csn, pin) = self.catalogue.pin_head().map_err(refused)?;
                return Ok(Moment { csn, pin });
            }
            (Some(csn), None) => self.numbered(path, csn)?,
            (None, Some(tag)) => {
                let tag = percent_decoded(tag);
                self.catalogue.tag(&String::from_utf8_lossy(&tag)).map_err(refused)?.csn
            }
            (Some(_), Some(_)) => {
                let what = format!("cannot open {path}: give fb.csn or fb.tag, not both");
                return Err(StorageError::refused(Errno::EINVAL, what));
            }
        };
        let pin = self.catalogue.pin(named).map_err(refused)?;
        Ok(Moment { csn: named, pin })
    }

    fn numbered(&self, path: &StoragePath, number: &[u8]) -> StorageResult<Csn> {
        let shown = String::from_utf8_lossy(number);
        let Ok(csn) = shown.parse().map(Csn) else {
            let what = format!("cannot open {path}: fb.csn={shown} is not the number of a commit");
            return Err(StorageError::refused(Errno::EINVAL, what));
        };
        let head = self.catalogue.head().map_err(|error| trouble("open", path, error))?;
        if csn > head {
            let what = format!("cannot open {path}: commit {csn} is not there; {head} is newest");
            return Err(StorageError::refused(Errno::ENOENT, what));
        }
        Ok(csn)
    }

    /// The database that a path names.
    fn database(&self, path: &StoragePath, at: Csn) -> StorageResult<DatabaseRow> {
        let name = path.as_bytes()[1..].strip_suffix(ENDING.as_bytes());
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let found = name.map(|name| self.catalogue.find_database(name, at)).transpose();
        let found = found.map_err(|error| trouble("open", path, error))?;
        found.flatten().ok_or_else(|| match path.parent() {
            None => StorageError::cannot("open", path, Errno::EISDIR),
            Some(_) => {
                let what = format!("cannot open {path}: no such database in snapshot {at}");
                StorageError::refused(Errno::ENOENT, what)
            }
        })
    }

    /// The file of a database, to be read.
    fn file_of(&self, row: &DatabaseRow) -> StorageResult<Arc<dyn StoredFile>> {
        let place = Path::new(&row.path);
        if !place.is_absolute() {
            let path = StoragePath::new(format!("/{}", row.path).as_bytes())?;
            return self.files.open(&path, OpenMode::default(), Opaque::default());
        }
        // An attached file may lie anywhere: who attached it has said so.
        let shown = StoragePath::new(format!("/{}{ENDING}", row.name).as_bytes())?;
        PosixStorage::open_outside(place, &shown)
    }

    /// A database's file as it is.
    fn open_raw(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        if how.write {
            return self.open_to_write(path, how, opaque);
        }
        if is_below_databases(path) {
            return self.files.open(path, how, Opaque::default());
        }
        let head = self.catalogue.head().map_err(|error| trouble("open", path, error))?;
        self.file_of(&self.database(path, head)?)
    }

    /// A database's file as it is, or a new one for a database that is to be. A path that is a database's
    /// already, as that of one that was dropped or renamed, is taken, whether its file is there or not.
    fn open_to_write(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let is_one = matches!(how.creation, Creation::Existing | Creation::New);
        let Some(writers) = self.writers.as_ref().filter(|_| is_one && is_below_databases(path))
        else {
            return Err(changes("write", path));
        };
        if how.creation == Creation::New && self.is_taken(path, opaque)? {
            return Err(StorageError::cannot("create", path, Errno::EEXIST));
        }
        let database = self.database_to_write(path, opaque)?;
        let permit = writers.admit(session_of(&opaque), database)?;
        if how.creation == Creation::Existing {
            let file = self.files.open(path, how, Opaque::default())?;
            return Ok(Arc::new(Guarded { file, permit }));
        }
        let mut new = None;
        permit.during(&mut || {
            new = Some(self.files.open(path, how, Opaque::default())?);
            writers.made(path, database);
            Ok(())
        })?;
        let file = new.ok_or_else(|| StorageError::cannot("create", path, Errno::EIO))?;
        Ok(Arc::new(Guarded { file, permit }))
    }

    /// Removes a file that is no database's. While it may become one's, only its writer does so.
    fn remove_raw(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        let remove = || match self.is_known(path)? {
            true => Err(changes("remove a database's file:", path)),
            false => self.files.remove_file(path, Opaque::default()),
        };
        let unborn = |writers: &Arc<dyn Writers>| Some((writers.clone(), writers.unborn(path)?));
        let Some((writers, database)) = self.writers.as_ref().and_then(unborn) else {
            return remove();
        };
        if database_of(&opaque) != Some(database) {
            return Err(changes("remove the file of a database to be:", path));
        }
        let permit = writers.admit(session_of(&opaque), database)?;
        permit.during(&mut || {
            remove()?;
            writers.removed(path);
            Ok(())
        })
    }

    /// The database that a writer says it writes to, if the file is that one's, or nobody's yet.
    fn database_to_write(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
    ) -> StorageResult<DatabaseId> {
        let Some(database) = database_of(&opaque) else {
            let what = format!("cannot write {path}: fb.database names no database");
            return Err(StorageError::refused(Errno::EINVAL, what));
        };
        let refused = |error| trouble("write", path, error);
        let is_its_own = match self.catalogue.database_by_id(database, Csn::MAX) {
            Ok(row) => is_file_of(&row, path),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let unborn = self.writers.as_ref().and_then(|writers| writers.unborn(path));
                unborn.is_none_or(|of| of == database) && !self.is_known(path)?
            }
            Err(error) => return Err(refused(error)),
        };
        match is_its_own {
            true => Ok(database),
            false => {
                let what =
                    format!("cannot write {path}: it is not the file of database {database}");
                Err(StorageError::refused(Errno::EINVAL, what))
            }
        }
    }

    /// Whether a new file cannot have a path, as that is another database's, committed or not.
    fn is_taken(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<bool> {
        let unborn = self.writers.as_ref().and_then(|writers| writers.unborn(path));
        Ok(unborn.is_some_and(|of| database_of(&opaque) != Some(of)) || self.is_known(path)?)
    }

    /// Whether a file is a database's; that of one that was dropped is, too, while a snapshot needs it.
    fn is_known(&self, path: &StoragePath) -> StorageResult<bool> {
        let below = String::from_utf8_lossy(&path.as_bytes()[1..]);
        let catalog = self.catalogue.local();
        let known = catalog.and_then(|catalog| catalog.is_file_of_a_database(&below));
        known.map_err(|error| trouble("look for", path, error))
    }

    /// A database as a complete file.
    fn open_complete(
        &self,
        row: &DatabaseRow,
        moment: Moment,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let Moment { csn, pin } = moment;
        let file = self.file_of(row)?;
        let origin = Origin { catalogue: Arc::clone(&self.catalogue), row: row.clone(), csn };
        if row.state != DatabaseState::Open {
            return Ok(Arc::new(Whole { file, origin }));
        }
        let made = self.made(row, csn, &file)?;
        Ok(Arc::new(SnapshotFile::new(file, made, origin, pin)))
    }

    fn made(
        &self,
        row: &DatabaseRow,
        at: Csn,
        file: &Arc<dyn StoredFile>,
    ) -> StorageResult<Arc<MadeUp>> {
        let versions = completion::versions(&*self.catalogue, row, at);
        let versions = versions.map_err(|error| synthesis::trouble(row, error))?;
        self.maker.make(&*self.catalogue, row, &versions, file)
    }

    /// What is known of a database as a complete file.
    fn facts_of(&self, row: &DatabaseRow, at: Csn) -> StorageResult<Metadata> {
        let file = self.file_of(row)?;
        let metadata = snapshot_file::read_only(file.metadata()?);
        match row.state {
            DatabaseState::Open => Ok(self.made(row, at, &file)?.metadata(metadata)),
            DatabaseState::Sealed | DatabaseState::Attached => Ok(metadata),
        }
    }

    /// What is known of the top.
    fn facts_of_top(&self, at: Csn) -> StorageResult<Metadata> {
        let top = StoragePath::new(b"/")?;
        let metadata = self.files.metadata(&top, Opaque::default())?;
        let modified = match self.catalogue.commit_by_csn(at) {
            Ok(commit) => time_of(commit.time_us),
            Err(_) => metadata.modified,
        };
        Ok(Metadata { size: 0, modified, changed: modified, ..snapshot_file::read_only(metadata) })
    }
}

impl Storage for FederationStorage {
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
            return Err(changes("write", path));
        }
        let moment = self.moment(path, opaque)?;
        self.open_complete(&self.database(path, moment.csn)?, moment)
    }

    fn metadata(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Metadata> {
        if is_raw(opaque) && path.parent().is_some() {
            return match is_below_databases(path) || path.as_bytes() == databases() {
                true => self.files.metadata(path, Opaque::default()),
                false => self.open_raw(path, OpenMode::default(), opaque)?.metadata(),
            };
        }
        let moment = self.moment(path, opaque)?;
        match path.parent() {
            None => self.facts_of_top(moment.csn),
            Some(_) => self.facts_of(&self.database(path, moment.csn)?, moment.csn),
        }
    }

    /// Databases whose files cannot be read are listed without metadata.
    fn list(
        &self,
        path: &StoragePath,
        with_facts: bool,
        opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        if is_raw(opaque) && (path.as_bytes() == databases() || is_below_databases(path)) {
            return self.files.list(path, with_facts, Opaque::default());
        }
        let moment = self.moment(path, opaque)?;
        if path.parent().is_some() {
            self.database(path, moment.csn)?;
            return Err(StorageError::cannot("list", path, Errno::ENOTDIR));
        }
        let rows = self.catalogue.databases(moment.csn);
        let entry = |row: DatabaseRow| FolderEntry {
            metadata: with_facts.then(|| self.facts_of(&row, moment.csn).ok()).flatten(),
            name: (row.name + ENDING).into_bytes(),
        };
        let rows = rows.map_err(|error| trouble("list", path, error))?;
        let mut entries: Vec<_> = rows.into_iter().map(entry).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn make_folder(&self, path: &StoragePath, _mode: u32, _parents: bool) -> StorageResult<()> {
        Err(changes("make the folder", path))
    }

    fn remove_file(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        if !is_raw(opaque) || !is_below_databases(path) {
            return Err(changes("remove", path));
        }
        self.remove_raw(path, opaque)
    }

    fn remove_folder(&self, path: &StoragePath) -> StorageResult<()> {
        Err(changes("remove the folder", path))
    }

    fn rename(&self, from: &StoragePath, _to: &StoragePath) -> StorageResult<()> {
        Err(changes("rename", from))
    }

    fn set_mode(&self, path: &StoragePath, _mode: u32) -> StorageResult<()> {
        Err(changes("set the permissions of", path))
    }

    fn truncate(&self, path: &StoragePath, _size: u64) -> StorageResult<()> {
        Err(changes("truncate", path))
    }

    fn space(&self, _path: &StoragePath) -> StorageResult<Space> {
        self.files.space(&StoragePath::new(b"/")?)
    }

    /// Databases have none.
    fn attributes(&self, path: &StoragePath) -> StorageResult<Vec<Vec<u8>>> {
        if path.parent().is_some() {
            let moment = self.moment(path, Opaque::default())?;
            self.database(path, moment.csn)?;
        }
        Ok(vec![])
    }

    fn attribute(&self, path: &StoragePath, _name: &[u8]) -> StorageResult<Vec<u8>> {
        self.attributes(path)?;
        Err(StorageError::cannot("read an attribute of", path, Errno::ENODATA))
    }

    fn set_attribute(
        &self,
        path: &StoragePath,
        _name: &[u8],
        _value: &[u8],
        _must_be_new: bool,
    ) -> StorageResult<()> {
        Err(changes("set an attribute of", path))
    }

    fn remove_attribute(&self, path: &StoragePath, _name: &[u8]) -> StorageResult<()> {
        Err(changes("remove an attribute of", path))
    }
}

fn is_raw(opaque: Opaque<'_>) -> bool {
    opaque.value_of("fb.raw") == Some(b"1")
}

/// Opaque information that is text.
fn text_of<'a>(opaque: &'a Opaque<'_>, key: &str) -> Option<&'a str> {
    std::str::from_utf8(opaque.value_of(key)?).ok()
}

/// The database that a writer says it writes to.
fn database_of(opaque: &Opaque<'_>) -> Option<DatabaseId> {
    text_of(opaque, "fb.database")?.parse().ok().map(DatabaseId)
}

/// The session that a writer says it has.
fn session_of(opaque: &Opaque<'_>) -> Option<Uuid> {
    Uuid::parse_str(text_of(opaque, "fb.session")?).ok()
}

/// Whether a path below the federation's folder is a database's file.
fn is_file_of(row: &DatabaseRow, path: &StoragePath) -> bool {
    row.path.as_bytes() == &path.as_bytes()[1..]
}

fn databases() -> Vec<u8> {
    [b"/", DATABASES_FOLDER.as_bytes()].concat()
}

/// Whether a path is that of a database's file within the federation's folder, or of a place.
fn is_below_databases(path: &StoragePath) -> bool {
    std::str::from_utf8(&path.as_bytes()[1..]).is_ok_and(is_database_path)
}

/// Text of a URL, where `%20` stands for a byte that is none of URLs.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        let is_code = |code: &&[u8]| byte == b'%' && code.iter().all(u8::is_ascii_hexdigit);
        let code = behind.get(..2).filter(is_code);
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let coded = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        decoded.push(coded.unwrap_or(byte));
        rest = if coded.is_some() { &behind[2..] } else { behind };
    }
    decoded
}

/// Why nothing is changed through here.
fn changes(what: &str, path: &StoragePath) -> StorageError {
    let what = format!(
        "cannot {what} {path}: databases change by transactions of Femtobarn, and files become \
         databases by attaching them"
    );
    StorageError::refused(Errno::EROFS, what)
}

/// Why the catalogue did not answer. Where it lies is nobody's business.
fn trouble(
    what: &str,
    path: &impl std::fmt::Display,
    error: femtobarn_catalog::Error,
) -> StorageError {
    let errno = match error.kind() {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::Busy => Errno::EBUSY,
        ErrorKind::Full => Errno::ENOSPC,
        ErrorKind::Invalid => Errno::EINVAL,
        _ => Errno::EIO,
    };
    if errno == Errno::EIO {
        tracing::error!(%error, "the catalogue of a federation cannot be read");
        return StorageError::refused(errno, format!("cannot {what} {path}: no catalogue"));
    }
    StorageError::refused(errno, format!("cannot {what} {path}: {error}"))
}

/// A time of the catalogue, in microseconds since 1970.
fn time_of(time_us: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(time_us).unwrap_or(0))
}
