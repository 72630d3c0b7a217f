//! The commit: files first, the catalogue last. The bytes that a small transaction wrote to a file become durable with
//! the catalogue's log, which saves the sync of the file.
//!
//! A failure before the request to the catalogue leaves nothing behind. If the catalogue refuses, the commit records
//! are voided, so that no rebuild takes them for committed. If the catalogue's answer is lost, the commit may still be
//! durable, so the files that it needs are kept.

use std::collections::BTreeSet;
use std::time::Duration;

use femtobarn_catalog::{Author, BlobRange, Commit, Csn, DatabaseId, FileWrite, NewVersion, clock};
use rntuple::BlobSink;
use uuid::Uuid;

use super::{ContainerKey, OpenDatabase, Transaction, range, unopened};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::commit_record::{CommitRecord, End, MAGIC, RecordedVersion};

/// Age up to which the last known head stands in for the newest commit, where only order by time matters:
/// about the longest time a commit takes to become durable.
const MOMENT: Duration = Duration::from_secs(1);

impl Transaction {
    /// Commits: all changes become durable and visible together.
    ///
    /// # Errors
    /// `Conflict` if another transaction committed to one of the containers in spite of its lock; `Exists` if
    /// a name was taken meanwhile; `Full` if a disk is full. Then nothing has changed. After `Io`, or `Unavailable`
    /// while the catalogue committed, the commit may be durable: the history shows it.
    pub fn commit(mut self) -> Result<Csn> {
        self.check_open()?;
        self.create_expected()?;
        let csn = self.publish()?;
        self.owner.end();
        for open in self.databases.values() {
            open.extents.file().known.iter().for_each(|known| known.note_commit(csn));
        }
        for (key, mut open) in std::mem::take(&mut self.containers).into_map() {
            let grown = open.grown_bytes();
            open.note_committed(csn);
            // Containers of dropped databases are not retained.
            let Some(database) = self.databases.get(&key.database) else { continue };
            let writers = self.federation.inner.writers();
            writers.keep_container(key, &database.row, open, grown);
        }
        self.close(true);
        Ok(csn)
    }

