//! The exported folder: the only place where a path becomes a file descriptor.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

use crate::physical::StoragePath;

/// Attempts to resolve a path while folders are renamed concurrently.
const RESOLUTIONS_MAX: usize = 100;

/// The folder beneath which all paths are resolved.
#[derive(Debug)]
pub(super) struct RootFolder(OwnedFd);

impl RootFolder {
    pub(super) fn open(folder: &Path) -> nix::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(RootFolder(open(folder, flags, Mode::empty())?))
    }

    /// Opens a path; `EACCES` if it leads outside.
    pub(super) fn open_below(
        &self,
        path: &StoragePath,
        flags: OFlag,
        mode: Mode,
    ) -> nix::Result<OwnedFd> {
        let relative = match &path.as_bytes()[1..] {
            [] => b".",
            relative => relative,
        };
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        for _ in 1..RESOLUTIONS_MAX {
            match openat2(&self.0, relative, how) {
                // After a concurrent rename the kernel cannot tell whether the `..` of a link left the folder.
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(Errno::EXDEV) => return Err(Errno::EACCES),
                other => return other,
            }
        }
        Err(Errno::EBUSY)
    }
}
