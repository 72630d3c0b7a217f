//! Versions whose bytes were moved within their database's file.

use super::{LocalCatalogue, replicas};
use crate::error::{Error, Result};
use crate::ids::DatabaseId;
use crate::numbers::signed;
use crate::rows::VersionRow;
use crate::sql::params;

/// Sets where the parts of a version lie.
const RELOCATE: &str = "UPDATE versions SET header_offset = ?4, header_size = ?5, header_length = ?6, \
    footer_offset = ?7, footer_size = ?8, footer_length = ?9, annex_offset = ?10, \
    annex_size = ?11, record_offset = ?12, record_size = ?13 \
    WHERE database = ?1 AND container = ?2 AND csn = ?3";

impl LocalCatalogue {
    /// Records the new locations of the parts of a database's versions, and that no byte before `taken_to` of the file
    /// is free. Begins a new epoch of the database, which the caller has locked exclusively. The database's copies in
    /// stores are discarded, since they have the bytes at the old locations.
    ///
    /// # Errors
    /// [`Error::Changed`] if one of the versions no longer exists.
    pub fn relocate(
        &self,
        database: DatabaseId,
        taken_to: u64,
        versions: &[VersionRow],
    ) -> Result<()> {
        self.connections.write(|sql| {
            let mut relocate = sql.prepare_cached(RELOCATE)?;
            for it in versions {
                let relocated = relocate.execute(params![
                    database.0,
                    it.container.0,
                    signed(it.csn.0),
                    signed(it.header.offset),
                    signed(it.header.size),
                    signed(it.header.length),
                    signed(it.footer.offset),
                    signed(it.footer.size),
                    signed(it.footer.length),
                    signed(it.annex.offset),
                    signed(it.annex.size),
                    signed(it.record.offset),
                    signed(it.record.size),
                ])?;
                if relocated != 1 {
                    let what = format!(
                        "version {} of container {} does not exist any more",
                        it.csn, it.container
                    );
                    return Err(Error::changed(what).into());
                }
            }
            let of = params![database.0, signed(taken_to)];
            sql.execute("DELETE FROM free_extents WHERE database = ?1 AND start + size <= ?2", of)?;
            sql.execute(
                "UPDATE free_extents SET size = start + size - ?2, start = ?2 \
                 WHERE database = ?1 AND start < ?2",
                of,
            )?;
            sql.execute("UPDATE databases SET epoch = epoch + 1 WHERE id = ?1", [database.0])?;
            replicas::discard_all(sql, database)
        })
    }
}
