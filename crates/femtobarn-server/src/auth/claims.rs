//! The claims of a token whose signature is valid, and whether this server accepts them now.
//!
//! 1. A token is accepted if it states its audience, its subject and its expiry, and if its claims about itself are
//!    neither contradictory nor of an unknown version. Unknown claims are ignored.
//! 2. If two claims have one name, other programs may have read the other one, so such tokens are refused.
//!
//! Sources: "WLCG Common JWT Profiles" 1.2, <https://github.com/WLCG-AuthZ-WG/common-jwt-profile>; SciTokens claims 2.0,
//! <https://scitokens.org/technical_docs/Claims>.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Rights;

/// Seconds by which the issuer's clock may differ.
const LEEWAY_SECONDS: u64 = 60;
/// The audiences of tokens that are valid for every service: of WLCG's, and of SciTokens.
const ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";
const ANY_AUDIENCE_OF_SCITOKENS: &str = "ANY";
/// The known versions, without their minor number.
const WLCG_MAJOR: &str = "1";
const SCITOKEN_VERSIONS: [&str; 2] = ["scitoken:2", "scitokens:2"];
/// Bytes of a subject.
const SUBJECT_BYTES_MAX: usize = 255;
/// The latest time that a claim may be, in seconds since 1970.
const TIME_MAX: f64 = 1e11;

/// A JSON object in which each name occurs once.
pub(super) struct UniqueNames(pub Map<String, Value>);

/// Why claims are not accepted.
pub(super) struct UnacceptedClaims {
    pub why: String,
    /// Whether the claims are for other servers.
    pub is_for_others: bool,
}

/// The accepted claims of a token.
pub(super) struct AcceptedClaims {
    pub subject: String,
    /// The groups of the subject (`wlcg.groups`).
    pub groups: Vec<String>,
    /// The rights that the token grants here; `None` if it states none.
    pub rights: Option<Rights>,
    pub until: SystemTime,
}

impl AcceptedClaims {
    /// The claims, if a server with these audiences accepts them at this time. Paths are relative to `base`.
    ///
    /// # Errors
    /// [`UnacceptedClaims`] with the reason.
    pub(super) fn of(
        claims: &Map<String, Value>,
        audiences: &[String],
        base: &str,
        now: SystemTime,
    ) -> Result<Self, UnacceptedClaims> {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let is_scitoken = is_scitoken(claims)?;
        if !is_for_one_of(audiences, claims, is_scitoken) {
            let why = "it is not for this server (aud)".to_owned();
            return Err(UnacceptedClaims { why, is_for_others: claims.contains_key("aud") });
        }
        let expires = time(claims, "exp")?
            .ok_or_else(|| "it does not say when it expires (exp)".to_owned())?;
        if expires + LEEWAY_SECONDS <= now {
            return Err("it has expired".to_owned().into());
        }
        for name in ["nbf", "iat"] {
            if time(claims, name)?.is_some_and(|time| time > now + LEEWAY_SECONDS) {
                return Err(format!("it is not valid yet ({name})").into());
            }
        }
        let scope = match claims.get("scope") {
            None => "",
            Some(Value::String(scope)) => scope,
            Some(_) => return Err("its scope is not a string".to_owned().into()),
        };
        Ok(AcceptedClaims {
            subject: subject(claims)?.to_owned(),
            groups: groups(claims),
            rights: Rights::of_scope(scope, base, is_scitoken)?,
            until: UNIX_EPOCH + Duration::from_secs(expires + LEEWAY_SECONDS),
        })
    }
}

/// Whether a token is a SciToken, and not one of WLCG's or without a version.
fn is_scitoken(claims: &Map<String, Value>) -> Result<bool, String> {
    let unknown = |version: &Value| {
        let shown: String = version.to_string().chars().take(40).collect();
        Err(format!("its version {shown} is not known here"))
    };
    if let Some(version) = claims.get("wlcg.ver") {
        let parts = version.as_str().and_then(|text| text.split_once('.'));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        return match parts {
            Some((WLCG_MAJOR, minor)) if is_number(minor) => Ok(false),
            _ => unknown(version),
        };
    }
    match claims.get("ver") {
        // Other issuers use this name for other versions.
        Some(version @ Value::String(text)) if text.starts_with("scitoken") => {
            let after = SCITOKEN_VERSIONS.iter().find_map(|known| text.strip_prefix(known));
            if after.is_some_and(|it| it.starts_with('.')) { Ok(true) } else { unknown(version) }
        }
        _ => Ok(false),
    }
}

