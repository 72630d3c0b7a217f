//! Clients whose tokens expire, and those whose tokens are all refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use femtobarn_catalog::{Catalogue, Commit, ContainerId, ErrorKind, LocalCatalogue, Result};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use femtobarn_server::config::Allowed;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::catalogue::proxy::Proxy;
use crate::tokens::Guarded;

/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const SCOPE: &str = "storage.read:/ storage.modify:/";

fn connect(guarded: &Guarded, find_token: fn() -> Option<String>) -> Result<RemoteCatalogue> {
    connect_at(&guarded.url("roots", "/lhc.fed"), guarded, find_token)
}

fn connect_at(
    url: &str,
    guarded: &Guarded,
    find_token: fn() -> Option<String>,
) -> Result<RemoteCatalogue> {
    let options = ConnectOptions {
        find_token,
        certificate: Some(std::fs::read(&guarded.certificate).unwrap()),
        patience: LONG,
        ..ConnectOptions::default()
    };
    RemoteCatalogue::connect(url, &options)
}

/// These clients once asked for tokens without end.
#[test]
fn a_client_that_finds_a_new_token_each_time_fails_after_a_few_refusals() {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    fn find() -> Option<String> {
        Some(format!("no.token{}", FOUND.fetch_add(1, Ordering::Relaxed)))
    }
    let error = connect(&Guarded::start(), find).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(FOUND.load(Ordering::Relaxed) < 10);
}

/// This commit was once in doubt, though the server had not begun it.
#[test]
fn a_commit_with_an_expired_token_is_refused_and_made_with_the_next() {
    /// The token that clients find.
    static FOUND: Mutex<Option<String>> = Mutex::new(None);
    /// The number of tokens found after that, by the client that finds a new one each time.
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    fn find() -> Option<String> {
        FOUND.lock().clone()
    }
    fn find_new() -> Option<String> {
        find().or_else(|| Some(format!("no.token{}", REFUSED.fetch_add(1, Ordering::Relaxed))))
    }
    let guarded = Guarded::start_with(|config| {
        config.auth.anonymous = Allowed::Nothing;
        config.limits.lease_seconds = 600;
    });
    // On a busy machine a token may have expired before it was used for all of this.
    let opened = (0..20).find_map(|_| {
        *FOUND.lock() = Some(guarded.token_for(SCOPE, 3));
        let catalogue = connect(&guarded, find).ok()?;
        let other = connect(&guarded, find_new).ok()?;
        let database = catalogue.reserve_database().ok()?;
        let lock = catalogue.locks().lock_container(database, ContainerId(1), LONG).ok()?;
        Some((catalogue, other, lock))
    });
    let (catalogue, other, lock) = opened.expect("a token is valid for three seconds");
    // The token of the client with the lock is as old, and its session ends with the first call after it.
    while other.head().is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let commit = || {
        let transaction = Uuid::new_v4();
        catalogue.commit(Commit { transaction, ..Commit::default() })
    };
    let error = commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");

    *FOUND.lock() = None;
    let error = other.head().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(REFUSED.load(Ordering::Relaxed) < 100, "it asks now and then");

    *FOUND.lock() = Some(guarded.token(SCOPE));
    assert_eq!(commit().unwrap().0, 1);
    assert_eq!(catalogue.openings(), 2, "with the new token");
    assert_eq!(other.head().unwrap().0, 1);
    drop(lock);
}

/// The caller was told at the first refusal that the outcome is not known, though the client found a token soon with
/// which it could ask.
#[test]
fn the_outcome_of_a_commit_that_was_sent_is_learned_with_the_next_token() {
    /// The token that clients find, and how often they have looked for it.
    static FOUND: Mutex<Option<String>> = Mutex::new(None);
    static LOOKS: AtomicUsize = AtomicUsize::new(0);
    fn find() -> Option<String> {
        LOOKS.fetch_add(1, Ordering::Relaxed);
        FOUND.lock().clone()
    }
    let guarded = Guarded::start();
    *FOUND.lock() = Some(guarded.token(SCOPE));
    let proxy = Proxy::new(guarded.server.address().port());
    let url = format!("roots://localhost:{}//lhc.fed", proxy.port);
    let catalogue = connect_at(&url, &guarded, find).unwrap();
    let local = LocalCatalogue::open(&guarded.folder.path().join("lhc.fed")).unwrap();
    proxy.lose_answers();
    let commit = Commit { transaction: Uuid::new_v4(), ..Commit::default() };
    let wait_until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let made = std::thread::scope(|scope| {
        let committing = scope.spawn(|| catalogue.commit(commit));
        wait_until(&|| local.head().unwrap().0 == 1);
        *FOUND.lock() = Some("no.token".to_owned());
        proxy.break_all();
        let before = LOOKS.load(Ordering::Relaxed);
        // The session is refused more than once.
        wait_until(&|| LOOKS.load(Ordering::Relaxed) > before + 10);
        *FOUND.lock() = Some(guarded.token(SCOPE));
        committing.join().unwrap()
    });
    assert_eq!(made.unwrap().0, 1);
    assert_eq!(local.head().unwrap().0, 1);
}
