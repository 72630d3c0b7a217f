//! The catalogue in PostgreSQL: the tests of other modules there, and tests of its own properties.

use std::process::Command;
use std::time::Duration;

use femtobarn_catalog::{
    BlobRange, Commit, Csn, DatabaseId, DatabaseState, ErrorKind, FileWrite, JoiningServer,
    LocalCatalogue,
};
use uuid::Uuid;

use crate::federation::{CATALOGUE_URL, new_container, new_database, version};
use crate::moves;
use crate::postgres::{LOCKED, Postgres};
use crate::postgres_faults;
use crate::servers;
use crate::storm::Storm;

/// Modules whose tests do not depend on files of SQLite.
const MODULES: [&str; 15] = [
    "browsing::",
    "commits::",
    "contention::processes_that_write_one_container_lose_no_update",
    "crash::a_process_killed_in_a_commit_leaves_a_whole_commit_or_none",
    "forks::",
    "known_rows::a_refused_commit_keeps_known_rows",
    "known_rows::an_epoch_that_is_raised_elsewhere_is_seen",
    "known_rows::commits_of_other_processes_are_seen_at_once",
    "known_rows::names_changed_by_another_process_are_seen",
    "lookups::",
    "model::",
    "names::",
    "restoring::",
    "retention::",
    "vacuum::",
];
/// Tests of these modules that read files of SQLite.
const OF_SQLITE: [&str; 3] = [
    "lookups::readers_do_not_wait_behind_a_commit",
    "restoring::a_log_without_its_catalogue_is_refused",
    "restoring::a_copy_shows_one_commit_while_others_commit",
];

/// Runs all tests in one, because one server serves them all.
#[test]
fn the_catalogue_in_postgresql_behaves_like_the_one_in_sqlite() {
    let Some(mut server) = Postgres::start() else { return };
    let mut others = Command::new(std::env::current_exe().unwrap());
    others.args(MODULES).env(CATALOGUE_URL, server.url());
    for test in OF_SQLITE {
        others.args(["--skip", test]);
    }
    let ran = others.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    moves::a_catalogue_moves_while_it_is_used(&server);
    moves::new_files_are_durable_when_the_catalogue_has_moved(&server);
    moves::a_killed_mover_leaves_a_usable_catalogue(&server);
    moves::rows_that_sqlite_has_no_tables_for_stay(&server);
    failures_name_their_remedy(&server);
    postgres_faults::many_versions_are_restored(&server);
    postgres_faults::rows_rewritten_without_a_change_keep_the_mark_of_followers(&server);
    postgres_faults::a_full_disk_loses_nothing(&server);
    postgres_faults::commits_whose_answers_were_lost_are_found(&server);
    postgres_faults::a_commit_is_not_published_behind_a_look_up_that_did_not_find_it(&server);
    postgres_faults::a_slow_server_is_waited_for(&server);
    postgres_faults::many_threads_use_few_connections(&server);
    connections_that_end_are_made_again(&server);
    a_commit_on_a_connection_that_ended_while_idle_is_not_in_doubt(&server);
    statements_that_run_again_are_parsed_twice(&server);
    commits_without_their_touched_rows_are_seen(&server);
    rows_that_the_server_has_lost_are_not_kept(&server);
    a_missing_file_fails_its_own_commits_only(&server);
    changes_of_rows_that_no_process_keeps_are_not_reported(&server);
    tables_that_a_later_release_has_raised_keep_their_version(&server);
    servers::all(&server);
    a_crash_of_the_server_loses_and_repeats_no_commit(&mut server);
    postgres_faults::a_server_that_is_not_trusted_is_refused(&mut server);
}

