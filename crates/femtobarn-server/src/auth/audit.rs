//! The audit log: one JSON line for each change that clients ask for, including refused ones.
//!
//! 1. A change that has begun leaves a line in any case: its outcome is `done`, the kind of its error, or `unknown` if
//!    nothing waited for it any more. The line is written before the client is answered.
//! 2. If a line cannot be written, the client gets an error though the change may have been made, and no further change
//!    begins until lines can be written again. The first line then reports how many are missing.
//! 3. Each line is appended by one write, so that several processes may share a file. Lines have no credentials, no
//!    headers, no queries of URLs and no texts of errors.
//!
//! A line is written by the thread that makes it: a copy into the kernel's memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use femtobarn_catalog::ErrorKind;
use parking_lot::Mutex;
use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::{Identity, Refusal};

/// Permission bits of a new file.
const MODE: u32 = 0o600;

/// A file of lines, open for appending.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    file: Mutex<LineFile>,
}

#[derive(Debug)]
struct LineFile {
    file: File,
    /// Whether the last line was written in part.
    is_cut: bool,
    /// Lines that could not be written since the last that could.
    lost: u64,
}

/// The client that asks for a change, and its request.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// `None` if the client's credentials were refused.
    pub identity: Option<&'a Identity>,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// `root`, `http` or `rpc`.
    pub protocol: &'static str,
}

/// A change in progress, whose line is written when it has ended.
#[derive(Debug)]
#[must_use]
pub struct AuditedChange {
    /// `None` if there is no audit log, or the line is written already.
    log: Option<Arc<AuditLog>>,
    /// A line is written for each.
    paths: Vec<String>,
    line: AuditLine,
}

#[derive(Debug, Default, Serialize)]
struct AuditLine {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    how: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    issuer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<IpAddr>,
    protocol: &'static str,
    what: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    creates: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drops: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    csn: Option<u64>,
    outcome: &'static str,
}

/// The first line after some that could not be written.
#[derive(Serialize)]
struct MissingLines {
    time: String,
    what: &'static str,
    missing: u64,
}

impl AuditLog {
    /// Opens a log, which is made if it is missing.
    ///
    /// # Errors
    /// A text that names the file.
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = opened(path)?;
        Ok(AuditLog {
            path: path.to_owned(),
            file: Mutex::new(LineFile { file, is_cut: false, lost: 0 }),
        })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file again, because it may have been renamed.
    ///
    /// # Errors
    /// A text that names the file; then the old one stays in use.
    pub fn reopen(&self) -> Result<(), String> {
        let file = opened(&self.path)?;
        let mut log = self.file.lock();
        (log.file, log.is_cut) = (file, false);
        Ok(())
    }

    /// Begins a change of these paths.
    ///
    /// # Errors
    /// [`Refusal`] while lines cannot be written.
    pub fn begin(
        self: &Arc<Self>,
        asker: Asker<'_>,
        what: &'static str,
        paths: Vec<String>,
    ) -> Result<AuditedChange, Refusal> {
        self.file.lock().write_missing_count().map_err(|error| self.refusal(&error))?;
        let identity = asker.identity;
        let line = AuditLine {
            user: identity.map(|identity| identity.name.clone()),
            how: identity.map(|identity| identity.how),
            issuer: identity.map_or_else(String::new, |identity| identity.issuer.clone()),
            from: asker.address.map(|address| address.to_canonical()),
            protocol: asker.protocol,
            what,
            ..AuditLine::default()
        };
        Ok(AuditedChange { log: Some(Arc::clone(self)), paths, line })
    }

    fn write(&self, lines: &[u8]) -> Result<(), Refusal> {
        let mut log = self.file.lock();
        let written = log.write_missing_count().and_then(|()| log.append(lines));
        if let Err(error) = &written {
            log.lost += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
            let file = self.path.display();
            tracing::error!(%error, %file, "cannot write the audit log; changes are refused until it can be written");
        }
        written.map_err(|error| self.refusal(&error))
    }

    fn refusal(&self, error: &io::Error) -> Refusal {
        Refusal(format!(
            "this server cannot write its audit log ({}), and makes no changes until it can",
            error.kind()
        ))
    }
}

