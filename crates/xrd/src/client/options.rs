//! How a client behaves. The defaults suit a file server in the same building.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits::BOUND_STREAMS_MAX;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a connection, with its login, may take.
    pub connect_timeout: Duration,
    /// How long a request may go on without a byte of its answer, or of others on its connection.
    pub request_timeout: Duration,
    /// How long an operation may take with all its waits, redirects and reconnections, and a request without
    /// a byte of its own answer.
    pub patience: Duration,
    /// How long a server that went away is waited for, within that.
    pub reconnect_timeout: Duration,
    /// Connections beside the first one that large reads are spread over, at most 15.
    pub streams: u8,
    /// Who asks; the operating system's user if none.
    pub user: Option<String>,
    /// The bearer token; where none is given it is looked for as WLCG's rules have it: in
    /// `BEARER_TOKEN`, in the file that `BEARER_TOKEN_FILE` names, and in `bt_u<uid>` of
    /// `XDG_RUNTIME_DIR`.
    pub token: Option<Token>,
    /// A file or a folder of certificates that sign those of servers; where none is given, those that
    /// `X509_CERT_DIR` and `SSL_CERT_FILE` name, or else what the operating system trusts.
    pub authorities: Option<PathBuf>,
    /// What the client is called in the server's records.
    pub application: String,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            connect_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(60),
            patience: Duration::from_secs(600),
            reconnect_timeout: Duration::from_secs(60),
            streams: 0,
            user: None,
            token: None,
            authorities: None,
            application: "xrd".to_owned(),
        }
    }
}

impl Options {
    pub(super) fn bound_streams(&self) -> u8 {
        self.streams.min(BOUND_STREAMS_MAX)
    }
}

/// A bearer token; not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}
