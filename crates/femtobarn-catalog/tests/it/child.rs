//! Other processes: each runs this test binary, which then plays one role.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "FEMTOBARN_TEST_ROLE";
const FOLDER: &str = "FEMTOBARN_TEST_FOLDER";
/// Marks the lines that a role prints; output of the test harness may precede it on the same line.
const MARK: &str = "@says ";

/// The function of a role; its argument is the folder of the federation.
type Role = fn(&Path);

const ROLES: &[(&str, Role)] = &[
    ("commit in pairs for ever", crate::crash::commit_in_pairs),
    ("commit on a failing disk", crate::crash::commit_on_a_failing_disk),
    ("commit to one container", crate::contention::commit_to_one_container),
    ("fill the disk", crate::folders::fill_the_disk),
    ("fork", crate::forks::fork_and_use),
    ("commit to pairs for ever", crate::moves::commit_to_pairs),
    ("commit when told", crate::postgres_faults::commit_when_told),
    ("move the catalogue to and fro", crate::moves::move_to_and_fro),
    ("hold the lock", crate::locks::hold_the_lock),
    ("pin", crate::folders::pin_on_request),
    ("pin and fork", crate::retention::pin_and_fork),
    ("read", crate::folders::read_and_report),
    ("wait for the lock", crate::sharing::wait_for_the_lock),
];

/// Not a test: the other processes run it to play their roles.
#[test]
#[ignore = "run by other tests as another process"]
fn play() {
    let Ok(name) = std::env::var(ROLE) else { return };
    let folder = std::env::var(FOLDER).unwrap();
    let (_, role) = ROLES.iter().find(|(known, _)| *known == name).unwrap();
    role(Path::new(&folder));
}

/// Sends a line to the test.
pub(crate) fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").unwrap();
    out.flush().unwrap();
}

/// Waits for a line from the test, or for its end.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

pub(crate) fn command(role: &str, folder: &Path) -> Command {
    let program = std::env::current_exe().unwrap();
    prepare(Command::new(program), role, folder)
}

/// The command that plays the role in a mount name space of its own, after `mount` has run there; `None` if
/// this machine does not permit that.
pub(crate) fn command_in_own_mounts(role: &str, folder: &Path, mount: &str) -> Option<Command> {
    let allowed = Command::new("unshare")
        .args(["-rm", "sh", "-c", mount])
        .env(FOLDER, folder)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !allowed {
        eprintln!("skipped: this machine does not let a test mount a file system");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")]);
    command.arg(std::env::current_exe().unwrap());
    Some(prepare(command, role, folder))
}

/// Adds a role to a command that starts this program.
pub(crate) fn prepare(mut command: Command, role: &str, folder: &Path) -> Command {
    command
        .args(["--exact", "child::play", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// A process that plays a role. It is killed when this is dropped.
pub(crate) struct Player {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: Option<ChildStdin>,
}

impl Player {
    pub(crate) fn start(role: &str, folder: &Path) -> Self {
        Self::run(command(role, folder))
    }

    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stdin = child.stdin.take();
        Player { child, lines, stdin }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line from the role; `None` when it has ended.
    pub(crate) fn hear(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.ok()?;
            if let Some((_, said)) = line.split_once(MARK) {
                return Some(said.to_owned());
            }
        }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
