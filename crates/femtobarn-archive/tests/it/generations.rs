//! Marks of generations in stores: which leader makes them, and which removals they prevent.

use std::fs;

use femtobarn_catalog::{ErrorKind, ReplicaRow, Successor};

use crate::sealed::{Sealed, on};

#[test]
fn a_leader_marks_the_stores_with_its_generation_and_those_before() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    of.archive().migrate(run7, "disk2", &mut *on()).unwrap();
    assert_eq!(of.archive().mark_generation(&mut *on()).unwrap().len(), 0);
    assert_eq!(of.objects().len(), 1, "the first generation has no mark");
    let successor = Successor {
        generation: 1,
        promotion: "of the copy".to_owned(),
        url: "root://new//lhc.fed".to_owned(),
    };
    of.catalogue.yield_to(&successor).unwrap();
    of.catalogue.lead_again().unwrap();
    let id = of.catalogue.archive_id().unwrap().unwrap();
    let other = ReplicaRow { store: "gone".to_owned(), ..of.copy(run7, "disk2") };
    of.catalogue.record_replica(&other).unwrap();
    let failed = of.archive().mark_generation(&mut *on()).unwrap();
    let failed: Vec<_> =
        failed.iter().map(|(store, error)| (store.as_str(), error.kind())).collect();
    assert_eq!(failed, [("gone", ErrorKind::NotFound)]);
    for generation in [1, 2] {
        assert!(of.store().join(format!("{id}/generation-{generation}")).is_file());
    }
    assert_eq!(of.objects().len(), 3);
}

#[test]
fn a_leader_that_finds_the_mark_of_the_next_generation_removes_nothing_from_that_store() {
    let of = Sealed::new();
    let [run7, run8] = ["run7", "run8"].map(|name| of.database(name, b"seven"));
    let archive = of.archive();
    for database in [run7, run8] {
        archive.migrate(database, "disk2", &mut *on()).unwrap();
    }
    let id = of.catalogue.archive_id().unwrap().unwrap();
    let mark = of.store().join(id).join("generation-1");
    fs::write(&mark, b"").unwrap();
    for database in [run7, run8] {
        let refused = archive.discard(database, "disk2", &mut *on()).unwrap_err();
        assert!(refused.to_string().contains("generation 1"), "{refused}");
    }
    let applied = archive.apply_rules(&mut *on()).unwrap();
    assert_eq!((applied.removed, applied.failed.len()), (0, 1), "{:?}", applied.failed);
    fs::remove_file(mark).unwrap();
    assert_eq!(archive.apply_rules(&mut *on()).unwrap().removed, 2);
}
