//! Bytes of files that a commit makes durable in the catalogue, and that get into the files later.

use std::fs;
use std::path::{Path, PathBuf};

use femtobarn_catalog::{Commit, Csn, DroppedDatabase, ErrorKind, FileWrite, LocalCatalogue};
use rusqlite::Connection;

use crate::federation::{Federation, version};

const FILE: &str = "databases/run7.root";

/// A federation whose database has a file of zeros.
fn with_file() -> (Federation, PathBuf) {
    let fed = Federation::new();
    let file = fed.folder.join(FILE);
    fs::write(&file, [0; 4096]).unwrap();
    (fed, file)
}

/// Commits these bytes, which are written to the file first, as the engine does.
fn commit(fed: &Federation, base: Option<Csn>, offset: u64, bytes: &[u8]) -> Csn {
    let file = fed.folder.join(FILE);
    let mut all = fs::read(&file).unwrap();
    all.resize(all.len().max(offset as usize + bytes.len()), 0);
    all[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    fs::write(&file, all).unwrap();
    let container = fed.catalog.find_container(fed.database, "events", Csn::MAX).unwrap();
    let id = container.map_or_else(|| fed.container("events"), |row| row.id);
    let versions = vec![version(fed.database, id, base, 1)];
    let writes = vec![FileWrite { database: fed.database, offset, bytes: bytes.to_vec() }];
    fed.catalog.commit(Commit { versions, writes, ..Commit::default() }).unwrap()
}

fn reopened(fed: &Federation) -> LocalCatalogue {
    fed.catalog.disconnect();
    LocalCatalogue::open(&fed.folder).unwrap()
}

/// Slots and rows with bytes that were not written back.
fn rows(folder: &Path) -> u32 {
    let sql = Connection::open(folder.join("catalogue.sqlite")).unwrap();
    let waiting = "SELECT (SELECT count(*) FROM logged_writes) + count(*) FROM log_slots \
                   WHERE csn > (SELECT csn FROM log_slots WHERE slot = -1)";
    sql.query_row(waiting, [], |row| row.get(0)).unwrap()
}

#[test]
fn what_a_crash_of_the_machine_took_from_a_file_is_there_when_the_catalogue_is_open() {
    let (fed, file) = with_file();
    let first = commit(&fed, None, 100, b"tracks");
    commit(&fed, Some(first), 6000, b"hits");
    let committed = fs::read(&file).unwrap();
    // Neither the bytes nor the new length of the file reached the disk.
    fs::write(&file, [0; 4096]).unwrap();
    drop(reopened(&fed));
    assert_eq!(fs::read(&file).unwrap(), committed);
    assert_eq!(rows(&fed.folder), 0, "they were synced in the file");
}

#[test]
fn a_catalogue_whose_files_are_whole_is_opened_without_a_write() {
    let (fed, file) = with_file();
    commit(&fed, None, 100, b"tracks");
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    drop(reopened(&fed));
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
    assert_eq!(rows(&fed.folder), 1);
}

#[test]
fn bytes_are_written_back_when_there_are_many() {
    let (fed, file) = with_file();
    let piece = vec![7; fed.catalog.log_room()];
    let (mut last, mut most) = (None, 0);
    for number in 0..300 {
        last = Some(commit(&fed, last, number * piece.len() as u64, &piece));
        most = most.max(rows(&fed.folder) as usize * piece.len());
    }
    assert!(most <= (8 << 20) + 2 * piece.len(), "the catalogue had {most} bytes");
    // A thread does so.
    while rows(&fed.folder) as usize * piece.len() > 2 << 20 {
        std::thread::yield_now();
    }
    fed.catalog.write_back().unwrap();
    assert_eq!(rows(&fed.folder), 0);
    assert_eq!(fs::read(&file).unwrap(), piece.repeat(300));
}

#[test]
fn bytes_stay_in_the_catalogue_while_they_cannot_be_written_back() {
    let (fed, file) = with_file();
    commit(&fed, None, 100, b"tracks");
    let committed = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let refused = fed.catalog.write_back().unwrap_err();
    assert!(refused.to_string().contains("run7.root"), "{refused}");
    assert_eq!(rows(&fed.folder), 1);
    fs::remove_dir(&file).unwrap();
    fs::write(&file, [0; 4096]).unwrap();
    fed.catalog.write_back().unwrap();
    assert_eq!((fs::read(&file).unwrap(), rows(&fed.folder)), (committed, 0));
}

#[test]
fn a_server_syncs_files_once_bytes_could_not_be_written_back() {
    let (fed, file) = with_file();
    let write = |offset| FileWrite { database: fed.database, offset, bytes: vec![7; 4096] };
    assert_eq!(fed.catalog.write_now(vec![write(0)]).unwrap(), [write(0)], "they are to be logged");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    for _ in 0..2 {
        let writes = (0..200).map(|_| write(0)).collect();
        fed.catalog.commit(Commit { writes, ..Commit::default() }).unwrap();
    }
    while fed.catalog.log_room() > 0 {
        std::thread::yield_now();
    }
    fs::remove_dir(&file).unwrap();
    fs::write(&file, [0; 8192]).unwrap();
    assert_eq!(fed.catalog.write_now(vec![write(4096)]).unwrap(), [], "they are in the file");
    assert_eq!(fs::read(&file).unwrap(), [[0; 4096], [7; 4096]].concat());
}

#[test]
fn bytes_of_a_file_that_is_gone_hinder_nobody() {
    let (fed, file) = with_file();
    commit(&fed, None, 100, b"tracks");
    fs::remove_file(&file).unwrap();
    let catalog = reopened(&fed);
    catalog.write_back().unwrap();
    assert!(!file.exists());
    assert_eq!(rows(&fed.folder), 0);
}

#[test]
fn a_database_that_is_deleted_takes_its_bytes_along() {
    let (fed, _) = with_file();
    let seen = commit(&fed, None, 100, b"tracks");
    let dropped = DroppedDatabase { id: fed.database, seen, keeps_file: false };
    let dropping = Commit { dropped_databases: vec![dropped], ..Commit::default() };
    fed.catalog.commit(dropping).unwrap();
    crate::vacuum::vacuum(&fed.catalog, Csn::MAX).unwrap();
    assert_eq!(rows(&fed.folder), 0);
}

#[test]
fn an_offset_behind_the_end_of_any_file_is_refused() {
    let (fed, _) = with_file();
    for offset in [u64::MAX, i64::MAX as u64] {
        let writes = vec![FileWrite { database: fed.database, offset, bytes: vec![1] }];
        let refused = fed.catalog.commit(Commit { writes, ..Commit::default() });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_release_that_does_not_know_logged_bytes_refuses_the_catalogue() {
    let (fed, _) = with_file();
    let format = || {
        let sql = Connection::open(fed.folder.join("catalogue.sqlite")).unwrap();
        let value = "SELECT value FROM federation WHERE key = 'format'";
        sql.query_row(value, [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(format(), "2");
    commit(&fed, None, 100, b"tracks");
    assert_eq!(format(), "6");
}

#[test]
fn small_commits_take_the_same_slots_again_once_these_were_written_back() {
    let (fed, file) = with_file();
    let (mut last, mut most) = (None, 0);
    let count = |what: &str| -> u32 {
        let sql = Connection::open(fed.folder.join("catalogue.sqlite")).unwrap();
        sql.query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0)).unwrap()
    };
    for number in 0..1200_u64 {
        last = Some(commit(&fed, last, 16 * number, &number.to_le_bytes().repeat(2)));
        most = most.max(rows(&fed.folder));
    }
    assert!(count("log_slots") <= 513, "{} slots", count("log_slots"));
    assert!(most >= 256, "{most} commits were written back together");
    fed.catalog.write_back().unwrap();
    assert_eq!((rows(&fed.folder), count("logged_writes")), (0, 0));
    let committed: Vec<u8> = (0..1200_u64).flat_map(|n| n.to_le_bytes().repeat(2)).collect();
    assert_eq!(&fs::read(&file).unwrap()[..committed.len()], committed);
}

#[test]
fn a_commit_whose_slot_was_not_written_back_has_its_bytes_in_a_row() {
    let (fed, file) = with_file();
    let first = commit(&fed, None, 100, b"tracks");
    let sql = Connection::open(fed.folder.join("catalogue.sqlite")).unwrap();
    sql.execute("UPDATE log_slots SET slot = (slot + 1) % 512 WHERE slot >= 0", []).unwrap();
    commit(&fed, Some(first), 200, b"hits");
    let in_rows = "SELECT bytes FROM logged_writes";
    assert_eq!(sql.query_row(in_rows, [], |row| row.get::<_, Vec<u8>>(0)).unwrap(), b"hits");
    drop(sql);
    let committed = fs::read(&file).unwrap();
    fs::write(&file, vec![0; committed.len()]).unwrap();
    drop(reopened(&fed));
    assert_eq!(fs::read(&file).unwrap(), committed);
    assert_eq!(rows(&fed.folder), 0);
}

#[test]
fn a_damaged_slot_is_reported_when_the_catalogue_is_opened() {
    let (fed, _) = with_file();
    commit(&fed, None, 100, b"tracks");
    let sql = Connection::open(fed.folder.join("catalogue.sqlite")).unwrap();
    sql.execute(
        "UPDATE log_slots SET writes = x'01000000020000000000000003ffffff' WHERE slot >= 0",
        [],
    )
    .unwrap();
    drop(sql);
    fed.catalog.disconnect();
    let refused = LocalCatalogue::open(&fed.folder).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
}

#[test]
fn a_catalogue_that_is_kept_after_its_end_has_no_bytes_and_makes_no_folder() {
    let (fed, _) = with_file();
    let first = commit(&fed, None, 100, b"tracks");
    fed.catalog.end_writes();
    assert_eq!(rows(&fed.folder), 0);
    commit(&fed, Some(first), 200, b"hits");
    let moved = fed.folder.with_extension("moved");
    fs::rename(&fed.folder, &moved).unwrap();
    fed.catalog.end_writes();
    assert!(!fed.folder.exists(), "a folder that was moved does not come back");
    fs::rename(&moved, &fed.folder).unwrap();
}
