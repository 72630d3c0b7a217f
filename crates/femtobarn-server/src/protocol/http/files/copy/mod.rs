//! `COPY`: a file is fetched from another server (pull), or stored at another one (push), without passing through the
//! client: third-party copies, as FTS, Rucio, gfal2 and davix request them.
//!
//! | module | contents |
//! |---|---|
//! | `order` | the client's request |
//! | `others` | requests to other servers: which ones, with which headers, and their redirects |
//! | `transfer` | the bytes, and their checksum |
//! | `markers` | the answer, which reports the progress |
//!
//! 1. A client reaches no server through this one except those that the operator allows (`copy.hosts`).
//! 2. Headers for the other server, which may have a token, are sent only to the host that the client named, and only
//!    over TLS.
//! 3. A pulled file is an upload as that of `PUT`: it appears when it is complete, and a copy that fails leaves no
//!    file.
//! 4. A copy ends when its client has disconnected, and when no byte has moved for a minute.
//!
//! Source: WLCG HTTP-TPC. The client sends `COPY` to one server with the URL of the other as `Source` or `Destination`.

mod markers;
mod order;
mod others;
mod transfer;

use std::sync::Arc;

use axum::response::Response;
use http::HeaderValue;
use http::header::IF_NONE_MATCH;

use self::markers::CopyProgress;
use self::order::{CopyOrder, Direction};
pub use self::others::OtherServers;
use super::failure::{HttpFailure, METHODS};
use super::upload::PendingUpload;
use super::{FileRequest, without_query};
use crate::auth::Asker;

impl FileRequest {
    /// Stores a file of another server, and records the change: the client was answered already.
    async fn recorded_pull(
        &self,
        others: &OtherServers,
        order: &CopyOrder,
        upload: PendingUpload,
        progress: &CopyProgress,
    ) -> Result<(), HttpFailure> {
        let asker =
            Asker { identity: Some(&self.identity), address: Some(self.client), protocol: "http" };
        let path = self.location.path.to_string();
        let change = self.site.authenticator.audited(asker, "copy", [path])?;
        let change = change.to(Some(without_query(&order.other.url)));
        let copied = self.pull(others, order, upload, progress).await;
        change.end(copied.as_ref().err().map(HttpFailure::kind))?;
        copied
    }

    /// Copies a file from or to another server.
    pub(super) async fn copy(mut self) -> Result<Response, HttpFailure> {
        let Some(others) = self.site.others.clone() else {
            let what =
                "this server copies no files from and to other servers; allow them in copy.hosts";
            return Err(HttpFailure::NotAllowed(what.to_owned(), METHODS));
        };
        let order = CopyOrder::of(&self.headers)?;
        if !order.other.headers.is_empty() && !self.is_encrypted {
            let what = "headers for another server must only be sent over TLS";
            return Err(HttpFailure::Unauthorized(what.to_owned()));
        }
        others.check(&order.other)?;
        let turn = others.turn()?;
        let progress = Arc::new(CopyProgress::default());
        let (told, counts) = (Arc::clone(&progress), Arc::clone(&self.site.logical.request_counts));
        let text = format!("{} {} by {}", order, self.location.path, self.identity.name);
        Ok(match order.direction {
            Direction::Pull => {
                if order.keeps_existing {
                    self.headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
                }
                let upload = self.begin_upload(None).await?;
                markers::answer(told, text, counts, async move {
                    let _turn = turn;
                    self.recorded_pull(&others, &order, upload, &progress).await
                })
            }
            Direction::Push => {
                let file = self.open_to_push().await?;
                markers::answer(told, text, counts, async move {
                    let _turn = turn;
                    self.push(&others, &order, file, &progress).await
                })
            }
        })
    }
}
