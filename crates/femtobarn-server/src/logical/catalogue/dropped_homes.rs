//! The homes of dropped databases, which a server forgets now and then: programs may make and drop databases for years.

use std::collections::HashSet;

use femtobarn_catalog::{Csn, DatabaseId, Result};

use super::site::Site;

/// Homes that may be known beyond twice those of the databases that there are.
const SPARE_MAX: u64 = 256;

impl Site {
    /// Forgets the homes of dropped databases, if they are many beside the `live` databases whose home this server is.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub(super) fn forget_dropped(&self, live: u64) -> Result<()> {
        let known: HashSet<_> = {
            let state = self.state.lock();
            state.homes.keys().chain(state.handed_over.keys()).copied().collect()
        };
        if known.len() as u64 <= live.saturating_mul(2).saturating_add(SPARE_MAX) {
            return Ok(());
        }
        let databases = self.catalog.databases(Csn::MAX)?;
        let live: HashSet<_> = databases.iter().map(|row| row.id).collect();
        // What was learned since is of no database that had been dropped before.
        let is_kept = |id: &DatabaseId| live.contains(id) || !known.contains(id);
        let mut state = self.state.lock();
        state.homes.retain(|id, _| is_kept(id));
        state.handed_over.retain(|id, _| is_kept(id));
        Ok(())
    }
}
