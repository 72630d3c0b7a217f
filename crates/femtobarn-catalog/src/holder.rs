//! The process that holds a lock, or waits for one: for messages and for tools that list locks.

use std::fmt;

use crate::clock;
use crate::host;

/// Bytes of a host's name that a lock's record has room for. Records hold cut names, so names are compared cut.
pub(crate) const HOST_BYTES_MAX: usize = 26;

/// The process that holds a lock, or waits for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The host.
    pub host: String,
    /// The process on that host.
    pub pid: u32,
    /// The user that the process runs as.
    pub user: String,
    /// The program that the process runs; empty if unknown.
    pub application: String,
    /// The time at which it got the lock, or began to wait, in milliseconds since 1970.
    pub since_ms: u64,
}

impl Holder {
    /// This process, from now on. Its program is left out, because finding it reads a file of `/proc`.
    pub fn this_process() -> Self {
        let host = host::host_name().to_owned();
        let (pid, user) = (host::process_id(), host::user_name().to_owned());
        Holder { host, pid, user, application: String::new(), since_ms: clock::utc_ms() }
    }

    /// Looks up the program of a process on this host: the records of locks have no room for it.
    pub fn with_application(mut self) -> Self {
        if self.host.as_bytes() == cut(host::host_name(), HOST_BYTES_MAX) {
            self.application = host::application_of(self.pid);
        }
        self
    }

    /// A holder that has not written its record yet.
    pub(crate) fn unknown() -> Self {
        let (host, user) = ("an unknown host".into(), "unknown".into());
        Holder { host, pid: 0, user, application: String::new(), since_ms: clock::utc_ms() }
    }

    /// The program, process, host and user, as far as they are known.
    pub fn name(&self) -> String {
        let Holder { host, pid, user, application, .. } = self;
        if application.is_empty() {
            format!("process {pid} on {host} ({user})")
        } else {
            format!("{application}, process {pid} on {host} ({user})")
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = clock::utc_ms().saturating_sub(self.since_ms) as f64 / 1e3;
        write!(f, "{} for {seconds:.1} s", self.name())
    }
}

/// The longest prefix of a name with at most `bytes` bytes.
pub(crate) fn cut(name: &str, bytes: usize) -> &[u8] {
    &name.as_bytes()[..name.len().min(bytes)]
}
