//! The client's side of TLS over a socket.
//!
//! **Invariant:** no lock is held while a call waits for the socket.

use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::clock;
use super::options::Options;
use super::socket::TcpSocket;

/// Bytes that are encrypted at a time.
const WRITE_BYTES: usize = 256 * 1024;
/// Bytes that are read from the socket at a time.
const READ_BYTES: usize = 64 * 1024;
/// A read ends without data after so many receptions from the socket: more than the parts in which one record may arrive.
const FILLS_MAX: usize = 1000;
/// Where operating systems keep trusted certificate authorities.
const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The TLS state of a connection.
#[derive(Debug)]
pub(super) struct TlsSession {
    connection: Mutex<ClientConnection>,
    /// The receive buffer. Only one caller reads.
    wire: Mutex<Wire>,
    /// The reason why the client's certificate is not shown to the server, if it is not.
    pub without_certificate: Option<String>,
}

/// Bytes from the socket, and the range of them that is not decrypted yet.
#[derive(Debug, Default)]
struct Wire {
    bytes: Vec<u8>,
    left: Range<usize>,
}

impl TlsSession {
    /// A session with this host.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::NotFound`] if there are no trusted certificate authorities.
    pub(super) fn new(host: &str, options: &Options) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(authorities(options)?);
        let (config, without_certificate) = match own_certificate(options, &provider) {
            Ok(Some(own)) => (config.with_client_cert_resolver(Arc::new(own)), None),
            Ok(None) => (config.with_no_client_auth(), None),
            // Few servers ask for one.
            Err(why) => (config.with_no_client_auth(), Some(why)),
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let connection = Mutex::new(connection);
        Ok(TlsSession { connection, wire: Mutex::default(), without_certificate })
    }

