//! Versions, databases and space that the leader has given up since a follower asked last: its vacuum deleted the
//! versions, their space may belong to other versions by now, and it purged the databases.
//!
//! A database whose epoch has changed has given out space anew; all its rows are compared then.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use femtobarn_catalog::{
    ContainerId, Csn, DatabaseId, DatabaseRecord, LeaderDatabase, LeaderRows, LocalCatalogue,
    LockGuard, LockOwner, OwnChanges, VersionRow, clock,
};

use super::copied::bytes_of;
use super::leader::Leader;
use crate::error::Result;
use crate::inventory::Ranges;
use crate::storage::file::{self, DatabaseFile};

/// The interval of looking for readers that hold up the reuse of space.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The changes to apply for changed rows that no commit dates.
#[derive(Default)]
pub(super) struct Reconciled {
    /// Rows to apply beside the new ones: those of databases in a new epoch.
    pub(super) rows: Vec<LeaderRows>,
    pub(super) own: OwnChanges,
    /// Versions whose bytes lie elsewhere now, to be copied again.
    pub(super) moved: Vec<VersionRow>,
    /// Files of databases that no longer exist, to be removed when the rows are applied.
    pub(super) files: Vec<PathBuf>,
    /// Incomplete files of databases that are in the leader's stores, to be removed then, too.
    pub(super) evicted: Vec<PathBuf>,
    /// Bytes that no version refers to when the rows are applied, unless new ones do.
    pub(super) freed: Vec<(DatabaseId, PathBuf, Ranges)>,
    /// Excludes backups until the rows are applied.
    lock: Option<(LockOwner, LockGuard)>,
}

/// Compares the databases here with those of the leader.
pub(super) struct Comparison<'a> {
    pub(super) here: &'a LocalCatalogue,
    pub(super) leader: &'a Leader,
    /// All databases of the leader.
    pub(super) theirs: &'a BTreeMap<DatabaseId, LeaderDatabase>,
    pub(super) have: &'a mut HashMap<DatabaseId, Ranges>,
    /// How long readers may hold up the reuse of space that the leader has given out.
    pub(super) patience: Duration,
}

