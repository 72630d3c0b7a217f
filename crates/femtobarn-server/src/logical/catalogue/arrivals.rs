//! Databases that move to this server from their home.
//!
//! 1. The file is copied while it is read and written. Before that, and at the end, the database is locked at its home
//!    for a moment. In between, bytes are written only after the former end of the file, in space that was free then,
//!    and to the front; these are copied at the end. A new epoch at the beginning ends the writers' reservations of
//!    space.
//! 2. The home changes in one step, while the database is locked, and after the file here is durable as a whole. An
//!    error while the copy is made removes it; a crash leaves it under another name, and the next attempt replaces it,
//!    as it does a whole copy whose home then did not change. A crash after the change leaves the old file, which
//!    belongs to no database.
//! 3. The home gives a database up, and removes its file, after it has seen the whole file at the other server. In
//!    between, no other session can lock the database there, even if the session of the move ends.
//! 4. A move continues when its client has disconnected; a client may ask for it any number of times.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::{
    BlobRange, Catalogue, Csn, DatabaseId, DatabaseRow, Error, Home, LockGuard, Result, ServerRow,
    clock,
};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use parking_lot::Mutex;
use xrd::Location;
use xrd::client::{Options, Url, blocking};
use xrd::flags::OpenOptions;

use super::service::FederationService;
use super::session::CatalogueSession;
use super::site::{DatabasePlace, Site};

/// The longest wait of a move for the transactions that hold its database.
const LOCK_WAIT: Duration = Duration::from_secs(60);
/// The longest wait for the home.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the error of a move is kept for the client that asked for the move.
const ERROR_KEPT_MAX: Duration = Duration::from_secs(60);
/// Bytes of one read.
const PART: usize = 4 << 20;
/// Bytes at the front that commits change: the header of the file and the keys after it.
const FRONT: u64 = 64 << 10;
/// The most restarts of a copy because space of the database was reused meanwhile.
const ATTEMPTS: u32 = 5;

/// The moves in progress, and the outcomes that no client has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    moves: Mutex<HashMap<DatabaseId, MoveState>>,
    /// Held while a file that was handed over is removed, and while an arriving one gets its name: a database may
    /// return at once.
    names: Mutex<()>,
}

#[derive(Debug)]
enum MoveState {
    /// The number of bytes copied so far.
    Moving(u64),
    Ended(Instant, Result<()>),
}

/// The progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveProgress {
    /// The move is in progress; the number of bytes copied.
    Moving(u64),
    /// The database is here.
    Done,
}

impl FederationService {
    /// Moves a database to the server `to`, which must be this one. Returns at once; call again until it is done.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if `to` is another server; [`Error::NotFound`] if there is no such server or database;
    /// [`Error::Unsupported`] if the federation has one server, or the file is an attached one; the error with which
    /// the move has ended: [`Error::Busy`] if transactions hold the database for too long, [`Error::Unavailable`] if
    /// its home is offline.
    pub fn move_here(self: &Arc<Self>, database: DatabaseId, to: &str) -> Result<MoveProgress> {
        let what = "the federation has one server, so no database can move to another".to_owned();
        let site = self.site().ok_or(Error::Unsupported { what })?;
        if to != site.name() {
            return Err(site.at_server(database, to)?);
        }
        let mut moves = self.arrivals.moves.lock();
        match moves.get(&database) {
            Some(MoveState::Moving(bytes)) => return Ok(MoveProgress::Moving(*bytes)),
            // The place of the database is looked up next; an old error belongs to a client that has disconnected.
            Some(MoveState::Ended(at, outcome)) => {
                let told = outcome.clone().map(drop).or_else(|error| {
                    if at.elapsed() < ERROR_KEPT_MAX { Err(error) } else { Ok(()) }
                });
                moves.remove(&database);
                told?;
            }
            None => {}
        }
        let row = self.catalog.database_by_id(database, Csn::MAX)?;
        let DatabasePlace::There(home) = site.place_of(database)? else {
            return Ok(MoveProgress::Done);
        };
        // Another client may never ask for the outcome of its move.
        moves.retain(|_, state| match state {
            MoveState::Ended(at, _) => at.elapsed() < ERROR_KEPT_MAX,
            MoveState::Moving(_) => true,
        });
        moves.insert(database, MoveState::Moving(0));
        drop(moves);
        let (service, site) = (Arc::clone(self), Arc::clone(site));
        let run = move || {
            let outcome = service.fetch(&site, &row, &home);
            if let Err(error) = &outcome {
                tracing::warn!(database = row.name, %error, "the database did not move here");
            }
            service.arrivals.moves.lock().insert(row.id, MoveState::Ended(clock::now(), outcome));
        };
        let started = std::thread::Builder::new().name("femtobarn-move".to_owned()).spawn(run);
        started.map_err(|error| {
            self.arrivals.moves.lock().remove(&database);
            Error::Io { what: "cannot start a thread".to_owned(), source: Arc::new(error) }
        })?;
        Ok(MoveProgress::Moving(0))
    }

