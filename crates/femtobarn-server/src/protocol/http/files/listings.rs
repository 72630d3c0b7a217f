//! Folders: a page for people, and JSON for programs.

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;

use super::FileRequest;
use super::failure::HttpFailure;
use super::location::UrlLocation;
use super::read::finished;
use super::validators::http_date;
use crate::physical::{FileKind, FolderEntry, Metadata, Storage};

/// Bytes that are escaped in names of a URL's path.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');

/// An entry of a folder, in JSON.
#[derive(Serialize)]
struct ListedFile<'a> {
    name: &'a str,
    kind: &'static str,
    size: u64,
    /// Seconds since 1970.
    modified: f64,
}

impl FileRequest {
    /// A list of the folder: a page, or JSON for clients that accept it.
    pub(super) async fn folder_page(&self, is_head: bool) -> Result<Response, HttpFailure> {
        let is_json = self.header(&ACCEPT).is_some_and(|kinds| kinds.contains("application/json"));
        let kind = if is_json { "application/json" } else { "text/html; charset=utf-8" };
        let answer = Response::builder()
            .header(CONTENT_TYPE, kind)
            .header(CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'")
            .header(CACHE_CONTROL, "no-store")
            .header(VARY, "accept");
        if is_head {
            return finished(answer, Body::empty());
        }
        let location = self.location.clone();
        // A long list takes long to format.
        let text = self.call(move |logical| {
            let entries = logical.exports.list(&location.path, true, location.opaque())?;
            let listed = entries.iter().filter_map(|FolderEntry { name, metadata }| {
                Some((String::from_utf8_lossy(name), &**name, metadata.as_ref()?))
            });
            let listed: Vec<_> = listed
                .map(|(shown, name, metadata)| (shown.into_owned(), name, metadata))
                .collect();
            Ok(if is_json { json(&listed) } else { page(&location, &listed) })
        });
        let text = text.await?;
        finished(answer.header(CONTENT_LENGTH, text.len()), Body::from(text))
    }
}

/// An entry: its name as text and as bytes, and its metadata.
type ShownEntry<'a> = (String, &'a [u8], &'a Metadata);

fn page(location: &UrlLocation, entries: &[ShownEntry<'_>]) -> String {
    let top = location.url_path().trim_end_matches('/');
    let query = escaped_text(&location.link_query());
    let title = escaped_text(&location.path.to_string());
    let mut rows = String::new();
    // Writing into a text does not fail.
    if let Some((above, _)) = top.rsplit_once('/') {
        let _ =
            writeln!(rows, "<tr><td><a href=\"{}/{query}\">..</a></td></tr>", escaped_text(above));
    }
    for (shown, name, metadata) in entries {
        let is_folder = metadata.kind == FileKind::Folder;
        let (slash, size) =
            if is_folder { ("/", String::new()) } else { ("", grouped(metadata.size)) };
        let _ = writeln!(
            rows,
            "<tr><td><a href=\"{}/{}{slash}{query}\">{}{slash}</a></td><td class=\"number\">{size}</td>\
             <td>{}</td></tr>",
            escaped_text(top),
            escaped_name(name),
            escaped_text(shown),
            http_date(metadata.modified),
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

fn json(entries: &[ShownEntry<'_>]) -> String {
    let listed = entries.iter().map(|(name, _, metadata)| {
        let kind = match metadata.kind {
            FileKind::File => "file",
            FileKind::Folder => "folder",
            FileKind::Other => "other",
        };
        let modified = metadata.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        ListedFile { name, kind, size: metadata.size, modified: modified.as_secs_f64() }
    });
    let listed: Vec<_> = listed.collect();
    serde_json::to_string(&listed).expect("texts and numbers can be written as JSON")
}

/// A name as a part of a URL's path.
pub(super) fn escaped_name(name: &[u8]) -> String {
    percent_encode(name, ESCAPED).to_string()
}

/// A text in XML and HTML. What XML does not allow is replaced.
pub(super) fn escaped_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(letter),
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A number with its thousands separated.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}
