//! The history of a seed: clients write to a server while the network, the server and the clients fail; then all is checked.
//! Perhaps a second server follows the first one, a client reads there, and the copy is promoted.
//!
//! The checks: each client that was not killed ends, in a bounded time of the simulation; a copy has all commits, or its former
//! leader knows its successor, as soon; and what is left is as `ended` demands.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

use super::ended::{EndedStory, errors_of};
use super::isolation::with_own_descriptors;
use super::message::NEVER;
use super::outcome::FinalCounts;
use super::plan::{
    AIMED_WITHIN, CLIENTS, Cast, ClientActivity, FOLLOWER, LEADER, MILLISECOND, PlannedEvent,
    PlannedFault, READER, SITES, host_of, plan,
};
use super::site::{SimulatedSite, SiteTask, start_process};
use super::url_of;
use super::world::World;
use crate::history::ObservedTransaction;
use crate::random::SplitMix;

/// Transactions of each writer.
const TRANSACTIONS: u64 = 6;
/// The same, if another server may be promoted meanwhile.
const TRANSACTIONS_OF_TWO: u64 = 8;
/// Readings of the client that reads at a copy.
const READINGS: u64 = 12;

const SECOND: u64 = 1000 * MILLISECOND;
/// The time in which all clients are answered or refused once no fault lasts, and in which a copy has all commits.
const ANSWERED_WITHIN: u64 = 600 * SECOND;
/// The time between two looks whether a copy has all commits.
const SETTLED_EVERY: u64 = SECOND;

/// A summary of a history that passed all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorySummary {
    /// A hash of the whole history.
    pub trace: u64,
    /// The number of committed transactions.
    pub commits: u64,
    /// The number of commits that only a leader that was left behind has.
    pub left_behind: u64,
    /// The number of copies that were promoted.
    pub promotions: u64,
    /// The number of snapshots that were read at a copy.
    pub readings: u64,
    /// The number of vacuums.
    pub vacuums: u64,
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
    cast: Cast,
    world: World,
    place: PathBuf,
    sites: Vec<SimulatedSite>,
    clients: Vec<usize>,
    killed: Vec<u64>,
    /// The beginnings and ends of faults so far, with their times.
    events: Vec<(u64, PlannedEvent)>,
    /// The future ends of current faults, in the order of their times.
    ends_of_faults: VecDeque<(u64, PlannedEvent)>,
    strikes: BTreeMap<(&'static str, ClientActivity), u64>,
}

impl Story {
    fn start_client(&mut self, client: u64) -> Result<(), String> {
        // The first numbers are those of objects that the federation has from the beginning.
        let (number, urls) = ((client + 1).to_string(), SITES.map(url_of));
        let [count, of_two, readings] =
            [TRANSACTIONS, TRANSACTIONS_OF_TWO, READINGS].map(|count| count.to_string());
        let arguments: &[&str] = match self.cast {
            Cast::Followed if client == READER => &["read", &readings, &urls[FOLLOWER]],
            Cast::Followed => &["write", &number, &of_two, &urls[LEADER], &urls[FOLLOWER]],
            Cast::Alone => &["write", &number, &count, &urls[LEADER]],
        };
        let name = format!("client{client}");
        let named = (host_of(client), &*name);
        self.clients.push(start_process(&mut self.world, &self.place, named, arguments)?);
        Ok(())
    }

    fn errors(&self, name: &str) -> String {
        errors_of(&self.place, name)
    }

    fn apply(&mut self, event: PlannedEvent) -> Result<(), String> {
        self.events.push((self.world.now(), event));
        if let Some(fault) = event.strikes_at_once() {
            self.note_strike(fault);
        }
        let Story { world, sites, .. } = self;
        match event {
            PlannedEvent::Way(from, to, is_blocked) => world.block(from, to, is_blocked),
            PlannedEvent::DropConnections(host) => world.drop_connections(host),
            PlannedEvent::Delay(times) => world.slow_down(times),
            PlannedEvent::KillServer(at, loses_power) => sites[at].end(world, loses_power)?,
            PlannedEvent::StartServer(at) => sites[at].begin(world)?,
            PlannedEvent::KillClient(client) => {
                let process = self.clients[client as usize];
                if world.status(process).is_none() {
                    self.killed.push(client);
                    world.kill(process).map_err(|error| format!("a client: {error}"))?;
                }
            }
            PlannedEvent::Disk(at, kind, true) => world.hosts.begin_fault(SITES[at], kind),
            PlannedEvent::Disk(at, kind, false) => world.hosts.end_fault(SITES[at], kind),
            PlannedEvent::SlowDisk(at, times) => world.hosts.slow_disk(SITES[at], times),
            PlannedEvent::SetClock(host, by) => world.hosts.set_clock(host, by),
            PlannedEvent::Promote(may_force) => sites[FOLLOWER].promote(world, may_force)?,
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
        for at in 0..self.sites.len() {
            for fault in self.world.hosts.take_struck(self.sites[at].host) {
                self.note_strike(fault.name());
            }
            self.sites[at].check(&self.world)?;
        }
        Ok(())
    }

    /// Acts as the operators of the servers.
    fn operate(&mut self) -> Result<(), String> {
        for at in 0..self.sites.len() {
            if self.sites[at].operate(&mut self.world)? {
                self.note_strike("a restart by the operator");
            }
        }
        Ok(())
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
            self.step(fault.map_or(limit, |time| time.min(limit)).min(self.next_time()))?;
        }
        Ok((count - faults.len()) as u64)
    }

