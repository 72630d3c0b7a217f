//! Requests that list folders: dirlist, with metadata and checksums.
//!
//! Long lists are split between entries. Lists with checksums are made concurrently with other requests.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_dirlist.

use std::io;
use std::sync::Arc;

use xrd::flags::DirlistOptions;
use xrd::request::Dirlist;
use xrd::response::{Answer, DirectoryEntry, DirectoryList, EntryChecksum, Response};
use xrd::{ErrorCode, StreamId};

use super::answer_queue::encoded;
use super::connection::{DelayedAnswer, RootConnection};
use super::handler::{RequestHandler, opaque};
use super::query::{checksum_kind, digest, in_turn};
use super::responses::failed;
use super::stat_line::stat_line;
use crate::auth::Action;
use crate::logical::checksums::{CancelSignal, ChecksumKind};
use crate::physical::{FileKind, FolderEntry, Storage, StoragePath};

/// Bytes of one part of a list, without its last entry.
const PART_BYTES: usize = 256 * 1024;

impl RootConnection {
    pub(super) async fn dirlist_request(
        &mut self,
        stream: StreamId,
        handler: RequestHandler,
        list: Dirlist,
    ) -> io::Result<()> {
        let is_slow = list.options.intersects(DirlistOptions::CHECKSUM);
        let answer = async move {
            match handler.list(list).await {
                Ok(body) => DelayedAnswer { bytes: parts(stream, body), ..Default::default() },
                Err(response) => DelayedAnswer::of(stream, &response),
            }
        };
        if is_slow { self.delay(answer).await } else { self.answer_delayed(answer.await).await }
    }
}

impl RequestHandler {
    async fn list(&self, list: Dirlist) -> Result<Vec<u8>, Response> {
        let path = self.path(&list.location, Action::Read).await?;
        let has = |option| list.options.intersects(option);
        let with_checksums = has(DirlistOptions::CHECKSUM);
        let with_stat =
            has(DirlistOptions::STAT | DirlistOptions::EXTENDED_STAT | DirlistOptions::CHECKSUM);
        let kind = if with_checksums { Some(checksum_kind(&list.location)?) } else { None };
        let location = list.location.clone();
        let folder = path.clone();
        let entries = self.call(false, move |service| {
            service.logical.exports.list(&folder, with_stat, opaque(&location))
        });
        let mut listed = DirectoryList { with_stat, entries: Vec::new() };
        for entry in entries.await? {
            // A name with a line feed cannot be encoded.
            if entry.name.is_empty() || entry.name.contains(&b'\n') {
                continue;
            }
            let checksum = match kind {
                Some(kind) => self.checksum_of_entry(&path, &entry, kind).await,
                None => None,
            };
            listed.entries.push(DirectoryEntry {
                stat: entry.metadata.as_ref().filter(|_| with_stat).map(stat_line),
                name: entry.name.into(),
                checksum,
            });
        }
        listed.encode().map_err(|error| failed(ErrorCode::SERVER_ERROR, error.to_string()))
    }

    async fn checksum_of_entry(
        &self,
        folder: &StoragePath,
        entry: &FolderEntry,
        kind: ChecksumKind,
    ) -> Option<EntryChecksum> {
        let none = EntryChecksum { kind: kind.name().to_owned(), digest: "none".to_owned() };
        if entry.metadata.as_ref()?.kind != FileKind::File {
            return Some(none);
        }
        let path = folder.join(&entry.name).ok()?;
        let service = Arc::clone(&self.service);
        let client = self.session.host.ip();
        let compute =
            move |cancelled: &CancelSignal| digest(&service, (&path, &[]), client, kind, cancelled);
        let digest = in_turn(&self.service.logical.checksums, compute).await;
        Some(digest.map_or(none.clone(), |digest| EntryChecksum { digest, ..none }))
    }
}

/// Encodes a list as the parts of an answer.
fn parts(stream: StreamId, body: Vec<u8>) -> Vec<u8> {
    let mut left = body.as_slice();
    let mut bytes = Vec::with_capacity(left.len() + 8);
    // An entry with metadata has two lines, which must not be split.
    let is_pairs = left.starts_with(b".\n");
    while left.len() > PART_BYTES {
        let Some(end) = end_of_part(left, is_pairs) else { break };
        let (part, rest) = left.split_at(end);
        bytes.extend(encoded(stream, &Response::OkSoFar(part.to_vec().into())));
        left = rest;
    }
    bytes.extend(encoded(stream, &Response::Ok(left.to_vec().into())));
    bytes
}

fn end_of_part(left: &[u8], is_pairs: bool) -> Option<usize> {
    let mut line = 0;
    for (index, _) in left.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        line += 1;
        if index >= PART_BYTES && (!is_pairs || line % 2 == 0) {
            return Some(index + 1).filter(|end| *end < left.len());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_where_entries_end() {
        let entry = |number: usize| format!("name{number}\n{number} 1 2 3\n");
        let text: String = (0..40_000).map(entry).collect();
        let body = format!(".\n0 0 0 0\n{text}").into_bytes();
        let end = end_of_part(&body, true).expect("the body is long enough");
        assert!(body[end..].starts_with(b"name"), "{:?}", &body[end..end + 10]);
        let bytes = parts(StreamId([0, 1]), body.clone());
        let heads = bytes.len() - body.len();
        assert!(heads > 8 && heads.is_multiple_of(8), "several parts, each with a head");
    }
}
