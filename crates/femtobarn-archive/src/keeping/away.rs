//! [`StoresAway`]: the stores that do not answer, in one pass over many databases.

use std::collections::BTreeMap;

use super::migrate::attempt;
use crate::error::{Error, Result};
use crate::stores::{ByteWatch, Store};

/// The stores that did not answer, and why. They are not asked again.
#[derive(Debug, Default)]
pub(super) struct StoresAway(BTreeMap<String, String>);

impl StoresAway {
    /// Does something with a store.
    ///
    /// # Errors
    /// Those of what is done; `Unavailable` if the store was away before.
    pub(super) fn ask<T>(
        &mut self,
        (name, store): (&str, &dyn Store),
        watch: &mut ByteWatch<'_>,
        ask: impl FnOnce(&mut ByteWatch<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Some(what) = self.0.get(name) {
            return Err(Error::Unavailable { what: what.clone() });
        }
        let asked = ask(watch);
        // A store that answers is not away: it could not do this alone.
        if let Err(Error::Unavailable { what }) = &asked
            && let Err(Error::Unavailable { .. }) = check_there(store, watch)
        {
            self.0.insert(name.to_owned(), what.clone());
        }
        asked
    }
}

/// Asks a store for an object that it never had: it tells so, or that it does not tell.
///
/// # Errors
/// `Unavailable` or `NotBefore` as the store; `Stopped` by the watch.
pub(super) fn check_there(store: &dyn Store, watch: &mut ByteWatch<'_>) -> Result<()> {
    match store.examine(&attempt(), 0, watch) {
        Err(
            error @ (Error::Unavailable { .. } | Error::NotBefore { .. } | Error::Stopped { .. }),
        ) => Err(error),
        _ => Ok(()),
    }
}