    pub(super) async fn handshake(
        &mut self,
        socket: &TcpSocket,
        deadline: Instant,
    ) -> io::Result<()> {
        loop {
            self.flush(socket).await?;
            if !self.connection.lock().is_handshaking() {
                return Ok(());
            }
            if self.fill(socket).await? == Some(0) {
                let what = "the server closed the connection during the handshake";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
            }
            if clock::now() >= deadline {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }

    /// See [`super::transport::Transport::read`].
    pub(super) async fn read(
        &self,
        socket: &TcpSocket,
        buffer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        // The caller can check its deadline even if the server sends only records that carry no data.
        for _ in 0..FILLS_MAX {
            let plain = self.connection.lock().reader().read(buffer);
            match plain {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Some(0)),
                other => return other.map(Some),
            }
            if self.fill(socket).await?.is_none() {
                break;
            }
        }
        Ok(None)
    }

    pub(super) async fn write_all(&self, socket: &TcpSocket, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(WRITE_BYTES) {
            let mut left = part;
            while !left.is_empty() {
                let count = self.connection.lock().writer().write(left)?;
                left = &left[count..];
                self.flush(socket).await?;
            }
        }
        Ok(())
    }

    /// Sends pending TLS records.
    async fn flush(&self, socket: &TcpSocket) -> io::Result<()> {
        let mut encrypted = Vec::new();
        {
            let mut connection = self.connection.lock();
            while connection.wants_write() {
                connection.write_tls(&mut encrypted)?;
            }
        }
        socket.write_all(&encrypted, &[]).await
    }

    /// Decrypts received bytes, after reading from the socket if there are none left. Returns how many there were: 0 if
    /// the server has closed the connection, none if no bytes arrived in time.
    async fn fill(&self, socket: &TcpSocket) -> io::Result<Option<usize>> {
        // Only one caller reads, so no other finds the buffer missing.
        let mut wire = std::mem::take(&mut *self.wire.lock());
        if wire.left.is_empty() {
            wire.bytes.resize(READ_BYTES, 0);
            let Some(count) = socket.read(&mut wire.bytes).await? else {
                *self.wire.lock() = wire;
                return Ok(None);
            };
            wire.left = 0..count;
        }
        let count = wire.left.len();
        let mut encrypted = &wire.bytes[wire.left.clone()];
        let mut connection = self.connection.lock();
        connection.read_tls(&mut encrypted)?;
        connection
            .process_new_packets()
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        wire.left.start = wire.left.end - encrypted.len();
        *self.wire.lock() = wire;
        Ok(Some(count))
    }
}

/// Whether a handshake failed for a reason that a retry does not change: no common version or cipher, an
/// untrusted certificate, or no trusted authorities. Other failures may be the network's.
pub(super) fn is_distrust(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
        || error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// The error text if a server has refused this client's certificate, which it reports after the client's part of the
/// handshake; `None` for other errors.
pub(super) fn refusal(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => Some(format!(
            "TLS: the server refuses this client's certificate (X509_USER_CERT), or ends the connection: {alert:?}"
        )),
        _ => None,
    }
}

/// The client's certificate with those of authorities behind it, and its key; or why they cannot be used.
fn own_certificate(
    options: &Options,
    provider: &CryptoProvider,
) -> Result<Option<SingleCertAndKey>, String> {
    let Some(own) = options.certificate.as_ref().filter(|_| !options.without_credentials) else {
        return Ok(None);
    };
    let unusable = |file: &Path, error: &dyn std::fmt::Display| {
        format!(
            "the client's certificate was not shown ({}: {error}): X509_USER_CERT and X509_USER_KEY must name PEM \
             files, the key without a passphrase",
            file.display()
        )
    };
    let chain = CertificateDer::pem_file_iter(&own.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(&own.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&own.key).map_err(|error| unusable(&own.key, &error))?;
    let both =
        CertifiedKey::from_der(chain, key, provider).map_err(|error| unusable(&own.key, &error))?;
    Ok(Some(SingleCertAndKey::from(both)))
}

/// The trusted certificate authorities.
fn authorities(options: &Options) -> io::Result<RootCertStore> {
    let locations = locations(options);
    let mut store = RootCertStore::empty();
    for file in locations.iter().flat_map(|location| files_of(location)) {
        // Directories of authorities also hold other files, and one unreadable file must not disable the others.
        if let Ok(certificates) = CertificateDer::pem_file_iter(&file) {
            store.add_parsable_certificates(certificates.filter_map(std::result::Result::ok));
        }
    }
    if store.is_empty() {
        let locations: Vec<_> =
            locations.iter().map(|location| format!(" {}", location.display())).collect();
        let text = format!("no certificate authorities found in{}", locations.join(" and"));
        return Err(io::Error::new(ErrorKind::NotFound, text));
    }
    Ok(store)
}

/// Files and directories of authorities: the given one, or those of the environment, or the system's.
fn locations(options: &Options) -> Vec<PathBuf> {
    if let Some(given) = &options.authorities {
        return vec![given.clone()];
    }
    let names = ["X509_CERT_DIR", "SSL_CERT_FILE"];
    let named: Vec<_> = names.iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
    if named.is_empty() {
        let first = SYSTEM_AUTHORITIES.iter().find(|path| Path::new(path).exists());
        vec![PathBuf::from(first.unwrap_or(&SYSTEM_AUTHORITIES[0]))]
    } else {
        named
    }
}

fn files_of(location: &Path) -> Vec<PathBuf> {
    match std::fs::read_dir(location) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![location.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use rustls::AlertDescription;

    use super::*;

    #[test]
    fn handshake_failures_are_distrust_and_network_failures_are_not() {
        let failed = |error: rustls::Error| io::Error::new(ErrorKind::InvalidData, error);
        assert!(is_distrust(&failed(rustls::Error::AlertReceived(
            AlertDescription::HandshakeFailure
        ))));
        assert!(!is_distrust(&io::Error::from(ErrorKind::ConnectionReset)));
    }
}
