//! The tree: folders, names, metadata.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use femtobarn_server::logical::exports::{ExportOptions, Exports};
use femtobarn_server::physical::{
    Creation, FaultyStorage, FileKind, MemoryStorage, Opaque, OpenMode, PosixStorage, Storage,
    StoragePath,
};
use nix::errno::Errno;

use super::{at, errno_of, how, stages};

#[test]
fn unsafe_paths_are_refused() {
    for (path, errno) in [
        (&b"a"[..], Errno::EINVAL),
        (b"", Errno::EINVAL),
        (b"/a\0b", Errno::EINVAL),
        (b"/..", Errno::EACCES),
        (b"/a/../../b", Errno::EACCES),
        (&[b"/".as_slice(), &[b'x'; 256]].concat(), Errno::ENAMETOOLONG),
    ] {
        assert_eq!(errno_of(StoragePath::new(path)), Some(errno), "{path:?}");
    }
    assert_eq!(at("//a/./b//").as_bytes(), b"/a/b");
    assert_eq!(at("/./").as_bytes(), b"/");
    assert_eq!(at("/a/b").parent(), Some((at("/a"), b"b".as_slice())));
    assert_eq!(at("/a").parent(), Some((at("/"), b"a".as_slice())));
    assert_eq!(at("/").parent(), None);
    assert!(at("/a/b/c").folders_above().eq([at("/a"), at("/a/b")]));
    assert_eq!(at("/").join(b"a").unwrap(), at("/a"));
    for name in [&b".."[..], b".", b"", b"a/b", b"/"] {
        assert_eq!(errno_of(at("/a").join(name)), Some(Errno::EINVAL));
    }
}

#[test]
fn folders_are_listed_in_the_order_of_their_names() {
    for stage in stages() {
        for name in ["/c", "/a", "/b"] {
            stage.make(name, name.as_bytes());
        }
        stage.storage.make_folder(&at("/ab"), 0o755, false).unwrap();
        assert_eq!(stage.names("/"), ["a", "ab", "b", "c"], "{}", stage.kind);
        let entries = stage.storage.list(&at("/"), true, Opaque::default()).unwrap();
        let kinds: Vec<_> =
            entries.iter().map(|entry| entry.metadata.as_ref().unwrap().kind).collect();
        assert_eq!(kinds, [FileKind::File, FileKind::Folder, FileKind::File, FileKind::File]);
        for entry in entries {
            let path = at("/").join(&entry.name).unwrap();
            let metadata = stage.storage.metadata(&path, Opaque::default()).unwrap();
            assert_eq!(entry.metadata, Some(metadata), "{}", stage.kind);
        }
        assert_eq!(stage.names("/ab"), [""; 0], "{}", stage.kind);
        let listed = stage.storage.list(&at("/a"), false, Opaque::default());
        assert_eq!(errno_of(listed), Some(Errno::ENOTDIR), "{}", stage.kind);
        let listed = stage.storage.list(&at("/none"), false, Opaque::default());
        assert_eq!(errno_of(listed), Some(Errno::ENOENT), "{}", stage.kind);
    }
}

#[test]
fn metadata_describe_the_file() {
    for stage in stages() {
        let before = SystemTime::now() - Duration::from_secs(3600);
        let file = stage.make("/a", b"12345");
        let metadata = stage.storage.metadata(&at("/a"), Opaque::default()).unwrap();
        assert_eq!((metadata.kind, metadata.size, metadata.mode), (FileKind::File, 5, 0o644));
        assert!(
            metadata.is_readable && metadata.is_writable && metadata.is_online,
            "{}",
            stage.kind
        );
        for time in [metadata.modified, metadata.changed, metadata.accessed] {
            assert!(time > before && time < before + Duration::from_secs(7200), "{}", stage.kind);
        }
        assert!(!metadata.owner.is_empty() && !metadata.group.is_empty(), "{}", stage.kind);
        assert_eq!(file.metadata().unwrap(), metadata, "{}", stage.kind);
        let other = stage.make("/b", b"");
        assert_ne!(other.metadata().unwrap().id, metadata.id, "{}", stage.kind);
        stage.storage.rename(&at("/a"), &at("/c")).unwrap();
        let renamed = stage.storage.metadata(&at("/c"), Opaque::default()).unwrap();
        assert_eq!(renamed.id, metadata.id, "{}", stage.kind);
        stage.storage.truncate(&at("/c"), 3).unwrap();
        assert_eq!(file.metadata().unwrap().size, 3, "{}", stage.kind);
        stage.storage.set_mode(&at("/c"), 0o640).unwrap();
        assert_eq!(file.metadata().unwrap().mode, 0o640, "{}", stage.kind);
        let top = stage.storage.metadata(&at("/"), Opaque::default()).unwrap();
        assert_eq!(top.kind, FileKind::Folder, "{}", stage.kind);
    }
}

