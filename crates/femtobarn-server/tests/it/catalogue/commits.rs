//! Remote commits: they behave as local ones, and each is published once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use femtobarn_catalog::{Catalogue, Commit, Csn, ErrorKind};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::proxy::Proxy;
use super::{LONG, Stage, connect, until};
use crate::ending::EndsOthers;

#[test]
fn remote_commit_has_its_clients_author_and_a_second_one_conflicts() {
    let stage = Stage::new();
    let (here, there) = (stage.local(), stage.remote());
    let csn = stage.publish(&there, None).unwrap();
    let row = here.commit_by_csn(csn).unwrap();
    assert_eq!(row.pid, std::process::id());
    let error = stage.publish(&there, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(error.to_string(), here.commit(stage.version(None)).unwrap_err().to_string());
    assert_eq!(stage.publish(&there, Some(csn)).unwrap(), Csn(csn.0 + 1));
}

#[test]
fn commit_fails_without_the_lock_on_its_database() {
    let stage = Stage::new();
    let there = stage.remote();
    let error = there.commit(stage.version(None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("was lost"), "{error}");
    stage.publish(&there, None).unwrap();
}

#[test]
fn commit_is_published_once_when_its_answer_was_lost() {
    let stage = Stage::new();
    let proxy = Proxy::new(stage.port);
    let there = connect(&format!("root://127.0.0.1:{}//test.fed", proxy.port)).unwrap();
    let here = stage.local();
    let owner = there.locks().owner();
    let _shared = owner.share_database(stage.database, LONG).unwrap();
    let before = here.head().unwrap();
    let commit = stage.version(None);
    let transaction = commit.transaction;
    let csn = thread::scope(|scope| {
        proxy.lose_answers();
        let committing = scope.spawn(|| there.commit(commit));
        until("publishing", || here.head().unwrap() > before);
        proxy.break_all();
        committing.join().unwrap().unwrap()
    });
    assert_eq!(csn, Csn(before.0 + 1));
    assert_eq!(here.head().unwrap(), csn);
    assert_eq!(here.commit_by_csn(csn).unwrap().transaction, transaction);
    // The session still has its lock, and continues.
    assert_eq!(there.commit(stage.version(Some(csn))).unwrap(), Csn(csn.0 + 1));
}

#[test]
fn commit_is_published_once_when_its_answer_was_lost_with_the_server() {
    let mut stage = Stage::new();
    let proxy = Proxy::new(stage.port);
    let there = connect(&format!("root://127.0.0.1:{}//test.fed", proxy.port)).unwrap();
    let here = stage.local();
    let owner = there.locks().owner();
    let _shared = owner.share_database(stage.database, LONG).unwrap();
    let before = here.head().unwrap();
    let commit = stage.version(None);
    let csn = thread::scope(|scope| {
        proxy.lose_answers();
        let committing = scope.spawn(|| there.commit(commit));
        until("publishing", || here.head().unwrap() > before);
        stage.stop();
        proxy.break_all();
        stage.start();
        committing.join().unwrap().unwrap()
    });
    assert_eq!((csn, here.head().unwrap()), (Csn(before.0 + 1), Csn(before.0 + 1)));
    assert_eq!(there.commit(stage.version(Some(csn))).unwrap(), Csn(csn.0 + 1));
}

/// The error was once `unavailable`, after which callers run the transaction again.
#[test]
fn commit_in_doubt_is_an_io_error_not_unavailable() {
    let mut stage = Stage::new();
    let proxy = Proxy::new(stage.port);
    let options = ConnectOptions { patience: Duration::from_secs(2), ..ConnectOptions::default() };
    let url = format!("root://127.0.0.1:{}//test.fed", proxy.port);
    let there = RemoteCatalogue::connect(&url, &options).unwrap();
    let here = stage.local();
    let owner = there.locks().owner();
    let _shared = owner.share_database(stage.database, LONG).unwrap();
    let before = here.head().unwrap();
    let commit = stage.version(None);
    let error = thread::scope(|scope| {
        proxy.lose_answers();
        let committing = scope.spawn(|| there.commit(commit));
        until("publishing", || here.head().unwrap() > before);
        stage.stop();
        proxy.break_all();
        committing.join().unwrap().unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("whether the commit is durable is not known"), "{error}");
}

/// The client had been told that the transaction was refused, and had perhaps run it again.
#[test]
fn a_refused_transaction_is_not_published_by_an_earlier_request_for_it() {
    let stage = Stage::new();
    let (there, served) = (stage.remote(), stage.served());
    let session = &served.sessions()[0];
    let (commit, after) = (stage.version(None), stage.local().head().unwrap());
    stage.server.as_ref().unwrap().0.block_on(async {
        let publish = |again| served.publish(session, commit.clone(), again);
        let error = publish(Some(after)).await.unwrap_err();
        assert!(error.to_string().contains("was lost"), "{error}");
        let owner = there.locks().owner();
        let database = stage.database;
        let share = move || owner.share_database(database, LONG).unwrap();
        let _shared = spawn_blocking(share).await.unwrap();
        let error = publish(None).await.unwrap_err();
        assert!(error.to_string().contains("was refused when it was sent again"), "{error}");
        served.publish(session, stage.version(None), None).await.unwrap();
    });
}

/// Its commit was found while its session could not publish, and that answer was lost, too: the client would have run the
/// transaction again.
#[test]
fn a_published_transaction_is_not_refused_when_it_is_sent_once_more() {
    let stage = Stage::new();
    let (there, served) = (stage.remote(), stage.served());
    let session = &served.sessions()[0];
    let (commit, after) = (stage.version(None), stage.local().head().unwrap());
    let published = stage.local().commit(commit.clone()).unwrap();
    stage.server.as_ref().unwrap().0.block_on(async {
        let publish = || served.publish(session, commit.clone(), Some(after));
        assert_eq!(publish().await.unwrap(), published);
        let (owner, database) = (there.locks().owner(), stage.database);
        let share = move || owner.share_database(database, LONG).unwrap();
        let _shared = spawn_blocking(share).await.unwrap();
        assert_eq!(publish().await.unwrap(), published);
    });
}

#[test]
fn commits_of_many_sessions_share_durable_writes() {
    const WRITERS: u64 = 8;
    const COMMITS: u64 = 20;
    let stage = Stage::new();
    let (before, done) = (stage.local().head().unwrap(), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (there, done) = (stage.remote(), &done);
            scope.spawn(move || {
                for number in 0..COMMITS {
                    let message = format!("{writer}: {number}");
                    let transaction = Uuid::new_v4();
                    there.commit(Commit { transaction, message, ..Commit::default() }).unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    let head = stage.local().head().unwrap();
    assert_eq!(head.0 - before.0, WRITERS * COMMITS);
    let (published, writes) = stage.served().publisher().published();
    assert_eq!(published, WRITERS * COMMITS);
    assert!(writes <= published);
}

/// Each writer adds to a container of its own, and records the acknowledged commits. The server is stopped and
/// started meanwhile.
#[test]
fn writers_continue_after_a_server_restart_without_losing_or_repeating_commits() {
    const WRITERS: usize = 8;
    const RESTARTS: usize = 3;
    let mut stage = Stage::new();
    let here = stage.local();
    let head = here.head().unwrap();
    let numbers = here.reserve_containers(WRITERS as u32).unwrap();
    let name = |id| format!("c{id}");
    let new = numbers.iter().map(|id| super::new_container(stage.database, *id, &name(*id)));
    here.commit(Commit { new_containers: new.collect(), ..Commit::default() }).unwrap();
    let remotes: Vec<_> = numbers.iter().map(|_| stage.remote()).collect();
    let (is_over, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let database = stage.database;
    let acknowledged: Vec<Vec<Csn>> = thread::scope(|scope| {
        let writers: Vec<_> = numbers
            .iter()
            .zip(remotes)
            .map(|(container, there)| {
                let (is_over, total) = (&is_over, &total);
                scope.spawn(move || {
                    let mut made: Vec<Csn> = Vec::new();
                    while !is_over.load(Ordering::SeqCst) {
                        let owner = there.locks().owner();
                        let _database = owner.share_database(database, LONG).unwrap();
                        let _container = owner.lock_container(database, *container, LONG).unwrap();
                        let base = made.last().copied();
                        let newest = there.version(database, *container, Csn::MAX).unwrap();
                        assert_eq!(newest.map(|row| row.csn), base);
                        made.push(
                            there.commit(super::version(database, *container, base)).unwrap(),
                        );
                        total.fetch_add(1, Ordering::SeqCst);
                    }
                    made
                })
            })
            .collect();
        let ends = EndsOthers(&is_over);
        for _ in 0..RESTARTS {
            let before = total.load(Ordering::SeqCst);
            until("committing", || total.load(Ordering::SeqCst) > before + 40);
            stage.stop();
            stage.start();
        }
        let before = total.load(Ordering::SeqCst);
        until("committing", || total.load(Ordering::SeqCst) > before + 40);
        drop(ends);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (container, made) in numbers.iter().zip(&acknowledged) {
        let versions = here.versions(database, *container).unwrap();
        let found: Vec<Csn> = versions.iter().map(|row| row.csn).collect();
        assert_eq!(&found, made, "exactly the acknowledged commits are there");
    }
    let commits = total.load(Ordering::SeqCst);
    assert_eq!(here.head().unwrap().0 - head.0, commits + 1);
}
