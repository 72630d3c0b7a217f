//! Memory, threads and CPU time of the server's process, as the kernel reports them.

use std::time::Duration;

use femtobarn_bench::Outcome;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// A process's memory and threads.
pub(crate) struct State {
    pub memory_kb: u64,
    pub highest_kb: u64,
    pub threads: u64,
}

/// CPU seconds that a process has taken, with those of its threads.
pub(crate) fn cpu_seconds(process: u32) -> Outcome<f64> {
    // `/proc` counts in hundredths of a second, which is too coarse.
    let clock = clock_getcpuclockid(Pid::from_raw(process as i32))?;
    Ok(Duration::from(clock_gettime(clock)?).as_secs_f64())
}

/// How much memory and how many threads a process has.
pub(crate) fn state(process: u32) -> Outcome<State> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).ok_or(format!("no {name} of process {process}"))
    };
    Ok(State {
        memory_kb: field("VmRSS:")?,
        highest_kb: field("VmHWM:")?,
        threads: field("Threads:")?,
    })
}
