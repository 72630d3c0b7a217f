//! Where gRPC finds a server, and how long it waits for it.

use std::time::Duration;

use femtobarn_catalog::{Error, Result};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::address::Address;
use super::failure::with_sources;
use super::options::ConnectOptions;

/// The longest wait for a connection.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a connection may be silent before the client pings the server.
pub(super) const PING_AFTER: Duration = Duration::from_secs(10);

/// The endpoint of a server.
///
/// # Errors
/// [`Error::Invalid`] if the address or the certificate is malformed.
pub(super) fn endpoint(address: &Address, options: &ConnectOptions) -> Result<Endpoint> {
    let wrong = |error: tonic::transport::Error| Error::Invalid {
        what: format!("invalid address {address}: {}", with_sources(&error)),
    };
    let endpoint = Endpoint::from_shared(address.endpoint()).map_err(wrong)?;
    let endpoint = endpoint
        .connect_timeout(options.patience.min(CONNECT_MAX))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_AFTER)
        .keep_alive_while_idle(true);
    let endpoint = if options.has_alternatives {
        let silence = options.patience.min(PING_AFTER);
        endpoint.http2_keep_alive_interval(silence).keep_alive_timeout(silence)
    } else {
        endpoint
    };
    if !address.is_encrypted {
        return Ok(endpoint);
    }
    let mut tls = ClientTlsConfig::new().with_native_roots();
    if let Some(pem) = &options.certificate {
        tls = tls.ca_certificate(Certificate::from_pem(pem));
    }
    if let Some((certificates, key)) = &options.identity {
        tls = tls.identity(Identity::from_pem(certificates, key));
    }
    endpoint.tls_config(tls).map_err(wrong)
}
