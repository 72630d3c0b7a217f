//! The socket of a connection, plain or encrypted.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustix::net::sockopt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};

use super::address::{PostgresAddress, TlsMode};

/// How long a server may take for an answer, or for a part of a long one. A statement waits no longer for a lock than
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
    pub(super) fn connect(address: &PostgresAddress, host: &str, port: u16) -> io::Result<Self> {
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
                    return encrypt(socket, address, host);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Whether nobody between here and the server can read what is sent.
    pub(super) fn is_private(&self) -> bool {
        !matches!(self, Stream::Tcp(_))
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

/// Asks the server whether it can encrypt, and does so if it can and the URL wants it.
fn encrypt(mut socket: TcpStream, address: &PostgresAddress, host: &str) -> io::Result<Stream> {
    if address.tls == TlsMode::Disable {
        return Ok(Stream::Tcp(socket));
    }
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    socket.write_all(&request)?;
    // One byte alone: whatever follows it in the clear is not the server's.
    let mut answer = [0];
    socket.read_exact(&mut answer)?;
    match answer[0] {
        b'S' => {}
        b'N' if address.tls == TlsMode::Prefer => return Ok(Stream::Tcp(socket)),
        _ => return Err(refused("the server does not encrypt, and sslmode demands it")),
    }
    let name =
        ServerName::try_from(host.to_owned()).map_err(|error| refused(&error.to_string()))?;
    let client = ClientConnection::new(configuration(address)?, name).map_err(io::Error::other)?;
    let mut tls = Box::new(StreamOwned::new(client, socket));
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    Ok(Stream::Tls(tls))
}

/// A server that is not trusted; asking again does not help.
fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what.to_owned())
}

fn configuration(address: &PostgresAddress) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let is_checked = match address.tls {
        TlsMode::VerifyAuthority | TlsMode::VerifyFull => true,
        TlsMode::Require => address.authorities.is_some(),
        TlsMode::Disable | TlsMode::Prefer => false,
    };
    let trusted = match &address.authorities {
        _ if !is_checked => None,
        Some(file) => Some(authorities_in(file)?),
        None => Some(authorities_of_the_system()),
    };
    let config = match trusted {
        Some(roots) if address.tls == TlsMode::VerifyFull => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
            let verifier = verifier.build().map_err(io::Error::other)?;
            builder.with_webpki_verifier(verifier)
        }
        roots => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyName { roots, provider })),
    };
    Ok(Arc::new(config.with_no_client_auth()))
}

fn authorities_in(file: &PathBuf) -> io::Result<RootCertStore> {
    let bad = |error: &dyn std::fmt::Display| {
        refused(&format!("sslrootcert {} cannot be used: {error}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for found in CertificateDer::pem_file_iter(file).map_err(|error| bad(&error))? {
        roots.add(found.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
    }
    Ok(roots)
}

fn authorities_of_the_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Accepts certificates for any name, as `sslmode` below `verify-full` does: those of the authorities, if there are some.
#[derive(Debug)]
struct AnyName {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let parsed = ParsedCertificate::try_from(certificate)?;
            let known = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, others, now, known)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
