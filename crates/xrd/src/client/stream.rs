//! One socket: for threads, where what cannot be done at once blocks, or for tasks, where it waits.
//!
//! All methods are async functions. Those of a socket for threads are ready when they are polled
//! first, since they block meanwhile.
//!
//! One caller reads at a time and one writes at a time; both may at once.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::libc;

#[cfg(feature = "tls")]
use super::tls::Tls;
use super::url::Endpoint;
use super::waiting::Waiter;

/// How long a reader waits before it looks for requests that are late.
const TICK: Duration = Duration::from_secs(1);

/// Bytes for which a thread is woken where many more are to come.
const MUCH_BYTES: usize = 256 << 10;

/// A socket from which much is read at a time, until this is dropped.
struct Patient<'a>(&'a std::net::TcpStream);

impl<'a> Patient<'a> {
    fn new(socket: &'a std::net::TcpStream) -> Self {
        let patient = Patient(socket);
        patient.wait_for(MUCH_BYTES as libc::c_int);
        patient
    }

    /// So many bytes must be there before a thread is woken.
    fn wait_for(&self, bytes: libc::c_int) {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
        // SAFETY: a number that outlives the call, its size, and a descriptor that is open.
        let set = unsafe {
            libc::setsockopt(self.0.as_raw_fd(), level, name, (&raw const bytes).cast(), size)
        };
        // Where it cannot be, threads are woken more often.
        let _ = set;
    }
}

impl Drop for Patient<'_> {
    fn drop(&mut self) {
        self.wait_for(1);
    }
}

/// A connection to a server, secret or not.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    #[cfg(feature = "tls")]
    tls: Option<Box<Tls>>,
}

/// A socket, whose calls block or wait.
#[derive(Debug)]
pub(super) enum Socket {
    Thread(std::net::TcpStream),
    Task(tokio::net::TcpStream),
}

impl Stream {
    /// Connects to any of the server's addresses.
    pub async fn connect(waiter: Waiter, server: &Endpoint, timeout: Duration) -> io::Result<Self> {
        let socket = match waiter {
            Waiter::Thread => Socket::Thread(connect_thread(server, timeout)?),
            Waiter::Task => {
                let address = (server.host.as_str(), server.port);
                let connecting = tokio::net::TcpStream::connect(address);
                let socket =
                    tokio::time::timeout(timeout, connecting).await.map_err(timed_out)??;
                socket.set_nodelay(true)?;
                Socket::Task(socket)
            }
        };
        Ok(Stream {
            socket,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// Makes the connection secret.
    #[cfg(feature = "tls")]
    pub async fn start_tls(&mut self, mut tls: Tls) -> io::Result<()> {
        tls.shake_hands(&self.socket).await?;
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Who waits for answers.
    pub fn waiter(&self) -> Waiter {
        match self.socket {
            Socket::Thread(_) => Waiter::Thread,
            Socket::Task(_) => Waiter::Task,
        }
    }

    /// Reads what is there, waiting for at least one byte; none if nothing came for a while.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.read(&self.socket, buffer).await;
        }
        self.socket.read(buffer).await
    }

    /// As [`Self::read`], into a buffer that all of which is on its way: what comes is waited for until
    /// much of it is there, since each time that a thread is woken costs more than a read.
    pub async fn read_much(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.read(&self.socket, buffer).await;
        }
        if let Socket::Thread(socket) = &self.socket
            && buffer.len() >= 2 * MUCH_BYTES
        {
            let _patient = Patient::new(socket);
            return self.socket.read(buffer).await;
        }
        self.socket.read(buffer).await
    }

    /// Writes all of both, one after the other.
    pub async fn write_all(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            tls.write_all(&self.socket, head).await?;
            return tls.write_all(&self.socket, data).await;
        }
        self.socket.write_all(head, data).await
    }

    /// Ends the connection, whoever reads from it.
    pub fn shut_down(&self) {
        if let Socket::Thread(socket) = &self.socket {
            // What is closed already needs no more.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Whether the server has closed the connection. Nobody else may use it meanwhile.
    pub fn is_closed(&self) -> bool {
        let Socket::Thread(socket) = &self.socket else { return false };
        let peeked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
        let restored = socket.set_nonblocking(false);
        match peeked {
            Ok(count) => count == 0 || restored.is_err(),
            Err(error) => error.kind() != ErrorKind::WouldBlock || restored.is_err(),
        }
    }
}

impl Socket {
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Socket::Thread(socket) => loop {
                match (&*socket).read(buffer) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // What comes when the socket's time is over.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                    other => return other.map(Some),
                }
            },
            Socket::Task(socket) => loop {
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

    pub async fn write_all(&self, mut head: &[u8], mut data: &[u8]) -> io::Result<()> {
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

    async fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Thread(socket) => loop {
                match (&*socket).write_vectored(parts) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    other => return other,
                }
            },
            Socket::Task(socket) => loop {
                socket.writable().await?;
                match socket.try_write_vectored(parts) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    other => return other,
                }
            },
        }
    }
}

fn connect_thread(server: &Endpoint, timeout: Duration) -> io::Result<std::net::TcpStream> {
    let deadline = Instant::now() + timeout;
    let mut failure = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (server.host.as_str(), server.port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
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

/// How long a server may take not a byte of what is written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

fn timed_out(_: impl std::fmt::Debug) -> io::Error {
    ErrorKind::TimedOut.into()
}
