//! Names of databases as of snapshots, and refused operations.

use std::time::Duration;

use femtobarn_server::physical::{Creation, FileKind, Opaque, OpenMode, Storage, StorageError};
use nix::errno::Errno;

use super::{Stage, all_of, at, entries, errno_of};

#[test]
fn the_top_lists_every_database_of_the_snapshot() {
    let stage = Stage::new().with_ten_events();
    let first = stage.federation.head().unwrap();
    let mut transaction = stage.begin();
    transaction.create_database("a new one").unwrap();
    transaction.commit().unwrap();
    let mut transaction = stage.begin();
    transaction.rename_database("run7", "run8").unwrap();
    transaction.commit().unwrap();
    let names = |opaque: &str| -> Vec<String> {
        let entries = stage.shown.list(&at("/"), false, Opaque(opaque.as_bytes())).unwrap();
        entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
    };
    assert_eq!(names(""), ["a new one.root", "run8.root"]);
    assert_eq!(names(&format!("fb.csn={first}")), ["run7.root"]);
    assert!(stage.open("/run7.root", &format!("x=y&fb.csn={first}")).is_ok());
    assert_eq!(errno_of(stage.open("/run7.root", "")), Some(Errno::ENOENT));
}

#[test]
fn metadata_are_those_of_the_opened_file() {
    let stage = Stage::new().with_ten_events();
    stage.append(10..500);
    for seal in [false, true] {
        if seal {
            stage.federation.seal("run7", Duration::ZERO).unwrap();
        }
        let listed = stage.shown.list(&at("/"), true, Opaque::default()).unwrap();
        let metadata = stage.shown.metadata(&at("/run7.root"), Opaque::default()).unwrap();
        assert_eq!(listed[0].metadata.as_ref(), Some(&metadata));
        assert_eq!(
            (metadata.kind, metadata.is_writable, metadata.mode & 0o222),
            (FileKind::File, false, 0)
        );
        let file = stage.open("/run7.root", "").unwrap();
        assert_eq!(file.metadata().unwrap(), metadata);
        assert_eq!(errno_of(file.write_at(0, b"x")), Some(Errno::EROFS));
        assert_eq!(all_of(&*file).len() as u64, metadata.size);
        let top = stage.shown.metadata(&at("/"), Opaque::default()).unwrap();
        assert_eq!(top.kind, FileKind::Folder);
        assert!(!top.is_writable);
    }
}

#[test]
fn a_snapshot_is_selected_by_its_number_or_its_tag() {
    let stage = Stage::new().with_ten_events();
    let first = stage.federation.head().unwrap();
    stage.federation.tag("calibrated", None, "").unwrap();
    stage.federation.tag("100 % sure", None, "").unwrap();
    stage.append(10..20);
    let count = |opaque: &str| entries(&stage.reader("/run7.root", opaque, "events")).len();
    assert_eq!(count(&format!("fb.csn={first}")), 10);
    assert_eq!(count("fb.tag=calibrated"), 10);
    assert_eq!(count("fb.tag=100%20%25%20sure"), 10);
    assert_eq!(count("fb.tag=100%20%%20sure"), 10, "an invalid escape stands for itself");
    assert_eq!(count(""), 20);
    for (opaque, errno) in [
        ("fb.csn=1000", Errno::ENOENT),
        ("fb.csn=x", Errno::EINVAL),
        ("fb.csn=-1", Errno::EINVAL),
        ("fb.csn=", Errno::EINVAL),
        ("fb.csn=99999999999999999999", Errno::EINVAL),
        ("fb.tag=other", Errno::ENOENT),
        ("fb.csn=1&fb.tag=calibrated", Errno::EINVAL),
    ] {
        assert_eq!(errno_of(stage.open("/run7.root", opaque)), Some(errno), "{opaque}");
        let metadata = stage.shown.metadata(&at("/run7.root"), Opaque(opaque.as_bytes()));
        assert_eq!(errno_of(metadata), Some(errno), "{opaque}");
        let listed = stage.shown.list(&at("/"), false, Opaque(opaque.as_bytes()));
        assert_eq!(errno_of(listed), Some(errno), "{opaque}");
    }
}

#[test]
fn paths_without_a_database_are_not_found() {
    let stage = Stage::new().with_ten_events();
    for path in [
        "/run7",
        "/run8.root",
        "/.root",
        "/catalogue.sqlite",
        "/databases/run7.root",
        "/databases",
        "/locks",
        "/run7.root/x",
    ] {
        assert_eq!(errno_of(stage.open(path, "")), Some(Errno::ENOENT), "{path}");
        let metadata = stage.shown.metadata(&at(path), Opaque::default());
        assert_eq!(errno_of(metadata), Some(Errno::ENOENT), "{path}");
        let listed = stage.shown.list(&at(path), true, Opaque::default());
        assert_eq!(errno_of(listed), Some(Errno::ENOENT), "{path}");
    }
    assert_eq!(errno_of(stage.open("/", "")), Some(Errno::EISDIR));
    let listed = stage.shown.list(&at("/run7.root"), true, Opaque::default());
    assert_eq!(errno_of(listed), Some(Errno::ENOTDIR));
    let strange = femtobarn_server::physical::StoragePath::new(b"/\xff\xfe.root").unwrap();
    let opened = stage.shown.open(&strange, OpenMode::default(), Opaque::default());
    assert_eq!(errno_of(opened), Some(Errno::ENOENT));
}

#[test]
fn changes_are_refused_with_the_remedy() {
    let stage = Stage::new().with_ten_events();
    let (shown, run7) = (&stage.shown, at("/run7.root"));
    let how = |write, creation| OpenMode { write, creation, ..OpenMode::default() };
    let opened = |path, how| shown.open(&path, how, Opaque::default()).map(drop);
    let file = stage.open("/run7.root", "").unwrap();
    for (what, changed) in [
        ("write", opened(at("/run7.root"), how(true, Creation::Existing))),
        ("empty", opened(at("/run7.root"), how(false, Creation::Empty))),
        ("make", opened(at("/new.root"), how(false, Creation::New))),
        ("remove", shown.remove_file(&run7, Opaque::default())),
        ("rename", shown.rename(&run7, &at("/run8.root"))),
        ("truncate", shown.truncate(&run7, 0)),
        ("mode", shown.set_mode(&run7, 0o777)),
        ("folder", shown.make_folder(&at("/d"), 0o755, true)),
        ("no folder", shown.remove_folder(&at("/d"))),
        ("attribute", shown.set_attribute(&run7, b"a", b"b", false)),
        ("no attribute", shown.remove_attribute(&run7, b"a")),
        ("bytes", file.write_at(0, b"x")),
        ("size", file.truncate(0)),
    ] {
        let Err(StorageError::Refused(errno, text)) = changed else { panic!("{what}") };
        assert_eq!(errno, Errno::EROFS, "{what}: {text}");
        let says = text.contains("transactions") || text.contains("snapshot");
        assert!(says, "{what}: {text}");
    }
    assert_eq!(shown.attributes(&run7), Ok(vec![]));
    assert_eq!(errno_of(shown.attribute(&run7, b"a")), Some(Errno::ENODATA));
    assert_eq!(errno_of(shown.attributes(&at("/none.root"))), Some(Errno::ENOENT));
    assert!(shown.space(&run7).unwrap().total > 0);
}
