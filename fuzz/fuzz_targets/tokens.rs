//! Bytes as the claims of a signed token, as its header, as an issuer's keys and as settings.
//!
//! Claims are signed, so that they are looked at. An accepted token gives no right outside of its issuer's folder.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use femtobarn_archive::StorageSettings;
use femtobarn_server::Config;
use femtobarn_server::auth::{Action, Issuer, Tokens};
use libfuzzer_sys::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair};

const ISSUER: &str = "https://issuer.example";
const BASE: &str = "/base";
const HEADER: &[u8] = br#"{"alg": "EdDSA", "kid": "k"}"#;
const ACTIONS: [Action; 5] =
    [Action::Read, Action::Create, Action::Modify, Action::Stage, Action::Write];
const ELSEWHERE: [&[u8]; 5] = [b"/", b"/other", b"/basement", b"/bas", b"//other"];

static KEY: LazyLock<Ed25519KeyPair> =
    LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("this is a seed"));
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("keys-{}", std::process::id())));
static TOKENS: LazyLock<Tokens> = LazyLock::new(|| {
    let public = BASE64_URL_SAFE_NO_PAD.encode(KEY.public_key().as_ref());
    let key =
        format!(r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "{public}"}}]}}"#);
    tokens(key.as_bytes()).expect("the set has a key")
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0..4 => signed(HEADER, bytes),
        4 => {
            let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            signed(&bytes[..split], bytes.get(split + 1..).unwrap_or_default());
        }
        5 => {
            if let Ok(tokens) = tokens(bytes) {
                drop(tokens.identity(&token(HEADER, br#"{"iss": "https://issuer.example"}"#)));
            }
        }
        6 => drop(std::str::from_utf8(bytes).map(Config::from_toml)),
        _ => drop(std::str::from_utf8(bytes).map(StorageSettings::parse)),
    }
});

/// The tokens of an issuer with these keys.
fn tokens(keys: &[u8]) -> Result<Tokens, String> {
    std::fs::write(&*FILE, keys).expect("the system allows files");
    let issuer = Issuer { issuer: ISSUER.to_owned(), keys: FILE.clone(), base: BASE.to_owned() };
    let tokens = Tokens::new(vec![issuer], vec!["https://here.example".to_owned()]);
    std::fs::remove_file(&*FILE).expect("the file is there");
    tokens
}

fn token(header: &[u8], claims: &[u8]) -> String {
    let [header, claims] = [header, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
    let signed = format!("{header}.{claims}");
    let signature = KEY.sign(signed.as_bytes());
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

fn signed(header: &[u8], claims: &[u8]) {
    let Ok(identity) = TOKENS.identity(&token(header, claims)) else { return };
    assert!(
        !identity.name.is_empty() && identity.name.bytes().all(|it| (b' '..=b'~').contains(&it))
    );
    assert!(identity.until.is_some_and(|until| until > SystemTime::now()));
    for path in ELSEWHERE {
        let allowed = ACTIONS.into_iter().find(|action| identity.may(*action, path));
        assert_eq!(allowed, None, "{}", String::from_utf8_lossy(path));
    }
}
