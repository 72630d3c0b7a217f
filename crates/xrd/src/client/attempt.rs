//! What becomes of an operation after trouble: where, and after which wait, it is tried again.
//!
//! Without I/O: time is an argument, and the caller waits and tries again.
//!
//! 1. One deadline covers all waits, redirects and reconnections of an operation, and a nearer one
//!    begins when the server went away.
//! 2. At most 16 redirects are followed.
//! 3. If a server that was redirected to has not what it should, or cannot be reached, the one that
//!    redirected is asked again, and told who was tried.

use std::time::{Duration, Instant};

use super::error::{ClientError, Result};
use super::failure::AttemptError;
use super::options::Options;
use super::url::{Endpoint, Url};
use crate::codes::ErrorCode;
use crate::location::Location;
use crate::response::Redirect;

/// Redirects that one operation follows.
const REDIRECTS_MAX: usize = 16;
/// How long to wait before a server is tried again; doubled each time.
const DELAY_MIN: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(5);

/// An operation that is being tried.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// Where it is tried.
    pub server: Endpoint,
    /// Whether TLS is asked for there.
    pub wants_tls: bool,
    /// What a redirect gave to be told at the login.
    pub told: Option<String>,
    /// What was asked for at first.
    path: Location,
    /// What redirects added to the path.
    added: Vec<String>,
    user: String,
    deadline: Instant,
    reconnect_timeout: Duration,
    /// When the server went away.
    lost: Option<Instant>,
    /// Whether it may be done again if it is not known whether it was done.
    may_repeat: bool,
    /// Servers that redirected, the newest last.
    redirectors: Vec<Endpoint>,
    redirects: usize,
    tried: Vec<String>,
    delay: Duration,
}

impl Attempt {
    pub fn new(url: &Url, path: Location, user: String, options: &Options, now: Instant) -> Self {
        Attempt {
            server: url.server.clone(),
            wants_tls: url.wants_tls,
            told: None,
            path,
            added: Vec::new(),
            user,
            deadline: now + options.patience,
            reconnect_timeout: options.reconnect_timeout,
            lost: None,
            may_repeat: true,
            redirectors: Vec::new(),
            redirects: 0,
            tried: Vec::new(),
            delay: DELAY_MIN,
        }
    }

    /// For what must not be done twice.
    pub fn once(self) -> Self {
        Attempt { may_repeat: false, ..self }
    }

    /// The path as this server is to be asked for it.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if redirects made it too long.
    pub fn location(&self) -> Result<Location> {
        let mut opaque = self.added.clone();
        if !self.tried.is_empty() {
            opaque.push(format!("tried={}", self.tried.join(",")));
        }
        if opaque.is_empty() {
            return Ok(self.path.clone());
        }
        let separator = if self.path.opaque().is_some() { "&" } else { "?" };
        let text =
            [self.path.as_bytes(), separator.as_bytes(), opaque.join("&").as_bytes()].concat();
        Location::new(text).map_err(|error| ClientError::Invalid { what: error.to_string() })
    }

    /// The error that this trouble is, if nothing is tried any more.
    pub fn error(&self, trouble: AttemptError) -> ClientError {
        let path = self.path.path().escape_ascii().to_string();
        trouble.into_error(&self.server, &path, &self.user)
    }

    /// What to do after trouble: to try again after so long.
    ///
    /// # Errors
    /// If there is nothing to be done about it.
    pub fn after(&mut self, trouble: AttemptError, now: Instant) -> Result<Duration> {
        match trouble {
            AttemptError::Redirect(redirect) => self.redirected(redirect),
            AttemptError::Wait(ref wait) => {
                self.lost = None;
                let after = Duration::from_secs(wait.seconds.into());
                self.again(after, trouble, now, self.deadline)
            }
            AttemptError::Lost(_) if !self.may_repeat => Err(self.error(trouble)),
            AttemptError::Lost(_) | AttemptError::Unreachable(_) => match self.back() {
                Some(next) => Ok(next),
                None => {
                    let since = *self.lost.get_or_insert(now);
                    let until = self.deadline.min(since + self.reconnect_timeout);
                    let after = self.delay;
                    self.delay = (self.delay * 2).min(DELAY_MAX);
                    self.again(after, trouble, now, until)
                }
            },
            AttemptError::Failure(ref failure) if may_be_elsewhere(failure.code) => {
                self.back().ok_or_else(|| self.error(trouble))
            }
            other => Err(self.error(other)),
        }
    }

    /// The same server, if there is time.
    fn again(
        &self,
        after: Duration,
        trouble: AttemptError,
        now: Instant,
        until: Instant,
    ) -> Result<Duration> {
        match now + after >= until {
            true => Err(self.error(trouble)),
            false => Ok(after),
        }
    }

    fn redirected(&mut self, redirect: Redirect) -> Result<Duration> {
        self.redirects += 1;
        if self.redirects > REDIRECTS_MAX {
            return Err(self.error(AttemptError::Redirect(redirect)));
        }
        let (server, wants_tls, added, told) = match target(&redirect, self.wants_tls) {
            Some(target) => target,
            None => return Err(self.error(AttemptError::Redirect(redirect))),
        };
        self.redirectors.push(std::mem::replace(&mut self.server, server));
        (self.wants_tls, self.told) = (wants_tls, told);
        self.added = added.into_iter().collect();
        Ok(Duration::ZERO)
    }

