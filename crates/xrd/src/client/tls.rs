//! TLS over a socket, as the client's side.
//!
//! The lock of the TLS state is never held while a socket is waited for.

use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::options::Options;
use super::stream::Socket;

/// Bytes that are made secret at a time.
const WRITE_BYTES: usize = 256 * 1024;
/// Bytes that are read from the socket at a time.
const READ_BYTES: usize = 64 * 1024;
/// What operating systems trust.
const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A secret connection's state.
#[derive(Debug)]
pub(super) struct Tls {
    connection: Mutex<ClientConnection>,
    /// What was read from the socket; the one reader's.
    wire: Mutex<Wire>,
}

/// Bytes from the socket, and which of them TLS did not take yet.
#[derive(Debug, Default)]
struct Wire {
    bytes: Vec<u8>,
    left: Range<usize>,
}

impl Tls {
    /// For a connection to this host.
    pub fn new(host: &str, options: &Options) -> io::Result<Self> {
        let config =
            ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_root_certificates(authorities(options)?)
                .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(Tls { connection: Mutex::new(connection), wire: Mutex::default() })
    }

    pub async fn shake_hands(&mut self, socket: &Socket) -> io::Result<()> {
        while self.lock().is_handshaking() {
            self.flush(socket).await?;
            if self.lock().is_handshaking() && !self.fill(socket).await? {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        self.flush(socket).await
    }

    /// See [`super::stream::Stream::read`].
    pub async fn read(&self, socket: &Socket, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let plain = self.lock().reader().read(buffer);
            match plain {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Some(0)),
                other => return other.map(Some),
            }
            if !self.fill(socket).await? {
                return Ok(None);
            }
        }
    }

    pub async fn write_all(&self, socket: &Socket, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(WRITE_BYTES) {
            let mut left = part;
            while !left.is_empty() {
                let count = self.lock().writer().write(left)?;
                left = &left[count..];
                self.flush(socket).await?;
            }
        }
        Ok(())
    }

    /// Writes what the state has to say.
    async fn flush(&self, socket: &Socket) -> io::Result<()> {
        let mut secret = Vec::new();
        {
            let mut connection = self.lock();
            while connection.wants_write() {
                connection.write_tls(&mut secret)?;
            }
        }
        socket.write_all(&secret, &[]).await
    }

    /// Takes some of what came from the socket, or reads from it; whether anything came in time.
    async fn fill(&self, socket: &Socket) -> io::Result<bool> {
        // Only one caller reads, so nobody misses it meanwhile.
        let mut wire = std::mem::take(&mut *self.lock_wire());
        if wire.left.is_empty() {
            wire.bytes.resize(READ_BYTES, 0);
            let Some(count) = socket.read(&mut wire.bytes).await? else {
                *self.lock_wire() = wire;
                return Ok(false);
            };
            wire.left = 0..count;
        }
        let mut secret = &wire.bytes[wire.left.clone()];
        let mut connection = self.lock();
        connection.read_tls(&mut secret)?;
        connection
            .process_new_packets()
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        wire.left.start = wire.left.end - secret.len();
        *self.lock_wire() = wire;
        Ok(true)
    }

    fn lock_wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, ClientConnection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a handshake failed since the two cannot agree, the server's certificate is not trusted, or nothing is.
/// All else may be trouble of the network.
pub(super) fn is_distrust(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
        || error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// Whose signatures are trusted.
fn authorities(options: &Options) -> io::Result<RootCertStore> {
    let places = places(options);
    let mut store = RootCertStore::empty();
    for file in places.iter().flat_map(|place| files_of(place)) {
        // Folders of authorities also have other files, and one bad file is no reason to trust none.
        if let Ok(certificates) = CertificateDer::pem_file_iter(&file) {
            store.add_parsable_certificates(certificates.filter_map(std::result::Result::ok));
        }
    }
    if store.is_empty() {
        let places: Vec<_> = places.iter().map(|place| format!(" {}", place.display())).collect();
        let text = format!("there are no certificates to trust in{}", places.join(" and"));
        return Err(io::Error::new(ErrorKind::NotFound, text));
    }
    Ok(store)
}

/// Files and folders of certificates: what was given, or what the environment names, or the system's.
fn places(options: &Options) -> Vec<PathBuf> {
    if let Some(given) = &options.authorities {
        return vec![given.clone()];
    }
    let names = ["X509_CERT_DIR", "SSL_CERT_FILE"];
    let named: Vec<_> = names.iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
    match named.is_empty() {
        true => {
            let first = SYSTEM_AUTHORITIES.iter().find(|path| Path::new(path).exists());
            vec![PathBuf::from(first.unwrap_or(&SYSTEM_AUTHORITIES[0]))]
        }
        false => named,
    }
}

fn files_of(place: &Path) -> Vec<PathBuf> {
    match std::fs::read_dir(place) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![place.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use rustls::AlertDescription;

    use super::*;

    #[test]
    fn what_two_sides_cannot_agree_on_is_not_tried_again() {
        let failed = |error: rustls::Error| io::Error::new(ErrorKind::InvalidData, error);
        assert!(is_distrust(&failed(rustls::Error::AlertReceived(
            AlertDescription::HandshakeFailure
        ))));
        assert!(!is_distrust(&io::Error::from(ErrorKind::ConnectionReset)));
    }
}
