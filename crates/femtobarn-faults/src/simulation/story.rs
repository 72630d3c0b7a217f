//! The history of a seed: clients write to a server while the network, the server and the clients fail. Then it is
//! checked.
//!
//! Checks:
//! 1. Each client that was not killed ends within a bounded simulated time.
//! 2. The history satisfies snapshot isolation. It has every acknowledged commit once, in the order of the commits'
//!    numbers.
//! 3. The federation is sound.

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

/// The number of transactions of each client.
const TRANSACTIONS: u64 = 6;

const SECOND: u64 = 1000 * MILLISECOND;
/// The beginning of the last error line of a server that cannot start.
const NOT_BEGUN: &str = "cannot serve ";
/// A text in the log of a server that accepts no more commits because a sync of the catalogue's log failed.
const MUST_RESTART: &str = "restart the server";
/// The time between two looks of the operator at the server's log.
const LOOKED_EVERY: u64 = 2 * SECOND;
/// The time after which the operator starts a server again that could not start or had to be stopped.
const RESTARTED_AFTER: u64 = SECOND;
/// After the last fault has ended, all clients get an answer or a refusal within this time.
const ANSWERED_WITHIN: u64 = 600 * SECOND;

/// A summary of a history that passed all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToldStory {
    /// A hash of the whole history.
    pub trace: u64,
    /// The number of committed transactions.
    pub commits: u64,
    /// The number of faults that began.
    pub faults: u64,
    /// The number of calls of threads to the simulation.
    pub steps: u64,
    /// The simulated duration, in milliseconds.
    pub milliseconds: u64,
    /// The number of strikes for each fault and each activity of the clients at that moment.
    pub strikes: BTreeMap<(&'static str, ClientActivity), u64>,
}

/// The processes of a history, and their files.
struct Story {
    world: World,
    place: PathBuf,
    server: Option<usize>,
    before_server: BeforeServer,
    /// The time at which the operator starts the server again.
    restart: Option<u64>,
    /// The time of the operator's next look at the server's log.
    next_look: u64,
    /// The number of kills of the server by faults that have not ended yet.
    ends: u64,
    clients: Vec<usize>,
    killed: Vec<u64>,
    /// The beginnings and ends of faults so far, with their times.
    events: Vec<(u64, PlannedEvent)>,
    /// The future ends of current faults, in the order of their times.
    ends_of_faults: VecDeque<(u64, PlannedEvent)>,
    strikes: BTreeMap<(&'static str, ClientActivity), u64>,
}

/// Counts at the moment when the server was started, to tell its own errors from those of earlier servers.
#[derive(Default)]
struct BeforeServer {
    /// The size of the errors of earlier servers, in bytes.
    told: usize,
    /// The number of failed operations on the server's disk.
    failures: u64,
}

impl Story {
    fn start(&mut self, host: Ipv4Addr, name: &str, arguments: &[&str]) -> Result<usize, String> {
        let [output, errors] = ["out", "err"].map(|kind| self.place.join(format!("{name}.{kind}")));
        let told = ProcessOutput { output: &output, errors: &errors };
        self.world.start(host, arguments, &told).map_err(|error| format!("{name}: {error}"))
    }

    /// The paths of the server's disk and of the trace of its operations.
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

    /// Starts the process that creates a federation on a new disk.
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

    /// A server may refuse to start if its disk fails meanwhile; then the operator starts it again. A server that has
    /// started must not end by itself.
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

    /// The errors of the server since it was started.
    fn server_errors(&self) -> String {
        self.errors("server").split_off(self.before_server.told)
    }

    /// Acts as the operator: looks at the server's log from time to time, and restarts the server if the log demands
    /// it.
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

    /// The activity of the busiest client, by the clients' output: a client announces a transaction when it has its
    /// first lock, and again before it commits.
    fn activity(&self) -> ClientActivity {
        let lives = |client: &u64| self.world.status(self.clients[*client as usize]).is_none();
        let of = |client: u64| {
            let text = fs::read_to_string(self.place.join(format!("client{client}.out")));
            let text = text.unwrap_or_default();
            // The line of a transaction that has ended, perhaps with an unknown outcome, has a time.
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

    /// Lets the simulation make one step, but not beyond the time `until`.
    fn step(&mut self, until: u64) -> Result<(), String> {
        let now = self.world.now();
        self.world.step(until).map_err(|error| format!("after {now} ns: {error}"))?;
        for fault in self.world.hosts.take_struck(SERVER) {
            self.note_strike(fault.name());
        }
        self.server.map_or(Ok(()), |server| self.check_server(server))
    }

    /// Runs until all clients have ended. Returns the number of faults that began.
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

    /// Begins the faults that are due. Returns the latest time at which the next fault begins.
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

    /// The transactions that clients printed: of each transaction, the last line.
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

    /// Checks that no thread panicked: a panic can end a thread without its process.
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

/// Produces the history of a seed in an empty folder, by processes that run `program`, and checks it. If `log` is
/// given, every call of a thread is written to that file.
///
/// # Errors
/// The first check that failed, and the faults so far.
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
            // Not from 0: the first numbers belong to objects that the federation has from the beginning.
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

    /// Checks the history and the federation. Returns the number of committed transactions.
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
