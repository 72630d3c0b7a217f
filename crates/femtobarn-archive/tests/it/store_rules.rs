//! The rules that every store keeps, tried on a folder and on commands; on an XRootD server and a bucket of S3
//! beside this.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use femtobarn_archive::stores::{CommandStore, FolderStore, SiteCommands};
use femtobarn_archive::{Error, ObjectRange, Store};

use crate::sealed::on;

/// A site's commands: objects are files of the folder that is the argument.
pub(crate) const SITE: &str = r#"#!/bin/sh
read -r line
field() { printf '%s' "$line" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
object="$1/$(field key | tr / _)"
case "$(field operation)" in
migrate) cp "$(field path)" "$object.part" && mv "$object.part" "$object" ;;
stage) if [ -f "$object" ]; then cp "$object" "$(field path)"; else echo '{"exists": false}'; fi ;;
remove) rm -f "$object" ;;
query) if [ -f "$object" ]; then echo "{\"size\": $(stat -c %s "$object"), \"tape\": \"L1\", \"position\": 7}"
       else echo '{"exists": false}'; fi ;;
esac
"#;

/// Writes a program that can be run.
pub(crate) fn program(path: &Path, text: &str) -> String {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

pub(crate) fn check(store: &dyn Store, work: &Path) {
    let (from, to) = (work.join("from"), work.join("to"));
    fs::write(&from, b"seven bytes").unwrap();
    let is_not_found = |result: Result<(), Error>| matches!(result, Err(Error::NoObject { .. }));
    store.begin(&mut *on()).unwrap();
    store.begin(&mut *on()).unwrap();
    assert!(is_not_found(store.stat("a/b.root").map(drop)));
    assert!(is_not_found(store.get("a/b.root", &to, &mut *on())));
    assert!(!to.exists());
    store.remove("a/b.root", &mut *on()).unwrap();
    let sent = store.put("a/b.root", &from, &mut *on()).unwrap();
    assert!(sent.is_none_or(|sum| sum == "adler32:1a650469"), "of what went through here");
    assert_eq!(store.stat("a/b.root").unwrap().size, 11);
    store.get("a/b.root", &to, &mut *on()).unwrap();
    assert_eq!(fs::read(&to).unwrap(), b"seven bytes");
    fs::remove_file(&to).unwrap();
    fs::write(&from, b"others").unwrap();
    store.put("a/b.root", &from, &mut *on()).unwrap();
    assert_eq!(store.stat("a/b.root").unwrap().size, 6);
    for key in ["", "/a", "a/", "../a", "a//b", "a/.b", "a b", "a\nb"] {
        let refused = store.put(key, &from, &mut *on());
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{key:?}: {refused:?}");
    }
    let stopped = store.put("c", &from, &mut |_| false);
    assert!(matches!(stopped, Err(Error::Stopped { .. }) | Ok(_)), "{stopped:?}");
    store.remove("a/b.root", &mut *on()).unwrap();
    assert!(is_not_found(store.stat("a/b.root").map(drop)));
    let missing = store.put("d", &work.join("missing"), &mut *on());
    assert!(missing.is_err() && is_not_found(store.stat("d").map(drop)));
}

#[test]
fn a_folder_keeps_the_rules() {
    let (work, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = FolderStore::new(folder.path().to_owned()).unwrap();
    check(&store, work.path());
    let from = work.path().join("from");
    for key in ["x/1", "x/2", "y/1"] {
        store.put(key, &from, &mut *on()).unwrap();
    }
    let mut part = [0; 4];
    let read = |offset, buffer: &mut [u8]| store.read("x/1", &mut [ObjectRange { offset, buffer }]);
    read(2, &mut part).unwrap();
    assert_eq!(&part, b"hers");
    assert!(matches!(read(4, &mut part), Err(Error::Corrupt { .. })));
    // A folder that is not empty and has no mark is none, and an empty one only before the first copy.
    let disk = tempfile::tempdir().unwrap();
    let other = FolderStore::new(disk.path().to_owned()).unwrap();
    fs::create_dir(disk.path().join("lost+found")).unwrap();
    let refused = other.put("x/1", &from, &mut *on());
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    fs::write(disk.path().join("something"), b"").unwrap();
    assert!(matches!(other.begin(&mut *on()), Err(Error::Unavailable { .. })));
    fs::remove_file(disk.path().join("something")).unwrap();
    other.begin(&mut *on()).unwrap();
    // The remains of a killed writer are no object.
    fs::write(folder.path().join("x/.part-7"), b"half").unwrap();
    let listed = store.list("x/").unwrap();
    assert_eq!(listed, [("x/1".to_owned(), 6), ("x/2".to_owned(), 6)]);
}

#[test]
fn commands_keep_the_rules() {
    let (work, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let site = program(&work.path().join("site"), SITE);
    let command = vec![site, folder.path().display().to_string()];
    let store = CommandStore::new(SiteCommands {
        migrate: command.clone(),
        stage: command.clone(),
        remove: command.clone(),
        query: command,
        timeout_seconds: 60,
        answer_seconds: 60,
        streams: 2,
    });
    let store = store.unwrap();
    check(&store, work.path());
    store.put("x", &work.path().join("from"), &mut *on()).unwrap();
    assert_eq!(store.stat("x").unwrap().tape, Some(("L1".to_owned(), 7)));
    assert!(matches!(store.read("x", &mut []), Err(Error::Invalid { .. })));
}
