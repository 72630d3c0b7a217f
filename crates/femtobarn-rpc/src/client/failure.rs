//! What keeps a call from being answered, and whether it helps to wait for the end of it.

use std::error::Error;
use std::io;

use tonic::{ConnectError, Status};

/// What kept a call from being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// The server's certificate is not valid here, or the two cannot agree on how to encrypt.
    Distrust,
    /// No connection can be made: no such host, nobody listens, or what listens does not encrypt. That
    /// passes only where a server restarts.
    NoConnection,
    /// All that may pass.
    Passing,
}

/// Classifies the status that a call ended with.
pub(super) fn trouble_of(status: &Status) -> CallFailure {
    let chain = status.source().map_or_else(Vec::new, chain_of);
    if tls_error(&chain).is_some() {
        return CallFailure::Distrust;
    }
    let is_late = |error: &&(dyn Error + 'static)| {
        error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    };
    match chain.iter().any(|error| error.is::<ConnectError>()) && !chain.iter().any(is_late) {
        true => CallFailure::NoConnection,
        false => CallFailure::Passing,
    }
}

/// What a status says, with the errors that it came from.
pub(super) fn reason(status: &Status) -> String {
    let Some(source) = status.source() else { return status.message().to_owned() };
    match tls_error(&chain_of(source)) {
        Some(error @ rustls::Error::InvalidCertificate(_)) => {
            format!("{error}; SSL_CERT_FILE names a file of certificates that are trusted")
        }
        Some(error) => format!("TLS: {error}"),
        None => with_sources(source),
    }
}

/// What TLS said, which is wrapped as if it were trouble of the network.
fn tls_error<'a>(chain: &[&'a (dyn Error + 'static)]) -> Option<&'a rustls::Error> {
    chain.iter().find_map(|error| {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)?;
        inner.downcast_ref::<rustls::Error>()
    })
}

/// An error's text with those of what it came from, each once.
pub(super) fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = chain_of(error).into_iter().map(ToString::to_string).collect();
    // Many errors repeat the text of what they wrap.
    texts.dedup();
    texts.join(": ")
}

/// An error, and what it came from.
fn chain_of<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let (mut chain, mut last) = (vec![error], error);
    while let Some(deeper) = last.source() {
        chain.push(deeper);
        last = deeper;
    }
    chain
}
