//! Bearer tokens: JSON web tokens of the WLCG profile and SciTokens, checked against the keys of configured issuers.
//!
//! A token is valid only if its issuer is configured, one of that issuer's keys signed it, and its claims are acceptable here
//! (`claims`). `alg: none` and shared secrets are never accepted, nor are extensions that a token calls critical.
//!
//! Source: "WLCG Common JWT Profiles" 1.2, <https://github.com/WLCG-AuthZ-WG/common-jwt-profile>.

use std::path::PathBuf;

use femtobarn_catalog::clock;
use futures_util::future::join_all;
use jsonwebtoken::{DecodingKey, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::Value;

use super::claims::{AcceptedClaims, UniqueNames};
use super::issuer_keys::{IssuerKeys, WantedKey};
use super::{Identity, Roles};

/// Bytes of a token. So many fit into a header of every protocol.
const TOKEN_BYTES_MAX: usize = 12 * 1024;

/// An issuer whose tokens are accepted.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The `iss` claim of its tokens: a URL.
    pub issuer: String,
    /// The file with the issuer's public keys, a JSON web key set. If empty, they are fetched from the issuer.
    #[serde(default)]
    pub keys: PathBuf,
    /// The folder to which paths in its tokens are relative.
    #[serde(default)]
    pub base: String,
}

/// All issuers whose tokens are accepted.
pub struct Tokens {
    audiences: Vec<String>,
    issuers: Vec<(Issuer, IssuerKeys)>,
    roles: Roles,
}

/// Why a token is not accepted. The text is for its user, and shows nothing of the token but its issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnacceptedToken {
    /// The reason.
    pub why: String,
    /// Whether the token may be a good one, for other servers.
    pub is_for_others: bool,
}

/// The header and issuer of a token, before its signature is verified.
struct UncheckedToken {
    header: Header,
    issuer: String,
}

impl Tokens {
    /// Accepts tokens of these issuers for these audiences, and tokens for any audience.
    ///
    /// # Errors
    /// A text that names the file whose keys cannot be read, or the issuer whose keys cannot be fetched.
    pub fn new(issuers: Vec<Issuer>, audiences: Vec<String>) -> Result<Self, String> {
        let with_keys = |issuer: Issuer| {
            IssuerKeys::of(&issuer.issuer, &issuer.keys).map(|keys| (issuer, keys))
        };
        let issuers = issuers.into_iter().map(with_keys).collect::<Result<_, String>>()?;
        Ok(Tokens { audiences, issuers, roles: Roles::default() })
    }

    /// Assigns these roles to the clients of tokens that state no rights.
    pub fn with_roles(self, roles: Roles) -> Self {
        Tokens { roles, ..self }
    }

    /// Checks a token, and returns its subject with its rights.
    ///
    /// # Errors
    /// [`UnacceptedToken`] if the token is invalid, or for other servers.
    pub fn identity(&self, token: &str) -> Result<Identity, UnacceptedToken> {
        let unchecked = UncheckedToken::of(token)?;
        let (issuer, keys) = self.issuer(&unchecked)?;
        let key = keys.find(&unchecked.key()).map_err(refused)?;
        let key = DecodingKey::from_jwk(&key)
            .map_err(|error| invalid(format!("cannot use a key of the issuer: {error}")))?;
        let mut signed = Validation::new(unchecked.header.alg);
        // The claims, of any version, are checked below.
        signed.required_spec_claims.clear();
        (signed.validate_exp, signed.validate_aud) = (false, false);
        let UniqueNames(claims) = decode(token, &key, &signed).map_err(refused)?.claims;
        let now = clock::utc();
        let accepted = AcceptedClaims::of(&claims, &self.audiences, &issuer.base, now);
        let accepted = accepted.map_err(|claims| UnacceptedToken {
            is_for_others: claims.is_for_others,
            ..refused(claims.why)
        })?;
        let rights = accepted.rights.unwrap_or_else(|| {
            let groups: Vec<_> = accepted.groups.iter().map(String::as_str).collect();
            self.roles.of_token(&issuer.issuer, &accepted.subject, &groups)
        });
        Ok(Identity {
            name: accepted.subject,
            how: "token",
            issuer: issuer.issuer.clone(),
            rights,
            until: Some(accepted.until),
            ignored_token: None,
        })
    }

