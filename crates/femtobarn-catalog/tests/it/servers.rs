//! Servers that join a federation in PostgreSQL, the homes of databases, and commits that are fenced off.

use std::fs;
use std::path::Path;
use std::time::Duration;

use femtobarn_catalog::{
    Commit, DatabaseId, DatabaseState, ErrorKind, Fence, JoiningServer, LocalCatalogue, Result,
    ServerStanding,
};

use crate::federation::{database, new_container, new_database, version};
use crate::postgres::Postgres;

const LEASE: Duration = Duration::from_secs(600);
const NO_LEASE: Duration = Duration::ZERO;

/// A federation with two servers, each with a folder of its own.
struct Servers {
    one: LocalCatalogue,
    two: LocalCatalogue,
    _keep: tempfile::TempDir,
}

/// Runs all tests of this module.
pub(crate) fn all(server: &Postgres) {
    tables_of_version_1_get_all_that_are_newer(server);
    a_name_that_is_alive_elsewhere_is_refused(server);
    a_server_that_joins_takes_the_databases_of_its_folder(server);
    a_commit_needs_the_newest_epochs_of_its_databases(server);
    new_databases_get_a_home(server);
    a_local_process_writes_to_the_databases_of_its_storage_alone(server);
    a_program_in_the_folder_of_a_server_that_ended_fences_its_clients_off(server);
    a_server_takes_over_from_one_with_its_storage(server);
    a_home_moves_once(server);
    a_federation_in_sqlite_has_no_servers();
}

impl Servers {
    fn new(server: &Postgres) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| keep.path().join(name));
        let one = LocalCatalogue::create_in_postgres(&one, "lhc", &server.url()).unwrap();
        fs::create_dir(&two).unwrap();
        fs::copy(one.folder().join("catalogue.toml"), two.join("catalogue.toml")).unwrap();
        let two = LocalCatalogue::open(&two).unwrap();
        Servers { one, two, _keep: keep }
    }
}

fn joining(name: &str) -> JoiningServer {
    let (name, url) = (name.to_owned(), format!("root://{name}:1094"));
    JoiningServer { storage: format!("disk of {name}"), name, url }
}

fn touch(catalog: &LocalCatalogue, name: &str) {
    fs::write(catalog.folder().join("databases").join(format!("{name}.root")), b"").unwrap();
}

fn fence(catalog: &LocalCatalogue, database: DatabaseId) -> Fence {
    let home = catalog.home(database).unwrap().unwrap();
    Fence { database, server: home.server, server_epoch: home.server_epoch, home_epoch: home.epoch }
}

fn tables_of_version_1_get_all_that_are_newer(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let schema = format!("femtobarn_{}", catalog.uuid().simple());
    drop(catalog);
    server.psql(&format!("DROP TABLE {schema}.servers, {schema}.homes"));
    server.psql(&format!("ALTER TABLE {schema}.commits DROP COLUMN touched"));
    let version = |change: &str| {
        server.psql(&format!("{change} {schema}.federation WHERE key = 'postgresql_tables'"))
    };
    server.psql(&format!(
        "UPDATE {schema}.federation SET value = '1' WHERE key = 'postgresql_tables'"
    ));
    let catalog = LocalCatalogue::open(&place).unwrap();
    assert_eq!(version("SELECT value FROM"), "4");
    assert_eq!(catalog.servers().unwrap(), []);
    assert!(catalog.commit(Commit::default()).is_ok());
    // Version 3 lacks no table, so anyone who may write raises it.
    server.psql(&format!(
        "UPDATE {schema}.federation SET value = '3' WHERE key = 'postgresql_tables'; \
         CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA {schema} TO writer; \
         GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {schema} TO writer"
    ));
    let file = place.join("catalogue.toml");
    let url = fs::read_to_string(&file).unwrap().replace(&server.url(), &server.url_of("writer"));
    fs::write(&file, url).unwrap();
    let catalog = LocalCatalogue::open(&place).unwrap();
    assert_eq!(version("SELECT value FROM"), "4");
    assert!(catalog.commit(Commit::default()).is_ok());
}

