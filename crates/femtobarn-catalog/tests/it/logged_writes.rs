//! Bytes of files that a commit makes durable in the catalogue, and that are written to the files later.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use femtobarn_catalog::{
    Commit, Csn, DatabaseState, DroppedDatabase, ErrorKind, FileWrite, FilesToWrite,
    LocalCatalogue, NewDatabase, Result,
};
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

/// Commits these bytes, after they were written to the file, as the engine does.
fn commit(fed: &Federation, base: Option<Csn>, offset: u64, bytes: &[u8]) -> Csn {
    let file = fs::OpenOptions::new().write(true).open(fed.folder.join(FILE)).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    let container = fed.catalog.find_container(fed.database, "events", Csn::MAX).unwrap();
    let id = container.map_or_else(|| fed.container("events"), |row| row.id);
    let versions = vec![version(fed.database, id, base, 1)];
    let writes = vec![FileWrite { database: fed.database, offset, bytes: bytes.to_vec() }];
    fed.catalog.commit(Commit { versions, writes, ..Commit::default() }).unwrap()
}

/// Makes the catalogue write bytes, and returns those that it is to log.
fn written_now(fed: &Federation, writes: Vec<FileWrite>) -> Result<Vec<FileWrite>> {
    let mut commit = Commit { writes, ..Commit::default() };
    fed.catalog.write_now(&mut commit, &mut FilesToWrite::default()).map(|()| commit.writes)
}

const NEW_FILE: &str = "databases/new.root";

