//! What the kernel says of the server's process.

use femtobarn_bench::Outcome;

/// A process's memory and threads.
pub struct Memory {
    pub now_kb: u64,
    pub highest_kb: u64,
    pub threads: u64,
}

/// CPU seconds that a process has taken, with those of its threads.
pub fn cpu_seconds(process: u32) -> Outcome<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name, in parentheses, may hold anything.
    let (_, rest) = text.rsplit_once(')').ok_or("no such process")?;
    let field = |n: usize| rest.split_whitespace().nth(n).and_then(|word| word.parse::<f64>().ok());
    let (user, system) = (field(11).ok_or("no user time")?, field(12).ok_or("no system time")?);
    Ok((user + system) / TICKS_PER_SECOND)
}

/// How much memory and how many threads a process has.
pub fn memory(process: u32) -> Outcome<Memory> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).ok_or(format!("no {name} of process {process}"))
    };
    Ok(Memory {
        now_kb: field("VmRSS:")?,
        highest_kb: field("VmHWM:")?,
        threads: field("Threads:")?,
    })
}
