//! Errors of the catalogue, of stores and of synthesis, as clients of a federation see them.

use std::fmt::Display;
use std::time::Duration;

use femtobarn_archive::Error as ArchiveError;
use femtobarn_catalog::{DatabaseRow, ErrorKind};
use nix::errno::Errno;

use crate::physical::{StorageError, StoragePath};

/// When a client may try again if open files have used up the budget of synthesised bytes.
const BUDGET_RETRY: Duration = Duration::from_secs(5);
/// The longest time after which a client that waits for a file asks again, so that it learns soon that the file has
/// arrived.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);
pub(super) const WAIT_MIN: Duration = Duration::from_secs(1);

/// The error of an operation that would change a federation through this storage.
pub(super) fn read_only_error(what: &str, path: &StoragePath) -> StorageError {
    let what = format!(
        "cannot {what} {path}: databases change by transactions of Femtobarn, and files become \
         databases by attaching them"
    );
    StorageError::refused(Errno::EROFS, what)
}

/// An error of the catalogue. An I/O error is logged, and the client does not learn where the catalogue lies.
pub(super) fn catalogue_error(
    what: &str,
    path: &impl Display,
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
        tracing::error!(%error, "cannot read the catalogue of a federation");
        return StorageError::refused(
            errno,
            format!("cannot {what} {path}: the catalogue cannot be read"),
        );
    }
    StorageError::refused(errno, format!("cannot {what} {path}: {error}"))
}

/// An error of a federation's stores.
pub(super) fn archive_error(what: &str, name: &impl Display, error: ArchiveError) -> StorageError {
    let errno = match error.kind() {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::Busy => Errno::EBUSY,
        ErrorKind::Denied => Errno::EPERM,
        ErrorKind::Full => Errno::ENOSPC,
        ErrorKind::Invalid => Errno::EINVAL,
        _ => Errno::EIO,
    };
    match error {
        ArchiveError::Catalogue(error) => catalogue_error(what, name, error),
        ArchiveError::NotBefore { wait, what } => {
            StorageError::NotBefore(wait.clamp(WAIT_MIN, WAIT_MAX), what)
        }
        other => StorageError::refused(errno, format!("cannot {what} {name}: {other}")),
    }
}

/// An error of synthesising a database's file.
pub(super) fn synthesis_error(row: &DatabaseRow, error: femtobarn_format::Error) -> StorageError {
    use femtobarn_format::Error;
    let shown = format!("database {}", row.name);
    let errno = match error {
        Error::Catalogue(error) => return catalogue_error("open", &shown, error),
        Error::Storage { source: rntuple::Error::Io { ref source, .. }, .. } => {
            source.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
        }
        _ => Errno::EIO,
    };
    let what = format!("cannot open {shown}: {error}");
    if errno == Errno::EAGAIN {
        StorageError::NotBefore(BUDGET_RETRY, what)
    } else {
        StorageError::refused(errno, what)
    }
}
