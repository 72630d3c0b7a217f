//! Every type is the same after conversion to a message and back.

use std::time::Duration;

use femtobarn_catalog::{
    BlobRange, ClassRow, Commit, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow,
    DatabaseState, DroppedDatabase, EnvelopeRange, Error, ErrorKind, Fence, HeldLock, Holder, Home,
    LockTarget, NewContainer, NewDatabase, NewVersion, ServerRow, ServerStanding, VersionRow,
    Waiter,
};
use uuid::Uuid;

use super::{failure_of, published, refusal, status_of};
use crate::v1;

fn version() -> NewVersion {
    NewVersion {
        database: DatabaseId(1),
        container: ContainerId(2),
        base: Some(Csn(3)),
        header: EnvelopeRange { offset: 4, size: 5, length: 6 },
        footer: EnvelopeRange { offset: 7, size: 8, length: 9 },
        annex: BlobRange { offset: 10, size: 11 },
        record: BlobRange { offset: 12, size: 13 },
        class_version: 14,
        entries: 15,
        deleted: 16,
        bytes: u64::MAX,
    }
}

fn commit() -> Commit {
    let (database, container) = (DatabaseId(1), ContainerId(2));
    Commit {
        transaction: Uuid::from_u128(7),
        message: "a message".into(),
        new_databases: vec![NewDatabase {
            id: database,
            uuid: Uuid::from_u128(8),
            name: "run7".into(),
            path: "databases/run7.root".into(),
            state: DatabaseState::Open,
        }],
        new_containers: vec![NewContainer {
            database,
            id: container,
            name: "events".into(),
            class: "Event".into(),
            class_version: 3,
            options: "{}".into(),
        }],
        new_classes: vec![ClassRow { name: "Event".into(), version: 3, definition: "{}".into() }],
        versions: vec![version()],
        link_targets: vec![(database, container, vec![Uuid::from_u128(9)])],
        renamed_databases: vec![(database, Csn(1), "run8".into())],
        renamed_containers: vec![(database, container, Csn(2), "hits".into())],
        dropped_databases: vec![DroppedDatabase { id: database, seen: Csn(4), keeps_file: true }],
        dropped_containers: vec![(database, container, Csn(5))],
        reads: vec![(database, container, None), (database, container, Some(Csn(6)))],
        ..Commit::default()
    }
}

#[test]
fn commit_survives_conversion() {
    let message = v1::Commit::try_from(&commit()).unwrap();
    let back = Commit::try_from(message).unwrap();
    assert_eq!(format!("{back:?}"), format!("{:?}", commit()));
}

#[test]
fn fences_survive_conversion_beside_the_commit() {
    let fence =
        Fence { database: DatabaseId(1), server: "two".into(), server_epoch: 3, home_epoch: 4 };
    let commit = Commit { fences: vec![fence], ..commit() };
    let request = v1::PublishRequest::try_from(&commit).unwrap();
    assert_eq!(published(request).unwrap().fences, commit.fences);
}

#[test]
fn servers_and_homes_survive_conversion() {
    for state in [ServerStanding::Active, ServerStanding::Draining, ServerStanding::Left] {
        let row = ServerRow {
            name: "two".into(),
            url: "root://two:1094".into(),
            storage: "disk".into(),
            state,
            epoch: 5,
            is_alive: true,
            free_bytes: u64::MAX,
            load: 6,
            databases: 7,
        };
        assert_eq!(ServerRow::from(v1::Server::from(row.clone())), row);
    }
    let home = Home {
        server: "two".into(),
        url: "root://two:1094".into(),
        is_alive: true,
        epoch: 3,
        server_epoch: 5,
        away_ms: 7,
        has_stand_in: true,
    };
    assert_eq!(Home::from(v1::Home::from(home.clone())), home);
}

