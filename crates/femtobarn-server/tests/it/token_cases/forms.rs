//! Headers, algorithms, signatures, and bytes that are not tokens.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use super::signing::{SECRET, Signer, signed, unsigned};
use super::{Case, READS, REFUSED, Verdict};

pub(super) fn cases(signer: &Signer) -> Vec<Case> {
    let mut cases = headers(signer);
    cases.extend(algorithms(signer));
    cases.extend(signatures(signer));
    cases.extend(payloads(signer));
    cases.extend(garbage(signer));
    cases.extend(sizes(signer));
    cases
}

/// Headers of tokens that `k1` has signed.
fn headers(signer: &Signer) -> Vec<Case> {
    let with = |name: &str, value: Value| {
        let mut header = json!({"alg": "ES256", "typ": "JWT", "kid": "k1"});
        header[name] = value;
        header.to_string()
    };
    let texts: Vec<(String, Verdict)> = vec![
        (with("typ", json!("at+jwt")), READS),
        (with("typ", Value::Null), READS),
        (with("jku", json!("https://evil.example/keys")), READS),
        (with("x5u", json!("file:///etc/passwd")), READS),
        (with("other", json!({"a": [1]})), READS),
        (with("kid", json!("k2")), REFUSED),
        (with("kid", json!("")), REFUSED),
        (with("kid", json!("K1")), REFUSED),
        (with("kid", json!("../k1")), REFUSED),
        (with("kid", json!(1)), REFUSED),
        (with("kid", json!("k3")), REFUSED),
        (with("kid", json!("e1")), REFUSED),
        (with("kid", json!("shared")), REFUSED),
        (with("kid", Value::Null), REFUSED),
        (with("crit", json!(["exp"])), REFUSED),
        (with("crit", json!([])), REFUSED),
        (with("alg", json!("ES384")), REFUSED),
        (with("alg", json!("RS256")), REFUSED),
        (with("alg", json!("PS256")), REFUSED),
        (with("alg", json!("EdDSA")), REFUSED),
        (with("alg", json!("ES256K")), REFUSED),
        (with("alg", json!("es256")), REFUSED),
        (with("alg", json!(["ES256"])), REFUSED),
        (with("alg", Value::Null), REFUSED),
        (r#"{"alg": "ES256"}"#.to_owned(), REFUSED),
        (r#"{"kid": "k1"}"#.to_owned(), REFUSED),
        (r#"{"alg": "ES256", "alg": "ES256", "kid": "k1"}"#.to_owned(), REFUSED),
        (r#"{"alg": "ES256", "kid": "k2", "kid": "k1"}"#.to_owned(), REFUSED),
        (r#"["ES256", "k1"]"#.to_owned(), REFUSED),
        ("{}".to_owned(), REFUSED),
        (String::new(), REFUSED),
    ];
    let claims = signer.claims().to_string();
    let of = |(header, verdict): (String, _)| {
        let token = signer.raw(&header, claims.as_bytes());
        Case::new(format!("header {header}"), token, verdict)
    };
    texts.into_iter().map(of).collect()
}

fn algorithms(signer: &Signer) -> Vec<Case> {
    let claims = signer.claims().to_string();
    let parts = |alg: &str, kid: &str| {
        unsigned(&json!({"alg": alg, "kid": kid}).to_string(), claims.as_bytes())
    };
    let mut cases = vec![
        Case::new("EdDSA", signed(&parts("EdDSA", "e1"), &signer.e1, Algorithm::EdDSA), READS),
        Case::new("ES384", signed(&parts("ES384", "k3"), &signer.k3, Algorithm::ES384), READS),
        Case::new(
            "a key for encryption",
            signed(&parts("ES256", "enc"), &signer.enc, Algorithm::ES256),
            REFUSED,
        ),
    ];
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        for signature in ["", "AA"] {
            let token = format!("{}.{signature}", parts(alg, "k1"));
            cases.push(Case::new(format!("alg {alg:?}, signature {signature:?}"), token, REFUSED));
        }
    }
    // A server that takes the public key for a shared secret would accept any token.
    let public = serde_json::to_string(&signer.k1_public).unwrap();
    let json: Value = serde_json::from_str(&public).unwrap();
    let secrets = [public.as_bytes(), json["x"].as_str().unwrap().as_bytes(), b"k1", SECRET];
    for (number, secret) in secrets.iter().enumerate() {
        let algorithms =
            [("HS256", Algorithm::HS256), ("HS384", Algorithm::HS384), ("HS512", Algorithm::HS512)];
        for (alg, algorithm) in algorithms {
            for kid in ["k1", "shared"] {
                let secret = EncodingKey::from_secret(secret);
                let token = signed(&parts(alg, kid), &secret, algorithm);
                cases.push(Case::new(format!("{alg} of {kid} by secret {number}"), token, REFUSED));
            }
        }
    }
    cases
}

fn signatures(signer: &Signer) -> Vec<Case> {
    let good = signer.token(&signer.claims());
    let other = signer.changed(&json!({"scope": "storage.modify:/"}));
    let (parts, signature) = good.rsplit_once('.').unwrap();
    let (others, other_signature) = other.rsplit_once('.').unwrap();
    let flipped = |at: usize| {
        let mut bytes = signature.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        format!("{parts}.{}", String::from_utf8(bytes).unwrap())
    };
    // Only two bits of the last letter count.
    let last = signature.as_bytes()[85];
    let sloppy = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let place = sloppy.iter().position(|letter| *letter == last).unwrap();
    let sloppy = format!("{parts}.{}{}", &signature[..85], char::from(sloppy[place + 1]));
    let by_stranger = signed(parts, &signer.stranger, Algorithm::ES256);
    let with_own_key = json!({"alg": "ES256", "kid": "mine", "jwk": &signer.k1_public});
    let with_own_key = unsigned(&with_own_key.to_string(), signer.claims().to_string().as_bytes());
    let zeros = "A".repeat(86);
    [
        ("as it is", good.clone(), READS),
        ("by a stranger", by_stranger, REFUSED),
        (
            "by a key that comes with it",
            signed(&with_own_key, &signer.k1, Algorithm::ES256),
            REFUSED,
        ),
        ("none", format!("{parts}."), REFUSED),
        ("zeros", format!("{parts}.{zeros}"), REFUSED),
        ("cut", good[..good.len() - 4].to_owned(), REFUSED),
        ("longer", format!("{good}AAAA"), REFUSED),
        ("with padding", format!("{good}=="), REFUSED),
        ("with bits that do not count", sloppy, REFUSED),
        ("flipped at its beginning", flipped(0), REFUSED),
        ("flipped in the middle", flipped(50), REFUSED),
        ("of another token", format!("{others}.{signature}"), REFUSED),
        ("of another token, the other way", format!("{parts}.{other_signature}"), REFUSED),
    ]
    .into_iter()
    .map(|(name, token, verdict)| Case::new(format!("signature {name}"), token, verdict))
    .collect()
}

/// Signed bytes that are not valid claims.
fn payloads(signer: &Signer) -> Vec<Case> {
    let good = signer.claims().to_string();
    let inside = good.trim_end_matches('}');
    let mut texts = vec![];
    // Names that occur twice: a program that reads the other one reads a different token.
    for (name, value) in [
        ("scope", json!("storage.modify:/")),
        ("aud", json!("elsewhere")),
        ("exp", json!(1)),
        ("sub", json!("root")),
        ("iss", json!("https://other.example")),
        ("wlcg.ver", json!("1.0")),
        ("jti", json!("b3a1")),
    ] {
        texts.push(format!("{inside}, \"{name}\": {value}}}"));
        texts.push(format!("{{\"{name}\": {value}, {}", &good[1..]));
    }
    texts.push(format!("{inside}, \"\\u0073cope\": \"storage.modify:/\"}}"));
    texts.push(format!("{inside}, \"x\": 1, \"x\": 2}}"));
    texts.push(format!("[{good}]"));
    texts.push(format!("{good}{good}"));
    texts.push(format!("{good} x"));
    texts.push(format!("\u{feff}{good}"));
    texts.push(format!("{inside},}}"));
    texts.push(format!("{inside}, \"x\": NaN}}"));
    texts.push(format!("{inside}, \"x\": 1e9999}}"));
    texts.push(format!("{inside}, 'x': 1}}"));
    texts.push(format!("{inside}, \"x\": {}{}}}", "[".repeat(500), "]".repeat(500)));
    texts.extend(["", "{}", "null", "7", "\"claims\"", "{", "[]"].map(str::to_owned));
    let mut cases: Vec<_> = texts
        .iter()
        .map(|text| {
            let shown: String = text.chars().rev().take(60).collect();
            let shown: String = shown.chars().rev().collect();
            Case::new(format!("claims .. {shown}"), signer.of_text(text), REFUSED)
        })
        .collect();
    let header = r#"{"alg": "ES256", "kid": "k1"}"#;
    let broken = [inside.as_bytes(), &b", \"x\": \"\xff\xfe\"}"[..]].concat();
    cases.push(Case::new("claims that are not UTF-8", signer.raw(header, &broken), REFUSED));
    let spaced = format!(" \n{good}\t ");
    cases.push(Case::new("claims between blanks", signer.of_text(&spaced), READS));
    cases
}

/// Bytes that are not tokens.
fn garbage(signer: &Signer) -> Vec<Case> {
    let good = signer.token(&signer.claims());
    let parts: Vec<_> = good.split('.').collect();
    let standard = STANDARD.encode(signer.claims().to_string());
    let texts = [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
        ".".repeat(3000),
        "null".to_owned(),
        "Bearer".to_owned(),
        format!("Bearer.{good}"),
        "a.b.c".to_owned(),
        "!!!.###.$$$".to_owned(),
        "e30.e30.e30".to_owned(),
        "J\u{fc}rgen.\u{2603}.x".to_owned(),
        parts[0].to_owned(),
        parts[..2].join("."),
        format!("{good}."),
        format!("{good}.x"),
        format!(".{good}"),
        format!("{good}.{good}"),
        format!("{}.{}.{}.{}.{}", parts[0], "", "AA", "AA", "AA"),
        format!("{}.{standard}.{}", parts[0], parts[2]),
        format!("{}.{}.{}", parts[1], parts[0], parts[2]),
        format!("{}/{}/{}", parts[0], parts[1], parts[2]),
        good.to_uppercase(),
        good.chars().rev().collect(),
        good.replace('.', ".\u{200b}"),
        good.replace('.', "%2E"),
        "x".repeat(10_000),
    ];
    texts
        .into_iter()
        .map(|text| {
            let shown: String = text.chars().take(40).collect();
            Case::new(format!("no token: {shown}"), text, REFUSED)
        })
        .collect()
}

/// Tokens up to the limit and beyond.
fn sizes(signer: &Signer) -> Vec<Case> {
    let of = |bytes: usize| signer.changed(&json!({"pad": "x".repeat(bytes)}));
    vec![
        Case::new("a token of 4 KiB", of(2700), READS),
        Case::new("a token of 11 KiB", of(8000), READS),
        Case::new("a token of 13 KiB", of(9500), REFUSED),
        Case::new("a token of 15 KiB", of(11_000), REFUSED),
    ]
}