    /// Commits and continues: locks are kept and containers stay open. The next read takes a new snapshot;
    /// savepoints end.
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit); the transaction has ended then.
    pub fn checkpoint(&mut self) -> Result<Csn> {
        self.check_open()?;
        if let Err(error) = self.create_expected().and_then(|()| self.lock_new_containers()) {
            self.close(false);
            return Err(error);
        }
        let csn = self.publish()?;
        self.is_over = false;
        self.id = Uuid::new_v4();
        self.containers.iter_mut().for_each(|(_, open)| open.note_committed(csn));
        self.databases.values_mut().for_each(|open| open.is_new = false);
        self.new_classes.clear();
        self.release_dropped(true);
        self.snapshot = None;
        self.note_head(csn);
        self.found = None;
        self.reads.clear();
        self.savepoints.clear();
        Ok(csn)
    }

    /// Writes and commits all changes. On failure the transaction is closed.
    fn publish(&mut self) -> Result<Csn> {
        self.is_over = true;
        let mut records = vec![];
        let prepared = self.write_versions().and_then(|mut versions| {
            let writes = self.write_records_and_sync(&mut versions, &mut records)?;
            Ok(Commit { writes, ..self.catalogue_commit(&versions) })
        });
        let committed = match prepared {
            Ok(commit) => self.federation.catalog().commit(commit).map_err(Error::from),
            Err(error) => {
                self.void(&records);
                self.close(false);
                return Err(error);
            }
        };
        if let Err(error) = &committed {
            self.databases.values().for_each(|open| open.extents.file().forget_recent());
            // The commit may have become durable before the disk or the connection failed; then its files are
            // needed.
            let is_in_doubt = matches!(
                error.kind(),
                ErrorKind::Io | ErrorKind::Unavailable | ErrorKind::Internal | ErrorKind::Corrupt
            );
            if !is_in_doubt {
                self.void(&records);
            }
            self.close(is_in_doubt);
        }
        committed
    }

    /// Overwrites the first bytes of commit records that were refused. A record that cannot be voided stays until vacuum
    /// frees it, and so do those in files at a server: once a lease is over, the bytes may be another writer's.
    fn void(&self, records: &[(DatabaseId, u64)]) {
        for (id, offset) in records {
            let file = self.open(*id).extents.file();
            if file.is_local() && !self.open(*id).is_new {
                drop(file.write(&[0; MAGIC.len()], *offset).and_then(|()| file.sync()));
            }
        }
    }

    /// Ends the transaction and discards its changes.
    pub fn rollback(mut self) {
        self.close(false);
    }

    /// Writes a version of each changed container.
    fn write_versions(&mut self) -> Result<Vec<(ContainerKey, NewVersion)>> {
        let mut versions = vec![];
        for (key, open) in self.containers.iter_mut() {
            if !open.is_changed {
                continue;
            }
            let database = self.databases.get_mut(&key.database).ok_or_else(unopened)?;
            let what = format!("container {}/{}", database.row.name, open.row.name);
            let written = open.write(&mut database.extents, &what)?;
            versions.push((
                *key,
                NewVersion {
                    database: key.database,
                    container: key.container,
                    base: open.base,
                    header: range(&open.header),
                    footer: range(&written.footer),
                    annex: written.annex,
                    record: BlobRange::default(),
                    class_version: open.class.version,
                    entries: written.entries,
                    deleted: written.deleted,
                    bytes: written.bytes,
                },
            ));
        }
        Ok(versions)
    }

    /// Writes the commit records, and records their ranges in `versions` and their offsets in `records`. Syncs all
    /// files, except those whose unsynced bytes it returns, because the catalogue can make these durable.
    fn write_records_and_sync(
        &mut self,
        versions: &mut [(ContainerKey, NewVersion)],
        records: &mut Vec<(DatabaseId, u64)>,
    ) -> Result<Vec<FileWrite>> {
        let mut room = self.federation.inner.catalog.log_room();
        let (mut writes, mut unsynced) = (vec![], vec![]);
        let touched = self.touched_databases(versions);
        let uuids: Vec<Uuid> = touched.iter().map(|id| self.open(*id).row.uuid).collect();
        let after = self.newest_commit()?;
        for id in &touched {
            let record = self.commit_record(*id, after, &uuids, versions).encode();
            let open = self.databases.get_mut(id).or_else(|| self.dropped.databases.get_mut(id));
            let open = open.expect("the database is open");
            let written = open.extents.write_blob(&[&record]);
            let offset = written.map_err(Error::storage(format!("database {}", open.row.name)))?;
            records.push((*id, offset));
            let of_this = versions.iter_mut().filter(|(key, _)| key.database == *id);
            for (_, version) in of_this {
                version.record = BlobRange { offset, size: record.len() as u64 };
            }
            let is_logged = !open.is_new || self.federation.inner.catalog.logs_new_files();
            match open.extents.flush_for_log(if is_logged { room } else { 0 })? {
                Some(logged) => {
                    room -= logged.iter().map(|write| write.bytes.len()).sum::<usize>();
                    writes.extend(logged);
                }
                None => unsynced.push(*id),
            }
        }
        for id in &unsynced {
            let open = self.databases.get_mut(id).or_else(|| self.dropped.databases.get_mut(id));
            open.expect("the database is open").extents.sync()?;
        }
        // The catalogue makes the names of other files durable with their bytes.
        let new = unsynced.iter().map(|id| self.open(*id)).filter(|open| open.is_new);
        self.federation.inner.files.sync_folders(new.map(|open| open.row.path.as_str()))?;
        Ok(writes)
    }

    /// The head that commit records state. By it a rebuild orders records that continue the same version or refer to
    /// each other. Of records that continue one version, the later writer's states a head read after it had the lock. A
    /// record without such a relation may state a head of up to [`MOMENT`] ago.
    fn newest_commit(&self) -> Result<Csn> {
        let names = &self.names;
        let is_renaming = !names.renamed_databases.is_empty()
            || !names.renamed_containers.is_empty()
            || !names.dropped_containers.is_empty();
        let links = self.containers.values().any(|open| !open.targets.is_empty());
        let is_alone = !is_renaming && !links;
        match self.seen {
            Some((seen, at)) if is_alone && clock::now() - at < MOMENT => Ok(seen),
            _ => self.federation.head(),
        }
    }

    /// An open database, which may have been dropped since.
    fn open(&self, id: DatabaseId) -> &OpenDatabase {
        let open = self.databases.get(&id).or_else(|| self.dropped.databases.get(&id));
        open.expect("the database is open")
    }

    /// The databases that need a commit record.
    fn touched_databases(&self, versions: &[(ContainerKey, NewVersion)]) -> Vec<DatabaseId> {
        let names = &self.names;
        let renamed_or_dropped =
            names.renamed_containers.keys().chain(names.dropped_containers.keys());
        let containers = versions.iter().map(|(key, _)| key).chain(renamed_or_dropped);
        let changed: BTreeSet<DatabaseId> = containers
            .map(|key| key.database)
            .chain(names.renamed_databases.keys().copied())
            .collect();
        let is_touched =
            |(id, open): &(&DatabaseId, &OpenDatabase)| open.is_new || changed.contains(id);
        let dropped = self.dropped.databases.iter().filter(|(_, open)| !open.is_new);
        self.databases.iter().filter(is_touched).chain(dropped).map(|(id, _)| *id).collect()
    }

    fn commit_record(
        &self,
        id: DatabaseId,
        after: Csn,
        databases: &[Uuid],
        versions: &[(ContainerKey, NewVersion)],
    ) -> CommitRecord {
        let row = &self.open(id).row;
        let of_this = versions.iter().filter(|(key, _)| key.database == id);
        let container = |(key, version): &(ContainerKey, NewVersion)| {
            let open = &self.containers[key];
            RecordedVersion {
                id: key.container,
                name: open.row.name.clone(),
                class: open.class.clone(),
                options: open.options,
                base: version.base,
                header: version.header,
                footer: version.footer,
                annex: version.annex,
                entries: version.entries,
                deleted: version.deleted,
                bytes: version.bytes,
                link_targets: open.targets.clone(),
            }
        };
        let is_renamed = |key: &ContainerKey| self.names.renamed_containers.contains_key(key);
        let renamed =
            self.containers.iter().filter(|(key, _)| key.database == id && is_renamed(key));
        let dropped = self.dropped_containers().map(|(key, _)| key).filter(|k| k.database == id);
        CommitRecord {
            transaction: self.id,
            message: self.options.message.clone(),
            author: Some(Author::this_process()),
            federation: self.federation.uuid(),
            database: row.uuid,
            number: row.id,
            name: row.name.clone(),
            after,
            time_us: clock::utc_us(),
            databases: databases.to_vec(),
            containers: of_this.map(container).collect(),
            renamed: renamed.map(|(key, open)| (key.container, open.row.name.clone())).collect(),
            dropped: dropped.map(|key| key.container).collect(),
            end: self.names.dropped_databases.contains_key(&id).then_some(End::Dropped),
            is_whole: false,
        }
    }
}
