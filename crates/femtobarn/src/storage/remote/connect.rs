//! How the catalogue of a federation on a server is reached.

use std::fs;
use std::time::Duration;

use femtobarn_rpc::client::ConnectOptions;

/// Waits so long for a server that does not answer. Over TLS the token is sent that is sent to read the files, and the certificate
/// is shown, too.
pub(crate) fn connect_options(patience: Duration) -> ConnectOptions {
    let own = xrd::client::client_certificate();
    let identity =
        own.and_then(|own| Some((fs::read(own.certificate).ok()?, fs::read(own.key).ok()?)));
    ConnectOptions {
        patience,
        identity,
        find_token: || xrd::client::bearer_token().map(|found| found.token.0),
        ..ConnectOptions::default()
    }
}
