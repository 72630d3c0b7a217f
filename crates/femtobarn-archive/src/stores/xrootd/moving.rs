//! Objects on their way to a server and back.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use futures_util::{StreamExt, stream};
use tokio::time::timeout;
use uuid::Uuid;
use xrd::ErrorCode;
use xrd::client::File as RemoteFile;
use xrd::flags::OpenOptions;

use super::XrootdStore;
use crate::error::{Error, Result};
use crate::stores::files::{FileSum, or_remove, write_piece};
use crate::stores::store::{ByteWatch, PART, too_short};
use crate::stores::tasks::{CLEAN_TIME, stopped, watched};

/// Bytes of a read or write, and the number of reads in flight.
const PIECE_BYTES: u64 = 8 << 20;
const READS: usize = 4;
/// Bytes after which the server must sync its disk: a sync may take no longer than an answer may.
const SYNC_BYTES: u64 = 1 << 30;

impl XrootdStore {
    /// Sends a file's bytes as an object; returns their checksum.
    pub(super) async fn send(
        &self,
        key: &str,
        from: &Path,
        watch: &mut ByteWatch<'_>,
    ) -> Result<String> {
        let object = self.object(key)?;
        let cannot_read = |error| Error::io("read", from, error);
        let mut file = File::open(from).map_err(cannot_read)?;
        let size = file.metadata().map_err(cannot_read)?.len();
        self.check_mounted().await?;
        let folder = key.rsplit_once('/').map(|(folder, _)| format!("{folder}/"));
        let name = format!("{}{PART}{}", folder.unwrap_or_default(), Uuid::new_v4());
        let part = self.location(&name, "")?;
        let refused = |error| self.error("write", key, error);
        let client = self.client().await?;
        let options = OpenOptions::NEW
            | OpenOptions::UPDATE
            | OpenOptions::MAKE_PATH
            | OpenOptions::PERSIST_ON_CLOSE;
        let place = self.location(&name, &format!("?oss.asize={size}"))?;
        let target = client.open(&place, options).await.map_err(refused)?;
        let sent = async {
            let sum = self.fill(&target, key, (from, &mut file), watch).await?;
            watched(target.close(), ("writing", key), size, watch).await?.map_err(refused)?;
            self.server.forget_open(key);
            match client.mv(&part, &object).await {
                // A failure in between leaves neither object; keys are unique, so no copy that is relied on is
                // replaced.
                Err(error) if error.code() == Some(ErrorCode::IT_EXISTS) => {
                    client.rm(&object).await.map_err(refused)?;
                    client.mv(&part, &object).await.map_err(refused)?;
                }
                moved => moved.map_err(refused)?,
            }
            Ok(sum)
        };
        let sent = sent.await;
        if sent.is_err() {
            // A remainder has a name that is taken for no object.
            let _ = timeout(CLEAN_TIME, client.rm(&part)).await;
        }
        sent
    }

    /// Writes a file's bytes to one of the server, and syncs it; returns their checksum.
    async fn fill(
        &self,
        target: &RemoteFile,
        key: &str,
        (path, file): (&Path, &mut File),
        watch: &mut ByteWatch<'_>,
    ) -> Result<String> {
        let mut sum = FileSum::default();
        let mut piece = Vec::with_capacity(PIECE_BYTES as usize);
        let (mut done, mut synced) = (0, 0);
        loop {
            piece.clear();
            let read = file.by_ref().take(PIECE_BYTES).read_to_end(&mut piece);
            read.map_err(|error| Error::io("read", path, error))?;
            if !watch(done) {
                return Err(stopped("writing", key));
            }
            if piece.is_empty() || done - synced >= SYNC_BYTES {
                let synced_now = watched(target.sync(), ("writing", key), done, watch).await?;
                synced_now.map_err(|error| self.error("write", key, error))?;
                synced = done;
            }
            if piece.is_empty() {
                return Ok(sum.text());
            }
            sum.add(&piece);
            let writing = target.write_checked(done, &piece);
            let written = watched(writing, ("writing", key), done, watch).await?;
            written.map_err(|error| self.error("write", key, error))?;
            done += piece.len() as u64;
        }
    }

    /// Writes an object to a new file.
    pub(super) async fn fetch(
        &self,
        key: &str,
        to: &Path,
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        let (from, size) = self.open(key).await?;
        let target = File::create_new(to).map_err(|error| Error::io("create", to, error))?;
        let fetched = self.copy(key, (&from, size), (to, &target), watch).await;
        self.server.forget_open(key);
        or_remove(to, fetched)
    }

    async fn copy(
        &self,
        key: &str,
        (from, size): (&RemoteFile, u64),
        (to, target): (&Path, &File),
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        let read = |offset: u64| async move {
            let mut piece = vec![0; PIECE_BYTES.min(size - offset) as usize];
            let count = from.read_checked(offset, &mut piece).await;
            let count = count.map_err(|error| self.error("read", key, error))?;
            if count < piece.len() {
                return Err(too_short(self, key, size));
            }
            Ok((offset, piece))
        };
        let offsets = (0..size.div_ceil(PIECE_BYTES)).map(|number| number * PIECE_BYTES);
        let mut pieces = stream::iter(offsets).map(read).buffer_unordered(READS);
        let mut done = 0;
        while let Some(piece) = watched(pieces.next(), ("reading", key), done, watch).await? {
            let (offset, piece) = piece?;
            write_piece((to, target), &piece, offset)?;
            done += piece.len() as u64;
            if !watch(done) {
                return Err(stopped("reading", key));
            }
        }
        Ok(())
    }
}
