//! A byte stream to a server, encrypted or not.
//!
//! One caller reads at a time and one writes at a time; a reader and a writer may overlap.

use std::io;
#[cfg(feature = "tls")]
use std::time::Instant;

use super::call_mode::CallMode;
use super::endpoint::Endpoint;
use super::options::Options;
use super::socket::TcpSocket;
#[cfg(feature = "tls")]
use super::tls::TlsSession;

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Transport {
    socket: TcpSocket,
    #[cfg(feature = "tls")]
    tls: Option<Box<TlsSession>>,
}

impl Transport {
    /// Connects to any of the server's addresses.
    pub(super) async fn connect(
        call_mode: CallMode,
        server: &Endpoint,
        options: &Options,
    ) -> io::Result<Self> {
        Ok(Transport {
            socket: TcpSocket::connect(call_mode, server, options).await?,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// Performs the TLS handshake. All later bytes are encrypted.
    #[cfg(feature = "tls")]
    pub(super) async fn start_tls(
        &mut self,
        mut tls: TlsSession,
        deadline: Instant,
    ) -> io::Result<()> {
        tls.handshake(&self.socket, deadline).await?;
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    pub(super) fn call_mode(&self) -> CallMode {
        self.socket.call_mode()
    }

    /// Reads at least one byte, or returns none if no byte arrived for about a second.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.read(&self.socket, buffer).await;
        }
        self.socket.read(buffer).await
    }

    /// Like [`Self::read`], for a large buffer whose bytes the server is sending: a blocking socket waits for many of
    /// them at a time, since waking a thread costs more than reading.
    pub(super) async fn read_large(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.read(&self.socket, buffer).await;
        }
        self.socket.read_large(buffer).await
    }

    /// Writes all of `head`, then all of `data`.
    pub(super) async fn write_all(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            tls.write_all(&self.socket, head).await?;
            return tls.write_all(&self.socket, data).await;
        }
        self.socket.write_all(head, data).await
    }

    /// Ends the connection, and with it a blocked read.
    pub(super) fn shut_down(&self) {
        self.socket.shut_down();
    }

    /// See [`TcpSocket::is_on_this_machine`].
    pub(super) fn is_on_this_machine(&self) -> bool {
        self.socket.is_on_this_machine()
    }

    /// See [`TcpSocket::is_closed`].
    pub(super) fn is_closed(&self) -> bool {
        self.socket.is_closed()
    }
}
