//! A connection's socket, plain or with TLS.
//!
//! 1. A wait for bytes holds no buffer.
//! 2. A client that receives nothing for [`STALLED`] is disconnected.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::sendfile::sendfile;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::auth::CertifiedName;
use crate::protocol::buffers::{BufferPool, PooledBuffer};
use crate::protocol::lingering;
use crate::tls::client_name;

/// How long a client may receive nothing while answers are due.
const STALLED: Duration = Duration::from_secs(300);

/// The bytes are sent together with those that follow. A disconnected client is an error instead of a signal.
const MORE_FOLLOWS: i32 = libc::MSG_MORE | libc::MSG_NOSIGNAL;

/// The longest TLS handshake.
const TLS_HANDSHAKE: Duration = Duration::from_secs(30);

/// The socket of a connection.
pub(super) enum ClientSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// The state during the TLS handshake, and after its failure.
    Lost,
}

impl ClientSocket {
    /// Whether the connection is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, ClientSocket::Tls(_))
    }

    /// The name in the certificate that the client has shown.
    pub(super) fn certified_name(&self) -> io::Result<Option<Arc<CertifiedName>>> {
        match self {
            ClientSocket::Tls(stream) => client_name(stream.get_ref().1),
            _ => Ok(None),
        }
    }

    /// Starts TLS, as the server of the handshake.
    pub(super) async fn encrypt(&mut self, config: Arc<rustls::ServerConfig>) -> io::Result<()> {
        if let ClientSocket::Plain(stream) = std::mem::replace(self, ClientSocket::Lost) {
            let accept = TlsAcceptor::from(config).accept(stream);
            *self = ClientSocket::Tls(Box::new(within(TLS_HANDSHAKE, accept).await?));
        }
        Ok(())
    }

    /// Receives up to `most` bytes; `None` if the client has closed its side.
    pub(super) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        pool: &Arc<BufferPool>,
        most: usize,
    ) -> Poll<io::Result<PooledBuffer>> {
        let mut buffer = pool.take_for(most);
        let mut room = ReadBuf::new(&mut buffer[..most]);
        let polled = match self {
            ClientSocket::Plain(stream) => Pin::new(stream).poll_read(context, &mut room),
            ClientSocket::Tls(stream) => Pin::new(stream).poll_read(context, &mut room),
            ClientSocket::Lost => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        };
        ready!(polled)?;
        let count = room.filled().len();
        buffer.grow(count);
        Poll::Ready(Ok(buffer))
    }

    /// Ready when the kernel has `count` bytes, or as many as it buffers, or the client has closed its side. The task
    /// is not woken before that. Always ready with TLS.
    pub(super) fn poll_arrived(
        &mut self,
        context: &mut Context<'_>,
        count: usize,
    ) -> Poll<io::Result<()>> {
        let ClientSocket::Plain(stream) = self else { return Poll::Ready(Ok(())) };
        wake_for(stream, count);
        let arrived = ready!(poll_readable(stream, context));
        wake_for(stream, 1);
        Poll::Ready(arrived)
    }

    /// Ready when any bytes have arrived, which stay in the kernel, or the client has closed its side.
    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream() {
            Some(stream) => poll_readable(stream, context),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// The socket below TLS.
    fn stream(&self) -> Option<&TcpStream> {
        match self {
            ClientSocket::Plain(stream) => Some(stream),
            ClientSocket::Tls(stream) => Some(stream.get_ref().0),
            ClientSocket::Lost => None,
        }
    }

    /// Sends all of the slices.
    pub(super) async fn send(&mut self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let count = within(STALLED, async {
                match self {
                    ClientSocket::Plain(stream) => stream.write_vectored(slices).await,
                    ClientSocket::Tls(stream) => stream.write_vectored(slices).await,
                    ClientSocket::Lost => Err(io::ErrorKind::NotConnected.into()),
                }
            });
            match count.await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => IoSlice::advance_slices(&mut slices, count),
            }
        }
        // The encrypted bytes may still be buffered.
        match self {
            ClientSocket::Tls(stream) => within(STALLED, stream.flush()).await,
            _ => Ok(()),
        }
    }

    /// Waits until the kernel's send buffer has room. A caller that waits before it reads a piece holds no buffer for a
    /// slow client.
    pub(super) async fn has_room(&self) -> io::Result<()> {
        let ClientSocket::Plain(stream) = self else { return Ok(()) };
        let has_room = || is_ready(stream, PollFlags::POLLOUT);
        within(STALLED, stream.async_io(Interest::WRITABLE, has_room)).await
    }

    /// Whether the client has closed its side, even if not all of its bytes were received yet.
    pub(super) fn is_ended(&self) -> bool {
        let Some(stream) = self.stream() else { return true };
        let ended = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let mut descriptors = [PollFd::new(stream.as_fd(), ended)];
        // Errors and a reset connection are reported even without asking for them.
        poll(&mut descriptors, PollTimeout::ZERO) != Ok(0)
    }

    /// Ends the connection, so that the client gets what was sent, though it has sent more than was received.
    pub(super) async fn end(&mut self) {
        match self {
            ClientSocket::Plain(stream) => lingering::end(stream).await,
            ClientSocket::Tls(stream) => lingering::end(stream.get_mut().0).await,
            ClientSocket::Lost => {}
        }
    }

    /// Whether the kernel can send a file's bytes on this socket.
    pub(super) fn takes_files(&self) -> bool {
        matches!(self, ClientSocket::Plain(_))
    }

    /// Sends a header followed by a file's bytes, which do not pass through this process.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends too early; otherwise those of the socket.
    pub(super) async fn send_file(
        &mut self,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> io::Result<()> {
        let ClientSocket::Plain(stream) = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut left = head;
        while !left.is_empty() {
            let sent = within(
                STALLED,
                stream.async_io(Interest::WRITABLE, || {
                    SockRef::from(&*stream).send_with_flags(left, MORE_FOLLOWS)
                }),
            );
            left = &left[sent.await?..];
        }
        let mut offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let end = offset + count as i64;
        while offset < end {
            let sent = within(
                STALLED,
                stream.async_io(Interest::WRITABLE, || {
                    let mut from = offset;
                    let missing = (end - offset) as usize;
                    Ok(sendfile(&*stream, file, Some(&mut from), missing)?)
                }),
            );
            match sent.await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                sent => offset += sent as i64,
            }
        }
        Ok(())
    }
}

fn poll_readable(stream: &TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        ready!(stream.poll_read_ready(context))?;
        match stream.try_io(Interest::READABLE, || is_ready(stream, PollFlags::POLLIN)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            arrived => return Poll::Ready(arrived),
        }
    }
}

/// Whether the socket is ready now; `WouldBlock` if it is not.
fn is_ready(stream: &TcpStream, what: PollFlags) -> io::Result<()> {
    let mut descriptors = [PollFd::new(stream.as_fd(), what)];
    match poll(&mut descriptors, PollTimeout::ZERO)? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Sets the number of bytes that must have arrived before the socket is readable (`SO_RCVLOWAT`).
fn wake_for(stream: &TcpStream, count: usize) {
    let bytes = libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX);
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    // SAFETY: the number outlives the call, its size is right, and the descriptor is open.
    let set = unsafe {
        libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const bytes).cast(), size)
    };
    // If this fails, the data are only received in smaller pieces.
    let _ = set;
}

/// The outcome, or `TimedOut`. No timer is started if the work completes at once.
async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::pin!(work);
    let at_once = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
    match at_once {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => match tokio::time::timeout(limit, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        },
    }
}
