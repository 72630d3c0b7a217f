//! A file on a server, read through the tiers before it.

use std::sync::Arc;

use femtobarn_catalog::Csn;
use rntuple::ReadRequest;

use super::tier::{FileTiers, TierCounts, total};
use crate::storage::file::DatabaseFile;

/// A file on a server, with its tiers.
#[derive(Clone, Debug)]
pub(crate) struct CachedRemoteFile {
    pub file: Arc<DatabaseFile>,
    pub tiers: FileTiers,
    /// The reads from the server, in all files.
    pub server: Arc<TierCounts>,
}

impl CachedRemoteFile {
    /// The commit that refers to all bytes that are read.
    fn at(&self) -> Csn {
        self.tiers.commit.csn
    }

    /// Whether there is a tier.
    pub(crate) fn has_tiers(&self) -> bool {
        !self.tiers.tiers.is_empty()
    }

    /// Fills all requests. The commit of the tiers must refer to every requested byte, as in all reads but
    /// [`read_ahead_at`](Self::read_ahead_at).
    pub(crate) fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.fetch(&mut self.fill(requests))
    }

    /// Like [`read_many`](Self::read_many), over a connection for prefetching.
    pub(crate) fn read_ahead(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.fetch_with(&mut self.fill(requests), |missing| {
            self.file.read_ahead(self.at(), missing)
        })
    }

    /// Fills requests from the tiers, and returns those that they do not have.
    pub(crate) fn fill<'a>(&self, requests: &'a mut [ReadRequest<'_>]) -> Vec<ReadRequest<'a>> {
        let requests = requests.iter_mut();
        let requests =
            requests.map(|ReadRequest { offset, buffer }| ReadRequest { offset: *offset, buffer });
        self.tiers.fill(requests.collect())
    }

    /// Fills all requests from the server, and adds them to the tiers.
    pub(crate) fn fetch(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.fetch_with(requests, |missing| self.file.read_as_of(self.at(), missing))
    }

    /// Fills all requests from the server, bypassing the tiers, and replaces the bytes there.
    pub(crate) fn read_past_tiers(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.file.read_again(self.at(), requests)?;
        self.server.add_hits(requests.len() as u64, total(requests));
        self.tiers.replace(requests);
        Ok(())
    }

    /// Fills `buffer` from `offset` on, from the server over a connection for prefetching, and returns the number of
    /// bytes read, which is smaller than the buffer only at the end of the file. The range may reach past the bytes
    /// that the commit refers to, so no tier has it and nothing is added to them.
    pub(crate) fn read_ahead_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<usize> {
        let count = self.file.read_ahead_at(self.at(), offset, buffer)?;
        self.server.add_hits(1, count as u64);
        Ok(count)
    }

    fn fetch_with(
        &self,
        missing: &mut [ReadRequest<'_>],
        fetch: impl FnOnce(&mut [ReadRequest<'_>]) -> rntuple::Result<()>,
    ) -> rntuple::Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        fetch(missing)?;
        self.server.add_hits(missing.len() as u64, total(missing));
        self.tiers.insert(missing);
        Ok(())
    }
}
