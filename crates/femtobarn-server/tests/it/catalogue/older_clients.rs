//! Clients of the first release: by gRPC alone, without questions beside operations, bytes beside commits, or several servers.

use femtobarn_catalog::{Commit, Csn, LockTarget};
use femtobarn_rpc::v1::catalogue_client::CatalogueClient;
use femtobarn_rpc::v1::operation::Kind;
use femtobarn_rpc::v1::question::Of;
use femtobarn_rpc::v1::{
    ClientTurn, Numbered, Operation, Outcome, PublishRequest, Question, ServerTurn,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use uuid::Uuid;

use super::Stage;
use super::hostile::{FEDERATION, client, hello};

/// The outcomes of the next operations.
async fn outcomes(turns: &mut Streaming<ServerTurn>, count: usize) -> Vec<Outcome> {
    let mut all = vec![];
    while all.len() < count {
        all.extend(turns.message().await.unwrap().unwrap().outcomes);
    }
    all
}

/// Publishes a commit as a release without the newer fields does; returns its number.
async fn publish(
    client: &mut CatalogueClient<Channel>,
    session: &[u8],
    commit: &Commit,
    again: bool,
) -> u64 {
    let whole = PublishRequest::try_from(commit).unwrap();
    let request = PublishRequest {
        federation: FEDERATION.to_owned(),
        session: session.to_vec(),
        again,
        commit: whole.commit,
        ..PublishRequest::default()
    };
    client.publish(request).await.unwrap().into_inner().csn
}

#[test]
fn a_client_that_knows_nothing_newer_locks_commits_and_reads() {
    let stage = Stage::new();
    Runtime::new().unwrap().block_on(async {
        let mut client = client(&stage).await;
        let session = Uuid::new_v4().into_bytes().to_vec();
        let (sender, receiver) = mpsc::channel(4);
        sender.send(hello(session.clone())).await.unwrap();
        let mut turns = client.attend(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        let welcome = turns.message().await.unwrap().unwrap().welcome.unwrap();
        assert_eq!((welcome.head, welcome.read_only), (1, false));

        let lock = |number, kind: Kind, target: LockTarget| Operation {
            kind: kind.into(),
            number,
            owner: 1,
            target: Some(target.into()),
            ..Operation::default()
        };
        let database = LockTarget::Database(stage.database);
        let container = LockTarget::Container(stage.database, stage.container);
        let pin = Operation { kind: Kind::Pin.into(), number: 3, ..Operation::default() };
        let operations =
            vec![lock(1, Kind::LockShared, database), lock(2, Kind::LockExclusive, container), pin];
        sender.send(ClientTurn { operations, ..ClientTurn::default() }).await.unwrap();
        for outcome in outcomes(&mut turns, 3).await {
            assert!(outcome.failure.is_none() && outcome.answers.is_empty(), "{outcome:?}");
        }

        let commit = stage.version(None);
        let csn = publish(&mut client, &session, &commit, false).await;
        assert_eq!(publish(&mut client, &session, &commit, true).await, csn);
        let newest =
            Numbered { database: stage.database.0, container: stage.container.0, at: Csn::MAX.0 };
        let question = Question {
            federation: FEDERATION.to_owned(),
            of: Some(Of::Version(newest)),
            session: vec![],
        };
        let mut answers = client.look_up(question).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!(answer.versions.iter().map(|row| row.csn).collect::<Vec<_>>(), [csn]);

        sender.send(ClientTurn { goodbye: true, ..ClientTurn::default() }).await.unwrap();
        while turns.message().await.unwrap().is_some() {}
    });
    assert!(stage.served().sessions().is_empty());
}
