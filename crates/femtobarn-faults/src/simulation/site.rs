//! A server's machine: its disk, the process that runs there, and the operator who starts it, as the guide of copies says.
//!
//! Invariant: at most one process runs on a machine. It ends by itself only if its disk failed, or the leader did not answer, and it
//! said so; or if its work was done.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::plan::{LEADER, MILLISECOND, SITES};
use super::world::{ProcessOutput, World};
use super::{PORT, PROMOTED, TOLD, VACUUMED, url_of};

const SECOND: u64 = 1000 * MILLISECOND;
/// The beginning of the last error line of a server that cannot start.
const NOT_BEGUN: &str = "cannot serve ";
/// A text in the log of a server that accepts no more commits because a sync of the catalogue's log failed.
const MUST_RESTART: &str = "restart the server";
/// The error of the promotion of a leader: an earlier attempt was killed after it had promoted the copy.
const IS_PROMOTED: &str = "it needs no promotion";
/// The error of the promotion of a copy that is between two commits, or has no snapshot yet.
const IS_INCOMPLETE: &str = "leader can complete it";
/// How often an operator looks at that log.
const LOOKED_EVERY: u64 = 2 * SECOND;
/// When an operator starts a process again that ended, or that has to be restarted.
const RESTARTED_AFTER: u64 = SECOND;

/// The role of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SiteTask {
    /// Its process serves the federation.
    Serve,
    /// Its process copies it from the leader, and serves the copy.
    Follow,
    /// The copy is being promoted; if the leader does not answer, the promotion is repeated, or forced.
    Promote { is_forced: bool },
    /// Its process serves the promoted copy.
    Lead,
}

pub(super) struct SimulatedSite {
    pub(super) host: Ipv4Addr,
    pub(super) name: &'static str,
    pub(super) task: SiteTask,
    /// The folder of the history.
    place: PathBuf,
    process: Option<usize>,
    before: BeforeProcess,
    /// Whether the server that leads vacuums now and then.
    pub(super) vacuums: bool,
    /// Whether the operator forces a promotion when the leader does not answer.
    may_force: bool,
    /// Whether the operator has decided so.
    pub(super) was_forced: bool,
    /// When the operator starts the process again.
    restart: Option<u64>,
    /// When the operator looks at its log.
    next_look: u64,
    /// How many times the process was killed more often than started.
    ends: u64,
    /// The number of processes that were started.
    pub(super) starts: u64,
}

/// The output of a promotion.
#[derive(Clone, Copy)]
pub(super) struct PrintedPromotion {
    /// The newest commit of the copy.
    pub(super) head: u64,
    /// Whether the leader was left behind.
    pub(super) left_behind: bool,
}

/// Counts at the moment when the process was started.
#[derive(Default)]
struct BeforeProcess {
    /// The size of the output of earlier processes, in bytes.
    told: usize,
    /// Operations on disks that had failed.
    failures: u64,
}

/// Starts a process, whose output goes to files with its name.
pub(super) fn start_process(
    world: &mut World,
    place: &Path,
    (host, name): (Ipv4Addr, &str),
    arguments: &[&str],
) -> Result<usize, String> {
    let [output, errors] = ["out", "err"].map(|kind| place.join(format!("{name}.{kind}")));
    let told = ProcessOutput { output: &output, errors: &errors };
    world.start(host, arguments, &told).map_err(|error| format!("{name}: {error}"))
}

impl SimulatedSite {
    /// The machine with this number in [`SITES`], with an empty disk.
    ///
    /// # Errors
    /// Names the disk that cannot be made.
    pub(super) fn new(at: usize, place: &Path, world: &mut World) -> Result<Self, String> {
        let names = [("server", SiteTask::Serve), ("follower", SiteTask::Follow)];
        let (name, task) = names[at];
        let site = SimulatedSite {
            host: SITES[at],
            name,
            task,
            place: place.to_owned(),
            process: None,
            before: BeforeProcess::default(),
            vacuums: false,
            may_force: false,
            was_forced: false,
            restart: None,
            next_look: 0,
            ends: 0,
            starts: 0,
        };
        let [disk, trace] = site.disk();
        fs::create_dir(&disk).map_err(|error| format!("{}: {error}", disk.display()))?;
        world.hosts.add_disk(site.host, disk, trace);
        Ok(site)
    }

