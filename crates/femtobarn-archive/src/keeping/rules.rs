//! The rules of the settings, applied: copies that are due are made, and files are evicted from a disk that is too
//! full.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use femtobarn_catalog::{Csn, DatabaseRow, DatabaseState, ErrorKind, ResidenceState, clock};
use nix::sys::statvfs::statvfs;

use super::archive::{Archive, led_elsewhere};
use super::silent_stores::SilentStores;
use crate::error::{Error, Result};
use crate::stores::ByteWatch;

/// The result of applying the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Copies that were made: database and store.
    pub migrated: Vec<(String, String)>,
    /// Copies that are due, of databases that must be staged first: database and store.
    pub not_on_disk: Vec<(String, String)>,
    /// Databases that left the disk, with their bytes.
    pub evicted: Vec<(String, u64)>,
    /// Objects that were removed from stores because nothing refers to them.
    pub removed: usize,
    /// Failures: the database or the store, and the reason; each reason once.
    pub failed: Vec<(String, String)>,
}

impl Applied {
    fn fail(&mut self, what: &str, error: &Error) {
        let why = error.to_string();
        if self.failed.iter().all(|(_, known)| *known != why) {
            self.failed.push((what.to_owned(), why));
        }
    }
}

/// The state of one application of the rules.
#[derive(Debug, Default)]
struct Pass {
    applied: Applied,
    silent: SilentStores,
    disks: BTreeMap<u64, DiskRoom>,
}

impl Archive {
    /// Applies the rules once: evicts the least recently used files while more of the disk is used than the settings
    /// allow, makes the copies that are due, and removes discarded objects. Failures are in the result, and the next
    /// application tries again; a store that does not answer is not asked again until then. Stops after a movement if
    /// the watch asks for it.
    ///
    /// # Errors
    /// `Denied` for a follower, since its leader applies the rules; otherwise the errors of the catalogue.
    pub fn apply_rules(&self, watch: &mut ByteWatch<'_>) -> Result<Applied> {
        if !self.leads()? {
            return Err(led_elsewhere());
        }
        let mut pass = Pass::default();
        let mut databases = self.catalogue.databases(Csn::MAX)?;
        databases.retain(|row| row.state == DatabaseState::Sealed);
        // Files with enough copies need not wait until other databases have theirs.
        self.make_room(&databases, &mut pass, watch)?;
        for row in &databases {
            self.migrate_due(row, &mut pass, watch)?;
        }
        for (store, error) in self.mark_in_pass(&mut pass.silent, watch)? {
            if let Error::Stopped { .. } = error {
                return Err(error);
            }
            pass.applied.fail(&store, &error);
        }
        match self.sweep_in_pass(&mut pass.silent, watch) {
            Ok(removed) => pass.applied.removed = removed,
            Err(error @ Error::Stopped { .. }) => return Err(error),
            Err(error) => pass.applied.fail("removing objects", &error),
        }
        if !pass.applied.migrated.is_empty() {
            self.make_room(&databases, &mut pass, watch)?;
        }
        Ok(pass.applied)
    }

    /// Makes the copies of a database that its rule demands, and that are missing.
    fn migrate_due(
        &self,
        row: &DatabaseRow,
        Pass { applied, silent, .. }: &mut Pass,
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        let Some(rule) = self.settings.rule_for(&row.name) else { return Ok(()) };
        let residence = self.residence(row.id)?;
        let is_away =
            matches!(residence.state(), ResidenceState::Nearline | ResidenceState::Staging);
        if is_away {
            let has = |store: &String| {
                residence.replicas.iter().any(|it| it.store == *store && it.is_complete())
            };
            let missing = rule.stores.iter().filter(|store| !has(store));
            applied.not_on_disk.extend(missing.map(|store| (row.name.clone(), store.clone())));
            return Ok(());
        }
        let age = age(&self.path_of(row), |metadata| metadata.modified());
        if age.is_none_or(|age| age < Duration::from_secs(rule.after_seconds)) {
            return Ok(());
        }
        for store in &rule.stores {
            let mut copies = residence.replicas.iter().filter(|it| it.store == *store);
            if copies.any(|replica| replica.is_complete()) {
                continue;
            }
            let migrated = self.store(store).and_then(|to| {
                silent.ask((store, &*to), watch, |watch| self.migrate(row.id, store, watch))
            });
            match migrated {
                Ok(_) => applied.migrated.push((row.name.clone(), store.clone())),
                Err(error @ Error::Stopped { .. }) => return Err(error),
                Err(error) => applied.fail(&row.name, &error),
            }
        }
        Ok(())
    }

