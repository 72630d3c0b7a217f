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
use super::clock::are_in_order;
use super::message::NEVER;
use super::plan::{
    AIMED_WITHIN, CLIENTS, ClientActivity, MILLISECOND, PlannedEvent, PlannedFault, SERVER,
    host_of, plan,
};
use super::world::{ProcessOutput, World};
use crate::history::{ObservedTransaction, recorder};
use crate::random::SplitMix;

/// Transactions of each client.
const TRANSACTIONS: u64 = 6;

const SECOND: u64 = 1000 * MILLISECOND;
/// What a server says that cannot begin.
const NOT_BEGUN: &str = "cannot serve ";
/// What a server's log says if it takes no commits any more: after a failed sync of the catalogue's log.
const MUST_RESTART: &str = "restart the server";
/// How often an operator looks at that log.
const LOOKED_EVERY: u64 = 2 * SECOND;
/// When an operator starts a server again that could not begin, or that has to be restarted.
const RESTARTED_AFTER: u64 = SECOND;
/// The time in which all clients are answered or refused once no fault lasts.
const ANSWERED_WITHIN: u64 = 600 * SECOND;

/// What happened in a history that passed all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// How often a fault struck while clients were busy in this way.
    pub strikes: BTreeMap<(&'static str, ClientActivity), u64>,
}

/// The processes of a history, and their files.
struct Story {
    world: World,
    place: PathBuf,
    server: Option<usize>,
    before_server: BeforeServer,
    /// When an operator starts the server again.
    restart: Option<u64>,
    /// When an operator looks at the server's log.
    next_look: u64,
    /// How many times the server was killed more often than started.
    ends: u64,
    clients: Vec<usize>,
    killed: Vec<u64>,
    /// The faults until now, with the times.
    events: Vec<(u64, PlannedEvent)>,
    /// The ends of faults that last, in the order of their times.
    ends_of_faults: VecDeque<(u64, PlannedEvent)>,
    strikes: BTreeMap<(&'static str, ClientActivity), u64>,
}

/// What there was when the server was started.
#[derive(Default)]
struct BeforeServer {
    /// The bytes that earlier servers had told.
    told: usize,
    /// Operations on its disk that had failed.
    failures: u64,
}

impl Story {
    fn start(&mut self, host: Ipv4Addr, name: &str, arguments: &[&str]) -> Result<usize, String> {
        let [output, errors] = ["out", "err"].map(|kind| self.place.join(format!("{name}.{kind}")));
        let told = ProcessOutput { output: &output, errors: &errors };
        self.world.start(host, arguments, &told).map_err(|error| format!("{name}: {error}"))
    }

    /// The server's disk, and what its programs record of it.
    fn disk(&self) -> [PathBuf; 2] {
        ["disk", "trace"].map(|name| self.place.join(name))
    }

    fn federation(&self) -> PathBuf {
        self.disk()[0].join("fed")
    }

    fn lose_power(&mut self) -> Result<(), String> {
        let lost = self.world.hosts.lose_power(SERVER);
        lost.map_err(|error| format!("the server's disk: {error}"))
    }

    /// Starts the process that makes a federation on a new disk.
    fn prepare(&mut self) -> Result<usize, String> {
        let [disk, trace] = self.disk();
        fs::create_dir(&disk).map_err(|error| format!("{}: {error}", disk.display()))?;
        let [disk_name, trace_name] = [&disk, &trace].map(|path| path.display().to_string());
        self.world.hosts.add_disk(SERVER, disk, trace);
        self.start(SERVER, "prepare", &["prepare", &disk_name, &trace_name])
    }

    fn start_server(&mut self) -> Result<(), String> {
        self.restart = None;
        let (told, failures) = (self.errors("server").len(), self.world.hosts.failures(SERVER));
        self.before_server = BeforeServer { told, failures };
        let [disk, trace] = self.disk().map(|path| path.display().to_string());
        let arguments = ["serve", &disk, &trace, &SERVER.to_string()];
        self.server = Some(self.start(SERVER, "server", &arguments)?);
        Ok(())
    }

    fn kill_server(&mut self) -> Result<(), String> {
        self.restart = None;
        let Some(server) = self.server.take() else { return Ok(()) };
        self.world.kill(server).map_err(|error| format!("the server: {error}"))
    }