fn a_name_that_is_alive_elsewhere_is_refused(server: &Postgres) {
    let Servers { one, two, _keep } = Servers::new(server);
    let first = one.join(&joining("one"), LEASE).unwrap();
    let other = JoiningServer { url: "root://other:1094".into(), ..joining("one") };
    assert_eq!(two.join(&other, LEASE).unwrap_err().kind(), ErrorKind::Exists);
    // The same port means the same server, started again.
    assert_eq!(one.join(&joining("one"), LEASE).unwrap(), first + 1);
    let renew = |epoch, lease| one.renew(("one", epoch), lease, (77, 3));
    assert_eq!(renew(first, LEASE).unwrap_err().kind(), ErrorKind::Conflict);
    renew(first + 1, LEASE).unwrap();
    let [row] = &one.servers().unwrap()[..] else { panic!("one server") };
    assert_eq!((row.free_bytes, row.load, row.epoch, row.is_alive), (77, 3, first + 1, true));
    one.leave("one", first).unwrap();
    assert!(one.servers().unwrap()[0].is_alive, "it left in an earlier epoch");
    one.leave("one", first + 1).unwrap();
    let left = &one.servers().unwrap()[0];
    assert_eq!((left.state, left.is_alive), (ServerStanding::Left, false));
    assert!(renew(first + 1, LEASE).is_err(), "it left");
    let other = JoiningServer { storage: "another disk".into(), ..other };
    assert_eq!(two.join(&other, NO_LEASE).unwrap(), first + 3);
    assert!(!two.servers().unwrap()[0].is_alive);
    let error = two.join(&joining("two"), LEASE).unwrap_err();
    assert!(error.to_string().contains("is the storage \"another disk\""), "{error}");
}

fn a_server_that_joins_takes_the_databases_of_its_folder(server: &Postgres) {
    let Servers { one, two, _keep } = Servers::new(server);
    let ids = ["here", "there"].map(|name| new_database(&one, name, DatabaseState::Open).unwrap());
    touch(&one, "here");
    let home = |id| one.home(id).unwrap().map(|home| (home.server, home.epoch));
    one.join(&joining("one"), LEASE).unwrap();
    assert_eq!(ids.map(home), [Some(("one".to_owned(), 1)), None]);
    fs::create_dir_all(two.folder().join("databases")).unwrap();
    touch(&two, "there");
    touch(&two, "here");
    two.join(&joining("two"), LEASE).unwrap();
    assert_eq!(ids.map(home), [Some(("one".to_owned(), 1)), Some(("two".to_owned(), 1))]);
    let late =
        new_database(&LocalCatalogue::open(one.folder()).unwrap(), "late", DatabaseState::Open);
    let late = late.unwrap();
    two.claim_home(late, "two").unwrap();
    assert_eq!(home(late), Some(("one".to_owned(), 1)), "whoever made it has given it a home");
    let other = JoiningServer { storage: "another disk".into(), ..joining("one") };
    fs::remove_file(one.folder().join("locks/storage")).unwrap();
    let error = one.join(&other, LEASE).unwrap_err();
    assert!(error.to_string().contains("has databases on another storage"), "{error}");
    let count = |row: femtobarn_catalog::ServerRow| row.databases;
    assert_eq!(two.servers().unwrap().into_iter().map(count).collect::<Vec<_>>(), [2, 1]);
}

fn a_commit_needs_the_newest_epochs_of_its_databases(server: &Postgres) {
    let Servers { one, two, _keep } = Servers::new(server);
    let ids = ["here", "there"].map(|name| new_database(&one, name, DatabaseState::Open).unwrap());
    let containers = ids.map(|id| new_container(&one, id, "events").unwrap());
    touch(&one, "here");
    let epoch = one.join(&joining("one"), LEASE).unwrap();
    fs::create_dir_all(two.folder().join("databases")).unwrap();
    touch(&two, "there");
    two.join(&joining("two"), LEASE).unwrap();
    let mut base = None;
    // Commits through either server: as a small commit, which is published in a group, or as one that also reads.
    let mut write = |at: &LocalCatalogue, fences: &[Fence], is_small: bool| -> Result<()> {
        let versions = ids.iter().zip(containers).map(|(id, of)| version(*id, of, base, 1));
        let reads = if is_small { vec![] } else { vec![(ids[0], containers[0], base)] };
        let fences = fences.to_vec();
        let commit = Commit { versions: versions.collect(), fences, reads, ..Commit::default() };
        base = Some(at.commit(commit)?);
        Ok(())
    };
    let now = || ids.map(|id| fence(&one, id));
    for is_small in [true, false] {
        for at in [&one, &two] {
            write(at, &now(), is_small).unwrap();
            let error = write(at, &[], is_small).unwrap_err();
            assert!(error.to_string().contains("is written at server"), "{error}");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        }
        let before = now();
        let raised = one.fence_off(("one", epoch), &ids[..1]).unwrap();
        assert_eq!(raised, [(ids[0], before[0].home_epoch + 1)]);
        let error = write(&two, &before, is_small).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("stopped answering"), "{error}");
        write(&two, &now(), is_small).unwrap();
    }
    let before = now();
    let raised = one.fence_off(("one", epoch), &ids).unwrap();
    assert_eq!(raised, [(ids[0], before[0].home_epoch + 1)], "the other one is at another server");
    let late = one.fence_off(("one", epoch + 1), &ids);
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Conflict);
    let before = now();
    two.join(&joining("two"), LEASE).unwrap();
    let error = write(&one, &before, true).unwrap_err();
    assert!(error.to_string().contains("was started again"), "{error}");
    write(&one, &now(), true).unwrap();
}

