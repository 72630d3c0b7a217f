//! A store in a bucket of an object store that speaks S3.
//!
//! Objects are written once, in parts of 8 MiB or more, of which four are in flight; requests are signed with the
//! checksum of their bytes, repeated with growing pauses, and never conditional. A bucket without a store's mark and
//! without any other object below the prefix is not the store: objects missing there are not lost. `connection` makes
//! the connections.

mod connection;

use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as ObjectPath;
use object_store::{
    BackoffConfig, Error as Failure, ObjectStore, ObjectStoreExt, RetryConfig, WriteMultipart,
    coalesce_ranges,
};
use serde::Deserialize;
use tokio::time::timeout;

use super::files::{FileSum, or_remove, write_piece};
use super::store::{
    ByteWatch, MARK, MARK_TEXT, ObjectRange, Store, StoredState, check_key, no_object, too_short,
};
use super::tasks::{CLEAN_TIME, StoreTasks, stopped, watched};
use crate::error::{Error, Result};
use connection::Connector;

/// Bytes of a part, for files of up to [`PARTS_MAX`] such parts.
const PART_BYTES: u64 = 8 << 20;
/// Parts of an object: S3 allows 10,000.
const PARTS_MAX: u64 = 9_000;
/// Parts in flight at once.
const PARTS_SENT: usize = 4;
/// Bytes of a fetched range, and the number of ranges in flight at once.
const RANGE_BYTES: u64 = 8 << 20;
const RANGES_FETCHED: usize = 4;
/// The bytes that a read may fetch in addition, to save requests: the requested bytes divided by this.
const UNWANTED_PART: u64 = 5;
/// The time for which a reader waits for a range of an object, over all attempts; the wait grows with the range, by
/// this rate in bytes per second.
const READ_TIME: Duration = Duration::from_secs(30);
const READ_RATE: u64 = 100_000;
/// Attempts of a request, and the time in which they are made.
const RETRIES: usize = 8;
const RETRY_TIME: Duration = Duration::from_secs(120);

/// A bucket.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct S3Settings {
    /// The address of the server, such as `https://s3.example.org`.
    pub url: String,
    /// The bucket, which must exist.
    pub bucket: String,
    /// The region, as the server names it.
    #[serde(default = "region")]
    pub region: String,
    /// The prefix of objects' names, without `/` at its end.
    #[serde(default)]
    pub prefix: String,
    /// The environment variables that have the key's name and the key.
    #[serde(default = "key_variables")]
    pub key_variables: [String; 2],
    /// Readers read in place, and the file is not staged for them.
    #[serde(default)]
    pub in_place: bool,
}

fn region() -> String {
    "us-east-1".to_owned()
}

fn key_variables() -> [String; 2] {
    ["AWS_ACCESS_KEY_ID".to_owned(), "AWS_SECRET_ACCESS_KEY".to_owned()]
}

/// Objects in a bucket.
#[derive(Debug)]
pub struct S3Store {
    settings: S3Settings,
    bucket: AmazonS3,
    tasks: StoreTasks,
}

