//! Space at the ends of database files, for remote writers.
//!
//! A client could read the end of the file, extend it and write a key there under a lock. But it could lose the lock
//! meanwhile, with the connection or the server, and another writer could take the same bytes. So the server extends
//! the file while it holds the kernel's lock.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use femtobarn_catalog::{BlobRange, Csn, DatabaseId, Error, Result, clock};
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use rntuple::tfile::{
    FIRST_KEY, FRONT_SIZE_MIN, FileHeader, RBLOB_KEY_LENGTH, Timestamp, rblob_key_header,
};

use super::service::FederationService;

/// Bytes of the largest extent. The engine requests less, and the header of a key has no room for much more.
const PAYLOAD_MAX: u64 = 1 << 30;

impl FederationService {
    /// Extends a database's file by a key with `payload` bytes behind it, and returns the range of these bytes. Waits
    /// for other extensions of the file.
    ///
    /// `path` is relative to the federation's folder, and was checked.
    ///
    /// # Errors
    /// [`Error::Full`] if the disk is full; [`Error::NotFound`] if the file does not exist; [`Error::Changed`] if the
    /// front of a new file was not written yet, or the file belongs to another database; [`Error::Closed`] if it is
    /// damaged; [`Error::Invalid`] for a size of 0 or more than 1 GiB; [`Error::Io`] if the file cannot be extended;
    /// those of the catalogue.
    pub fn extend_file(&self, database: DatabaseId, path: &str, payload: u64) -> Result<BlobRange> {
        if payload == 0 || payload > PAYLOAD_MAX {
            let what = format!("invalid extent of {payload} bytes: must be 1 to {PAYLOAD_MAX}");
            return Err(Error::Invalid { what });
        }
        self.check_here(database)?;
        // The task of a transaction that ended may still hold a database whose file name belongs to another one by now.
        // And a client may name any file: the allocation lock that is taken here would not be that of the file's
        // database.
        let is_its_file = match self.uncommitted.database(path) {
            Some(of) => of == database,
            None => self.may_be_file_of(database, path)?,
        };
        if !is_its_file {
            let what = format!("{path} is not the file of database {database}");
            return Err(Error::Changed { what });
        }
        let _lock = self.catalog.locks().lock_allocation(database)?;
        extend(&self.catalog.folder().join(path), payload)
    }

    /// Whether a path is the file of this database, or of no committed database.
    fn may_be_file_of(&self, database: DatabaseId, path: &str) -> Result<bool> {
        match self.catalog.database_by_id(database, Csn::MAX) {
            Ok(row) if row.path == path => Ok(true),
            Ok(_) | Err(Error::NotFound { .. }) => Ok(!self.catalog.is_file_of_a_database(path)?),
            Err(error) => Err(error),
        }
    }

    /// Whether a path is the file of this database, which is not committed yet.
    pub fn is_uncommitted(&self, database: DatabaseId, path: &str) -> bool {
        self.uncommitted.database(path) == Some(database)
    }
}

fn extend(path: &Path, payload: u64) -> Result<BlobRange> {
    let failed = |error| failed(path, error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlag::O_NOFOLLOW.bits());
    let file = options.open(path).map_err(failed)?;
    let end = file.metadata().map_err(failed)?.len();
    check_front(&file, path, end)?;
    let size = RBLOB_KEY_LENGTH as u64 + payload;
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let extended = match fallocate(&file, FallocateFlags::empty(), signed(end), signed(size)) {
        Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => file.set_len(end + size),
        other => other.map_err(std::io::Error::from),
    };
    let written = extended.and_then(|()| {
        let now = Timestamp::from_unix(clock::utc_us() / 1_000_000);
        let key = rblob_key_header(end, payload, now);
        file.write_all_at(&key.map_err(std::io::Error::other)?, end)
    });
    if let Err(error) = written {
        // A full disk may have extended the file in part. If that cannot be undone, sealing marks the gap.
        drop(file.set_len(end));
        return Err(failed(error));
    }
    Ok(BlobRange { offset: end + RBLOB_KEY_LENGTH as u64, size: payload })
}

/// Refuses a file that ends within its front, which would otherwise be overwritten. If a client does not wait for the
/// answer to the write of the front, this call may overtake that write.
fn check_front(file: &File, path: &Path, end: u64) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let early = || Error::Changed { what: format!("the front of {name} was not written yet") };
    if end < FRONT_SIZE_MIN {
        return Err(early());
    }
    let mut header = [0; FIRST_KEY as usize];
    file.read_exact_at(&mut header, 0).map_err(|error| failed(path, error))?;
    match FileHeader::decode(&header) {
        Ok(header) if header.begin == FIRST_KEY && header.end >= FRONT_SIZE_MIN => {
            if header.end <= end { Ok(()) } else { Err(early()) }
        }
        _ => Err(Error::Closed {
            what: format!("the front of {name} is damaged, so it takes no more data; repair it"),
        }),
    }
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Error::Full { path: path.to_owned() }
        }
        std::io::ErrorKind::NotFound => Error::NotFound {
            what: "database",
            name: path.to_string_lossy().into_owned(),
            near_misses: vec![],
        },
        _ => {
            Error::Io { what: format!("cannot extend {}", path.display()), source: Arc::new(error) }
        }
    }
}
