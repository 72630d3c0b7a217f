//! How far a long operation is, and how its caller stops it.

/// How far a long operation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, such as `checking`.
    pub doing: &'static str,
    /// To what: a database or a file.
    pub of: String,
    /// Bytes dealt with, of all databases.
    pub done: u64,
    /// Bytes that there are to deal with, as far as is known.
    pub total: u64,
}

/// Told how far an operation is; answers whether it shall go on.
pub type Watch<'a> = dyn FnMut(&Progress) -> bool + 'a;
