//! The connections to an object store: those of `femtobarn_http`, with time limits.
//!
//! The HTTP client that the object store library could bring is not used: it would be a second one in the program.

use std::time::Duration;

use femtobarn_http::WebConnector;
use futures_util::StreamExt;
use http::header::{CONTENT_RANGE, RANGE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use tokio::time::timeout;

use crate::error::{Error, Result};

/// The time within which a server must begin its answer; for a part, this is counted after its bytes were sent.
const ANSWER_TIME: Duration = Duration::from_secs(120);
/// The longest time between two pieces of an answer.
const PIECE_TIME: Duration = Duration::from_secs(30);

/// Makes clients that share connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    client: Client<WebConnector, HttpRequestBody>,
}

impl Connector {
    /// A client that trusts the certificates that this machine trusts.
    ///
    /// # Errors
    /// `Io` if there are none.
    pub(super) fn new() -> Result<Self> {
        let connections = femtobarn_http::connector(femtobarn_http::any_address());
        let connections = connections.map_err(|source| Error::Io {
            what: "cannot read the certificates that this machine trusts".to_owned(),
            source,
        })?;
        Ok(Connector { client: Client::builder(TokioExecutor::new()).build(connections) })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let request: Request<HttpRequestBody> = request;
        let asks_for_a_range = request.headers().contains_key(RANGE);
        let answer = timeout(ANSWER_TIME, self.client.request(request)).await;
        let answer = answer.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
        let (mut head, body) = answer.map_err(refused)?.into_parts();
        // Some servers answer a range with the range, and with the status of a whole object.
        let has_range = asks_for_a_range && head.headers.contains_key(CONTENT_RANGE);
        if has_range && head.status == StatusCode::OK {
            head.status = StatusCode::PARTIAL_CONTENT;
        }
        let pieces = futures_util::stream::unfold(body, |mut body| async {
            let piece = match timeout(PIECE_TIME, body.frame()).await {
                Err(late) => Err(HttpError::new(HttpErrorKind::Timeout, late)),
                Ok(None) => return None,
                Ok(Some(Ok(frame))) => Ok(frame),
                Ok(Some(Err(error))) => Err(HttpError::new(HttpErrorKind::Interrupted, error)),
            };
            Some((piece, body))
        });
        // The reader of an answer without a body reads once more after its end.
        let body: StreamBody<_> = StreamBody::new(pieces.fuse());
        Ok(Response::from_parts(head, HttpResponseBody::new(body)))
    }
}

fn refused(error: hyper_util::client::legacy::Error) -> HttpError {
    let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
    HttpError::new(kind, error)
}
