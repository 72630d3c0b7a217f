//! Single calls. A call that was not answered is sent again where that does no harm.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::{Commit, Csn, Error, ErrorKind, Result, clock, interrupts};
use prost::Message;
use tonic::{Response, Status};

use super::failure::{CallFailure, classify, reason};
use super::session::RemoteSession;
use crate::convert::refusal;
use crate::v1::failure::Of;
use crate::v1::question::Of as Asked;
use crate::v1::{
    Answer, ChangeReply, ChangeRequest, ListLocksReply, ListLocksRequest, PublishRequest, Question,
    Survey, Transaction, change_request,
};

/// The pause before a call is sent again.
const PAUSE: Duration = Duration::from_millis(50);
/// The pause before a large commit is sent again after the client was refused: tokens are renewed seldom.
const PAUSE_AFTER_DENIAL: Duration = Duration::from_secs(1);
/// Bytes of the largest answer that is cached.
const CACHED_BYTES_MAX: usize = 64 << 10;

/// Why one attempt of a call has no answer.
enum AttemptFailure {
    /// The server refused it.
    Refused(Error),
    /// The server does not know the session, which must be opened again.
    NoSession,
    /// The server refused the client's token and has not carried out the call. The client has found another token and
    /// gives up the connection that was opened with the first one: the session is opened again, and may lose locks.
    OtherToken,
    /// The connection failed, and it is not known whether the server carried out the call.
    Lost(String),
    /// The server is not trusted, so the call was not sent.
    Untrusted(String),
}

impl From<Status> for AttemptFailure {
    fn from(status: Status) -> Self {
        match refusal(&status) {
            Some(failure) if matches!(failure.of, Some(Of::NoSession(_))) => {
                AttemptFailure::NoSession
            }
            Some(failure) => AttemptFailure::Refused(failure.into()),
            None if classify(&status) == CallFailure::Untrusted => {
                AttemptFailure::Untrusted(reason(&status))
            }
            None => AttemptFailure::Lost(reason(&status)),
        }
    }
}

/// Earlier attempts to publish a transaction, at this server or at another one.
pub(super) struct SentCommit {
    /// A commit that was made before the first attempt.
    pub after: Csn,
    /// Why the last attempt that may have succeeded has no answer.
    pub why: Option<String>,
}

impl SentCommit {
    /// A transaction that was not sent yet.
    pub(super) fn new(session: &RemoteSession) -> Self {
        SentCommit { after: session.head(), why: None }
    }
}

impl RemoteSession {
    /// Asks a question. Immutable answers are cached.
    pub(super) async fn look_up(&self, of: Asked) -> Result<Arc<Vec<Answer>>> {
        let key = self
            .is_fixed(&of)
            .then(|| Question { of: Some(of.clone()), ..Question::default() }.encode_to_vec());
        if let Some(cached) = key.as_ref().and_then(|key| self.answers.get(key)) {
            return Ok(cached);
        }
        let federation = self.federation.clone();
        let question = Question { federation, of: Some(of), ..Question::default() };
        let (answers, _) = self.until_answered(|| self.send_question(question.clone())).await?;
        let answers = Arc::new(answers);
        if let Some(key) = key
            && answers.iter().map(Message::encoded_len).sum::<usize>() <= CACHED_BYTES_MAX
        {
            self.answers.insert(key, Arc::clone(&answers));
        }
        Ok(answers)
    }

    /// Caches the answer to a question as of a commit, which arrived with another reply. An answer without rows is not
    /// cached: it proves nothing.
    pub(super) fn keep_answer(&self, question: Question, answer: Answer) {
        if answer != Answer::default()
            && answer.encoded_len() <= CACHED_BYTES_MAX
            && question.of.as_ref().is_some_and(|of| self.is_fixed(of))
        {
            self.answers.insert(question.encode_to_vec(), Arc::new(vec![answer]));
        }
    }

    /// Whether the answer is immutable: rows as of an existing commit, except those of databases, whose path and epoch
    /// are always the current ones.
    fn is_fixed(&self, of: &Asked) -> bool {
        let is_past = |csn: u64| csn <= self.head().0;
        match of {
            Asked::Containers(it) | Asked::ContainerById(it) | Asked::Version(it) => is_past(it.at),
            Asked::NewestVersions(it) => is_past(it.at),
            Asked::FindContainer(it) | Asked::Container(it) => is_past(it.at),
            Asked::Class(it) => it.version.is_some(),
            Asked::Commit(it) => is_past(it.csn),
            _ => false,
        }
    }

