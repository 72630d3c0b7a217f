//! Files on their own: what they are, and how databases leave a federation and join another.

use std::fs;
use std::time::Duration;

use femtobarn::{FileKind, identify};

use crate::support::{federation, with_ten_events};

#[test]
fn a_file_says_what_it_is() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let path = folder.path().join("test.fed/databases/run7.root");
    let facts = identify(&path).unwrap();
    assert_eq!((facts.kind, facts.problem.as_deref()), (FileKind::OpenDatabase, None));
    assert_eq!(facts.federation, Some(federation.uuid()));
    assert_eq!(facts.database, Some(("run7".to_owned(), 1)));
    assert_eq!(facts.commits, 1);
    let [events] = &facts.containers[..] else { panic!("{:?}", facts.containers) };
    assert_eq!((events.name.as_str(), events.entries, events.deleted), ("events", 10, Some(0)));
    assert_eq!(events.class, Some(("Event".to_owned(), 1)));
    assert_eq!(events.clusters, Some(1));

    federation.seal("run7", Duration::ZERO).unwrap();
    let sealed = identify(&path).unwrap();
    assert_eq!((sealed.kind, sealed.uuid), (FileKind::SealedDatabase, facts.uuid));
    assert_eq!((sealed.containers[0].entries, sealed.federation), (10, facts.federation));

    let text = folder.path().join("text");
    fs::write(&text, "no ROOT file").unwrap();
    assert_eq!(identify(&text).unwrap().kind, FileKind::Other);
    let cut = folder.path().join("cut.root");
    fs::write(&cut, &fs::read(&path).unwrap()[..900]).unwrap();
    let facts = identify(&cut).unwrap();
    assert!(facts.problem.is_some(), "{facts:?}");
    assert!(identify(&folder.path().join("none")).is_err());
}