    /// Waits until the key of a token exists, if it may have to be fetched; for some seconds at most.
    pub async fn await_keys(&self, token: &str) {
        let is_fetched = |(_, keys): &(Issuer, IssuerKeys)| matches!(keys, IssuerKeys::Fetched(_));
        if self.issuers.iter().any(is_fetched)
            && let Ok(unchecked) = UncheckedToken::of(token)
            && let Ok((_, keys)) = self.issuer(&unchecked)
        {
            keys.wait_for(&unchecked.key()).await;
        }
    }

    /// Fetches keys from issuers when they are needed. Never returns, unless all keys are in files.
    pub async fn keep_keys(&self) {
        join_all(self.issuers.iter().map(|(_, keys)| keys.keep())).await;
    }

    /// Reads all files with keys again, even unchanged ones, and has all other keys fetched again.
    ///
    /// # Errors
    /// A text for each file whose keys cannot be read; then the old keys of all issuers stay in use.
    pub fn read_again(&self) -> Result<usize, Vec<String>> {
        let (mut read, mut wrong) = (vec![], vec![]);
        for (_, keys) in &self.issuers {
            match keys {
                IssuerKeys::File(file) => match file.read() {
                    Ok(new) => read.push((file, new)),
                    Err(what) => wrong.push(what),
                },
                IssuerKeys::Fetched(keys) => keys.renew(),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        for (file, new) in read {
            file.replace(new);
        }
        Ok(self.issuers.len())
    }

    /// The issuer that a token names, and its keys.
    fn issuer(&self, token: &UncheckedToken) -> Result<&(Issuer, IssuerKeys), UnacceptedToken> {
        let found = self.issuers.iter().find(|(issuer, _)| issuer.issuer == token.issuer);
        found.ok_or_else(|| {
            let named: String = token.issuer.chars().take(100).collect();
            UnacceptedToken::of_others(format!("this server does not know the issuer {named:?}"))
        })
    }
}

impl UncheckedToken {
    fn of(token: &str) -> Result<Self, UnacceptedToken> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(invalid(format!("the token has more than {TOKEN_BYTES_MAX} bytes")));
        }
        let header = decode_header(token).map_err(refused)?;
        if header.crit.is_some() {
            return Err(refused("it has extensions that are not known here (crit)"));
        }
        let claims: UniqueNames =
            jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(refused)?;
        match claims.0.get("iss") {
            Some(Value::String(issuer)) => Ok(UncheckedToken { header, issuer: issuer.clone() }),
            _ => Err(refused("it does not name its issuer (iss)")),
        }
    }

    fn key(&self) -> WantedKey<'_> {
        WantedKey { id: self.header.kid.as_deref(), algorithm: self.header.alg }
    }
}

impl UnacceptedToken {
    /// A token that may be good for other servers.
    pub(super) fn of_others(why: impl Into<String>) -> Self {
        UnacceptedToken { why: why.into(), is_for_others: true }
    }
}

fn invalid(why: String) -> UnacceptedToken {
    UnacceptedToken { why, is_for_others: false }
}

