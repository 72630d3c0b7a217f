//! The pages that never change, kept by their addresses.

use std::sync::Arc;

use axum::response::Response;
use femtobarn::Result;
use http::{HeaderMap, Uri};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::answers::{Coding, Page, failed};
use super::blocking;

/// Pages within a budget of bytes.
pub(super) struct LastingPages {
    cache: Cache<String, Arc<Page>, LastingPageWeight>,
}

#[derive(Clone)]
struct LastingPageWeight;

impl Weighter<String, Arc<Page>> for LastingPageWeight {
    fn weight(&self, address: &String, page: &Arc<Page>) -> u64 {
        address.len() as u64 + page.weight()
    }
}

impl LastingPages {
    pub(super) fn new(bytes_max: u64) -> Self {
        /// Bytes of a typical page.
        const USUAL_BYTES: u64 = 64 << 10;
        let items = (bytes_max / USUAL_BYTES) as usize;
        LastingPages { cache: Cache::with_weighter(items, bytes_max, LastingPageWeight) }
    }

    /// The response with the page at an address, which `make` makes if it is not kept.
    pub(super) async fn answer(
        &self,
        address: &Uri,
        request: &HeaderMap,
        make: impl FnOnce() -> Result<Page> + Send + 'static,
    ) -> Response {
        let address = address.path_and_query().map_or("/", |it| it.as_str());
        match self.find(address, Coding::of(request), make).await {
            Ok(page) => page.for_ever(request),
            Err(error) => failed(&error),
        }
    }

    /// The page at an address, with its body in a coding.
    pub(super) async fn find(
        &self,
        address: &str,
        coding: Coding,
        make: impl FnOnce() -> Result<Page> + Send + 'static,
    ) -> Result<Arc<Page>> {
        let made = async { blocking(make).await.map(Arc::new) };
        let page = self.cache.get_or_insert_async(address, made).await?;
        if !page.has(coding) {
            let page = page.clone();
            let encode = move || {
                page.encode(coding);
                Ok(())
            };
            blocking(encode).await?;
        }
        Ok(page)
    }
}
