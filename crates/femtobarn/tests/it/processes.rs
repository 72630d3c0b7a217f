//! Writers in processes of their own: this test binary, started again for one test that is a writer if an environment
//! variable is set, and does nothing otherwise.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Names the job of a process; without it the tests that are jobs do nothing.
const JOB: &str = "FEMTOBARN_TEST_JOB";

/// A process that does a job and reports its progress on standard output.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the test `name` as a job in a federation's folder.
    pub(crate) fn start(name: &str, folder: &Path, arguments: &str) -> Self {
        Self::start_in(&[], name, folder, arguments)
    }

    /// As [`start`](Self::start), by a command that runs the program named after it, such as `unshare`.
    pub(crate) fn start_in(prefix: &[&str], name: &str, folder: &Path, arguments: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut words = prefix.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
        let mut child = Command::new(words.next().unwrap())
            .args(words)
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(JOB, format!("{}\n{arguments}", folder.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines }
    }

    /// The numbers of the next line that the job reported; none when it has ended.
    pub(crate) fn next(&mut self) -> Option<Vec<u64>> {
        loop {
            let line = self.lines.next()?.ok()?;
            if let Some(numbers) = line.strip_prefix("said ") {
                return Some(numbers.split(' ').map(|number| number.parse().unwrap()).collect());
            }
        }
    }

    /// Kills the process, and returns the reported lines that have not been read yet.
    pub(crate) fn kill(mut self) -> Vec<Vec<u64>> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Waits until the job has ended; fails if the job failed.
    pub(crate) fn finish(self) {
        let output = self.child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
    }
}

/// The folder and the arguments, if this process was started for a job.
pub(crate) fn job() -> Option<(std::path::PathBuf, Vec<u64>)> {
    let job = std::env::var(JOB).ok()?;
    let (folder, arguments) = job.split_once('\n').unwrap();
    let numbers = arguments.split_whitespace().map(|number| number.parse().unwrap());
    Some((folder.into(), numbers.collect()))
}

/// Reports numbers to the process that started this one.
pub(crate) fn say(numbers: &[u64]) {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    // The test harness may have printed the beginning of a line, so this begins a new one.
    println!("\nsaid {}", numbers.join(" "));
}

/// Numbers that look random and are the same for the same seed.
pub(crate) struct Random(pub u64);

impl Random {
    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// How much a test does: little, or a lot where `FEMTOBARN_LONG` is set.
pub(crate) fn amount(little: u64, lots: u64) -> u64 {
    if std::env::var_os("FEMTOBARN_LONG").is_some() { lots } else { little }
}
