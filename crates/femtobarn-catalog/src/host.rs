//! The machine around us: its clock, its name, the user and the process.
//!
//! Everything else in this crate asks here, so that there is one place to look.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    (now_us() / 1000).unsigned_abs()
}

/// A clock that only goes forward, for waits.
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

pub(crate) fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// This process; not remembered, because a fork changes it.
pub(crate) fn process_id() -> u32 {
    std::process::id()
}

pub(crate) fn host_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_else(|_| "unknown".into())
    })
}

/// The program that a process of this machine runs: a script's name rather than that of its interpreter. Empty
/// if that is nobody's to know, or there is no such process.
pub(crate) fn application_of(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    application(&words)
}

/// The program of a command line.
fn application(words: &[String]) -> String {
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let program = words.first().map_or_else(String::new, |path| last(path));
    if !program.starts_with("python") {
        return program;
    }
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-m" => return rest.next().cloned().unwrap_or(program),
            "-c" | "" => return program,
            "-W" | "-X" => drop(rest.next()),
            option if option.starts_with('-') => {}
            script => return last(script),
        }
    }
    program
}

pub(crate) fn user_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let uid = nix::unistd::Uid::effective();
        match nix::unistd::User::from_uid(uid) {
            Ok(Some(user)) => user.name,
            _ => uid.to_string(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_told_by_its_own_name() {
        for (line, name) in [
            ("/usr/bin/femtobarn-bench", "femtobarn-bench"),
            ("python3 -u /home/anna/reco.py --fast", "reco.py"),
            ("/usr/bin/python3 -m pytest tests", "pytest"),
            ("python -c pass", "python"),
            ("python -W ignore -X dev -Wd job.py", "job.py"),
            ("python -X dev", "python"),
            ("python3", "python3"),
            ("", ""),
        ] {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(application(&words), name, "{line}");
        }
        assert!(!application_of(process_id()).is_empty());
    }
}