    /// The paths of the disk and of the trace of its operations.
    fn disk(&self) -> [PathBuf; 2] {
        ["disk", "trace"].map(|kind| self.place.join(format!("{}.{kind}", self.name)))
    }

    pub(super) fn federation(&self) -> PathBuf {
        self.disk()[0].join("fed")
    }

    /// Starts the process that makes a federation on the disk.
    pub(super) fn prepare(&self, world: &mut World) -> Result<usize, String> {
        let [disk, trace] = self.disk().map(|path| path.display().to_string());
        let arguments = ["prepare", &disk, &trace];
        start_process(world, &self.place, (self.host, "prepare"), &arguments)
    }

    pub(super) fn start(&mut self, world: &mut World) -> Result<(), String> {
        self.restart = None;
        self.starts += 1;
        // The leader may have failed before, and refuse since then what this process asks for.
        let depends_on_leader = matches!(self.task, SiteTask::Follow | SiteTask::Promote { .. });
        let failures = if depends_on_leader { 0 } else { self.failures(world) };
        self.before = BeforeProcess { told: self.errors().len(), failures };
        let [disk, trace] = self.disk().map(|path| path.display().to_string());
        let (address, leader, own) =
            (self.host.to_string(), url_of(SITES[LEADER]), url_of(self.host));
        let vacuum = if self.vacuums { "vacuum" } else { "keep" };
        let words: &[&str] = match self.task {
            SiteTask::Serve => &["serve", &disk, &trace, &address, vacuum],
            SiteTask::Lead => &["lead", &disk, &trace, &address, vacuum],
            SiteTask::Follow => &["follow", &disk, &trace, &address, &leader],
            SiteTask::Promote { is_forced } => {
                &["promote", &disk, &trace, &own, if is_forced { "force" } else { "wait" }]
            }
        };
        let process = start_process(world, &self.place, (self.host, self.name), words)?;
        self.process = Some(process);
        Ok(())
    }

    pub(super) fn kill(&mut self, world: &mut World) -> Result<(), String> {
        self.restart = None;
        let Some(process) = self.process.take() else { return Ok(()) };
        world.kill(process).map_err(|error| format!("{}: {error}", self.name))
    }

    pub(super) fn lose_power(&self, world: &mut World) -> Result<(), String> {
        let lost = world.hosts.lose_power(self.host);
        lost.map_err(|error| format!("the disk of {}: {error}", self.name))
    }

    /// Kills the process, and keeps it from being started before [`Self::begin`].
    pub(super) fn end(&mut self, world: &mut World, loses_power: bool) -> Result<(), String> {
        self.ends += 1;
        self.kill(world)?;
        if loses_power { self.lose_power(world) } else { Ok(()) }
    }

    pub(super) fn begin(&mut self, world: &mut World) -> Result<(), String> {
        self.ends -= 1;
        if self.ends == 0 { self.start(world) } else { Ok(()) }
    }

    /// Ends the process that follows, and promotes the copy.
    pub(super) fn promote(&mut self, world: &mut World, may_force: bool) -> Result<(), String> {
        self.kill(world)?;
        self.task = SiteTask::Promote { is_forced: false };
        self.may_force = may_force;
        if self.ends == 0 { self.start(world) } else { Ok(()) }
    }

    /// Plans the operator's next action if the process has ended by itself.
    ///
    /// # Errors
    /// If it had no reason to end.
    pub(super) fn check(&mut self, world: &World) -> Result<(), String> {
        let Some(status) = self.process.and_then(|process| world.status(process)) else {
            return Ok(());
        };
        let errors = self.errors_since_start();
        let last = errors.trim_end().lines().last().unwrap_or_default();
        let has_failed = self.failures(world) > self.before.failures;
        let is_promotion = matches!(self.task, SiteTask::Promote { .. });
        if is_promotion && (status.success() || last.contains(IS_PROMOTED)) {
            self.task = SiteTask::Lead;
        } else if status.code() != Some(1) || !self.may_end(last, has_failed) {
            return Err(format!("{} ended by itself: {status}: {errors}", self.name));
        } else if is_promotion && last.starts_with("cannot promote: unavailable") {
            self.task = SiteTask::Promote { is_forced: self.may_force };
            self.was_forced |= self.may_force;
        }
        self.process = None;
        self.restart = Some(world.now() + RESTARTED_AFTER);
        Ok(())
    }

