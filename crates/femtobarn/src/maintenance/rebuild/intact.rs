//! Whether all bytes of a version are intact.
//!
//! Vacuum frees the bytes of deleted versions, but keeps some of their commit records, so a record does not
//! prove that its version can be read.

use std::collections::HashMap;

use femtobarn_catalog::VersionRow;
use rntuple::{
    ByteSource, CHECKSUM_SIZE, EnvelopeKind, EnvelopeLink, Footer, Reader, read_envelope,
};
use twox_hash::XxHash3_64;

use crate::annex::Annex;
use crate::error::{Error, Result};
use crate::inventory::{Inventory, Part};
use crate::storage::file::DatabaseFile;
use femtobarn_format::link;

/// Results for one file: a page list and its pages are read once.
pub(super) struct Intact<'a> {
    source: &'a std::sync::Arc<DatabaseFile>,
    page_lists: HashMap<u64, bool>,
}

impl<'a> Intact<'a> {
    pub(super) fn new(source: &'a std::sync::Arc<DatabaseFile>) -> Self {
        Intact { source, page_lists: HashMap::new() }
    }

    /// Whether a version can be read.
    pub(super) fn has(&mut self, version: &VersionRow) -> bool {
        self.try_version(version).unwrap_or(false)
    }

    fn try_version(&mut self, version: &VersionRow) -> Result<bool> {
        let (header, footer) = (link(&version.header), link(&version.footer));
        let read = |error| Error::storage("version")(error);
        Reader::from_links(self.source.clone(), &header, &footer).map_err(read)?;
        for blob in Annex::read(&**self.source, version.annex)?.blobs() {
            blob.read(&**self.source)?;
        }
        let bytes = read_envelope(&**self.source, &footer, EnvelopeKind::Footer, u64::MAX);
        let footer = bytes.and_then(|bytes| Footer::decode(&bytes)).map_err(read)?;
        Ok(footer.cluster_groups.iter().all(|group| self.has_page_list(&group.page_list)))
    }

    fn has_page_list(&mut self, list: &EnvelopeLink) -> bool {
        if let Some(known) = self.page_lists.get(&list.locator.offset) {
            return *known;
        }
        let source = &**self.source;
        let visited = Inventory::new(source).visit_page_list(list, &mut |part, range| {
            let Part::Page(page, _) = part else { return Ok(()) };
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let is_read = source.read_at(range.start, &mut bytes).is_ok();
            let (data, checksum) = bytes.split_at(bytes.len().saturating_sub(CHECKSUM_SIZE));
            if is_read && (!page.checksum || XxHash3_64::oneshot(data).to_le_bytes() == *checksum) {
                Ok(())
            } else {
                Err(damaged(range.start))
            }
        });
        self.page_lists.insert(list.locator.offset, visited.is_ok());
        visited.is_ok()
    }
}

fn damaged(offset: u64) -> femtobarn_format::Error {
    femtobarn_format::Error::Corrupt { what: format!("page at byte {offset}") }
}
