//! Catalogues over gRPC, by the client that the engine uses.

mod commits;
mod counted;
mod creating;
mod direct;
mod engine;
mod fencing;
mod hostile;
mod locks;
mod look_ups;
mod older_clients;
mod outcomes;
// The PostgreSQL of the catalogue's own tests.
#[allow(dead_code)]
#[path = "../../../../femtobarn-catalog/tests/it/postgres.rs"]
mod postgres;
pub(crate) mod proxy;
mod round_trips;
mod sessions;
mod site_faults;
mod sites;
mod small_commits;
mod uncommitted;

pub(crate) use engine::{class, events};

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use femtobarn_catalog::{
    BlobRange, Catalogue, ClassRow, Commit, ContainerId, Csn, DatabaseId, DatabaseState,
    EnvelopeRange, LocalCatalogue, NewContainer, NewDatabase, NewVersion, Result,
};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use femtobarn_rpc::turns::TURNS_PATH;
use femtobarn_server::auth::Authenticator;
use femtobarn_server::logical::catalogue::FederationService;
use femtobarn_server::protocol::rpc;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The ways to a server's catalogue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Routes {
    All,
    /// As with a server that does not support direct connections.
    Grpc,
    /// Direct connections alone.
    Direct,
}

/// A federation in a folder, with the database `run7` and the container `events`, and its server.
struct Stage {
    folder: TempDir,
    lease: Duration,
    /// The time after which a session ends once its connection was closed.
    grace: Duration,
    authenticator: Authenticator,
    routes: Routes,
    port: u16,
    server: Option<(Runtime, Arc<FederationService>)>,
    database: DatabaseId,
    container: ContainerId,
}

impl Stage {
    fn new() -> Self {
        Self::with(LONG, Authenticator::open())
    }

    fn routed(routes: Routes) -> Self {
        let mut stage = Self::new();
        stage.stop();
        stage.routes = routes;
        stage.start();
        stage
    }

    fn with(lease: Duration, authenticator: Authenticator) -> Self {
        Self::with_grace(lease, lease, authenticator)
    }

    fn with_grace(lease: Duration, grace: Duration, authenticator: Authenticator) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalog = LocalCatalogue::create(&folder.path().join("test.fed"), "test").unwrap();
        let (database, container) = begin(&catalog);
        drop(catalog);
        let mut stage = Stage {
            folder,
            lease,
            grace,
            authenticator,
            routes: Routes::All,
            port: 0,
            server: None,
            database,
            container,
        };
        stage.start();
        stage
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("test.fed")
    }

    /// Starts the server, on its previous port.
    fn start(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        self.port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let served = FederationService::open("test.fed", &self.place(), false, self.lease).unwrap();
        let served = Arc::new(served.with_grace(self.grace));
        let runtime = Runtime::new().unwrap();
        let authenticator = self.authenticator.clone();
        let router =
            rpc::routes(vec![served.clone()], Arc::default(), authenticator, Arc::default());
        let routes = self.routes;
        let is_there = move |path: &str| match routes {
            Routes::All => true,
            Routes::Grpc => path != TURNS_PATH,
            Routes::Direct => path == TURNS_PATH,
        };
        let route = move |request: Request, next: Next| async move {
            if is_there(request.uri().path()) {
                next.run(request).await
            } else {
                StatusCode::NOT_FOUND.into_response()
            }
        };
        let router = router.layer(from_fn(route));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        self.server = Some((runtime, served));
    }

    /// Stops the server without notice to its clients. Its locks are freed as those of a process that died.
    fn stop(&mut self) {
        let (runtime, served) = self.server.take().unwrap();
        runtime.shutdown_timeout(LONG);
        assert_eq!(Arc::strong_count(&served), 1, "all tasks of the server have ended");
    }

    fn served(&self) -> &Arc<FederationService> {
        &self.server.as_ref().unwrap().1
    }

    fn local(&self) -> LocalCatalogue {
        LocalCatalogue::open(&self.place()).unwrap()
    }

    fn url(&self) -> String {
        format!("root://127.0.0.1:{}//test.fed", self.port)
    }

    fn remote(&self) -> RemoteCatalogue {
        connect(&self.url()).unwrap()
    }

    /// A commit of a new version that follows `base`.
    fn version(&self, base: Option<Csn>) -> Commit {
        version(self.database, self.container, base)
    }

    /// Commits a new version as the engine does it, with the database locked.
    fn publish(&self, catalog: &dyn Catalogue, base: Option<Csn>) -> Result<Csn> {
        let owner = catalog.locks().owner();
        let _shared = owner.share_database(self.database, LONG)?;
        catalog.commit(self.version(base))
    }

    fn newest(&self, catalog: &dyn Catalogue) -> Option<Csn> {
        let newest = catalog.version(self.database, self.container, Csn::MAX).unwrap();
        newest.map(|row| row.csn)
    }
}

fn connect(url: &str) -> Result<RemoteCatalogue> {
    RemoteCatalogue::connect(url, &ConnectOptions { patience: LONG, ..ConnectOptions::default() })
}

fn begin(catalog: &LocalCatalogue) -> (DatabaseId, ContainerId) {
    let database = catalog.reserve_database().unwrap();
    let container = catalog.reserve_container().unwrap();
    let new = NewDatabase {
        id: database,
        uuid: Uuid::new_v4(),
        name: "run7".into(),
        path: "databases/run7.root".into(),
        state: DatabaseState::Open,
    };
    let commit = Commit {
        transaction: Uuid::new_v4(),
        message: "the first".into(),
        new_databases: vec![new],
        new_containers: vec![new_container(database, container, "events")],
        new_classes: vec![ClassRow { name: "Event".into(), version: 1, definition: "{}".into() }],
        ..Commit::default()
    };
    catalog.commit(commit).unwrap();
    (database, container)
}

fn new_container(database: DatabaseId, id: ContainerId, name: &str) -> NewContainer {
    NewContainer {
        database,
        id,
        name: name.into(),
        class: "Event".into(),
        class_version: 1,
        options: "{}".into(),
    }
}

fn version(database: DatabaseId, container: ContainerId, base: Option<Csn>) -> Commit {
    let new = NewVersion {
        database,
        container,
        base,
        header: EnvelopeRange { offset: 1, size: 2, length: 3 },
        footer: EnvelopeRange { offset: 4, size: 5, length: 6 },
        annex: BlobRange::default(),
        record: BlobRange::default(),
        class_version: 1,
        entries: 7,
        deleted: 0,
        bytes: 8,
    };
    Commit { transaction: Uuid::new_v4(), versions: vec![new], ..Commit::default() }
}

/// Waits until a condition holds; `what` names it if it never does.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} took too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}
