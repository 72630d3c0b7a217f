//! Full disks, damaged and missing files: an error of the right kind, and no change.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use femtobarn::{ContainerOptions, ErrorKind, Federation, Profile, Result, TransactionOptions};
use rntuple::Value;
use tempfile::TempDir;

use crate::conflicts::numbers_at_once;
use crate::links::linker;
use crate::processes::{Process, Random, amount, job};
use crate::support::{begin, event_class, events, federation, numbers, reopened, with_ten_events};

// ---- a full disk

/// Size of the small disk, in KiB.
const DISK_KIB: u64 = 24 << 10;

/// Commits until the disk is full, then frees space and continues. Its folder is on a disk of
/// [`DISK_KIB`], or its files cannot get larger.
#[test]
fn job_fill_disk() {
    let Some((folder, arguments)) = job() else { return };
    let kind = [ErrorKind::Full, ErrorKind::Io][arguments[0] as usize];
    let ballast = folder.join("ballast");
    let federation = Federation::create(&folder.join("test.fed"), "test").unwrap();
    with_ten_events(&federation);
    let mut committed = 10;
    // Each round leaves a little more space, so that the disk is full at another step.
    for round in 0..60 {
        fill(&ballast, (round * 12) << 10);
        let before = federation.head().unwrap();
        match append(&federation, committed, 4000) {
            Ok(()) => committed += 4000,
            Err(error) => {
                assert_eq!(error.kind(), kind, "round {round}: {error}");
                assert_eq!(federation.head().unwrap(), before, "round {round}");
            }
        }
        let created = create_database(&federation, &format!("other{round}"));
        if let Err(error) = &created {
            assert_eq!(error.kind(), kind, "round {round}: {error}");
        }
        fs::remove_file(&ballast).unwrap();
        // With free space, all committed data can be read, by this process and by others.
        for federation in [&federation, &Federation::open(&folder.join("test.fed")).unwrap()] {
            let all: Vec<u64> = (0..committed).collect();
            assert!(numbers_at_once(federation) == all, "round {round}");
            let snapshot = federation.snapshot(None).unwrap();
            let other = snapshot.view(&format!("other{round}/events"));
            assert_eq!(other.is_ok(), created.is_ok(), "round {round}");
        }
        append(&federation, committed, 1).unwrap();
        committed += 1;
    }
    assert!(committed > 8000, "some rounds had enough space");
    check_reserve(&federation, kind);
    check_seal(&federation, &ballast);
}

/// A reservation of more space than the disk has fails at once, and the transaction can continue without it.
fn check_reserve(federation: &Federation, kind: ErrorKind) {
    let count = numbers_at_once(federation).len() as u64;
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    let error = transaction.reserve(database, 10 * (DISK_KIB << 10)).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    transaction.extend(key, events(7, count, 5)).unwrap();
    transaction.commit().unwrap();
    assert_eq!(numbers_at_once(federation).len() as u64, count + 5);
}

/// A database that could not be sealed stays open, and can be sealed once there is space.
fn check_seal(federation: &Federation, ballast: &Path) {
    fill(ballast, 0);
    if federation.seal("run7", Duration::ZERO).is_err() {
        fs::remove_file(ballast).unwrap();
        let count = numbers_at_once(federation).len() as u64;
        append(federation, count, 5).unwrap();
        federation.seal("run7", Duration::ZERO).unwrap();
        assert_eq!(numbers_at_once(federation).len() as u64, count + 5);
    }
}

/// Fills the disk up to `rest` bytes.
fn fill(ballast: &Path, rest: u64) {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(ballast).unwrap();
    let block = [7; 4096];
    let mut size = 0;
    while file.write_all_at(&block, size).is_ok() {
        size += block.len() as u64;
    }
    file.set_len((size + 4095).saturating_sub(rest) / 4096 * 4096).unwrap();
}

