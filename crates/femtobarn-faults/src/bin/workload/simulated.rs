//! A process of a simulation. Its threads run one at a time, in the order that the simulation chooses; the standard
//! input is the socket to the simulation.
//!
//! | arguments | action |
//! |---|---|
//! | `prepare DISK TRACE` | creates a federation with empty registers on a disk, and records its operations on files |
//! | `serve DISK TRACE ADDRESS` | serves that federation until it is killed, and records its operations on files |
//! | `write URL WRITER COUNT` | is one writer of a history; prints transactions at first locks, commits and ends |

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use femtobarn::{Federation, OpenOptions};
use femtobarn_faults::history::recorder::{self, Surroundings};
use femtobarn_faults::history::{IsolationLevel, ObservedTransaction};
use femtobarn_faults::simulation::PORT;
use femtobarn_server::Server;
use femtobarn_server::config::{Allowed, AuthConfig, Config, ExportConfig, LogConfig, TlsConfig};

use crate::interposer::{self, OperationRecord};

/// The time after which a writer gives up on a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two attempts to reach the server for the first time.
const PAUSE: Duration = Duration::from_secs(1);

/// Enters the simulation, and executes the action of `words`.
pub(crate) fn run(seed: &str, words: &[&str]) -> Result<(), String> {
    interposer::simulate(seed.parse().map_err(|error| format!("{seed}: {error}"))?);
    match words {
        ["prepare", disk, trace] => {
            interposer::start(Path::new(disk), OperationRecord::trace(Path::new(trace)), None);
            let prepared = recorder::prepare(&federation_on(disk));
            prepared.map_err(|error| error.to_string())
        }
        ["serve", disk, trace, address] => {
            interposer::start(Path::new(disk), OperationRecord::trace(Path::new(trace)), None);
            serve(&federation_on(disk), address)
        }
        ["write", url, writer, count] => write(url, writer, count),
        _ => Err("unknown arguments; the header of simulated.rs lists them".to_owned()),
    }
}

/// The path of the federation on a disk.
fn federation_on(disk: &str) -> PathBuf {
    Path::new(disk).join("fed")
}

fn serve(folder: &Path, address: &str) -> Result<(), String> {
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
    let _server = Server::start(config).map_err(|error| error.to_string())?;
    loop {
        std::thread::park();
    }
}

fn write(url: &str, writer: &str, count: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let (writer, count) = (number(writer)?, number(count)?);
    let federation = loop {
        let options = OpenOptions { timeout: PATIENCE, ..OpenOptions::default() };
        match Federation::open_url(url, options) {
            Ok(federation) => break federation,
            Err(error) if recorder::is_failure(error.kind()) => std::thread::sleep(PAUSE),
            Err(error) => return Err(error.to_string()),
        }
    };
    let tell = |transaction: ObservedTransaction| println!("{}", transaction.to_line());
    let writer = (writer, Surroundings::Deadly);
    let ran =
        recorder::run(&federation, IsolationLevel::Snapshot, writer, |made| made < count, tell);
    ran.map_err(|error| error.to_string())
}
