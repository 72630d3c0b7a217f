//! Several servers of one federation whose catalogue is in PostgreSQL.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use femtobarn::{Federation, OpenOptions};
use femtobarn_catalog::{
    Catalogue, Commit, Csn, DatabaseId, DatabaseState, ErrorKind, Fence, Holder, JoiningServer,
    LocalCatalogue, LockKind, LockTarget, NewDatabase,
};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use femtobarn_server::Server;
use femtobarn_server::config::{Allowed, Config, SiteConfig};
use femtobarn_server::logical;
use femtobarn_server::logical::catalogue::{
    FederationService, SessionClaims, SessionOperation, Welcome,
};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use uuid::Uuid;
use xrd::flags::OpenOptions as OpenFlags;
use xrd::response::Response;

use super::postgres::Postgres;
use super::site_faults::{
    a_commit_that_another_server_refuses_is_in_doubt,
    a_database_stays_locked_while_it_is_handed_over,
    a_database_that_moves_while_it_is_checked_is_not_damaged, a_move_that_fails_leaves_no_copy,
    a_server_that_has_left_does_not_join_again, homes_of_dropped_databases_are_forgotten, lock,
    service_at_one,
};
use super::{LONG, connect, engine, until};
use crate::metrics::get;
use crate::xroot::{Peer, open};

/// A federation with several servers, each with its own folder.
pub(super) struct Sites {
    folder: TempDir,
    pub(super) catalog: LocalCatalogue,
}

/// A server of the federation.
pub(super) struct Site {
    folder: PathBuf,
    server: Server,
}

/// Runs all tests in one, because one PostgreSQL serves them all.
#[test]
fn several_servers_serve_one_federation() {
    let Some(postgres) = Postgres::start() else { return };
    a_database_goes_only_to_a_server_that_has_its_whole_file(&postgres);
    moving_and_draining_take_a_right_of_their_own(&postgres);
    a_home_that_is_away_for_good_is_not_waited_for(&postgres);
    a_database_without_a_home_gets_the_server_with_its_file(&postgres);
    a_session_is_not_opened_while_its_lost_locks_cannot_be_freed(&postgres);
    a_session_that_has_ended_is_opened_when_its_locks_are_free(&postgres);
    a_server_that_cannot_start_gives_its_name_back(&postgres);
    a_federation_whose_catalogue_is_slow_delays_no_lease_in_another(&postgres);
    clients_are_sent_to_the_home_with_its_scheme(&postgres);
    a_client_continues_at_a_server_that_joined_just_before(&postgres);
    a_database_stays_locked_while_it_is_handed_over(&postgres);
    a_server_that_has_left_does_not_join_again(&postgres);
    a_commit_that_another_server_refuses_is_in_doubt(&postgres);
    homes_of_dropped_databases_are_forgotten(&postgres);
    a_move_that_fails_leaves_no_copy(&postgres);
    a_database_that_moves_while_it_is_checked_is_not_damaged(&postgres);
}

impl Sites {
    pub(super) fn new(postgres: &Postgres) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("one/lhc.fed");
        let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &postgres.url()).unwrap();
        Sites { folder, catalog }
    }

    /// The folder of a server.
    pub(super) fn place(&self, name: &str) -> PathBuf {
        let place = self.folder.path().join(name).join("lhc.fed");
        fs::create_dir_all(place.join("databases")).unwrap();
        let address = "catalogue.toml";
        if !place.join(address).exists() {
            fs::copy(self.catalog.folder().join(address), place.join(address)).unwrap();
        }
        place
    }

    fn config(&self, name: &str) -> Config {
        let site = SiteConfig { name: name.to_owned(), ..SiteConfig::default() };
        let mut config = Config { site, ..engine::config(&self.place(name), 0) };
        config.limits.drain_seconds = 0;
        config
    }

    pub(super) fn start(&self, name: &str) -> Site {
        self.start_with(name, self.config(name))
    }

    fn start_with(&self, name: &str, config: Config) -> Site {
        Site { folder: self.place(name), server: Server::start(config).unwrap() }
    }

    /// Makes a database with a container at the only server.
    pub(super) fn database(&self, at: &Site, name: &str) -> DatabaseId {
        let options = OpenOptions { threads: 1, ..OpenOptions::default() };
        let federation = Federation::open_url(&at.url(), options).unwrap();
        engine::create(&federation, name, ["events".to_owned()].into_iter());
        self.catalog.database(name, Csn::MAX).unwrap().id
    }

    /// Makes a server that only the catalogue knows, with this URL, the home of a database of another one.
    pub(super) fn give_away(&self, database: DatabaseId, from: &str, url: String) {
        let other = LocalCatalogue::open(&self.place("other")).unwrap();
        let (name, storage) = ("other".to_owned(), "other".to_owned());
        other.join(&JoiningServer { name, storage, url }, LONG).unwrap();
        let home = self.catalog.home(database).unwrap().unwrap();
        assert_eq!(home.server, from);
        let (server, server_epoch, home_epoch) = (home.server, home.server_epoch, home.epoch);
        let from = Fence { database, server, server_epoch, home_epoch };
        self.catalog.set_home(&from, "other").unwrap();
    }

    /// The schema of the catalogue.
    pub(super) fn schema(&self) -> String {
        format!("femtobarn_{}", self.catalog.uuid().simple())
    }

    fn home(&self, database: DatabaseId) -> String {
        self.catalog.home(database).unwrap().unwrap().server
    }
}

