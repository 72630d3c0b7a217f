//! The rights of tokens, with `root://`, HTTP and gRPC: narrow scopes, and tokens for other servers.

use std::time::Duration;

use femtobarn_catalog::{
    Catalogue, Commit, Csn, DatabaseId, DroppedDatabase, Error, ErrorKind,
    Result as CatalogueResult,
};
use serde_json::json;
use uuid::Uuid;
use xrd::client::Result as ClientResult;
use xrd::client::blocking::{Client, File};
use xrd::flags::{MkdirOptions, Mode, OpenOptions};
use xrd::{ErrorCode, Location};

use crate::tokens::Guarded;

/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn at(path: &str) -> Location {
    Location::new(path.to_owned()).unwrap()
}

/// The code with which a request of `root://` is refused.
fn code<T>(answer: ClientResult<T>) -> Option<ErrorCode> {
    answer.err().and_then(|error| error.code())
}

/// The status of an answer over HTTP.
fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn the_right_to_create_neither_renames_nor_removes_nor_reads() {
    let guarded = Guarded::start();
    let token = guarded.token("storage.create:/store");
    let client = guarded.client_by("roots", Some(token.clone())).unwrap();
    let denied = Some(ErrorCode::NOT_AUTHORIZED);
    let new = client.open(&at("/store/new"), OpenOptions::NEW | OpenOptions::UPDATE).unwrap();
    new.write_at(0, b"mine").unwrap();
    assert!(client.checksum(&at("/store/new")).is_ok(), "it knows what it writes");
    new.close().unwrap();
    assert!(client.stat(&at("/store/new")).is_ok());
    assert_eq!(code(client.checksum(&at("/store/new"))), denied);
    assert_eq!(code(client.checksum(&at("/store/file?cks.type=md5&x=1"))), denied);
    for (from, to) in [("new", "other"), ("new", "file"), ("file", "other")] {
        let (from, to) = (at(&format!("/store/{from}")), at(&format!("/store/{to}")));
        assert_eq!(code(client.mv(&from, &to)), denied, "{from:?} to {to:?}");
    }
    assert_eq!(code(client.rm(&at("/store/new"))), denied);
    assert_eq!(code(client.open(&at("/store/new"), OpenOptions::UPDATE)), denied);

    let bearer = format!("Authorization: Bearer {token}\r\n");
    let asked = |method: &str, path: &str, headers: &str| {
        status(&guarded.ask_with(method, path, &format!("{bearer}{headers}"), "x")).to_owned()
    };
    assert_eq!(asked("PUT", "/store/third", ""), "201");
    assert_eq!(asked("HEAD", "/store/third", ""), "200");
    for (method, path, headers) in [
        ("PUT", "/store/file", ""),
        ("MOVE", "/store/third", "Destination: /store/other\r\n"),
        ("MOVE", "/store/third", "Destination: /store/file\r\n"),
        ("DELETE", "/store/third", ""),
        ("GET", "/store/third", ""),
        ("HEAD", "/store/third", "Want-Digest: md5\r\n"),
    ] {
        assert_eq!(asked(method, path, headers), "403", "{method} {path} {headers}");
    }
    assert_eq!(std::fs::read(guarded.folder.path().join("store/file")).unwrap().len(), 18);
}

#[test]
fn other_rights_to_files_include_locating_them_only() {
    let guarded = Guarded::start();
    for scope in ["storage.stage:/store", "storage.poll:/store", "storage.modify:/store"] {
        let client = guarded.client("roots", scope).unwrap();
        assert!(client.stat(&at("/store/file")).is_ok(), "{scope}");
        let denied = Some(ErrorCode::NOT_AUTHORIZED);
        assert_eq!(code(client.checksum(&at("/store/file"))), denied, "{scope}");
        assert_eq!(code(client.stat(&at("/lhc.fed"))), denied, "{scope}");
        let token = guarded.token(scope);
        let wants = format!("Authorization: Bearer {token}\r\nWant-Digest: adler32\r\n");
        assert_eq!(status(&guarded.ask("HEAD", "/store/file", &token, "")), "200", "{scope}");
        assert_eq!(status(&guarded.ask_with("HEAD", "/store/file", &wants, "")), "403", "{scope}");
    }
}