    /// Makes an idempotent change; returns also whether it was sent more than once.
    pub(super) async fn change(&self, of: change_request::Of) -> Result<(ChangeReply, bool)> {
        let request = self.change_request(of);
        self.until_answered(|| self.send_change(request.clone())).await
    }

    /// Makes a change that must be sent only once. `None` if it is unknown whether it was made, or if the session must
    /// first be opened again with another token, and may lose locks.
    pub(super) async fn change_once(&self, of: change_request::Of) -> Result<Option<ChangeReply>> {
        let request = self.change_request(of);
        match self.attempt(&mut false, self.send_change(request)).await {
            Ok(reply) => Ok(Some(reply)),
            Err(AttemptFailure::Refused(error)) => Err(error),
            Err(AttemptFailure::Untrusted(why)) => Err(self.unreachable(&why)),
            Err(
                AttemptFailure::NoSession | AttemptFailure::OtherToken | AttemptFailure::Lost(_),
            ) => Ok(None),
        }
    }

    fn change_request(&self, of: change_request::Of) -> ChangeRequest {
        ChangeRequest {
            federation: self.federation.clone(),
            session: self.id.into_bytes().to_vec(),
            of: Some(of),
        }
    }

    /// Lists locks, or answers the survey of another server.
    pub(super) async fn list_locks(&self, survey: Option<Survey>) -> Result<ListLocksReply> {
        let list = || async {
            let federation = self.federation.clone();
            let request = self.request(ListLocksRequest { federation, survey });
            self.client().list_locks(request).await.map(Response::into_inner)
        };
        Ok(self.until_answered(list).await?.0)
    }