fn append(federation: &Federation, first: u64, count: u64) -> Result<()> {
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let database = transaction.database("run7")?;
    let key = transaction.container(database, "events")?;
    transaction.extend(key, events(7, first, count))?;
    transaction.commit().map(drop)
}

fn create_database(federation: &Federation, name: &str) -> Result<()> {
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let database = transaction.create_database(name)?;
    let class = event_class();
    let key = transaction.create_container(database, "events", &class, Default::default())?;
    transaction.extend(key, events(1, 0, 10))?;
    transaction.commit().map(drop)
}

/// On a small disk of its own, where the system allows to mount one; otherwise with files that
/// cannot grow beyond a limit, which the system reports in another way.
#[test]
fn a_full_disk_is_an_error_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mount =
        format!("mount -t tmpfs -o size={DISK_KIB}k femtobarn '{}'", folder.path().display());
    let run = format!("{mount} && exec \"$0\" \"$@\"");
    let is_allowed = Command::new("unshare").args(["-rm", "sh", "-c", &mount]).output();
    let is_allowed = is_allowed.is_ok_and(|output| output.status.success());
    let (prefix, kind) = if is_allowed {
        (vec!["unshare", "-rm", "sh", "-c", &run], "0")
    } else {
        (vec!["sh", "-c", LIMITED], "1")
    };
    Process::start_in(&prefix, "faults::job_fill_disk", folder.path(), kind).finish();
}

/// A file that would get larger than 512 KiB is refused, without a signal that ends the process.
const LIMITED: &str = "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\"";

#[test]
fn a_file_size_limit_is_an_error_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    Process::start_in(&["sh", "-c", LIMITED], "faults::job_outgrow", folder.path(), "").finish();
}