    /// The time at which the next fault ends, or an operator acts next.
    fn next_time(&self) -> u64 {
        let end = self.ends_of_faults.front().map(|(time, _)| *time);
        self.sites.iter().map(SimulatedSite::next_time).chain(end).min().unwrap_or(NEVER)
    }

    /// Ends all faults, and continues until the copy has all commits, or its former leader knows its successor.
    fn settle(&mut self) -> Result<(), String> {
        for (_, event) in std::mem::take(&mut self.ends_of_faults) {
            self.apply(event)?;
        }
        let limit = self.world.now() + ANSWERED_WITHIN;
        let since: Vec<usize> = self.sites.iter().map(|site| site.output().len()).collect();
        let mut next = self.world.now();
        loop {
            let now = self.world.now();
            if next <= now {
                let mut sites = self.sites.iter().zip(&since);
                if sites.all(|(site, since)| site.is_settled(&self.world, *since)) {
                    return Ok(());
                }
                next = now + SETTLED_EVERY;
            }
            if now >= limit {
                let follower = &self.sites[FOLLOWER];
                let (task, errors) = (follower.task, follower.errors());
                return Err(format!("the copy is not done: {task:?}: {errors}"));
            }
            self.operate()?;
            self.step(next.min(self.next_time()))?;
        }
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

    /// Checks that no thread panicked: a panic can end a thread without its process.
    fn check_threads(&self) -> Result<(), String> {
        let clients = (0..CLIENTS).map(|client| format!("client{client}"));
        let sites = self.sites.iter().map(|site| site.name.to_owned());
        for name in clients.chain(sites) {
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
    (seed, cast): (u64, Cast),
    program: &Path,
    place: &Path,
    log: Option<&Path>,
) -> Result<StorySummary, String> {
    let (ended, summary) = with_own_descriptors(|| {
        let mut random = SplitMix(seed);
        let mut story = Story::new(cast, World::new(random.draw(), program), place, log)?;
        let summary = story.play(&mut random);
        let summary = summary.map_err(|error| with_faults(error, &story.events))?;
        let Story { place, sites, events, .. } = story;
        Ok::<_, String>((EndedStory { place, sites, events }, summary))
    })
    .map_err(|error| format!("no descriptors: {error}"))??;
    let mut trace = DefaultHasher::new();
    trace.write_u64(summary.trace);
    let counts = ended.check(&mut trace).map_err(|error| with_faults(error, &ended.events))?;
    let FinalCounts { commits, left_behind, readings } = counts;
    Ok(StorySummary { trace: trace.finish(), commits, left_behind, readings, ..summary })
}

fn with_faults(error: String, events: &[(u64, PlannedEvent)]) -> String {
    format!("{error}\nfaults, and their times: {events:?}")
}

impl Story {
    fn new(cast: Cast, mut world: World, place: &Path, log: Option<&Path>) -> Result<Self, String> {
        if let Some(log) = log {
            world.log_calls(log).map_err(|error| format!("{}: {error}", log.display()))?;
        }
        let sites = (0..cast.sites()).map(|at| SimulatedSite::new(at, place, &mut world));
        let sites = sites.collect::<Result<_, _>>()?;
        Ok(Story {
            cast,
            world,
            place: place.to_owned(),
            sites,
            clients: vec![],
            killed: vec![],
            events: vec![],
            ends_of_faults: VecDeque::new(),
            strikes: BTreeMap::new(),
        })
    }

    /// Lets the history happen. The checks of its federations, which are still to be done, complete the summary.
    fn play(&mut self, random: &mut SplitMix) -> Result<StorySummary, String> {
        let vacuums = self.cast == Cast::Followed && random.one_in(2);
        self.sites.iter_mut().for_each(|site| site.vacuums = vacuums);
        self.begin()?;
        let faults = self.run(plan(random, self.cast))?;
        if self.cast == Cast::Followed {
            self.settle()?;
        }
        for at in 0..self.sites.len() {
            self.sites[at].kill(&mut self.world)?;
            if random.one_in(2) {
                self.sites[at].lose_power(&mut self.world)?;
            }
        }
        self.check_clients()?;
        self.check_threads()?;
        let is_promoted = |site: &&SimulatedSite| site.task == SiteTask::Lead;
        Ok(StorySummary {
            trace: self.world.trace(),
            promotions: self.sites.iter().filter(is_promoted).count() as u64,
            vacuums: self.sites.iter().map(SimulatedSite::vacuums_made).sum(),
            faults,
            steps: self.world.steps(),
            milliseconds: self.world.now() / MILLISECOND,
            strikes: std::mem::take(&mut self.strikes),
            ..StorySummary::default()
        })
    }

    /// Makes the federation and starts its servers, with no fault until a copy is complete; then starts the clients.
    fn begin(&mut self) -> Result<(), String> {
        let first = self.sites[LEADER].prepare(&mut self.world)?;
        while self.world.status(first).is_none() {
            self.step(NEVER)?;
        }
        if !self.world.status(first).is_some_and(|status| status.success()) {
            return Err(format!("no federation: {}", self.errors("prepare")));
        }
        for at in 0..self.sites.len() {
            self.sites[at].start(&mut self.world)?;
            while !self.sites[at].has_begun(&self.world) {
                self.step(NEVER)?;
            }
        }
        (0..CLIENTS).try_for_each(|client| self.start_client(client))
    }
}
