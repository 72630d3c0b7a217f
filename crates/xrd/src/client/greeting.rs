//! From the first byte of a connection to a session, without I/O.
//!
//! ```text
//! handshake + protocol ─> [TLS] ─> login ─> auth .. ─> [TLS] ─> endsess ─> ready
//! handshake + protocol ─> [TLS] ─> bind ────────────────────────────────> ready
//! ```
//!
//! 1. TLS starts where the server says so, and before anything is told where the user wants it.
//! 2. Security protocols are tried in the server's order, those without credentials are left out.

use super::credentials::{credentials, user_name};
use super::failure::AttemptError;
use super::options::Options;
use crate::codes::Expect;
use crate::error::{Error, Result};
use crate::flags::{Ability, AbilityMore, ProtocolOptions, ServerFlags};
use crate::handshake::{HANDSHAKE, HandshakeAnswer, Version};
use crate::ids::{PathId, SessionId, StreamId};
use crate::request::{Bind, Capability, Endsess, Login, Protocol, Request};
use crate::response::{Answer, BindAnswer, LoginAnswer, ProtocolAnswer, Response};

/// Names the requests of the greeting.
const STREAM: StreamId = StreamId([0, 1]);

/// What a connection is made for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A session of its own; the one that the client had before is ended.
    Session {
        /// The session before.
        before: Option<SessionId>,
        /// What a redirect gave to be told at the login.
        told: Option<String>,
    },
    /// One more stream of a session.
    Stream(SessionId),
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send this and hear the answer.
    Send(Vec<u8>),
    /// Hear one more answer.
    Hear,
    /// Make the connection secret, then tell [`Greeting::secret`].
    StartTls,
    /// The connection can be used.
    Ready,
}

/// A connection that begins.
#[derive(Debug)]
pub(super) struct Greeting<'a> {
    options: &'a Options,
    purpose: Purpose,
    wants_tls: bool,
    is_secret: bool,
    state: State,
    /// What the server is and demands.
    pub server: ProtocolAnswer,
    /// The session; zeros until the login.
    pub session: SessionId,
    /// The stream within its session.
    pub path: PathId,
    /// Security protocols that were not tried yet.
    untried: Vec<String>,
    /// Why others did not do.
    failed: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshake,
    Protocol,
    Login,
    Auth,
    Endsess,
    Bind,
}

