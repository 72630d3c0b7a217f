//! The rows that vacuum removes, and the freed space that writers reuse.

use std::collections::HashSet;
use std::sync::Mutex;

use femtobarn_catalog::{
    BlobRange, Commit, Csn, DatabaseState, ErrorKind, KeptSnapshots, LocalCatalogue, Result,
    Vacuumed,
};

use crate::federation::{Federation, new_database, version};
use crate::names::{drop_container, drop_database, rename};

fn vacuumed(kept: KeptSnapshots) -> Vacuumed {
    Vacuumed {
        kept,
        versions: vec![],
        freed: vec![],
        purged_databases: vec![],
        purged_containers: vec![],
    }
}

/// Vacuums everything that no kept snapshot needs.
pub(crate) fn vacuum(catalog: &LocalCatalogue, to: Csn) -> Result<Vacuumed> {
    let kept = catalog.raise_horizon(to)?;
    let purgeable = catalog.purgeable(&kept)?;
    let mut all = vacuumed(kept);
    for database in catalog.every_database()? {
        let (_, unneeded) = catalog.versions_by_need(database.row.id, &all.kept)?;
        all.versions.extend(unneeded.iter().map(|row| (row.database, row.container, row.csn)));
    }
    all.purged_containers = purgeable.containers;
    all.purged_databases = purgeable.databases.iter().map(|record| record.row.id).collect();
    catalog.vacuum(&all)?;
    Ok(all)
}

#[test]
fn versions_that_no_kept_snapshot_needs_are_removed() {
    let fed = Federation::new();
    let (events, hits) = (fed.container("events"), fed.container("hits"));
    let mut commits = vec![fed.publish(events, None, 1).unwrap()];
    for entries in 2..=10 {
        commits.push(fed.publish(events, commits.last().copied(), entries).unwrap());
    }
    let only = fed.publish(hits, None, 7).unwrap();
    fed.catalog.create_tag("tagged", commits[2], "").unwrap();
    let pinned = fed.catalog.pin(commits[5]).unwrap();
    let kept_from = commits[8];
    vacuum(&fed.catalog, kept_from).unwrap();
    let left = |database| {
        let versions = fed.catalog.all_versions(database).unwrap();
        versions.iter().map(|row| row.csn).collect::<Vec<_>>()
    };
    assert_eq!(left(fed.database), [commits[2], commits[5], commits[8], commits[9], only]);
    assert!(fed.catalog.snapshot_exists(commits[5]).unwrap());
    assert!(!fed.catalog.snapshot_exists(commits[4]).unwrap());
    assert_eq!(fed.entries(events, commits[2]), Some(3));
    drop(pinned);
    assert_eq!(fed.catalog.pin(commits[5]).unwrap().csn(), commits[5], "kept until a vacuum");
    vacuum(&fed.catalog, kept_from).unwrap();
    assert_eq!(left(fed.database), [commits[2], commits[8], commits[9], only]);
    assert!(fed.catalog.pin(commits[5]).is_err());
    fed.catalog.drop_tag("tagged").unwrap();
    vacuum(&fed.catalog, Csn::MAX).unwrap();
    assert_eq!(left(fed.database), [commits[9], only]);
    fed.publish(events, Some(commits[9]), 11).unwrap();
}

#[test]
fn dropped_names_are_purged_once_no_kept_snapshot_has_them() {
    let fed = Federation::new();
    let (events, hits) = (fed.container("events"), fed.container("hits"));
    let seen = fed.publish(events, None, 1).unwrap();
    let seen = rename(&fed, events, seen, "tracks").unwrap();
    fed.catalog.create_tag("with events", seen, "").unwrap();
    drop_container(&fed, events, seen).unwrap();
    let other = new_database(&fed.catalog, "run8", DatabaseState::Open).unwrap();
    let head = fed.catalog.head().unwrap();
    drop_database(&fed, other, head).unwrap();
    let counts = fed.catalog.counts().unwrap();
    assert_eq!((counts.databases, counts.dropped_databases), (1, 1));
    assert_eq!((counts.containers, counts.dropped_containers, counts.versions), (1, 1, 1));

    let gone = vacuum(&fed.catalog, Csn::MAX).unwrap();
    assert_eq!((gone.purged_databases, gone.purged_containers), (vec![other], vec![]));
    assert_eq!(fed.entries(events, seen), Some(1));
    fed.catalog.drop_tag("with events").unwrap();
    let gone = vacuum(&fed.catalog, Csn::MAX).unwrap();
    assert_eq!(gone.purged_containers, [(fed.database, events)]);
    assert_eq!(fed.catalog.every_container(fed.database).unwrap()[0].row.id, hits);
    assert_eq!(fed.catalog.every_database().unwrap().len(), 1);
    assert!(fed.catalog.all_versions(fed.database).unwrap().is_empty());
}

