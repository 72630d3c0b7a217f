//! A TCP socket for threads, whose calls block, or for tasks, whose calls wait.
//!
//! All methods are async functions. On a blocking socket their futures are ready at the first poll.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::libc;

use super::call_mode::CallMode;
use super::clock;
use super::endpoint::Endpoint;
use super::options::{AddressFilter, Options};

/// The read timeout, after which the reader checks the timeouts of requests.
const TICK: Duration = Duration::from_secs(1);
/// The time limit for a blocking write that makes no progress.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// The low-water mark for large reads, in bytes.
const LOW_WATER_BYTES: usize = 256 << 10;

/// Raises a socket's receive low-water mark until it is dropped.
struct LowWaterMark<'a>(&'a std::net::TcpStream);

impl<'a> LowWaterMark<'a> {
    fn new(socket: &'a std::net::TcpStream) -> Self {
        let mark = LowWaterMark(socket);
        mark.set(LOW_WATER_BYTES as libc::c_int);
        mark
    }

    /// Makes the kernel wake a reader when this many bytes have arrived.
    fn set(&self, bytes: libc::c_int) {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
        // SAFETY: `bytes` outlives the call, `size` is its size, and the descriptor is open.
        let result = unsafe {
            libc::setsockopt(self.0.as_raw_fd(), level, name, (&raw const bytes).cast(), size)
        };
        // Failure only costs wake-ups.
        let _ = result;
    }
}

impl Drop for LowWaterMark<'_> {
    fn drop(&mut self) {
        self.set(1);
    }
}

const NO_ADDRESS: &str = "the host name has no address";

/// A connected TCP socket.
#[derive(Debug)]
pub(super) enum TcpSocket {
    Thread(std::net::TcpStream),
    Task(tokio::net::TcpStream),
}

impl TcpSocket {
    /// Connects to any of the server's addresses.
    pub(super) async fn connect(
        call_mode: CallMode,
        server: &Endpoint,
        options: &Options,
    ) -> io::Result<Self> {
        let timeout = options.connect_timeout;
        match call_mode {
            CallMode::Thread => Ok(TcpSocket::Thread(connect_blocking(server, options)?)),
            CallMode::Task => {
                let connecting = async {
                    let address = (server.host.as_str(), server.port);
                    let found = tokio::net::lookup_host(address).await?;
                    tokio::net::TcpStream::connect(&*filtered(server, found, options)?).await
                };
                let socket =
                    tokio::time::timeout(timeout, connecting).await.map_err(timed_out)??;
                socket.set_nodelay(true)?;
                Ok(TcpSocket::Task(socket))
            }
        }
    }

    pub(super) fn call_mode(&self) -> CallMode {
        match self {
            TcpSocket::Thread(_) => CallMode::Thread,
            TcpSocket::Task(_) => CallMode::Task,
        }
    }

    /// See [`super::transport::Transport::read_large`].
    pub(super) async fn read_large(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if let TcpSocket::Thread(socket) = self
            && buffer.len() >= 2 * LOW_WATER_BYTES
        {
            let _mark = LowWaterMark::new(socket);
            return self.read(buffer).await;
        }
        self.read(buffer).await
    }

