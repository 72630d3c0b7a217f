//! Malformed and hostile clients: their calls are refused, and no other client notices.

use femtobarn_catalog::{Catalogue, Commit, DatabaseState, LockTarget, NewDatabase};
use femtobarn_rpc::v1::catalogue_client::CatalogueClient;
use femtobarn_rpc::v1::operation::Kind;
use femtobarn_rpc::v1::{
    self, ChangeRequest, ClientTurn, Hello, Operation, PublishRequest, Question,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};
use uuid::Uuid;

use super::{LONG, Stage, until};

pub(super) const FEDERATION: &str = "test.fed";

pub(super) fn hello(session: Vec<u8>) -> ClientTurn {
    let hello = Hello { federation: FEDERATION.into(), session, ..Hello::default() };
    ClientTurn { hello: Some(hello), ..ClientTurn::default() }
}

pub(super) async fn client(stage: &Stage) -> CatalogueClient<Channel> {
    CatalogueClient::connect(format!("http://127.0.0.1:{}", stage.port)).await.unwrap()
}

/// Sends turns; returns the status with which the stream ends.
async fn end_of(client: &mut CatalogueClient<Channel>, turns: Vec<ClientTurn>) -> Status {
    let (sender, receiver) = mpsc::channel(turns.len().max(1));
    for turn in turns {
        sender.send(turn).await.unwrap();
    }
    drop(sender);
    let attended = client.attend(ReceiverStream::new(receiver)).await;
    let mut stream = match attended {
        Ok(stream) => stream.into_inner(),
        Err(status) => return status,
    };
    loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return Status::ok("it ended"),
            Err(status) => return status,
        }
    }
}

#[test]
fn malformed_turn_ends_the_stream() {
    let stage = Stage::new();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let mut client = client(&stage).await;
        let good = || hello(Uuid::new_v4().into_bytes().to_vec());
        let saying =
            |operation| ClientTurn { operations: vec![operation], ..ClientTurn::default() };
        let lock = Operation { kind: Kind::LockShared.into(), number: 1, ..Operation::default() };
        let odd = Operation { kind: 99, ..Operation::default() };
        let many = ClientTurn { operations: vec![lock.clone(); 5000], ..ClientTurn::default() };
        let asking = |operation: &Operation, count| Operation {
            questions: vec![Question::default(); count],
            ..operation.clone()
        };
        let unpin = Operation { kind: Kind::Unpin.into(), ..Operation::default() };
        let unknown = v1::Held { owner: 1, ..v1::Held::default() };
        let mut claiming = good();
        claiming.hello.as_mut().unwrap().locks.push(unknown);
        for turns in [
            vec![],
            vec![ClientTurn::default()],
            vec![hello(vec![])],
            vec![hello(vec![1; 17])],
            vec![claiming],
            vec![good(), good()],
            vec![good(), saying(asking(&lock, 1000))],
            vec![good(), saying(asking(&unpin, 1))],
            vec![good(), saying(lock)],
            vec![good(), saying(odd)],
            vec![good(), saying(unpin)],
            vec![good(), many],
        ] {
            let text = format!("{turns:?}");
            let status = end_of(&mut client, turns).await;
            assert_eq!(status.code(), Code::InvalidArgument, "{status}: {text:.200}");
        }
    });
    let remote = stage.remote();
    stage.publish(&remote, None).unwrap();
}

#[test]
fn malformed_call_is_refused() {
    let stage = Stage::new();
    let runtime = Runtime::new().unwrap();
    let federation = || FEDERATION.to_owned();
    runtime.block_on(async {
        let mut client = client(&stage).await;
        let nothing = Question { federation: federation(), ..Question::default() };
        let status = client.look_up(nothing).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let half = v1::Identified { uuid: vec![1], at: 0 };
        let of = Some(v1::question::Of::DatabaseByUuid(half));
        let status = client
            .look_up(Question { federation: federation(), of, ..Question::default() })
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        for (name, code) in [("../test.fed", Code::PermissionDenied), ("none.fed", Code::NotFound)]
        {
            let of = Some(v1::question::Of::Head(v1::Empty {}));
            let elsewhere = Question { federation: name.into(), of, ..Question::default() };
            assert_eq!(client.look_up(elsewhere).await.unwrap_err().code(), code);
        }
        let nothing = ChangeRequest { federation: federation(), ..ChangeRequest::default() };
        let status = client.change(nothing).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let of = Some(v1::change_request::Of::ReserveContainers(v1::Count { limit: u64::MAX }));
        let many = ChangeRequest { federation: federation(), of, ..ChangeRequest::default() };
        let status = client.change(many).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let stranger = PublishRequest {
            federation: federation(),
            session: vec![7; 16],
            ..PublishRequest::default()
        };
        let status = client.publish(stranger).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
    });
}

#[test]
fn database_path_outside_the_folder_is_refused() {
    let stage = Stage::new();
    let there = stage.remote();
    let id = there.reserve_database().unwrap();
    for path in ["/etc/passwd", "databases/../../x.root", "databases/a/../x", "catalogue.sqlite"] {
        let new = NewDatabase {
            id,
            uuid: Uuid::new_v4(),
            name: "run8".into(),
            path: path.into(),
            state: DatabaseState::Open,
        };
        let error = there.commit(Commit { new_databases: vec![new], ..Commit::default() });
        let error = error.unwrap_err();
        assert!(error.to_string().contains("must be in the folder of databases"), "{error}");
    }
}

#[test]
fn client_that_reads_no_turns_blocks_no_other() {
    let stage = Stage::new();
    let runtime = Runtime::new().unwrap();
    let database = stage.database;
    let other = stage.remote();
    runtime.block_on(async {
        let mut client = client(&stage).await;
        let (sender, receiver) = mpsc::channel(1);
        sender.send(hello(Uuid::new_v4().into_bytes().to_vec())).await.unwrap();
        let _never_read = client.attend(ReceiverStream::new(receiver)).await.unwrap();
        let number = std::cell::Cell::new(0);
        let pair = |owner| {
            let target = Some(v1::Target::from(LockTarget::Container(
                database,
                femtobarn_catalog::ContainerId(owner),
            )));
            number.set(number.get() + 1);
            let lock = Operation {
                kind: Kind::LockExclusive.into(),
                number: number.get(),
                owner: 1,
                target,
                ..Operation::default()
            };
            let unlock = Operation { kind: Kind::Unlock.into(), number: 0, ..lock.clone() };
            [lock, unlock]
        };
        // Until the server stops reading.
        loop {
            let operations = (0..500).flat_map(pair).collect();
            let turn = ClientTurn { operations, ..ClientTurn::default() };
            let sent = sender.send(turn);
            let waited = tokio::time::timeout(std::time::Duration::from_millis(500), sent).await;
            if waited.is_err() {
                break;
            }
        }
        let lock = tokio::task::spawn_blocking(move || {
            let free = femtobarn_catalog::ContainerId(1_000_000);
            drop(other.locks().lock_container(database, free, LONG).unwrap());
        });
        lock.await.unwrap();
    });
    drop(runtime);
    until("leaving", || stage.served().sessions().iter().all(|session| session.locks() == 0));
}
