//! Attributes of files.

use nix::errno::Errno;

use super::{at, errno_of, stages};

#[test]
fn attributes_are_set_listed_read_and_removed() {
    for stage in stages() {
        let (storage, path) = (&stage.storage, at("/a"));
        let file = stage.make("/a", b"");
        assert_eq!(storage.attributes(&path), Ok(vec![]), "{}", stage.kind);
        storage.set_attribute(&path, b"two", b"\0\xff", false).unwrap();
        storage.set_attribute(&path, b"one", b"", true).unwrap();
        assert_eq!(storage.attributes(&path), Ok(vec![b"one".to_vec(), b"two".to_vec()]));
        assert_eq!(storage.attribute(&path, b"two"), Ok(b"\0\xff".to_vec()), "{}", stage.kind);
        assert_eq!(storage.attribute(&path, b"one"), Ok(vec![]), "{}", stage.kind);
        let again = storage.set_attribute(&path, b"two", b"x", true);
        assert_eq!(errno_of(again), Some(Errno::EEXIST), "{}", stage.kind);
        storage.set_attribute(&path, b"two", b"y", false).unwrap();
        assert_eq!(storage.attribute(&path, b"two"), Ok(b"y".to_vec()), "{}", stage.kind);
        storage.remove_attribute(&path, b"two").unwrap();
        for gone in
            [storage.remove_attribute(&path, b"two"), storage.attribute(&path, b"two").map(drop)]
        {
            assert_eq!(errno_of(gone), Some(Errno::ENODATA), "{}", stage.kind);
        }
        drop(file);
        storage.rename(&path, &at("/b")).unwrap();
        assert_eq!(storage.attributes(&at("/b")), Ok(vec![b"one".to_vec()]), "{}", stage.kind);
        assert_eq!(errno_of(storage.attributes(&path)), Some(Errno::ENOENT), "{}", stage.kind);
    }
}

#[test]
fn attributes_beyond_the_limits_are_refused() {
    for stage in stages() {
        let (storage, path) = (&stage.storage, at("/a"));
        stage.make("/a", b"");
        for name in [&[b'x'; 251][..], b"", b"a\0b"] {
            assert!(errno_of(storage.set_attribute(&path, name, b"", false)).is_some());
        }
        let set = storage.set_attribute(&path, b"big", &vec![0; 65 << 10], false);
        assert!(errno_of(set).is_some(), "{}", stage.kind);
        assert_eq!(storage.attributes(&path), Ok(vec![]), "{}", stage.kind);
    }
}
