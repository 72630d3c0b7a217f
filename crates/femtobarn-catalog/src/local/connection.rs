//! One connection to the catalogue, set up the way this crate relies on.
//!
//! A catalogue is in write-ahead-log mode. SQLite then wants a shared-memory file beside it even
//! for reading, which a read-only medium cannot give. There the connection is opened *immutable*:
//! SQLite takes no locks and ignores the log, which is right as long as there is no log. So an
//! immutable connection is given up as soon as a log appears.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::BUSY_WAIT;
use crate::error::{Error, ErrorKind, Result};
use crate::schema::{self, FORMAT_VERSION, Identity};

/// Pages of the log (of 4 KiB) after which they are written into the tables. Larger makes the
/// check-point rarer than SQLite's own 1,000 does, and the log at most 16 MiB long.
const CHECKPOINT_PAGES: u32 = 4096;
const STATEMENTS_MAX: usize = 64;

/// A connection, and whether it was opened as immutable.
pub(super) struct Handle {
    pub(super) sql: Connection,
    immutable: bool,
}

impl Handle {
    /// A connection for look-ups; what it finds missing or damaged is told in full.
    pub(super) fn open_reader(path: &Path) -> Result<(Self, Identity)> {
        Self::open_shared_reader(path).or_else(|error| match error.kind() {
            ErrorKind::Io | ErrorKind::Denied if !is_writable(path) => {
                Self::open_immutable(path, error)
            }
            _ => Err(error),
        })
    }

    /// A connection for commits. Its COMMIT does not sync the log; [`super::log`] does that.
    pub(super) fn open_writer(path: &Path) -> Result<Self> {
        let sql = open_shared(path)?;
        schema::keep_log(&sql).map_err(|failure| failure.at(path))?;
        // What makes the log shorter, or writes it into the tables, still syncs.
        sql.pragma_update(None, "synchronous", "normal").map_err(|e| Error::sql(path, e))?;
        Ok(Handle { sql, immutable: false })
    }

    /// Sees to it that closing this connection does not write the log into the tables: there may be
    /// less of it on the disk than can be read.
    pub(super) fn leave_log(&self) {
        let no_checkpoint = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        // It cannot fail for a connection that is open.
        let _ = self.sql.set_db_config(no_checkpoint, true);
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.immutable || self.sql.is_readonly(rusqlite::MAIN_DB).unwrap_or(true)
    }

    /// Whether what this connection sees may be behind what is committed.
    pub(super) fn is_stale(&self, path: &Path) -> bool {
        self.immutable && log_size(path) > 0
    }

    fn open_shared_reader(path: &Path) -> Result<(Self, Identity)> {
        let handle = Handle { sql: open_shared(path)?, immutable: false };
        let identity = handle.identify(path)?;
        handle.sql.pragma_update(None, "query_only", true).map_err(|e| Error::sql(path, e))?;
        Ok((handle, identity))
    }

    fn open_immutable(path: &Path, refused: Error) -> Result<(Self, Identity)> {
        if log_size(path) > 0 {
            return Err(Error::Unsupported {
                what: format!(
                    "catalogue {} cannot be read where nothing can be written, because its last \
                     commits are still in its write-ahead log ({refused}); open it once where it \
                     can be written, or copy the folder there",
                    path.display()
                ),
            });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let sql = Connection::open_with_flags(immutable_uri(path), flags)
            .map_err(|error| Error::sql(path, error))?;
        let handle = Handle { sql, immutable: true };
        let identity = handle.identify(path)?;
        Ok((handle, identity))
    }

    fn identify(&self, path: &Path) -> Result<Identity> {
        let identity = schema::identity(&self.sql).map_err(|failure| failure.at(path));
        match identity {
            Ok(Some(identity)) if identity.format > FORMAT_VERSION => Err(Error::Unsupported {
                what: format!(
                    "catalogue {} has format version {}, and this software knows up to version \
                     {FORMAT_VERSION}; upgrade femtobarn",
                    path.display(),
                    identity.format
                ),
            }),
            Ok(Some(identity)) if identity.format < FORMAT_VERSION => Err(Error::Unsupported {
                what: format!(
                    "catalogue {} has format version {}, which was made by a pre-release; \
                     export the federation with that, and import it into a new one",
                    path.display(),
                    identity.format
                ),
            }),
            Ok(Some(identity)) => Ok(identity),
            Ok(None) => Err(Error::corrupt(path, "it does not say which federation it is of")),
            Err(Error::Internal { .. }) => {
                Err(Error::corrupt(path, "it is an SQLite database, but not a catalogue"))
            }
            Err(error) => Err(error),
        }
    }
}

/// For reading and writing where possible; SQLite falls back to reading by itself.
fn open_shared(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Connection> {
        let sql = Connection::open_with_flags(path, flags)?;
        sql.busy_timeout(BUSY_WAIT)?;
        sql.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // Otherwise SQLite parses a cached statement again for each new value of a parameter.
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        sql.pragma_update(None, "foreign_keys", true)?;
        sql.pragma_update(None, "synchronous", "full")?;
        sql.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        Ok(sql)
    };
    open().map_err(|error| Error::sql(path, error))
}

/// Whether the catalogue and its log may be written here. A full or failing disk may, too; it is not
/// one that can only be read.
fn is_writable(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    [path, folder].iter().all(|each| access(*each, AccessFlags::W_OK).is_ok())
}

fn log_size(path: &Path) -> u64 {
    fs::metadata(log_path(path)).map_or(0, |metadata| metadata.len())
}

/// The write-ahead log of a catalogue.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri + "?immutable=1"
}
