//! Authentication and authorisation of clients. `rights` has the actions that they may perform, `roles` the assignment
//! of rights, `audit` the record of their changes.
//!
//! | module | contents |
//! |---|---|
//! | `certificates` | names in clients' certificates |
//! | `token` | bearer tokens: their signatures |
//! | `claims` | the claims of a token, once its signature is verified |
//! | `issuer_keys` | the keys of issuers: files, or fetched from the issuer |
//!
//! 1. Every right of a client comes from a configured way of authentication.
//! 2. Credentials are never part of logs or error texts.
//! 3. The rights of a token end with it, also in sessions that began with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use femtobarn_catalog::clock;
use parking_lot::Mutex;

mod audit;
mod certificates;
mod claims;
mod issuer_keys;
mod rights;
mod roles;
mod token;

pub use audit::{Asker, AuditLog, AuditedChange};
pub use certificates::CertifiedName;
pub use rights::{Action, Rights};
pub use roles::{RoleConfig, Roles};
pub use token::{Issuer, Tokens, UnacceptedToken};

/// How often the log reports tokens that were ignored for one reason.
const IGNORED_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Reasons in one interval that the log reports at most: they name issuers, which clients choose.
const IGNORED_REASONS_MAX: usize = 64;

/// An authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name, for logs and lists.
    pub name: String,
    /// The way of authentication: `anonymous`, `unix`, `token` or `certificate`.
    pub how: &'static str,
    /// The issuer of the client's token or certificate; empty without one.
    pub issuer: String,
    /// The client's rights.
    pub rights: Rights,
    /// The end of the rights; `None` if they do not end.
    pub until: Option<SystemTime>,
    /// Why the client's token was ignored, so that the client is anonymous.
    pub ignored_token: Option<String>,
}

impl Identity {
    /// Whether the client has this right to a path now.
    pub fn may(&self, action: Action, path: &[u8]) -> bool {
        !self.has_ended() && self.rights.may(action, path)
    }

    /// Whether the client's rights have ended with its token or certificate.
    pub fn has_ended(&self) -> bool {
        self.until.is_some_and(|until| until <= clock::utc())
    }

    /// A text with the action that the client may not perform, and the reason if its rights have ended, or its token
    /// was ignored.
    pub fn explained(&self, what: String) -> String {
        match &self.ignored_token {
            _ if self.has_ended() => format!("{what}: its {} has expired", self.how),
            Some(why) => {
                format!("{what}: it has the rights of clients without a token, since {why}")
            }
            None => what,
        }
    }

    /// Whose sessions and requests are this client's: subjects of two issuers may have one name.
    pub fn owner(&self) -> String {
        if self.issuer.is_empty() {
            self.name.clone()
        } else {
            format!("{} of {}", self.name, self.issuer)
        }
    }
}

/// Why a client was not authenticated; the text is for its user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// The configured ways of authentication.
#[derive(Clone, Default)]
pub struct Authenticator {
    /// The rights of clients without credentials; if `None`, they are refused.
    pub anonymous: Option<Rights>,
    /// The rights of clients that send a user's name without proof; if `None`, they are refused.
    pub unix: Option<Rights>,
    /// Checks bearer tokens; if `None`, tokens are refused.
    pub tokens: Option<Arc<Tokens>>,
    /// The rights of names in clients' certificates.
    pub roles: Arc<Roles>,
    /// Records changes; if `None`, they are not recorded.
    pub audit: Option<Arc<AuditLog>>,
}

impl Authenticator {
    /// All rights for every client, for tests.
    pub fn open() -> Self {
        Authenticator { anonymous: Some(Rights::everything()), ..Authenticator::default() }
    }

    /// The security protocols that the answer to a login offers, in XRootD's notation (`&P=ztn,..&P=unix`); `None` if
    /// the client need not authenticate. Where anonymous clients have rights, XRootD's own clients are not offered any,
    /// since they would have to authenticate; a token is offered if the client has announced one. Tokens are offered on
    /// encrypted connections only.
    pub fn parameters(
        &self,
        is_encrypted: bool,
        has_token: bool,
        has_certificate: bool,
    ) -> Option<String> {
        let is_open = self.anonymous.is_some() || has_certificate;
        let token = self.tokens.is_some() && is_encrypted && (has_token || !is_open);
        let offers = [(token, "&P=ztn,0:4096:"), (self.unix.is_some() && !is_open, "&P=unix")];
        let offers: String =
            offers.iter().filter(|(is_offered, _)| *is_offered).map(|(_, text)| *text).collect();
        (!offers.is_empty()).then_some(offers)
    }

