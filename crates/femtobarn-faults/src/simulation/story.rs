//! The history of a seed: clients write to a server while the network, the server and the clients fail; then all is checked.
//!
//! What is checked: each client that was not killed ends, in a bounded time of the simulation; the history is one of snapshot
//! isolation, which has every commit that was acknowledged, once, in the order of their numbers; the federation is sound.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use femtobarn::{CheckLevel, Federation};

use super::PORT;
use super::message::NEVER;
use super::world::{ProcessOutput, World};
use crate::history::{ObservedTransaction, recorder};
use crate::random::SplitMix;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Clients of a history.
const CLIENTS: u64 = 3;
/// Transactions of each client.
const TRANSACTIONS: u64 = 6;
/// Faults of a history at most.
const FAULTS_MAX: u64 = 6;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
/// The time in which faults begin. Without any, clients are done in as long.
const FAULTS_WITHIN: u64 = 250 * MILLISECOND;
/// The time in which all clients are answered or refused once no fault lasts.
const ANSWERED_WITHIN: u64 = 600 * SECOND;

/// What happened in a history that passed all checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToldStory {
    /// A number that stands for all of it.
    pub trace: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Faults that began.
    pub faults: u64,
    /// Calls of threads to the simulation.
    pub steps: u64,
    /// The time that it took in the simulation, in milliseconds.
    pub milliseconds: u64,
}

/// A fault, or the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlannedEvent {
    /// The way from one host to another is blocked, or free again.
    Way(Ipv4Addr, Ipv4Addr, bool),
    DropConnections(Ipv4Addr),
    /// Messages are so many times slower than usual.
    Delay(u64),
    KillServer,
    StartServer,
    KillClient(u64),
}

fn host_of(client: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, client as u8)
}

/// The faults of a seed, in the order of their times, which count from the start of the clients.
fn plan(random: &mut SplitMix) -> Vec<(u64, PlannedEvent)> {
    let mut events = vec![];
    for _ in 0..1 + random.below(FAULTS_MAX) {
        let begin = random.below(FAULTS_WITHIN);
        let end = begin + (MILLISECOND << random.below(15)) + random.below(MILLISECOND);
        let host = host_of(random.below(CLIENTS));
        let mut way = |from, to| {
            events.push((begin, PlannedEvent::Way(from, to, true)));
            events.push((end, PlannedEvent::Way(from, to, false)));
        };
        match random.below(7) {
            0 => {
                way(host, SERVER);
                way(SERVER, host);
            }
            1 => way(host, SERVER),
            2 => way(SERVER, host),
            3 => events.push((begin, PlannedEvent::DropConnections(host))),
            4 => {
                events.push((begin, PlannedEvent::Delay(1 << random.below(9))));
                events.push((end, PlannedEvent::Delay(1)));
            }
            5 => {
                events.push((begin, PlannedEvent::KillServer));
                events.push((end, PlannedEvent::StartServer));
            }
            _ => events.push((begin, PlannedEvent::KillClient(random.below(CLIENTS)))),
        }
    }
    events.sort_by_key(|(time, _)| *time);
    events
}

/// The processes of a history, and their files.
struct Story {
    world: World,
    place: PathBuf,
    server: Option<usize>,
    /// How many times the server was killed more often than started.
    ends: u64,
    clients: Vec<usize>,
    killed: Vec<u64>,
}

impl Story {
    fn start(&mut self, host: Ipv4Addr, name: &str, arguments: &[&str]) -> Result<usize, String> {
        let [output, errors] = ["out", "err"].map(|kind| self.place.join(format!("{name}.{kind}")));
        let told = ProcessOutput { output: &output, errors: &errors };
        self.world.start(host, arguments, &told).map_err(|error| format!("{name}: {error}"))
    }

    fn federation(&self) -> PathBuf {
        self.place.join("fed")
    }

    fn start_server(&mut self) -> Result<(), String> {
        let folder = self.federation().display().to_string();
        let arguments = ["serve", &folder, &SERVER.to_string()];
        self.server = Some(self.start(SERVER, "server", &arguments)?);
        Ok(())
    }

    fn kill_server(&mut self) -> Result<(), String> {
        let Some(server) = self.server.take() else { return Ok(()) };
        self.check_server(server)?;
        self.world.kill(server).map_err(|error| format!("the server: {error}"))
    }

    fn check_server(&self, server: usize) -> Result<(), String> {
        let Some(status) = self.world.status(server) else { return Ok(()) };
        Err(format!("the server ended by itself: {status}: {}", self.errors("server")))
    }

    fn errors(&self, name: &str) -> String {
        fs::read_to_string(self.place.join(format!("{name}.err"))).unwrap_or_default()
    }

    fn apply(&mut self, event: PlannedEvent) -> Result<(), String> {
        match event {
            PlannedEvent::Way(from, to, is_blocked) => self.world.block(from, to, is_blocked),
            PlannedEvent::DropConnections(host) => self.world.drop_connections(host),
            PlannedEvent::Delay(times) => self.world.slow_down(times),
            PlannedEvent::KillServer => {
                self.ends += 1;
                self.kill_server()?;
            }
            PlannedEvent::StartServer => {
                self.ends -= 1;
                if self.ends == 0 {
                    self.start_server()?;
                }
            }
            PlannedEvent::KillClient(client) => {
                let process = self.clients[client as usize];
                if self.world.status(process).is_none() {
                    self.killed.push(client);
                    self.world.kill(process).map_err(|error| format!("a client: {error}"))?;
                }
            }
        }
        Ok(())
    }