impl Site {
    pub(super) fn port(&self) -> u16 {
        self.server.address().port()
    }

    pub(super) fn url(&self) -> String {
        format!("root://{}//lhc.fed", self.server.address())
    }

    fn remote(&self) -> RemoteCatalogue {
        connect(&self.url()).unwrap()
    }

    fn file(&self, database: &str) -> PathBuf {
        self.folder.join(format!("databases/{database}.root"))
    }
}

fn a_database_goes_only_to_a_server_that_has_its_whole_file(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let one = sites.start("one");
    let id = sites.database(&one, "run7");
    let two = sites.start("two");
    let client = one.remote();
    let shared = client.locks().owner();
    let guard = shared.share_database(id, LONG).unwrap();
    assert_eq!(client.hand_over(id, "two").unwrap_err().kind(), ErrorKind::Invalid);
    drop(guard);
    let owner = client.locks().owner();
    let _guard = owner.lock_database_exclusive(id, LONG).unwrap();
    let whole = fs::read(one.file("run7")).unwrap();
    let mut other = whole.clone();
    other[whole.len().min(1000) - 1] ^= 1;
    let copies: [Option<&[u8]>; 3] = [None, Some(&whole[..whole.len() - 1]), Some(&other)];
    for copy in copies {
        copy.into_iter().for_each(|copy| fs::write(two.file("run7"), copy).unwrap());
        let error = client.hand_over(id, "two").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("does not move to server \"two\""), "{error}");
        assert!(one.file("run7").exists());
        assert_eq!(sites.home(id), "one");
    }
    fs::write(two.file("run7"), &whole).unwrap();
    client.hand_over(id, "two").unwrap();
    assert!(!one.file("run7").exists());
    assert_eq!(sites.home(id), "two");
}

fn moving_and_draining_take_a_right_of_their_own(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let one = sites.start("one");
    let id = sites.database(&one, "run7");
    let mut config = sites.config("two");
    config.auth.anonymous = Allowed::Write;
    let two = sites.start_with("two", config);
    let client = two.remote();
    let refused = [client.drain("one", true), client.move_database(id, "two").map(drop)];
    for refused in refused {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("femtobarn.manage"), "{error}");
    }
    one.remote().drain("one", true).unwrap();
}

fn a_home_that_is_away_for_good_is_not_waited_for(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let one = sites.start("one");
    let [id, other] = ["run7", "run8"].map(|name| sites.database(&one, name));
    let options = ConnectOptions { patience: LONG * 60, ..ConnectOptions::default() };
    let client = RemoteCatalogue::connect(&one.url(), &options).unwrap();
    sites.give_away(id, "one", "root://127.0.0.1:1//lhc.fed".to_owned());
    let lease = "lease_until_us = lease_until_us - 3600000000 WHERE name = 'other'";
    postgres.psql(&format!("UPDATE {}.servers SET {lease}", sites.schema()));
    let owner = client.locks().owner();
    let error = owner.share_database(id, LONG * 60).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    for part in
        ["server \"other\" (root://127.0.0.1:1//lhc.fed)", "its lease ended 3", "start it again"]
    {
        assert!(text.contains(part), "{text}");
    }
    let _guard = owner.share_database(other, LONG).unwrap();
}

