//! TLS: the server's certificates and key, and the authorities of clients' certificates, which can be reloaded while it runs.
//!
//! 1. Open connections keep the certificates that they began with.
//! 2. A client without a certificate is admitted. A client with an invalid certificate is not: its handshake fails. If
//!    clients may show certificates, no TLS session is resumed, so that the certificate is checked for each connection.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme,
};

use crate::auth::CertifiedName;
use crate::config::TlsConfig;

/// The certificates that new connections use.
#[derive(Debug)]
pub struct Certificates {
    current: RwLock<Arc<CertifiedKey>>,
    /// `None` if clients are not asked for certificates.
    clients: Option<Arc<ClientAuthorities>>,
}

/// The authorities that sign the certificates of clients, and the revoked certificates.
#[derive(Debug)]
struct ClientAuthorities {
    current: RwLock<Arc<dyn ClientCertVerifier>>,
}

impl Certificates {
    /// Reads the certificates and key again, from these files.
    ///
    /// # Errors
    /// A text that names the file and the error; then the old certificates stay in use.
    pub fn read_again(&self, tls: &TlsConfig) -> Result<(), String> {
        let new = Arc::new(certified_key(tls, &provider())?);
        if let Some(clients) = &self.clients {
            let verifier = client_verifier(tls, provider())?;
            *clients.current.write() = verifier;
        }
        *self.current.write() = new;
        Ok(())
    }
}

impl ClientAuthorities {
    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.current.read())
    }
}

impl ClientCertVerifier for ClientAuthorities {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Clients have one certificate, and need no help to choose.
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.current().verify_client_cert(certificate, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

/// The name in the certificate of a connection's client; `None` if it has sent no certificate.
///
/// # Errors
/// Of kind [`InvalidData`](io::ErrorKind::InvalidData) if the certificate has no name.
pub fn client_name(connection: &ServerConnection) -> io::Result<Option<Arc<CertifiedName>>> {
    let Some(certificate) = connection.peer_certificates().and_then(|all| all.first()) else {
        return Ok(None);
    };
    let name = CertifiedName::of(certificate);
    name.map(Arc::new).map(Some).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

/// A TLS configuration, and the replaceable certificates in it.
pub type Encryption = (Arc<ServerConfig>, Arc<Certificates>);

/// The TLS configuration of a server; `None` if it has no certificate.
///
/// # Errors
/// A text that names the file and the error.
pub fn server_config(tls: &TlsConfig) -> Result<Option<Encryption>, String> {
    if !tls.has_certificate() {
        return Ok(None);
    }
    let provider = provider();
    let current = RwLock::new(Arc::new(certified_key(tls, &provider)?));
    let clients = if tls.clients.as_os_str().is_empty() {
        None
    } else {
        let current = RwLock::new(client_verifier(tls, Arc::clone(&provider))?);
        Some(Arc::new(ClientAuthorities { current }))
    };
    let verifier = clients.clone().map(|clients| clients as Arc<dyn ClientCertVerifier>);
    let certificates = Arc::new(Certificates { current, clients });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?
        .with_client_cert_verifier(verifier.unwrap_or_else(WebPkiClientVerifier::no_client_auth))
        .with_cert_resolver(Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>);
    if certificates.clients.is_some() {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    // XRootD's clients negotiate no protocol, which is accepted.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some((Arc::new(config), certificates)))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The certificates of a file, with the key of the first.
fn certified_key(tls: &TlsConfig, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let certificates = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable("certificate", &tls.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|error| unusable("key", &tls.key, &error))?;
    if certificates.is_empty() {
        return Err(unusable("certificate", &tls.certificate, &"the file has no certificate"));
    }
    CertifiedKey::from_der(certificates, key, provider)
        .map_err(|error| unusable("certificate", &tls.certificate, &error))
}

/// The verifier of the certificates of clients.
fn client_verifier(
    tls: &TlsConfig,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let unusable_clients = |error: &dyn std::fmt::Display| unusable("clients", &tls.clients, error);
    let mut authorities = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(&tls.clients);
    for certificate in found.map_err(|error| unusable_clients(&error))? {
        let certificate = certificate.map_err(|error| unusable_clients(&error))?;
        authorities.add(certificate).map_err(|error| unusable_clients(&error))?;
    }
    let mut revoked = vec![];
    if !tls.revoked.as_os_str().is_empty() {
        let lists = CertificateRevocationListDer::pem_file_iter(&tls.revoked)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>);
        revoked = lists.map_err(|error| unusable("revoked", &tls.revoked, &error))?;
        if revoked.is_empty() {
            return Err(unusable("revoked", &tls.revoked, &"the file has no revocation list"));
        }
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider)
        .with_crls(revoked)
        .allow_unknown_revocation_status()
        .allow_unauthenticated();
    let verifier = verifier.build();
    verifier.map_err(|error| unusable_clients(&error))
}

fn unusable(what: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("tls.{what}: cannot use {}: {error}", path.display())
}
