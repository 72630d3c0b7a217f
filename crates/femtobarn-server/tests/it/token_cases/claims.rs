//! The claims of tokens: their audience, expiry, subject and version.

use serde_json::{Value, json};

use super::signing::Signer;
use super::{BOTH, CHANGES, Case, NOTHING, READS, REFUSED, Verdict};
use crate::tokens::{AUDIENCE, ISSUER};

const ANY: &str = "https://wlcg.cern.ch/jwt/v1/any";

pub(super) fn cases(signer: &Signer) -> Vec<Case> {
    let groups = [
        audiences(),
        times(signer.now),
        subjects(),
        issuers(),
        versions(),
        scitokens(),
        unknown_claims(),
    ];
    let changed = groups.into_iter().flatten();
    let mut cases: Vec<_> = changed
        .map(|(changes, verdict)| {
            let name: String = changes.to_string().chars().take(120).collect();
            Case::new(name, signer.changed(&changes), verdict)
        })
        .collect();
    cases.extend(nulls(signer));
    cases
}

/// Claims that are `null`, which is not as if they were missing.
fn nulls(signer: &Signer) -> Vec<Case> {
    let required = ["aud", "exp", "iss", "sub", "nbf", "iat", "wlcg.ver", "scope"];
    let null = |name: &str, verdict| {
        let mut claims = signer.claims();
        claims[name] = Value::Null;
        Case::new(format!("{name} is null"), signer.token(&claims), verdict)
    };
    let mut cases: Vec<_> = required.iter().map(|name| null(name, REFUSED)).collect();
    cases.push(null("jti", READS));
    cases
}

fn audiences() -> Vec<(Value, Verdict)> {
    let mut cases = vec![
        (json!({}), READS),
        (json!({"aud": null}), REFUSED),
        (json!({"aud": [AUDIENCE, 7]}), REFUSED),
        (json!({"aud": [[AUDIENCE]]}), REFUSED),
        (json!({"aud": {"aud": AUDIENCE}}), REFUSED),
    ];
    for good in [json!([AUDIENCE]), json!(["x", AUDIENCE]), json!(ANY), json!([ANY, "x"])] {
        cases.push((json!({"aud": good}), READS));
    }
    for other in [
        "",
        "*",
        "ANY",
        "any",
        "root://storage.example/",
        "root://STORAGE.example",
        "root://storage.example.org",
        "root://storage",
        " root://storage.example",
        "https://storage.example",
        "root://storage.example x",
        "https://wlcg.cern.ch/jwt/v1/any/",
        "https://wlcg.cern.ch/jwt/v2/any",
    ] {
        cases.push((json!({"aud": other}), REFUSED));
        cases.push((json!({"aud": [other]}), REFUSED));
    }
    for wrong in [json!([]), json!(7), json!(true)] {
        cases.push((json!({"aud": wrong}), REFUSED));
    }
    cases
}

fn times(now: u64) -> Vec<(Value, Verdict)> {
    vec![
        (json!({"exp": now - 30}), READS),
        (json!({"exp": now as f64 + 600.5}), READS),
        (json!({"exp": now - 120}), REFUSED),
        (json!({"exp": null}), REFUSED),
        (json!({"exp": (now + 600).to_string()}), REFUSED),
        (json!({"exp": 0}), REFUSED),
        (json!({"exp": -1}), REFUSED),
        (json!({"exp": u64::MAX}), REFUSED),
        (json!({"exp": 1e300}), REFUSED),
        (json!({"exp": true}), REFUSED),
        (json!({"exp": [now + 600]}), REFUSED),
        (json!({"nbf": null}), READS),
        (json!({"nbf": now - 7200}), READS),
        (json!({"nbf": now + 30}), READS),
        (json!({"nbf": now + 300}), REFUSED),
        (json!({"nbf": "now"}), REFUSED),
        (json!({"nbf": -5}), REFUSED),
        (json!({"iat": null}), READS),
        (json!({"iat": now + 30}), READS),
        (json!({"iat": now + 300}), REFUSED),
        (json!({"iat": "now"}), REFUSED),
        (json!({"exp": now - 7200, "nbf": now - 9000, "iat": now - 9000}), REFUSED),
        (json!({"exp": now + 300, "nbf": now + 600}), REFUSED),
    ]
}

fn subjects() -> Vec<(Value, Verdict)> {
    let long = "s".repeat(256);
    let mut cases = vec![
        (json!({"sub": &long[1..]}), READS),
        (json!({"sub": "/DC=ch/DC=cern/CN=Robot: transfers"}), READS),
        (json!({"sub": "0d5b2ffe-7a4b-4a8d-9d0d-1e8c3b1f2a60"}), READS),
        (json!({"sub": null}), REFUSED),
        (json!({"sub": 7}), REFUSED),
        (json!({"sub": ["alice"]}), REFUSED),
    ];
    for wrong in ["", " ", &long, "a\nb", "a\u{0}", "\u{1b}[31m", "J\u{fc}rgen", "a\u{202e}b"] {
        cases.push((json!({"sub": wrong}), REFUSED));
    }
    cases
}

