//! A file on a server, read through the disk cache.

use std::sync::Arc;

use rntuple::{ByteSource, ReadRequest};

use crate::storage::file::DatabaseFile;
use crate::storage::remote::disk_cache::{CommitMark, Mirror};

/// A file on a server, with its mirror on a local disk if the disk cache is on.
#[derive(Clone, Debug)]
pub(crate) struct CachedRemoteFile {
    pub file: Arc<DatabaseFile>,
    pub mirror: Option<MirrorAt>,
}

/// A mirror, and the commit that refers to all bytes that are read through it.
#[derive(Clone, Debug)]
pub(crate) struct MirrorAt {
    pub mirror: Arc<Mirror>,
    pub mark: CommitMark,
}

impl CachedRemoteFile {
    /// Fills all requests. The commit of the mirror must refer to every requested byte.
    pub(crate) fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.read_with(requests, |missing| self.file.read_many(missing))
    }

    /// As [`read_many`](Self::read_many), over a connection for prefetching.
    pub(crate) fn read_ahead(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.read_with(requests, |missing| self.file.read_ahead(missing))
    }

    /// Fills `buffer` from `offset` on, over a connection for prefetching, and returns the number of bytes read,
    /// which is smaller than the buffer only at the end of the file. The range may reach past the bytes that the
    /// commit refers to, so nothing of it is added to the mirror.
    pub(crate) fn read_ahead_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<usize> {
        let is_mirrored = self
            .mirror
            .as_ref()
            .is_some_and(|it| it.mirror.read(&mut ReadRequest { offset, buffer: &mut *buffer }));
        if is_mirrored { Ok(buffer.len()) } else { self.file.read_ahead_at(offset, buffer) }
    }

    fn read_with(
        &self,
        requests: &mut [ReadRequest<'_>],
        fetch: impl FnOnce(&mut [ReadRequest<'_>]) -> rntuple::Result<()>,
    ) -> rntuple::Result<()> {
        let Some(MirrorAt { mirror, mark }) = &self.mirror else { return fetch(requests) };
        let requests = requests.iter_mut().filter_map(|request| {
            (!mirror.read(request))
                .then_some(ReadRequest { offset: request.offset, buffer: &mut *request.buffer })
        });
        let mut missing: Vec<_> = requests.collect();
        if missing.is_empty() {
            return Ok(());
        }
        fetch(&mut missing)?;
        missing.iter().for_each(|read| mirror.insert(read.offset, read.buffer, *mark));
        Ok(())
    }
}
