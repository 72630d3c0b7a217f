//! How the catalogue of a federation on a server is reached.

use std::fs;
use std::time::Duration;

use femtobarn_rpc::client::ConnectOptions;

/// Waits so long for a server that does not answer. Over TLS the token is sent that is sent to read the files, and the certificate
/// is shown, too.
pub(crate) fn connect_options(patience: Duration) -> ConnectOptions {
    // A file that cannot be read has no certificate, which the refusal of a server that asks for one tells.
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
