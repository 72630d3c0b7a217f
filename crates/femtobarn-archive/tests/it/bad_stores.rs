//! Stores that give wrong answers: none of their bytes are accepted, and another copy is used.

use std::fs;
use std::time::Duration;

use femtobarn_archive::Error;
use femtobarn_catalog::{ErrorKind, ReplicaState, ResidenceState};

use crate::sealed::{Sealed, on};

const WAIT: Duration = Duration::from_secs(10);

/// A federation with a second store, `third`.
fn with_two_stores() -> Sealed {
    let of = Sealed::new();
    let third = of.top().join("third");
    fs::create_dir(&third).unwrap();
    of.settings(&format!(
        "[stores.disk2]\nkind = 'folder'\npath = '{}'\n[stores.third]\nkind = 'folder'\npath = '{}'",
        of.store().display(),
        third.display()
    ));
    of
}

#[test]
fn a_damaged_copy_is_recorded_as_lost_and_the_next_is_taken() {
    type Damage = fn(&std::path::Path);
    let damages: [(&str, Damage); 4] = [
        ("a flipped bit", |object| {
            let mut bytes = fs::read(object).unwrap();
            bytes[3] ^= 1;
            fs::write(object, bytes).unwrap();
        }),
        ("truncated", |object| fs::write(object, b"sev").unwrap()),
        ("another file", |object| fs::write(object, b"eight").unwrap()),
        ("gone", |object| fs::remove_file(object).unwrap()),
    ];
    for (what, damage) in damages {
        let of = with_two_stores();
        let run7 = of.database("run7", b"seven");
        let archive = of.archive();
        archive.migrate(run7, "disk2", &mut *on()).unwrap();
        archive.migrate(run7, "third", &mut *on()).unwrap();
        archive.evict(run7, &mut *on()).unwrap();
        damage(&of.objects()[0]);
        archive.stage(run7, WAIT, &mut *on()).unwrap();
        assert_eq!(fs::read(of.file("run7")).unwrap(), b"seven", "{what}");
        let residence = of.catalogue.residence(run7).unwrap();
        let states: Vec<_> = residence.replicas.iter().map(|replica| replica.state).collect();
        assert_eq!(states, [ReplicaState::Lost, ReplicaState::Complete], "{what}");
        assert_eq!(residence.state(), ResidenceState::Both, "{what}");
        // A new copy replaces the bad one.
        archive.migrate(run7, "disk2", &mut *on()).unwrap();
        archive.sweep(&mut *on()).unwrap();
        assert_eq!(of.objects().len(), 1, "{what}");
    }
}

#[test]
fn a_file_that_the_disk_has_damaged_is_not_copied() {
    let of = with_two_stores();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "third", &mut *on()).unwrap();
    fs::write(of.file("run7"), b"sevem").unwrap();
    let error = archive.migrate(run7, "disk2", &mut *on()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(of.catalogue.residence(run7).unwrap().replicas.len(), 1);
    // As the error advises.
    fs::rename(of.file("run7"), of.top().join("damaged")).unwrap();
    archive.stage(run7, WAIT, &mut *on()).unwrap();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    assert_eq!(fs::read(&of.objects()[0]).unwrap(), b"seven");
}

#[test]
fn a_store_that_is_not_there_is_not_one_that_lost_its_copies() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    let elsewhere = of.top().join("elsewhere");
    fs::rename(of.store(), &elsewhere).unwrap();
    let error = archive.stage(run7, WAIT, &mut *on()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(of.catalogue.residence(run7).unwrap().state(), ResidenceState::Nearline);
    fs::rename(&elsewhere, of.store()).unwrap();
    archive.stage(run7, WAIT, &mut *on()).unwrap();
}

#[test]
fn an_empty_mount_point_is_no_store_that_lost_its_copies() {
    let of = Sealed::new();
    let (run7, run8) = (of.database("run7", b"seven"), of.database("run8", b"eight"));
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    let elsewhere = of.top().join("elsewhere");
    fs::rename(of.store(), &elsewhere).unwrap();
    fs::create_dir(of.store()).unwrap();
    let unavailable = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    };
    unavailable(archive.stage(run7, WAIT, &mut *on()));
    unavailable(archive.migrate(run8, "disk2", &mut *on()).map(drop));
    assert_eq!(of.catalogue.residence(run7).unwrap().state(), ResidenceState::Nearline);
    fs::remove_dir(of.store()).unwrap();
    fs::rename(&elsewhere, of.store()).unwrap();
    archive.stage(run7, WAIT, &mut *on()).unwrap();
}

#[test]
fn the_last_good_copy_is_not_discarded_for_one_that_is_gone() {
    let of = with_two_stores();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.migrate(run7, "third", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    fs::remove_file(&of.objects()[0]).unwrap();
    assert_eq!(archive.discard(run7, "third", &mut *on()).unwrap_err().kind(), ErrorKind::Denied);
    archive.stage(run7, WAIT, &mut *on()).unwrap();
}
