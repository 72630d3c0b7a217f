//! The catalogue in PostgreSQL: the tests of other modules there, and what is particular to it.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use femtobarn_catalog::{Commit, Csn, ErrorKind, LocalCatalogue};
use uuid::Uuid;

use crate::federation::{CATALOGUE_URL, new_container, new_database, version};
use crate::postgres::{LOCKED, Postgres};

/// Modules whose tests say nothing of files of SQLite.
const MODULES: [&str; 11] = [
    "browsing::",
    "commits::",
    "contention::processes_that_write_one_container_lose_no_update",
    "crash::a_process_killed_in_a_commit_leaves_a_whole_commit_or_none",
    "forks::",
    "lookups::",
    "model::",
    "names::",
    "restoring::",
    "retention::",
    "vacuum::",
];
/// Tests of these modules that look into files of SQLite.
const OF_SQLITE: [&str; 3] = [
    "lookups::readers_do_not_wait_behind_a_commit",
    "restoring::a_log_without_its_catalogue_is_refused",
    "restoring::a_copy_shows_one_commit_while_others_commit",
];

/// All of them at once, because one server serves them all.
#[test]
fn the_catalogue_in_postgresql_keeps_what_the_one_in_sqlite_does() {
    let Some(mut server) = Postgres::start() else { return };
    let mut others = Command::new(std::env::current_exe().unwrap());
    others.args(MODULES).env(CATALOGUE_URL, server.url());
    for test in OF_SQLITE {
        others.args(["--skip", test]);
    }
    let ran = others.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    failures_say_what_to_do(&server);
    connections_that_end_are_made_again(&server);
    a_crash_of_the_server_loses_nothing_and_repeats_nothing(&mut server);
}

fn failures_say_what_to_do(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    server.psql(&format!("CREATE ROLE {LOCKED} LOGIN PASSWORD 'open sesame'"));
    let refused = |name: &str, url: &str| {
        let error = LocalCatalogue::create_in_postgres(&place(name), "lhc", url).unwrap_err();
        assert!(!error.to_string().contains("sesame"), "{error}");
        assert!(LocalCatalogue::open(&place(name)).is_err());
        (error.kind(), error.to_string())
    };
    let (kind, text) = refused("wrong", &server.url_of(&format!("{LOCKED}:sesame")));
    assert_eq!(kind, ErrorKind::Denied);
    assert!(text.contains("PGPASSWORD"), "{text}");
    let right = server.url_of(&format!("{LOCKED}:open%20sesame"));
    let (kind, text) = refused("unprivileged", &right);
    assert_eq!(kind, ErrorKind::Denied);
    assert!(text.contains("GRANT CREATE ON DATABASE"), "{text}");
    let (kind, text) = refused("unknown", &server.url().replace("/postgres?", "/nothing?"));
    assert_eq!((kind, text.contains("createdb")), (ErrorKind::Invalid, true));
    let (kind, _) = refused("gone", "postgresql://postgres@/postgres?host=/nowhere");
    assert_eq!(kind, ErrorKind::Unavailable);

    server.psql(&format!("GRANT CREATE ON DATABASE postgres TO {LOCKED}"));
    let catalog = LocalCatalogue::create_in_postgres(&place("lhc.fed"), "lhc", &right).unwrap();
    assert!(!format!("{catalog:?}").contains("sesame"));
    let schema = format!("femtobarn_{}", catalog.uuid().simple());
    let set = |version: u32| {
        server.psql(&format!(
            "UPDATE {schema}.federation SET value = '{version}' WHERE key = 'postgresql_tables'"
        ));
    };
    set(99);
    let error = LocalCatalogue::open(&place("lhc.fed")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("upgrade femtobarn"), "{error}");
    set(1);
    server.psql(&format!("ALTER ROLE {LOCKED} SET default_transaction_read_only = on"));
    let reader = LocalCatalogue::open(&place("lhc.fed")).unwrap();
    assert!(reader.is_read_only());
    assert_eq!(reader.commit(Commit::default()).unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(
        catalog.commit(Commit::default()).unwrap(),
        Csn(1),
        "its connection is an older one"
    );
    server.psql(&format!("DROP SCHEMA {schema} CASCADE"));
    assert_eq!(reader.head().unwrap_err().kind(), ErrorKind::Closed);
}

fn connections_that_end_are_made_again(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    catalog.commit(Commit::default()).unwrap();
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE application_name LIKE 'femtobarn %'";
    assert_ne!(server.psql(ended), "0");
    assert_eq!(catalog.head().unwrap(), Csn(1));
    assert_eq!(catalog.commit(Commit::default()).unwrap(), Csn(2));
}

/// Threads commit while the server crashes and starts again, twice.
fn a_crash_of_the_server_loses_nothing_and_repeats_nothing(server: &mut Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let database = new_database(&catalog, "run7", femtobarn_catalog::DatabaseState::Open).unwrap();
    let containers: Vec<_> =
        (0..4).map(|n| new_container(&catalog, database, &format!("c{n}")).unwrap()).collect();
    let is_over = AtomicBool::new(false);
    let acknowledged: Vec<Vec<(Uuid, Csn)>> = std::thread::scope(|scope| {
        let commit_to = |id| {
            let (catalog, is_over) = (&catalog, &is_over);
            move || {
                let (mut done, mut base) = (vec![], None);
                while !is_over.load(Ordering::Relaxed) {
                    let transaction = Uuid::new_v4();
                    let versions = vec![version(database, id, base, done.len() as u64 + 1)];
                    let commit = Commit { transaction, versions, ..Commit::default() };
                    let csn = catalog.commit(commit).unwrap();
                    done.push((transaction, csn));
                    base = Some(csn);
                }
                done
            }
        };
        let threads: Vec<_> = containers.iter().map(|id| scope.spawn(commit_to(*id))).collect();
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(300));
            server.crash();
            server.start_again();
        }
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut csns = vec![];
    for (done, id) in acknowledged.iter().zip(&containers) {
        let versions = catalog.versions(database, *id).unwrap();
        let found: Vec<_> = versions.iter().map(|row| (row.csn, row.entries)).collect();
        let wanted: Vec<_> = done.iter().zip(1..).map(|((_, csn), n)| (*csn, n)).collect();
        assert_eq!(found, wanted);
        for (transaction, csn) in done {
            assert_eq!(catalog.find_commit(*transaction, Csn::ZERO).unwrap(), Some(*csn));
        }
        csns.extend(done.iter().map(|(_, csn)| *csn));
    }
    csns.sort_unstable();
    let first = csns[0].0;
    assert!(csns.iter().zip(first..).all(|(csn, wanted)| csn.0 == wanted), "no gap, none twice");
    assert_eq!(catalog.head().unwrap(), *csns.last().unwrap());
}