impl LineFile {
    /// Writes how many lines are missing, if any are.
    fn write_missing_count(&mut self) -> io::Result<()> {
        if self.lost == 0 {
            return Ok(());
        }
        let line = MissingLines { time: now(), what: "missing-lines", missing: self.lost };
        self.append(&line_of(&line))?;
        self.lost = 0;
        Ok(())
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let bytes = if self.is_cut { &[b"\n", lines].concat() } else { lines };
        let count = self.file.write(bytes)?;
        if count > 0 {
            self.is_cut = count < bytes.len();
        }
        if count < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl AuditedChange {
    /// A change that needs no line.
    pub fn unrecorded() -> Self {
        AuditedChange { log: None, paths: vec![], line: AuditLine::default() }
    }

    /// The other path or server that the change is about.
    pub fn to(mut self, other: Option<String>) -> Self {
        self.line.to = other;
        self
    }

    /// The databases and containers that a commit creates and drops.
    pub fn changing(mut self, creates: Vec<String>, drops: Vec<String>) -> Self {
        (self.line.creates, self.line.drops) = (creates, drops);
        self
    }

    /// The commit that the change is.
    pub fn set_csn(&mut self, csn: u64) {
        self.line.csn = Some(csn);
    }

    /// Ends without a line, because nothing was changed.
    pub fn forget(mut self) {
        self.log = None;
    }

    /// Writes the line of a change that was made, or failed in this way.
    ///
    /// # Errors
    /// [`Refusal`] if the line cannot be written.
    pub fn end(self, error: Option<ErrorKind>) -> Result<(), Refusal> {
        self.end_as(error.map_or("done", ErrorKind::name))
    }

    /// Writes the line with another outcome.
    ///
    /// # Errors
    /// [`Refusal`] if the line cannot be written.
    pub fn end_as(mut self, outcome: &'static str) -> Result<(), Refusal> {
        self.write(outcome)
    }

    fn write(&mut self, outcome: &'static str) -> Result<(), Refusal> {
        let Some(log) = self.log.take() else { return Ok(()) };
        (self.line.time, self.line.outcome) = (now(), outcome);
        let mut lines = Vec::new();
        for path in std::mem::take(&mut self.paths) {
            self.line.path = path;
            lines.extend(line_of(&self.line));
        }
        log.write(&lines)
    }
}

impl Drop for AuditedChange {
    fn drop(&mut self) {
        // Nobody is answered. A line that cannot be written is counted as missing.
        let _ = self.write("unknown");
    }
}

fn opened(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE);
    let cannot = |error| format!("audit.file: cannot open {}: {error}", path.display());
    options.open(path).map_err(cannot)
}

fn line_of(line: &impl Serialize) -> Vec<u8> {
    // Texts and numbers can always be written as JSON.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The time in UTC with microseconds, in the format of RFC 3339.
fn now() -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use serde_json::Value;

    use super::*;
    use crate::auth::Rights;

    fn asker(identity: Option<&Identity>) -> Asker<'_> {
        Asker { identity, address: Some(IpAddr::from([127, 0, 0, 1])), protocol: "http" }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).expect("a log");
        text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
    }

    #[test]
    fn every_change_that_is_begun_leaves_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit");
        let log = Arc::new(AuditLog::open(&path).expect("a log"));
        let alice = Identity {
            name: "alice\n\"".to_owned(),
            how: "token",
            issuer: "https://issuer.example".to_owned(),
            rights: Rights::reading(),
            until: None,
            ignored_token: None,
        };
        let begin = |what, paths: &[&str]| {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            log.begin(asker(Some(&alice)), what, paths).expect("it begins")
        };
        begin("remove", &["/a"]).end(Some(ErrorKind::Denied)).expect("a line");
        begin("stage", &["/b", "/c"]).end(None).expect("two lines");
        drop(begin("upload", &["/d"]));
        begin("move", &["/e"]).forget();
        let nobody = log.begin(asker(None), "upload", vec!["/f".to_owned()]).expect("it begins");
        nobody.end(Some(ErrorKind::Denied)).expect("a line");
        let lines = lines(&path);
        let told = |line: &Value| {
            ["what", "path", "outcome"].map(|key| line[key].as_str().expect("a text").to_owned())
        };
        assert_eq!(
            lines.iter().map(told).collect::<Vec<_>>(),
            [
                ["remove", "/a", "denied"],
                ["stage", "/b", "done"],
                ["stage", "/c", "done"],
                ["upload", "/d", "unknown"],
                ["upload", "/f", "denied"],
            ]
        );
        assert_eq!(lines[0]["user"], "alice\n\"");
        assert_eq!(lines[0]["issuer"], "https://issuer.example");
        assert_eq!((&lines[0]["how"], &lines[0]["from"]), (&"token".into(), &"127.0.0.1".into()));
        assert!(lines[4].get("user").is_none());
        let time = lines[0]["time"].as_str().expect("a time");
        assert!(time.len() == 27 && time.ends_with('Z') && time.as_bytes()[19] == b'.', "{time}");
        let mode = std::fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_renamed_log_is_opened_again_under_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let log = Arc::new(AuditLog::open(&path).expect("a log"));
        let change = || {
            let change = log.begin(asker(None), "upload", vec!["/a".to_owned()]);
            change.and_then(|change| change.end(None)).expect("a line");
        };
        change();
        std::fs::rename(&path, &old).expect("a rename");
        change();
        log.reopen().expect("the log");
        change();
        assert_eq!((lines(&old).len(), lines(&path).len()), (2, 1));
        std::fs::write(&path, "").expect("it is cut, as after a copy");
        change();
        assert_eq!(lines(&path).len(), 1);
    }

    #[test]
    fn without_room_for_lines_no_change_is_begun() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit");
        symlink("/dev/full", &path).expect("a link");
        let log = Arc::new(AuditLog::open(&path).expect("a log"));
        let begin = || log.begin(asker(None), "upload", vec!["/a".to_owned()]);
        let first = begin().expect("nothing failed yet");
        let refused = first.end(None).expect_err("there is no room");
        assert!(refused.0.contains("cannot write its audit log"), "{refused}");
        assert!(begin().is_err());
        std::fs::remove_file(&path).expect("the link");
        log.reopen().expect("a file with room");
        begin().and_then(|change| change.end(None)).expect("a line");
        let lines = lines(&path);
        assert_eq!((&lines[0]["what"], &lines[0]["missing"]), (&"missing-lines".into(), &1.into()));
        assert_eq!((lines.len(), &lines[1]["path"]), (2, &"/a".into()));
    }

    #[test]
    fn a_line_behind_one_that_was_cut_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit");
        std::fs::write(&path, "{\"time\":").expect("a part of a line");
        let log = Arc::new(AuditLog::open(&path).expect("a log"));
        log.file.lock().is_cut = true;
        let change = log.begin(asker(None), "upload", vec!["/a".to_owned()]).expect("it begins");
        change.end(None).expect("a line");
        let text = std::fs::read_to_string(&path).expect("the log");
        let last = text.lines().nth(1).expect("two lines");
        assert_eq!(serde_json::from_str::<Value>(last).expect("a line")["path"], "/a");
    }
}