#[test]
fn a_right_to_a_folder_allows_no_file_in_its_place() {
    let guarded = Guarded::start();
    let made = |client: &Client, path: &str| -> ClientResult<File> {
        client.open(&at(path), OpenOptions::NEW | OpenOptions::UPDATE)
    };
    for (scope, name) in [("storage.create", "a"), ("storage.modify", "b")] {
        let token = guarded.token(&format!("{scope}:/store/{name}/"));
        let client = guarded.client_by("roots", Some(token.clone())).unwrap();
        let path = format!("/store/{name}");
        assert_eq!(code(made(&client, &path)), Some(ErrorCode::NOT_AUTHORIZED), "{scope}");
        assert_eq!(status(&guarded.ask("PUT", &path, &token, "x")), "403", "{scope}");
        client.mkdir(&at(&path), MkdirOptions(0), Mode(0o755)).unwrap();
        made(&client, &format!("{path}/file")).unwrap();
        assert_eq!(status(&guarded.ask("PUT", &format!("{path}/other"), &token, "x")), "201");
    }
    // Nor is one moved there.
    let token = guarded.token("storage.modify:/store/b/ storage.modify:/store/c/");
    let client = guarded.client_by("roots", Some(token.clone())).unwrap();
    let denied = Some(ErrorCode::NOT_AUTHORIZED);
    assert_eq!(code(client.mv(&at("/store/b/file"), &at("/store/c"))), denied);
    let headers = format!("Authorization: Bearer {token}\r\nDestination: /store/c\r\n");
    assert_eq!(status(&guarded.ask_with("MOVE", "/store/b/file", &headers, "")), "403");
    client.mv(&at("/store/b/file"), &at("/store/c/file")).unwrap();
}

#[test]
fn the_right_to_write_to_a_file_includes_no_reading() {
    let guarded = Guarded::start();
    for scope in ["femtobarn.write:/store", "storage.modify:/store"] {
        let client = guarded.client("roots", scope).unwrap();
        let denied = Some(ErrorCode::NOT_AUTHORIZED);
        let old = client.open(&at("/store/file"), OpenOptions::UPDATE).unwrap();
        old.write_at(0, b"f").unwrap();
        assert_eq!(code(old.read_at(0, &mut [0; 4])), denied, "{scope}");
        assert_eq!(code(client.checksum(&at("/store/file"))), denied, "{scope}");
        let both = guarded.client("roots", &format!("{scope} storage.read:/store")).unwrap();
        let file = both.open(&at("/store/file"), OpenOptions::UPDATE).unwrap();
        assert!(file.read_at(0, &mut [0; 4]).is_ok() && both.checksum(&at("/store/file")).is_ok());
    }
    let client = guarded.client("roots", "storage.create:/store").unwrap();
    let new = client.open(&at("/store/mine"), OpenOptions::NEW | OpenOptions::UPDATE).unwrap();
    new.write_at(0, b"mine").unwrap();
    assert!(new.read_at(0, &mut [0; 4]).is_ok(), "it has made the file");
}

/// With the number of a database that does not exist, a client with this token could once extend the files of all
/// others.
#[test]
fn locks_and_space_in_files_take_the_right_to_write() {
    let guarded = Guarded::start();
    let database = DatabaseId(9999);
    let by = |word: &str| {
        let scope = format!("storage.read:/ {word}:/lhc.fed");
        guarded.catalogue("roots", Some(&scope)).unwrap()
    };
    for (word, kind) in
        [("storage.create", ErrorKind::Denied), ("femtobarn.write", ErrorKind::NotFound)]
    {
        let catalogue = by(word);
        let _lock = catalogue.locks().owner().share_database(database, LONG).unwrap();
        let refused = catalogue.extend_file(database, "databases/old.root", 1000).unwrap_err();
        assert_eq!(refused.kind(), kind, "{word}: {refused}");
    }
    let refused = by("femtobarn.tag").locks().owner().share_database(database, LONG).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
}