fn failures_name_their_remedy(server: &Postgres) {
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
    set(2);
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

/// It was sent on that connection, looked for on a new one, and sent again.
fn a_commit_on_a_connection_that_ended_while_idle_is_not_in_doubt(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let database = new_database(&catalog, "run7", DatabaseState::Open).unwrap();
    let events = new_container(&catalog, database, "events").unwrap();
    let commit = |base, entries| {
        let versions = vec![version(database, events, base, entries)];
        catalog.commit(Commit { transaction: Uuid::new_v4(), versions, ..Commit::default() })
    };
    let first = commit(None, 1).unwrap();
    let sessions = "FROM pg_stat_activity WHERE application_name LIKE 'femtobarn %'";
    assert_ne!(server.psql(&format!("SELECT count(pg_terminate_backend(pid)) {sessions}")), "0");
    while server.psql(&format!("SELECT count(*) {sessions}")) != "0" {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(commit(Some(first), 2).unwrap(), Csn(first.0 + 1));
    let schema = format!("femtobarn_{}", catalog.uuid().simple());
    let lookups = format!("SELECT count(*) FROM {schema}.federation WHERE key = 'lookups'");
    assert_eq!(server.psql(&lookups), "0", "it was not looked up");
}

fn statements_that_run_again_are_parsed_twice(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    server.psql("ALTER ROLE postgres SET log_min_duration_statement = 0");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    for _ in 0..6 {
        catalog.commit(Commit::default()).unwrap();
    }
    // The row is not in memory, and is not kept.
    assert_eq!(catalog.find_container(DatabaseId(1), "events", Csn::MAX).unwrap(), None);
    server.psql("ALTER ROLE postgres RESET log_min_duration_statement");
    let schema = format!("\"femtobarn_{}\"", catalog.uuid().simple());
    let logged = server.logged();
    let count = |step: &str, statement: &str| {
        let is_it = |line: &&str| line.contains(step) && line.contains(statement);
        logged.lines().filter(is_it).count()
    };
    let insert = format!("INSERT INTO {schema}.commits");
    assert_eq!(["  parse ", "  execute "].map(|step| count(step, &insert)), [2, 6]);
    let state = format!("SELECT (SELECT value FROM {schema}.federation WHERE key = 'changes')");
    assert_eq!(count("  execute ", &state), 1, "the newest state is asked for once");
}

/// Commits of an earlier release.
fn commits_without_their_touched_rows_are_seen(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let database = new_database(&catalog, "run7", DatabaseState::Open).unwrap();
    let name = || catalog.database_by_id(database, Csn::MAX).unwrap().name;
    let schema = format!("femtobarn_{}", catalog.uuid().simple());
    for number in 8..11 {
        assert_eq!([name(), name()], [format!("run{}", number - 1), format!("run{}", number - 1)]);
        server.psql(&format!(
            "BEGIN; UPDATE {schema}.database_names SET name = 'run{number}'; \
             INSERT INTO {schema}.commits (csn, transaction_uuid, time_us, message, user_name, host, pid) \
             SELECT max(csn) + 1, decode(md5(max(csn)::text), 'hex'), max(time_us), '', '', '', 1 \
             FROM {schema}.commits; COMMIT"
        ));
    }
    assert_eq!((name(), catalog.head().unwrap()), ("run10".to_owned(), Csn(4)));
}

/// As if a standby without the last commit was promoted, on which either no process has committed since, or another one
/// has.
fn rows_that_the_server_has_lost_are_not_kept(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let database = new_database(&catalog, "run7", DatabaseState::Open).unwrap();
    let name = || catalog.database_by_id(database, Csn::MAX).unwrap().name;
    let schema = format!("femtobarn_{}", catalog.uuid().simple());
    let other = format!(
        "INSERT INTO {schema}.commits (csn, transaction_uuid, time_us, message, user_name, host, pid, touched) \
         SELECT 2, decode(md5('other'), 'hex'), time_us, '', '', '', 1, 0 FROM {schema}.commits"
    );
    for (number, others, head) in [(8, "", Csn(1)), (9, &*other, Csn(2))] {
        assert_eq!(catalog.commit(Commit::default()).unwrap(), Csn(2));
        assert_eq!([name(), name()], [format!("run{}", number - 1), format!("run{}", number - 1)]);
        server.psql(&format!(
            "BEGIN; DELETE FROM {schema}.commits WHERE csn = 2; \
             UPDATE {schema}.database_names SET name = 'run{number}'; {others}; COMMIT"
        ));
        for _ in 0..2 {
            assert_eq!((name(), catalog.head().unwrap()), (format!("run{number}"), head));
        }
    }
}

/// Commits of a group with bytes for files, which are durable there before the group is published.
fn a_missing_file_fails_its_own_commits_only(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let file = |name: &str| place.join(format!("databases/{name}.root"));
    let databases = ["one", "two"].map(|name| {
        std::fs::write(file(name), [0; 64]).unwrap();
        new_database(&catalog, name, DatabaseState::Open).unwrap()
    });
    let commits =
        [(0, 1, 16), (1, 2, 16), (0, 3, 24), (1, 4, 24)].map(|(number, entries, offset)| {
            let database = databases[number];
            let events = new_container(&catalog, database, &format!("events{entries}")).unwrap();
            let versions = vec![version(database, events, None, entries)];
            let writes = vec![FileWrite { database, offset, bytes: vec![7; 8] }];
            Commit { transaction: Uuid::new_v4(), versions, writes, ..Commit::default() }
        });
    std::fs::remove_file(file("one")).unwrap();
    let head = catalog.head().unwrap();
    let published = catalog.commit_all(commits.to_vec());
    let failed = |number: usize| published[number].as_ref().unwrap_err().kind();
    assert_eq!([failed(0), failed(2)], [ErrorKind::Io; 2]);
    let made = |number: usize| *published[number].as_ref().unwrap();
    assert_eq!([made(1), made(3), catalog.head().unwrap()], [1, 2, 2].map(|n| Csn(head.0 + n)));
    let bytes = std::fs::read(file("two")).unwrap();
    assert_eq!(bytes, [[0; 16], [7; 16], [0; 16], [0; 16]].concat());
}

/// Otherwise all processes would drop the rows that they have in memory.
fn changes_of_rows_that_no_process_keeps_are_not_reported(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let database = new_database(&catalog, "run7", DatabaseState::Open).unwrap();
    let own = JoiningServer {
        name: "one".to_owned(),
        url: "root://one:1094//lhc.fed".to_owned(),
        storage: "disk".to_owned(),
    };
    let lease = Duration::from_secs(10);
    let epoch = catalog.join(&own, lease).unwrap();
    let of = format!(
        "SELECT value FROM femtobarn_{}.federation WHERE key = 'changes'",
        catalog.uuid().simple()
    );
    let before = server.psql(&of);
    assert!(!before.is_empty(), "a server that joined");
    catalog.renew(("one", epoch), lease, (1, 1)).unwrap();
    let range = BlobRange { offset: 4096, size: 4096 };
    catalog.give_free_extent(database, range).unwrap();
    assert_eq!(catalog.take_free_extent(database, 4096).unwrap(), Some(range));
    catalog.reserve_containers(2).unwrap();
    assert_eq!(catalog.find_commit(Uuid::new_v4(), Csn::ZERO).unwrap(), None);
    assert_eq!(server.psql(&of), before);
    catalog.raise_epoch(database).unwrap();
    assert_ne!(server.psql(&of), before);
}

/// A later release raises them while this one waits to do so.
fn tables_that_a_later_release_has_raised_keep_their_version(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let federation = format!("femtobarn_{}.federation", catalog.uuid().simple());
    let raise = |version: u32| {
        format!("UPDATE {federation} SET value = '{version}' WHERE key = 'postgresql_tables'")
    };
    server.psql(&raise(2));
    let later = format!(
        "DO $$ BEGIN {}; FOR n IN 1..1000 LOOP PERFORM pg_sleep(0.01); \
         EXIT WHEN EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted); END LOOP; END $$",
        raise(99)
    );
    std::thread::scope(|scope| {
        scope.spawn(|| server.psql(&later));
        let began = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while server.psql(began) == "0" {}
        let refused = LocalCatalogue::open(&place).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    });
    let version = format!("SELECT value FROM {federation} WHERE key = 'postgresql_tables'");
    assert_eq!(server.psql(&version), "99");
}

/// Threads commit while the server crashes and starts again, twice.
fn a_crash_of_the_server_loses_and_repeats_no_commit(server: &mut Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let mut storm = Storm::new(&catalog, "run7", 4);
    storm.during(&catalog, || {
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(300));
            server.crash();
            server.start_again();
        }
        std::thread::sleep(Duration::from_millis(300));
    });
    storm.check(&catalog);
    assert_eq!(catalog.head().unwrap(), storm.last(), "no gap");
}
