//! Connections to other servers for HTTP clients, encrypted if the URL requires it.
//!
//! | module | contents |
//! |---|---|
//! | `authorities` | the certificate authorities that are trusted |
//! | `admission` | which addresses may be connected to |
//!
//! 1. A name is looked up once for a connection, and the address that was admitted is the one that is connected to.
//! 2. Only making a connection has a time limit. Callers limit their requests, since they know how long an answer may
//!    take.

mod admission;
mod authorities;

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::ClientConfig;

pub use admission::{AddressRule, AdmittedAddresses, any_address};

/// The time limit for making a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Makes the connections of an HTTP client.
pub type WebConnector = HttpsConnector<HttpConnector<AdmittedAddresses>>;

/// A connector for HTTP/1.1 to the addresses that the rule admits. Addresses written in URLs must be checked by the
/// caller, since no name is looked up for them.
///
/// # Errors
/// If the trusted certificate authorities cannot be read, or there are none.
pub fn connector(rule: AddressRule) -> io::Result<WebConnector> {
    let mut tcp = HttpConnector::new_with_resolver(AdmittedAddresses::new(rule));
    tcp.set_connect_timeout(Some(CONNECT_TIME));
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let config =
        ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(authorities::trusted()?)
            .with_no_client_auth();
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp))
}

/// The texts of an error and of its sources.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}
