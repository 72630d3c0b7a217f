//! Why a call was not answered, and whether waiting may help.

use std::error::Error;
use std::io;

use tonic::{ConnectError, Status};

/// Why a call was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// The server's certificate is not trusted, or TLS cannot agree on parameters.
    Untrusted,
    /// No connection can be made: the host is unknown, the port is closed, or the server has no TLS. Waiting helps
    /// only if the server is restarting.
    NoConnection,
    /// Any other failure, which may be temporary.
    Temporary,
}

/// Classifies the status that a call ended with.
pub(super) fn classify(status: &Status) -> CallFailure {
    let chain = status.source().map_or_else(Vec::new, chain_of);
    if tls_error(&chain).is_some() {
        return CallFailure::Untrusted;
    }
    let is_late = |error: &&(dyn Error + 'static)| {
        error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    };
    if chain.iter().any(|error| error.is::<ConnectError>()) && !chain.iter().any(is_late) {
        CallFailure::NoConnection
    } else {
        CallFailure::Temporary
    }
}

/// The text of a status with its source errors.
pub(super) fn reason(status: &Status) -> String {
    let Some(source) = status.source() else { return status.message().to_owned() };
    match tls_error(&chain_of(source)) {
        Some(error @ rustls::Error::InvalidCertificate(_)) => {
            format!("{error}; set SSL_CERT_FILE to a file of trusted certificates")
        }
        Some(rustls::Error::AlertReceived(alert)) => format!(
            "TLS: the server refuses this client's certificate (X509_USER_CERT), or ends the connection: {alert:?}"
        ),
        Some(error) => format!("TLS: {error}"),
        None => with_sources(source),
    }
}

/// Whether the other side has ended a connection by an alert of TLS.
pub(super) fn is_alert(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::AlertReceived(_)))
}

/// The error of TLS, which is wrapped in an I/O error.
fn tls_error<'a>(chain: &[&'a (dyn Error + 'static)]) -> Option<&'a rustls::Error> {
    chain.iter().find_map(|error| {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)?;
        inner.downcast_ref::<rustls::Error>()
    })
}

/// The text of an error with the texts of its sources, without repetitions.
pub(super) fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = chain_of(error).into_iter().map(ToString::to_string).collect();
    // Many errors repeat the text of their source.
    texts.dedup();
    texts.join(": ")
}

/// An error with its sources.
fn chain_of<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let (mut chain, mut last) = (vec![error], error);
    while let Some(deeper) = last.source() {
        chain.push(deeper);
        last = deeper;
    }
    chain
}