    /// See [`super::transport::Transport::read`].
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            TcpSocket::Thread(socket) => loop {
                match (&*socket).read(buffer) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // The read timeout has passed.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                    other => return other.map(Some),
                }
            },
            TcpSocket::Task(socket) => loop {
                match tokio::time::timeout(TICK, socket.readable()).await {
                    Ok(ready) => ready?,
                    Err(_) => return Ok(None),
                }
                match socket.try_read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    other => return other.map(Some),
                }
            },
        }
    }

    pub(super) async fn write_all(&self, mut head: &[u8], mut data: &[u8]) -> io::Result<()> {
        while !(head.is_empty() && data.is_empty()) {
            let count = match self.write(&[IoSlice::new(head), IoSlice::new(data)]).await? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => count,
            };
            let of_head = count.min(head.len());
            head = &head[of_head..];
            data = &data[count - of_head..];
        }
        Ok(())
    }

    /// Ends the connection, and with it a blocked read.
    pub(super) fn shut_down(&self) {
        if let TcpSocket::Thread(socket) = self {
            // It fails if the connection is closed already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Whether the server has closed the connection. No other caller may use the socket meanwhile. A socket for
    /// tasks has a reader that finds out.
    pub(super) fn is_closed(&self) -> bool {
        let TcpSocket::Thread(socket) = self else { return false };
        let peeked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
        let restored = socket.set_nonblocking(false);
        match peeked {
            Ok(count) => count == 0 || restored.is_err(),
            Err(error) => error.kind() != ErrorKind::WouldBlock || restored.is_err(),
        }
    }

    /// Whether the server is on this machine.
    pub(super) fn is_on_this_machine(&self) -> bool {
        let (server, here) = match self {
            TcpSocket::Thread(socket) => (socket.peer_addr(), socket.local_addr()),
            TcpSocket::Task(socket) => (socket.peer_addr(), socket.local_addr()),
        };
        let (Ok(server), Ok(here)) = (server, here) else { return false };
        server.ip().is_loopback() || server.ip() == here.ip()
    }

    async fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            TcpSocket::Thread(socket) => loop {
                match (&*socket).write_vectored(parts) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    other => return other,
                }
            },
            TcpSocket::Task(socket) => loop {
                socket.writable().await?;
                match socket.try_write_vectored(parts) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    other => return other,
                }
            },
        }
    }
}

fn connect_blocking(server: &Endpoint, options: &Options) -> io::Result<std::net::TcpStream> {
    let deadline = clock::now() + options.connect_timeout;
    let mut failure = io::Error::new(ErrorKind::NotFound, NO_ADDRESS);
    let found = (server.host.as_str(), server.port).to_socket_addrs()?;
    for address in filtered(server, found, options)? {
        let left = deadline.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Err(timed_out(failure));
        }
        match std::net::TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(TICK))?;
                socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
                return Ok(socket);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The addresses of a server that may be connected to.
///
/// # Errors
/// Of kind [`ErrorKind::PermissionDenied`] if the filter refuses all.
fn filtered(
    server: &Endpoint,
    found: impl Iterator<Item = SocketAddr>,
    options: &Options,
) -> io::Result<Vec<SocketAddr>> {
    let Some(AddressFilter(filter)) = &options.filter else { return Ok(found.collect()) };
    let mut refusal = NO_ADDRESS.to_owned();
    let allowed = found.filter(|address| match filter(&server.host, address.ip()) {
        Ok(()) => true,
        Err(why) => {
            refusal = why;
            false
        }
    });
    let allowed: Vec<_> = allowed.collect();
    if allowed.is_empty() {
        return Err(io::Error::new(ErrorKind::PermissionDenied, refusal));
    }
    Ok(allowed)
}

fn timed_out(_: impl std::fmt::Debug) -> io::Error {
    ErrorKind::TimedOut.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_allowed_addresses_are_left() {
        let server = Endpoint { host: "x".to_owned(), port: 1094 };
        let found = ["127.0.0.1:1094", "192.0.2.1:1094"].map(|text| text.parse().unwrap());
        let all = filtered(&server, found.into_iter(), &Options::default()).unwrap();
        assert_eq!(all, found);
        let refuse = |host: &str, address: std::net::IpAddr| {
            if address.is_loopback() { Err(format!("{host} is here")) } else { Ok(()) }
        };
        let filter = Some(AddressFilter(Arc::new(refuse)));
        let options = Options { filter, ..Options::default() };
        assert_eq!(filtered(&server, found.into_iter(), &options).unwrap(), found[1..]);
        let none = filtered(&server, found.into_iter().take(1), &options).unwrap_err();
        assert_eq!(
            (none.kind(), none.to_string().as_str()),
            (ErrorKind::PermissionDenied, "x is here")
        );
    }
}
