//! Femtobarn's own metadata in database files, and the form in which plain ROOT readers see a database.
//!
//! The engine writes and reads these; the server reads them to show databases that are being written
//! as complete ROOT files. `docs/format.md` is normative.
//!
//! | module | noun |
//! |---|---|
//! | [`annex`], [`frame`] | what a version has beside its footer, and how our own records are framed |
//! | [`deletion`] | which entries are deleted |
//! | [`inventory`] | which bytes versions refer to |
//! | [`layout`] | [`ContainerOptions`]: how a container is laid out on disk |
//! | [`description`] | what a complete file says about its containers |
//! | [`completion`] | a database as of a snapshot, as those read it who know nothing of Femtobarn |
//!
//! **Invariant:** there is no file name here: all reading goes through
//! [`ByteSource`](rntuple::ByteSource), all writing through [`BlobSink`](rntuple::BlobSink).

pub mod annex;
pub mod completion;
pub mod deletion;
pub mod description;
mod error;
pub mod frame;
pub mod inventory;
pub mod layout;

pub use error::{Error, Result};
pub use layout::{ContainerOptions, Profile};

use femtobarn_catalog::EnvelopeRange;
use rntuple::{EnvelopeLink, Locator};

/// Where an envelope is, as the catalogue and as RNTuple say it.
pub fn link(range: &EnvelopeRange) -> EnvelopeLink {
    EnvelopeLink {
        length: range.length,
        locator: Locator { offset: range.offset, size: range.size },
    }
}