impl S3Store {
    /// A store in a bucket. No request is sent before the store is used.
    ///
    /// # Errors
    /// `Invalid` if the address cannot be parsed, or the environment has no key.
    pub fn new(settings: S3Settings) -> Result<Self> {
        let [name, key] = &settings.key_variables;
        let variable = |variable: &str| {
            std::env::var(variable).map_err(|_| Error::Invalid {
                what: format!(
                    "the environment variable {variable}, which has the key of bucket {}, is not set",
                    settings.bucket
                ),
            })
        };
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: RETRIES,
            retry_timeout: RETRY_TIME,
        };
        let bucket = AmazonS3Builder::new()
            .with_endpoint(&settings.url)
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_access_key_id(variable(name)?)
            .with_secret_access_key(variable(key)?)
            .with_allow_http(settings.url.starts_with("http://"))
            .with_virtual_hosted_style_request(false)
            .with_retry(retry)
            .with_http_connector(Connector::new()?)
            .build();
        let bucket = bucket.map_err(|error| Error::Invalid {
            what: format!("bucket {} at {}: {error}", settings.bucket, settings.url),
        })?;
        Ok(S3Store { settings, bucket, tasks: StoreTasks::new("femtobarn-s3") })
    }

    fn object(&self, key: &str) -> Result<ObjectPath> {
        check_key(key)?;
        Ok(self.below_prefix(key))
    }

    fn below_prefix(&self, name: &str) -> ObjectPath {
        let prefix = &self.settings.prefix;
        if prefix.is_empty() {
            ObjectPath::from(name)
        } else {
            ObjectPath::from(format!("{prefix}/{name}"))
        }
    }

    /// The error for any failure other than a missing object.
    fn failed(&self, what: &str, key: &str, error: Failure) -> Error {
        let text = format!("cannot {what} {key} in {}: {error}", self.place());
        match error {
            Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. } => {
                Error::Denied { what: text }
            }
            _ => Error::Unavailable { what: text },
        }
    }

    /// The error for a failure with an object. If the bucket lacks the object, it is also asked whether it is the
    /// store.
    async fn lacks(&self, what: &str, key: &str, error: Failure) -> Error {
        if !matches!(error, Failure::NotFound { .. }) {
            return self.failed(what, key, error);
        }
        match self.check_begun().await {
            Ok(_) => no_object(self, key),
            Err(error) => error,
        }
    }

    /// Fails if neither a store's mark nor any other object exists below the prefix. Returns whether the mark exists:
    /// stores that the first releases began have none.
    async fn check_begun(&self) -> Result<bool> {
        match self.bucket.head(&self.below_prefix(MARK)).await {
            Err(Failure::NotFound { .. }) => {}
            // Users who may not list get this answer for missing objects; it must suffice for them.
            Ok(_) | Err(Failure::PermissionDenied { .. }) => return Ok(true),
            Err(error) => return Err(self.failed("look at", MARK, error)),
        }
        match self.bucket.list(self.top().as_ref()).next().await {
            Some(Ok(_)) => Ok(false),
            Some(Err(error)) if !matches!(error, Failure::NotFound { .. }) => {
                Err(self.failed("list", "objects", error))
            }
            _ => {
                let (place, prefix) = (self.place(), &self.settings.prefix);
                let what = format!(
                    "{place} does not exist, or has nothing below {prefix:?}, where a store has {MARK}; are \
                     address, bucket and prefix right?"
                );
                Err(Error::Unavailable { what })
            }
        }
    }

    /// Like [`check_begun`](Self::check_begun), before a change: gives a mark to a store without one, so that it is
    /// still recognised when it is empty.
    async fn check_marked(&self) -> Result<()> {
        if self.check_begun().await? { Ok(()) } else { self.put_mark().await }
    }

    /// Makes sure that the store has a mark.
    async fn mark(&self) -> Result<()> {
        match self.bucket.head(&self.below_prefix(MARK)).await {
            Ok(_) => Ok(()),
            Err(Failure::NotFound { .. } | Failure::PermissionDenied { .. }) => {
                self.put_mark().await
            }
            Err(error) => Err(self.failed("look at", MARK, error)),
        }
    }

    async fn put_mark(&self) -> Result<()> {
        let put = self.bucket.put(&self.below_prefix(MARK), MARK_TEXT.into()).await;
        put.map(drop).map_err(|error| self.failed("write", MARK, error))
    }

    /// The prefix of all objects' names, unless it is empty.
    fn top(&self) -> Option<ObjectPath> {
        let prefix = self.settings.prefix.as_str();
        (!prefix.is_empty()).then(|| ObjectPath::from(prefix))
    }

    /// Runs requests to their end.
    fn run<T>(&self, requests: impl Future<Output = Result<T>>) -> Result<T> {
        self.tasks.runtime()?.block_on(requests)
    }

    async fn look_at(&self, key: &str) -> Result<StoredState> {
        match self.bucket.head(&self.object(key)?).await {
            Ok(found) => Ok(StoredState { size: found.size, ..StoredState::default() }),
            Err(error) => Err(self.lacks("look at", key, error).await),
        }
    }

    /// Sends a file's bytes as an object.
    async fn send(
        &self,
        key: &str,
        from: &Path,
        watch: &mut ByteWatch<'_>,
    ) -> Result<Option<String>> {
        let object = self.object(key)?;
        let cannot_read = |error| Error::io("read", from, error);
        let refused = |error| self.failed("write", key, error);
        let writing = ("writing", key);
        let mut file = File::open(from).map_err(cannot_read)?;
        let size = file.metadata().map_err(cannot_read)?.len();
        let part_bytes = PART_BYTES.max(size.div_ceil(PARTS_MAX));
        watched(self.check_marked(), writing, 0, watch).await??;
        let mut sum = FileSum::default();
        let mut part = next_part(&mut file, part_bytes, &mut sum).map_err(cannot_read)?;
        if (part.len() as u64) < part_bytes {
            let put = self.bucket.put(&object, part.into());
            watched(put, writing, 0, watch).await?.map_err(refused)?;
            return Ok(Some(sum.text()));
        }
        let begun = watched(self.bucket.put_multipart(&object), writing, 0, watch).await?;
        let upload = begun.map_err(refused)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, part_bytes as usize);
        let mut done = 0;
        let sent = async {
            while !part.is_empty() {
                let waiting = upload.wait_for_capacity(PARTS_SENT);
                watched(waiting, writing, done, watch).await?.map_err(refused)?;
                done += part.len() as u64;
                if !watch(done) {
                    return Err(stopped("writing", key));
                }
                upload.put(Bytes::from(part));
                part = next_part(&mut file, part_bytes, &mut sum).map_err(cannot_read)?;
            }
            Ok(())
        };
        // Stored parts cost money. Parts of a writer that was killed, or stopped after it had sent all of them, are
        // left to a lifecycle rule of the bucket.
        if let Err(error) = sent.await {
            let _ = timeout(CLEAN_TIME, upload.abort()).await;
            return Err(error);
        }
        watched(upload.finish(), writing, size, watch).await?.map_err(refused)?;
        Ok(Some(sum.text()))
    }
}

