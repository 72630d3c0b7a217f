//! A session with the catalogue that locks containers of its own and unlocks them, many in one turn.

use femtobarn_bench::Outcome;
use femtobarn_rpc::v1::catalogue_client::CatalogueClient;
use femtobarn_rpc::v1::operation::Kind;
use femtobarn_rpc::v1::target;
use femtobarn_rpc::v1::{ClientTurn, Hello, Operation, ServerTurn, Target};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use uuid::Uuid;

/// A session.
pub(crate) struct Locks {
    to_server: mpsc::Sender<ClientTurn>,
    from_server: Streaming<ServerTurn>,
    turn: ClientTurn,
    count: u32,
}

impl Locks {
    /// Opens a session with the server of a federation. Sessions with other numbers lock other containers.
    pub(crate) async fn open(
        address: &str,
        federation: &str,
        number: u64,
        count: u32,
    ) -> Outcome<Self> {
        let mut client = CatalogueClient::connect(format!("http://{address}")).await?;
        let (to_server, turns) = mpsc::channel(2);
        let session = Uuid::new_v4().into_bytes().to_vec();
        let federation = federation.trim_matches('/').to_owned();
        let hello = Hello { federation, session, ..Hello::default() };
        to_server.send(ClientTurn { hello: Some(hello), ..ClientTurn::default() }).await?;
        let mut from_server = client.attend(ReceiverStream::new(turns)).await?.into_inner();
        from_server.message().await?.ok_or("the session was not welcomed")?;
        let turn =
            ClientTurn { operations: operations(number as u32, count), ..Default::default() };
        Ok(Locks { to_server, from_server, turn, count })
    }

    /// Locks and unlocks, and waits until each lock was granted; returns how many were.
    pub(crate) async fn ask(&mut self) -> Outcome<u64> {
        self.to_server.send(self.turn.clone()).await?;
        let mut granted = 0;
        while granted < self.count as usize {
            let turn = self.from_server.message().await?.ok_or("the session ended")?;
            if let Some(failure) = turn.outcomes.iter().find_map(|it| it.failure.as_ref()) {
                return Err(format!("a lock was refused: {failure:?}").into());
            }
            granted += turn.outcomes.len();
        }
        Ok(u64::from(self.count))
    }
}

/// All locks, then all unlocks, which the server does not answer.
fn operations(session: u32, count: u32) -> Vec<Operation> {
    let operation = |kind: Kind, number: u32, answered_as: u32| Operation {
        kind: kind.into(),
        number: answered_as.into(),
        owner: 1,
        target: Some(container(session * count + number)),
        ..Operation::default()
    };
    let locks = (0..count).map(|number| operation(Kind::LockExclusive, number, number + 1));
    let unlocks = (0..count).map(|number| operation(Kind::Unlock, number, 0));
    locks.chain(unlocks).collect()
}

fn container(number: u32) -> Target {
    Target { kind: target::Kind::Container.into(), database: 1, container: number }
}
