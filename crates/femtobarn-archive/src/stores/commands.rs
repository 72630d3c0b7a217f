//! A store behind a site's own commands: programs that migrate files to tape, stage them, and so on.
//!
//! A command reads one line of JSON from its standard input, such as
//! `{"operation": "stage", "key": "4f/run7.root", "path": "/fed/databases/run7.root.1f2e3d4c.staging"}`,
//! and may write one line of JSON as the last of its standard output:
//! `{"error": "drive 3 is broken", "retry_after_seconds": 600}`, or the properties of an object:
//! `{"exists": true, "size": 1024, "checksum": "adler32:0a1b2c3d", "tape": "L0042", "position": 7}`.
//! It has succeeded if it exits with status 0 and reports no error.
//!
//! Invariants:
//! 1. A command has its own process group, which is killed when the command has ended, its time is up, or the operation
//!    is stopped: child processes left behind must not write to a file that was verified.
//! 2. Its output and errors go to files, so a child that keeps them open delays nothing; a command that floods them is
//!    killed.
//! 3. Its answers are not trusted: `command_answers` limits them, and the caller checks sizes and checksums.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use femtobarn_catalog::clock;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::command_answers::{CommandAnswer, last_line, shortened};
use super::files::or_remove;
use super::store::{ByteWatch, ObjectRange, Store, StoredState, check_key, no_object};
use crate::error::{Error, Result};

/// The interval at which a running command is checked.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);
/// The time that a command may take to end after SIGTERM.
const ENDING: Duration = Duration::from_secs(5);
/// Bytes of output that are read, from its end, and the most that a command may write.
const OUTPUT_BYTES: u64 = 64 << 10;
const OUTPUT_MAX: u64 = 16 << 20;

/// The commands of a site, each a program with its first arguments.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct SiteCommands {
    /// Stores the file `path` as the object `key`.
    pub migrate: Vec<String>,
    /// Writes the object `key` to the new file `path`.
    pub stage: Vec<String>,
    /// Removes the object `key`, if it exists.
    pub remove: Vec<String>,
    /// Reports the properties of the object `key`.
    pub query: Vec<String>,
    /// Seconds that `migrate` and `stage` may take.
    #[serde(default = "day")]
    pub timeout_seconds: u64,
    /// Seconds that `remove` and `query` may take.
    #[serde(default = "minute")]
    pub answer_seconds: u64,
    /// Files that are migrated and staged at once.
    #[serde(default = "streams")]
    pub streams: usize,
}

fn day() -> u64 {
    24 * 60 * 60
}

fn minute() -> u64 {
    60
}

fn streams() -> usize {
    4
}

/// A site's mass storage.
#[derive(Debug)]
pub struct CommandStore {
    commands: SiteCommands,
}

#[derive(Serialize)]
struct CommandRequest<'a> {
    operation: &'a str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a Path>,
}

impl CommandStore {
    /// A store behind commands.
    ///
    /// # Errors
    /// `Invalid` if one of them is empty.
    pub fn new(commands: SiteCommands) -> Result<Self> {
        let each = [&commands.migrate, &commands.stage, &commands.remove, &commands.query];
        if each.iter().any(|command| command.is_empty()) {
            let what =
                "migrate, stage, remove and query of a store are commands: lists of a program \
                        and its arguments"
                    .to_owned();
            return Err(Error::Invalid { what });
        }
        Ok(CommandStore { commands })
    }

    /// Runs a command to its end, and returns its answer.
    fn run(
        &self,
        command: &[String],
        request: &CommandRequest<'_>,
        seconds: u64,
        watch: &mut ByteWatch<'_>,
    ) -> Result<CommandAnswer> {
        check_key(request.key)?;
        let program = &command[0];
        let doing =
            format!("{} could not {} {}", command.join(" "), request.operation, request.key);
        let failed =
            |error: std::io::Error| Error::Unavailable { what: format!("{doing}: {error}") };
        let mut output = tempfile::tempfile().map_err(failed)?;
        let mut complaints = tempfile::tempfile().map_err(failed)?;
        let mut line = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let outputs =
            [output.try_clone().map_err(failed)?, complaints.try_clone().map_err(failed)?];
        let mut child = Command::new(program)
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::from(output.try_clone().map_err(failed)?))
            .stderr(Stdio::from(complaints.try_clone().map_err(failed)?))
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            // One line fits into the pipe; a command may end without reading it.
            let _ = input.write_all(&line);
        }
        let written =
            || request.path.and_then(|path| path.metadata().ok()).map_or(0, |it| it.len());
        let is_flooding =
            || outputs.iter().any(|file| file.metadata().is_ok_and(|it| it.len() > OUTPUT_MAX));
        let goes_on = || watch(written());
        let status = match wait(child, Duration::from_secs(seconds), is_flooding, goes_on) {
            Waited::Ended(status) => status,
            Waited::Flooded => {
                let what =
                    format!("{doing}: it wrote more than {OUTPUT_MAX} bytes, and was killed");
                return Err(Error::Unavailable { what });
            }
            Waited::TimeOut => {
                let what = format!("{doing} within {seconds} s; it was killed");
                return Err(Error::Unavailable { what });
            }
            Waited::Stopped => {
                return Err(Error::Stopped { what: doing.replace("could not ", "") });
            }
            Waited::Failed(error) => return Err(failed(error)),
        };
        let answer = CommandAnswer::decode(&end_of(&mut output).map_err(failed)?)
            .map_err(|why| Error::Unavailable { what: format!("{doing}: {why}") })?;
        match (&answer.error, answer.retry_after_seconds) {
            (why, Some(seconds)) => Err(Error::NotBefore {
                wait: Duration::from_secs(seconds),
                what: format!("{doing} yet: {}", why.as_deref().unwrap_or("it gave no reason")),
            }),
            (Some(why), None) => Err(Error::Unavailable { what: format!("{doing}: {why}") }),
            (None, None) if !status.success() => {
                let complaint = shortened(&last_line(&end_of(&mut complaints).unwrap_or_default()));
                let what = format!("{doing}: {status}: {complaint}");
                Err(Error::Unavailable { what: what.trim_end_matches(": ").to_owned() })
            }
            (None, None) => Ok(answer),
        }
    }
}

