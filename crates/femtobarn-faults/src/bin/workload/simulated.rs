//! A process of a simulation. Its threads run one at a time, in the order that the simulation chooses; the standard
//! input is the socket to the simulation.
//!
//! | arguments | action |
//! |---|---|
//! | `prepare DISK TRACE` | creates a federation with empty registers on a disk, and records its operations on files |
//! | `serve DISK TRACE ADDRESS VACUUM` | serves it until it is killed, and records likewise |
//! | `lead DISK TRACE ADDRESS VACUUM` | serves a promoted copy, and tells its former leader; prints `told` when that knows |
//! | `follow DISK TRACE ADDRESS LEADER` | as `femtobarn follow` with a port; prints the commit here and the leader's after each step |
//! | `promote DISK TRACE URL HOW` | promotes the copy, by force if `HOW` is `force`; prints the result |
//! | `write WRITER COUNT URL...` | is one writer of a history; prints its transactions, each before it commits, too |
//! | `read COUNT URL` | reads all registers so many times; prints these transactions |
//!
//! A writer begins at the first server, and continues at the next one after each failure. `VACUUM` is `vacuum` if the server vacuums now
//! and then, and keeps the newest snapshot and those that are read.

use std::net::Ipv4Addr;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use femtobarn::{
    Error, ErrorKind, Federation, FollowOptions, Follower, OpenOptions, VacuumOptions,
    inform_former_leader, promote,
};
use femtobarn_faults::history::recorder::{self, RegisterWriter, Surroundings};
use femtobarn_faults::history::{IsolationLevel, ObservedTransaction};
use femtobarn_faults::simulation::{GIVEN_UP, PORT, PROMOTED, TOLD, VACUUMED, url_of};
use femtobarn_server::Server;
use femtobarn_server::config::{Allowed, AuthConfig, Config, ExportConfig, LogConfig, TlsConfig};

use crate::interposer::{self, OperationRecord};

/// How long a client waits for a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two attempts to reach a server for the first time.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause between two readings.
const READING_PAUSE: Duration = Duration::from_millis(20);
/// The pause before the first vacuum of a server.
const VACUUM_PAUSE: Duration = Duration::from_millis(25);
/// As `femtobarn follow`: how long a step waits for a commit, and the pause after one that failed.
const STEP: Duration = Duration::from_secs(1);
const STEP_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// The pause between two attempts to notify a former leader, as in `femtobarn serve`.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Enters the simulation, and executes the action of `words`.
pub(crate) fn run(seed: &str, words: &[&str]) -> Result<(), String> {
    interposer::simulate(seed.parse().map_err(|error| format!("{seed}: {error}"))?);
    match words {
        ["write", writer, count, urls @ ..] => write(writer, count, urls),
        ["read", count, url] => read(count, url),
        [command, disk, trace, words @ ..] => {
            let disk = Path::new(disk);
            interposer::start(disk, OperationRecord::trace(Path::new(trace)), None);
            run_on_disk(command, &disk.join("fed"), words)
        }
        _ => Err(unknown()),
    }
}

fn run_on_disk(command: &str, folder: &Path, words: &[&str]) -> Result<(), String> {
    match (command, words) {
        ("prepare", []) => recorder::prepare(folder).map_err(|error| error.to_string()),
        ("serve", [address, vacuum]) => {
            let _server = serve(folder, address)?;
            vacuum_if(*vacuum == "vacuum", folder);
            loop {
                std::thread::park();
            }
        }
        ("lead", [address, vacuum]) => {
            let _server = serve(folder, address)?;
            vacuum_if(*vacuum == "vacuum", folder);
            tell_former(folder)
        }
        ("follow", [address, leader]) => follow(folder, address, leader),
        ("promote", [url, how]) => {
            let promoted = promote(folder, url, *how == "force").map_err(say("promote"))?;
            if !promoted.unsound.is_empty() {
                return Err(format!("a promoted copy is damaged: {:?}", promoted.unsound));
            }
            let untold = promoted.untold.map_or(String::new(), |url| format!(" {url}"));
            println!("{PROMOTED} {}{untold}", promoted.head);
            Ok(())
        }
        _ => Err(unknown()),
    }
}

fn unknown() -> String {
    "unknown arguments; the header of simulated.rs lists them".to_owned()
}

/// The report of an error, with its kind, by which an operator acts.
fn say(attempt: &str) -> impl Fn(Error) -> String {
    move |error| format!("cannot {attempt}: {}: {error}", error.kind().name())
}

fn serve(folder: &Path, address: &str) -> Result<Server, String> {
    let address: Ipv4Addr = address.parse().map_err(|error| format!("{address}: {error}"))?;
    let export = ExportConfig {
        folder: folder.to_owned(),
        name: String::new(),
        read_only: false,
        cache: None,
        throttle: None,
        faults: vec![],
    };
    femtobarn_server::logging::start(&LogConfig {
        level: "error".to_owned(),
        ..LogConfig::default()
    })?;
    let config = Config {
        address: address.to_string(),
        port: PORT,
        exports: vec![export],
        auth: AuthConfig { anonymous: Allowed::All, ..AuthConfig::default() },
        tls: TlsConfig { off: true, ..TlsConfig::default() },
        ..Config::default()
    };
    Server::start(config).map_err(|error| error.to_string())
}

