//! Direct connections: a client of HTTP/1.1 asks that its connection carry only the turns of a session. Its requests
//! then cost neither HTTP/2 nor a task for each. `docs/protocol.md` specifies them.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::ready;

use axum::extract::{Request, State};
use axum::response::Response;
use femtobarn_rpc::convert::{call_status, status_of};
use femtobarn_rpc::turns::{TURNS_PROTOCOL, TurnDecoder, turn_bytes};
use femtobarn_rpc::v1::{ClientTurn, ServerTurn};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::Service;
use super::session_stream::{self, Turns};
use crate::protocol::listener::{ConnectionClaim, Peer};

/// Bytes of one receive call.
const RECEIVED_BYTES: usize = 16 << 10;

/// Makes the connection of a request a direct one, if the request asks for that.
pub(super) async fn begin(State(endpoint): State<Service>, mut request: Request) -> Response {
    let asks = request.headers().get(UPGRADE).is_some_and(|it| it == TURNS_PROTOCOL);
    let upgrade = request.extensions_mut().remove::<OnUpgrade>().filter(|_| asks);
    let status = if let Some(upgrade) = upgrade {
        let claim = request.extensions_mut().remove::<ConnectionClaim>();
        let metadata = MetadataMap::from_headers(std::mem::take(request.headers_mut()));
        let caller = (metadata, request.extensions().get::<Peer>().cloned());
        tokio::spawn(async move {
            match upgrade.await {
                Ok(stream) => {
                    let turns = DirectTurns::new(stream);
                    session_stream::serve(&endpoint, caller, turns).await;
                }
                Err(error) => tracing::debug!(%error, "connection lost"),
            }
            drop(claim);
        });
        StatusCode::SWITCHING_PROTOCOLS
    } else {
        StatusCode::UPGRADE_REQUIRED
    };
    let mut answer = Response::default();
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.headers_mut().insert(UPGRADE, HeaderValue::from_static(TURNS_PROTOCOL));
    answer
}

/// The turns of a direct connection.
struct DirectTurns {
    stream: TokioIo<Upgraded>,
    decoder: TurnDecoder,
    /// Whether a turn was sent in part, so that no other turn can follow.
    is_cut: bool,
}

impl DirectTurns {
    fn new(stream: Upgraded) -> Self {
        let (stream, decoder) = (TokioIo::new(stream), TurnDecoder::default());
        DirectTurns { stream, decoder, is_cut: false }
    }

    /// Receives some bytes; returns false at the end. No buffer is held while none arrive.
    async fn receive_bytes(&mut self) -> io::Result<bool> {
        poll_fn(|context| {
            let mut bytes = [0; RECEIVED_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            self.decoder.push(buffer.filled());
            Ok(!buffer.filled().is_empty()).into()
        })
        .await
    }
}

impl Turns for DirectTurns {
    const HAS_CALLS: bool = true;

    async fn next(&mut self) -> Result<Option<ClientTurn>, Status> {
        loop {
            let turn = self.decoder.next_turn().map_err(|error| status_of(&error))?;
            let broken = |error: io::Error| Status::cancelled(error.to_string());
            if turn.is_some() || !self.receive_bytes().await.map_err(broken)? {
                return Ok(turn);
            }
        }
    }

    async fn send(&mut self, turn: Result<ServerTurn, Status>) -> Result<(), Status> {
        let turn = turn.unwrap_or_else(|status| ServerTurn {
            end: Some(call_status(&status)),
            ..ServerTurn::default()
        });
        let bytes = turn_bytes(&turn).map_err(|error| status_of(&error))?;
        // The flag stays set if this future is dropped because the client does not read.
        if std::mem::replace(&mut self.is_cut, true) {
            return Err(Status::cancelled("the client did not read the turn before"));
        }
        let sent = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|error| Status::cancelled(error.to_string()))?;
        self.is_cut = false;
        Ok(())
    }
}
