//! The ways in which one attempt of an operation can end without an answer. `retry` decides whether another
//! attempt follows, or the error becomes a [`ClientError`].

use std::time::Duration;

use super::endpoint::Endpoint;
use super::error::ClientError;
use crate::response::{Failure, Redirect, Wait};

/// Why one attempt has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttemptError {
    /// The server refused the request.
    Failure(Failure),
    /// The server names another server.
    Redirect(Redirect),
    /// The server asks for the request again after a delay.
    Wait(Wait),
    /// The connection was lost while the request was sent or after that: the server may have executed it.
    Lost(String),
    /// No byte of the answer arrived for this long.
    Silent(Duration),
    /// The server violates the protocol.
    Malformed(crate::Error),
    /// The request was not sent, because there is no connection.
    Unreachable(String),
    /// TLS failed: the server's certificate is not trusted, or the two sides have no common version or cipher.
    Distrust(String),
    /// The server rejects the user's credentials.
    Login(String),
}

impl From<crate::Error> for AttemptError {
    fn from(error: crate::Error) -> Self {
        AttemptError::Malformed(error)
    }
}

impl AttemptError {
    /// The error that callers see, with the server, path and user that it concerns.
    pub(super) fn into_error(self, server: &Endpoint, path: &str, user: &str) -> ClientError {
        let (server, path) = (server.clone(), path.to_owned());
        match self {
            AttemptError::Failure(Failure { code, message }) => {
                ClientError::Refused { server, path, code, message }
            }
            AttemptError::Redirect(redirect) => {
                let reason = format!("redirect to {} not followed", redirect.parts().0);
                ClientError::Unreachable { server, path, reason }
            }
            AttemptError::Wait(wait) => {
                let wait = Duration::from_secs(wait.seconds.into());
                ClientError::MustWait { server, path, wait }
            }
            AttemptError::Lost(reason) => ClientError::Lost { server, path, reason },
            AttemptError::Silent(after) => ClientError::TimedOut { server, path, after },
            AttemptError::Malformed(source) => ClientError::Protocol { server, path, source },
            AttemptError::Unreachable(reason) | AttemptError::Distrust(reason) => {
                ClientError::Unreachable { server, path, reason }
            }
            AttemptError::Login(reason) => {
                ClientError::Login { server, user: user.to_owned(), reason }
            }
        }
    }
}