impl Store for CommandStore {
    fn place(&self) -> String {
        format!("the storage behind {}", self.commands.stage[0])
    }

    fn put(&self, key: &str, from: &Path, watch: &mut ByteWatch<'_>) -> Result<Option<String>> {
        let request = CommandRequest { operation: "migrate", key, path: Some(from) };
        let seconds = self.commands.timeout_seconds;
        self.run(&self.commands.migrate, &request, seconds, watch).map(|_| None)
    }

    fn get(&self, key: &str, to: &Path, watch: &mut ByteWatch<'_>) -> Result<()> {
        let request = CommandRequest { operation: "stage", key, path: Some(to) };
        let seconds = self.commands.timeout_seconds;
        let answer = self.run(&self.commands.stage, &request, seconds, watch);
        or_remove(
            to,
            answer.and_then(|answer| {
                if answer.exists == Some(false) {
                    Err(no_object(self, key))
                } else if to.is_file() {
                    Ok(())
                } else {
                    let what = format!(
                        "{} reported that it staged {key}, but wrote no file",
                        self.place()
                    );
                    Err(Error::Unavailable { what })
                }
            }),
        )
    }

    fn read(&self, key: &str, _ranges: &mut [ObjectRange<'_>]) -> Result<()> {
        let what = format!("{} has only whole objects; stage {key}", self.place());
        Err(Error::Invalid { what })
    }

    fn stat(&self, key: &str) -> Result<StoredState> {
        self.examine(key, 0, &mut |_| true)
    }

    fn examine(&self, key: &str, _size: u64, watch: &mut ByteWatch<'_>) -> Result<StoredState> {
        let request = CommandRequest { operation: "query", key, path: None };
        let seconds = self.commands.answer_seconds;
        let answer = self.run(&self.commands.query, &request, seconds, watch)?;
        if answer.exists == Some(false) {
            return Err(no_object(self, key));
        }
        let Some(size) = answer.size else {
            let what = format!("{} did not report the size of {key}", self.place());
            return Err(Error::Unavailable { what });
        };
        let tape = answer.tape.map(|tape| (tape, answer.position));
        Ok(StoredState { size, checksum: answer.checksum, tape, is_offline: false })
    }

    fn remove(&self, key: &str, watch: &mut ByteWatch<'_>) -> Result<()> {
        let request = CommandRequest { operation: "remove", key, path: None };
        let seconds = self.commands.answer_seconds;
        self.run(&self.commands.remove, &request, seconds, watch).map(drop)
    }

    fn list(&self, _prefix: &str) -> Result<Vec<(String, u64)>> {
        Err(Error::Invalid { what: format!("{} cannot be listed", self.place()) })
    }
}

/// The result of waiting for a command.
enum Waited {
    Ended(ExitStatus),
    TimeOut,
    Flooded,
    Stopped,
    Failed(std::io::Error),
}

/// Waits for a command to end by itself; kills it if its time is up, it floods its output, or `goes_on` returns false.
fn wait(
    child: Child,
    time: Duration,
    is_flooding: impl Fn() -> bool,
    mut goes_on: impl FnMut() -> bool,
) -> Waited {
    let began = clock::now();
    loop {
        if has_ended(&child) {
            return end(child).map_or_else(Waited::Failed, Waited::Ended);
        }
        let ended = match (clock::now() - began >= time, is_flooding()) {
            (true, _) => Waited::TimeOut,
            (_, true) => Waited::Flooded,
            _ if !goes_on() => Waited::Stopped,
            _ => {
                // So the end is noticed late by at most an eighth of the time that the command took.
                clock::sleep(((clock::now() - began) / 8).clamp(LOOK, LOOK_MAX));
                continue;
            }
        };
        // The group may no longer exist.
        let _ = killpg(group(&child), Signal::SIGTERM);
        wait_a_little(&child);
        // Whether and how it ended does not matter any more.
        let _ = end(child);
        return ended;
    }
}

/// Whether a command has ended; the kernel keeps its process id until [`end`].
fn has_ended(child: &Child) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(group(child)), flags), Ok(WaitStatus::StillAlive))
}

/// Waits a short while for a command that was asked to end.
fn wait_a_little(child: &Child) {
    let signalled = clock::now();
    while clock::now() - signalled < ENDING && !has_ended(child) {
        clock::sleep(LOOK);
    }
}

/// Kills the rest of a command's group, and returns the command's exit status. A process that the kernel cannot end,
/// because it waits for a device, is left to a thread.
fn end(mut child: Child) -> std::io::Result<ExitStatus> {
    let _ = killpg(group(&child), Signal::SIGKILL);
    wait_a_little(&child);
    if has_ended(&child) {
        return child.wait();
    }
    let reaper = thread::Builder::new().name("femtobarn-reaper".to_owned());
    reaper.spawn(move || child.wait())?;
    Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "it was killed, but has not ended"))
}

fn group(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

/// The last bytes of an output.
fn end_of(output: &mut File) -> std::io::Result<Vec<u8>> {
    let end = output.seek(SeekFrom::End(0))?;
    output.seek(SeekFrom::Start(end.saturating_sub(OUTPUT_BYTES)))?;
    let mut bytes = vec![];
    output.take(OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