    /// Whether a file has a copy, and no pin.
    fn may_leave(&self, row: &DatabaseRow) -> Result<bool> {
        let residence = self.residence(row.id)?;
        let now = clock::utc_us();
        Ok(residence.has_copy() && residence.pins.iter().all(|pin| !pin.holds_at(now)))
    }

    /// Evicts the least recently used files of each file system that is too full.
    fn make_room(
        &self,
        databases: &[DatabaseRow],
        Pass { applied, silent, disks }: &mut Pass,
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        let mut candidates: Vec<(Duration, &DatabaseRow)> = vec![];
        for row in databases {
            let rule = self.settings.rule_for(&row.name);
            if rule.is_some_and(|rule| !rule.keep_on_disk)
                && self.may_leave(row)?
                && let Some(unused) = age(&self.path_of(row), |metadata| metadata.accessed())
            {
                candidates.push((unused, row));
            }
        }
        candidates.sort_by_key(|(unused, row)| (std::cmp::Reverse(*unused), row.id));
        let limits = self.settings.disk;
        for (_, row) in candidates {
            let path = self.path_of(row);
            let Some(disk) = room_of(path.parent().unwrap_or(&path), disks) else { continue };
            // Once a disk was too full, files are evicted until it has room again.
            disk.is_emptied |= disk.used_percent() >= limits.high_percent;
            if !disk.is_emptied || disk.used_percent() < limits.low_percent {
                continue;
            }
            match self.evict_in_pass(row.id, silent, watch) {
                Ok(bytes) => {
                    disk.free += bytes as f64;
                    applied.evicted.push((row.name.clone(), bytes));
                }
                // A process reads it, so it is not the least recently used any more.
                Err(error) if error.kind() == ErrorKind::Busy => {}
                Err(error @ Error::Stopped { .. }) => return Err(error),
                Err(error) => applied.fail(&row.name, &error),
            }
            if !watch(0) {
                return Err(Error::Stopped { what: "making room on the disk".to_owned() });
            }
        }
        Ok(())
    }
}

/// The time since a file was modified, or read; `None` if it does not exist.
fn age(
    path: &Path,
    when: impl Fn(&std::fs::Metadata) -> std::io::Result<SystemTime>,
) -> Option<Duration> {
    let metadata = path.metadata().ok()?;
    Some(clock::utc().duration_since(when(&metadata).ok()?).unwrap_or_default())
}

/// The bytes of a file system. Free bytes are asked for once and then added up, since some file systems free space only
/// a while later.
#[derive(Clone, Copy, Debug)]
struct DiskRoom {
    all: f64,
    free: f64,
    /// Whether it was too full.
    is_emptied: bool,
}

impl DiskRoom {
    fn used_percent(&self) -> f64 {
        100.0 * (1.0 - self.free / self.all)
    }
}

/// The room on the file system of a folder, by the numbers of file systems.
fn room_of<'a>(folder: &Path, disks: &'a mut BTreeMap<u64, DiskRoom>) -> Option<&'a mut DiskRoom> {
    let disk = match disks.entry(folder.metadata().ok()?.dev()) {
        Entry::Occupied(known) => return Some(known.into_mut()),
        Entry::Vacant(disk) => disk,
    };
    let state = statvfs(folder).ok()?;
    let bytes = |blocks| blocks as f64 * state.fragment_size() as f64;
    let (all, free) = (bytes(state.blocks()), bytes(state.blocks_available()));
    (all > 0.0).then(|| disk.insert(DiskRoom { all, free, is_emptied: false }))
}
