//! Settings of a client. The defaults suit a file server on the local network.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::BOUND_STREAMS_MAX;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time limit for connecting, the login included.
    pub connect_timeout: Duration,
    /// A request fails when its connection has carried no byte of any answer for this long.
    pub request_timeout: Duration,
    /// Time limit for an operation with all its waits, redirects and reconnections. A request also fails when no byte
    /// of its own answer has arrived for this long.
    pub patience: Duration,
    /// Time limit for reconnecting to a server that stopped answering, within `patience`.
    pub reconnect_timeout: Duration,
    /// Time limit for a whole answer, from the request to its last byte; the connection that is too slow is given up.
    /// Without it an answer may take any time while its bytes arrive.
    pub answer_timeout: Option<Duration>,
    /// Number of additional connections that large reads are striped over, at most 15.
    pub streams: u8,
    /// The user's name; by default, that of the process's user id.
    pub user: Option<String>,
    /// The bearer token.
    pub token: Option<Token>,
    /// Finds the token if none is given: by default, that of [`bearer_token`](super::bearer_token). Called for each
    /// session, and when a server refuses the token found before, because tokens expire soon.
    pub find_token: fn() -> Option<Token>,
    /// The client's certificate, which is shown to servers that ask for one; by default, that of
    /// [`client_certificate`](super::client_certificate). A certificate that cannot be used is not shown, and the
    /// errors of refused logins report the reason.
    pub certificate: Option<ClientCertificate>,
    /// Sends no credentials, whatever the server asks for.
    pub without_credentials: bool,
    /// A file or directory of trusted certificate authorities; by default, `X509_CERT_DIR` and
    /// `SSL_CERT_FILE`, or else the operating system's.
    pub authorities: Option<PathBuf>,
    /// Which addresses of a server, and of those that it redirects to, are connected to; by default, all.
    pub filter: Option<AddressFilter>,
    /// The application name that the server logs.
    pub application: String,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            connect_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(60),
            patience: Duration::from_secs(600),
            reconnect_timeout: Duration::from_secs(60),
            answer_timeout: None,
            streams: 0,
            user: None,
            token: None,
            find_token: || super::bearer_token().map(|found| found.token),
            certificate: client_certificate(),
            without_credentials: false,
            authorities: None,
            filter: None,
            application: "xrd".to_owned(),
        }
    }
}

impl Options {
    pub(super) fn bound_streams(&self) -> u8 {
        self.streams.min(BOUND_STREAMS_MAX)
    }
}

/// The PEM files of a client's certificate, followed by those of its authorities, and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The file of the certificates.
    pub certificate: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
}

/// The certificate that `X509_USER_CERT` and `X509_USER_KEY` name, if both are set.
pub fn client_certificate() -> Option<ClientCertificate> {
    let file = |name| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let (certificate, key) = (file("X509_USER_CERT")?, file("X509_USER_KEY")?);
    Some(ClientCertificate { certificate, key })
}

/// Refuses an address of a host, with the reason as a text.
pub type FilterRule = dyn Fn(&str, IpAddr) -> Result<(), String> + Send + Sync;

/// A rule for addresses, which clones share.
#[derive(Clone)]
pub struct AddressFilter(pub Arc<FilterRule>);

impl fmt::Debug for AddressFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AddressFilter(..)")
    }
}

/// A bearer token; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}
