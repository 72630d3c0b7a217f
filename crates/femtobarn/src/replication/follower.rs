//! [`Follower`]: one step after another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use femtobarn_catalog::{
    Csn, DATABASES_FOLDER, DatabaseId, DatabaseRecord, DatabaseState, DiskState, ErrorKind,
    LeaderDatabase, LeaderRows, LocalCatalogue, VersionRow, path_of_copy,
};

use super::copied::{ChunkBuffer, CopiedFile, bytes_of};
use super::in_stores::{ReturningFile, remove_remnant};
use super::leader::Leader;
use super::lock::lock;
use super::options::{FollowOptions, Step};
use super::superseded::{Comparison, Reconciled};
use crate::error::{Error, Result};
use crate::inventory::Ranges;
use crate::storage::file::{self, DatabaseFile};
use crate::storage::places;

/// Attempts at one step whose bytes the leader gave up meanwhile.
const ATTEMPTS: u32 = 5;
/// The pause between two attempts.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A copy of a federation that follows its leader.
pub struct Follower {
    leader: Leader,
    here: LocalCatalogue,
    options: FollowOptions,
    /// The bytes that are here, of each file examined so far.
    have: HashMap<DatabaseId, Ranges>,
    /// All databases, as the leader has them; empty before it has sent them.
    theirs: BTreeMap<DatabaseId, LeaderDatabase>,
    /// New databases that failed attempts have copied, with their epochs.
    fresh: HashMap<DatabaseId, u64>,
    buffer: ChunkBuffer,
    /// Held while this follower exists.
    _lock: File,
}

/// The state that the steps of one attempt share.
struct Attempt<'a> {
    rows: &'a LeaderRows,
    reconciled: Reconciled,
    step: Step,
}

impl Follower {
    /// Follows the federation at `root://host:port//federation` into `folder`, which must be empty, not exist, or hold
    /// an earlier copy of it, which is continued.
    ///
    /// # Errors
    /// `Exists` if the folder holds something else; `Busy` if another process follows there; `Conflict` if the copy has
    /// another history than the leader; `Unavailable` if the leader does not answer; `Denied` if it refuses the client.
    pub fn open(url: &str, folder: &Path, options: FollowOptions) -> Result<Self> {
        let mut leader = Leader::connect(url, options.timeout)?;
        let (here, is_new) =
            LocalCatalogue::prepare_follower(folder, leader.name(), leader.uuid())?;
        let lock = lock(here.folder())?;
        leader.check_history(&here)?;
        here.follow(leader.url(), is_new)?;
        let here = LocalCatalogue::open(folder)?;
        Ok(Follower {
            leader,
            here,
            options,
            have: HashMap::new(),
            theirs: BTreeMap::new(),
            fresh: HashMap::new(),
            buffer: ChunkBuffer::default(),
            _lock: lock,
        })
    }

    /// The folder of the copy.
    pub fn folder(&self) -> &Path {
        self.here.folder()
    }

    /// The newest commit here.
    ///
    /// # Errors
    /// `Io` if the catalogue cannot be read.
    pub fn head(&self) -> Result<Csn> {
        Ok(self.here.head()?)
    }

    pub(super) fn leader(&self) -> &Leader {
        &self.leader
    }

    /// Brings the copy to a newer commit of the leader, if there is one within `wait`. The copy may still be behind
    /// afterwards: the first steps of a long history have some thousand commits each.
    ///
    /// # Errors
    /// `Unavailable` if the leader does not answer, in which case the next step may succeed; `Conflict` if it has
    /// another history; `Denied` if this copy was promoted, or the leader is no longer the leader; `Corrupt` if
    /// metadata at the leader are damaged; `Io` or `Full` if files cannot be written here.
    pub fn step(&mut self, wait: Duration) -> Result<Step> {
        // The first answer of a leader has all databases.
        let mark = if self.theirs.is_empty() { None } else { self.here.leader_mark()? };
        self.step_from(mark, wait, true)
    }

    /// Takes steps until the copy has everything that the leader had at the last step, even if it no longer leads.
    pub(super) fn catch_up(&mut self) -> Result<()> {
        loop {
            let step = self.step_from(None, Duration::ZERO, false)?;
            if step.at >= step.head {
                return Ok(());
            }
        }
    }

