//! A history that has ended: the output of its clients, and the disks of its servers. The federation and its copy must be
//! as `outcome` demands.
//!
//! Invariant: no simulated process runs. So the checks may open federations in this process, whose threads share its
//! descriptors.

use std::collections::BTreeMap;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use super::GIVEN_UP;
use super::outcome::{CopyFate, FinalCounts, check_alone, check_copied};
use super::plan::{CLIENTS, LEADER, PlannedEvent, READER, host_of};
use super::site::{SimulatedSite, SiteTask};
use crate::history::ObservedTransaction;

pub(super) struct EndedStory {
    pub(super) place: PathBuf,
    pub(super) sites: Vec<SimulatedSite>,
    /// The beginnings and ends of faults, with their times.
    pub(super) events: Vec<(u64, PlannedEvent)>,
}

/// The errors that the processes with a name printed.
pub(super) fn errors_of(place: &Path, name: &str) -> String {
    fs::read_to_string(place.join(format!("{name}.err"))).unwrap_or_default()
}

impl EndedStory {
    /// The transactions that a client printed: of each transaction, the last line.
    fn told(
        &self,
        client: u64,
        trace: &mut impl Hasher,
    ) -> Result<Vec<ObservedTransaction>, String> {
        let name = format!("client{client}");
        let text = fs::read_to_string(self.place.join(format!("{name}.out")))
            .map_err(|error| format!("{name}: {error}"))?;
        trace.write(text.as_bytes());
        let (mut history, mut named) = (vec![], BTreeMap::new());
        for line in text.lines() {
            let transaction = ObservedTransaction::from_line(line)
                .ok_or_else(|| format!("{name} told no transaction: {line}"))?;
            match transaction.message() {
                Some(message) => drop(named.insert(message, transaction)),
                None => history.push(transaction),
            }
        }
        history.extend(named.into_values());
        Ok(history)
    }

    /// Checks that the reader lost at most one snapshot each time that the copy's server was away from it: the server was
    /// restarted, a path between the two was blocked, or connections were dropped.
    fn check_given_up(&self, copy: &SimulatedSite) -> Result<(), String> {
        let pair = [host_of(READER), copy.host];
        let is_break = |(_, event): &&(u64, PlannedEvent)| match event {
            PlannedEvent::Way(from, to, true) => pair.contains(from) && pair.contains(to),
            PlannedEvent::DropConnections(host) => pair.contains(host),
            _ => false,
        };
        let breaks = copy.starts - 1 + self.events.iter().filter(is_break).count() as u64;
        let errors = errors_of(&self.place, &format!("client{READER}"));
        let given_up = errors.lines().filter(|line| line.starts_with(GIVEN_UP)).count() as u64;
        if given_up <= breaks {
            Ok(())
        } else {
            Err(format!(
                "{given_up} snapshots were given up, and the server was away {breaks} times"
            ))
        }
    }

    /// Checks all that is left. Adds the output of the clients and of the copy to the trace.
    pub(super) fn check(&self, trace: &mut impl Hasher) -> Result<FinalCounts, String> {
        let mut told =
            (0..CLIENTS).map(|client| self.told(client, trace)).collect::<Result<Vec<_>, _>>()?;
        let [leader, copy] = match &self.sites[..] {
            [leader, copy] => [leader, copy],
            sites => return check_alone(&sites[LEADER].federation(), told.concat()),
        };
        let readings = told.pop().unwrap_or_default();
        trace.write(copy.output().as_bytes());
        let fate = CopyFate {
            is_promoted: copy.task == SiteTask::Lead,
            is_forced: copy.was_forced,
            promotion: copy.promotion(),
        };
        self.check_given_up(copy)?;
        let folders = [leader, copy].map(SimulatedSite::federation);
        check_copied(&folders, &fate, told.concat(), &readings)
    }
}
