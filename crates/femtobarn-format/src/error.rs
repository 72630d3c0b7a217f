//! The one error type of this crate.

/// Why what is in a database file could not be read, or made complete.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The catalogue refused.
    #[error(transparent)]
    Catalogue(#[from] femtobarn_catalog::Error),
    /// A file could not be read or written, or its contents are not what they should be.
    #[error("{what}: {source}")]
    Storage {
        /// The file, database or container.
        what: String,
        /// What is wrong with it.
        source: rntuple::Error,
    },
    /// What was asked for makes no sense.
    #[error("{what}")]
    Invalid {
        /// What is wrong and what to do about it.
        what: String,
    },
    /// Bytes in a database file are damaged.
    #[error("{what}")]
    Corrupt {
        /// Which bytes, and what is wrong with them.
        what: String,
    },
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }

    /// Wraps an error of the storage with the thing that it is about.
    pub(crate) fn storage(what: impl Into<String>) -> impl FnOnce(rntuple::Error) -> Self {
        let what = what.into();
        move |source| Error::Storage { what, source }
    }
}
