//! From the handshake to a session: protocol, login, auth, bind, endsess.
//!
//! ```text
//! New --login--> In                  if nobody needs to say who they are
//! New --login--> Proving --auth--> In
//! New --bind---> Bound
//! ```
//!
//! Whatever else comes before there is a session closes the connection.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_protocol, kXR_login, kXR_auth, kXR_bind,
//! kXR_endsess.

use std::io;
use std::sync::Arc;

use xrd::flags::{ProtocolOptions, ServerFlags};
use xrd::request::{Auth, Bind, Endsess, Login, Protocol, Request};
use xrd::response::{Answer, BindAnswer, LoginAnswer, ProtocolAnswer, Response};
use xrd::response::{SecurityLevel, Signing};
use xrd::{ErrorCode, ProtocolVersion, SessionId, StreamId};

use super::connection::{Connection, Stage};
use super::failures::failed;
use crate::auth::{Identity, Refusal};
use crate::logical::sessions::{Client, Session};

impl Connection {
    /// A request of a client that has no session yet.
    pub(super) async fn greet(&mut self, stream: StreamId, request: Request) -> io::Result<()> {
        let outcome = match (request, &self.stage) {
            (Request::Protocol(protocol), _) => Ok(self.agree(protocol)),
            (Request::Login(login), Stage::New) => self.log_in(&login),
            (Request::Bind(bind), Stage::New) => self.bind(bind),
            (Request::Auth(auth), Stage::Proving(session)) => {
                let session = Arc::clone(session);
                self.authenticate(session, auth).await
            }
            (Request::Sigver(_), _) => return Ok(()),
            (other, _) => {
                let what = format!("{} must not come before there is a session", other.code());
                Err(failed(ErrorCode::INVALID_REQUEST, what))
            }
        };
        match outcome {
            Ok(response) => self.answer(stream, &response).await,
            Err(response) => self.refuse_and_close(stream, response).await,
        }
    }

    /// What the server is; TLS begins behind the answer if both want it.
    pub(super) fn agree(&mut self, protocol: Protocol) -> Response {
        let mut flags = ServerFlags::SERVER | ServerFlags::PAGES | ServerFlags::PERSIST_ON_CLOSE;
        if self.shared.tls.is_some() {
            flags = flags | ServerFlags::HAVE_TLS;
            if self.shared.requires_tls {
                flags = flags | ServerFlags::TLS_LOGIN | ServerFlags::TLS_SESSION;
            }
            if self.wants_tls(protocol.options) {
                flags = flags | ServerFlags::GO_TO_TLS;
                self.begins_tls = true;
            }
        }
        let asks = |option| protocol.options.contains(option);
        let answer = ProtocolAnswer {
            version: ProtocolVersion::CURRENT,
            flags,
            bind_interfaces: None,
            signing: asks(ProtocolOptions::SECURITY)
                .then(|| Signing { level: SecurityLevel(0), ..Signing::default() }),
        };
        ok(&answer)
    }

    fn wants_tls(&self, options: ProtocolOptions) -> bool {
        let is_able = options.intersects(ProtocolOptions::ABLE_TLS | ProtocolOptions::WANT_TLS);
        let is_wanted = options.contains(ProtocolOptions::WANT_TLS) || self.shared.requires_tls;
        is_able && is_wanted && !self.socket.is_encrypted() && matches!(self.stage, Stage::New)
    }

    fn refuse_without_tls(&self) -> Result<(), Response> {
        match self.shared.requires_tls && !self.socket.is_encrypted() {
            true => Err(failed(ErrorCode::TLS_REQUIRED, "this server wants TLS; use roots://")),
            false => Ok(()),
        }
    }

    fn log_in(&mut self, login: &Login) -> Result<Response, Response> {
        self.refuse_without_tls()?;
        let session = self.shared.logical.sessions.begin(client(login), self.peer);
        let offers = self.shared.authenticator.parameters(self.socket.is_encrypted());
        let answer = LoginAnswer {
            session: SessionId(session.id),
            security: offers.clone().unwrap_or_default(),
        };
        // The session is known from here on, so that it is forgotten when the connection ends.
        self.stage = Stage::Proving(Arc::clone(&session));
        if offers.is_none() {
            let identity = self.shared.authenticator.anonymous().map_err(refused)?;
            self.begin(session, identity);
        }
        Ok(ok(&answer))
    }

    async fn authenticate(
        &mut self,
        session: Arc<Session>,
        auth: Auth,
    ) -> Result<Response, Response> {
        let (shared, is_encrypted) = (Arc::clone(&self.shared), self.socket.is_encrypted());
        // Checking a signature takes longer than a small request does.
        let checked = tokio::task::spawn_blocking(move || {
            let end = auth.protocol.iter().position(|byte| *byte == 0).unwrap_or(4);
            let kind = &auth.protocol[..end];
            shared.authenticator.credentials(kind, &auth.credentials, is_encrypted)
        });
        let checked = checked.await;
        let identity = checked
            .map_err(|_| failed(ErrorCode::SERVER_ERROR, "the credentials cannot be checked"))?
            .map_err(refused)?;
        self.begin(session, identity);
        Ok(Response::Ok(Default::default()))
    }

    fn begin(&mut self, session: Arc<Session>, identity: Identity) {
        tracing::info!(
            session = session.number,
            peer = %self.peer,
            user = %identity.name,
            how = identity.how,
            program = %session.client.program,
            "session begins"
        );
        session.identify(identity);
        self.admit(session);
    }

    /// Binding needs no login: nobody but the session's client knows its id.
    fn bind(&mut self, bind: Bind) -> Result<Response, Response> {
        self.refuse_without_tls()?;
        let session = self.shared.logical.sessions.get(&bind.session.0);
        let session = session
            .filter(|session| session.identity().is_some() && session.host.ip() == self.peer.ip());
        let Some(session) = session else {
            return Err(failed(ErrorCode::NOT_FOUND, "there is no such session to bind to"));
        };
        let Some((path, delegated)) = self.shared.streams.bind(session.id) else {
            return Err(failed(ErrorCode::OVERLOADED, "the session has all streams it may have"));
        };
        self.admit_bound(session, delegated);
        Ok(ok(&BindAnswer { path }))
    }

    /// Ends the session that a client had before it connected anew, or this one. What it had open it may open
    /// again in this one, as it was.
    pub(super) fn end_session(&self, end: Endsess) -> Response {
        let before = end.session.0;
        // This session ends with its connection, which the client is going to close.
        let this = self.session().filter(|session| before != [0; 16] && session.id != before);
        if let Some(this) = this {
            self.shared.logical.sessions.go_on(this, &before);
        }
        Response::Ok(Default::default())
    }
}

fn refused(refusal: Refusal) -> Response {
    failed(ErrorCode::AUTH_FAILED, refusal.0)
}

fn client(login: &Login) -> Client {
    let opaque = login.opaque.strip_prefix(b"?").unwrap_or(&login.opaque);
    let program = xrd::opaque_pairs(opaque)
        .find(|(key, _)| *key == b"xrd.appname")
        .map_or_else(String::new, |(_, name)| word(name));
    Client {
        user: word(login.user_name()),
        program,
        process: login.process,
        takes_late_answers: login.capability.takes_delayed_answers(),
    }
}

/// A text of a client for lists and logs: short, and of printable characters.
fn word(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

/// The ok response with this answer.
pub(super) fn ok(answer: &impl Answer) -> Response {
    match answer.encode() {
        Ok(body) => Response::Ok(body.into()),
        Err(error) => failed(ErrorCode::SERVER_ERROR, error.to_string()),
    }
}