#[test]
fn make_folder_creates_parents_if_asked_to() {
    for stage in stages() {
        let make = |path, parents| stage.storage.make_folder(&at(path), 0o755, parents);
        assert_eq!(errno_of(make("/a/b", false)), Some(Errno::ENOENT), "{}", stage.kind);
        make("/a/b/c", true).unwrap();
        make("/a/b/c", true).unwrap();
        assert_eq!(errno_of(make("/a/b", false)), Some(Errno::EEXIST), "{}", stage.kind);
        stage.make("/a/f", b"");
        for (path, parents) in [("/a/f", false), ("/a/f", true)] {
            assert_eq!(errno_of(make(path, parents)), Some(Errno::EEXIST), "{}", stage.kind);
        }
        for parents in [false, true] {
            let made = errno_of(make("/a/f/g", parents)).unwrap();
            assert!([Errno::ENOTDIR, Errno::EEXIST].contains(&made), "{}: {made}", stage.kind);
        }
        assert_eq!(stage.names("/a"), ["b", "f"], "{}", stage.kind);
    }
}

#[test]
fn folders_are_refused_as_files_and_files_as_folders() {
    for stage in stages() {
        stage.storage.make_folder(&at("/d"), 0o755, false).unwrap();
        stage.make("/f", b"");
        for creation in [Creation::Existing, Creation::Empty, Creation::IfAbsent] {
            let opened = stage.open("/d", OpenMode { creation, ..OpenMode::default() });
            assert_eq!(errno_of(opened), Some(Errno::EISDIR), "{}", stage.kind);
        }
        assert_eq!(errno_of(stage.open("/", OpenMode::default())), Some(Errno::EISDIR));
        assert_eq!(errno_of(stage.open("/d", how(Creation::New))), Some(Errno::EEXIST));
        assert_eq!(
            errno_of(stage.storage.remove_file(&at("/d"), Opaque::default())),
            Some(Errno::EISDIR)
        );
        assert_eq!(errno_of(stage.storage.remove_folder(&at("/f"))), Some(Errno::ENOTDIR));
        assert_eq!(errno_of(stage.storage.truncate(&at("/d"), 0)), Some(Errno::EISDIR));
        assert_eq!(stage.names("/"), ["d", "f"], "{}", stage.kind);
    }
}

#[test]
fn only_empty_folders_are_removed() {
    for stage in stages() {
        stage.storage.make_folder(&at("/d"), 0o755, false).unwrap();
        stage.make("/d/f", b"");
        let removed = stage.storage.remove_folder(&at("/d"));
        assert_eq!(errno_of(removed), Some(Errno::ENOTEMPTY), "{}", stage.kind);
        stage.storage.remove_file(&at("/d/f"), Opaque::default()).unwrap();
        stage.storage.remove_folder(&at("/d")).unwrap();
        assert_eq!(stage.names("/"), [""; 0], "{}", stage.kind);
        assert_eq!(errno_of(stage.storage.remove_folder(&at("/d"))), Some(Errno::ENOENT));
        assert_eq!(
            errno_of(stage.storage.remove_file(&at("/d"), Opaque::default())),
            Some(Errno::ENOENT)
        );
        for refused in [
            stage.storage.remove_folder(&at("/")),
            stage.storage.remove_file(&at("/"), Opaque::default()),
        ] {
            assert_eq!(errno_of(refused), Some(Errno::EBUSY), "{}", stage.kind);
        }
    }
}

