//! One attempt of a call: on the session's direct connection; or by gRPC, if the session has none, or the request or
//! its answer is long.

use prost::Message;
use tonic::{Response, Status};

use super::session::RemoteSession;
use crate::v1::call::Of;
use crate::v1::question::Of as Asked;
use crate::v1::reply::Of as Replied;
use crate::v1::{Answer, ChangeReply, ChangeRequest, PublishReply, PublishRequest, Question};

/// Answers to one look-up at most, so that no server can fill the client's memory.
const ANSWERS_MAX: usize = 100_000;
/// Bytes of the largest transaction on a direct connection. Nothing else can be sent while it is on its way, and each
/// side takes a lease without turns for a broken connection.
const DIRECT_BYTES_MAX: usize = 256 << 10;

impl RemoteSession {
    /// Sends a question.
    ///
    /// # Errors
    /// The call's [`Status`].
    pub(super) async fn send_question(&self, question: Question) -> Result<Vec<Answer>, Status> {
        let direct = self.direct().filter(|_| question.of.as_ref().is_some_and(has_short_answer));
        if let Some(connection) = direct {
            return match self.call_directly(&connection, Of::LookUp(question), self.call_time())? {
                Replied::LookUp(answers) => Ok(answers.answers),
                _ => Err(other_reply()),
            };
        }
        let question = Question { session: self.session_of_pins(), ..question };
        let has_pins = !question.session.is_empty();
        let mut stream = self.client().look_up(self.request(question)).await?.into_inner();
        let mut answers = Vec::new();
        while let Some(answer) = stream.message().await? {
            if answers.len() >= ANSWERS_MAX {
                return Err(Status::out_of_range("the answer is too long"));
            }
            answers.push(answer);
        }
        if has_pins && !self.is_linked() {
            // It may be open at the server before this client knows which snapshots were given up.
            return Err(Status::unavailable("the session is being opened again"));
        }
        Ok(answers)
    }

    /// The session, if it has pinned snapshots. A server that was away may answer before the session is open again there; it
    /// has no rows of snapshots that it gave up.
    fn session_of_pins(&self) -> Vec<u8> {
        if self.ledger().has_pins() { self.id.as_bytes().to_vec() } else { vec![] }
    }

    /// Sends a change.
    ///
    /// # Errors
    /// The call's [`Status`].
    pub(super) async fn send_change(&self, change: ChangeRequest) -> Result<ChangeReply, Status> {
        let Some(connection) = self.direct() else {
            return self.client().change(self.request(change)).await.map(Response::into_inner);
        };
        match self.call_directly(&connection, Of::Change(change), self.call_time())? {
            Replied::Change(reply) => Ok(reply),
            _ => Err(other_reply()),
        }
    }

    /// Publishes a transaction.
    ///
    /// # Errors
    /// The call's [`Status`].
    pub(super) async fn send_commit(
        &self,
        publish: PublishRequest,
    ) -> Result<PublishReply, Status> {
        let direct = self.direct().filter(|_| publish.encoded_len() <= DIRECT_BYTES_MAX);
        let Some(connection) = direct else {
            return self.client().publish(self.request(publish)).await.map(Response::into_inner);
        };
        match self.call_directly(&connection, Of::Publish(publish), None)? {
            Replied::Publish(reply) => Ok(reply),
            _ => Err(other_reply()),
        }
    }

    /// How long an idempotent call waits for its reply; without a limit if there is no other server to ask.
    fn call_time(&self) -> Option<std::time::Duration> {
        self.has_alternatives().then(|| self.patience())
    }
}

/// Whether a question is answered by few rows, and without a wait for anything but the server's disk.
fn has_short_answer(of: &Asked) -> bool {
    !matches!(
        of,
        Asked::Databases(_)
            | Asked::Containers(_)
            | Asked::DatabaseToDrop(_)
            | Asked::NewestVersions(_)
            | Asked::Versions(_)
            | Asked::Classes(_)
            | Asked::LinkTargets(_)
            | Asked::History(_)
            | Asked::Tags(_)
            | Asked::Servers(_)
            | Asked::RowsSince(_)
            | Asked::RowsOfDatabase(_)
    )
}

/// The status of a call that got the reply of another call: whether the server has carried it out is unknown.
fn other_reply() -> Status {
    Status::unknown("the server replied to another call")
}
