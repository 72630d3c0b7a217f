//! Eviction: removes a database's file from the disk when its copies suffice.

use std::fs;

use femtobarn_catalog::{DatabaseId, DatabaseRow, DiskState, ReplicaState};

use super::archive::{Archive, LOCK_WAIT, check_sealed};
use super::lease::UnusedFile;
use super::migrate::verify;
use super::silent_stores::SilentStores;
use super::stage::{remove_staged, sync_folder_of};
use crate::error::{Error, Result};
use crate::stores::{ByteWatch, remove_if_there};

impl Archive {
    /// Removes a database's file from the disk; returns the number of bytes freed.
    ///
    /// # Errors
    /// `Denied` if it is pinned, or has fewer complete copies than its rule demands (at least one); `Busy` if a process
    /// has it open or moves it; `Invalid` if the database is not sealed; `Stopped` by the watch, which is called while
    /// stores are asked. After an error the file is at its place.
    pub fn evict(&self, database: DatabaseId, watch: &mut ByteWatch<'_>) -> Result<u64> {
        self.evict_in_pass(database, &mut SilentStores::default(), watch)
    }

    /// Like [`evict`](Self::evict), in a pass over many databases.
    pub(super) fn evict_in_pass(
        &self,
        database: DatabaseId,
        silent: &mut SilentStores,
        watch: &mut ByteWatch<'_>,
    ) -> Result<u64> {
        let (_lock, row) = self.lock(database, LOCK_WAIT, watch)?;
        check_sealed(&row)?;
        let path = self.path_of(&row);
        remove_staged(&path)?;
        let size = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(Error::io("look at", &path, error)),
        };
        // An earlier eviction was interrupted, or staging put the file there before a crash.
        let is_away = self.residence(database)?.disk != DiskState::Online;
        if size == 0 && is_away {
            return Ok(0);
        }
        let copies = self.settings.rule_for(&row.name).map_or(1, |rule| rule.copies());
        self.ask_for_copies(&row, copies, (None, silent), watch)?;
        // From here on, a process that opens the file waits, but only while the catalogue writes.
        let unused = UnusedFile::of(&path)?;
        let Some(unused) = unused else { return Err(in_use(&row)) };
        self.local()?.record_eviction(&row, copies)?;
        if !unused.is_still_unused() {
            self.local()?.record_disk_state(database, DiskState::Online)?;
            return Err(in_use(&row));
        }
        remove_if_there(&path)?;
        sync_folder_of(&path)?;
        Ok(size)
    }

    /// Asks the stores to confirm the copies that the eviction relies on, except for the store `but`; stores in
    /// `silent` are not asked again. A copy that is missing or differs is recorded as lost.
    ///
    /// # Errors
    /// The errors of the stores, if fewer than `wanted` copies are confirmed because stores do not answer; `Stopped` by
    /// the watch.
    pub(super) fn ask_for_copies(
        &self,
        row: &DatabaseRow,
        wanted: usize,
        (but, silent): (Option<&str>, &mut SilentStores),
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        let (mut found, mut failed) = (0, None);
        let mut replicas = self.residence(row.id)?.replicas;
        replicas.retain(|it| it.is_complete() && Some(it.store.as_str()) != but);
        for replica in &replicas {
            let what = (replica.size, replica.checksum.as_str());
            let asked = self.store(&replica.store).and_then(|store| {
                let verify = |watch: &mut ByteWatch<'_>| verify(&*store, &replica.key, what, watch);
                silent.ask((&replica.store, &*store), watch, verify)
            });
            match asked {
                Ok(_) => found += 1,
                Err(error @ Error::Stopped { .. }) => return Err(error),
                Err(error) if error.is_about_the_copy() => {
                    self.record_state(replica, ReplicaState::Lost)?;
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if found < wanted => Err(error),
            _ => Ok(()),
        }
    }
}

fn in_use(row: &DatabaseRow) -> Error {
    let what = format!(
        "a process has the file of database {:?} open; evict it when it is closed",
        row.name
    );
    Error::InUse { what }
}
