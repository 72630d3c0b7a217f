//! Syncs of the catalogue's log. One sync makes the commits of all waiting processes durable.

use std::os::unix::fs::FileExt;
use std::path::Path;

use femtobarn_catalog::{Commit, Csn, LocalCatalogue};

use crate::federation::Federation;

/// Offset of the log's progress numbers in `locks/commit`; see `docs/format.md`.
const NUMBERS_AT: u64 = 192;

/// The change that is written, the durable one, whether the log is torn, and the change that is being appended.
pub(crate) fn numbers(folder: &Path) -> [u64; 4] {
    let file = std::fs::File::open(folder.join("locks/commit")).unwrap();
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, NUMBERS_AT).unwrap_or_default();
    [0, 16, 32, 48].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
}

/// Sets one of them.
pub(crate) fn set(folder: &Path, at: u64, number: u64) {
    let file = std::fs::File::options().write(true).open(folder.join("locks/commit")).unwrap();
    let bytes = [number.to_le_bytes(), (!number).to_le_bytes()].concat();
    file.write_all_at(&bytes, NUMBERS_AT + 16 * at).unwrap();
}

#[test]
fn an_acknowledged_commit_is_recorded_as_durable_whichever_thread_synced_it() {
    let fed = Federation::new();
    let [before, ..] = numbers(&fed.folder);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            // Each catalogue has connections and locks of its own, as a process would.
            scope.spawn(|| {
                let catalog = LocalCatalogue::open(&fed.folder).unwrap();
                for _ in 0..30 {
                    catalog.commit(Commit::default()).unwrap();
                    let [written, durable, torn, _] = numbers(&fed.folder);
                    assert!(durable > before && written >= durable && torn == 0);
                }
            });
        }
    });
    let [written, durable, ..] = numbers(&fed.folder);
    assert_eq!(written, before + 6 * 30);
    assert_eq!(durable, written);
}

/// The numbers themselves are not synced: after a loss of power each of them may have an earlier value.
#[test]
fn numbers_from_before_a_loss_of_power_do_not_cover_later_commits() {
    let fed = Federation::new();
    fed.catalog.commit(Commit::default()).unwrap();
    set(&fed.folder, 0, 3);
    set(&fed.folder, 1, 1000);
    fed.catalog.commit(Commit::default()).unwrap();
    let [written, durable, ..] = numbers(&fed.folder);
    // The lost number of written changes may have been up to some more than that of durable ones.
    let skipped = 1 << 20;
    assert_eq!((written, durable), (1000 + skipped, 1000 + skipped));
}

/// After a failed sync the log is written again before the next commit is appended.
#[test]
fn a_torn_log_is_mended_by_the_next_commit() {
    let fed = Federation::new();
    let first = fed.catalog.commit(Commit::default()).unwrap();
    set(&fed.folder, 2, 1);
    assert_eq!(numbers(&fed.folder)[2], 1);
    let other = LocalCatalogue::open(&fed.folder).unwrap();
    assert_eq!(other.commit(Commit::default()).unwrap(), Csn(first.0 + 1));
    let [written, durable, torn, _] = numbers(&fed.folder);
    assert_eq!((durable, torn), (written, 0));
    let copy = fed.folder.join("copy.sqlite");
    assert_eq!(fed.catalog.backup_to(&copy).unwrap(), Csn(first.0 + 1));
}

/// A pin waits until the commit of its snapshot is synced.
#[test]
fn a_pinned_snapshot_is_durable() {
    let fed = Federation::new();
    fed.catalog.commit(Commit::default()).unwrap();
    let [written, ..] = numbers(&fed.folder);
    // As if another process had committed and not synced yet.
    set(&fed.folder, 0, written + 1);
    let (_, pin) = fed.catalog.pin_head().unwrap();
    assert_eq!(numbers(&fed.folder), [written + 1, written + 1, 0, written]);
    drop(pin);
}

/// Between the commit in the log and its number, a reader took it for durable, and for ever if its committer was
/// killed.
#[test]
fn a_snapshot_whose_committer_was_killed_is_durable_when_it_is_pinned() {
    let fed = Federation::new();
    fed.catalog.commit(Commit::default()).unwrap();
    let [written, ..] = numbers(&fed.folder);
    // As if another process had appended a commit, and been killed before it said so.
    set(&fed.folder, 3, written + 1);
    drop(fed.catalog.pin_head().unwrap());
    assert_eq!(numbers(&fed.folder), [written + 1, written + 1, 0, written + 1]);
    fed.catalog.commit(Commit::default()).unwrap();
    assert_eq!(numbers(&fed.folder), [written + 2, written + 2, 0, written + 2]);
}

/// Readers once did not look whether the sync had failed.
#[test]
fn a_pin_mends_a_torn_log() {
    let fed = Federation::new();
    fed.catalog.commit(Commit::default()).unwrap();
    let [written, ..] = numbers(&fed.folder);
    // As if the sync of another process had failed, and it had been killed before it mended the log.
    set(&fed.folder, 0, written + 1);
    set(&fed.folder, 2, 1);
    drop(fed.catalog.pin_head().unwrap());
    assert_eq!(numbers(&fed.folder), [written + 1, written + 1, 0, written]);
}

/// Syncs are quicker within a file than at its end.
#[test]
fn the_log_grows_in_large_steps() {
    let fed = Federation::new();
    let log = fed.folder.join("catalogue.sqlite-wal");
    let other = LocalCatalogue::open(&fed.folder).unwrap();
    let mut sizes = std::collections::BTreeSet::new();
    for _ in 0..100 {
        fed.catalog.commit(Commit::default()).unwrap();
        other.commit(Commit::default()).unwrap();
        sizes.insert(log.metadata().unwrap().len());
    }
    assert!(sizes.iter().all(|size| size.is_multiple_of(64 << 10)), "{sizes:?}");
    assert!((2..=6).contains(&sizes.len()), "{sizes:?}");
    let head = fed.catalog.head().unwrap();
    assert_eq!(LocalCatalogue::open(&fed.folder).unwrap().head().unwrap(), head);
}