/// Clients send any token that they find, which once kept them from files that anonymous clients may read.
#[test]
fn a_token_for_other_servers_is_none_where_anonymous_clients_may_read() {
    let open = Guarded::start_with(|_| {});
    let closed = Guarded::start();
    let scope = "storage.read:/ storage.create:/ storage.modify:/";
    for (changes, why) in [
        (json!({"iss": "https://elsewhere.example", "scope": scope}), "does not know the issuer"),
        (json!({"aud": "https://elsewhere.example", "scope": scope}), "not for this server"),
    ] {
        let token = open.token_with(&changes);
        let client = open.client_by("roots", Some(token.clone())).unwrap();
        client.open(&at("/store/file"), OpenOptions::READ).unwrap();
        let refused = client.open(&at("/store/new"), OpenOptions::NEW | OpenOptions::UPDATE);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("anonymous has no right") && refused.contains(why), "{refused}");
        let catalogue = open.catalogue_by("roots", Some(token.clone())).unwrap();
        let refused = catalogue.reserve_database().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert!(refused.to_string().contains(why), "{refused}");
        assert_eq!(status(&open.ask("GET", "/store/file", &token, "")), "200");
        let refused = open.ask("PUT", "/store/new", &token, "x");
        assert!(status(&refused) == "403" && refused.contains(why), "{refused}");

        let token = closed.token_with(&changes);
        assert!(closed.client_by("roots", Some(token.clone())).is_err());
        assert_eq!(status(&closed.ask("GET", "/store/file", &token, "")), "401");
    }
    let expired = open.token_with(&json!({"exp": 1_000_000_000, "scope": scope}));
    let refused = open.client_by("roots", Some(expired.clone())).unwrap_err().to_string();
    assert!(refused.contains("expired"), "{refused}");
    assert_eq!(status(&open.ask("GET", "/store/file", &expired, "")), "401");
}

#[test]
fn parts_of_the_right_to_modify_allow_their_changes_of_a_federation() {
    fn is_allowed<T>(answer: CatalogueResult<T>) -> bool {
        // An allowed request may fail for other reasons.
        !answer.is_err_and(|error: Error| error.kind() == ErrorKind::Denied)
    }
    let guarded = Guarded::start();
    for (word, tags, reserves, drops) in [
        ("storage.modify", true, true, true),
        ("storage.create", false, true, false),
        ("femtobarn.write", false, true, false),
        ("femtobarn.drop", false, false, true),
        ("femtobarn.tag", true, false, false),
        ("femtobarn.manage", false, false, false),
    ] {
        let scope = format!("storage.read:/ {word}:/lhc.fed");
        let catalogue = guarded.catalogue("roots", Some(&scope)).unwrap();
        let dropped = DroppedDatabase { id: DatabaseId(7), seen: Csn(0), keeps_file: false };
        let dropping = Commit {
            transaction: Uuid::from_u128(7),
            dropped_databases: vec![dropped],
            ..Commit::default()
        };
        let allowed = [
            is_allowed(catalogue.create_tag(&word.replace('.', "-"), Csn(0), "")),
            is_allowed(catalogue.reserve_database()),
            is_allowed(catalogue.commit(dropping)),
        ];
        assert_eq!(allowed, [tags, reserves, drops], "{word}");
    }
}

/// Tokens are not secrets of one session: jobs share theirs, and `jti` is not kept.
#[test]
fn a_token_is_good_until_it_expires_whatever_became_of_its_sessions() {
    let guarded = Guarded::start();
    let changes = json!({"scope": "storage.read:/", "jti": "once"});
    let token = guarded.token_with(&changes);
    for _ in 0..2 {
        let client = guarded.client_by("roots", Some(token.clone())).unwrap();
        client.open(&at("/store/file"), OpenOptions::READ).unwrap();
        let catalogue = guarded.catalogue_by("roots", Some(token.clone())).unwrap();
        assert_eq!(catalogue.head().unwrap(), Csn(0));
        assert_eq!(status(&guarded.ask("GET", "/store/file", &token, "")), "200");
    }
    let ended = guarded.token_with(&json!({"scope": "storage.read:/", "exp": 1_000_000_000}));
    assert!(guarded.client_by("roots", Some(ended.clone())).is_err());
    assert!(guarded.catalogue_by("roots", Some(ended.clone())).is_err());
    assert_eq!(status(&guarded.ask("GET", "/store/file", &ended, "")), "401");
}
