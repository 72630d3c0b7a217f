//! Bearer tokens: JSON web tokens of the WLCG profile, checked against the keys of configured issuers.
//!
//! 1. The keys are files, read when the server starts and again when they change. Nothing is fetched from the network.
//! 2. A token is valid only if its issuer is configured, one of that issuer's keys signed it, its audience is one of
//!    the server's, and it has not expired. `alg: none` and shared secrets are never accepted.
//!
//! Source: "WLCG Common JWT Profiles" 1.0, <https://zenodo.org/records/3460258>.

use std::path::PathBuf;
use std::time::SystemTime;

use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::Mutex;
use serde::Deserialize;

use super::{Identity, Refusal, Rights};

/// The audience of tokens that are valid for every service.
const ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// Seconds by which the issuer's clock may differ.
const LEEWAY_SECONDS: u64 = 60;
/// Bytes of a token.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// An issuer whose tokens are accepted.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The `iss` claim of its tokens: a URL.
    pub issuer: String,
    /// The file with its public keys: a JSON web key set.
    pub keys: PathBuf,
    /// The folder to which paths in its tokens are relative.
    #[serde(default)]
    pub base: String,
}

/// All issuers whose tokens are accepted.
pub struct Tokens {
    audiences: Vec<String>,
    issuers: Vec<(Issuer, Mutex<IssuerKeys>)>,
}

/// An issuer's keys, and the time at which their file was modified.
#[derive(Default)]
struct IssuerKeys {
    set: Vec<Jwk>,
    written: Option<SystemTime>,
}

#[derive(Deserialize)]
struct TokenClaims {
    #[serde(default)]
    sub: String,
    #[serde(default)]
    scope: String,
}

#[derive(Deserialize)]
struct UnverifiedIssuer {
    iss: String,
}

impl Tokens {
    /// Accepts tokens of these issuers for these audiences, and tokens for every service.
    ///
    /// # Errors
    /// A text that names the file whose keys cannot be read.
    pub fn new(issuers: Vec<Issuer>, audiences: Vec<String>) -> Result<Self, String> {
        let with_keys = |issuer: Issuer| {
            let mut keys = IssuerKeys::default();
            keys.read(&issuer)?;
            Ok((issuer, Mutex::new(keys)))
        };
        let audiences = audiences.into_iter().chain([ANY_AUDIENCE.to_owned()]).collect();
        let issuers = issuers.into_iter().map(with_keys).collect::<Result<_, String>>()?;
        Ok(Tokens { audiences, issuers })
    }

    /// Checks a token, and returns its subject with its rights.
    ///
    /// # Errors
    /// [`Refusal`] if the token is invalid; the text does not contain it.
    pub fn identity(&self, token: &str) -> Result<Identity, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal(format!("the token has more than {TOKEN_BYTES_MAX} bytes")));
        }
        let bad =
            |error: jsonwebtoken::errors::Error| Refusal(format!("the token is refused: {error}"));
        let header = decode_header(token).map_err(bad)?;
        // Not verified yet: it only selects the keys. The check of the signature follows.
        let claimed: UnverifiedIssuer =
            jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(bad)?;
        let (issuer, keys) =
            self.issuers.iter().find(|(issuer, _)| issuer.issuer == claimed.iss).ok_or_else(
                || Refusal(format!("this server does not know the issuer {:?}", claimed.iss)),
            )?;
        let key = self.key(issuer, keys, header.kid.as_deref(), header.alg)?;
        let claims = decode::<TokenClaims>(token, &key, &self.validation(issuer, header.alg));
        let claims = claims.map_err(bad)?.claims;
        let rights = Rights::of_scope(&claims.scope, &issuer.base);
        Ok(Identity { name: claims.sub, how: "token", issuer: issuer.issuer.clone(), rights })
    }

    /// Reads all keys again, even if their files have not changed.
    ///
    /// # Errors
    /// A text for each file whose keys cannot be read; then the old keys of all issuers stay in use.
    pub fn read_again(&self) -> Result<usize, Vec<String>> {
        let (mut read, mut wrong) = (vec![], vec![]);
        for (issuer, _) in &self.issuers {
            let mut new = IssuerKeys::default();
            match new.read(issuer) {
                Ok(_) => read.push(new),
                Err(what) => wrong.push(what),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        for ((_, keys), new) in self.issuers.iter().zip(read) {
            *keys.lock() = new;
        }
        Ok(self.issuers.len())
    }

    fn validation(&self, issuer: &Issuer, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_audience(&self.audiences);
        validation.set_issuer(&[&issuer.issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation
    }

    /// The key that a token names, or the issuer's only one.
    fn key(
        &self,
        issuer: &Issuer,
        keys: &Mutex<IssuerKeys>,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, Refusal> {
        if matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) {
            return Err(Refusal("tokens signed with a shared secret are refused".to_owned()));
        }
        let mut keys = keys.lock();
        // If the file cannot be read, for example while it is replaced, the old keys stay in use.
        if let Err(what) = keys.read(issuer) {
            tracing::warn!("{what}");
        }
        let found = match id {
            Some(id) => keys.set.iter().find(|key| key.common.key_id.as_deref() == Some(id)),
            None => keys.set.first().filter(|_| keys.set.len() == 1),
        };
        let key = found.ok_or_else(|| {
            Refusal(format!("the issuer {:?} has no key {id:?} here", issuer.issuer))
        })?;
        DecodingKey::from_jwk(key)
            .map_err(|error| Refusal(format!("cannot use a key of the issuer: {error}")))
    }
}

impl IssuerKeys {
    /// Reads the keys if their file has been modified since the last time.
    fn read(&mut self, issuer: &Issuer) -> Result<(), String> {
        let cannot = |what: &str| {
            format!(
                "cannot read the keys of {} in {}: {what}",
                issuer.issuer,
                issuer.keys.display()
            )
        };
        let metadata = std::fs::metadata(&issuer.keys).map_err(|e| cannot(&e.to_string()))?;
        let written = metadata.modified().ok();
        if written.is_some() && written == self.written {
            return Ok(());
        }
        let text = std::fs::read(&issuer.keys).map_err(|e| cannot(&e.to_string()))?;
        let set: JwkSet = serde_json::from_slice(&text).map_err(|e| cannot(&e.to_string()))?;
        if set.keys.is_empty() {
            return Err(cannot("the file has none"));
        }
        *self = IssuerKeys { set: set.keys, written };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
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
            &json!({"iss": ISSUER, "aud": ANY_AUDIENCE, "exp": now + 600}),
            &EncodingKey::from_secret(b"guess"),
        );
        assert!(
            tokens.identity(&shared.expect("the claims can be signed")).is_err(),
            "a shared secret"
        );
        for nonsense in ["", "a.b.c", "..", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
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
