//! Outcomes of operations: on the stream that asked for them, while its session goes on.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use femtobarn_catalog::{Catalogue, Csn, ErrorKind, LockKind, LockTarget, Result};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use femtobarn_server::logical::catalogue::{
    FederationService, OperationOutcome, SessionClaims, SessionOperation, Welcome,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{spawn_blocking, yield_now};

use super::sites::claims;
use super::{LONG, Stage};

const PIN: SessionOperation = SessionOperation::Pin { number: 2, csn: None };

/// Has no effect and no outcome.
const UNPIN: SessionOperation = SessionOperation::Unpin { csn: Csn::ZERO };

/// A runtime with one thread for what blocks.
fn runtime() -> Runtime {
    Builder::new_current_thread().max_blocking_threads(1).enable_all().build().unwrap()
}

/// Occupies the thread for what blocks, until the sender is dropped.
fn occupy() -> Sender<()> {
    let (sender, occupied) = channel::<()>();
    drop(spawn_blocking(move || occupied.recv()));
    sender
}

async fn opened(service: &Arc<FederationService>, claims: &SessionClaims) -> Welcome {
    service.open_session(claims.clone()).await.unwrap()
}

fn ask(service: &Arc<FederationService>, of: &Welcome, operation: SessionOperation) {
    let outcome = service.operate(&of.session, of.generation, operation).unwrap();
    assert!(outcome.is_none(), "it is not known at once: {outcome:?}");
}

async fn outcomes(of: &Welcome) -> Result<Vec<OperationOutcome>> {
    of.session.outcomes(of.generation).await
}

/// The outcome once arrived on the next stream, where it was taken for that of the request which the client had sent
/// again. So nobody used what that one was granted later, nor freed it.
#[test]
fn an_outcome_does_not_arrive_on_the_next_stream() {
    let stage = Stage::new();
    let service = stage.served();
    runtime().block_on(async {
        let other = opened(service, &claims()).await;
        let target = LockTarget::Container(stage.database, stage.container);
        let (kind, wait) = (LockKind::Exclusive, Some(Duration::ZERO));
        let lock = SessionOperation::Lock { number: 1, owner: 1, target, kind, wait };
        let granted = service.operate(&other.session, other.generation, lock).unwrap();
        granted.expect("it is free").result.unwrap();
        let claims = claims();
        let first = opened(service, &claims).await;
        let occupied = occupy();
        for operation in [lock, PIN] {
            ask(service, &first, operation);
        }
        let (reopening, again) = (Arc::clone(service), claims.clone());
        let opening = tokio::spawn(async move { opened(&reopening, &again).await });
        // Its next stream is the only one whose requests it accepts.
        while service.operate(&first.session, first.generation, UNPIN).is_ok() {
            yield_now().await;
        }
        drop(occupied);
        let second = opening.await.unwrap();
        assert!(outcomes(&first).await.is_err());
        ask(service, &second, SessionOperation::Pin { number: 3, csn: None });
        let numbers: Vec<_> = outcomes(&second).await.unwrap().iter().map(|it| it.number).collect();
        assert_eq!(numbers, [3]);
    });
}

/// The outcome once was that the session is over, and final.
#[test]
fn a_session_that_has_ended_has_no_outcomes() {
    let stage = Stage::new();
    let service = stage.served();
    runtime().block_on(async {
        let opened = opened(service, &claims()).await;
        let occupied = occupy();
        ask(service, &opened, PIN);
        service.end(&opened.session, opened.generation);
        drop(occupied);
        assert_eq!(outcomes(&opened).await.unwrap_err().kind(), ErrorKind::Closed);
    });
}

/// It once failed for good, with the reason that the session is over.
#[test]
fn a_client_with_other_servers_continues_after_its_session_has_ended() {
    let stage = Stage::new();
    let options =
        ConnectOptions { patience: LONG, has_alternatives: true, ..ConnectOptions::default() };
    let client = RemoteCatalogue::connect(&stage.url(), &options).unwrap();
    stage.end_all_sessions();
    let error = client.locks().owner().share_database(stage.database, LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    while let Err(error) = client.locks().owner().share_database(stage.database, LONG) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
