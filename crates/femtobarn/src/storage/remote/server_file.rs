//! A file on a server, or on each of several servers that have copies of it.

use std::fmt::Debug;
use std::path::Path;

use femtobarn_catalog::Csn;
use rntuple::ReadRequest;

/// A file that is open on a server. Reads are as of a commit that refers to the bytes: of several servers, only those
/// that have reached it are asked. Operations that write are refused unless a type implements them.
pub(crate) trait ServerFile: Debug + Send + Sync {
    /// Its URL, in the form of a path.
    fn path(&self) -> &Path;

    /// Its path below the federation's folder.
    fn relative(&self) -> &str;

    /// The file itself, if its server is on this machine and has passed it.
    fn passed(&self) -> Option<&std::fs::File> {
        None
    }

    fn size(&self, at: Csn) -> std::io::Result<u64>;

    /// Fills all requests.
    fn read_many(&self, at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()>;

    /// Fills all requests anew after their bytes were found damaged, if possible from another server.
    fn read_again(&self, at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        self.read_many(at, requests)
    }

    /// Fills all requests, over a connection for prefetching.
    fn read_ahead(&self, at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()>;

    /// Fills `buffer` from `offset` on, over a connection for prefetching, and returns the number of bytes
    /// read, which is smaller than the buffer only at the end of the file.
    fn read_ahead_at(&self, at: Csn, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize>;

    /// Whether all further operations fail, since unsynced writes may be lost.
    fn is_broken(&self) -> bool {
        false
    }

    /// Sends bytes, and does not wait for the acknowledgement.
    fn write(&self, _bytes: &[u8], _offset: u64) -> std::io::Result<()> {
        Err(read_only())
    }

    fn resize(&self, _size: u64) -> std::io::Result<()> {
        Err(read_only())
    }

    /// Waits for the acknowledgement of all writes.
    fn settle(&self) -> std::io::Result<()> {
        Err(read_only())
    }

    fn sync(&self) -> std::io::Result<()> {
        Err(read_only())
    }

    /// Removes the file.
    fn remove(&self) -> std::io::Result<()> {
        Err(read_only())
    }
}

fn read_only() -> std::io::Error {
    let why = "the federation is open at several servers, to read; open it at one to write";
    std::io::Error::new(std::io::ErrorKind::ReadOnlyFilesystem, why)
}

/// Whether a read that failed in this way may succeed later, or at another server.
pub(crate) fn may_answer_later(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::TimedOut
    )
}

/// The error of opening a file, with a kind that shows whether a server may answer later.
pub(crate) fn into_io(error: crate::error::Error) -> std::io::Error {
    match error {
        crate::error::Error::Io { what, source } => {
            std::io::Error::new(source.kind(), format!("{what}: {source}"))
        }
        other if other.kind() == femtobarn_catalog::ErrorKind::Unavailable => {
            std::io::Error::new(std::io::ErrorKind::ConnectionRefused, other)
        }
        other => std::io::Error::other(other),
    }
}