#[test]
fn vacuum_refuses_to_remove_needed_rows() {
    let fed = Federation::new();
    let events = fed.container("events");
    let first = fed.publish(events, None, 1).unwrap();
    let second = fed.publish(events, Some(first), 2).unwrap();
    let refuse = |change: &dyn Fn(&mut Vacuumed)| {
        let mut all = vacuumed(fed.catalog.raise_horizon(first).unwrap());
        change(&mut all);
        fed.catalog.vacuum(&all).unwrap_err().kind()
    };
    for csn in [first, second] {
        let taken = refuse(&|all| all.versions.push((fed.database, events, csn)));
        assert_eq!(taken, ErrorKind::Invalid);
    }
    let purged = refuse(&|all| all.purged_containers.push((fed.database, events)));
    assert_eq!(purged, ErrorKind::Invalid);
    assert_eq!(refuse(&|all| all.purged_databases.push(fed.database)), ErrorKind::Invalid);
    assert_eq!(fed.catalog.versions(fed.database, events).unwrap().len(), 2);
}

/// Commits wait for a transaction of vacuum, so a vacuum of many versions has several. If it ends before the last one,
/// it must not record any range: a remaining row could then give the range to writers twice.
#[test]
fn a_vacuum_of_many_versions_that_ends_early_has_noted_no_range() {
    let fed = Federation::new();
    let events = fed.container("events");
    let first = fed.catalog.head().unwrap().0 + 1;
    let commit = |csn: u64| {
        let base = (csn > first).then_some(Csn(csn - 1));
        let versions = vec![version(fed.database, events, base, csn)];
        Commit { versions, ..Commit::default() }
    };
    let last = first + 2500;
    let published = fed.catalog.commit_all((first..=last).map(commit).collect());
    assert!(published.into_iter().all(|csn| csn.is_ok()));
    let mut all = vacuumed(fed.catalog.raise_horizon(Csn::MAX).unwrap());
    all.versions.extend((first..=last).map(|csn| (fed.database, events, Csn(csn))));
    all.freed = vec![(fed.database, vec![BlobRange { offset: 1000, size: 100 }])];
    assert_eq!(fed.catalog.vacuum(&all).unwrap_err().kind(), ErrorKind::Invalid);
    let left = fed.catalog.versions(fed.database, events).unwrap();
    assert!((1..2500).contains(&left.len()), "{} versions are left", left.len());
    assert_eq!(fed.catalog.free_extents(fed.database).unwrap(), []);
    assert_eq!(vacuum(&fed.catalog, Csn::MAX).unwrap().versions.len(), left.len() - 1);
    assert_eq!(fed.catalog.versions(fed.database, events).unwrap().len(), 1);
}

#[test]
fn a_vacuum_removes_nothing_after_another_vacuum_or_a_new_tag() {
    let fed = Federation::new();
    let events = fed.container("events");
    let first = fed.publish(events, None, 1).unwrap();
    fed.publish(events, Some(first), 2).unwrap();
    let conflict = |vacuumed: &Vacuumed, text: &str| {
        let error = fed.catalog.vacuum(vacuumed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains(text), "{error}");
    };
    fed.catalog.create_tag("one", first, "").unwrap();
    let mut slow = vacuumed(fed.catalog.raise_horizon(Csn::MAX).unwrap());
    assert_eq!(slow.kept.csns, [first]);
    vacuum(&fed.catalog, Csn::MAX).unwrap();
    conflict(&slow, "another vacuum");
    slow.kept = fed.catalog.raise_horizon(Csn::MAX).unwrap();
    slow.kept.csns.clear();
    conflict(&slow, "tag \"one\" is newer");
}