    /// Brings the copy of a leader that takes no more changes to its newest state, tags included.
    pub(super) fn take_all(&mut self, last: Csn) -> Result<()> {
        while self.step_from(None, Duration::ZERO, false)?.at < last {}
        Ok(())
    }

    fn step_from(&mut self, mark: Option<u64>, wait: Duration, must_lead: bool) -> Result<Step> {
        self.leader.check_history(&self.here)?;
        let mut attempts = 0;
        loop {
            let since = self.here.head()?;
            let this = (self.options.name.as_str(), self.here.is_beginning()?);
            let rows = self.leader.rows_since(since, mark, wait, this)?;
            // The connection may have been made anew.
            self.leader.check_history(&self.here)?;
            self.check_generation(&rows)?;
            if must_lead && rows.at == since && rows.has_undated {
                self.check_successor(&rows)?;
            }
            if rows.at == since && !rows.has_undated {
                self.keep_pins(since)?;
                return Ok(Step { at: since, head: rows.head, ..Step::default() });
            }
            attempts += 1;
            match self.advance(since, &rows) {
                Ok(step) => return Ok(step),
                Err(error) => {
                    // Ranges of databases in the catalogue can be determined again.
                    let fresh = &self.fresh;
                    self.have.retain(|id, _| fresh.contains_key(id));
                    drop(self.keep_pins(since));
                    // The bytes that were being copied may have been vacuumed.
                    if !error.is_damage() || attempts == ATTEMPTS {
                        return Err(error);
                    }
                    sleep(AGAIN_AFTER);
                }
            }
        }
    }

    /// Copies the bytes that rows refer to, and publishes the rows.
    ///
    /// # Errors
    /// `Corrupt` also if the leader has given up the bytes that were being copied.
    fn advance(&mut self, since: Csn, rows: &LeaderRows) -> Result<Step> {
        let openings = self.leader.openings();
        let horizon = rows.horizon()?.map_or_else(|| self.here.horizon(), Ok)?;
        // No snapshot exists before the horizon; the newest one has most of the bytes that are copied then.
        let snapshot = if rows.at < horizon { rows.head } else { rows.at };
        if snapshot > Csn::ZERO && !self.leader.pin(snapshot)? {
            return Err(was_given_up(format!("snapshot {snapshot}")));
        }
        if rows.has_undated {
            self.theirs.clear();
        }
        self.theirs.extend(rows.databases()?.into_iter().map(|database| (database.id, database)));
        let reconciled = if rows.has_undated {
            let Follower { leader, here, have, options, theirs, .. } = self;
            let patience = options.reader_patience;
            Comparison { here, leader, theirs, have, patience }.run(since, rows)?
        } else {
            Reconciled::default()
        };
        let step = Step { at: rows.at, head: rows.head, ..Step::default() };
        let mut attempt = Attempt { rows, reconciled, step };
        self.copy_files(&mut attempt)?;
        if self.leader.openings() != openings {
            return Err(was_given_up("the session".to_owned()));
        }
        let Attempt { reconciled, step, .. } = attempt;
        let mut all: Vec<&LeaderRows> = reconciled.rows.iter().collect();
        // Rows of databases in a new epoch may have been read later than the other rows, which must not undo them.
        all.push(rows);
        self.here.apply_leader_rows(since, &all, &reconciled.own)?;
        self.fresh.clear();
        reconciled.finish(&self.here, &self.have)?;
        self.keep_pins(rows.at)?;
        Ok(step)
    }

