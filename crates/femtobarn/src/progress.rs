//! Progress of long operations.

/// How far a long operation has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The operation, such as `checking`.
    pub doing: &'static str,
    /// The database, file or table that is being worked on.
    pub of: String,
    /// Bytes that are done, of all databases; rows, if the catalogue is moved.
    pub done: u64,
    /// Bytes or rows in all, as far as is known.
    pub total: u64,
}

/// Receives the progress of an operation, and returns whether the operation is to continue.
pub type Watch<'a> = dyn FnMut(&Progress) -> bool + 'a;
