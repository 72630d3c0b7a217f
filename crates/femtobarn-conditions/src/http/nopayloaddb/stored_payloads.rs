//! Conditions that are payloads: their classes, and the objects that the routes write.
//!
//! The classes are `Payload` and `LinkedPayload` of the Python package. A payload whose bytes are stored elsewhere, as
//! for nopayloaddb's clients, has no bytes here: its name has their address, and its details have their checksum.

use bytes::Bytes;
use femtobarn::{
    Class, ContainerKey, ContainerOptions, FieldType, Oid, Overlap, Result, SeriesClock,
    SeriesOptions, Transaction,
};
use rntuple::Value;
use serde::{Deserialize, Serialize};

use super::answers::invalid;
use super::pending_iovs::NewIov;
use crate::class::{payload_class, series_class};

/// The media type of bytes that are stored elsewhere (RFC 2046).
pub(super) const ELSEWHERE: &str = "message/external-body";

/// The container of the payloads that conditions of a database link to.
const STORE: &str = "payloads";
/// Bytes after which a cluster of a series ends.
const CLUSTER_BYTES: u64 = 2 << 20;

const PAYLOAD: &str = r#"{"name": "Payload", "version": 1, "fields": [
    {"name": "data", "type": {"list": "byte"}, "description": "the bytes"},
    {"name": "media_type", "type": "string", "description": "their format, such as application/x-root",
     "default": "application/octet-stream"},
    {"name": "name", "type": "string", "description": "name of the file or of the object"},
    {"name": "details", "type": "string", "description": "what else the source says about them"},
    {"name": "sha256", "type": "string", "description": "SHA-256 of the bytes in hexadecimal"}
]}"#;

/// How the conditions of a series refer to payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadKind {
    /// They are payloads.
    Own,
    /// They link to payloads.
    Linked,
    /// They are objects of any other class.
    Other,
}

impl PayloadKind {
    /// The kind of a series, by the class of its objects.
    pub(super) fn of(class: &Class) -> Result<Self> {
        let payload = payload_class(class)?;
        let has = |name: &str, is: &dyn Fn(&FieldType) -> bool| {
            payload.fields.iter().any(|field| field.name == name && is(&field.of))
        };
        let is_text = |of: &FieldType| *of == FieldType::String;
        let is_link = |of: &FieldType| matches!(of, FieldType::Link(_));
        Ok(
            if has("data", &|_| true)
                && ["media_type", "name", "details", "sha256"].iter().all(|it| has(it, &is_text))
            {
                PayloadKind::Own
            } else if has("payload", &is_link) && has("source_hash", &is_text) {
                PayloadKind::Linked
            } else {
                PayloadKind::Other
            },
        )
    }
}

/// The details of a payload whose bytes are stored elsewhere.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct ElsewhereDetails {
    #[serde(default)]
    pub checksum: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// Creates the series of a type that a client creates, or a list of it.
pub(super) fn create_payload_series(
    transaction: &mut Transaction,
    path: &str,
) -> Result<ContainerKey> {
    let class = series_class(&Class::from_json(PAYLOAD)?)?;
    let series =
        SeriesOptions { clock: SeriesClock::Run, overlap: Overlap::Newest, ..Default::default() };
    let options = ContainerOptions {
        cluster_size: CLUSTER_BYTES,
        series: Some(series),
        ..Default::default()
    };
    create_series(transaction, path, &class, options)
}

/// Creates a series in a database, which is created if necessary.
pub(super) fn create_series(
    transaction: &mut Transaction,
    path: &str,
    class: &Class,
    options: ContainerOptions,
) -> Result<ContainerKey> {
    let (database, name) = super::names::parts(path);
    let database = transaction.database_or_new(database, None)?;
    transaction.create_container(database, name, class, options)
}

/// Appends a condition.
///
/// # Errors
/// `Invalid` if the series does not hold payloads, or its clock has no such moments.
pub(super) fn append(
    transaction: &mut Transaction,
    key: ContainerKey,
    path: &str,
    iov: &NewIov,
) -> Result<()> {
    let kind = PayloadKind::of(transaction.class(key)?)?;
    let options = transaction.options(key)?.series.unwrap_or_default();
    let (since, until) = range(iov, options.clock)?;
    let mut members = vec![
        ("since".to_owned(), Value::Int(since)),
        ("until".to_owned(), Value::Int(until)),
        ("channel".to_owned(), Value::Int(0)),
    ];
    match kind {
        PayloadKind::Own => members.extend(payload(iov)),
        PayloadKind::Linked => {
            let stored = store(transaction, path, iov)?;
            members.push(("payload".to_owned(), link(stored)));
            members.push(("source_hash".to_owned(), Value::String(iov.checksum.clone())));
        }
        PayloadKind::Other => {
            return Err(invalid(format!(
                "series {path} has objects of class {}, not payloads; put them with Femtobarn's own functions",
                payload_class(transaction.class(key)?)?.name
            )));
        }
    }
    transaction.append_value(key, Value::Record(members))?;
    Ok(())
}

/// The validity of an IOV as moments of the clock.
///
/// # Errors
/// `Invalid` if it ends before it begins, or the clock has no such moments.
pub(super) fn range(iov: &NewIov, clock: SeriesClock) -> Result<(i64, i64)> {
    let (since, until) = (iov.start().since(clock)?, iov.end().until(clock)?);
    if since < until {
        return Ok((since, until));
    }
    Err(invalid(format!(
        "the IOV of {} must end after its beginning: it begins at {:?} and ends at {:?}, which it does not contain",
        iov.payload_url,
        (iov.start().major, iov.start().minor),
        (iov.end().major, iov.end().minor)
    )))
}

/// The members of a payload whose bytes are stored elsewhere.
fn payload(iov: &NewIov) -> Vec<(String, Value)> {
    let details = ElsewhereDetails { checksum: iov.checksum.clone(), size: iov.size };
    let details = serde_json::to_string(&details).expect("details are a text and a number");
    let text = |name: &str, value: &str| (name.to_owned(), Value::String(value.to_owned()));
    vec![
        ("data".to_owned(), Value::Bytes(Bytes::new())),
        text("media_type", ELSEWHERE),
        text("name", &iov.payload_url),
        text("details", &details),
        text("sha256", ""),
    ]
}

/// Appends a payload to the container for those that conditions link to.
fn store(transaction: &mut Transaction, path: &str, iov: &NewIov) -> Result<Oid> {
    let database = transaction.database_or_new(super::names::parts(path).0, None)?;
    let key = match transaction.find_container(database, STORE)? {
        Some(_) => transaction.container(database, STORE)?,
        None => transaction.create_container(
            database,
            STORE,
            &Class::from_json(PAYLOAD)?,
            ContainerOptions::default(),
        )?,
    };
    transaction.append_value(key, Value::Record(payload(iov)))
}

fn link(object: Oid) -> Value {
    let numbers = [
        ("database", u64::from(object.database.0)),
        ("container", u64::from(object.container.0)),
        ("entry", object.entry),
    ];
    Value::Record(numbers.map(|(name, number)| (name.to_owned(), Value::UInt(number))).into())
}
