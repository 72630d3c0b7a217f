//! Servers of one federation whose sessions end, or that fall silent, in the middle of an operation.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use femtobarn::{CheckLevel, Class, ContainerOptions, Federation, OpenOptions, TransactionOptions};
use femtobarn_catalog::{
    Catalogue, Commit, ContainerId, DatabaseId, DroppedDatabase, Error, ErrorKind, JoiningServer,
    LocalCatalogue, LockKind, LockTarget, Result, ServerStanding,
};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use femtobarn_server::logical::catalogue::{
    DatabasePlace, FederationService, SessionOperation, Site as JoinedSite, Welcome,
};
use rntuple::Value;
use tokio::runtime::Runtime;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::postgres::Postgres;
use super::proxy::Proxy;
use super::sites::{Sites, claims, new_database, new_row};
use super::{LONG, engine, version};

fn joining(name: &str, url: String) -> JoiningServer {
    JoiningServer { name: name.to_owned(), storage: name.to_owned(), url }
}

/// The service of the server "one", to which no client can connect.
pub(super) fn service_at_one(sites: &Sites) -> Arc<FederationService> {
    let service = FederationService::open("lhc.fed", &sites.place("one"), false, LONG).unwrap();
    let own = joining("one", "root://127.0.0.1:1//lhc.fed".to_owned());
    let site = JoinedSite::join(Arc::clone(service.catalog()), own, LONG).unwrap();
    service.be_at(Arc::new(site));
    Arc::new(service)
}

/// Locks a database exclusively if it is free.
pub(super) async fn lock(
    service: &Arc<FederationService>,
    of: &Welcome,
    id: DatabaseId,
) -> Result<()> {
    let (target, kind) = (LockTarget::Database(id), LockKind::Exclusive);
    let wait = Some(Duration::ZERO);
    let lock = SessionOperation::Lock { number: 1, owner: 1, target, kind, wait };
    let outcome = match service.operate(&of.session, of.generation, lock)? {
        Some(outcome) => outcome,
        None => of.session.outcomes(of.generation).await?.remove(0),
    };
    outcome.result.map(drop)
}