/// The largest gap between ranges that is fetched with them. Requests cost more than bytes, but unwanted bytes must
/// stay below a part of the wanted ones.
fn gap_to_bridge(ranges: &[Range<u64>]) -> u64 {
    let mut ranges: Vec<_> = ranges.iter().collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut gaps: Vec<u64> =
        ranges.windows(2).map(|pair| pair[1].start.saturating_sub(pair[0].end)).collect();
    gaps.sort_unstable();
    let mut unwanted =
        ranges.iter().map(|range| range.end - range.start).sum::<u64>() / UNWANTED_PART;
    let mut largest = 0;
    // All gaps of one size are bridged, or none.
    for same in gaps.chunk_by(|one, other| one == other) {
        let Some(left) = unwanted.checked_sub(same[0].saturating_mul(same.len() as u64)) else {
            break;
        };
        (unwanted, largest) = (left, same[0]);
    }
    largest
}

/// The next bytes of a file, fewer than a part at its end.
fn next_part(file: &mut File, bytes: u64, sum: &mut FileSum) -> std::io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(bytes as usize);
    file.take(bytes).read_to_end(&mut part)?;
    sum.add(&part);
    Ok(part)
}

impl Store for S3Store {
    fn place(&self) -> String {
        format!("bucket {} at {}", self.settings.bucket, self.settings.url)
    }

    fn begin(&self, watch: &mut ByteWatch<'_>) -> Result<()> {
        self.run(async { watched(self.mark(), ("writing", MARK), 0, watch).await? })
    }

    fn put(&self, key: &str, from: &Path, watch: &mut ByteWatch<'_>) -> Result<Option<String>> {
        self.run(self.send(key, from, watch))
    }

