//! Commands of a site that misbehave: the operation ends in time, with the cause in its error.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use femtobarn_archive::stores::{CommandStore, SiteCommands};
use femtobarn_archive::{Error, Store};

use crate::sealed::on;
use crate::store_rules::program;

/// A store whose commands are all this shell script, with a second to end.
fn store(work: &Path, script: &str) -> CommandStore {
    let command = vec![program(&work.join("site"), &format!("#!/bin/sh\n{script}\n"))];
    let commands = SiteCommands {
        migrate: command.clone(),
        stage: command.clone(),
        remove: command.clone(),
        query: command,
        timeout_seconds: 1,
        answer_seconds: 1,
        streams: 1,
    };
    CommandStore::new(commands).unwrap()
}

/// The text of the error with which staging ends, which leaves no file.
fn failure(script: &str) -> String {
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("to");
    let staged = store(work.path(), script).get("a", &to, &mut *on());
    assert!(!to.exists(), "{script}");
    staged.unwrap_err().to_string()
}

#[test]
fn command_failures_are_reported_with_their_cause() {
    let cases = [
        ("echo 'no such pool' >&2; exit 3", "exit status: 3: no such pool"),
        ("kill -9 $$", "signal: 9"),
        ("echo nonsense", "\"nonsense\" is not a JSON answer"),
        ("echo '{\"error\": \"drive 3 is broken\"}'", "drive 3 is broken"),
        ("echo '{}'", "wrote no file"),
        ("echo '{\"size\": -1}'", "is not a JSON answer"),
        ("exec 0<&-; echo '{\"error\": \"closed\"}'", "closed"),
        ("yes | head -c 100000000; sleep 100", "wrote more than 16777216 bytes"),
        ("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo '{\"error\": \"flood\"}'", "flood"),
        ("head -c 300000 /dev/zero | tr '\\0' x", "is not a JSON answer"),
    ];
    for (script, expected) in cases {
        let text = failure(script);
        assert!(text.contains(expected) && text.contains("site"), "{script}: {text}");
    }
    let text = failure("echo '{\"error\": \"no drive\", \"retry_after_seconds\": 600}'");
    assert!(text.contains("no drive; try again in 600 s"), "{text}");
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let work = tempfile::tempdir().unwrap();
    let site = store(work.path(), "exit 0");
    fs::remove_file(work.path().join("site")).unwrap();
    let error = site.stat("a").unwrap_err();
    assert!(error.to_string().contains("site could not query a"), "{error}");
}

#[test]
fn one_that_does_not_end_is_killed_with_its_children() {
    for script in ["sleep 100", "trap '' TERM; sleep 100 & sleep 100", "sleep 100 & wait"] {
        let began = Instant::now();
        let text = failure(script);
        assert!(text.contains("within 1 s; it was killed"), "{script}: {text}");
        assert!(began.elapsed() < Duration::from_secs(60), "{script}");
    }
}

#[test]
fn a_command_that_cannot_be_killed_does_not_delay_its_caller() {
    // It leaves its group, so it lives on, as one does that waits for a device.
    let began = Instant::now();
    let text = failure("exec perl -e 'setpgrp(0, getpgrp(getppid())); sleep 60'");
    assert!(text.contains("within 1 s; it was killed"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
}

#[test]
fn a_child_left_behind_by_a_command_is_killed_and_delays_nothing() {
    let work = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let late = work.path().join("late");
    let script = format!("(sleep 2; touch {}) & echo '{{\"size\": 5}}'", late.display());
    let site = store(work.path(), &script);
    assert_eq!(site.stat("a").unwrap().size, 5);
    std::thread::sleep(Duration::from_secs(3));
    assert!(!late.exists(), "it was killed");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_stopped_operation_ends_its_command() {
    let work = tempfile::tempdir().unwrap();
    let site = store(work.path(), "sleep 100");
    let stopped = site.get("a", &work.path().join("to"), &mut |_| false);
    assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
}
