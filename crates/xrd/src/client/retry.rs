//! Redirects and retries of one operation: whether, where and when the next attempt is made.
//!
//! A state machine without I/O: time is an argument, and the caller waits and makes the attempt.
//!
//! 1. One deadline covers all waits and reconnections of an operation: no attempt is planned after it. A second,
//!    nearer one starts when the server becomes unreachable.
//! 2. At most 16 redirects are followed, at once and whatever the deadline.
//! 3. If the target of a redirect lacks the file or cannot be reached, the next attempt goes to the
//!    redirector, with the failed hosts in `tried=`.
//! 4. After [`RetryState::without_repeat`] a request is not sent again if the server may have executed it.

use std::time::{Duration, Instant};

use super::attempt_error::AttemptError;
use super::endpoint::Endpoint;
use super::error::{ClientError, Result};
use super::options::Options;
use super::url::Url;
use crate::codes::ErrorCode;
use crate::location::Location;
use crate::response::Redirect;

/// Redirects that one operation follows.
const REDIRECTS_MAX: usize = 16;
/// The delay before the first reconnection; each further one doubles it.
const DELAY_MIN: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(5);

/// The state of an operation between its attempts.
#[derive(Clone, Debug)]
pub(super) struct RetryState {
    /// The server of the next attempt.
    pub server: Endpoint,
    /// Whether the connection to that server must be encrypted.
    pub wants_tls: bool,
    /// The opaque information that the last redirect adds to the login.
    pub login_opaque: Option<String>,
    /// The location that the caller gave.
    path: Location,
    /// The opaque information that the last redirect adds to the location.
    redirect_opaque: Option<String>,
    user: String,
    deadline: Instant,
    reconnect_timeout: Duration,
    /// When the server became unreachable.
    lost_since: Option<Instant>,
    /// Whether a request that the server may have executed may be sent again.
    may_repeat: bool,
    /// Servers that redirected, the newest last.
    redirectors: Vec<Endpoint>,
    redirects: usize,
    tried: Vec<String>,
    delay: Duration,
}

impl RetryState {
    pub(super) fn new(
        url: &Url,
        path: Location,
        user: String,
        options: &Options,
        now: Instant,
    ) -> Self {
        RetryState {
            server: url.server.clone(),
            wants_tls: url.wants_tls,
            login_opaque: None,
            path,
            redirect_opaque: None,
            user,
            deadline: now + options.patience,
            reconnect_timeout: options.reconnect_timeout,
            lost_since: None,
            may_repeat: true,
            redirectors: Vec::new(),
            redirects: 0,
            tried: Vec::new(),
            delay: DELAY_MIN,
        }
    }

    /// Forbids a second attempt once the server may have executed the request.
    pub(super) fn without_repeat(self) -> Self {
        RetryState { may_repeat: false, ..self }
    }

