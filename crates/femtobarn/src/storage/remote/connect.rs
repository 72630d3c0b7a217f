//! How the catalogue of a federation on a server is reached.

use std::time::Duration;

use femtobarn_rpc::client::ConnectOptions;

/// Waits so long for a server that does not answer. Over TLS the token is sent that is sent to read the files, too.
pub(crate) fn connect_options(patience: Duration) -> ConnectOptions {
    ConnectOptions {
        patience,
        find_token: || xrd::client::bearer_token().map(|found| found.token.0),
        ..ConnectOptions::default()
    }
}
