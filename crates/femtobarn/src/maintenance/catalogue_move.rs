//! Moving the catalogue between SQLite and PostgreSQL. Vacuum and repair, which change rows of earlier commits, are
//! locked out meanwhile.

use std::time::Duration;

use femtobarn_catalog::MovedCatalogue;

use crate::error::Result;
use crate::federation::Federation;
use crate::progress::{Progress, Watch};

/// The time to wait for a vacuum to end.
const MAINTENANCE_WAIT: Duration = Duration::from_secs(600);

impl Federation {
    /// Moves the catalogue to the PostgreSQL database that `url` names, or without a URL into a file in the
    /// federation's folder, while the federation is in use. Processes that have it open continue with the catalogue at
    /// its new place.
    ///
    /// # Errors
    /// `Invalid` for a bad URL; `Unavailable` if another process moves the catalogue, or PostgreSQL does not answer;
    /// `Denied` for a follower, or if PostgreSQL refuses; `Exists` if the new place has a catalogue that takes changes;
    /// `Unsupported` if the catalogue has rows that cannot be stored there, or belongs to a server; `Busy` if a vacuum
    /// runs for ten minutes more; `Closed` if `progress` stops it; `Full` or `Io` if the new catalogue cannot be
    /// written. After an error the catalogue is in its old place.
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
