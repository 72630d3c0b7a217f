//! Storages with injected faults.

use std::sync::Arc;
use std::time::Duration;

use femtobarn_server::physical::{
    CallKind, Creation, FaultEffect, FaultyStorage, InjectedFault, MemoryStorage, Opaque, OpenMode,
    Storage, StorageError,
};
use nix::errno::Errno;

use super::{all_of, at, errno_of, how};

fn failing(faults: &[&str]) -> FaultyStorage {
    let faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    FaultyStorage::failing(Arc::new(MemoryStorage::new(1 << 20)), faults)
}

#[test]
fn a_fault_affects_only_the_calls_that_it_names() {
    let storage = failing(&["open:2=EMFILE", "read:2=EIO", "sync:2+=EIO", "change:1=EROFS"]);
    let open = |creation| storage.open(&at("/a"), how(creation), Opaque::default());
    let file = open(Creation::New).unwrap();
    assert_eq!(errno_of(open(Creation::Existing)), Some(Errno::EMFILE));
    open(Creation::Existing).unwrap();
    file.write_at(0, b"0123456789").unwrap();
    assert_eq!(file.read_at(0, &mut [0; 4]), Ok(4));
    assert_eq!(errno_of(file.read_at(0, &mut [0; 4])), Some(Errno::EIO));
    assert_eq!(file.read_at(0, &mut [0; 4]), Ok(4));
    file.sync().unwrap();
    for _ in 0..3 {
        assert_eq!(errno_of(file.sync()), Some(Errno::EIO), "all later calls fail");
    }
    assert_eq!(errno_of(storage.remove_file(&at("/a"), Opaque::default())), Some(Errno::EROFS));
    storage.remove_file(&at("/a"), Opaque::default()).unwrap();
    assert_eq!(all_of(&*file), b"0123456789");
}

#[test]
fn faults_shorten_or_defer_calls() {
    let storage = failing(&["write:1=short:3", "read:1=short:2", "facts:1=wait:1.5"]);
    let file = storage.open(&at("/a"), how(Creation::New), Opaque::default()).unwrap();
    assert_eq!(errno_of(file.write_at(0, b"0123456789")), Some(Errno::ENOSPC));
    let mut buffer = [b'x'; 8];
    assert_eq!(file.read_at(0, &mut buffer), Ok(2));
    assert_eq!(&buffer, b"01xxxxxx");
    assert_eq!(file.read_at(0, &mut buffer), Ok(3));
    let Err(StorageError::NotBefore(time, _)) = file.metadata() else {
        panic!("the call was not deferred")
    };
    assert_eq!(time, Duration::from_millis(1500));
    assert_eq!(file.metadata().unwrap().size, 3);
    assert!(file.descriptor().is_none() && file.try_read_at(0, &mut buffer) == Ok(None));
    assert!(storage.open(&at("/a"), OpenMode::default(), Opaque::default()).is_ok());
}

#[test]
fn faults_are_parsed_from_text() {
    let fault = |kind, number, lasts, effect| InjectedFault { kind, number, lasts, effect };
    for (text, expected) in [
        ("read:3=EIO", fault(CallKind::Read, 3, false, FaultEffect::Refused(Errno::EIO))),
        ("write:1+=ENOSPC", fault(CallKind::Write, 1, true, FaultEffect::Refused(Errno::ENOSPC))),
        ("list:2=short:7", fault(CallKind::List, 2, false, FaultEffect::Short(7))),
        (
            "open:9=wait:2",
            fault(CallKind::Open, 9, false, FaultEffect::NotBefore(Duration::from_secs(2))),
        ),
    ] {
        assert_eq!(text.parse(), Ok(expected));
    }
    for text in [
        "",
        "read",
        "read:1",
        "read=EIO",
        "read:0=EIO",
        "read:x=EIO",
        "eat:1=EIO",
        "read:1=EVIL",
        "read:1=short:",
        "read:1=wait:-1",
        "read:1=late:3",
        "read:1++=EIO",
        "read:1=UnknownErrno",
    ] {
        let error = text.parse::<InjectedFault>().unwrap_err();
        assert!(error.contains("read:3=EIO"), "{error}");
    }
}
