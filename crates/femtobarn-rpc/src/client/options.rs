//! How a client connects to a server.

use std::fmt;
use std::time::Duration;

/// How a remote catalogue is reached.
#[derive(Clone)]
pub struct ConnectOptions {
    /// A bearer token.
    pub token: Option<String>,
    /// Finds a token if none is given. It is asked for each connection, because tokens expire soon, and what it finds is
    /// sent over TLS only.
    pub find_token: fn() -> Option<String>,
    /// A certificate in PEM format that is trusted besides those of the system, or of `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` if they are set.
    pub certificate: Option<Vec<u8>>,
    /// The client's own certificates and their key in PEM format, which are shown to servers that ask for them. If they
    /// cannot be used, they are not shown, and refusals say so.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// How long the client waits for a server that was reached once and does not answer now: a minute by default.
    /// A first connection that cannot be made fails at once.
    pub patience: Duration,
    /// Whether the caller has other servers to ask. Then a call, lock or pin fails as soon as the connection does, and a
    /// silent server is given up after `patience`; only the session is opened again and again.
    pub has_alternatives: bool,
}

/// Without the token and the key.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConnectOptions")
            .field("has_token", &self.token.is_some())
            .field("patience", &self.patience)
            .field("has_alternatives", &self.has_alternatives)
            .finish_non_exhaustive()
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            token: None,
            find_token: || None,
            certificate: None,
            identity: None,
            patience: Duration::from_secs(60),
            has_alternatives: false,
        }
    }
}
