//! [`SilentStores`]: the stores that do not answer, during one pass over many databases.

use std::collections::BTreeMap;

use super::migrate::attempt;
use crate::error::{Error, Result};
use crate::stores::{ByteWatch, Store};

/// The stores that did not answer, with the reason. They are not asked again in this pass.
#[derive(Debug, Default)]
pub(super) struct SilentStores(BTreeMap<String, String>);

impl SilentStores {
    /// Calls `ask` for a store, unless the store has already failed to answer.
    ///
    /// # Errors
    /// The errors of `ask`; `Unavailable` if the store did not answer before.
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
        // A store that still answers other requests only failed to do this one.
        if let Err(Error::Unavailable { what }) = &asked
            && let Err(Error::Unavailable { .. }) = check_answers(store, watch)
        {
            self.0.insert(name.to_owned(), what.clone());
        }
        asked
    }
}

/// Checks that a store answers, by asking for an object that it never had. Any definite answer will do.
///
/// # Errors
/// `Unavailable` or `NotBefore` if the store reports so; `Stopped` by the watch.
pub(super) fn check_answers(store: &dyn Store, watch: &mut ByteWatch<'_>) -> Result<()> {
    match store.examine(&attempt(), 0, watch) {
        Err(
            error @ (Error::Unavailable { .. } | Error::NotBefore { .. } | Error::Stopped { .. }),
        ) => Err(error),
        _ => Ok(()),
    }
}
