//! Pages that are fetched together.

use std::ops::Range;

use super::pages::PAGE_BYTES;
use crate::physical::fetch::Fetch;

/// The most pages of one fetch; no fetch crosses a multiple of this.
const FETCH_PAGES: u64 = 256;

/// Pages as fetches.
pub(super) fn parts(pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut next = pages.start;
    std::iter::from_fn(move || {
        let start = next;
        next = ((start / FETCH_PAGES + 1) * FETCH_PAGES).min(pages.end);
        (start < pages.end).then_some(start..next)
    })
}

/// The fetch of these pages.
pub(super) fn fetch_of(pages: Range<u64>) -> Fetch {
    Fetch::new(pages.start * PAGE_BYTES..pages.end * PAGE_BYTES)
}

/// The pages of a fetch.
pub(super) fn pages_in(fetch: &Fetch) -> Range<u64> {
    fetch.range.start / PAGE_BYTES..fetch.range.end / PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_at_multiples() {
        let all = |pages| parts(pages).collect::<Vec<_>>();
        assert_eq!(all(3..5), [3..5]);
        assert_eq!(all(200..600), [200..256, 256..512, 512..600]);
        assert_eq!(all(256..512), [256..512]);
        assert!(all(7..7).is_empty());
    }
}
