//! Reads and writes ROOT files that hold RNTuple data, in Rust alone.
//!
//! An RNTuple is a table of entries. Each field of an entry is a number, a string, or a list, array,
//! record, optional value or variant of other fields, nested to any depth. On disk every field
//! becomes columns, columns become compressed pages, and the pages of a range of entries form a
//! cluster, so a few fields of many entries are read without touching the other fields. ROOT and
//! uproot read the files that this crate writes.
//!
//! ```
//! use std::{fs::File, sync::Arc};
//!
//! use rntuple::{Compression, Reader, WriteOptions, Writer, values_of};
//!
//! rntuple::row! {
//!     struct Muon { pt: f32, charge: i8 }
//! }
//! rntuple::row! {
//!     struct Event { id: u64, muons: Vec<Muon>, weight: Option<f64> }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("events.root");
//! let compression = Compression::Zstd { level: 5 };
//! let options = WriteOptions { compression, ..Default::default() };
//! let mut writer = Writer::create::<Event>(&path, "Events", options)?;
//! for id in 0..1000 {
//!     let muons = (0..id % 3).map(|n| Muon { pt: 20.0 + n as f32, charge: 1 }).collect();
//!     writer.append_row(&Event { id, muons, weight: None })?;
//! }
//! writer.finish()?;
//!
//! let reader = Reader::open(Arc::new(File::open(&path)?), "Events")?;
//! let events = reader.read(&reader.select(&["id", "muons.pt"])?, 0..reader.entries())?;
//!
//! // Columns, back to back in memory ...
//! let Some(rntuple::Array::Primitive { values, .. }) = events.member("id") else { panic!() };
//! assert_eq!(values_of::<u64>(values)?.iter().sum::<u64>(), 499_500);
//! // ... or single values.
//! let muons = events.value(2)?.member("muons").cloned();
//! println!("{muons:?}"); // two records, each with the one member pt
//! # let pt = |x| rntuple::Value::Record(vec![("pt".into(), rntuple::Value::Float(x))]);
//! # assert_eq!(muons, Some(rntuple::Value::List(vec![pt(20.0), pt(21.0)])));
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! From the public interface down to bytes; a module imports only from its own row and those below:
//!
//! | module | contents |
//! |---|---|
//! | `row` | [`row!`]: declares Rust structures as entries |
//! | `revise` | new versions from old ones: [`evolve`] to other types, [`compact`] to fewer clusters, [`complete`] for other readers; [`Conversion`]: arrays to other types |
//! | `writer` | [`Writer`]: a file with one RNTuple; [`Appender`]: one version after another into any [`BlobSink`], with entries appended and replaced; [`Cell`]: Rust values into columns |
//! | `reader` | [`Reader`]: one version of an RNTuple; [`Projection`]: some of its fields; [`Cursor`], [`FromCell`]: entries as Rust structures; [`FieldCursor`]: single fields of entries |
//! | `summary` | [`ClusterSummary`]: least and greatest values of a cluster's columns |
//! | `array`, `array_ops`, `value`, `validate`, `cell_type` | [`Array`]: many values in columns, in the layout of Awkward Array and Arrow; [`Value`]: one value of any type; [`CellType`]: the type of a Rust value |
//! | `types`, `tree`, `type_map`, `inheritance` | [`Type`]: the logical type of a field; its fields and columns, and back, with members of base classes as the class's own |
//! | `header`, `footer`, `page_list`, `schema_codec`, `envelope` | the metadata, named as in the specification |
//! | [`tfile`] | ROOT's container format: keys, directories, sealing a file |
//! | `page_cache`, `page`, `encoding`, `compression` | elements in memory to stored pages and back; [`PageCache`]: decoded pages, for reading single entries |
//! | `schema`, `column`, `locator`, `anchor` | [`Schema`]: fields and columns; [`Anchor`]: locations of header and footer |
//! | `source`, `buffer`, `wire`, `clock`, `error` | [`ByteSource`], [`BlobSink`]: input and output; recycled memory; codecs of integers and strings; [`Error`] |
//!
//! # Format
//!
//! The crate writes version 1.0.0.0 of the RNTuple Binary Format Specification. It reads every 1.x
//! file without feature flags; a flag marks a feature that older readers would misread. A top-level
//! field of a type that this crate does not know is left out and named by [`Reader::ignored`].
//!
//! **Invariant:** bytes of any content yield values or an [`Error`], never a panic, and memory is
//! allocated only for elements that the stored pages can hold.
//!
//! # What it does not do
//!
//! - Read other objects of ROOT files, such as histograms, or RNTuples before 1.0. Of trees it reads
//!   baskets of plain numbers ([`tfile::Branch`]); the caller supplies the positions of the baskets.
//! - Decode objects that ROOT's streamer serialised: they read as their bytes.
//! - Write sets, maps, enumerations, streamed objects, projected fields, or fields added to an
//!   existing RNTuple; it reads all of these.
//! - Start threads, but in [`Reader::read_in_parallel`].
//! - Support big-endian machines, or systems other than Unix and WebAssembly. In WebAssembly it reads any [`ByteSource`] with one
//!   thread and decoders in Rust alone; there are no files, so no [`Writer`], and what is written is not compressed.

