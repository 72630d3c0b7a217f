//! A history of transactions on the registers of a federation behind servers, for tests in which these fail.
//!
//! | arguments | action |
//! |---|---|
//! | `fill ADDRESS` | adds empty registers to a federation |
//! | `write ADDRESS WRITER SECONDS` | is one writer for this time, on a slow machine for 16 transactions; prints them |
//! | `judge ADDRESS` | reads the transactions of all writers, and checks them against the registers; prints how many were committed |

use std::io::BufRead;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use femtobarn::{Federation, OpenOptions};
use femtobarn_faults::history::recorder::{self, Surroundings};
use femtobarn_faults::history::{IsolationLevel, ObservedTransaction};

/// How long a writer waits for servers: longer than a takeover by another server needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Transactions that a writer makes at least, however slow the machine is: few say nothing about failures.
const TRANSACTIONS_MIN: u64 = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["fill", address] => fill(address),
        ["write", address, writer, seconds] => write(address, writer, seconds),
        ["judge", address] => judge(address),
        _ => Err("unknown arguments; the header of registers.rs lists them".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn open(address: &str) -> Result<Federation, String> {
    let options = OpenOptions { timeout: PATIENCE, ..OpenOptions::default() };
    Federation::open_url(address, options).map_err(|error| error.to_string())
}

fn fill(address: &str) -> Result<(), String> {
    recorder::fill(&open(address)?).map_err(|error| error.to_string())
}

fn write(address: &str, writer: &str, seconds: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let (writer, seconds) = (number(writer)?, number(seconds)?);
    let federation = open(address)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let tell = |transaction: ObservedTransaction| println!("{}", transaction.to_line());
    let level = IsolationLevel::Snapshot;
    let writer = (writer, Surroundings::Failing);
    let goes_on = |made| made < TRANSACTIONS_MIN || Instant::now() < end;
    let ran = recorder::run(&federation, level, writer, goes_on, tell);
    ran.map_err(|error| error.to_string())
}

fn judge(address: &str) -> Result<(), String> {
    let federation = open(address)?;
    let lines = std::io::stdin().lock().lines().map(|line| line.map_err(|error| error.to_string()));
    let parse = |line: Result<String, String>| {
        let line = line?;
        ObservedTransaction::from_line(&line).ok_or_else(|| format!("no transaction: {line}"))
    };
    let history = lines.map(parse).collect::<Result<Vec<_>, _>>()?;
    println!("{}", recorder::judge(&federation, history)?);
    Ok(())
}