fn a_database_without_a_home_gets_the_server_with_its_file(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let [one, two] = ["one", "two"].map(|name| sites.start(name));
    // A folder without a server.
    let third = Federation::open(&sites.place("third")).unwrap();
    engine::create(&third, "run7", ["events".to_owned()].into_iter());
    let id = sites.catalog.database("run7", Csn::MAX).unwrap().id;
    assert_eq!(sites.catalog.home(id).unwrap(), None);
    fs::copy(sites.place("third").join("databases/run7.root"), two.file("run7")).unwrap();
    let lock = |at: &Site| {
        let client = at.remote();
        client.locks().owner().lock_database_exclusive(id, LONG).map(drop)
    };
    let error = lock(&one).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    lock(&two).unwrap();
    assert_eq!(sites.home(id), "two");
    lock(&one).unwrap();
}

fn a_session_is_not_opened_while_its_lost_locks_cannot_be_freed(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let place = sites.place("one");
    let id = new_database(&sites.catalog, "run7");
    let service = FederationService::open("lhc.fed", &place, false, LONG).unwrap();
    let service = Arc::new(service.with_grace(Duration::from_millis(50)));
    let (name, storage) = ("one".to_owned(), "one".to_owned());
    let own = JoiningServer { name, storage, url: "root://127.0.0.1:1//lhc.fed".to_owned() };
    let site = logical::catalogue::Site::join(Arc::clone(service.catalog()), own, LONG).unwrap();
    service.be_at(Arc::new(site));
    let claims = claims();
    let open_session = || async {
        timeout(LONG, service.open_session(claims.clone())).await.expect("an answer, or an error")
    };
    Runtime::new().unwrap().block_on(async {
        let Welcome { session, generation, .. } = open_session().await.unwrap();
        let target = LockTarget::Database(id);
        let kind = LockKind::Shared;
        let lock = SessionOperation::Lock { number: 1, owner: 1, target, kind, wait: None };
        if service.operate(&session, generation, lock).unwrap().is_none() {
            session.outcomes(generation).await.unwrap();
        }
        assert!(session.holds(target));
        postgres.signal_all(Signal::SIGSTOP);
        let opened = open_session().await;
        postgres.signal_all(Signal::SIGCONT);
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(session.holds(target), "it is not free");
        while open_session().await.is_err() {}
        assert!(!session.holds(target));
    });
}

/// Clients once took this for the answer to what they had asked for: whoever has other servers failed at once, and no
/// transaction was run again.
fn a_session_that_has_ended_is_opened_when_its_locks_are_free(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let id = new_database(&sites.catalog, "run7");
    let service = service_at_one(&sites);
    Runtime::new().unwrap().block_on(async {
        let opened = service.open_session(claims()).await.unwrap();
        lock(&service, &opened, id).await.unwrap();
        let held = (1, LockTarget::Database(id), LockKind::Exclusive, 0);
        let claims = SessionClaims { session: opened.session.id(), locks: vec![held], ..claims() };
        postgres.signal_all(Signal::SIGSTOP);
        service.end(&opened.session, opened.generation);
        let refused = service.open_session(claims.clone()).await;
        postgres.signal_all(Signal::SIGCONT);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
        while service.open_session(claims.clone()).await.is_err() {}
        assert!(!opened.session.holds(LockTarget::Database(id)));
    });
}

fn a_server_that_cannot_start_gives_its_name_back(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let mut config = sites.config("one");
    let other = sites.folder.path().join("other.fed");
    Federation::create(&other, "other").unwrap();
    config.export(other, String::new());
    let error = Server::start(config).err().unwrap().to_string();
    assert!(error.contains("several servers take a catalogue in PostgreSQL"), "{error}");
    let row = &sites.catalog.servers().unwrap()[0];
    assert_eq!((row.name.as_str(), row.is_alive), ("one", false));
}

