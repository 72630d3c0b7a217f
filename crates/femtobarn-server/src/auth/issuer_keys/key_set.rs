//! Sets of public keys, and the choice of the key that verifies a signature.

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, KeyOperations, PublicKeyUse};

/// The most keys of an issuer that are searched.
const KEYS_MAX: usize = 100;

/// The key to search for: the one with this id, or, without an id, the only one.
pub(in crate::auth) struct WantedKey<'a> {
    pub id: Option<&'a str>,
    pub algorithm: Algorithm,
}

impl WantedKey<'_> {
    /// The key among all of an issuer.
    pub(super) fn among<'k>(&self, keys: &'k [Jwk]) -> Option<&'k Jwk> {
        match self.id {
            Some(id) => keys.iter().find(|key| {
                key.common.key_id.as_deref() == Some(id) && checks(key, self.algorithm)
            }),
            None => match keys {
                [only] if checks(only, self.algorithm) => Some(only),
                _ => None,
            },
        }
    }

    /// The refusal of a token whose key its issuer does not have.
    pub(super) fn unknown(&self) -> String {
        let id: Option<String> = self.id.map(|id| id.chars().take(100).collect());
        format!("its issuer has no key {id:?} here for {:?}", self.algorithm)
    }
}

/// Whether a key is for signatures by an algorithm.
fn checks(key: &Jwk, algorithm: Algorithm) -> bool {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    let is_of_kind = match &key.algorithm {
        AlgorithmParameters::RSA(_) => {
            matches!(algorithm, RS256 | RS384 | RS512 | PS256 | PS384 | PS512)
        }
        AlgorithmParameters::EllipticCurve(_) => matches!(algorithm, ES256 | ES384),
        AlgorithmParameters::OctetKeyPair(_) => algorithm == EdDSA,
        _ => false,
    };
    let common = &key.common;
    let is_for_signatures =
        common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|it| it.contains(&KeyOperations::Verify));
    is_of_kind && is_for_signatures && common.key_algorithm.is_none_or(|it| it == algorithm.into())
}

/// The keys of a JSON web key set.
pub(super) fn parsed(text: &[u8]) -> Result<Vec<Jwk>, String> {
    let set: JwkSet = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut keys = set.keys;
    keys.truncate(KEYS_MAX);
    if keys.is_empty() { Err("there are none".to_owned()) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_verifies_its_own_kind_only() {
        let rsa = r#"{"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "r""#;
        let curve = r#"{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "e""#;
        for (key, algorithm, is_found) in [
            (format!("{rsa}}}"), Algorithm::RS256, true),
            (format!("{rsa}}}"), Algorithm::PS512, true),
            (format!("{rsa}}}"), Algorithm::ES256, false),
            (format!("{rsa}}}"), Algorithm::HS256, false),
            (format!(r#"{rsa}, "alg": "RS256", "use": "sig"}}"#), Algorithm::RS256, true),
            (format!(r#"{rsa}, "alg": "RS256"}}"#), Algorithm::PS256, false),
            (format!(r#"{rsa}, "use": "enc"}}"#), Algorithm::RS256, false),
            (format!(r#"{rsa}, "key_ops": ["encrypt"]}}"#), Algorithm::RS256, false),
            (format!(r#"{rsa}, "key_ops": ["verify"]}}"#), Algorithm::RS256, true),
            (format!("{curve}}}"), Algorithm::ES256, true),
            (format!("{curve}}}"), Algorithm::EdDSA, false),
            (r#"{"kty": "oct", "k": "AA", "kid": "o"}"#.to_owned(), Algorithm::HS256, false),
        ] {
            let keys = parsed(format!(r#"{{"keys": [{key}]}}"#).as_bytes()).expect("a set of keys");
            let found = WantedKey { id: None, algorithm }.among(&keys).is_some();
            assert_eq!(found, is_found, "{key} {algorithm:?}");
        }
    }

    #[test]
    fn a_token_names_its_key_unless_there_is_one_alone() {
        let key = |id: &str| {
            format!(r#"{{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "{id}"}}"#)
        };
        let text = format!(r#"{{"keys": [{}, {}]}}"#, key("a"), key("b"));
        let keys = parsed(text.as_bytes()).expect("a set of keys");
        let found = |id| {
            let found = WantedKey { id, algorithm: Algorithm::ES256 }.among(&keys);
            found.and_then(|key| key.common.key_id.as_deref())
        };
        assert_eq!((found(Some("b")), found(Some("c")), found(None)), (Some("b"), None, None));
        assert!(parsed(br#"{"keys": []}"#).is_err() && parsed(b"[]").is_err());
    }
}