    /// The identity of a client without credentials.
    ///
    /// # Errors
    /// [`Refusal`] if clients have to authenticate.
    pub fn anonymous(&self) -> Result<Identity, Refusal> {
        match &self.anonymous {
            Some(rights) => Ok(Identity {
                name: "anonymous".to_owned(),
                how: "anonymous",
                issuer: String::new(),
                rights: rights.clone(),
                until: None,
                ignored_token: None,
            }),
            None if self.tokens.is_some() => Err(Refusal(
                "this server requires a bearer token, which is sent over TLS only: use roots://"
                    .to_owned(),
            )),
            None => Err(Refusal("this server requires authentication".to_owned())),
        }
    }

    /// The identity of a client without credentials of this protocol, by its certificate, or else anonymous. A client
    /// with a certificate has the rights of the certificate's roles besides those of all clients.
    ///
    /// # Errors
    /// The errors of [`anonymous`](Self::anonymous), without a certificate.
    pub fn certified(&self, name: Option<&CertifiedName>) -> Result<Identity, Refusal> {
        let Some(name) = name else { return self.anonymous() };
        let own = self.roles.of_certificate(name);
        let rights = self.anonymous.iter().fold(own, |own, all| own.and(all));
        Ok(Identity {
            name: name.subject.clone(),
            how: "certificate",
            issuer: name.issuer.clone(),
            rights,
            until: Some(name.until),
            ignored_token: None,
        })
    }

    /// The identity for XRootD credentials: the security protocol's name, four bytes without their zeros, and the bytes
    /// that follow it.
    ///
    /// # Errors
    /// [`Refusal`] if the protocol is not configured or the credentials are invalid.
    pub fn credentials(
        &self,
        (kind, data): (&[u8], &[u8]),
        is_encrypted: bool,
        name: Option<&CertifiedName>,
    ) -> Result<Identity, Refusal> {
        match kind {
            b"unix" => self.unix(data),
            b"ztn" if !is_encrypted => {
                Err(Refusal("a token must only be sent over TLS; use roots://".to_owned()))
            }
            b"ztn" => self.token(ztn_token(data)?, name),
            other => Err(Refusal(format!(
                "this server does not know the security protocol {:?}",
                String::from_utf8_lossy(other)
            ))),
        }
    }