fn issuers() -> Vec<(Value, Verdict)> {
    let mut cases = vec![
        (json!({"iss": null}), REFUSED),
        (json!({"iss": [ISSUER]}), REFUSED),
        (json!({"iss": {"iss": ISSUER}}), REFUSED),
    ];
    for other in [
        "",
        "https://issuer.example/",
        "HTTPS://issuer.example",
        "http://issuer.example",
        "https://issuer.example.org",
        "https://issuer.example ",
        "https://other.example",
        "file:///etc/passwd",
        "https://127.0.0.1:1",
    ] {
        cases.push((json!({"iss": other}), REFUSED));
    }
    cases
}

fn versions() -> Vec<(Value, Verdict)> {
    let mut cases = vec![
        (json!({"wlcg.ver": null}), READS),
        (json!({"wlcg.ver": 1.0}), REFUSED),
        (json!({"wlcg.ver": ["1.0"]}), REFUSED),
    ];
    for good in ["1.0", "1.1", "1.2", "1.3", "1.99"] {
        cases.push((json!({"wlcg.ver": good}), READS));
    }
    for other in ["2.0", "0.9", "10.0", "1", "1.", ".0", "1.x", "1.0.0", "v1.0", " 1.0", "-1.0", ""]
    {
        cases.push((json!({"wlcg.ver": other}), REFUSED));
    }
    cases
}

fn scitokens() -> Vec<(Value, Verdict)> {
    let of = |version: &str, scope: &str| json!({"wlcg.ver": null, "ver": version, "aud": AUDIENCE, "scope": scope});
    let any = |version: &str| json!({"wlcg.ver": null, "ver": version, "aud": "ANY", "scope": "read:/lhc.fed"});
    let mut cases = vec![
        (of("scitoken:2.0", "read:/lhc.fed"), READS),
        (of("scitokens:2.0", "read:/lhc.fed"), READS),
        (of("scitoken:2.7", "read:/"), READS),
        (of("scitoken:2.0", "write:/lhc.fed"), CHANGES),
        (of("scitoken:2.0", "read:/lhc.fed write:/lhc.fed"), BOTH),
        (of("scitoken:2.0", "read:/lhc.fed/../store"), NOTHING),
        (of("scitoken:2.0", "read:/lhc.fedora write:/lhc"), NOTHING),
        (of("scitoken:2.0", "queue execute read:/store"), NOTHING),
        (of("scitoken:2.0", "storage.read:/lhc.fed"), READS),
        (of("scitoken:2.0", "read"), REFUSED),
        (of("scitoken:2.0", "read:/lhc.fed write"), REFUSED),
        (of("2.0", "read:/lhc.fed write:/lhc.fed"), NOTHING),
        (of("2.0", "storage.read:/lhc.fed"), READS),
        (any("scitoken:2.0"), READS),
        (any("2.0"), REFUSED),
        (json!({"ver": "scitoken:2.0", "aud": "ANY"}), REFUSED),
        (json!({"ver": "scitoken:2.0", "scope": "read:/lhc.fed write:/lhc.fed"}), NOTHING),
        (json!({"scope": "read:/lhc.fed write:/lhc.fed"}), NOTHING),
        (json!({"wlcg.ver": null, "ver": 2}), READS),
    ];
    for other in
        ["scitoken:1.0", "scitoken:3.0", "scitoken:20.0", "scitoken:2", "scitoken", "scitokens:1.9"]
    {
        cases.push((of(other, "read:/lhc.fed"), REFUSED));
    }
    cases
}

fn unknown_claims() -> Vec<(Value, Verdict)> {
    vec![
        (json!({"wlcg.groups": ["/cms", "/cms/production"]}), READS),
        (json!({"wlcg.groups": "not a list"}), READS),
        (json!({"scp": ["storage.modify:/"]}), READS),
        (json!({"scopes": "storage.modify:/", "roles": ["admin"], "admin": true}), READS),
        (json!({"scope ": "storage.modify:/", "Scope": "storage.modify:/"}), READS),
        (json!({"jti": 7, "acr": {"a": [1, {"b": null}]}, "nonce": "\u{2603}"}), READS),
        (json!({"": "", "a.b": 1, "\u{0}": 2}), READS),
        (json!({"cnf": {"jkt": "x"}, "auth_time": 1, "azp": "x", "client_id": "y"}), READS),
        (json!({"many": vec!["x"; 500]}), READS),
    ]
}