#[test]
fn job_outgrow() {
    let Some((folder, _)) = job() else { return };
    let federation = Federation::create(&folder.join("test.fed"), "test").unwrap();
    with_ten_events(&federation);
    let mut committed = 10;
    let error = loop {
        // Too many bytes for the log of the catalogue.
        match append(&federation, committed, 5000) {
            Ok(()) => committed += 5000,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("run7"), "{error}");
    assert!(numbers_at_once(&federation) == (0..committed).collect::<Vec<_>>());
    // Other databases are not affected.
    create_database(&federation, "other").unwrap();
    let reopened = Federation::open(&folder.join("test.fed")).unwrap();
    assert!(numbers_at_once(&reopened) == (0..committed).collect::<Vec<_>>());
}

// ---- damaged files

/// A small database with every kind of data, and the expected values of its containers.
fn small_database() -> (TempDir, PathBuf, Vec<(String, Vec<Value>)>) {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    let options = ContainerOptions { compression: Profile::Archive, ..Default::default() };
    let class = event_class();
    let key = transaction.create_container(database, "packed", &class, options).unwrap();
    transaction.extend(key, events(7, 0, 200)).unwrap();
    let key =
        transaction.create_container(database, "links", &linker(), Default::default()).unwrap();
    let names = ["one", "many", "element", "maybe", "best"].map(str::to_owned);
    let nothing = || [Value::Null, Value::List(vec![]), Value::Null, Value::Null, Value::Null];
    for _ in 0..3 {
        let object = names.iter().cloned().zip(nothing()).collect();
        transaction.append_value(key, Value::Record(object)).unwrap();
    }
    transaction.commit().unwrap();
    append(&federation, 10, 10).unwrap();
    let truth = ["events", "packed", "links"].map(|name| {
        let read = read_all(&federation, &format!("run7/{name}"));
        (name.to_owned(), read.into_iter().map(Result::unwrap).collect())
    });
    drop(federation);
    let path = folder.path().join("test.fed/databases/run7.root");
    (folder, path, truth.to_vec())
}

/// Reads each object on its own; returns one error if the container cannot be opened.
fn read_all(federation: &Federation, path: &str) -> Vec<Result<Value>> {
    match federation.snapshot(None).and_then(|snapshot| snapshot.view(path)) {
        Ok(view) => (0..view.entries()).map(|entry| view.value(entry)).collect(),
        Err(error) => vec![Err(error)],
    }
}

/// Fails unless every object that can be read is correct, and every error is of the kind `Corrupt`.
/// Returns the number of objects that could be read.
fn check_against(
    federation: &Federation,
    truth: &[(String, Vec<Value>)],
    what: &dyn Fn() -> String,
) -> usize {
    let mut read = 0;
    for (name, truth) in truth {
        for (entry, value) in read_all(federation, &format!("run7/{name}")).into_iter().enumerate()
        {
            match value {
                Ok(value) => {
                    assert_eq!(value, truth[entry], "{}: {name} {entry}", what());
                    read += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{}: {error}", what());
                    assert!(error.to_string().contains("run7"), "{}: {error}", what());
                }
            }
        }
    }
    read
}

/// Offsets of the bytes to damage: all of them, or a random part.
fn offsets(size: u64, seed: u64) -> Vec<u64> {
    let mut random = Random(seed);
    let count = amount(400, size).min(size);
    if count == size {
        (0..size).collect()
    } else {
        (0..count).map(|_| random.below(size)).collect()
    }
}

#[test]
fn a_garbled_byte_gives_correct_data_or_corrupt() {
    let (folder, path, truth) = small_database();
    let whole = fs::read(&path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut random = Random(5);
    let objects: usize = truth.iter().map(|(_, objects)| objects.len()).sum();
    let mut damaged = 0;
    for offset in offsets(whole.len() as u64, 5) {
        let byte = whole[offset as usize];
        file.write_all_at(&[byte ^ (1 + random.below(255) as u8)], offset).unwrap();
        let federation = reopened(&folder);
        let read = check_against(&federation, &truth, &|| format!("byte {offset}"));
        damaged += usize::from(read < objects);
        // A writer either continues or reports the damage; its commits are not checked here.
        let mut transaction = begin(&federation);
        let database = transaction.database("run7").unwrap();
        for (name, _) in &truth {
            if let Err(error) = transaction.container(database, name) {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {offset}: {error}");
            }
        }
        drop((transaction, federation));
        fs::write(&path, &whole).unwrap();
    }
    assert!(damaged > 10, "{damaged} of the bytes mattered");
    let read = check_against(&reopened(&folder), &truth, &String::new);
    assert_eq!(read, objects);
}

#[test]
fn a_truncated_database_gives_correct_data_or_corrupt() {
    let (folder, path, truth) = small_database();
    let whole = fs::read(&path).unwrap();
    let mut counts = vec![];
    for length in offsets(whole.len() as u64, 6).into_iter().take(amount(100, 10_000) as usize) {
        fs::write(&path, &whole[..length as usize]).unwrap();
        counts.push(check_against(&reopened(&folder), &truth, &|| format!("length {length}")));
    }
    assert!(counts.iter().any(|&count| count > 0), "some of what is left can be read");
    fs::write(&path, &whole).unwrap();
    check_against(&reopened(&folder), &truth, &String::new);
}

/// Attaching reads names and offsets that have no checksum; the objects read are correct nevertheless.
/// A container whose name was garbled was once given the number of another one. A file whose
/// description can no longer be found is like any foreign file: its objects have classes of their
/// own.
#[test]
fn a_garbled_file_is_attached_with_correct_data_or_refused() {
    let (folder, path, truth) = small_database();
    reopened(&folder).seal("run7", Duration::ZERO).unwrap();
    let whole = fs::read(&path).unwrap();
    let copy = folder.path().join("run7.root");
    let mut random = Random(7);
    let mut attached = 0;
    for offset in offsets(whole.len() as u64, 7) {
        let mut garbled = whole.clone();
        garbled[offset as usize] ^= 1 + random.below(255) as u8;
        fs::write(&copy, garbled).unwrap();
        let other = TempDir::new().unwrap();
        let federation = Federation::create(&other.path().join("o.fed"), "other").unwrap();
        match federation.attach(&copy, None) {
            Err(error) => {
                let kinds = [ErrorKind::Corrupt, ErrorKind::Invalid, ErrorKind::Unsupported];
                assert!(
                    kinds.contains(&error.kind()),
                    "byte {offset}: {:?}: {error}",
                    error.kind()
                );
                assert!(federation.snapshot(None).unwrap().databases().unwrap().is_empty());
            }
            Ok(found) => {
                let snapshot = federation.snapshot(None).unwrap();
                let first = snapshot.view(&format!("run7/{}", found.containers[0])).unwrap();
                if first.class().name == found.containers[0] {
                    continue;
                }
                assert_eq!(found.containers.len(), truth.len(), "byte {offset}");
                check_against(&federation, &truth, &|| format!("byte {offset}"));
                attached += 1;
            }
        }
    }
    assert!(attached > 10, "{attached} files were attached");
}

#[test]
fn a_missing_database_file_affects_only_its_objects() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    create_database(&federation, "other").unwrap();
    drop(federation);
    let path = folder.path().join("test.fed/databases/run7.root");
    let away = folder.path().join("away.root");
    fs::rename(&path, &away).unwrap();
    let federation = reopened(&folder);
    let error = federation.snapshot(None).unwrap().view("run7/events").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("run7.root"), "{error}");
    let error = append(&federation, 10, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!path.exists(), "nothing was created in its place");
    assert_eq!(numbers(&federation, "other/events").len(), 10);
    fs::rename(&away, &path).unwrap();
    assert_eq!(numbers(&federation, "run7/events").len(), 10);
    append(&federation, 10, 1).unwrap();
}