#[test]
fn freed_space_is_given_out_once_and_only_after_it_was_released() {
    let fed = Federation::new();
    let range = |offset, size| BlobRange { offset, size };
    let ranges = vec![range(1000, 100), range(2000, 500), range(5000, 300)];
    let epoch = || fed.catalog.database("run7", Csn::MAX).unwrap().epoch;
    let mut all = vacuumed(fed.catalog.raise_horizon(Csn(1)).unwrap());
    all.freed = vec![(fed.database, ranges.clone())];
    fed.catalog.vacuum(&all).unwrap();
    assert_eq!((fed.catalog.take_free_extent(fed.database, 1).unwrap(), epoch()), (None, 0));
    let free = fed.catalog.free_extents(fed.database).unwrap();
    assert!(free.iter().all(|free| !free.is_released));
    assert_eq!(free.iter().map(|free| free.range).collect::<Vec<_>>(), ranges);
    assert_eq!(fed.catalog.release_freed(fed.database).unwrap(), 1);
    assert_eq!((epoch(), fed.catalog.counts().unwrap().free_bytes), (1, 900));

    let take = |size| fed.catalog.take_free_extent(fed.database, size).unwrap();
    assert_eq!(take(200), Some(ranges[2]), "the smallest range that is large enough");
    assert_eq!(take(501), None);
    fed.catalog.give_free_extent(fed.database, range(5200, 100)).unwrap();
    let again = fed.catalog.give_free_extent(fed.database, range(5250, 100)).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Invalid);
    assert_eq!(fed.catalog.free_extents(fed.database).unwrap().len(), 3);
    assert_eq!(take(1).map(|range| range.size), Some(100));
}

/// Without this, the space of small commits, which one vacuum after the other frees, stayed in pieces of some kilobytes,
/// and the file grew for ever.
#[test]
fn ranges_that_touch_are_one_range() {
    let fed = Federation::new();
    let range = |offset, size| BlobRange { offset, size };
    let free = || {
        let free = fed.catalog.free_extents(fed.database).unwrap().into_iter();
        free.map(|it| (it.range.offset, it.range.size, it.is_released)).collect::<Vec<_>>()
    };
    let note = |ranges: &[BlobRange]| fed.catalog.note_garbage(fed.database, ranges).unwrap();
    note(&[range(1000, 100), range(1200, 100), range(5000, 300)]);
    fed.catalog.release_freed(fed.database).unwrap();
    assert_eq!(free(), [(1000, 100, true), (1200, 100, true), (5000, 300, true)]);
    // Released ranges beside a new one wait with it, until the hole is punched.
    note(&[range(1100, 100), range(900, 50)]);
    assert_eq!(free(), [(900, 50, false), (1000, 300, false), (5000, 300, true)]);
    // A range that a writer gives back is not joined with one in which a hole is about to be punched.
    fed.catalog.give_free_extent(fed.database, range(1300, 100)).unwrap();
    fed.catalog.give_free_extent(fed.database, range(5300, 100)).unwrap();
    let given = [(900, 50, false), (1000, 300, false), (1300, 100, true), (5000, 400, true)];
    assert_eq!(free(), given);
    fed.catalog.release_freed(fed.database).unwrap();
    note(&[range(950, 50)]);
    assert_eq!(free(), [(900, 400, false), (1300, 100, true), (5000, 400, true)]);
}

#[test]
fn no_two_writers_get_the_same_space() {
    let fed = Federation::new();
    let mut all = vacuumed(fed.catalog.raise_horizon(Csn(1)).unwrap());
    let ranges = (0..60).map(|n| BlobRange { offset: n * 1000, size: 500 + n % 7 }).collect();
    all.freed = vec![(fed.database, ranges)];
    fed.catalog.vacuum(&all).unwrap();
    fed.catalog.release_freed(fed.database).unwrap();
    let taken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let catalog = LocalCatalogue::open(&fed.folder).unwrap();
                while let Some(range) = catalog.take_free_extent(fed.database, 100).unwrap() {
                    taken.lock().unwrap().push(range.offset);
                }
            });
        }
    });
    let taken = taken.into_inner().unwrap();
    let different: HashSet<_> = taken.iter().collect();
    assert_eq!((taken.len(), different.len()), (60, 60));
}
