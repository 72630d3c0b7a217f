//! Sessions whose clients open a stream while requests of an earlier one are in progress. Each test makes the steps of both in
//! the order that once failed.

use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{
    ContainerId, Csn, DatabaseId, Error, ErrorKind, Holder, LocalCatalogue, LockKind, LockTarget,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Handle};
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::lease::Welcome;
use super::operations::SessionOperation;
use super::service::FederationService;
use super::session::{OperationOutcome, SessionClaims};
use super::state::LockRequest;
use crate::logical::locks::LockAnswer;

/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const TARGET: LockTarget = LockTarget::Container(DatabaseId(1), ContainerId(1));
const LOCK: SessionOperation = lock_of(TARGET, None);
/// A wait whose deadline passes.
const MOMENT: Option<Duration> = Some(Duration::from_millis(1));

/// A federation's service, whose sessions end as soon as they have no stream.
fn service(folder: &TempDir) -> Arc<FederationService> {
    let place = folder.path().join("test.fed");
    drop(LocalCatalogue::create(&place, "test").unwrap());
    let service = FederationService::open("test.fed", &place, false, LONG).unwrap();
    Arc::new(service.with_grace(Duration::ZERO))
}

fn run(scenario: impl AsyncFnOnce(Arc<FederationService>)) {
    let folder = tempfile::tempdir().unwrap();
    let runtime =
        Builder::new_current_thread().max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(scenario(service(&folder)));
}

fn claims() -> SessionClaims {
    SessionClaims {
        session: Uuid::new_v4(),
        identity: "anyone".to_owned(),
        may_write: true,
        client: Holder::this_process(),
        locks: vec![],
        pins: vec![],
    }
}

async fn open(service: &Arc<FederationService>, claims: &SessionClaims) -> Welcome {
    service.open_session(claims.clone()).await.unwrap()
}

const fn lock_of(target: LockTarget, wait: Option<Duration>) -> SessionOperation {
    SessionOperation::Lock { number: 1, owner: 1, target, kind: LockKind::Exclusive, wait }
}

/// The request of [`LOCK`] on a stream.
fn request(stream: &Welcome) -> LockRequest {
    let (generation, since) = (stream.generation, Instant::now());
    let kind = LockKind::Exclusive;
    LockRequest { number: 1, owner: 1, target: TARGET, kind, generation, since, deadline: None }
}

fn operate(
    service: &Arc<FederationService>,
    stream: &Welcome,
    operation: SessionOperation,
) -> Option<OperationOutcome> {
    service.operate(&stream.session, stream.generation, operation).unwrap()
}

async fn outcome(stream: &Welcome) -> OperationOutcome {
    let outcomes = timeout(LONG, stream.session.outcomes(stream.generation)).await;
    outcomes.expect("an outcome").unwrap().pop().unwrap()
}

/// The second request was once refused: its owner had locked the target already.
#[test]
fn a_lock_is_granted_on_the_next_stream_once_the_request_of_the_first_has_ended() {
    run(async |service| {
        let claims = claims();
        let first = open(&service, &claims).await;
        let granted = service.ask_table(&first.session, request(&first)).unwrap();
        assert_eq!(granted, LockAnswer::Granted);
        let second = open(&service, &claims).await;
        assert!(operate(&service, &second, LOCK).is_none());
        assert!(service.table.held().iter().all(|held| held.target == TARGET), "by the first");
        // It waited for PostgreSQL until now.
        let mut granted = vec![];
        let ended = service.hold(&first.session, request(&first), Ok(0), &mut granted);
        service.grant(granted);
        assert_eq!(ended.result.unwrap_err().kind(), ErrorKind::Closed);
        outcome(&second).await.result.unwrap();
        assert!(second.session.holds(TARGET));
    });
}

/// Each refusal once granted the next request from within itself, so a long queue overflowed the stack of its thread.
#[test]
fn a_long_queue_of_requests_is_refused_on_a_small_stack() {
    const QUEUED: u64 = 500;
    const STACK_BYTES: usize = 128 << 10;
    run(async |service| {
        let [holder, waiting] = [open(&service, &claims()).await, open(&service, &claims()).await];
        operate(&service, &holder, LOCK).unwrap().result.unwrap();
        for owner in 1..=QUEUED {
            let (number, kind) = (owner, LockKind::Exclusive);
            let lock = SessionOperation::Lock { number, owner, target: TARGET, kind, wait: None };
            assert!(operate(&service, &waiting, lock).is_none());
        }
        assert_eq!(waiting.session.waits() as u64, QUEUED);
        // As if it had ended when the first of them was granted.
        waiting.session.lock().is_over = true;
        let (runtime, refusing) = (Handle::current(), Arc::clone(&service));
        let unlock = move || {
            let _inside = runtime.enter();
            refusing.unlock(&holder.session, holder.generation, 1, TARGET);
        };
        let small = std::thread::Builder::new().stack_size(STACK_BYTES);
        small.spawn(unlock).unwrap().join().unwrap();
        assert_eq!((service.table.held(), waiting.session.waits()), (vec![], 0));
    });
}

