//! Whether any process has a file open: asked of the kernel, by a lease.
//!
//! The kernel grants a write lease only for a file that nobody else has open, in whatever way. While it is held, a
//! process that opens the file waits, until the kernel ends the lease after most of a minute. Network file systems
//! grant no leases, nor does the kernel to users who do not own the file: there a file may be removed while it is read.
//! A reader on this host keeps its bytes; a reader on another host of a network file system gets an error.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

use crate::error::{Error, Result};

/// A file that no other process or thread has open, for as long as this lives.
#[derive(Debug)]
pub(super) struct UnusedFile {
    /// The kernel ends the lease when it is closed.
    file: File,
    /// Whether the kernel granted a lease.
    is_leased: bool,
}

impl UnusedFile {
    /// Takes the lease; `None` if the file is open elsewhere.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `Io` or `Denied` if it cannot be opened.
    pub(super) fn of(path: &Path) -> Result<Option<Self>> {
        let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
        // The default signal, sent when a process waits to open the file, would end this process: choose one that is
        // ignored.
        fcntl(&file, F_SETSIG, libc::SIGURG).map_err(|error| Error::io("lease", path, error))?;
        match fcntl(&file, libc::F_SETLEASE, libc::F_WRLCK) {
            Err(Errno::EAGAIN) => Ok(None),
            Ok(_) => Ok(Some(UnusedFile { file, is_leased: true })),
            // The file system grants no leases, or not to this user.
            Err(_) => Ok(Some(UnusedFile { file, is_leased: false })),
        }
    }

    /// Whether no other process has opened the file or waits to, as far as the kernel can tell.
    pub(super) fn is_still_unused(&self) -> bool {
        !self.is_leased || fcntl(&self.file, libc::F_GETLEASE, 0) == Ok(libc::F_WRLCK)
    }
}

/// Sets the signal of a lease; the same number on all architectures of Linux.
const F_SETSIG: i32 = 10;

fn fcntl(file: &File, command: i32, argument: i32) -> nix::Result<i32> {
    // SAFETY: the commands take an integer and a descriptor, which is open for as long as `file` is borrowed.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    Errno::result(result)
}
