//! Raw access of Femtobarn's clients to databases' files.

use std::time::Duration;

use femtobarn::TransactionOptions;
use femtobarn_server::physical::{Creation, Opaque, OpenMode, Storage, StorageResult};
use nix::errno::Errno;

use super::{Stage, all_of, at, errno_of};

const RAW: Opaque<'_> = Opaque(b"fb.raw=1");
/// For writes to the stage's database, and to one that does not exist yet.
const WRITES: Opaque<'_> = Opaque(b"fb.raw=1&fb.database=1");
const MAKES: Opaque<'_> = Opaque(b"fb.raw=1&fb.database=2");

#[test]
fn raw_access_reads_and_writes_the_file_on_disk() {
    let stage = Stage::new().with_ten_events();
    for path in ["/databases/run7.root", "/run7.root"] {
        let file = stage.open(path, "fb.raw=1").unwrap();
        assert_eq!(all_of(&*file), std::fs::read(stage.file("run7.root")).unwrap(), "{path}");
        assert!(file.descriptor().is_some(), "{path}");
        let metadata = stage.shown.metadata(&at(path), RAW).unwrap();
        assert_eq!((metadata.size, metadata.is_writable), (file.metadata().unwrap().size, true));
    }
    let how = OpenMode { write: true, ..OpenMode::default() };
    let file = stage.shown.open(&at("/databases/run7.root"), how, WRITES).unwrap();
    let size = file.metadata().unwrap().size;
    file.write_at(size, b"behind").unwrap();
    file.sync().unwrap();
    assert!(std::fs::read(stage.file("run7.root")).unwrap().ends_with(b"behind"));
    file.truncate(size).unwrap();
    assert_eq!(std::fs::metadata(stage.file("run7.root")).unwrap().len(), size);
}

#[test]
fn new_files_are_created_below_databases_only() {
    let stage = Stage::new().with_ten_events();
    let make = |path: &str| -> StorageResult<()> {
        let creation = Creation::New;
        let how = OpenMode { write: true, creation, mode: 0o644, make_folders: true };
        stage.shown.open(&at(path), how, MAKES)?.write_at(0, b"new")
    };
    make("/databases/new.root").unwrap();
    assert_eq!(std::fs::read(stage.file("new.root")).unwrap(), b"new");
    assert_eq!(errno_of(make("/databases/new.root")), Some(Errno::EEXIST));
    make("/databases/disk1/new.root").unwrap();
    assert_eq!(std::fs::read(stage.file("disk1/new.root")).unwrap(), b"new");
    for path in [
        "/new.root",
        "/locks/x",
        "/databases/a/b/c.root",
        "/databases/.a/b.root",
        "/databases/a b/c.root",
        "/locks/a/x",
        "/catalogue.sqlite-wal",
    ] {
        assert_eq!(errno_of(make(path)), Some(Errno::EROFS), "{path}");
    }
    for path in ["/catalogue.sqlite", "/locks/1", "/databases/none.root", "/databases/a/b"] {
        assert_eq!(errno_of(stage.open(path, "fb.raw=1")), Some(Errno::ENOENT), "{path}");
    }
    let names = |path| {
        let entries = stage.shown.list(&at(path), true, RAW).unwrap();
        entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names("/databases"), ["disk1", "new.root", "run7.root"]);
    assert_eq!(names("/databases/disk1"), ["new.root"]);
}

#[test]
fn a_writer_names_its_database_and_writes_to_no_other() {
    let stage = Stage::new().with_ten_events();
    std::fs::write(stage.file("left.root"), b"left").unwrap();
    let open = |path: &str, creation, opaque| {
        let how = OpenMode { write: true, creation, ..OpenMode::default() };
        errno_of(stage.shown.open(&at(path), how, opaque))
    };
    let (run7, left) = ("/databases/run7.root", "/databases/left.root");
    for (path, opaque, expected) in [
        (run7, WRITES, None),
        (run7, RAW, Some(Errno::EINVAL)),
        (run7, MAKES, Some(Errno::EINVAL)),
        (left, WRITES, Some(Errno::EINVAL)),
        (left, MAKES, None),
        (run7, Opaque(b"fb.raw=1&fb.database=x"), Some(Errno::EINVAL)),
    ] {
        assert_eq!(open(path, Creation::Existing, opaque), expected, "{path} {opaque:?}");
    }
    assert_eq!(open(run7, Creation::Empty, WRITES), Some(Errno::EROFS));
    assert_eq!(std::fs::metadata(stage.file("left.root")).unwrap().len(), 4);
}

#[test]
fn a_file_is_removed_only_if_it_belongs_to_no_database() {
    let stage = Stage::new().with_ten_events();
    std::fs::write(stage.file("left.root"), b"left").unwrap();
    let remove = |path: &str, opaque| stage.shown.remove_file(&at(path), opaque);
    for (path, opaque) in [
        ("/databases/left.root", Opaque::default()),
        ("/databases/run7.root", RAW),
        ("/run7.root", RAW),
        ("/catalogue.sqlite", RAW),
    ] {
        assert_eq!(errno_of(remove(path, opaque)), Some(Errno::EROFS), "{path}");
    }
    remove("/databases/left.root", RAW).unwrap();
    assert_eq!(errno_of(remove("/databases/left.root", RAW)), Some(Errno::ENOENT));
    assert!(stage.file("run7.root").exists() && !stage.file("left.root").exists());
}

/// A dropped database's file is needed for as long as a snapshot shows it.
#[test]
fn the_file_of_a_dropped_database_cannot_be_removed() {
    let stage = Stage::new().with_ten_events();
    let before = stage.federation.head().unwrap();
    let mut transaction = stage.federation.transaction(TransactionOptions::default()).unwrap();
    transaction.drop_database("run7").unwrap();
    transaction.commit().unwrap();
    let run7 = at("/databases/run7.root");
    assert_eq!(errno_of(stage.shown.remove_file(&run7, RAW)), Some(Errno::EROFS));
    let how = OpenMode { write: true, ..OpenMode::default() };
    assert_eq!(errno_of(stage.shown.open(&run7, how, MAKES)), Some(Errno::EINVAL));
    stage.open("/run7.root", &format!("fb.csn={before}")).unwrap();
}

#[test]
fn an_attached_file_outside_the_folder_is_read_only() {
    let stage = Stage::new().with_ten_events();
    stage.federation.seal("run7", Duration::ZERO).unwrap();
    let other = Stage::new();
    other.federation.attach(&stage.file("run7.root"), None).unwrap();
    let bytes = all_of(&*other.open("/run7.root", "fb.raw=1").unwrap());
    assert_eq!(bytes, std::fs::read(stage.file("run7.root")).unwrap());
    let how = OpenMode { write: true, ..OpenMode::default() };
    let opened = other.shown.open(&at("/run7.root"), how, WRITES);
    assert_eq!(errno_of(opened), Some(Errno::EROFS));
}
