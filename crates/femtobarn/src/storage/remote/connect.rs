//! Connecting to the catalogue of a federation on a server.

use std::fs;
use std::time::Duration;

use femtobarn_rpc::client::ConnectOptions;

/// Waits up to `patience` for a server that does not answer. Over TLS, the connection shows the same token and
/// certificate as the connections that read files.
pub(crate) fn connect_options(patience: Duration) -> ConnectOptions {
    // An unreadable file counts as no certificate; a server that requires one reports that when it refuses.
    let read = |file| fs::read(file).unwrap_or_default();
    let own = xrd::client::client_certificate();
    let identity = own.map(|own| (read(own.certificate), read(own.key)));
    ConnectOptions {
        patience,
        identity,
        find_token: || xrd::client::bearer_token().map(|found| found.token.0),
        ..ConnectOptions::default()
    }
}
