//! One TCP connection of a session: its transport, its framer, and its setup.

use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::attempt_error::AttemptError;
use super::call_mode::CallMode;
use super::clock;
use super::endpoint::Endpoint;
use super::options::Options;
use super::requests::CurrentPart;
use super::session_setup::{SessionSetup, SetupStep};
use super::transport::Transport;
use crate::framing::{ResponseEvent, ResponseFramer};

/// Bytes of the receive buffer.
const INPUT_BYTES: usize = 64 * 1024;

/// One TCP connection of a session.
#[derive(Debug)]
pub(super) struct Channel {
    pub transport: Transport,
    pub receive: tokio::sync::Mutex<ReceiveState>,
    pub writing: tokio::sync::Mutex<()>,
}

/// The state of the reader of a channel.
#[derive(Debug)]
pub(super) struct ReceiveState {
    pub framer: ResponseFramer,
    pub current: CurrentPart,
    /// The receive buffer. Received bytes are split off its front.
    pub room: BytesMut,
}

impl ReceiveState {
    /// The free part of the receive buffer, at least a quarter of it.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.room.len() < INPUT_BYTES / 4 {
            self.room = BytesMut::zeroed(INPUT_BYTES);
        }
        &mut self.room
    }
}

impl Channel {
    /// Connects and runs the setup.
    pub(super) async fn open(
        call_mode: CallMode,
        server: &Endpoint,
        options: &Options,
        setup: &mut SessionSetup<'_>,
    ) -> Result<Self, AttemptError> {
        let deadline = clock::now() + options.connect_timeout;
        let connected = Transport::connect(call_mode, server, options).await;
        let mut transport =
            connected.map_err(|error| AttemptError::Unreachable(error.to_string()))?;
        let mut receive = ReceiveState {
            framer: ResponseFramer::new(),
            current: CurrentPart::default(),
            room: BytesMut::new(),
        };
        let mut input = Bytes::new();
        let mut step = SetupStep::Send(setup.initial_bytes()?);
        loop {
            step = match step {
                SetupStep::Ready => break,
                _ if clock::now() >= deadline => {
                    return Err(AttemptError::Unreachable("no answer to the login".to_owned()));
                }
                SetupStep::StartTls => {
                    start_tls(&mut transport, server, options, setup, deadline).await?;
                    setup.on_tls_started()?
                }
                SetupStep::Send(bytes) => {
                    transport.write_all(&bytes, &[]).await.map_err(unreachable)?;
                    SetupStep::Receive
                }
                SetupStep::Receive => {
                    receive_setup(&transport, &mut receive, &mut input, setup).await?
                }
            };
        }
        // Messages behind the setup's last answer belong to no request.
        while receive.framer.next(&mut input)?.is_some() {}
        receive.framer.stream_all();
        Ok(Channel {
            transport,
            receive: tokio::sync::Mutex::new(receive),
            writing: tokio::sync::Mutex::new(()),
        })
    }
}

/// Takes the next response of the setup, or receives more bytes of it.
async fn receive_setup(
    transport: &Transport,
    receive: &mut ReceiveState,
    input: &mut Bytes,
    setup: &mut SessionSetup<'_>,
) -> Result<SetupStep, AttemptError> {
    if let Some(ResponseEvent::Response(received)) = receive.framer.next(input)? {
        return setup.on_response(received.response?);
    }
    let read = transport.read(receive.room()).await;
    match read.map_err(|error| refused_or_unreachable(error, setup))? {
        Some(0) => {
            return Err(AttemptError::Unreachable("connection closed by the server".to_owned()));
        }
        Some(count) => *input = receive.room.split_to(count).freeze(),
        None => {}
    }
    Ok(SetupStep::Receive)
}

/// A server that refuses the client's certificate would refuse it again.
#[cfg(feature = "tls")]
fn refused_or_unreachable(error: std::io::Error, setup: &SessionSetup<'_>) -> AttemptError {
    match super::tls::refusal(&error) {
        Some(refusal) => AttemptError::Distrust(explained(refusal, setup)),
        None => unreachable(error),
    }
}

/// Why TLS failed, and, if the client has a certificate that cannot be used, why.
#[cfg(feature = "tls")]
fn explained(what: String, setup: &SessionSetup<'_>) -> String {
    [&[what][..], &setup.refusals].concat().join("; ")
}

#[cfg(not(feature = "tls"))]
fn refused_or_unreachable(error: std::io::Error, _: &SessionSetup<'_>) -> AttemptError {
    unreachable(error)
}

#[cfg(feature = "tls")]
async fn start_tls(
    transport: &mut Transport,
    server: &Endpoint,
    options: &Options,
    setup: &mut SessionSetup<'_>,
    deadline: Instant,
) -> Result<(), AttemptError> {
    let (host, trusted) = (server.host.clone(), options.clone());
    let reading = move || super::tls::TlsSession::new(&host, &trusted);
    // Certificates are read from a disk, for which no task may wait.
    let tls = match transport.call_mode() {
        CallMode::Thread => reading(),
        CallMode::Task => {
            let read = tokio::task::spawn_blocking(reading).await;
            read.unwrap_or_else(|ended| Err(std::io::Error::other(ended)))
        }
    };
    let started = async {
        let mut tls = tls?;
        setup.refusals.extend(tls.without_certificate.take());
        transport.start_tls(tls, deadline).await
    };
    started.await.map_err(|error| {
        if super::tls::is_distrust(&error) {
            let what = format!(
                "TLS: {error}; SSL_CERT_FILE and X509_CERT_DIR name certificates that are trusted"
            );
            AttemptError::Distrust(explained(what, setup))
        } else {
            AttemptError::Unreachable(format!("TLS: {error}"))
        }
    })
}

#[cfg(not(feature = "tls"))]
async fn start_tls(
    _: &mut Transport,
    _: &Endpoint,
    _: &Options,
    _: &mut SessionSetup<'_>,
    _: Instant,
) -> Result<(), AttemptError> {
    Err(AttemptError::Login("this client was built without TLS".to_owned()))
}

/// Before the setup has ended, no request was sent.
pub(super) fn unreachable(error: std::io::Error) -> AttemptError {
    AttemptError::Unreachable(error.to_string())
}
