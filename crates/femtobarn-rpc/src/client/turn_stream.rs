//! The stream of a session's turns by gRPC, for servers without direct connections: the session's task sends and
//! receives the turns.

use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::clock;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::direct::DirectConnection;
use super::ledger::SessionEnded;
use super::session::RemoteSession;
use crate::v1::{ClientTurn, Hello, ServerTurn, Welcome};

/// Largest number of turns that wait to be sent.
const TURNS_MAX: usize = 4;

/// The turns of an opening of the session.
pub(super) enum SessionTurns {
    /// On a direct connection.
    Direct(Arc<DirectConnection>),
    /// gRPC streams: turns from the server, and turns to it.
    Called(Box<Streaming<ServerTurn>>, mpsc::Sender<ClientTurn>),
}

impl RemoteSession {
    /// Opens the session by gRPC.
    ///
    /// # Errors
    /// The [`Status`] of the call; a temporary one if the server sends no welcome in time.
    pub(super) async fn attend(
        &self,
        hello: Hello,
    ) -> std::result::Result<(SessionTurns, Welcome), Status> {
        let (sender, receiver) = mpsc::channel(TURNS_MAX);
        let first = ClientTurn { hello: Some(hello), ..ClientTurn::default() };
        // The channel is empty, so this cannot fail.
        drop(sender.try_send(first));
        let request = self.request(ReceiverStream::new(receiver));
        let mut client = self.client();
        let opening = async {
            let mut turns = client.attend(request).await?.into_inner();
            let first = turns.message().await?.unwrap_or_default();
            let welcome =
                first.welcome.ok_or_else(|| Status::unknown("the server sent no welcome"))?;
            Ok((turns, welcome))
        };
        let late = |_| Status::unavailable("the server sent no welcome in time");
        let opened: std::result::Result<_, Status> =
            tokio::time::timeout(self.patience(), opening).await.map_err(late)?;
        let (turns, welcome) = opened?;
        Ok((SessionTurns::Called(Box::new(turns), sender), welcome))
    }

    /// Sends and receives turns until the session is closed.
    pub(super) async fn exchange_until_broken(
        &self,
        mut turns: Box<Streaming<ServerTurn>>,
        sender: &mpsc::Sender<ClientTurn>,
        lease: Duration,
    ) -> std::result::Result<(), Status> {
        let gone = || Status::unavailable("the server closed the session");
        let mut last_turn = clock::now();
        loop {
            tokio::select! {
                turn = turns.message() => {
                    last_turn = clock::now();
                    let turn = turn?.ok_or_else(gone)?;
                    let over = |SessionEnded| Status::unavailable("the session has ended");
                    self.ledger().settle_all(turn.outcomes).map_err(over)?;
                }
                () = self.queued.notified() => {
                    if self.send_operations(sender).await? {
                        // The server closes the stream when it has ended the session. Before that it may acknowledge
                        // earlier turns: a client that stops reading then may exit before its goodbye is sent.
                        while matches!(turns.message().await, Ok(Some(_))) {}
                        return Ok(());
                    }
                }
                () = tokio::time::sleep(lease / 3) => {
                    if last_turn.elapsed() > lease {
                        return Err(Status::unavailable("the server was silent for a lease"));
                    }
                    sender.send(ClientTurn::default()).await.map_err(|_| gone())?;
                }
            }
        }
    }

    /// Sends all queued operations, and the goodbye if the session is to be closed; returns whether it sent a goodbye.
    async fn send_operations(
        &self,
        sender: &mpsc::Sender<ClientTurn>,
    ) -> std::result::Result<bool, Status> {
        loop {
            let operations = self.ledger().next_operations();
            let goodbye = operations.is_empty() && self.is_close_requested();
            if operations.is_empty() && !goodbye {
                return Ok(false);
            }
            let turn = ClientTurn { operations, goodbye, ..ClientTurn::default() };
            let gone = |_| Status::unavailable("the server closed the session");
            sender.send(turn).await.map_err(gone)?;
            if goodbye {
                return Ok(true);
            }
        }
    }
}
