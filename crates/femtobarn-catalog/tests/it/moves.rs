//! The catalogue moves between SQLite and PostgreSQL while it is in use, and when its mover is killed.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use femtobarn_catalog::{Commit, Csn, DatabaseState, ErrorKind, FileWrite, LocalCatalogue};

use crate::child::{Player, say};
use crate::crash::commit_in_pairs_to;
use crate::federation::{database, new_container, new_database};
use crate::postgres::Postgres;
use crate::storm::Storm;

/// The file that a test leaves for the process that moves its catalogue: the URL.
const URL_FILE: &str = "test.url";

pub(crate) fn a_catalogue_moves_while_it_is_used(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create(&place, "lhc").unwrap();
    let pairs = new_database(&catalog, "run8", femtobarn_catalog::DatabaseState::Open).unwrap();
    for name in ["left", "right"] {
        new_container(&catalog, pairs, name).unwrap();
    }
    let mut storm = Storm::new(&catalog, "run7", 3);
    storm.during(&catalog, || thread::sleep(Duration::from_millis(100)));
    let tag = catalog.create_tag("first", Csn(3), "kept").unwrap();
    let mover = LocalCatalogue::open(&place).unwrap();
    for url in [Some(server.url()), None, Some(server.url())] {
        let mut writer = Player::start("commit to pairs for ever", &place);
        let mut acknowledged: Csn = Csn(writer.hear().unwrap().parse().unwrap());
        let moved = storm.during(&catalog, || {
            let moved = mover.move_to(url.as_deref(), &mut |_, _, _| true).unwrap();
            assert!(moved.rows > moved.csn.0);
            for _ in 0..5 {
                acknowledged = Csn(writer.hear().unwrap().parse().unwrap());
            }
            moved
        });
        assert_eq!(catalog.is_in_postgres(), url.is_some());
        writer.kill();
        while let Some(csn) = writer.hear() {
            acknowledged = Csn(csn.parse().unwrap());
        }
        assert!(catalog.head().unwrap() >= acknowledged.max(moved.csn));
        storm.check(&catalog);
        assert_eq!(catalog.tags().unwrap(), std::slice::from_ref(&tag));
        let again = mover.move_to(url.as_deref(), &mut |_, _, _| true).unwrap();
        assert_eq!((again.rows, again.from), (0, moved.to));
        let settings = LocalCatalogue::open(&place).unwrap().settings().unwrap();
        assert!(!settings.contains_key("move") && !settings.contains_key("successor"));
    }
    // The former catalogue is not usable any more.
    let old = folder.path().join("old.fed");
    fs::create_dir(&old).unwrap();
    // If two processes close it at once, neither empties the log.
    for name in ["catalogue.sqlite", "catalogue.sqlite-wal"].map(Path::new) {
        if place.join(name).exists() {
            fs::copy(place.join(name), old.join(name)).unwrap();
        }
    }
    let error = LocalCatalogue::open(&old).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("catalogue.toml"), "{error}");
}

