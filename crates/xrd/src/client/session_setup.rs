//! The setup of a connection, from its first byte to a usable session: a state machine without I/O.
//!
//! ```text
//! handshake + protocol ─> [TLS] ─> login ─> auth .. ─> [TLS] ─> endsess ─> ping ─> ready
//! handshake + protocol ─> [TLS] ─> bind ────────────────────────────────────────> ready
//! ```
//!
//! 1. TLS starts when the server demands it. If the user wants TLS, it starts before the login.
//! 2. Security protocols are tried in the server's order; those without credentials are skipped.
//! 3. A session is pinged only if streams will be bound to it.
//! 4. A client that has a token and TLS announces that when it logs in (`fb.token=1`): a server that also admits
//!    clients without a token may then ask for it. XRootD's servers ignore the announcement.

use super::attempt_error::AttemptError;
use super::credentials::{credentials, token, user_name};
use super::options::{Options, Token};
use crate::codes::Expect;
use crate::error::{Error, Result};
use crate::flags::{Ability, AbilityMore, ProtocolOptions, ServerFlags};
use crate::handshake::{HANDSHAKE, HandshakeAnswer};
use crate::ids::{PathId, SessionId, StreamId};
use crate::request::{Bind, Capability, Endsess, Login, Ping, Protocol, Request};
use crate::response::{Answer, BindAnswer, LoginAnswer, ProtocolAnswer, Response};
use crate::version::ProtocolVersion;

/// The stream id of all requests of the setup.
const STREAM: StreamId = StreamId([0, 1]);

/// The purpose of a connection.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A new session.
    Session {
        /// The session of the lost connection to the same server, which is ended.
        previous: Option<SessionId>,
        /// The opaque information that a redirect adds to the login.
        login_opaque: Option<String>,
    },
    /// An additional stream of this session.
    Stream(SessionId),
}

/// The next action of the caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SetupStep {
    /// Send these bytes, then receive a response.
    Send(Vec<u8>),
    /// Receive a response.
    Receive,
    /// Start TLS, then call [`SessionSetup::on_tls_started`].
    StartTls,
    /// The connection is usable.
    Ready,
}

/// The state of a connection that is set up.
#[derive(Debug)]
pub(super) struct SessionSetup<'a> {
    options: &'a Options,
    purpose: Purpose,
    wants_tls: bool,
    /// Whether TLS has started.
    pub is_encrypted: bool,
    /// The token that was found when TLS started, which the server is shown if it asks for one.
    pub token: Option<Token>,
    state: State,
    /// The server's features and requirements.
    pub server: ProtocolAnswer,
    /// The session; zeros until the login.
    pub session: SessionId,
    /// The stream within its session.
    pub path: PathId,
    /// Security protocols that were not tried yet, the next one last.
    untried_protocols: Vec<String>,
    /// The reasons why the other protocols failed, and why a certificate of the client cannot be used.
    pub refusals: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshake,
    Protocol,
    Login,
    Auth,
    Endsess,
    Ping,
    Bind,
}