    /// The location of the next attempt, with the opaque information of redirects.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if redirects made it too long.
    pub(super) fn location(&self) -> Result<Location> {
        let mut opaque: Vec<String> = self.redirect_opaque.iter().cloned().collect();
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

    /// The error that callers see if no further attempt is made.
    pub(super) fn client_error(&self, error: AttemptError) -> ClientError {
        let path = self.path.path().escape_ascii().to_string();
        error.into_error(&self.server, &path, &self.user)
    }

    /// Decides about the next attempt after a failed one: it is made at [`RetryState::server`] after the
    /// returned delay.
    ///
    /// # Errors
    /// `error` as a [`ClientError`] if no attempt may follow.
    pub(super) fn delay_after(&mut self, error: AttemptError, now: Instant) -> Result<Duration> {
        match error {
            AttemptError::Redirect(redirect) => self.follow(redirect),
            AttemptError::Wait(ref wait) => {
                self.lost_since = None;
                let after = Duration::from_secs(wait.seconds.into());
                self.delay_until(after, error, now, self.deadline)
            }
            AttemptError::Lost(_) if !self.may_repeat => Err(self.client_error(error)),
            AttemptError::Lost(_) | AttemptError::Unreachable(_) => {
                match self.return_to_redirector() {
                    Some(next) => Ok(next),
                    None => {
                        let since = *self.lost_since.get_or_insert(now);
                        let until = self.deadline.min(since + self.reconnect_timeout);
                        let after = self.delay;
                        self.delay = (self.delay * 2).min(DELAY_MAX);
                        self.delay_until(after, error, now, until)
                    }
                }
            }
            AttemptError::Failure(ref failure) if may_be_elsewhere(failure.code) => {
                self.return_to_redirector().ok_or_else(|| self.client_error(error))
            }
            other => Err(self.client_error(other)),
        }
    }

    /// The delay before the next attempt at the same server, if that attempt is made before `until`.
    fn delay_until(
        &self,
        after: Duration,
        error: AttemptError,
        now: Instant,
        until: Instant,
    ) -> Result<Duration> {
        if now + after >= until { Err(self.client_error(error)) } else { Ok(after) }
    }

    fn follow(&mut self, redirect: Redirect) -> Result<Duration> {
        self.redirects += 1;
        if self.redirects > REDIRECTS_MAX {
            return Err(self.client_error(AttemptError::Redirect(redirect)));
        }
        let Some(target) = RedirectTarget::new(&redirect) else {
            return Err(self.client_error(AttemptError::Redirect(redirect)));
        };
        self.redirectors.push(std::mem::replace(&mut self.server, target.server));
        self.wants_tls |= target.wants_tls;
        self.login_opaque = target.login_opaque;
        self.redirect_opaque = target.path_opaque;
        // Another server: its first outage is its own.
        self.lost_since = None;
        self.delay = DELAY_MIN;
        Ok(Duration::ZERO)
    }

    /// Makes the server that redirected to this one the next, so that it names another target. `None` if no server
    /// redirected here, or the redirects are used up.
    fn return_to_redirector(&mut self) -> Option<Duration> {
        let redirector = self.redirectors.pop()?;
        let failed = std::mem::replace(&mut self.server, redirector);
        if self.redirects >= REDIRECTS_MAX {
            self.server = failed;
            return None;
        }
        self.tried.push(failed.host);
        // Both were meant for the server that failed.
        self.redirect_opaque = None;
        self.login_opaque = None;
        Some(Duration::ZERO)
    }
}

/// The parts of a redirect.
struct RedirectTarget {
    server: Endpoint,
    /// Whether the redirect asks for TLS.
    wants_tls: bool,
    /// Opaque information for the location.
    path_opaque: Option<String>,
    /// Opaque information for the login.
    login_opaque: Option<String>,
}

impl RedirectTarget {
    /// `None` if the redirect names no server.
    fn new(redirect: &Redirect) -> Option<Self> {
        match redirect {
            Redirect::Host { port, .. } => {
                let (host, path_opaque, login_opaque) = redirect.parts();
                let owned = |part: Option<&str>| {
                    let text = part?.trim_matches('&');
                    (!text.is_empty()).then(|| text.to_owned())
                };
                Some(RedirectTarget {
                    server: Endpoint::of_redirect(host, *port)?,
                    wants_tls: false,
                    path_opaque: owned(path_opaque),
                    login_opaque: owned(login_opaque),
                })
            }
            Redirect::Url { url, .. } => {
                let Url { wants_tls, server, location, .. } = Url::parse(url).ok()?;
                let path_opaque =
                    location.opaque().map(|it| String::from_utf8_lossy(it).into_owned());
                Some(RedirectTarget { server, wants_tls, path_opaque, login_opaque: None })
            }
        }
    }
}

/// Whether a refusal with this code is worth an attempt at another server.
fn may_be_elsewhere(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NOT_FOUND | ErrorCode::IO_ERROR | ErrorCode::FS_ERROR)
        || matches!(code, ErrorCode::SERVER_ERROR | ErrorCode::OVERLOADED | ErrorCode::NO_SERVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::{Failure, Wait};

    fn retry(now: Instant) -> RetryState {
        let url = Url::parse("root://manager:1//f?x=1").unwrap();
        let options = Options { patience: Duration::from_secs(60), ..Options::default() };
        let options = Options { reconnect_timeout: Duration::from_secs(9), ..options };
        RetryState::new(&url, url.location.clone(), "ann".into(), &options, now)
    }

    fn redirect(host: &str) -> AttemptError {
        AttemptError::Redirect(Redirect::Host { port: 2, host: host.into() })
    }

    #[test]
    fn redirects_add_opaque_information_and_name_the_servers_that_failed() {
        let now = Instant::now();
        let mut retry = retry(now);
        retry.delay_after(redirect("data?&cache=1?who=x"), now).unwrap();
        assert_eq!(retry.server.to_string(), "data:2");
        assert_eq!(retry.login_opaque.as_deref(), Some("who=x"));
        assert_eq!(retry.location().unwrap().as_bytes(), b"/f?x=1&cache=1");

        let missing = || AttemptError::Failure(Failure::new(ErrorCode::NOT_FOUND, "no"));
        retry.delay_after(missing(), now).unwrap();
        assert_eq!(retry.server.to_string(), "manager:1");
        assert_eq!(retry.location().unwrap().as_bytes(), b"/f?x=1&tried=data");
        assert_eq!(retry.login_opaque, None, "the value was for the server that failed");
        let error = retry.delay_after(missing(), now).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::NOT_FOUND));
    }

    #[test]
    fn redirects_fail_after_the_maximum_number() {
        let now = Instant::now();
        let mut retry = retry(now);
        for _ in 0..REDIRECTS_MAX {
            retry.delay_after(redirect("other"), now).unwrap();
        }
        assert!(retry.delay_after(redirect("other"), now).is_err());
    }

    #[test]
    fn waits_fail_when_they_would_exceed_the_deadline_together() {
        let now = Instant::now();
        let mut retry = retry(now);
        let wait = |seconds| AttemptError::Wait(Wait { seconds, message: String::new() });
        let next = retry.delay_after(wait(7), now).unwrap();
        assert_eq!(next, Duration::from_secs(7));
        assert!(retry.delay_after(wait(7), now + Duration::from_secs(55)).is_err());
    }

    #[test]
    fn reconnection_fails_after_its_own_timeout_with_growing_delays() {
        let now = Instant::now();
        let mut retry = retry(now);
        let gone = || AttemptError::Unreachable("refused".into());
        let first = retry.delay_after(gone(), now).unwrap();
        let second = retry.delay_after(gone(), now + first).unwrap();
        assert!(second > first, "the delay grows");
        assert!(retry.delay_after(gone(), now + Duration::from_secs(9)).is_err());
    }

    #[test]
    fn a_server_after_a_redirect_has_a_reconnection_timeout_of_its_own() {
        let now = Instant::now();
        let mut retry = retry(now);
        let gone = || AttemptError::Unreachable("refused".into());
        let first = retry.delay_after(gone(), now).unwrap();
        retry.delay_after(redirect("data"), now + Duration::from_secs(8)).unwrap();
        // Back to the manager, which cannot be reached 8 s after its first outage ended.
        retry.delay_after(gone(), now + Duration::from_secs(8)).unwrap();
        let again = retry.delay_after(gone(), now + Duration::from_secs(10)).unwrap();
        assert_eq!(again, first);
    }

    #[test]
    fn an_untrusted_server_gets_no_second_attempt() {
        let now = Instant::now();
        let error =
            retry(now).delay_after(AttemptError::Distrust("expired".into()), now).unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }));
    }

    #[test]
    fn a_request_without_repeat_fails_once_it_may_have_been_executed() {
        let now = Instant::now();
        let mut retry = retry(now).without_repeat();
        assert!(
            retry.delay_after(AttemptError::Unreachable("no".into()), now).is_ok(),
            "nothing was sent"
        );
        let error = retry.delay_after(AttemptError::Lost("gone".into()), now).unwrap_err();
        assert!(matches!(error, ClientError::Lost { .. }));
    }
}
