//! Recalls from several stores at once, and evictions of databases with copies there.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use femtobarn_archive::{Recaller, WantedBy};
use femtobarn_catalog::{DatabaseId, ErrorKind, FilePin, clock};

use crate::sealed::{Sealed, on};
use crate::store_rules::program;

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// Recalls that wait for the store that hangs: more than all stores have streams.
const HANGING: usize = 12;

/// A store `tape` beside `disk2` that does not answer before the file `go` exists, and then with this line.
fn hanging_tape(of: &Sealed, answer: &str) {
    let script = format!(
        "#!/bin/sh\nwhile [ ! -e {} ]; do sleep 0.02; done\necho '{answer}'\n",
        of.top().join("go").display()
    );
    let site = program(&of.top().join("site"), &script);
    let operations =
        ["migrate", "stage", "remove", "query"].map(|name| format!("{name} = ['{site}']\n"));
    let tape = format!("[stores.tape]\nkind = 'commands'\nstreams = 3\n{}", operations.concat());
    of.settings(&format!("{}{tape}", of.folder_store()));
}

#[test]
fn a_hanging_store_delays_no_other_store() {
    let of = Sealed::new();
    hanging_tape(&of, "{\"error\": \"no drive\"}");
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
    // No more files are wanted from the folder, which its thread records once the file is back.
    while !recaller.stalls()["disk2"].is_zero() {
        std::thread::yield_now();
    }
    fs::write(of.top().join("go"), b"").unwrap();
    // The folder's thread may not have ended yet.
    while recaller.counts().waiting > 0 {
        std::thread::yield_now();
    }
    assert_eq!((recaller.counts().done, recaller.counts().failed), (1, HANGING as u64));
}

#[test]
fn an_eviction_continues_while_a_slow_store_is_asked() {
    let of = Sealed::new();
    hanging_tape(&of, "{\"exists\": true, \"size\": 5}");
    let [first, second, run7] = ["first", "second", "run7"].map(|it| of.database(it, b"seven"));
    for database in [first, second] {
        of.catalogue.record_replica(&of.copy(database, "tape")).unwrap();
    }
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    static REPORTED: Mutex<Vec<(String, Option<u64>)>> = Mutex::new(vec![]);
    let recaller = Recaller::new(archive.into()).reporting_evictions(|_, name, evicted| {
        REPORTED.lock().unwrap().push((name.to_owned(), evicted.as_ref().ok().copied()));
    });
    let evictor = recaller.evictor();
    let soon = Duration::from_millis(1);
    for database in [first, first, second, first] {
        assert_eq!(evictor.evict(database, soon).unwrap(), None, "it goes on");
    }
    let pending = evictor.pending(10);
    let databases: Vec<_> = pending.iter().map(|it| it.database).collect();
    assert_eq!(databases, [first, second], "each once, in the order of arrival");
    assert_eq!(evictor.evict(run7, LONG).unwrap(), Some(5), "another store holds it up not");
    assert_eq!((evictor.counts().waiting, evictor.counts().done), (2, 1));
    assert_eq!(of.files(), ["first.root", "second.root"]);
    of.catalogue.pin_file(second, &FilePin { holder: "ann".into(), until_us: None }).unwrap();
    fs::write(of.top().join("go"), b"").unwrap();
    while evictor.counts().waiting > 0 || REPORTED.lock().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    let reported = REPORTED.lock().unwrap().clone();
    assert_eq!(reported, [("first".to_owned(), Some(5)), ("second".to_owned(), None)]);
    assert_eq!((evictor.counts().done, evictor.counts().failed), (2, 1));
    assert_eq!(of.files(), ["second.root"]);
    let refused = evictor.evict(second, LONG).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
}