    /// The identity for the headers `Authorization` of a request; without such a header, the one by the client's
    /// certificate.
    ///
    /// # Errors
    /// [`Refusal`] of [`certified`](Self::certified) and [`token`](Self::token), and if there are several headers, or
    /// one without a bearer token.
    pub fn authorization<'a>(
        &self,
        mut headers: impl Iterator<Item = &'a [u8]>,
        name: Option<&CertifiedName>,
    ) -> Result<Identity, Refusal> {
        let Some(value) = headers.next() else { return self.certified(name) };
        if headers.next().is_some() {
            return Err(Refusal("the request has more than one authorization".to_owned()));
        }
        match bearer(value) {
            Some(token) => self.token(token, name),
            None => Err(Refusal("the authorization is not a bearer token".to_owned())),
        }
    }

    /// Waits until a token can be verified, for some seconds at most: the keys of its issuer may have to be fetched.
    /// Decides nothing about the token.
    pub async fn await_keys(&self, token: &str) {
        if let Some(tokens) = &self.tokens {
            tokens.await_keys(token).await;
        }
    }

    /// As [`await_keys`](Self::await_keys), for XRootD credentials.
    pub async fn await_keys_of(&self, kind: &[u8], data: &[u8]) {
        if let (b"ztn", Ok(token)) = (kind, ztn_token(data)) {
            self.await_keys(token).await;
        }
    }

    /// The identity of a bearer token. If the token is for other servers, the identity by the client's certificate, or
    /// else an anonymous one, if anonymous clients have rights: clients send any token that they find, whatever its
    /// audience.
    ///
    /// # Errors
    /// [`Refusal`] if the token is invalid, or is for other servers and clients have to authenticate.
    pub fn token(&self, token: &str, name: Option<&CertifiedName>) -> Result<Identity, Refusal> {
        let refused = match &self.tokens {
            Some(tokens) => match tokens.identity(token) {
                Ok(identity) => return Ok(identity),
                Err(refused) => refused,
            },
            None => UnacceptedToken::of_others("this server does not accept tokens"),
        };
        match self.certified(name) {
            Ok(without) if refused.is_for_others => {
                log_ignored_token(&refused.why);
                Ok(Identity { ignored_token: Some(refused.why), ..without })
            }
            _ => Err(Refusal(refused.why)),
        }
    }

    /// Begins a change of these paths, which is recorded if there is an audit log.
    ///
    /// # Errors
    /// [`Refusal`] while the audit log cannot be written.
    pub fn audited(
        &self,
        asker: Asker<'_>,
        what: &'static str,
        paths: impl IntoIterator<Item = String>,
    ) -> Result<AuditedChange, Refusal> {
        match &self.audit {
            Some(log) => log.begin(asker, what, paths.into_iter().collect()),
            None => Ok(AuditedChange::unrecorded()),
        }
    }

    /// `unix\0user group\0`: a name without proof.
    fn unix(&self, data: &[u8]) -> Result<Identity, Refusal> {
        let Some(rights) = &self.unix else {
            return Err(Refusal("this server does not accept unix credentials".to_owned()));
        };
        let names = data.strip_prefix(b"unix\0").unwrap_or(data);
        let name = names.split(|byte| matches!(byte, 0 | b' ')).next().unwrap_or_default();
        match std::str::from_utf8(name) {
            Ok(name) if !name.is_empty() && name.len() <= 256 => {
                let (name, issuer) = (name.to_owned(), String::new());
                let rights = rights.clone();
                Ok(Identity { name, how: "unix", issuer, rights, until: None, ignored_token: None })
            }
            _ => Err(Refusal("the credentials have no user name".to_owned())),
        }
    }
}

/// When the log reported ignored tokens last, by the reason. Clients may send one with each request.
#[derive(Default)]
struct IgnoredTokens(BTreeMap<String, Instant>);

impl IgnoredTokens {
    /// Whether a token that is ignored for this reason is to be reported: once in [`IGNORED_LOG_INTERVAL`] for each
    /// reason, of which there are [`IGNORED_REASONS_MAX`] at most.
    fn is_due(&mut self, why: &str, now: Instant) -> bool {
        self.0.retain(|_, at| now.duration_since(*at) < IGNORED_LOG_INTERVAL);
        let is_due = !self.0.contains_key(why) && self.0.len() < IGNORED_REASONS_MAX;
        if is_due {
            self.0.insert(why.to_owned(), now);
        }
        is_due
    }
}

fn log_ignored_token(why: &str) {
    static REPORTED: Mutex<IgnoredTokens> = Mutex::new(IgnoredTokens(BTreeMap::new()));
    if REPORTED.lock().is_due(why, clock::now()) {
        tracing::warn!(
            why,
            "a client with a token for other servers is served as one without a token"
        );
    }
}

/// The token in `Bearer eyJ..`.
pub fn bearer(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}

