//! The audit log: changes by all protocols leave lines, and none is made while no line can be written.

use std::os::unix::fs::symlink;

use femtobarn_catalog::{Catalogue, Csn};
use serde_json::Value;
use xrd::Location;
use xrd::flags::OpenOptions;

use crate::tokens::Guarded;

impl Guarded {
    /// The lines of the audit log, each with its protocol, change, path and outcome.
    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.config.audit.file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn told(&self) -> Vec<String> {
        let lines = self.lines();
        let text = |line: &Value, key| line[key].as_str().unwrap_or_default().to_owned();
        let told = lines.iter().map(|line| {
            let words = ["protocol", "what", "path", "outcome"].map(|key| text(line, key));
            words.join(" ")
        });
        told.collect()
    }
}

#[test]
fn changes_of_files_leave_lines_with_user_and_address() {
    let guarded = Guarded::start();
    let (reading, all) = ("storage.read:/", "storage.read:/ storage.modify:/store");
    let new = Location::new("/store/new").unwrap();
    let creating = OpenOptions::NEW | OpenOptions::UPDATE;
    let writer = guarded.client("roots", all).unwrap();
    writer.open(&new, creating).unwrap().write_at(0, b"x").unwrap();
    writer.open(&new, OpenOptions::READ).unwrap();
    assert!(guarded.client("roots", reading).unwrap().open(&new, creating).is_err());
    let (token, weak) = (guarded.token(all), guarded.token(reading));
    assert!(guarded.ask("PUT", "/store/put", &token, "x").starts_with("HTTP/1.1 201"));
    assert!(guarded.ask("DELETE", "/store/put", &weak, "").starts_with("HTTP/1.1 403"));
    let query = format!("/store/put?authz=Bearer%20{weak}");
    assert!(guarded.ask("DELETE", &query, "none", "").starts_with("HTTP/1.1 403"));
    assert!(guarded.ask("DELETE", "/store/put", "none", "").starts_with("HTTP/1.1 401"));
    assert!(guarded.ask("DELETE", "/store/put", &token, "").starts_with("HTTP/1.1 204"));
    assert!(guarded.ask("GET", "/store/new", &token, "").starts_with("HTTP/1.1 200"));
    assert_eq!(
        guarded.told(),
        [
            "root upload /store/new done",
            "root upload /store/new denied",
            "http upload /store/put done",
            "http remove /store/put denied",
            "http remove /store/put denied",
            "http remove /store/put denied",
            "http remove /store/put done",
        ]
    );
    let lines = guarded.lines();
    for line in &lines {
        assert_eq!(line["from"], "127.0.0.1", "{line}");
        let is_known = line.get("user").is_some();
        assert_eq!(is_known, *line != lines[5], "{line}");
        if is_known {
            assert_eq!((&line["user"], &line["how"]), (&"alice".into(), &"token".into()));
            assert_eq!(line["issuer"], "https://issuer.example");
        }
    }
    let text = std::fs::read_to_string(&guarded.config.audit.file).unwrap();
    for secret in [&token, &weak] {
        let signature = secret.rsplit('.').next().unwrap();
        assert!(!text.contains(signature), "a token is in the log");
    }
}

#[test]
fn changes_of_a_catalogue_leave_lines() {
    let guarded = Guarded::start();
    let reader = guarded.catalogue("roots", Some("storage.read:/lhc.fed")).unwrap();
    assert!(reader.reserve_database().is_err());
    assert!(reader.create_tag("mine", Csn(0), "").is_err());
    let writer =
        guarded.catalogue("roots", Some("storage.read:/ storage.modify:/lhc.fed")).unwrap();
    writer.reserve_database().unwrap();
    writer.set_retention(writer.retention().unwrap()).unwrap();
    assert!(writer.create_tag("winter", Csn(7), "of no commit").is_err());
    let told = guarded.told();
    let made = ["rpc set-retention /lhc.fed done", "rpc tag /lhc.fed not-found"];
    assert!(told.ends_with(&made.map(str::to_owned)), "{told:?}");
    let denied = told.iter().filter(|line| line.ends_with("denied")).count();
    assert_eq!(told.len(), denied + 2, "what a transaction prepares is no line: {told:?}");
    let lines = guarded.lines();
    let tag = lines.last().unwrap();
    assert_eq!((&tag["to"], &tag["from"]), (&"winter".into(), &"127.0.0.1".into()));
}

#[test]
fn no_change_is_made_while_no_line_can_be_written() {
    let mut guarded = Guarded::start();
    let file = guarded.config.audit.file.clone();
    let token = guarded.token("storage.read:/ storage.modify:/");
    let put =
        |guarded: &Guarded, name: &str| guarded.ask("PUT", &format!("/store/{name}"), &token, "x");
    let remove_log = || std::fs::remove_file(&file).unwrap();
    remove_log();
    symlink("/dev/full", &file).unwrap();
    guarded.server.reload(&guarded.config).unwrap();
    // The first one is made before its line fails.
    let first = put(&guarded, "first");
    assert!(first.starts_with("HTTP/1.1 500") && first.contains("audit log"), "{first}");
    assert!(put(&guarded, "second").starts_with("HTTP/1.1 500"));
    assert!(!guarded.folder.path().join("store/second").exists());
    assert!(guarded.ask("GET", "/store/file", &token, "").starts_with("HTTP/1.1 200"));
    remove_log();
    guarded.server.reload(&guarded.config).unwrap();
    assert!(put(&guarded, "third").starts_with("HTTP/1.1 201"));
    let lines = guarded.lines();
    assert_eq!((&lines[0]["what"], &lines[0]["missing"]), (&"missing-lines".into(), &1.into()));
    assert_eq!((lines.len(), &lines[1]["path"]), (2, &"/store/third".into()));

    guarded.config.audit.file = guarded.folder.path().join("store/audit");
    let refused = femtobarn_server::Server::start(guarded.config.clone()).err().unwrap();
    assert!(refused.to_string().contains("lies in the export"), "{refused}");
}
