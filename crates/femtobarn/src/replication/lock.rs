//! The lock of the process that follows into a folder, or promotes the copy there.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};

/// Its file.
const LOCK: &str = "locks/follower";

/// Takes the lock of a folder that one process follows into.
///
/// # Errors
/// `Busy` if another process has it.
pub(super) fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| Error::io("open", &path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(femtobarn_catalog::Error::Busy {
            what: format!("the follower in {} (end `femtobarn follow` first)", folder.display()),
            holder: None,
            waited: Duration::ZERO,
        }
        .into()),
        Err(std::fs::TryLockError::Error(error)) => Err(Error::io("lock", &path, error)),
    }
}