/// The token in `ztn` credentials: `ztn\0`, version, `T`, two reserved bytes, a length of two bytes, and the token with
/// a zero byte at its end.
fn ztn_token(data: &[u8]) -> Result<&str, Refusal> {
    let refused = || Refusal("the credentials have no token".to_owned());
    let rest = data.strip_prefix(b"ztn\0").unwrap_or(data);
    let [_version, b'T', _, _, high, low, rest @ ..] = rest else { return Err(refused()) };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let token = rest.get(..length).ok_or_else(refused)?;
    let token = token.strip_suffix(&[0]).unwrap_or(token);
    std::str::from_utf8(token).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_credentials_give_the_configured_rights_to_a_name() {
        let authenticator =
            Authenticator { unix: Some(Rights::reading()), ..Authenticator::default() };
        assert_eq!(authenticator.parameters(false, true, false).as_deref(), Some("&P=unix"));
        assert!(authenticator.anonymous().is_err());
        let of = |kind: &[u8], data: &[u8]| authenticator.credentials((kind, data), false, None);
        let somebody = of(b"unix", b"unix\0alice users\0");
        let somebody = somebody.expect("the name is known");
        assert_eq!((somebody.name.as_str(), somebody.how), ("alice", "unix"));
        assert!(!somebody.may(Action::Modify, b"/"));
        assert!(of(b"unix", b"unix\0").is_err());
        assert!(of(b"krb5", b"").is_err());
    }

    #[test]
    fn tokens_are_asked_for_where_they_are_needed_or_announced() {
        let tokens = Tokens::new(vec![], vec![]).expect("no issuer is wrong");
        let closed = Authenticator { tokens: Some(Arc::new(tokens)), ..Authenticator::default() };
        let open = Authenticator { anonymous: Some(Rights::reading()), ..closed.clone() };
        let offer = Some("&P=ztn,0:4096:".to_owned());
        assert_eq!(
            (closed.parameters(true, false, false), closed.parameters(true, true, true)),
            (offer.clone(), offer.clone())
        );
        let with_token = open.parameters(true, true, false);
        assert_eq!((open.parameters(true, false, false), with_token), (None, offer));
        assert_eq!(closed.parameters(true, false, true), None, "the certificate is enough");
        let in_clear = [&closed, &open].map(|it| it.parameters(false, true, false));
        assert_eq!(in_clear, [None, None]);
    }

    #[test]
    fn a_header_has_one_bearer_token() {
        for good in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(bearer(good.as_bytes()), Some("abc"), "{good:?}");
        }
        for wrong in [&b"abc"[..], b"Basic abc", b"Bearerabc", b"Bearer \xff"] {
            assert_eq!(bearer(wrong), None);
        }
        let open = Authenticator::open();
        assert!(open.authorization([].into_iter(), None).is_ok());
        assert!(open.authorization([&b"Basic abc"[..]].into_iter(), None).is_err());
        let two = [&b"Bearer abc"[..], b"Bearer abc"];
        assert!(
            open.authorization(two.into_iter(), None)
                .is_err_and(|why| why.0.contains("more than one"))
        );
    }

    #[test]
    fn each_reason_to_ignore_a_token_is_reported_once_a_minute() {
        let (mut ignored, now) = (IgnoredTokens::default(), clock::now());
        assert!(ignored.is_due("one issuer", now) && ignored.is_due("another", now));
        assert!(!ignored.is_due("one issuer", now));
        let later = now + IGNORED_LOG_INTERVAL;
        assert!(ignored.is_due("one issuer", later));
        let many = (0..1000).filter(|issuer| ignored.is_due(&issuer.to_string(), later));
        assert_eq!(many.count(), IGNORED_REASONS_MAX - 1);
    }

    #[test]
    fn rights_end_with_their_token() {
        let ending = |until| Identity {
            name: "alice".to_owned(),
            how: "token",
            issuer: String::new(),
            rights: Rights::reading(),
            until,
            ignored_token: None,
        };
        let now = clock::utc();
        let second = std::time::Duration::from_secs(60);
        assert!(
            ending(Some(now + second)).may(Action::Read, b"/")
                && ending(None).may(Action::Read, b"/")
        );
        assert!(!ending(Some(now)).may(Action::Read, b"/"));
        let said = |until| ending(until).explained("alice may not read /".to_owned());
        assert_eq!(said(Some(now)), "alice may not read /: its token has expired");
        assert_eq!(said(None), "alice may not read /");
    }

    #[test]
    fn tokens_are_decoded_from_ztn_credentials() {
        let mut data = b"ztn\0\0T\0\0\0\x04abc\0".to_vec();
        assert_eq!(ztn_token(&data), Ok("abc"));
        data.truncate(12);
        assert!(ztn_token(&data).is_err());
        assert!(ztn_token(b"ztn\0").is_err());
    }
}
