//! `PROPFIND`: the properties of a path, and of a folder's entries (RFC 4918, section 9.1).

use std::fmt::Write;

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, StatusCode};

use super::FileRequest;
use super::failure::HttpFailure;
use super::listings::{escaped_name, escaped_text};
use super::read::finished;
use super::validators::{entity_tag, http_date};
use crate::auth::Action;
use crate::physical::{FileKind, FolderEntry, Metadata, Storage};

const DEPTH: HeaderName = HeaderName::from_static("depth");

impl FileRequest {
    /// The properties of a path, and with `Depth: 1` those of a folder's entries. Clients with any right to the path
    /// may see them.
    pub(super) async fn propfind(&self) -> Result<Response, HttpFailure> {
        let with_entries = match self.header(&DEPTH).unwrap_or("1").trim() {
            "0" => {
                self.check_visible(&self.location.path)?;
                false
            }
            "1" => {
                self.check(Action::Read, &self.location.path)?;
                true
            }
            _ => {
                let what = "whole trees are not listed; ask with Depth: 0 or 1";
                return Err(HttpFailure::Forbidden(what.to_owned()));
            }
        };
        let metadata = self.metadata().await?;
        let location = self.location.clone();
        let text = self.call(move |logical| {
            let top = location.url_path();
            let mut text =
                "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n"
                    .to_owned();
            add_properties(&mut text, top, &metadata);
            if with_entries && metadata.kind == FileKind::Folder {
                let entries = logical.exports.list(&location.path, true, location.opaque())?;
                for FolderEntry { name, metadata } in &entries {
                    let path = format!("{}/{}", top.trim_end_matches('/'), escaped_name(name));
                    metadata.iter().for_each(|metadata| add_properties(&mut text, &path, metadata));
                }
            }
            text.push_str("</D:multistatus>\n");
            Ok(text)
        });
        let text = text.await?;
        let answer = Response::builder()
            .status(StatusCode::MULTI_STATUS)
            .header(CONTENT_TYPE, "application/xml; charset=utf-8")
            .header(CONTENT_LENGTH, text.len())
            .header(CACHE_CONTROL, "no-store");
        finished(answer, Body::from(text))
    }
}

/// Adds a response of the list; `path` is that of the URL.
fn add_properties(text: &mut String, path: &str, metadata: &Metadata) {
    let is_folder = metadata.kind == FileKind::Folder;
    let slash = if is_folder && !path.ends_with('/') { "/" } else { "" };
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name: Vec<u8> = percent_encoding::percent_decode_str(name).collect();
    let name = escaped_text(&String::from_utf8_lossy(&name));
    let kind = if is_folder { "<D:collection/>" } else { "" };
    let modified = http_date(metadata.modified);
    let file = if is_folder {
        String::new()
    } else {
        format!(
            "<D:getcontentlength>{}</D:getcontentlength><D:getetag>{}</D:getetag>",
            metadata.size,
            escaped_text(&entity_tag(metadata))
        )
    };
    // Writing into a text does not fail.
    let _ = writeln!(
        text,
        "<D:response><D:href>{}{slash}</D:href><D:propstat><D:prop><D:displayname>{name}</D:displayname>\
         <D:resourcetype>{kind}</D:resourcetype><D:getlastmodified>{modified}</D:getlastmodified>{file}\
         </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>",
        escaped_text(path)
    );
}
