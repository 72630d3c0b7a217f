//! The error type of this crate.

/// Why metadata of a database file could not be read or written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] femtobarn_catalog::Error),
    /// An RNTuple or a file could not be read or written, or is damaged.
    #[error("{what}: {source}")]
    Storage {
        /// The file, database or container.
        what: String,
        /// The reason.
        source: rntuple::Error,
    },
    /// An argument is wrong.
    #[error("{what}")]
    Invalid {
        /// The wrong argument, and a remedy.
        what: String,
    },
    /// Bytes in a database file are damaged.
    #[error("{what}")]
    Corrupt {
        /// The damaged bytes, and the kind of the damage.
        what: String,
    },
}

/// The result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether damaged bytes can be the cause.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Error::Corrupt { .. } => true,
            Error::Storage { source, .. } => source.is_damage(),
            _ => false,
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }

    /// Adds the file, database or container to an error of RNTuple.
    pub(crate) fn storage(what: impl Into<String>) -> impl FnOnce(rntuple::Error) -> Self {
        let what = what.into();
        move |source| Error::Storage { what, source }
    }
}