    /// A server may refuse to begin if its disk fails meanwhile; an operator starts it again. It never ends later.
    fn check_server(&mut self, server: usize) -> Result<(), String> {
        let Some(status) = self.world.status(server) else { return Ok(()) };
        let errors = self.server_errors();
        let last = errors.trim_end().lines().last();
        let is_refusal = status.code() == Some(1)
            && last.is_some_and(|line| line.starts_with(NOT_BEGUN))
            && self.world.hosts.failures(SERVER) > self.before_server.failures;
        if !is_refusal {
            return Err(format!("the server ended by itself: {status}: {errors}"));
        }
        self.server = None;
        self.restart = Some(self.world.now() + RESTARTED_AFTER);
        Ok(())
    }

    /// What the server has told since it was started.
    fn server_errors(&self) -> String {
        self.errors("server").split_off(self.before_server.told)
    }

    /// Does what an operator does: looks at the server's log from time to time, and restarts the server if it says so.
    fn operate(&mut self) -> Result<(), String> {
        let now = self.world.now();
        if self.next_look <= now {
            self.next_look = now + LOOKED_EVERY;
            if self.server.is_some() && self.server_errors().contains(MUST_RESTART) {
                self.note_strike("a restart by the operator");
                self.kill_server()?;
                self.restart = Some(now + RESTARTED_AFTER);
            }
        }
        if self.restart.is_some_and(|time| time <= now) {
            self.start_server()?;
        }
        Ok(())
    }

    fn errors(&self, name: &str) -> String {
        fs::read_to_string(self.place.join(format!("{name}.err"))).unwrap_or_default()
    }

