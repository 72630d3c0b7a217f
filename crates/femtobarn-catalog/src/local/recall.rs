//! Look-ups in the rows that a process has in memory ([`KnownRows`]). The state of SQLite's log, or the changes that
//! PostgreSQL reports ([`change_reports`](super::change_reports)), determine which of these rows are still valid.
//!
//! A look-up that begins after a commit was acknowledged finds the rows of that commit, in whichever process it was
//! made.

use std::sync::Arc;

use super::change_reports::{CommitReport, newest_csn};
use super::connections::Connections;
use super::known_rows::KnownRows;
use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::ids::Csn;
use crate::locks::{LogState, RecentChanges};
use crate::paths::LOCKS_FOLDER;

impl Connections {
    /// The result of `find` in the rows that this process knows, or otherwise that of `look_up` in the catalogue, which
    /// `keep` may add to the known rows if it is of the newest state.
    pub(super) fn recall<T>(
        &self,
        find: impl FnOnce(&KnownRows) -> Option<T>,
        look_up: impl FnOnce() -> Result<T>,
        keep: impl FnOnce(&mut KnownRows, &T),
    ) -> Result<T> {
        let before = self.newest_state()?;
        if let Some(found) = self.find_known(before, find)? {
            return Ok(found);
        }
        let found = look_up()?;
        let Some(state) = before else { return Ok(found) };
        let after = self.newest_state()?;
        if self.is_postgres() {
            self.with_known(after, |known| known.keep_since(&state, |known| keep(known, &found)));
        } else if after == before {
            self.with_known(before, |known| keep(known, &found));
        }
        Ok(found)
    }

    /// As [`recall`](Self::recall), but does not keep the result of `look_up`, so it asks for the newest state only
    /// once.
    pub(super) fn recall_only<T>(
        &self,
        find: impl FnOnce(&KnownRows) -> Option<T>,
        look_up: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self.find_known(self.newest_state()?, find)? {
            Some(found) => Ok(found),
            None => look_up(),
        }
    }

    /// The result of `find` in the rows that this process knows, if they are those of a state.
    fn find_known<T>(
        &self,
        state: Option<LogState>,
        find: impl FnOnce(&KnownRows) -> Option<T>,
    ) -> Result<Option<T>> {
        let found = self.with_known(state, |known| find(known)).flatten();
        if found.is_some() {
            self.check_in_place()?;
        }
        Ok(found)
    }

    /// Whether commit `at` is known to be the newest one.
    pub(super) fn is_newest(&self, at: Csn) -> Result<bool> {
        let state = self.newest_state()?;
        Ok(self.with_known(state, |known| known.newest(at).is_some()) == Some(true))
    }

    /// Runs `use_rows` on the rows that this process knows, if they are those of a state, or of a newer one in PostgreSQL.
    pub(super) fn with_known<T>(
        &self,
        state: Option<LogState>,
        use_rows: impl FnOnce(&mut KnownRows) -> T,
    ) -> Option<T> {
        let state = state?;
        let recent = self.recent();
        let mut known = self.known.lock();
        let is_known = if self.is_postgres() {
            known.has_reached(&state)
        } else {
            known.advance(&state, recent.as_deref())
        };
        is_known.then(|| use_rows(&mut known))
    }

    /// Notes the rows that commits are about to write to PostgreSQL, before it reports them. From the first such commit
    /// on, this process keeps rows.
    pub(super) fn note_own(&self, group: &[Commit]) {
        self.told.begin();
        self.known.lock().note_own(group);
    }

    fn recent(&self) -> Option<Arc<RecentChanges>> {
        if self.is_postgres() {
            return None;
        }
        let mut recent = self.recent.lock();
        if recent.is_none() {
            let locks = self.place.path.with_file_name(LOCKS_FOLDER);
            *recent = RecentChanges::open_if_there(&locks).map(Arc::new);
        }
        recent.clone()
    }

    /// The newest state, as of a moment within this call; none if it is not reported, or not without waiting.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if PostgreSQL cannot be reached, which was waited for.
    fn newest_state(&self) -> Result<Option<LogState>> {
        if self.is_postgres() {
            return self.told.together(|| match self.told_state() {
                Err(error @ Error::Unavailable { .. }) => Err(error),
                // The look-up reports all other errors, unless only columns are missing that older tables lack.
                told => Ok(told.ok().flatten()),
            });
        }
        let Some(reader) = self.readers.take() else { return Ok(None) };
        let state = reader.log_state();
        self.keep(reader);
        Ok(state)
    }

    /// Learns from PostgreSQL which of the known rows still hold.
    fn told_state(&self) -> Result<Option<LogState>> {
        let since = self.known.lock().told_until();
        let told = self.read(|sql| CommitReport::read(sql, since))?;
        if let Some(state) = self.known.lock().take_over(&told) {
            return Ok(Some(state));
        }
        // The known state is far behind, or PostgreSQL has lost it.
        let newest = self.read(newest_csn)?;
        self.known.lock().begin_anew(newest);
        let told = self.read(|sql| CommitReport::read(sql, newest))?;
        Ok(self.known.lock().take_over(&told))
    }
}