#[test]
fn sealing_and_moving_have_no_message() {
    let sealing = Commit { sealed: vec![(DatabaseId(1), Csn(1))], ..Commit::default() };
    let moving = Commit { moved: vec![(DatabaseId(1), "/etc".into())], ..Commit::default() };
    for commit in [sealing, moving] {
        let error = v1::Commit::try_from(&commit).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}

#[test]
fn rows_survive_conversion_and_malformed_ones_are_refused() {
    let row = DatabaseRow {
        id: DatabaseId(1),
        uuid: Uuid::from_u128(2),
        name: "run7".into(),
        path: "databases/run7.root".into(),
        state: DatabaseState::Sealed,
        created: Csn(3),
        epoch: 4,
    };
    let message = v1::DatabaseRow::from(row.clone());
    assert_eq!(DatabaseRow::try_from(message.clone()).unwrap(), row);
    let half = v1::DatabaseRow { uuid: vec![1, 2], ..message.clone() };
    assert!(matches!(DatabaseRow::try_from(half), Err(Error::Invalid { .. })));
    let stateless = v1::DatabaseRow { state: 77, ..message };
    assert!(matches!(DatabaseRow::try_from(stateless), Err(Error::Invalid { .. })));
    let NewVersion { header, footer, annex, record, .. } = version();
    let row = VersionRow {
        database: DatabaseId(1),
        container: ContainerId(2),
        csn: Csn::MAX,
        header,
        footer,
        annex,
        record,
        class_version: 1,
        entries: 2,
        deleted: 1,
        bytes: 3,
    };
    assert_eq!(VersionRow::from(v1::VersionRow::from(row)), row);
    let row = ContainerRow {
        database: DatabaseId(1),
        id: ContainerId(2),
        name: "events".into(),
        class: "Event".into(),
        class_version: 1,
        options: "{}".into(),
        created: Csn(3),
    };
    assert_eq!(ContainerRow::from(v1::ContainerRow::from(row.clone())), row);
}

#[test]
fn errors_survive_conversion_with_their_texts() {
    let holder = Holder {
        host: "tau".into(),
        pid: 7,
        user: "anna".into(),
        application: "reco.py".into(),
        since_ms: 9,
    };
    let errors = [
        Error::Conflict { container: "run7/events".into(), base: None, head: Some(Csn(3)) },
        Error::Changed { what: "it was renamed".into() },
        Error::NotFound { what: "tag", name: "x".into(), near_misses: vec!["y".into()] },
        Error::Exists { what: "class", name: "Event".into(), advice: "raise it".into() },
        Error::Busy {
            what: "container 1".into(),
            holder: Some(Box::new(holder)),
            waited: Duration::from_millis(30),
        },
        Error::Deadlock { cycle: vec!["a waits for b".into(), "b waits for a".into()] },
        Error::Unavailable { what: "stopping".into() },
        Error::Elsewhere {
            what: "database 7 is at two".into(),
            server: "two".into(),
            url: "root://two:1094".into(),
        },
        Error::Invalid { what: "no".into() },
        Error::Unsupported { what: "newer".into() },
        Error::Closed { what: "sealed".into() },
        Error::Denied { what: "the token is refused".into() },
        Error::Internal { what: "bug".into() },
    ];
    for error in errors {
        let status = status_of(&error);
        let back = Error::from(refusal(&status).unwrap());
        assert_eq!((back.kind(), back.to_string()), (error.kind(), error.to_string()));
        assert_eq!(Error::from(failure_of(&error)).kind(), error.kind());
    }
    for refused in [tonic::Status::unauthenticated("who?"), tonic::Status::permission_denied("no")]
    {
        assert_eq!(Error::from(refusal(&refused).unwrap()).kind(), ErrorKind::Denied);
    }
    assert!(refusal(&tonic::Status::unavailable("connection reset")).is_none());
    assert!(refusal(&tonic::Status::unknown("half an answer")).is_none());
}

#[test]
fn locks_survive_conversion() {
    let holder = Holder {
        host: "tau".into(),
        pid: 7,
        user: "anna".into(),
        application: "reco.py".into(),
        since_ms: 9,
    };
    for target in [
        LockTarget::Container(DatabaseId(3), ContainerId(u32::MAX)),
        LockTarget::Database(DatabaseId(3)),
        LockTarget::Allocation(DatabaseId(3)),
        LockTarget::Maintenance,
    ] {
        let held = HeldLock { target, is_shared: false, holder: Some(holder.clone()) };
        assert_eq!(HeldLock::try_from(v1::HeldLock::from(held.clone())).unwrap(), held);
        let waiter = Waiter { target, by: holder.clone(), holder: None };
        assert_eq!(Waiter::try_from(v1::Waiter::from(waiter.clone())).unwrap(), waiter);
    }
    assert!(LockTarget::try_from(v1::Target::default()).is_err());
    assert!(HeldLock::try_from(v1::HeldLock::default()).is_err());
}
