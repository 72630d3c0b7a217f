//! Single calls. What was not answered is sent again, where that does no harm.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::{Commit, Csn, Error, ErrorKind, Result};
use prost::Message;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::failure::{CallFailure, reason, trouble_of};
use super::session::Shared;
use crate::convert::refusal;
use crate::v1::catalogue_client::CatalogueClient;
use crate::v1::failure::Of;
use crate::v1::question::Of as Asked;
use crate::v1::{
    Answer, ChangeReply, ChangeRequest, ListLocksReply, ListLocksRequest, PublishRequest, Question,
    change_request,
};

/// The pause before a call is sent again.
const PAUSE: Duration = Duration::from_millis(50);
/// Rows that one look-up may bring, so that no server can fill our memory.
const ANSWERS_MAX: usize = 100_000;
/// Bytes of the largest answer that is kept.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// What became of one attempt.
enum Attempt {
    /// The server refused it.
    Refused(Error),
    /// The server wants the session to be opened again.
    NoSession,
    /// Whether it was carried out is not known.
    Lost(String),
    /// There is no connection that can be trusted, so it was not sent.
    Distrusted(String),
}

impl From<Status> for Attempt {
    fn from(status: Status) -> Self {
        match refusal(&status) {
            Some(failure) if matches!(failure.of, Some(Of::NoSession(_))) => Attempt::NoSession,
            Some(failure) => Attempt::Refused(failure.into()),
            None if trouble_of(&status) == CallFailure::Distrust => {
                Attempt::Distrusted(reason(&status))
            }
            None => Attempt::Lost(reason(&status)),
        }
    }
}

impl Shared {
    /// Asks the catalogue something. What can never change is kept.
    pub async fn look_up(&self, of: Asked) -> Result<Arc<Vec<Answer>>> {
        let key = self
            .is_fixed(&of)
            .then(|| Question { federation: String::new(), of: Some(of.clone()) }.encode_to_vec());
        if let Some(kept) = key.as_ref().and_then(|key| self.answers.get(key)) {
            return Ok(kept);
        }
        let question = Question { federation: self.federation.clone(), of: Some(of) };
        let ask = |mut client: CatalogueClient<Channel>| {
            let request = self.request(question.clone());
            async move {
                let mut stream = client.look_up(request).await?.into_inner();
                let mut answers = Vec::new();
                while let Some(answer) = stream.message().await? {
                    if answers.len() >= ANSWERS_MAX {
                        return Err(Status::out_of_range("the answer is too long"));
                    }
                    answers.push(answer);
                }
                Ok(Response::new(answers))
            }
        };
        let (answers, _) = self.until_answered(ask).await?;
        let answers = Arc::new(answers);
        if let Some(key) = key
            && answers.iter().map(Message::encoded_len).sum::<usize>() <= KEPT_BYTES_MAX
        {
            self.answers.insert(key, Arc::clone(&answers));
        }
        Ok(answers)
    }

    /// Whether the answer can never change: rows as of a commit that there is. Where a database lies, and in
    /// which epoch, is of now whatever the commit.
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

    /// Makes a change that may be made twice. Whether it was sent more than once.
    pub async fn change(&self, of: change_request::Of) -> Result<(ChangeReply, bool)> {
        let request = self.change_request(of);
        let send = |mut client: CatalogueClient<Channel>| {
            let request = self.request(request.clone());
            async move { client.change(request).await }
        };
        self.until_answered(send).await
    }

    /// Makes a change that must not be made twice. None if whether it was made is not known.
    pub async fn change_once(&self, of: change_request::Of) -> Result<Option<ChangeReply>> {
        let request = self.request(self.change_request(of));
        match self.client.clone().change(request).await.map_err(Attempt::from) {
            Ok(reply) => Ok(Some(reply.into_inner())),
            Err(Attempt::Refused(error)) => Err(error),
            Err(Attempt::Distrusted(why)) => Err(self.unreachable(&why)),
            Err(Attempt::NoSession | Attempt::Lost(_)) => Ok(None),
        }
    }