pub(crate) fn a_killed_mover_leaves_a_usable_catalogue(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create(&place, "lhc").unwrap();
    fs::write(place.join(URL_FILE), server.url()).unwrap();
    let mut storm = Storm::new(&catalog, "run7", 2);
    for round in 0..8 {
        let mut mover = Player::start("move the catalogue to and fro", &place);
        mover.hear().unwrap();
        storm.during(&catalog, || {
            if round % 2 == 1 {
                mover.hear().unwrap();
            }
            thread::sleep(Duration::from_millis(20 + round * 30));
            mover.kill();
            thread::sleep(Duration::from_millis(20));
        });
        storm.check(&catalog);
    }
    catalog.move_to(None, &mut |_, _, _| true).unwrap();
    storm.check(&catalog);
    assert!(!catalog.is_in_postgres());
    let error = catalog.move_to(Some(&server.url()), &mut |_, _, _| false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    storm.during(&catalog, || thread::sleep(Duration::from_millis(20)));
    storm.check(&LocalCatalogue::open(&place).unwrap());
}

/// A file whose first bytes are durable only in the catalogue is made before the catalogue moves. A commit with such
/// bytes after the move leaves them in the file.
pub(crate) fn new_files_are_durable_when_the_catalogue_has_moved(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create(&place, "lhc").unwrap();
    let creation = |name: &str| {
        let new = database(&catalog, name, DatabaseState::Open);
        let writes = vec![FileWrite { database: new.id, offset: 0, bytes: name.into() }];
        Commit { new_databases: vec![new], writes, ..Commit::default() }
    };
    let file = |name: &str| place.join("databases").join(format!("{name}.root"));
    let late = creation("late");
    catalog.commit(creation("early")).unwrap();
    assert!(!file("early").exists(), "a crash would take it");
    catalog.move_to(Some(&server.url()), &mut |_, _, _| true).unwrap();
    assert_eq!(fs::read(file("early")).unwrap(), b"early");
    fs::write(file("late"), b"").unwrap();
    catalog.commit(late).unwrap();
    assert_eq!(fs::read(file("late")).unwrap(), b"late");
    catalog.move_to(None, &mut |_, _, _| true).unwrap();
    assert_eq!(catalog.databases(Csn::MAX).unwrap().len(), 2);
}

/// Role: commits to two containers, and reports each commit.
pub(crate) fn commit_to_pairs(folder: &Path) {
    commit_in_pairs_to("run8", folder);
}

/// Role: moves the catalogue for ever, and reports the new place after each move.
pub(crate) fn move_to_and_fro(folder: &Path) {
    let url = fs::read_to_string(folder.join(URL_FILE)).unwrap();
    let catalog = LocalCatalogue::open(folder).unwrap();
    say("begins");
    loop {
        let to = if catalog.is_in_postgres() { None } else { Some(&*url) };
        say(catalog.move_to(to, &mut |_, _, _| true).unwrap().to);
    }
}

/// A catalogue with rows that a move would lose is not moved.
pub(crate) fn rows_that_sqlite_has_no_tables_for_stay(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let schema = format!("femtobarn_{}", catalog.uuid().simple());
    server.psql(&format!(
        "CREATE TABLE {schema}.later (id bigint); INSERT INTO {schema}.later VALUES (1)"
    ));
    let error = catalog.move_to(None, &mut |_, _, _| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("table later"), "{error}");
    server.psql(&format!("DELETE FROM {schema}.later"));
    assert_eq!(catalog.move_to(None, &mut |_, _, _| true).unwrap().to, "catalogue.sqlite");
    // The mover died before the old catalogue recorded that it had been left.
    server.psql(&format!("UPDATE {schema}.federation SET value = 'leaving' WHERE key = 'move'"));
    catalog.move_to(Some(&server.url()), &mut |_, _, _| true).unwrap();
    catalog.move_to(None, &mut |_, _, _| true).unwrap();
    // The mover died before the old catalogue recorded that it was about to be left.
    let arrived = format!("UPDATE {schema}.federation SET value = 'arrived' WHERE key = 'move'");
    server.psql(&arrived);
    catalog.move_to(Some(&server.url()), &mut |_, _, _| true).unwrap();
    catalog.commit(Commit::default()).unwrap();
    catalog.move_to(None, &mut |_, _, _| true).unwrap();
    // The same for a copy of the folder, which has made another commit since.
    server.psql(&arrived);
    server.psql(&format!("UPDATE {schema}.commits SET transaction_uuid = '7'"));
    let error = catalog.move_to(Some(&server.url()), &mut |_, _, _| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    // A copy of the folder that still uses the tables.
    server.psql(&format!("DELETE FROM {schema}.federation WHERE key IN ('move', 'successor')"));
    let error = catalog.move_to(Some(&server.url()), &mut |_, _, _| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert_eq!(catalog.head().unwrap(), Csn(1));
}
