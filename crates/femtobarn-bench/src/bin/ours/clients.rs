//! Many clients that commit without conflicts, each in a session and a thread of its own, at a server or in a folder.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use femtobarn::{Federation, OpenOptions};
use femtobarn_bench::{Outcome, SMALL_BYTES, SMALL_OBJECTS, Stopwatch};
use femtobarn_catalog::{
    Catalogue, Commit, Csn, LocalCatalogue, LockGuard, NewVersion, VersionRow,
};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use uuid::Uuid;

use crate::append;

/// The longest wait for a lock; no other client wants it.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// A client that commits.
trait Client: Sized {
    /// Opens a session at a place, for a container of a database.
    fn open(place: &str, own: (String, String)) -> Outcome<Self>;

    /// Commits once.
    fn commit(&mut self) -> Outcome;
}

/// Commits for some seconds into a database, which has as many containers as those that `ours create` makes.
pub(crate) fn run(place: &str, database: &str, work: &str, clients: u64, seconds: f64) -> Outcome {
    let containers: Vec<_> =
        (0..clients).map(|n| (database.to_owned(), append::container_name(n))).collect();
    match work {
        "transactions" => {
            let bytes = SMALL_OBJECTS * SMALL_BYTES as u64;
            all::<Transactions>(place, containers, seconds, bytes)
        }
        "publish" => all::<Publisher>(place, containers, seconds, 0),
        _ => Err("transactions or publish".into()),
    }
}

fn all<C: Client>(
    place: &str,
    containers: Vec<(String, String)>,
    seconds: f64,
    bytes_each: u64,
) -> Outcome {
    // A client that could not open a session passes the barrier, too; otherwise the others would wait for ever.
    let step = Barrier::new(containers.len() + 1);
    let one = |own| -> Outcome<u64> {
        let client = C::open(place, own);
        step.wait();
        step.wait();
        let (mut client, end) = (client?, Instant::now() + Duration::from_secs_f64(seconds));
        let mut count = 0;
        while Instant::now() < end {
            client.commit()?;
            count += 1;
        }
        Ok(count)
    };
    let (watch, count) = std::thread::scope(|scope| -> Outcome<(Stopwatch, u64)> {
        let one = &one;
        let running: Vec<_> =
            containers.into_iter().map(|own| scope.spawn(move || one(own))).collect();
        step.wait();
        let watch = Stopwatch::start();
        step.wait();
        let mut count = 0;
        for client in running {
            count += client.join().map_err(|_| "a client panicked")??;
        }
        Ok((watch, count))
    })?;
    watch.report(count, count * bytes_each, 0);
    Ok(())
}

/// Whole transactions of the engine.
struct Transactions {
    federation: Federation,
    own: (String, String),
}

impl Client for Transactions {
    fn open(place: &str, own: (String, String)) -> Outcome<Self> {
        let federation = crate::open(Path::new(place), OpenOptions::default())?;
        Ok(Transactions { federation, own })
    }

    fn commit(&mut self) -> Outcome {
        append::commit_small(&self.federation, &self.own)
    }
}

/// The catalogue's part alone: each commit publishes a version equal to the previous one.
struct Publisher {
    // Freed before the session ends: at one of several servers, a session that ends with a lock would end all others.
    _shared: LockGuard,
    catalogue: Box<dyn Catalogue>,
    newest: VersionRow,
}

impl Client for Publisher {
    fn open(place: &str, (database, container): (String, String)) -> Outcome<Self> {
        let catalogue: Box<dyn Catalogue> = if place.starts_with("root://") {
            Box::new(RemoteCatalogue::connect(place, &ConnectOptions::default())?)
        } else {
            Box::new(LocalCatalogue::open(Path::new(place))?)
        };
        let database = catalogue.database(&database, Csn::MAX)?.id;
        let container = catalogue.container(database, &container, Csn::MAX)?;
        let newest = catalogue.version(database, container.id, Csn::MAX)?;
        let newest = newest.ok_or("the container has no version")?;
        let shared = catalogue.locks().owner().share_database(database, LOCK_WAIT)?;
        Ok(Publisher { _shared: shared, catalogue, newest })
    }

    fn commit(&mut self) -> Outcome {
        let VersionRow { database, container, csn, header, footer, annex, record, .. } =
            self.newest;
        let VersionRow { class_version, entries, deleted, bytes, .. } = self.newest;
        let next = NewVersion {
            database,
            container,
            base: Some(csn),
            header,
            footer,
            annex,
            record,
            class_version,
            entries,
            deleted,
            bytes,
        };
        let transaction = Uuid::new_v4();
        let commit = Commit { transaction, versions: vec![next], ..Commit::default() };
        self.newest.csn = self.catalogue.commit(commit)?;
        Ok(())
    }
}
