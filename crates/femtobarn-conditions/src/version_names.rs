//! Permanent names of versions of series.
//!
//! A version's name is the number of the commit that made it and the beginning of the commit's UUID: `57-1f0c9ab24d3e`.
//! In a copy of the federation that continued separately, the same number belongs to another commit. A series of a
//! branch has a name for each container, that of the series first: `57-1f0c9ab24d3e~61-9ab2203c5e11`.

use femtobarn::{Csn, Federation, Result};

use crate::series::Series;

/// Separates the names of several containers.
pub(crate) const VERSION_SEPARATOR: &str = "~";
/// Hexadecimal digits of the commit's UUID in a name.
const DIGITS: usize = 12;

impl Series {
    /// The name of its version, which no other conditions of this or another federation ever have.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `Unavailable` if the server does not answer.
    pub fn version_name(&self) -> Result<String> {
        let names =
            self.views().map(|view| name_of(view.snapshot().federation(), view.version().csn));
        Ok(names.collect::<Result<Vec<_>>>()?.join(VERSION_SEPARATOR))
    }
}

/// The name of the version that a commit made.
pub(crate) fn name_of(federation: &Federation, csn: Csn) -> Result<String> {
    let commit = federation.catalog().commit_by_csn(csn)?;
    let digits = commit.transaction.simple().to_string();
    Ok(format!("{csn}-{}", &digits[..DIGITS]))
}
