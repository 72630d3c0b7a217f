//! Many clients of one server that commit without conflicts, each in a session and a thread of its own.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use femtobarn::{Federation, OpenOptions};
use femtobarn_bench::{Outcome, SMALL_BYTES, SMALL_OBJECTS, Stopwatch};
use femtobarn_catalog::{Catalogue, Commit, Csn, LockGuard, NewVersion, VersionRow};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use uuid::Uuid;

use crate::append::{self, DATABASE};

/// The longest wait for a lock; no other client wants it.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// A client that commits.
trait Client: Sized {
    /// Opens a session, for the container of this number.
    fn open(url: &str, number: u64) -> Outcome<Self>;

    /// Commits once.
    fn commit(&mut self) -> Outcome;
}

/// Commits for some seconds, into the containers that `ours create` made for as many writers.
pub(crate) fn run(url: &str, work: &str, clients: u64, seconds: f64) -> Outcome {
    match work {
        "transactions" => {
            all::<Transactions>(url, clients, seconds, SMALL_OBJECTS * SMALL_BYTES as u64)
        }
        "publish" => all::<Publisher>(url, clients, seconds, 0),
        _ => Err("transactions or publish".into()),
    }
}

fn all<C: Client>(url: &str, clients: u64, seconds: f64, bytes_each: u64) -> Outcome {
    // A client that could not open a session passes the barrier, too; otherwise the others would wait for ever.
    let step = Barrier::new(clients as usize + 1);
    let one = |number| -> Outcome<u64> {
        let client = C::open(url, number);
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
        let running: Vec<_> = (0..clients).map(|n| scope.spawn(move || one(n))).collect();
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
    number: u64,
}

impl Client for Transactions {
    fn open(url: &str, number: u64) -> Outcome<Self> {
        let federation = crate::open(Path::new(url), OpenOptions::default())?;
        Ok(Transactions { federation, number })
    }

    fn commit(&mut self) -> Outcome {
        append::commit_small(&self.federation, "shared", self.number)
    }
}

/// The catalogue's part alone: each commit publishes a version equal to the previous one.
struct Publisher {
    catalogue: RemoteCatalogue,
    newest: VersionRow,
    _shared: LockGuard,
}

impl Client for Publisher {
    fn open(url: &str, number: u64) -> Outcome<Self> {
        let catalogue = RemoteCatalogue::connect(url, &ConnectOptions::default())?;
        let database = catalogue.database(DATABASE, Csn::MAX)?.id;
        let container = catalogue.container(database, &append::container_name(number), Csn::MAX)?;
        let newest = catalogue.version(database, container.id, Csn::MAX)?;
        let newest = newest.ok_or("the container has no version")?;
        let shared = catalogue.locks().owner().share_database(database, LOCK_WAIT)?;
        Ok(Publisher { catalogue, newest, _shared: shared })
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
