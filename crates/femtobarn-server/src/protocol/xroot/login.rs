//! Requests from the handshake to a session: protocol, login, auth, bind, endsess.
//!
//! ```text
//! New --login--> Active                       if anonymous clients are allowed
//! New --login--> Authenticating --auth--> Active
//! New --bind---> Bound
//! ```
//!
//! Any other request before there is a session closes the connection. In a session, auth shows another token of the same client.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_protocol, kXR_login, kXR_auth, kXR_bind,
//! kXR_endsess.

use std::io;
use std::sync::Arc;

use xrd::flags::{ProtocolOptions, ServerFlags};
use xrd::request::{Auth, Bind, Endsess, Login, Protocol, Request};
use xrd::response::{BindAnswer, LoginAnswer, ProtocolAnswer, Response};
use xrd::response::{SecurityLevel, Signing};
use xrd::{ErrorCode, ProtocolVersion, SessionId, StreamId};

use super::connection::{RootConnection, Stage};
use super::responses::{failed, ok};
use crate::auth::{CertifiedName, Identity, Refusal};
use crate::logical::sessions::{ClientInfo, ClientSession};

impl RootConnection {
    /// Performs a request of a client that has no session yet.
    pub(super) async fn login_request(
        &mut self,
        stream: StreamId,
        request: Request,
    ) -> io::Result<()> {
        let outcome = match (request, &self.stage) {
            (Request::Protocol(protocol), _) => Ok(self.negotiate(protocol)),
            (Request::Login(login), Stage::New) => self.log_in(&login),
            (Request::Bind(bind), Stage::New) => self.bind(bind),
            (Request::Auth(auth), Stage::Authenticating(session)) => {
                let session = Arc::clone(session);
                self.authenticate(session, auth).await
            }
            (Request::Sigver(_), _) => return Ok(()),
            (other, _) => {
                let what = format!("{} is not allowed before login", other.code());
                Err(failed(ErrorCode::INVALID_REQUEST, what))
            }
        };
        match outcome {
            Ok(response) => self.answer(stream, &response).await,
            Err(response) => self.refuse_and_close(stream, response).await,
        }
    }

