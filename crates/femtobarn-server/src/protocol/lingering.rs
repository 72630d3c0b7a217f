//! The end of a connection: what its client has sent and nobody reads is taken from it for a moment.
//!
//! The kernel resets a connection that is closed with unread bytes, or that gets some later. Then the client may lose what was
//! sent before, which mostly is why its request was refused.
//!
//! A client that keeps its side open, or goes on to send, has its slot for [`LINGER`] at most.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::listener::ConnectionSlot;

/// How long a client has to close its side.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes that are taken from it meanwhile, at most.
const TAKEN_BYTES_MAX: usize = 4 << 20;
/// Bytes that are taken at once.
const PART: usize = 16 << 10;

/// The socket of a connection, with its slot. When it is dropped, it lingers until its client has closed its side.
pub(super) struct LingeringStream {
    /// None while it is dropped.
    open: Option<(TcpStream, ConnectionSlot)>,
}

impl LingeringStream {
    pub(super) fn new(stream: TcpStream, slot: ConnectionSlot) -> Self {
        LingeringStream { open: Some((stream, slot)) }
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        let (stream, _) = self.open.as_mut().expect("it is not dropped");
        Pin::new(stream)
    }
}

/// Ends a connection: nothing more is sent, and what arrives until the client closes its side is dropped.
pub(super) async fn end(stream: &mut TcpStream) {
    let taken = async {
        stream.shutdown().await?;
        let mut left = TAKEN_BYTES_MAX;
        while left > 0 {
            stream.readable().await?;
            match stream.try_read(&mut [0; PART]) {
                Ok(0) => break,
                Ok(count) => left = left.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        io::Result::Ok(())
    };
    // One that fails is reset, or closed, as it would be without.
    drop(timeout(LINGER, taken).await);
}

impl Drop for LingeringStream {
    fn drop(&mut self) {
        let Some((mut stream, slot)) = self.open.take() else { return };
        let is_closed = matches!(stream.try_read(&mut [0; PART]), Ok(0));
        if !is_closed && let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                end(&mut stream).await;
                drop((stream, slot));
            });
        }
    }
}

impl AsyncRead for LingeringStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for LingeringStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