/// A commit that creates a database, whose file begins with these bytes.
fn creation(fed: &Federation, bytes: &[u8]) -> Commit {
    let id = fed.catalog.reserve_database().unwrap();
    let uuid = uuid::Uuid::from_u128(u128::from(id.0));
    let (name, path) = (format!("new{id}"), NEW_FILE.to_owned());
    let new_databases = vec![NewDatabase { id, uuid, name, path, state: DatabaseState::Open }];
    let writes = vec![FileWrite { database: id, offset: 0, bytes: bytes.to_vec() }];
    Commit { new_databases, writes, ..Commit::default() }
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
fn bytes_lost_in_a_crash_of_the_machine_are_restored_when_the_catalogue_opens() {
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
fn a_file_that_a_crash_of_the_machine_took_is_made_again_if_its_first_bytes_are_logged() {
    let (fed, _) = with_file();
    let file = fed.folder.join(NEW_FILE);
    let commit = creation(&fed, b"front");
    let database = commit.new_databases[0].id;
    fs::write(&file, b"front").unwrap();
    fed.catalog.commit(commit).unwrap();
    let writes = vec![FileWrite { database, offset: 8, bytes: b"hits".to_vec() }];
    fed.catalog.commit(Commit { writes, ..Commit::default() }).unwrap();
    fs::remove_file(&file).unwrap();
    drop(reopened(&fed));
    assert_eq!(fs::read(&file).unwrap(), b"front\0\0\0hits");
    assert_eq!(rows(&fed.folder), 0);
}

#[test]
fn a_file_that_is_made_again_has_no_bytes_of_another_file_of_its_name() {
    let (fed, _) = with_file();
    let file = fed.folder.join(NEW_FILE);
    fs::write(&file, b"front").unwrap();
    fed.catalog.commit(creation(&fed, b"front")).unwrap();
    fs::write(&file, b"another file").unwrap();
    drop(reopened(&fed));
    assert_eq!(fs::read(&file).unwrap(), b"front");
}

#[test]
fn a_damaged_front_is_written_again_and_the_bytes_behind_it_stay() {
    let (fed, _) = with_file();
    let file = fed.folder.join(NEW_FILE);
    let mut commit = creation(&fed, b"");
    let uuid = commit.new_databases[0].uuid.into_bytes();
    let front = [b"front of ", &uuid[..]].concat();
    commit.writes[0].bytes.clone_from(&front);
    fs::write(&file, &front).unwrap();
    fed.catalog.commit(commit).unwrap();
    fs::write(&file, [b"FRONT of ", &uuid[..], b" and what was synced"].concat()).unwrap();
    drop(reopened(&fed));
    assert_eq!(fs::read(&file).unwrap(), [&front[..], b" and what was synced"].concat());
}

#[test]
fn releases_that_would_forget_a_new_file_refuse_the_catalogue() {
    let (fed, _) = with_file();
    let format = || -> String {
        let sql = Connection::open(fed.folder.join("catalogue.sqlite")).unwrap();
        let find = "SELECT value FROM federation WHERE key = 'format'";
        sql.query_row(find, [], |row| row.get(0)).unwrap()
    };
    commit(&fed, None, 100, b"tracks");
    assert_eq!(format(), "6");
    fs::write(fed.folder.join(NEW_FILE), b"front").unwrap();
    fed.catalog.commit(creation(&fed, b"front")).unwrap();
    assert_eq!(format(), "7");
}

#[test]
fn the_name_of_a_file_is_durable_before_a_commit_that_synced_it() {
    let (fed, _) = with_file();
    let file = fed.folder.join(NEW_FILE);
    fs::write(&file, b"front").unwrap();
    let commit = creation(&fed, b"front");
    let database = commit.new_databases[0].id;
    let seen = fed.catalog.commit(commit).unwrap();
    // The sync of a missing folder fails, and so shows whether it happens.
    let (databases, away) = (fed.folder.join("databases"), fed.folder.join("away"));
    fs::rename(&databases, &away).unwrap();
    let drop_it = || {
        let dropped = DroppedDatabase { id: database, seen, keeps_file: false };
        fed.catalog.commit(Commit { dropped_databases: vec![dropped], ..Commit::default() })
    };
    assert_eq!(drop_it().unwrap_err().kind(), ErrorKind::Io);
    fs::rename(&away, &databases).unwrap();
    drop_it().unwrap();
}

#[test]
fn bytes_written_after_logged_ones_stay() {
    let (fed, _) = with_file();
    let file = fed.folder.join(NEW_FILE);
    fs::write(&file, b"front").unwrap();
    fed.catalog.commit(creation(&fed, b"front")).unwrap();
    fs::write(&file, b"front and more").unwrap();
    fed.catalog.write_back().unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"front and more");
}

#[test]
fn a_file_is_made_again_though_a_row_has_its_first_bytes_and_a_slot_the_next() {
    let (fed, _) = with_file();
    let file = fed.folder.join(NEW_FILE);
    fs::write(&file, b"fronthits").unwrap();
    let commit = creation(&fed, b"front");
    let database = commit.new_databases[0].id;
    fed.catalog.commit(commit).unwrap();
    let sql = Connection::open(fed.folder.join("catalogue.sqlite")).unwrap();
    let in_row = "INSERT INTO logged_writes (database, start, bytes) VALUES (?1, 0, x'66726f6e74')";
    sql.execute(in_row, [database.0]).unwrap();
    sql.execute("DELETE FROM log_slots WHERE slot >= 0", []).unwrap();
    drop(sql);
    let writes = vec![FileWrite { database, offset: 5, bytes: b"hits".to_vec() }];
    fed.catalog.commit(Commit { writes, ..Commit::default() }).unwrap();
    fs::remove_file(&file).unwrap();
    drop(reopened(&fed));
    assert_eq!(fs::read(&file).unwrap(), b"fronthits");
}

#[test]
fn a_server_writes_the_first_bytes_of_an_empty_file_and_of_no_other() {
    let (fed, _) = with_file();
    let file = fed.folder.join(NEW_FILE);
    let mut commit = creation(&fed, b"front");
    assert_eq!(
        fed.catalog.write_now(&mut commit, &mut FilesToWrite::default()).unwrap_err().kind(),
        ErrorKind::Io
    );
    fs::write(&file, b"").unwrap();
    for _ in 0..2 {
        // A client that does not know whether its commit succeeded sends it again.
        fed.catalog.write_now(&mut commit, &mut FilesToWrite::default()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"front");
    }
    // Neither other bytes in their place, nor bytes right behind them alone, nor bytes far behind them.
    let mut others = [(); 3].map(|()| creation(&fed, b"other"));
    others[1].writes[0].offset = 1;
    let far = FileWrite { offset: 1 << 40, ..others[2].writes[0].clone() };
    others[2].writes[0].bytes = b"front".to_vec();
    others[2].writes.push(far);
    for mut other in others {
        let refused = fed.catalog.write_now(&mut other, &mut FilesToWrite::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert_eq!(fs::read(&file).unwrap(), b"front");
    }
    // Nor those of another database, though they are the same.
    let of_run7 = fs::read(fed.folder.join(FILE)).unwrap();
    let mut other = creation(&fed, &of_run7);
    other.new_databases[0].path = FILE.to_owned();
    assert_eq!(
        fed.catalog.write_now(&mut other, &mut FilesToWrite::default()).unwrap_err().kind(),
        ErrorKind::Exists
    );
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
    assert_eq!(written_now(&fed, vec![write(0)]).unwrap(), [write(0)], "they are to be logged");
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
    assert_eq!(written_now(&fed, vec![write(4096)]).unwrap(), [], "they are in the file");
    assert_eq!(fs::read(&file).unwrap(), [[0; 4096], [7; 4096]].concat());
}

#[test]
fn logged_bytes_of_a_missing_file_are_dropped() {
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
