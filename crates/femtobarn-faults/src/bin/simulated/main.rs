//! A process of a simulation: its threads run one at a time, as the simulation says, which has its standard input.
//!
//! | arguments | action |
//! |---|---|
//! | `SEED prepare FOLDER` | creates a federation with empty registers |
//! | `SEED serve FOLDER ADDRESS` | serves it until it is killed |
//! | `SEED write URL WRITER COUNT` | is one writer of a history; prints its transactions, each before it commits, too |

mod interposer;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use femtobarn::{Federation, OpenOptions};
use femtobarn_faults::history::recorder::{self, Surroundings};
use femtobarn_faults::history::{IsolationLevel, ObservedTransaction};
use femtobarn_faults::simulation::PORT;
use femtobarn_server::Server;
use femtobarn_server::config::{Allowed, AuthConfig, Config, ExportConfig, TlsConfig};

/// How long a writer waits for a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two attempts to reach the server for the first time.
const PAUSE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some((Ok(seed), words)) = words.split_first().map(|(seed, rest)| (seed.parse(), rest))
    else {
        eprintln!("the header of main.rs lists the arguments");
        return ExitCode::FAILURE;
    };
    interposer::start(seed);
    let done = match words {
        ["prepare", folder] => {
            recorder::prepare(Path::new(folder)).map_err(|error| error.to_string())
        }
        ["serve", folder, address] => serve(Path::new(folder), address),
        ["write", url, writer, count] => write(url, writer, count),
        _ => Err("unknown arguments; the header of main.rs lists them".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
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
