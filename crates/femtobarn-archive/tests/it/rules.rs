//! The rules of the settings, applied by themselves: on a disk that is too full, and with stores that fail.

use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use femtobarn_catalog::{ErrorKind, ReplicaRow};

use crate::sealed::{Sealed, on};
use crate::store_rules::{SITE, program};

/// Every disk is fuller than that.
const TOO_FULL: &str = "[disk]\nhigh_percent = 0.0001\nlow_percent = 0.0001\n";

/// A rule that copies all databases to stores.
fn rule(stores: &str) -> String {
    format!("[[rules]]\ndatabases = '*'\nstores = [{stores}]\n")
}

/// Makes a file and its copy larger than all files on the disk, as sparse files that take no space; returns the size.
fn make_large(of: &Sealed, name: &str, copy: ReplicaRow) -> u64 {
    let disk = nix::sys::statvfs::statvfs(of.top()).unwrap();
    let size = (1 << 36) + (disk.blocks() - disk.blocks_available()) * disk.fragment_size();
    for path in [of.file(name), of.store().join(&copy.key)] {
        File::options().write(true).open(path).unwrap().set_len(size).unwrap();
    }
    of.catalogue.record_replica(&ReplicaRow { size, ..copy }).unwrap();
    size
}

#[test]
fn a_disk_that_gives_back_space_later_is_not_emptied_altogether() {
    let of = Sealed::new();
    of.settings(&format!("{}{}{TOO_FULL}", of.folder_store(), rule("'disk2'")));
    let archive = of.archive();
    let sizes = ["run6", "run7", "run8"].map(|name| {
        let id = of.database(name, b"seven");
        make_large(&of, name, archive.migrate(id, "disk2", &mut *on()).unwrap())
    });
    let applied = archive.apply_rules(&mut *on()).unwrap();
    assert_eq!((applied.evicted, applied.failed), (vec![("run6".to_owned(), sizes[0])], vec![]));
}

/// The settings of a store `tape`, whose commands are all this program with a folder.
fn commands(of: &Sealed, text: &str) -> String {
    let folder = of.top().join("tape");
    fs::create_dir(&folder).unwrap();
    let command = format!("['{}', '{}']", program(&of.top().join("site"), text), folder.display());
    let each = ["migrate", "stage", "remove", "query"].map(|name| format!("{name} = {command}\n"));
    format!("[stores.tape]\nkind = 'commands'\n{}", each.concat())
}

/// A program that fails, and writes the names of files in a folder to a log each time.
fn broken(log: &Path, folder: &Path) -> String {
    format!("#!/bin/sh\nls -C -w 0 {} >> {}\nexit 1\n", folder.display(), log.display())
}

#[test]
fn a_silent_store_is_asked_once_and_delays_no_other_step() {
    let of = Sealed::new();
    let log = of.top().join("log");
    let tape = commands(&of, &broken(&log, of.file("").parent().unwrap()));
    let kept = "[[rules]]\ndatabases = 'kept-*'\nstores = ['tape']\nkeep_on_disk = true\n";
    let all = format!("{}copies = 1\n", rule("'disk2', 'tape'"));
    of.settings(&format!("{}{tape}{kept}{all}{TOO_FULL}", of.folder_store()));
    let archive = of.archive();
    let copies = ["run6", "run7", "run8"].map(|name| {
        let id = of.database(name, b"seven");
        archive.migrate(id, "disk2", &mut *on()).unwrap()
    });
    let kept = ["kept-1", "kept-2"].map(|name| of.database(name, b"kept"));
    let long_ago = SystemTime::now() - Duration::from_secs(10_000_000);
    let read = FileTimes::new().set_accessed(long_ago);
    File::open(of.file("kept-1")).unwrap().set_times(read).unwrap();
    // Objects that are to be removed.
    let id = of.catalogue.archive_id().unwrap().unwrap();
    for key in ["one", "two"] {
        let (store, key) = ("tape".to_owned(), format!("{id}/{key}"));
        let database = copies[0].database;
        let copy = ReplicaRow { database, store, key, ..copies[0].clone() };
        of.catalogue.record_replica(&copy).unwrap();
        of.catalogue.discard_replica(&of.row(database), "tape", true).unwrap();
    }
    let discarded = of.catalogue.discarded_objects().unwrap();
    let applied = archive.apply_rules(&mut *on()).unwrap();
    assert_eq!(applied.evicted.len(), 3);
    assert_eq!(applied.failed.len(), 1, "{:?}", applied.failed);
    let why = &applied.failed[0].1;
    assert!(why.contains("site") && why.contains("could not query"), "{why}");
    // For a copy, and whether the store answers at all, after the others had left the disk.
    assert_eq!(fs::read_to_string(log).unwrap(), "kept-1.root  kept-2.root\n".repeat(2));
    assert_eq!(of.catalogue.discarded_objects().unwrap(), discarded, "no name was spent");
    assert_eq!(of.catalogue.residence(kept[0]).unwrap().replicas, []);
    let read = of.file("kept-1").metadata().unwrap().accessed().unwrap();
    assert_eq!(read, long_ago, "the file was read for nothing");
    let stopped = archive.sweep(&mut |_| false).unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Closed, "{stopped}");
}

#[test]
fn a_silent_store_is_asked_once_for_copies_that_evictions_rely_on() {
    let of = Sealed::new();
    let log = of.top().join("log");
    let tape = commands(&of, &broken(&log, of.top()));
    of.settings(&format!("{tape}{}{TOO_FULL}", rule("'tape'")));
    for name in ["run6", "run7", "run8"] {
        let database = of.database(name, b"seven");
        of.catalogue.record_replica(&of.copy(database, "tape")).unwrap();
    }
    let applied = of.archive().apply_rules(&mut *on()).unwrap();
    assert_eq!((applied.evicted.len(), applied.failed.len()), (0, 1), "{:?}", applied.failed);
    assert_eq!(fs::read_to_string(log).unwrap().lines().count(), 2);
    assert_eq!(of.files().len(), 3);
}

#[test]
fn a_file_that_a_store_refuses_does_not_delay_other_files() {
    let of = Sealed::new();
    let refuse = "case \"$line\" in *migrate*run6.root*) exit 1 ;; esac\ncase ";
    let tape = commands(&of, &SITE.replacen("case ", refuse, 1));
    of.settings(&format!("{tape}{}", rule("'tape'")));
    for name in ["run6", "run7", "run8"] {
        of.database(name, b"seven");
    }
    let applied = of.archive().apply_rules(&mut *on()).unwrap();
    let copied: Vec<&str> = applied.migrated.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((copied, applied.failed.len()), (vec!["run7", "run8"], 1), "{:?}", applied.failed);
    assert_eq!(of.catalogue.discarded_objects().unwrap(), []);
}
