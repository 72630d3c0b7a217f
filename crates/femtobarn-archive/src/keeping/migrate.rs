//! Migration: copies a sealed database's file to a store.

use std::path::Path;

use femtobarn_catalog::{
    DatabaseId, DatabaseRow, DiskState, ReplicaRow, ReplicaState, Residence, StoredObject, clock,
};
use uuid::Uuid;

use super::archive::{Archive, LOCK_WAIT, check_sealed, led_elsewhere};
use super::generations::MarksRead;
use super::silent_stores::{SilentStores, check_answers};
use crate::error::{Error, Result};
use crate::stores::{ByteWatch, CLEAN_TIME, Store, StoredState, checksum};

impl Archive {
    /// Copies a sealed database to a store, and returns the copy. Returns at once if a complete copy exists.
    ///
    /// # Errors
    /// `NotFound` for an unknown store; `Invalid` if the database is not sealed, or is not on the disk; `Busy` while
    /// another process moves it; `Corrupt` if the file differs from its copies, or the object in the store from the
    /// file; otherwise the errors of [`Store::put`]. After an error the copy is discarded.
    pub fn migrate(
        &self,
        database: DatabaseId,
        store: &str,
        watch: &mut ByteWatch<'_>,
    ) -> Result<ReplicaRow> {
        let to = self.store(store)?;
        let (_lock, row) = self.lock(database, LOCK_WAIT, watch)?;
        check_sealed(&row)?;
        let residence = self.residence(database)?;
        let known = residence.replicas.iter().find(|it| it.store == store);
        if let Some(known) = known.filter(|known| known.is_complete()) {
            return Ok(known.clone());
        }
        let path = self.path_of(&row);
        if residence.disk != DiskState::Online || !path.is_file() {
            let what = format!("database {:?} is not on the disk; stage it first", row.name);
            return Err(Error::Invalid { what });
        }
        if !self.local()?.knows_objects_in(store)? {
            to.begin(watch)?;
        }
        // Before the file is read, and a name is used up.
        check_answers(&*to, watch)?;
        let (size, checksum) = checksum(&path, &mut |_| watch(0))?;
        check_same(&row, &residence, (size, &checksum))?;
        let mut replica = ReplicaRow {
            database,
            store: store.to_owned(),
            key: format!("{}/{}.{}.root", self.local()?.make_archive_id()?, row.uuid, attempt()),
            state: ReplicaState::Migrating,
            size,
            checksum: String::new(),
            as_of: self.catalogue.head()?,
            tape: None,
            changed_us: clock::utc_us(),
        };
        self.local()?.record_replica(&replica)?;
        let written = to.put(&replica.key, &path, watch);
        let written = written.and_then(|sent| {
            let is_other = sent.filter(|sent| *sent != checksum);
            is_other.map_or(Ok(()), |sent| Err(read_differently(&path, &checksum, &sent)))?;
            verify(&*to, &replica.key, (size, &checksum), watch)
        });
        match written {
            Ok(stored) => replica.tape = stored.tape,
            Err(error) => {
                self.local()?.discard_replica(&row, store, true)?;
                let object = StoredObject { store: store.to_owned(), key: replica.key };
                // An object that cannot be removed now is removed by a later sweep.
                let until = clock::now() + CLEAN_TIME;
                let mut watch = |_| clock::now() < until;
                let (marks, silent) = (&mut MarksRead::default(), &mut SilentStores::default());
                let _ = self.remove_discarded(&object, marks, silent, &mut watch);
                return Err(error);
            }
        }
        replica.state = ReplicaState::Complete;
        replica.checksum = checksum;
        replica.changed_us = clock::utc_us();
        self.local()?.record_replica(&replica)?;
        Ok(replica)
    }

    /// Discards the copy of a database in a store.
    ///
    /// # Errors
    /// `NotFound` if there is no copy; `Denied` if it is the only copy, or another leader of the federation has marked
    /// the store, and then the object stays; `Stopped` by the watch.
    pub fn discard(
        &self,
        database: DatabaseId,
        store: &str,
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        let silent = &mut SilentStores::default();
        let (_lock, row) = self.lock(database, LOCK_WAIT, watch)?;
        let residence = self.residence(database)?;
        let replica = residence.replicas.into_iter().find(|it| it.store == store);
        let Some(replica) = replica else {
            let what = format!("database {:?} has no copy in store {store:?}", row.name);
            return Err(Error::NotFound { what });
        };
        let is_on_disk = self.path_of(&row).is_file();
        if !is_on_disk {
            // The catalogue's rows of the other copies are not proof enough.
            self.ask_for_copies(&row, 1, (Some(store), silent), watch)?;
        }
        self.local()?.discard_replica(&row, store, is_on_disk)?;
        let object = StoredObject { store: replica.store, key: replica.key };
        match self.remove_discarded(&object, &mut MarksRead::default(), silent, watch) {
            // A later sweep removes it.
            Err(Error::Denied { .. }) if self.check_removes().is_err() => Ok(()),
            removed => removed,
        }
    }