/// The lock was once freed when the client had disconnected, and the commits that another client made then were lost
/// with the file.
pub(super) fn a_database_stays_locked_while_it_is_handed_over(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let id = new_database(&sites.catalog, "run7");
    let service = service_at_one(&sites);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("root://{}//lhc.fed", listener.local_addr().unwrap());
    let two = LocalCatalogue::open(&sites.place("two")).unwrap();
    two.join(&joining("two", url), LONG).unwrap();
    Runtime::new().unwrap().block_on(async {
        let mover = service.open_session(claims()).await.unwrap();
        let other = service.open_session(claims()).await.unwrap();
        lock(&service, &mover, id).await.unwrap();
        let (here, session) = (Arc::clone(&service), Arc::clone(&mover.session));
        let handing_over = spawn_blocking(move || here.hand_over(&session, id, "two"));
        // The server is asked for its copy of the file.
        let asked = spawn_blocking(move || listener.accept().unwrap().0).await.unwrap();
        let target = LockTarget::Database(id);
        let unlock = SessionOperation::Unlock { owner: 1, target, is_in_doubt: false };
        service.operate(&mover.session, mover.generation, unlock).unwrap();
        let error = lock(&service, &other, id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        // These bytes are not an answer of a server, so the server is not asked again.
        (&asked).write_all(&[0xFF; 64]).unwrap();
        let error = handing_over.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        lock(&service, &other, id).await.unwrap();
    });
}

/// A renewal in progress made the server look alive for the time of a lease, in which no server took its databases
/// over.
pub(super) fn a_server_that_has_left_does_not_join_again(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let service = service_at_one(&sites);
    let site = service.site().unwrap();
    site.leave();
    site.renew(0, 0).unwrap();
    let row = &sites.catalog.servers().unwrap()[0];
    assert_eq!((row.state, row.is_alive), (ServerStanding::Left, false));
    assert!(site.epoch().is_err());
}

/// The server kept the homes of all databases that programs had made and dropped. Later it forgot also those of
/// databases that were not committed yet, so that their commits were refused.
pub(super) fn homes_of_dropped_databases_are_forgotten(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let (service, kept) = (service_at_one(&sites), new_database(&sites.catalog, "kept"));
    let site = service.site().unwrap();
    let uncommitted = sites.catalog.reserve_database().unwrap();
    Runtime::new().unwrap().block_on(site.fence_off([uncommitted].into()));
    assert!(site.has(uncommitted));
    let new: Vec<_> =
        (0..300).map(|number| new_row(&sites.catalog, &format!("n{number}"))).collect();
    let dropped: Vec<_> = new.iter().map(|new| new.id).collect();
    let commit = |commit: Commit| {
        sites.catalog.commit(Commit { transaction: Uuid::new_v4(), ..commit }).unwrap()
    };
    let seen = commit(Commit { new_databases: new, ..Commit::default() });
    for id in dropped.iter().chain([&kept]) {
        assert_eq!(site.place_of(*id).unwrap(), DatabasePlace::Here);
        assert!(site.has(*id));
    }
    let drop = |id: &DatabaseId| DroppedDatabase { id: *id, seen, keeps_file: false };
    let dropped_databases = dropped.iter().map(drop).collect();
    let fences = dropped.iter().map(|id| site.fence(*id)).collect();
    commit(Commit { dropped_databases, fences, ..Commit::default() });
    site.renew(0, 0).unwrap();
    assert_eq!(dropped.iter().filter(|id| site.has(**id)).count(), 0);
    assert!(site.has(kept));
    assert!(site.has(uncommitted));
}

/// The copy stayed for ever if no other attempt followed, and check told of a file that belongs to no database.
pub(super) fn a_move_that_fails_leaves_no_copy(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let one = sites.start("one");
    let id = sites.database(&one, "run7");
    let two = sites.start("two");
    // The copy cannot get its name.
    let databases = sites.place("two").join("databases");
    std::fs::create_dir_all(databases.join("run7.root/in the way")).unwrap();
    let client = RemoteCatalogue::connect(&two.url(), &ConnectOptions::default()).unwrap();
    let error = loop {
        match client.move_database(id, "two") {
            Ok(moving) => assert!(moving.is_some(), "it cannot move"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let left = std::fs::read_dir(&databases).unwrap().map(|each| each.unwrap().file_name());
    assert!(left.eq(["run7.root"]));
}

/// The list of databases elsewhere was that of the begin, so that a file which had moved was missing, and links to its
/// objects led nowhere. Later a damaged database was checked again for each other one that moved.
pub(super) fn a_database_that_moves_while_it_is_checked_is_not_damaged(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let one = sites.start("one");
    let [_, target, damaged, other] =
        ["run7", "run8", "run9", "run10"].map(|name| sites.database(&one, name));
    link(&one.url(), "run7", "run8");
    let [file, shortened] = ["run8", "run9"]
        .map(|name| sites.place("one").join("databases").join(format!("{name}.root")));
    let shortened = File::options().write(true).open(&shortened).unwrap();
    shortened.set_len(shortened.metadata().unwrap().len() / 2).unwrap();
    let federation = Federation::open(&sites.place("one")).unwrap();
    let moves = |id| sites.give_away(id, "one", "root://127.0.0.1:1//lhc.fed".to_owned());
    let mut looks = 0;
    let looks_at_damaged = federation.check(CheckLevel::Full, &mut |progress| {
        looks += u32::from(progress.of == "run9");
        true
    });
    let looks_at_damaged = looks_at_damaged.map(|_| std::mem::take(&mut looks)).unwrap();
    let mut is_first = true;
    let report = federation.check(CheckLevel::Full, &mut |progress| {
        assert!(progress.done <= progress.total);
        if std::mem::replace(&mut is_first, false) {
            assert_eq!(progress.of, "run7");
            moves(target);
            std::fs::remove_file(&file).unwrap();
        }
        if progress.of == "run9" {
            if looks == 0 {
                moves(other);
            }
            looks += 1;
        }
        true
    });
    let report = report.unwrap();
    assert!(report.links > 0 && !report.problems.is_empty());
    for problem in &report.problems {
        assert_eq!(problem.place.database.as_ref().map(|it| it.0), Some(damaged), "{problem}");
    }
    assert_eq!((report.databases, report.elsewhere, looks), (2, 2, looks_at_damaged));
}

/// Makes an object with a link to one in another database.
fn link(url: &str, from: &str, to: &str) {
    let options = OpenOptions { threads: 1, ..OpenOptions::default() };
    let federation = Federation::open_url(url, options).unwrap();
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let [from, to] = [from, to].map(|name| transaction.database(name).unwrap());
    let events = transaction.container(to, "events").unwrap();
    let oid = transaction.extend(events, engine::events(0..1)).unwrap();
    let class = r#"{"name": "Linker", "version": 1, "fields": [{"name": "to", "type": {"link": "Event"}}]}"#;
    let class = Class::from_json(class).unwrap();
    let links = transaction.create_container(from, "links", &class, ContainerOptions::default());
    let (database, container) = (oid.database.0.into(), oid.container.0.into());
    let parts = [("database", database), ("container", container), ("entry", oid.entry)];
    let parts = parts.map(|(name, part)| (name.to_owned(), Value::UInt(part)));
    let object = Value::Record(vec![("to".to_owned(), Value::Record(parts.into()))]);
    transaction.append_value(links.unwrap(), object).unwrap();
    transaction.commit().unwrap();
}

/// The first server may still publish the commit. The error once stated that it was refused, after which callers run
/// the transaction again.
pub(super) fn a_commit_that_another_server_refuses_is_in_doubt(postgres: &Postgres) {
    let sites = Sites::new(postgres);
    let one = sites.start("one");
    let first = sites.database(&one, "run7");
    let two = sites.start("two");
    let second = sites.database(&two, "run8");
    let proxy = Proxy::new(one.port());
    let (schema, url) = (sites.schema(), format!("root://127.0.0.1:{}//lhc.fed", proxy.port));
    postgres.psql(&format!("UPDATE {schema}.servers SET url = '{url}' WHERE name = 'one'"));
    let options = ConnectOptions { patience: Duration::from_secs(1), ..ConnectOptions::default() };
    let client = RemoteCatalogue::connect(&two.url(), &options).unwrap();
    let owner = client.locks().owner();
    let _shared = [first, second].map(|id| owner.share_database(id, LONG).unwrap());
    let commit = || -> Error {
        let versions = [first, second].map(|id| version(id, ContainerId(1), None).versions);
        let versions = versions.into_iter().flatten().collect();
        client.commit(Commit { versions, ..version(first, ContainerId(1), None) }).unwrap_err()
    };
    proxy.freeze();
    let error = commit();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("whether the commit is durable is not known"), "{error}");
    sites.give_away(first, "one", "root://127.0.0.1:1//lhc.fed".to_owned());
    let error = commit();
    assert_eq!(error.kind(), ErrorKind::Conflict, "the fences of one are refused: {error}");
}
