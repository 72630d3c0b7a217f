//! What may come instead of an answer, before it is known what to do about it.

use std::time::Duration;

use super::error::ClientError;
use super::url::Endpoint;
use crate::response::{Failure, Redirect, Wait};

/// What came instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttemptError {
    /// The server refuses.
    Failure(Failure),
    /// Another server is to be asked.
    Redirect(Redirect),
    /// It is to be asked again later.
    Wait(Wait),
    /// The connection was lost after the request had been sent, or while it was.
    Lost(String),
    /// No byte of the answer came for so long.
    Silent(Duration),
    /// The server does not keep to the protocol.
    Malformed(crate::Error),
    /// There is no connection, so nothing was sent.
    Unreachable(String),
    /// There is no secret connection: the server's certificate is not valid here, or the two cannot agree.
    Distrust(String),
    /// The server does not let the user in.
    Login(String),
}

impl From<crate::Error> for AttemptError {
    fn from(error: crate::Error) -> Self {
        AttemptError::Malformed(error)
    }
}

impl AttemptError {
    /// As an error about a path on a server.
    pub fn into_error(self, server: &Endpoint, path: &str, user: &str) -> ClientError {
        let (server, path) = (server.clone(), path.to_owned());
        match self {
            AttemptError::Failure(Failure { code, message }) => {
                ClientError::Refused { server, path, code, message }
            }
            AttemptError::Redirect(redirect) => {
                let reason = format!("its redirect to {} was not followed", redirect.parts().0);
                ClientError::Unreachable { server, path, reason }
            }
            AttemptError::Wait(wait) => ClientError::TimedOut {
                server,
                path,
                after: Duration::from_secs(wait.seconds.into()),
            },
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
