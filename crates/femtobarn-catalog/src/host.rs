//! The process that this crate runs in: its id, user and host, and the programs that other processes run.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::libc;

/// The id of this process; 0 before the first question, and if forks cannot be followed.
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);

/// The id of this process. It changes at a fork, so the kernel is asked again only after a fork: a transaction needs
/// the id a dozen times.
pub(crate) fn process_id() -> u32 {
    match PROCESS_ID.load(Ordering::Relaxed) {
        0 => follow_forks(),
        id => id,
    }
}

fn follow_forks() -> u32 {
    extern "C" fn note_process() {
        PROCESS_ID.store(std::process::id(), Ordering::Relaxed);
    }
    // SAFETY: the handler that runs in a forked child only gets a number and stores it, which is allowed there. Two
    // threads may both register it; then it runs twice.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(note_process)) };
    if registered == 0 {
        note_process();
    }
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

/// The program that a process of this host runs; for a Python script, the name of the script and not of the
/// interpreter. Empty if there is no such process, or its command line may not be read.
pub(crate) fn application_of(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    application(&words)
}

/// The program of a command line, split into words.
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
    fn python_script_is_named_instead_of_its_interpreter() {
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
