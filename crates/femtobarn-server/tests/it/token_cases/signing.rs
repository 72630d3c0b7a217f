//! Keys and tokens, of any header, claims and signature.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::sign;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use crate::tokens::{AUDIENCE, Guarded, ISSUER};

/// The issuer, with several keys.
pub(super) struct Signer {
    /// The keys that the server knows: `k1` of ES256, `k3` of ES384 and `e1` of EdDSA.
    pub k1: EncodingKey,
    pub k3: EncodingKey,
    pub e1: EncodingKey,
    /// A key that the server knows as `enc`, but for encryption.
    pub enc: EncodingKey,
    /// A key that the server does not know.
    pub stranger: EncodingKey,
    /// The public part of `k1`.
    pub k1_public: Jwk,
    /// Now, in seconds since 1970.
    pub now: u64,
}

/// A shared secret that is a key of the issuer at the server, as `shared`.
pub(super) const SECRET: &[u8] = b"a secret of 32 bytes, for HS256.";

/// The bytes before the secret of a key of Ed25519 (PKCS 8, version 1).
const ED25519_HEAD: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

impl Signer {
    /// The issuer of a server, which from now on knows all of its keys.
    pub(super) fn new(guarded: &Guarded) -> Self {
        let ec = |algorithm| {
            let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
            EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap()
        };
        let e1 = EncodingKey::from_ed_der(&[&ED25519_HEAD[..], &[7; 32]].concat());
        let k3 = ec(&rcgen::PKCS_ECDSA_P384_SHA384);
        let enc = ec(&rcgen::PKCS_ECDSA_P256_SHA256);
        let public = |key: &EncodingKey, algorithm, id: &str| {
            let mut jwk = Jwk::from_encoding_key(key, algorithm).unwrap();
            jwk.common.key_id = Some(id.to_owned());
            jwk
        };
        let mut for_encryption = public(&enc, Algorithm::ES256, "enc");
        for_encryption.common.public_key_use = Some(PublicKeyUse::Encryption);
        let shared = json!({"kty": "oct", "kid": "shared", "k": URL_SAFE_NO_PAD.encode(SECRET)});
        let k1_public = public(&guarded.key, Algorithm::ES256, "k1");
        let keys = vec![
            k1_public.clone(),
            public(&k3, Algorithm::ES384, "k3"),
            public(&e1, Algorithm::EdDSA, "e1"),
            for_encryption,
            serde_json::from_value(shared).unwrap(),
        ];
        let file = guarded.folder.path().join("issuers");
        std::fs::write(file, serde_json::to_vec(&JwkSet { keys }).unwrap()).unwrap();
        guarded.server.reload(&guarded.config).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let (k1, stranger) = (guarded.key.clone(), ec(&rcgen::PKCS_ECDSA_P256_SHA256));
        Signer { k1, k3, e1, enc, stranger, k1_public, now }
    }

    /// The claims of a token that lets its client read the federation.
    pub(super) fn claims(&self) -> Value {
        json!({
            "iss": ISSUER, "sub": "alice", "aud": AUDIENCE, "exp": self.now + 3600, "nbf": self.now,
            "iat": self.now, "jti": "b3a1", "wlcg.ver": "1.0", "scope": "storage.read:/lhc.fed",
        })
    }

    /// A token with these claims.
    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_of(&json!({"alg": "ES256", "typ": "JWT", "kid": "k1"}), claims)
    }

    /// A token that lets its client read the federation, but for these changes; `null` removes a claim.
    pub(super) fn changed(&self, changes: &Value) -> String {
        let mut claims = self.claims();
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        self.token(&claims)
    }

    /// A token with this header and these claims, signed by `k1`.
    pub(super) fn token_of(&self, header: &Value, claims: &Value) -> String {
        self.raw(&header.to_string(), claims.to_string().as_bytes())
    }

    /// A token of these bytes, signed by `k1`.
    pub(super) fn raw(&self, header: &str, claims: &[u8]) -> String {
        signed(&unsigned(header, claims), &self.k1, Algorithm::ES256)
    }

    /// A token whose claims are this text, signed by `k1`.
    pub(super) fn of_text(&self, claims: &str) -> String {
        self.raw(r#"{"alg": "ES256", "kid": "k1"}"#, claims.as_bytes())
    }
}

/// The first two parts of a token.
pub(super) fn unsigned(header: &str, claims: &[u8]) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
}

/// These parts with their signature.
pub(super) fn signed(parts: &str, key: &EncodingKey, algorithm: Algorithm) -> String {
    format!("{parts}.{}", sign(parts.as_bytes(), key, algorithm).unwrap())
}
