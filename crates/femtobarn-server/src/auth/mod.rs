//! Authentication and authorisation: who a client is, and what it may do.
//!
//! 1. Nobody has a right that no configured way of authentication gave.
//! 2. Credentials are never logged, nor told in errors.

use std::sync::Arc;

mod rights;
mod token;

pub use rights::{Action, Rights};
pub use token::{Issuer, Tokens};

/// Somebody who was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Their name, as far as it is known; for logs and lists.
    pub name: String,
    /// How it is known: `anonymous`, `unix` or `token`.
    pub how: &'static str,
    /// What they may do.
    pub rights: Rights,
}

impl Identity {
    /// Whether they may do this to a path.
    pub fn may(&self, action: Action, path: &[u8]) -> bool {
        self.rights.may(action, path)
    }
}

/// Why somebody was not let in; a text for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// The ways in which clients of this server may say who they are.
#[derive(Clone, Default)]
pub struct Authenticator {
    /// What somebody may do who says nothing; none: they must say who they are.
    pub anonymous: Option<Rights>,
    /// What somebody may do who only tells a user's name, without proof.
    pub unix: Option<Rights>,
    /// Who is asked about bearer tokens; none: tokens are refused.
    pub tokens: Option<Arc<Tokens>>,
}

impl Authenticator {
    /// Everybody may do everything: for tests and for a machine of one's own.
    pub fn open() -> Self {
        Authenticator { anonymous: Some(Rights::everything()), ..Authenticator::default() }
    }

    /// What a login is answered, if clients must authenticate: the protocols that they may use, as
    /// XRootD writes them (`&P=ztn,..&P=unix`). Tokens are only offered on encrypted connections.
    pub fn parameters(&self, is_encrypted: bool) -> Option<String> {
        // Who may come as nobody need not authenticate, and may still bring a token with a request.
        if self.anonymous.is_some() {
            return None;
        }
        let token = self.tokens.is_some() && is_encrypted;
        let offers = [(token, "&P=ztn,0:4096:"), (self.unix.is_some(), "&P=unix")];
        let offers: String =
            offers.iter().filter(|(is_offered, _)| *is_offered).map(|(_, text)| *text).collect();
        (!offers.is_empty()).then_some(offers)
    }

    /// Somebody who did not say who they are.
    ///
    /// # Errors
    /// [`Refusal`] if they must.
    pub fn anonymous(&self) -> Result<Identity, Refusal> {
        match &self.anonymous {
            Some(rights) => Ok(Identity {
                name: "anonymous".to_owned(),
                how: "anonymous",
                rights: rights.clone(),
            }),
            None if self.tokens.is_some() => Err(Refusal(
                "this server wants a bearer token; tokens are sent only over TLS: use roots://"
                    .to_owned(),
            )),
            None => Err(Refusal("this server wants to know who you are".to_owned())),
        }
    }

    /// Somebody with XRootD credentials: `kind` is the first of the four bytes that name a security
    /// protocol, without zeros.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn credentials(
        &self,
        kind: &[u8],
        data: &[u8],
        is_encrypted: bool,
    ) -> Result<Identity, Refusal> {
        match kind {
            b"unix" => self.unix(data),
            b"ztn" if !is_encrypted => {
                Err(Refusal("a token must only be sent over TLS; use roots://".to_owned()))
            }
            b"ztn" => self.token(ztn_token(data)?),
            other => Err(Refusal(format!(
                "this server does not know the security protocol {:?}",
                String::from_utf8_lossy(other)
            ))),
        }
    }

    /// Somebody with a bearer token.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn token(&self, token: &str) -> Result<Identity, Refusal> {
        match &self.tokens {
            Some(tokens) => tokens.identity(token),
            None => Err(Refusal("this server takes no tokens".to_owned())),
        }
    }

    /// `unix\0user group\0`: a name without proof.
    fn unix(&self, data: &[u8]) -> Result<Identity, Refusal> {
        let Some(rights) = &self.unix else {
            return Err(Refusal("this server takes no names without proof (unix)".to_owned()));
        };
        let names = data.strip_prefix(b"unix\0").unwrap_or(data);
        let name = names.split(|byte| matches!(byte, 0 | b' ')).next().unwrap_or_default();
        match std::str::from_utf8(name) {
            Ok(name) if !name.is_empty() && name.len() <= 256 => {
                Ok(Identity { name: name.to_owned(), how: "unix", rights: rights.clone() })
            }
            _ => Err(Refusal("the credentials hold no user's name".to_owned())),
        }
    }
}

/// The token in `ztn` credentials: `ztn\0`, version, `T`, two reserved bytes, a length of two bytes, and
/// the token with a zero byte behind it.
fn ztn_token(data: &[u8]) -> Result<&str, Refusal> {
    let refused = || Refusal("the credentials hold no token".to_owned());
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
    fn a_name_without_proof_is_what_it_is() {
        let authenticator =
            Authenticator { unix: Some(Rights::reading()), ..Authenticator::default() };
        assert_eq!(authenticator.parameters(false).as_deref(), Some("&P=unix"));
        assert!(authenticator.anonymous().is_err());
        let somebody = authenticator.credentials(b"unix", b"unix\0alice users\0", false);
        let somebody = somebody.expect("it is a name");
        assert_eq!((somebody.name.as_str(), somebody.how), ("alice", "unix"));
        assert!(!somebody.may(Action::Modify, b"/"));
        assert!(authenticator.credentials(b"unix", b"unix\0", false).is_err());
        assert!(authenticator.credentials(b"krb5", b"", false).is_err());
    }

    #[test]
    fn tokens_are_taken_out_of_their_credentials() {
        let mut data = b"ztn\0\0T\0\0\0\x04abc\0".to_vec();
        assert_eq!(ztn_token(&data), Ok("abc"));
        data.truncate(12);
        assert!(ztn_token(&data).is_err());
        assert!(ztn_token(b"ztn\0").is_err());
    }
}
