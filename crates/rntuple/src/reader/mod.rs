//! Reading an RNTuple: ranges of entries as arrays, or single entries as values.
//!
//! `cluster` knows which pages store which elements; `page_batch` reads pages, `elements` columns, and
//! `assemble` makes arrays of these, with `parallel` by several threads and with `prefetch` from remote
//! sources. `cursor`, `row`, `row_reader` and `field` read single entries over `held_pages`. `changes` compares two
//! versions, `cluster_sizes` finds places to divide one, and `sample` measures the sizes of columns.
//!
//! Invariants:
//! 1. A reader sees one version of the RNTuple, that of the footer it was opened with.
//! 2. A page list is read, and a cluster decoded, at the first read of an entry in it.
//! 3. Bytes of any content yield an array or an error, never a panic; memory is allocated only for
//!    elements that the stored pages can hold.

mod assemble;
mod changes;
mod cluster;
mod cluster_sizes;
mod column_paths;
mod conversion;
mod cursor;
mod elements;
mod field;
mod held_pages;
mod page_batch;
mod parallel;
mod prefetch;
mod projection;
mod row;
mod row_reader;
mod sample;

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

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
use crate::source::{ByteSource, read_verified};
use crate::tfile;
use crate::tree::FieldTree;
use crate::types::Type;

use cluster::Clusters;
pub(crate) use cluster::{FileBounds, PageRun, StoredCluster, deferred_repetitions};
pub use column_paths::ColumnPath;
pub(crate) use column_paths::column_paths;
pub(crate) use conversion::convert;
pub use cursor::Cursor;
pub(crate) use elements::{ClusterSegment, Elements};
pub use field::{FieldCursor, FieldValue};
pub use projection::Projection;
pub use row::FromCell;
pub use row_reader::RowReader;
pub use sample::ColumnSize;

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
    header: Arc<SharedHeader>,
    footer: Footer,
    clusters: Clusters,
    /// Ends of the last reads of a remote source, by which a sequential read is recognised.
    ends: Mutex<Vec<u64>>,
}

/// The parts that versions of an RNTuple share, unless one of them extends the schema.
struct SharedHeader {
    link: EnvelopeLink,
    name: String,
    description: String,
    /// Fields and columns, with those of the extension.
    schema: Schema,
    tree: FieldTree,
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
    /// [`Error::NotFound`] if the file has no RNTuple of that name; [`Error::Corrupt`] if its metadata is
    /// damaged, [`Error::Unsupported`] if it uses features of later versions; [`Error::Io`] if the source
    /// cannot be read.
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
    /// [`Error::Corrupt`], [`Error::Unsupported`] and [`Error::Io`] as for [`open`](Self::open).
    pub fn from_anchor(source: Arc<dyn ByteSource>, anchor: &Anchor) -> Result<Self> {
        Self::load(source, &anchor.header, &anchor.footer, anchor.max_key_size)
    }

    /// Opens the version of an RNTuple that a header and a footer describe.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Unsupported`] and [`Error::Io`] as for [`open`](Self::open).
    pub fn from_links(
        source: Arc<dyn ByteSource>,
        header: &EnvelopeLink,
        footer: &EnvelopeLink,
    ) -> Result<Self> {
        Self::load(source, header, footer, u64::MAX)
    }

    /// Like [`from_links`](Self::from_links), for another version of the RNTuple that `known` reads in the same file.
    /// If both have the same header and fields, the footer alone is read, and the header shared.
    ///
    /// # Errors
    /// The errors of [`from_links`](Self::from_links).
    pub fn from_known(
        source: Arc<dyn ByteSource>,
        header: &EnvelopeLink,
        footer: &EnvelopeLink,
        known: &Reader,
    ) -> Result<Self> {
        if known.header.link != *header {
            return Self::from_links(source, header, footer);
        }
        let read = |source: &dyn ByteSource| {
            let footer = read_footer(source, footer, u64::MAX)?;
            check_header(&footer, known.footer.header_checksum)?;
            Ok(footer)
        };
        let read = read_verified(&*source, Error::is_damage, read)?;
        if read.extension != known.footer.extension {
            return Self::from_links(source, header, footer);
        }
        Self::with_header(source, known.header.clone(), read, u64::MAX)
    }

    /// Whether both share a header, and so have the same fields.
    pub fn has_header_of(&self, other: &Reader) -> bool {
        Arc::ptr_eq(&self.header, &other.header)
    }

    /// Envelopes of more than `key_size_max` bytes are spread over several keys.
    fn load(
        source: Arc<dyn ByteSource>,
        header: &EnvelopeLink,
        footer: &EnvelopeLink,
        key_size_max: u64,
    ) -> Result<Self> {
        let link = *header;
        let read = |source: &dyn ByteSource| {
            let kind = EnvelopeKind::Header;
            let bytes = envelope::read_envelope(source, header, kind, key_size_max)?;
            let (header, checksum) = Header::decode(&bytes)?;
            let footer = read_footer(source, footer, key_size_max)?;
            check_header(&footer, checksum)?;
            Ok((header, footer))
        };
        let (header, footer) = read_verified(&*source, Error::is_damage, read)?;
        let Header { name, description, mut schema, .. } = header;
        schema.extend(&footer.extension)?;
        let tree = FieldTree::of(&schema)?;
        let header = Arc::new(SharedHeader { link, name, description, schema, tree });
        Self::with_header(source, header, footer, key_size_max)
    }