fn new_databases_get_a_home(server: &Postgres) {
    let Servers { one, two, _keep } = Servers::new(server);
    let server_epoch = one.join(&joining("one"), LEASE).unwrap();
    let commit = |name, fence: Option<&Fence>| {
        let new = database(&two, name, DatabaseState::Open);
        let id = new.id;
        let fences = fence.into_iter().cloned().map(|it| Fence { database: id, ..it }).collect();
        let made = two.commit(Commit { new_databases: vec![new], fences, ..Commit::default() });
        made.map(|_| id)
    };
    let id = commit("everyones", None).unwrap();
    assert_eq!(two.home(id).unwrap(), None);
    let fence = Fence { database: id, server: "one".into(), server_epoch, home_epoch: 0 };
    let id = commit("its", Some(&fence)).unwrap();
    let home = two.home(id).unwrap().unwrap();
    assert_eq!(
        (home.server.as_str(), home.epoch, home.url.as_str()),
        ("one", 1, "root://one:1094")
    );
    let late = Fence { server_epoch: server_epoch - 1, ..fence.clone() };
    assert_eq!(commit("late", Some(&late)).unwrap_err().kind(), ErrorKind::Conflict);
    // The lock was freed before the commit.
    let new = database(&one, "freed", DatabaseState::Open);
    assert_eq!(one.fence_off(("one", server_epoch), &[new.id]).unwrap(), [(new.id, 1)]);
    let fences = vec![Fence { database: new.id, ..fence }];
    let commit = Commit { new_databases: vec![new], fences, ..Commit::default() };
    assert_eq!(two.commit(commit).unwrap_err().kind(), ErrorKind::Conflict);
}

fn a_local_process_writes_to_the_databases_of_its_storage_alone(server: &Postgres) {
    let Servers { one, two, _keep } = Servers::new(server);
    one.join(&joining("one"), LEASE).unwrap();
    two.join(&joining("two"), LEASE).unwrap();
    let local = LocalCatalogue::open(one.folder()).unwrap();
    let id = new_database(&local, "run7", DatabaseState::Open).unwrap();
    assert_eq!(local.home(id).unwrap().unwrap().server, "one");
    let events = new_container(&local, id, "events").unwrap();
    let write = |folder: &Path, base| {
        let versions = vec![version(id, events, base, 1)];
        LocalCatalogue::open(folder)?.commit(Commit { versions, ..Commit::default() })
    };
    let base = Some(write(one.folder(), None).unwrap());
    let error = write(two.folder(), base).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("root://one:1094"), "{error}");
    write(one.folder(), base).unwrap();
}

fn a_program_in_the_folder_of_a_server_that_ended_fences_its_clients_off(server: &Postgres) {
    let Servers { one, two, _keep } = Servers::new(server);
    one.join(&joining("one"), LEASE).unwrap();
    two.join(&joining("two"), LEASE).unwrap();
    let local = LocalCatalogue::open(one.folder()).unwrap();
    let id = new_database(&local, "run7", DatabaseState::Open).unwrap();
    let events = new_container(&local, id, "events").unwrap();
    let lock = || drop(local.locks().owner().share_database(id, NO_LEASE).unwrap());
    let write = |fence: Fence| {
        let versions = vec![version(id, events, None, 1)];
        two.commit(Commit { versions, fences: vec![fence], ..Commit::default() })
    };
    let before = fence(&two, id);
    lock();
    assert_eq!(fence(&two, id), before, "its locks in the kernel are those of its clients");
    drop(one);
    lock();
    let error = write(before).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("a program in its folder"), "{error}");
    let one = LocalCatalogue::open(local.folder()).unwrap();
    let epoch = one.join(&joining("one"), LEASE).unwrap();
    one.leave("one", epoch).unwrap();
    let before = fence(&two, id);
    lock();
    assert_eq!(fence(&two, id), before, "whoever has an earlier one is refused since it left");
}

