//! Folders that hold a federation, hold none, cannot be written, or are full.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use femtobarn_catalog::{Csn, ErrorKind, LocalCatalogue};

use crate::child::{Player, command, command_in_own_mounts, say};
use crate::federation::{Federation, copy_folder, new_container};
use crate::syncs;

#[test]
fn a_new_federation_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("deep/lhc.fed");
    let created = LocalCatalogue::create(&folder, "lhc").unwrap();
    let opened = LocalCatalogue::open(&folder).unwrap();
    assert_eq!((created.uuid(), created.name()), (opened.uuid(), opened.name()));
    assert_eq!(opened.folder(), folder);
    assert_eq!(opened.head().unwrap(), Csn::ZERO);
    assert!(!opened.is_read_only());
    assert!(folder.join("locks").is_dir() && folder.join("databases").is_dir());
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("draft")));
}

#[test]
fn a_folder_in_use_is_not_made_a_federation() {
    let fed = Federation::new();
    let error = LocalCatalogue::create(&fed.folder, "again").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("open it, or choose another folder"), "{error}");

    let foreign = tempfile::tempdir().unwrap();
    fs::write(foreign.path().join("thesis.tex"), "").unwrap();
    let error = LocalCatalogue::create(foreign.path(), "lhc").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("thesis.tex"), "{error}");

    let lost = tempfile::tempdir().unwrap();
    fs::create_dir(lost.path().join("databases")).unwrap();
    fs::write(lost.path().join("databases/run7.root"), "").unwrap();
    assert_eq!(LocalCatalogue::create(lost.path(), "lhc").unwrap_err().kind(), ErrorKind::Exists);
}

#[test]
fn an_interrupted_creation_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("locks")).unwrap();
    fs::create_dir(folder.path().join("databases")).unwrap();
    fs::write(folder.path().join("catalogue.sqlite.draft-1"), "half").unwrap();
    LocalCatalogue::create(folder.path(), "lhc").unwrap();
}

#[test]
fn opening_fails_with_the_missing_part() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = folder.path().join("nowhere");
    for (path, reason) in [
        (folder.path(), "the folder holds no catalogue.sqlite"),
        (&missing, "the folder does not exist"),
        (&file, "this is a file"),
    ] {
        let error = LocalCatalogue::open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn one_of_several_concurrent_creations_succeeds() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("lhc.fed");
        let results: Vec<_> = std::thread::scope(|scope| {
            let create =
                || scope.spawn(|| LocalCatalogue::create(&folder, "lhc").map(|c| c.uuid()));
            let running = [create(), create(), create(), create()];
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let uuid = LocalCatalogue::open(&folder).unwrap().uuid();
        let won: Vec<_> = results.iter().flatten().collect();
        assert_eq!(won, [&uuid]);
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
        }
        assert!(folder.join("locks").is_dir() && folder.join("databases").is_dir());
    }
}

#[test]
fn a_read_only_medium_can_be_read() {
    let Federation { catalog, folder, keep: _keep, .. } = Federation::new();
    drop(catalog);
    let mount = "mount --bind -o ro \"$FEMTOBARN_TEST_FOLDER\" \"$FEMTOBARN_TEST_FOLDER\"";
    let Some(command) = command_in_own_mounts("read", &folder, mount) else { return };
    let mut reader = Player::run(command);
    assert_eq!(reader.hear().unwrap(), "read-only, 1 databases");
    assert_eq!(reader.hear().unwrap(), "Denied");
}

#[test]
fn a_read_only_medium_with_an_unfinished_log_is_refused_with_the_remedy() {
    let fed = Federation::new();
    let copy = fed.folder.with_extension("copy");
    copy_folder(&fed.folder, &copy);
    fs::remove_file(copy.join("catalogue.sqlite-shm")).unwrap();
    let mount = "mount --bind -o ro \"$FEMTOBARN_TEST_FOLDER\" \"$FEMTOBARN_TEST_FOLDER\"";
    let Some(command) = command_in_own_mounts("read", &copy, mount) else { return };
    let said = Player::run(command).hear().unwrap();
    assert!(said.starts_with("Unsupported") && said.contains("copy the folder"), "{said}");
}

/// No process can mend the log there, so it would be refused for ever.
#[test]
fn a_read_only_medium_with_a_torn_log_can_be_read() {
    let fed = Federation::new();
    let copy = fed.folder.with_extension("copy");
    copy_folder(&fed.folder, &copy);
    syncs::set(&copy, 0, syncs::numbers(&copy)[0] + 1);
    syncs::set(&copy, 2, 1);
    let mount = "mount --bind -o ro \"$FEMTOBARN_TEST_FOLDER\" \"$FEMTOBARN_TEST_FOLDER\"";
    let Some(command) = command_in_own_mounts("pin", &copy, mount) else { return };
    assert_eq!(Player::run(command).hear().unwrap(), "pinned 1");
}

