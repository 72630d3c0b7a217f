//! The servers of a federation that run in its folder. When a server has ended, the kernel has freed its locks, but its
//! clients may still have the fences that it granted, and commit through another server.
//!
//! A server shares the lock of the file with its name in `locks/servers` while it runs. The file is never removed.

use std::path::Path;

use super::file::{LockFile, LockKind, Span, names_in};
use crate::error::{Error, Result};
use crate::host;

const FOLDER: &str = "servers";
const SLOT: u64 = 0;

/// The mark of a server that runs here, until this is dropped or its process ends.
#[derive(Debug)]
pub(crate) struct ServerPresence {
    file: LockFile,
    pid: u32,
}

impl ServerPresence {
    /// Marks that a server runs here.
    pub(crate) fn begin(locks: &Path, server: &str) -> Result<Self> {
        let folder = locks.join(FOLDER);
        std::fs::create_dir_all(&folder)
            .map_err(|error| Error::io("cannot create the folder", &folder, error))?;
        let file = LockFile::open(&folder.join(server))?;
        file.lock(LockKind::Shared, Span::hold(SLOT))?;
        Ok(ServerPresence { file, pid: host::process_id() })
    }
}

impl Drop for ServerPresence {
    fn drop(&mut self) {
        // Closing the file is not enough if a forked child has it open, too.
        if self.pid == host::process_id() {
            self.file.unlock(Span::hold(SLOT));
        }
    }
}

/// The servers that have run here, and do not run now.
pub(crate) fn ended_servers(locks: &Path) -> Result<Vec<String>> {
    let folder = locks.join(FOLDER);
    let mut ended = vec![];
    for name in names_in(&folder)? {
        if !LockFile::open_read_only(&folder.join(&name))?.is_locked(Span::hold(SLOT))? {
            ended.push(name);
        }
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_ended_is_known_until_it_runs_again() {
        let folder = tempfile::tempdir().unwrap();
        let ended = || ended_servers(folder.path()).unwrap();
        assert!(ended().is_empty(), "none has run");
        let one = ServerPresence::begin(folder.path(), "one").unwrap();
        let again = ServerPresence::begin(folder.path(), "one").unwrap();
        drop(one);
        assert!(ended().is_empty(), "the next one runs");
        drop(again);
        assert_eq!(ended(), ["one"]);
        let _again = ServerPresence::begin(folder.path(), "one").unwrap();
        assert!(ended().is_empty());
    }
}