fn a_server_takes_over_from_one_with_its_storage(server: &Postgres) {
    let Servers { one, two, _keep } = Servers::new(server);
    let on_shared = |name: &str| JoiningServer { storage: "shared".into(), ..joining(name) };
    let first = one.join(&on_shared("one"), LEASE).unwrap();
    let second = two.join(&on_shared("two"), LEASE).unwrap();
    let other = LocalCatalogue::open(one.folder()).unwrap();
    let id = new_database(&other, "run7", DatabaseState::Open).unwrap();
    let events = new_container(&other, id, "events").unwrap();
    assert_eq!(two.take_over("two", second).unwrap(), [], "it lives");
    let before = fence(&one, id);
    assert!(two.home(id).unwrap().unwrap().is_alive);
    one.renew(("one", first), NO_LEASE, (0, 0)).unwrap();
    let away = two.home(id).unwrap().unwrap();
    assert!(!away.is_alive && away.has_stand_in && !away.is_given_up());
    assert_eq!(two.take_over("two", second + 1).unwrap(), [], "an earlier process of it");
    assert_eq!(two.take_over("two", second).unwrap(), [("one".to_owned(), 1)]);
    assert_eq!(two.take_over("two", second).unwrap(), []);
    let home = two.home(id).unwrap().unwrap();
    assert_eq!((home.server.as_str(), home.epoch), ("two", before.home_epoch + 1));
    assert_eq!(one.renew(("one", first), LEASE, (0, 0)).unwrap_err().kind(), ErrorKind::Conflict);
    let write = |fence: Fence| {
        let versions = vec![version(id, events, None, 1)];
        two.commit(Commit { versions, fences: vec![fence], ..Commit::default() })
    };
    assert_eq!(write(before).unwrap_err().kind(), ErrorKind::Conflict);
    write(fence(&two, id)).unwrap();
    // A draining server takes nothing over.
    two.drain("two", true).unwrap();
    two.renew(("two", second), NO_LEASE, (0, 0)).unwrap();
    one.join(&on_shared("one"), LEASE).unwrap();
    assert_eq!(two.servers().unwrap()[1].state, ServerStanding::Draining);
    assert_eq!(one.take_over("one", first + 2).unwrap(), [("two".to_owned(), 1)]);
}

fn a_home_moves_once(server: &Postgres) {
    let Servers { one, two, _keep } = Servers::new(server);
    one.join(&joining("one"), LEASE).unwrap();
    let id = new_database(&one, "run7", DatabaseState::Open).unwrap();
    let from = fence(&one, id);
    assert!(one.set_home(&from, "two").is_err(), "there is no such server");
    two.join(&joining("two"), LEASE).unwrap();
    let elsewhere = || [&one, &two].map(|at| at.databases_elsewhere().unwrap().contains(&id));
    assert_eq!(elsewhere(), [false, true]);
    // The server was restarted meanwhile.
    let before = Fence { server_epoch: from.server_epoch - 1, ..from.clone() };
    assert_eq!(one.set_home(&before, "two").unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(one.set_home(&from, "two").unwrap(), 2);
    assert_eq!(one.set_home(&from, "two").unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(elsewhere(), [true, false]);
    one.drain("one", true).unwrap();
    let from = fence(&two, id);
    assert!(two.set_home(&from, "one").is_err(), "it drains");
    one.drain("one", false).unwrap();
    two.set_home(&from, "one").unwrap();
    let error = one.drain("onr", true).unwrap_err();
    assert!(error.to_string().contains("did you mean \"one\""), "{error}");
}

fn a_federation_in_sqlite_has_no_servers() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = LocalCatalogue::create(&folder.path().join("lhc.fed"), "lhc").unwrap();
    assert_eq!(catalog.servers().unwrap(), []);
    assert_eq!(catalog.home(DatabaseId(1)).unwrap(), None);
    let error = catalog.join(&joining("one"), LEASE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
