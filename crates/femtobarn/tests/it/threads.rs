//! Many threads of one process share a federation: writers of their own containers in one database, and
//! readers of everything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use femtobarn::{ErrorKind, Federation, Snapshot};

use crate::conflicts::numbers_at_once;
use crate::processes::amount;
use crate::support::{begin, event_class, events, federation, reopened, with_ten_events};

const THREADS: u32 = 6;

/// Each commit appends to the thread's container and, every other time, to one that all threads write to.
fn write(federation: &Federation, thread: u32, rounds: u64) {
    let name = format!("c{thread}");
    let mut count = 0;
    for round in 0..rounds {
        let mut transaction = begin(federation);
        let database = transaction.database("run7").unwrap();
        let key = match round {
            0 => {
                let class = event_class();
                transaction.create_container(database, &name, &class, Default::default())
            }
            _ => transaction.container(database, &name),
        };
        let key = key.unwrap();
        let size = 1 + (round * 700 + u64::from(thread)) % 3000;
        transaction.extend(key, events(thread, count, size)).unwrap();
        let shared = (round % 2 == 0).then(|| transaction.container(database, "events").unwrap());
        if let Some(shared) = shared {
            let first = transaction.entries(shared).unwrap();
            transaction.extend(shared, events(7, first, 10)).unwrap();
        }
        match round % 5 {
            4 => transaction.rollback(),
            _ => {
                transaction.commit().unwrap();
                count += size;
            }
        }
    }
}

fn check(snapshot: &Snapshot) {
    for row in snapshot.databases().unwrap() {
        for container in snapshot.containers(row.id).unwrap() {
            let view = snapshot.view(&format!("{}/{}", row.name, container.name)).unwrap();
            let array = view.read(&view.select(&["event"]).unwrap(), 0..view.entries()).unwrap();
            for n in [0, view.entries() / 2, view.entries() - 1] {
                let event = array.value(n as usize).unwrap();
                assert_eq!(crate::support::number(&event), n);
                assert_eq!(crate::support::number(&view.value(n).unwrap()), n);
            }
        }
    }
}

#[test]
fn threads_share_a_federation() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let rounds = amount(15, 300);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let federation = federation.clone();
                scope.spawn(move || write(&federation, thread, rounds))
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    check(&federation.snapshot(None).unwrap());
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    for federation in [federation, reopened(&folder)] {
        check(&federation.snapshot(None).unwrap());
        let shared = numbers_at_once(&federation);
        assert!(shared == (0..shared.len() as u64).collect::<Vec<_>>());
        let commits = (0..rounds).filter(|round| round % 2 == 0 && round % 5 != 4).count();
        assert_eq!(shared.len(), 10 + 10 * commits * THREADS as usize);
    }
}

#[test]
fn threads_that_create_the_same_database_agree_on_one() {
    let (_folder, federation) = federation();
    let results: Vec<_> = thread::scope(|scope| {
        let create = || {
            let mut transaction = begin(&federation);
            let database = transaction.create_database("same")?;
            let class = event_class();
            let key =
                transaction.create_container(database, "events", &class, Default::default())?;
            transaction.extend(key, events(1, 0, 10))?;
            transaction.commit()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let errors = results.iter().filter_map(|result| result.as_ref().err());
    assert!(errors.into_iter().all(|error| error.kind() == ErrorKind::Exists));
    assert_eq!(federation.snapshot(None).unwrap().view("same/events").unwrap().entries(), 10);
}