fn refused(why: impl std::fmt::Display) -> UnacceptedToken {
    invalid(format!("the token is refused: {why}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::SystemTime;

    use jsonwebtoken::jwk::{Jwk, JwkSet};
    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
    use serde_json::{Value, json};

    use super::*;
    use crate::auth::Action;

    const ISSUER: &str = "https://issuer.example";

    /// A key, and its public part in a file.
    fn key_in(file: &Path) -> EncodingKey {
        let pair = rcgen::KeyPair::generate().expect("a key");
        let key =
            EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("the text is a key");
        let mut jwk =
            Jwk::from_encoding_key(&key, Algorithm::ES256).expect("the key has a public part");
        jwk.common.key_id = Some("k1".to_owned());
        let set = serde_json::to_vec(&JwkSet { keys: vec![jwk] }).expect("the set can be encoded");
        std::fs::write(file, set).expect("the file can be written");
        key
    }

    fn token(key: &EncodingKey, changes: Value) -> String {
        let mut claims = json!({
            "iss": ISSUER, "sub": "alice", "aud": "root://storage.example", "wlcg.ver": "1.0",
            "exp": get_current_timestamp() + 600, "scope": "storage.read:/run7",
        });
        for (name, value) in changes.as_object().expect("changes have names") {
            claims[name] = value.clone();
        }
        let header = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, &claims, key).expect("the claims can be signed")
    }

    fn tokens(keys: &Path) -> Tokens {
        let base = "/lhc.fed".to_owned();
        let issuer = Issuer { issuer: ISSUER.to_owned(), keys: keys.to_owned(), base };
        Tokens::new(vec![issuer], vec!["root://storage.example".to_owned()])
            .expect("the file has keys")
    }

    #[test]
    fn a_token_gives_rights_to_its_paths_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = key_in(&folder.path().join("keys"));
        let alice = tokens(&folder.path().join("keys")).identity(&token(&key, json!({})));
        let alice = alice.expect("the token is valid");
        assert_eq!((alice.name.as_str(), alice.how), ("alice", "token"));
        assert!(alice.may(Action::Read, b"/lhc.fed/run7/x"));
        assert!(!alice.may(Action::Read, b"/run7"));
        assert!(!alice.may(Action::Modify, b"/lhc.fed/run7"));
    }

    #[test]
    fn invalid_tokens_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (good, other) = (folder.path().join("keys"), folder.path().join("others"));
        let (key, stranger) = (key_in(&good), key_in(&other));
        let tokens = tokens(&good);
        let now = get_current_timestamp();
        for (changes, why) in [
            (json!({"exp": now - 3600}), "expired"),
            (json!({"nbf": now + 3600}), "not yet"),
            (json!({"aud": "root://elsewhere.example"}), "another audience"),
            (json!({"iss": "https://stranger.example"}), "an unknown issuer"),
        ] {
            assert!(tokens.identity(&token(&key, changes)).is_err(), "{why}");
        }
        assert!(
            tokens.identity(&token(&stranger, json!({}))).is_err(),
            "a signature by another key"
        );
        let whole = token(&key, json!({}));
        let (signed, _) = whole.rsplit_once('.').expect("a token has three parts");
        assert!(tokens.identity(&format!("{signed}.")).is_err(), "no signature");
        let shared = encode(
            &Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::HS256) },
            &json!({"iss": ISSUER, "aud": "root://storage.example", "exp": now + 600}),
            &EncodingKey::from_secret(b"guess"),
        );
        assert!(
            tokens.identity(&shared.expect("the claims can be signed")).is_err(),
            "a shared secret"
        );
        for nonsense in ["", "a.b.c", "..", &format!("{whole}.x"), &"x".repeat(TOKEN_BYTES_MAX + 1)]
        {
            assert!(tokens.identity(nonsense).is_err());
        }
    }

    #[test]
    fn changed_keys_are_used_without_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys");
        let old = key_in(&file);
        let tokens = tokens(&file);
        let new = key_in(&file);
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        let written = std::fs::File::options().write(true).open(&file).expect("the file exists");
        written.set_modified(later).expect("the file is writable");
        assert!(tokens.identity(&token(&new, json!({}))).is_ok());
        assert!(tokens.identity(&token(&old, json!({}))).is_err());
    }
}
