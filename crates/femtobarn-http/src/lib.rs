//! Makes connections to other servers for HTTP clients, encrypted where the URL says so.
//!
//! | module | contents |
//! |---|---|
//! | `authorities` | the certificate authorities that are trusted |
//! | `admission` | which addresses may be connected to |
//!
//! 1. A name is looked up once for a connection, and the address that was admitted is the one that is connected to.
//! 2. Requests have no limit of time but that of making a connection: callers know how long an answer may take.

mod admission;
mod authorities;

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::ClientConfig;

pub use admission::{AddressRule, AdmittedAddresses, any_address};

/// How long a connection may take to be made.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// What makes the connections of a client.
pub type WebConnector = HttpsConnector<HttpConnector<AdmittedAddresses>>;

/// A connector for HTTP/1.1, to the addresses of names that the rule admits. Addresses that are written in URLs are for
/// the caller to check: no name is looked up for them.
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

/// The texts of an error and of those behind it.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}