fn a_federation_whose_catalogue_is_slow_delays_no_lease_in_another(postgres: &Postgres) {
    let [slow, other] = [(); 2].map(|()| Sites::new(postgres));
    let mut config = slow.config("one");
    config.site.lease_seconds = 1;
    config.exports[0].name = "/slow.fed".to_owned();
    config.export(other.place("one"), String::new());
    let _server = Server::start(config).unwrap();
    let until_ms = |of: &Sites| -> u64 {
        postgres
            .psql(&format!("SELECT lease_until_us FROM {}.servers", of.schema()))
            .parse()
            .unwrap()
    };
    let schema = slow.schema();
    let name = "slow catalogue";
    thread::scope(|scope| {
        scope.spawn(|| {
            // The session of the lock ends with its backend.
            postgres.try_psql(&format!(
                "SET application_name = '{name}'; BEGIN; LOCK TABLE {schema}.servers; SELECT pg_sleep(600)"
            ))
        });
        let sleeps = format!(
            "FROM pg_stat_activity WHERE application_name = '{name}' AND wait_event = 'PgSleep'"
        );
        until("locking", || postgres.psql(&format!("SELECT count(*) {sleeps}")) == "1");
        for _ in 0..2 {
            let before = until_ms(&other);
            until("renewing", || until_ms(&other) > before);
        }
        postgres.psql(&format!("SELECT pg_terminate_backend(pid) {sleeps}"));
    });
}

fn clients_are_sent_to_the_home_with_its_scheme(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let mut config = sites.config("one");
    config.site.lease_seconds = 4;
    let one = sites.start_with("one", config);
    let [id, own] = ["run7", "run8"].map(|name| sites.database(&one, name));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let home = listener.local_addr().unwrap();
    sites.give_away(id, "one", format!("roots://{home}//lhc.fed"));
    // The server learns that when it has lost its lease.
    let schema = sites.schema();
    postgres.psql(&format!("UPDATE {schema}.servers SET epoch = epoch + 1 WHERE name = 'one'"));
    let answer = || get(one.server.address(), "/lhc.fed/run7.root");
    until("joining again", || answer().contains(" 307 "));
    let location = format!("location: https://{home}/lhc.fed/run7.root\r\n");
    assert!(answer().contains(&location), "{}", answer());
    let mut peer = Peer::logged_in(one.server.address());
    let raw = |name: &str, id: DatabaseId, at: &str| {
        let path = format!("/lhc.fed/databases/{name}.root?fb.raw=1&fb.database={id}&fb.home={at}");
        open(&path, OpenFlags::READ)
    };
    let Response::Redirect(there) = peer.ask(raw("run7", id, "one"), &[]) else {
        panic!("it stays")
    };
    assert_eq!(there.parts().0, format!("roots://{home}/"));
    // A database that has a home does not get the one that its creator names; a home that the creator names must exist.
    assert!(matches!(peer.ask(raw("run8", own, "other"), &[]), Response::Ok(_)));
    peer.refused(raw("new", DatabaseId(99), "nobody"), &[]);
}

fn a_client_continues_at_a_server_that_joined_just_before(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    // Long before its next renewal.
    let [one, two] = ["one", "two"].map(|name| sites.start(name));
    let client = one.remote();
    drop(one);
    assert_eq!(client.servers().unwrap().len(), 2);
    assert!(client.is_at(&two.url()));
}

/// The claims of a new session.
pub(super) fn claims() -> SessionClaims {
    SessionClaims {
        session: Uuid::new_v4(),
        identity: "ann".to_owned(),
        may_write: true,
        client: Holder::this_process(),
        locks: vec![],
        pins: vec![],
    }
}

pub(super) fn new_database(catalog: &LocalCatalogue, name: &str) -> DatabaseId {
    let new = new_row(catalog, name);
    let (id, transaction) = (new.id, Uuid::new_v4());
    catalog.commit(Commit { new_databases: vec![new], transaction, ..Commit::default() }).unwrap();
    id
}

/// A new database with a file, which is to be committed.
pub(super) fn new_row(catalog: &LocalCatalogue, name: &str) -> NewDatabase {
    let path = format!("databases/{name}.root");
    fs::write(catalog.folder().join(&path), b"").unwrap();
    NewDatabase {
        id: catalog.reserve_database().unwrap(),
        uuid: Uuid::new_v4(),
        name: name.to_owned(),
        path,
        state: DatabaseState::Open,
    }
}
