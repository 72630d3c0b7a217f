//! The socket of a direct connection, plain or with TLS, for threads that block.
//!
//! **Invariant:** TLS is not locked while a thread waits for the socket, so that one thread can write while another one
//! reads.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{clock, interrupts};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::address::Address;
use super::options::ConnectOptions;

/// Bytes of one read.
pub(super) const READ_BYTES: usize = 16 << 10;

/// A connected socket. One thread at a time may write, and one may read.
#[derive(Debug)]
pub(super) struct DirectSocket {
    socket: TcpStream,
    tls: Option<Mutex<Tls>>,
}

#[derive(Debug)]
struct Tls {
    connection: ClientConnection,
    /// Bytes that have arrived and are not decrypted yet: TLS accepts no more while a decrypted record is unread.
    arrived: VecDeque<u8>,
}

impl DirectSocket {
    /// Connects to a server, with TLS if its address demands that.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::TimedOut`] if the server does not answer in time; errors of the system and of TLS.
    pub(super) fn connect(
        address: &Address,
        options: &ConnectOptions,
        timeout: Duration,
    ) -> io::Result<Self> {
        let host = address.host.trim_start_matches('[').trim_end_matches(']');
        let mut socket = connect(host, address.port, timeout)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))?;
        if !address.is_encrypted {
            return Ok(DirectSocket { socket, tls: None });
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(Arc::new(tls_config(options)?), name)
            .map_err(io::Error::other)?;
        tls.set_buffer_limit(None);
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).map_err(timed_out)?;
        }
        let tls = Tls { connection: tls, arrived: VecDeque::new() };
        Ok(DirectSocket { socket, tls: Some(Mutex::new(tls)) })
    }

    /// Limits each later call of [`read`](Self::read) and [`write`](Self::write).
    pub(super) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))?;
        self.socket.set_write_timeout(Some(timeout))
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::TimedOut`] if the server accepts no byte in time; errors of the system.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else {
            return (&self.socket).write_all(bytes).map_err(timed_out);
        };
        let mut encrypted = vec![];
        {
            let mut tls = tls.lock();
            tls.connection.writer().write_all(bytes)?;
            while tls.connection.wants_write() {
                tls.connection.write_tls(&mut encrypted)?;
            }
        }
        (&self.socket).write_all(&encrypted).map_err(timed_out)
    }

    /// Reads the bytes that have arrived, or waits for some; 0 at the end.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::TimedOut`] if nothing arrives in time; [`ErrorKind::Interrupted`] if a signal arrives and
    /// the caller ends the wait ([`interrupts`]); errors of the system and of TLS.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return self.read_socket(buffer) };
        loop {
            match tls.lock().read_arrived(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            let mut encrypted = [0; READ_BYTES];
            let count = self.read_socket(&mut encrypted)?;
            if count == 0 {
                return Ok(0);
            }
            tls.lock().arrived.extend(&encrypted[..count]);
        }
    }

    fn read_socket(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.socket).read(buffer) {
                Err(error)
                    if error.kind() == ErrorKind::Interrupted && !interrupts::note_signal() => {}
                other => return other.map_err(timed_out),
            }
        }
    }

    /// Waits until the server closes the connection, at most for `wait`; returns whether it did. Bytes that arrive
    /// meanwhile wake only the thread that reads them.
    pub(super) fn is_closed_within(&self, wait: Duration) -> bool {
        let closed = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.socket_fd(), closed)], wait) {
            Ok(count) => count > 0,
            // A signal ends the wait early, which does no harm.
            Err(error) => error != nix::errno::Errno::EINTR,
        }
    }

    fn socket_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.socket)
    }

    /// Ends the connection, and all reads and writes on it.
    pub(super) fn shut_down(&self) {
        // It fails if the connection is closed already.
        drop(self.socket.shutdown(Shutdown::Both));
    }
}

impl Tls {
    /// Decrypts the bytes that have arrived; 0 at the end.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::WouldBlock`] if more bytes are needed; errors of TLS.
    fn read_arrived(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.arrived.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.connection.read_tls(&mut self.arrived)?;
            self.connection.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

fn connect(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let deadline = clock::now() + timeout;
    let mut failure = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    for (place, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(clock::now());
        // Each address gets an equal share of the remaining time, so one that does not answer leaves time for the next.
        let share = left / (addresses.len() - place) as u32;
        if share.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(address, share) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Turns the system's "would block" after a time-out into [`ErrorKind::TimedOut`].
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// The TLS settings of the client's gRPC, but for HTTP/1.1, with which direct connections begin.
fn tls_config(options: &ConnectOptions) -> io::Result<ClientConfig> {
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let given = options.certificate.as_deref().into_iter();
    let given = given.flat_map(CertificateDer::pem_slice_iter);
    trusted.add_parsable_certificates(given.filter_map(Result::ok));
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(trusted);
    let mut config = match &options.identity {
        Some(own) => config.with_client_cert_resolver(Arc::new(own_certificate(own, &provider)?)),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The client's own certificates and their key.
///
/// # Errors
/// The errors of PEM and of TLS, if the certificates or the key are invalid.
fn own_certificate(
    (certificates, key): &(Vec<u8>, Vec<u8>),
    provider: &CryptoProvider,
) -> io::Result<SingleCertAndKey> {
    let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
    let both = CertifiedKey::from_der(chain, key, provider).map_err(io::Error::other)?;
    Ok(SingleCertAndKey::from(both))
}

/// Removes an unusable certificate from a client's options, and returns why it is unusable: few servers ask for one.
pub(super) fn drop_unusable_identity(options: &mut ConnectOptions) -> Option<String> {
    let error = own_certificate(options.identity.as_ref()?, &default_provider()).err()?;
    options.identity = None;
    Some(format!(
        "the client's certificate was not shown ({error}): X509_USER_CERT and X509_USER_KEY must name PEM files, the \
         key without a passphrase"
    ))
}