    /// Copies the files of all databases that have new or moved versions, or are complete now.
    fn copy_files(&mut self, attempt: &mut Attempt<'_>) -> Result<()> {
        let mut versions: BTreeMap<DatabaseId, Vec<VersionRow>> = BTreeMap::new();
        let all = attempt.rows.versions()?.into_iter();
        for version in all.chain(attempt.reconciled.moved.iter().copied()) {
            versions.entry(version.database).or_default().push(version);
        }
        let mut folders = BTreeSet::new();
        let here: HashMap<DatabaseId, DatabaseRecord> =
            self.here.every_database()?.into_iter().map(|it| (it.row.id, it)).collect();
        let nearline: BTreeSet<DatabaseId> = attempt.rows.nearline()?.into_iter().collect();
        let residences = self.here.residences()?;
        for database in self.changed(attempt.rows, &versions)? {
            let id = database.id;
            let of_it = versions.remove(&id).unwrap_or_default();
            let is_evicted = residences.get(&id).is_some_and(|it| it.disk != DiskState::Online);
            let path = self.path_of(&database, &here, attempt);
            if of_it.is_empty() && is_same(here.get(&id), &database) && !is_evicted {
                continue;
            }
            // A database that is in the leader's stores alone stays there until a reader needs it. The file there has
            // all bytes that earlier commits refer to, even if the seal is a later commit.
            if nearline.contains(&id) || is_evicted && !database.is_complete {
                attempt.reconciled.own.evicted.push(id);
                self.have.remove(&id);
                if is_evicted {
                    remove_remnant(&self.here, id, &path)?;
                } else {
                    attempt.reconciled.evicted.push(path);
                }
                continue;
            }
            let is_new = !here.contains_key(&id);
            let copied = if is_evicted {
                self.copy_returning(&database, &path, of_it, attempt)
            } else {
                self.copy_file(&database, &path, is_new, of_it, attempt)
            };
            match copied {
                // The file of a detached database may have been moved anywhere.
                Err(error) if error.kind() == ErrorKind::NotFound && database.dropped.is_some() => {
                }
                Err(error) => return Err(error),
                Ok(()) if database.is_complete => attempt.reconciled.own.present.push(id),
                Ok(()) => {}
            }
            folders.extend(path.ancestors().skip(1).take(2).map(Path::to_owned));
        }
        if let Some((id, _)) = versions.first_key_value() {
            return Err(Error::invalid(format!("the leader sent versions of no database: {id}")));
        }
        folders.iter().try_for_each(|folder| file::sync_folder(folder))
    }

    /// The databases that have new versions, or have changed otherwise.
    fn changed(
        &self,
        rows: &LeaderRows,
        versions: &BTreeMap<DatabaseId, Vec<VersionRow>>,
    ) -> Result<Vec<LeaderDatabase>> {
        let mut ids: BTreeSet<DatabaseId> = versions.keys().copied().collect();
        ids.extend(rows.databases()?.into_iter().map(|database| database.id));
        Ok(ids.iter().filter_map(|id| self.theirs.get(id)).cloned().collect())
    }

    /// The path of a database's file here, which no other database has.
    fn path_of(
        &self,
        database: &LeaderDatabase,
        here: &HashMap<DatabaseId, DatabaseRecord>,
        attempt: &mut Attempt<'_>,
    ) -> PathBuf {
        let known = here.get(&database.id).map(|record| record.row.path.clone());
        let path = known.unwrap_or_else(|| {
            let paths = &mut attempt.reconciled.own.paths;
            let wanted = path_of_copy(database.id, &database.path);
            let is_taken = here.values().any(|record| record.row.path == wanted)
                || paths.values().any(|path| *path == wanted);
            let path = if is_taken {
                format!("{DATABASES_FOLDER}/copy-{}.root", database.id)
            } else {
                wanted
            };
            paths.insert(database.id, path.clone());
            path
        });
        self.here.folder().join(path)
    }

    /// Copies the file of a database that is complete, and not on the disk here.
    fn copy_returning(
        &mut self,
        database: &LeaderDatabase,
        path: &Path,
        versions: Vec<VersionRow>,
        attempt: &mut Attempt<'_>,
    ) -> Result<()> {
        let Some(file) = ReturningFile::begin(&self.here, database.id, path)? else {
            return Ok(());
        };
        self.copy_file(database, file.part(), false, versions, attempt)?;
        file.end()
    }

