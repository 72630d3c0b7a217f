//! The state that the routes share: the federation, its parts in memory, and the order of writes.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use femtobarn::{Csn, ErrorKind, Federation, Result, Transaction, TransactionOptions};
use parking_lot::Mutex;

use super::answers::{JsonText, failed};
use super::overview::TagOverview;
use super::pending_iovs::PendingIovs;
use super::resolved_tags::{ResolvedTag, ResolvedTags};
use crate::http::blocking;
use crate::series_tables::SeriesTables;

/// Attempts at a write that conflicts with other processes' commits.
const ATTEMPTS: usize = 5;

/// The conditions of a federation as nopayloaddb shows them.
pub(super) struct PayloadService {
    pub federation: Federation,
    tables: Arc<SeriesTables>,
    /// The global tags that jobs ask for.
    pub tags: ResolvedTags,
    /// IOVs that are not yet in a list.
    pub pending: PendingIovs,
    overview: Mutex<Option<Arc<TagOverview>>>,
    /// Held by the request that writes.
    writing: Mutex<()>,
}

pub(super) type SharedService = State<Arc<PayloadService>>;

impl PayloadService {
    pub(super) fn new(tables: Arc<SeriesTables>) -> Self {
        PayloadService {
            federation: tables.federation().clone(),
            tables,
            tags: ResolvedTags::default(),
            pending: PendingIovs::default(),
            overview: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// Answers a request that reads, on a thread where waiting for a disk delays no other connection.
    pub(super) async fn read(
        self: Arc<Self>,
        make: impl FnOnce(&Self) -> Result<JsonText> + Send + 'static,
    ) -> Response {
        match blocking(move || make(&self)).await {
            Ok(answer) => answer.into_response(),
            Err(error) => failed(&error),
        }
    }

    /// Answers a request that writes: `change` fills a transaction, and is called again after a conflict with another
    /// process.
    pub(super) async fn write<T>(
        self: Arc<Self>,
        message: String,
        change: impl Fn(&Self, &TagOverview, &mut Transaction) -> Result<T> + Send + 'static,
        answer: impl FnOnce(&Self, T) -> Result<JsonText> + Send + 'static,
    ) -> Response {
        self.read(move |service| {
            let _writing = service.writing.lock();
            let mut attempt = 1;
            loop {
                match service.try_to_write(&message, &change) {
                    Err(error) if error.kind() == ErrorKind::Conflict && attempt < ATTEMPTS => {
                        attempt += 1
                    }
                    done => return answer(service, done?),
                }
            }
        })
        .await
    }

    fn try_to_write<T>(
        &self,
        message: &str,
        change: impl Fn(&Self, &TagOverview, &mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let overview = self.overview()?;
        let options = TransactionOptions { message: message.to_owned(), ..Default::default() };
        let mut transaction = self.federation.transaction(options)?;
        let done = change(self, &overview, &mut transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    /// All tags, types and lists as of the newest commit.
    pub(super) fn overview(&self) -> Result<Arc<TagOverview>> {
        let head = self.federation.head()?;
        let mut kept = self.overview.lock();
        if let Some(overview) = kept.as_ref().filter(|it| it.csn >= head) {
            return Ok(overview.clone());
        }
        let overview = Arc::new(TagOverview::read(&self.tables, kept.as_deref())?);
        *kept = Some(overview.clone());
        Ok(overview)
    }

    /// The lists of a tag as of the newest commit.
    pub(super) fn resolved(&self, tag: &str) -> Result<Arc<ResolvedTag>> {
        let overview = self.overview()?;
        self.tags.find(&self.federation, &overview, tag)
    }

    /// The lists of a tag as of the newest commit, if they are resolved. Only the number of that commit is read, from
    /// memory that SQLite shares with writers and from pages that the kernel has cached since they were written.
    pub(super) fn known(&self, tag: &String) -> Option<Arc<ResolvedTag>> {
        self.tags.known(self.federation.head().ok()?, tag)
    }

    /// The time of a commit; `None` if it is unknown.
    pub(super) fn time_of(&self, csn: Csn) -> Option<i64> {
        self.federation.catalog().commit_by_csn(csn).ok().map(|commit| commit.time_us)
    }
}