impl Comparison<'_> {
    /// Compares all databases, before rows up to a later commit are copied.
    ///
    /// # Errors
    /// `Unavailable` if the leader does not answer; `Busy` if a backup runs; `Io` if files cannot be read.
    pub(super) fn run(&mut self, since: Csn, new: &LeaderRows) -> Result<Reconciled> {
        let mut reconciled = Reconciled::default();
        let (mut changed, mut purged) = (vec![], vec![]);
        for record in self.here.every_database()? {
            match self.theirs.get(&record.row.id) {
                None => {
                    purged.push(ShownIn { since: record.row.created, until: record.dropped });
                    reconciled.own.databases.push(record.row.id);
                    reconciled.files.push(self.here.folder().join(&record.row.path));
                }
                Some(theirs) => {
                    if theirs.epoch != record.row.epoch {
                        changed.push((record, theirs));
                    }
                }
            }
        }
        if changed.is_empty() && reconciled.own.databases.is_empty() {
            return Ok(reconciled);
        }
        let owner = self.here.locks().owner();
        let lock = owner.lock_maintenance(self.patience)?;
        reconciled.lock = Some((owner, lock));
        self.here.begin_giving_up(new)?;
        let mut gone = vec![];
        for (record, theirs) in changed {
            self.compare(&record, theirs, since, &mut gone, &mut reconciled)?;
        }
        let is_overwriting = gone.iter().any(|shown_in| shown_in.until.is_none());
        gone.extend(purged);
        self.wait_for_readers(&gone)?;
        if is_overwriting {
            // These include the newest versions here, because the leader did not know that they are needed.
            self.here.begin_overwriting()?;
        }
        Ok(reconciled)
    }

    fn compare(
        &mut self,
        record: &DatabaseRecord,
        theirs: &LeaderDatabase,
        since: Csn,
        gone: &mut Vec<ShownIn>,
        reconciled: &mut Reconciled,
    ) -> Result<()> {
        let id = record.row.id;
        let rows = self.leader.rows_of_database(id, since)?;
        let there: HashMap<(ContainerId, Csn), VersionRow> =
            rows.versions()?.into_iter().map(|row| ((row.container, row.csn), row)).collect();
        let mut stay = vec![];
        let all = self.here.all_versions(id)?;
        let containers = self.here.every_container(id)?;
        let dropped: HashMap<ContainerId, Option<Csn>> =
            containers.iter().map(|it| (it.row.id, it.dropped)).collect();
        for (number, row) in all.iter().enumerate() {
            let next = all.get(number + 1).filter(|next| next.container == row.container);
            let ends = [
                next.map(|next| next.csn),
                dropped.get(&row.container).copied().flatten(),
                record.dropped,
            ];
            let shown_in = ShownIn { since: row.csn, until: ends.into_iter().flatten().min() };
            let found = there.get(&(row.container, row.csn));
            if found == Some(row) {
                stay.push(*row);
                continue;
            }
            reconciled.moved.extend(found);
            reconciled.own.versions.push((id, row.container, row.csn));
            gone.push(shown_in);
        }
        let theirs_too: BTreeSet<ContainerId> =
            rows.containers()?.into_iter().map(|(_, container)| container).collect();
        let purged = containers.iter().map(|record| record.row.id);
        let purged = purged.filter(|container| !theirs_too.contains(container));
        reconciled.own.containers.extend(purged.map(|container| (id, container)));
        let path = self.here.folder().join(&record.row.path);
        if path.exists() {
            self.free(id, path, &stay, &all, theirs.is_complete, reconciled)?;
        }
        reconciled.rows.push(rows);
        Ok(())
    }

    /// Waits until no local reader has a snapshot that needs one of the versions, but no longer than the patience. As
    /// long as the leader knows the pins of this follower, it keeps these versions, and there is nothing to wait for.
    fn wait_for_readers(&self, gone: &[ShownIn]) -> Result<()> {
        let deadline = clock::now() + self.patience;
        while self.is_read(gone)? && clock::now() < deadline {
            sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn is_read(&self, gone: &[ShownIn]) -> Result<bool> {
        if gone.is_empty() {
            return Ok(false);
        }
        let pinned = self.here.pins().pinned_below(Csn(self.here.head()?.0 + 1))?;
        let shows =
            |csn: Csn, it: &ShownIn| it.since <= csn && it.until.is_none_or(|until| csn < until);
        Ok(pinned.into_iter().any(|csn| gone.iter().any(|it| shows(csn, it))))
    }

    /// Finds the bytes that only superseded versions refer to.
    fn free(
        &mut self,
        id: DatabaseId,
        path: PathBuf,
        stay: &[VersionRow],
        all: &[VersionRow],
        is_complete: bool,
        reconciled: &mut Reconciled,
    ) -> Result<()> {
        if is_complete {
            // The whole file is copied again.
            self.have.remove(&id);
            return Ok(());
        }
        let file = DatabaseFile::open_to_write(path.clone())?;
        let live = match bytes_of(&file, stay) {
            // Metadata here are damaged: everything is copied again.
            Err(error) if error.is_damage() => return Ok(()),
            other => other?,
        };
        let before = match self.have.remove(&id) {
            Some(have) => have,
            // The bytes of a damaged version are unknown, and stay.
            None => bytes_of(&file, all).unwrap_or_default(),
        };
        let mut freed = before;
        freed.remove_all(&live);
        self.have.insert(id, live);
        reconciled.freed.push((id, path, freed));
        Ok(())
    }
}

impl Reconciled {
    /// Removes files, and punches holes where no version is any more, after the rows were applied.
    pub(super) fn finish(
        self,
        here: &LocalCatalogue,
        have: &HashMap<DatabaseId, Ranges>,
    ) -> Result<()> {
        self.evicted.iter().try_for_each(|path| file::remove_if_there(path))?;
        if !self.files.is_empty() {
            let used = here.every_database()?.into_iter().map(|it| here.folder().join(it.row.path));
            let used: BTreeSet<PathBuf> = used.collect();
            let unused = self.files.iter().filter(|path| !used.contains(*path));
            unused.into_iter().try_for_each(|path| file::remove_if_there(path))?;
        }
        for (id, path, mut freed) in self.freed {
            let Some(have) = have.get(&id) else { continue };
            freed.remove_all(have);
            let file = DatabaseFile::open_to_write(path)?;
            freed.iter().try_for_each(|range| file.punch(range))?;
        }
        drop(self.lock);
        Ok(())
    }
}

/// The snapshots that show a version: from one commit on, before another.
struct ShownIn {
    since: Csn,
    until: Option<Csn>,
}