    fn apply(&mut self, event: PlannedEvent) -> Result<(), String> {
        self.events.push((self.world.now(), event));
        if let Some(fault) = event.strikes_at_once() {
            self.note_strike(fault);
        }
        match event {
            PlannedEvent::Way(from, to, is_blocked) => self.world.block(from, to, is_blocked),
            PlannedEvent::DropConnections(host) => self.world.drop_connections(host),
            PlannedEvent::Delay(times) => self.world.slow_down(times),
            PlannedEvent::KillServer(loses_power) => {
                self.ends += 1;
                self.kill_server()?;
                if loses_power {
                    self.lose_power()?;
                }
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
            PlannedEvent::Disk(kind, true) => self.world.hosts.begin_fault(SERVER, kind),
            PlannedEvent::Disk(kind, false) => self.world.hosts.end_fault(SERVER, kind),
            PlannedEvent::SlowDisk(times) => self.world.hosts.slow_disk(SERVER, times),
            PlannedEvent::SetClock(host, by) => self.world.hosts.set_clock(host, by),
        }
        Ok(())
    }

    fn note_strike(&mut self, fault: &'static str) {
        *self.strikes.entry((fault, self.activity())).or_default() += 1;
    }

    /// By what clients have told: a transaction is announced when it has its first lock, and again when it commits.
    fn activity(&self) -> ClientActivity {
        let lives = |client: &u64| self.world.status(self.clients[*client as usize]).is_none();
        let of = |client: u64| {
            let text = fs::read_to_string(self.place.join(format!("client{client}.out")));
            let text = text.unwrap_or_default();
            // A transaction that ended, perhaps with an unknown outcome, took some time.
            let is_announced = |line: &&str| {
                let told = ObservedTransaction::from_line(line);
                told.is_some_and(|told| told.time.is_empty())
            };
            match text.lines().rev().take_while(is_announced).count() {
                0 => ClientActivity::Other,
                1 => ClientActivity::Locking,
                _ => ClientActivity::Committing,
            }
        };
        (0..CLIENTS).filter(lives).map(of).min().unwrap_or(ClientActivity::Other)
    }

    /// Goes on, but not beyond `until`.
    fn step(&mut self, until: u64) -> Result<(), String> {
        let now = self.world.now();
        self.world.step(until).map_err(|error| format!("after {now} ns: {error}"))?;
        for fault in self.world.hosts.take_struck(SERVER) {
            self.note_strike(fault.name());
        }
        self.server.map_or(Ok(()), |server| self.check_server(server))
    }

    /// Goes on until all clients have ended; returns the number of faults.
    fn run(&mut self, faults: Vec<PlannedFault>) -> Result<u64, String> {
        let begin = self.world.now();
        let last = faults.iter().map(|fault| fault.time + AIMED_WITHIN + fault.lasts).max();
        let limit = begin + last.unwrap_or(0) + ANSWERED_WITHIN;
        let (count, mut faults) = (faults.len(), VecDeque::from(faults));
        while self.clients.iter().any(|client| self.world.status(*client).is_none()) {
            self.end_faults()?;
            let fault = self.begin_faults(begin, &mut faults)?;
            if self.world.now() >= limit {
                return Err("a client was neither answered nor refused".to_owned());
            }
            self.operate()?;
            let end = self.ends_of_faults.front().map(|(time, _)| *time);
            let times = [fault, end, self.restart, Some(self.next_look)];
            self.step(times.into_iter().flatten().fold(limit, u64::min))?;
        }
        Ok((count - faults.len()) as u64)
    }

    /// Begins the faults whose time has come. Returns when the next one may begin, at the latest.
    fn begin_faults(
        &mut self,
        begin: u64,
        faults: &mut VecDeque<PlannedFault>,
    ) -> Result<Option<u64>, String> {
        while let Some(fault) = faults.front() {
            let now = self.world.now();
            let mut time = begin + fault.time;
            if time <= now && !self.is_at(fault.aim) {
                time += AIMED_WITHIN;
            }
            if time > now {
                return Ok(Some(time));
            }
            let Some(fault) = faults.pop_front() else { break };
            fault.begin.into_iter().try_for_each(|event| self.apply(event))?;
            let ends = fault.end.into_iter().map(|event| (now + fault.lasts, event));
            self.ends_of_faults.extend(ends);
            self.ends_of_faults.make_contiguous().sort_by_key(|(time, _)| *time);
        }
        Ok(None)
    }

    /// Ends the faults that have lasted long enough.
    fn end_faults(&mut self) -> Result<(), String> {
        while let Some((time, event)) = self.ends_of_faults.front().copied() {
            if time > self.world.now() {
                break;
            }
            self.ends_of_faults.pop_front();
            self.apply(event)?;
        }
        Ok(())
    }

    fn is_at(&self, aim: Option<ClientActivity>) -> bool {
        aim.is_none_or(|aim| aim == self.activity())
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
/// The first thing that is not as it must be, and the faults until then.
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
    let mut story = Story {
        world,
        place: place.to_owned(),
        server: None,
        before_server: BeforeServer::default(),
        restart: None,
        next_look: 0,
        ends: 0,
        clients: vec![],
        killed: vec![],
        events: vec![],
        ends_of_faults: VecDeque::new(),
        strikes: BTreeMap::new(),
    };
    let told = story.tell(&mut random);
    told.map_err(|error| format!("{error}\nfaults, and their times: {:?}", story.events))
}

impl Story {
    fn tell(&mut self, random: &mut SplitMix) -> Result<ToldStory, String> {
        let first = self.prepare()?;
        while self.world.status(first).is_none() {
            self.step(NEVER)?;
        }
        if !self.world.status(first).is_some_and(|status| status.success()) {
            return Err(format!("no federation: {}", self.errors("prepare")));
        }
        self.start_server()?;
        while !self.world.is_listening(SERVER, PORT) {
            self.step(NEVER)?;
        }
        for client in 0..CLIENTS {
            let url = format!("root://{SERVER}:{PORT}//fed");
            // The first numbers are those of objects that the federation has from the beginning.
            let arguments = ["write", &url, &(client + 1).to_string(), &TRANSACTIONS.to_string()];
            let process = self.start(host_of(client), &format!("client{client}"), &arguments)?;
            self.clients.push(process);
        }
        let faults = self.run(plan(random))?;
        self.kill_server()?;
        if random.one_in(2) {
            self.lose_power()?;
        }
        self.check_clients()?;
        self.check_threads()?;
        let mut trace = DefaultHasher::new();
        trace.write_u64(self.world.trace());
        let commits = self.check_federation(self.told(&mut trace)?)?;
        let milliseconds = self.world.now() / MILLISECOND;
        let (trace, steps) = (trace.finish(), self.world.steps());
        let strikes = std::mem::take(&mut self.strikes);
        Ok(ToldStory { trace, commits, faults, steps, milliseconds, strikes })
    }

    /// Returns how many transactions were committed.
    fn check_federation(&self, history: Vec<ObservedTransaction>) -> Result<u64, String> {
        let federation = Federation::open(&self.federation()).map_err(|error| error.to_string())?;
        let commits = recorder::judge(&federation, history)?;
        let all = federation.history(u64::MAX >> 1).map_err(|error| error.to_string())?;
        let times: Vec<_> = all.iter().map(|commit| (commit.csn.0, commit.time_us)).collect();
        if !are_in_order(&times) {
            return Err("commits have times in another order than their numbers".to_owned());
        }
        let report = federation.check(CheckLevel::Full, &mut |_| true);
        let report = report.map_err(|error| error.to_string())?;
        if !report.is_sound() {
            return Err(format!("the federation is damaged: {:?}", report.problems));
        }
        Ok(commits)
    }
}
