//! Tests that SQLite's work for a look-up, a commit or a freed range does not grow with the catalogue. Work is counted
//! in steps of SQLite's virtual machine; a step down a tree of any height counts as one.

use rusqlite::ffi;
use tempfile::TempDir;
use uuid::Uuid;

use super::LocalCatalogue;
use crate::commit::{Commit, DroppedDatabase, NewContainer, NewDatabase, NewVersion};
use crate::error::Result;
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::rows::{BlobRange, ClassRow, DatabaseState, EnvelopeRange};
use crate::sql::SqlConnection;

const RUN: DatabaseId = DatabaseId(1);
const EVENTS: ContainerId = ContainerId(1);

/// A federation with `count` databases, containers of the first one, versions of the first of these, classes, tags,
/// dropped databases and containers of one name, and free ranges.
struct Grown {
    folder: TempDir,
    count: u32,
}

impl Grown {
    fn new(count: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = LocalCatalogue::create(&folder.path().join("lhc.fed"), "lhc").unwrap();
        let databases = catalogue.reserve_databases(count).unwrap().into_iter();
        let containers = catalogue.reserve_containers(count).unwrap().into_iter();
        let made = Commit {
            new_databases: databases.map(|id| database(id, &format!("run{id}"))).collect(),
            new_containers: containers.map(|id| container(id, &format!("c{id}"))).collect(),
            new_classes: (1..=count).map(class).collect(),
            link_targets: vec![(RUN, EVENTS, vec![Uuid::from_u128(7)])],
            ..Commit::default()
        };
        let mut csn = catalogue.commit(made).unwrap();
        let mut commits = vec![];
        for number in 0..count {
            let base = (number > 0).then_some(csn);
            commits.push(Commit { versions: vec![version(base)], ..Commit::default() });
            csn = Csn(csn.0 + 1);
        }
        for number in 0..count {
            let (id, old) = (DatabaseId(count + 1 + number), ContainerId(count + 1 + number));
            let made = Commit {
                new_databases: vec![database(id, "scratch")],
                new_containers: vec![container(old, "old")],
                ..Commit::default()
            };
            let seen = Csn(csn.0 + 1);
            let dropped = Commit {
                dropped_databases: vec![DroppedDatabase { id, seen, keeps_file: false }],
                dropped_containers: vec![(RUN, old, seen)],
                ..Commit::default()
            };
            commits.extend([made, dropped]);
            csn = Csn(csn.0 + 2);
        }
        let published: Result<Vec<Csn>> = catalogue.commit_all(commits).into_iter().collect();
        assert_eq!(published.unwrap().last(), Some(&csn));
        let ranges: Vec<BlobRange> = (0..u64::from(count)).map(|at| range(at * 8192)).collect();
        catalogue.note_garbage(RUN, &ranges).unwrap();
        catalogue.release_freed(RUN).unwrap();
        for number in 1..=count.min(50) {
            catalogue.create_tag(&format!("t{number}"), Csn(u64::from(number)), "").unwrap();
        }
        Grown { folder, count }
    }

    /// Steps of the work, in a process that has just opened the federation.
    fn steps<T>(&self, work: impl Fn(&LocalCatalogue, u32) -> Result<T>) -> i64 {
        let catalogue = LocalCatalogue::open(&self.folder.path().join("lhc.fed")).unwrap();
        let all = || {
            let connections = catalogue.connections.current().unwrap();
            let read = connections.read(|sql| Ok(steps(sql))).unwrap();
            read + connections.write_unchecked(|sql| Ok(steps(sql))).unwrap()
        };
        let before = all();
        work(&catalogue, self.count).unwrap();
        all() - before
    }
}

/// The steps taken by the cached statements of a connection.
fn steps(sql: &SqlConnection) -> i64 {
    let sql = sql.sqlite().expect("a catalogue in a file");
    let mut total = 0;
    // SAFETY: the caller has the open connection for itself, and with it the statements that SQLite lists.
    unsafe {
        let mut statement = ffi::sqlite3_next_stmt(sql.handle(), std::ptr::null_mut());
        while !statement.is_null() {
            let counter = ffi::SQLITE_STMTSTATUS_VM_STEP;
            total += i64::from(ffi::sqlite3_stmt_status(statement, counter, 0));
            statement = ffi::sqlite3_next_stmt(sql.handle(), statement);
        }
    }
    total
}

fn database(id: DatabaseId, name: &str) -> NewDatabase {
    let uuid = Uuid::from_u128(u128::from(id.0));
    let path = format!("databases/{id}.root");
    NewDatabase { id, uuid, name: name.to_owned(), path, state: DatabaseState::Open }
}

fn container(id: ContainerId, name: &str) -> NewContainer {
    let (name, class, options) = (name.to_owned(), "Event".to_owned(), "{}".to_owned());
    NewContainer { database: RUN, id, name, class, class_version: 1, options }
}