/// Vacuums in a thread. Each pause is longer than the one before it, so that a long history has no more vacuums than a short one.
fn vacuum_if(is_wanted: bool, folder: &Path) {
    let folder = folder.to_owned();
    let vacuum = move || {
        let federation = Federation::open(&folder)?;
        let keep_from = Some(federation.snapshot(None)?.csn());
        federation.vacuum(&VacuumOptions { keep_from, ..VacuumOptions::default() }, &mut |_| true)
    };
    let run = move || {
        let mut pause = VACUUM_PAUSE;
        loop {
            sleep(pause);
            pause *= 2;
            match vacuum() {
                Ok(report) => {
                    assert!(report.skipped.is_empty(), "vacuum: {report:?}");
                    println!("{VACUUMED}");
                }
                Err(error) if may_be_repeated(error.kind()) || is_refusal(error.kind()) => {
                    eprintln!("vacuum: {error}");
                }
                Err(error) => panic!("vacuum: {error}"),
            }
        }
    };
    if is_wanted {
        std::thread::spawn(run);
    }
}

/// Whether a server refuses a change that must be restarted, or has a successor.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Closed | ErrorKind::Denied)
}

fn tell_former(folder: &Path) -> Result<(), String> {
    let mut is_told = false;
    loop {
        match inform_former_leader(folder) {
            Ok(()) if is_told => {}
            Ok(()) => {
                println!("{TOLD}");
                is_told = true;
            }
            Err(error) => eprintln!("{error}"),
        }
        sleep(TELL_AGAIN_AFTER);
    }
}

fn follow(folder: &Path, address: &str, leader: &str) -> Result<(), String> {
    let own = address.parse().map_err(|error| format!("{address}: {error}"))?;
    let options = FollowOptions { name: url_of(own), ..FollowOptions::default() };
    let mut follower = Follower::open(leader, folder, options).map_err(say("follow"))?;
    let _server = serve(folder, address)?;
    loop {
        match follower.step(STEP) {
            Ok(step) => println!("{} {}", step.at, step.head),
            Err(error) if is_followed_on(error.kind()) => {
                eprintln!("{error}; trying again");
                sleep(STEP_AGAIN_AFTER);
            }
            Err(error) => return Err(say("follow")(error)),
        }
    }
}

/// Whether `femtobarn follow` tries again after an error.
fn is_followed_on(kind: ErrorKind) -> bool {
    kind == ErrorKind::Corrupt || may_be_repeated(kind)
}

fn may_be_repeated(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Busy | ErrorKind::Full | ErrorKind::Io | ErrorKind::Unavailable)
}

/// Opens a federation at one of some servers; the first attempt is at the one of this number, the next ones at those that follow.
fn open(urls: &[&str], at: &mut usize) -> Result<Federation, String> {
    loop {
        let options = OpenOptions { timeout: PATIENCE, ..OpenOptions::default() };
        match Federation::open_url(urls[*at % urls.len()], options) {
            Ok(federation) => return Ok(federation),
            Err(error) if recorder::is_failure(error.kind()) => {
                sleep(PAUSE);
                *at += 1;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

fn tell(transaction: ObservedTransaction) {
    println!("{}", transaction.to_line());
}

fn write(writer: &str, count: &str, urls: &[&str]) -> Result<(), String> {
    let surroundings = if urls.len() > 1 { Surroundings::Succession } else { Surroundings::Deadly };
    let mut writer = RegisterWriter::new(IsolationLevel::Snapshot, number(writer)?, surroundings);
    let mut at = 0;
    let mut federation = open(urls, &mut at)?;
    for _ in 0..number(count)? {
        let failure = writer.transact(&federation, &mut tell).map_err(|error| error.to_string())?;
        if failure.is_some() && urls.len() > 1 {
            at += 1;
            federation = open(urls, &mut at)?;
        }
    }
    Ok(())
}

fn read(count: &str, url: &str) -> Result<(), String> {
    let federation = open(&[url], &mut 0)?;
    for _ in 0..number(count)? {
        match recorder::read_all(&federation) {
            Ok(transaction) => tell(transaction),
            // The snapshot was given up while the server was away.
            Err(error) if error.kind() == ErrorKind::Conflict => eprintln!("{GIVEN_UP}{error}"),
            Err(error) if recorder::is_failure(error.kind()) => {
                eprintln!("{error}");
                sleep(PAUSE);
            }
            Err(error) => return Err(error.to_string()),
        }
        sleep(READING_PAUSE);
    }
    Ok(())
}
