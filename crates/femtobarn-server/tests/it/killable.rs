//! Processes to kill: this test program again, running one test.

use std::process::{Child, Command, Stdio};

/// Tells a test what to do as such a process.
const TOLD: &str = "FEMTOBARN_TEST_TOLD";

/// A process of its own, which is killed when this is dropped.
pub(crate) struct Killable {
    child: Child,
}

impl Killable {
    /// Starts a test that is otherwise ignored, and tells it what to do.
    pub(crate) fn start(test: &str, told: String) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", test])
            .env(TOLD, told)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Killable { child }
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What this process was told to do, if it is such a one.
pub(crate) fn told() -> Option<String> {
    std::env::var(TOLD).ok()
}
