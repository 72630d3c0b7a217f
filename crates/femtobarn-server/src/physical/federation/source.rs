//! An open file as a source of bytes for RNTuple readers.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use nix::errno::Errno;
use rntuple::{ByteSource, Error, Result};

use crate::physical::{StorageError, StoredFile};

/// How often a read that is put off is tried again.
const ATTEMPTS_MAX: usize = 100;

/// A file of a storage, read where blocking is allowed.
pub(super) struct Source(pub Arc<dyn StoredFile>);

impl ByteSource for Source {
    fn size(&self) -> Result<u64> {
        Ok(self.0.metadata().map_err(|trouble| failed("stat", trouble))?.size)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            match self.0.read_at(offset, buffer) {
                Ok(read) if read == buffer.len() => return Ok(()),
                Ok(_) => {
                    let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(Error::Io { what: format!("read at byte {offset}"), source });
                }
                // Beginning again from the front would never come to an end.
                Err(StorageError::NotBefore(delay, _)) => std::thread::sleep(delay),
                Err(trouble) => return Err(failed("read", trouble)),
            }
        }
        Err(failed(
            "read",
            StorageError::refused(Errno::ETIMEDOUT, "it is put off again and again"),
        ))
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            self.0.will_need(range.start, range.end.saturating_sub(range.start));
        }
    }
}

fn failed(what: &str, trouble: StorageError) -> Error {
    let source = match trouble {
        StorageError::Refused(errno, _) => errno.into(),
        other => io::Error::other(format!("{other:?}")),
    };
    Error::Io { what: what.to_owned(), source }
}