/// A reader that may not write sees the commits of other processes at once.
#[test]
fn a_folder_of_another_user_can_be_read() {
    let Federation { catalog, folder, keep: _keep, database } = Federation::new();
    drop(catalog);
    for path in [_keep.path(), &folder] {
        fs::set_permissions(path, Permissions::from_mode(0o555)).unwrap();
    }
    let mut reader = command("read", &folder);
    if nix::unistd::geteuid().is_root() {
        reader.uid(65534).gid(65534);
    }
    let mut reader = Player::run(reader);
    assert_eq!(reader.hear().unwrap(), "read-only, 1 databases");
    assert_eq!(reader.hear().unwrap(), "Denied");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let catalog = LocalCatalogue::open(&folder).unwrap();
    new_container(&catalog, database, "events").unwrap();
    reader.tell("look again");
    assert_eq!(reader.hear().unwrap(), "2 commits");
}

/// A log that a reader could not open for writing counted as durable.
#[test]
fn a_reader_that_may_not_write_refuses_what_a_loss_of_power_could_undo() {
    let Federation { catalog, folder, keep: _keep, database } = Federation::new();
    fs::set_permissions(_keep.path(), Permissions::from_mode(0o755)).unwrap();
    for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        fs::set_permissions(folder.join(file), Permissions::from_mode(0o444)).unwrap();
    }
    // As if a process had committed, its sync had failed, and it had been killed.
    let committed = syncs::numbers(&folder)[0] + 1;
    syncs::set(&folder, 0, committed);
    syncs::set(&folder, 2, 1);
    let mut reader = command("pin", &folder);
    if nix::unistd::geteuid().is_root() {
        reader.uid(65534).gid(65534);
    }
    let mut reader = Player::run(reader);
    let said = reader.hear().unwrap();
    assert!(said.starts_with("Unavailable") && said.contains("could undo them"), "{said}");
    new_container(&catalog, database, "events").unwrap();
    reader.tell("again");
    assert_eq!(reader.hear().unwrap(), "pinned 2");
    // As if another process had committed, and not synced yet: the reader syncs.
    syncs::set(&folder, 0, committed + 2);
    reader.tell("again");
    assert_eq!(reader.hear().unwrap(), "pinned 2");
}

#[test]
fn a_full_disk_refuses_the_commit_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=1m tmpfs \"$FEMTOBARN_TEST_FOLDER\"";
    let Some(command) = command_in_own_mounts("fill the disk", folder.path(), mount) else {
        return;
    };
    let mut filler = Player::run(command);
    let said = filler.hear().unwrap();
    assert!(said.starts_with("Full: no space left on the disk of "), "{said}");
    assert_eq!(filler.hear().unwrap(), "kept");
    assert_eq!(filler.hear().unwrap(), "committed after space was freed");
}

/// Role: reports the number of databases and the error of a commit; then, on request, the newest commit.
pub(crate) fn read_and_report(folder: &Path) {
    let catalog = match LocalCatalogue::open(folder) {
        Ok(catalog) => catalog,
        Err(error) => return say(format!("{:?}: {error}", error.kind())),
    };
    let databases = catalog.databases(Csn::MAX).unwrap().len();
    let mode = if catalog.is_read_only() { "read-only" } else { "writable" };
    say(format!("{mode}, {databases} databases"));
    let error = catalog.commit(femtobarn_catalog::Commit::default()).unwrap_err();
    say(format!("{:?}", error.kind()));
    if crate::child::listen() == "look again" {
        say(format!("{} commits", catalog.head().unwrap()));
    }
}

/// Role: pins the newest snapshot, again and again on request.
pub(crate) fn pin_on_request(folder: &Path) {
    let catalog = LocalCatalogue::open(folder).unwrap();
    assert!(catalog.is_read_only());
    loop {
        say(match catalog.pin_head() {
            Ok((head, _pin)) => format!("pinned {head}"),
            Err(error) => format!("{:?}: {error}", error.kind()),
        });
        if crate::child::listen() != "again" {
            return;
        }
    }
}

/// Role: commits until the disk is full, then frees some space and commits once more.
pub(crate) fn fill_the_disk(folder: &Path) {
    let ballast = folder.join("ballast");
    let catalog = LocalCatalogue::create(&folder.join("lhc.fed"), "lhc").unwrap();
    fs::write(&ballast, vec![1; 200_000]).unwrap();
    let message = "x".repeat(10_000);
    let commit = || {
        let message = message.clone();
        catalog.commit(femtobarn_catalog::Commit { message, ..Default::default() })
    };
    let mut committed = Csn::ZERO;
    let error = loop {
        match commit() {
            Ok(csn) => committed = csn,
            Err(error) => break error,
        }
    };
    say(format!("{:?}: {error}", error.kind()));
    let kept = catalog.head().unwrap() == committed && catalog.history(u64::MAX).is_ok();
    say(if kept { "kept" } else { "lost" });
    let rows = catalog.rows_since(committed, None, false).unwrap();
    assert_eq!(rows.at, committed, "a copy follows a leader whose disk is full");
    fs::remove_file(ballast).unwrap();
    commit().unwrap();
    say("committed after space was freed");
}
