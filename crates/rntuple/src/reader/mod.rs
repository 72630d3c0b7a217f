//! Reading an RNTuple: fields of ranges of entries as columnar arrays.
//!
//! Invariants:
//! 1. A reader sees one version of the RNTuple: the one whose footer it was opened with.
//! 2. Page lists are read, and clusters decoded, when an entry that they describe is first asked for.
//! 3. Whatever the bytes say, a read yields an array or an error, never a panic; memory is taken
//!    only for elements that stored pages can hold.

mod assemble;
mod cluster;
mod convert;
mod cursor;
mod elements;
mod field;
mod held;
mod needs;
mod page_batch;
mod parallel;
mod paths;
mod projection;
mod row;
mod row_reader;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::anchor::Anchor;
use crate::array::Array;
use crate::envelope::{self, EnvelopeKind};
use crate::error::{Error, Result};
use crate::footer::Footer;
use crate::header::Header;
use crate::locator::EnvelopeLink;
use crate::page_cache::{CacheFileId, PageCache};
use crate::schema::ColumnId;
use crate::schema::Schema;
use crate::source::ByteSource;
use crate::tfile;
use crate::tree::FieldTree;
use crate::types::Type;

use cluster::Clusters;
pub(crate) use cluster::{FileBounds, PageRun, StoredCluster, deferred_repetitions};
pub(crate) use convert::convert;
pub use cursor::Cursor;
pub(crate) use elements::{ClusterSegment, Elements};
pub use field::{FieldCursor, FieldValue};
pub use paths::ColumnPath;
pub(crate) use paths::column_paths;
pub use projection::Projection;
pub use row::FromCell;
pub use row_reader::RowReader;

/// One version of an RNTuple, open for reading.
///
/// ```no_run
/// # fn main() -> rntuple::Result<()> {
/// let file = std::fs::File::open("muons.root").expect("the file exists");
/// let reader = rntuple::Reader::open(std::sync::Arc::new(file), "Events")?;
/// let muons = reader.read(&reader.select(&["nMuon", "Muon_pt"])?, 0..reader.entries())?;
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    source: Arc<dyn ByteSource>,
    cache: Option<FileCache>,
    name: String,
    description: String,
    schema: Schema,
    tree: FieldTree,
    footer: Footer,
    clusters: Clusters,
    /// Where reads of a source that is far away ended last.
    ends: Mutex<Vec<u64>>,
}

/// A cache shared with the readers of other files.
pub(crate) struct FileCache {
    pages: Arc<PageCache>,
    file: CacheFileId,
}

impl Reader {
    /// Opens an RNTuple of a ROOT file by its name.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the file has no RNTuple of that name, [`Error::Corrupt`] or
    /// [`Error::Unsupported`] if it cannot be understood.
    pub fn open(source: Arc<dyn ByteSource>, name: &str) -> Result<Self> {
        let anchors = tfile::anchors(&*source)?;
        match anchors.iter().find(|(found, _)| found == name) {
            Some((_, anchor)) => Self::from_anchor(source, anchor),
            None => Err(Error::NotFound {
                what: "RNTuple",
                name: name.to_owned(),
                candidates: anchors.into_iter().map(|(found, _)| found).collect(),
            }),
        }
    }

