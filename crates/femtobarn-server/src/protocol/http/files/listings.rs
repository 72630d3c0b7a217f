//! Folders: pages for people, JSON for programs, and `PROPFIND` (RFC 4918, section 9.1).

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY,
};
use http::{HeaderName, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;

use super::FileRequest;
use super::failure::HttpFailure;
use super::read::finished;
use super::validators::entity_tag;
use crate::auth::Action;
use crate::physical::{FileKind, FolderEntry, Metadata, Storage};

const DEPTH: HeaderName = HeaderName::from_static("depth");

/// Bytes that are escaped in names of a URL's path.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');

/// An entry of a folder, in JSON.
#[derive(Serialize)]
struct ListedFile {
    name: String,
    kind: &'static str,
    size: u64,
    /// Seconds since 1970.
    modified: f64,
}

impl FileRequest {
    /// A list of the folder: a page, or JSON for clients that accept it.
    pub(super) async fn folder_page(&self, is_head: bool) -> Result<Response, HttpFailure> {
        let entries = self.entries().await?;
        let accepts = self.header(&ACCEPT).unwrap_or_default();
        let (kind, text) = if accepts.contains("application/json") {
            ("application/json", json(&entries)?)
        } else {
            ("text/html; charset=utf-8", self.page(&entries))
        };
        let answer = Response::builder()
            .header(CONTENT_TYPE, kind)
            .header(CONTENT_LENGTH, text.len())
            .header(CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'")
            .header(CACHE_CONTROL, "no-store")
            .header(VARY, "accept");
        finished(answer, if is_head { Body::empty() } else { Body::from(text) })
    }

    /// The properties of a path, and with `Depth: 1` those of a folder's entries.
    pub(super) async fn propfind(&self) -> Result<Response, HttpFailure> {
        self.check(Action::Read, &self.location.path)?;
        let with_entries = match self.header(&DEPTH).unwrap_or("1").trim() {
            "0" => false,
            "1" => true,
            _ => {
                let what = "whole trees are not listed; ask with Depth: 0 or 1";
                return Err(HttpFailure::Forbidden(what.to_owned()));
            }
        };
        let metadata = self.metadata().await?;
        let is_folder = metadata.kind == FileKind::Folder;
        let entries = if is_folder && with_entries { self.entries().await? } else { vec![] };
        let mut text =
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n"
                .to_owned();
        let top = self.location.url_path();
        self.add_properties(&mut text, top, &metadata);
        for FolderEntry { name, metadata } in &entries {
            if let Some(metadata) = metadata {
                let path = format!("{}/{}", top.trim_end_matches('/'), escaped_name(name));
                self.add_properties(&mut text, &path, metadata);
            }
        }
        text.push_str("</D:multistatus>\n");
        let answer = Response::builder()
            .status(StatusCode::MULTI_STATUS)
            .header(CONTENT_TYPE, "application/xml; charset=utf-8")
            .header(CONTENT_LENGTH, text.len())
            .header(CACHE_CONTROL, "no-store");
        finished(answer, Body::from(text))
    }

    async fn entries(&self) -> Result<Vec<FolderEntry>, HttpFailure> {
        let location = self.location.clone();
        self.call(move |logical| logical.exports.list(&location.path, true, location.opaque()))
            .await
    }

    fn add_properties(&self, text: &mut String, path: &str, metadata: &Metadata) {
        let is_folder = metadata.kind == FileKind::Folder;
        let slash = if is_folder && !path.ends_with('/') { "/" } else { "" };
        let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let name: Vec<u8> = percent_encoding::percent_decode_str(name).collect();
        let kind = if is_folder { "<D:collection/>" } else { "" };
        let modified = httpdate::fmt_http_date(metadata.modified);
        let mut properties = format!(
            "<D:displayname>{}</D:displayname><D:resourcetype>{kind}</D:resourcetype>\
             <D:getlastmodified>{modified}</D:getlastmodified>",
            escaped_text(&String::from_utf8_lossy(&name))
        );
        if !is_folder {
            let size = metadata.size;
            // The tag of a file of a federation has the commit that a request will find.
            let tag = if self.location.is_federation {
                String::new()
            } else {
                format!("<D:getetag>{}</D:getetag>", escaped_text(&entity_tag(metadata, None)))
            };
            // Writing into a text does not fail.
            let _ = write!(properties, "<D:getcontentlength>{size}</D:getcontentlength>{tag}");
        }
        let _ = writeln!(
            text,
            "<D:response><D:href>{}{slash}</D:href><D:propstat><D:prop>{properties}</D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>",
            escaped_text(path)
        );
    }

    fn page(&self, entries: &[FolderEntry]) -> String {
        let top = self.location.url_path();
        let top = top.trim_end_matches('/');
        let title = escaped_text(&self.location.path.to_string());
        let mut rows = String::new();
        if let Some((above, _)) = top.rsplit_once('/') {
            let _ = writeln!(rows, "<tr><td><a href=\"{}/\">..</a></td></tr>", escaped_text(above));
        }
        for FolderEntry { name, metadata } in entries {
            let Some(metadata) = metadata else { continue };
            let is_folder = metadata.kind == FileKind::Folder;
            let (slash, size) =
                if is_folder { ("/", String::new()) } else { ("", grouped(metadata.size)) };
            let _ = writeln!(
                rows,
                "<tr><td><a href=\"{}/{}{slash}\">{}{slash}</a></td><td class=\"number\">{size}</td>\
                 <td>{}</td></tr>",
                escaped_text(top),
                escaped_name(name),
                escaped_text(&String::from_utf8_lossy(name)),
                httpdate::fmt_http_date(metadata.modified),
            );
        }
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
             <style>body {{ font: 15px system-ui, sans-serif; margin: 2em }} td, th {{ padding: 2px 24px 2px 0 }}\n\
             .number {{ text-align: right; font-variant-numeric: tabular-nums }}</style></head>\n\
             <body><h1>{title}</h1>\n<table>\n<tr><th align=\"left\">name</th><th class=\"number\">bytes</th>\
             <th align=\"left\">changed</th></tr>\n{rows}</table></body></html>\n"
        )
    }
}

fn json(entries: &[FolderEntry]) -> Result<String, HttpFailure> {
    let listed = entries.iter().filter_map(|FolderEntry { name, metadata }| {
        let metadata = metadata.as_ref()?;
        let kind = match metadata.kind {
            FileKind::File => "file",
            FileKind::Folder => "folder",
            FileKind::Other => "other",
        };
        Some(ListedFile {
            name: String::from_utf8_lossy(name).into_owned(),
            kind,
            size: metadata.size,
            modified: metadata
                .modified
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64(),
        })
    });
    let listed: Vec<_> = listed.collect();
    serde_json::to_string(&listed).map_err(|error| HttpFailure::Broken(error.to_string()))
}

/// A name as a part of a URL's path.
fn escaped_name(name: &[u8]) -> String {
    percent_encode(name, ESCAPED).to_string()
}

/// A text in XML and HTML.
fn escaped_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML allows no other control characters.
            letter if letter < ' ' && !matches!(letter, '\t' | '\n' | '\r') => {
                escaped.push('\u{fffd}')
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}
