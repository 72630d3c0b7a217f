//! The state that a storage shares with its open files: the exported folder, and the names of users and groups.

use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode};

use super::accounts::Accounts;
use super::root_folder::RootFolder;
use crate::physical::{Metadata, StoragePath};

/// The exported folder with the accounts of its machine.
#[derive(Debug)]
pub(super) struct PosixTree {
    pub root: RootFolder,
    accounts: Accounts,
}

impl PosixTree {
    pub(super) fn open(folder: &Path) -> nix::Result<Self> {
        Ok(PosixTree { root: RootFolder::open(folder)?, accounts: Accounts::default() })
    }

    pub(super) fn metadata(&self, found: &FileStat) -> Metadata {
        self.accounts.metadata(found)
    }

    /// Makes a path durable by syncing all folders above it. Stops at a folder that has been renamed meanwhile: the
    /// rename's caller is responsible for the new name.
    pub(super) fn sync_names(&self, path: &StoragePath) -> nix::Result<()> {
        for folder in [StoragePath::top()].into_iter().chain(path.folders_above()) {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
            match self.root.open_below(&folder, flags, Mode::empty()) {
                // Some file systems have no syncs of folders, and some folders cannot be read.
                Ok(folder) => match nix::unistd::fsync(folder) {
                    Err(Errno::EINVAL) => {}
                    synced => synced?,
                },
                Err(Errno::EACCES) => {}
                Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
