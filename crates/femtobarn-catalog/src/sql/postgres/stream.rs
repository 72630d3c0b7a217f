//! The socket of a connection, plain or encrypted.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::sockopt;
use rustls::{ClientConnection, StreamOwned};

use super::address::{PostgresAddress, TlsMode};
use super::failure::Cause;
use super::tls;

/// Time within which a server must send an answer, or a part of a long one. A statement waits no longer for a lock than
/// [`BUSY_WAIT`](crate::sql::BUSY_WAIT).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// After this time without an acknowledgement the kernel gives a connection up.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
/// An idle connection is probed after this time, and then as often.
const PROBE: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// A connected socket.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects to a host, or to the socket in a folder. Until [`end_log_in`](Self::end_log_in), each answer has the time
    /// for connecting.
    pub(super) fn connect(address: &PostgresAddress, host: &str, port: u16) -> Result<Self, Cause> {
        let socket = connected(address, host, port).map_err(|error| Cause::of_socket(&error))?;
        let mut socket = match socket {
            Stream::Tcp(socket) if address.tls != TlsMode::Disable => socket,
            plain => return Ok(plain),
        };
        Ok(match tls::encrypt(&mut socket, address, host)? {
            Some(client) => Stream::Tls(Box::new(StreamOwned::new(client, socket))),
            None => Stream::Tcp(socket),
        })
    }

    /// Whether the socket is encrypted or local, so that no third party can read the bytes.
    pub(super) fn is_private(&self) -> bool {
        !matches!(self, Stream::Tcp(_))
    }

    /// Whether the other end has closed the connection.
    pub(super) fn has_ended(&self) -> bool {
        let ended = PollFlags::from_bits_retain(libc::POLLRDHUP);
        poll(&mut [PollFd::new(self.socket(), ended)], PollTimeout::ZERO).is_ok_and(|ends| ends > 0)
    }

    fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(socket) => socket.as_fd(),
            Stream::Tcp(socket) => socket.as_fd(),
            Stream::Tls(tls) => tls.sock.as_fd(),
        }
    }

    /// Gives the server the time for statements.
    pub(super) fn end_log_in(&self) -> io::Result<()> {
        match self {
            Stream::Unix(socket) => set_timeout(socket, UnixStream::set_read_timeout),
            Stream::Tcp(socket) => set_timeout(socket, TcpStream::set_read_timeout),
            Stream::Tls(tls) => set_timeout(&tls.sock, TcpStream::set_read_timeout),
        }
    }
}

fn set_timeout<S>(
    socket: &S,
    set: impl Fn(&S, Option<Duration>) -> io::Result<()>,
) -> io::Result<()> {
    set(socket, Some(ANSWER_TIMEOUT))
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(socket) => socket.read(into),
            Stream::Tcp(socket) => socket.read(into),
            Stream::Tls(tls) => tls.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(socket) => socket.write(from),
            Stream::Tcp(socket) => socket.write(from),
            Stream::Tls(tls) => tls.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Unix(socket) => socket.flush(),
            Stream::Tcp(socket) => socket.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

/// A socket that is not encrypted.
fn connected(address: &PostgresAddress, host: &str, port: u16) -> io::Result<Stream> {
    let time = address.connect_timeout;
    if host.starts_with('/') {
        let socket = UnixStream::connect(Path::new(host).join(format!(".s.PGSQL.{port}")))?;
        socket.set_read_timeout(Some(time))?;
        socket.set_write_timeout(Some(time))?;
        return Ok(Stream::Unix(socket));
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for place in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, time) {
            Ok(socket) => {
                prepare(&socket, time)?;
                return Ok(Stream::Tcp(socket));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn prepare(socket: &TcpStream, time: Duration) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(time))?;
    socket.set_write_timeout(Some(time))?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, PROBE)?;
    sockopt::set_tcp_keepintvl(socket, PROBE)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED.as_millis() as u32)?;
    Ok(())
}