    fn change_request(&self, of: change_request::Of) -> ChangeRequest {
        ChangeRequest {
            federation: self.federation.clone(),
            session: self.session.into_bytes().to_vec(),
            of: Some(of),
        }
    }

    pub async fn list_locks(&self) -> Result<ListLocksReply> {
        let list = |mut client: CatalogueClient<Channel>| {
            let request = self.request(ListLocksRequest { federation: self.federation.clone() });
            async move { client.list_locks(request).await }
        };
        Ok(self.until_answered(list).await?.0)
    }

    /// Publishes a transaction once, whatever happens to connections and the server meanwhile.
    pub async fn publish(&self, commit: &Commit) -> Result<Csn> {
        let after = self.head();
        let mut request = PublishRequest {
            federation: self.federation.clone(),
            session: self.session.into_bytes().to_vec(),
            commit: Some(commit.try_into()?),
            again: false,
            after: after.0,
        };
        let mut deadline = Instant::now() + self.patience;
        let mut why = None;
        loop {
            self.opened(deadline).await.map_err(|error| self.unknown(error, why.as_deref()))?;
            if !request.again {
                self.check_locks(commit)?;
            }
            let attempt = self.client.clone().publish(self.request(request.clone())).await;
            match attempt.map_err(Attempt::from) {
                Ok(reply) => {
                    let csn = Csn(reply.into_inner().csn);
                    self.observe_head(csn);
                    return Ok(csn);
                }
                // Whether the server lets us in now does not tell what became of the commit before.
                Err(Attempt::Refused(error))
                    if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable) =>
                {
                    return Err(self.unknown(error, why.as_deref()));
                }
                Err(Attempt::Refused(error)) => return Err(error),
                Err(Attempt::Distrusted(reason)) => {
                    return Err(self.unknown(self.unreachable(&reason), why.as_deref()));
                }
                Err(Attempt::NoSession) => {}
                Err(Attempt::Lost(lost)) => {
                    if why.is_none() {
                        deadline = Instant::now() + self.patience;
                    }
                    request.again = true;
                    why = Some(lost);
                }
            }
            if Instant::now() >= deadline {
                let error = self.unavailable("it does not answer");
                return Err(self.unknown(error, why.as_deref()));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A transaction whose database was lost on the way may have lost what it wrote.
    fn check_locks(&self, commit: &Commit) -> Result<()> {
        let databases = commit.versions.iter().map(|version| version.database);
        match self.ledger().lost_database(databases) {
            None => Ok(()),
            Some(database) => Err(Error::Changed {
                what: format!("the lock on database {database} was lost with the server"),
            }),
        }
    }

    /// An error that leaves open whether a transaction was published. It is of a kind that no caller takes for
    /// one that running the transaction again would mend.
    fn unknown(&self, error: Error, why: Option<&str>) -> Error {
        match why {
            None => error,
            Some(why) => Error::Io {
                what: format!(
                    "whether the commit is durable is not known; look for it in the history of {}: {why}",
                    self.url
                ),
                source: Arc::new(error),
            },
        }
    }

    /// Sends a call until it is answered or patience is over. Whether it was sent more than once.
    async fn until_answered<T, F>(
        &self,
        mut send: impl FnMut(CatalogueClient<Channel>) -> F,
    ) -> Result<(T, bool)>
    where
        F: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + self.patience;
        let mut is_again = false;
        loop {
            let why = match send(self.client.clone()).await.map_err(Attempt::from) {
                Ok(reply) => return Ok((reply.into_inner(), is_again)),
                Err(Attempt::Refused(error)) => return Err(error),
                Err(Attempt::Distrusted(why)) => return Err(self.unreachable(&why)),
                Err(Attempt::NoSession) => "the session is not open".to_owned(),
                Err(Attempt::Lost(why)) => why,
            };
            if Instant::now() >= deadline {
                return Err(self.unavailable(&why));
            }
            is_again = true;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