fn class(version: u32) -> ClassRow {
    ClassRow { name: "Event".to_owned(), version, definition: version.to_string() }
}

fn version(base: Option<Csn>) -> NewVersion {
    NewVersion {
        database: RUN,
        container: EVENTS,
        base,
        header: EnvelopeRange::default(),
        footer: EnvelopeRange::default(),
        annex: BlobRange::default(),
        record: BlobRange::default(),
        class_version: 1,
        entries: 1,
        deleted: 0,
        bytes: 8,
    }
}

fn range(offset: u64) -> BlobRange {
    BlobRange { offset, size: 4096 }
}

#[test]
fn work_of_a_look_up_does_not_grow() {
    let (few, many) = (Grown::new(4), Grown::new(300));
    let same = |what: &str, work: &dyn Fn(&LocalCatalogue, u32) -> Result<()>| {
        let (few, many) = (few.steps(work), many.steps(work));
        assert!(few > 0 && many <= few + few / 4, "{what}: {few} steps, or {many} of many rows");
    };
    let names = |count: u32| (format!("run{count}"), format!("c{count}"));
    same("database by name", &|of, count| of.database(&names(count).0, Csn::MAX).map(drop));
    same("database by id", &|of, count| of.database_by_id(DatabaseId(count), Csn(9)).map(drop));
    same("database by UUID", &|of, _| of.database_by_uuid(Uuid::from_u128(3)).map(drop));
    same("container by name", &|of, count| of.container(RUN, &names(count).1, Csn::MAX).map(drop));
    same("container by id", &|of, count| {
        of.container_by_id(RUN, ContainerId(count), Csn(9)).map(drop)
    });
    same("container to write", &|of, _| of.container_to_write(RUN, EVENTS).map(drop));
    same("version", &|of, count| of.version(RUN, EVENTS, Csn(u64::from(count))).map(drop));
    same("class", &|of, _| of.class("Event", None).map(drop));
    same("link targets", &|of, _| of.link_targets(RUN, EVENTS).map(drop));
    same("history", &|of, _| of.history(3).map(drop));
    same("commit of a transaction", &|of, _| {
        of.find_commit(Uuid::nil(), Csn(of.head()?.0 - 1)).map(drop)
    });
    same("tag", &|of, _| of.tag("t4").map(drop));
    same("pin", &|of, _| of.pin(Csn(4)).map(drop));
    same("file", &|of, count| {
        of.is_file_of_a_database(&format!("databases/{count}.root")).map(drop)
    });
    same("free range", &|of, _| of.take_free_extent(RUN, 4096).map(drop));
}

#[test]
fn work_of_finding_a_name_does_not_grow_with_those_that_had_it() {
    let (few, many) = (Grown::new(4), Grown::new(300));
    let found = |of: &LocalCatalogue, count: u32| {
        assert_eq!(of.find_database("scratch", Csn::MAX)?, None);
        assert_eq!(of.find_container(RUN, "old", Csn::MAX)?, None);
        // As of the commit that made the first rows.
        let at = Csn(u64::from(count) + 2);
        assert!(of.find_database("scratch", at)?.is_some());
        assert!(of.find_container(RUN, "old", at)?.is_some());
        Ok(())
    };
    assert_eq!(few.steps(found), many.steps(found));
}

#[test]
fn work_of_a_commit_does_not_grow() {
    let (few, many) = (Grown::new(4), Grown::new(300));
    let append = |of: &LocalCatalogue, _| {
        let (_, _, newest) = of.container_to_write(RUN, EVENTS)?;
        let versions = vec![version(newest.map(|version| version.csn))];
        of.commit(Commit { versions, ..Commit::default() })
    };
    assert_eq!(few.steps(append), many.steps(append));
    let create = |of: &LocalCatalogue, _| {
        let (id, made) = (of.reserve_database()?, of.reserve_container()?);
        let (new_databases, new_containers) = (
            vec![database(DatabaseId(id.0 + 1000), "new")],
            vec![container(ContainerId(made.0 + 1000), "new")],
        );
        of.commit(Commit { new_databases, new_containers, ..Commit::default() })
    };
    assert_eq!(few.steps(create), many.steps(create));
}

/// A writer gives back the rest of its extent when it ends, and vacuum may free thousands of ranges.
#[test]
fn work_of_freeing_a_range_does_not_grow_with_the_free_ranges() {
    let (few, many) = (Grown::new(4), Grown::new(300));
    let give = |of: &LocalCatalogue, count: u32| {
        of.give_free_extent(RUN, range(u64::from(count) * 8192 - 4096))?;
        of.note_garbage(RUN, &[range(u64::from(count) * 8192)])
    };
    assert_eq!(few.steps(give), many.steps(give));
}
