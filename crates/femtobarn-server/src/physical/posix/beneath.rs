//! Paths beneath a folder: the only place where a path becomes a file descriptor.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

use crate::physical::StoragePath;

/// How often a path is resolved again because somebody renamed folders meanwhile.
const RESOLUTIONS_MAX: usize = 100;

/// The folder that nothing leaves.
#[derive(Debug)]
pub(super) struct Top(OwnedFd);

impl Top {
    pub(super) fn open(folder: &Path) -> nix::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Top(open(folder, flags, Mode::empty())?))
    }

    /// Opens what lies at a path; `EACCES` if that is outside.
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
                // The kernel cannot tell whether a `..` of a link left the top.
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(Errno::EXDEV) => return Err(Errno::EACCES),
                other => return other,
            }
        }
        Err(Errno::EBUSY)
    }
}