    /// Whether the process may end after this output.
    fn may_end(&self, last: &str, has_failed: bool) -> bool {
        let work = match self.task {
            SiteTask::Serve | SiteTask::Lead => return has_failed && last.starts_with(NOT_BEGUN),
            SiteTask::Follow => "cannot follow: ",
            SiteTask::Promote { .. } => "cannot promote: ",
        };
        let failures = ["full:", "storage:", "closed:"];
        match last.strip_prefix(work) {
            Some(why) if why.starts_with("unavailable:") || why.contains(IS_INCOMPLETE) => true,
            Some(why) => has_failed && failures.iter().any(|kind| why.starts_with(kind)),
            None => has_failed && last.starts_with(NOT_BEGUN),
        }
    }

    /// Operations that have failed on the disks on which the process depends.
    fn failures(&self, world: &World) -> u64 {
        match self.task {
            SiteTask::Serve | SiteTask::Lead => world.hosts.failures(self.host),
            SiteTask::Follow | SiteTask::Promote { .. } => {
                SITES.iter().map(|host| world.hosts.failures(*host)).sum()
            }
        }
    }

    /// Acts as an operator: reads the log from time to time, restarts a server that asks for it, and starts processes that have ended.
    /// Returns whether a server had to be restarted.
    pub(super) fn operate(&mut self, world: &mut World) -> Result<bool, String> {
        let now = world.now();
        let mut must_restart = false;
        if self.next_look <= now {
            self.next_look = now + LOOKED_EVERY;
            must_restart =
                self.process.is_some() && self.errors_since_start().contains(MUST_RESTART);
            if must_restart {
                self.kill(world)?;
                self.restart = Some(now + RESTARTED_AFTER);
            }
        }
        if self.restart.is_some_and(|time| time <= now) {
            self.start(world)?;
        }
        Ok(must_restart)
    }

    /// When the operator does something next.
    pub(super) fn next_time(&self) -> u64 {
        self.restart.map_or(self.next_look, |restart| restart.min(self.next_look))
    }

    pub(super) fn errors(&self) -> String {
        fs::read_to_string(self.place.join(format!("{}.err", self.name))).unwrap_or_default()
    }

    fn errors_since_start(&self) -> String {
        self.errors().split_off(self.before.told)
    }

    /// The output of its processes.
    pub(super) fn output(&self) -> String {
        fs::read_to_string(self.place.join(format!("{}.out", self.name))).unwrap_or_default()
    }

    /// Whether the process serves, and a copy is complete.
    pub(super) fn has_begun(&self, world: &World) -> bool {
        let is_complete = self.task != SiteTask::Follow || self.output().lines().any(is_current);
        world.is_listening(self.host, PORT) && is_complete
    }

    /// The promotion of the copy, if it could print that.
    pub(super) fn promotion(&self) -> Option<PrintedPromotion> {
        self.output().lines().find_map(|line| {
            let mut words = line.strip_prefix(PROMOTED)?.split_whitespace();
            let head = words.next()?.parse().ok()?;
            Some(PrintedPromotion { head, left_behind: words.next().is_some() })
        })
    }

    /// The number of vacuums.
    pub(super) fn vacuums_made(&self) -> u64 {
        self.output().lines().filter(|line| *line == VACUUMED).count() as u64
    }

    /// Whether the process serves, and has nothing left to do: a copy has all commits, or the former leader knows its successor.
    /// `since` is a length of the output; earlier output is ignored.
    pub(super) fn is_settled(&self, world: &World, since: usize) -> bool {
        let output = self.output();
        let is_done = match self.task {
            SiteTask::Serve => true,
            // The first of these steps may have begun before.
            SiteTask::Follow => output[since..].lines().filter(|line| is_current(line)).count() > 1,
            SiteTask::Promote { .. } => false,
            SiteTask::Lead => output.lines().any(|line| line == TOLD),
        };
        is_done && self.process.is_some() && world.is_listening(self.host, PORT)
    }
}

/// Whether a step of a follower, as it was printed, has brought the copy to the newest commit.
fn is_current(step: &str) -> bool {
    step.split_once(' ').is_some_and(|(at, head)| at == head)
}