    /// kXR_protocol: the version and capabilities of the server. TLS begins after the answer if both sides want it.
    pub(super) fn negotiate(&mut self, protocol: Protocol) -> Response {
        let mut flags = ServerFlags::PAGES | ServerFlags::PERSIST_ON_CLOSE;
        let logical = &self.service.logical;
        if logical.redirector.is_none() {
            flags |= ServerFlags::SERVER;
        }
        if logical.redirector.is_some() || logical.placement.may_redirect() {
            // Clients return to a manager if the server that it redirected them to fails.
            flags |= ServerFlags::MANAGER;
        }
        if self.service.tls.is_some() {
            flags |= ServerFlags::HAVE_TLS;
            if self.service.requires_tls {
                flags = flags | ServerFlags::TLS_LOGIN | ServerFlags::TLS_SESSION;
            }
            if self.wants_tls(protocol.options) {
                flags |= ServerFlags::GO_TO_TLS;
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
        let is_wanted = options.contains(ProtocolOptions::WANT_TLS) || self.service.requires_tls;
        is_able && is_wanted && !self.socket.is_encrypted() && matches!(self.stage, Stage::New)
    }

    fn refuse_without_tls(&self) -> Result<(), Response> {
        if self.service.requires_tls && !self.socket.is_encrypted() {
            return Err(failed(ErrorCode::TLS_REQUIRED, "this server requires TLS; use roots://"));
        }
        Ok(())
    }

    fn log_in(&mut self, login: &Login) -> Result<Response, Response> {
        self.refuse_without_tls()?;
        let is_encrypted = self.socket.is_encrypted();
        let named = self.certified_name()?;
        let session = self.service.logical.sessions.begin(client(login), self.peer);
        let authenticator = &self.service.authenticator;
        let offers = authenticator.parameters(is_encrypted, has_token(login), named.is_some());
        let answer = LoginAnswer {
            session: SessionId(session.id),
            security: offers.clone().unwrap_or_default(),
        };
        // From here on the session is removed when the connection ends.
        self.stage = Stage::Authenticating(Arc::clone(&session));
        if offers.is_none() {
            let identity = authenticator.certified(named.as_deref()).map_err(refused)?;
            self.begin(session, identity);
        }
        Ok(ok(&answer))
    }

    async fn authenticate(
        &mut self,
        session: Arc<ClientSession>,
        auth: Auth,
    ) -> Result<Response, Response> {
        let identity = self.identity_by(auth).await?;
        self.begin(session, identity);
        Ok(Response::Ok(Default::default()))
    }

    /// kXR_auth in a session: the rights of another token of the client count from here on.
    pub(super) async fn authenticate_again(&mut self, auth: Auth) -> Response {
        let Some(session) = self.session().cloned() else {
            return Response::Ok(Default::default());
        };
        let identity = match self.identity_by(auth).await {
            Ok(identity) => identity,
            Err(response) => return response,
        };
        let (user, how) = (identity.name.clone(), identity.how);
        if !session.identify(identity) {
            let what = format!("the session does not belong to {user}: log in again");
            return failed(ErrorCode::AUTH_FAILED, what);
        }
        // Clients may change their token any number of times, so this is only a debug message.
        tracing::debug!(session = session.number, peer = %self.peer, user, how, "authenticated again");
        Response::Ok(Default::default())
    }

    /// The name in the certificate of the client; `None` without a certificate.
    fn certified_name(&self) -> Result<Option<Arc<CertifiedName>>, Response> {
        let named = self.socket.certified_name();
        named.map_err(|error| failed(ErrorCode::AUTH_FAILED, error.to_string()))
    }

    /// The identity of these credentials.
    async fn identity_by(&self, auth: Auth) -> Result<Identity, Response> {
        let named = self.certified_name()?;
        let (service, is_encrypted) = (Arc::clone(&self.service), self.socket.is_encrypted());
        let end = auth.protocol.iter().position(|byte| *byte == 0).unwrap_or(4);
        if is_encrypted {
            let kind = &auth.protocol[..end];
            service.authenticator.await_keys_of(kind, &auth.credentials).await;
        }
        // Verifying a signature takes longer than a small request.
        let checked = tokio::task::spawn_blocking(move || {
            let kind = &auth.protocol[..end];
            let credentials = (kind, &*auth.credentials);
            service.authenticator.credentials(credentials, is_encrypted, named.as_deref())
        });
        let checked = checked.await;
        checked
            .map_err(|_| failed(ErrorCode::SERVER_ERROR, "cannot check the credentials"))?
            .map_err(refused)
    }

    fn begin(&mut self, session: Arc<ClientSession>, identity: Identity) {
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

    /// kXR_bind. It needs no login: only the session's client knows its id.
    fn bind(&mut self, bind: Bind) -> Result<Response, Response> {
        self.refuse_without_tls()?;
        let session = self.service.logical.sessions.get(&bind.session.0);
        let session = session
            .filter(|session| session.identity().is_some() && session.host.ip() == self.peer.ip());
        let Some(session) = session else {
            return Err(failed(ErrorCode::NOT_FOUND, "unknown session to bind to"));
        };
        let Some((path, delegated)) = self.service.streams.bind(session.id) else {
            return Err(failed(
                ErrorCode::OVERLOADED,
                "the session has the maximum number of streams",
            ));
        };
        self.admit_bound(session, delegated);
        Ok(ok(&BindAnswer { path }))
    }

    /// kXR_endsess: ends the session that the client had before it reconnected, whose files it may open again in this
    /// session as of the same snapshots.
    pub(super) fn end_session(&self, end: Endsess) -> Response {
        let before = end.session.0;
        // A client that ends this session closes its connection next, which ends the session.
        let this = self.session().filter(|session| before != [0; 16] && session.id != before);
        if let Some(this) = this {
            self.service.logical.sessions.inherit(this, &before);
        }
        Response::Ok(Default::default())
    }
}

fn refused(refusal: Refusal) -> Response {
    failed(ErrorCode::AUTH_FAILED, refusal.0)
}

/// Whether a client announces a token, which it sends if asked.
fn has_token(login: &Login) -> bool {
    announced_at_login(login, b"fb.token") == Some(b"1")
}

/// The value of a key of the opaque information of a login.
fn announced_at_login<'a>(login: &'a Login, key: &[u8]) -> Option<&'a [u8]> {
    let opaque = login.opaque.strip_prefix(b"?").unwrap_or(&login.opaque);
    xrd::opaque_pairs(opaque).find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn client(login: &Login) -> ClientInfo {
    let program = announced_at_login(login, b"xrd.appname").map_or_else(String::new, word);
    ClientInfo {
        user: word(login.user_name()),
        program,
        process: login.process,
        takes_late_answers: login.capability.takes_delayed_answers(),
    }
}

/// A client's text for lists and logs, shortened and without control characters.
fn word(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|letter| !letter.is_control()).take(64).collect()
}
