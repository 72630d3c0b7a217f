//! The token that a server was shown in a session, and its replacement: tokens expire sooner than sessions end.
//!
//! A request that was refused for lack of rights was not executed. It is sent once more if another token is found
//! meanwhile, which is shown first (kXR_auth, which clients may send at any time). Callers that were refused together
//! show it once.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::Mutex;

use super::attempt_error::AttemptError;
use super::connection::Connection;
use super::credentials::{token, ztn};
use super::options::{Options, Token};
use crate::codes::ErrorCode;
use crate::request::Request;

/// The token that a server was shown in a session, or would have been if it had asked for one.
#[derive(Debug)]
pub(super) struct ShownToken {
    is_encrypted: bool,
    token: Mutex<Option<Token>>,
    /// How often another one took its place.
    changes: AtomicU64,
}

impl ShownToken {
    /// Of a session that has begun with this token.
    pub(super) fn new(is_encrypted: bool, shown: Option<Token>) -> Self {
        ShownToken { is_encrypted, token: Mutex::new(shown), changes: AtomicU64::new(0) }
    }
}

impl Connection {
    /// Sends a request that is refused if the client has no right to it, and returns its answer.
    pub(super) async fn call_with_rights(
        &self,
        request: &Request,
        options: &Options,
    ) -> Result<Bytes, AttemptError> {
        let before = self.shown_token().changes.load(Ordering::Acquire);
        match self.call(request, &[]).await {
            Err(AttemptError::Failure(failure))
                if is_want_of_rights(failure.code)
                    && self.show_other_token(before, options).await =>
            {
                self.call(request, &[]).await
            }
            answered => answered,
        }
    }

    /// Shows the server the token that is found now, if it has not seen it. Returns whether it accepts another one than after so
    /// many changes.
    async fn show_other_token(&self, before: u64, options: &Options) -> bool {
        let shown = self.shown_token();
        if !shown.is_encrypted || options.without_credentials {
            return false;
        }
        let mut current = shown.token.lock().await;
        if shown.changes.load(Ordering::Acquire) > before {
            return true;
        }
        let found = token(options).filter(|found| current.as_ref() != Some(found));
        let Some(found) = found else { return false };
        let auth = Request::from(ztn(&found));
        *current = Some(found);
        let is_accepted = self.call(&auth, &[]).await.is_ok();
        if is_accepted {
            shown.changes.fetch_add(1, Ordering::Release);
        }
        is_accepted
    }
}

fn is_want_of_rights(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NOT_AUTHORIZED | ErrorCode::AUTH_FAILED)
}