impl<'a> SessionSetup<'a> {
    pub(super) fn new(options: &'a Options, wants_tls: bool, purpose: Purpose) -> Self {
        SessionSetup {
            options,
            purpose,
            wants_tls,
            is_encrypted: false,
            token: None,
            state: State::Handshake,
            server: ProtocolAnswer::default(),
            session: SessionId::default(),
            path: PathId::default(),
            untried_protocols: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// The first bytes to send: the handshake and the protocol request in one piece.
    pub(super) fn initial_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = HANDSHAKE.to_vec();
        let mut options = ProtocolOptions::SECURITY;
        if cfg!(feature = "tls") {
            options |= ProtocolOptions::ABLE_TLS;
        }
        if self.wants_tls {
            options |= ProtocolOptions::WANT_TLS;
        }
        let expect = match self.purpose {
            Purpose::Session { .. } => Expect::LOGIN,
            Purpose::Stream(_) => Expect::BIND,
        };
        let protocol = Protocol { version: ProtocolVersion::CURRENT, options, expect };
        Request::from(protocol).encode(STREAM, &mut bytes)?;
        Ok(bytes)
    }

    /// Handles a response.
    pub(super) fn on_response(&mut self, response: Response) -> Result<SetupStep, AttemptError> {
        let body = match (self.state, response) {
            (State::Auth, Response::Error(failure)) => {
                return self.send_next_credentials(failure.message);
            }
            (State::Auth, Response::AuthMore(_)) => {
                let reason =
                    "the server asks for a second round, which this client does not support";
                return self.send_next_credentials(reason.to_owned());
            }
            // An error means that the server no longer has the session, which is the goal.
            (State::Endsess, Response::Error(_)) => return self.finish(),
            (_, Response::Ok(body)) => body,
            (_, Response::Error(failure)) => return Err(AttemptError::Failure(failure)),
            (_, Response::Redirect(redirect)) => return Err(AttemptError::Redirect(redirect)),
            (_, Response::Wait(wait)) => return Err(AttemptError::Wait(wait)),
            (_, Response::Attn(_) | Response::WaitResp(_)) => return Ok(SetupStep::Receive),
            (_, other) => {
                let reason = format!("unexpected status {} during the login", other.status());

                return Err(Error::malformed("response", 0, reason).into());
            }
        };
        match self.state {
            State::Handshake => {
                HandshakeAnswer::decode(&body)?;
                self.state = State::Protocol;
                Ok(SetupStep::Receive)
            }
            State::Protocol => {
                self.server = ProtocolAnswer::decode(&body)?;
                self.after_protocol()
            }
            State::Login => {
                let answer = LoginAnswer::decode(&body)?;
                self.session = answer.session;
                let protocols = answer.security_protocols().map(|(name, _)| name.trim().to_owned());
                self.untried_protocols = protocols.collect();
                self.untried_protocols.reverse();
                if self.untried_protocols.is_empty() {
                    self.after_login()
                } else {
                    self.send_next_credentials(String::new())
                }
            }
            State::Auth => self.after_login(),
            State::Endsess => self.finish(),
            State::Ping => Ok(SetupStep::Ready),
            State::Bind => {
                self.path = BindAnswer::decode(&body)?.path;
                Ok(SetupStep::Ready)
            }
        }
    }

    /// Continues on the encrypted connection.
    pub(super) fn on_tls_started(&mut self) -> Result<SetupStep, AttemptError> {
        self.is_encrypted = true;
        if !self.options.without_credentials && matches!(self.purpose, Purpose::Session { .. }) {
            self.token = token(self.options);
        }
        match self.state {
            State::Protocol => self.log_in(),
            _ => self.end_previous_session(),
        }
    }

    fn after_protocol(&mut self) -> Result<SetupStep, AttemptError> {
        let flags = self.server.flags;
        let is_stream = matches!(self.purpose, Purpose::Stream(_));
        let demanded = flags.contains(ServerFlags::GO_TO_TLS)
            || (is_stream && flags.contains(ServerFlags::TLS_DATA))
            || (!is_stream && flags.contains(ServerFlags::TLS_LOGIN));
        match (demanded, self.wants_tls) {
            (true, _) if !cfg!(feature = "tls") => Err(AttemptError::Login(
                "the server demands TLS, which this client was built without".to_owned(),
            )),
            (true, _) => Ok(SetupStep::StartTls),
            (false, true) => Err(AttemptError::Login(
                "the server has no TLS, which roots:// demands; root:// connects without it"
                    .to_owned(),
            )),
            (false, false) => self.log_in(),
        }
    }

    fn log_in(&mut self) -> Result<SetupStep, AttemptError> {
        if let Purpose::Stream(session) = self.purpose {
            return self.send(State::Bind, Bind { session });
        }
        let mut user = [0; 8];
        for (to, from) in user.iter_mut().zip(user_name(self.options).bytes()) {
            *to = from;
        }
        let login = Login {
            process: std::process::id().cast_signed(),
            user,
            ability_more: AbilityMore::default(),
            ability: Ability::FULL_URL | Ability::REDIRECT_FLAGS,
            capability: Capability::new(5, true),
            opaque: self.login_information().into(),
        };
        self.send(State::Login, login)
    }

    /// The opaque information of the login.
    fn login_information(&self) -> String {
        let application: String =
            self.options.application.chars().filter(|letter| !"&=?\0".contains(*letter)).collect();
        let login_opaque = match &self.purpose {
            Purpose::Session { login_opaque: Some(login_opaque), .. } => format!("&{login_opaque}"),
            _ => String::new(),
        };
        let token = if self.token.is_some() { "&fb.token=1" } else { "" };
        let release = env!("CARGO_PKG_VERSION");
        format!("?xrd.appname={application}&xrd.rn={release}{token}{login_opaque}")
    }

    /// Sends credentials for the next security protocol, after the previous one failed for this reason.
    fn send_next_credentials(&mut self, failure: String) -> Result<SetupStep, AttemptError> {
        if !failure.is_empty() {
            self.refusals.push(failure);
        }
        while let Some(protocol) = self.untried_protocols.pop() {
            match credentials(&protocol, self.options, self.is_encrypted, self.token.as_ref()) {
                Ok(proof) => return self.send(State::Auth, proof),
                Err(reason) => self.refusals.push(reason),
            }
        }
        Err(AttemptError::Login(self.refusals.join("; ")))
    }

    fn after_login(&mut self) -> Result<SetupStep, AttemptError> {
        let demanded = self.server.flags.contains(ServerFlags::TLS_SESSION);
        if demanded && !self.is_encrypted && cfg!(feature = "tls") {
            self.state = State::Endsess;
            Ok(SetupStep::StartTls)
        } else {
            self.end_previous_session()
        }
    }

    fn end_previous_session(&mut self) -> Result<SetupStep, AttemptError> {
        match self.purpose {
            Purpose::Session { previous: Some(session), .. } => {
                self.send(State::Endsess, Endsess { session })
            }
            _ => self.finish(),
        }
    }

    /// Ends the setup. If streams will be bound, it first waits for an answer in the session: XRootD's server answers
    /// a login before streams can be bound to it.
    fn finish(&mut self) -> Result<SetupStep, AttemptError> {
        if self.options.bound_streams() > 0 {
            self.send(State::Ping, Ping)
        } else {
            Ok(SetupStep::Ready)
        }
    }

    fn send(
        &mut self,
        state: State,
        request: impl Into<Request>,
    ) -> Result<SetupStep, AttemptError> {
        self.state = state;
        let mut bytes = Vec::new();
        request.into().encode(STREAM, &mut bytes)?;
        Ok(SetupStep::Send(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::{RequestEvent, RequestFramer};
    use crate::response::Failure;

    fn ok(body: impl Into<Vec<u8>>) -> Response {
        Response::Ok(body.into().into())
    }

    fn options() -> Options {
        Options {
            user: Some("ann".into()),
            token: Some(super::super::Token("secret".into())),
            ..Options::default()
        }
    }

    fn session(login_opaque: Option<&str>) -> Purpose {
        Purpose::Session { previous: None, login_opaque: login_opaque.map(str::to_owned) }
    }

    /// The request that a step sends.
    fn sent(step: Result<SetupStep, AttemptError>) -> Request {
        let Ok(SetupStep::Send(bytes)) = step else { panic!("{step:?}") };
        let event = RequestFramer::after_handshake().next(&mut bytes.into()).unwrap();
        let Some(RequestEvent::Request(received)) = event else { panic!("{event:?}") };
        received.request.unwrap()
    }

    /// The step after a protocol answer with these flags.
    fn after_flags(
        setup: &mut SessionSetup<'_>,
        flags: ServerFlags,
    ) -> Result<SetupStep, AttemptError> {
        let hello = HandshakeAnswer { version: ProtocolVersion::CURRENT, data_server: true };
        assert_eq!(setup.on_response(ok(&hello.encode()[8..])), Ok(SetupStep::Receive));
        let answer =
            ProtocolAnswer { version: ProtocolVersion::CURRENT, flags, ..Default::default() };
        setup.on_response(ok(answer.encode().unwrap()))
    }

    fn announces_token(login: &Login) -> bool {
        login.opaque.split(|byte| matches!(byte, b'?' | b'&')).any(|pair| pair == b"fb.token=1")
    }

    fn login(security: &str) -> Response {
        let (session, security) = (SessionId([1; 16]), security.to_owned());
        ok(LoginAnswer { session, security }.encode().unwrap())
    }

    #[test]
    fn login_needs_no_credentials_when_the_server_asks_for_none() {
        let options = options();
        let mut setup = SessionSetup::new(&options, false, session(Some("who=x")));
        assert_eq!(setup.initial_bytes().unwrap().len(), 44, "in one piece");
        let Request::Login(request) = sent(after_flags(&mut setup, ServerFlags::SERVER)) else {
            panic!("no login");
        };
        assert_eq!(request.user_name(), b"ann");
        assert!(request.opaque.ends_with(b"&who=x"));
        assert!(!announces_token(&request), "no token is sent without TLS");
        assert_eq!(setup.on_response(login("")), Ok(SetupStep::Ready));
        assert_eq!(setup.session, SessionId([1; 16]));
    }

    #[test]
    fn the_previous_session_is_ended_after_the_login() {
        let (options, previous) = (options(), Some(SessionId([9; 16])));
        let mut setup =
            SessionSetup::new(&options, false, Purpose::Session { previous, login_opaque: None });
        after_flags(&mut setup, ServerFlags::SERVER).unwrap();
        let request = sent(setup.on_response(login("")));
        assert_eq!(request, Request::Endsess(Endsess { session: SessionId([9; 16]) }));
        let failure = Failure::new(crate::ErrorCode::NOT_FOUND, "no such session");
        assert_eq!(setup.on_response(Response::Error(failure)), Ok(SetupStep::Ready));
    }

    #[test]
    fn a_session_is_pinged_before_streams_are_bound_to_it() {
        let options = Options { streams: 1, ..options() };
        let mut setup = SessionSetup::new(&options, false, session(None));
        after_flags(&mut setup, ServerFlags::SERVER).unwrap();
        assert_eq!(sent(setup.on_response(login(""))), Request::Ping(Ping));
        assert_eq!(setup.on_response(ok("")), Ok(SetupStep::Ready));
    }

    #[test]
    fn security_protocols_are_tried_in_the_servers_order() {
        let options = options();
        let mut setup = SessionSetup::new(&options, false, session(None));
        after_flags(&mut setup, ServerFlags::SERVER).unwrap();
        let request = sent(setup.on_response(login("&P=gsi,v:1&P=ztn,0:4096:&P=unix")));
        let Request::Auth(proof) = request else { panic!("{request:?}") };
        assert_eq!(proof.protocol, *b"unix", "no token without TLS");
        let failure = Failure::new(crate::ErrorCode::AUTH_FAILED, "who is ann?");
        let Err(AttemptError::Login(reason)) = setup.on_response(Response::Error(failure)) else {
            panic!("logged in");
        };
        assert!(reason.contains("gsi") && reason.contains("TLS") && reason.contains("who is ann?"));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_starts_when_the_server_demands_it() {
        let options = options();
        let security = "&P=ztn,0:4096:";
        for flags in [ServerFlags::GO_TO_TLS, ServerFlags::TLS_LOGIN] {
            let mut setup = SessionSetup::new(&options, false, session(None));
            assert_eq!(after_flags(&mut setup, flags), Ok(SetupStep::StartTls));
            let Request::Login(request) = sent(setup.on_tls_started()) else { panic!("no login") };
            assert!(announces_token(&request));
            assert_eq!(setup.token, options.token);
            let Request::Auth(proof) = sent(setup.on_response(login(security))) else { panic!() };
            assert_eq!(proof.protocol, *b"ztn\0");
            assert_eq!(setup.on_response(ok("")), Ok(SetupStep::Ready));
        }
        let silent = Options { without_credentials: true, ..options.clone() };
        let mut setup = SessionSetup::new(&silent, false, session(None));
        after_flags(&mut setup, ServerFlags::GO_TO_TLS).unwrap();
        let Request::Login(request) = sent(setup.on_tls_started()) else { panic!("no login") };
        assert!(!announces_token(&request), "this client sends no credentials");
        let mut setup = SessionSetup::new(&options, false, session(None));
        let step = after_flags(&mut setup, ServerFlags::TLS_SESSION);
        assert_eq!(sent(step).code(), crate::RequestCode::LOGIN);
        assert_eq!(setup.on_response(login("")), Ok(SetupStep::StartTls));
        assert_eq!(setup.on_tls_started(), Ok(SetupStep::Ready));

        let mut setup = SessionSetup::new(&options, true, Purpose::Stream(SessionId([1; 16])));
        let refused = after_flags(&mut setup, ServerFlags::SERVER);
        assert!(
            matches!(refused, Err(AttemptError::Login(_))),
            "no session id is sent without TLS"
        );
        let mut setup = SessionSetup::new(&options, false, Purpose::Stream(SessionId([1; 16])));
        assert_eq!(after_flags(&mut setup, ServerFlags::TLS_DATA), Ok(SetupStep::StartTls));
        assert_eq!(sent(setup.on_tls_started()).code(), crate::RequestCode::BIND);
        assert_eq!(setup.on_response(ok([5])), Ok(SetupStep::Ready));
        assert_eq!(setup.path, PathId(5));
    }

    #[test]
    fn malformed_answers_fail_the_setup() {
        let options = options();
        for response in [ok(""), ok([0; 3]), Response::OkSoFar("x".into())] {
            let mut setup = SessionSetup::new(&options, false, session(None));
            assert!(setup.on_response(response).is_err());
        }
    }
}
