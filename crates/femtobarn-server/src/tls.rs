//! The server's certificates and key, from files.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::Tls;

/// What encrypts connections; none if there is no certificate.
///
/// # Errors
/// A text that names the file and what is wrong with it.
pub fn server_config(tls: &Tls) -> Result<Option<Arc<ServerConfig>>, String> {
    if tls.certificate.as_os_str().is_empty() {
        return Ok(None);
    }
    let certificates = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable("certificate", &tls.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|error| unusable("key", &tls.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| unusable("certificate", &tls.certificate, &error))?;
    // XRootD's clients ask for none of these, which is fine.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

fn unusable(what: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("tls.{what}: {} cannot be used: {error}", path.display())
}
