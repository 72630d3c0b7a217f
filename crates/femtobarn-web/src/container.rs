//! [`Container`]: the requests of the page about a container.

use std::ops::Range;
use std::sync::Arc;

use rntuple::{
    Array, ByteSource, DELETED_FIELD, Primitive, Reader, Result, Type, Value, type_name,
};

use crate::json;
use crate::numbers::{Numbers, NumericPath, numeric_paths};

/// Entries, at most, that are read at once in search of objects that are not deleted.
const STEP_MAX: u64 = 1 << 16;

/// A container of a complete ROOT file.
pub struct Container {
    reader: Reader,
    /// All fields except the deletion mark.
    members: Vec<(String, Type)>,
    has_marks: bool,
}

impl Container {
    /// Opens a container by its name.
    ///
    /// # Errors
    /// The errors of [`Reader::open`].
    pub fn open(source: Arc<dyn ByteSource>, name: &str) -> Result<Self> {
        let reader = Reader::open(source, name)?;
        let mut members = reader.members();
        let marks = (DELETED_FIELD.to_owned(), Type::Primitive(Primitive::Bool));
        let has_marks = members.contains(&marks);
        members.retain(|member| *member != marks);
        Ok(Container { reader, members, has_marks })
    }

    /// `{"entries": 7, "fields": [{"name", "type"}], "numbers": [{"path", "lists", "is_truth"}], "unreadable":
    /// [{"name", "reason"}]}`. Types have their C++ names; a record without a class has an empty one. `lists` names the
    /// fields that are lists around each number, from the outermost to the innermost.
    pub fn description(&self) -> String {
        let pair = |out: &mut String, name: &str, key: &str, value: &str| {
            out.push_str("{\"name\":");
            json::push_text(out, name);
            json::push(out, &format_args!(",\"{key}\":"));
            json::push_text(out, value);
            out.push('}');
        };
        let mut out = format!("{{\"entries\":{},\"fields\":", self.reader.entries());
        json::push_list(&mut out, self.members.iter(), |out, (name, of)| {
            pair(out, name, "type", &type_name(of).unwrap_or_default());
        });
        out.push_str(",\"numbers\":");
        let paths = numeric_paths(&self.members);
        json::push_list(&mut out, paths.iter(), |out, NumericPath { path, lists, is_truth }| {
            out.push_str("{\"path\":");
            json::push_text(out, path);
            out.push_str(",\"lists\":");
            json::push_list(out, lists.iter(), |out, list| json::push_text(out, list));
            json::push(out, &format_args!(",\"is_truth\":{is_truth}}}"));
        });
        out.push_str(",\"unreadable\":");
        json::push_list(&mut out, self.reader.ignored().iter(), |out, (name, reason)| {
            pair(out, name, "reason", reason);
        });
        out.push('}');
        out
    }

    /// Up to `count` objects from the entry `first` on: `{"next": entry, "objects": [{"entry", "value"}]}`. The
    /// rest begins at `next`.
    ///
    /// # Errors
    /// [`rntuple::Error::Corrupt`] for damaged bytes, [`rntuple::Error::Io`] if they cannot be fetched.
    pub fn objects(&self, first: u64, count: usize) -> Result<String> {
        let mut objects: Vec<(u64, Value)> = vec![];
        let mut next = first;
        let mut step = count as u64;
        while objects.len() < count && next < self.reader.entries() {
            let entries = next..next.saturating_add(step).min(self.reader.entries());
            let is_kept = self.kept(&entries)?;
            let kept = (0..entries.end - entries.start).filter(|&at| is_kept(at as usize));
            let kept = kept.map(|at| entries.start + at).take(count - objects.len());
            objects.extend(self.values(&kept.collect::<Vec<_>>())?);
            next = match objects.last() {
                Some((last, _)) if objects.len() == count => last + 1,
                _ => entries.end,
            };
            step = (2 * step).min(STEP_MAX);
        }
        let mut out = format!("{{\"next\":{next},\"objects\":");
        json::push_list(&mut out, objects.iter(), |out, (entry, value)| {
            json::push(out, &format_args!("{{\"entry\":{entry},\"value\":"));
            json::push_value(out, value);
            out.push('}');
        });
        out.push('}');
        Ok(out)
    }

    /// The objects of entries, which ascend.
    fn values(&self, entries: &[u64]) -> Result<Vec<(u64, Value)>> {
        let runs: Vec<_> = entries.iter().map(|&entry| entry..entry + 1).collect();
        let array = self.reader.read_runs(&self.reader.select(&self.names())?, &runs)?;
        entries.iter().enumerate().map(|(at, &entry)| Ok((entry, array.value(at)?))).collect()
    }

    /// The numbers of a field, one of those of [`description`](Self::description), in a range of entries.
    ///
    /// # Errors
    /// [`rntuple::Error::NotFound`] without such a field or entries, [`rntuple::Error::Invalid`] if it has no numbers,
    /// [`rntuple::Error::Corrupt`] for damaged bytes, [`rntuple::Error::Io`] if they cannot be fetched.
    pub fn numbers(&self, path: &str, entries: Range<u64>) -> Result<Numbers> {
        let is_kept = self.kept(&entries)?;
        let array = self.reader.read(&self.reader.select(&[path])?, entries)?;
        Numbers::of(&array, is_kept)
    }

    fn names(&self) -> Vec<&str> {
        self.members.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// A predicate on positions in the range: whether the entry is not deleted.
    fn kept(&self, entries: &Range<u64>) -> Result<impl Fn(usize) -> bool + use<>> {
        let marks = if self.has_marks {
            let marks =
                self.reader.read(&self.reader.select(&[DELETED_FIELD])?, entries.clone())?;
            match marks.member(DELETED_FIELD) {
                Some(Array::Primitive { values, .. }) => values.clone(),
                _ => Default::default(),
            }
        } else {
            Default::default()
        };
        Ok(move |at: usize| marks.get(at).is_none_or(|&mark| mark == 0))
    }
}
