//! One opening of a session: the connection, the claims, and the server's welcome.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use femtobarn_catalog::Holder;
use tokio::task::spawn_blocking;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};

use super::direct::DirectConnection;
use super::endpoint::CONNECT_MAX;
use super::failure::is_alert;
use super::session::{LinkState, RemoteSession, stopped};
use super::turn_stream::SessionTurns;
use crate::v1::{Hello, Welcome};

impl RemoteSession {
    /// Opens the session with a token: on a direct connection, or by gRPC if the server accepts none.
    pub(super) async fn open(
        self: &Arc<Self>,
        token: Option<MetadataValue<Ascii>>,
    ) -> std::result::Result<(SessionTurns, Welcome), Status> {
        let (turns, welcome) = match self.connect_directly(token).await? {
            Some(connection) => {
                let (session, greeted, hello) =
                    (Arc::clone(self), Arc::clone(&connection), self.hello());
                let welcome = spawn_blocking(move || session.greet(&greeted, hello)).await;
                (SessionTurns::Direct(connection), welcome.map_err(stopped)??)
            }
            None => self.attend(self.hello()).await?,
        };
        // The server may have been restored from an older copy.
        self.answers.clear();
        self.head.store(welcome.head, Ordering::Release);
        self.log_room.store(welcome.log_room as usize, Ordering::Release);
        self.logs_new_files.store(welcome.logs_new_files, Ordering::Release);
        self.openings.fetch_add(1, Ordering::AcqRel);
        self.ledger().reopened(&welcome);
        self.learn_servers(&welcome);
        if let SessionTurns::Direct(connection) = &turns {
            let lease = self.silence(Duration::from_millis(welcome.lease_ms.max(3)));
            connection
                .set_timeout(lease)
                .map_err(|error| Status::unavailable(error.to_string()))?;
            self.use_directly(connection);
        }
        let is_open = self.link.send_if_modified(|link| {
            let is_broken = *link == LinkState::Broken;
            if is_broken {
                *link = LinkState::Open;
            }
            is_broken
        });
        self.wake();
        // The session was closed meanwhile. If that was before it had this connection, only this code can end the
        // connection.
        if let (false, SessionTurns::Direct(connection)) = (is_open, &turns) {
            self.say_goodbye(connection);
            self.lose(connection);
        }
        Ok((turns, welcome))
    }

    /// The session's first message, with its claims.
    fn hello(&self) -> Hello {
        let (locks, pins) = self.ledger().claims();
        Hello {
            federation: self.federation.clone(),
            session: self.id.into_bytes().to_vec(),
            client: Some(Holder::this_process().with_application().into()),
            locks,
            pins,
        }
    }

    /// A direct connection; `None` if the server accepts none. `None` also if it cannot be reached, so that gRPC
    /// reports why.
    async fn connect_directly(
        self: &Arc<Self>,
        token: Option<MetadataValue<Ascii>>,
    ) -> std::result::Result<Option<Arc<DirectConnection>>, Status> {
        let session = Arc::clone(self);
        let connect = move || {
            let wait = session.patience().min(CONNECT_MAX);
            let place = session.places.current();
            DirectConnection::connect(&place.address, &session.options, token, wait)
        };
        match spawn_blocking(connect).await.map_err(stopped)? {
            Ok(connection) => Ok(Some(Arc::new(connection))),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                Err(Status::unavailable("the server does not answer"))
            }
            // The server refuses the client's certificate, and would refuse it again.
            Err(error) if is_alert(&error) => Err(Status::from_error(Box::new(error))),
            Err(_) => Ok(None),
        }
    }

    /// Looks for the token again: for each connection, and when a server refuses the last token.
    pub(super) fn renew_token(&self) -> Option<MetadataValue<Ascii>> {
        let found = match &self.options.token {
            Some(token) => Some(token.clone()),
            None if self.places.current().address.is_encrypted => (self.options.find_token)(),
            None => None,
        };
        let value = found.and_then(|token| format!("Bearer {token}").parse().ok());
        let value = value.map(|mut value: MetadataValue<Ascii>| {
            value.set_sensitive(true);
            value
        });
        self.token.lock().clone_from(&value);
        value
    }

    /// The token of the calls: that of the direct connection, or else the last one that was found.
    pub(super) fn shown_token(&self) -> Option<MetadataValue<Ascii>> {
        match self.direct() {
            Some(connection) => connection.token().cloned(),
            None => self.token.lock().clone(),
        }
    }

    /// Whether a server refused the token `shown`, and the client finds another one now. Then a direct connection that
    /// was opened with the old token is given up.
    pub(super) fn finds_other_token(
        &self,
        status: &Status,
        shown: Option<&MetadataValue<Ascii>>,
    ) -> bool {
        if status.code() != Code::Unauthenticated {
            return false;
        }
        let found = self.renew_token();
        if found.is_none() || found.as_ref() == shown {
            return false;
        }
        let direct = self.direct().filter(|connection| connection.token() == shown);
        direct.iter().for_each(|connection| self.lose(connection));
        true
    }
}
