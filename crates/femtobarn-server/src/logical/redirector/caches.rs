//! The caches of the servers: which of them a file is read from.
//!
//! 1. A cache has the files of its servers, so it is not asked for paths. It is used for reading only.
//! 2. Of the caches that are up, a hash decides which serve a file: each keeps some of the files, and all redirectors
//!    choose the same ones. A file is served by one cache for each `clients_per_copy` clients that were sent to read it
//!    within a minute.
//! 3. At least one cache is used by clients near to it, and if no server with the file can be reached.
//! 4. Clients that are servers are not sent to caches: they may be these caches themselves.

use std::cmp::Reverse;
use std::num::NonZeroU32;
use std::sync::Arc;

use femtobarn_catalog::clock;
use nix::errno::Errno;

use super::choice::{
    self, AccessKind, ClientQuestion, affinity, is_missing, is_tried, location, prefer,
};
use super::data_server::DataServer;
use super::demand::Demand;
use crate::logical::placement::less_loaded;
use crate::physical::{StorageError, StorageResult};

/// The caches, and how many clients read each file.
pub(super) struct Caches {
    pub servers: Arc<[DataServer]>,
    demand: Demand,
    clients_per_copy: NonZeroU32,
}

impl Caches {
    pub(super) fn new(servers: Arc<[DataServer]>, clients_per_copy: NonZeroU32) -> Self {
        Caches { servers, demand: Demand::new(clock::now()), clients_per_copy }
    }

    /// The server from which a path is read: the chosen one of the servers that have it, or a cache. If no server has
    /// the path, it is missing if they `are_all_up`.
    ///
    /// # Errors
    /// Why no server was chosen, if there is no cache instead.
    pub(super) fn reader<'a>(
        &'a self,
        chosen: StorageResult<&'a DataServer>,
        asked: &ClientQuestion<'_>,
        wish: AccessKind,
        are_all_up: bool,
    ) -> StorageResult<&'a DataServer> {
        if self.servers.is_empty() || asked.client.is_server {
            return chosen;
        }
        let holder = match &chosen {
            Err(StorageError::Refused(Errno::EACCES, _)) => return chosen,
            Err(error) if is_missing(error) && are_all_up => return chosen,
            chosen => chosen.as_ref().ok().copied(),
        };
        let mut fit = self.of(asked, wish, holder);
        fit.extend(holder);
        prefer(&mut fit, |server| !server.is_late());
        prefer(&mut fit, |server| server.is_near(asked.client.address));
        if fit.is_empty() {
            let is_new = self.servers.iter().any(|server| !server.is_known());
            return if is_new { Err(choice::just_started()) } else { chosen };
        }
        if asked.client.comes_again {
            let address = asked.client.address.to_string();
            let key = [address.as_bytes(), asked.path.as_bytes()];
            return fit.into_iter().max_by_key(|server| affinity(server, &key)).map_or(chosen, Ok);
        }
        Ok(fit[less_loaded(fit.len() as u64, |drawn| fit[drawn as usize].load()) as usize])
    }

    /// The caches from which a path is read, in the order of the hash.
    pub(super) fn of<'a>(
        &'a self,
        asked: &ClientQuestion<'_>,
        wish: AccessKind,
        holder: Option<&DataServer>,
    ) -> Vec<&'a DataServer> {
        let is_open = |server: &&DataServer| server.is_up() && !is_tried(server, *asked);
        let mut caches: Vec<_> = self.servers.iter().filter(is_open).collect();
        prefer(&mut caches, |server| !server.is_late());
        let is_near = |server: &DataServer| server.is_near(asked.client.address);
        let is_nearer = caches.iter().any(|server| is_near(server)) && !holder.is_some_and(is_near);
        if is_nearer {
            caches.retain(|server| is_near(server));
        }
        let least = usize::from(holder.is_none() || is_nearer);
        let copies = if wish == AccessKind::Look { 0 } else { self.copies(asked) };
        caches.sort_by_key(|server| Reverse(affinity(server, &[asked.path.as_bytes()])));
        caches.truncate(copies.max(least));
        caches
    }

    /// Counts a client that was sent to read a file.
    pub(super) fn count(&self, asked: &ClientQuestion<'_>) {
        if !self.servers.is_empty()
            && let Ok(file) = location(asked.path, asked.opaque)
        {
            self.demand.count(&file, clock::now());
        }
    }

    fn copies(&self, asked: &ClientQuestion<'_>) -> usize {
        let file = location(asked.path, asked.opaque);
        let clients = file.map_or(0, |file| self.demand.clients(&file, clock::now()));
        (clients / self.clients_per_copy) as usize
    }
}
