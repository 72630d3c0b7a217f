//! The homes of dropped databases, which a server forgets now and then: programs may make and drop databases for years.
//!
//! Homes of databases that are not committed yet are kept: their transactions show them as fences.

use femtobarn_catalog::{DatabaseId, Result};

use super::site::Site;

/// Homes that may become known, beyond twice those that were kept, before the server looks again for dropped ones.
const SPARE_MAX: usize = 256;

impl Site {
    /// Forgets the homes of dropped databases, if many homes became known since that was done last. If the catalogue
    /// does not answer, that is done another time.
    pub(super) fn forget_dropped(&self) {
        if let Err(error) = self.try_forget_dropped() {
            tracing::warn!(%error, "the homes of dropped databases are not forgotten yet");
        }
    }

    fn try_forget_dropped(&self) -> Result<()> {
        let known: Vec<DatabaseId> = {
            let state = self.state.lock();
            if state.homes.len() + state.handed_over.len() <= 2 * state.homes_kept + SPARE_MAX {
                return Ok(());
            }
            state.homes.keys().chain(state.handed_over.keys()).copied().collect()
        };
        let dropped = self.catalog.dropped_among(&known)?;
        let is_kept = |id: &DatabaseId| !dropped.contains(id);
        let mut state = self.state.lock();
        state.homes.retain(|id, _| is_kept(id));
        state.handed_over.retain(|id, _| is_kept(id));
        state.homes_kept = state.homes.len() + state.handed_over.len();
        Ok(())
    }
}