    fn get(&self, key: &str, to: &Path, watch: &mut ByteWatch<'_>) -> Result<()> {
        let object = self.object(key)?;
        let size = self.examine(key, 0, watch)?.size;
        let file = File::create_new(to).map_err(|error| Error::io("create", to, error))?;
        let ranges = (0..size.div_ceil(RANGE_BYTES)).map(|number| {
            let first = number * RANGE_BYTES;
            first..first.saturating_add(RANGE_BYTES).min(size)
        });
        let fetched = self.run(async {
            let fetch = |range: Range<u64>| {
                let first = range.start;
                let fetching = self.bucket.get_range(&object, range);
                async move { fetching.await.map(|bytes| (first, bytes)) }
            };
            let mut ranges = stream::iter(ranges).map(fetch).buffer_unordered(RANGES_FETCHED);
            let (mut done, reading) = (0, ("reading", key));
            while let Some(fetched) = watched(ranges.next(), reading, done, watch).await? {
                let (first, bytes) = match fetched {
                    Ok(fetched) => fetched,
                    Err(error) => return Err(self.lacks("read", key, error).await),
                };
                write_piece((to, &file), &bytes, first)?;
                done += bytes.len() as u64;
                if !watch(done) {
                    return Err(stopped("reading", key));
                }
            }
            Ok(())
        });
        or_remove(to, fetched)
    }

    fn read(&self, key: &str, ranges: &mut [ObjectRange<'_>]) -> Result<()> {
        let object = self.object(key)?;
        let wanted: Vec<Range<u64>> = ranges
            .iter()
            .map(|range| range.offset..range.offset.saturating_add(range.buffer.len() as u64))
            .collect();
        // The server truncates a range that ends after the object.
        let (store, place) = (self, &object);
        let fetch = |range: Range<u64>| async move {
            let length = range.end - range.start;
            let limit = READ_TIME + Duration::from_secs(length / READ_RATE);
            let bytes = match timeout(limit, store.bucket.get_range(place, range.clone())).await {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(error)) => return Err(store.lacks("read", key, error).await),
                Err(_) => {
                    let (place, limit) = (store.place(), limit.as_secs());
                    let what = format!("{place} sends no bytes of {key} within {limit} s");
                    return Err(Error::Unavailable { what });
                }
            };
            let is_whole = bytes.len() as u64 == length;
            if is_whole { Ok(bytes) } else { Err(too_short(store, key, range.end)) }
        };
        let read = self.run(coalesce_ranges(&wanted, fetch, gap_to_bridge(&wanted)))?;
        for (range, bytes) in ranges.iter_mut().zip(read) {
            range.buffer.copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn stat(&self, key: &str) -> Result<StoredState> {
        self.run(self.look_at(key))
    }

    fn examine(&self, key: &str, _size: u64, watch: &mut ByteWatch<'_>) -> Result<StoredState> {
        self.run(async { watched(self.look_at(key), ("examining", key), 0, watch).await? })
    }

    fn remove(&self, key: &str, watch: &mut ByteWatch<'_>) -> Result<()> {
        let object = self.object(key)?;
        let removing = async {
            // The server reports success even for an object that never existed.
            self.check_marked().await?;
            match self.bucket.delete(&object).await {
                Ok(()) | Err(Failure::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.failed("remove", key, error)),
            }
        };
        self.run(async { watched(removing, ("removing", key), 0, watch).await? })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let below = &self.settings.prefix;
        let top = self.top();
        let listed = self.run(async {
            self.check_begun().await?;
            let listed = self.bucket.list(top.as_ref()).try_collect::<Vec<_>>().await;
            listed.map_err(|error| self.failed("list", prefix, error))
        })?;
        let mut found = vec![];
        for object in listed {
            let name = object.location.as_ref();
            let key = name.strip_prefix(below.as_str()).unwrap_or(name).trim_start_matches('/');
            if key.starts_with(prefix) && check_key(key).is_ok() {
                found.push((key.to_owned(), object.size));
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_bridged_while_few_bytes_are_unwanted() {
        let ranges = [1000..2000, 2010..3000, 3200..4000, 9000..10_000];
        assert_eq!(gap_to_bridge(&ranges), 200, "758 of 3,790 bytes may be unwanted");
        assert_eq!(gap_to_bridge(&[0..10, 20..30]), 0);
        let strided: Vec<_> = (0..1000).map(|at| at * 200..at * 200 + 100).collect();
        assert_eq!(gap_to_bridge(&strided), 0, "200 of 999 gaps would fit");
        assert_eq!(gap_to_bridge(&[0..10, 5..30, 30..40]), 0);
        assert_eq!(gap_to_bridge(&[]), 0);
    }
}
