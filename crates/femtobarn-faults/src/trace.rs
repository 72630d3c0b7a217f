//! What a program did to the files of one folder, in order.
//!
//! A trace is a file of records, each of which is one operation that the kernel has carried out. All
//! numbers are little-endian:
//!
//! ```text
//! kind u8 | file u64 | offset u64 | path bytes u32 | data bytes u32 | path | data
//! ```
//!
//! `file` is the inode. An inode's number may be used again once the file is gone; a record that
//! creates a file starts a new one. Paths are relative to the folder.

use std::path::{Path, PathBuf};

/// One operation on a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    /// A file came to be, empty.
    Create { file: u64, path: PathBuf },
    /// A folder came to be.
    MakeFolder { path: PathBuf },
    /// Bytes were written.
    Write { file: u64, path: PathBuf, offset: u64, bytes: Vec<u8> },
    /// The size was set.
    Resize { file: u64, size: u64 },
    /// Room was made, and the file may have grown; its bytes stay.
    Allocate { file: u64, offset: u64, size: u64 },
    /// Room was given back: the range now reads as zeros.
    Punch { file: u64, offset: u64, size: u64 },
    /// A file was made durable, with all that was written to it.
    Sync { file: u64 },
    /// Making a file durable failed: what was not durable before may never be.
    FailedSync { file: u64 },
    /// A folder's entries were made durable.
    SyncFolder { path: PathBuf },
    /// An entry got a second name.
    Link { from: PathBuf, to: PathBuf },
    /// An entry got another name, and replaced what had it.
    Rename { from: PathBuf, to: PathBuf },
    /// An entry was removed.
    Remove { path: PathBuf },
    /// The program was told that something has happened for good.
    Acknowledge { text: String },
}

const HEADER_BYTES: usize = 25;

/// The parts that all records have.
struct Parts<'a> {
    kind: u8,
    file: u64,
    offset: u64,
    path: &'a Path,
    data: &'a [u8],
}

impl Operation {
    /// Appends the record of this operation.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let parts = self.parts();
        let size_bytes = self.size().to_le_bytes();
        let path = parts.path.as_os_str().as_encoded_bytes();
        let data = if parts.data.is_empty() { &size_bytes } else { parts.data };
        to.push(parts.kind);
        to.extend_from_slice(&parts.file.to_le_bytes());
        to.extend_from_slice(&parts.offset.to_le_bytes());
        to.extend_from_slice(&(path.len() as u32).to_le_bytes());
        to.extend_from_slice(&(data.len() as u32).to_le_bytes());
        to.extend_from_slice(path);
        to.extend_from_slice(data);
    }

    fn size(&self) -> u64 {
        match self {
            Self::Resize { size, .. } | Self::Allocate { size, .. } | Self::Punch { size, .. } => {
                *size
            }
            _ => 0,
        }
    }

    fn parts(&self) -> Parts<'_> {
        let none = Path::new("");
        let simple = |kind, file, path| Parts { kind, file, offset: 0, path, data: &[] };
        match self {
            Self::Create { file, path } => simple(0, *file, path),
            Self::MakeFolder { path } => simple(1, 0, path),
            Self::Write { file, path, offset, bytes } => {
                Parts { kind: 2, file: *file, offset: *offset, path, data: bytes }
            }
            Self::Resize { file, .. } => simple(3, *file, none),
            Self::Allocate { file, offset, .. } => {
                Parts { kind: 4, file: *file, offset: *offset, path: none, data: &[] }
            }
            Self::Punch { file, offset, .. } => {
                Parts { kind: 5, file: *file, offset: *offset, path: none, data: &[] }
            }
            Self::Sync { file } => simple(6, *file, none),
            Self::FailedSync { file } => simple(7, *file, none),
            Self::SyncFolder { path } => simple(8, 0, path),
            Self::Link { from, to } => {
                Parts { data: to.as_os_str().as_encoded_bytes(), ..simple(9, 0, from) }
            }
            Self::Rename { from, to } => {
                Parts { data: to.as_os_str().as_encoded_bytes(), ..simple(10, 0, from) }
            }
            Self::Remove { path } => simple(11, 0, path),
            Self::Acknowledge { text } => Parts { data: text.as_bytes(), ..simple(12, 0, none) },
        }
    }

    /// Reads the record at the front of `bytes`, and what follows it; none if it is cut off or no
    /// record.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let number = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let length = |at: usize| Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let (file, offset) = (number(1)?, number(9)?);
        let (path, rest) = rest.split_at_checked(length(17)? as usize)?;
        let (data, rest) = rest.split_at_checked(length(21)? as usize)?;
        let path = PathBuf::from(std::str::from_utf8(path).ok()?);
        let size = || Some(u64::from_le_bytes(data.try_into().ok()?));
        let to = || Some(PathBuf::from(std::str::from_utf8(data).ok()?));
        let operation = match header[0] {
            0 => Self::Create { file, path },
            1 => Self::MakeFolder { path },
            2 => Self::Write { file, path, offset, bytes: data.to_vec() },
            3 => Self::Resize { file, size: size()? },
            4 => Self::Allocate { file, offset, size: size()? },
            5 => Self::Punch { file, offset, size: size()? },
            6 => Self::Sync { file },
            7 => Self::FailedSync { file },
            8 => Self::SyncFolder { path },
            9 => Self::Link { from: path, to: to()? },
            10 => Self::Rename { from: path, to: to()? },
            11 => Self::Remove { path },
            12 => Self::Acknowledge { text: String::from_utf8(data.to_vec()).ok()? },
            _ => return None,
        };
        Some((operation, rest))
    }

    /// All records of a trace.
    ///
    /// # Errors
    /// Says at which byte there is no record.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, String> {
        let mut rest = bytes;
        let mut operations = vec![];
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let (operation, after) =
                Self::decode(rest).ok_or_else(|| format!("no record at byte {at} of the trace"))?;
            operations.push(operation);
            rest = after;
        }
        Ok(operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_read_back() {
        let path = PathBuf::from("databases/run7.root");
        let to = PathBuf::from("catalogue.sqlite");
        let all = vec![
            Operation::Create { file: 7, path: path.clone() },
            Operation::MakeFolder { path: path.clone() },
            Operation::Write { file: 7, path: path.clone(), offset: 1 << 40, bytes: vec![1, 2, 3] },
            Operation::Resize { file: 7, size: 0 },
            Operation::Allocate { file: 7, offset: 5, size: 6 },
            Operation::Punch { file: 7, offset: 5, size: 6 },
            Operation::Sync { file: 7 },
            Operation::FailedSync { file: 7 },
            Operation::SyncFolder { path: path.clone() },
            Operation::Link { from: path.clone(), to: to.clone() },
            Operation::Rename { from: path.clone(), to },
            Operation::Remove { path },
            Operation::Acknowledge { text: "1 2".to_owned() },
        ];
        let mut bytes = vec![];
        all.iter().for_each(|operation| operation.encode(&mut bytes));
        assert_eq!(Operation::decode_all(&bytes).unwrap(), all);
        assert!(Operation::decode_all(&bytes[..bytes.len() - 1]).is_err());
    }
}
