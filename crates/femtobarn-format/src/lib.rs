//! Femtobarn's own metadata in database files, and the form in which plain ROOT readers see a database.
//!
//! The engine writes and reads this metadata; the server reads it to show databases that are being written as
//! complete ROOT files. `docs/format.md` is normative.
//!
//! | module | contents |
//! |---|---|
//! | [`layout`] | [`ContainerOptions`]: page size, cluster size and compression of a container |
//! | [`series`] | [`SeriesOptions`](series::SeriesOptions): the options of a series of conditions |
//! | [`frame`] | the frame around Femtobarn's records |
//! | [`annex`] | the metadata of a version that ROOT does not read |
//! | [`deletion`] | the deleted entries of a version |
//! | [`inventory`] | the bytes of a file that versions refer to |
//! | [`description`] | the RNTuple that describes the containers of a complete file |
//! | [`completion`] | a database as of a snapshot, as plain ROOT readers read it |
//!
//! **Invariant:** this crate opens no files: all reading goes through [`ByteSource`](rntuple::ByteSource), all writing
//! through [`BlobSink`](rntuple::BlobSink).

pub mod annex;
pub mod completion;
pub mod deletion;
pub mod description;
mod error;
pub mod frame;
pub mod inventory;
pub mod layout;
pub mod series;

pub use error::{Error, Result};
pub use layout::{ContainerOptions, Profile};

use femtobarn_catalog::EnvelopeRange;
use rntuple::{EnvelopeLink, Locator};

/// Converts the catalogue's range of an envelope to RNTuple's link.
pub fn link(range: &EnvelopeRange) -> EnvelopeLink {
    EnvelopeLink {
        length: range.length,
        locator: Locator { offset: range.offset, size: range.size },
    }
}