impl<'a> Greeting<'a> {
    pub fn new(options: &'a Options, wants_tls: bool, purpose: Purpose) -> Self {
        Greeting {
            options,
            purpose,
            wants_tls,
            is_secret: false,
            state: State::Handshake,
            server: ProtocolAnswer::default(),
            session: SessionId::default(),
            path: PathId::default(),
            untried: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// What is sent first: the handshake and the protocol request in one piece.
    pub fn first(&self) -> Result<Vec<u8>> {
        let mut bytes = HANDSHAKE.to_vec();
        let mut options = ProtocolOptions::SECURITY;
        if cfg!(feature = "tls") {
            options = options | ProtocolOptions::ABLE_TLS;
        }
        if self.wants_tls {
            options = options | ProtocolOptions::WANT_TLS;
        }
        let expect = match self.purpose {
            Purpose::Session { .. } => Expect::LOGIN,
            Purpose::Stream(_) => Expect::BIND,
        };
        let protocol = Protocol { version: Version::CURRENT, options, expect };
        Request::from(protocol).encode(STREAM, &mut bytes)?;
        Ok(bytes)
    }

    /// Takes an answer.
    pub fn hear(&mut self, response: Response) -> Result<Step, AttemptError> {
        let body = match (self.state, response) {
            (State::Auth, Response::Error(failure)) => return self.next_proof(failure.message),
            (State::Auth, Response::AuthMore(_)) => {
                return self.next_proof("it asks for more than one proof".to_owned());
            }
            // Not knowing the session any more is as good as ending it.
            (State::Endsess, Response::Error(_)) => return Ok(Step::Ready),
            (_, Response::Ok(body)) => body,
            (_, Response::Error(failure)) => return Err(AttemptError::Failure(failure)),
            (_, Response::Redirect(redirect)) => return Err(AttemptError::Redirect(redirect)),
            (_, Response::Wait(wait)) => return Err(AttemptError::Wait(wait)),
            (_, Response::Attn(_) | Response::WaitResp(_)) => return Ok(Step::Hear),
            (_, other) => {
                let reason = format!("{} does not answer a greeting", other.status());
                return Err(Error::malformed("response", 0, reason).into());
            }
        };
        match self.state {
            State::Handshake => {
                HandshakeAnswer::decode(&body)?;
                self.state = State::Protocol;
                Ok(Step::Hear)
            }
            State::Protocol => {
                self.server = ProtocolAnswer::decode(&body)?;
                self.after_protocol()
            }
            State::Login => {
                let answer = LoginAnswer::decode(&body)?;
                self.session = answer.session;
                let protocols = answer.security_protocols().map(|(name, _)| name.trim().to_owned());
                self.untried = protocols.collect();
                self.untried.reverse();
                match self.untried.is_empty() {
                    true => self.after_login(),
                    false => self.next_proof(String::new()),
                }
            }
            State::Auth => self.after_login(),
            State::Endsess => Ok(Step::Ready),
            State::Bind => {
                self.path = BindAnswer::decode(&body)?.path;
                Ok(Step::Ready)
            }
        }
    }

    /// The connection is secret now.
    pub fn secret(&mut self) -> Result<Step, AttemptError> {
        self.is_secret = true;
        match self.state {
            State::Protocol => self.log_in(),
            _ => self.end_session_before(),
        }
    }

    fn after_protocol(&mut self) -> Result<Step, AttemptError> {
        let flags = self.server.flags;
        let is_stream = matches!(self.purpose, Purpose::Stream(_));
        let demanded = flags.contains(ServerFlags::GO_TO_TLS)
            || (is_stream && flags.contains(ServerFlags::TLS_DATA))
            || (!is_stream && flags.contains(ServerFlags::TLS_LOGIN));
        match (demanded, self.wants_tls) {
            (true, _) if !cfg!(feature = "tls") => Err(AttemptError::Login(
                "the server demands TLS, which this client is without".to_owned(),
            )),
            (true, _) => Ok(Step::StartTls),
            (false, true) => Err(AttemptError::Login(
                "roots:// was asked for, but the server has no TLS; use root:// if that will do"
                    .to_owned(),
            )),
            (false, false) => self.log_in(),
        }
    }

    fn log_in(&mut self) -> Result<Step, AttemptError> {
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
            opaque: self.introduction().into(),
        };
        self.send(State::Login, login)
    }

    /// What the login tells beside the user's name.
    fn introduction(&self) -> String {
        let application: String =
            self.options.application.chars().filter(|letter| !"&=?\0".contains(*letter)).collect();
        let told = match &self.purpose {
            Purpose::Session { told: Some(told), .. } => format!("&{told}"),
            _ => String::new(),
        };
        format!("?xrd.appname={application}&xrd.rn={}{told}", env!("CARGO_PKG_VERSION"))
    }

    /// Goes on with the next security protocol after one that did not do.
    fn next_proof(&mut self, failure: String) -> Result<Step, AttemptError> {
        if !failure.is_empty() {
            self.failed.push(failure);
        }
        while let Some(protocol) = self.untried.pop() {
            match credentials(&protocol, self.options, self.is_secret) {
                Ok(proof) => return self.send(State::Auth, proof),
                Err(reason) => self.failed.push(reason),
            }
        }
        Err(AttemptError::Login(self.failed.join("; ")))
    }

    fn after_login(&mut self) -> Result<Step, AttemptError> {
        let demanded = self.server.flags.contains(ServerFlags::TLS_SESSION);
        match demanded && !self.is_secret && cfg!(feature = "tls") {
            true => {
                self.state = State::Endsess;
                Ok(Step::StartTls)
            }
            false => self.end_session_before(),
        }
    }

    fn end_session_before(&mut self) -> Result<Step, AttemptError> {
        match self.purpose {
            Purpose::Session { before: Some(session), .. } => {
                self.send(State::Endsess, Endsess { session })
            }
            _ => Ok(Step::Ready),
        }
    }

    fn send(&mut self, state: State, request: impl Into<Request>) -> Result<Step, AttemptError> {
        self.state = state;
        let mut bytes = Vec::new();
        request.into().encode(STREAM, &mut bytes)?;
        Ok(Step::Send(bytes))
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

    fn session(told: Option<&str>) -> Purpose {
        Purpose::Session { before: None, told: told.map(str::to_owned) }
    }

    /// The request that a step sends.
    fn sent(step: Result<Step, AttemptError>) -> Request {
        let Ok(Step::Send(bytes)) = step else { panic!("{step:?}") };
        let event = RequestFramer::after_handshake().next(&mut bytes.into()).unwrap();
        let Some(RequestEvent::Request(received)) = event else { panic!("{event:?}") };
        received.request.unwrap()
    }

    /// What comes after a server has told what it is and demands.
    fn after_flags(greeting: &mut Greeting<'_>, flags: ServerFlags) -> Result<Step, AttemptError> {
        let hello = HandshakeAnswer { version: Version::CURRENT, data_server: true };
        assert_eq!(greeting.hear(ok(&hello.encode()[8..])), Ok(Step::Hear));
        let answer = ProtocolAnswer { version: Version::CURRENT, flags, ..Default::default() };
        greeting.hear(ok(answer.encode().unwrap()))
    }

    fn login(security: &str) -> Response {
        let (session, security) = (SessionId([1; 16]), security.to_owned());
        ok(LoginAnswer { session, security }.encode().unwrap())
    }

    #[test]
    fn anybody_logs_in_where_nothing_is_asked_for() {
        let options = options();
        let mut greeting = Greeting::new(&options, false, session(Some("who=x")));
        assert_eq!(greeting.first().unwrap().len(), 44, "in one piece");
        let Request::Login(request) = sent(after_flags(&mut greeting, ServerFlags::SERVER)) else {
            panic!("no login");
        };
        assert_eq!(request.user_name(), b"ann");
        assert!(request.opaque.ends_with(b"&who=x"));
        assert_eq!(greeting.hear(login("")), Ok(Step::Ready));
        assert_eq!(greeting.session, SessionId([1; 16]));
    }

    #[test]
    fn the_session_before_is_ended() {
        let (options, before) = (options(), Some(SessionId([9; 16])));
        let mut greeting = Greeting::new(&options, false, Purpose::Session { before, told: None });
        after_flags(&mut greeting, ServerFlags::SERVER).unwrap();
        let request = sent(greeting.hear(login("")));
        assert_eq!(request, Request::Endsess(Endsess { session: SessionId([9; 16]) }));
        let failure = Failure::new(crate::ErrorCode::NOT_FOUND, "no such session");
        assert_eq!(greeting.hear(Response::Error(failure)), Ok(Step::Ready));
    }

    #[test]
    fn security_protocols_are_tried_in_turn() {
        let options = options();
        let mut greeting = Greeting::new(&options, false, session(None));
        after_flags(&mut greeting, ServerFlags::SERVER).unwrap();
        let request = sent(greeting.hear(login("&P=gsi,v:1&P=ztn,0:4096:&P=unix")));
        let Request::Auth(proof) = request else { panic!("{request:?}") };
        assert_eq!(proof.protocol, *b"unix", "no token without TLS");
        let failure = Failure::new(crate::ErrorCode::AUTH_FAILED, "who is ann?");
        let Err(AttemptError::Login(reason)) = greeting.hear(Response::Error(failure)) else {
            panic!("logged in");
        };
        assert!(reason.contains("gsi") && reason.contains("TLS") && reason.contains("who is ann?"));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_starts_where_the_server_says() {
        let options = options();
        let security = "&P=ztn,0:4096:";
        for flags in [ServerFlags::GO_TO_TLS, ServerFlags::TLS_LOGIN] {
            let mut greeting = Greeting::new(&options, false, session(None));
            assert_eq!(after_flags(&mut greeting, flags), Ok(Step::StartTls));
            assert_eq!(sent(greeting.secret()).code(), crate::RequestCode::LOGIN);
            let Request::Auth(proof) = sent(greeting.hear(login(security))) else { panic!() };
            assert_eq!(proof.protocol, *b"ztn\0");
            assert_eq!(greeting.hear(ok("")), Ok(Step::Ready));
        }
        let mut greeting = Greeting::new(&options, false, session(None));
        let step = after_flags(&mut greeting, ServerFlags::TLS_SESSION);
        assert_eq!(sent(step).code(), crate::RequestCode::LOGIN);
        assert_eq!(greeting.hear(login("")), Ok(Step::StartTls));
        assert_eq!(greeting.secret(), Ok(Step::Ready));

        let mut greeting = Greeting::new(&options, true, Purpose::Stream(SessionId([1; 16])));
        let refused = after_flags(&mut greeting, ServerFlags::SERVER);
        assert!(matches!(refused, Err(AttemptError::Login(_))), "nothing is told in the open");
        let mut greeting = Greeting::new(&options, false, Purpose::Stream(SessionId([1; 16])));
        assert_eq!(after_flags(&mut greeting, ServerFlags::TLS_DATA), Ok(Step::StartTls));
        assert_eq!(sent(greeting.secret()).code(), crate::RequestCode::BIND);
        assert_eq!(greeting.hear(ok([5])), Ok(Step::Ready));
        assert_eq!(greeting.path, PathId(5));
    }

    #[test]
    fn answers_that_are_none_end_a_greeting() {
        let options = options();
        for response in [ok(""), ok([0; 3]), Response::OkSoFar("x".into())] {
            let mut greeting = Greeting::new(&options, false, session(None));
            assert!(greeting.hear(response).is_err());
        }
    }
}