    fn fetch(&self, site: &Site, row: &DatabaseRow, home: &Home) -> Result<()> {
        if Path::new(&row.path).is_absolute() {
            let what =
                format!("database {:?} is an attached file, which stays where it is", row.name);
            return Err(Error::Unsupported { what });
        }
        let options = ConnectOptions {
            find_token: || xrd::client::bearer_token().map(|found| found.token.0),
            patience: PATIENCE,
            ..ConnectOptions::default()
        };
        let source = RemoteCatalogue::connect(&home.url, &options)?;
        if source.uuid() != self.catalog.uuid() {
            let what = format!("{} has another federation", home.url);
            return Err(Error::Unavailable { what });
        }
        let guard = if site.shares_disk(&self.catalog.server(&home.server)?) {
            exclusive(&source, row)?
        } else {
            self.copy_from(&source, row, home)?
        };
        source.hand_over(row.id, site.name())?;
        drop(guard);
        tracing::info!(database = row.name, from = home.server, "the database moved here");
        Ok(())
    }

    /// Copies the file of a database, and returns its lock at the source, under which the copy is complete.
    fn copy_from(
        &self,
        source: &RemoteCatalogue,
        row: &DatabaseRow,
        home: &Home,
    ) -> Result<LockGuard> {
        let id = row.id;
        for _ in 0..ATTEMPTS {
            let row = &self.catalog.database_by_id(id, Csn::MAX)?;
            let path = self.catalog.folder().join(&row.path);
            let draft = Draft(path.with_file_name(format!(".moving-{}", row.id)));
            let failed = |error| failed(&path, error);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(failed)?;
            }
            let guard = exclusive(source, row)?;
            let epoch = self.catalog.begin_epoch(row.id)?;
            let free = self.catalog.free_extents(row.id)?;
            let remote = FileElsewhere::open(&home.url, row, "")?;
            let size = remote.size()?;
            drop(guard);
            let file = File::options()
                .create(true)
                .truncate(true)
                .read(true)
                .write(true)
                .open(&draft.0)
                .map_err(failed)?;
            let copy = |range: BlobRange| -> Result<()> {
                remote.read(range, |offset, bytes| {
                    file.write_all_at(bytes, offset).map_err(failed)?;
                    self.count_moved(row.id, bytes.len() as u64);
                    Ok(())
                })
            };
            copy(BlobRange { offset: 0, size })?;
            let guard = exclusive(source, row)?;
            let now = self.catalog.database_by_id(row.id, Csn::MAX)?;
            if (now.epoch, now.state, &now.path) != (epoch, row.state, &row.path) {
                continue;
            }
            let end = remote.size()?;
            copy(BlobRange { offset: size.min(end), size: end.saturating_sub(size) })?;
            copy(BlobRange { offset: 0, size: FRONT.min(end) })?;
            free.iter().try_for_each(|extent| copy(extent.range))?;
            file.set_len(end).and_then(|()| file.sync_all()).map_err(failed)?;
            let naming = self.arrivals.names.lock();
            fs::rename(&draft.0, &path).map_err(failed)?;
            drop(naming);
            let folder = path.parent().unwrap_or(&path);
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
            return Ok(guard);
        }
        let what = format!(
            "the space of database {:?} keeps being given to writers; try again later",
            row.name
        );
        Err(Error::Changed { what })
    }

    fn count_moved(&self, database: DatabaseId, more: u64) {
        if let Some(MoveState::Moving(bytes)) = self.arrivals.moves.lock().get_mut(&database) {
            *bytes += more;
        }
    }

    /// Makes another server, which has the file of a database, its home, and removes the file here. The session holds
    /// the database exclusively, and does so until this has ended, even if its client disconnects.
    ///
    /// # Errors
    /// [`Error::Changed`] if the database is not here, its lock was lost, or the other server does not show its whole
    /// file; [`Error::Invalid`] if other sessions may hold it, too; those of the catalogue.
    pub fn hand_over(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        database: DatabaseId,
        to: &str,
    ) -> Result<()> {
        let lost = || Error::Changed { what: format!("database {database} is not here") };
        let site = self.site().ok_or_else(lost)?;
        let (_handing_over, locked) = self.begin_alone(session, database)?;
        site.check_here(database)?;
        let row = self.catalog.database_by_id(database, Csn::MAX)?;
        let there = self.catalog.server(to)?;
        let keeps_file = site.shares_disk(&there);
        if !keeps_file {
            self.check_copy(&row, &there)?;
        }
        let _naming = self.arrivals.names.lock();
        site.hand_over(database, locked, to)?;
        if keeps_file {
            return Ok(());
        }
        // Clients that have the file open continue to read it. After a crash the remaining file belongs to no database.
        let path = self.catalog.folder().join(&row.path);
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "the file of a moved database cannot be removed");
        }
        Ok(())
    }

    /// Checks that another server has the whole file of a database, to which nothing is written now. In another state
    /// of it, the size or the front would differ.
    fn check_copy(&self, row: &DatabaseRow, there: &ServerRow) -> Result<()> {
        let path = self.catalog.folder().join(&row.path);
        let compare = || -> Result<bool> {
            let own = File::open(&path).map_err(|error| failed(&path, error))?;
            let size = own.metadata().map_err(|error| failed(&path, error))?.len();
            let copy = FileElsewhere::open(&there.url, row, "&fb.here=1")?;
            let mut is_same = copy.size()? == size;
            copy.read(BlobRange { offset: 0, size: FRONT.min(size) }, |offset, bytes| {
                let mut front = vec![0; bytes.len()];
                own.read_exact_at(&mut front, offset).map_err(|error| failed(&path, error))?;
                is_same &= front == bytes;
                Ok(())
            })?;
            Ok(is_same)
        };
        let why = match compare() {
            Ok(true) => return Ok(()),
            Ok(false) => "its file there differs from the one here".to_owned(),
            Err(error) => error.to_string(),
        };
        let ServerRow { name: server, .. } = there;
        let what = format!("database {:?} does not move to server {server:?}: {why}", row.name);
        Err(Error::Changed { what })
    }
}