    /// Removes unreferenced objects from their stores; returns their number.
    ///
    /// # Errors
    /// The error of the first store that fails, after the others were asked; `Stopped` by the watch; `Denied` if, as
    /// far as the catalogue or a store knows, the federation has another leader or may have one.
    pub fn sweep(&self, watch: &mut ByteWatch<'_>) -> Result<usize> {
        self.sweep_in_pass(&mut SilentStores::default(), watch)
    }

    /// Like [`sweep`](Self::sweep), in a pass over many databases.
    pub(super) fn sweep_in_pass(
        &self,
        silent: &mut SilentStores,
        watch: &mut ByteWatch<'_>,
    ) -> Result<usize> {
        let (mut removed, mut failed, mut marks) = (0, None, MarksRead::default());
        for object in self.local()?.discarded_objects()? {
            if !watch(0) {
                return Err(Error::Stopped { what: "removing objects".to_owned() });
            }
            match self.remove_discarded(&object, &mut marks, silent, watch) {
                Ok(()) => removed += 1,
                Err(error @ Error::Stopped { .. }) => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    fn remove_discarded(
        &self,
        object: &StoredObject,
        marks: &mut MarksRead,
        silent: &mut SilentStores,
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        // It does no harm if this leader yields meanwhile: its successor has no row of an object discarded before.
        self.check_removes()?;
        // A catalogue that this one was restored from may still refer to objects that it wrote.
        let archive = self.local()?.archive_id()?.unwrap_or_default();
        if object.key.split('/').next() == Some(&archive) {
            let store = self.store(&object.store)?;
            let (of, place) = ((&*archive, self.local()?.generation()?), (&*object.store, &*store));
            let remove = |watch: &mut ByteWatch<'_>| {
                marks.check(of, place, watch)?;
                store.remove(&object.key, watch)
            };
            silent.ask(place, watch, remove)?;
        }
        Ok(self.local()?.forget_discarded(object)?)
    }

    /// Refuses to remove objects that another leader of the federation may refer to.
    fn check_removes(&self) -> Result<()> {
        if !self.leads()? {
            return Err(led_elsewhere());
        }
        let Some((former, _)) = self.local()?.uninformed_leader()? else { return Ok(()) };
        let what = format!(
            "objects stay in the stores until the former leader {former} is notified that this folder leads: \
             femtobarn serve on this folder notifies it; if it will never return, run femtobarn forget-leader"
        );
        Err(Error::Denied { what })
    }
}

/// Letters in the result of [`attempt`].
pub(super) const ATTEMPT_LETTERS: usize = 8;

/// A part of an object's name that no earlier attempt to write the same file used.
pub(super) fn attempt() -> String {
    let mut name = Uuid::new_v4().simple().to_string();
    name.truncate(ATTEMPT_LETTERS);
    name
}

/// The error for a file whose bytes differed when it was read a second time.
fn read_differently(path: &Path, first: &str, second: &str) -> Error {
    let what = format!(
        "{} was read twice with different bytes: {first}, then {second}; is its disk or this machine's \
         memory damaged?",
        path.display()
    );
    Error::Corrupt { what }
}

/// Refuses a file that differs from its copies.
fn check_same(
    row: &DatabaseRow,
    residence: &Residence,
    (size, checksum): (u64, &str),
) -> Result<()> {
    let mut copies = residence.replicas.iter().filter(|replica| replica.is_complete());
    let other = copies.find(|copy| (copy.size, copy.checksum.as_str()) != (size, checksum));
    let Some(copy) = other else { return Ok(()) };
    let what = format!(
        "the file of database {:?} has {size} bytes with {checksum}, and its copy in store {:?} was made of {} \
         bytes with {}; is the disk damaged? Move the file out of the folder and stage the database, which fetches \
         the copy",
        row.name, copy.store, copy.size, copy.checksum
    );
    Err(Error::Corrupt { what })
}

/// The algorithm of a checksum such as `adler32:0a1b2c3d`.
fn kind_of(checksum: &str) -> String {
    checksum.split(':').next().unwrap_or_default().to_ascii_lowercase()
}

/// The value of a checksum, which programs write in several ways.
fn value_of(checksum: &str) -> Option<u128> {
    let digits = checksum.split(':').nth(1)?;
    u128::from_str_radix(digits.trim().trim_start_matches("0x"), 16).ok()
}

/// Asks a store to confirm that it has the written bytes.
pub(super) fn verify(
    store: &dyn Store,
    key: &str,
    (size, checksum): (u64, &str),
    watch: &mut ByteWatch<'_>,
) -> Result<StoredState> {
    let stored = store.examine(key, size, watch)?;
    let reported =
        stored.checksum.as_deref().filter(|reported| kind_of(reported) == kind_of(checksum));
    if stored.size == size
        && reported.is_none_or(|reported| value_of(reported) == value_of(checksum))
    {
        return Ok(stored);
    }
    let reported = reported.map(|reported| format!(" with {reported}")).unwrap_or_default();
    let what = format!(
        "{} has {} bytes{reported} of {key} after {size} bytes with {checksum} were written",
        store.place(),
        stored.size
    );
    Err(Error::Corrupt { what })
}
