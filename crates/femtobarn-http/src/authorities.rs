//! The certificate authorities that are trusted: this machine's, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`, and, as
//! on machines of the grid, those in the folder `X509_CERT_DIR`.

use std::io;
use std::path::Path;

use rustls::RootCertStore;

/// The authorities that are trusted now.
///
/// # Errors
/// If there are none.
pub(crate) fn trusted() -> io::Result<RootCertStore> {
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(folder) = std::env::var_os("X509_CERT_DIR") {
        let more = rustls_native_certs::load_certs_from_paths(None, Some(Path::new(&folder)));
        found.certs.extend(more.certs);
        found.errors.extend(more.errors);
    }
    // Folders of authorities hold other files, too, and an unreadable file must not disable the other authorities.
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        let what = format!("there are no trusted certificate authorities{why}");
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    Ok(store)
}
