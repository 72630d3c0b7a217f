//! Space at the ends of database files, for those who write them from afar.
//!
//! Were a client to do this itself, it would look for the end, lengthen the file and write a key there
//! under a lock; and if the lock were lost on the way, with the connection or with the server, somebody
//! else might take the same bytes. So it is done here, while the kernel's lock is held.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use femtobarn_catalog::{BlobRange, DatabaseId, Error, Result};
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use rntuple::tfile::{
    FIRST_KEY, FRONT_SIZE_MIN, FileHeader, RBLOB_KEY_LENGTH, Timestamp, rblob_key_header,
};

use super::FederationService;

/// Bytes of the largest extent; the engine asks for less, and a key cannot say much more.
const PAYLOAD_MAX: u64 = 1 << 30;

impl FederationService {
    /// Extends a database's file by a key with so many bytes behind it, and returns where these are. It
    /// waits for others who do the same.
    ///
    /// The path is below the federation's folder, and was checked.
    ///
    /// # Errors
    /// [`Error::Full`] if the disk is; [`Error::NotFound`] if there is no such file; [`Error::Changed`] if
    /// the front of a new file is not there yet, [`Error::Closed`] if it is damaged.
    pub fn extend_file(&self, database: DatabaseId, path: &str, payload: u64) -> Result<BlobRange> {
        if payload == 0 || payload > PAYLOAD_MAX {
            let what = format!("an extent of {payload} bytes; at most {PAYLOAD_MAX} are given");
            return Err(Error::Invalid { what });
        }
        let _lock = self.catalog.locks().lock_allocation(database)?;
        extend(&self.catalog.folder().join(path), payload)
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
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp::from_unix(signed(since.as_secs()));
        let key = rblob_key_header(end, payload, now);
        file.write_all_at(&key.map_err(std::io::Error::other)?, end)
    });
    if let Err(error) = written {
        // A full disk may have given a part. If it cannot be given back, sealing marks a hole.
        drop(file.set_len(end));
        return Err(failed(error));
    }
    Ok(BlobRange { offset: end + RBLOB_KEY_LENGTH as u64, size: payload })
}

/// Refuses a file that ends before its front does: what follows would be written over. A client that does not
/// wait for the answer to its front has it overtaken by the call that lengthens the file.
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
