//! Why a server did not start.

/// Why a server did not start. The texts are for its operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// The server's user may not listen on the port, or may not read an exported folder.
    #[error("{0}")]
    Denied(String),
    /// The catalogue of a federation is damaged.
    #[error("{0}")]
    Corrupt(String),
    /// The catalogue of a federation is of a newer release.
    #[error("{0}")]
    Unsupported(String),
    /// Another error of the operating system.
    #[error("{0}")]
    System(String),
}