mod anchor;
mod array;
mod array_ops;
mod buffer;
mod cell_type;
#[cfg(not(target_family = "wasm"))]
mod clock;
mod column;
mod compression;
mod encoding;
mod envelope;
mod error;
mod footer;
mod header;
mod inheritance;
mod locator;
mod page;
mod page_cache;
mod page_list;
mod reader;
mod revise;
mod row;
mod schema;
mod schema_codec;
mod source;
mod summary;
pub mod tfile;
mod tree;
mod type_map;
mod types;
mod validate;
mod value;
mod wire;
mod writer;

pub use anchor::{ANCHOR_CLASS, ANCHOR_SIZE, Anchor};
pub use array::{Array, bytes_of, values_of};
pub use cell_type::CellType;
pub use column::{ColumnType, Element};
pub use compression::{Compression, compress, decompress, uncompressed_size_max};
pub use encoding::{decode, encode, encoded_size};
pub use envelope::{EnvelopeKind, envelope_checksum, open_envelope, read_envelope, seal_envelope};
pub use error::{Error, ErrorKind, Result};
pub use footer::{ClusterGroup, Footer};
pub use header::Header;
pub use inheritance::{InheritedMember, PREFIX_BYTES_MAX, is_base_class, with_unique_names};
pub use locator::{EnvelopeLink, Locator};
pub use page::{CHECKSUM_SIZE, PageBuffers, SealedPage, open_page, seal_page};
pub use page_cache::{CacheFileId, PageCache};
pub use page_list::{Cluster, ColumnPages, PageList, PageLocation};
pub use reader::{
    ColumnPath, ColumnSize, Cursor, FieldCursor, FieldValue, FromCell, Projection, Reader,
    RowReader,
};
pub use revise::{
    ChangeKind, Compaction, Completed, Conversion, DELETED_FIELD, EvolutionPlan, Evolved,
    FieldChange, Nesting, NewMember, Revised, ValueOrigin, compact, complete, convert_array,
    evolve, plan,
};
pub use schema::{AliasColumn, Column, ColumnId, ExtraTypeInfo, Field, FieldId, Schema, Structure};
pub use source::{BlobSink, ByteSource, ReadRequest, read_verified};
pub use summary::{Bound, Bounds, ClusterSummary};
pub use type_map::{Encoding, type_name};
pub use types::{Precision, Primitive, Type};
pub use value::Value;
pub use writer::{
    AppendedVersion, Appender, AppenderSavepoint, Cell, Renumbering, RowWriter, WriteOptions,
    WrittenPart,
};

#[cfg(not(target_family = "wasm"))]
pub use writer::Writer;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
