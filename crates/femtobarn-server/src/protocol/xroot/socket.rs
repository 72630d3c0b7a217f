//! A connection's socket, plain or with TLS.
//!
//! 1. Whoever waits for bytes holds no buffer meanwhile.
//! 2. A client that takes nothing for [`STALLED`] is let go.

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

use crate::protocol::buffers::{Buffer, BufferPool};

/// How long a client may take nothing of what is sent to it.
const STALLED: Duration = Duration::from_secs(300);

/// What is sent goes out together with what follows; a client that is gone is an error, no signal.
const MORE_FOLLOWS: i32 = libc::MSG_MORE | libc::MSG_NOSIGNAL;

/// How long a client may take to agree on keys.
const TLS_HANDSHAKE: Duration = Duration::from_secs(30);

/// What bytes come from and go to.
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// Between the two, and after a failed handshake.
    Lost,
}

impl Socket {
    /// Whether nobody on the way can read along.
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// Goes on with TLS; the client speaks first.
    pub(super) async fn encrypt(&mut self, config: Arc<rustls::ServerConfig>) -> io::Result<()> {
        if let Socket::Plain(stream) = std::mem::replace(self, Socket::Lost) {
            let accept = TlsAcceptor::from(config).accept(stream);
            *self = Socket::Tls(Box::new(within(TLS_HANDSHAKE, accept).await?));
        }
        Ok(())
    }

    /// Some bytes, `most` of them; none if the client has sent its last.
    pub(super) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        pool: &Arc<BufferPool>,
        most: usize,
    ) -> Poll<io::Result<Buffer>> {
        let mut buffer = pool.take_for(most);
        let mut room = ReadBuf::new(&mut buffer[..most]);
        let polled = match self {
            Socket::Plain(stream) => Pin::new(stream).poll_read(context, &mut room),
            Socket::Tls(stream) => Pin::new(stream).poll_read(context, &mut room),
            Socket::Lost => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        };
        ready!(polled)?;
        let count = room.filled().len();
        buffer.grow(count);
        Poll::Ready(Ok(buffer))
    }

    /// Comes when so many bytes are there, or as many as the kernel takes, or the client has sent its last.
    /// Until then nobody is woken. Encrypted bytes are not waited for.
    pub(super) fn poll_arrived(
        &mut self,
        context: &mut Context<'_>,
        count: usize,
    ) -> Poll<io::Result<()>> {
        let Socket::Plain(stream) = self else { return Poll::Ready(Ok(())) };
        wake_for(stream, count);
        let arrived = ready!(poll_readable(stream, context));
        wake_for(stream, 1);
        Poll::Ready(arrived)
    }

    /// Comes when anything is there, which is left there, or the client has sent its last.
    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream() {
            Some(stream) => poll_readable(stream, context),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// The socket below TLS.
    fn stream(&self) -> Option<&TcpStream> {
        match self {
            Socket::Plain(stream) => Some(stream),
            Socket::Tls(stream) => Some(stream.get_ref().0),
            Socket::Lost => None,
        }
    }

    /// Sends all of the slices.
    pub(super) async fn send(&mut self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let count = within(STALLED, async {
                match self {
                    Socket::Plain(stream) => stream.write_vectored(slices).await,
                    Socket::Tls(stream) => stream.write_vectored(slices).await,
                    Socket::Lost => Err(io::ErrorKind::NotConnected.into()),
                }
            });
            match count.await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => IoSlice::advance_slices(&mut slices, count),
            }
        }
        // What TLS made of it may not have gone yet.
        match self {
            Socket::Tls(stream) => within(STALLED, stream.flush()).await,
            _ => Ok(()),
        }
    }

    /// Waits until the client has taken so much that a piece can be sent in one go: who waits here before
    /// reading the piece holds no buffer for slow clients.
    pub(super) async fn has_room(&self) -> io::Result<()> {
        let Socket::Plain(stream) = self else { return Ok(()) };
        let has_room = || is_ready(stream, PollFlags::POLLOUT);
        within(STALLED, stream.async_io(Interest::WRITABLE, has_room)).await
    }

    /// Whether the client has sent its last, be there bytes that were not received yet or not.
    pub(super) fn is_ended(&self) -> bool {
        let Some(stream) = self.stream() else { return true };
        let ended = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let mut descriptors = [PollFd::new(stream.as_fd(), ended)];
        // Errors and a connection that was reset are told unasked.
        poll(&mut descriptors, PollTimeout::ZERO) != Ok(0)
    }

    /// Whether the kernel can send a file's bytes.
    pub(super) fn takes_files(&self) -> bool {
        matches!(self, Socket::Plain(_))
    }

    /// Sends a head, and behind it a file's bytes, which the kernel moves.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
    pub(super) async fn send_file(
        &mut self,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> io::Result<()> {
        let Socket::Plain(stream) = self else { return Err(io::ErrorKind::Unsupported.into()) };
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

/// Whether the kernel says so now; `WouldBlock` if it does not.
fn is_ready(stream: &TcpStream, what: PollFlags) -> io::Result<()> {
    let mut descriptors = [PollFd::new(stream.as_fd(), what)];
    match poll(&mut descriptors, PollTimeout::ZERO)? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// So many bytes must be there before the socket is said to be readable.
fn wake_for(stream: &TcpStream, count: usize) {
    let bytes = libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX);
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    // SAFETY: a number that outlives the call, its size, and a descriptor that is open.
    let set = unsafe {
        libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const bytes).cast(), size)
    };
    // Where it cannot be, what is there is taken in smaller pieces.
    let _ = set;
}

/// The outcome, unless it takes too long. No timer is started for what is done at once.
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