    /// Back to the server that redirected here, which shall name another one.
    fn back(&mut self) -> Option<Duration> {
        let redirector = self.redirectors.pop()?;
        let failed = std::mem::replace(&mut self.server, redirector);
        if self.redirects >= REDIRECTS_MAX {
            self.server = failed;
            return None;
        }
        self.tried.push(failed.host);
        self.added.clear();
        Some(Duration::ZERO)
    }
}

/// Where a redirect leads, whether TLS is wanted there, and what it adds to path and login.
type Target = (Endpoint, bool, Option<String>, Option<String>);

fn target(redirect: &Redirect, wants_tls: bool) -> Option<Target> {
    match redirect {
        Redirect::Host { port, .. } => {
            let (host, added, told) = redirect.parts();
            let owned = |part: Option<&str>| {
                let text = part?.trim_matches('&');
                (!text.is_empty()).then(|| text.to_owned())
            };
            Some((Endpoint::of_redirect(host, *port)?, wants_tls, owned(added), owned(told)))
        }
        Redirect::Url { url, .. } => {
            let url = Url::parse(url).ok()?;
            let opaque = url.location.opaque().map(|it| String::from_utf8_lossy(it).into_owned());
            Some((url.server, url.wants_tls || wants_tls, opaque, None))
        }
    }
}

/// Whether another server may have what this one has not.
fn may_be_elsewhere(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NOT_FOUND | ErrorCode::IO_ERROR | ErrorCode::FS_ERROR)
        || matches!(code, ErrorCode::SERVER_ERROR | ErrorCode::OVERLOADED | ErrorCode::NO_SERVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::{Failure, Wait};

    fn attempt(now: Instant) -> Attempt {
        let url = Url::parse("root://manager:1//f?x=1").unwrap();
        let options = Options { patience: Duration::from_secs(60), ..Options::default() };
        let options = Options { reconnect_timeout: Duration::from_secs(9), ..options };
        Attempt::new(&url, url.location.clone(), "ann".into(), &options, now)
    }

    fn redirect(host: &str) -> AttemptError {
        AttemptError::Redirect(Redirect::Host { port: 2, host: host.into() })
    }

    #[test]
    fn a_redirect_adds_to_the_path_and_who_was_tried_is_told() {
        let now = Instant::now();
        let mut attempt = attempt(now);
        attempt.after(redirect("data?&cache=1?who=x"), now).unwrap();
        assert_eq!(attempt.server.to_string(), "data:2");
        assert_eq!(attempt.told.as_deref(), Some("who=x"));
        assert_eq!(attempt.location().unwrap().as_bytes(), b"/f?x=1&cache=1");

        let missing = || AttemptError::Failure(Failure::new(ErrorCode::NOT_FOUND, "no"));
        attempt.after(missing(), now).unwrap();
        assert_eq!(attempt.server.to_string(), "manager:1");
        assert_eq!(attempt.location().unwrap().as_bytes(), b"/f?x=1&tried=data");
        let error = attempt.after(missing(), now).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::NOT_FOUND));
    }

    #[test]
    fn redirects_in_a_circle_end() {
        let now = Instant::now();
        let mut attempt = attempt(now);
        for _ in 0..REDIRECTS_MAX {
            attempt.after(redirect("other"), now).unwrap();
        }
        assert!(attempt.after(redirect("other"), now).is_err());
    }

    #[test]
    fn waits_are_bounded_together() {
        let now = Instant::now();
        let mut attempt = attempt(now);
        let wait = |seconds| AttemptError::Wait(Wait { seconds, message: String::new() });
        let next = attempt.after(wait(7), now).unwrap();
        assert_eq!(next, Duration::from_secs(7));
        assert!(attempt.after(wait(7), now + Duration::from_secs(55)).is_err());
    }

    #[test]
    fn a_server_that_went_away_is_waited_for_less_long() {
        let now = Instant::now();
        let mut attempt = attempt(now);
        let gone = || AttemptError::Unreachable("refused".into());
        let first = attempt.after(gone(), now).unwrap();
        let second = attempt.after(gone(), now + first).unwrap();
        assert!(second > first, "with growing pauses");
        assert!(attempt.after(gone(), now + Duration::from_secs(9)).is_err());
    }

    #[test]
    fn a_server_that_is_not_trusted_is_not_tried_again() {
        let now = Instant::now();
        let error = attempt(now).after(AttemptError::Distrust("expired".into()), now).unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }));
    }

    #[test]
    fn what_must_not_be_done_twice_is_not() {
        let now = Instant::now();
        let mut attempt = attempt(now).once();
        assert!(
            attempt.after(AttemptError::Unreachable("no".into()), now).is_ok(),
            "nothing was sent"
        );
        let error = attempt.after(AttemptError::Lost("gone".into()), now).unwrap_err();
        assert!(matches!(error, ClientError::Lost { .. }));
    }
}
