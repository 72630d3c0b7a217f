//! TLS: the server's certificates and key, which can be reloaded while it runs.
//!
//! Open connections keep the certificates that they began with.

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::TlsConfig;

/// The certificates that new connections use.
#[derive(Debug)]
pub struct Certificates {
    current: RwLock<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Reads the certificates and key again, from these files.
    ///
    /// # Errors
    /// A text that names the file and the error; then the old certificates stay in use.
    pub fn read_again(&self, tls: &TlsConfig) -> Result<(), String> {
        let new = Arc::new(certified_key(tls, &provider())?);
        *self.current.write() = new;
        Ok(())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

/// A TLS configuration, and the replaceable certificates in it.
pub type Encryption = (Arc<ServerConfig>, Arc<Certificates>);

/// The TLS configuration of a server; none if it has no certificate.
///
/// # Errors
/// A text that names the file and the error.
pub fn server_config(tls: &TlsConfig) -> Result<Option<Encryption>, String> {
    if !tls.has_certificate() {
        return Ok(None);
    }
    let provider = provider();
    let current = RwLock::new(Arc::new(certified_key(tls, &provider)?));
    let certificates = Arc::new(Certificates { current });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>);
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
        return Err(unusable("certificate", &tls.certificate, &"the file has none"));
    }
    CertifiedKey::from_der(certificates, key, provider)
        .map_err(|error| unusable("certificate", &tls.certificate, &error))
}

fn unusable(what: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("tls.{what}: cannot use {}: {error}", path.display())
}