    fn with_header(
        source: Arc<dyn ByteSource>,
        header: Arc<SharedHeader>,
        footer: Footer,
        key_size_max: u64,
    ) -> Result<Self> {
        let clusters = Clusters::new(&footer, &header.schema, key_size_max)?;
        Ok(Reader { source, cache: None, header, footer, clusters, ends: Mutex::default() })
    }

    /// Attaches a cache of decoded pages, which reads of single entries share; `file` distinguishes the
    /// pages of this file from those of other files.
    #[must_use]
    pub fn with_cache(mut self, pages: Arc<PageCache>, file: CacheFileId) -> Self {
        self.cache = Some(FileCache { pages, file });
        self
    }

    /// Name of the RNTuple.
    pub fn name(&self) -> &str {
        &self.header.name
    }

    /// Description of the RNTuple.
    pub fn description(&self) -> &str {
        &self.header.description
    }

    /// Fields and columns, with those of the schema extension.
    pub fn schema(&self) -> &Schema {
        &self.header.schema
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

    /// Bytes of all pages of the clusters that were decoded so far.
    pub fn stored_bytes(&self) -> u64 {
        self.clusters.loaded_pages().map(|page| page.locator.size).sum()
    }

    /// Reads all page lists and checks that every page ends before the end of the source.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a page does not or a page list is damaged; [`Error::Io`] if the source cannot
    /// be read.
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

    /// The clusters that overlap a range of entries, in order. Reads their page lists if needed.
    pub(crate) fn clusters_of(&self, entries: &Range<u64>) -> Result<Vec<&StoredCluster>> {
        self.clusters.overlapping(&*self.source, entries)
    }

    /// The fields with their columns.
    pub(crate) fn tree(&self) -> &FieldTree {
        &self.header.tree
    }

    /// For each column the number of elements in all clusters, according to the last cluster group; it
    /// may be too low if an earlier cluster was edited. All representations of a field have the total of
    /// the field.
    pub(crate) fn element_totals(&self) -> Result<Vec<u64>> {
        let last = self.clusters.last_group(&*self.source)?;
        let mut totals = vec![0; self.header.schema.columns.len()];
        for (column, total) in totals.iter_mut().enumerate() {
            let elements = last.iter().map(|cluster| cluster.elements_up_to(column as ColumnId));
            *total = elements.max().unwrap_or(0);
        }
        self.header.tree.share_among_representations(&mut totals);
        Ok(totals)
    }

    /// Names and types of the top-level fields that this crate can read.
    pub fn members(&self) -> Vec<(String, Type)> {
        self.header.tree.nodes.iter().map(|node| (node.name.clone(), node.logical_type())).collect()
    }

    /// Top-level fields that this crate cannot read, with the reason.
    pub fn ignored(&self) -> &[(String, String)] {
        &self.header.tree.ignored
    }

    /// Selects all fields.
    pub fn select_all(&self) -> Projection {
        Projection::all(&self.header.tree)
    }

    /// Selects the fields with these paths, such as `run` or `tracks.pt`, with all their subfields.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such field.
    pub fn select(&self, paths: &[impl AsRef<str>]) -> Result<Projection> {
        Projection::of(&self.header.tree, paths)
    }

    /// Reads fields of a range of entries as an array of records, with members in the order of the fields.
    ///
    /// # Errors
    /// [`Error::NotFound`] if entries do not exist, [`Error::Corrupt`] if pages or page lists are damaged,
    /// [`Error::Invalid`] if there is not enough memory, [`Error::Io`] if the source cannot be read.
    pub fn read(&self, projection: &Projection, entries: Range<u64>) -> Result<Array> {
        self.read_runs(projection, &[entries])
    }

    /// Reads fields of many ranges of entries into one array, one range after the other. The pages of
    /// each column are announced to the source before they are read, so that a disk or server can read
    /// those of scattered entries at the same time.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_runs(&self, projection: &Projection, runs: &[Range<u64>]) -> Result<Array> {
        match runs.iter().find(|run| run.start > run.end || run.end > self.entries()) {
            Some(beyond) => Err(self.no_entries(beyond)),
            None => {
                let is_sequential = matches!(runs, [run] if self.continues_last_read(run));
                self.assemble(projection.nodes(), runs, is_sequential)
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

    /// Capacity of the page cache in bytes, if the reader has one.
    fn cache_capacity(&self) -> Option<u64> {
        self.cache.as_ref().map(|cache| cache.pages.capacity())
    }
}

fn read_footer(
    source: &dyn ByteSource,
    footer: &EnvelopeLink,
    key_size_max: u64,
) -> Result<Footer> {
    let kind = EnvelopeKind::Footer;
    Footer::decode(&envelope::read_envelope(source, footer, kind, key_size_max)?)
}

fn check_header(footer: &Footer, checksum: u64) -> Result<()> {
    if footer.header_checksum == checksum {
        Ok(())
    } else {
        Err(Error::corrupt("footer", 0, "it belongs to another header"))
    }
}
