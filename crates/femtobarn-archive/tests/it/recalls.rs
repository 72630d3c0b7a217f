//! Recalls from several stores at once.

use std::fs;

use femtobarn_archive::{Recaller, WantedBy};
use femtobarn_catalog::{DatabaseId, clock};

use crate::sealed::{Sealed, on};
use crate::store_rules::program;

/// Recalls that wait for the store that hangs: more than all stores have streams.
const HANGING: usize = 12;

#[test]
fn a_store_that_hangs_holds_up_no_other() {
    let of = Sealed::new();
    let go = of.top().join("go");
    let script = format!(
        "#!/bin/sh\nwhile [ ! -e {} ]; do sleep 0.02; done\necho '{{\"error\": \"no drive\"}}'\n",
        go.display()
    );
    let site = program(&of.top().join("site"), &script);
    let operations =
        ["migrate", "stage", "remove", "query"].map(|name| format!("{name} = ['{site}']\n"));
    let tape = format!("[stores.tape]\nkind = 'commands'\nstreams = 3\n{}", operations.concat());
    of.settings(&format!("{}{tape}", of.folder_store()));
    let archive = of.archive();
    let on_tape: Vec<DatabaseId> = (0..HANGING)
        .map(|number| {
            let name = format!("tape{number}");
            let id = of.database(&name, b"seven");
            of.catalogue.record_replica(&of.copy(id, "tape")).unwrap();
            of.catalogue.record_eviction(&of.row(id), 1).unwrap();
            fs::remove_file(of.file(&name)).unwrap();
            id
        })
        .collect();
    let run7 = of.database("run7", b"seven");
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    let recaller = Recaller::new(archive.into());
    let wanted = WantedBy { user: "ann", ..WantedBy::default() };
    for database in on_tape {
        assert!(recaller.recall(database, wanted).unwrap().is_some());
    }
    let asked = clock::now();
    let running = |store: &str| {
        let excerpt = recaller.excerpt(100);
        excerpt.recalls.iter().filter(|it| it.is_running && it.recall.tape.store == store).count()
    };
    while running("tape") < 3 {
        std::thread::yield_now();
    }
    while recaller.recall(run7, wanted).unwrap().is_some() {
        std::thread::yield_now();
    }
    assert_eq!(running("tape"), 3, "each store has its own streams");
    assert_eq!(fs::read(of.file("run7")).unwrap(), b"seven");
    let waiting = asked.elapsed();
    assert!(recaller.stalls()["tape"] >= waiting, "it has given nothing");
    // Nothing more is wanted of the folder, which its thread notes when the file is there.
    while !recaller.stalls()["disk2"].is_zero() {
        std::thread::yield_now();
    }
    fs::write(go, b"").unwrap();
    // The folder's thread may not have ended yet.
    while recaller.counts().waiting > 0 {
        std::thread::yield_now();
    }
    assert_eq!((recaller.counts().done, recaller.counts().failed), (1, HANGING as u64));
}