    /// Publishes a transaction once, however often connections and the server fail meanwhile.
    pub(super) async fn publish(&self, commit: &Commit, sent: &mut SentCommit) -> Result<Csn> {
        let mut request = PublishRequest {
            federation: self.federation.clone(),
            session: self.id.into_bytes().to_vec(),
            after: sent.after.0,
            ..commit.try_into()?
        };
        let mut deadline = clock::now() + self.patience();
        let mut has_other_token = false;
        let mut refused = None;
        loop {
            let mut pause = PAUSE;
            request.again = sent.why.is_some();
            let opened = self.wait_open_to_publish(deadline, request.again).await;
            opened.map_err(|error| self.in_doubt(error, sent))?;
            if let Err(lost) = self.check_locks(commit) {
                if !request.again {
                    return Err(lost);
                }
                // The place of its bytes may belong to another writer now, whatever locks the session has taken since.
                if !commit.writes.is_empty() {
                    let made = self.find_sent(commit, sent.after).await;
                    return made.map_err(|error| self.in_doubt(error, sent))?.ok_or(lost);
                }
            }
            match self.attempt(&mut has_other_token, self.send_commit(request.clone())).await {
                Ok(reply) => {
                    let csn = Csn(reply.csn);
                    self.observe_head(csn);
                    return Ok(csn);
                }
                // The client may find a valid token before the deadline, and learn the outcome with that.
                Err(AttemptFailure::Refused(error))
                    if request.again && error.kind() == ErrorKind::Denied =>
                {
                    (refused, has_other_token) = (Some(error), false);
                    pause = PAUSE_AFTER_DENIAL;
                }
                // Whether the server admits the client now proves nothing about the commit that was sent before.
                Err(AttemptFailure::Refused(error))
                    if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable) =>
                {
                    return Err(self.in_doubt(error, sent));
                }
                Err(AttemptFailure::Refused(error)) => return Err(error),
                Err(AttemptFailure::Untrusted(reason)) => {
                    return Err(self.in_doubt(self.unreachable(&reason), sent));
                }
                Err(AttemptFailure::OtherToken) => {}
                Err(AttemptFailure::NoSession) => {
                    refused = None;
                    self.reopen();
                }
                Err(AttemptFailure::Lost(lost)) => {
                    refused = None;
                    if sent.why.is_none() {
                        deadline = clock::now() + self.patience();
                    }
                    sent.why = Some(lost);
                }
            }
            if clock::now() >= deadline {
                let late = || self.unavailable("it does not answer");
                return Err(self.in_doubt(refused.unwrap_or_else(late), sent));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until the session is open. For a transaction that was sent, a refusal does not end the wait before the
    /// deadline: the outcome can still be learned with a token that is renewed meanwhile.
    async fn wait_open_to_publish(&self, deadline: Instant, was_sent: bool) -> Result<()> {
        let mut refused = None;
        loop {
            match self.wait_open(deadline).await {
                Err(error) if was_sent && error.kind() == ErrorKind::Denied => {
                    refused = Some(error)
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    return Err(refused.unwrap_or(error));
                }
                opened => return opened,
            }
        }
    }

    /// The commit that a transaction has made which was sent before.
    pub(super) async fn find_sent(&self, commit: &Commit, after: Csn) -> Result<Option<Csn>> {
        let uuid = commit.transaction.into_bytes().to_vec();
        let asked = Asked::FindCommit(Transaction { uuid, after: after.0 });
        let made = self.look_up(asked).await?.first().and_then(|answer| answer.csn).map(Csn);
        made.into_iter().for_each(|csn| self.observe_head(csn));
        Ok(made)
    }

    /// Refuses a transaction that lost a database's lock, because another one may have overwritten its extents.
    pub(super) fn check_locks(&self, commit: &Commit) -> Result<()> {
        let databases = commit.versions.iter().map(|version| version.database);
        match self.ledger().lost_database(databases) {
            None => Ok(()),
            Some(database) => Err(Error::Changed {
                what: format!("the lock on database {database} was lost with the server"),
            }),
        }
    }

    /// The error of a transaction that was sent before and may have been published. It is never an
    /// [`ErrorKind::Conflict`], so no caller runs the transaction again.
    pub(super) fn in_doubt(&self, error: Error, sent: &SentCommit) -> Error {
        match &sent.why {
            None => error,
            Some(why) => Error::Io {
                what: format!(
                    "whether the commit is durable is not known; look for it in the history of {}: {why}",
                    self.url()
                ),
                source: Arc::new(error),
            },
        }
    }

    /// Opens the session again, which the server does not know. Without this, the session's own turns would notice only after a
    /// third of the lease.
    fn reopen(&self) {
        self.direct().iter().for_each(|connection| self.lose(connection));
    }

    /// Sends a call until it is answered or the client's patience is over; returns also whether it was sent more than
    /// once.
    async fn until_answered<T, F>(&self, mut send: impl FnMut() -> F) -> Result<(T, bool)>
    where
        F: Future<Output = std::result::Result<T, Status>>,
    {
        let deadline = clock::now() + self.patience();
        let (mut is_again, mut has_other_token) = (false, false);
        loop {
            let attempt = self.attempt(&mut has_other_token, send());
            let attempted = if self.has_alternatives() {
                // This limit is for gRPC; calls on a direct connection check the time themselves.
                let late = |_| Err(AttemptFailure::Lost("it does not answer".to_owned()));
                tokio::time::timeout(self.patience(), attempt).await.unwrap_or_else(late)
            } else {
                attempt.await
            };
            let why = match attempted {
                Ok(reply) => return Ok((reply, is_again)),
                Err(AttemptFailure::Refused(error)) => return Err(error),
                Err(AttemptFailure::Untrusted(why)) => return Err(self.unreachable(&why)),
                Err(AttemptFailure::OtherToken) => None,
                Err(AttemptFailure::NoSession) => {
                    self.reopen();
                    Some("the session is not open".to_owned())
                }
                Err(AttemptFailure::Lost(why)) => Some(why),
            };
            if let Some(why) = why {
                if self.has_alternatives() || clock::now() >= deadline {
                    return Err(self.unavailable(&why));
                }
                is_again = true;
            }
            interrupts::check()?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends a call once. Another token is looked for only once: a client may find a new token each time, and the
    /// server may refuse each.
    async fn attempt<T>(
        &self,
        has_other_token: &mut bool,
        sent: impl Future<Output = std::result::Result<T, Status>>,
    ) -> std::result::Result<T, AttemptFailure> {
        let shown = self.shown_token();
        match sent.await {
            Ok(reply) => Ok(reply),
            Err(status) if !*has_other_token && self.finds_other_token(&status, shown.as_ref()) => {
                *has_other_token = true;
                Err(AttemptFailure::OtherToken)
            }
            Err(status) => match AttemptFailure::from(status) {
                AttemptFailure::Refused(error) => {
                    Err(AttemptFailure::Refused(self.explained(error)))
                }
                failure => Err(failure),
            },
        }
    }
}
