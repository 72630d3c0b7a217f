//! Processes to kill: each runs this test program with one ignored test, its role.

use std::process::{Child, Command, Stdio};

/// The environment variable with the argument of a process's role.
const ARGUMENT: &str = "FEMTOBARN_TEST_ARGUMENT";

/// A process that is killed when this is dropped.
pub(crate) struct Killable {
    child: Child,
}

impl Killable {
    /// Starts a process that runs an ignored test with an argument.
    pub(crate) fn start(test: &str, argument: String) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", test])
            .env(ARGUMENT, argument)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Killable { child }
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The argument of this process's role; `None` if it plays no role.
pub(crate) fn argument() -> Option<String> {
    std::env::var(ARGUMENT).ok()
}