/// Locks a database at its home exclusively, as soon as no transaction holds it.
fn exclusive(source: &RemoteCatalogue, row: &DatabaseRow) -> Result<LockGuard> {
    source.locks().owner().lock_database_exclusive(row.id, LOCK_WAIT)
}

/// The path of the incomplete copy, which is removed if the copy does not get its name.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        // Mostly there is none any more. One that cannot be removed is replaced by the next attempt.
        drop(fs::remove_file(&self.0));
    }
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Error::Full { path: path.to_owned() }
        }
        _ => Error::Io { what: format!("cannot copy {}", path.display()), source: Arc::new(error) },
    }
}

/// A database's file as it is on the disk of another server.
struct FileElsewhere {
    file: blocking::File,
    url: String,
}

impl FileElsewhere {
    /// Opens the file at the server of a URL; the opaque information `more` may say at which of the two servers.
    fn open(url: &str, row: &DatabaseRow, more: &str) -> Result<Self> {
        let away = |error: &dyn std::fmt::Display| Error::Unavailable {
            what: format!("the file of database {:?} cannot be read at {url}: {error}", row.name),
        };
        let server = Url::parse(url).map_err(|error| away(&error))?;
        let federation = String::from_utf8_lossy(server.location.path()).into_owned();
        let federation = federation.trim_end_matches('/');
        let place = format!("{federation}/{}?fb.raw=1&fb.database={}{more}", row.path, row.id);
        let options = Options { patience: PATIENCE, ..Options::default() };
        let client = blocking::Client::connect(&server, options).map_err(|error| away(&error))?;
        let location = Location::new(place.into_bytes()).map_err(|error| away(&error))?;
        let file = client.open(&location, OpenOptions::READ).map_err(|error| away(&error))?;
        Ok(FileElsewhere { file, url: url.to_owned() })
    }

    fn size(&self) -> Result<u64> {
        Ok(self.file.stat().map_err(|error| self.away(&error))?.size)
    }

    /// Reads a range, part by part.
    fn read(&self, range: BlobRange, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let (mut offset, end) = (range.offset, range.offset.saturating_add(range.size));
        let mut buffer = vec![0; PART];
        while offset < end {
            let part = buffer.len().min(usize::try_from(end - offset).unwrap_or(PART));
            let read = self.file.read_checked(offset, &mut buffer[..part]);
            let read = read.map_err(|error| self.away(&error))?;
            if read == 0 {
                return Err(self.away(&format!("the file ends at byte {offset}")));
            }
            take(offset, &buffer[..read])?;
            offset += read as u64;
        }
        Ok(())
    }

    fn away(&self, error: &dyn std::fmt::Display) -> Error {
        Error::Unavailable { what: format!("{} cannot be read: {error}", self.url) }
    }
}
