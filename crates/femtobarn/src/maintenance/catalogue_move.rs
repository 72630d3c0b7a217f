//! Moving the catalogue between SQLite and PostgreSQL. Vacuum and repair, which change rows of earlier commits, wait
//! meanwhile.

use std::time::Duration;

use femtobarn_catalog::MovedCatalogue;

use crate::error::Result;
use crate::federation::Federation;
use crate::progress::{Progress, Watch};

/// How long a vacuum is waited for.
const MAINTENANCE_WAIT: Duration = Duration::from_secs(600);

impl Federation {
    /// Moves the catalogue to the database of PostgreSQL that `url` names, or else into a file in the federation's folder,
    /// while the federation is used. Processes that have it open go on with the catalogue at its new place.
    ///
    /// # Errors
    /// `Invalid` for a bad URL; `Unavailable` if another process moves it, or PostgreSQL does not answer; `Denied` for a copy
    /// that follows, or if PostgreSQL refuses; `Exists` if a catalogue is there that takes changes; `Unsupported` if it has
    /// rows that cannot be kept there, or is a server's; `Busy` if a vacuum runs for ten minutes more; `Closed` if
    /// `progress` stops it; `Full` or `Io` if the new one cannot be written. Then it stays where it is.
    pub fn move_catalogue(
        &self,
        url: Option<&str>,
        progress: &mut Watch<'_>,
    ) -> Result<MovedCatalogue> {
        let catalog = self.inner.local()?;
        let _no_vacuum = self.inner.locks().owner().share_maintenance(MAINTENANCE_WAIT)?;
        let mut state = Progress { doing: "moving", of: String::new(), done: 0, total: 0 };
        let moved = catalog.move_to(url, &mut |table, done, total| {
            table.clone_into(&mut state.of);
            (state.done, state.total) = (done, total);
            progress(&state)
        });
        Ok(moved?)
    }
}