/// The request of the first stream waits for PostgreSQL, which hangs. That of the second was once repeated for ever.
#[test]
fn a_request_that_waits_for_one_of_an_earlier_stream_is_counted_and_ends_at_its_deadline() {
    run(async |service| {
        let claims = claims();
        let first = open(&service, &claims).await;
        service.ask_table(&first.session, request(&first)).unwrap();
        let second = open(&service, &claims).await;
        assert!(operate(&service, &second, lock_of(TARGET, Some(LONG))).is_none());
        assert_eq!(second.session.waits(), 2);
        let late = |_: &_, _: &_| Error::Invalid { what: "late".to_owned() };
        service.end_wait(&second.session, request(&second), late);
        assert_eq!(outcome(&second).await.result.unwrap_err().kind(), ErrorKind::Invalid);
        assert!(operate(&service, &second, lock_of(TARGET, MOMENT)).is_none());
        assert_eq!(outcome(&second).await.result.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(second.session.waits(), 1);
        let mut granted = vec![];
        service.hold(&first.session, request(&first), Ok(0), &mut granted).result.unwrap_err();
        assert!(granted.is_empty() && service.table.held().is_empty());
    });
}

#[test]
fn a_request_that_waits_for_the_writes_of_its_owner_is_counted_and_ends_at_its_deadline() {
    run(async |service| {
        let database = LockTarget::Database(DatabaseId(1));
        let stream = open(&service, &claims()).await;
        operate(&service, &stream, lock_of(database, None)).unwrap().result.unwrap();
        let (write, _) = service.begin_alone(&stream.session, DatabaseId(1)).unwrap();
        let unlock = SessionOperation::Unlock { owner: 1, target: database, is_in_doubt: false };
        assert!(operate(&service, &stream, unlock).is_none());
        assert!(operate(&service, &stream, lock_of(database, MOMENT)).is_none());
        assert_eq!(outcome(&stream).await.result.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(stream.session.waits(), 0);
        assert!(operate(&service, &stream, lock_of(database, None)).is_none());
        assert_eq!(stream.session.waits(), 1);
        drop(write);
        outcome(&stream).await.result.unwrap();
        assert!(stream.session.holds(database) && stream.session.waits() == 0);
    });
}

#[test]
fn the_deadline_of_an_earlier_stream_does_not_end_the_wait_of_the_next() {
    run(async |service| {
        let other = open(&service, &claims()).await;
        operate(&service, &other, LOCK).unwrap().result.unwrap();
        let claims = claims();
        let first = open(&service, &claims).await;
        assert!(operate(&service, &first, LOCK).is_none());
        let second = open(&service, &claims).await;
        assert!(service.table.waiting().is_empty(), "the wait has ended with its stream");
        assert!(operate(&service, &second, LOCK).is_none());
        let late = |_: &_, _: &_| Error::Invalid { what: "late".to_owned() };
        service.end_wait(&first.session, request(&first), late);
        assert_eq!(service.table.waiting().len(), 1);
        let unlock = SessionOperation::Unlock { owner: 1, target: TARGET, is_in_doubt: false };
        assert!(operate(&service, &other, unlock).is_none());
        outcome(&second).await.result.unwrap();
    });
}

#[test]
fn locks_and_pins_are_not_freed_by_an_earlier_stream() {
    run(async |service| {
        let mut claims = claims();
        let first = open(&service, &claims).await;
        operate(&service, &first, LOCK).unwrap().result.unwrap();
        assert!(
            operate(&service, &first, SessionOperation::Pin { number: 2, csn: None }).is_none()
        );
        let csn = outcome(&first).await.result.unwrap().csn;
        claims.locks = vec![(1, TARGET, LockKind::Exclusive, 0)];
        claims.pins = vec![(csn, 1)];
        let second = open(&service, &claims).await;
        // As if they had been admitted before the second stream was opened.
        service.unlock(&first.session, first.generation, 1, TARGET);
        super::pins::unpin(&first.session, first.generation, csn);
        assert!(second.session.holds(TARGET));
        assert_eq!(second.session.lock().pins.keys().copied().collect::<Vec<Csn>>(), [csn]);
        service.end(&first.session, first.generation);
        assert_eq!(service.sessions().len(), 1, "a goodbye on an earlier stream ends nothing");
    });
}

/// Its reader was once told that the snapshot had been given up.
#[test]
fn a_claimed_snapshot_that_exists_is_not_lost_if_it_cannot_be_pinned() {
    run(async |service| {
        let mut claims = claims();
        let first = open(&service, &claims).await;
        open(&service, &claims).await;
        claims.pins = vec![(first.head, 1)];
        let pinned = service.pin_all(&first.session, first.generation, &claims);
        assert_eq!(pinned.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(open(&service, &claims).await.lost_pins, []);
    });
}

/// Its locks once stayed for ever.
#[test]
fn a_session_ends_whose_client_breaks_off_while_it_is_opened() {
    run(async |service| {
        let (free, occupied) = std::sync::mpsc::channel::<()>();
        drop(spawn_blocking(move || occupied.recv()));
        tokio::select! {
            biased;
            opened = service.open_session(claims()) => panic!("{opened:?}"),
            () = yield_now() => {}
        }
        assert_eq!(service.sessions().len(), 1);
        let ended = timeout(LONG, async {
            while !service.sessions().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        ended.await.expect("it ends");
        drop(free);
    });
}
