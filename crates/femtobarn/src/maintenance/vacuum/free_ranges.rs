//! The byte ranges of a file that vacuum may free.

use std::collections::{HashMap, HashSet};

use femtobarn_catalog::{BlobRange, ContainerId, Csn, DatabaseRow, VersionRow};

use super::{DatabaseVersions, Vacuum};
use crate::error::Result;
use crate::inventory::{self, Inventory, Ranges};
use crate::storage::commit_record::CommitRecord;
use crate::storage::extent::ALIGNMENT;
use crate::storage::file::DatabaseFile;
use crate::storage::key_chain;
use crate::storage::scan;

impl Vacuum<'_, '_> {
    pub(super) fn only_dropped(
        &self,
        database: &DatabaseVersions,
        made: &HashSet<Csn>,
    ) -> Result<Ranges> {
        let (file, live) = self.live(&database.row, &database.kept)?;
        let source = file;
        let mut freed = Ranges::default();
        // Versions share most of their page lists, so one inventory serves all.
        let mut inventory = Inventory::new(&source);
        for version in &database.dropped {
            // The bytes of a damaged version are unknown, and stay.
            drop(inventory.visit(version, &mut |_, range| {
                freed.insert(range);
                Ok(())
            }));
        }
        freed.remove_all(&live);
        for record in records_to_keep(database, made) {
            freed.remove(inventory::blob(record)?);
        }
        let freed = freed.aligned(ALIGNMENT);
        assert_disjoint(&freed, &live);
        Ok(freed)
    }

    /// The bytes that must stay: those of kept versions, the front, headers of keys, and free ranges.
    fn live(&self, row: &DatabaseRow, kept: &[VersionRow]) -> Result<(DatabaseFile, Ranges)> {
        let file = DatabaseFile::open(self.inner.path_of(row))?;
        let source = DatabaseFile::open(self.inner.path_of(row))?;
        let mut live = Inventory::of(&source, kept)?;
        let survey = {
            let _lock = self.inner.locks().lock_allocation(row.id)?;
            key_chain::survey(&file)?
        };
        survey.headers.into_iter().chain(survey.faults).for_each(|range| live.insert(range));
        for extent in self.inner.local()?.free_extents(row.id)? {
            live.insert(inventory::blob(extent.range)?);
        }
        Ok((file, live))
    }

    /// The bytes that no version refers to, without commit records that a rebuild of the catalogue needs.
    /// `made` has the commits of the versions of all databases.
    pub(super) fn garbage(&self, row: &DatabaseRow, made: &HashSet<Csn>) -> Result<Ranges> {
        let versions = self.inner.local()?.all_versions(row.id)?;
        let (file, live) = self.live(row, &versions)?;
        let mut garbage: Ranges = std::iter::once(0..file.size()?).collect();
        garbage.remove_all(&live);
        let source = file;
        let mut found = vec![];
        for range in garbage.iter() {
            scan::records_in(&source, range, &mut |_| true, &mut |record| found.push(record))?;
        }
        found.retain(|found| {
            let record = &found.record;
            record.database == row.uuid && record.federation == self.inner.catalog.uuid()
        });
        let records = found.iter().map(|found| (found.record.transaction, found.record.after));
        let commits = self.inner.local()?.find_commits(&records.collect())?;
        for found in found {
            let commit = commits.get(&found.record.transaction);
            if commit.is_some_and(|csn| is_needed(&found.record, &versions, made.contains(csn))) {
                garbage.remove(inventory::blob(found.range)?);
            }
        }
        let garbage = garbage.aligned(ALIGNMENT);
        assert_disjoint(&garbage, &live);
        Ok(garbage)
    }
}

/// Whether a rebuild needs a committed record beside those of the kept versions. `made_kept`: its commit made a kept
/// version.
fn is_needed(record: &CommitRecord, kept: &[VersionRow], made_kept: bool) -> bool {
    let follows = |(container, base): (ContainerId, Option<Csn>)| {
        base.is_some_and(|base| has_version(kept, container, base))
    };
    let is_alone = record.containers.is_empty()
        || record.is_whole
        || record.end.is_some()
        || !record.renamed.is_empty()
        || !record.dropped.is_empty();
    is_alone || record.containers.iter().any(|it| follows((it.id, it.base))) || made_kept
}

/// Whether a container has a version of a commit, among versions that are ordered by container and commit.
fn has_version(versions: &[VersionRow], container: ContainerId, csn: Csn) -> bool {
    versions.binary_search_by_key(&(container, csn), |it| (it.container, it.csn)).is_ok()
}

/// The records of dropped versions that follow a kept version, or whose commit made a kept version.
fn records_to_keep(database: &DatabaseVersions, made: &HashSet<Csn>) -> Vec<BlobRange> {
    let mut all: Vec<(&VersionRow, bool)> = database.kept.iter().map(|it| (it, true)).collect();
    all.extend(database.dropped.iter().map(|it| (it, false)));
    all.sort_by_key(|(it, _)| (it.container, it.csn));
    let mut last: HashMap<ContainerId, bool> = HashMap::new();
    let mut records = vec![];
    for (version, is_kept) in all {
        let follows_kept = last.insert(version.container, is_kept) == Some(true);
        if !is_kept && (follows_kept || made.contains(&version.csn)) {
            records.push(version.record);
        }
    }
    records
}

/// Invariant 1 of the module above, checked before bytes are freed.
fn assert_disjoint(freed: &Ranges, live: &Ranges) {
    let mut rest = freed.clone();
    rest.remove_all(live);
    assert_eq!(rest.total(), freed.total(), "bytes of kept versions would be freed");
}