#[test]
fn renaming_replaces_files_and_empty_folders() {
    for stage in stages() {
        let rename = |from, to| stage.storage.rename(&at(from), &at(to));
        stage.make("/a", b"a");
        stage.make("/b", b"b");
        rename("/a", "/b").unwrap();
        assert_eq!((stage.names("/"), stage.read("/b")), (vec!["b".to_owned()], b"a".to_vec()));
        stage.storage.make_folder(&at("/d/e"), 0o755, true).unwrap();
        rename("/b", "/d/b").unwrap();
        stage.storage.make_folder(&at("/g"), 0o755, true).unwrap();
        rename("/d", "/g").unwrap();
        assert_eq!(stage.names("/g"), ["b", "e"], "{}", stage.kind);
        assert_eq!(errno_of(rename("/g", "/g/e/x")), Some(Errno::EINVAL), "{}", stage.kind);
        assert_eq!(errno_of(rename("/none", "/x")), Some(Errno::ENOENT), "{}", stage.kind);
        assert_eq!(errno_of(rename("/g/b", "/none/x")), Some(Errno::ENOENT), "{}", stage.kind);
        assert_eq!(errno_of(rename("/g/b", "/g/e")), Some(Errno::EISDIR), "{}", stage.kind);
        assert_eq!(errno_of(rename("/g/e", "/g/b")), Some(Errno::ENOTDIR), "{}", stage.kind);
        stage.storage.make_folder(&at("/h"), 0o755, true).unwrap();
        assert_eq!(errno_of(rename("/h", "/g")), Some(Errno::ENOTEMPTY), "{}", stage.kind);
        assert_eq!(errno_of(rename("/", "/x")), Some(Errno::EBUSY), "{}", stage.kind);
        rename("/g/b", "/g/b").unwrap();
        assert_eq!(stage.read("/g/b"), b"a", "{}", stage.kind);
    }
}

#[test]
fn errors_have_the_path_that_the_client_sent() {
    for stage in stages() {
        let error = stage.open("/no/such", OpenMode::default()).err().unwrap();
        let femtobarn_server::physical::StorageError::Refused(errno, text) = error else {
            panic!("{error:?}")
        };
        assert_eq!(errno, Errno::ENOENT, "{}", stage.kind);
        assert_eq!(text, "cannot open /no/such: no such file or directory", "{}", stage.kind);
    }
}

#[test]
fn total_space_is_at_least_the_free_space() {
    for stage in stages() {
        let space = stage.storage.space(&at("/")).unwrap();
        assert!(space.total >= space.free && space.free >= space.largest, "{}", stage.kind);
        assert!(space.total > 0, "{}", stage.kind);
        assert_eq!(errno_of(stage.storage.space(&at("/none"))), Some(Errno::ENOENT));
    }
}

/// `xrdfs spaceinfo /` once reported 0 of 0 bytes where exports lie below the top.
#[test]
fn the_space_above_exports_counts_each_file_system_once() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut exports = Exports::default();
    for (name, folder) in ["/lhc/one", "/lhc/two"].into_iter().zip(&folders) {
        let storage = Arc::new(PosixStorage::new(folder.path()).unwrap());
        exports.add(&at(name), storage, ExportOptions::default()).unwrap();
    }
    for name in ["/memory", "/more"] {
        let memory = Arc::new(MemoryStorage::new(1 << 20));
        exports.add(&at(name), memory, ExportOptions::default()).unwrap();
    }
    let gone = tempfile::tempdir().unwrap();
    let storage = Arc::new(FaultyStorage::failing(
        Arc::new(PosixStorage::new(gone.path()).unwrap()),
        vec!["space:1+=EIO".parse().unwrap()],
    ));
    exports.add(&at("/gone"), storage, ExportOptions::default()).unwrap();
    let total = |path| exports.space(&at(path)).unwrap().total;
    assert!(total("/lhc/one") > 0);
    assert_eq!(total("/lhc"), total("/lhc/one"));
    assert_eq!(total("/"), total("/lhc") + (2 << 20));
    assert_eq!(errno_of(exports.space(&at("/none"))), Some(Errno::ENOENT));
}
