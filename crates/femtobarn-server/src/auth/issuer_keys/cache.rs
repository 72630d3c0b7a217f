//! The keys that were fetched last: how long they are used, and when they are fetched again. Without I/O and clocks.
//!
//! 1. Keys are fetched again after the time for which their issuer allows to cache them, within [`RENEWAL_MIN`] and
//!    [`RENEWAL_MAX`]; after [`RETRY`] if that failed; and for an unknown key, if the last fetch began at least
//!    [`RETRY`] ago.
//! 2. Keys that cannot be fetched again are used for [`USE_MAX`] after they were fetched; then there are none.
//!
//! Source: "WLCG Common JWT Profiles" 1.2, section 4.3.1.

use std::time::{Duration, Instant};

use jsonwebtoken::jwk::Jwk;

use super::key_set::WantedKey;

/// The shortest and the longest time for which keys are used before they are fetched again, whatever their issuer
/// allows.
const RENEWAL_MIN: Duration = Duration::from_secs(3600);
const RENEWAL_MAX: Duration = Duration::from_secs(6 * 3600);
/// The time from the beginning of a fetch to that of the next one, after a failure or for an unknown key.
const RETRY: Duration = Duration::from_secs(60);
/// The longest use of keys after they were fetched.
const USE_MAX: Duration = Duration::from_secs(2 * 24 * 3600);

/// An issuer's answer.
pub(super) struct FetchedKeySet {
    pub keys: Vec<Jwk>,
    /// How long the issuer allows to cache the keys, if stated.
    pub max_age: Option<Duration>,
}

/// The keys of an issuer.
pub(super) struct KeyCache {
    keys: Vec<Jwk>,
    /// When the keys were fetched.
    fetched: Option<Instant>,
    /// When the last fetch began.
    begun: Option<Instant>,
    is_fetching: bool,
    /// When the next one is to begin.
    due: Instant,
}

impl KeyCache {
    /// No keys, to be fetched at once.
    pub(super) fn new(now: Instant) -> Self {
        KeyCache { keys: vec![], fetched: None, begun: None, is_fetching: false, due: now }
    }

    /// A key.
    pub(super) fn find(&self, wanted: &WantedKey<'_>, now: Instant) -> Result<Jwk, String> {
        if self.fetched.is_none_or(|fetched| now >= fetched + USE_MAX) {
            let what = "the keys of its issuer could not be fetched; the server's log says why";
            return Err(what.to_owned());
        }
        wanted.among(&self.keys).cloned().ok_or_else(|| wanted.unknown())
    }

    /// Requests a fetch as soon as it is allowed, for a key that is missing. Returns whether keys are being fetched
    /// now, so that waiting may help.
    pub(super) fn want(&mut self, now: Instant) -> bool {
        let earliest = self.begun.map_or(now, |begun| begun + RETRY);
        self.due = self.due.min(earliest);
        self.is_fetching || self.due <= now
    }

    /// Requests a fetch now.
    pub(super) fn renew(&mut self, now: Instant) {
        self.due = now;
    }

    /// The time to the next fetch.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// A fetch begins.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.begun, self.is_fetching) = (Some(now), true);
        // Clients that look for keys from now on get these, or wait.
        self.due = now + RENEWAL_MAX;
    }

    /// A fetch has ended.
    pub(super) fn end(&mut self, outcome: Result<FetchedKeySet, String>, now: Instant) {
        self.is_fetching = false;
        let begun = self.begun.unwrap_or(now);
        let next = match outcome {
            Ok(found) => {
                (self.keys, self.fetched) = (found.keys, Some(now));
                let age = found.max_age.unwrap_or(RENEWAL_MAX);
                now + age.clamp(RENEWAL_MIN, RENEWAL_MAX)
            }
            Err(_) => begun + RETRY,
        };
        self.due = self.due.min(next).max(begun + RETRY);
    }
}

#[cfg(test)]
mod tests {
    use femtobarn_catalog::clock;
    use jsonwebtoken::Algorithm;

    use super::*;
    use crate::auth::issuer_keys::key_set::parsed;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn keys(id: &str, max_age: Option<u64>) -> Result<FetchedKeySet, String> {
        let text = format!(
            r#"{{"keys": [{{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "{id}"}}]}}"#
        );
        Ok(FetchedKeySet {
            keys: parsed(text.as_bytes())?,
            max_age: max_age.map(Duration::from_secs),
        })
    }

    fn has(cache: &KeyCache, id: &str, now: Instant) -> bool {
        let wanted = WantedKey { id: Some(id), algorithm: Algorithm::ES256 };
        cache.find(&wanted, now).is_ok()
    }

    /// A cache whose keys were fetched at this time.
    fn fetched(now: Instant, max_age: Option<u64>) -> KeyCache {
        let mut cache = KeyCache::new(now);
        assert_eq!(cache.wait(now), Duration::ZERO);
        cache.begin(now);
        cache.end(keys("a", max_age), now);
        cache
    }

    #[test]
    fn keys_are_renewed_at_the_age_set_by_their_issuer_within_bounds() {
        let now = clock::now();
        for (max_age, hours) in
            [(None, 6), (Some(0), 1), (Some(7200), 2), (Some(1_000_000), 6), (Some(u64::MAX), 6)]
        {
            let wait = fetched(now, max_age).wait(now);
            assert_eq!(wait, hours * HOUR, "{max_age:?}");
        }
    }

    #[test]
    fn an_unknown_key_is_fetched_once_a_minute_at_most() {
        let start = clock::now();
        let mut cache = fetched(start, None);
        let soon = start + 10 * SECOND;
        assert!(!cache.want(soon) && !cache.want(soon), "nobody waits for the next minute");
        assert_eq!(cache.wait(soon), 50 * SECOND);
        let later = start + 60 * SECOND;
        assert!(cache.want(later), "it is fetched now");
        cache.begin(later);
        assert!(cache.want(later + SECOND), "others wait for the same fetch");
        cache.end(keys("b", None), later + 2 * SECOND);
        assert!(has(&cache, "b", later + 2 * SECOND) && !has(&cache, "a", later + 2 * SECOND));
        assert_eq!(cache.wait(later + 2 * SECOND), 58 * SECOND, "for who wanted it meanwhile");
    }

    #[test]
    fn old_keys_are_used_for_two_days_while_there_are_no_new_ones() {
        let start = clock::now();
        let mut cache = fetched(start, None);
        let mut now = start + 6 * HOUR;
        assert_eq!(cache.wait(now), Duration::ZERO);
        while now < start + 47 * HOUR {
            cache.begin(now);
            cache.end(Err("down".to_owned()), now + 15 * SECOND);
            assert_eq!(cache.wait(now + 15 * SECOND), 45 * SECOND, "it is tried once a minute");
            assert!(has(&cache, "a", now));
            now += HOUR;
        }
        assert!(has(&cache, "a", start + 48 * HOUR - SECOND));
        assert!(!has(&cache, "a", start + 48 * HOUR));
        cache.renew(now);
        assert_eq!(cache.wait(now), Duration::ZERO);
        cache.begin(now);
        cache.end(keys("a", None), now);
        assert!(has(&cache, "a", now));
    }
}