impl From<String> for UnacceptedClaims {
    fn from(why: String) -> Self {
        UnacceptedClaims { why, is_for_others: false }
    }
}

/// Whether a token is for a server with these audiences.
fn is_for_one_of(audiences: &[String], claims: &Map<String, Value>, is_scitoken: bool) -> bool {
    let is_ours = |audience: &str| {
        audiences.iter().any(|known| known == audience)
            || audience == ANY_AUDIENCE
            || (is_scitoken && audience == ANY_AUDIENCE_OF_SCITOKENS)
    };
    match claims.get("aud") {
        Some(Value::String(audience)) => is_ours(audience),
        Some(Value::Array(all)) => {
            all.iter().all(Value::is_string) && all.iter().filter_map(Value::as_str).any(is_ours)
        }
        _ => false,
    }
}

/// The subject of the token. It is shown in logs and lists.
fn subject(claims: &Map<String, Value>) -> Result<&str, String> {
    let is_printable = |text: &&str| text.bytes().all(|it| it.is_ascii_graphic() || it == b' ');
    let subject = claims.get("sub").and_then(Value::as_str);
    let subject = subject.filter(|text| !text.trim().is_empty() && text.len() <= SUBJECT_BYTES_MAX);
    subject.filter(is_printable).ok_or_else(|| {
        format!("its subject (sub) is not a string of 1 to {SUBJECT_BYTES_MAX} characters of ASCII")
    })
}

/// The groups of the subject; empty if the claim is not a list of texts.
fn groups(claims: &Map<String, Value>) -> Vec<String> {
    let listed = claims.get("wlcg.groups").and_then(Value::as_array);
    let texts = listed.into_iter().flatten().map(|group| group.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().unwrap_or_default()
}

/// A claim that is a time, in seconds since 1970.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, String> {
    let Some(claim) = claims.get(name) else { return Ok(None) };
    match claim.as_f64() {
        // Fractions of seconds are cut off.
        Some(seconds) if (0.0..=TIME_MAX).contains(&seconds) => Ok(Some(seconds as u64)),
        _ => Err(format!("its {name} is not a time")),
    }
}

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UniqueNamesVisitor;

        impl<'de> Visitor<'de> for UniqueNamesVisitor {
            type Value = UniqueNames;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<UniqueNames, A::Error> {
                let mut found = Map::new();
                while let Some((name, value)) = entries.next_entry::<String, Value>()? {
                    if found.insert(name, value).is_some() {
                        return Err(A::Error::custom("a claim occurs twice"));
                    }
                }
                Ok(UniqueNames(found))
            }
        }

        deserializer.deserialize_map(UniqueNamesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// The reason for which claims are refused that are valid but for these changes, if they are.
    fn refusal(changes: &Value) -> Option<String> {
        let mut claims = json!({
            "iss": "https://issuer.example", "sub": "alice", "aud": "here", "exp": NOW + 600,
            "nbf": NOW, "iat": NOW, "jti": "1", "wlcg.ver": "1.0", "scope": "storage.read:/",
        });
        for (name, value) in changes.as_object().expect("changes have names") {
            claims[name] = value.clone();
        }
        let claims = claims.as_object().expect("claims have names");
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        AcceptedClaims::of(claims, &["here".to_owned()], "", now).err().map(|it| it.why)
    }

    #[test]
    fn clocks_may_differ_by_a_minute() {
        for good in [
            json!({"exp": NOW - 59}),
            json!({"exp": NOW as f64 + 0.5}),
            json!({"nbf": NOW + 60}),
            json!({"iat": NOW + 60}),
            json!({"exp": 1e11}),
        ] {
            assert_eq!(refusal(&good), None, "{good}");
        }
        for (wrong, why) in [
            (json!({"exp": NOW - 60}), "expired"),
            (json!({"nbf": NOW + 61}), "not valid yet (nbf)"),
            (json!({"iat": NOW + 61}), "not valid yet (iat)"),
            (json!({"exp": 1.1e11}), "not a time"),
            (json!({"exp": -1}), "not a time"),
        ] {
            let refusal = refusal(&wrong).unwrap_or_default();
            assert!(refusal.contains(why), "{wrong}: {refusal:?}");
        }
    }

    #[test]
    fn duplicate_names_are_refused() {
        let parsed = |text: &str| serde_json::from_str::<UniqueNames>(text);
        assert!(parsed(r#"{"a": {"b": 1}, "b": 2}"#).is_ok());
        assert!(parsed(r#"{"a": 1, "\u0061": 1}"#).is_err());
        assert!(parsed("[1]").is_err());
    }
}