// ---- the catalogue

#[test]
fn opening_a_folder_without_a_catalogue_fails() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    let path = folder.path().join("test.fed");
    let catalogue = path.join("catalogue.sqlite");
    let whole = fs::read(&catalogue).unwrap();
    fs::remove_file(&catalogue).unwrap();
    let error = Federation::open(&path).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("catalogue.sqlite"), "{error}");
    // Nor is the folder taken for an empty one: there are databases in it.
    let error = Federation::create(&path, "test").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    fs::write(&catalogue, b"no catalogue at all, but long enough to be taken for one").unwrap();
    assert_eq!(Federation::open(&path).err().unwrap().kind(), ErrorKind::Corrupt);
    fs::write(&catalogue, whole).unwrap();
    assert_eq!(numbers(&Federation::open(&path).unwrap(), "run7/events").len(), 10);
}

#[test]
fn a_federation_of_a_newer_format_is_not_changed() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    let path = folder.path().join("test.fed");
    let sql = rusqlite::Connection::open(path.join("catalogue.sqlite")).unwrap();
    let set = |version: u32| {
        let update = "UPDATE federation SET value = ?1 WHERE key = 'format'";
        assert_eq!(sql.execute(update, [version.to_string()]).unwrap(), 1);
    };
    let version: String = sql
        .query_row("SELECT value FROM federation WHERE key = 'format'", [], |row| row.get(0))
        .unwrap();
    let version: u32 = version.parse().unwrap();
    // A small database has its first bytes in slots of the catalogue, which only the newest format has.
    set(version + 1);
    let error = Federation::open(&path).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for number in [version, version + 1] {
        assert!(error.to_string().contains(&number.to_string()), "{error}");
    }
    set(version);
    assert_eq!(numbers(&Federation::open(&path).unwrap(), "run7/events").len(), 10);
}

#[test]
fn creating_a_federation_over_another_fails() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let path = folder.path().join("test.fed");
    assert_eq!(Federation::create(&path, "again").err().unwrap().kind(), ErrorKind::Exists);
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    assert!(Federation::create(&file, "again").is_err());
    assert_eq!(Federation::open(&file).err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(numbers(&federation, "run7/events").len(), 10);
}