    /// Opens the RNTuple that an anchor describes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_anchor(source: Arc<dyn ByteSource>, anchor: &Anchor) -> Result<Self> {
        Self::load(source, &anchor.header, &anchor.footer, anchor.max_key_size)
    }

    /// Opens the version of an RNTuple that a header and a footer describe.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_links(
        source: Arc<dyn ByteSource>,
        header: &EnvelopeLink,
        footer: &EnvelopeLink,
    ) -> Result<Self> {
        Self::load(source, header, footer, u64::MAX)
    }

    /// Envelopes larger than `key_size_max` are spread over several keys.
    fn load(
        source: Arc<dyn ByteSource>,
        header: &EnvelopeLink,
        footer: &EnvelopeLink,
        key_size_max: u64,
    ) -> Result<Self> {
        let kind = EnvelopeKind::Header;
        let bytes = envelope::read_envelope(&*source, header, kind, key_size_max)?;
        let (header, checksum) = Header::decode(&bytes)?;
        let kind = EnvelopeKind::Footer;
        let bytes = envelope::read_envelope(&*source, footer, kind, key_size_max)?;
        let footer = Footer::decode(&bytes)?;
        if footer.header_checksum != checksum {
            return Err(Error::corrupt("footer", 0, "it belongs to another header"));
        }
        let mut schema = header.schema;
        schema.extend(&footer.extension)?;
        let tree = FieldTree::of(&schema)?;
        let clusters = Clusters::new(&footer, &schema, key_size_max)?;
        Ok(Reader {
            source,
            cache: None,
            name: header.name,
            description: header.description,
            schema,
            tree,
            footer,
            clusters,
            ends: Mutex::default(),
        })
    }

    /// Lets reads of single objects share a cache of decoded pages; `file` tells this file's pages
    /// from those of others.
    #[must_use]
    pub fn with_cache(mut self, pages: Arc<PageCache>, file: CacheFileId) -> Self {
        self.cache = Some(FileCache { pages, file });
        self
    }

    /// Name of the RNTuple.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Description of the RNTuple.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Fields and columns, with those that a schema extension added.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.clusters.entries()
    }

    /// Number of clusters.
    pub fn clusters(&self) -> u64 {
        self.clusters.count()
    }

    /// The footer of this version.
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Bytes of all pages of the clusters that have been needed so far.
    pub fn stored_bytes(&self) -> u64 {
        self.clusters.loaded_pages().map(|page| page.locator.size).sum()
    }

    /// Reads all page lists and checks that every page lies within the source, as far as its length
    /// tells.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one does not.
    pub fn check_locations(&self) -> Result<()> {
        let size = self.source.size()?;
        self.clusters.overlapping(&*self.source, &(0..self.entries()))?;
        let beyond = self.clusters.loaded_pages().map(|page| page.locator);
        match beyond.into_iter().find(|at| at.offset.saturating_add(at.size) > size) {
            Some(at) => {
                Err(Error::corrupt("page", at.offset, "it lies beyond the end of the file"))
            }
            None => Ok(()),
        }
    }

    /// The clusters that overlap a range of entries, in order; their page lists are read.
    pub(crate) fn clusters_of(&self, entries: &Range<u64>) -> Result<Vec<&StoredCluster>> {
        self.clusters.overlapping(&*self.source, entries)
    }

    /// The fields with their columns.
    pub(crate) fn tree(&self) -> &FieldTree {
        &self.tree
    }

    /// For each column the number of elements in all clusters, as far as the last cluster group
    /// tells: offsets of clusters behind an edited one may be too low. The representations of a
    /// field count through together.
    pub(crate) fn element_totals(&self) -> Result<Vec<u64>> {
        let last = self.clusters.last_group(&*self.source)?;
        let mut totals = vec![0; self.schema.columns.len()];
        for (column, total) in totals.iter_mut().enumerate() {
            let elements = last.iter().map(|cluster| cluster.elements_up_to(column as ColumnId));
            *total = elements.max().unwrap_or(0);
        }
        self.tree.share_among_representations(&mut totals);
        Ok(totals)
    }

    /// Names and types of the top-level fields that this library can read.
    pub fn members(&self) -> Vec<(String, Type)> {
        self.tree.nodes.iter().map(|node| (node.name.clone(), node.logical_type())).collect()
    }

    /// Top-level fields that this library cannot read, with the reason.
    pub fn ignored(&self) -> &[(String, String)] {
        &self.tree.ignored
    }

    /// All fields.
    pub fn select_all(&self) -> Projection {
        Projection::all(&self.tree)
    }

    /// The fields with these paths, such as `run` or `tracks.pt`, and all below them.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such field.
    pub fn select(&self, paths: &[impl AsRef<str>]) -> Result<Projection> {
        Projection::of(&self.tree, paths)
    }

    /// Reads fields of a range of entries, as an array of records in the fields' order.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there are no such entries, [`Error::Corrupt`] if what is stored is
    /// damaged.
    pub fn read(&self, projection: &Projection, entries: Range<u64>) -> Result<Array> {
        self.read_runs(projection, &[entries])
    }

    /// As [`read`](Self::read), of many ranges of entries, one after the other. All that is needed of
    /// a column is asked for before it is waited for, so scattered entries take as long as a disk
    /// needs for many reads at once.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_runs(&self, projection: &Projection, runs: &[Range<u64>]) -> Result<Array> {
        match runs.iter().find(|run| run.start > run.end || run.end > self.entries()) {
            Some(beyond) => Err(self.no_entries(beyond)),
            None => {
                let goes_on = matches!(runs, [run] if self.goes_on(run));
                self.assemble(projection.nodes(), runs, goes_on)
            }
        }
    }

    fn no_entries(&self, entries: &Range<u64>) -> Error {
        Error::NotFound {
            what: "entry range",
            name: format!("{entries:?}"),
            candidates: vec![format!("entries 0..{}", self.entries())],
        }
    }

    /// Bytes that the cache of pages may take, if there is one.
    fn cache_capacity(&self) -> Option<u64> {
        self.cache.as_ref().map(|cache| cache.pages.capacity())
    }
}