    fn copy_file(
        &mut self,
        database: &LeaderDatabase,
        path: &Path,
        is_new: bool,
        mut versions: Vec<VersionRow>,
        attempt: &mut Attempt<'_>,
    ) -> Result<()> {
        let given_up = &attempt.reconciled.own.versions;
        let there = self.leader.open(database).map_err(|error| dropped_since(database, error))?;
        places::make_folder_of(path)?;
        if is_new && self.fresh.get(&database.id) != Some(&database.epoch) {
            // The remains of an interrupted step.
            self.have.remove(&database.id);
            file::remove_if_there(path)?;
        }
        let (here, is_made) = match DatabaseFile::open_to_write(path.to_owned()) {
            Ok(file) => (file, false),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                (DatabaseFile::create(path.to_owned())?.with_front(database.uuid)?, true)
            }
            Err(error) => return Err(error),
        };
        let have = match self.have.remove(&database.id) {
            Some(have) if !is_made => have,
            _ if is_made || database.is_complete => Ranges::default(),
            _ => {
                let mut kept = self.here.all_versions(database.id)?;
                kept.retain(|it| !given_up.contains(&(it.database, it.container, it.csn)));
                match bytes_of(&here, &kept) {
                    // Metadata here are damaged: everything is copied again.
                    Err(error) if error.is_damage() => {
                        versions.extend(kept);
                        Ranges::default()
                    }
                    other => other?,
                }
            }
        };
        let have = self.have.entry(database.id).or_insert(have);
        let (here, there) = (&here, &there);
        let buffer = &mut self.buffer;
        let mut file = CopiedFile { here, there, have, buffer, copied: 0, damaged_pages: 0 };
        if is_made {
            file.copy_front()?;
        }
        file.copy_versions(&versions)?;
        if database.is_complete {
            file.copy_rest()?;
        }
        attempt.step.bytes += file.copied;
        attempt.step.damaged_pages += file.damaged_pages;
        here.sync()?;
        let epoch = self.leader.epoch(database).map_err(|error| dropped_since(database, error))?;
        if !database.is_complete && epoch != database.epoch {
            return Err(was_given_up(format!("space of database {}", database.id)));
        }
        if is_new {
            self.fresh.insert(database.id, database.epoch);
        }
        Ok(())
    }

    /// # Errors
    /// `Denied` if the leader has a successor, and everything was copied from it.
    fn check_successor(&self, rows: &LeaderRows) -> Result<()> {
        match rows.successor()? {
            None => Ok(()),
            Some(url) => Err(Error::Denied {
                what: format!("{} does not lead any more: follow {url}", self.leader.url()),
            }),
        }
    }

    /// # Errors
    /// `Denied` if another leader has begun a later generation, which this copy has seen.
    fn check_generation(&self, rows: &LeaderRows) -> Result<()> {
        let Some(theirs) = rows.generation()?.or(rows.has_undated.then_some(0)) else {
            return Ok(());
        };
        let own = self.here.generation()?;
        if theirs >= own {
            return Ok(());
        }
        Err(Error::Denied {
            what: format!(
                "{} leads generation {theirs} of the federation, and this copy has seen generation {own}: \
                 follow the leader of that one",
                self.leader.url()
            ),
        })
    }

    /// Makes the leader keep the newest commit of this copy, and the snapshots that readers have pinned here.
    fn keep_pins(&mut self, at: Csn) -> Result<()> {
        let mut wanted = self.here.pins().pinned_below(at)?;
        if at > Csn::ZERO {
            wanted.push(at);
        }
        self.leader.pin_only(&wanted)
    }
}

/// Whether nothing needs to be copied from the file of a database without new versions.
fn is_same(here: Option<&DatabaseRecord>, there: &LeaderDatabase) -> bool {
    let Some(here) = here else { return there.dropped.is_some() };
    let is_complete = here.row.state != DatabaseState::Open;
    is_complete == there.is_complete && (here.row.epoch == there.epoch || there.dropped.is_some())
}

/// The error of a database that cannot be found, although it was there when the rows were read.
fn dropped_since(database: &LeaderDatabase, error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound if database.dropped.is_none() => Error::Corrupt {
            what: format!(
                "the leader has no file of database {}: it has lost the file, or dropped the database while it was \
                 being copied",
                database.id
            ),
        },
        _ => error,
    }
}

/// The error for bytes that the leader gave up while they were being copied. As with damage, the step begins again.
fn was_given_up(what: String) -> Error {
    Error::Corrupt { what: format!("{what} was released by the leader while it was being copied") }
}
