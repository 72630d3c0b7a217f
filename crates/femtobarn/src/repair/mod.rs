//! Repair: what a check finds wrong and can be mended without losing anything.
//!
//! | what is wrong | what is done |
//! |---|---|
//! | the chain of keys | holes are marked, as sealing does |
//! | a file that a killed transaction left | it is removed, if it is old and nobody is at work |
//! | the catalogue's row of a newest version | its commit record becomes a new version |
//! | statistics | they are left out; reading goes on without them |
//! | an index | it is made anew from the objects |
//! | anything else in a newest version | reported; with `salvage`, the newest version that is whole follows it |
//!
//! Invariants:
//! 1. Nothing is written over. A version that is mended is a new version, in a commit of its own.
//! 2. A file with a commit of anybody in it is not removed.
//! 3. What is published was read through before, page by page and object by object.

mod container;
mod orphan;

use std::collections::BTreeMap;
use std::time::Duration;

use femtobarn_catalog::{ContainerId, Csn, DatabaseId, DatabaseState};

use crate::chain;
use crate::check::{CheckLevel, Place, Problem, ProblemKind};
use crate::error::Result;
use crate::federation::Federation;
use crate::file::DatabaseFile;
use crate::progress::Watch;

/// How far a repair goes.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// Lets the newest version that is whole follow a newest version that is damaged: what came
    /// between the two is gone from new snapshots.
    pub salvage: bool,
    /// How long a file must not have been written to before it is taken for left over; 1 h.
    pub orphan_age: Duration,
    /// How long to wait for a container that somebody writes; 10 s by default.
    pub lock_wait: Duration,
}

impl Default for RepairOptions {
    fn default() -> Self {
        RepairOptions {
            salvage: false,
            orphan_age: Duration::from_secs(60 * 60),
            lock_wait: Duration::from_secs(10),
        }
    }
}

/// Something that was mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Where.
    pub place: Place,
    /// What was done.
    pub what: String,
}

/// What a repair did, and what it left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What was mended.
    pub repaired: Vec<Repaired>,
    /// What is still wrong.
    pub left: Vec<Problem>,
    /// Whether the checks before and after went to their ends.
    pub is_complete: bool,
}

impl Federation {
    /// Checks the federation in full, mends what can be mended, and says what is left.
    ///
    /// # Errors
    /// As the catalogue, and as the disk where a mended version is written.
    pub fn repair(
        &self,
        options: &RepairOptions,
        progress: &mut Watch<'_>,
    ) -> Result<RepairReport> {
        let found = self.check(CheckLevel::Full, progress)?;
        let mut repair = Repair { federation: self, options, repaired: vec![] };
        if found.is_complete {
            repair.chains(&found.problems)?;
            repair.orphans()?;
            repair.containers(&found.problems)?;
        }
        let repaired = repair.repaired;
        if repaired.is_empty() {
            let (left, is_complete) = (found.problems, found.is_complete);
            return Ok(RepairReport { repaired, left, is_complete });
        }
        let after = self.check(CheckLevel::Full, progress)?;
        Ok(RepairReport { repaired, left: after.problems, is_complete: after.is_complete })
    }
}

/// A repair that is under way.
struct Repair<'a> {
    federation: &'a Federation,
    options: &'a RepairOptions,
    repaired: Vec<Repaired>,
}

impl Repair<'_> {
    fn done(&mut self, place: Place, what: impl Into<String>) {
        self.repaired.push(Repaired { place, what: what.into() });
    }

    fn chains(&mut self, problems: &[Problem]) -> Result<()> {
        let inner = &self.federation.inner;
        let of_chains = problems.iter().filter(|problem| problem.kind == ProblemKind::Chain);
        let mut places: Vec<Place> = of_chains.map(|problem| problem.place.clone()).collect();
        places.dedup();
        for place in places {
            let Some((id, _)) = place.database else { continue };
            let row = inner.catalog.database_by_id(id, Csn::MAX)?;
            if row.state != DatabaseState::Open {
                continue;
            }
            let file = DatabaseFile::open_to_write(inner.path_of(&row))?;
            let _lock = inner.locks().lock_allocation(id)?;
            // One that does not start like a ROOT file cannot be mended, and is reported again.
            if let Ok(gaps) = chain::mend(&file) {
                file.sync()?;
                self.done(place, format!("marked {} holes between keys", gaps.len()));
            }
        }
        Ok(())
    }

    /// Mends newest versions, container by container.
    fn containers(&mut self, problems: &[Problem]) -> Result<()> {
        let mut wrong: BTreeMap<(DatabaseId, ContainerId), Vec<&Problem>> = BTreeMap::new();
        for problem in problems {
            if let (Some((database, _)), Some((container, _))) =
                (&problem.place.database, &problem.place.container)
            {
                wrong.entry((*database, *container)).or_default().push(problem);
            }
        }
        for ((database, container), problems) in wrong {
            let newest = self.federation.catalog().version(database, container, Csn::MAX)?;
            let newest = newest.map(|row| row.csn);
            let of_newest = problems.iter().filter(|problem| problem.place.csn == newest);
            let mut kinds: Vec<ProblemKind> = of_newest.map(|problem| problem.kind).collect();
            // What versions share was reported for the first of them.
            if kinds.is_empty() {
                kinds.extend(self.beside_newest(database, container)?);
            }
            self.container(database, container, &kinds)?;
        }
        Ok(())
    }
}
