//! Threads that commit as fast as they can, and the properties that must hold afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use femtobarn_catalog::{
    Commit, ContainerId, Csn, DatabaseId, DatabaseState, ErrorKind, LocalCatalogue,
};
use uuid::Uuid;

use crate::federation::{new_container, new_database, version};

/// Containers, each of which one thread writes.
pub(crate) struct Storm {
    database: DatabaseId,
    containers: Vec<ContainerId>,
    done: Vec<Vec<Acknowledged>>,
}

/// Lets the threads of a storm end when this is dropped.
struct EndOfStorm<'a>(&'a AtomicBool);

impl Drop for EndOfStorm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A commit that was acknowledged.
#[derive(Clone, Copy)]
pub(crate) struct Acknowledged {
    transaction: Uuid,
    csn: Csn,
    pub(crate) at: Instant,
}

impl Storm {
    pub(crate) fn new(catalog: &LocalCatalogue, name: &str, threads: usize) -> Self {
        let database = new_database(catalog, name, DatabaseState::Open).unwrap();
        let container = |n: usize| new_container(catalog, database, &format!("c{n}")).unwrap();
        let containers = (0..threads).map(container).collect();
        Storm { database, containers, done: vec![vec![]; threads] }
    }

    /// Commits to all containers while `meanwhile` runs. No commit may fail.
    pub(crate) fn during<T>(
        &mut self,
        catalog: &LocalCatalogue,
        meanwhile: impl FnOnce() -> T,
    ) -> T {
        let over = AtomicBool::new(false);
        let (database, is_over) = (self.database, &over);
        thread::scope(|scope| {
            for (id, done) in self.containers.iter().zip(&mut self.done) {
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let base = done.last().map(|last| last.csn);
                        let entries = done.len() as u64 + 1;
                        let versions = vec![version(database, *id, base, entries)];
                        let transaction = Uuid::new_v4();
                        let commit = Commit { transaction, versions, ..Commit::default() };
                        let csn = catalog.commit(commit).unwrap();
                        assert!(catalog.head().unwrap() >= csn, "a reader sees what was committed");
                        done.push(Acknowledged { transaction, csn, at: Instant::now() });
                    }
                });
            }
            // Threads end after a panic, too.
            let _end = EndOfStorm(is_over);
            meanwhile()
        })
    }

    /// Commits to the first container until the catalogue refuses; why.
    pub(crate) fn until_refused(&mut self, catalog: &LocalCatalogue) -> (ErrorKind, String) {
        loop {
            let done = &mut self.done[0];
            let base = done.last().map(|last| last.csn);
            let entries = done.len() as u64 + 1;
            let versions = vec![version(self.database, self.containers[0], base, entries)];
            let transaction = Uuid::new_v4();
            // Bytes that cannot be compressed.
            let message = (0..800).map(|_| Uuid::new_v4().to_string()).collect();
            let commit = Commit { transaction, message, versions, ..Commit::default() };
            match catalog.commit(commit) {
                Ok(csn) => done.push(Acknowledged { transaction, csn, at: Instant::now() }),
                Err(error) => return (error.kind(), error.to_string()),
            }
        }
    }

    /// The first acknowledgements of all threads after an instant.
    pub(crate) fn first_after(&self, instant: Instant) -> Vec<Instant> {
        let first = |done: &Vec<Acknowledged>| done.iter().find(|it| it.at > instant).unwrap().at;
        self.done.iter().map(first).collect()
    }

    /// The newest commit. The commits of a storm have no gaps between them.
    pub(crate) fn last(&self) -> Csn {
        let mut csns: Vec<Csn> = self.done.iter().flatten().map(|it| it.csn).collect();
        csns.sort_unstable();
        assert!(csns.iter().zip(csns[0].0..).all(|(csn, wanted)| csn.0 == wanted), "no gap");
        *csns.last().unwrap()
    }

    /// No acknowledged commit is lost, and none exists twice.
    pub(crate) fn check(&self, catalog: &LocalCatalogue) {
        let mut csns = vec![];
        for (done, id) in self.done.iter().zip(&self.containers) {
            let versions = catalog.versions(self.database, *id).unwrap();
            let found: Vec<_> = versions.iter().map(|row| (row.csn, row.entries)).collect();
            let wanted: Vec<_> = done.iter().zip(1..).map(|(it, n)| (it.csn, n)).collect();
            assert_eq!(found, wanted);
            for it in done.iter().rev().take(20) {
                let found = catalog.find_commit(it.transaction, Csn::ZERO).unwrap();
                assert_eq!(found, Some(it.csn));
            }
            csns.extend(done.iter().map(|it| it.csn));
        }
        let count = csns.len();
        csns.sort_unstable();
        csns.dedup();
        assert_eq!(csns.len(), count, "none twice");
        assert!(catalog.head().unwrap() >= *csns.last().unwrap());
    }
}
