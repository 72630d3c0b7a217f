//! Payload lists: the series of a payload type in the version that a global tag names, for look-ups.

use std::fmt::Write;
use std::sync::Arc;

use femtobarn::{Result, Snapshot, View};
use serde_json::Value;

use super::moments::IovMoment;
use super::names;
use super::overview::PayloadRow;
use super::references::{PayloadReference, References};
use crate::series::Series;
use crate::timeline::Interval;

/// The channel that nopayloaddb's clients see.
const CHANNEL: i64 = 0;

/// A list as of a version of its series. Threads share it.
pub(super) struct PayloadList {
    pub type_name: Arc<str>,
    type_json: Arc<str>,
    series: Series,
    path: Arc<str>,
    references: Arc<References>,
}

impl PayloadList {
    /// The list with the objects of a container.
    pub(super) fn open(type_path: &str, view: View) -> Result<Self> {
        let type_name = names::name_of(type_path);
        Ok(PayloadList {
            type_json: Value::from(&*type_name).to_string().into(),
            type_name: type_name.into(),
            references: Arc::new(References::new(&view)?),
            path: view.path().into(),
            series: Series::open(vec![view])?,
        })
    }

    /// Whether it is the list of the container `path` in the version of this row.
    pub(super) fn is_of(&self, path: &str, row: &PayloadRow) -> bool {
        let version = self.series.view().version();
        let own = (version.database, version.container, version.csn);
        *self.path == *path && row.version == Some(own)
    }

    /// The same list through another snapshot that has its version; keeps the parts that were read.
    pub(super) fn through(&self, snapshot: &Snapshot) -> Self {
        PayloadList {
            type_name: self.type_name.clone(),
            type_json: self.type_json.clone(),
            series: self.series.through(snapshot),
            path: self.path.clone(),
            references: self.references.clone(),
        }
    }

    /// The payload that is valid at a moment.
    pub(super) fn at(&self, moment: IovMoment) -> Result<Option<ValidPayload<'_>>> {
        let Some(at) = moment.looked_up(self.series.options().clock) else { return Ok(None) };
        let interval = self.series.interval(CHANNEL, at)?;
        interval.entry.map(|entry| self.payload(&interval, entry)).transpose()
    }

    /// Like [`at`](Self::at), if the answer is in memory.
    pub(super) fn known_at(&self, moment: IovMoment) -> Option<Option<ValidPayload<'_>>> {
        let clock = self.series.options().clock;
        let Some(at) = moment.looked_up(clock) else { return Some(None) };
        let interval = self.series.loaded_interval(CHANNEL, at)?;
        let Some(entry) = interval.entry else { return Some(None) };
        Some(Some(self.valid(&interval, self.references.known(entry)?)))
    }

    /// All payloads that are valid at some time, in order.
    pub(super) fn all(&self) -> Result<Vec<(u64, ValidPayload<'_>)>> {
        let intervals = self.series.intervals(CHANNEL, i64::MIN..i64::MAX)?;
        let with_entry = intervals.iter().filter_map(|it| it.entry.map(|entry| (it, entry)));
        with_entry.map(|(it, entry)| Ok((entry, self.payload(it, entry)?))).collect()
    }

    fn payload(&self, interval: &Interval, entry: u64) -> Result<ValidPayload<'_>> {
        Ok(self.valid(interval, self.references.get(self.series.view(), entry)?))
    }

    fn valid<'a>(
        &'a self,
        interval: &Interval,
        reference: &'a PayloadReference,
    ) -> ValidPayload<'a> {
        let clock = self.series.options().clock;
        ValidPayload {
            type_json: &self.type_json,
            reference,
            start: IovMoment::of(interval.since, clock),
            end: IovMoment::of(interval.until, clock),
        }
    }
}

/// A payload and its validity.
pub(super) struct ValidPayload<'a> {
    /// The name of its type, as JSON.
    pub type_json: &'a str,
    pub reference: &'a PayloadReference,
    pub start: IovMoment,
    pub end: IovMoment,
}

impl ValidPayload<'_> {
    /// Writes it as a JSON array, the form that nopayloaddb's clients request by default. The last member is a
    /// revision, which is not stored.
    pub(super) fn write_array(&self, out: &mut String) {
        let ValidPayload { type_json, reference, start, end } = self;
        let numbers = (start.major, start.minor, end.major, end.minor);
        let _ = write!(
            out,
            "[{type_json},{},{},{},{},{},null]",
            reference.json(),
            numbers.0,
            numbers.1,
            numbers.2,
            numbers.3
        );
    }

    /// Writes it as a JSON object.
    pub(super) fn write_object(&self, out: &mut String) {
        let ValidPayload { type_json, reference, start, end } = self;
        let (url, checksum, size) = (reference.url(), reference.checksum(), reference.size());
        let _ = write!(
            out,
            "{{\"payload_type_name\":{type_json},\"payload_url\":{url},\"checksum\":{checksum},\"size\":{size},\
             \"major_iov\":{},\"minor_iov\":{},\"major_iov_end\":{},\"minor_iov_end\":{},\"revision\":null}}",
            start.major, start.minor, end.major, end.minor
        );
    }
}
