//! How a client connects to a server.

use std::fmt;
use std::time::Duration;

/// The options of a client of a server.
#[derive(Clone)]
pub struct ConnectOptions {
    /// A bearer token.
    pub token: Option<String>,
    /// Finds a token if none is given. It is called for each connection, because tokens expire soon. The token is sent
    /// over TLS only.
    pub find_token: fn() -> Option<String>,
    /// A certificate in PEM format that is trusted in addition to the system's, or to those of `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` if these are set.
    pub certificate: Option<Vec<u8>>,
    /// The client's own certificates and their key in PEM format, for servers that ask for them. If they are unusable,
    /// they are not sent, and the errors of refused calls say why.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// How long the client waits for a server that was reached once and does not answer now; a minute by default. A
    /// first connection that fails is an error at once.
    pub patience: Duration,
    /// Whether the caller has other servers to ask. Then a call, lock or pin fails as soon as the connection does, and
    /// a silent server is given up after `patience`; only the session continues to be opened again.
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
