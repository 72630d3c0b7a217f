//! The trace of a program: its operations on the files of one folder, in order.
//!
//! A trace is a file of records, one for each operation that the kernel executed. All numbers are little-endian:
//!
//! ```text
//! kind u8 | file u64 | offset u64 | path bytes u32 | data bytes u32 | path | data
//! ```
//!
//! `file` is the inode. The kernel may use its number again after the file is removed; the record of a created file
//! starts a new one. Paths are relative to the folder.

use std::path::{Path, PathBuf};

/// One operation on a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FileOperation {
    /// An empty file was created.
    Create { file: u64, path: PathBuf },
    /// A folder was created.
    MakeFolder { path: PathBuf },
    /// Bytes were written.
    Write { file: u64, path: PathBuf, offset: u64, bytes: Vec<u8> },
    /// The size was set.
    Resize { file: u64, size: u64 },
    /// Space was allocated, and the file may have grown; its bytes are unchanged.
    Allocate { file: u64, offset: u64, size: u64 },
    /// Space was deallocated: the range reads as zeros.
    Punch { file: u64, offset: u64, size: u64 },
    /// A file was synced.
    Sync { file: u64 },
    /// A sync of a file failed: its pending changes may never become durable.
    FailedSync { file: u64 },
    /// A folder was synced.
    SyncFolder { path: PathBuf },
    /// A second name was given to an entry.
    Link { from: PathBuf, to: PathBuf },
    /// An entry was renamed, replacing any entry of that name.
    Rename { from: PathBuf, to: PathBuf },
    /// An entry was removed.
    Remove { path: PathBuf },
    /// The engine acknowledged an operation to the program.
    Acknowledge { text: String },
}

const HEADER_BYTES: usize = 25;

/// The parts of a record.
struct RecordParts<'a> {
    kind: u8,
    file: u64,
    offset: u64,
    path: &'a Path,
    data: &'a [u8],
}

impl FileOperation {
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

    fn parts(&self) -> RecordParts<'_> {
        let none = Path::new("");
        let simple = |kind, file, path| RecordParts { kind, file, offset: 0, path, data: &[] };
        match self {
            Self::Create { file, path } => simple(0, *file, path),
            Self::MakeFolder { path } => simple(1, 0, path),
            Self::Write { file, path, offset, bytes } => {
                RecordParts { kind: 2, file: *file, offset: *offset, path, data: bytes }
            }
            Self::Resize { file, .. } => simple(3, *file, none),
            Self::Allocate { file, offset, .. } => {
                RecordParts { kind: 4, file: *file, offset: *offset, path: none, data: &[] }
            }
            Self::Punch { file, offset, .. } => {
                RecordParts { kind: 5, file: *file, offset: *offset, path: none, data: &[] }
            }
            Self::Sync { file } => simple(6, *file, none),
            Self::FailedSync { file } => simple(7, *file, none),
            Self::SyncFolder { path } => simple(8, 0, path),
            Self::Link { from, to } => {
                RecordParts { data: to.as_os_str().as_encoded_bytes(), ..simple(9, 0, from) }
            }
            Self::Rename { from, to } => {
                RecordParts { data: to.as_os_str().as_encoded_bytes(), ..simple(10, 0, from) }
            }
            Self::Remove { path } => simple(11, 0, path),
            Self::Acknowledge { text } => {
                RecordParts { data: text.as_bytes(), ..simple(12, 0, none) }
            }
        }
    }

    /// Decodes the record at the front of `bytes`, and returns it with the rest. None if it is truncated or invalid.
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

    /// Decodes a whole trace.
    ///
    /// # Errors
    /// Names the offset of the first invalid record.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, String> {
        let mut rest = bytes;
        let mut operations = vec![];
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let (operation, after) = Self::decode(rest)
                .ok_or_else(|| format!("invalid record at byte {at} of the trace"))?;
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
    fn every_operation_round_trips() {
        let path = PathBuf::from("databases/run7.root");
        let to = PathBuf::from("catalogue.sqlite");
        let all = vec![
            FileOperation::Create { file: 7, path: path.clone() },
            FileOperation::MakeFolder { path: path.clone() },
            FileOperation::Write {
                file: 7,
                path: path.clone(),
                offset: 1 << 40,
                bytes: vec![1, 2, 3],
            },
            FileOperation::Resize { file: 7, size: 0 },
            FileOperation::Allocate { file: 7, offset: 5, size: 6 },
            FileOperation::Punch { file: 7, offset: 5, size: 6 },
            FileOperation::Sync { file: 7 },
            FileOperation::FailedSync { file: 7 },
            FileOperation::SyncFolder { path: path.clone() },
            FileOperation::Link { from: path.clone(), to: to.clone() },
            FileOperation::Rename { from: path.clone(), to },
            FileOperation::Remove { path },
            FileOperation::Acknowledge { text: "1 2".to_owned() },
        ];
        let mut bytes = vec![];
        all.iter().for_each(|operation| operation.encode(&mut bytes));
        assert_eq!(FileOperation::decode_all(&bytes).unwrap(), all);
        assert!(FileOperation::decode_all(&bytes[..bytes.len() - 1]).is_err());
    }
}
