//! Calls in the turns of a session: the same as those by gRPC, handled by the same code.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use femtobarn_rpc::MESSAGE_BYTES_MAX;
use femtobarn_rpc::convert::call_status;
use femtobarn_rpc::v1::call::Of;
use femtobarn_rpc::v1::reply::Of as Replied;
use femtobarn_rpc::v1::{Answers, Call, Reply};
use futures_util::stream::{FuturesUnordered, Stream};
use prost::Message;
use tonic::Status;

use super::{Caller, Service, audited};
use crate::logical::request_counts::ClientProtocol;

/// The most calls in one turn. While a session has as many without a reply, no turn is read.
pub(super) const CALLS_MAX: usize = 64;
/// The largest reply in bytes; a reply has a turn of its own.
const REPLY_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1024;

type PendingReply = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The calls of a session that have no reply yet.
pub(super) struct TurnCalls {
    endpoint: Service,
    caller: Caller,
    pending: FuturesUnordered<PendingReply>,
}

impl TurnCalls {
    /// No calls, of a caller with these credentials.
    pub(super) fn new(endpoint: Service, caller: Caller) -> Self {
        TurnCalls { endpoint, caller, pending: FuturesUnordered::new() }
    }

    /// Whether more calls may begin.
    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < CALLS_MAX
    }

    /// Whether all have their replies.
    pub(super) fn are_over(&self) -> bool {
        self.pending.is_empty()
    }

    /// Begins calls.
    pub(super) fn begin(&mut self, calls: Vec<Call>) {
        for Call { number, of } in calls {
            let (endpoint, caller) = (self.endpoint.clone(), self.caller.clone());
            self.pending.push(Box::pin(async move {
                let outcome = carry_out(&endpoint, &caller, of).await;
                reply(&endpoint, number, outcome)
            }));
        }
    }

    /// Counts the status that ends their session's stream.
    pub(super) fn count_failure(&self, status: &Status) {
        self.endpoint.count_failure(status);
    }

    /// The next reply; waits until there is one.
    pub(super) async fn next(&mut self) -> Reply {
        poll_fn(|context| match Pin::new(&mut self.pending).poll_next(context) {
            Poll::Ready(Some(reply)) => Poll::Ready(reply),
            // The caller polls again after it has begun further calls.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        })
        .await
    }
}

async fn carry_out(endpoint: &Service, caller: &Caller, of: Option<Of>) -> Result<Replied, Status> {
    Ok(match of.ok_or_else(|| Status::unimplemented("this server does not know the call"))? {
        Of::LookUp(question) => {
            let answers = endpoint.answers(caller, question).await?;
            Replied::LookUp(Answers { answers })
        }
        Of::Change(change) => Replied::Change(audited::change(endpoint, caller, change).await?),
        Of::Publish(publish) => {
            Replied::Publish(audited::publish(endpoint, caller, publish).await?)
        }
    })
}

/// Makes the reply to a call, and counts it.
fn reply(endpoint: &Service, number: u64, outcome: Result<Replied, Status>) -> Reply {
    let reply = outcome.map(|of| Reply { number, of: Some(of) });
    let reply = reply.and_then(|reply| match reply.encoded_len() {
        0..=REPLY_BYTES_MAX => Ok(reply),
        _ => Err(Status::out_of_range("the answer is too long for a turn; ask by LookUp")),
    });
    endpoint.state.request_counts.count_request(ClientProtocol::Grpc);
    reply.unwrap_or_else(|status| {
        endpoint.count_failure(&status);
        Reply { number, of: Some(Replied::Failed(call_status(&status))) }
    })
}