    /// Goes on, but not beyond `until`.
    fn step(&mut self, until: u64) -> Result<(), String> {
        let now = self.world.now();
        self.world.step(until).map_err(|error| format!("after {now} ns: {error}"))?;
        self.server.map_or(Ok(()), |server| self.check_server(server))
    }

    /// Goes on until all clients have ended; returns the number of faults.
    fn run(&mut self, events: Vec<(u64, PlannedEvent)>) -> Result<u64, String> {
        let begin = self.world.now();
        let mut events: VecDeque<_> = events.into();
        let last = events.back().map_or(0, |(time, _)| *time);
        let limit = begin + last + ANSWERED_WITHIN;
        let mut faults = 0;
        while self.clients.iter().any(|client| self.world.status(*client).is_none()) {
            while events.front().is_some_and(|(time, _)| begin + *time <= self.world.now()) {
                let Some((_, event)) = events.pop_front() else { break };
                let is_end = matches!(
                    event,
                    PlannedEvent::Way(_, _, false)
                        | PlannedEvent::Delay(1)
                        | PlannedEvent::StartServer
                );
                faults += u64::from(!is_end);
                self.apply(event)?;
            }
            if self.world.now() >= limit {
                return Err("a client was neither answered nor refused".to_owned());
            }
            self.step(events.front().map_or(limit, |(time, _)| begin + *time))?;
        }
        Ok(faults)
    }

    /// What clients told, each transaction as it was told last.
    fn told(&self, trace: &mut impl Hasher) -> Result<Vec<ObservedTransaction>, String> {
        let mut history = vec![];
        for client in 0..CLIENTS {
            let name = format!("client{client}");
            let text = fs::read_to_string(self.place.join(format!("{name}.out")))
                .map_err(|error| format!("{name}: {error}"))?;
            trace.write(text.as_bytes());
            let mut named = BTreeMap::new();
            for line in text.lines() {
                let transaction = ObservedTransaction::from_line(line)
                    .ok_or_else(|| format!("{name} told no transaction: {line}"))?;
                match transaction.message() {
                    Some(message) => drop(named.insert(message, transaction)),
                    None => history.push(transaction),
                }
            }
            history.extend(named.into_values());
        }
        Ok(history)
    }

    /// A thread that panicked may have ended alone.
    fn check_threads(&self) -> Result<(), String> {
        let clients = (0..CLIENTS).map(|client| format!("client{client}"));
        for name in clients.chain(["server".to_owned()]) {
            let errors = self.errors(&name);
            if errors.contains("panicked at") {
                return Err(format!("{name}: {errors}"));
            }
        }
        Ok(())
    }

    fn check_clients(&self) -> Result<(), String> {
        for (client, process) in (0..).zip(&self.clients) {
            let status = self.world.status(*process);
            if !self.killed.contains(&client) && !status.is_some_and(|status| status.success()) {
                let errors = self.errors(&format!("client{client}"));
                return Err(format!("client {client} failed: {status:?}: {errors}"));
            }
        }
        Ok(())
    }
}

/// Makes the history of a seed in an empty folder, by processes that run `program`, and checks it. Every call of a thread goes into
/// the file `log`, if there is one.
///
/// # Errors
/// The first thing that is not as it must be.
pub fn tell(
    seed: u64,
    program: &Path,
    place: &Path,
    log: Option<&Path>,
) -> Result<ToldStory, String> {
    let mut random = SplitMix(seed);
    let mut world = World::new(random.draw(), program);
    if let Some(log) = log {
        world.log_calls(log).map_err(|error| format!("{}: {error}", log.display()))?;
    }
    let place = place.to_owned();
    let mut story = Story { world, place, server: None, ends: 0, clients: vec![], killed: vec![] };
    let folder = story.federation().display().to_string();
    let first = story.start(SERVER, "prepare", &["prepare", &folder])?;
    while story.world.status(first).is_none() {
        story.step(NEVER)?;
    }
    if !story.world.status(first).is_some_and(|status| status.success()) {
        return Err(format!("no federation: {}", story.errors("prepare")));
    }
    story.start_server()?;
    for client in 0..CLIENTS {
        let url = format!("root://{SERVER}:{PORT}//fed");
        // The first numbers are those of objects that the federation has from the beginning.
        let arguments = ["write", &url, &(client + 1).to_string(), &TRANSACTIONS.to_string()];
        let process = story.start(host_of(client), &format!("client{client}"), &arguments)?;
        story.clients.push(process);
    }
    let faults = story.run(plan(&mut random))?;
    story.kill_server()?;
    story.check_clients()?;
    story.check_threads()?;
    let mut trace = DefaultHasher::new();
    trace.write_u64(story.world.trace());
    let history = story.told(&mut trace)?;
    let federation = Federation::open(&story.federation()).map_err(|error| error.to_string())?;
    let commits = recorder::judge(&federation, history)?;
    let report = federation.check(CheckLevel::Full, &mut |_| true);
    let report = report.map_err(|error| error.to_string())?;
    if !report.is_sound() {
        return Err(format!("the federation is damaged: {:?}", report.problems));
    }
    let milliseconds = story.world.now() / MILLISECOND;
    let steps = story.world.steps();
    Ok(ToldStory { trace: trace.finish(), commits, faults, steps, milliseconds })
}
